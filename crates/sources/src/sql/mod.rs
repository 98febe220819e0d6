//! Databases as resources: schemas, rows and configured queries.
//!
//! The source never writes: its connections (SQLite) or transactions (PostgreSQL, MySQL) are read-only. A URI
//! cannot inject SQL: table names are looked up in the catalog of the database, and values are bound. If the
//! database is unavailable, callers get a general reason; the error of the database is only logged.

// With a single database feature, some of the shared code is unused.
#![cfg_attr(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")), allow(dead_code))]

mod address;
mod catalog;
mod config;
mod contents;
mod definition;
mod dialect;
mod driver;
mod evidence;
mod faults;
mod filter;
mod follow;
mod key;
mod lexer;
mod output;
mod query;
mod read;
mod rows;
mod schema;
mod search;
mod single_flight;
mod stored;
mod triggers;
mod value;
mod verify;
mod watch;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet};
use libris_core::{
    Change, Client, Completion, CompletionRequest, Contents, Context, DIRECTORY, Error, Freshness, Page,
    Proof, Resource, Result, SearchAnswer, SearchQuery, Source, Template, Templates, Uri, UriSpan,
    UriTemplate,
};

pub use address::Url;
pub use config::{Config, QueryConfig};
pub use definition::DatabaseDefinition;
pub use output::RowFormat;
pub use value::ValueType;

use address::DatabaseAddress;
use catalog::{TableInfo, TableName, TableSummary};
use dialect::Dialect;
use driver::{DatabaseVersion, Driver, DriverSettings, REQUEST_CONTEXT, Statement};
use evidence::NotificationCount;
use follow::FollowedSqlResources;
use single_flight::SingleFlight;

use crate::proven::ProvenValue;

/// How long the description of a table is cached if no [`DatabaseVersion`] can be compared, as for PostgreSQL and
/// MySQL.
const TABLE_CACHE_TTL: Duration = Duration::from_secs(2);

/// A database as a source.
pub struct Sql {
    inner: Arc<SqlInner>,
}

struct SqlInner {
    config: Config,
    name: String,
    /// The root of the source's URIs.
    root: Uri,
    driver: Arc<dyn Driver>,
    uri_kinds: TemplateSet<UriKind>,
    queries: Vec<query::CheckedQuery>,
    /// The cached descriptions of tables.
    table_cache: Mutex<HashMap<TableName, CachedTable>>,
    /// The names of the tables and views, for completion.
    table_names: ProvenValue<Vec<NamedTable>>,
    /// The default schema, which is omitted in URIs.
    default: OnceLock<String>,
    followed: Arc<FollowedSqlResources>,
    loads: CatalogLoads,
    /// Whether the verification of the configured queries has begun since the start.
    verified: AtomicBool,
    /// Counts the notifications of changes; each invalidates all cached responses.
    notifications: Arc<NotificationCount>,
    /// Whether the task that counts notifications was started. The task has a weak reference to this field, and
    /// ends when the source is dropped.
    is_listening: Arc<AtomicBool>,
}

/// The name of a visible table or view, as in URIs.
struct NamedTable {
    name: String,
    is_view: bool,
}

/// The cached description of a table.
struct CachedTable {
    table: Arc<TableInfo>,
    /// When the description was loaded.
    since: Instant,
    /// The version of the database before the description was loaded; `None` if it was unknown.
    version: Option<DatabaseVersion>,
}

impl CachedTable {
    /// Whether the description may be used for a request that began at the version `now` of the database. If that
    /// version is unknown, the description is valid for [`TABLE_CACHE_TTL`].
    fn is_valid(&self, now: Option<DatabaseVersion>) -> bool {
        match now {
            Some(now) => self.version.is_some_and(|version| version.has_schema_of(now)),
            None => self.since.elapsed() < TABLE_CACHE_TTL,
        }
    }
}

/// Queries of the catalog of the database that are in progress (single-flight).
#[derive(Default)]
struct CatalogLoads {
    default: SingleFlight<(), String>,
    summaries: SingleFlight<(), Arc<Vec<TableSummary>>>,
    tables: SingleFlight<(), Arc<Vec<TableInfo>>>,
    table: SingleFlight<TableName, Option<Arc<TableInfo>>>,
}

/// The kind of resource that a URI names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UriKind {
    /// The root folder.
    Folder,
    /// The schema of the whole database.
    Schema,
    /// The folder of a table.
    TableFolder,
    /// The schema of a table.
    TableSchema,
    /// A page of rows.
    Rows,
    /// A row.
    Row,
    /// A configured query.
    Query(usize),
    /// Anything else below the root. A read of such a URI fails with an error that suggests other URIs.
    Unknown,
}

impl Sql {
    /// Validates the configuration; a relative path of a SQLite file starts from `folder`. Libris connects to a
    /// database server at the first request, so the server may be unavailable now.
    pub fn open(config: Config, folder: &Path) -> Result<Self> {
        let (address, found) = DatabaseAddress::of(&config, folder)?;
        let name = config.name.clone().unwrap_or(found);
        if name.is_empty() {
            return Err(Error::invalid(
                "the database has no `name`; hint: set `name`, the authority of its URIs",
            ));
        }
        config.check()?;
        let Config { connections, timeout, max_bytes, .. } = config;
        let settings = DriverSettings { connections, timeout, max_bytes };
        let driver = driver::open(&address, settings);
        let dialect = driver.dialect();
        if dialect == Dialect::Sqlite && !config.cache.is_zero() {
            return Err(Error::invalid(
                "`cache` is for PostgreSQL and MySQL; hint: remove it, because responses from SQLite are cached until its \
                 file changes",
            ));
        }
        let root = Uri::parse(&format!("{}://{}/", dialect.scheme(), key::segment(&name)))?;
        let queries = config
            .queries
            .iter()
            .map(|query| query::CheckedQuery::new(query.clone(), dialect, config.format))
            .collect::<Result<Vec<_>>>()?;
        let mut uri_kinds = vec![
            (format!("{root}"), UriKind::Folder),
            (format!("{root}schema{{?format}}"), UriKind::Schema),
            (format!("{root}{{table}}/"), UriKind::TableFolder),
            (format!("{root}{{table}}/schema{{?format}}"), UriKind::TableSchema),
            (format!("{root}{{table}}/rows{{?limit,after,format,filter*}}"), UriKind::Rows),
            (format!("{root}{{table}}/rows/{{key}}{{?format}}"), UriKind::Row),
            (format!("{root}{{+rest}}"), UriKind::Unknown),
        ]
        .into_iter()
        .map(|(text, uri_kind)| Ok((UriTemplate::parse(&text)?, uri_kind)))
        .collect::<Result<Vec<_>>>()?;
        for (at, query) in queries.iter().enumerate() {
            if uri_kinds.iter().any(|(template, _)| *template == query.template) {
                return Err(Error::invalid(format!(
                    "the query `{}` is declared twice; hint: remove one, or give it another `uri`",
                    query.template
                )));
            }
            uri_kinds.push((query.template.clone(), UriKind::Query(at)));
        }
        let inner = SqlInner {
            config,
            name,
            root,
            driver,
            uri_kinds: TemplateSet::new(uri_kinds),
            queries,
            table_cache: Mutex::default(),
            table_names: ProvenValue::default(),
            default: OnceLock::new(),
            followed: Arc::default(),
            loads: CatalogLoads::default(),
            verified: AtomicBool::new(false),
            notifications: Arc::default(),
            is_listening: Arc::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The root of the source's URIs; the URIs of configured queries may lie elsewhere.
    pub fn root(&self) -> &Uri {
        &self.inner.root
    }

    /// The SQL script that creates triggers, so that PostgreSQL notifies Libris of every changed row; `None` for
    /// other databases.
    pub async fn triggers(&self) -> Result<Option<String>> {
        if self.inner.driver.dialect() != Dialect::Postgres {
            return Ok(None);
        }
        let tables = self.inner.tables().await?;
        Ok(Some(triggers::script(&tables, &self.inner.config.channel)))
    }
}

#[async_trait]
impl Source for Sql {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        let (template, uri_kind, _) = self.inner.uri_kinds.closest(uri)?;
        let exact = match uri_kind {
            UriKind::Query(at) => self.inner.queries[*at].fixed.as_ref() == Some(uri),
            _ => false,
        };
        Some(if exact { Specificity::EXACT } else { template.specificity() })
    }

    fn name(&self) -> Cow<'_, str> {
        format!("{} {}", self.inner.driver.dialect().scheme(), self.inner.name).into()
    }

    fn span(&self) -> Option<UriSpan> {
        let queries = self.inner.queries.iter().filter_map(|query| query.fixed.as_ref()).map(UriSpan::of);
        Some(queries.fold(UriSpan::below(self.inner.root.as_str()), UriSpan::and))
    }

    fn may_fail(&self) -> bool {
        true
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let evidence = self.inner.observe().await;
        let all = REQUEST_CONTEXT.scope(context.clone(), self.inner.resources()).await?;
        self.inner.verify_once();
        let page = page(all, after, limit);
        Ok(Page { freshness: self.inner.freshness(evidence.schema_proof()), ..page })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        REQUEST_CONTEXT.scope(context.clone(), self.inner.read(uri, context)).await
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let templates =
            self.inner.uri_kinds.iter().filter_map(|(uri, uri_kind)| self.inner.template(uri, *uri_kind));
        Ok(Templates {
            templates: templates.collect(),
            freshness: self.inner.freshness(Proof::always()),
            ..Templates::default()
        })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        REQUEST_CONTEXT.scope(context.clone(), self.inner.complete(asked)).await
    }

    fn has_search(&self) -> bool {
        // No table of MySQL is searched.
        self.inner.driver.dialect() != Dialect::Mysql
    }

    async fn search(&self, query: &SearchQuery, context: &Context) -> Result<Option<SearchAnswer>> {
        REQUEST_CONTEXT.scope(context.clone(), self.inner.search(query, context)).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let evidence = self.inner.observe().await;
        let all = REQUEST_CONTEXT.scope(context.clone(), self.inner.resources()).await?;
        let folder = all.iter().find(|resource| resource.uri == *uri);
        match folder.map(|folder| folder.mime.as_deref() == Some(DIRECTORY)) {
            None => return Err(Error::NotFound(uri.clone())),
            Some(false) => return Err(Error::NotDirectory(uri.clone())),
            Some(true) => {}
        }
        let below = |resource: &Resource| {
            let rest = resource.uri.as_str().strip_prefix(uri.as_str()).unwrap_or_default();
            !rest.is_empty() && !rest.trim_end_matches('/').contains('/')
        };
        let page = page(all.into_iter().filter(below).collect(), after, limit);
        Ok(Page { freshness: self.inner.freshness(evidence.schema_proof()), ..page })
    }

    fn has_directories(&self) -> bool {
        true
    }

    fn subject(&self, uri: &Uri) -> Uri {
        self.inner.subject(uri)
    }

    fn follow(&self, subject: &Uri, client: Client) {
        self.inner.follow(subject, client);
    }

    fn unfollow(&self, subject: &Uri) {
        self.inner.followed.remove(subject);
    }

    fn polls_shared_service(&self) -> bool {
        // Each machine may have a SQLite file of its own, so no replica can poll it for the others.
        self.inner.driver.dialect() != Dialect::Sqlite
    }

    fn follow_for_replicas(&self, subject: &Uri) {
        self.inner.follow_for_replicas(subject);
    }

    fn invalidate(&self, change: &Change) {
        self.inner.invalidate(change);
    }

    fn concurrency(&self) -> usize {
        self.inner.config.connections
    }

    async fn verify(&self) -> Result<Vec<Error>> {
        self.inner.verify().await
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(watch::changes(Arc::clone(&self.inner)).await))
    }
}

/// One page of sorted resources.
fn page(all: Vec<Resource>, after: Option<&Uri>, limit: usize) -> Page {
    let mut rest = all.into_iter().filter(|resource| after.is_none_or(|after| resource.uri > *after));
    let resources: Vec<_> = rest.by_ref().take(limit).collect();
    Page { resources, more: rest.next().is_some(), ..Page::default() }
}

impl SqlInner {
    /// The freshness of a response with this proof.
    fn freshness(&self, proof: impl Into<Option<Proof>>) -> Freshness {
        Freshness::proven(proof).with_ttl(self.config.ttl).with_scope(self.config.scope)
    }

    async fn default_schema(&self) -> Result<&str> {
        if let Some(known) = self.default.get() {
            return Ok(known);
        }
        let load = async {
            let sql = match self.driver.dialect() {
                Dialect::Sqlite => return Ok("main".to_owned()),
                Dialect::Postgres => "SELECT coalesce(current_schema()::text, 'public')",
                Dialect::Mysql => "SELECT coalesce(DATABASE(), '')",
            };
            let statement = Statement::new(sql.to_owned(), Vec::new());
            let rows = driver::collect(&*self.driver, &statement).await?;
            Ok(rows.first().map(|row| row[0].to_text_lossy()).unwrap_or_default())
        };
        let found = self.loads.default.load(&(), load).await.map_err(|problem| self.error(problem))?;
        Ok(self.default.get_or_init(|| found))
    }

    /// Whether the configuration makes a table visible.
    fn shows(&self, name: &TableName, default: &str) -> bool {
        let Config { schemas, tables, .. } = &self.config;
        let full = format!("{}.{}", name.schema, name.table);
        let matches_pattern = |pattern: &String| {
            matches_pattern(pattern, &full)
                || (name.schema == default && matches_pattern(pattern, &name.table))
        };
        (schemas.is_empty() || schemas.contains(&name.schema))
            && (tables.is_empty() || tables.iter().any(matches_pattern))
    }

    async fn summaries(&self) -> Result<Arc<Vec<TableSummary>>> {
        let default = self.default_schema().await?;
        let load = async {
            let mut found = catalog::summaries(&*self.driver, &self.config.schemas).await?;
            found.retain(|summary| self.shows(&summary.name, default));
            Ok(Arc::new(found))
        };
        self.loads.summaries.load(&(), load).await.map_err(|problem| self.error(problem))
    }

    /// The descriptions of all visible tables.
    async fn tables(&self) -> Result<Arc<Vec<TableInfo>>> {
        let default = self.default_schema().await?;
        let load = async {
            let mut found = catalog::tables(&*self.driver, &self.config.schemas).await?;
            found.retain(|table| self.shows(table.name(), default));
            Ok(Arc::new(found))
        };
        self.loads.tables.load(&(), load).await.map_err(|problem| self.error(problem))
    }

    /// Loads the description of the table with this name in URIs, and caches it; `None` if there is no such visible
    /// table. `version` is the version of the database before the load.
    async fn load_table(
        &self,
        label: &str,
        version: Option<DatabaseVersion>,
    ) -> Result<Option<Arc<TableInfo>>> {
        let default = self.default_schema().await?;
        let Some(name) = key::parse_table(label, default).filter(|name| self.shows(name, default)) else {
            return Ok(None);
        };
        if name.table.contains('\0') || name.schema.contains('\0') {
            return Ok(None);
        }
        let load = async {
            let found = catalog::table(&*self.driver, &self.config.schemas, &name).await?;
            Ok(found.map(|table| self.cache_table(name.clone(), table, version)))
        };
        self.loads.table.load(&name, load).await.map_err(|problem| self.error(problem))
    }

    /// Like [`load_table`](Self::load_table), but from the cache if the cached description is valid at this version of
    /// the database.
    async fn cached_table(
        &self,
        label: &str,
        version: Option<DatabaseVersion>,
    ) -> Result<Option<Arc<TableInfo>>> {
        let default = self.default_schema().await?;
        let known = key::parse_table(label, default).and_then(|name| {
            let known = self.table_cache();
            known.get(&name).filter(|known| known.is_valid(version)).map(|known| Arc::clone(&known.table))
        });
        match known {
            Some(table) => Ok(Some(table)),
            None => self.load_table(label, version).await,
        }
    }

    fn cache_table(
        &self,
        name: TableName,
        table: TableInfo,
        version: Option<DatabaseVersion>,
    ) -> Arc<TableInfo> {
        /// The maximum number of cached descriptions; a full cache is cleared. More tables are rarely read within
        /// `TABLE_CACHE_TTL`.
        const TABLE_CACHE_CAPACITY: usize = 1000;
        let table = Arc::new(table);
        let mut known = self.table_cache();
        if known.len() >= TABLE_CACHE_CAPACITY {
            known.clear();
        }
        known.insert(name, CachedTable { table: Arc::clone(&table), since: Instant::now(), version });
        table
    }

    fn table_cache(&self) -> std::sync::MutexGuard<'_, HashMap<TableName, CachedTable>> {
        // A panic with the lock held leaves the map consistent.
        self.table_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URI of the folder of a table.
    fn folder(&self, name: &TableName, default: &str) -> String {
        format!("{}{}/", self.root, key::segment(&key::format_table(name, default)))
    }

    /// All listed resources, sorted.
    async fn resources(&self) -> Result<Vec<Resource>> {
        let default = self.default_schema().await?;
        let directory =
            |uri: Uri, name: &str| Resource { mime: Some(DIRECTORY.to_owned()), ..Resource::new(uri, name) };
        let schema = |uri: Uri, name: &str| Resource {
            title: Some(format!("Schema of {name}")),
            mime: Some("text/markdown".to_owned()),
            ..Resource::new(uri, "schema")
        };
        let shown = self.config.title.as_deref().unwrap_or(&self.name);
        let mut all = vec![
            Resource {
                title: self.config.title.clone(),
                description: self.config.description.clone(),
                ..directory(self.root.clone(), &self.name)
            },
            Resource {
                description: self.config.description.clone(),
                ..schema(self.root.below("schema")?, shown)
            },
        ];
        for summary in self.summaries().await?.iter() {
            let label = key::format_table(&summary.name, default);
            let folder = Uri::parse(&self.folder(&summary.name, default))?;
            // The description contains words that a model may search for, even if the table has no comment.
            let description = match &summary.comment {
                Some(comment) => format!("{comment} (columns, keys, indexes and checks)"),
                None => "Columns, keys, indexes and checks".to_owned(),
            };
            all.push(Resource { description: Some(description), ..schema(folder.below("schema")?, &label) });
            all.push(Resource { description: summary.comment.clone(), ..directory(folder, &label) });
        }
        all.extend(self.queries.iter().filter_map(query::CheckedQuery::resource));
        all.sort_by(|one, other| one.uri.cmp(&other.uri));
        all.dedup_by(|one, other| one.uri == other.uri);
        Ok(all)
    }

    fn template(&self, uri: &UriTemplate, uri_kind: UriKind) -> Option<Template> {
        let (name, about, how) = match uri_kind {
            UriKind::Folder | UriKind::Schema | UriKind::TableFolder | UriKind::Unknown => return None,
            UriKind::Query(at) => return Some(self.queries[at].template()),
            UriKind::TableSchema => {
                ("schema", "The columns, keys, indexes and checks of a table in the database", "")
            }
            UriKind::Rows => (
                "rows",
                "Rows of a table in the database",
                ", one page at a time, ordered by key; `COLUMN=VALUE` selects rows by an indexed column",
            ),
            UriKind::Row => ("row", "One row of a table in the database", ", selected by its key"),
        };
        let shown = self.config.title.as_deref().unwrap_or(&self.name);
        Some(Template {
            description: Some(format!("{about} {shown}{how}")),
            ..Template::new(uri.clone(), format!("{} {name}", self.name))
        })
    }
}

/// Whether a name matches a pattern in which `*` matches any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn patterns_fit() {
        let cases = [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("sales.*", "sales.orders", true),
            ("*", "", true),
            ("*_log", "web_log", true),
            ("*_log", "log", false),
            ("a*b*c", "axxbyyc", true),
            ("a*a", "a", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }
}
