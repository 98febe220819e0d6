//! Puts resources into the index: all that differ from the list, or those that changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libris_core::{Context, DIRECTORY, Error, Resource, Source as _, Uri};
use libris_search::{IndexUpdater, IndexedResource, SearchIndex, uri_hash};
use tokio::time::{Instant, sleep};

use super::changes::{Changed, Unfinished, listed};
use super::feeder::{FeedEnd, Feeder, LOCK_RETRY};
use super::{Completeness, stamp, text};

/// How many resources the feeder lists at a time.
const PAGE: usize = 500;

/// The time between commits while many resources are added.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How many times in a row a page of the list may fail before the comparison of the list is put off.
const MAX_FAILURES: u32 = 3;

/// How many times resources that could not be read are read again before the index counts as complete.
const MAX_REREADS: u32 = 3;

/// The stamp of a resource whose indexed version has no text, because the text could not be read or did not fit into
/// memory. It equals no other stamp, so that the resource is indexed again.
const UNKNOWN_STAMP: u64 = 0;

/// What the feeder knows about a resource before it is indexed.
#[derive(Clone, Copy, PartialEq)]
enum Previous {
    /// It is not in the index.
    Absent,
    /// The index has a version with this stamp.
    Indexed(u64),
    /// A source reported that it changed, so the indexed version is outdated.
    Changed,
    /// It could not be read before. The index has the last version that could be read, or only the metadata.
    Unread,
}

/// Updates an index.
pub(super) struct Indexing<'f, 'i> {
    pub(super) feeder: &'f Feeder,
    pub(super) index: &'i Arc<SearchIndex>,
    pub(super) updater: IndexUpdater<'i>,
    pub(super) unfinished: Unfinished,
}

impl Indexing<'_, '_> {
    /// Indexes resources that changed, or that could not be listed or read before.
    pub(super) async fn apply(&mut self, changed: Changed) -> Result<(), FeedEnd> {
        match changed {
            Changed::Everything => self.synchronise().await?,
            Changed::Resources(uris) => self.update(uris, Previous::Changed).await?,
            Changed::Unread(uris) => self.update(uris, Previous::Unread).await?,
            Changed::Nothing => return Ok(()),
        }
        self.publish()
    }

    /// Compares the index with the list of all resources, and updates the resources that differ.
    pub(super) async fn synchronise(&mut self) -> Result<(), FeedEnd> {
        let mut known: HashMap<u64, u64> = self.index.stamps()?;
        let shared = self.feeder.shared()?;
        shared.progress.listed.store(0, Ordering::Relaxed);
        shared.progress.forget_left_out();
        let mut after: Option<Uri> = None;
        let mut last: Option<Uri> = None;
        let mut committed = Instant::now();
        let mut is_whole = true;
        let mut failures = 0;
        loop {
            let page = self.feeder.catalog()?.list(after.as_ref(), PAGE, &Context::default()).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    failures += 1;
                    self.feeder.check_current(self.index)?;
                    if failures < MAX_FAILURES && !matches!(error, Error::Unavailable(_)) {
                        sleep(LOCK_RETRY).await;
                        continue;
                    }
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "the search index cannot list the sources; it tries again later");
                    self.updater.commit()?;
                    self.unfinished.add_unlisted();
                    shared.progress.set_unlisted(error);
                    return Ok(());
                }
            };
            failures = 0;
            is_whole &= page.unavailable.is_empty();
            shared.progress.listed.fetch_add(page.resources.len(), Ordering::Relaxed);
            for resource in &page.resources {
                // A list in order has each resource once. A resource out of order may be in the index since a moment ago.
                let unknown = match last.as_ref().is_none_or(|last| resource.uri > *last) {
                    true => Previous::Absent,
                    false => Previous::Changed,
                };
                last = last.max(Some(resource.uri.clone()));
                let old = known.remove(&uri_hash(resource.uri.as_str()));
                self.put(resource, old.map_or(unknown, Previous::Indexed)).await?;
                if committed.elapsed() >= COMMIT_INTERVAL {
                    self.updater.commit()?;
                    committed = Instant::now();
                    shared.progress.publish();
                    tracing::info!(
                        indexed = shared.progress.indexed.load(Ordering::Relaxed),
                        listed = shared.progress.listed.load(Ordering::Relaxed),
                        "indexing for search"
                    );
                    self.feeder.check_current(self.index)?;
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
            self.index.for_each_uri(&mut |uri| {
                if known.contains_key(&uri_hash(uri)) {
                    gone.push(uri.to_owned());
                }
            })?;
            gone.iter().for_each(|uri| self.updater.remove(uri));
        }
        self.reread().await?;
        match is_whole {
            true => self.updater.complete()?,
            // A source that did not answer reports its recovery as a change.
            false => self.updater.commit()?,
        }
        let count = self.index.len()?;
        shared.progress.indexed.store(count, Ordering::Relaxed);
        shared.progress.unread.store(self.unfinished.unread(), Ordering::Relaxed);
        tracing::info!(resources = count, "the search index is up to date");
        shared.progress.set_completeness(Completeness::Complete);
        Ok(())
    }

    /// Retries resources that could not be read, with pauses, before the index first counts as complete.
    async fn reread(&mut self) -> Result<(), FeedEnd> {
        let mut pause = Duration::from_millis(250);
        for _ in 0..MAX_REREADS {
            if self.unfinished.is_empty() || self.feeder.shared()?.indexing().is_none() {
                break;
            }
            sleep(pause).await;
            pause *= 2;
            match self.unfinished.take() {
                Changed::Unread(uris) => self.update(uris, Previous::Unread).await?,
                _ => {
                    self.unfinished.add_unlisted();
                    break;
                }
            }
        }
        Ok(())
    }

    /// Indexes a resource, unless the index has this version of it.
    async fn put(&mut self, resource: &Resource, previous: Previous) -> Result<(), FeedEnd> {
        // Directories are not indexed, because their names are part of the paths of their resources; nor are the
        // resources of Libris itself, which only describe the others.
        if resource.mime.as_deref() == Some(DIRECTORY) || resource.uri.scheme() == "libris" {
            return Ok(());
        }
        let (catalog, shared) = (self.feeder.catalog()?, self.feeder.shared()?);
        let source = catalog.source_name(&resource.uri).unwrap_or_default();
        let note = shared.note(&resource.uri);
        // With another embedding model, everything is indexed again.
        let metadata = stamp::of_metadata(resource, &source, note) ^ self.index.model_fingerprint();
        if previous == Previous::Indexed(metadata) && stamp::is_dated(resource) {
            return Ok(());
        }
        // New versions of resources may exceed the memory limit by a quarter, so that changes are indexed even if the
        // memory is full.
        let most = shared.config.memory;
        let most = if previous == Previous::Absent { most } else { most / 4 * 5 };
        if self.is_above(most) {
            self.updater.settle()?;
            if self.is_above(most) {
                shared.progress.set_left_out(&resource.uri, true);
                return self.put_metadata(resource, &source, note, previous);
            }
        }
        shared.progress.set_left_out(&resource.uri, false);
        let read = text::text(&catalog, resource).await;
        let text = match &read {
            Ok(text) => text.as_deref(),
            Err(error) => {
                tracing::debug!(uri = resource.uri.as_str(), %error, "a resource could not be read for search");
                None
            }
        };
        let stamp = match &read {
            Err(error) if text::may_be_readable_later(error) => {
                self.unfinished.add_unread(&resource.uri);
                // The last version that could be read stays in the index, unless it is known to be outdated.
                if previous == Previous::Unread
                    || matches!(previous, Previous::Indexed(old) if old != UNKNOWN_STAMP)
                {
                    return Ok(());
                }
                UNKNOWN_STAMP
            }
            _ if stamp::is_dated(resource) => metadata,
            _ => stamp::of_text(metadata, text),
        };
        if previous == Previous::Indexed(stamp) && stamp != UNKNOWN_STAMP {
            return Ok(());
        }
        let text_uri = text::document_text(resource);
        let text_uri = text_uri.as_ref().filter(|_| text.is_some()).map(Uri::as_str);
        self.write(&IndexedResource { resource, source: &source, note, text, text_uri, stamp }, previous)?;
        if previous == Previous::Absent {
            shared.progress.indexed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds a resource to the index, or replaces it.
    fn write(&self, indexed: &IndexedResource<'_>, previous: Previous) -> Result<(), FeedEnd> {
        match previous {
            Previous::Absent => self.updater.add(indexed)?,
            _ => self.updater.put(indexed)?,
        }
        Ok(())
    }

    /// Whether the index is in memory and larger than this many bytes.
    fn is_above(&self, most: usize) -> bool {
        self.index.memory().is_some_and(|bytes| bytes > most)
    }

    /// Indexes the metadata of a resource whose text does not fit into the memory of the index. If not even the metadata
    /// fits, searches compare names.
    fn put_metadata(
        &mut self,
        resource: &Resource,
        source: &str,
        note: Option<&str>,
        previous: Previous,
    ) -> Result<(), FeedEnd> {
        let shared = self.feeder.shared()?;
        if self.is_above(shared.config.memory / 2 * 3) {
            shared.progress.is_nameless.store(true, Ordering::Relaxed);
            if previous != Previous::Absent {
                self.updater.remove(resource.uri.as_str());
            }
            return Ok(());
        }
        let stamp = UNKNOWN_STAMP;
        self.write(&IndexedResource { resource, source, note, text: None, text_uri: None, stamp }, previous)
    }

    /// Indexes resources that changed or could not be read, and commits.
    async fn update(&mut self, uris: BTreeSet<Uri>, previous: Previous) -> Result<(), FeedEnd> {
        for uri in uris {
            let catalog = self.feeder.catalog()?;
            match listed(&catalog, &uri).await {
                Ok(Some(resource)) => self.put(&resource, previous).await?,
                Ok(None) => {
                    self.updater.remove(uri.as_str());
                    self.feeder.shared()?.progress.set_left_out(&uri, false);
                }
                // The resource may still exist, so it stays in the index.
                Err(error) => {
                    tracing::debug!(uri = uri.as_str(), %error, "a changed resource could not be listed for search");
                    self.unfinished.add_unread(&uri);
                }
            }
        }
        self.updater.commit()?;
        Ok(())
    }

    /// Updates the status, and schedules the next attempt of the work that failed.
    fn publish(&mut self) -> Result<(), FeedEnd> {
        self.unfinished.schedule();
        let shared = self.feeder.shared()?;
        shared.progress.indexed.store(self.index.len()?, Ordering::Relaxed);
        shared.progress.unread.store(self.unfinished.unread(), Ordering::Relaxed);
        if self.index.has_failed_model() {
            shared.progress.set_without_model();
        }
        shared.progress.publish();
        Ok(())
    }
}
