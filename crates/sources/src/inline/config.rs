//! The configuration of the inline source.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use libris_core::{CacheScope, Uri, UriTemplate};
use serde::Deserialize;

use crate::descriptive::with_descriptive_keys;

/// Resources and templates whose contents are in the configuration file.
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
    pub resources: Vec<InlineEntry<Uri>>,
    /// The templates.
    #[serde(rename = "template")]
    pub templates: Vec<InlineEntry<UriTemplate>>,
    /// The largest `file` that is read, in bytes. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// How long clients may cache a response, as in `"30s"` or `"5m"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a cached response: `"private"` or `"public"`.
    pub scope: CacheScope,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            templates: Vec::new(),
            max_size: 8 * 1024 * 1024,
            ttl: Duration::ZERO,
            scope: CacheScope::Private,
        }
    }
}

with_descriptive_keys! {
    /// A resource or template. Exactly one of `text`, `base64` and `file` is required.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct InlineEntry<U> {
        /// A URI such as `config://app/settings`, or a template such as `greeting://{name}`.
        pub uri: U,
        /// The media type. Default: detected from `file` or `base64`; `text/plain` for `text`.
        pub mime: Option<String>,
        /// The time of the last change, as in `"2026-07-28T12:00:00Z"`. Default: for a resource, that of the `file`;
        /// for a template, none.
        pub last_modified: Option<Timestamp>,
        /// The content as text. In a template, `{{name}}` is replaced by the value of the variable `name`; if the media
        /// type is JSON, the value is escaped for a JSON string.
        pub text: Option<String>,
        /// The content in base64.
        pub base64: Option<String>,
        /// A file with the content, relative to the configuration file. It is read at each request. In a template, its
        /// text is expanded like `text`.
        pub file: Option<PathBuf>,
        /// For templates: completions of the variables.
        #[serde(default = "BTreeMap::new")]
        pub complete: BTreeMap<String, Vec<String>>,
    }
}

impl<U> InlineEntry<U> {
    /// An entry without content.
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
