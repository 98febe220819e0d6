//! Limits the size of git objects before they are loaded, and reserves memory for the data that a task holds.

use std::cell::Cell;

use gix::ObjectId;
use gix::objs::Kind;
use libris_core::{Error, Result};

use super::repo::{TaskRepository, damaged};

/// The maximum number of bytes of a commit or tag; almost all of it is the message.
const MAX_COMMIT_BYTES: u64 = 1024 * 1024;

/// The maximum number of bytes of a tree: some 200,000 entries.
const MAX_TREE_BYTES: u64 = 8 * 1024 * 1024;

/// The maximum number of parents of a commit. A log queues the parents of every commit that it passes. Without this
/// limit, a few crafted commits with many parents would take gigabytes.
const MAX_PARENTS: usize = 1_000;

/// How many bytes a task may use without reserving memory.
const UNRESERVED_BYTES: u64 = 1024 * 1024;

/// Bytes that count as used by a task until this is dropped.
pub(super) struct HeldMemory<'o> {
    repository: &'o TaskRepository<'o>,
    bytes: u64,
}

impl HeldMemory<'_> {
    /// Accounts for more bytes.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        self.repository.account(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        let used = &self.repository.memory.used;
        used.set(used.get() - self.bytes);
    }
}

/// The memory accounting of a task.
#[derive(Default)]
pub(super) struct TaskMemory {
    /// The sum of all [`HeldMemory`] now.
    used: Cell<u64>,
    /// What was reserved for the request: the maximum of `used` so far, less [`UNRESERVED_BYTES`]. It never shrinks,
    /// because a reservation lasts as long as the request.
    reserved: Cell<u64>,
}

impl TaskRepository<'_> {
    /// Accounts for bytes until the returned value is dropped, and reserves memory for them if necessary.
    pub(super) fn hold(&self, bytes: u64) -> Result<HeldMemory<'_>> {
        self.account(bytes)?;
        Ok(HeldMemory { repository: self, bytes })
    }

    fn account(&self, bytes: u64) -> Result<()> {
        let TaskMemory { used, reserved } = &self.memory;
        let now = used.get() + bytes;
        let most = now.saturating_sub(UNRESERVED_BYTES);
        if let Some(more) = most.checked_sub(reserved.get()).filter(|more| *more > 0) {
            self.task.context.reserve(more)?;
            reserved.set(most);
        }
        used.set(now);
        Ok(())
    }

    /// Collects the parents of the commit `id`; fails if there are more than [`MAX_PARENTS`].
    pub(super) fn parents(
        &self,
        id: ObjectId,
        mut parents: impl Iterator<Item = ObjectId>,
    ) -> Result<Vec<ObjectId>> {
        let first: Vec<_> = parents.by_ref().take(MAX_PARENTS).collect();
        match parents.next() {
            None => Ok(first),
            Some(_) => Err(Error::invalid(format!(
                "the commit {id} of the repository has more than {MAX_PARENTS} parents; ask for other commits"
            ))),
        }
    }

    /// Loads a commit, tag or tree; fails if it is missing, too large or not of this kind.
    pub(super) fn load(&self, id: ObjectId, kind: Kind) -> Result<gix::Object<'_>> {
        self.deadline().check()?;
        let header = self.find_header(id).map_err(|cause| self.fault(cause))?;
        if header.kind() != kind {
            return Err(damaged(match kind {
                Kind::Commit => "an object that should be a commit has another type",
                Kind::Tag => "an object that should be a tag has another type",
                Kind::Tree | Kind::Blob => "an object that should be a tree has another type",
            }));
        }
        let limit = if kind == Kind::Tree { MAX_TREE_BYTES } else { MAX_COMMIT_BYTES };
        if header.size() > limit {
            let hint = format!("the {kind} {id} of the repository has so many bytes; ask for other commits");
            let (uri, size) = (self.task.uri.clone(), header.size());
            return Err(Error::TooLarge { uri, size, limit, hint: Some(hint) });
        }
        self.find_object(id).map_err(|cause| self.fault(cause))
    }
}
