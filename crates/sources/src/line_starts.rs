//! An index of line offsets: where some lines of a file start, so that a scan for a line need not begin at the first.

/// The maximum number of entries of an index. When it is reached, every second entry is removed.
const MAX_ENTRIES: usize = 1024;

/// The distance between two entries in bytes, until the index is full for the first time.
const FIRST_DISTANCE: u64 = 256 * 1024;

/// Where a line starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineStart {
    /// The number of the line, counted from 1.
    pub(crate) line: u64,
    /// Its offset in bytes.
    pub(crate) offset: u64,
}

/// The line starts of one file, in order. The distance between entries grows with the part of the file that was scanned,
/// so that the index of a file of any size takes at most 16 KiB.
#[derive(Clone, Debug)]
pub(crate) struct LineStarts {
    entries: Vec<LineStart>,
    distance: u64,
}

impl Default for LineStarts {
    fn default() -> Self {
        Self { entries: Vec::new(), distance: FIRST_DISTANCE }
    }
}

impl LineStarts {
    /// The last known line start that is not after this line; the start of the file if none is known.
    pub(crate) fn before(&self, line: u64) -> LineStart {
        let after = self.entries.partition_point(|start| start.line <= line);
        after.checked_sub(1).map_or(LineStart { line: 1, offset: 0 }, |at| self.entries[at])
    }

    /// Adds a line start that is at least `distance` bytes after the last entry, or after the start of the file if
    /// there is no entry. Ignores any other.
    pub(crate) fn add(&mut self, start: LineStart) {
        let last = self.entries.last().map_or(0, |last| last.offset);
        if start.offset < last.saturating_add(self.distance) {
            return;
        }
        if self.entries.len() == MAX_ENTRIES {
            let mut number = 0;
            self.entries.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.distance *= 2;
        }
        self.entries.push(start);
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Option<LineStart> {
        self.entries.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_DISTANCE, LineStart, LineStarts, MAX_ENTRIES};

    #[test]
    fn the_nearest_line_start_is_found_and_the_size_is_bounded() {
        let mut starts = LineStarts::default();
        let at = |number: u64| LineStart { line: number + 1, offset: number * (FIRST_DISTANCE / 2) };
        assert_eq!(starts.before(u64::MAX), LineStart { line: 1, offset: 0 });
        let count = 20 * MAX_ENTRIES as u64;
        for number in 0..count {
            starts.add(at(number));
            starts.add(at(number / 2));
            assert!(starts.entries.len() <= MAX_ENTRIES);
        }
        assert!(starts.entries.is_sorted_by(|one, next| one.offset + FIRST_DISTANCE <= next.offset));
        for line in (1..=count).step_by(97) {
            let found = starts.before(line);
            assert_eq!(found, at(found.line - 1));
            assert!(found.line <= line && line - found.line <= 4 * 20, "{found:?} for line {line}");
        }
    }
}
