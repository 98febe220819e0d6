//! Reads schemas, rows and queries, and completes the variables of their URIs.

use std::ops::ControlFlow;
use std::sync::Arc;

use libris_core::uri_template::Variables;
use libris_core::{
    Completion, CompletionRequest, Content, Contents, Context, Error, Meta, Proof, Result, Uri,
};

use super::catalog::{TableInfo, TableName};
use super::dialect::Dialect;
use super::driver::{self, DatabaseVersion, DriverError, QueryLimits, Statement};
use super::evidence::SqlEvidence;
use super::faults::rejected;
use super::filter::{self, FilterCompletion};
use super::output::{RowFormat, RowShape, RowWriter};
use super::rows::{RowStatements, matching};
use super::schema::SchemaDocument;
use super::value::SqlValue;
use super::{NamedTable, SqlInner, UriKind, key};
use crate::meta;
use crate::proven::Proven;

/// The default number of rows per page.
const DEFAULT_PAGE_ROWS: u64 = 100;

/// The hint for rows that are too large.
const FEWER_COLUMNS_HINT: &str = "ask for fewer columns with a configured query";

/// The largest schema of a database that a read of its folder returns, in bytes.
const MAX_FOLDER_SCHEMA: u64 = 8 * 1024;

/// The hint for a schema that is too large.
const SINGLE_TABLE_HINT: &str = "read it as Markdown, or the schemas of single tables";

/// A read of a table, its schema or its rows.
#[derive(Clone, Copy)]
struct TableRequest<'a> {
    uri: &'a Uri,
    uri_kind: UriKind,
    /// The name of the table in the URI.
    label: &'a str,
    variables: &'a Variables,
    /// The version of the database when the read began.
    version: Option<DatabaseVersion>,
}

/// The contents of a resource.
struct SqlContents {
    parts: Vec<Content>,
    /// Whether another read returns the same contents as long as the data does not change.
    is_repeatable: bool,
}

impl SqlInner {
    pub(super) async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        // Observed before the first statement, so that a change during the request makes the proof fail.
        let evidence = self.observe().await;
        match self.read_at(uri, evidence.version(), context).await {
            Ok(SqlContents { parts, is_repeatable }) => {
                let proof = if is_repeatable { evidence.data_proof() } else { evidence.unrepeatable_proof() };
                Ok(Contents::from(parts).with_freshness(self.freshness(proof)))
            }
            // A missing table or row stays missing until something is written.
            Err(error) => Err(error.with_proof(evidence.data_proof())),
        }
    }

    /// Reads a resource; `version` is the version of the database before the read.
    async fn read_at(
        &self,
        uri: &Uri,
        version: Option<DatabaseVersion>,
        context: &Context,
    ) -> Result<SqlContents> {
        let nothing = || Error::NotFound(uri.clone());
        let (_, uri_kind, variables) = self.uri_kinds.closest(uri).ok_or_else(nothing)?;
        let repeatable = |parts| SqlContents { parts, is_repeatable: true };
        Ok(match uri_kind {
            UriKind::Unknown => return Err(self.no_such_resource(uri).await),
            UriKind::Folder => repeatable(vec![self.database_folder(context).await?]),
            UriKind::Schema => repeatable(self.database(uri, &variables, context).await?),
            // A query may contain functions such as `random()`.
            UriKind::Query(at) => {
                SqlContents { parts: self.query(uri, *at, &variables, context).await?, is_repeatable: false }
            }
            UriKind::TableFolder | UriKind::TableSchema | UriKind::Rows | UriKind::Row => {
                let label = variables.text("table").ok_or_else(nothing)?;
                let request =
                    TableRequest { uri, uri_kind: *uri_kind, label, variables: &variables, version };
                match self.read_table(request, SchemaCache::Use, context).await {
                    // The table has changed since its description was cached.
                    Err(RowsFailure::Missing) => {
                        self.table_cache().clear();
                        self.read_table(request, SchemaCache::Bypass, context).await
                    }
                    other => other,
                }
                .map_err(|failure| match failure {
                    RowsFailure::Missing => nothing(),
                    RowsFailure::Error(error) => error,
                })?
            }
        })
    }

    /// Reads a resource of a table. Fails with `RowsFailure::Missing` if the cached description of the table is stale.
    async fn read_table(
        &self,
        request: TableRequest<'_>,
        cache: SchemaCache,
        context: &Context,
    ) -> Result<SqlContents, RowsFailure> {
        let TableRequest { uri, uri_kind, label, variables, version } = request;
        // A schema contains the current number of rows, so it is never made from a cached description.
        let found = match (cache, uri_kind) {
            (SchemaCache::Use, UriKind::Rows | UriKind::Row) => self.cached_table(label, version).await?,
            _ => self.load_table(label, version).await?,
        };
        let Some(table) = found else { return Err(self.no_table(uri, label).await.into()) };
        // A view may contain functions such as `random()`.
        let is_repeatable = uri_kind == UriKind::TableSchema || !table.summary.view;
        let parts = match uri_kind {
            UriKind::TableSchema => vec![self.table_schema(uri, &table, variables, context).await?],
            UriKind::Rows => vec![self.page(uri, label, &table, variables, context).await?],
            UriKind::Row => vec![self.row(uri, label, &table, variables, context).await?],
            _ => {
                let none = Variables::new();
                let schema = self.table_schema(&uri.below("schema")?, &table, &none, context).await?;
                let rows = self.page(&uri.below("rows")?, label, &table, &none, context).await?;
                vec![schema, rows]
            }
        };
        Ok(SqlContents { parts, is_repeatable })
    }

    async fn database(&self, uri: &Uri, variables: &Variables, context: &Context) -> Result<Vec<Content>> {
        let format = schema_format(variables)?;
        let tables = self.tables().await?;
        let default = self.default_schema().await?;
        let most = self.config.max_bytes;
        let text = self.document(default, context, |document| match format {
            RowFormat::Json => document.database_json(&tables, most),
            _ => Ok(document.database(&tables, most)),
        });
        match text {
            Ok(text) if text.len() as u64 <= most => {
                Ok(vec![Content::text(uri.clone(), format.mime(), text)])
            }
            Ok(text) => Err(self.too_large(uri, text.len() as u64, SINGLE_TABLE_HINT)),
            Err(size) => Err(self.too_large(uri, size, SINGLE_TABLE_HINT)),
        }
    }

    /// The schema of the database if it is small, otherwise a list of the tables: a client that looks for one table does
    /// not need the columns of all others.
    async fn database_folder(&self, context: &Context) -> Result<Content> {
        let tables = self.tables().await?;
        let most = self.config.max_bytes;
        let document = |document: &SchemaDocument<'_>| {
            let schema = document.every_table(&tables, most.min(MAX_FOLDER_SCHEMA));
            schema.ok_or_else(|| document.table_list(&tables, most))
        };
        let (uri, text) = match self.document(self.default_schema().await?, context, document) {
            Ok(schema) => (self.root.below("schema")?, schema),
            Err(list) => (self.root.clone(), list),
        };
        match text.len() as u64 {
            size if size > most => Err(self.too_large(&uri, size, SINGLE_TABLE_HINT)),
            _ => Ok(Content::text(uri, RowFormat::Markdown.mime(), text)),
        }
    }

    async fn table_schema(
        &self,
        uri: &Uri,
        table: &TableInfo,
        variables: &Variables,
        context: &Context,
    ) -> Result<Content> {
        let format = schema_format(variables)?;
        let default = self.default_schema().await?;
        let text = self.document(default, context, |document| match format {
            RowFormat::Json => format!("{:#}", document.table_json(table)),
            _ => document.table(table),
        });
        if text.len() as u64 > self.config.max_bytes {
            return Err(self.too_large(uri, text.len() as u64, "set a larger `max_bytes`"));
        }
        Ok(Content::text(uri.clone(), format.mime(), text))
    }

    fn document<T>(
        &self,
        default: &str,
        context: &Context,
        write: impl FnOnce(&SchemaDocument<'_>) -> T,
    ) -> T {
        // A caller sees a table if the access rules let the caller see the URI of its schema.
        let schema_of = |name: &TableName| Uri::parse(&format!("{}schema", self.folder(name, default))).ok();
        write(&SchemaDocument {
            name: self.config.title.as_deref().unwrap_or(&self.name),
            description: self.config.description.as_deref(),
            dialect: match self.driver.dialect().scheme() {
                "sqlite" => "SQLite",
                "postgres" => "PostgreSQL",
                _ => "MySQL",
            },
            label: &|name: &TableName| key::format_table(name, default),
            folder: &|name: &TableName| self.folder(name, default),
            definitions: self.config.tables.is_empty()
                && self.config.schemas.is_empty()
                && context.sees_everything(),
            shown: &|name: &TableName| {
                self.shows(name, default)
                    && (context.sees_everything() || schema_of(name).is_some_and(|uri| context.sees(&uri)))
            },
            included: &|name: &TableName| {
                context.sees_everything() || schema_of(name).is_some_and(|uri| context.reads(&uri))
            },
        })
    }

    fn format(&self, variables: &Variables, default: RowFormat) -> Result<RowFormat> {
        match variables.text("format").filter(|format| !format.is_empty()) {
            None => Ok(default),
            Some(name) => {
                RowFormat::parse(name).ok_or_else(|| unknown_format(name, &RowFormat::FORMAT_NAMES))
            }
        }
    }

    fn rows<'a>(&self, table: &'a TableInfo) -> RowStatements<'a> {
        RowStatements { dialect: self.driver.dialect(), table, most: self.config.max_bytes }
    }

    async fn row(
        &self,
        uri: &Uri,
        label: &str,
        table: &TableInfo,
        variables: &Variables,
        context: &Context,
    ) -> Result<Content, RowsFailure> {
        let format = self.format(variables, self.config.format)?;
        let text = variables.text("key").unwrap_or_default();
        require_key(label, table)?;
        let rows = self.rows(table);
        let statement = rows.by_key(rows.key("key", text)?);
        let writer = self.writer(format, RowShape::One, 1, &rows).with_context(context);
        let writer = self.run(uri, &statement, writer, || rejected(&table.key)).await?;
        if writer.rows == 0 {
            return Err(self.no_row(uri, label, table, text).into());
        }
        Ok(Content::text(uri.clone(), format.mime(), writer.finish(None)))
    }

    async fn page(
        &self,
        uri: &Uri,
        label: &str,
        table: &TableInfo,
        variables: &Variables,
        context: &Context,
    ) -> Result<Content, RowsFailure> {
        let format = self.format(variables, self.config.format)?;
        let rows = self.rows(table);
        let limit = match variables.text("limit").filter(|limit| !limit.is_empty()) {
            None => DEFAULT_PAGE_ROWS.min(self.config.max_rows),
            Some(limit) => match limit.parse() {
                Ok(0) | Err(_) => {
                    return Err(super::rows::wrong_type("limit", "a whole number from 1 on", limit).into());
                }
                Ok(limit) => self.config.max_rows.min(limit),
            },
        };
        let after = match variables.text("after").filter(|after| !after.is_empty()) {
            None => None,
            Some(after) => {
                require_key(label, table)?;
                Some(rows.key("after", after)?)
            }
        };
        let filters = filter::parse(&rows, label, &filter::from_variables(variables))?;
        let columns: Vec<_> = table.key.iter().chain(filters.iter().map(|filter| filter.column)).collect();
        let statement = rows.page(filters, after, limit);
        let writer = self.writer(format, RowShape::Many, limit, &rows).with_context(context);
        let writer = self.run(uri, &statement, writer, || rejected(columns)).await?;
        let next = match writer.more.then(|| rows.key_text(&writer.last)).flatten() {
            None => None,
            Some(last) => Some(self.next(uri, &last, variables)?),
        };
        let meta = next.as_ref().map(|next| meta::with(meta::NEXT, next.as_str()));
        let more = writer.more.then(more);
        let text = writer.finish(next.as_ref());
        Ok(Content { meta: meta.or(more), ..Content::text(uri.clone(), format.mime(), text) })
    }

    /// The URI of the page after the row with this key.
    fn next(&self, uri: &Uri, last: &str, variables: &Variables) -> Result<Uri> {
        let mut next = format!("{}?", uri.without_query());
        for (name, value) in filter::from_variables(variables) {
            next.push_str(&format!("{}={}&", key::segment(&name), key::segment(&value)));
        }
        next.push_str(&format!("after={}", key::segment(last)));
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
        if let Some(columns) = &query.contents {
            return Ok(vec![self.contents(uri, at, columns, variables, context).await?]);
        }
        let format = self.format(variables, query.format)?;
        let rows = if query.shape() == RowShape::One { 1 } else { self.config.max_rows };
        let bounds = QueryLimits { rows: rows + 1, bytes: self.config.max_bytes, ordered: false };
        let statement = query.statement(self.driver.dialect(), variables, bounds)?;
        let writer = RowWriter::new(format, query.shape(), rows, self.config.max_bytes).with_context(context);
        let writer = match self.run(uri, &statement, writer, wrong_variable).await {
            Ok(writer) => writer,
            Err(RowsFailure::Error(error)) => return Err(error),
            Err(RowsFailure::Missing) => return Err(missing_in_query()),
        };
        if query.shape() == RowShape::One && writer.rows == 0 {
            return Err(Error::NotFound(uri.clone()));
        }
        let meta = (writer.more && query.shape() == RowShape::Many).then(more);
        let text = writer.finish(None);
        Ok(vec![Content { meta, ..Content::text(uri.clone(), format.mime(), text) }])
    }

    fn writer(&self, format: RowFormat, shape: RowShape, limit: u64, rows: &RowStatements<'_>) -> RowWriter {
        let names = rows.table.columns.iter().map(|column| column.name.clone()).collect();
        RowWriter::new(format, shape, limit, self.config.max_bytes).with_columns(names, rows.key_values())
    }

    /// Runs a statement and writes its rows. `wrong_value` makes the error for a value that the database rejects.
    async fn run(
        &self,
        uri: &Uri,
        statement: &Statement,
        writer: RowWriter,
        wrong_value: impl FnOnce() -> Error,
    ) -> Result<RowWriter, RowsFailure> {
        let mut writer = match driver::run(&*self.driver, statement, writer).await {
            Ok(writer) => writer,
            Err(DriverError::Missing(cause)) => {
                tracing::warn!(%uri, %cause, "a table or column does not exist");
                return Err(RowsFailure::Missing);
            }
            Err(DriverError::WrongType) => return Err(wrong_value().into()),
            Err(problem) => return Err(self.error(problem).into()),
        };
        if let Some(reservation_error) = writer.reservation_error.take() {
            return Err(reservation_error.into());
        }
        match writer.too_large {
            Some(size) => Err(self.too_large(uri, size, FEWER_COLUMNS_HINT).into()),
            None => Ok(writer),
        }
    }

    pub(super) fn too_large(&self, uri: &Uri, size: u64, hint: &str) -> Error {
        Error::TooLarge { uri: uri.clone(), size, limit: self.config.max_bytes, hint: Some(hint.to_owned()) }
    }

    pub(super) async fn complete(&self, asked: CompletionRequest<'_>) -> Result<Completion> {
        let Some(uri_kind) = self.uri_kinds.get(asked.template).copied() else {
            return Ok(Completion::default());
        };
        if asked.variable == "format"
            && !matches!(uri_kind, UriKind::Query(at) if self.completes(at, "format"))
        {
            let names = match uri_kind {
                UriKind::TableSchema | UriKind::Schema => &["markdown", "json"][..],
                _ => &RowFormat::FORMAT_NAMES,
            };
            let completion = Completion::of(names.iter().copied(), asked.typed, asked.limit);
            return Ok(completion.with_proof(Proof::always()));
        }
        let evidence = self.observe().await;
        let version = evidence.version();
        let completion = match (uri_kind, asked.variable) {
            // A query may contain functions such as `random()`.
            (UriKind::Query(at), _) => {
                let completion = self.complete_query(at, asked).await?;
                return Ok(completion.with_proof(evidence.unrepeatable_proof()));
            }
            (_, "table") => return self.complete_table(uri_kind, asked, &evidence).await,
            (UriKind::Row, "key") | (UriKind::Rows, "after") => {
                let Some(label) = asked.known.get("table") else { return Ok(Completion::default()) };
                match self.cached_table(label, version).await? {
                    Some(table) => self.complete_key(&table, asked).await,
                    None => Ok(Completion::default()),
                }
            }
            (UriKind::Rows, filter::VARIABLE) => {
                let Some(label) = asked.known.get("table") else { return Ok(Completion::default()) };
                match self.cached_table(label, version).await? {
                    Some(table) => self.complete_filter(&table, asked).await,
                    None => Ok(Completion::default()),
                }
            }
            _ => Ok(Completion::default()),
        };
        Ok(completion?.with_proof(evidence.data_proof()))
    }

    /// Whether a completion query is configured for this variable of a query.
    fn completes(&self, at: usize, variable: &str) -> bool {
        let bounds = QueryLimits { rows: 1, bytes: 1, ordered: false };
        let none = std::collections::BTreeMap::new();
        self.queries[at].completion(self.driver.dialect(), variable, "", &none, bounds).is_some()
    }

    async fn complete_table(
        &self,
        uri_kind: UriKind,
        asked: CompletionRequest<'_>,
        evidence: &SqlEvidence,
    ) -> Result<Completion> {
        let names = match self.table_names.get() {
            Some(names) => names,
            None => {
                let names = self.load_table_names(evidence).await?;
                self.table_names.set(&names);
                names
            }
        };
        // Views have no keys.
        let named = names.value.iter().filter(|named| uri_kind != UriKind::Row || !named.is_view);
        let completion = Completion::of(named.map(|named| &named.name), asked.typed, asked.limit);
        Ok(completion.with_proof(names.proof))
    }

    async fn load_table_names(&self, evidence: &SqlEvidence) -> Result<Proven<Vec<NamedTable>>> {
        let default = self.default_schema().await?;
        let summaries = self.summaries().await?;
        let named = summaries.iter().map(|summary| NamedTable {
            name: key::format_table(&summary.name, default),
            is_view: summary.view,
        });
        Ok(Proven { value: Arc::new(named.collect()), proof: evidence.schema_proof() })
    }

    async fn complete_key(&self, table: &Arc<TableInfo>, asked: CompletionRequest<'_>) -> Result<Completion> {
        if table.key.is_empty() {
            return Ok(Completion::default());
        }
        let rows = self.rows(table);
        let mut keys = CompletionSink::new(self.config.max_bytes, asked.limit);
        keys.table = Some((rows.dialect, Arc::clone(table)));
        for statement in rows.keys(asked.typed, asked.limit) {
            keys = match driver::run(&*self.driver, &statement, keys.clone()).await {
                Ok(more) => more,
                Err(DriverError::WrongType) => keys,
                Err(problem) => return Err(self.error(problem)),
            };
            if keys.truncated || keys.values.len() > asked.limit {
                keys.truncated = true;
                break;
            }
        }
        Ok(matching(keys.values, asked, keys.truncated))
    }

    async fn complete_filter(
        &self,
        table: &Arc<TableInfo>,
        asked: CompletionRequest<'_>,
    ) -> Result<Completion> {
        match filter::complete(table, asked.typed) {
            FilterCompletion::Texts(texts) => Ok(Completion::of(texts, asked.typed, asked.limit)),
            FilterCompletion::Key(typed) => {
                let column = &asked.typed[..asked.typed.len() - typed.len()];
                let mut completion = self.complete_key(table, CompletionRequest { typed, ..asked }).await?;
                completion.values.iter_mut().for_each(|value| value.insert_str(0, column));
                Ok(completion)
            }
        }
    }

    async fn complete_query(&self, at: usize, asked: CompletionRequest<'_>) -> Result<Completion> {
        // Ten times the limit, because values that do not begin with the typed text are dropped. One more row shows
        // whether there are more.
        let rows = asked.limit as u64 * 10 + 1;
        let bounds = QueryLimits { rows, bytes: self.config.max_bytes, ordered: false };
        let dialect = self.driver.dialect();
        let statement =
            self.queries[at].completion(dialect, asked.variable, asked.typed, asked.known, bounds);
        let Some(statement) = statement else { return Ok(Completion::default()) };
        let offered = CompletionSink::new(self.config.max_bytes, asked.limit);
        let offered = driver::run(&*self.driver, &statement?, offered).await;
        let offered = offered.map_err(|problem| self.error(problem))?;
        Ok(matching(offered.values, asked, offered.truncated))
    }
}

/// A sink for completions, up to `budget` bytes in total.
#[derive(Clone)]
struct CompletionSink {
    values: Vec<String>,
    /// If given, each row is a key of this table. Otherwise the first value of a row is the completion.
    table: Option<(Dialect, Arc<TableInfo>)>,
    /// The number of bytes that may still be collected.
    budget: u64,
    /// The maximum number of values to collect.
    most: usize,
    /// Whether values were left out.
    truncated: bool,
}

impl CompletionSink {
    fn new(budget: u64, limit: usize) -> Self {
        Self { values: Vec::new(), table: None, budget, most: limit.saturating_mul(10), truncated: false }
    }
}

impl driver::RowSink for CompletionSink {
    fn columns(&mut self, _names: Vec<String>) {}

    fn row(&mut self, row: Vec<SqlValue>) -> ControlFlow<()> {
        let value = match &self.table {
            None => row.into_iter().next().and_then(SqlValue::into_text),
            Some((dialect, table)) => {
                RowStatements { dialect: *dialect, table, most: self.budget }.key_text(&row)
            }
        };
        let size = value.as_ref().map_or(0, String::len) as u64;
        if size > self.budget || self.values.len() >= self.most {
            self.truncated = true;
            return ControlFlow::Break(());
        }
        self.budget -= size;
        self.values.extend(value);
        ControlFlow::Continue(())
    }

    fn oversized(&mut self, _size: u64) {
        self.truncated = true;
    }
}

/// Whether a cached description of a table may be used.
#[derive(Clone, Copy)]
enum SchemaCache {
    Use,
    Bypass,
}

/// Why rows could not be read.
enum RowsFailure {
    /// A table or column does not exist, for example because the cached description is stale.
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

/// Fails if the table has no key.
fn require_key(label: &str, table: &TableInfo) -> Result<()> {
    match table.key.is_empty() {
        true => Err(Error::invalid(format!(
            "`{label}` has no key to find a row by: read its first rows, or configure a query"
        ))),
        false => Ok(()),
    }
}

/// The error for a value of a variable that the database rejects.
pub(super) fn wrong_variable() -> Error {
    Error::invalid("the database rejects the value of a variable: check its type")
}

/// The error for a configured query that names a missing table or column.
pub(super) fn missing_in_query() -> Error {
    Error::failed(
        "run the query, because the database has no such table or column: run `libris check`",
        "the log has the error of the database",
    )
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
    super::rows::wrong_type("format", &format!("one of {}", known.join(", ")), name)
}
