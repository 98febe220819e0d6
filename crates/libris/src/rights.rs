//! What callers may see: rights, and the policy that grants them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use libris_core::{Identity, Uri, UriTemplate};
use libris_wire::{Caller, Refusal};

/// What is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is shown in a list.
    List,
    /// It is read, completed, or named in the contents of another resource.
    Read,
    /// Its changes are reported.
    Subscribe,
}

/// Decides which resources may be seen.
pub trait Rules: Send + Sync + 'static {
    /// Whether this may be done to the resource at `uri`.
    fn allow(&self, operation: Operation, uri: &Uri) -> bool;

    /// Whether a resource may be read whose URI begins with `prefix`. It decides about templates and about completions
    /// of templates of which some variables are still missing.
    fn may_allow_below(&self, _prefix: &str) -> bool {
        true
    }
}

/// What some callers may see. Cached responses are shared by all callers that have clones of the same rights.
#[derive(Clone)]
pub struct Rights(Option<Arc<Class>>);

/// A rights class.
struct Class {
    number: u64,
    rules: Box<dyn Rules>,
}

/// The number of the class of those who may see everything.
const EVERYTHING: u64 = 0;

impl Rights {
    /// To see everything.
    pub const fn everything() -> Self {
        Self(None)
    }

    /// To see what these rules allow: a new class, so make them once for all callers that have them.
    pub fn new(rules: impl Rules) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(EVERYTHING);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self(Some(Arc::new(Class { number, rules: Box::new(rules) })))
    }

    /// Whether this may be done to the resource at `uri`.
    pub fn allow(&self, operation: Operation, uri: &Uri) -> bool {
        self.0.as_ref().is_none_or(|class| class.rules.allow(operation, uri))
    }

    /// Whether a resource may be read whose URI begins with `prefix`.
    pub fn may_allow_below(&self, prefix: &str) -> bool {
        self.0.as_ref().is_none_or(|class| class.rules.may_allow_below(prefix))
    }

    /// Whether a template is shown: something that it stands for may be read.
    pub(crate) fn offer(&self, template: &UriTemplate) -> bool {
        let literal = template.as_str().split('{').next().unwrap_or_default();
        self.may_allow_below(literal)
    }

    /// Whether nothing is hidden.
    pub(crate) fn are_everything(&self) -> bool {
        self.0.is_none()
    }

    /// The number of the class.
    pub(crate) fn class(&self) -> u64 {
        self.0.as_ref().map_or(EVERYTHING, |class| class.number)
    }
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rights").field(&self.class()).finish()
    }
}

/// Tells callers apart and grants them rights.
pub trait Policy: Send + Sync + 'static {
    /// Who the caller is; nobody in particular where it need not say so. By default it is the [`Identity`] that a program
    /// which embeds the endpoint has put into the extensions of the request.
    fn identify(&self, caller: &Caller<'_>) -> Result<Option<Identity>, Refusal> {
        Ok(caller.extensions.and_then(|extensions| extensions.get::<Identity>().cloned()))
    }

    /// What a caller may see now. Whose rights have ended gets rights to see nothing.
    fn rights(&self, identity: Option<&Identity>) -> Rights;

    /// Whether all callers see the same, so that caches outside may share responses between them.
    fn is_open(&self) -> bool {
        false
    }
}

/// The policy of a server without one: everybody sees everything.
pub(crate) struct OpenPolicy;

impl Policy for OpenPolicy {
    fn rights(&self, _identity: Option<&Identity>) -> Rights {
        Rights::everything()
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// The policy of a server, which may be replaced while it runs.
pub(crate) struct Access {
    policy: RwLock<Arc<dyn Policy>>,
    /// Whether everybody sees everything.
    open: AtomicBool,
    /// How many times it was replaced.
    generation: AtomicU64,
}

impl Access {
    pub(crate) fn new(policy: Arc<dyn Policy>) -> Self {
        let open = AtomicBool::new(policy.is_open());
        Self { policy: RwLock::new(policy), open, generation: AtomicU64::new(0) }
    }

    pub(crate) fn policy(&self) -> Arc<dyn Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who the caller is.
    pub(crate) fn identify(&self, caller: &Caller<'_>) -> Result<Option<Identity>, Refusal> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).identify(caller)
    }

    /// Whether everybody sees everything.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn replace(&self, policy: Arc<dyn Policy>) {
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        self.open.store(policy.is_open(), Ordering::Release);
        *current = policy;
        self.generation.fetch_add(1, Ordering::Release);
    }
}
