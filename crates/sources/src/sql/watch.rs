//! Detects changes of a database while there are subscriptions.
//!
//! A poll compares the version of the database with that of the last poll. If the version has changed, or if the
//! database has none (MySQL), the poll also compares the catalog and the followed resources; otherwise only the
//! resources that the last poll did not reach. After an outage, a poll compares everything, to report changes during
//! the outage. Triggers on PostgreSQL tables also send notifications, which do not wait for a poll.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use futures_util::stream;
use libris_core::{Change, Client, ContentBody, Contents, Context, Error, Result, Uri};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::catalog::{TableInfo, TableName};
use super::dialect::Dialect;
use super::driver::{NotificationListener, Statement, collect};
use super::follow::{FollowedSqlResource, SqlResourceDigests, by_client};
use super::{SqlInner, UriKind, key};
use crate::followed::FollowedWatch;

/// The debounce window: how long notifications are collected before the resources that they may affect are polled.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The time-out of the first poll. If it is exceeded, the watch begins without a baseline.
const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of notified rows that are remembered until the debounce window ends.
const MAX_NOTIFIED_ROWS: usize = 10_000;

/// The polling time per client in one poll. At least one resource is polled; the others wait for the next poll.
const CLIENT_POLL_TIME: Duration = Duration::from_secs(1);

/// The longest back-off while the database is unavailable.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Starts a watch. The stream has the changes from now on.
pub(super) async fn changes(inner: Arc<SqlInner>) -> BoxStream<'static, Change> {
    let poll = inner.config.poll.unwrap_or(match inner.driver.dialect() {
        Dialect::Sqlite => Duration::from_millis(250),
        Dialect::Postgres | Dialect::Mysql => Duration::from_secs(5),
    });
    let channel = inner.driver.listen(&inner.config.channel);
    let mut watch = DatabaseWatch {
        watching: inner.followed.watch(),
        inner,
        poll,
        pause: poll,
        next: Instant::now() + poll,
        channel,
        notified: PendingMessages::default(),
        listening: false,
        version: None,
        schema: None,
        tables: None,
        unfinished: BTreeMap::new(),
        unavailable: false,
        changes: VecDeque::new(),
    };
    // The first poll is the baseline. The watches of other sources wait for it. So if the database does not respond
    // in time, the watch begins without a baseline, and its next poll reports that changes may have been lost.
    if tokio::time::timeout(FIRST_POLL_TIMEOUT, watch.poll_once()).await.is_err() {
        watch.next = Instant::now();
    }
    watch.changes.clear();
    stream::unfold(watch, async |mut watch| Some((watch.next().await, watch))).boxed()
}

struct DatabaseWatch {
    inner: Arc<SqlInner>,
    watching: FollowedWatch<FollowedSqlResource>,
    /// The configured interval.
    poll: Duration,
    /// The current interval: longer if polls take long, or while the database is unavailable.
    pause: Duration,
    /// The time of the next poll.
    next: Instant,
    channel: Option<Box<dyn NotificationListener>>,
    /// Whether `channel` receives notifications now.
    listening: bool,
    notified: PendingMessages,
    /// The version of the data at the last poll; `None` if the database has none.
    version: Option<String>,
    /// The version of the schema at the last poll; only SQLite has one.
    schema: Option<String>,
    /// The tables at the last poll.
    tables: Option<BTreeMap<TableName, TableInfo>>,
    /// The resources that the last poll did not reach, by client.
    unfinished: BTreeMap<Client, HashSet<Uri>>,
    unavailable: bool,
    /// Changes that are not reported yet.
    changes: VecDeque<Change>,
}

/// Notifications that are not processed yet.
#[derive(Default)]
struct PendingMessages {
    /// When the debounce window ends; `None` without notifications.
    due: Option<Instant>,
    rows: HashSet<Uri>,
    /// Whether a notification named no row.
    unspecific: bool,
}

/// The payload of a notification.
#[derive(Deserialize)]
struct TriggerMessage {
    schema: String,
    table: String,
    #[serde(default)]
    key: Option<Vec<Option<String>>>,
}

/// A poll failed: the database is unavailable.
struct PollFailed;

impl DatabaseWatch {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            let due = self.notified.due;
            let next_notification = async {
                match &mut self.channel {
                    Some(channel) if self.listening => channel.next_notification().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                notified = next_notification => match notified {
                    Ok(message) => self.handle_notification(&message).await,
                    Err(problem) => {
                        tracing::debug!(?problem, "lost the notification channel");
                        self.listening = false;
                        self.next = Instant::now();
                    }
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let notified = std::mem::take(&mut self.notified);
                    let _ = self.poll_followed(PollScope::Notified(&notified)).await;
                }
                () = self.watching.added() => self.record_baseline().await,
                () = sleep_until(self.next) => self.poll_once().await,
            }
        }
    }

    /// Polls the database. While it is unavailable, the interval grows exponentially.
    async fn poll_once(&mut self) {
        let begun = Instant::now();
        let was_unavailable = self.unavailable;
        match self.poll_database().await {
            Ok(()) => {
                if was_unavailable {
                    tracing::info!(database = self.inner.name, "the database is available again");
                }
                self.unavailable = false;
                // Polling takes at most a fifth of the time.
                self.pause = self.poll.max(begun.elapsed() * 4);
            }
            Err(PollFailed) => {
                if !was_unavailable {
                    tracing::warn!(
                        database = self.inner.name,
                        "the database is unavailable: polling with back-off"
                    );
                }
                self.pause = if was_unavailable {
                    (self.pause * 2).min(MAX_BACKOFF.max(self.poll))
                } else {
                    self.poll
                };
                self.unavailable = true;
            }
        }
        self.next = Instant::now() + self.pause;
    }

    async fn poll_database(&mut self) -> Result<(), PollFailed> {
        let version = self.inner.driver.version().await.map_err(|_| PollFailed)?;
        // Whether changes may have been missed since the last poll.
        let mut missed = self.unavailable;
        if let Some(channel) = &mut self.channel
            && !self.listening
        {
            match channel.begin().await {
                Ok(()) => {
                    self.listening = true;
                    missed = true;
                }
                // Some connection poolers do not support `LISTEN`; polling still works.
                Err(problem) => tracing::debug!(?problem, "could not listen for notifications"),
            }
        }
        if !missed && version.is_some() && version == self.version {
            return self.poll_followed(PollScope::Unfinished).await;
        }
        self.compare_tables(version.as_deref()).await?;
        if self.watching.overflowed() {
            self.changes.push_back(Change::Lost);
        }
        self.poll_followed(PollScope::All).await?;
        self.version = version;
        Ok(())
    }

    /// Reports added, removed and changed tables; `version` is the version of the data now.
    async fn compare_tables(&mut self, version: Option<&str>) -> Result<(), PollFailed> {
        let schema = match self.inner.driver.dialect() {
            Dialect::Sqlite => {
                let statement = Statement::new("PRAGMA schema_version".to_owned(), Vec::new());
                let rows = collect(&*self.inner.driver, &statement).await.map_err(|_| PollFailed)?;
                // The epoch distinguishes files: each file counts its own schema versions.
                let epoch = version.and_then(|version| Some(version.split_once(' ')?.0));
                rows.first().map(|row| format!("{epoch:?} {}", row[0].to_text_lossy()))
            }
            Dialect::Postgres | Dialect::Mysql => None,
        };
        if schema.is_some() && schema == self.schema && self.tables.is_some() {
            return Ok(());
        }
        let tables = self.inner.tables().await.map_err(|_| PollFailed)?;
        let tables: BTreeMap<_, _> =
            tables.iter().map(|table| (table.name().clone(), table.clone())).collect();
        let default = self.inner.default_schema().await.map_err(|_| PollFailed)?.to_owned();
        self.inner.table_cache().clear();
        match self.tables.replace(tables) {
            // There is no baseline: this is the first poll, or the database did not respond when the watch began.
            None => self.changes.push_back(Change::Lost),
            Some(before) => self.report_tables(&before, &default),
        }
        self.schema = schema;
        Ok(())
    }

    fn report_tables(&mut self, before: &BTreeMap<TableName, TableInfo>, default: &str) {
        let Some(now) = &self.tables else { return };
        let mut changes = Vec::new();
        let uris = |name: &TableName| {
            let folder = Uri::parse(&self.inner.folder(name, default)).ok()?;
            Some((folder.below("schema").ok()?, folder))
        };
        for (name, table) in now {
            let Some((schema, folder)) = uris(name) else { continue };
            match before.get(name) {
                None => changes.extend([Change::Added(folder), Change::Added(schema)]),
                Some(earlier) if !same(earlier, table) => {
                    changes.push(Change::Updated(schema.clone()));
                    if earlier.summary.comment != table.summary.comment {
                        changes.push(Change::Described(schema));
                    }
                }
                Some(_) => {}
            }
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            let Some((schema, folder)) = uris(name) else { continue };
            changes.extend([Change::Removed(folder), Change::Removed(schema)]);
        }
        if !changes.is_empty() {
            changes.extend(self.inner.root.below("schema").map(Change::Updated));
            changes.push(Change::Updated(self.inner.root.clone()));
        }
        self.changes.extend(changes);
    }

    /// Reads newly followed resources as their baseline. They are reported as changed if the version of the database
    /// does not prove that nothing changed since the subscription, or if they are followed for clients of other
    /// replicas.
    async fn record_baseline(&mut self) {
        let inner = Arc::clone(&self.inner);
        let mut new = Vec::new();
        for followed in by_client(&inner.followed).into_values() {
            let begun = Instant::now();
            for (uri, _) in followed.into_iter().filter(|(_, digest)| digest.is_none()) {
                if begun.elapsed() > CLIENT_POLL_TIME {
                    self.watching.wake();
                    break;
                }
                if let Some(digest) = digest_of(inner.read(&uri, &Context::default()).await) {
                    let is_reported = inner.followed.with(&uri, |known| {
                        known.digest = Some(digest);
                        known.is_baseline_reported
                    });
                    match is_reported {
                        Some(true) => self.changes.push_back(Change::Updated(uri)),
                        _ => new.push(uri),
                    }
                }
            }
        }
        let version = inner.driver.version().await.ok().flatten();
        if version.is_none() || version != self.version {
            self.changes.extend(new.into_iter().map(Change::Updated));
        }
    }

    /// Polls the followed resources of all clients, each client for up to [`CLIENT_POLL_TIME`].
    async fn poll_followed(&mut self, which: PollScope<'_>) -> Result<(), PollFailed> {
        let clients = by_client(&self.inner.followed);
        self.unfinished.retain(|client, _| clients.contains_key(client));
        for (client, followed) in clients {
            self.poll_client(client, followed, which).await?;
        }
        Ok(())
    }

    /// Polls the resources that one client follows, for up to [`CLIENT_POLL_TIME`].
    async fn poll_client(
        &mut self,
        client: Client,
        followed: SqlResourceDigests,
        which: PollScope<'_>,
    ) -> Result<(), PollFailed> {
        let inner = Arc::clone(&self.inner);
        let unfinished = self.unfinished.remove(&client).unwrap_or_default();
        let notified =
            |uri: &Uri| matches!(which, PollScope::Notified(notified) if notified.rows.contains(uri));
        let is_concerned = |uri: &Uri| match which {
            PollScope::All | PollScope::Notified(PendingMessages { unspecific: true, .. }) => true,
            PollScope::Notified(_) => notified(uri) || inner.uri_kind(uri) != Some(UriKind::Row),
            PollScope::Unfinished => false,
        };
        let (first, rest): (SqlResourceDigests, SqlResourceDigests) =
            followed.into_iter().partition(|(uri, _)| unfinished.contains(uri));
        let mut queue = VecDeque::from(first);
        queue.extend(rest.into_iter().filter(|(uri, _)| is_concerned(uri)));
        let begun = Instant::now();
        while let Some((uri, before)) = queue.pop_front() {
            let is_reported = notified(&uri);
            let Some(digest) = digest_of(inner.read(&uri, &Context::default()).await) else {
                if inner.driver.version().await.is_err() {
                    return Err(PollFailed);
                }
                // The database responds, so the read of this resource takes too long: it would delay the others at
                // every poll.
                tracing::warn!(%uri, "stopped following a resource that takes too long to poll");
                inner.followed.remove(&uri);
                continue;
            };
            if before != Some(digest) {
                inner.followed.with(&uri, |known| known.digest = Some(digest));
                // Changes of notified rows were reported immediately.
                if !is_reported {
                    self.changes.push_back(Change::Updated(uri));
                }
            }
            if begun.elapsed() > CLIENT_POLL_TIME && !queue.is_empty() {
                self.unfinished.insert(client, queue.into_iter().map(|(uri, _)| uri).collect());
                break;
            }
        }
        Ok(())
    }

    /// Reports the row that a notification names, and schedules a poll of the resources that may depend on the row.
    async fn handle_notification(&mut self, message: &str) {
        self.notified.due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
        let Ok(TriggerMessage { schema, table, key }) = serde_json::from_str(message) else {
            // An unknown payload still means that something changed.
            self.notified.unspecific = true;
            return;
        };
        let name = TableName { schema, table };
        let parts: Option<Vec<_>> = key.and_then(|key| key.into_iter().collect());
        let row = match (parts, self.inner.default_schema().await) {
            (Some(parts), Ok(default)) if self.inner.shows(&name, default) && !parts.is_empty() => {
                let folder = self.inner.folder(&name, default);
                Uri::parse(&format!("{folder}rows/{}", key::segment(&key::format_key(&parts)))).ok()
            }
            _ => None,
        };
        match row {
            // Rows beyond the limit are not remembered, so such a row may be reported several times.
            Some(row) if self.notified.rows.len() >= MAX_NOTIFIED_ROWS => {
                self.notified.unspecific = true;
                self.changes.push_back(Change::Updated(row));
            }
            Some(row) => {
                if self.notified.rows.insert(row.clone()) {
                    self.changes.push_back(Change::Updated(row));
                }
            }
            None => self.notified.unspecific = true,
        }
    }
}

/// The followed resources to poll, in addition to those that the last poll did not reach.
#[derive(Clone, Copy)]
enum PollScope<'a> {
    All,
    /// Resources that these notifications may affect.
    Notified(&'a PendingMessages),
    /// No others.
    Unfinished,
}

impl SqlInner {
    fn uri_kind(&self, uri: &Uri) -> Option<UriKind> {
        self.uri_kinds.closest(uri).map(|(_, uri_kind, _)| *uri_kind)
    }

    /// The URI under which changes of the resource at `uri` are reported.
    pub(super) fn subject(&self, uri: &Uri) -> Uri {
        let Some((_, uri_kind, variables)) = self.uri_kinds.closest(uri) else { return uri.clone() };
        let text = |name| variables.text(name).map(key::segment).unwrap_or_default();
        match uri_kind {
            UriKind::Schema | UriKind::TableSchema => uri.without_query(),
            // One URI per row, whatever the percent-encoding of its key and the `format`.
            UriKind::Row => Uri::parse(&format!("{}{}/rows/{}", self.root, text("table"), text("key")))
                .unwrap_or_else(|_| uri.clone()),
            UriKind::Folder | UriKind::TableFolder | UriKind::Rows | UriKind::Query(_) | UriKind::Unknown => {
                uri.clone()
            }
        }
    }

    /// Follows a resource.
    pub(super) fn follow(&self, subject: &Uri, client: Client) {
        if self.must_be_followed(subject) {
            let known = FollowedSqlResource { digest: None, is_baseline_reported: false, client };
            self.followed.add(subject, known, |known, again| known.client = again.client);
        }
    }

    /// Follows a resource for clients of other replicas.
    pub(super) fn follow_for_replicas(&self, subject: &Uri) {
        if self.must_be_followed(subject) {
            let known =
                FollowedSqlResource { digest: None, is_baseline_reported: true, client: Client::default() };
            self.followed.add(subject, known, |_, _| {});
        }
    }

    /// Whether polls check a resource only if it is followed. Schemas are not followed, because the tables are compared
    /// after every change.
    fn must_be_followed(&self, subject: &Uri) -> bool {
        !matches!(
            self.uri_kind(subject),
            None | Some(UriKind::Schema | UriKind::TableSchema | UriKind::Folder | UriKind::Unknown)
        )
    }

    /// Drops the cached descriptions of tables after a change that another replica reported, unless it concerns only
    /// rows.
    pub(super) fn invalidate(&self, change: &Change) {
        let concerns_data = match change {
            Change::Updated(uri) => {
                matches!(self.uri_kind(uri), Some(UriKind::Row | UriKind::Rows | UriKind::Query(_)))
            }
            _ => false,
        };
        if !concerns_data {
            self.table_cache().clear();
        }
    }
}

/// Whether two descriptions of a table differ at most in the number of rows.
fn same(one: &TableInfo, other: &TableInfo) -> bool {
    one.columns == other.columns
        && one.key == other.key
        && one.indexes == other.indexes
        && one.references == other.references
        && one.checks == other.checks
        && one.definition == other.definition
        && one.summary.comment == other.summary.comment
        && one.summary.view == other.summary.view
}

/// A digest of the contents or the error of a read; `None` if the database is unavailable or did not respond in time.
fn digest_of(read: Result<Contents>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    match read {
        Ok(contents) => {
            for part in contents.parts {
                match part.body {
                    ContentBody::Text(text) => text.hash(&mut hasher),
                    ContentBody::Bytes(bytes) => bytes.hash(&mut hasher),
                }
            }
        }
        Err(Error::Unavailable(_)) => return None,
        // An error such as "not found" is a state too.
        Err(other) => other.to_string().hash(&mut hasher),
    }
    Some(hasher.finish())
}
