//! Finding the bytes of a part of a file, with bounded memory however large the file is.

use std::io::{self, Read, Seek, SeekFrom};

use crate::media::Units;
use crate::range::Span;

/// How much is read at a time. Even, so that no UTF-16 unit is cut.
const BLOCK: usize = 64 * 1024;

/// The bytes that a range of lines or bytes stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    /// From the first on, up to and without the second.
    Within(u64, u64),
    /// It begins after the last one. There are only so many.
    Past(u64),
}

impl Bounds {
    /// Those of a range of bytes in that many.
    pub(super) fn of_bytes(span: Span, size: u64) -> Self {
        match span {
            Span::From(0, _) if size == 0 => Self::Within(0, 0),
            Span::From(first, _) if first >= size => Self::Past(size),
            Span::From(first, last) => {
                Self::Within(first, last.map_or(size, |last| last.saturating_add(1).min(size)))
            }
            Span::Last(count) => Self::Within(size.saturating_sub(count), size),
        }
    }
}

/// A search for lines in a file.
pub(super) struct Lines<'a, F> {
    pub(super) file: &'a mut F,
    pub(super) units: Units,
    /// Told how far the search has come after each block; an error ends the search.
    pub(super) progress: &'a mut dyn FnMut(u64) -> io::Result<()>,
}

impl<F: Read + Seek> Lines<'_, F> {
    /// The bytes of these lines, the last one's end included.
    pub(super) fn bounds(&mut self, span: Span) -> io::Result<Bounds> {
        match span {
            Span::From(first, last) => self.forward(first, last),
            Span::Last(count) => self.backward(count),
        }
    }

    fn forward(&mut self, first: u64, last: Option<u64>) -> io::Result<Bounds> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut block = Vec::with_capacity(BLOCK);
        let (mut line, mut line_start, mut offset) = (1, 0, 0);
        let mut start = (first == 1).then_some(0);
        loop {
            fill(self.file, &mut block)?;
            if block.is_empty() {
                break;
            }
            for end in line_ends(&block, self.units) {
                line_start = offset + end as u64;
                if let Some(start) = start
                    && last == Some(line)
                {
                    return Ok(Bounds::Within(start, line_start));
                }
                line += 1;
                if line == first {
                    start = Some(line_start);
                }
            }
            offset += block.len() as u64;
            (self.progress)(offset)?;
        }
        match start {
            // What follows the last line end is no line, except in an empty file.
            Some(start) if start < offset || offset == 0 => Ok(Bounds::Within(start, offset)),
            _ => Ok(Bounds::Past(line - u64::from(line_start == offset))),
        }
    }

    fn backward(&mut self, count: u64) -> io::Result<Bounds> {
        let size = self.file.seek(SeekFrom::End(0))?;
        let mut block = Vec::with_capacity(BLOCK);
        let mut seen = 0;
        for number in (0..size.div_ceil(BLOCK as u64)).rev() {
            let offset = number * BLOCK as u64;
            self.file.seek(SeekFrom::Start(offset))?;
            fill(self.file, &mut block)?;
            let ends: Vec<usize> = line_ends(&block, self.units).collect();
            for end in ends.into_iter().rev().map(|end| offset + end as u64).filter(|end| *end < size) {
                seen += 1;
                if seen == count {
                    return Ok(Bounds::Within(end, size));
                }
            }
            (self.progress)(size - offset)?;
        }
        Ok(Bounds::Within(0, size))
    }
}

/// Reads a whole block, or what is left.
fn fill(file: &mut impl Read, block: &mut Vec<u8>) -> io::Result<()> {
    block.clear();
    file.take(BLOCK as u64).read_to_end(block).map(drop)
}

/// Where lines end within a block that begins at a whole unit.
fn line_ends(block: &[u8], units: Units) -> impl Iterator<Item = usize> {
    memchr::memchr_iter(b'\n', block).filter_map(move |at| match units {
        Units::Bytes => Some(at + 1),
        Units::Little => (at % 2 == 0 && block.get(at + 1) == Some(&0)).then_some(at + 2),
        Units::Big => (at % 2 == 1 && block[at - 1] == 0).then_some(at + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Bounds, Lines};
    use crate::media::Units;
    use crate::range::Span;
    use proptest::prelude::{any, proptest};
    use std::io::Cursor;

    fn lines(data: &[u8], units: Units, span: Span) -> Bounds {
        Lines { file: &mut Cursor::new(data), units, progress: &mut |_| Ok(()) }.bounds(span).unwrap()
    }

    #[test]
    fn lines_are_found() {
        use Bounds::{Past, Within};
        let cases: &[(&[u8], Span, Bounds)] = &[
            (b"a\nb\nc\n", Span::From(2, Some(2)), Within(2, 4)),
            (b"a\nb\nc\n", Span::From(2, Some(99)), Within(2, 6)),
            (b"a\nb\nc\n", Span::From(4, None), Past(3)),
            (b"a\nb\nc", Span::From(3, None), Within(4, 5)),
            (b"a\nb\nc", Span::From(4, None), Past(3)),
            (b"a\nb\nc\n", Span::Last(1), Within(4, 6)),
            (b"a\nb\nc", Span::Last(2), Within(2, 5)),
            (b"a\nb\nc", Span::Last(9), Within(0, 5)),
            (b"", Span::From(1, Some(5)), Within(0, 0)),
            (b"", Span::From(2, None), Past(0)),
            (b"", Span::Last(1), Within(0, 0)),
            (b"\n", Span::From(1, None), Within(0, 1)),
            (b"\n", Span::From(2, None), Past(1)),
        ];
        for (data, span, bounds) in cases {
            assert_eq!(lines(data, Units::Bytes, *span), *bounds, "{data:?} {span:?}");
        }
    }

    #[test]
    fn units_of_two_bytes() {
        // U+0A0A has the byte of a line end in both halves.
        let big = b"\xfe\xff\0a\0\n\x0a\x0a\0\n\0c";
        assert_eq!(lines(big, Units::Big, Span::From(2, Some(2))), Bounds::Within(6, 10));
        let little = b"\xff\xfea\0\n\0\x0a\x0a\n\0c\0";
        assert_eq!(lines(little, Units::Little, Span::Last(1)), Bounds::Within(10, 12));
    }

    proptest! {
        #[test]
        fn both_directions_agree(lengths in proptest::collection::vec(0_usize..(BLOCK / 8), 1..40), ended in any::<bool>()) {
            let mut data: Vec<u8> = lengths.iter().map(|n| "x".repeat(*n)).collect::<Vec<_>>().join("\n").into();
            if ended {
                data.push(b'\n');
            }
            let count = data.split_inclusive(|byte| *byte == b'\n').count() as u64;
            for last in 1..=count {
                let forward = lines(&data, Units::Bytes, Span::From(count - last + 1, None));
                assert_eq!(lines(&data, Units::Bytes, Span::Last(last)), forward);
            }
        }
    }
}
