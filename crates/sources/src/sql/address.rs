//! The address of a database, which is shown without secrets.

use std::fmt;
use std::path::Path;

use libris_core::{Error, Result};
use serde::Deserialize;

use super::config::Config;
use super::dialect::Dialect;

/// The URL of a database as configured. It may contain a password, so `Display` and `Debug` omit credentials.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Url(String);

impl Url {
    /// An address such as `sqlite:shop.db` or `postgres://user@host/shop`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The URL without user, password and options. A SQLite URL is shown unchanged; a URL with an unknown scheme is shown
/// as "a database".
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once(':').unwrap_or(("", &self.0));
        match dialect(scheme) {
            None => f.write_str("a database"),
            Some(Dialect::Sqlite) => f.write_str(&self.0),
            Some(_) => {
                // A password may contain `@`, so the last one separates the host. If there is a `?` before that
                // `@`, the password contains a `?`, or an option contains an `@`. Then the text after the `@` may
                // be part of a secret.
                let (user, host) = rest.rsplit_once('@').unwrap_or(("", rest));
                if user.contains('?') {
                    return write!(f, "{scheme}://…");
                }
                let host = host.trim_start_matches('/').split('?').next().unwrap_or_default();
                write!(f, "{scheme}://{host}")
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{self}>")
    }
}

fn dialect(scheme: &str) -> Option<Dialect> {
    match scheme {
        "sqlite" => Some(Dialect::Sqlite),
        "postgres" | "postgresql" => Some(Dialect::Postgres),
        "mysql" | "mariadb" => Some(Dialect::Mysql),
        _ => None,
    }
}

/// The address of a database, with its secrets.
pub(super) enum DatabaseAddress {
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::postgres::PgConnectOptions>),
    #[cfg(feature = "mysql")]
    Mysql(Box<sqlx::mysql::MySqlConnectOptions>),
}

impl DatabaseAddress {
    /// The address in a configuration, and the default name of the database. Relative paths start from `folder`.
    pub(super) fn of(config: &Config, folder: &Path) -> Result<(Self, String)> {
        let url = match (&config.url, &config.url_env) {
            (Some(Url(url)), None) => url.clone(),
            (None, Some(name)) => secret(name)?,
            _ => return Err(Error::invalid("a database needs either `url` or `url_env`")),
        };
        let password = config.password_env.as_deref().map(secret).transpose()?;
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let unknown =
            || Error::invalid("the URL of a database must begin with `sqlite:`, `postgres://` or `mysql://`");
        match dialect(scheme).ok_or_else(unknown)? {
            Dialect::Sqlite => sqlite(&url, password.is_some(), folder),
            Dialect::Postgres => postgres(&url, password),
            Dialect::Mysql => mysql(&url, password, config.schemas.is_empty()),
        }
    }
}

/// The value of an environment variable.
fn secret(name: &str) -> Result<String> {
    std::env::var(name).map_err(|_| {
        Error::invalid(format!(
            "the environment variable `{name}` is not set; hint: set it before you start Libris"
        ))
    })
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str, password: bool, folder: &Path) -> Result<(DatabaseAddress, String)> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = folder.join(path.strip_prefix("//").unwrap_or(path));
    if password {
        return Err(Error::invalid("SQLite has no passwords; hint: remove the user and password from `url`"));
    }
    if path.is_dir() {
        let shown = path.display();
        return Err(Error::invalid(format!(
            "`{shown}` is a folder; hint: name the file of the database in it"
        )));
    }
    if !path.is_file() {
        let shown = path.display();
        return Err(Error::invalid(format!("there is no file `{shown}`; hint: check the path")));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((DatabaseAddress::Sqlite(path), name))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, password: Option<String>) -> Result<(DatabaseAddress, String)> {
    let mut options: sqlx::postgres::PgConnectOptions = url.parse().map_err(|_| malformed())?;
    if let Some(password) = password {
        options = options.password(&password);
    }
    let name = options.get_database().unwrap_or(options.get_username()).to_owned();
    Ok((DatabaseAddress::Postgres(Box::new(options)), name))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str, password: Option<String>, needs_database: bool) -> Result<(DatabaseAddress, String)> {
    let rest = url.split_once(':').map_or("", |(_, rest)| rest);
    let mut options: sqlx::mysql::MySqlConnectOptions =
        format!("mysql:{rest}").parse().map_err(|_| malformed())?;
    if let Some(password) = password {
        options = options.password(&password);
    }
    if needs_database && options.get_database().is_none() {
        return Err(Error::invalid(
            "the URL names no database: write `mysql://user@host/database`, or set `schemas`",
        ));
    }
    let name = options.get_database().unwrap_or("mysql").to_owned();
    Ok((DatabaseAddress::Mysql(Box::new(options)), name))
}

// The malformed part may be the password, so the URL is not shown.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn malformed() -> Error {
    Error::invalid("the URL of the database is malformed: write `postgres://user@host:port/database`")
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &str, _: bool, _: &Path) -> Result<(DatabaseAddress, String)> {
    Err(Error::invalid("this program was built without SQLite; hint: build it with the feature `sqlite`"))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, _: Option<String>) -> Result<(DatabaseAddress, String)> {
    Err(Error::invalid(
        "this program was built without PostgreSQL; hint: build it with the feature `postgres`",
    ))
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &str, _: Option<String>, _: bool) -> Result<(DatabaseAddress, String)> {
    Err(Error::invalid("this program was built without MySQL; hint: build it with the feature `mysql`"))
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn secrets_are_not_shown() {
        let shown = |text: &str| format!("{} {:?}", Url::new(text), Url::new(text));
        assert_eq!(shown("sqlite:a/shop.db"), "sqlite:a/shop.db <sqlite:a/shop.db>");
        assert_eq!(shown("postgres://host/shop"), "postgres://host/shop <postgres://host/shop>");
        let secret = ["s3cret", "s3c?ret", "s3c@ret", "s3c/ret", "s3c:ret", "s3c#ret"];
        for secret in secret {
            let shown = shown(&format!("mysql://ada:{secret}@host:3306/shop?ssl-mode=on&password={secret}"));
            assert!(!shown.contains("s3c") && !shown.contains("ret") && !shown.contains("ada"), "{shown}");
        }
        assert_eq!(Url::new("mysql://ada@host/shop?password=s3c@ret").to_string(), "mysql://…");
    }
}
