//! Configured queries whose result is the contents of a resource, such as a document in a BLOB.

use std::ops::ControlFlow;

use libris_core::uri_template::Variables;
use libris_core::{Content, ContentBody, Context, Error, Result, Uri};

use super::SqlInner;
use super::config::QueryConfig;
use super::driver::{self, DriverError, QueryLimits, RowSink};
use super::value::SqlValue;
use crate::media;

/// The maximum length of a media type.
const MAX_MEDIA_TYPE: usize = 255;

/// The hint for contents that are too large.
const LARGER_LIMIT_HINT: &str = "set a larger `max_bytes`";

/// The columns of a query whose result is the contents of a resource.
#[derive(Clone, Debug)]
pub(super) struct ContentsColumns {
    /// The column with the contents.
    value: String,
    media_type: MediaType,
}

/// Where the media type of the contents comes from.
#[derive(Clone, Debug)]
enum MediaType {
    /// From the extension of the URI, otherwise from the contents.
    Detected,
    Configured(String),
    /// From this column; detected if its value is null or not a media type.
    Column(String),
}

impl ContentsColumns {
    /// The configured columns of a query; `None` if its result is rows. The error says what is wrong with the
    /// configuration.
    pub(super) fn of(config: &QueryConfig) -> Result<Option<Self>, String> {
        let Some(value) = config.contents.clone() else {
            return match config.mime.is_some() || config.mime_column.is_some() {
                true => Err("`mime` and `mime_column` are only for a query with `contents`".to_owned()),
                false => Ok(None),
            };
        };
        if config.one || config.format.is_some() {
            return Err(
                "`one` and `format` are for rows, and have no effect with `contents`; hint: omit them"
                    .to_owned(),
            );
        }
        let media_type = match (config.mime.clone(), config.mime_column.clone()) {
            (Some(_), Some(_)) => return Err("it has both `mime` and `mime_column`".to_owned()),
            (Some(mime), None) if !is_media_type(&mime) => {
                return Err(format!(
                    "its `mime` must be a media type such as `application/pdf`, not `{mime}`"
                ));
            }
            (Some(mime), None) => MediaType::Configured(mime),
            (None, Some(column)) => MediaType::Column(column),
            (None, None) => MediaType::Detected,
        };
        Ok(Some(Self { value, media_type }))
    }

    /// The configured media type; `None` if it is detected or comes from a column.
    pub(super) fn mime(&self) -> Option<&str> {
        match &self.media_type {
            MediaType::Configured(mime) => Some(mime),
            MediaType::Detected | MediaType::Column(_) => None,
        }
    }
}

fn is_media_type(text: &str) -> bool {
    text.len() <= MAX_MEDIA_TYPE
        && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
        && text.split_once('/').is_some_and(|(kind, subtype)| !kind.is_empty() && !subtype.is_empty())
}

/// A sink for the one row of such a query.
pub(super) struct ContentsSink {
    columns: ContentsColumns,
    /// The context of the request, whose memory budget pays for the contents.
    context: Context,
    /// The position of the column with the contents.
    value_at: Option<usize>,
    /// The position of the column with the media type.
    mime_at: Option<usize>,
    /// The first of the columns that the result lacks.
    pub(super) missing: Option<String>,
    value: Option<SqlValue>,
    mime: Option<String>,
    /// The error of a memory reservation that failed.
    reservation_error: Option<Error>,
    /// The size of the row in bytes, if it exceeds the limit.
    too_large: Option<u64>,
}

impl ContentsSink {
    pub(super) fn new(columns: ContentsColumns, context: &Context) -> Self {
        Self {
            columns,
            context: context.clone(),
            value_at: None,
            mime_at: None,
            missing: None,
            value: None,
            mime: None,
            reservation_error: None,
            too_large: None,
        }
    }

    /// The position of a column; records it as missing if there is none of this name.
    fn position(&mut self, names: &[String], wanted: &str) -> Option<usize> {
        let found = names.iter().position(|name| name == wanted);
        if found.is_none() && self.missing.is_none() {
            self.missing = Some(wanted.to_owned());
        }
        found
    }
}

impl RowSink for ContentsSink {
    fn columns(&mut self, names: Vec<String>) {
        let ContentsColumns { value, media_type } = self.columns.clone();
        self.value_at = self.position(&names, &value);
        if let MediaType::Column(mime) = media_type {
            self.mime_at = self.position(&names, &mime);
        }
    }

    fn row(&mut self, mut row: Vec<SqlValue>) -> ControlFlow<()> {
        let mut take = |at: Option<usize>| {
            at.and_then(|at| row.get_mut(at))
                .map_or(SqlValue::Null, |cell| std::mem::replace(cell, SqlValue::Null))
        };
        let (value, mime) = (take(self.value_at), take(self.mime_at));
        match self.context.reserve(value.size()) {
            Ok(()) => {
                self.value = Some(value);
                self.mime = mime.into_text();
            }
            Err(error) => self.reservation_error = Some(error),
        }
        ControlFlow::Break(())
    }

    fn oversized(&mut self, size: u64) {
        self.too_large = Some(size);
    }
}

impl SqlInner {
    /// Reads the contents that the configured query at this index returns.
    pub(super) async fn contents(
        &self,
        uri: &Uri,
        at: usize,
        columns: &ContentsColumns,
        variables: &Variables,
        context: &Context,
    ) -> Result<Content> {
        let bounds = QueryLimits { rows: 1, bytes: self.config.max_bytes, ordered: false };
        let statement = self.queries[at].statement(self.driver.dialect(), variables, bounds)?;
        let sink = ContentsSink::new(columns.clone(), context);
        let sink = match driver::run(&*self.driver, &statement, sink).await {
            Ok(sink) => sink,
            Err(DriverError::Missing(cause)) => {
                tracing::warn!(%uri, %cause, "a table or column does not exist");
                return Err(super::read::missing_in_query());
            }
            Err(DriverError::WrongType) => return Err(super::read::wrong_variable()),
            Err(problem) => return Err(self.error(problem)),
        };
        if let Some(error) = sink.reservation_error {
            return Err(error);
        }
        if let Some(size) = sink.too_large {
            return Err(self.too_large(uri, size, LARGER_LIMIT_HINT));
        }
        if let Some(column) = sink.missing {
            return Err(Error::failed(
                "run the query, because its result has no column of the configured name: run `libris check`",
                format!("its result has no column `{column}`"),
            ));
        }
        let configured = columns.mime().map(str::to_owned);
        let mime = configured.or_else(|| sink.mime.filter(|mime| is_media_type(mime)));
        match sink.value {
            None | Some(SqlValue::Null) => Err(Error::NotFound(uri.clone())),
            Some(SqlValue::Bytes(data)) => {
                let mime = mime.unwrap_or_else(|| detected(uri, &data).to_owned());
                let body = media::body(data, &mime);
                Ok(Content { uri: uri.clone(), mime: Some(mime), body, meta: None })
            }
            Some(value) => {
                let text = value.into_text().unwrap_or_default();
                let mime = mime.unwrap_or_else(|| detected(uri, text.as_bytes()).to_owned());
                Ok(Content { uri: uri.clone(), mime: Some(mime), body: ContentBody::Text(text), meta: None })
            }
        }
    }
}

/// The media type of contents, by the extension in their URI if that suffices, otherwise by the contents.
fn detected(uri: &Uri, data: &[u8]) -> &'static str {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    media::by_name(name).unwrap_or_else(|| media::by_content(name, data))
}
