//! What can be said about a database.

use std::collections::BTreeMap;
use std::time::Duration;

use libris_core::{Audience, Error, Result, Scope, UriTemplate};
use serde::Deserialize;

use super::address::Url;
use super::output::RowFormat;
use super::value::ValueType;

/// The most connections: PostgreSQL by default has 100 for everybody.
const CONNECTIONS: u64 = 256;

/// The most rows of one read.
const MAX_ROWS: u64 = 1_000_000;

/// The most bytes of one read.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The shortest and the longest time-out.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60 * 60));

/// The shortest and the longest pause between two questions for changes.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(24 * 60 * 60));

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
    /// Where it is: `sqlite:shop.db`, `postgres://user@host/shop` or `mysql://user@host/shop`.
    pub url: Option<Url>,
    /// The environment variable that holds the URL, instead of `url`.
    pub url_env: Option<String>,
    /// The environment variable that holds the password.
    pub password_env: Option<String>,
    /// The name in its URIs. That of the database or the file where it is not said.
    pub name: Option<String>,
    /// A name for people.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// The schemas that are shown. All but the system's where it is not said; of MySQL, the database of
    /// the URL.
    pub schemas: Vec<String>,
    /// The tables and views that are shown, as in `orders`, `sales.orders` or `sales.*`. All where it is
    /// not said.
    pub tables: Vec<String>,
    /// The most rows that one read gives, up to 1,000,000.
    pub max_rows: u64,
    /// The most bytes that one read gives, up to 256 MiB.
    pub max_bytes: u64,
    /// How long a statement may take, as in `"10s"`: from `1ms` to `1h`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// How many connections may be open at once, up to 256. One more may be opened to cancel statements that
    /// nobody waits for any more, and one to listen for changes.
    pub connections: usize,
    /// How often the database is asked for changes while somebody listens. `250ms` for SQLite and `5s`
    /// for the others where it is not said. From `10ms` to `1day`.
    #[serde(deserialize_with = "crate::settings::optional_duration")]
    pub poll: Option<Duration>,
    /// The PostgreSQL channel on which triggers tell of changes.
    pub channel: String,
    /// How rows are written where the caller does not say: `"json"`, `"csv"` or `"markdown"`.
    pub format: RowFormat,
    /// How long callers may keep an answer, as in `"30s"` or `"5m"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a kept answer: `"private"` or `"public"`.
    pub scope: Scope,
    /// Queries that are resources.
    #[serde(rename = "query")]
    pub queries: Vec<QueryConfig>,
}

impl Config {
    /// The database at this URL, with all else left as it is by default.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: Some(Url::new(url)), ..Self::default() }
    }

    /// Says which number is out of its bounds, if one is.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |key: &str, from: &str, to: &str, given: &str| {
            Err(Error::invalid(format!("`{key}` must be from {from} to {to}, not `{given}`")))
        };
        let numbers = [
            ("connections", self.connections as u64, CONNECTIONS),
            ("max_rows", self.max_rows, MAX_ROWS),
            ("max_bytes", self.max_bytes, MAX_BYTES),
        ];
        for (key, given, most) in numbers {
            if !(1..=most).contains(&given) {
                return wrong(key, "1", &most.to_string(), &given.to_string());
            }
        }
        let durations = [("timeout", Some(self.timeout), TIMEOUT), ("poll", self.poll, POLL)];
        for (key, given, (from, to)) in durations {
            if let Some(given) = given.filter(|given| !(from..=to).contains(given)) {
                let text = |duration| humantime::format_duration(duration).to_string();
                return wrong(key, &format!("`{}`", text(from)), &format!("`{}`", text(to)), &text(given));
            }
        }
        Ok(())
    }

    /// The name of the database in messages: its URL, without secrets.
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
            channel: "libris".to_owned(),
            format: RowFormat::Json,
            ttl: Duration::ZERO,
            scope: Scope::Private,
            queries: Vec::new(),
        }
    }
}

/// A query that is a resource, or many where its URI has variables.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryConfig {
    /// Where it is: a URI or a template such as `db://users/{user_id}/profile`.
    pub uri: UriTemplate,
    /// One `SELECT`, in which `:user_id` stands for the value of the variable `user_id`.
    pub sql: String,
    /// What the variables are: `"integer"`, `"number"`, `"decimal"`, `"boolean"`, `"date"`, `"time"`,
    /// `"timestamp"`, `"uuid"`, `"json"` or `"bytes"`. Text where it is not said.
    #[serde(default)]
    pub parameters: BTreeMap<String, ValueType>,
    /// For each variable, a query for the values to offer. In it, `:typed` is what has been typed so far,
    /// and the other variables are those that are already filled in.
    #[serde(default)]
    pub complete: BTreeMap<String, String>,
    /// Whether it gives one row, so that there is nothing at its URI where it gives none.
    #[serde(default)]
    pub one: bool,
    /// How rows are written where the caller does not say. That of the database where it is not said.
    pub format: Option<RowFormat>,
    /// A short name. The URI where it is not said.
    pub name: Option<String>,
    /// A name for people.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// Whom it is for: `"user"`, `"assistant"` or both.
    #[serde(default)]
    pub audience: Vec<Audience>,
    /// How important it is, from 0 to 1.
    pub priority: Option<f64>,
}
