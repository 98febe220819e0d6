//! The interface between the wire and the server: a service admits callers, and the caller's view answers requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::future::BoxFuture;
use libris_core::{Freshness, Identity};
use serde_json::Value;

use crate::{Call, Client, Failure, Members, PrefixEntry, PrefixPage, Revision};

/// The result of a request.
pub type Answer = Result<Reply, Failure>;

/// A server behind the protocol: describes itself and admits callers. Only the [`ServiceView`] of an admitted caller
/// answers requests, so no request is answered without admission.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// The name and description of the server.
    fn info(&self) -> ServerInfo;

    /// The view of a caller, if it is known without waiting. After `None`, [`admit`](Self::admit) is called. Called for
    /// every request.
    fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn ServiceView>>;

    /// Admits a caller and returns its view, or refuses the caller.
    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal>;

    /// The value of the `WWW-Authenticate` header for a caller whose token lacks these scopes; `None` if this service
    /// does not use scopes.
    fn scope_challenge(&self, _scopes: &[Box<str>]) -> Option<String> {
        None
    }

    /// The JSON document at this path below `/.well-known/`, such as OAuth metadata; `None` if there is none. Anybody
    /// may read it without being admitted.
    fn public_document(&self, _path: &str) -> Option<String> {
        None
    }

    /// Why the service is degraded, for example because it does not learn of changes at other replicas; `None` if it works
    /// without restrictions. `/readyz` shows the reason to anybody.
    fn degradation(&self) -> Option<String> {
        None
    }

    /// Gauges and counters for the metrics, by name. Names of counters end in `_total`.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// The sender of a request, as far as the transport knows it. Its `Debug` output has no credentials.
#[derive(Clone, Copy, Default)]
pub struct Caller<'a> {
    /// The client against whose share the request counts in each budget.
    pub client: Client,
    /// The value of the `Authorization` header.
    pub authorization: Option<&'a [u8]>,
    /// The TLS client certificate of the connection, verified, in DER.
    pub certificate: Option<&'a [u8]>,
    /// The extensions that a program which embeds the endpoint has added to the HTTP request.
    pub extensions: Option<&'a http::Extensions>,
    /// The transport by which the request arrived.
    pub channel: Channel,
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("client", &self.client)
            .field("authorization", &self.authorization.map(|_| "…"))
            .field("certificate", &self.certificate.map(|_| "…"))
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// A transport, as far as it matters for authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// HTTP: the caller can be anybody.
    #[default]
    Network,
    /// stdio: the caller started this process.
    Stdio,
}

/// Why a caller is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Credentials are missing or invalid: HTTP status 401.
    Unauthenticated {
        /// The value of the `WWW-Authenticate` header.
        challenge: String,
        /// The message to the caller.
        message: String,
    },
    /// The caller is authenticated, but may not use this server: HTTP status 403.
    Forbidden {
        /// The value of the `WWW-Authenticate` header, if other credentials would help.
        challenge: Option<String>,
        /// The message to the caller.
        message: String,
    },
    /// The credentials cannot be checked now: HTTP status 503.
    Unavailable {
        /// The message to the caller.
        message: String,
    },
}

impl Refusal {
    /// The message to the caller.
    pub fn message(&self) -> &str {
        match self {
            Self::Unauthenticated { message, .. }
            | Self::Forbidden { message, .. }
            | Self::Unavailable { message } => message,
        }
    }
}

/// The service as one caller may see it.
#[async_trait]
pub trait ServiceView: Send + Sync + 'static {
    /// The identity of the caller; `None` if it is anonymous. A session belongs to the principal that opened it.
    fn caller(&self) -> Option<&Identity>;

    /// Completes when the credentials of the caller expire or are revoked, which ends its event streams. `None` if that
    /// cannot happen.
    fn authentication_ended(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// The client against whose share of each limit the caller's requests count. `None` for an anonymous caller, whose
    /// requests count against the share of its network address.
    fn client(&self) -> Option<Client> {
        self.caller().map(Client::of)
    }

    /// Whether the caller may see the metrics.
    fn shows_metrics(&self) -> bool {
        true
    }

    /// The capabilities beyond listing, reading and completing.
    fn capabilities(&self) -> Capabilities;

    /// Instructions for the model, if they differ between callers; `None` for those of [`ServerInfo`].
    async fn instructions(&self, _call: &Call) -> Option<String> {
        None
    }

    /// The cached answer to a request that came in at `arrived`; `None` if there is none. The answer must have been
    /// valid at that time or later. Must not block.
    fn cached(
        &self,
        _revision: Revision,
        _request: CacheableRequest<'_>,
        _arrived: Instant,
    ) -> Option<Answer> {
        None
    }

    /// Answers `resources/list`.
    async fn list(&self, call: &Call, cursor: Option<&str>) -> Answer;

    /// Answers `resources/templates/list`.
    async fn templates(&self, call: &Call, cursor: Option<&str>) -> Answer;

    /// Answers `resources/read`.
    async fn read(&self, call: &Call, uri: &str) -> Answer;

    /// One page of the listed resources and folders directly below `prefix`, in URI order, beginning after the URI
    /// `after`. A prefix ends with `/` or `:`; the empty prefix lists the schemes. Fails with [`Failure::NotFound`] if
    /// nothing is below the prefix. For routes that present the resources as a file system, such as WebDAV; the default
    /// has no folders.
    async fn below(&self, _call: &Call, prefix: &str, _after: Option<&str>) -> Result<PrefixPage, Failure> {
        Err(Failure::not_found(prefix))
    }

    /// The listed resource with this URI, or the folder with this prefix; `None` if the list has neither.
    async fn describe(&self, _call: &Call, _uri: &str) -> Result<Option<PrefixEntry>, Failure> {
        Ok(None)
    }

    /// Answers `completion/complete`.
    async fn complete(&self, call: &Call, asked: &CompletionParams) -> Answer;

    /// Whether [`call`](Self::call) answers this method, such as a method of tools, prompts, skills or an extension.
    fn answers(&self, _revision: Revision, _method: &str) -> bool {
        false
    }

    /// Answers a method for which [`answers`](Self::answers) is true; `params` is the JSON object that the client
    /// sent.
    async fn call(&self, _call: &Call, method: &str, _params: &str) -> Answer {
        Err(Failure::invalid(format!("the method `{method}` is not supported")))
    }

    /// Creates the listener of one session or stream. Fails if the client has too many listeners.
    fn listener(&self, client: Client) -> Result<Arc<dyn Listener>, Failure>;

    /// Whether a new `subscriptions/listen` stream begins with a notification of each resource that it subscribes to,
    /// and of the list of resources: the client may have missed changes while it was not connected. The default is
    /// false.
    fn notifies_new_streams(&self) -> bool {
        false
    }
}

/// The capabilities of a [`ServiceView`], as declared to clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    /// Whether clients can subscribe to resources and to changes of the list.
    pub live: bool,
    /// The capability object of `tools`; `None` if the view has no tools.
    pub tools: Option<Value>,
    /// The capability object of `prompts`; `None` if the view has no prompts.
    pub prompts: Option<Value>,
    /// The capability objects of extensions, by their identifiers.
    pub extensions: BTreeMap<String, Value>,
}

/// A request whose response may be cached, with its parameters as the client sent them: the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheableRequest<'a> {
    /// `resources/list`, with its cursor.
    List(Option<&'a str>),
    /// `resources/templates/list`, with its cursor.
    Templates(Option<&'a str>),
    /// `resources/read`, with its URI.
    Read(&'a str),
    /// `completion/complete`, with its members as JSON.
    Complete {
        /// The member `ref`.
        reference: &'a str,
        /// The member `argument`.
        argument: &'a str,
        /// The member `context`, empty if there is none.
        context: &'a str,
    },
    /// `tools/list`, with its cursor.
    Tools(Option<&'a str>),
    /// `tools/call`.
    Tool {
        /// The name of the tool.
        name: &'a str,
        /// The arguments as JSON, as the client sent them; empty if there are none.
        arguments: &'a str,
    },
}

/// The subscriptions of one session or stream. They end when the listener is dropped.
///
/// Pending notifications are a set, not a queue: several changes to one resource before the notification is sent cause one
/// notification.
///
/// No method has a default: a listener that wraps another one must forward all of them.
#[async_trait]
pub trait Listener: Send + Sync + 'static {
    /// Subscribes to changes of the list. Once this returns, no change is missed. If the client has received a list
    /// before, changes since then are pending too.
    async fn follow_list(&self) -> Result<(), Failure>;

    /// Subscribes to changes of the list of prompts. Once this returns, no change is missed.
    async fn follow_prompts(&self) -> Result<(), Failure>;

    /// Subscribes to changes of the list of tools. Once this returns, no change is missed.
    async fn follow_tools(&self) -> Result<(), Failure>;

    /// Records that the current list is being sent to the client.
    fn listed(&self);

    /// Reserves memory for the subscriptions to these URIs before [`subscribe`](Self::subscribe) is called for each.
    /// Fails if they exceed the limit of the client. Replaces the previous reservation, so an empty list releases it.
    ///
    /// The URIs are not parsed yet, so refusing a request here is far cheaper than subscribing until the memory is used
    /// up.
    async fn reserve(&self, uris: &[&str]) -> Result<(), Failure>;

    /// Subscribes to a resource. Once this returns, no change is missed.
    async fn subscribe(&self, uri: &str) -> Result<(), Failure>;

    /// Ends the subscription to a resource.
    fn unsubscribe(&self, uri: &str);

    /// Takes the next pending notification; waits until there is one.
    async fn next(&self) -> Notification;

    /// Sets the rights of the listener to those of a renewed identity of the same principal.
    fn renew(&self, identity: Option<&Identity>);

    /// Makes a notification pending again, because it may have been lost on the way to the client.
    fn requeue(&self, notification: Notification);
}

/// A notification about resources, prompts or tools.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notification {
    /// The list of resources has changed.
    ListChanged,
    /// The list of prompts has changed.
    PromptsChanged,
    /// The list of tools has changed.
    ToolsChanged,
    /// The resource with this URI, as given in the subscription, has changed.
    Updated(Arc<str>),
}

/// The result of a request that succeeded.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The members of the result object, in the format of the call's revision. This crate adds the members that every
    /// result of that revision has.
    pub members: Members,
    /// The `ttlMs` and `cacheScope` members: how long, and by whom, the result may be cached; `None` for results that
    /// have no such members.
    pub freshness: Option<Freshness>,
    /// Members to add to the result's `_meta` object, as JSON without braces.
    pub meta: Bytes,
}

/// The name and description of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// A short name.
    pub name: String,
    /// A display name.
    pub title: Option<String>,
    /// The version of the software.
    pub version: String,
    /// A description for people.
    pub description: Option<String>,
    /// Instructions for the model that uses it.
    pub instructions: Option<String>,
}

/// A completion request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionParams {
    /// The template or prompt whose argument is completed.
    pub reference: Reference,
    /// The name of the argument.
    pub argument: String,
    /// The incomplete value of the argument.
    pub typed: String,
    /// The values of other arguments.
    pub known: BTreeMap<String, String>,
    /// The members `ref`, `argument` and `context` as the client sent them.
    pub sent: [Box<str>; 3],
}

impl CompletionParams {
    /// The cache key of the request.
    pub fn cacheable(&self) -> CacheableRequest<'_> {
        let [reference, argument, context] = &self.sent;
        CacheableRequest::Complete { reference, argument, context }
    }
}

/// The subject of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A resource template or a resource, by its URI.
    Resource(String),
    /// A prompt, by its name.
    Prompt(String),
}

#[cfg(test)]
mod tests {
    use super::Caller;

    #[test]
    fn a_caller_does_not_print_its_credentials() {
        let caller = Caller {
            authorization: Some(b"Bearer secret"),
            certificate: Some(b"certificate"),
            ..Caller::default()
        };
        let shown = format!("{caller:?}");
        assert!(shown.contains("authorization: Some(\"…\")"), "{shown}");
        assert!(!shown.contains("Bearer") && !shown.contains("66, 101"), "{shown}");
    }
}
