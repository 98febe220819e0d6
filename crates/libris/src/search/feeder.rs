//! The feeder: keeps the index equal to the catalog. It opens the index, follows the change stream, and rebuilds an
//! index that fails.

use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use libris_core::{Change, Source as _};
use libris_search::{EmbeddingModel, IndexError, SearchIndex};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::changes::{Changed, Unfinished};
use super::indexing::Indexing;
use super::{CatalogIndex, Completeness};
use crate::Catalog;

/// The time between attempts to lock an index that another process updates, and between attempts to list the sources
/// after a failure.
pub(super) const LOCK_RETRY: Duration = Duration::from_secs(2);

/// The pause before an index is rebuilt after an error. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The time after which a folder that could not be written is tried again. It doubles with each attempt.
const FIRST_FOLDER_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_FOLDER_PAUSE: Duration = Duration::from_secs(3600);

/// How many times a damaged index is rebuilt in its folder before it is built in memory.
const MAX_REBUILT: u32 = 2;

/// How many times an index that the system cannot open now is opened again before it is built in memory. The attempts
/// take about a minute.
const MAX_RETRIES: u32 = 30;

/// How long the feeder waits for changes if the sources cannot be watched. Then it compares the whole list, and tries to
/// watch them again.
const WATCH_RETRY: Duration = Duration::from_secs(30);

/// Why the feeder stopped working on an index.
pub(super) enum FeedEnd {
    /// The catalog was dropped, or the server stops.
    Stopped,
    /// The index cannot be used any more.
    Failed(IndexError),
    /// The index is in memory, and its folder can be written again.
    FolderUsable,
}

impl From<IndexError> for FeedEnd {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

/// Feeds the index of a catalog.
pub(super) struct Feeder {
    catalog: Weak<Catalog>,
    shared: Weak<CatalogIndex>,
    stop: CancellationToken,
}

impl Feeder {
    pub(super) fn new(catalog: Weak<Catalog>, shared: Weak<CatalogIndex>, stop: CancellationToken) -> Self {
        Self { catalog, shared, stop }
    }

    /// Feeds the index until the catalog is dropped. An index that fails is rebuilt: in the folder if it was damaged,
    /// in memory if the folder cannot be written. While the system lacks resources, searches use the index as it is.
    pub(super) async fn run(self) {
        let mut in_memory = false;
        let (mut rebuilt, mut retried) = (0, 0);
        let mut folder_pause = FIRST_FOLDER_PAUSE;
        let mut pause = FIRST_PAUSE;
        let Some(model) = self.shared.upgrade().map(|shared| open_model(&shared)) else { return };
        loop {
            let started = Instant::now();
            let Some(folder) = self.shared.upgrade().map(|shared| shared.config.folder.clone()) else {
                return;
            };
            let abandoned = folder.clone().filter(|_| in_memory).map(|folder| (folder, folder_pause));
            let folder = folder.filter(|_| !in_memory);
            // tantivy panics on some damaged files.
            let feed =
                AssertUnwindSafe(self.feed(folder.as_deref(), abandoned, model.clone())).catch_unwind();
            let fed = tokio::select! {
                () = self.stop.cancelled() => return,
                fed = feed => fed.unwrap_or_else(|_| Err(IndexError::Damaged("an update panicked".into()).into())),
            };
            let Some(shared) = self.shared.upgrade() else { return };
            let is_kept = matches!(fed, Err(FeedEnd::Failed(IndexError::Unavailable(_))));
            if !is_kept {
                shared.set_current(None);
                shared.progress.set_completeness(Completeness::Partial);
            }
            match fed {
                Err(FeedEnd::Stopped) | Ok(()) => return,
                Err(FeedEnd::FolderUsable) => {
                    tracing::info!(
                        "the folder of the search index can be written again; building the index there"
                    );
                    (in_memory, rebuilt) = (false, 0);
                    folder_pause = (folder_pause * 2).min(LONGEST_FOLDER_PAUSE);
                    continue;
                }
                Err(FeedEnd::Failed(IndexError::Unavailable(cause))) => {
                    tracing::warn!(%cause, "the search index cannot be opened now; trying again");
                    retried += 1;
                    in_memory |= retried > MAX_RETRIES;
                    pause = pause.min(LOCK_RETRY);
                }
                Err(FeedEnd::Failed(error)) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "building the search index anew");
                    match (&error, &folder) {
                        (IndexError::Damaged(_), Some(folder)) => {
                            rebuilt += 1;
                            if !may_be_intact(folder, rebuilt)
                                && let Err(cause) = SearchIndex::delete(folder)
                            {
                                tracing::warn!(%cause, "could not delete the damaged search index");
                                in_memory = true;
                            }
                            // A disk that is full or failing damages the new index too.
                            in_memory |= rebuilt > MAX_REBUILT;
                        }
                        (IndexError::Unwritable(_), Some(_)) => in_memory = true,
                        // The folder may be writable again, so the next attempt uses it.
                        _ => (in_memory, rebuilt) = (false, 0),
                    }
                }
            }
            drop(shared);
            if started.elapsed() > LONGEST_PAUSE {
                (pause, rebuilt, retried) = (FIRST_PAUSE, 0, 0);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn catalog(&self) -> Result<Arc<Catalog>, FeedEnd> {
        self.catalog.upgrade().ok_or(FeedEnd::Stopped)
    }

    pub(super) fn shared(&self) -> Result<Arc<CatalogIndex>, FeedEnd> {
        self.shared.upgrade().ok_or(FeedEnd::Stopped)
    }

    /// Opens the index in a folder or in memory and keeps it up to date, until it fails or the catalog is dropped.
    /// `abandoned` is the folder that could not be written, with the time until it is tried again.
    async fn feed(
        &self,
        folder: Option<&Path>,
        abandoned: Option<(PathBuf, Duration)>,
        model: Option<Arc<EmbeddingModel>>,
    ) -> Result<(), FeedEnd> {
        let index = match folder {
            Some(folder) => SearchIndex::open(folder)?,
            None => SearchIndex::in_memory()?,
        };
        let index = Arc::new(index.with_model(model));
        let shared = self.shared()?;
        let was_written_before = folder.is_some() && !index.is_empty()?;
        shared.set_current(Some(index.clone()));
        shared.progress.indexed.store(index.len()?, Ordering::Relaxed);
        if index.is_complete()? {
            shared.progress.set_completeness(Completeness::Warm);
        }
        drop(shared);
        let updater = loop {
            if let Some(updater) = index.updater()? {
                break updater;
            }
            // Another process updates the same index: searches use its commits until that process ends.
            let shared = self.shared()?;
            shared.progress.set_remark(Some("another process updates the index".to_owned()));
            index.reload()?;
            let count = index.len()?;
            shared.progress.indexed.store(count, Ordering::Relaxed);
            shared.progress.listed.store(count, Ordering::Relaxed);
            shared.progress.set_completeness(match index.is_complete()? {
                true => Completeness::Complete,
                false => Completeness::Partial,
            });
            drop(shared);
            sleep(LOCK_RETRY).await;
        };
        // The process that had the lock may have committed since the index was read. Resources that the index seems not
        // to have are added without deleting an older version.
        index.reload()?;
        let shared = self.shared()?;
        let is_configured = folder.is_some() || shared.config.folder.is_none();
        // The log has the cause, which may contain a path.
        let remark =
            (!is_configured).then(|| "the index is in memory only: its folder cannot be used".to_owned());
        shared.progress.set_remark(remark);
        drop(shared);
        let mut changes = self.watch().await?;
        let mut indexing =
            Indexing { feeder: self, index: &index, updater, unfinished: Unfinished::default() };
        indexing.apply(Changed::Everything).await?;
        if was_written_before {
            // The files may have been damaged since; not every search would notice it.
            index.verify()?;
        }
        let mut folder_pause = abandoned.as_ref().map_or(FIRST_FOLDER_PAUSE, |(_, pause)| *pause);
        let mut next_check = Instant::now() + folder_pause;
        loop {
            self.check_current(&index)?;
            // Clones only the `Notify`: while the feeder waits, it must not keep the shared index alive.
            let discarded = self.shared()?.discarded.clone();
            let interrupt = async {
                tokio::select! {
                    () = discarded.notified() => {}
                    () = sleep_until(next_check), if abandoned.is_some() => {}
                }
            };
            match indexing.unfinished.next(&mut changes, interrupt).await {
                Some(changed) => indexing.apply(changed).await?,
                // The watch ended: compare the whole list after a pause.
                None => {
                    sleep(LOCK_RETRY).await;
                    changes = self.watch().await?;
                    indexing.apply(Changed::Everything).await?;
                }
            }
            if let Some((folder, _)) = abandoned.as_ref().filter(|_| Instant::now() >= next_check) {
                if has_room(folder, index.memory().unwrap_or_default()) {
                    return Err(FeedEnd::FolderUsable);
                }
                folder_pause = (folder_pause * 2).min(LONGEST_FOLDER_PAUSE);
                next_check = Instant::now() + folder_pause;
            }
        }
    }

    /// Fails if the index is no longer in use: a search that finds damage drops the index.
    pub(super) fn check_current(&self, index: &Arc<SearchIndex>) -> Result<(), FeedEnd> {
        match self.shared()?.current() {
            Some(current) if Arc::ptr_eq(&current, index) => Ok(()),
            _ => Err(IndexError::Damaged("a search failed".into()).into()),
        }
    }

    /// The changes of the sources. If they cannot be watched, the stream ends after a pause.
    async fn watch(&self) -> Result<BoxStream<'static, Change>, FeedEnd> {
        let opened = self.catalog()?.watch().await;
        Ok(match opened {
            Ok(Some(changes)) => changes,
            Ok(None) => futures_util::stream::pending().boxed(),
            Err(error) => {
                tracing::warn!(%error, "the search index cannot watch the sources; it compares the list from time to time");
                let pause = futures_util::stream::once(sleep(WATCH_RETRY));
                pause.filter_map(async |()| None).boxed()
            }
        })
    }
}

/// The configured embedding model; `None` if there is none, or if it cannot be used.
fn open_model(shared: &CatalogIndex) -> Option<Arc<EmbeddingModel>> {
    let folder = shared.config.model.as_ref()?;
    match EmbeddingModel::open(folder) {
        Ok(model) => Some(Arc::new(model)),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, folder = %folder.display(), "searching without the embedding model");
            shared.progress.set_without_model();
            None
        }
    }
}

/// Whether an index in a folder may still be used although it failed: its files are intact, and it failed for the first
/// time, for example by a panic; or they cannot be read now. Reads all files.
fn may_be_intact(folder: &Path, failures: u32) -> bool {
    let verify = || SearchIndex::open(folder).and_then(|index| index.verify());
    // tantivy panics on some damaged files.
    match std::panic::catch_unwind(verify) {
        Ok(Ok(())) => failures == 1,
        Ok(Err(error)) => matches!(error, IndexError::Unavailable(_)),
        Err(_) => false,
    }
}

/// Whether a file of this size can be written to a folder.
fn has_room(folder: &Path, bytes: usize) -> bool {
    let path = folder.join("room");
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut file = std::fs::File::create(&path)?;
        let zeros = vec![0; 1 << 16];
        for _ in 0..=bytes / zeros.len() {
            file.write_all(&zeros)?;
        }
        file.sync_all()
    };
    let written = write();
    // The file does not exist if the folder cannot be written.
    _ = std::fs::remove_file(&path);
    written.is_ok()
}
