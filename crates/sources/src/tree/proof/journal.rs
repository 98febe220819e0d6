//! Which names in a directory changed, so that its names need not all be read again.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How many changed names a journal holds. Beyond, reading all names costs less.
const NAMES: usize = 4_096;

/// How many changed names all journals of the process hold.
const ALL_NAMES: usize = 65_536;

/// How many those are now.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The names of entries that came, went or were replaced since they were last taken.
#[derive(Debug, Default)]
pub(in super::super) struct Journal {
    changed: Mutex<Changed>,
}

#[derive(Debug, Default)]
struct Changed {
    names: HashSet<OsString>,
    /// Whether some are missing, from then on.
    lost: bool,
}

impl Journal {
    /// Takes the names that changed; `None` where some may be missing. Complete only when the event queue
    /// was drained just before.
    pub(in super::super) fn take(&self) -> Option<HashSet<OsString>> {
        let mut changed = self.lock();
        let names = std::mem::take(&mut changed.names);
        HELD.fetch_sub(names.len(), Ordering::Relaxed);
        (!changed.lost).then_some(names)
    }

    fn note(&self, name: &OsStr) {
        let mut changed = self.lock();
        if changed.lost || changed.names.contains(name) {
            return;
        }
        if changed.names.len() >= NAMES || HELD.load(Ordering::Relaxed) >= ALL_NAMES {
            drop(changed);
            return self.lose();
        }
        changed.names.insert(name.to_owned());
        HELD.fetch_add(1, Ordering::Relaxed);
    }

    fn lose(&self) {
        let mut changed = self.lock();
        changed.lost = true;
        let names = std::mem::take(&mut changed.names);
        HELD.fetch_sub(names.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lose();
    }
}

/// The journals of one directory that is watched.
#[derive(Debug, Default)]
pub(super) struct Journals {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    journals: Vec<Weak<Journal>>,
    /// Whether the watch has ended, so that nothing more would be written.
    ended: bool,
}

impl Journals {
    /// A journal of all that changes from now on; `None` where nothing would be written to it.
    pub(super) fn begin(&self) -> Option<Arc<Journal>> {
        let mut open = self.lock();
        if open.ended {
            return None;
        }
        let journal = Arc::<Journal>::default();
        open.journals.retain(|journal| journal.strong_count() > 0);
        open.journals.push(Arc::downgrade(&journal));
        Some(journal)
    }

    pub(super) fn note(&self, name: &OsStr) {
        self.each(|journal| journal.note(name));
    }

    /// Events were lost.
    pub(super) fn lose(&self) {
        self.each(Journal::lose);
    }

    /// The watch has ended.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.lose();
    }

    fn each(&self, work: impl Fn(&Journal)) {
        self.lock().journals.iter().filter_map(Weak::upgrade).for_each(|journal| work(&journal));
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Journals, NAMES};

    #[test]
    fn a_journal_that_is_full_is_lost() {
        let journals = Journals::default();
        let journal = journals.begin().unwrap();
        for n in 0..NAMES {
            journals.note(n.to_string().as_ref());
            journals.note("again".as_ref());
            if n % 1000 == 999 {
                assert_eq!(journal.take().unwrap().len(), 1001);
            }
        }
        assert!(journal.take().is_some());
        for n in 0..=NAMES {
            journals.note(n.to_string().as_ref());
        }
        assert!(journal.take().is_none());
        journals.note("more".as_ref());
        assert!(journal.take().is_none());
        let other = journals.begin().unwrap();
        assert!(other.take().unwrap().is_empty());
        journals.end();
        assert!(other.take().is_none() && journals.begin().is_none());
    }
}
