//! Errors for callers: what is wrong with a URI or with the database, and what to do about it.

use libris_core::{Error, Result, Uri};
use percent_encoding::percent_decode_str;

use super::catalog::TableInfo;
use super::driver::DriverError;
use super::{SqlInner, key};
use crate::suggest::{closest, did_you_mean};

/// The resources of a table.
const TABLE_RESOURCES: [&str; 2] = ["schema", "rows"];

/// The maximum number of tables that a hint names if none is similar.
const MAX_NAMED_TABLES: usize = 10;

impl SqlInner {
    /// Converts an error of the driver to an error for callers.
    pub(super) fn error(&self, problem: DriverError) -> Error {
        let name = &self.name;
        match problem {
            DriverError::Unavailable(why) => Error::Unavailable(format!(
                "the database `{name}` cannot be reached now: {why}; try again later"
            )),
            DriverError::Misconfigured { why, fix } => {
                Error::Unavailable(format!("the database `{name}` cannot be used: {why}; hint: {fix}"))
            }
            DriverError::TimedOut => Error::Unavailable(format!(
                "the database `{name}` did not answer within {}; ask for less, or try again later",
                humantime::format_duration(self.config.timeout)
            )),
            DriverError::WrongType => Error::invalid("the database rejects a value: check its type"),
            DriverError::CatalogTooLarge(limit) => Error::Unavailable(format!(
                "the schema of the database `{name}` is larger than {limit} bytes; hint: let its user see fewer \
                 tables"
            )),
            DriverError::Denied(cause) => Error::failed(
                "read this, because the user of the database lacks a privilege: grant SELECT on what it reads to that user",
                cause,
            ),
            DriverError::Missing(cause) | DriverError::Failed(cause) => {
                Error::failed("query the database", cause)
            }
        }
    }

    /// The error for a URI that names no visible table.
    pub(super) async fn no_table(&self, uri: &Uri, label: &str) -> Error {
        let labels = match self.labels().await {
            Ok(labels) => labels,
            Err(error) => return error,
        };
        let mut hint = format!("there is no table or view `{}`", short(label));
        let similar = did_you_mean(label, labels.iter().map(String::as_str));
        if !similar.is_empty() {
            hint.push_str(&similar);
        } else if labels.len() > MAX_NAMED_TABLES {
            hint.push_str(&format!("; read `{}schema` for all {}", self.root, labels.len()));
        } else if !labels.is_empty() {
            let all: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            hint.push_str(&format!("; there are {}", all.join(", ")));
        }
        Error::missing(uri, hint)
    }

    /// The names of all visible tables, as written in URIs.
    async fn labels(&self) -> Result<Vec<String>> {
        let default = self.default_schema().await?;
        Ok(self.summaries().await?.iter().map(|summary| key::format_table(&summary.name, default)).collect())
    }

    /// The error for a URI of this source that matches none of its templates.
    pub(super) async fn no_such_resource(&self, uri: &Uri) -> Error {
        let rest = uri.as_str().strip_prefix(self.root.as_str()).unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let decoded: Vec<_> = path
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<_> = decoded.iter().map(String::as_str).collect();
        if let ["schema"] | [""] = segments[..] {
            return option_error(uri, query);
        }
        match self.load_table(segments[0], None).await {
            Err(error) => return error,
            Ok(None) if segments.len() == 1 && !closest(segments[0], ["schema"]).is_empty() => {
                return Error::missing(uri, format!("did you mean `{}schema`?", self.root));
            }
            Ok(None) => return self.no_table(uri, segments[0]).await,
            Ok(Some(_)) => {}
        }
        let table = format!("{}{}/", self.root, key::segment(segments[0]));
        match segments[1..] {
            [] => Error::missing(
                uri,
                format!("a table has `{table}schema` and `{table}rows`, and `{table}` with both"),
            ),
            ["" | "schema"] | ["rows", _] => option_error(uri, query),
            _ => {
                let similar = did_you_mean(segments[1], TABLE_RESOURCES);
                let hint = format!(
                    "a table has `schema`, `rows` and `rows/KEY`, not `{}`",
                    short(&segments[1..].join("/"))
                );
                Error::missing(uri, hint + &similar)
            }
        }
    }

    /// The error for a key that no row has.
    pub(super) fn no_row(&self, uri: &Uri, label: &str, table: &TableInfo, key: &str) -> Error {
        let names: Vec<_> = table.key.iter().map(|column| format!("`{}`", column.name)).collect();
        let columns = if names.len() == 1 { "column" } else { "columns" };
        let (key, names) = (short(key), names.join(", "));
        Error::missing(
            uri,
            format!(
                "`{label}` has no row with the key `{key}` ({columns} {names}); read its `rows` to see the keys"
            ),
        )
    }
}

/// The error for an unknown query parameter in a URI whose only parameter is `format`.
fn option_error(uri: &Uri, query: &str) -> Error {
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let unknown = names.into_iter().find(|name| *name != "format").unwrap_or_default();
    let unknown = percent_decode_str(unknown).decode_utf8_lossy();
    Error::missing(uri, format!("there is no option `{}`: use only `format` here", short(&unknown)))
}

/// The error for a value that the database rejects. It names the types of the columns that the value may belong to.
pub(super) fn rejected<'a>(columns: impl IntoIterator<Item = &'a super::catalog::TableColumn>) -> Error {
    let columns: Vec<_> =
        columns.into_iter().map(|column| format!("`{}` is {}", column.name, column.declared)).collect();
    Error::invalid(format!("the database rejects a value: check its type; {}", columns.join(", ")))
}

/// The beginning of a text from a URI, for a message.
fn short(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let cut = if short.len() < text.len() { "…" } else { "" };
    format!("{}{cut}", short.escape_debug())
}
