//! Runs extractions in child processes. Concurrent requests for the same result share one extraction (single-flight),
//! the number of processes is limited, and results are cached by the digest of the document.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use libris_core::{Budget, Client, Context, Flights, Lease};
use sha2::{Digest as _, Sha256};

use crate::archive::Member;
use crate::cache::{CachedResult, Digest, ExceededLimit, RenderedPage, ResultCache, ResultKey};
use crate::child::{ChildRequest, ChildResponse, ChildWork};
use crate::disk_cache::DiskCache;
use crate::extract::{ExtractFailure, ExtractOptions};
use crate::{ArchiveFormat, ExtractedText, ExtractionLimits, PageRendering};

mod process;

use process::{ChildEnd, ChildOutput, ChildProcess, MemberAdmission};

/// Documents up to this size are hashed on the calling thread, larger ones on a blocking thread.
const SMALL: usize = 256 * 1024;

/// How documents are extracted.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// The program that calls [`child::run`](crate::child::run).
    pub program: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
    /// The limits of one extraction.
    pub limits: ExtractionLimits,
    /// The largest document or archive, in bytes.
    pub max_document: u64,
    /// The maximum number of extractions at once.
    pub concurrency: usize,
    /// The size of the cache in memory, in bytes.
    pub cache_bytes: usize,
    /// The folder of the cache on disk; `None` for none.
    pub cache_folder: Option<PathBuf>,
    /// The size of the cache on disk, in bytes.
    pub cache_folder_bytes: u64,
}

impl ReaderConfig {
    /// The default configuration, with this program as the child process.
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let limits = ExtractionLimits::default();
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            limits,
            max_document: 64 << 20,
            concurrency: processors.clamp(2, 8),
            cache_bytes: Self::cache_bytes_for(limits.text),
            cache_folder: None,
            cache_folder_bytes: 1 << 30,
        }
    }

    /// The size of a cache in memory in which one client can cache a text of `text` bytes, the limit of an extraction.
    /// A smaller cache would make each read of a part of such a text extract the document again.
    pub fn cache_bytes_for(text: u64) -> usize {
        // A client's share is three quarters, and a text takes a little more memory than its JSON.
        usize::try_from(text.saturating_add(text / 2)).unwrap_or(usize::MAX)
    }
}

/// Why an extraction has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractionError {
    /// The document cannot be extracted, or exceeds a limit. The message may be sent to clients.
    #[error("{0}")]
    Refused(String),
    /// The child process crashed. The message may be sent to clients.
    #[error("it crashes the extraction")]
    Crashed,
    /// The document or archive is larger than the limit.
    #[error("the document has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The size of the document or archive in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The document has fewer pages than the requested one.
    #[error("the document has {0} pages")]
    NoPage(usize),
    /// The archive has no member of this name.
    #[error("the archive has no such member")]
    NoMember,
    /// Too many extractions are waiting.
    #[error("too many documents are waiting to be extracted")]
    Busy,
    /// The server has no memory for the contents. The server then waits for free memory and repeats the read: see
    /// [`Context::reserve`].
    #[error("there is no memory for the contents")]
    NoMemory,
    /// The child process could not be started, or violated the protocol.
    #[error("the extraction of a document failed: {0}")]
    Failed(Arc<std::io::Error>),
}

/// Extracts documents in child processes.
pub struct DocumentReader {
    inner: Arc<ReaderInner>,
}

struct ReaderInner {
    config: ReaderConfig,
    permits: Arc<Budget>,
    cache: ResultCache,
    disk: Option<DiskCache>,
    /// The running extractions, each of which holds a permit.
    extractions: Flights<ResultKey, Result<CachedResult, ExtractionError>>,
    /// The requests for a result, one for each client, which wait for a permit or for a running extraction.
    requests: Flights<(ResultKey, Client), Result<CachedResult, ExtractionError>>,
    /// How many child processes were started.
    started: AtomicU64,
}

impl DocumentReader {
    /// A reader with its own limits and caches.
    pub fn new(config: ReaderConfig) -> Self {
        let disk =
            config.cache_folder.as_ref().map(|folder| DiskCache::new(folder, config.cache_folder_bytes));
        Self {
            inner: Arc::new(ReaderInner {
                permits: Budget::new(config.concurrency.max(1)),
                cache: ResultCache::new(config.cache_bytes),
                disk,
                extractions: Flights::default(),
                requests: Flights::default(),
                started: AtomicU64::new(0),
                config,
            }),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &ReaderConfig {
        &self.inner.config
    }

    /// How many child processes were started so far.
    pub fn extractions(&self) -> u64 {
        self.inner.started.load(Ordering::Relaxed)
    }

    /// The digest of a document.
    pub(crate) async fn digest(&self, data: &Bytes) -> Digest {
        let hash = |data: &[u8]| Sha256::digest(data).into();
        if data.len() <= SMALL {
            return hash(data);
        }
        let data = data.clone();
        tokio::task::spawn_blocking(move || hash(&data)).await.expect("hashing does not panic")
    }

    /// The text of a document, if the memory cache has it.
    pub(crate) fn cached_text(&self, digest: Digest, options: ExtractOptions) -> Option<Arc<ExtractedText>> {
        let key = ResultKey { digest, work: ChildWork::Text(options) };
        match self.inner.cache.find(&key)? {
            CachedResult::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a document.
    pub async fn text(
        &self,
        data: &Bytes,
        options: ExtractOptions,
        client: Client,
    ) -> Result<Arc<ExtractedText>, ExtractionError> {
        let work = ChildWork::Text(options);
        match self.result(data, work.clone(), client).await? {
            CachedResult::Text(text) => Ok(text),
            other => Err(self.inner.refused(&other, &work)),
        }
    }

    /// The image of a page, if the memory cache has it.
    pub(crate) fn cached_image(&self, digest: Digest, rendering: PageRendering) -> Option<RenderedPage> {
        let key = ResultKey { digest, work: ChildWork::Image(rendering) };
        match self.inner.cache.find(&key)? {
            CachedResult::Image(page) => Some(page),
            _ => None,
        }
    }

    /// The image of a page of a PDF.
    pub(crate) async fn image(
        &self,
        data: &Bytes,
        rendering: PageRendering,
        client: Client,
    ) -> Result<RenderedPage, ExtractionError> {
        let work = ChildWork::Image(rendering);
        match self.result(data, work.clone(), client).await? {
            CachedResult::Image(page) => Ok(page),
            other => Err(self.inner.refused(&other, &work)),
        }
    }

    /// The members of an archive.
    pub async fn members(
        &self,
        data: &Bytes,
        format: ArchiveFormat,
        client: Client,
    ) -> Result<Arc<Vec<Member>>, ExtractionError> {
        let work = ChildWork::Members(format);
        match self.result(data, work.clone(), client).await? {
            CachedResult::Members(members) => Ok(members),
            other => Err(self.inner.refused(&other, &work)),
        }
    }

    /// The contents of a member of an archive, which are not cached. Before the server receives them from the child
    /// process, it reserves their memory from `context`.
    pub async fn member(
        &self,
        data: &Bytes,
        format: ArchiveFormat,
        path: &str,
        context: &Context,
    ) -> Result<Bytes, ExtractionError> {
        self.check_size(data)?;
        let work = ChildWork::Member(format, path.to_owned());
        let permit = self.inner.permit(context.client()).await?;
        let admit = |size| context.reserve(size).is_ok();
        match self.inner.run(permit, work.clone(), data.clone(), Some(&admit)).await? {
            Ok((ChildResponse::Member(_), contents)) => Ok(contents),
            Ok((ChildResponse::Failed(failure), _)) => {
                Err(self.inner.refused(&CachedResult::Failed(failure), &work))
            }
            Ok(_) => Err(invalid()),
            Err(exceeded) => Err(self.inner.refused(&CachedResult::Exceeded(exceeded), &work)),
        }
    }

    fn check_size(&self, data: &Bytes) -> Result<(), ExtractionError> {
        let (size, limit) = (data.len() as u64, self.inner.config.max_document);
        if size > limit { Err(ExtractionError::TooLarge { size, limit }) } else { Ok(()) }
    }

    /// The result of `work` on a document, from a cache or from an extraction.
    async fn result(
        &self,
        data: &Bytes,
        work: ChildWork,
        client: Client,
    ) -> Result<CachedResult, ExtractionError> {
        self.check_size(data)?;
        let key = ResultKey { digest: self.digest(data).await, work };
        if let Some(found) = self.inner.cache.find(&key) {
            return Ok(found);
        }
        let done = || self.inner.cache.find(&key).map(Ok);
        let request = self.inner.requests.join(&(key.clone(), client), done, || {
            let (inner, key, data) = (self.inner.clone(), key.clone(), data.clone());
            async move { inner.request(key, data, client).await }
        });
        request.await
    }
}

impl ReaderInner {
    /// Loads a result from the disk cache, or waits for its extraction, which this starts if none is running.
    ///
    /// Each client waits for a permit in its own queue. If all clients waited for the permit of the client that
    /// requested the result first, and that client had a long queue, it would delay every document in its queue for
    /// everybody else.
    async fn request(
        self: Arc<Self>,
        key: ResultKey,
        data: Bytes,
        client: Client,
    ) -> Result<CachedResult, ExtractionError> {
        if let Some(found) = self.clone().blocking(key.clone(), |disk, key| disk.find(&key)).await.flatten() {
            self.cache.insert(key, found.clone(), client);
            return Ok(found);
        }
        if let Some(running) = self.extractions.join_existing(&key) {
            return running.await;
        }
        let permit = self.permit(client).await?;
        let done = || self.cache.find(&key).map(Ok);
        let extraction = self.extractions.join(&key, done, || {
            let (inner, key) = (self.clone(), key.clone());
            async move { inner.extract(permit, key, data, client).await }
        });
        // In a task, so that an extraction that was started completes even if all callers disconnect, and the next
        // request finds the result in the cache.
        let failed = |cause| ExtractionError::Failed(Arc::new(std::io::Error::other(cause)));
        tokio::spawn(extraction).await.map_err(failed)?
    }

    /// Runs an extraction and caches its result.
    async fn extract(
        self: Arc<Self>,
        permit: Lease,
        key: ResultKey,
        data: Bytes,
        client: Client,
    ) -> Result<CachedResult, ExtractionError> {
        let result = match self.run(permit, key.work.clone(), data, None).await? {
            Ok((ChildResponse::Text(text), _)) => CachedResult::Text(Arc::new(text)),
            Ok((ChildResponse::Image(image), png)) => match RenderedPage::new(image, png) {
                Some(page) => CachedResult::Image(page),
                None => return Err(invalid()),
            },
            Ok((ChildResponse::Members(members), _)) => CachedResult::Members(Arc::new(members)),
            Ok((ChildResponse::TooLong, _)) => CachedResult::Exceeded(ExceededLimit::Output),
            Ok((ChildResponse::Failed(failure), _)) => CachedResult::Failed(failure),
            Ok((ChildResponse::Member(_), _)) => return Err(invalid()),
            Err(exceeded) => CachedResult::Exceeded(exceeded),
        };
        self.cache.insert(key.clone(), result.clone(), client);
        let stored = result.clone();
        self.blocking(key, move |disk, key| disk.insert(&key, &stored)).await;
        Ok(result)
    }

    /// Runs `work` with the disk cache on a blocking thread; `None` without a disk cache.
    async fn blocking<T: Send + 'static>(
        self: Arc<Self>,
        key: ResultKey,
        work: impl FnOnce(&DiskCache, ResultKey) -> T + Send + 'static,
    ) -> Option<T> {
        self.disk.as_ref()?;
        tokio::task::spawn_blocking(move || Some(work(self.disk.as_ref()?, key))).await.ok().flatten()
    }

    /// Waits for a permit to start an extraction; [`ExtractionError::Busy`] if too many wait.
    async fn permit(&self, client: Client) -> Result<Lease, ExtractionError> {
        self.permits.take(client, 1).await.ok_or(ExtractionError::Busy)
    }

    /// Runs a child process, and holds the permit meanwhile. Returns the response and the bytes that follow it, or the
    /// limit that the process exceeded, which is cached as a result. `admit` grants memory for the contents of a
    /// member.
    async fn run(
        &self,
        _permit: Lease,
        work: ChildWork,
        data: Bytes,
        admit: MemberAdmission<'_>,
    ) -> Result<Result<(ChildResponse, Bytes), ExceededLimit>, ExtractionError> {
        self.started.fetch_add(1, Ordering::Relaxed);
        let limits = self.config.limits;
        let request = ChildRequest { limits, size: data.len() as u64, work };
        let failed = |cause| ExtractionError::Failed(Arc::new(cause));
        let process = ChildProcess::start(&self.config, &request, data).map_err(failed)?;
        let output = match process.finish(limits.wall, admit).await.map_err(failed)? {
            ChildEnd::Output(output) => output,
            ChildEnd::Exceeded(exceeded) => return Ok(Err(exceeded)),
            ChildEnd::NoMemory => return Err(ExtractionError::NoMemory),
            ChildEnd::TimedOut => {
                let seconds = limits.wall.as_secs();
                return Err(ExtractionError::Refused(format!("it takes longer than {seconds} seconds")));
            }
            ChildEnd::Killed => {
                let cause =
                    "the child process was killed, for example because the system has too little memory";
                return Err(failed(std::io::Error::other(cause)));
            }
            ChildEnd::NotSetUp(message) => {
                let cause = format!("the child process could not be set up: {message}");
                return Err(failed(std::io::Error::other(cause)));
            }
        };
        let parse = move || parsed(output);
        let response =
            tokio::task::spawn_blocking(parse).await.map_err(|cause| failed(std::io::Error::other(cause)))?;
        response.map(Ok).map_err(failed)
    }

    /// The error for a result that is not of the requested kind.
    fn refused(&self, result: &CachedResult, work: &ChildWork) -> ExtractionError {
        match result {
            CachedResult::Failed(ExtractFailure::NoMember) => ExtractionError::NoMember,
            CachedResult::Failed(ExtractFailure::NoPage(pages)) => ExtractionError::NoPage(*pages),
            CachedResult::Failed(failure) => ExtractionError::Refused(failure.to_string()),
            CachedResult::Exceeded(ExceededLimit::Crashed | ExceededLimit::Exited) => {
                ExtractionError::Crashed
            }
            CachedResult::Exceeded(exceeded) => {
                ExtractionError::Refused(exceeded.describe(&self.config.limits, work))
            }
            CachedResult::Text(_) | CachedResult::Image(_) | CachedResult::Members(_) => invalid(),
        }
    }
}

/// The response of a child process, and the bytes after its line.
fn parsed(mut output: ChildOutput) -> std::io::Result<(ChildResponse, Bytes)> {
    let response = serde::Deserialize::deserialize(&mut serde_json::Deserializer::from_reader(&mut output))?;
    let mut newline = [0];
    let mut rest = Vec::new();
    if output.read(&mut newline)? == 1 {
        rest.reserve_exact(output.remaining());
        output.read_to_end(&mut rest)?;
    }
    Ok((response, rest.into()))
}

/// The error for a response that does not answer the request.
fn invalid() -> ExtractionError {
    ExtractionError::Failed(Arc::new(std::io::ErrorKind::InvalidData.into()))
}
