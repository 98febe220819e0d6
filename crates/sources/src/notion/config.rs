//! The configuration of the Notion source.

use std::time::Duration;

use serde::Deserialize;

/// The pages and databases of a Notion workspace that are shared with an integration.
///
/// ```toml
/// [notion]
/// token_env = "NOTION_TOKEN"
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The environment variable with the token. There is no other way to configure it.
    pub token_env: String,
    /// The URL of the API. Without TLS, it must be a loopback address.
    pub url: String,
    /// How long contents and listings are cached.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub cache: Duration,
    /// The polling interval for edits while there are subscriptions.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// The time-out of one request.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// How long a request is retried while Notion limits the rate or is unavailable.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub retry_timeout: Duration,
    /// The maximum number of concurrent requests. From 1 to 1,024.
    #[serde(deserialize_with = "crate::settings::concurrency")]
    pub concurrent: usize,
    /// The largest response for one page or one database, in bytes. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            token_env: "NOTION_TOKEN".into(),
            url: "https://api.notion.com".into(),
            cache: Duration::from_secs(300),
            poll: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            retry_timeout: Duration::from_secs(60),
            concurrent: 3,
            max_size: 8 << 20,
        }
    }
}
