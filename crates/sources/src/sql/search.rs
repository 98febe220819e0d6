//! Full-text search by the database itself: FTS5 tables of SQLite, and tables of PostgreSQL with a full-text index.
//!
//! Libris's own search index covers only listed resources, and rows are not listed.

mod query;

use libris_core::{Context, Result, SearchAnswer, SearchHit, SearchQuery, Uri};

use super::catalog::{TableInfo, TableName};
use super::dialect::Dialect;
use super::driver::{self, DriverError, Statement};
use super::rows::{RowStatements, key_kind};
use super::value::{BindValue, SqlValue, ValueType};
use super::{SqlInner, key};
use query::FullTextQuery;

/// The maximum number of tables with a full-text index that are searched.
const MAX_TABLES: usize = 16;

/// The maximum number of rows that are fetched per table. Rows that are hidden from the caller count too; they are left
/// out afterwards.
const MAX_ROWS: usize = 500;

/// The maximum number of characters of a row that PostgreSQL makes an excerpt from.
const MAX_EXCERPT_SOURCE: usize = 5000;

/// A table that the database can search.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FullTextTable {
    /// The table that is searched.
    name: TableName,
    /// For an FTS5 table with external content: the name of the content table, and the name of the column of the
    /// content table that equals the `rowid` of the FTS5 table.
    content: Option<(String, String)>,
}

/// A row that the database found.
struct FoundRow {
    /// The key as in its URI.
    key: String,
    excerpt: Option<String>,
}

impl SqlInner {
    /// Searches up to [`MAX_TABLES`] visible tables with a full-text index; `None` if the query has no words or no
    /// table can be searched. Tables whose search fails are left out; if there are no others, the error is returned.
    pub(super) async fn search(
        &self,
        query: &SearchQuery,
        context: &Context,
    ) -> Result<Option<SearchAnswer>> {
        let Some(words) = FullTextQuery::parse(&query.text) else { return Ok(None) };
        let tables = self.full_text_tables().await?;
        let mut found: Vec<Vec<SearchHit>> = Vec::new();
        let mut failure = None;
        for table in tables {
            match self.search_table(&table, &words, query, context).await {
                Ok(hits) => found.extend(hits),
                Err(error) => {
                    tracing::debug!(%error, table = table.name.table, "a table cannot be searched");
                    failure = Some(error);
                }
            }
        }
        match (found.is_empty(), failure) {
            (true, Some(error)) => return Err(error),
            (true, None) => return Ok(None),
            (false, _) => {}
        }
        // Scores of different tables are not comparable, so their hits are interleaved.
        let total = found.iter().map(Vec::len).sum();
        let most = found.iter().map(Vec::len).max().unwrap_or_default();
        let mut found: Vec<_> = found.into_iter().map(Vec::into_iter).collect();
        let mut hits = Vec::new();
        for _ in 0..most {
            hits.extend(found.iter_mut().filter_map(Iterator::next));
        }
        hits.truncate(query.limit);
        Ok(Some(SearchAnswer { hits, total, ..SearchAnswer::default() }))
    }

    /// The first [`MAX_TABLES`] visible tables that the database can search.
    async fn full_text_tables(&self) -> Result<Vec<FullTextTable>> {
        let default = self.default_schema().await?;
        let sql = match self.driver.dialect() {
            Dialect::Sqlite => {
                "SELECT 'main', name, sql FROM main.sqlite_schema
                 WHERE type = 'table' AND sql LIKE 'create virtual table%' ORDER BY name"
            }
            Dialect::Postgres => {
                "SELECT n.nspname::text, c.relname::text, NULL
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition AND n.nspname !~ '^pg_'
                 AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
                 AND EXISTS (SELECT FROM pg_catalog.pg_index x JOIN pg_catalog.pg_opclass o
                             ON o.oid = ANY (x.indclass::oid[])
                             WHERE x.indrelid = c.oid AND x.indisvalid
                             AND o.opcintype = 'pg_catalog.tsvector'::regtype)
                 ORDER BY 1, 2"
            }
            Dialect::Mysql => return Ok(Vec::new()),
        };
        let statement = Statement::new(sql.to_owned(), Vec::new());
        let rows = driver::collect(&*self.driver, &statement).await.map_err(|problem| self.error(problem))?;
        let tables = rows.iter().filter_map(|row| {
            let name = TableName { schema: row[0].to_text_lossy(), table: row[1].to_text_lossy() };
            match self.driver.dialect() {
                Dialect::Sqlite => fts5(name, &row[2].to_text_lossy()),
                _ => Some(FullTextTable { name, content: None }),
            }
        });
        let shown = |table: &FullTextTable| {
            let content = table
                .content
                .as_ref()
                .map(|(content, _)| TableName { schema: table.name.schema.clone(), table: content.clone() });
            self.shows(&table.name, default) || content.is_some_and(|content| self.shows(&content, default))
        };
        Ok(tables.filter(shown).take(MAX_TABLES).collect())
    }

    /// The rows of a table that match and that the caller may see, best first; `None` if the rows have no URIs or the
    /// user of the database may not read the full-text index.
    async fn search_table(
        &self,
        searched: &FullTextTable,
        words: &FullTextQuery,
        query: &SearchQuery,
        context: &Context,
    ) -> Result<Option<Vec<SearchHit>>> {
        let default = self.default_schema().await?;
        let dialect = self.driver.dialect();
        let (target, statement) = match dialect {
            Dialect::Sqlite => {
                let Some(target) = self.row_table(searched).await? else { return Ok(None) };
                (target, sqlite_statement(&searched.name, words))
            }
            _ => {
                let Some(table) =
                    self.cached_table(&key::format_table(&searched.name, default), None).await?
                else {
                    return Ok(None);
                };
                let Some(statement) = postgres_statement(&table, words) else { return Ok(None) };
                (table, statement)
            }
        };
        let rows = driver::collect(&*self.driver, &statement)
            .await
            .map_err(|problem: DriverError| self.error(problem))?;
        let statements = RowStatements { dialect, table: &target, most: self.config.max_bytes };
        let label = key::format_table(target.name(), default);
        let folder = self.folder(target.name(), default);
        let mut hits = Vec::new();
        for row in rows {
            let Some(row) = found_row(&statements, row) else { continue };
            let Ok(uri) = Uri::parse(&format!("{folder}rows/{}", key::segment(&row.key))) else { continue };
            if !context.sees(&uri)
                || query.uri_prefix.as_ref().is_some_and(|prefix| !uri.as_str().starts_with(prefix))
            {
                continue;
            }
            hits.push(SearchHit {
                uri: uri.as_str().to_owned(),
                title: Some(format!("Row {} of {label}", row.key)),
                name: row.key,
                description: row.excerpt,
                mime: Some(self.config.format.mime().to_owned()),
                ..SearchHit::default()
            });
        }
        Ok(Some(hits))
    }

    /// The table whose row URIs represent the hits in a full-text table of SQLite. This is the external content
    /// table if its key is the `rowid` of the hit, otherwise the full-text table itself. `None` if neither has
    /// such a key.
    async fn row_table(&self, searched: &FullTextTable) -> Result<Option<std::sync::Arc<TableInfo>>> {
        let default = self.default_schema().await?;
        if let Some((content, row_id)) = &searched.content {
            let name = TableName { schema: searched.name.schema.clone(), table: content.clone() };
            let table = self.cached_table(&key::format_table(&name, default), None).await?;
            if let Some(table) = table.filter(|table| is_identified_by(table, row_id)) {
                return Ok(Some(table));
            }
        }
        let table = self.cached_table(&key::format_table(&searched.name, default), None).await?;
        Ok(table.filter(|table| is_identified_by(table, "rowid")))
    }
}

/// Whether the key of a SQLite table equals its column `row_id`, because both are the `rowid` or an alias of it.
fn is_identified_by(table: &TableInfo, row_id: &str) -> bool {
    let [column] = &table.key[..] else { return false };
    let is_alias = table.primary && column.declared.eq_ignore_ascii_case("integer");
    let is_row_id =
        |name: &str| ["rowid", "_rowid_", "oid"].iter().any(|known| name.eq_ignore_ascii_case(known));
    column.name.eq_ignore_ascii_case(row_id) && (is_alias || is_row_id(&column.name))
        || is_row_id(row_id) && is_alias
}

/// Converts a row of [`sqlite_statement`] or [`postgres_statement`].
fn found_row(statements: &RowStatements<'_>, mut row: Vec<SqlValue>) -> Option<FoundRow> {
    let excerpt = row.pop()?.text().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let excerpt = excerpt.filter(|text| !text.is_empty());
    let key = match statements.dialect {
        Dialect::Sqlite => row.first()?.text()?,
        _ => statements.key_text(&row)?,
    };
    Some(FoundRow { key, excerpt })
}

/// The full-text table that a statement created; `None` if the table does not use FTS5, or is contentless.
fn fts5(name: TableName, sql: &str) -> Option<FullTextTable> {
    let (head, options) = sql.split_once('(')?;
    let module = head.split_whitespace().next_back()?;
    if !module.eq_ignore_ascii_case("fts5") {
        return None;
    }
    let option = |wanted: &str| {
        options.trim_end_matches(')').split(',').find_map(|option| {
            let (key, value) = option.split_once('=')?;
            let value = value.trim().trim_matches(['\'', '"', '[', ']', '`']);
            key.trim().eq_ignore_ascii_case(wanted).then(|| value.to_owned())
        })
    };
    let content = match option("content") {
        // A contentless table: there is no text to read.
        Some(content) if content.is_empty() => return None,
        Some(content) => Some((content, option("content_rowid").unwrap_or_else(|| "rowid".to_owned()))),
        None => None,
    };
    Some(FullTextTable { name, content })
}

/// Selects the `rowid` and an excerpt of the matching rows.
fn sqlite_statement(name: &TableName, words: &FullTextQuery) -> Statement {
    let (schema, table) = (Dialect::Sqlite.quote(&name.schema), Dialect::Sqlite.quote(&name.table));
    let sql = format!(
        "SELECT rowid, snippet({table}, -1, '', '', '…', 24) FROM {schema}.{table}
         WHERE {table} MATCH ? ORDER BY rank, rowid LIMIT {MAX_ROWS}"
    );
    Statement::new(sql, vec![BindValue::Text(words.fts5())])
}

/// Selects the keys and an excerpt of the matching rows; `None` if the table has no key or no full-text index that
/// the user may read.
fn postgres_statement(table: &TableInfo, words: &FullTextQuery) -> Option<Statement> {
    if table.key.is_empty() {
        return None;
    }
    let dialect = Dialect::Postgres;
    let (vector, language) = table.indexes.iter().find_map(|index| {
        let indexed = index.columns.first()?;
        match table.columns.iter().find(|column| column.name == *indexed) {
            Some(column) if column.base == "tsvector" => {
                Some((dialect.column(column), language(column.default.as_deref().unwrap_or_default())))
            }
            Some(_) => None,
            None if indexed.starts_with("to_tsvector(") => Some((indexed.clone(), language(indexed))),
            None => None,
        }
    })?;
    let language = language.map(|language| format!("{language}, ")).unwrap_or_default();
    let column = |name: &str| format!("f.{}", dialect.quote(name));
    let keys: Vec<_> = table
        .key
        .iter()
        .map(|key| match key.kind {
            ValueType::Bytes => format!("pg_catalog.encode({}, 'base64')", column(&key.name)),
            _ => format!("{}::text", column(&key.name)),
        })
        .collect();
    let texts: Vec<_> = table.columns.iter().filter(|column| column.kind == ValueType::Text).collect();
    let mut selected: Vec<_> =
        table.key.iter().chain(texts.iter().copied()).map(|key| dialect.column(key)).collect();
    selected.sort();
    selected.dedup();
    let shown: Vec<_> = texts.iter().map(|text| column(&text.name)).collect();
    let excerpt = match shown.is_empty() {
        true => "NULL".to_owned(),
        false => format!(
            "pg_catalog.ts_headline({language}pg_catalog.left(pg_catalog.concat_ws(' ', {}), {MAX_EXCERPT_SOURCE}), \
             f.libris_wanted, 'StartSel=\"\", StopSel=\"\", MaxFragments=1, MaxWords=24, MinWords=8')",
            shown.join(", ")
        ),
    };
    let order: Vec<_> = table.key.iter().map(|key| dialect.column(key)).collect();
    let sql = format!(
        "WITH q AS (SELECT pg_catalog.websearch_to_tsquery({language}$1::text) AS libris_wanted,
                           pg_catalog.websearch_to_tsquery({language}$2::text) AS libris_needed)
         SELECT {}, {excerpt} FROM (
             SELECT {}, q.libris_wanted,
                    row_number() OVER (ORDER BY pg_catalog.ts_rank({vector}, q.libris_wanted, 1) DESC, {}) AS libris_rank
             FROM {}.{} AS t, q
             WHERE {vector} @@ q.libris_wanted AND ($2::text = '' OR {vector} @@ q.libris_needed)
             ORDER BY libris_rank LIMIT {MAX_ROWS}) AS f
         ORDER BY f.libris_rank",
        keys.join(", "),
        selected.join(", "),
        order.join(", "),
        dialect.quote(&table.name().schema),
        dialect.quote(&table.name().table),
    );
    let kinds: Vec<_> = table.key.iter().map(key_kind).chain([ValueType::Text]).collect();
    let (wanted, needed) = words.websearch();
    let binds = vec![BindValue::Text(wanted), BindValue::Text(needed)];
    Some(Statement { kinds: Some(kinds.into()), ..Statement::new(sql, binds) })
}

/// The text search configuration of an expression such as `to_tsvector('english'::regconfig, body)`; `None` if it
/// is not a constant.
fn language(expression: &str) -> Option<&str> {
    let (_, rest) = expression.split_once("to_tsvector(")?;
    let (language, _) = rest.split_once(',')?;
    let name = language.strip_prefix('\'')?.strip_suffix("'::regconfig")?;
    let is_plain = name.chars().all(|letter| letter.is_alphanumeric() || "_.".contains(letter));
    is_plain.then_some(language)
}

#[cfg(test)]
mod tests {
    use super::{FullTextTable, fts5, language};
    use crate::sql::catalog::TableName;

    #[test]
    fn full_text_tables_are_recognised() {
        let name = || TableName { schema: "main".to_owned(), table: "found".to_owned() };
        let content = |sql: &str| fts5(name(), sql).map(|FullTextTable { content, .. }| content);
        assert_eq!(content("CREATE VIRTUAL TABLE found USING fts5(title, body)"), Some(None));
        assert_eq!(
            content("CREATE VIRTUAL TABLE found USING FTS5(body, content='docs', content_rowid=\"id\")"),
            Some(Some(("docs".to_owned(), "id".to_owned())))
        );
        assert_eq!(
            content("create virtual table found using fts5(body, content=docs)"),
            Some(Some(("docs".to_owned(), "rowid".to_owned())))
        );
        assert_eq!(content("CREATE VIRTUAL TABLE found USING fts5(body, content='')"), None);
        assert_eq!(content("CREATE VIRTUAL TABLE found USING rtree(a, b)"), None);
    }

    #[test]
    fn the_language_of_an_index_is_found() {
        assert_eq!(language("to_tsvector('english'::regconfig, body)"), Some("'english'::regconfig"));
        assert_eq!(language("to_tsvector(lang, body)"), None);
        assert_eq!(language("to_tsvector('a''b'::regconfig, body)"), None);
        assert_eq!(language(""), None);
    }
}
