//! The configuration of prompts.

use libris_core::{Icon, Meta, PromptRole};
use serde::Deserialize;

/// A prompt: messages with arguments and embedded resources.
///
/// ```toml
/// [[prompt]]
/// name = "review"
/// description = "Review code against the style guide"
/// text = """
/// Review this code: {{code}}
///
/// {{resource:file:///docs/style.md}}
/// """
///
/// [[prompt.argument]]
/// name = "code"
/// description = "The code to review"
/// ```
///
/// In a text, `{{name}}` is replaced by the value of an argument. `{{resource:URI}}` is replaced by the contents
/// of a resource of any source, as a separate message. The URI may be a template whose variables are arguments:
/// `{{resource:db://users/{id}}}`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The name by which clients ask for it. Required.
    pub name: String,
    /// A human-readable title.
    pub title: Option<String>,
    /// A description.
    pub description: Option<String>,
    /// The text of the user's message. Either `text` or `message` is required.
    pub text: Option<String>,
    /// The messages, if there are several, or if one is from the model.
    #[serde(rename = "message")]
    pub messages: Vec<MessageConfig>,
    /// The arguments. Default: those in the texts, all of them required.
    #[serde(rename = "argument")]
    pub arguments: Vec<ArgumentConfig>,
    /// Icons, as in `[{ src = "https://…", mime = "image/png" }]`.
    pub icons: Vec<Icon>,
    /// The `_meta` of the protocol: any table.
    pub meta: Option<Meta>,
}

/// A message of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessageConfig {
    /// Whose message it is: `"user"` or `"assistant"`.
    pub role: PromptRole,
    /// The text of the message. Required.
    pub text: String,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArgumentConfig {
    /// The name, which the texts use in double braces. Required.
    pub name: String,
    /// A human-readable title.
    pub title: Option<String>,
    /// A description.
    pub description: Option<String>,
    /// Whether it must have a value. A resource whose URI needs an argument without a value is left out.
    pub required: bool,
    /// Values to offer while a user types. Default: those that the source of an embedded resource offers.
    pub complete: Vec<String>,
}

impl Default for ArgumentConfig {
    fn default() -> Self {
        Self { name: String::new(), title: None, description: None, required: true, complete: Vec::new() }
    }
}

/// All prompts of a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct PromptsConfig {
    /// The prompts.
    pub prompts: Vec<Config>,
}
