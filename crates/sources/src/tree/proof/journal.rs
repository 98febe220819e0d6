//! Which names in a directory changed, so that its names need not all be read again.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How many changed names a journal holds. Beyond, reading all names costs less.
const MAX_NAMES: usize = 4_096;

/// How many changed names all journals of the process hold.
const MAX_TOTAL_NAMES: usize = 65_536;

/// How many those are now.
static TOTAL_NAMES: AtomicUsize = AtomicUsize::new(0);

/// The names of entries that came, went or were replaced since they were last taken.
#[derive(Debug, Default)]
pub(in super::super) struct NameJournal {
    changed: Mutex<JournalNames>,
}

#[derive(Debug, Default)]
struct JournalNames {
    names: HashSet<OsString>,
    /// Whether some are missing, from then on.
    incomplete: bool,
}

impl NameJournal {
    /// Takes the names that changed; `None` where some may be missing. Complete only when the event queue
    /// was drained just before.
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
        self.mark_incomplete();
    }
}

/// The journals of one directory that is watched.
#[derive(Debug, Default)]
pub(super) struct NameJournals {
    set: Mutex<JournalSet>,
}

#[derive(Debug, Default)]
struct JournalSet {
    journals: Vec<Weak<NameJournal>>,
    /// Whether the watch has ended, so that nothing more would be written.
    closed: bool,
}

impl NameJournals {
    /// A journal of all that changes from now on; `None` where nothing would be written to it.
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

    /// Events were lost.
    pub(super) fn mark_incomplete(&self) {
        self.each(NameJournal::mark_incomplete);
    }

    /// The watch has ended.
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
    fn a_journal_that_is_full_is_lost() {
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
