//! A value that is kept in memory while its proof holds.

use std::sync::{Arc, Mutex, PoisonError};

use libris_core::Proof;

/// The last value that was computed, with its proof.
pub(crate) struct ProvenValue<T>(Mutex<Option<Proven<T>>>);

/// A value and, if there is one, the proof that computing it again would give the same value.
pub(crate) struct Proven<T> {
    pub(crate) value: Arc<T>,
    pub(crate) proof: Option<Proof>,
}

impl<T> Clone for Proven<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), proof: self.proof.clone() }
    }
}

impl<T> Default for ProvenValue<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ProvenValue<T> {
    /// The last value, if its proof still holds.
    pub(crate) fn get(&self) -> Option<Proven<T>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Checked without the lock: a proof may call the operating system.
        last.filter(|last| last.proof.as_ref().is_some_and(Proof::holds))
    }

    /// Stores a value as the last one. If it has no proof, no value is stored.
    pub(crate) fn set(&self, proven: &Proven<T>) {
        let kept = Some(proven.clone()).filter(|proven| proven.proof.is_some());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use libris_core::Proof;

    use super::{Proven, ProvenValue};

    #[test]
    fn a_value_is_kept_only_while_its_proof_holds() {
        let kept = ProvenValue::default();
        assert!(kept.get().is_none());
        kept.set(&Proven { value: Arc::new(1), proof: None });
        assert!(kept.get().is_none());
        let holds = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&holds);
        let proof = Some(Proof::new(move || seen.load(Ordering::Relaxed)));
        kept.set(&Proven { value: Arc::new(2), proof });
        assert_eq!(kept.get().map(|proven| *proven.value), Some(2));
        holds.store(false, Ordering::Relaxed);
        assert!(kept.get().is_none());
    }
}
