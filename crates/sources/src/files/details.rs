//! What is known of the files in a directory, for as long as none of them changes.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::stamp::Stamp;
use super::vigil::{Chain, Entries, LONGEST};

/// The stamps of the files in a directory, in the order of their names, as far as they were looked at.
pub(super) struct Details {
    /// That none of them has changed since the first was looked at.
    files: Entries,
    began: Instant,
    stamps: Box<[OnceLock<Stamp>]>,
}

impl Details {
    /// Nothing is known yet of the files in the directory of this chain, which has so many names.
    pub(super) fn new(chain: &Chain, names: usize) -> Arc<Self> {
        let stamps = (0..names).map(|_| OnceLock::new()).collect();
        Arc::new(Self { files: chain.files(), began: Instant::now(), stamps })
    }

    /// Whether what is known is still so. True only of a directory whose chain holds.
    pub(super) fn are_so(&self) -> bool {
        self.files.are_so() && self.began.elapsed() < LONGEST
    }

    pub(super) fn get(&self, name: usize) -> Option<&Stamp> {
        self.stamps.get(name)?.get()
    }

    pub(super) fn set(&self, name: usize, stamp: &Stamp) {
        if let Some(place) = self.stamps.get(name) {
            let _ = place.set(stamp.clone());
        }
    }
}
