//! The feeder: keeps the index equal to the catalog. It lists and reads resources, and follows the change stream.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use libris_core::{Change, Context, DIRECTORY, Error, Resource, Source as _, Uri};
use libris_search::{IndexError, IndexUpdater, IndexedResource, SearchIndex, uri_hash};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{CatalogIndex, stamp, text};
use crate::Catalog;

/// How many resources the feeder lists at a time.
const PAGE: usize = 500;

/// The time between commits while many resources are added.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How long changes are gathered before they are indexed together.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The maximum number of changed resources in one debounce window. If there are more, the feeder compares the whole
/// list.
const MAX_CHANGED: usize = 1000;

/// The time between attempts to lock an index that another process updates, and between attempts to list or watch the
/// sources after a failure.
const LOCK_RETRY: Duration = Duration::from_secs(2);

/// The pause before an index is rebuilt after an error. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How many times a damaged index is rebuilt in its folder before it is built in memory.
const MAX_REBUILT: u32 = 2;

/// The stamp of a resource whose indexed version is unknown. It equals no other stamp, so that the resource is indexed
/// again.
const UNKNOWN_STAMP: u64 = 0;

/// Why the feeder stopped working on an index.
enum FeedEnd {
    /// The catalog was dropped, or the server stops.
    Stopped,
    /// The index cannot be used any more.
    Failed(IndexError),
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
    /// in memory if the folder cannot be written.
    pub(super) async fn run(self) {
        let mut in_memory = false;
        let mut rebuilt = 0;
        let mut pause = FIRST_PAUSE;
        loop {
            let started = Instant::now();
            let Some(folder) = self.shared.upgrade().map(|shared| shared.config.folder.clone()) else {
                return;
            };
            let folder = folder.filter(|_| !in_memory);
            // tantivy panics on some damaged files.
            let feed = AssertUnwindSafe(self.feed(folder.as_deref())).catch_unwind();
            let fed = tokio::select! {
                () = self.stop.cancelled() => return,
                fed = feed => fed.unwrap_or_else(|_| Err(IndexError::Damaged("an update panicked".into()).into())),
            };
            let Some(shared) = self.shared.upgrade() else { return };
            shared.set_current(None);
            shared.progress.is_warm.store(false, Ordering::Relaxed);
            shared.progress.set_complete(false);
            match fed {
                Err(FeedEnd::Stopped) | Ok(()) => return,
                Err(FeedEnd::Failed(error)) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "building the search index anew");
                    match (&error, &folder) {
                        (IndexError::Damaged(_), Some(folder)) => {
                            rebuilt += 1;
                            if let Err(cause) = std::fs::remove_dir_all(folder) {
                                tracing::warn!(%cause, "could not delete the damaged search index");
                                in_memory = true;
                            }
                            // A disk that is full or failing damages the new index too.
                            in_memory |= rebuilt > MAX_REBUILT;
                        }
                        (IndexError::Unwritable(_), Some(_)) => in_memory = true,
                        // A folder that could not be written may be writable again.
                        _ => (in_memory, rebuilt) = (false, 0),
                    }
                }
            }
            drop(shared);
            if started.elapsed() > LONGEST_PAUSE {
                (pause, rebuilt) = (FIRST_PAUSE, 0);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn catalog(&self) -> Result<Arc<Catalog>, FeedEnd> {
        self.catalog.upgrade().ok_or(FeedEnd::Stopped)
    }

    fn shared(&self) -> Result<Arc<CatalogIndex>, FeedEnd> {
        self.shared.upgrade().ok_or(FeedEnd::Stopped)
    }

    /// Opens the index in a folder or in memory and keeps it up to date, until it fails or the catalog is dropped.
    async fn feed(&self, folder: Option<&Path>) -> Result<(), FeedEnd> {
        let index = Arc::new(match folder {
            Some(folder) => SearchIndex::open(folder)?,
            None => SearchIndex::in_memory()?,
        });
        let shared = self.shared()?;
        shared.progress.is_warm.store(index.is_complete()?, Ordering::Relaxed);
        shared.set_current(Some(index.clone()));
        shared.progress.indexed.store(index.len()?, Ordering::Relaxed);
        drop(shared);
        let mut updater = loop {
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
            shared.progress.set_complete(index.is_complete()?);
            drop(shared);
            sleep(LOCK_RETRY).await;
        };
        let shared = self.shared()?;
        let is_configured = folder.is_some() || shared.config.folder.is_none();
        // The log has the cause, which may contain a path.
        let remark =
            (!is_configured).then(|| "the index is in memory only: its folder cannot be used".to_owned());
        shared.progress.set_remark(remark);
        drop(shared);
        let mut changes = self.watch().await?;
        self.synchronise(&index, &mut updater).await?;
        loop {
            self.check_current(&index)?;
            let Some(changed) = gather(&mut changes).await else {
                // The watch ended: compare the whole list after a pause.
                sleep(LOCK_RETRY).await;
                changes = self.watch().await?;
                self.synchronise(&index, &mut updater).await?;
                continue;
            };
            match changed {
                Changed::Everything => self.synchronise(&index, &mut updater).await?,
                Changed::Resources(uris) => self.update(uris, &index, &mut updater).await?,
            }
        }
    }

    /// Fails if the index is no longer in use: a search that finds damage drops the index.
    fn check_current(&self, index: &Arc<SearchIndex>) -> Result<(), FeedEnd> {
        match self.shared()?.current() {
            Some(current) if Arc::ptr_eq(&current, index) => Ok(()),
            _ => Err(IndexError::Damaged("a search failed".into()).into()),
        }
    }

    async fn watch(&self) -> Result<BoxStream<'static, Change>, FeedEnd> {
        let opened = self.catalog()?.watch().await;
        Ok(match opened {
            Ok(Some(changes)) => changes,
            Ok(None) => futures_util::stream::pending().boxed(),
            Err(error) => {
                tracing::warn!(%error, "the search index cannot watch the sources");
                futures_util::stream::pending().boxed()
            }
        })
    }

    /// Compares the index with the list of all resources, and updates the resources that differ.
    async fn synchronise(
        &self,
        index: &Arc<SearchIndex>,
        updater: &mut IndexUpdater<'_>,
    ) -> Result<(), FeedEnd> {
        let mut known: HashMap<u64, u64> = index.stamps()?;
        let shared = self.shared()?;
        shared.progress.listed.store(0, Ordering::Relaxed);
        shared.progress.forget_left_out();
        let mut after: Option<Uri> = None;
        let mut committed = Instant::now();
        let mut is_whole = true;
        loop {
            let page = self.catalog()?.list(after.as_ref(), PAGE, &Context::default()).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "the search index could not list the sources; retrying");
                    is_whole = false;
                    sleep(LOCK_RETRY).await;
                    self.check_current(index)?;
                    // A catalog whose sources all fail reports their recovery as a change.
                    if matches!(error, Error::Unavailable(_)) {
                        break;
                    }
                    continue;
                }
            };
            is_whole &= page.unavailable.is_empty();
            shared.progress.listed.fetch_add(page.resources.len(), Ordering::Relaxed);
            for resource in &page.resources {
                let old = known.remove(&uri_hash(resource.uri.as_str()));
                self.put(resource, old, index, updater).await?;
                if committed.elapsed() >= COMMIT_INTERVAL {
                    updater.commit()?;
                    committed = Instant::now();
                    shared.progress.publish();
                    tracing::info!(
                        indexed = shared.progress.indexed.load(Ordering::Relaxed),
                        listed = shared.progress.listed.load(Ordering::Relaxed),
                        "indexing for search"
                    );
                    self.check_current(index)?;
                }
            }
            after = page.resources.last().map(|last| last.uri.clone());
            if !page.more || after.is_none() {
                break;
            }
        }
        // Resources of a source that did not answer stay in the index.
        if is_whole && !known.is_empty() {
            let mut gone = Vec::new();
            index.for_each_uri(&mut |uri| {
                if known.contains_key(&uri_hash(uri)) {
                    gone.push(uri.to_owned());
                }
            })?;
            for uri in gone {
                updater.remove(&uri);
            }
        }
        updater.complete()?;
        let count = index.len()?;
        shared.progress.indexed.store(count, Ordering::Relaxed);
        tracing::info!(resources = count, "the search index is up to date");
        shared.progress.set_complete(true);
        Ok(())
    }

    /// Indexes a resource, unless the index has this version of it. `old` is the stamp of the indexed version, if there
    /// is one.
    async fn put(
        &self,
        resource: &Resource,
        old: Option<u64>,
        index: &SearchIndex,
        updater: &mut IndexUpdater<'_>,
    ) -> Result<(), FeedEnd> {
        // Directories are not indexed, because their names are part of the paths of their resources; nor are the
        // resources of Libris itself, which only describe the others.
        if resource.mime.as_deref() == Some(DIRECTORY) || resource.uri.scheme() == "libris" {
            return Ok(());
        }
        let (catalog, shared) = (self.catalog()?, self.shared()?);
        let source = catalog.source_name(&resource.uri).unwrap_or_default();
        let note = shared.note(&resource.uri);
        let metadata = stamp::of_metadata(resource, &source, note);
        if old == Some(metadata) && stamp::is_dated(resource) {
            return Ok(());
        }
        // New versions of resources may exceed the memory limit by a quarter, so that changes are indexed even if the
        // memory is full.
        let most = shared.config.memory;
        let most = if old.is_some() { most / 4 * 5 } else { most };
        if index.memory().is_some_and(|bytes| bytes > most) {
            updater.settle()?;
            if index.memory().is_some_and(|bytes| bytes > most) {
                updater.remove(resource.uri.as_str());
                shared.progress.set_left_out(&resource.uri, true);
                return Ok(());
            }
        }
        shared.progress.set_left_out(&resource.uri, false);
        let text = match text::text(&catalog, resource).await {
            Ok(text) => text,
            Err(error) => {
                tracing::debug!(uri = resource.uri.as_str(), %error, "a resource is indexed without its text");
                None
            }
        };
        let stamp = match stamp::is_dated(resource) {
            true => metadata,
            false => stamp::of_text(metadata, text.as_deref()),
        };
        if old == Some(stamp) {
            return Ok(());
        }
        updater.put(&IndexedResource { resource, source: &source, note, text: text.as_deref(), stamp })?;
        if old.is_none() {
            shared.progress.indexed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Indexes changed resources.
    async fn update(
        &self,
        uris: BTreeSet<Uri>,
        index: &SearchIndex,
        updater: &mut IndexUpdater<'_>,
    ) -> Result<(), FeedEnd> {
        for uri in uris {
            let catalog = self.catalog()?;
            match listed(&catalog, &uri).await {
                Some(resource) => self.put(&resource, Some(UNKNOWN_STAMP), index, updater).await?,
                None => {
                    updater.remove(uri.as_str());
                    self.shared()?.progress.set_left_out(&uri, false);
                }
            }
        }
        updater.commit()?;
        let shared = self.shared()?;
        shared.progress.indexed.store(index.len()?, Ordering::Relaxed);
        shared.progress.publish();
        Ok(())
    }
}

/// The metadata of a resource, if it is listed. No method of a catalog returns the metadata of one resource, so this
/// lists a few resources, starting shortly before the URI.
async fn listed(catalog: &Catalog, uri: &Uri) -> Option<Resource> {
    const NEIGHBOURS: usize = 64;
    let after = predecessor(uri);
    let page = catalog.list(after.as_ref(), NEIGHBOURS, &Context::default()).await.ok()?;
    page.resources.into_iter().find(|resource| resource.uri == *uri)
}

/// A URI shortly before `uri` in URI order: `uri` with its last character replaced by a smaller one and several `~`,
/// the greatest character. If that is impossible, `uri` without some characters at its end.
fn predecessor(uri: &Uri) -> Option<Uri> {
    let text = uri.as_str();
    let last = text.chars().next_back()?;
    let start = &text[..text.len() - last.len_utf8()];
    // Another digit in a percent escape would be another character, which normalisation may decode.
    let is_encoded = text.as_bytes().iter().rev().take(3).any(|byte| *byte == b'%');
    let before = ('-'..last).rev().find(|letter| letter.is_ascii_alphanumeric() || "-.".contains(*letter));
    let close = before.filter(|_| !is_encoded).map(|before| format!("{start}{before}~~~~"));
    let shorter = text.char_indices().rev().map(|(at, _)| text[..at].to_owned());
    let candidates = close.into_iter().chain(shorter).filter_map(|text| Uri::parse(&text).ok());
    candidates.take(8).find(|before| before < uri)
}

/// The resources that changed.
enum Changed {
    Everything,
    Resources(BTreeSet<Uri>),
}

/// The changes of the next debounce window; `None` if the stream ended.
async fn gather(changes: &mut BoxStream<'static, Change>) -> Option<Changed> {
    let mut uris = BTreeSet::new();
    let mut is_lost = insert(&mut uris, changes.next().await?);
    let end = Instant::now() + DEBOUNCE;
    while let Ok(change) = timeout(end.saturating_duration_since(Instant::now()), changes.next()).await {
        is_lost |= insert(&mut uris, change?);
        if uris.len() > MAX_CHANGED {
            is_lost = true;
            uris.clear();
        }
    }
    Some(if is_lost { Changed::Everything } else { Changed::Resources(uris) })
}

/// Records a change; returns whether changes were lost.
fn insert(uris: &mut BTreeSet<Uri>, change: Change) -> bool {
    match change {
        Change::Updated(uri) | Change::Described(uri) | Change::Added(uri) | Change::Removed(uri) => {
            uris.insert(uri);
            false
        }
        Change::Features => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::predecessor;
    use libris_core::Uri;

    #[test]
    fn a_predecessor_is_just_in_front() {
        let uris = [
            "file:///docs/a.md",
            "file:///docs/A",
            "db://shop/rows/10",
            "file:///a%20b",
            "x://a/b/",
            "x://a/-",
        ];
        for text in uris.into_iter().chain(["file:///a/%20", "x://a/%C3%A4"]) {
            let uri = Uri::parse(text).unwrap();
            let before = predecessor(&uri).unwrap_or_else(|| panic!("nothing is in front of {uri}"));
            assert!(before < uri, "{before} is not before {uri}");
        }
    }
}
