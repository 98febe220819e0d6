//! The [`Context`] of a request, and the traits through which the server provides its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Client, Error, Identity, Lease, RequestInput, Result, Uri};

/// The context of a request: the caller, its rights and limits, and progress reporting.
#[derive(Clone, Debug, Default)]
pub struct Context {
    identity: Option<Identity>,
    /// Whether a source called [`identity`](Self::identity).
    identity_used: Arc<AtomicBool>,
    progress: Option<Arc<dyn Progress>>,
    client: Client,
    memory: Option<Arc<dyn ContentMemory>>,
    visibility: Option<Arc<dyn Visibility>>,
    permit: Option<Arc<HeldPermit>>,
    input: Option<Arc<RequestInput>>,
}

/// A permit of a request, linked to the permits that its context already held.
#[derive(Debug)]
struct HeldPermit {
    _lease: Lease,
    _outer: Option<Arc<HeldPermit>>,
}

impl Context {
    /// Adds a permit that the request holds. All permits are released when the last clone of the context is dropped. A
    /// source whose work cannot be cancelled moves a clone of the context into that work, so that the permit is held until
    /// the work has ended, even if the request was cancelled.
    pub fn with_permit(self, lease: Lease) -> Self {
        let permit = HeldPermit { _lease: lease, _outer: self.permit };
        Self { permit: Some(Arc::new(permit)), ..self }
    }

    /// Sets the visibility check of the caller.
    pub fn with_visibility(self, visibility: Arc<dyn Visibility>) -> Self {
        Self { visibility: Some(visibility), ..self }
    }

    /// Whether the caller may see a resource. A source checks this for each other resource that it names in contents,
    /// such as the entries of a directory. The view checks lists, completions, and the resource that is read.
    pub fn sees(&self, uri: &Uri) -> bool {
        self.visibility.as_ref().is_none_or(|visibility| visibility.sees(uri))
    }

    /// Whether the caller may read a resource. A source checks this before it includes contents of another resource, such
    /// as the files of a directory.
    pub fn reads(&self, uri: &Uri) -> bool {
        self.visibility.as_ref().is_none_or(|visibility| visibility.reads(uri))
    }

    /// Whether a resource may be listed to the caller. A source checks this, and [`sees`](Self::sees), before it names
    /// resources of other sources.
    pub fn lists(&self, uri: &Uri) -> bool {
        self.visibility.as_ref().is_none_or(|visibility| visibility.lists(uri))
    }

    /// Whether the caller may see any resource whose URI begins with `prefix`.
    pub fn sees_below(&self, prefix: &str) -> bool {
        self.visibility.as_ref().is_none_or(|visibility| visibility.sees_below(prefix))
    }

    /// Whether nothing is hidden from the caller, so that [`sees`](Self::sees) and [`reads`](Self::reads) are true for
    /// every resource.
    pub fn sees_everything(&self) -> bool {
        self.visibility.is_none()
    }

    /// The visibility check of the caller; `None` if nothing is hidden.
    pub fn visibility(&self) -> Option<&Arc<dyn Visibility>> {
        self.visibility.as_ref()
    }

    /// Sets the input capabilities of the client and, if it repeats a request, the input of its user.
    pub fn with_input(self, input: Option<Arc<RequestInput>>) -> Self {
        Self { input, ..self }
    }

    /// Sets the input to that of another context.
    pub fn with_input_of(self, other: &Self) -> Self {
        Self { input: other.input.clone(), ..self }
    }

    /// The input capabilities of the client and, if it repeats a request, the input of its user; `None` if the client
    /// cannot give input. A source may return [`Error::InputRequired`] only if this is `Some`.
    pub fn input(&self) -> Option<&RequestInput> {
        self.input.as_deref()
    }

    /// Sets the identity of the caller.
    pub fn with_identity(self, identity: Option<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// Sets the receiver of progress reports.
    pub fn with_progress(self, progress: Arc<dyn Progress>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Sets the client that sent the request.
    pub fn with_client(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// Sets the memory limit for contents.
    pub fn with_memory(self, memory: Arc<dyn ContentMemory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// The context for work that several callers share. It contains only the client, whose permits the work uses, and the
    /// receiver of progress reports.
    pub fn without_caller(self) -> Self {
        Self { client: self.client, progress: self.progress, ..Self::default() }
    }

    /// The client that sent the request. A source that queues requests takes permits from a [`Budget`](crate::Budget) for
    /// this client, so that no client waits behind all requests of another client.
    pub fn client(&self) -> Client {
        self.client
    }

    /// Reserves memory for `bytes` more bytes of contents. A source that knows the size of its contents calls this
    /// before it loads them, and returns the error unchanged. The server then waits for free memory, without holding a
    /// permit of the source, and repeats the read.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        granted(self.memory.as_ref().is_none_or(|memory| memory.reserve(bytes)))
    }

    /// Reserves memory for `bytes` more bytes of contents that must not be loaded twice, such as the output of a
    /// running program. The server does not retry after this error.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        granted(self.memory.as_ref().is_none_or(|memory| memory.grow(bytes)))
    }

    /// The identity of the caller; `None` if the caller is anonymous. After this call, the server does not cache
    /// the response for other callers.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity_used.store(true, Ordering::Release);
        self.identity.as_ref()
    }

    /// A cache key that differs between identities; `None` for an anonymous caller. Unlike [`identity`](Self::identity),
    /// this does not prevent the server from caching the response.
    pub fn identity_key(&self) -> Option<String> {
        self.identity.as_ref().map(Identity::cache_key)
    }

    /// Whether [`identity`](Self::identity) was called on this context or on a clone. If so, the response must not be
    /// cached for other callers.
    pub fn identity_was_used(&self) -> bool {
        self.identity_used.load(Ordering::Acquire)
    }

    /// Reports the progress of a long read. Cheap if nobody receives the reports.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        if let Some(progress) = &self.progress {
            progress.report(done, total);
        }
    }
}

/// Turns the return value of a [`ContentMemory`] into a result.
fn granted(granted: bool) -> Result<()> {
    if granted { Ok(()) } else { Err(Error::NO_MEMORY) }
}

/// The visibility check of a caller.
pub trait Visibility: Send + Sync {
    /// Whether the resource at `uri` may be named to the caller.
    fn sees(&self, uri: &Uri) -> bool;

    /// Whether contents of the resource at `uri` may be shown to the caller. A caller may see more resources than it may
    /// read.
    fn reads(&self, uri: &Uri) -> bool {
        self.sees(uri)
    }

    /// Whether the resource at `uri` may be listed to the caller.
    fn lists(&self, uri: &Uri) -> bool {
        self.sees(uri)
    }

    /// Whether any resource whose URI begins with `prefix` may be named to the caller.
    fn sees_below(&self, _prefix: &str) -> bool {
        true
    }

    /// A cache key: two checks with the same class always have the same results. `None` if results must not be cached.
    fn class(&self) -> Option<u64> {
        None
    }

    /// Like [`class`](Self::class), but a text that is the same in every process with the same rules, so that it can be part
    /// of the key of a cache that several replicas share. `None` if results must not be shared with other processes.
    fn shared_class(&self) -> Option<String> {
        None
    }
}

impl std::fmt::Debug for dyn Visibility {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visibility")
    }
}

/// A memory limit for contents.
pub trait ContentMemory: Send + Sync {
    /// Reserves `bytes` more bytes for the contents of one read. If this returns `false`, the read fails; the server
    /// waits for free memory and repeats the read.
    fn reserve(&self, bytes: usize) -> bool;

    /// Like [`reserve`](Self::reserve), for a read that the server must not repeat.
    fn grow(&self, bytes: usize) -> bool;
}

impl std::fmt::Debug for dyn ContentMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentMemory")
    }
}

/// A receiver of progress reports.
pub trait Progress: Send + Sync {
    /// Reports that `done` of `total` units are done. Called often; the receiver limits the rate.
    fn report(&self, done: u64, total: Option<u64>);
}

impl std::fmt::Debug for dyn Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}
