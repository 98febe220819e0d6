//! The line indexes of large files: a read of lines continues where an earlier one has scanned to.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use quick_cache::sync::Cache;

use crate::line_starts::LineStarts;
use crate::tree::StatStamp;

/// Smaller files have no index: a scan of them takes less than a millisecond.
const MIN_SIZE: u64 = 1024 * 1024;

/// The number of files with an index. Each takes at most 16 KiB.
const CAPACITY: usize = 64;

/// The indexes of files, by the `stat` result of the file. An index of a file that has changed is never found again, and
/// is evicted at some time.
pub(super) struct LineIndexes(Cache<StatStamp, Arc<LineStarts>>);

impl Default for LineIndexes {
    fn default() -> Self {
        Self(Cache::new(CAPACITY))
    }
}

impl LineIndexes {
    /// Runs a scan of the open file with this `stat` result. The line starts that it finds are stored even if it fails,
    /// for example because its caller was cancelled.
    pub(super) fn scan<T>(
        &self,
        stamp: &StatStamp,
        scan: impl FnOnce(&mut LineStarts) -> io::Result<T>,
    ) -> io::Result<T> {
        // Checked before the scan: a later change then leaves another stamp.
        let is_indexed = stamp.size >= MIN_SIZE && stamp.identifies_contents(SystemTime::now());
        if !is_indexed {
            return scan(&mut LineStarts::default());
        }
        let known = self.0.get(stamp);
        let mut starts = known.as_deref().cloned().unwrap_or_default();
        let before = starts.last();
        let result = scan(&mut starts);
        if starts.last() != before {
            self.0.insert(stamp.clone(), Arc::new(starts));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{LineIndexes, MIN_SIZE};
    use crate::line_starts::LineStart;
    use crate::tree::StatStamp;
    use std::io;
    use std::time::{Duration, SystemTime};

    const FOUND: LineStart = LineStart { line: 7, offset: 1 << 20 };

    /// Whether a second scan knows what the first found.
    fn is_remembered(first: &StatStamp, second: &StatStamp) -> bool {
        let indexes = LineIndexes::default();
        let failed = indexes.scan(first, |starts| {
            starts.add(FOUND);
            io::Result::<()>::Err(io::Error::other("the caller was cancelled"))
        });
        assert!(failed.is_err());
        indexes.scan(second, |starts| Ok(starts.last() == Some(FOUND))).unwrap()
    }

    #[test]
    fn an_index_is_used_while_the_file_is_unchanged() {
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        let old = StatStamp::for_test(MIN_SIZE, Some(hour_ago));
        assert!(is_remembered(&old, &old));
        assert!(!is_remembered(&old, &StatStamp::for_test(MIN_SIZE + 1, Some(hour_ago))));
        assert!(!is_remembered(
            &old,
            &StatStamp::for_test(MIN_SIZE, Some(hour_ago + Duration::from_nanos(1)))
        ));
        // A file that has just changed may change again without another stamp.
        let new = StatStamp::for_test(MIN_SIZE, Some(SystemTime::now()));
        assert!(!is_remembered(&new, &new));
        let unknown = StatStamp::for_test(MIN_SIZE, None);
        assert!(!is_remembered(&unknown, &unknown));
        let small = StatStamp::for_test(MIN_SIZE - 1, Some(hour_ago));
        assert!(!is_remembered(&small, &small));
    }
}
