//! Which server a [`Remote`](crate::Remote) connects to, and its limits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use libris_core::{Error, Result, Uri};

use crate::mount::UriMount;
use crate::oauth::TokenStore;

/// The configuration of a [`Remote`](crate::Remote).
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteConfig {
    /// The name of the server in messages. It must not contain secrets.
    pub name: String,
    /// Where the server is.
    pub target: RemoteTarget,
    /// How the URIs of the server are changed when Libris serves them.
    pub mount: UriMount,
    /// The protocol revisions to try.
    pub protocol: ProtocolChoice,
    /// Whether to serve the prompts of the server. With a prefix in `mount`, their names become `prefix_name`.
    pub prompts: bool,
    /// Whether to serve the tools of the server. With a prefix in `mount`, their names become `prefix_name`.
    pub tools: bool,
    /// For whom Libris asks the server.
    pub callers: Callers,
    /// Timeouts and size limits.
    pub limits: RemoteLimits,
}

/// The callers for whom a [`Remote`](crate::Remote) asks its server. This decides which responses may be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callers {
    /// For several callers. Responses that the server marks as private are not cached.
    #[default]
    Several,
    /// For one user only. Responses that the server marks as private are cached, too.
    One,
}

impl RemoteConfig {
    /// A server with this name, unchanged URIs and default limits.
    pub fn new(name: impl Into<String>, target: RemoteTarget) -> Self {
        Self {
            name: name.into(),
            target,
            mount: UriMount::Kept,
            protocol: ProtocolChoice::Auto,
            prompts: true,
            tools: false,
            callers: Callers::Several,
            limits: RemoteLimits::default(),
        }
    }
}

/// Where an MCP server is.
#[derive(Clone, PartialEq)]
pub enum RemoteTarget {
    /// A program that speaks MCP on standard input and output.
    Stdio {
        /// The program.
        program: OsString,
        /// The arguments of the program.
        arguments: Vec<OsString>,
        /// The working directory of the program; empty for that of this process.
        folder: PathBuf,
        /// The environment variables of the program.
        environment: ChildEnvironment,
    },
    /// A server with the Streamable HTTP transport.
    Http {
        /// The URL of the endpoint.
        url: String,
        /// The access token for the server. Tokens of Libris's own callers are never forwarded.
        token: Option<String>,
        /// Additional headers, such as an API key.
        headers: BTreeMap<String, String>,
        /// The tokens of `libris login`. If `token` is `None`, the stored token for `url` is sent, if there is one.
        stored: Option<TokenStore>,
    },
}

/// Omits all values that may be credentials.
impl fmt::Debug for RemoteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { program, .. } => {
                f.debug_struct("Stdio").field("program", program).finish_non_exhaustive()
            }
            Self::Http { url, .. } => f.debug_struct("Http").field("url", url).finish_non_exhaustive(),
        }
    }
}

/// The environment variables of a child process.
#[derive(Clone, PartialEq, Eq)]
pub enum ChildEnvironment {
    /// All variables of this process.
    Inherited,
    /// Only these.
    Only(BTreeMap<OsString, OsString>),
}

/// The protocol revisions to try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolChoice {
    /// Revision 2026-07-28 first; if the server does not support it, the older ones, with `initialize`.
    #[default]
    Auto,
    /// Only the revisions with `initialize`, up to 2025-11-25.
    Initialize,
    /// Only 2026-07-28.
    Discover,
}

/// Timeouts and size limits of a [`Remote`](crate::Remote).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLimits {
    /// The timeout of an attempt to connect, including the start of a child process and the handshake.
    pub connect_timeout: Duration,
    /// The timeout of a request.
    pub timeout: Duration,
    /// How long a list is reused at least, if the server does not report changes of its lists. A longer TTL that the
    /// server gives applies instead.
    pub list_ttl: Duration,
    /// The pause before the first attempt to reconnect. It doubles with each attempt that fails, up to 30 seconds.
    pub retry: Duration,
    /// The size of the largest message, in bytes.
    pub max_message: usize,
    /// The maximum number of pages of a list.
    pub max_pages: usize,
    /// The maximum number of entries of a list: resources, templates, prompts or skills. Lists of tools have a smaller
    /// limit.
    pub max_resources: usize,
}

impl Default for RemoteLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            list_ttl: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            max_message: 16 << 20,
            max_pages: 10_000,
            max_resources: 200_000,
        }
    }
}

/// Refuses to send credentials unencrypted, except to this machine.
pub(crate) fn check_credentials(uri: &Uri) -> Result<()> {
    match uri.scheme() == "http" && !is_loopback(uri.authority().unwrap_or_default()) {
        true => Err(Error::invalid(
            "credentials would be sent unencrypted; hint: use an `https://` URL, or a server on this machine",
        )),
        false => Ok(()),
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(literal) => literal.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn credentials_are_sent_unencrypted_to_this_machine_only() {
        for local in ["localhost", "127.0.0.1:80", "[::1]:8080", "user@127.1.2.3"] {
            assert!(is_loopback(local), "{local}");
        }
        for other in [
            "example.com",
            "localhost.example.com",
            "10.0.0.1",
            "127.0.0.1.example.com",
            "localhost@example.com",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
