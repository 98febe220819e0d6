//! The configuration of an HTTP API with an OpenAPI document.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::http::config::{Caching, RequestLimits, TextOrSecret};

/// An HTTP API whose operations an OpenAPI document describes.
///
/// ```toml
/// [[openapi]]
/// document = "petstore.yaml"
/// headers = { authorization = { env = "PETSTORE_TOKEN", prefix = "Bearer " } }
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The document: a path relative to the configuration file, or a URL.
    pub document: String,
    /// The scheme of its URIs, such as `library`, or scheme and authority, such as `api://library`. Default: a scheme
    /// derived from the title of the document.
    pub name: Option<String>,
    /// Only these operations: patterns for their paths, such as `"/books/**"`, or for their IDs, such as `"list*"`. `*`
    /// stands for any characters but `/`, `**` for any characters. Default: all.
    pub include: Vec<String>,
    /// Patterns of operations to omit.
    pub exclude: Vec<String>,
    /// Only operations with one of these tags. Default: all.
    pub tags: Vec<String>,
    /// The base URL of its paths. Default: the first server of the operation, of its path, or of the document.
    pub base: Option<String>,
    /// Headers of every request.
    pub headers: BTreeMap<String, TextOrSecret>,
    /// Query parameters of every request.
    pub query: BTreeMap<String, TextOrSecret>,
    /// The polling interval of resources with subscriptions.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// Limits on requests.
    pub limits: RequestLimits,
    /// The response cache.
    pub cache: Caching,
}

impl Default for Config {
    fn default() -> Self {
        let crate::http::Config { poll, limits, cache, .. } = crate::http::Config::default();
        Self {
            document: String::new(),
            name: None,
            include: Vec::new(),
            exclude: Vec::new(),
            tags: Vec::new(),
            base: None,
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            poll,
            limits,
            cache,
        }
    }
}

impl Config {
    /// The default configuration for a document at a path or URL. If its host is a non-public address, requests to it are
    /// allowed.
    pub fn new(document: impl Into<String>) -> Self {
        let mut config = Self { document: document.into(), ..Self::default() };
        let named = url::Url::parse(&config.document).ok();
        let host = named.as_ref().filter(|_| config.is_remote()).and_then(|url| url.host_str());
        let host = host.map(|host| host.trim_matches(['[', ']']));
        config.limits.networks = match host {
            Some("localhost") => vec!["127.0.0.0/8", "::1"],
            Some(host) if host.parse::<IpAddr>().is_ok() => vec![host],
            _ => Vec::new(),
        }
        .into_iter()
        .filter_map(|network| network.parse().ok())
        .collect();
        config
    }

    /// The URL of the document; `None` if it is a file.
    pub(super) fn remote(&self) -> Option<&String> {
        self.is_remote().then_some(&self.document)
    }

    pub(super) fn is_remote(&self) -> bool {
        self.document.starts_with("http://") || self.document.starts_with("https://")
    }
}
