//! Splits a byte stream into lines of bounded length.

use std::io::{self, Read};
use std::time::Instant;

/// The size of one read.
const READ_SIZE: usize = 64 << 10;

/// A line without its terminator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A complete line, and a time by which all of it had arrived.
    Whole(&'a [u8], Instant),
    /// A line longer than the limit; its bytes were discarded.
    TooLong,
}

/// A line reader.
pub(crate) struct Lines<R> {
    input: R,
    limit: usize,
    /// Input up to `end`; the rest is free space.
    buffer: Vec<u8>,
    end: usize,
    /// The start of the next line.
    start: usize,
    /// There is no line end between `start` and this offset, so the search continues here.
    searched: usize,
    /// Whether the current line is too long, so that its bytes are discarded.
    skipping: bool,
    /// When `buffer` was last filled: all of its content had arrived by then.
    filled: Instant,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self {
            input,
            limit,
            buffer: Vec::new(),
            end: 0,
            start: 0,
            searched: 0,
            skipping: false,
            filled: Instant::now(),
        }
    }

    /// Whether the next line is buffered, so that [`next`](Self::next) will not block.
    pub(crate) fn has_line(&mut self) -> bool {
        self.line_end().is_some()
    }

    fn line_end(&mut self) -> Option<usize> {
        let from = self.searched.max(self.start);
        match memchr::memchr(b'\n', &self.buffer[from..self.end]) {
            Some(at) => {
                self.searched = from + at;
                Some(from + at)
            }
            None => {
                self.searched = self.end;
                None
            }
        }
    }

    /// The next line, or `None` at the end of the stream. Input after the last line end is a line too.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            if let Some(end) = self.line_end() {
                let start = std::mem::replace(&mut self.start, end + 1);
                self.searched = end + 1;
                if std::mem::take(&mut self.skipping) || end - start > self.limit {
                    return Ok(Some(Line::TooLong));
                }
                return Ok(Some(Line::Whole(&self.buffer[start..end], self.filled)));
            }
            if self.skipping {
                self.discard_buffer();
            } else if self.end - self.start > self.limit {
                self.skipping = true;
                self.discard_buffer();
            }
            if self.fill()? == 0 {
                let start = std::mem::replace(&mut self.start, self.end);
                if std::mem::take(&mut self.skipping) {
                    return Ok(Some(Line::TooLong));
                }
                let rest = &self.buffer[start..self.end];
                return Ok((!rest.is_empty()).then_some(Line::Whole(rest, self.filled)));
            }
        }
    }

    /// Discards the buffer, which contains no line end, and frees its memory.
    fn discard_buffer(&mut self) {
        self.buffer = Vec::new();
        self.end = 0;
        self.start = 0;
        self.searched = 0;
    }

    fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.searched -= self.start.min(self.searched);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < READ_SIZE {
            self.buffer.resize(self.end + READ_SIZE, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                outcome => {
                    self.end += *outcome.as_ref().unwrap_or(&0);
                    self.filled = Instant::now();
                    return outcome;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Lines};
    use proptest::prelude::{Strategy as _, any, prop, proptest};
    use std::io::Read;

    /// Returns its bytes in reads of these sizes.
    struct ChunkedInput<'a>(&'a [u8], Vec<usize>);

    impl Read for ChunkedInput<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.1.pop().unwrap_or(7).max(1).min(buffer.len()).min(self.0.len());
            buffer[..size].copy_from_slice(&self.0[..size]);
            self.0 = &self.0[size..];
            Ok(size)
        }
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_sizes_of_reads(
            bytes in prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..200),
            sizes in prop::collection::vec(any::<u8>().prop_map(usize::from), 0..50),
            limit in 1usize..20,
        ) {
            let mut lines = Lines::new(ChunkedInput(&bytes, sizes), limit);
            let mut seen = Vec::new();
            while let Some(line) = lines.next().unwrap() {
                seen.push(match line { Line::Whole(line, _) => Some(line.to_vec()), Line::TooLong => None });
            }
            let mut expected: Vec<_> = bytes
                .split(|&byte| byte == b'\n')
                .map(|line| (line.len() <= limit).then(|| line.to_vec()))
                .collect();
            if expected.last() == Some(&Some(Vec::new())) {
                expected.pop();
            }
            assert_eq!(seen, expected);
        }
    }
}
