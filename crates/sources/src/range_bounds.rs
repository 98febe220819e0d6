//! Converts a range of lines to a byte range, with bounded memory however large the file is. Also builds the
//! `_meta` of a range: the size of the whole file, and the URI of the next range.

use std::io::{self, Read, Seek, SeekFrom};

use libris_core::{Meta, Uri};

use crate::line_starts::{LineStart, LineStarts};
use crate::media::CodeUnits;
use crate::meta;
use crate::range::{Range, RangeSpan};

/// The size of the blocks in which a file is read. Even, so that no UTF-16 code unit is split.
const BLOCK_BYTES: usize = 64 * 1024;

/// The maximum number of bytes before a range, and after it, in which lines are counted. More would make a small range
/// of a large file expensive.
const MAX_COUNTED_BYTES: u64 = 1024 * 1024;

/// The result of converting a range of lines or bytes to a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteBounds {
    /// From the first offset up to, but not including, the second.
    Within(u64, u64),
    /// The range begins past the end: there are only this many lines or bytes.
    PastEnd(u64),
    /// The range is larger than the limit.
    OverLimit(OverLimit),
}

/// A range of lines that is larger than the limit. The scan stops as soon as this is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverLimit {
    /// A lower bound of the size of the range, in bytes.
    pub(crate) size: u64,
    /// The offset at which the range begins. If a scan from the end stopped before it reached that offset, the lowest
    /// offset that was read.
    pub(crate) start: u64,
    /// Whether one line alone is larger than the limit: the first line of the range, or, for a scan from the end, the
    /// last.
    pub(crate) one_line: bool,
}

impl ByteBounds {
    /// The bounds of a byte range in data of this size.
    pub(crate) fn of_bytes(span: RangeSpan, size: u64) -> Self {
        match span {
            RangeSpan::From(0, _) if size == 0 => Self::Within(0, 0),
            RangeSpan::From(first, _) if first >= size => Self::PastEnd(size),
            RangeSpan::From(first, last) => {
                Self::Within(first, last.map_or(size, |last| last.saturating_add(1).min(size)))
            }
            RangeSpan::Last(count) => Self::Within(size.saturating_sub(count), size),
        }
    }
}

/// The `_meta` of a range of a file: the size of the whole file, and the URI of the next range of the same length.
/// There is a next range only if this one has a last line or byte, and if `end`, the offset at which it ends, is before
/// the end of the file.
pub(crate) fn range_meta(uri: &Uri, range: Range, end: u64, size: u64, total_lines: Option<u64>) -> Meta {
    let mut meta = meta::with(meta::TOTAL_BYTES, size);
    if let Some(lines) = total_lines {
        meta.insert(meta::TOTAL_LINES.to_owned(), lines.into());
    }
    let (unit, span) = match range {
        Range::Lines(span) => ("lines", span),
        Range::Bytes(span) => ("bytes", span),
    };
    if let RangeSpan::From(first, Some(last)) = span
        && end < size
        && let Some(next) = last.checked_add(1)
    {
        let query = format!("{unit}={next}-{}", last.saturating_add(next - first));
        let next = Uri::parse(&format!("{}?{query}", uri.without_query()));
        meta.extend(next.ok().map(|next| (meta::NEXT.to_owned(), next.as_str().into())));
    }
    meta
}

/// A scan of a file for line ends.
pub(crate) struct LineScanner<'a, F> {
    pub(crate) file: &'a mut F,
    pub(crate) units: CodeUnits,
    /// The limit on the size of a range, in bytes.
    pub(crate) limit: u64,
    /// Where lines start, from earlier scans of this file. Scans from the beginning use it and add to it.
    pub(crate) starts: &'a mut LineStarts,
    /// Called after each block with the number of bytes scanned; an error stops the scan.
    pub(crate) progress: &'a mut dyn FnMut(u64) -> io::Result<()>,
}

impl<F: Read + Seek> LineScanner<'_, F> {
    /// The byte range of these lines, including the last line terminator.
    pub(crate) fn bounds(&mut self, span: RangeSpan) -> io::Result<ByteBounds> {
        match span {
            RangeSpan::From(first, last) => self.forward(first, last),
            RangeSpan::Last(count) => self.backward(count),
        }
    }

    /// The number of lines of the file; `None` if counting them would mean reading more than [`MAX_COUNTED_BYTES`]
    /// before or after the range. `start` and `end` are the bounds of the lines `span`.
    pub(crate) fn total_lines(
        &mut self,
        span: RangeSpan,
        (start, end): (u64, u64),
    ) -> io::Result<Option<u64>> {
        let size = self.file.seek(SeekFrom::End(0))?;
        let counted_before = match span {
            RangeSpan::From(..) => 0,
            RangeSpan::Last(_) => start,
        };
        if counted_before.max(size.saturating_sub(end)) > MAX_COUNTED_BYTES {
            return Ok(None);
        }
        let known = match span {
            RangeSpan::From(first, _) => first - 1,
            RangeSpan::Last(_) => 0,
        };
        Ok(Some(known + self.count(start - counted_before)?))
    }

    /// The number of lines from this offset, at which a line begins, to the end.
    fn count(&mut self, start: u64) -> io::Result<u64> {
        self.file.seek(SeekFrom::Start(start))?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let (mut lines, mut offset, mut line_start) = (0, start, start);
        loop {
            fill(self.file, &mut block, BLOCK_BYTES)?;
            if block.is_empty() {
                return Ok(lines + u64::from(line_start < offset));
            }
            for end in line_ends(&block, self.units) {
                lines += 1;
                line_start = offset + end as u64;
            }
            offset += block.len() as u64;
        }
    }

    /// Scans from the beginning, or from a known line start, for the lines from `first` (which counts from 1) to `last`.
    fn forward(&mut self, first: u64, last: Option<u64>) -> io::Result<ByteBounds> {
        let LineStart { mut line, offset: begin } = self.starts.before(first);
        self.file.seek(SeekFrom::Start(begin))?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let (mut line_start, mut offset) = (begin, begin);
        let mut start = (first == line).then_some(begin);
        let mut first_end = None;
        loop {
            // Each block ends at a multiple of `BLOCK_BYTES`, so that a scan stops at the same offset whatever line
            // starts are known.
            fill(self.file, &mut block, BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize)?;
            if block.is_empty() {
                break;
            }
            for end in line_ends(&block, self.units) {
                line_start = offset + end as u64;
                if let Some(start) = start {
                    let first_end = *first_end.get_or_insert(line_start);
                    if last == Some(line) {
                        return Ok(self.fit(start, line_start, first_end - start));
                    }
                }
                line += 1;
                if line == first {
                    start = Some(line_start);
                }
            }
            offset += block.len() as u64;
            self.starts.add(LineStart { line, offset: line_start });
            if let Some(start) = start
                && offset - start > self.limit
            {
                return Ok(self.fit(start, offset, first_end.unwrap_or(offset) - start));
            }
            (self.progress)(offset - begin)?;
        }
        match start {
            // A file that ends with a line terminator has no further, empty line, unless it is empty itself.
            Some(start) if start < offset || offset == 0 => {
                Ok(self.fit(start, offset, first_end.unwrap_or(offset) - start))
            }
            _ => Ok(ByteBounds::PastEnd(line - u64::from(line_start == offset))),
        }
    }

    /// Scans from the end, for the last `count` lines.
    fn backward(&mut self, count: u64) -> io::Result<ByteBounds> {
        let size = self.file.seek(SeekFrom::End(0))?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let mut seen = 0;
        let mut last_start = None;
        for number in (0..size.div_ceil(BLOCK_BYTES as u64)).rev() {
            let offset = number * BLOCK_BYTES as u64;
            self.file.seek(SeekFrom::Start(offset))?;
            fill(self.file, &mut block, BLOCK_BYTES)?;
            let ends: Vec<usize> = line_ends(&block, self.units).collect();
            for end in ends.into_iter().rev().map(|end| offset + end as u64).filter(|end| *end < size) {
                seen += 1;
                let last_start = *last_start.get_or_insert(end);
                if seen == count {
                    return Ok(self.fit(end, size, size - last_start));
                }
            }
            if size - offset > self.limit {
                return Ok(self.fit(offset, size, size - last_start.unwrap_or(offset)));
            }
            (self.progress)(size - offset)?;
        }
        Ok(self.fit(0, size, size - last_start.unwrap_or(0)))
    }

    /// The bounds from `start` to `end`, or `OverLimit`. `line` is the size of the line that the scan found
    /// first.
    fn fit(&self, start: u64, end: u64, line: u64) -> ByteBounds {
        match end - start {
            size if size > self.limit => {
                ByteBounds::OverLimit(OverLimit { size, start, one_line: line > self.limit })
            }
            _ => ByteBounds::Within(start, end),
        }
    }
}

/// Reads a block of this size, or the rest of the file.
fn fill(file: &mut impl Read, block: &mut Vec<u8>, size: usize) -> io::Result<()> {
    block.clear();
    file.take(size as u64).read_to_end(block).map(drop)
}

/// The offsets after each line terminator in a block that begins at a whole code unit.
fn line_ends(block: &[u8], units: CodeUnits) -> impl Iterator<Item = usize> {
    memchr::memchr_iter(b'\n', block).filter_map(move |at| match units {
        CodeUnits::Bytes => Some(at + 1),
        CodeUnits::Little => (at % 2 == 0 && block.get(at + 1) == Some(&0)).then_some(at + 2),
        CodeUnits::Big => (at % 2 == 1 && block[at - 1] == 0).then_some(at + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, ByteBounds, LineScanner, LineStarts, MAX_COUNTED_BYTES, OverLimit, range_meta};
    use crate::media::CodeUnits;
    use crate::range::{Range, RangeSpan};
    use libris_core::Uri;
    use proptest::prelude::{any, proptest};
    use std::io::Cursor;

    fn lines(data: &[u8], units: CodeUnits, span: RangeSpan) -> ByteBounds {
        limited(data, units, u64::MAX, span)
    }

    fn limited(data: &[u8], units: CodeUnits, limit: u64, span: RangeSpan) -> ByteBounds {
        scanned(data, units, limit, span, &mut LineStarts::default()).0
    }

    /// The bounds, and the number of bytes scanned.
    fn scanned(
        data: &[u8],
        units: CodeUnits,
        limit: u64,
        span: RangeSpan,
        starts: &mut LineStarts,
    ) -> (ByteBounds, u64) {
        let (file, mut scanned) = (&mut Cursor::new(data), 0);
        let progress = &mut |done| {
            scanned = done;
            Ok(())
        };
        let bounds = LineScanner { file, units, limit, starts, progress }.bounds(span).unwrap();
        (bounds, scanned)
    }

    #[test]
    fn ranges_over_the_limit() {
        let cases: &[(&[u8], RangeSpan, u64, u64, bool)] = &[
            (b"a\nbbbbb\nc\n", RangeSpan::From(1, Some(2)), 8, 0, false),
            (b"a\nbbbbb\nc\n", RangeSpan::From(2, Some(2)), 6, 2, true),
            (b"a\nbbbbb\nc\n", RangeSpan::From(2, None), 8, 2, true),
            (b"a\nb\nc\n", RangeSpan::From(1, None), 6, 0, false),
            (b"aaaaa", RangeSpan::From(1, Some(9)), 5, 0, true),
            (b"aaaaa\nb", RangeSpan::Last(2), 7, 0, false),
            (b"a\nbbbbb", RangeSpan::Last(1), 5, 2, true),
            (b"a\nbbbbb", RangeSpan::Last(9), 7, 0, true),
        ];
        for (data, span, size, start, one_line) in cases {
            let over = OverLimit { size: *size, start: *start, one_line: *one_line };
            assert_eq!(
                limited(data, CodeUnits::Bytes, 4, *span),
                ByteBounds::OverLimit(over),
                "{data:?} {span:?}"
            );
        }
        let far = [b"a\n", &vec![b'x'; 9 * BLOCK_BYTES][..], b"\nb"].concat();
        for (span, start) in [(RangeSpan::From(2, Some(2)), 2), (RangeSpan::Last(2), 8 * BLOCK_BYTES as u64)]
        {
            let ByteBounds::OverLimit(over) = limited(&far, CodeUnits::Bytes, 4, span) else {
                panic!("{span:?}")
            };
            assert_eq!(over.start, start, "{span:?}");
            assert!(over.size <= 2 * BLOCK_BYTES as u64, "{span:?} went on to {}", over.size);
        }
    }

    #[test]
    fn ranges_of_lines() {
        use ByteBounds::{PastEnd, Within};
        let cases: &[(&[u8], RangeSpan, ByteBounds)] = &[
            (b"a\nb\nc\n", RangeSpan::From(2, Some(2)), Within(2, 4)),
            (b"a\nb\nc\n", RangeSpan::From(2, Some(99)), Within(2, 6)),
            (b"a\nb\nc\n", RangeSpan::From(4, None), PastEnd(3)),
            (b"a\nb\nc", RangeSpan::From(3, None), Within(4, 5)),
            (b"a\nb\nc", RangeSpan::From(4, None), PastEnd(3)),
            (b"a\nb\nc\n", RangeSpan::Last(1), Within(4, 6)),
            (b"a\nb\nc", RangeSpan::Last(2), Within(2, 5)),
            (b"a\nb\nc", RangeSpan::Last(9), Within(0, 5)),
            (b"", RangeSpan::From(1, Some(5)), Within(0, 0)),
            (b"", RangeSpan::From(2, None), PastEnd(0)),
            (b"", RangeSpan::Last(1), Within(0, 0)),
            (b"\n", RangeSpan::From(1, None), Within(0, 1)),
            (b"\n", RangeSpan::From(2, None), PastEnd(1)),
        ];
        for (data, span, bounds) in cases {
            assert_eq!(lines(data, CodeUnits::Bytes, *span), *bounds, "{data:?} {span:?}");
        }
    }

    #[test]
    fn all_lines_are_counted_if_that_is_cheap() {
        let total = |data: &[u8], span| {
            let ByteBounds::Within(start, end) = lines(data, CodeUnits::Bytes, span) else {
                panic!("{span:?}")
            };
            let file = &mut Cursor::new(data);
            let (starts, progress) = (&mut LineStarts::default(), &mut |_| Ok(()));
            let units = CodeUnits::Bytes;
            let mut search = LineScanner { file, units, limit: u64::MAX, starts, progress };
            search.total_lines(span, (start, end)).unwrap()
        };
        let spans = [
            RangeSpan::From(1, Some(1)),
            RangeSpan::From(2, Some(9)),
            RangeSpan::From(2, None),
            RangeSpan::Last(1),
        ];
        for span in spans {
            assert_eq!(total(b"a\nb\nc\n", span), Some(3), "{span:?}");
            assert_eq!(total(b"a\nb\nc", span), Some(3), "{span:?}");
        }
        assert_eq!(total(b"", RangeSpan::From(1, None)), Some(0));
        let half = MAX_COUNTED_BYTES as usize / 2;
        let large = b"x\n".repeat(half + 1);
        assert_eq!(total(&large, RangeSpan::From(1, Some(1))), Some(half as u64 + 1));
        assert_eq!(total(&large, RangeSpan::Last(1)), Some(half as u64 + 1));
        let larger = b"x\n".repeat(half + 2);
        assert_eq!(total(&larger, RangeSpan::From(1, Some(1))), None);
        assert_eq!(total(&larger, RangeSpan::Last(1)), None);
        assert_eq!(total(&larger, RangeSpan::From(1, None)), Some(half as u64 + 2));
    }

    #[test]
    fn known_line_starts_change_no_result_and_shorten_the_scan() {
        let texts = (0..60_000_u64).map(|number| "x".repeat((number * number % 97) as usize));
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        for (ended, units) in [(true, CodeUnits::Bytes), (false, CodeUnits::Bytes), (true, CodeUnits::Little)]
        {
            let text = texts.clone().collect::<Vec<_>>().join("\n") + if ended { "\n" } else { "" };
            let data = if units == CodeUnits::Bytes { text.into_bytes() } else { wide(&text) };
            let mut starts = LineStarts::default();
            let firsts = [59_999, 1, 30_000, 60_000, 60_001, 70_000, 29_999, 45_678, 2, 60_002];
            let spans = firsts.map(|first| [Some(first), Some(first + 9), None].map(|last| (first, last)));
            for (first, last) in spans.into_iter().flatten() {
                let span = RangeSpan::From(first, last);
                let (bounds, _) = scanned(&data, units, 1 << 20, span, &mut starts);
                assert_eq!(bounds, limited(&data, units, 1 << 20, span), "{first} to {last:?}");
            }
            let (_, read) =
                scanned(&data, units, u64::MAX, RangeSpan::From(59_000, Some(59_001)), &mut starts);
            assert!(read < data.len() as u64 / 4, "{read} of {} bytes", data.len());
        }
    }

    #[test]
    fn a_part_names_the_next_one() {
        let uri = Uri::parse("file:///m/a?lines=x").unwrap();
        let next = |range, end| {
            let meta = range_meta(&uri, range, end, 100, Some(9));
            assert_eq!(
                (&meta["dev.libris/totalBytes"], &meta["dev.libris/totalLines"]),
                (&100.into(), &9.into())
            );
            meta.get("dev.libris/next").map(|next| next.as_str().unwrap().to_owned())
        };
        let lines = |first, last| Range::Lines(RangeSpan::From(first, last));
        assert_eq!(next(lines(1, Some(3)), 50).as_deref(), Some("file:///m/a?lines=4-6"));
        assert_eq!(next(lines(3, Some(3)), 50).as_deref(), Some("file:///m/a?lines=4-4"));
        assert_eq!(next(lines(1, Some(3)), 100), None);
        assert_eq!(next(lines(1, None), 100), None);
        let bytes = Range::Bytes(RangeSpan::From(0, Some(9)));
        assert_eq!(next(bytes, 10).as_deref(), Some("file:///m/a?bytes=10-19"));
    }

    #[test]
    fn lines_of_utf_16() {
        // U+0A0A contains the byte of a line feed twice.
        let big = b"\xfe\xff\0a\0\n\x0a\x0a\0\n\0c";
        assert_eq!(lines(big, CodeUnits::Big, RangeSpan::From(2, Some(2))), ByteBounds::Within(6, 10));
        let little = b"\xff\xfea\0\n\0\x0a\x0a\n\0c\0";
        assert_eq!(lines(little, CodeUnits::Little, RangeSpan::Last(1)), ByteBounds::Within(10, 12));
    }

    proptest! {
        #[test]
        fn forward_and_backward_scans_agree(lengths in proptest::collection::vec(0_usize..(BLOCK_BYTES / 8), 1..40), ended in any::<bool>()) {
            let mut data: Vec<u8> = lengths.iter().map(|n| "x".repeat(*n)).collect::<Vec<_>>().join("\n").into();
            if ended {
                data.push(b'\n');
            }
            let count = data.split_inclusive(|byte| *byte == b'\n').count() as u64;
            for last in 1..=count {
                let forward = lines(&data, CodeUnits::Bytes, RangeSpan::From(count - last + 1, None));
                assert_eq!(lines(&data, CodeUnits::Bytes, RangeSpan::Last(last)), forward);
            }
        }
    }
}
