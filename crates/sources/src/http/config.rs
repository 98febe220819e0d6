//! What can be said about resources that come from an HTTP API.

use std::collections::BTreeMap;
use std::time::Duration;

use libris_core::{Scope, Uri, UriTemplate};
use serde::Deserialize;

use super::guard::Network;
use crate::descriptive::with_descriptive_keys;

/// Resources that come from an HTTP API.
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
    /// What to call it, as `libris check` does. The `base` where it is not said.
    pub name: Option<String>,
    /// The URL that those of the entries are relative to.
    pub base: Option<String>,
    /// Headers of every request.
    pub headers: BTreeMap<String, TextOrSecret>,
    /// Query parameters of every request.
    pub query: BTreeMap<String, TextOrSecret>,
    /// How often what somebody waits for is asked for again.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// What a request may do and cost.
    pub limits: RequestLimits,
    /// What is kept.
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

/// What a request may do and cost.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestLimits {
    /// For how long a connection may take to open.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub connect: Duration,
    /// For how long a request may take, from waiting for its turn to the last byte of the answer.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// The most bytes of an answer, after it was unpacked. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// How many redirects within the same origin are followed. At most 20.
    #[serde(deserialize_with = "crate::settings::redirects")]
    pub redirects: usize,
    /// How many requests are under way at once. From 1 to 1,024.
    #[serde(deserialize_with = "crate::settings::concurrency")]
    pub concurrency: usize,
    /// Whether addresses that are not public may be asked.
    pub allow_private: bool,
    /// Networks, such as `"10.1.0.0/16"`, that may be asked although they are not public.
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

/// What is kept of answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caching {
    /// For how long an answer is fresh that does not say how long itself.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// For how long an answer is fresh at most, whatever it says.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub max_age: Duration,
    /// For how long an answer that is fresh no more is given while no new one can be had.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub stale_if_error: Duration,
    /// How many bytes of answers are kept. At most 1 TiB. All APIs of one process share 64 MiB, or the largest of these
    /// numbers where that is more.
    #[serde(deserialize_with = "crate::settings::cache_bytes")]
    pub bytes: u64,
    /// Who may share an answer: `"private"` or `"public"`. One that says `private` itself stays so.
    pub scope: Scope,
}

impl Default for Caching {
    fn default() -> Self {
        Self {
            ttl: Duration::ZERO,
            max_age: Duration::from_secs(3600),
            stale_if_error: Duration::from_secs(300),
            bytes: 32 * 1024 * 1024,
            scope: Scope::Private,
        }
    }
}

/// A text of the configuration, or one of the environment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a text, or `{ env = \"NAME\" }` with perhaps a `prefix`")]
pub enum TextOrSecret {
    /// This text.
    Plain(String),
    /// What a variable of the environment holds.
    Secret(Secret),
}

/// A text of the environment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// The name of the variable.
    pub env: String,
    /// What stands before it, such as `"Bearer "`.
    #[serde(default)]
    pub prefix: String,
}

/// How a request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Method {
    /// For the content.
    #[default]
    #[serde(alias = "get")]
    GET,
    /// For the headers alone, which are then the content, as JSON.
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
        /// Where it is: a URI such as `weather://stations`, or a template such as
        /// `weather://forecast/{city}/{date}`.
        pub uri: U,
        /// What is asked for it: a URL, or the rest of one after `base`. In a template, its variables are filled
        /// in as in `forecast/{city}{?date}`.
        pub url: String,
        /// `"GET"` or `"HEAD"`.
        #[serde(default)]
        pub method: Method,
        /// Headers beside those of all requests.
        #[serde(default = "BTreeMap::new")]
        pub headers: BTreeMap<String, TextOrSecret>,
        /// Query parameters beside those of all requests.
        #[serde(default = "BTreeMap::new")]
        pub query: BTreeMap<String, TextOrSecret>,
        /// The media type. An answer of another one is an error, and so is JSON that is none.
        pub mime: Option<String>,
        /// For templates: variables without which nothing is asked.
        #[serde(default)]
        pub required: Vec<String>,
        /// For templates: what to offer for a variable.
        #[serde(default = "BTreeMap::new")]
        pub complete: BTreeMap<String, Choices>,
        /// For templates: where the resources are found that are listed.
        pub list: Option<ListConfig>,
        /// What the variables are called in the URL, where that is something else.
        #[serde(skip)]
        pub(super) renamed: BTreeMap<String, String>,
    }
}

impl<U> EndpointConfig<U> {
    /// One of which no more is said.
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
            renamed: BTreeMap::new(),
        }
    }
}

/// What to offer for a variable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of values, or a table with `url` or `from`, `items`, `value` and `label`"
)]
pub enum Choices {
    /// These.
    Fixed(Vec<Choice>),
    /// Those of a list.
    Found(ChoiceList),
}

/// A value to offer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a text, or `{ value = \"…\", label = \"…\" }`")]
pub enum Choice {
    /// A value that says what it is.
    Plain(String),
    /// A value with a name for people, by which it is found too.
    Labelled {
        /// The value.
        value: String,
        /// Its name.
        label: String,
    },
}

/// A list of values to offer. One of `url` and `from` says where it is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceList {
    /// What is asked for it. The variables that are filled in already can stand in it, and `{typed}` for what
    /// has been typed: then the answer is taken as it is.
    pub url: Option<String>,
    /// The resource of this source that holds it, such as `weather://stations`.
    pub from: Option<String>,
    /// Where the list is in the JSON of the answer: an array, or an object, of which each item is a pair with a
    /// `key` and a `value`.
    #[serde(default)]
    pub items: String,
    /// Where the value is in an item.
    #[serde(default)]
    pub value: String,
    /// Where a name for people is in an item, by which the value is found too.
    pub label: Option<String>,
}

/// Where the resources of a template are found. One of `url` and `from` says where the list is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListConfig {
    /// What is asked for it.
    pub url: Option<String>,
    /// The resource of this source that holds it, such as `weather://stations`.
    pub from: Option<String>,
    /// Where the list is in the JSON of the answer: an array, or an object, of which each item is a pair with a
    /// `key` and a `value`.
    #[serde(default)]
    pub items: String,
    /// Where in an item the value of each variable is, as in `{ city = "/id" }`.
    pub values: BTreeMap<String, String>,
    /// Where in an item the name is.
    pub name: Option<String>,
    /// Where in an item the title is.
    pub title: Option<String>,
    /// Where in an item the description is.
    pub description: Option<String>,
}

/// A resource on the web that clients fetch themselves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Where it is: an `https://` URI.
    pub uri: Uri,
    /// A short name. The last segment of the URI where it is not said.
    pub name: Option<String>,
    /// A name for people.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// The media type.
    pub mime: Option<String>,
}
