//! What the wire asks of whoever serves resources: to admit a caller, and what the caller's view then answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use libris_core::Freshness;
use serde_json::Value;

use crate::{Call, Client, Failure, Members, Revision};

/// What a request is answered with.
pub type Answer = Result<Reply, Failure>;

/// Describes itself and admits callers. Everything else is asked of the [`View`] that a caller is admitted to, so that
/// nothing can be answered without one.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Who serves.
    fn about(&self) -> About;

    /// The view of a caller, where that is known without waiting; `None` leaves it to [`admit`](Self::admit). Called for
    /// every request.
    fn known(&self, caller: &Caller<'_>) -> Option<Arc<dyn View>>;

    /// Admits a caller to its view, or refuses it.
    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn View>, Refusal>;

    /// Gauges and counters for the metrics, by their names. Those of counters end in `_total`.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// Who sends a request, as far as the transport can tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// Whose share of what is bounded the request draws on.
    pub client: Client,
    /// The value of the `Authorization` header.
    pub authorization: Option<&'a [u8]>,
    /// What a program that embeds the endpoint has put into the HTTP request.
    pub extensions: Option<&'a http::Extensions>,
}

/// Why a caller is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It must show who it is, or has shown it with credentials that are not valid: HTTP status 401.
    Unauthenticated {
        /// The value of the `WWW-Authenticate` header.
        challenge: String,
        /// What is sent to the caller.
        message: String,
    },
    /// It is known, and may not use this server: HTTP status 403.
    Forbidden {
        /// The value of the `WWW-Authenticate` header, where other credentials would help.
        challenge: Option<String>,
        /// What is sent to the caller.
        message: String,
    },
}

impl Refusal {
    /// What is sent to the caller.
    pub fn message(&self) -> &str {
        match self {
            Self::Unauthenticated { message, .. } | Self::Forbidden { message, .. } => message,
        }
    }
}

/// What one caller may see of a service.
#[async_trait]
pub trait View: Send + Sync + 'static {
    /// Whose view it is; `None` for callers that have not shown who they are. A session belongs to whoever opened it.
    fn caller(&self) -> Option<&str>;

    /// What it offers beside listing, reading and completing.
    fn capabilities(&self) -> Capabilities;

    /// The cached response to a question, if it was right at `since`, when the question had arrived, or later. Must not
    /// wait.
    fn cached(&self, _revision: Revision, _question: Question<'_>, _since: Instant) -> Option<Reply> {
        None
    }

    /// Answers `resources/list`.
    async fn list(&self, call: &Call, cursor: Option<&str>) -> Answer;

    /// Answers `resources/templates/list`.
    async fn templates(&self, call: &Call, cursor: Option<&str>) -> Answer;

    /// Answers `resources/read`.
    async fn read(&self, call: &Call, uri: &str) -> Answer;

    /// Answers `completion/complete`.
    async fn complete(&self, call: &Call, asked: &Completing) -> Answer;

    /// Whether [`call`](Self::call) answers this method, such as one of tools, prompts, skills or an extension.
    fn answers(&self, _method: &str) -> bool {
        false
    }

    /// Answers a method for which [`answers`](Self::answers) is true; `params` is a JSON object as it came.
    async fn call(&self, _call: &Call, method: &str, _params: &str) -> Answer {
        Err(Failure::invalid(format!("`{method}` is not answered here")))
    }

    /// Subscriptions of this caller, until they are dropped; an error if there are too many already.
    fn listener(&self, client: Client) -> Result<Arc<dyn Listener>, Failure>;
}

/// What a [`View`] offers, as clients are told it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    /// Whether resources can be subscribed to, and changes of the list are reported.
    pub live: bool,
    /// The capability object of `tools`, where there are any.
    pub tools: Option<Value>,
    /// The capability object of `prompts`, where there are any.
    pub prompts: Option<Value>,
    /// The capability objects of extensions, by their identifiers.
    pub extensions: BTreeMap<String, Value>,
}

/// A question whose answer may be at hand, in the words it was asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question<'a> {
    /// `resources/list`, with its cursor.
    List(Option<&'a str>),
    /// `resources/templates/list`, with its cursor.
    Templates(Option<&'a str>),
    /// `resources/read`, with its URI.
    Read(&'a str),
}

/// Somebody who hears of changes. Dropping it ends that.
///
/// It is owed a set of news, never a queue of them: what happens twice before it is told is told once.
#[async_trait]
pub trait Listener: Send + Sync + 'static {
    /// Wants to hear when the list changes. Once this returns, no change is missed, and if the client has
    /// listed before, it is owed what may have changed since.
    async fn follow_list(&self) -> Result<(), Failure>;

    /// The client is being told what is listed.
    fn listed(&self);

    /// Wants to hear when this resource changes. Once this returns, no change is missed.
    async fn subscribe(&self, uri: &str) -> Result<(), Failure>;

    /// Wants to hear no more of this resource.
    fn unsubscribe(&self, uri: &str);

    /// The next of what is owed; waits until there is something.
    async fn next(&self) -> News;

    /// Takes back news that did not reach the client.
    fn owe(&self, news: News);
}

/// Something that a listener is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// The list of resources is different now.
    List,
    /// This resource, named as it was subscribed to, is different now.
    Updated(Arc<str>),
}

/// A result.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The members of the result object, in the shape that the call's revision knows. What every result of
    /// a revision carries is added on the way out.
    pub members: Members,
    /// Says in `ttlMs` and `cacheScope` for how long, and by whom, the result may be used again; `None` for results that
    /// have no such members.
    pub freshness: Option<Freshness>,
    /// What the `_meta` object of the result has, as JSON members without its braces. What the protocol says of the
    /// server stands beside them.
    pub meta: Bytes,
}

/// Who serves.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// A short name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// The version of the software.
    pub version: String,
    /// What it is.
    pub description: Option<String>,
    /// What a model should know about using it.
    pub instructions: Option<String>,
}

/// What somebody is typing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completing {
    /// What is being filled in.
    pub reference: Reference,
    /// The name of the argument.
    pub argument: String,
    /// What has been typed of it.
    pub typed: String,
    /// The arguments that are already filled in.
    pub known: BTreeMap<String, String>,
}

/// What is being filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A resource template, by its text, or a resource.
    Resource(String),
    /// A prompt, by its name.
    Prompt(String),
}
