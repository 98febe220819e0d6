//! The `stat` stamps of the files in a directory, valid while none of these files changes.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::name_list::NameList;
use super::proof::{DirectoryEvidence, MAX_AGE, PathEvidence};
use super::stamp::StatStamp;

/// The number of stamps that are allocated together, when the first of them is set.
const BLOCK_SIZE: usize = 128;

type StampBlock = Box<[OnceLock<StatStamp>]>;

/// The known stamps of the files in a directory, by the index of their names.
pub(super) struct StampTable {
    /// Evidence that no file has changed since the table was created.
    files: DirectoryEvidence,
    began: Instant,
    names: Arc<NameList>,
    blocks: Box<[OnceLock<StampBlock>]>,
}

impl StampTable {
    /// An empty table for the files of these names in a directory.
    pub(super) fn new(path_evidence: &PathEvidence, names: &Arc<NameList>) -> Arc<Self> {
        let blocks = empty(names.len().div_ceil(BLOCK_SIZE));
        Arc::new(Self {
            files: path_evidence.files_evidence(),
            began: Instant::now(),
            names: Arc::clone(names),
            blocks,
        })
    }

    /// Whether the stamps are valid and belong to these names, given that the path evidence of the directory holds.
    pub(super) fn holds_for(&self, names: &Arc<NameList>) -> bool {
        Arc::ptr_eq(&self.names, names) && self.files.holds() && self.began.elapsed() < MAX_AGE
    }

    /// The stamp of the file whose name has this index, if known.
    pub(super) fn get(&self, name: usize) -> Option<&StatStamp> {
        self.blocks.get(name / BLOCK_SIZE)?.get()?.get(name % BLOCK_SIZE)?.get()
    }

    /// Stores the stamp of the file whose name has this index.
    pub(super) fn set(&self, name: usize, stamp: &StatStamp) {
        let Some(block) = self.blocks.get(name / BLOCK_SIZE) else { return };
        let size = BLOCK_SIZE.min(self.names.len() - name / BLOCK_SIZE * BLOCK_SIZE);
        if let Some(slot) = block.get_or_init(|| empty(size)).get(name % BLOCK_SIZE) {
            let _ = slot.set(stamp.clone());
        }
    }
}

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}
