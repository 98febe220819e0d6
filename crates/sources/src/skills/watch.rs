//! Watches a folder of skills. Converts changes of files to changes of resources: one file can make a whole skill
//! valid or invalid.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use futures_util::stream;
use libris_core::{Change, Error, Result, Uri};

use super::SkillsInner;
use crate::skill_tree::{SkillSnapshot, SkillTreeEntry};
use crate::tree::watch::{self, ChangeStream};

/// The root URI in the changes of the tree: the URI of a change is this root with the key of the file appended.
const ROOT: &str = "tree:///";

/// Converts the changes of the tree.
struct SkillChanges {
    inner: Arc<SkillsInner>,
    /// The changes of the tree.
    changes: ChangeStream,
    /// The skills after the last change.
    latest: Arc<SkillSnapshot>,
    /// The changes of resources that are not reported yet.
    ready: VecDeque<Change>,
}

/// Starts the watch. Every change after this has returned is reported.
pub(super) async fn start(inner: &Arc<SkillsInner>) -> Result<BoxStream<'static, Change>> {
    let changes = watch::start(&inner.tree, &Uri::parse(ROOT)?, &inner.name)
        .await
        .map_err(|cause| Error::failed("watch the folder of skills", cause))?;
    let latest = snapshot(inner).await;
    let state = SkillChanges { inner: Arc::clone(inner), changes, latest, ready: VecDeque::new() };
    Ok(stream::unfold(state, |mut state| async move {
        let change = state.next().await?;
        Some((change, state))
    })
    .boxed())
}

/// The skills as they are now; none if the folder cannot be read.
async fn snapshot(inner: &Arc<SkillsInner>) -> Arc<SkillSnapshot> {
    let inner = Arc::clone(inner);
    let snapshot = tokio::task::spawn_blocking(move || inner.snapshot().ok()).await;
    snapshot.ok().flatten().unwrap_or_default()
}

impl SkillChanges {
    async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(change);
            }
            let change = self.changes.next().await?;
            let after = snapshot(&self.inner).await;
            let before = std::mem::replace(&mut self.latest, after);
            match change {
                Change::Lost => return Some(Change::Lost),
                Change::Updated(uri) | Change::Described(uri) => self.updated(&before, &uri),
                // `compare` finds added and removed files below. Such a file may make a skill valid or invalid,
                // and so add or remove all other files of the skill.
                _ => {}
            }
            if !Arc::ptr_eq(&before, &self.latest) {
                self.compare(&before);
            }
        }
    }

    /// Reports the change of a file that is in both snapshots.
    fn updated(&mut self, before: &SkillSnapshot, uri: &Uri) {
        let Some(key) = uri.as_str().strip_prefix(ROOT) else { return };
        let entries = self.latest.entries();
        if let (Some(SkillTreeEntry::File(_)), Some(_), Some(uri)) =
            (entries.get(key), before.entries().get(key), self.inner.uri(key))
        {
            self.ready.push_back(Change::Updated(uri));
        }
    }

    /// Reports the files and directories that exist in only one of the snapshots, and skills with another front matter.
    fn compare(&mut self, before: &SkillSnapshot) {
        let (old, new) = (before.entries(), self.latest.entries());
        let removed = old.keys().filter(|key| !new.contains_key(*key));
        let removed = removed.filter_map(|key| self.inner.uri(key)).map(Change::Removed);
        let added = new.keys().filter(|key| !old.contains_key(*key));
        let added = added.filter_map(|key| self.inner.uri(key)).map(Change::Added);
        let described = new.keys().filter(|key| match (before.skill(key), self.latest.skill(key)) {
            (Some(old), Some(new)) => old.front_matter != new.front_matter,
            _ => false,
        });
        let described = described.filter_map(|key| self.inner.uri(key)).map(Change::Described);
        let changes: Vec<_> = removed.chain(added).chain(described).collect();
        self.ready.extend(changes);
    }
}
