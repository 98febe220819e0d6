//! Cancellation of work on a tree: a blocking thread cannot be stopped from outside, so it checks for cancellation.
//!
//! The state is thread-local, so that functions which open or list directories need no parameter for it.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

thread_local! {
    static CURRENT: RefCell<Option<Cancellation>> = const { RefCell::new(None) };
}

/// Held by the caller of work that runs on another thread. Cancels the work when dropped.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// The cancellation for the thread that does the work.
    pub(crate) fn cancellation(&self) -> Cancellation {
        Cancellation::Caller(Arc::clone(&self.0))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The condition under which work is cancelled.
pub(crate) enum Cancellation {
    /// The caller has set the flag, which [`CancelOnDrop`] does when it is dropped.
    Caller(Arc<AtomicBool>),
    /// The deadline has passed.
    Deadline(Instant),
}

impl Cancellation {
    /// Runs `work` on this thread. Once cancelled, the work fails at its next [`check`].
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        /// Restores the previous state, also after a panic.
        struct RestoreOnDrop(Option<Cancellation>);

        impl Drop for RestoreOnDrop {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }

        let _restore = RestoreOnDrop(CURRENT.replace(Some(self)));
        work()
    }

    fn is_cancelled(&self) -> bool {
        match self {
            Self::Caller(gone) => gone.load(Ordering::Relaxed),
            Self::Deadline(end) => Instant::now() >= *end,
        }
    }
}

/// Fails if the work of this thread was cancelled.
pub(crate) fn check() -> io::Result<()> {
    let cancelled = |current: &Option<Cancellation>| current.as_ref().is_some_and(Cancellation::is_cancelled);
    if CURRENT.with_borrow(cancelled) { Err(io::Error::other(Cancelled)) } else { Ok(()) }
}

/// Whether an error means that the work was cancelled.
pub(crate) fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Cancelled>())
}

#[derive(Debug)]
struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work was cancelled")
    }
}

impl std::error::Error for Cancelled {}

#[cfg(test)]
mod tests {
    use super::super::root::Root;
    use super::super::walk::{Blocking, TreeWalk};
    use super::super::{Tree, TreeOptions};
    use super::{Arc, CancelOnDrop, Cancellation, Instant, check, is_cancelled};

    #[test]
    fn listing_and_walking_stop_when_the_caller_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sub/deep")).unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let tree = Tree::open(&TreeOptions::default(), Root::open(folder.path()).unwrap()).unwrap();
        let root = Arc::new(tree.root().unwrap());
        let names = tree.names(&root).unwrap();
        let caller = CancelOnDrop::default();
        let cancellation = caller.cancellation();
        let sub = tree.open_child_nofollow(&root, "sub".as_ref()).unwrap();
        caller.cancellation().run(|| assert_eq!(tree.read_names(&sub).unwrap().0.len(), 1));
        drop(caller);
        cancellation.run(|| {
            assert!(is_cancelled(&tree.names(&sub).err().unwrap()));
            assert!(is_cancelled(&tree.read_names(&sub).err().unwrap()));
            assert!(is_cancelled(&tree.open_child(&root, "sub", "sub".as_ref()).err().unwrap()));
            let mut walk = TreeWalk::from_start(&tree, Arc::clone(&root), names, Blocking::Allowed);
            assert!(walk.next_item().is_ok());
            assert!(is_cancelled(&walk.next_item().err().unwrap()));
        });
        let late = Cancellation::Deadline(Instant::now());
        assert!(is_cancelled(&late.run(|| tree.names(&sub)).err().unwrap()));
        // The next caller is not affected.
        assert!(check().is_ok());
        assert_eq!(tree.names(&sub).unwrap().len(), 1);
    }
}
