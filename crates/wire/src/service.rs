//! What the wire asks of whoever serves resources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::{Call, Client, Failure, Members, Revision};

/// What a request is answered with.
pub type Answer = Result<Reply, Failure>;

/// What the wire asks of whoever serves resources.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Who serves.
    fn about(&self) -> About;

    /// The answer to a question where it is at hand and was right at `since`, when the question had arrived,
    /// or later. Must not wait.
    fn kept(&self, _revision: Revision, _question: Question<'_>, _since: Instant) -> Option<Reply> {
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

    /// Somebody of this client who may want to hear of changes; an error if there are too many already.
    fn listener(&self, client: Client) -> Result<Arc<dyn Listener>, Failure>;

    /// What there is now, by names that end up in the metrics.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
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
    /// Whether and how the caller may keep the answer.
    pub keep: Option<Keep>,
}

/// How long and by whom an answer may be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// How long it may be taken for fresh.
    pub ttl: Duration,
    /// Whether it is the same for all callers.
    pub public: bool,
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
