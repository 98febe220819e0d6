//! The configuration of the HTTP source.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use libris_core::{CacheScope, Uri, UriTemplate};
use serde::Deserialize;

use super::guard::Network;
use crate::descriptive::with_descriptive_keys;

/// An HTTP API whose responses are resources.
///
/// ```toml
/// [[http]]
/// base = "https://api.weather.example/v1"
/// headers = { authorization = { env = "WEATHER_TOKEN", prefix = "Bearer " } }
///
/// [[http.resource]]
/// uri = "weather://stations"
/// url = "stations"
///
/// [[http.template]]
/// uri = "weather://forecast/{city}/{date}"
/// url = "forecast/{city}{?date}"
/// complete = { date = ["today", "tomorrow"] }
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The name of the source in messages. Default: the scheme of its first URI. Without a name, messages about a
    /// source that cannot be opened use `base`, or `[[http]]` if there is no `base`.
    pub name: Option<String>,
    /// The base URL: the URLs of the entries are relative to it.
    pub base: Option<String>,
    /// Headers of every request.
    pub headers: BTreeMap<String, TextOrSecret>,
    /// Query parameters of every request.
    pub query: BTreeMap<String, TextOrSecret>,
    /// The polling interval of lists and of resources with subscriptions.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// Limits on requests.
    pub limits: RequestLimits,
    /// The response cache.
    pub cache: Caching,
    /// The resources.
    #[serde(rename = "resource")]
    pub resources: Vec<EndpointConfig<Uri>>,
    /// The templates.
    #[serde(rename = "template")]
    pub templates: Vec<EndpointConfig<UriTemplate>>,
    /// Resources on the web that clients fetch themselves.
    #[serde(rename = "link")]
    pub links: Vec<Link>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            base: None,
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            poll: Duration::from_secs(60),
            limits: RequestLimits::default(),
            cache: Caching::default(),
            resources: Vec::new(),
            templates: Vec::new(),
            links: Vec::new(),
        }
    }
}

/// Limits on requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestLimits {
    /// The time-out for opening a connection.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub connect: Duration,
    /// The time-out of a request, from the wait for a permit to the last byte of the response.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// The largest response, in bytes after decompression. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// The maximum number of redirects that are followed, within the same origin only. At most 20.
    #[serde(deserialize_with = "crate::settings::redirects")]
    pub redirects: usize,
    /// The maximum number of concurrent requests. From 1 to 1,024.
    #[serde(deserialize_with = "crate::settings::concurrency")]
    pub concurrency: usize,
    /// Whether requests to non-public addresses are allowed.
    pub allow_private: bool,
    /// Networks, such as `"10.1.0.0/16"`, that are allowed although they are not public.
    pub networks: Vec<Network>,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            max_size: 8 * 1024 * 1024,
            redirects: 5,
            concurrency: 64,
            allow_private: false,
            networks: Vec::new(),
        }
    }
}

/// The response cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caching {
    /// How long a response without caching headers is fresh.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// The longest time that a response is fresh, whatever its headers say.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub max_age: Duration,
    /// How long a stale response is served while the API is unavailable.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub stale_if_error: Duration,
    /// The maximum size of this API's cache, in bytes, at most 1 TiB. The caches of all APIs in the process together are
    /// limited to 64 MiB, or to the largest configured `bytes` if that is more, so this cache may get less.
    #[serde(deserialize_with = "crate::settings::cache_bytes")]
    pub bytes: u64,
    /// Who may share a response: `"private"` or `"public"`. A response with `Cache-Control: private` stays private.
    pub scope: CacheScope,
}

impl Default for Caching {
    fn default() -> Self {
        Self {
            ttl: Duration::ZERO,
            max_age: Duration::from_secs(3600),
            stale_if_error: Duration::from_secs(300),
            bytes: 32 * 1024 * 1024,
            scope: CacheScope::Private,
        }
    }
}

/// A value in the configuration file, or in an environment variable.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a text, or `{ env = \"NAME\" }` with perhaps a `prefix`")]
pub enum TextOrSecret {
    /// The value itself.
    Plain(String),
    /// The value of an environment variable.
    Secret(EnvironmentSecret),
}

/// Does not show a value in the configuration file, which may be a credential.
impl fmt::Debug for TextOrSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(..)"),
            Self::Secret(secret) => f.debug_tuple("Secret").field(secret).finish(),
        }
    }
}

/// The value of an environment variable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentSecret {
    /// The name of the environment variable.
    pub env: String,
    /// Text to put before the value of the variable, such as `"Bearer "`.
    #[serde(default)]
    pub prefix: String,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Method {
    /// The body of the response is the content.
    #[default]
    #[serde(alias = "get")]
    GET,
    /// The headers of the response are the content, as JSON.
    #[serde(alias = "head")]
    HEAD,
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::GET => Self::GET,
            Method::HEAD => Self::HEAD,
        }
    }
}

with_descriptive_keys! {
    /// One resource or template.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct EndpointConfig<U> {
        /// A URI such as `weather://stations`, or a template such as
        /// `weather://forecast/{city}/{date}`.
        pub uri: U,
        /// The URL, or a URL relative to `base`. In a template, its variables are expanded as in
        /// `forecast/{city}{?date}`.
        pub url: String,
        /// `"GET"` or `"HEAD"`.
        #[serde(default)]
        pub method: Method,
        /// Additional headers.
        #[serde(default = "BTreeMap::new")]
        pub headers: BTreeMap<String, TextOrSecret>,
        /// Additional query parameters.
        #[serde(default = "BTreeMap::new")]
        pub query: BTreeMap<String, TextOrSecret>,
        /// The expected media type. A response with an incompatible type is an error; for a JSON type, so is malformed
        /// JSON.
        pub mime: Option<String>,
        /// For templates: the variables that must have a value.
        #[serde(default)]
        pub required: Vec<String>,
        /// For templates: completions of the variables.
        #[serde(default = "BTreeMap::new")]
        pub complete: BTreeMap<String, Choices>,
        /// For templates: the list of its resources.
        pub list: Option<ListConfig>,
        /// The allowed values by variable; a variable without an entry may have any value.
        #[serde(skip)]
        pub(super) allowed: BTreeMap<String, Vec<String>>,
        /// Maps a variable of the URI template to its name in the URL, if they differ.
        #[serde(skip)]
        pub(super) renamed: BTreeMap<String, String>,
    }
}

impl<U> EndpointConfig<U> {
    /// An entry with default settings.
    pub fn new(uri: U, url: impl Into<String>) -> Self {
        Self {
            uri,
            url: url.into(),
            method: Method::GET,
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            name: None,
            title: None,
            description: None,
            mime: None,
            icons: Vec::new(),
            audience: Vec::new(),
            priority: None,
            meta: None,
            required: Vec::new(),
            complete: BTreeMap::new(),
            list: None,
            allowed: BTreeMap::new(),
            renamed: BTreeMap::new(),
        }
    }
}

/// The completions of a variable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of values, or a table with `url` or `from`, `items`, `value` and `label`"
)]
pub enum Choices {
    /// Fixed values.
    Fixed(Vec<Choice>),
    /// The values of a list in a response.
    Found(ChoiceList),
}

/// A completion.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a text, or `{ value = \"…\", label = \"…\" }`")]
pub enum Choice {
    /// A value without a label.
    Plain(String),
    /// A value with a human-readable label. Typed text is compared with the label as well as with the value.
    Labelled {
        /// The value.
        value: String,
        /// The label.
        label: String,
    },
}

impl Choice {
    /// The value.
    pub fn value(&self) -> &str {
        match self {
            Self::Plain(value) | Self::Labelled { value, .. } => value,
        }
    }
}

/// A list of completions in a response. Exactly one of `url` and `from` must be set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceList {
    /// The URL of the list. It may contain the known variables, and `{typed}` for the text typed so far; with `{typed}`, the
    /// API filters the values.
    pub url: Option<String>,
    /// The resource of this source that contains the list, such as `weather://stations`.
    pub from: Option<String>,
    /// A JSON pointer to the list in the response. Default: the whole response. The list is an array of items, or an
    /// object; each member of an object becomes an item `{ key, value }`.
    #[serde(default)]
    pub items: String,
    /// A JSON pointer to the value in an item.
    #[serde(default)]
    pub value: String,
    /// A JSON pointer to a human-readable label in an item. Typed text is compared with the label as well as with the
    /// value.
    pub label: Option<String>,
    /// A JSON pointer to the URL of the next page of the list, or to its cursor. Default: the `Link` header.
    pub next: Option<String>,
    /// The query parameter for the cursor that `next` points to. Default: `next` points to a URL.
    pub cursor: Option<String>,
    /// The maximum number of pages of the list that are requested. From 1 to 100.
    #[serde(default = "default_pages", deserialize_with = "crate::settings::list_pages")]
    pub max_pages: usize,
}

/// The list of the resources of a template. Exactly one of `url` and `from` must be set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListConfig {
    /// The URL of the list.
    pub url: Option<String>,
    /// The resource of this source that contains the list, such as `weather://stations`.
    pub from: Option<String>,
    /// A JSON pointer to the list in the response. Default: the whole response. The list is an array of items, or an
    /// object; each member of an object becomes an item `{ key, value }`.
    #[serde(default)]
    pub items: String,
    /// A JSON pointer in an item for each variable, as in `{ city = "/id" }`.
    pub values: BTreeMap<String, String>,
    /// A JSON pointer to the name in an item.
    pub name: Option<String>,
    /// A JSON pointer to the title in an item.
    pub title: Option<String>,
    /// A JSON pointer to the description in an item.
    pub description: Option<String>,
    /// A JSON pointer to the URL of the next page of the list, or to its cursor. Default: the `Link` header.
    pub next: Option<String>,
    /// The query parameter for the cursor that `next` points to. Default: `next` points to a URL.
    pub cursor: Option<String>,
    /// The maximum number of pages of the list that are requested. From 1 to 100.
    #[serde(default = "default_pages", deserialize_with = "crate::settings::list_pages")]
    pub max_pages: usize,
}

fn default_pages() -> usize {
    10
}

/// A resource on the web that clients fetch themselves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// An `https://` URI.
    pub uri: Uri,
    /// A short name. Default: the last segment of the URI.
    pub name: Option<String>,
    /// A human-readable title.
    pub title: Option<String>,
    /// A description for people and models.
    pub description: Option<String>,
    /// The media type.
    pub mime: Option<String>,
}
