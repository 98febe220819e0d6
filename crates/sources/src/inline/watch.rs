//! Detects changes of the files of inline resources by polling.
//!
//! Polling suits these files better than inotify: they are few, may be in any folder, and editors replace them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use libris_core::{Change, Error, Result, Uri};
use tokio::time::{Interval, MissedTickBehavior};

use super::InlineInner;
use super::data::InlineData;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file with the content of an inline resource or template.
struct WatchedFile {
    path: PathBuf,
    /// The URI of the resource; `None` for a template.
    uri: Option<Uri>,
    stamp: FileStamp,
}

/// The modification time and size of a file; `None` if there is no regular file at its path, or the time is unknown.
type FileStamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The stream of changes; `None` if there are no files.
pub(super) async fn changes(inner: Arc<InlineInner>) -> Result<Option<BoxStream<'static, Change>>> {
    let files = run_blocking(move || inner.files()).await?;
    if files.is_empty() {
        return Ok(None);
    }
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = FilesWatch { files, ticks, changes: VecDeque::new() };
    Ok(Some(stream::unfold(watch, async |mut watch| Some((watch.next().await?, watch))).boxed()))
}

struct FilesWatch {
    files: Vec<WatchedFile>,
    ticks: Interval,
    /// Changes that are not reported yet.
    changes: VecDeque<Change>,
}

impl FilesWatch {
    async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Some(change);
            }
            self.ticks.tick().await;
            let mut files = std::mem::take(&mut self.files);
            let polled = run_blocking(move || {
                let mut changes = VecDeque::new();
                for file in &mut files {
                    let stamp = stamp(&file.path);
                    if std::mem::replace(&mut file.stamp, stamp) != stamp {
                        changes.extend(file.changes());
                    }
                }
                (files, changes)
            });
            (self.files, self.changes) = polled.await.ok()?;
        }
    }
}

impl WatchedFile {
    fn changes(&self) -> Vec<Change> {
        match &self.uri {
            Some(uri) => vec![Change::Updated(uri.clone()), Change::Described(uri.clone())],
            // The URIs of a template are not known, so any may have changed.
            None => vec![Change::Lost],
        }
    }
}

impl InlineInner {
    fn files(&self) -> Vec<WatchedFile> {
        let resources =
            self.resources.iter().map(|(uri, inline_resource)| (Some(uri.clone()), &inline_resource.data));
        let templates = self.templates.iter().map(|(_, inline_resource)| (None, &inline_resource.data));
        resources
            .chain(templates)
            .filter_map(|(uri, data)| match data {
                InlineData::File(path) => Some(WatchedFile { path: path.clone(), uri, stamp: stamp(path) }),
                InlineData::Text(_) | InlineData::Bytes(_) => None,
            })
            .collect()
    }
}

/// Runs work on a blocking thread.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|cause| Error::failed("poll the files of inline resources", cause))
}
