//! The index in memory or in a folder: opening, updating, and detecting damage.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libris_core::Resource;
use tantivy::directory::error::{LockError, OpenDirectoryError, OpenReadError, OpenWriteError};
use tantivy::directory::{Directory as _, INDEX_WRITER_LOCK, MmapDirectory};
use tantivy::index::SegmentId;
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy, UserOperation};
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, TantivyError, Term};

use crate::analyser::{ANALYSER, Analyser};
use crate::backlog::Backlog;
use crate::embedding::{BYTES_PER_SECTION, EmbeddingModel};
use crate::schema::{Fields, IndexedResource};
use crate::segment::SegmentMap;

/// The memory budget of the writer for documents that are not in a segment yet. It is the smallest that tantivy
/// accepts.
const WRITER_BYTES: usize = 15_000_000;

/// The payload of a commit that marks the index as complete: it has had all resources at some time.
const COMPLETE: &str = "complete";

/// Why the index cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The files of the index are damaged or of another version.
    #[error("the search index is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The folder cannot be written, or the disk is full.
    #[error(
        "the search index cannot be written; hint: free space on the disk, or set another `search.cache_folder`"
    )]
    Unwritable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The system lacks file descriptors, memory or threads, or could not read the disk. The files may be intact.
    #[error(
        "the search index cannot be opened now, and is opened again later; hint: raise the limit of open files, free \
         memory, or check the disk"
    )]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<TantivyError> for IndexError {
    fn from(error: TantivyError) -> Self {
        let cause = match &error {
            TantivyError::IoError(cause)
            | TantivyError::LockFailure(LockError::IoError(cause), _)
            | TantivyError::OpenDirectoryError(OpenDirectoryError::IoError { io_error: cause, .. })
            | TantivyError::OpenReadError(OpenReadError::IoError { io_error: cause, .. })
            | TantivyError::OpenWriteError(OpenWriteError::IoError { io_error: cause, .. }) => Some(cause),
            _ => None,
        };
        if cause.is_some_and(|cause| is_transient(cause)) {
            return Self::Unavailable(error.into());
        }
        match error {
            // A thread could not be started.
            TantivyError::SystemError(_) => Self::Unavailable(error.into()),
            TantivyError::IoError(_)
            | TantivyError::OpenDirectoryError(_)
            | TantivyError::LockFailure(..)
            | TantivyError::OpenWriteError(_) => Self::Unwritable(error.into()),
            error => Self::Damaged(error.into()),
        }
    }
}

/// Whether the system, not the index, is the cause: EIO, ENOMEM, ENFILE or EMFILE.
fn is_transient(error: &io::Error) -> bool {
    // Linux, macOS and the BSDs use the same numbers.
    const NUMBERS: [i32; 4] = [5, 12, 23, 24];
    let number = error.raw_os_error().filter(|_| cfg!(unix));
    error.kind() == io::ErrorKind::OutOfMemory || number.is_some_and(|number| NUMBERS.contains(&number))
}

/// An index of resources. Any number of searches and one updater can run at the same time.
pub struct SearchIndex {
    index: Index,
    reader: IndexReader,
    pub(crate) fields: Fields,
    segments: Mutex<HashMap<SegmentId, Arc<SegmentMap>>>,
    analyser: Analyser,
    backlog: Arc<Backlog>,
    /// The model that computes the vectors of sections and queries.
    pub(crate) model: Option<Arc<EmbeddingModel>>,
    is_in_memory: bool,
    /// The bytes of an index in memory as of the last commit.
    committed: AtomicUsize,
    /// The bytes of the texts that were added since the last commit.
    added: AtomicUsize,
    /// The bytes of the metadata of resources without a text that were added since the last commit.
    added_metadata: AtomicUsize,
}

impl SearchIndex {
    /// An empty index in memory.
    pub fn in_memory() -> Result<Self, IndexError> {
        let (schema, fields) = Fields::schema();
        Self::with(Index::create_in_ram(schema), fields, true)
    }

    /// Opens or creates the index in a folder. On [`IndexError::Damaged`], the caller should [delete](Self::delete) it
    /// and try again.
    pub fn open(folder: &Path) -> Result<Self, IndexError> {
        std::fs::create_dir_all(folder).map_err(TantivyError::from)?;
        let (schema, fields) = Fields::schema();
        let directory = MmapDirectory::open(folder).map_err(TantivyError::from)?;
        let index = Index::open_or_create(directory, schema)?;
        // Detects damage that would otherwise cause a panic in a search.
        let has_documents =
            index.searchable_segments()?.into_iter().all(|segment| segment.meta().max_doc() > 0);
        if !has_documents {
            return Err(IndexError::Damaged("a segment is empty".into()));
        }
        Self::with(index, fields, false)
    }

    /// Uses an embedding model, so that searches also find sections that mean the same as the query. Sections that were
    /// indexed without it, or with another model, should be indexed again.
    pub fn with_model(mut self, model: Option<Arc<EmbeddingModel>>) -> Self {
        self.model = model;
        self
    }

    /// The [fingerprint](EmbeddingModel::fingerprint) of the embedding model; 0 without one.
    pub fn model_fingerprint(&self) -> u64 {
        self.model.as_ref().map_or(0, |model| model.fingerprint())
    }

    /// Whether the embedding model turned out to be damaged, so that searches compare words only.
    pub fn has_failed_model(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.has_failed())
    }

    /// Deletes the index in a folder; false if another process, or another index of this process, updates it.
    pub fn delete(folder: &Path) -> Result<bool, IndexError> {
        let directory = MmapDirectory::open(folder).map_err(TantivyError::from)?;
        let _lock = match directory.acquire_lock(&INDEX_WRITER_LOCK) {
            Ok(lock) => lock,
            Err(LockError::LockBusy) => return Ok(false),
            Err(error) => return Err(TantivyError::from(error).into()),
        };
        std::fs::remove_dir_all(folder).map_err(TantivyError::from)?;
        Ok(true)
    }

    /// Verifies the checksums of all files, which reads all of them.
    pub fn verify(&self) -> Result<(), IndexError> {
        let damaged = self.index.validate_checksum()?;
        match damaged.is_empty() {
            true => Ok(()),
            false => Err(IndexError::Damaged(format!("the checksum of {damaged:?} is wrong").into())),
        }
    }

    fn with(index: Index, fields: Fields, is_in_memory: bool) -> Result<Self, IndexError> {
        let backlog = Arc::new(Backlog::default());
        let analyser = Analyser::new(backlog.clone());
        index.tokenizers().register(ANALYSER, TextAnalyzer::builder(analyser.clone()).build());
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .doc_store_cache_num_blocks(32)
            .try_into()?;
        let segments = Mutex::default();
        let [committed, added, added_metadata] = [const { AtomicUsize::new(0) }; 3];
        Ok(Self {
            index,
            reader,
            fields,
            segments,
            analyser,
            backlog,
            model: None,
            is_in_memory,
            committed,
            added,
            added_metadata,
        })
    }

    /// Starts updating the index; `None` if another process updates the same folder.
    pub fn updater(&self) -> Result<Option<IndexUpdater<'_>>, IndexError> {
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .num_merge_threads(1)
            .memory_budget_per_thread(WRITER_BYTES)
            .build();
        let writer = match self.index.writer_with_options(options) {
            Ok(writer) => writer,
            Err(TantivyError::LockFailure(LockError::LockBusy, _)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut policy = LogMergePolicy::default();
        policy.set_del_docs_ratio_before_merge(0.3);
        writer.set_merge_policy(Box::new(policy));
        self.backlog.clear();
        Ok(Some(IndexUpdater { index: self, writer }))
    }

    /// Makes committed changes visible to searches, including changes that another process committed.
    pub fn reload(&self) -> Result<(), IndexError> {
        self.reader.reload()?;
        let searcher = self.reader.searcher();
        let mut maps = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|id, _| searcher.segment_readers().iter().any(|segment| segment.segment_id() == *id));
        if self.is_in_memory {
            let usage = searcher.space_usage().map_err(TantivyError::from)?;
            self.committed.store(usage.total().get_bytes() as usize, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The memory of an index in memory, in bytes; `None` for an index in a folder. Committed data counts exactly. Of a
    /// resource added since the last commit, the text and the vectors count, or if there is none, the metadata. The
    /// embedding model counts too.
    pub fn memory(&self) -> Option<usize> {
        let counters = [&self.committed, &self.added, &self.added_metadata];
        let model = self.model.as_ref().map_or(0, |model| model.memory());
        self.is_in_memory
            .then(|| counters.iter().fold(model, |sum, bytes| sum + bytes.load(Ordering::Relaxed)))
    }

    /// The number of resources in the index.
    pub fn len(&self) -> Result<usize, IndexError> {
        let searcher = self.reader.searcher();
        let mut count = 0;
        for segment in searcher.segment_readers() {
            let map = self.map(segment)?;
            count += map.heads.iter().filter(|head| !segment.is_deleted(**head)).count();
        }
        Ok(count)
    }

    /// Whether an updater, perhaps in another process, has called [`IndexUpdater::complete`] since the index was
    /// created or cleared.
    pub fn is_complete(&self) -> Result<bool, IndexError> {
        Ok(self.index.load_metas()?.payload.as_deref() == Some(COMPLETE))
    }

    /// Whether there are no resources in the index.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.len()? == 0)
    }

    /// The stamps of all resources by the [hash](uri_hash) of their URIs.
    pub fn stamps(&self) -> Result<HashMap<u64, u64>, IndexError> {
        let searcher = self.reader.searcher();
        let mut stamps = HashMap::new();
        for segment in searcher.segment_readers() {
            let map = self.map(segment)?;
            let column = segment.fast_fields().u64("stamp")?;
            let uris = segment.inverted_index(self.fields.uri)?;
            let mut stream = uris.terms().stream().map_err(TantivyError::from)?;
            while let Some((uri, info)) = stream.next() {
                use tantivy::DocSet as _;
                let record = tantivy::schema::IndexRecordOption::Basic;
                let mut documents =
                    uris.read_postings_from_terminfo(info, record).map_err(TantivyError::from)?;
                while documents.doc() != tantivy::TERMINATED {
                    let head = map.heads[map.resource_of[documents.doc() as usize] as usize];
                    if !segment.is_deleted(head)
                        && let Some(stamp) = column.first(head)
                    {
                        stamps.insert(uri_hash(&String::from_utf8_lossy(uri)), stamp);
                        break;
                    }
                    documents.advance();
                }
            }
        }
        Ok(stamps)
    }

    /// Calls `each` with the URI of every resource in the index. The URIs may include those of deleted resources, and a
    /// URI may be repeated.
    pub fn for_each_uri(&self, each: &mut dyn FnMut(&str)) -> Result<(), IndexError> {
        let searcher = self.reader.searcher();
        for segment in searcher.segment_readers() {
            let uris = segment.inverted_index(self.fields.uri)?;
            let mut stream = uris.terms().stream().map_err(TantivyError::from)?;
            while let Some((uri, _)) = stream.next() {
                each(&String::from_utf8_lossy(uri));
            }
        }
        Ok(())
    }

    pub(crate) fn searcher(&self) -> Searcher {
        self.reader.searcher()
    }

    /// The map of a segment, cached.
    pub(crate) fn map(&self, segment: &tantivy::SegmentReader) -> tantivy::Result<Arc<SegmentMap>> {
        let cached = |maps: &HashMap<SegmentId, Arc<SegmentMap>>| maps.get(&segment.segment_id()).cloned();
        if let Some(map) = cached(&self.segments.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(map);
        }
        let map = Arc::new(SegmentMap::read(segment, &self.fields)?);
        let mut maps = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        maps.insert(segment.segment_id(), map.clone());
        Ok(map)
    }
}

/// Adds, replaces and removes resources of an index. Searches see the changes after [`commit`](Self::commit).
pub struct IndexUpdater<'i> {
    index: &'i SearchIndex,
    writer: IndexWriter,
}

impl IndexUpdater<'_> {
    /// Adds a resource, or replaces it.
    pub fn put(&self, indexed: &IndexedResource<'_>) -> Result<(), IndexError> {
        // tantivy keeps more than 1 KiB for each deletion until the next commit, and looks for it in each segment.
        self.remove(indexed.resource.uri.as_str());
        self.add(indexed)
    }

    /// Adds a resource that the index does not have, which costs less than [`put`](Self::put). A resource that the index
    /// has would then be in it twice.
    pub fn add(&self, indexed: &IndexedResource<'_>) -> Result<(), IndexError> {
        let model = self.index.model.as_deref();
        let documents = self.index.fields.documents(indexed, model);
        let vectors = model.map_or(0, |_| (documents.len() - 1) * BYTES_PER_SECTION);
        self.index.backlog.add(self.index.fields.analysed_bytes(&documents));
        self.writer.run(documents.into_iter().map(UserOperation::Add).collect::<Vec<_>>())?;
        match indexed.text {
            Some(text) => self.index.added.fetch_add(text.len() + vectors, Ordering::Relaxed),
            None => {
                let Resource { uri, name, title, description, .. } = indexed.resource;
                let texts = [Some(uri.as_str()), Some(name), title.as_deref(), description.as_deref()];
                let bytes = texts.into_iter().flatten().map(str::len).sum();
                self.index.added_metadata.fetch_add(bytes, Ordering::Relaxed)
            }
        };
        Ok(())
    }

    /// Removes a resource.
    pub fn remove(&self, uri: &str) {
        self.writer.delete_term(Term::from_field_text(self.index.fields.uri, uri));
    }

    /// Writes the changes and makes them visible to searches.
    pub fn commit(&mut self) -> Result<(), IndexError> {
        let is_complete = self.index.is_complete()?;
        self.commit_as(is_complete)
    }

    /// Commits if texts were added since the last commit, so that [`SearchIndex::memory`] counts their exact size in
    /// the index.
    pub fn settle(&mut self) -> Result<(), IndexError> {
        match self.index.added.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => self.commit(),
        }
    }

    /// Commits, and records that the index now has all resources ([`SearchIndex::is_complete`]).
    pub fn complete(&mut self) -> Result<(), IndexError> {
        self.commit_as(true)
    }

    fn commit_as(&mut self, is_complete: bool) -> Result<(), IndexError> {
        let mut prepared = self.writer.prepare_commit()?;
        if is_complete {
            prepared.set_payload(COMPLETE);
        }
        prepared.commit()?;
        // All text is tokenised.
        self.index.backlog.clear();
        self.index.analyser.forget_stems();
        self.index.added.store(0, Ordering::Relaxed);
        self.index.added_metadata.store(0, Ordering::Relaxed);
        self.index.reload()
    }

    /// Removes all resources.
    pub fn clear(&mut self) -> Result<(), IndexError> {
        self.writer.delete_all_documents()?;
        self.commit_as(false)
    }

    /// Waits for the merges in progress, and ends the updater.
    pub fn finish(self) -> Result<(), IndexError> {
        self.writer.wait_merging_threads()?;
        self.index.reload()
    }
}

/// A hash of a URI. It is the same in all processes that run the same build of this program.
pub fn uri_hash(uri: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uri.hash(&mut hasher);
    hasher.finish()
}

#[cfg(all(test, unix))]
mod tests {
    use std::io;

    use tantivy::TantivyError;
    use tantivy::directory::error::{LockError, OpenReadError};

    use super::{IndexError, SearchIndex};

    #[test]
    fn a_lack_of_file_descriptors_is_no_damage() {
        // EMFILE.
        let cause = || io::Error::from_raw_os_error(24);
        for error in [
            TantivyError::from(cause()),
            OpenReadError::wrap_io_error(cause(), "segment".into()).into(),
            LockError::wrap_io_error(cause()).into(),
        ] {
            assert!(matches!(IndexError::from(error), IndexError::Unavailable(_)));
        }
        let cut = OpenReadError::wrap_io_error(io::ErrorKind::UnexpectedEof.into(), "segment".into());
        assert!(matches!(IndexError::from(TantivyError::from(cut)), IndexError::Damaged(_)));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(IndexError::from(TantivyError::from(full)), IndexError::Unwritable(_)));
    }

    #[test]
    fn only_the_updater_of_an_index_may_delete_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let index = SearchIndex::open(&folder).unwrap();
        let updater = index.updater().unwrap();
        assert!(updater.is_some() && !SearchIndex::delete(&folder).unwrap() && folder.exists());
        drop(updater);
        assert!(SearchIndex::delete(&folder).unwrap() && !folder.exists());
    }
}
