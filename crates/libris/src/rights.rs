//! Access control: rights, rights classes, and the policy that grants rights to callers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use libris_core::{Identity, Uri, UriTemplate};
use libris_wire::{Caller, Refusal};
use tokio::sync::watch;

/// An operation that rights allow or deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Show the resource in a list.
    List,
    /// Read the resource, offer it as a completion, or name it in the contents of another resource.
    Read,
    /// Send notifications of its changes.
    Subscribe,
    /// Find the resource by its contents.
    Search,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::List, Self::Read, Self::Subscribe, Self::Search];

    /// The name of the operation in rules and in the audit log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Subscribe => "subscribe",
            Self::Search => "search",
        }
    }
}

/// The decision of rights about an operation on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is allowed.
    Allow,
    /// The resource looks as if it did not exist.
    Deny,
    /// The resource is visible, and the operation requires all of these scopes.
    Require(Arc<[Box<str>]>),
}

/// The rules of a rights class.
pub trait Rules: Send + Sync + 'static {
    /// Whether the rules allow this operation on the resource at `uri`.
    fn allow(&self, operation: Operation, uri: &Uri) -> bool;

    /// The decision of the rules about this operation on the resource at `uri`.
    fn decide(&self, operation: Operation, uri: &Uri) -> Decision {
        if self.allow(operation, uri) { Decision::Allow } else { Decision::Deny }
    }

    /// The decision of the rules about this operation on another name of the resource, if it restricts the operation;
    /// otherwise `None`. By default, the operation must be allowed under all names.
    fn overrule(&self, operation: Operation, alias: &Uri) -> Option<Decision> {
        Some(self.decide(operation, alias)).filter(|decision| *decision != Decision::Allow)
    }

    /// The decision of a rule that names a feature of the server, such as a tool, by its URI; `None` if no such rule
    /// restricts the feature. A rule for all URIs does not name features. By default, if an arbitrary other URI gets
    /// the same decision, a rule for all URIs is assumed.
    fn decide_feature(&self, uri: &Uri) -> Option<Decision> {
        /// A URI that only rules for all URIs match.
        static ANYTHING: LazyLock<Option<Uri>> = LazyLock::new(|| Uri::parse("urn:libris:anything").ok());
        let general = ANYTHING.as_ref().and_then(|anything| self.overrule(Operation::Read, anything));
        self.overrule(Operation::Read, uri).filter(|decision| general.as_ref() != Some(decision))
    }

    /// Whether there may be a resource that the rules allow to read and whose URI begins with `prefix`. Called for
    /// templates, and for completions while variables of the template have no value.
    fn may_allow_below(&self, _prefix: &str) -> bool {
        true
    }

    /// A text that differs between rules that decide differently, and is the same in every process with the same rules.
    /// Replicas share contents between callers of classes with the same text. `None`, the default: they share none.
    fn shared_class(&self) -> Option<String> {
        None
    }
}

/// The rights of a caller. Clones belong to one rights class, and callers of one class share cached responses.
#[derive(Clone)]
pub struct Rights(Option<Arc<RightsClass>>);

/// A rights class.
struct RightsClass {
    number: u64,
    rules: Box<dyn Rules>,
}

/// The number of the rights class without restrictions.
const UNRESTRICTED_CLASS: u64 = 0;

impl Rights {
    /// Rights without restrictions.
    pub const fn everything() -> Self {
        Self(None)
    }

    /// The rights class that allows nothing.
    pub fn nothing() -> Self {
        static NOTHING: LazyLock<Rights> = LazyLock::new(|| Rights::new(NoRights));
        NOTHING.clone()
    }

    /// Rights under these rules. Each call creates a rights class: create rights once and clone them.
    pub fn new(rules: impl Rules) -> Self {
        static LAST_CLASS: AtomicU64 = AtomicU64::new(UNRESTRICTED_CLASS);
        let number = LAST_CLASS.fetch_add(1, Ordering::Relaxed) + 1;
        Self(Some(Arc::new(RightsClass { number, rules: Box::new(rules) })))
    }

    /// Whether the rules allow this operation on the resource at `uri`.
    pub fn allow(&self, operation: Operation, uri: &Uri) -> bool {
        self.0.as_ref().is_none_or(|class| class.rules.allow(operation, uri))
    }

    /// The decision of the rules about this operation on the resource at `uri`. `aliases` returns the other URIs of the
    /// resource.
    pub fn decide(&self, operation: Operation, uri: &Uri, aliases: impl FnOnce() -> Vec<Uri>) -> Decision {
        let Some(class) = &self.0 else { return Decision::Allow };
        let mut decision = class.rules.decide(operation, uri);
        if decision == Decision::Deny {
            return decision;
        }
        for alias in aliases() {
            match class.rules.overrule(operation, &alias) {
                None | Some(Decision::Allow) => {}
                Some(Decision::Deny) => return Decision::Deny,
                Some(Decision::Require(more)) => decision = required(&decision, &more),
            }
        }
        decision
    }

    /// The decision about a feature of the server, such as a tool, which rules name by this URI. A feature is allowed
    /// unless a rule for its URI denies it or requires a scope: a rule that matches all URIs does not apply to
    /// features. This is safe, because a feature returns only resources that the caller may see anyway.
    pub(crate) fn decide_feature(&self, uri: &Uri) -> Decision {
        self.0.as_ref().and_then(|class| class.rules.decide_feature(uri)).unwrap_or(Decision::Allow)
    }

    /// Whether there may be a readable resource whose URI begins with `prefix`.
    pub fn may_allow_below(&self, prefix: &str) -> bool {
        self.0.as_ref().is_none_or(|class| class.rules.may_allow_below(prefix))
    }

    /// Whether to list a template: it may match a resource that may be read.
    pub(crate) fn offer(&self, template: &UriTemplate) -> bool {
        let literal = template.as_str().split('{').next().unwrap_or_default();
        self.may_allow_below(literal)
    }

    /// Whether there are no restrictions.
    pub(crate) fn are_everything(&self) -> bool {
        self.0.is_none()
    }

    /// The text that identifies the rights class at other replicas; empty without restrictions, `None` if replicas
    /// share no contents for this class.
    pub(crate) fn shared_class(&self) -> Option<String> {
        self.0.as_ref().map_or(Some(String::new()), |class| class.rules.shared_class())
    }

    /// The number of the rights class, which is part of cache keys.
    pub(crate) fn class(&self) -> u64 {
        self.0.as_ref().map_or(UNRESTRICTED_CLASS, |class| class.number)
    }
}

/// Adds scopes to those that a decision requires.
fn required(decision: &Decision, more: &Arc<[Box<str>]>) -> Decision {
    let Decision::Require(scopes) = decision else { return Decision::Require(more.clone()) };
    let new = more.iter().filter(|scope| !scopes.contains(scope));
    Decision::Require(scopes.iter().chain(new).cloned().collect())
}

/// Rules that allow nothing.
struct NoRights;

impl Rules for NoRights {
    fn allow(&self, _: Operation, _: &Uri) -> bool {
        false
    }

    fn may_allow_below(&self, _: &str) -> bool {
        false
    }
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rights").field(&self.class()).finish()
    }
}

/// The result of an attempt to authenticate a caller without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// The caller has this identity; `None` is an anonymous caller.
    Caller(Option<Identity>),
    /// The caller is refused.
    Refused(Refusal),
    /// The answer has to wait, for example for the keys of an issuer: call [`Authenticate::authenticate`].
    Deferred,
}

impl From<Result<Option<Identity>, Refusal>> for Identified {
    fn from(result: Result<Option<Identity>, Refusal>) -> Self {
        result.map_or_else(Self::Refused, Self::Caller)
    }
}

/// Authenticates callers. Every method has a default, which trusts a layer in front of the endpoint.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// Authenticates a caller without waiting. Called for every request. By default, returns the [`Identity`] in the
    /// extensions of the request, which a layer in front of the endpoint may set.
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        Identified::Caller(caller.extensions.and_then(|extensions| extensions.get::<Identity>().cloned()))
    }

    /// Authenticates a caller for whom [`identify`](Self::identify) returned [`Identified::Deferred`].
    async fn authenticate(&self, _caller: &Caller<'_>) -> Result<Option<Identity>, Refusal> {
        Err(Refusal::Forbidden { challenge: None, message: "the caller cannot be authenticated".into() })
    }

    /// Whether callers without an identity are admitted. If a new policy no longer admits them, their event streams end,
    /// and they have no rights.
    fn admits_anonymous(&self) -> bool {
        true
    }

    /// Whether the credentials of an identity are still valid: neither expired nor revoked. When they are no longer
    /// valid, the event streams of the identity end, and the identity has no rights.
    fn is_valid(&self, identity: &Identity) -> bool {
        !identity.has_expired(SystemTime::now())
    }

    /// The value of the `WWW-Authenticate` header for a caller whose token lacks these scopes; `None` if callers cannot
    /// obtain scopes.
    fn scope_challenge(&self, _scopes: &[Box<str>]) -> Option<String> {
        None
    }

    /// The public JSON document at this path, such as the metadata of a protected resource; `None` if there is none.
    fn public_document(&self, _path: &str) -> Option<String> {
        None
    }

    /// Runs tasks for as long as the server runs, such as reloading keys, and calls `revoked` whenever identities may
    /// have become invalid other than by their expiry.
    async fn maintain(&self, _revoked: &(dyn Fn() + Send + Sync)) {
        std::future::pending().await
    }
}

impl dyn Authenticate + '_ {
    /// Whether a caller that was admitted earlier is still admitted; `None` is an anonymous caller.
    pub(crate) fn admits(&self, identity: Option<&Identity>) -> bool {
        match identity {
            Some(identity) => self.is_valid(identity),
            None => self.admits_anonymous(),
        }
    }
}

/// The authentication of a layer in front of the endpoint, which sets the [`Identity`] in the extensions of a request.
struct LayerAuthentication;

impl Authenticate for LayerAuthentication {}

/// Grants rights to callers.
pub trait Policy: Send + Sync + 'static {
    /// Authenticates the callers. By default, a layer in front of the endpoint does.
    fn authentication(&self) -> &dyn Authenticate {
        &LayerAuthentication
    }

    /// The current rights of a caller. For a revoked identity, and for anonymous callers if they are no longer
    /// admitted, return rights that allow nothing.
    fn rights(&self, identity: Option<&Identity>) -> Rights;

    /// The index of the rule that decides about an operation of a caller, for the audit log; `None` if there is none.
    fn deciding_rule(
        &self,
        _identity: Option<&Identity>,
        _operation: Operation,
        _uri: &Uri,
        _aliases: &[Uri],
    ) -> Option<usize> {
        None
    }

    /// Whether all callers have the same rights, so that shared HTTP caches may store responses.
    fn is_open(&self) -> bool {
        false
    }
}

/// The default policy: no authentication of its own, and all rights for every caller.
pub(crate) struct OpenPolicy;

impl Policy for OpenPolicy {
    fn rights(&self, _identity: Option<&Identity>) -> Rights {
        Rights::everything()
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// The expiry of a stream's credentials is compared with the system clock at least this often.
const MAX_CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// The current policy of a server, which can be replaced at run time.
pub(crate) struct CurrentPolicy {
    policy: RwLock<Arc<dyn Policy>>,
    /// Whether the policy is open: all callers have the same rights.
    open: AtomicBool,
    /// Generation counter: incremented when the policy is replaced or identities were revoked.
    generation: AtomicU64,
    /// Wakes the streams that wait for the next generation.
    replaced: watch::Sender<()>,
}

impl CurrentPolicy {
    pub(crate) fn new(policy: Arc<dyn Policy>) -> Self {
        let open = AtomicBool::new(policy.is_open());
        Self {
            policy: RwLock::new(policy),
            open,
            generation: AtomicU64::new(0),
            replaced: watch::Sender::new(()),
        }
    }

    pub(crate) fn policy(&self) -> Arc<dyn Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Authenticates the caller.
    pub(crate) fn identify(&self, caller: &Caller<'_>) -> Identified {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).authentication().identify(caller)
    }

    /// Whether the policy is open: all callers have the same rights.
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
        drop(current);
        self.invalidate();
    }

    /// Makes every view evaluate its rights again, because identities may have been revoked.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        self.replaced.send_replace(());
    }

    /// Runs the tasks of the policy that is in effect, and calls `revoked` whenever identities may have become invalid.
    pub(crate) async fn maintain(&self, revoked: &(dyn Fn() + Send + Sync)) {
        loop {
            let mut replaced = self.replaced.subscribe();
            let policy = self.policy();
            let mut maintained = policy.authentication().maintain(revoked);
            loop {
                tokio::select! {
                    () = &mut maintained => return,
                    _ = replaced.changed() => if !Arc::ptr_eq(&policy, &self.policy()) { break },
                }
            }
        }
    }

    /// Completes when the credentials of `identity` are no longer valid; for an anonymous caller, when anonymous callers
    /// are no longer admitted.
    pub(crate) async fn authentication_ended(self: Arc<Self>, identity: Option<Identity>) {
        let mut replaced = self.replaced.subscribe();
        while self.policy().authentication().admits(identity.as_ref()) {
            let Some(identity) = &identity else {
                // Fails only if the sender is dropped, which `self` owns.
                let _ = replaced.changed().await;
                continue;
            };
            let left = identity.expires().map(|expires| expires.duration_since(SystemTime::now()));
            // Not one long sleep until the expiry, because the system clock can be set meanwhile.
            let left =
                left.map_or(MAX_CLOCK_INTERVAL, |left| left.unwrap_or_default().min(MAX_CLOCK_INTERVAL));
            tokio::select! {
                _ = replaced.changed() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}
