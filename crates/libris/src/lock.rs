//! Locks a mutex, whether or not a thread panicked while it held the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning. Use it for data that stays consistent if a critical section panics: no
/// invariant spans several statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
