//! The configuration of an MCP server whose resources are served.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use libris_remote::{ProtocolChoice, RemoteLimits};
use serde::{Deserialize, Deserializer};

/// An MCP server whose resources are served beside those of other sources.
///
/// ```toml
/// [[mcp]]
/// name = "weather"
/// url = "https://weather.example/mcp"
/// token_env = "WEATHER_TOKEN"
///
/// [[mcp]]
/// name = "notes"
/// run = ["npx", "-y", "notes-server"]
/// uris = "prefixed"
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The name of the server: in messages, in the status and in prefixed URIs. Default: the host of the URL, or the
    /// name of the program.
    pub name: String,
    /// The URL of a server of the Streamable HTTP transport. Either `url` or `run` is required.
    pub url: String,
    /// The program of a server that speaks over stdio, with its arguments. It is started with Libris, and again if it
    /// ends.
    pub run: Vec<String>,
    /// `"kept"`: URIs are served unchanged. `"prefixed"`: they begin with the name, as in `notes+file:///a.md`.
    pub uris: MountedUris,
    /// Whether the prompts of the server are served, too. With prefixed URIs, their names begin with the name of the
    /// server and `_`.
    pub prompts: bool,
    /// Whether the tools of the server are served, too. With prefixed URIs, their names begin with the name of the server
    /// and `_`. Rules decide who may call them.
    pub tools: bool,
    /// The environment variable with the access token for the server. Without it, the token of `libris login` is sent,
    /// if there is one. Tokens of callers are never sent to the server.
    pub token_env: String,
    /// Additional headers for the server, each with the environment variable that has its value.
    pub header_env: BTreeMap<String, String>,
    /// The working directory of the program, relative to the configuration file. Default: the folder of that file.
    pub folder: PathBuf,
    /// Environment variables that the program inherits, besides `PATH`, `HOME`, `USER`, `LOGNAME`, `LANG`, `LC_ALL`,
    /// `TMPDIR` and those of the XDG folders. On Windows, the variables of the user profile and of the program folders
    /// instead, and `PATH`.
    pub inherit: Vec<String>,
    /// Additional environment variables of the program.
    pub env: BTreeMap<String, String>,
    /// The protocol revisions to try: `"auto"`, `"initialize"` for those up to 2025-11-25, or `"discover"` for
    /// 2026-07-28.
    #[serde(deserialize_with = "protocol")]
    pub protocol: ProtocolChoice,
    /// The time-out of a request. Larger than 0.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// The time-out of connecting, including the start of the program. Larger than 0.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub connect_timeout: Duration,
    /// How long a list of the server is cached if the server does not report its changes.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub list_ttl: Duration,
    /// The pause before the first attempt to reconnect. It doubles with each attempt that fails, up to 30 seconds.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub retry: Duration,
    /// The size of the largest message of the server, in bytes. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_message: u64,
    /// The maximum number of pages of a list. From 1 to 1,000,000.
    #[serde(deserialize_with = "million")]
    pub max_pages: usize,
    /// The maximum number of entries of a list: resources, templates, prompts or skills. From 1 to 1,000,000.
    #[serde(deserialize_with = "million")]
    pub max_resources: usize,
}

impl Default for Config {
    fn default() -> Self {
        let limits = RemoteLimits::default();
        Self {
            name: String::new(),
            url: String::new(),
            run: Vec::new(),
            uris: MountedUris::Kept,
            prompts: false,
            tools: false,
            token_env: String::new(),
            header_env: BTreeMap::new(),
            folder: PathBuf::new(),
            inherit: Vec::new(),
            env: BTreeMap::new(),
            protocol: ProtocolChoice::Auto,
            timeout: limits.timeout,
            connect_timeout: limits.connect_timeout,
            list_ttl: limits.list_ttl,
            retry: limits.retry,
            max_message: limits.max_message as u64,
            max_pages: limits.max_pages,
            max_resources: limits.max_resources,
        }
    }
}

impl Config {
    pub(super) fn limits(&self) -> RemoteLimits {
        RemoteLimits {
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            list_ttl: self.list_ttl,
            retry: self.retry,
            max_message: usize::try_from(self.max_message).unwrap_or(usize::MAX),
            max_pages: self.max_pages,
            max_resources: self.max_resources,
        }
    }
}

/// How the URIs of a server are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountedUris {
    /// Unchanged.
    #[default]
    Kept,
    /// With the name of the server before the scheme.
    Prefixed,
}

fn protocol<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ProtocolChoice, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum ProtocolKey {
        Auto,
        Initialize,
        Discover,
    }
    Ok(match ProtocolKey::deserialize(deserializer)? {
        ProtocolKey::Auto => ProtocolChoice::Auto,
        ProtocolKey::Initialize => ProtocolChoice::Initialize,
        ProtocolKey::Discover => ProtocolChoice::Discover,
    })
}

fn million<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    crate::settings::within(deserializer, 1..=1_000_000)
}
