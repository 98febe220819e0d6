//! What is known of the files in a directory, for as long as none of them changes.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::name_list::Names;
use super::proof::{Chain, Entries, LONGEST};
use super::stamp::Stamp;

/// Of how many files at a time there is room for the stamps, once one of them is set.
const BLOCK: usize = 128;

type Block = Box<[OnceLock<Stamp>]>;

/// The stamps of the files in a directory, in the order of their names, as far as they were looked at.
pub(super) struct Details {
    /// That none of them has changed since the first was looked at.
    files: Entries,
    began: Instant,
    names: Names,
    blocks: Box<[OnceLock<Block>]>,
}

impl Details {
    /// Nothing is known yet of the files of these names in the directory of this chain.
    pub(super) fn new(chain: &Chain, names: &Names) -> Arc<Self> {
        let blocks = empty(names.len().div_ceil(BLOCK));
        Arc::new(Self { files: chain.files(), began: Instant::now(), names: Arc::clone(names), blocks })
    }

    /// Whether what is known is still so, and of these names. True only of a directory whose chain holds.
    pub(super) fn are_so(&self, names: &Names) -> bool {
        Arc::ptr_eq(&self.names, names) && self.files.are_so() && self.began.elapsed() < LONGEST
    }

    pub(super) fn get(&self, name: usize) -> Option<&Stamp> {
        self.blocks.get(name / BLOCK)?.get()?.get(name % BLOCK)?.get()
    }

    pub(super) fn set(&self, name: usize, stamp: &Stamp) {
        let Some(block) = self.blocks.get(name / BLOCK) else { return };
        let size = BLOCK.min(self.names.len() - name / BLOCK * BLOCK);
        if let Some(place) = block.get_or_init(|| empty(size)).get(name % BLOCK) {
            let _ = place.set(stamp.clone());
        }
    }
}

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}
