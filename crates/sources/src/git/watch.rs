//! Detects changes of refs and of the index by polling. [`work_tree_watch`] observes the working tree.
//!
//! A poll reads the refs only if the stamps of their files and directories have changed. That costs a few system
//! calls, needs no file system events, and works with any program that writes to the repository.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Change, Error, Result, Uri};
use tokio::sync::mpsc;

use super::compare::{TreeComparison, TreeDifference};
use super::pages::escaped;
use super::refs::{self, without_namespace};
use super::regular::GitFileStamp;
use super::repo::{TaskRepository, TreeEntry};
use super::rev::{VISIBLE_NAMESPACES, candidates, peel};
use super::{GitInner, LISTED_REV, work_tree_watch};

/// The maximum number of changes that are reported one by one. If there are more, [`Change::Lost`] is reported instead.
const MAX_CHANGES: usize = 100_000;

/// The capacity of the channel of changes.
const CHANNEL_CAPACITY: usize = 1000;

/// The shortest polling interval.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The time-out of the first poll. If the first poll fails or times out, the next successful one reports
/// [`Change::Lost`].
const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of folders of refs whose stamps are compared. Beyond that, every poll reads the refs.
const MAX_STAMPED_FOLDERS: usize = 10_000;

/// Two changes within this time may leave the same modification time.
const STAMP_GRANULARITY: Duration = Duration::from_secs(2);

/// The name of the index in the git directory.
const INDEX: &str = "index";

/// The changes of a repository. Dropping it ends the watch.
pub(super) struct RepositoryWatch(mpsc::Receiver<Change>);

impl Stream for RepositoryWatch {
    type Item = Change;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change>> {
        self.0.poll_recv(context)
    }
}

/// Starts the watch. Changes after this returns are reported.
pub(super) async fn start(inner: Arc<GitInner>) -> Result<RepositoryWatch> {
    let (send, receive) = mpsc::channel(CHANNEL_CAPACITY);
    let following = inner.followed.watch();
    let mut stamps = RefStamps::default();
    let first = inner.blocking(inner.own_task(), |inner, repository| {
        let mut stamps = RefStamps::default();
        stamps.refresh(inner);
        Ok((stamps, RefsState::read(repository)?))
    });
    // An unreadable repository must not delay the watches of other sources.
    let first = match tokio::time::timeout(FIRST_POLL_TIMEOUT, first).await {
        Ok(first) => first,
        Err(elapsed) => Err(Error::failed("read the refs", elapsed)),
    };
    let mut state = match first {
        Ok((new_stamps, state)) => {
            stamps = new_stamps;
            Some(Arc::new(state))
        }
        Err(cause) => {
            tracing::warn!(
                name = inner.name,
                ?cause,
                "the refs cannot be read now, and are watched once they can"
            );
            None
        }
    };
    tokio::spawn(work_tree_watch::run(Arc::clone(&inner), following, send.clone()));
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = send.closed() => return,
                () = tokio::time::sleep(inner.config.poll.max(MIN_POLL_INTERVAL)) => {}
            }
            let (was, mut new_stamps) = (state.clone(), std::mem::take(&mut stamps));
            let polled = inner.blocking(inner.own_task(), move |inner, repository| {
                if !new_stamps.refresh(inner) {
                    return Ok((new_stamps, None));
                }
                let now = RefsState::read(repository)?;
                // If the comparison fails, for example because it takes too long, it is not repeated; instead, the
                // watch reports that changes were lost.
                let changes =
                    was.map_or_else(|| Ok(vec![Change::Lost]), |was| was.changes_to(&now, inner, repository));
                let changes = changes.unwrap_or_else(|_| vec![Change::Lost]);
                Ok((new_stamps, Some((changes, now))))
            });
            match polled.await {
                Ok((new_stamps, None)) => stamps = new_stamps,
                Ok((new_stamps, Some((changes, now)))) => {
                    stamps = new_stamps;
                    state = Some(Arc::new(now));
                    for change in changes {
                        if send.send(change).await.is_err() {
                            return;
                        }
                    }
                }
                // `state` is kept, so that after recovery a poll reports what changed meanwhile.
                Err(cause) => {
                    tracing::debug!(name = inner.name, ?cause, "the refs cannot be read now");
                    stamps = RefStamps::default();
                }
            }
        }
    });
    Ok(RepositoryWatch(receive))
}

/// The stamps of `HEAD`, the index, `packed-refs` and the folders of loose refs. Git replaces the file of a loose ref
/// by rename, which also changes the stamp of its folder.
#[derive(Default)]
struct RefStamps {
    stamps: Vec<(PathBuf, Option<GitFileStamp>)>,
    /// Whether every later change alters a stamp. This is so if all stamps could be read and are old enough, and
    /// no folder was left out. Otherwise the next poll reads the refs.
    settled: bool,
}

impl RefStamps {
    /// Reads the stamps again if they differ or are not settled. Returns whether it did; then the refs or the index may
    /// have changed since the last poll.
    fn refresh(&mut self, inner: &GitInner) -> bool {
        let is_same = |(path, stamp): &(PathBuf, Option<GitFileStamp>)| {
            GitFileStamp::of(path).is_ok_and(|now| now == *stamp)
        };
        let same = self.settled && self.stamps.iter().all(is_same);
        if same {
            return false;
        }
        let now = SystemTime::now();
        let git_dir = inner.repo.git_dir();
        let mut paths =
            vec![git_dir.join("HEAD"), git_dir.join(INDEX), inner.repo.common_dir().join("packed-refs")];
        for kind in VISIBLE_NAMESPACES {
            folders(&inner.repo.common_dir().join(kind), &mut paths);
        }
        let known = paths.len() < MAX_STAMPED_FOLDERS;
        let mut failed = false;
        let stamp = |path: PathBuf| {
            let stamp = GitFileStamp::of(&path);
            failed |= stamp.is_err();
            (path, stamp.ok().flatten())
        };
        self.stamps = paths.into_iter().map(stamp).collect();
        let old = |stamp: &GitFileStamp| {
            let age = stamp.modified.and_then(|modified| now.duration_since(modified).ok());
            age.is_some_and(|age| age > STAMP_GRANULARITY)
        };
        self.settled =
            known && !failed && self.stamps.iter().all(|(_, stamp)| stamp.as_ref().is_none_or(old));
        true
    }
}

/// Collects a directory and its subdirectories, up to the limit.
fn folders(path: &Path, found: &mut Vec<PathBuf>) {
    if found.len() >= MAX_STAMPED_FOLDERS {
        return;
    }
    found.push(path.to_owned());
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders(&entry.path(), found);
        }
    }
}

/// A snapshot of all refs and of the index.
#[derive(Clone, PartialEq, Eq)]
struct RefsState {
    /// The branch or commit that `HEAD` points to.
    head: HeadState,
    /// By full name: the id of a commit or tag.
    refs: BTreeMap<String, ObjectId>,
    /// The stamp of the index, if there is one.
    index: Option<GitFileStamp>,
}

#[derive(Clone, PartialEq, Eq)]
enum HeadState {
    /// The full name of a visible branch.
    Branch(String),
    /// The commit of a detached `HEAD`, or of one that points to a ref that is not visible.
    Detached(Option<ObjectId>),
}

impl RefsState {
    fn read(repository: &TaskRepository<'_>) -> Result<Self> {
        let (refs, _held) = refs::all(repository)?;
        let refs = refs.refs.into_iter().collect();
        let head = match refs::head(repository)? {
            Some(branch) if VISIBLE_NAMESPACES.iter().any(|shown| branch.starts_with(shown)) => {
                HeadState::Branch(branch)
            }
            _ => HeadState::Detached(super::rev::by_name(repository, LISTED_REV)?),
        };
        let index = GitFileStamp::of(&repository.git_dir().join(INDEX)).ok().flatten();
        Ok(Self { head, refs, index })
    }

    /// Resolves a short name.
    fn find(&self, name: &str) -> Option<ObjectId> {
        match (&self.head, name) {
            (HeadState::Branch(branch), LISTED_REV) => self.refs.get(branch).copied(),
            (HeadState::Detached(id), LISTED_REV) => *id,
            _ => candidates(name).iter().find_map(|full| self.refs.get(full)).copied(),
        }
    }

    /// The changes from this state to a later one.
    fn changes_to(
        &self,
        later: &Self,
        inner: &GitInner,
        repository: &TaskRepository<'_>,
    ) -> Result<Vec<Change>> {
        if self == later {
            return Ok(Vec::new());
        }
        // All names by which URIs can address a changed ref.
        let mut names = BTreeSet::from([LISTED_REV.to_owned()]);
        let all: BTreeSet<_> = self.refs.keys().chain(later.refs.keys()).collect();
        for name in all.into_iter().filter(|name| self.refs.get(*name) != later.refs.get(*name)) {
            let short = without_namespace(name);
            names.insert(name.trim_start_matches("refs/").to_owned());
            names.insert(short.to_owned());
            names.extend(short.strip_suffix("/HEAD").map(ToOwned::to_owned));
        }
        let mut list = ChangeList { inner, changes: Vec::new() };
        if self.head != later.head || self.refs != later.refs {
            list.changes.extend(inner.space.refs().map(Change::Updated));
        }
        if inner.has_work_tree {
            let pages = [inner.space.status(), inner.space.staged(), inner.space.unstaged()];
            list.changes.extend(pages.into_iter().flatten().map(Change::Updated));
        }
        for name in names {
            let commit = |id: Option<ObjectId>| id.map_or(Ok(None), |id| peel(repository, id));
            let (old, new) = (commit(self.find(&name))?, commit(later.find(&name))?);
            if old != new && !list.moved(repository, &name, old, new)? {
                return Ok(vec![Change::Lost]);
            }
        }
        Ok(list.changes)
    }
}

/// Collects changes.
struct ChangeList<'a> {
    inner: &'a GitInner,
    changes: Vec<Change>,
}

impl ChangeList<'_> {
    /// Adds the changes of a name that moved to another commit; false if they exceed the limit.
    fn moved(
        &mut self,
        repository: &TaskRepository<'_>,
        name: &str,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
    ) -> Result<bool> {
        let rev = Uri::encode_segment(name.as_bytes());
        let tree =
            |commit: Option<ObjectId>| commit.map(|id| repository.node(id).map(|node| node.tree)).transpose();
        let compare =
            TreeComparison { repository, filter: &self.inner.filter, within: &[], limit: MAX_CHANGES };
        let Some(differences) = compare.trees(tree(old)?, tree(new)?)? else { return Ok(false) };
        let listed = name == LISTED_REV;
        match (self.inner.space.log(&rev), listed, old, new) {
            (Some(log), true, None, _) => self.changes.push(Change::Added(log)),
            (Some(log), true, _, None) => self.changes.push(Change::Removed(log)),
            (log, ..) => self.changes.extend(log.map(Change::Updated)),
        }
        // A folder changes when an entry directly in it does, unless that entry is a folder before and after.
        let touched: HashSet<&[u8]> = differences
            .iter()
            .filter(|difference| !is_directory_in_both(difference))
            .map(|difference| parent(&difference.path))
            .collect();
        if touched.contains(&b""[..]) || old.is_none() || new.is_none() {
            let root = self.inner.space.path_uri(&rev, "");
            self.changes.extend(root.map(|root| change(listed, old.is_some(), new.is_some(), root)));
        }
        for difference in &differences {
            if !is_directory_in_both(difference) || touched.contains(&*difference.path) {
                self.differs(&rev, listed, difference);
            }
        }
        if listed && let Some(root) = self.inner.space.path_uri(&rev, "") {
            // The modification times of files may have changed.
            self.changes.push(Change::Described(root));
        }
        Ok(self.changes.len() <= MAX_CHANGES)
    }

    /// Adds the change of one path that differs between two commits.
    fn differs(&mut self, rev: &str, listed: bool, difference: &TreeDifference) {
        let path = escaped(&difference.path);
        let is_tree = |entry: Option<TreeEntry>| entry.is_some_and(|entry| entry.kind == EntryKind::Tree);
        let path = if is_tree(difference.old) || is_tree(difference.new) { format!("{path}/") } else { path };
        let uri = self.inner.space.path_uri(rev, &path);
        let (old, new) = (difference.old.is_some(), difference.new.is_some());
        self.changes.extend(uri.map(|uri| change(listed, old, new, uri)));
    }
}

/// Whether this is a directory in both trees.
fn is_directory_in_both(difference: &TreeDifference) -> bool {
    difference.is_directory() && difference.old.is_some() && difference.new.is_some()
}

/// The path of the parent directory.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |slash| &path[..slash])
}

/// The change to report for a resource; `old` and `new` are whether it existed before and exists now. Only listed
/// resources are reported as added or removed.
fn change(listed: bool, old: bool, new: bool, uri: Uri) -> Change {
    match (listed, old, new) {
        (true, false, true) => Change::Added(uri),
        (true, true, false) => Change::Removed(uri),
        _ => Change::Updated(uri),
    }
}
