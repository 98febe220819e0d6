//! What can be said about a Notion workspace.

use std::time::Duration;

use serde::Deserialize;

/// A Notion workspace, as far as it is shared with the owner of a token.
///
/// ```toml
/// [notion]
/// token_env = "NOTION_TOKEN"
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The variable of the environment that holds the token. It is not read from anywhere else.
    pub token_env: String,
    /// Where the API is. Without TLS it may only be on this machine.
    pub url: String,
    /// For how long what was read or listed is given again.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub cache: Duration,
    /// How often Notion is asked what was edited, while somebody listens.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// How long Notion may take for one answer.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// For how long a request is tried again where Notion asks to wait or is not there.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub patience: Duration,
    /// How many requests may be under way at the same time. From 1 to 1,024.
    #[serde(deserialize_with = "crate::settings::concurrency")]
    pub concurrent: usize,
    /// The most bytes that Notion may send for one page or one database. At most 1 GiB.
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
            patience: Duration::from_secs(60),
            concurrent: 3,
            max_size: 8 << 20,
        }
    }
}
