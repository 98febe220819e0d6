//! Prompts: messages that a user sends to a model, with arguments and embedded resources.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{Content, Freshness, Icon, Meta, Resource, UnavailableSource, Uri, UriTemplate};

/// A prompt, as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The name by which clients request the prompt.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The arguments, in the order in which a user is asked for them.
    pub arguments: Vec<PromptArgument>,
    /// The icons.
    pub icons: Vec<Icon>,
    /// The `_meta` of the protocol.
    pub meta: Option<Meta>,
    /// The resources that the prompt embeds, as templates whose variables are arguments of the prompt. A caller
    /// without the right to read these resources does not see the prompt. An argument is completed with the values that
    /// the sources offer for the variable of the same name.
    pub resources: Vec<UriTemplate>,
}

impl Prompt {
    /// A prompt with a name, and nothing else.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            icons: Vec::new(),
            meta: None,
            resources: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn with_argument(mut self, argument: PromptArgument) -> Self {
        self.arguments.push(argument);
        self
    }
}

/// An argument of a [`Prompt`], whose value is a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptArgument {
    /// The name.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// Whether the argument must have a value.
    pub required: bool,
}

impl PromptArgument {
    /// An argument that must have a value.
    pub fn required(name: impl Into<String>) -> Self {
        Self { name: name.into(), title: None, description: None, required: true }
    }

    /// An argument that may be omitted.
    pub fn optional(name: impl Into<String>) -> Self {
        Self { required: false, ..Self::required(name) }
    }
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    /// The sender.
    pub role: PromptRole,
    /// The content.
    pub content: PromptContent,
}

impl PromptMessage {
    /// A message of the user.
    pub fn user(content: impl Into<PromptContent>) -> Self {
        Self { role: PromptRole::User, content: content.into() }
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<PromptContent>) -> Self {
        Self { role: PromptRole::Assistant, content: content.into() }
    }
}

/// The sender of a [`PromptMessage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// The user.
    #[default]
    User,
    /// The model.
    Assistant,
}

/// The content of a [`PromptMessage`].
#[derive(Clone, Debug, PartialEq)]
pub enum PromptContent {
    /// A text.
    Text(String),
    /// The contents of a resource, which the view reads under the rights of the caller.
    Resource(Uri),
    /// The contents of a resource that the source has read. The view checks that the caller may read the resource.
    Embedded(Content),
    /// A link to a resource, which the client may read later. The view checks that the caller may read the
    /// resource.
    Link(Box<Resource>),
    /// An image or a sound, by its media type.
    Media {
        /// The data.
        data: Bytes,
        /// The media type, such as `image/png`.
        mime: String,
    },
}

impl From<String> for PromptContent {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for PromptContent {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Uri> for PromptContent {
    fn from(uri: Uri) -> Self {
        Self::Resource(uri)
    }
}

/// The prompts of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompts {
    /// The prompts, in any order.
    pub prompts: Vec<Prompt>,
    /// How the list may be cached.
    pub freshness: Freshness,
    /// The unavailable sources, whose prompts are missing. Only a catalog sets this.
    pub unavailable: Vec<UnavailableSource>,
}

impl Default for Prompts {
    /// The prompts of a source that never has any. Merging them into a catalog's list does not restrict how that list may be
    /// cached.
    fn default() -> Self {
        Self { prompts: Vec::new(), freshness: Freshness::unlimited(), unavailable: Vec::new() }
    }
}

impl From<Vec<Prompt>> for Prompts {
    fn from(prompts: Vec<Prompt>) -> Self {
        Self { prompts, ..Self::default() }
    }
}

/// A completion request for an argument of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptCompletion<'a> {
    /// The name of the prompt.
    pub prompt: &'a str,
    /// The argument to complete.
    pub argument: &'a str,
    /// The text typed so far.
    pub typed: &'a str,
    /// The values of the other arguments, as far as they are known.
    pub known: &'a BTreeMap<String, String>,
    /// The maximum number of values.
    pub limit: usize,
}
