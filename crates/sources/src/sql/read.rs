//! Reads schemas, rows and queries, and completes the variables of their URIs.

use std::ops::ControlFlow;
use std::sync::Arc;

use libris_core::uri_template::Variables;
use libris_core::{Completion, Content, Contents, Context, Error, Meta, Partial, Result, Uri};

use super::catalog::{TableInfo, TableName};
use super::driver::{self, Bounds, DriverError, Statement};
use super::output::{RowFormat, RowShape, RowWriter};
use super::rows::{Rows, matching, written};
use super::schema::SchemaDocument;
use super::value::Cell;
use super::{Inner, UriKind, key};
use crate::meta;

/// The default number of rows per page.
const PAGE: u64 = 100;

/// The hint for rows that are too large.
const FEWER: &str = "ask for fewer columns with a configured query";

/// The hint for a schema that is too large.
const TABLES: &str = "read it as Markdown, or the schemas of single tables";

impl Inner {
    pub(super) async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let nothing = || Error::NotFound(uri.clone());
        let (_, place, variables) = self.places.closest(uri).ok_or_else(nothing)?;
        let content = match place {
            UriKind::Folder => self.database(&self.root.below("schema")?, &Variables::new()).await?,
            UriKind::Schema => self.database(uri, &variables).await?,
            UriKind::Query(at) => self.query(uri, *at, &variables, context).await?,
            UriKind::TableFolder | UriKind::TableSchema | UriKind::Rows | UriKind::Row => {
                let label = variables.text("table").ok_or_else(nothing)?;
                match self.of_table(uri, *place, label, &variables, Trust::Known, context).await {
                    // The table has changed since its description was cached.
                    Err(RowsFailure::Missing) => {
                        self.known().clear();
                        self.of_table(uri, *place, label, &variables, Trust::Nothing, context).await
                    }
                    other => other,
                }
                .map_err(|failure| match failure {
                    RowsFailure::Missing => nothing(),
                    RowsFailure::Error(error) => error,
                })?
            }
        };
        Ok(Contents::from(content).with_freshness(self.freshness(None)))
    }

    async fn of_table(
        &self,
        uri: &Uri,
        place: UriKind,
        label: &str,
        variables: &Variables,
        trust: Trust,
        context: &Context,
    ) -> Result<Vec<Content>, RowsFailure> {
        // Schemas are never cached.
        let found = match (trust, place) {
            (Trust::Known, UriKind::Rows | UriKind::Row) => self.known_table(label).await?,
            _ => self.table(label).await?,
        };
        let table = found.ok_or_else(|| Error::NotFound(uri.clone()))?;
        match place {
            UriKind::TableSchema => Ok(vec![self.table_schema(uri, &table, variables).await?]),
            UriKind::Rows => Ok(vec![self.page(uri, &table, variables, context).await?]),
            UriKind::Row => Ok(vec![self.row(uri, &table, variables, context).await?]),
            _ => {
                let none = Variables::new();
                let schema = self.table_schema(&uri.below("schema")?, &table, &none).await?;
                let rows = self.page(&uri.below("rows")?, &table, &none, context).await?;
                Ok(vec![schema, rows])
            }
        }
    }

    async fn database(&self, uri: &Uri, variables: &Variables) -> Result<Vec<Content>> {
        let format = schema_format(variables)?;
        let tables = self.tables().await?;
        let default = self.default_schema().await?;
        let most = self.config.max_bytes;
        let text = self.document(default, |document| match format {
            RowFormat::Json => document.database_json(&tables, most),
            _ => Ok(document.database(&tables, most)),
        });
        match text {
            Ok(text) if text.len() as u64 <= most => {
                Ok(vec![Content::text(uri.clone(), format.mime(), text)])
            }
            Ok(text) => Err(self.too_large(uri, text.len() as u64, TABLES)),
            Err(size) => Err(self.too_large(uri, size, TABLES)),
        }
    }

    async fn table_schema(&self, uri: &Uri, table: &TableInfo, variables: &Variables) -> Result<Content> {
        let format = schema_format(variables)?;
        let default = self.default_schema().await?;
        let text = self.document(default, |document| match format {
            RowFormat::Json => format!("{:#}", document.table_json(table)),
            _ => document.table(table),
        });
        if text.len() as u64 > self.config.max_bytes {
            return Err(self.too_large(uri, text.len() as u64, "set a larger `max_bytes`"));
        }
        Ok(Content::text(uri.clone(), format.mime(), text))
    }

    fn document<T>(&self, default: &str, write: impl FnOnce(&SchemaDocument<'_>) -> T) -> T {
        write(&SchemaDocument {
            name: self.config.title.as_deref().unwrap_or(&self.name),
            description: self.config.description.as_deref(),
            dialect: match self.driver.dialect().scheme() {
                "sqlite" => "SQLite",
                "postgres" => "PostgreSQL",
                _ => "MySQL",
            },
            label: &|name: &TableName| key::label(name, default),
            folder: &|name: &TableName| self.folder(name, default),
            shown: &|name: &TableName| self.shows(name, default),
        })
    }

    fn format(&self, variables: &Variables, default: RowFormat) -> Result<RowFormat> {
        match variables.text("format").filter(|format| !format.is_empty()) {
            None => Ok(default),
            Some(name) => RowFormat::parse(name).ok_or_else(|| unknown_format(name, &RowFormat::NAMES)),
        }
    }

    fn rows<'a>(&self, table: &'a TableInfo) -> Rows<'a> {
        Rows { dialect: self.driver.dialect(), table, most: self.config.max_bytes }
    }

    async fn row(
        &self,
        uri: &Uri,
        table: &TableInfo,
        variables: &Variables,
        context: &Context,
    ) -> Result<Content, RowsFailure> {
        let format = self.format(variables, self.config.format)?;
        let text = variables.text("key").unwrap_or_default();
        keyed(table)?;
        let key = key::read("key", text, table.key.len())?;
        let statement = self.rows(table).one(&key)?;
        let writer = self.writer(format, RowShape::One, 1, table).within(context);
        let writer = self.run(uri, &statement, writer).await?;
        if writer.rows == 0 {
            return Err(Error::NotFound(uri.clone()).into());
        }
        Ok(Content::text(uri.clone(), format.mime(), writer.finish(None)))
    }

    async fn page(
        &self,
        uri: &Uri,
        table: &TableInfo,
        variables: &Variables,
        context: &Context,
    ) -> Result<Content, RowsFailure> {
        let format = self.format(variables, self.config.format)?;
        let limit = match variables.text("limit").filter(|limit| !limit.is_empty()) {
            None => PAGE.min(self.config.max_rows),
            Some(limit) => match limit.parse() {
                Ok(0) | Err(_) => {
                    return Err(super::rows::unfit("limit", "a whole number from 1 on", limit).into());
                }
                Ok(limit) => self.config.max_rows.min(limit),
            },
        };
        let after = match variables.text("after").filter(|after| !after.is_empty()) {
            None => None,
            Some(after) => {
                keyed(table)?;
                Some(key::read("after", after, table.key.len())?)
            }
        };
        let statement = self.rows(table).page(after.as_deref(), limit)?;
        let writer = self.writer(format, RowShape::Many, limit, table).within(context);
        let writer = self.run(uri, &statement, writer).await?;
        let next = match writer.more.then(|| written(&writer.last)).flatten() {
            None => None,
            Some(last) => Some(self.next(uri, &last, variables)?),
        };
        let meta = next.as_ref().map(|next| meta::with(meta::NEXT, next.as_str()));
        let more = writer.more.then(more);
        let text = writer.finish(next.as_ref());
        Ok(Content { meta: meta.or(more), ..Content::text(uri.clone(), format.mime(), text) })
    }

    /// The page after the row with this key.
    fn next(&self, uri: &Uri, last: &str, variables: &Variables) -> Result<Uri> {
        let mut next = format!("{}?after={}", uri.without_query(), key::segment(last));
        for name in ["limit", "format"] {
            if let Some(value) = variables.text(name).filter(|value| !value.is_empty()) {
                next.push_str(&format!("&{name}={}", key::segment(value)));
            }
        }
        Uri::parse(&next)
    }

    async fn query(
        &self,
        uri: &Uri,
        at: usize,
        variables: &Variables,
        context: &Context,
    ) -> Result<Vec<Content>> {
        let query = &self.queries[at];
        let format = self.format(variables, query.format)?;
        let rows = if query.shape() == RowShape::One { 1 } else { self.config.max_rows };
        let bounds = Bounds { rows: rows + 1, bytes: self.config.max_bytes, ordered: false };
        let statement = query.statement(self.driver.dialect(), variables, bounds)?;
        let writer = RowWriter::new(format, query.shape(), rows, self.config.max_bytes).within(context);
        let writer = match self.run(uri, &statement, writer).await {
            Ok(writer) => writer,
            Err(RowsFailure::Error(error)) => return Err(error),
            Err(RowsFailure::Missing) => {
                return Err(Error::failed(
                    "ask the database",
                    "a table or column of the query does not exist",
                ));
            }
        };
        if query.shape() == RowShape::One && writer.rows == 0 {
            return Err(Error::NotFound(uri.clone()));
        }
        let meta = (writer.more && query.shape() == RowShape::Many).then(more);
        let text = writer.finish(None);
        Ok(vec![Content { meta, ..Content::text(uri.clone(), format.mime(), text) }])
    }

    fn writer(&self, format: RowFormat, shape: RowShape, limit: u64, table: &TableInfo) -> RowWriter {
        let names = table.columns.iter().map(|column| column.name.clone()).collect();
        RowWriter::new(format, shape, limit, self.config.max_bytes).named(names, table.key.len())
    }

    async fn run(
        &self,
        uri: &Uri,
        statement: &Statement,
        writer: RowWriter,
    ) -> Result<RowWriter, RowsFailure> {
        let mut writer = match driver::run(&*self.driver, statement, writer).await {
            Ok(writer) => writer,
            Err(DriverError::Missing(cause)) => {
                tracing::warn!(%uri, %cause, "a table or column is not there");
                return Err(RowsFailure::Missing);
            }
            Err(problem) => return Err(self.error(problem).into()),
        };
        if let Some(refused) = writer.refused.take() {
            return Err(refused.into());
        }
        match writer.large {
            Some(size) => Err(self.too_large(uri, size, FEWER).into()),
            None => Ok(writer),
        }
    }

    fn too_large(&self, uri: &Uri, size: u64, hint: &str) -> Error {
        Error::TooLarge { uri: uri.clone(), size, limit: self.config.max_bytes, hint: Some(hint.to_owned()) }
    }

    pub(super) async fn complete(&self, asked: Partial<'_>) -> Result<Completion> {
        let Some(place) = self.places.get(asked.template).copied() else { return Ok(Completion::default()) };
        if asked.variable == "format" && !matches!(place, UriKind::Query(at) if self.completes(at, "format"))
        {
            let names = match place {
                UriKind::TableSchema | UriKind::Schema => &["markdown", "json"][..],
                _ => &RowFormat::NAMES,
            };
            return Ok(Completion::of(names.iter().copied(), asked.typed, asked.limit));
        }
        match (place, asked.variable) {
            (UriKind::Query(at), _) => self.complete_query(at, asked).await,
            (_, "table") => self.complete_table(place, asked).await,
            (UriKind::Row, "key") | (UriKind::Rows, "after") => {
                let Some(label) = asked.known.get("table") else { return Ok(Completion::default()) };
                match self.known_table(label).await? {
                    Some(table) => self.complete_key(&table, asked).await,
                    None => Ok(Completion::default()),
                }
            }
            _ => Ok(Completion::default()),
        }
    }

    fn completes(&self, at: usize, variable: &str) -> bool {
        let bounds = Bounds { rows: 1, bytes: 1, ordered: false };
        let none = std::collections::BTreeMap::new();
        self.queries[at].completion(self.driver.dialect(), variable, "", &none, bounds).is_some()
    }

    async fn complete_table(&self, place: UriKind, asked: Partial<'_>) -> Result<Completion> {
        let default = self.default_schema().await?;
        let summaries = self.summaries().await?;
        // Views have no keys.
        let named = summaries.iter().filter(|summary| place != UriKind::Row || !summary.view);
        Ok(Completion::of(named.map(|summary| key::label(&summary.name, default)), asked.typed, asked.limit))
    }

    async fn complete_key(&self, table: &Arc<TableInfo>, asked: Partial<'_>) -> Result<Completion> {
        if table.key.is_empty() {
            return Ok(Completion::default());
        }
        let mut keys = CompletionSink::new(self.config.max_bytes, asked.limit);
        for statement in self.rows(table).keys(asked.typed, asked.limit) {
            keys = match driver::run(&*self.driver, &statement, keys.clone()).await {
                Ok(more) => more,
                Err(DriverError::Value) => keys,
                Err(problem) => return Err(self.error(problem)),
            };
            if keys.cut || keys.values.len() > asked.limit {
                keys.cut = true;
                break;
            }
        }
        Ok(matching(keys.values, asked, keys.cut))
    }

    async fn complete_query(&self, at: usize, asked: Partial<'_>) -> Result<Completion> {
        // One more row shows whether there are more.
        let rows = asked.limit as u64 * 10 + 1;
        let bounds = Bounds { rows, bytes: self.config.max_bytes, ordered: false };
        let dialect = self.driver.dialect();
        let statement =
            self.queries[at].completion(dialect, asked.variable, asked.typed, asked.known, bounds);
        let Some(statement) = statement else { return Ok(Completion::default()) };
        let offered =
            CompletionSink { first: true, ..CompletionSink::new(self.config.max_bytes, asked.limit) };
        let offered = driver::run(&*self.driver, &statement?, offered).await;
        let offered = offered.map_err(|problem| self.error(problem))?;
        Ok(matching(offered.values, asked, offered.cut))
    }
}

/// A sink for completions, up to `budget` bytes in total.
#[derive(Clone)]
struct CompletionSink {
    values: Vec<String>,
    /// Whether only the first value of each row counts, rather than all as a key.
    first: bool,
    budget: u64,
    /// The most values to collect.
    most: usize,
    /// Whether values were left out.
    cut: bool,
}

impl CompletionSink {
    fn new(budget: u64, limit: usize) -> Self {
        Self { values: Vec::new(), first: false, budget, most: limit.saturating_mul(10), cut: false }
    }
}

impl driver::Sink for CompletionSink {
    fn columns(&mut self, _names: Vec<String>) {}

    fn row(&mut self, row: Vec<Cell>) -> ControlFlow<()> {
        let value = match self.first {
            true => row.into_iter().next().and_then(Cell::into_text),
            false => written(&row.into_iter().map(Cell::into_text).collect::<Vec<_>>()),
        };
        let size = value.as_ref().map_or(0, String::len) as u64;
        if size > self.budget || self.values.len() >= self.most {
            self.cut = true;
            return ControlFlow::Break(());
        }
        self.budget -= size;
        self.values.extend(value);
        ControlFlow::Continue(())
    }

    fn oversized(&mut self, _size: u64) {
        self.cut = true;
    }
}

/// Whether a cached description of a table may be used.
#[derive(Clone, Copy)]
enum Trust {
    Known,
    Nothing,
}

/// Why rows could not be read.
enum RowsFailure {
    /// A table or column does not exist: the cached description is stale.
    Missing,
    Error(Error),
}

impl From<Error> for RowsFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn more() -> Meta {
    meta::with(meta::MORE, true)
}

fn keyed(table: &TableInfo) -> Result<()> {
    match table.key.is_empty() {
        true => Err(Error::invalid("this table or view has no key: read its first rows")),
        false => Ok(()),
    }
}

fn schema_format(variables: &Variables) -> Result<RowFormat> {
    match variables.text("format").unwrap_or_default() {
        "" | "markdown" => Ok(RowFormat::Markdown),
        "json" => Ok(RowFormat::Json),
        other => Err(unknown_format(other, &["markdown", "json"])),
    }
}

fn unknown_format(name: &str, known: &[&str]) -> Error {
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    super::rows::unfit("format", &format!("one of {}", known.join(", ")), name)
}
