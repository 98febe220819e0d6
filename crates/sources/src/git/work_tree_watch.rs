//! Watches the working tree while clients are subscribed to its status or its unstaged diff.
//!
//! The watch observes the files that the files source would serve: tracked and untracked files that no ignore
//! file matches. An edit of a tracked file that is ignored, or is a symbolic link, is reported only with the next
//! change of the index.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use libris_core::{Change, Uri};
use tokio::sync::mpsc;

use super::GitInner;
use crate::followed::{Followed, FollowedWatch};
use crate::tree::watch::{self, ChangeStream};
use crate::tree::{Root, Tree, TreeOptions};

/// The pages about the working tree that clients are subscribed to.
pub(super) type FollowedPages = Followed<()>;

/// How often to check whether subscriptions have ended, and to retry what failed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reports the followed pages as updated whenever the working tree changes, until the receiver is dropped.
pub(super) async fn run(inner: Arc<GitInner>, mut following: FollowedWatch<()>, send: mpsc::Sender<Change>) {
    let mut edits = None;
    loop {
        let pages: Vec<Uri> = inner.followed.collect(|(uri, ())| Some(uri.clone()));
        // The watch costs memory for each file, so it ends with the last subscription.
        if pages.is_empty() {
            edits = None;
        } else if edits.is_none() {
            edits = start(&inner).await;
        }
        tokio::select! {
            () = send.closed() => return,
            () = following.added() => {}
            () = tokio::time::sleep(CHECK_INTERVAL), if !pages.is_empty() => {}
            ended = next_edit(&mut edits) => {
                if ended {
                    edits = None;
                }
                for page in pages {
                    if send.send(Change::Updated(page)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Waits for a change and takes all further changes that are ready. Returns whether the watch has ended. Waits
/// forever if there is no watch.
async fn next_edit(edits: &mut Option<ChangeStream>) -> bool {
    let Some(edits) = edits else { return std::future::pending().await };
    let mut changed = false;
    poll_fn(|context| {
        loop {
            match Pin::new(&mut *edits).poll_next(context) {
                // Only the modification time of a directory changed, which a change of an ignored file causes too.
                Poll::Ready(Some(Change::Described(_))) => {}
                Poll::Ready(Some(_)) => changed = true,
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Pending if changed => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// Starts to watch the working tree; `None` if that is not possible now.
async fn start(inner: &Arc<GitInner>) -> Option<ChangeStream> {
    let opening = Arc::clone(inner);
    let opened = tokio::task::spawn_blocking(move || open(&opening)).await.ok()?;
    let started = match opened {
        Ok(tree) => watch::start(&tree, &inner.space.root, &inner.name).await,
        Err(cause) => Err(cause),
    };
    let log = |cause: &io::Error| {
        tracing::debug!(name = inner.name, %cause, "the working tree cannot be watched now");
    };
    started.inspect_err(log).ok()
}

fn open(inner: &GitInner) -> io::Result<Arc<Tree>> {
    let path = inner.repo.work_tree_path().ok_or(io::ErrorKind::NotFound)?;
    let options = TreeOptions {
        include: inner.config.include.clone(),
        exclude: inner.config.exclude.clone(),
        hidden: true,
        poll: inner.config.poll,
        ..TreeOptions::default()
    };
    let tree = Tree::open(&options, Root::open(&path)?).map_err(io::Error::other)?;
    Ok(Arc::new(tree))
}
