//! Extracts the requested range from the output of a command, with bounded memory.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::ControlFlow;

use libris_core::{Context, Error, Result};

use crate::media;
use crate::range::{Range, RangeSpan};

/// The size of one read. The buffer may exceed the limit by this much temporarily; for a range that counts from the end
/// of the output, it grows to about twice the limit before it is trimmed.
const READ_BYTES: usize = 64 << 10;

/// Extracts a range from an output stream.
#[derive(Debug)]
pub(super) struct RangeExtractor {
    wanted: RequestedRange,
    /// The maximum size of the range, in bytes.
    limit: usize,
    buffer: Vec<u8>,
    /// The context that reserves the memory of the buffer, and the number of bytes that it has reserved.
    context: Context,
    reserved: usize,
    /// The largest capacity of the buffer so far, or the one whose reservation was refused.
    needed: usize,
    /// The error of a refused memory reservation.
    reservation_error: Option<Error>,
    /// The number of bytes, and of terminated lines, received so far.
    bytes: u64,
    lines: u64,
    /// Whether the last line is not terminated.
    open: bool,
    /// Whether the extraction ended before the output did.
    stopped: bool,
    /// The beginning of the output, which determines the media type.
    head: Vec<u8>,
    hasher: DefaultHasher,
}

/// The requested range. `first` counts from 0; `end` is exclusive.
#[derive(Clone, Copy, Debug)]
enum RequestedRange {
    Bytes { first: u64, end: Option<u64> },
    Lines { first: u64, end: Option<u64> },
    LastBytes(u64),
    LastLines(u64),
    Nothing,
}

/// The outcome of the extraction.
#[derive(Debug, PartialEq)]
pub(super) enum ExtractedRange {
    /// The bytes of the range.
    Bytes(Vec<u8>),
    /// The range exceeds the limit; it has at least this many bytes.
    TooLarge(u64),
    /// The range begins past the end; the output has only this many bytes or lines.
    PastEnd { count: u64, unit: &'static str },
}

/// The total size of the output, or the range that follows the requested one, if known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeExtent {
    /// The number of lines or bytes of the output, if the program ended by itself.
    pub(super) total: Option<u64>,
    /// The following range of the same length, if the program was stopped after the requested range.
    pub(super) next: Option<Range>,
}

impl RangeExtractor {
    pub(super) fn new(range: Option<Range>, limit: u64) -> Self {
        let wanted = match range {
            None => RequestedRange::Bytes { first: 0, end: None },
            Some(Range::Bytes(RangeSpan::From(first, last))) => {
                RequestedRange::Bytes { first, end: last.map(|last| last.saturating_add(1)) }
            }
            Some(Range::Lines(RangeSpan::From(first, last))) => {
                RequestedRange::Lines { first: first.saturating_sub(1), end: last }
            }
            Some(Range::Bytes(RangeSpan::Last(count))) => RequestedRange::LastBytes(count),
            Some(Range::Lines(RangeSpan::Last(count))) => RequestedRange::LastLines(count),
        };
        Self::of(wanted, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Only computes the digest of the output; `TooLarge` if it exceeds `limit` bytes.
    pub(super) fn digest_only(limit: u64) -> Self {
        Self::of(RequestedRange::Nothing, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Accounts the buffer to a context that has already reserved `reserved` bytes.
    pub(super) fn with_context(self, context: Context, reserved: u64) -> Self {
        Self { context, reserved: usize::try_from(reserved).unwrap_or(usize::MAX), ..self }
    }

    fn of(wanted: RequestedRange, limit: usize) -> Self {
        Self {
            wanted,
            limit,
            buffer: Vec::new(),
            context: Context::default(),
            reserved: 0,
            needed: 0,
            reservation_error: None,
            bytes: 0,
            lines: 0,
            open: false,
            stopped: false,
            head: Vec::new(),
            hasher: DefaultHasher::new(),
        }
    }

    /// Whether the range is complete. More output may follow.
    pub(super) fn is_filled(&self) -> bool {
        match self.wanted {
            RequestedRange::Bytes { end: Some(end), .. } => self.bytes >= end,
            RequestedRange::Lines { end: Some(end), .. } => self.lines >= end,
            _ => false,
        }
    }

    /// Ends the extraction before the output ends.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Processes a chunk of output. Breaks if there is output after the end of the range, if the range exceeds the
    /// limit, or if a memory reservation was refused.
    pub(super) fn push(&mut self, data: &[u8]) -> ControlFlow<()> {
        let flow = self.process_chunk(data);
        self.stopped |= flow.is_break();
        flow
    }

    /// Counts a chunk, and adds the part of it that is in the range to the buffer.
    fn process_chunk(&mut self, data: &[u8]) -> ControlFlow<()> {
        let before = self.bytes;
        self.bytes += data.len() as u64;
        self.head.extend(data.iter().take(media::HEAD_BYTES - self.head.len()));
        self.hasher.write(data);
        if let Err(reservation_error) = self.make_room(data.len()) {
            self.reservation_error = Some(reservation_error);
            self.buffer = Vec::new();
            return ControlFlow::Break(());
        }
        match self.wanted {
            RequestedRange::Bytes { first, end } => {
                let offset = |at: u64| at.saturating_sub(before).min(data.len() as u64) as usize;
                let (from, to) = (offset(first), end.map_or(data.len(), offset));
                self.buffer.extend_from_slice(&data[from.min(to)..to]);
                self.break_if(end.is_some_and(|end| self.bytes > end))
            }
            RequestedRange::Lines { first, end } => {
                for line in data.split_inclusive(|byte| *byte == b'\n') {
                    self.break_if(end.is_some_and(|end| self.lines >= end))?;
                    if self.lines >= first {
                        self.buffer.extend_from_slice(line);
                    }
                    self.open = !line.ends_with(b"\n");
                    self.lines += u64::from(!self.open);
                }
                self.break_if(false)
            }
            RequestedRange::LastBytes(_) | RequestedRange::LastLines(_) => {
                self.buffer.extend_from_slice(data);
                self.lines += data.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.open = data.last().map_or(self.open, |last| *last != b'\n');
                // The buffer is trimmed rarely, so that each byte is moved only a few times (amortised constant
                // cost).
                if self.buffer.len() / 2 > self.limit.saturating_add(1 << 16) {
                    self.buffer.drain(..self.buffer.len() - self.limit - 1);
                }
                ControlFlow::Continue(())
            }
            RequestedRange::Nothing if self.bytes > self.limit as u64 => ControlFlow::Break(()),
            RequestedRange::Nothing => ControlFlow::Continue(()),
        }
    }

    /// Reserves memory and grows the buffer for more bytes. The capacity doubles, so that the cost per byte is
    /// constant.
    fn make_room(&mut self, more: usize) -> Result<()> {
        let needed = self.buffer.len() + more;
        if matches!(self.wanted, RequestedRange::Nothing) || needed <= self.buffer.capacity() {
            return Ok(());
        }
        let doubled = (self.buffer.capacity() * 2).min(self.limit.saturating_add(READ_BYTES));
        let capacity = needed.max(doubled);
        self.needed = capacity;
        if let Some(missing) = capacity.checked_sub(self.reserved).filter(|missing| *missing > 0) {
            self.reserved = capacity;
            self.context.grow(missing as u64)?;
        }
        self.buffer.reserve_exact(capacity - self.buffer.len());
        Ok(())
    }

    /// The memory that the buffer needed, in bytes. If a reservation was refused, this includes the refused bytes. If
    /// the context had reserved more than was needed, the unused part does not count.
    pub(super) fn needed(&self) -> u64 {
        self.needed as u64
    }

    fn break_if(&self, complete: bool) -> ControlFlow<()> {
        if complete || self.buffer.len() > self.limit {
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

    /// The total size of the output, or the range that follows; `ended` says whether the program ended by itself and
    /// all of its output was read.
    pub(super) fn extent(&self, ended: bool) -> RangeExtent {
        let is_complete = ended && !self.stopped;
        let total = |count: u64| RangeExtent { total: is_complete.then_some(count), next: None };
        let next = |range: Range| RangeExtent { total: None, next: Some(range) };
        match self.wanted {
            RequestedRange::Lines { first, end: Some(end) } if self.stopped => {
                next(Range::Lines(RangeSpan::From(end.saturating_add(1), end.checked_add(end - first))))
            }
            RequestedRange::Bytes { first, end: Some(end) } if self.stopped => {
                next(Range::Bytes(RangeSpan::From(end, end.checked_add(end - first - 1))))
            }
            RequestedRange::Lines { .. } | RequestedRange::LastLines(_) => {
                total(self.lines + u64::from(self.open))
            }
            RequestedRange::Bytes { .. } | RequestedRange::LastBytes(_) => total(self.bytes),
            RequestedRange::Nothing => RangeExtent::default(),
        }
    }

    /// The outcome; an error if a memory reservation was refused.
    pub(super) fn finish(mut self) -> Result<ExtractedRange> {
        match self.reservation_error.take() {
            Some(reservation_error) => Err(reservation_error),
            None => Ok(self.into_range()),
        }
    }

    /// The outcome, if all memory reservations succeeded.
    fn into_range(mut self) -> ExtractedRange {
        let start = match self.wanted {
            RequestedRange::Bytes { first, .. } if first > 0 && first >= self.bytes => {
                return ExtractedRange::PastEnd { count: self.bytes, unit: "bytes" };
            }
            RequestedRange::Lines { first, .. }
                if first > 0 && first >= self.lines + u64::from(self.open) =>
            {
                return ExtractedRange::PastEnd { count: self.lines + u64::from(self.open), unit: "lines" };
            }
            RequestedRange::Nothing if self.bytes > self.limit as u64 => {
                return ExtractedRange::TooLarge(self.bytes);
            }
            RequestedRange::Bytes { .. } | RequestedRange::Lines { .. } | RequestedRange::Nothing => Some(0),
            RequestedRange::LastBytes(count) => self.start(count.min(self.bytes)),
            RequestedRange::LastLines(count) => {
                let ended = self.buffer.len().saturating_sub(1);
                let ends = self.buffer[..ended].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
                let nth = usize::try_from(count - 1).unwrap_or(usize::MAX);
                ends.map(|(at, _)| at + 1).nth(nth).or_else(|| self.start(self.bytes))
            }
        };
        match start {
            Some(start) if self.buffer.len() - start <= self.limit => {
                self.buffer.drain(..start);
                self.buffer.shrink_to_fit();
                ExtractedRange::Bytes(self.buffer)
            }
            _ => ExtractedRange::TooLarge(self.bytes.min(self.buffer.len() as u64)),
        }
    }

    /// The offset of the last `count` bytes in the buffer; `None` if some were discarded.
    fn start(&self, count: u64) -> Option<usize> {
        self.buffer.len().checked_sub(usize::try_from(count).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::{ExtractedRange, RangeExtent, RangeExtractor};
    use crate::range::Range;
    use std::ops::ControlFlow;

    /// Processes the output in chunks of this size. Also returns whether the extraction ended early.
    fn take(query: &str, limit: u64, printed: &[u8], size: usize) -> (ExtractedRange, bool) {
        let mut extractor = RangeExtractor::new(Range::parse(query).unwrap(), limit);
        let full = printed.chunks(size).any(|piece| extractor.push(piece) == ControlFlow::Break(()));
        (extractor.finish().unwrap(), full)
    }

    #[test]
    fn ranges_are_those_of_a_file() {
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
                    Ok(part) => ExtractedRange::Bytes(part.as_bytes().to_vec()),
                    Err(count) => {
                        let unit = if query.starts_with("lines") { "lines" } else { "bytes" };
                        ExtractedRange::PastEnd { count: *count, unit }
                    }
                };
                assert_eq!(take(query, 100, printed, size).0, expected, "{query} of {printed:?} by {size}");
            }
        }
    }

    #[test]
    fn the_extent_of_a_range_says_what_is_left() {
        let printed = b"a\nb\nc\nd";
        for (query, total, next) in [
            ("lines=1-2", None, "lines=3-4"),
            ("lines=3", None, "lines=4-4"),
            ("lines=2-9", Some(4), ""),
            ("lines=-2", Some(4), ""),
            ("lines=3-4", Some(4), ""),
            ("bytes=0-2", None, "bytes=3-5"),
            ("bytes=0-6", Some(7), ""),
            ("bytes=4-99", Some(7), ""),
            ("bytes=-1", Some(7), ""),
        ] {
            for size in 1..=7 {
                let mut extractor = RangeExtractor::new(Range::parse(query).unwrap(), 100);
                let _ = printed.chunks(size).any(|piece| extractor.push(piece).is_break());
                let expected = RangeExtent { total, next: Range::parse(next).unwrap() };
                assert_eq!(extractor.extent(true), expected, "{query} by {size}");
                assert_eq!(extractor.extent(false).total, None);
            }
        }
        // A range that ends with a chunk may be the last one.
        let mut extractor = RangeExtractor::new(Range::parse("lines=1-2").unwrap(), 100);
        assert!(extractor.push(b"a\n").is_continue() && !extractor.is_filled());
        assert!(extractor.push(b"b\n").is_continue() && extractor.is_filled());
        assert_eq!(extractor.extent(true).total, Some(2));
        assert!(extractor.push(b"").is_continue() && extractor.push(b"c").is_break());
        assert_eq!(extractor.extent(true).next, Range::parse("lines=3-4").unwrap());
        assert_eq!(extractor.finish().unwrap(), ExtractedRange::Bytes(b"a\nb\n".to_vec()));
    }

    #[test]
    fn a_digest_covers_the_whole_output() {
        let digest = |printed: &[u8], size| {
            let mut extractor = RangeExtractor::digest_only(u64::MAX);
            assert!(printed.chunks(size).all(|piece| extractor.push(piece).is_continue()));
            let digest = extractor.digest();
            assert_eq!(extractor.finish().unwrap(), ExtractedRange::Bytes(Vec::new()));
            digest
        };
        let much = b"line\n".repeat(1000);
        assert!((1..50).all(|size| digest(&much, size) == digest(&much, much.len())));
        assert_ne!(digest(&much, 64), digest(&much[..4999], 64));
        assert_ne!(digest(&much, 64), digest(&[&much[..], b"x"].concat(), 64));
    }

    #[test]
    fn reading_stops_after_the_range() {
        let endless = b"line\n".repeat(1000);
        for query in ["lines=2-3", "bytes=0-9"] {
            assert!(take(query, 100, &endless, 64).1, "{query}");
        }
        for query in ["", "lines=2-", "bytes=5-", "lines=1-100"] {
            let (taken, full) = take(query, 100, &endless, 64);
            assert!(matches!(taken, ExtractedRange::TooLarge(101..=200)) && full, "{query}: {taken:?}");
        }
    }

    #[test]
    fn the_end_of_a_long_output_needs_little_memory() {
        let much = b"0123456789abcde\n".repeat(100_000);
        let last = |query| take(query, 64, &much, 1000).0;
        assert_eq!(last("lines=-4"), ExtractedRange::Bytes(b"0123456789abcde\n".repeat(4)));
        assert_eq!(last("bytes=-3"), ExtractedRange::Bytes(b"de\n".to_vec()));
        for query in ["lines=-5", "lines=-99999", "bytes=-65"] {
            assert!(matches!(last(query), ExtractedRange::TooLarge(65..)), "{query}");
        }
        let mut extractor = RangeExtractor::new(Range::parse("lines=-4").unwrap(), 64);
        for piece in much.chunks(1000) {
            let _ = extractor.push(piece);
            assert!(extractor.buffer.len() < 200_000);
        }
    }
}
