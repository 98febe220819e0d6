//! Edits one entry of a configuration file, and leaves every other byte as it is.
//!
//! Each format has an editor that keeps comments and layout. Whatever an editor does, its result is parsed again: if it
//! differs from the original in anything but the entry, the edit is refused.

use anyhow::{Context as _, Result, anyhow};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Value};

use super::{json, yaml};

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigFormat {
    /// JSON, with comments and trailing commas if the file has them.
    Json,
    Toml,
    Yaml,
}

/// An entry of a configuration file: the server of this name, below this key.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPath<'a> {
    pub(super) key: &'a str,
    pub(super) name: &'a str,
}

impl ConfigFormat {
    /// The text with the entry set to `value`, or removed if that is `None`. The key goes with its last entry, unless there
    /// are comments in it. A byte order mark stays, new lines end like the others, and the last line ends as before.
    pub(super) fn edit(self, text: &str, path: EntryPath<'_>, value: Option<&Value>) -> Result<String> {
        let (mark, body) = split_mark(text);
        // The editors know only LF. A file with both kinds of line breaks is edited as it is.
        let has_crlf = body.contains('\n') && body.matches('\n').count() == body.matches("\r\n").count();
        let edited = match has_crlf {
            true => self.edit_lines(&body.replace("\r\n", "\n"), path, value)?.replace('\n', "\r\n"),
            false => self.edit_lines(body, path, value)?,
        };
        Ok(format!("{mark}{edited}"))
    }

    fn edit_lines(self, text: &str, path: EntryPath<'_>, value: Option<&Value>) -> Result<String> {
        let before = self.parse(text)?;
        let mut edited = match self {
            Self::Json => json::edit(text, path, value),
            Self::Toml => toml(text, path, value),
            Self::Yaml => yaml::edit(text, path, value),
        }?;
        // A last line without a line break says, when the entry is removed, that there was none before it was added.
        if !text.is_empty() && !text.ends_with('\n') && edited.ends_with('\n') {
            edited.pop();
        }
        let mut expected = before;
        set(&mut expected, path, value);
        let found = self.parse(&edited).context("the edited file cannot be read")?;
        if !is_same(&found, &expected, path) {
            return Err(anyhow!("this file is written in a way that cannot be edited safely"));
        }
        Ok(edited)
    }

    /// The value of the entry.
    pub(super) fn entry(self, text: &str, path: EntryPath<'_>) -> Result<Option<Value>> {
        Ok(self.parse(split_mark(text).1)?.get(path.key).and_then(|servers| servers.get(path.name)).cloned())
    }

    /// The whole file as a value. An empty file is an empty object.
    fn parse(self, text: &str) -> Result<Value> {
        if text.trim().is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        let value = match self {
            Self::Json => parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default())?
                .value
                .map_or_else(|| Value::Object(Map::new()), Value::from),
            Self::Toml => toml::from_str(text)?,
            Self::Yaml => {
                serde_saphyr::from_str::<Option<Value>>(text)?.unwrap_or_else(|| Value::Object(Map::new()))
            }
        };
        if !value.is_object() {
            return Err(anyhow!("the file has no keys at its top level"));
        }
        Ok(value)
    }
}

/// Divides a text into its byte order mark, which may be empty, and the rest.
fn split_mark(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 })
}

/// Sets or removes the entry in a parsed file.
fn set(file: &mut Value, path: EntryPath<'_>, value: Option<&Value>) {
    let Some(file) = file.as_object_mut() else { return };
    match value {
        Some(value) => {
            let servers = file.entry(path.key).or_insert_with(|| Value::Object(Map::new()));
            if !servers.is_object() {
                *servers = Value::Object(Map::new());
            }
            servers[path.name] = value.clone();
        }
        None => {
            if let Some(servers) = file.get_mut(path.key).and_then(Value::as_object_mut) {
                servers.remove(path.name);
            }
        }
    }
}

/// Whether two parsed files are the same. A key without servers is the same as none.
fn is_same(found: &Value, expected: &Value, path: EntryPath<'_>) -> bool {
    let normal = |file: &Value| {
        let mut file = file.clone();
        let servers = file.get(path.key);
        if servers.is_some_and(|servers| servers.is_null() || *servers == Value::Object(Map::new()))
            && let Some(file) = file.as_object_mut()
        {
            file.remove(path.key);
        }
        file
    };
    normal(found) == normal(expected)
}

fn toml(text: &str, path: EntryPath<'_>, value: Option<&Value>) -> Result<String> {
    let mut file: toml_edit::DocumentMut = text.parse()?;
    match value {
        Some(value) => {
            let servers = file.entry(path.key).or_insert_with(|| {
                let mut servers = toml_edit::Table::new();
                // The file gets a line `[mcp_servers.NAME]`, but none for `[mcp_servers]`.
                servers.set_implicit(true);
                toml_edit::Item::Table(servers)
            });
            let servers =
                servers.as_table_like_mut().ok_or_else(|| anyhow!("`{}` is not a table", path.key))?;
            let value = toml_edit::ser::to_document(value)?.as_item().clone();
            let table = value.into_table().map_err(|_| anyhow!("the entry is not a table"))?;
            match servers.get_mut(path.name).and_then(toml_edit::Item::as_table_mut) {
                // Replaced in place, so that its position and the comment above it stay.
                Some(old) => {
                    old.clear();
                    old.extend(table.into_iter().map(|(key, value)| (key.to_string(), value)));
                }
                None => drop(servers.insert(path.name, toml_edit::Item::Table(table))),
            }
        }
        None => {
            if let Some(servers) = file.get_mut(path.key).and_then(toml_edit::Item::as_table_like_mut) {
                servers.remove(path.name);
            }
        }
    }
    Ok(file.to_string())
}
