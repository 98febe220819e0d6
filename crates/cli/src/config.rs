//! The configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use libris::auth::AuthConfig;
use libris::catalog;
use libris::rules::Rule;
use libris::wire::http;
use libris_sources::registry::{KEYS, Sections};
use libris_sources::{regular_file, settings};
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::audit_log::AuditConfig;
use crate::auth::TlsConfig;
#[cfg(feature = "text-documents")]
use crate::documents::DocumentsConfig;
use crate::limits_config::LimitsConfig;
use crate::rule_config;
use crate::terminal::{advice, unreadable};
use crate::tools_config::ToolsTable;

/// The largest configuration file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The configuration file.
#[derive(Default)]
pub(crate) struct Config {
    /// How the server presents itself.
    pub(crate) server: ServerConfig,
    /// Notifications of changes.
    pub(crate) live: LiveConfig,
    /// The HTTP endpoint.
    pub(crate) listen: ListenConfig,
    /// The table `[auth]`: how callers authenticate; `None` if the file has no such table.
    pub(crate) auth: Option<AuthConfig>,
    /// The access rules, in order.
    pub(crate) rules: Vec<Rule>,
    /// How much each caller, and all callers together, may use: requests, bytes, sessions, subscriptions.
    pub(crate) limits: LimitsConfig,
    /// The audit log.
    pub(crate) audit: Option<AuditConfig>,
    /// Documents as text.
    #[cfg(feature = "text-documents")]
    pub(crate) documents: DocumentsConfig,
    /// The folder for data that can be computed again: the text of documents and the search index. Default: none.
    pub(crate) cache_folder: Option<PathBuf>,
    /// The search index of a server; `None` if the file has no such table.
    pub(crate) search: Option<SearchTable>,
    /// The tools for models.
    pub(crate) tools: ToolsTable,
    /// The table `[cluster]`: how replicas communicate; `None` if the file has no such table.
    #[cfg(feature = "cluster")]
    pub(crate) cluster: Option<libris_cluster::Config>,
    /// The sources, each kind under a key of its own.
    pub(crate) sources: Sections,
}

/// The keys that do not define sources.
const OWN_KEYS: &[&str] = &[
    "server",
    "live",
    "listen",
    "auth",
    "rule",
    "limits",
    "audit",
    #[cfg(feature = "text-documents")]
    "documents",
    "cache_folder",
    "search",
    "tools",
    #[cfg(feature = "cluster")]
    "cluster",
];

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ConfigVisitor)
    }
}

struct ConfigVisitor;

impl<'de> Visitor<'de> for ConfigVisitor {
    type Value = Config;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Config, A::Error> {
        let mut config = Config::default();
        while let Some(key) = map.next_key_seed(ConfigKey)? {
            match key {
                "server" => config.server = map.next_value()?,
                "live" => config.live = map.next_value()?,
                "listen" => config.listen = map.next_value()?,
                "auth" => config.auth = Some(map.next_value()?),
                "rule" => config.rules = rule_config::rules::<A::Error>(map.next_value()?)?,
                "limits" => config.limits = map.next_value()?,
                "audit" => config.audit = Some(map.next_value()?),
                #[cfg(feature = "text-documents")]
                "documents" => config.documents = map.next_value()?,
                "cache_folder" => config.cache_folder = Some(map.next_value()?),
                "search" => config.search = Some(map.next_value()?),
                "tools" => config.tools = map.next_value()?,
                #[cfg(feature = "cluster")]
                "cluster" => config.cluster = Some(map.next_value()?),
                source => config.sources.deserialize(source, &mut map)?,
            }
        }
        Ok(config)
    }
}

/// A key of the file. An unknown key is refused while the key itself is read, so that the error has its line.
struct ConfigKey;

impl<'de> DeserializeSeed<'de> for ConfigKey {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        let key = String::deserialize(deserializer)?;
        let mut known = OWN_KEYS.iter().chain(KEYS);
        known.find(|known| **known == key).copied().ok_or_else(|| {
            let all: Vec<_> = OWN_KEYS.iter().chain(KEYS).map(|known| format!("`{known}`")).collect();
            D::Error::custom(format!("unknown field `{key}`, expected one of {}", all.join(", ")))
        })
    }
}

/// How the server presents itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// The name of the server, for programs.
    pub(crate) name: String,
    /// A human-readable title.
    pub(crate) title: Option<String>,
    /// A description of the server.
    pub(crate) description: Option<String>,
    /// Instructions for the model. Default: a short text about what the server has.
    pub(crate) instructions: Option<String>,
    /// Whether clients are offered the prompt `use-resources`, which tells a model what the server has.
    pub(crate) use_resources_prompt: bool,
    /// Resources, templates, skills or prompts per page of a list. From 1 to 10,000.
    #[serde(deserialize_with = "page_size")]
    pub(crate) page_size: usize,
    /// The size of the response cache in bytes; 0 disables it. At most 1 TiB.
    #[serde(deserialize_with = "settings::cache_bytes")]
    pub(crate) cache_bytes: u64,
    /// The time-out for a source to list its resources or templates, as in `"5s"`. A source that exceeds it is unavailable:
    /// lists contain its last known resources, if there are any. From 10 milliseconds to 10 minutes.
    #[serde(deserialize_with = "source_timeout")]
    pub(crate) source_timeout: Duration,
    /// Whether a page of a list fails if a source that it queries fails or exceeds its time-out.
    pub(crate) strict: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let libris::Config { page, cache_bytes, built_in_prompt, .. } = libris::Config::default();
        let catalog::Config { source_timeout, strict } = catalog::Config::default();
        Self {
            name: "libris".to_owned(),
            title: None,
            description: None,
            instructions: None,
            use_resources_prompt: built_in_prompt,
            page_size: page,
            cache_bytes,
            source_timeout,
            strict,
        }
    }
}

/// The search index.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SearchTable {
    /// Whether the server builds an index.
    pub(crate) enabled: bool,
    /// Notes by path or URI, such as `"adr/" = "why things are as they are"`. They are searched, and returned with hits.
    pub(crate) notes: BTreeMap<String, String>,
    /// The largest index in memory, in bytes, at most 1 TiB. Resources that do not fit are found by name only.
    #[serde(deserialize_with = "memory_bytes")]
    pub(crate) memory_bytes: usize,
    /// The folder of a Model2Vec model, by which searches also find texts that mean the same in other words.
    pub(crate) model: Option<PathBuf>,
}

impl Default for SearchTable {
    fn default() -> Self {
        Self { enabled: true, notes: BTreeMap::new(), memory_bytes: 256 << 20, model: None }
    }
}

impl SearchTable {
    /// The notes for the index.
    pub(crate) fn notes(&self) -> Vec<libris::PathNote> {
        let note =
            |(path, note): (&String, &String)| libris::PathNote { path: path.clone(), note: note.clone() };
        self.notes.iter().map(note).collect()
    }
}

/// Notifications of changes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LiveConfig {
    /// The debounce window, as in `"50ms"`: changes to one resource within it cause one notification. At most an hour.
    #[serde(deserialize_with = "window")]
    pub(crate) window: Duration,
    /// How many resources one session or stream may subscribe to. From 1 to 1,000,000.
    #[serde(deserialize_with = "subscriptions")]
    pub(crate) subscriptions: usize,
    /// How many bytes of memory the subscriptions of all clients may use.
    #[serde(deserialize_with = "memory_bytes")]
    pub(crate) subscription_bytes: usize,
    /// How many bytes of memory the subscriptions of one client may use.
    #[serde(deserialize_with = "memory_bytes")]
    pub(crate) client_subscription_bytes: usize,
}

impl Default for LiveConfig {
    fn default() -> Self {
        let libris::SubscriptionConfig {
            window,
            subscriptions,
            subscription_bytes,
            client_subscription_bytes,
            ..
        } = libris::SubscriptionConfig::default();
        Self { window, subscriptions, subscription_bytes, client_subscription_bytes }
    }
}

/// The HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListenConfig {
    /// Accepted `Host` names besides `localhost` and IP addresses.
    pub(crate) allow_hosts: Vec<String>,
    /// Accepted origins besides local ones and the server's own.
    pub(crate) allow_origins: Vec<String>,
    /// Whether common HTTP/1.1 requests take the fast path, which bypasses the HTTP library.
    pub(crate) express: bool,
    /// Whether the picker is served at `/`. Default: on loopback only.
    #[cfg(feature = "picker")]
    pub(crate) picker: Option<bool>,
    /// Whether the WebDAV share is served at `/dav`. Default: if the picker is served.
    #[cfg(feature = "picker")]
    pub(crate) webdav: Option<bool>,
    /// HTTPS without a proxy.
    pub(crate) tls: Option<TlsConfig>,
    /// The addresses of reverse proxies, such as `"10.0.0.0/8"`, that are trusted to name the client of a forwarded
    /// request.
    #[serde(deserialize_with = "address_ranges")]
    pub(crate) trusted_proxies: Vec<http::AddressRange>,
    /// The header in which these proxies name the client: `"x-forwarded-for"` or `"forwarded"`. The proxy must set it
    /// or append to it.
    #[serde(deserialize_with = "forwarded_header")]
    pub(crate) forwarded_header: http::ForwardedHeader,
}

impl Default for ListenConfig {
    fn default() -> Self {
        let http::Config { hosts, origins, express, proxies, .. } = http::Config::default();
        let http::TrustedProxies { ranges: trusted_proxies, header: forwarded_header } = proxies;
        Self {
            allow_hosts: hosts,
            allow_origins: origins,
            express,
            #[cfg(feature = "picker")]
            picker: None,
            #[cfg(feature = "picker")]
            webdav: None,
            tls: None,
            trusted_proxies,
            forwarded_header,
        }
    }
}

impl ListenConfig {
    /// The configuration of the HTTP endpoint, with the hosts and origins of the command line added.
    pub(crate) fn http(self, hosts: Vec<String>, origins: Vec<String>, sse: bool) -> http::Config {
        http::Config {
            hosts: [self.allow_hosts, hosts].concat(),
            origins: [self.allow_origins, origins].concat(),
            sse,
            express: self.express,
            metrics_prefix: "libris".into(),
            proxies: http::TrustedProxies { ranges: self.trusted_proxies, header: self.forwarded_header },
            ..http::Config::default()
        }
    }
}

fn address_ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<http::AddressRange>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

fn forwarded_header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<http::ForwardedHeader, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = [http::ForwardedHeader::XForwardedFor, http::ForwardedHeader::Forwarded];
    known.into_iter().find(|header| header.name().eq_ignore_ascii_case(&name)).ok_or_else(|| {
        D::Error::custom(format!("unknown header `{name}`; hint: use \"x-forwarded-for\" or \"forwarded\""))
    })
}

fn page_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    settings::within(deserializer, 1..=10_000)
}

fn subscriptions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    settings::within(deserializer, 1..=1_000_000)
}

fn memory_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let bytes = settings::bytes_within(deserializer, 1..=1 << 40)?;
    usize::try_from(bytes).map_err(serde::de::Error::custom)
}

fn window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    settings::duration_within(deserializer, Duration::ZERO..=Duration::from_secs(60 * 60))
}

fn source_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    settings::duration_within(deserializer, Duration::from_millis(10)..=Duration::from_secs(10 * 60))
}

/// Reads and parses a configuration file.
pub(crate) fn read(path: &Path) -> Result<Config> {
    let shown = path.display();
    let data = regular_file::read(path, MAX_BYTES).map_err(|cause| {
        let message = format!("could not read `{shown}`: {cause}");
        match cause.kind() {
            io::ErrorKind::InvalidInput => advice(message, "write the configuration to a regular file"),
            io::ErrorKind::FileTooLarge => advice(
                message,
                "check the path; serve large texts from a folder instead of writing them into the configuration",
            ),
            io::ErrorKind::NotFound => advice(format!("there is no file `{shown}`"), "check the path"),
            io::ErrorKind::PermissionDenied => {
                unreadable(message, "let the user that runs Libris read the file")
            }
            _ => anyhow::Error::new(cause).context(format!("could not read `{shown}`")),
        }
    })?;
    let not_text = |_| advice(format!("`{shown}` is not UTF-8 text"), "save it as UTF-8");
    let text = String::from_utf8(data).map_err(not_text)?;
    toml::from_str(&text).map_err(|error| {
        // A hint at the end of the message becomes a line of its own.
        let (said, given) = match error.message().split_once("; hint: ") {
            Some((_, hint)) => {
                (error.to_string().replace(&format!("; hint: {hint}"), ""), Some(hint.to_owned()))
            }
            None => (error.to_string(), None),
        };
        let message = format!("`{shown}` is not a valid configuration\n{}", said.trim_end());
        let likely = suggestion(error.message()).map(|likely| format!("did you mean `{likely}`?"));
        let line = error.span().and_then(|span| text[..span.end].lines().last());
        match given.or(likely).or_else(|| array_of_tables(error.message(), line?)) {
            Some(hint) => advice(message, hint),
            None => anyhow::anyhow!(message),
        }
    })
}

/// The hint for a table such as `[files]` that must be written as `[[files]]`; `line` is the line of the error.
fn array_of_tables(message: &str, line: &str) -> Option<String> {
    let name = line.trim().strip_prefix('[')?.strip_suffix(']')?;
    let is_table = message.starts_with("invalid type: map, expected a sequence") && !name.starts_with('[');
    is_table.then(|| format!("write `[[{name}]]` instead of `[{name}]`: a configuration may have several"))
}

/// The known key that is most similar to an unknown one, from a message such as "unknown field `a`, expected one of
/// `b`, `c`".
fn suggestion(message: &str) -> Option<&str> {
    let mut names = message.strip_prefix("unknown field")?.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    names
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn the_fast_path_is_on_unless_the_file_switches_it_off() {
        for (text, expected) in [("", true), ("[listen]", true), ("[listen]\nexpress = false", false)] {
            let config: Config = toml::from_str(text).unwrap();
            assert_eq!(config.listen.http(Vec::new(), Vec::new(), false).express, expected, "{text:?}");
        }
    }
}
