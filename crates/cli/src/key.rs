//! `libris key`: adds, lists and revokes API keys.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use libris::auth::{ApiKey, KeyFile, NewKey};
use serde_json::{Value, json};

use crate::auth::beside;
use crate::config;
use crate::terminal::{HEADING, advice, note, print, shown, styled};

/// The configuration file that is read if none is given.
const DEFAULT_CONFIG: &str = "libris.toml";

/// Manage the API keys of callers
///
/// A caller sends its key in the header `Authorization: Bearer KEY`. The file of keys has only their hashes. Running
/// servers read it again when it changes: a revoked key is refused within a second, and its open streams end.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris key add ci --keys keys.toml               create a key for `ci`, and print it once
  libris key add ada --group staff --expires 90d   a key that expires, for a member of a group
  libris key list --json                           the keys, without their secrets
  libris key revoke ci                             refuse the key of `ci` from now on")]
pub(crate) struct KeyOptions {
    #[command(subcommand)]
    command: KeyCommand,
    /// The file of keys [default: `auth.keys` of the configuration file]
    #[arg(long, value_name = "FILE", global = true)]
    keys: Option<PathBuf>,
    /// The configuration file [default: `libris.toml`, if it exists]
    #[arg(long, short, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Create a key and print it; it cannot be shown again
    Add {
        /// The name of the caller, by which rules refer to it
        name: String,
        /// A group of the caller
        #[arg(long = "group", value_name = "NAME")]
        groups: Vec<Box<str>>,
        /// A scope that is granted to the caller
        #[arg(long = "scope", value_name = "NAME")]
        scopes: Vec<Box<str>>,
        /// How long the key is valid, such as `90d` or `1y` [default: until it is revoked]
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        expires: Option<std::time::Duration>,
    },
    /// List the keys, without their secrets
    List,
    /// Remove a key, so that it is refused
    Revoke {
        /// The name or the id of the key
        name: String,
    },
}

/// Runs one of the commands.
pub(crate) fn run(options: KeyOptions) -> Result<()> {
    let file = KeyFile::at(options.path()?);
    let text = match options.command {
        KeyCommand::Add { name, groups, scopes, expires } => {
            check_name(&name)?;
            let expires = expires.map(expiry).transpose()?;
            let (key, secret) = file.add(NewKey { name, groups, scopes, expires })?;
            if options.json {
                let mut added = described(&key);
                added["key"] = secret.expose().into();
                format!("{added:#}\n")
            } else {
                note("keep this key: it cannot be shown again");
                format!("{}\n", secret.expose())
            }
        }
        KeyCommand::List => {
            let keys = file.keys()?;
            match options.json {
                true => format!("{:#}\n", Value::from(keys.iter().map(described).collect::<Vec<_>>())),
                false => table(&keys),
            }
        }
        KeyCommand::Revoke { name } => {
            let revoked = file.revoke(&name)?;
            match options.json {
                true => format!("{:#}\n", described(&revoked)),
                false => format!("revoked the key of `{}`\n", shown(&revoked.name)),
            }
        }
    };
    print(&text).context("could not print")
}

impl KeyOptions {
    /// The file of keys: given, or named by the configuration file.
    fn path(&self) -> Result<PathBuf> {
        if let Some(path) = &self.keys {
            return Ok(path.clone());
        }
        let default = || Some(PathBuf::from(DEFAULT_CONFIG)).filter(|file| file.is_file());
        let file = self.config.clone().or_else(default);
        let config = file.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let keys = config.auth.and_then(|auth| auth.keys);
        keys.map(|path| beside(file.as_deref(), &path)).ok_or_else(|| {
            advice(
                "the file of API keys is not known",
                "name it with `--keys FILE`, or set `auth.keys` in the configuration file",
            )
        })
    }
}

/// When a key that is valid for this long expires.
fn expiry(valid: std::time::Duration) -> Result<jiff::Timestamp> {
    let end = SystemTime::now().checked_add(valid).and_then(|end| jiff::Timestamp::try_from(end).ok());
    let end = end.and_then(|end| jiff::Timestamp::from_second(end.as_second()).ok());
    end.ok_or_else(|| advice("the key would be valid for too long", "use a duration such as `90d` or `1y`"))
}

/// Names appear in rules, logs and tables, so they must be short and have no spaces.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control();
    match (1..=100).contains(&name.len()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(advice(
            format!("`{}` is not a name for a key", shown(name)),
            "use up to 100 letters, digits and signs without spaces, such as `ci` or `ada@example.com`",
        )),
    }
}

/// A key as JSON, without its hash.
fn described(key: &ApiKey) -> Value {
    json!({
        "name": key.name,
        "id": key.id,
        "groups": key.groups,
        "scopes": key.scopes,
        "created": key.created,
        "expires": key.expires,
    })
}

/// The keys as a table.
fn table(keys: &[ApiKey]) -> String {
    if keys.is_empty() {
        return "there are no keys; `libris key add NAME` creates one\n".to_owned();
    }
    let now = jiff::Timestamp::now();
    let rows = keys.iter().map(|key| {
        let expires = key.expires.map_or("never".to_owned(), |expires| match expires <= now {
            true => format!("{expires} (expired)"),
            false => expires.to_string(),
        });
        let none = |names: &[Box<str>]| if names.is_empty() { "-".to_owned() } else { names.join(",") };
        [
            shown(&key.name),
            key.id.to_string(),
            none(&key.groups),
            none(&key.scopes),
            key.created.to_string(),
            expires,
        ]
    });
    let heading = ["NAME", "ID", "GROUPS", "SCOPES", "CREATED", "EXPIRES"].map(ToOwned::to_owned);
    let rows: Vec<_> = [heading].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&match number {
            0 => styled(HEADING, line.trim_end()),
            _ => line.trim_end().to_owned(),
        });
        text.push('\n');
    }
    text
}
