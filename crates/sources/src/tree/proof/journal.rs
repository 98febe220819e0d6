//! Journals of the names that change in a watched directory, so that only those need be checked again.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The maximum number of names in a journal. Beyond that, reading the whole directory costs less.
const MAX_NAMES: usize = 4_096;

/// The maximum number of names in all journals of the process.
const MAX_TOTAL_NAMES: usize = 65_536;

/// The number of names in all journals now.
static TOTAL_NAMES: AtomicUsize = AtomicUsize::new(0);

/// The names that were created, deleted or renamed since they were last taken.
#[derive(Debug, Default)]
pub(in super::super) struct NameJournal {
    changed: Mutex<JournalNames>,
}

#[derive(Debug, Default)]
struct JournalNames {
    names: HashSet<OsString>,
    /// Whether names are missing. Never reset.
    incomplete: bool,
}

impl NameJournal {
    /// Takes the changed names; `None` if some may be missing. The event queue must have been drained just before.
    pub(in super::super) fn take(&self) -> Option<HashSet<OsString>> {
        let mut changed = self.lock();
        let names = std::mem::take(&mut changed.names);
        TOTAL_NAMES.fetch_sub(names.len(), Ordering::Relaxed);
        (!changed.incomplete).then_some(names)
    }

    fn record(&self, name: &OsStr) {
        let mut changed = self.lock();
        if changed.incomplete || changed.names.contains(name) {
            return;
        }
        if changed.names.len() >= MAX_NAMES || TOTAL_NAMES.load(Ordering::Relaxed) >= MAX_TOTAL_NAMES {
            drop(changed);
            return self.mark_incomplete();
        }
        changed.names.insert(name.to_owned());
        TOTAL_NAMES.fetch_add(1, Ordering::Relaxed);
    }

    fn mark_incomplete(&self) {
        let mut changed = self.lock();
        changed.incomplete = true;
        let names = std::mem::take(&mut changed.names);
        TOTAL_NAMES.fetch_sub(names.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, JournalNames> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NameJournal {
    fn drop(&mut self) {
        // Subtracts its names from the total.
        self.mark_incomplete();
    }
}

/// The open journals of one watched directory.
#[derive(Debug, Default)]
pub(super) struct NameJournals {
    set: Mutex<JournalSet>,
}

#[derive(Debug, Default)]
struct JournalSet {
    journals: Vec<Weak<NameJournal>>,
    /// Whether the watch has ended, so that nothing more is recorded.
    closed: bool,
}

impl NameJournals {
    /// Opens a journal of the changes from now on; `None` if the watch has ended.
    pub(super) fn open(&self) -> Option<Arc<NameJournal>> {
        let mut set = self.lock();
        if set.closed {
            return None;
        }
        let journal = Arc::<NameJournal>::default();
        set.journals.retain(|journal| journal.strong_count() > 0);
        set.journals.push(Arc::downgrade(&journal));
        Some(journal)
    }

    pub(super) fn record(&self, name: &OsStr) {
        self.each(|journal| journal.record(name));
    }

    /// Marks all journals as incomplete, because events were lost.
    pub(super) fn mark_incomplete(&self) {
        self.each(NameJournal::mark_incomplete);
    }

    /// Marks all journals as incomplete, because the watch has ended.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.mark_incomplete();
    }

    fn each(&self, work: impl Fn(&NameJournal)) {
        self.lock().journals.iter().filter_map(Weak::upgrade).for_each(|journal| work(&journal));
    }

    fn lock(&self) -> MutexGuard<'_, JournalSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAMES, NameJournals};

    #[test]
    fn a_full_journal_is_incomplete() {
        let journals = NameJournals::default();
        let journal = journals.open().unwrap();
        for n in 0..MAX_NAMES {
            journals.record(n.to_string().as_ref());
            journals.record("again".as_ref());
            if n % 1000 == 999 {
                assert_eq!(journal.take().unwrap().len(), 1001);
            }
        }
        assert!(journal.take().is_some());
        for n in 0..=MAX_NAMES {
            journals.record(n.to_string().as_ref());
        }
        assert!(journal.take().is_none());
        journals.record("more".as_ref());
        assert!(journal.take().is_none());
        let other = journals.open().unwrap();
        assert!(other.take().unwrap().is_empty());
        journals.close();
        assert!(other.take().is_none() && journals.open().is_none());
    }
}
