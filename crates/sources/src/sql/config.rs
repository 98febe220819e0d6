//! The configuration of the SQL source.

use std::collections::BTreeMap;
use std::time::Duration;

use libris_core::{Audience, CacheScope, Error, Result, UriTemplate};
use serde::Deserialize;

use super::address::Url;
use super::output::RowFormat;
use super::value::ValueType;

/// The maximum number of connections of one source. PostgreSQL allows 100 for all clients by default.
const MAX_CONNECTIONS: u64 = 256;

/// The maximum number of rows of one read.
const MAX_ROWS: u64 = 1_000_000;

/// The maximum number of bytes of one read.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The shortest and the longest time-out.
const TIMEOUT_RANGE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60 * 60));

/// The shortest and the longest polling interval.
const POLL_RANGE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(24 * 60 * 60));

/// A database whose schemas and rows are resources.
///
/// ```toml
/// [[sql]]
/// url = "sqlite:shop.db"
///
/// [[sql.query]]
/// uri = "db://users/{user_id}/profile"
/// sql = "SELECT name, email FROM users WHERE id = :user_id"
/// parameters = { user_id = "integer" }
/// one = true
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The URL: `sqlite:shop.db`, `postgres://user@host/shop` or `mysql://user@host/shop`.
    pub url: Option<Url>,
    /// The environment variable that holds the URL, instead of `url`.
    pub url_env: Option<String>,
    /// The environment variable that holds the password.
    pub password_env: Option<String>,
    /// The name in its URIs. Default: the name of the database or the file.
    pub name: Option<String>,
    /// A human-readable title.
    pub title: Option<String>,
    /// A description for people and models.
    pub description: Option<String>,
    /// The visible schemas. Default: all except system schemas; for MySQL, the database of the URL.
    pub schemas: Vec<String>,
    /// The visible tables and views, as in `orders`, `sales.orders` or `sales.*`. Default: all.
    pub tables: Vec<String>,
    /// The maximum number of rows in a response, up to 1,000,000.
    pub max_rows: u64,
    /// The maximum number of bytes in a response, up to 256 MiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_bytes: u64,
    /// The time-out of a statement, as in `"10s"`: from `1ms` to `1h`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// The maximum number of open connections, up to 256. Libris may open more: one to cancel abandoned statements, one
    /// or two to listen for notifications (PostgreSQL), and one to detect changes (SQLite).
    pub connections: usize,
    /// The polling interval for changes while there are subscriptions, from `10ms` to `1day`. Default: `250ms` for
    /// SQLite, `5s` for PostgreSQL and MySQL.
    #[serde(deserialize_with = "crate::settings::optional_duration")]
    pub poll: Option<Duration>,
    /// For PostgreSQL and MySQL: how long Libris caches a response, as in `"2s"`. With the triggers of
    /// `libris triggers` in PostgreSQL, the next change of a row invalidates all cached responses. Default: nothing is
    /// cached.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub cache: Duration,
    /// The PostgreSQL channel on which triggers notify of changes.
    pub channel: String,
    /// The default format of rows: `"json"`, `"csv"` or `"markdown"`.
    pub format: RowFormat,
    /// How long clients may cache a response, as in `"30s"` or `"5m"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a cached response: `"private"` or `"public"`.
    pub scope: CacheScope,
    /// Configured queries, which are resources.
    #[serde(rename = "query")]
    pub queries: Vec<QueryConfig>,
}

impl Config {
    /// The default configuration for the database at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: Some(Url::new(url)), ..Self::default() }
    }

    /// Checks that all numbers and durations are within their bounds.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |key: &str, from: &str, to: &str, given: &str| {
            Err(Error::invalid(format!("`{key}` must be from {from} to {to}, not `{given}`")))
        };
        let numbers = [
            ("connections", self.connections as u64, MAX_CONNECTIONS),
            ("max_rows", self.max_rows, MAX_ROWS),
            ("max_bytes", self.max_bytes, MAX_BYTES),
        ];
        for (key, given, most) in numbers {
            if !(1..=most).contains(&given) {
                return wrong(key, "1", &most.to_string(), &given.to_string());
            }
        }
        let durations = [("timeout", Some(self.timeout), TIMEOUT_RANGE), ("poll", self.poll, POLL_RANGE)];
        for (key, given, (from, to)) in durations {
            if let Some(given) = given.filter(|given| !(from..=to).contains(given)) {
                let text = |duration| humantime::format_duration(duration).to_string();
                return wrong(key, &format!("`{}`", text(from)), &format!("`{}`", text(to)), &text(given));
            }
        }
        Ok(())
    }

    /// The name of the database in messages: its URL without secrets, or the environment variable that holds the URL.
    pub(super) fn label(&self) -> String {
        match (&self.url, &self.url_env) {
            (Some(url), _) => url.to_string(),
            (None, Some(name)) => format!("${name}"),
            (None, None) => "a database".to_owned(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: None,
            url_env: None,
            password_env: None,
            name: None,
            title: None,
            description: None,
            schemas: Vec::new(),
            tables: Vec::new(),
            max_rows: 1000,
            max_bytes: 1024 * 1024,
            timeout: Duration::from_secs(10),
            connections: 4,
            poll: None,
            cache: Duration::ZERO,
            channel: "libris".to_owned(),
            format: RowFormat::Json,
            ttl: Duration::ZERO,
            scope: CacheScope::Private,
            queries: Vec::new(),
        }
    }
}

/// A query whose result is a resource, or many resources if its URI has variables.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryConfig {
    /// A URI or a template such as `db://users/{user_id}/profile`.
    pub uri: UriTemplate,
    /// One `SELECT`, `WITH`, `VALUES` or `TABLE` statement, in which `:user_id` is bound to the value of the variable
    /// `user_id`.
    pub sql: String,
    /// The types of the variables: `"integer"`, `"number"`, `"decimal"`, `"boolean"`, `"date"`, `"time"`,
    /// `"timestamp"`, `"uuid"`, `"json"` or `"bytes"`. Default: text.
    #[serde(default)]
    pub parameters: BTreeMap<String, ValueType>,
    /// For each variable, a query for its completions. `:typed` is bound to the text typed so far, and the other
    /// variables to the values already chosen.
    #[serde(default)]
    pub complete: BTreeMap<String, String>,
    /// Whether the query returns one row; if it returns none, the resource is not found.
    #[serde(default)]
    pub one: bool,
    /// The default format of rows. Default: that of the database.
    pub format: Option<RowFormat>,
    /// The column whose value is the contents of the resource, such as a document in a BLOB, instead of rows. The query
    /// returns one row; if it returns none, or null, the resource is not found.
    pub contents: Option<String>,
    /// The media type of `contents`. Default: detected.
    pub mime: Option<String>,
    /// The column with the media type of `contents`, instead of `mime`.
    pub mime_column: Option<String>,
    /// A short name. Default: the URI.
    pub name: Option<String>,
    /// A human-readable title.
    pub title: Option<String>,
    /// A description for people and models.
    pub description: Option<String>,
    /// The intended audience: `"user"`, `"assistant"` or both.
    #[serde(default)]
    pub audience: Vec<Audience>,
    /// How important the resource is, from 0 to 1.
    pub priority: Option<f64>,
}
