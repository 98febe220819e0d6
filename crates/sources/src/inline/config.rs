//! What can be said about resources that stand in the configuration itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use libris_core::{Scope, Uri, UriTemplate};
use serde::Deserialize;

use crate::descriptive::with_descriptive_keys;

/// Resources and templates that stand in the configuration itself.
///
/// ```toml
/// [[inline.resource]]
/// uri = "config://app/settings"
/// mime = "application/json"
/// text = '{"theme": "dark"}'
///
/// [[inline.template]]
/// uri = "greeting://{name}"
/// text = "Hello {{name}}"
/// complete = { name = ["Ada", "Grace"] }
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The resources.
    #[serde(rename = "resource")]
    pub resources: Vec<Entry<Uri>>,
    /// The templates.
    #[serde(rename = "template")]
    pub templates: Vec<Entry<UriTemplate>>,
    /// The most bytes that are read from a `file`. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// How long callers may keep an answer, as in `"30s"` or `"5m"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a kept answer: `"private"` or `"public"`.
    pub scope: Scope,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            templates: Vec::new(),
            max_size: 8 * 1024 * 1024,
            ttl: Duration::ZERO,
            scope: Scope::Private,
        }
    }
}

with_descriptive_keys! {
    /// One resource or template. Exactly one of `text`, `base64` and `file` says what it holds.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Entry<U> {
        /// Where it is: a URI such as `config://app/settings`, or a template such as `greeting://{name}`.
        pub uri: U,
        /// The media type. Where it is not said, that of the `file`, what `base64` looks like, or `text/plain`.
        pub mime: Option<String>,
        /// When it last changed, as in `"2026-07-28T12:00:00Z"`. That of the `file` where it is not said.
        pub last_modified: Option<Timestamp>,
        /// The text it holds. In a template, `{{name}}` stands for the value of the variable `name`; where
        /// the media type is JSON, the value is escaped for the inside of a string.
        pub text: Option<String>,
        /// The data it holds, in base64.
        pub base64: Option<String>,
        /// The file it holds, taken from the folder of the configuration and read again at each read. In a
        /// template, its text is filled in like `text`.
        pub file: Option<PathBuf>,
        /// For templates: the values to offer for a variable.
        #[serde(default = "BTreeMap::new")]
        pub complete: BTreeMap<String, Vec<String>>,
    }
}

impl<U> Entry<U> {
    /// One that holds nothing yet.
    pub fn new(uri: U) -> Self {
        Self {
            uri,
            name: None,
            title: None,
            description: None,
            mime: None,
            icons: Vec::new(),
            audience: Vec::new(),
            priority: None,
            last_modified: None,
            meta: None,
            text: None,
            base64: None,
            file: None,
            complete: BTreeMap::new(),
        }
    }
}
