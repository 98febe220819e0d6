//! Extracts the requested range from the output of a command, with bounded memory.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::ControlFlow;

use libris_core::{Context, Error, Result};

use crate::media;
use crate::range::{Range, RangeSpan};

/// The size of one read, by which the buffer may exceed the limit temporarily.
const BLOCK: usize = 64 << 10;

/// Extracts a range from an output stream.
#[derive(Debug)]
pub(super) struct Take {
    wanted: WantedPart,
    /// The maximum size of the range, in bytes.
    limit: usize,
    kept: Vec<u8>,
    /// The context that reserves the memory of the buffer, and the number of bytes reserved.
    context: Context,
    reserved: usize,
    /// The error of a refused memory reservation.
    refused: Option<Error>,
    /// The number of bytes, and of terminated lines, received so far.
    bytes: u64,
    lines: u64,
    /// Whether the last line is not terminated.
    open: bool,
    /// The beginning of the output, which determines the media type.
    head: Vec<u8>,
    hasher: DefaultHasher,
}

/// The requested range. `first` counts from 0; `end` is exclusive.
#[derive(Clone, Copy, Debug)]
enum WantedPart {
    Bytes { first: u64, end: Option<u64> },
    Lines { first: u64, end: Option<u64> },
    LastBytes(u64),
    LastLines(u64),
    Nothing,
}

/// The outcome of the extraction.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// The bytes of the range.
    Part(Vec<u8>),
    /// The range exceeds the limit; it has at least this many bytes.
    Over(u64),
    /// The range begins past the end; the output has only this many bytes or lines.
    Past(u64),
}

impl Take {
    pub(super) fn new(range: Option<Range>, limit: u64) -> Self {
        let wanted = match range {
            None => WantedPart::Bytes { first: 0, end: None },
            Some(Range::Bytes(RangeSpan::From(first, last))) => {
                WantedPart::Bytes { first, end: last.map(|last| last.saturating_add(1)) }
            }
            Some(Range::Lines(RangeSpan::From(first, last))) => {
                WantedPart::Lines { first: first.saturating_sub(1), end: last }
            }
            Some(Range::Bytes(RangeSpan::Last(count))) => WantedPart::LastBytes(count),
            Some(Range::Lines(RangeSpan::Last(count))) => WantedPart::LastLines(count),
        };
        Self::of(wanted, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Only computes the digest of the output; `Over` if it exceeds `limit` bytes.
    pub(super) fn nothing(limit: u64) -> Self {
        Self::of(WantedPart::Nothing, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Accounts the buffer to a context that has already reserved `reserved` bytes.
    pub(super) fn within(self, context: Context, reserved: u64) -> Self {
        Self { context, reserved: usize::try_from(reserved).unwrap_or(usize::MAX), ..self }
    }

    fn of(wanted: WantedPart, limit: usize) -> Self {
        Self {
            wanted,
            limit,
            kept: Vec::new(),
            context: Context::default(),
            reserved: 0,
            refused: None,
            bytes: 0,
            lines: 0,
            open: false,
            head: Vec::new(),
            hasher: DefaultHasher::new(),
        }
    }

    /// Processes a chunk of output; breaks as soon as the outcome is certain.
    pub(super) fn more(&mut self, data: &[u8]) -> ControlFlow<()> {
        let before = self.bytes;
        self.bytes += data.len() as u64;
        self.head.extend(data.iter().take(media::HEAD - self.head.len()));
        self.hasher.write(data);
        if let Err(refused) = self.make_room(data.len()) {
            self.refused = Some(refused);
            self.kept = Vec::new();
            return ControlFlow::Break(());
        }
        match self.wanted {
            WantedPart::Bytes { first, end } => {
                let place = |at: u64| at.saturating_sub(before).min(data.len() as u64) as usize;
                let (from, to) = (place(first), end.map_or(data.len(), place));
                self.kept.extend_from_slice(&data[from.min(to)..to]);
                self.until(end.is_some_and(|end| self.bytes >= end))
            }
            WantedPart::Lines { first, end } => {
                for line in data.split_inclusive(|byte| *byte == b'\n') {
                    if self.lines >= first {
                        self.kept.extend_from_slice(line);
                    }
                    self.open = !line.ends_with(b"\n");
                    self.lines += u64::from(!self.open);
                    self.until(end.is_some_and(|end| self.lines >= end))?;
                }
                ControlFlow::Continue(())
            }
            WantedPart::LastBytes(_) | WantedPart::LastLines(_) => {
                self.kept.extend_from_slice(data);
                // The buffer is trimmed rarely, so that each byte is moved only a few times (amortised constant
                // cost).
                if self.kept.len() / 2 > self.limit.saturating_add(1 << 16) {
                    self.kept.drain(..self.kept.len() - self.limit - 1);
                }
                ControlFlow::Continue(())
            }
            WantedPart::Nothing if self.bytes > self.limit as u64 => ControlFlow::Break(()),
            WantedPart::Nothing => ControlFlow::Continue(()),
        }
    }

    /// Reserves memory and grows the buffer for more bytes. The capacity doubles, so that the cost per byte is
    /// constant.
    fn make_room(&mut self, more: usize) -> Result<()> {
        let needed = self.kept.len() + more;
        if matches!(self.wanted, WantedPart::Nothing) || needed <= self.kept.capacity() {
            return Ok(());
        }
        let doubled = (self.kept.capacity() * 2).min(self.limit.saturating_add(BLOCK));
        let capacity = needed.max(doubled);
        if let Some(missing) = capacity.checked_sub(self.reserved).filter(|missing| *missing > 0) {
            self.reserved = capacity;
            self.context.grow(missing as u64)?;
        }
        self.kept.reserve_exact(capacity - self.kept.len());
        Ok(())
    }

    /// The number of bytes reserved, including those of a refused reservation.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved as u64
    }

    fn until(&self, complete: bool) -> ControlFlow<()> {
        if complete || self.kept.len() > self.limit {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Takes the beginning of the output.
    pub(super) fn head(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.head)
    }

    /// A hash of the whole output.
    pub(super) fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    /// The outcome; an error if a memory reservation was refused.
    pub(super) fn finish(mut self) -> Result<Taken> {
        match self.refused.take() {
            Some(refused) => Err(refused),
            None => Ok(self.taken()),
        }
    }

    fn taken(mut self) -> Taken {
        let start = match self.wanted {
            WantedPart::Bytes { first, .. } if first > 0 && first >= self.bytes => {
                return Taken::Past(self.bytes);
            }
            WantedPart::Lines { first, .. } if first > 0 && first >= self.lines + u64::from(self.open) => {
                return Taken::Past(self.lines + u64::from(self.open));
            }
            WantedPart::Nothing if self.bytes > self.limit as u64 => return Taken::Over(self.bytes),
            WantedPart::Bytes { .. } | WantedPart::Lines { .. } | WantedPart::Nothing => Some(0),
            WantedPart::LastBytes(count) => self.start(count.min(self.bytes)),
            WantedPart::LastLines(count) => {
                let ended = self.kept.len().saturating_sub(1);
                let ends = self.kept[..ended].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
                let nth = usize::try_from(count - 1).unwrap_or(usize::MAX);
                ends.map(|(at, _)| at + 1).nth(nth).or_else(|| self.start(self.bytes))
            }
        };
        match start {
            Some(start) if self.kept.len() - start <= self.limit => {
                self.kept.drain(..start);
                self.kept.shrink_to_fit();
                Taken::Part(self.kept)
            }
            _ => Taken::Over(self.bytes.min(self.kept.len() as u64)),
        }
    }

    /// The offset of the last `count` bytes in the buffer; `None` if some were discarded.
    fn start(&self, count: u64) -> Option<usize> {
        self.kept.len().checked_sub(usize::try_from(count).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Take, Taken};
    use crate::range::Range;
    use std::ops::ControlFlow;

    /// Processes the output in chunks of this size. Also returns whether the extraction ended early.
    fn take(query: &str, limit: u64, printed: &[u8], size: usize) -> (Taken, bool) {
        let mut take = Take::new(Range::parse(query).unwrap(), limit);
        let full = printed.chunks(size).any(|piece| take.more(piece) == ControlFlow::Break(()));
        (take.finish().unwrap(), full)
    }

    #[test]
    fn parts_are_those_of_a_file() {
        let cases: &[(&str, &[u8], Result<&str, u64>)] = &[
            ("", b"a\nb\n", Ok("a\nb\n")),
            ("", b"", Ok("")),
            ("lines=2", b"a\nb\nc\n", Ok("b\n")),
            ("lines=2-", b"a\nb\nc", Ok("b\nc")),
            ("lines=3-9", b"a\nb\nc", Ok("c")),
            ("lines=4-", b"a\nb\nc", Err(3)),
            ("lines=4-", b"a\nb\nc\n", Err(3)),
            ("lines=1-5", b"", Ok("")),
            ("lines=-1", b"a\nb\nc\n", Ok("c\n")),
            ("lines=-2", b"a\nb\nc", Ok("b\nc")),
            ("lines=-9", b"a\nb\nc", Ok("a\nb\nc")),
            ("lines=-1", b"", Ok("")),
            ("lines=-1", b"\n\n", Ok("\n")),
            ("bytes=1-3", b"abcdef", Ok("bcd")),
            ("bytes=4-", b"abcdef", Ok("ef")),
            ("bytes=6-", b"abcdef", Err(6)),
            ("bytes=0-", b"", Ok("")),
            ("bytes=-2", b"abcdef", Ok("ef")),
            ("bytes=-9", b"abcdef", Ok("abcdef")),
        ];
        for (query, printed, part) in cases {
            for size in 1..=7 {
                let expected = match part {
                    Ok(part) => Taken::Part(part.as_bytes().to_vec()),
                    Err(count) => Taken::Past(*count),
                };
                assert_eq!(take(query, 100, printed, size).0, expected, "{query} of {printed:?} by {size}");
            }
        }
    }

    #[test]
    fn a_digest_is_of_everything() {
        let digest = |printed: &[u8], size| {
            let mut take = Take::nothing(u64::MAX);
            assert!(printed.chunks(size).all(|piece| take.more(piece).is_continue()));
            let digest = take.digest();
            assert_eq!(take.finish().unwrap(), Taken::Part(Vec::new()));
            digest
        };
        let much = b"line\n".repeat(1000);
        assert!((1..50).all(|size| digest(&much, size) == digest(&much, much.len())));
        assert_ne!(digest(&much, 64), digest(&much[..4999], 64));
        assert_ne!(digest(&much, 64), digest(&[&much[..], b"x"].concat(), 64));
    }

    #[test]
    fn no_more_is_read_than_is_wanted() {
        let endless = b"line\n".repeat(1000);
        for query in ["lines=2-3", "bytes=0-9"] {
            assert!(take(query, 100, &endless, 64).1, "{query}");
        }
        for query in ["", "lines=2-", "bytes=5-", "lines=1-100"] {
            let (taken, full) = take(query, 100, &endless, 64);
            assert!(matches!(taken, Taken::Over(101..=200)) && full, "{query}: {taken:?}");
        }
    }

    #[test]
    fn the_end_of_much_is_found_with_little_memory() {
        let much = b"0123456789abcde\n".repeat(100_000);
        let last = |query| take(query, 64, &much, 1000).0;
        assert_eq!(last("lines=-4"), Taken::Part(b"0123456789abcde\n".repeat(4)));
        assert_eq!(last("bytes=-3"), Taken::Part(b"de\n".to_vec()));
        for query in ["lines=-5", "lines=-99999", "bytes=-65"] {
            assert!(matches!(last(query), Taken::Over(65..)), "{query}");
        }
        let mut take = Take::new(Range::parse("lines=-4").unwrap(), 64);
        for piece in much.chunks(1000) {
            let _ = take.more(piece);
            assert!(take.kept.len() < 200_000);
        }
    }
}
