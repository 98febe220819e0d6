//! Parses the URL of Redis, and displays it without secrets.

use std::fmt;

use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, TlsMode};
use serde::Deserialize;
use url::Url;

use crate::ClusterConfigError;

/// The port of a Sentinel if the URL names none.
const SENTINEL_PORT: u16 = 26_379;

/// The URL of Redis as configured. It may contain a password, so `Display` and `Debug` omit credentials.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// A URL such as `redis://host:6379` or `rediss://user:password@host`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The user and the password as written in the URL, still percent-encoded; empty if the URL has none.
    pub(crate) fn credentials(&self) -> &str {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        rest.rsplit_once('@').map_or("", |(credentials, _)| credentials)
    }
}

/// The URL without user, password and options.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once("://") {
            Some((scheme, rest)) if SCHEMES.contains(&scheme) => {
                // A password may contain `@`, so the host begins after the last `@`.
                let host = rest.rsplit('@').next().unwrap_or_default();
                write!(f, "{scheme}://{}", host.split(['?', '#']).next().unwrap_or_default())
            }
            _ => f.write_str("a Redis server"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{self}>")
    }
}

/// The supported URL schemes.
const SCHEMES: [&str; 9] = [
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
];

/// The parsed address of Redis, including the password.
pub(crate) enum RedisAddress {
    Single(Box<ConnectionInfo>),
    Sentinel(SeveralHosts),
    Cluster(SeveralHosts),
}

/// The parts of a URL with several hosts, for Sentinel or Redis Cluster.
pub(crate) struct SeveralHosts {
    hosts: Vec<(String, u16)>,
    user: Option<String>,
    password: Option<String>,
    /// The segments of the path. Sentinel: the name of the master, and optionally the database. Redis Cluster: none.
    path: Vec<String>,
    tls: Option<TlsMode>,
}

impl RedisAddress {
    /// Parses a URL. `password`, if given, replaces the password in the URL.
    pub(crate) fn parse(url: &RedisUrl, password: Option<&str>) -> Result<Self, ClusterConfigError> {
        let text = url.0.trim();
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let invalid =
            |why: String| ClusterConfigError::new(format!("`{url}` is not the URL of a Redis server: {why}"));
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" => {
                if scheme != "redis+unix" && text.split(['/', '@']).any(|part| part.contains(',')) {
                    return Err(invalid("it names several hosts".to_owned()).with_hint(
                        "use `redis+sentinel://host,host/name` or `redis+cluster://host,host` for several hosts",
                    ));
                }
                let info = text.into_connection_info().map_err(|error| {
                    invalid(cause(&error))
                        .with_hint("write it as in `redis://host:6379` or `rediss://host:6379`")
                })?;
                let info = match password {
                    Some(password) => {
                        let settings = info.redis_settings().clone().set_password(password);
                        info.set_redis_settings(settings)
                    }
                    None => info,
                };
                Ok(Self::Single(Box::new(info)))
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let parts = SeveralHosts::parse(text, SENTINEL_PORT, password).map_err(invalid)?;
                parts.sentinel().map(drop).map_err(|why| {
                    invalid(why)
                        .with_hint("write it as in `redis+sentinel://host1:26379,host2:26379/mymaster`")
                })?;
                Ok(Self::Sentinel(parts))
            }
            "redis+cluster" | "rediss+cluster" => {
                let parts = SeveralHosts::parse(text, 6379, password).map_err(invalid)?;
                parts.cluster().map(drop).map_err(|why| {
                    invalid(why).with_hint("write it as in `redis+cluster://host1:6379,host2:6379`")
                })?;
                Ok(Self::Cluster(parts))
            }
            _ => {
                let schemes: Vec<_> = SCHEMES.iter().map(|scheme| format!("`{scheme}://`")).collect();
                Err(ClusterConfigError::new("the URL of Redis has an unknown scheme".to_owned())
                    .with_hint(format!("begin it with one of {}", schemes.join(", "))))
            }
        }
    }
}

/// The message of a Redis error. It never contains the URL, in which there may be a password.
fn cause(error: &redis::RedisError) -> String {
    error.detail().map_or_else(|| error.category().to_owned(), ToOwned::to_owned)
}

impl SeveralHosts {
    fn parse(text: &str, port: u16, password: Option<&str>) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let (authority, _) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), authority),
        };
        let tail = &rest[authority.len()..];
        let mut found = Vec::new();
        let mut first = None;
        for host in hosts.split(',') {
            // `Url` supports only one host, so each host is parsed as a separate URL with the same credentials and
            // path.
            let url = Url::parse(&format!("redis://{credentials}{host}{tail}"));
            let url = url.map_err(|error| error.to_string())?;
            let name = url.host_str().filter(|name| !name.is_empty()).ok_or("a host is missing")?;
            found.push((name.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(port)));
            first.get_or_insert(url);
        }
        let url = first.ok_or("a host is missing")?;
        let decode = |text: &str| {
            percent_decode(text)
                .ok_or_else(|| "the user or the password is not percent-encoded UTF-8".to_owned())
        };
        let given = url.password().map(decode).transpose()?;
        Ok(Self {
            hosts: found,
            user: Some(url.username()).filter(|user| !user.is_empty()).map(decode).transpose()?,
            password: password.map(ToOwned::to_owned).or(given),
            path: url.path().split('/').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect(),
            tls: scheme.starts_with("rediss").then_some(TlsMode::Secure),
        })
    }

    /// The client that queries the Sentinels for the address of the master.
    pub(crate) fn sentinel(&self) -> Result<SentinelClient, String> {
        let (name, database) = match &self.path[..] {
            [name] => (name, None),
            [name, database] => {
                (name, Some(database.parse::<i64>().map_err(|_| "the database is not a number")?))
            }
            _ => return Err("the path must be the name of the master".to_owned()),
        };
        let is_tls = self.tls.is_some();
        let address = |(host, port): &(String, u16)| match is_tls {
            true => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            false => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let sentinels: Vec<_> = self.hosts.iter().map(address).collect();
        let builder = SentinelClientBuilder::new(sentinels, name, SentinelServerType::Master);
        let mut builder = builder.map_err(|error| cause(&error))?;
        if let Some(database) = database {
            builder = builder.set_client_to_redis_db(database);
        }
        if let Some(user) = &self.user {
            builder = builder.set_client_to_redis_username(user);
        }
        // The password is sent to Redis only: a Sentinel without a password would refuse a connection that sends one.
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        if is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            builder = builder.set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        builder.build().map_err(|error| cause(&error))
    }

    /// The builder of a Redis Cluster client.
    pub(crate) fn cluster(&self) -> Result<ClusterClientBuilder, String> {
        if !self.path.is_empty() {
            return Err("Redis Cluster has no databases and no names".to_owned());
        }
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let nodes = self.hosts.iter().map(|(host, port)| match host.contains(':') {
            true => format!("{scheme}://[{host}]:{port}"),
            false => format!("{scheme}://{host}:{port}"),
        });
        let mut builder = ClusterClientBuilder::new(nodes);
        if let Some(user) = &self.user {
            builder = builder.username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        if let Some(tls) = self.tls {
            builder = builder.tls(tls);
        }
        Ok(builder)
    }
}

/// Decodes percent-encoded text; `None` if it is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => {
                let digit = |byte: &u8| (*byte as char).to_digit(16);
                Some((digit(high)? * 16 + digit(low)?) as u8)
            }
            (b'%', _) => return None,
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{RedisAddress, RedisUrl, SeveralHosts, percent_decode};

    fn error(url: &str) -> String {
        let error = RedisAddress::parse(&RedisUrl::new(url), None).err();
        error.unwrap_or_else(|| panic!("{url} is valid")).to_string()
    }

    #[test]
    fn valid_urls() {
        for url in [
            "redis://127.0.0.1",
            "redis://user:secret@redis.example:6380/2",
            "rediss://redis.example",
            "redis+unix:///run/redis.sock",
            "redis+sentinel://one,two:26380/mymaster",
            "rediss+sentinel://user:secret@one,two/mymaster/3",
            "redis+cluster://one:7000,two:7001",
            "rediss+cluster://:secret@one",
        ] {
            let parsed = RedisAddress::parse(&RedisUrl::new(url), None);
            assert!(parsed.is_ok(), "{url}: {}", parsed.err().unwrap());
        }
    }

    #[test]
    fn several_hosts_share_credentials_and_path() {
        let url = "redis+sentinel://me:p%40ss@one,two:1,[::1]:2/mymaster/3";
        let parts = SeveralHosts::parse(url, 26_379, None).unwrap();
        let hosts: Vec<_> = parts.hosts.iter().map(|(host, port)| (host.as_str(), *port)).collect();
        assert_eq!(hosts, [("one", 26_379), ("two", 1), ("::1", 2)]);
        assert_eq!((parts.user.as_deref(), parts.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!(parts.path, ["mymaster", "3"]);
        let replaced = SeveralHosts::parse(url, 26_379, Some("other")).unwrap();
        assert_eq!(replaced.password.as_deref(), Some("other"));
    }

    #[test]
    fn errors_say_what_to_write_and_show_no_password() {
        for url in [
            "http://user:hunter2@host",
            "redis://user:hunter2@host:port",
            "redis://user:hunter2@one,two",
            "redis+sentinel://user:hunter2@one,two",
            "redis+sentinel://user:hunter2@one/name/x",
            "redis+cluster://user:hunter2@one/0",
            "redis+cluster://user:hunter2@",
            "hunter2",
        ] {
            let message = error(url);
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(error("redis+sentinel://one").contains("name of the master"));
        let unknown = RedisAddress::parse(&RedisUrl::new("http://host"), None).err().unwrap();
        assert!(unknown.hint().unwrap().contains("`redis://`"), "{unknown:?}");
    }

    #[test]
    fn a_url_is_shown_without_credentials() {
        let url = RedisUrl::new("rediss://user:p@ss@host:6380/1?protocol=resp3");
        assert_eq!(format!("{url} {url:?}"), "rediss://host:6380/1 <rediss://host:6380/1>");
        assert_eq!(RedisUrl::new("hunter2").to_string(), "a Redis server");
    }

    #[test]
    fn percent_decoding() {
        assert_eq!(percent_decode("a%20b%C3%A9").as_deref(), Some("a bé"));
        assert_eq!(percent_decode("%4"), None);
        assert_eq!(percent_decode("%zz"), None);
        assert_eq!(percent_decode("%FF"), None);
    }
}
