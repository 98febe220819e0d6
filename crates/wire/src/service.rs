//! What the wire asks of whoever serves resources.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Call, Failure};

/// What a request is answered with.
pub type Answer = Result<Reply, Failure>;

/// What the wire asks of whoever serves resources.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Who serves.
    fn about(&self) -> About;

    /// Answers `resources/list`.
    async fn list(&self, call: &Call, cursor: Option<&str>) -> Answer;

    /// Answers `resources/templates/list`.
    async fn templates(&self, call: &Call, cursor: Option<&str>) -> Answer;

    /// Answers `resources/read`.
    async fn read(&self, call: &Call, uri: &str) -> Answer;

    /// Answers `completion/complete`.
    async fn complete(&self, call: &Call, asked: &Completing) -> Answer;
}

/// A result, already encoded.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The members of the result object as JSON, without the braces around them, in the shape that the
    /// call's revision knows. What every result of a revision carries is added on the way out.
    pub members: Bytes,
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
