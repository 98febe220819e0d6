//! Sessions of legacy clients in Redis: one hash per session, which expires when the session is idle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libris::wire::http::{ClientUsage, SavedSession, SessionEvent, SessionStore, StoreUnavailable};
use redis::RedisResult;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::RedisCluster;
use crate::connection::RedisConnection;
use crate::writer::{SessionAction, SessionWrite};

/// The time-out of an operation of Redis. After that, the operation fails with [`StoreUnavailable`].
const WAIT: Duration = Duration::from_secs(1);

impl RedisCluster {
    fn queue_write(&self, action: SessionAction, done: Option<oneshot::Sender<bool>>) {
        // If the queue is full, `done` is dropped and `write_and_wait` returns an error.
        let _ = self.session_writes.try_send(SessionWrite { action, done });
    }

    /// Queues a write, and waits until it has succeeded.
    async fn write_and_wait(&self, action: SessionAction) -> Result<(), StoreUnavailable> {
        let (done, outcome) = oneshot::channel();
        self.queue_write(action, Some(done));
        match timeout(WAIT, outcome).await {
            Ok(Ok(true)) => Ok(()),
            _ => Err(StoreUnavailable),
        }
    }

    /// The connection for queries. Opens one if there is none.
    pub(crate) async fn query_connection(&self) -> RedisResult<RedisConnection> {
        let mut queries = self.queries.lock().await;
        let connection = match queries.take() {
            Some(connection) => connection,
            None => self.shared.connector.connect(WAIT).await?,
        };
        *queries = Some(connection.clone());
        Ok(connection)
    }

    async fn load_session(&self, id: &str) -> RedisResult<Option<SavedSession>> {
        let mut connection = self.query_connection().await?;
        let key = self.shared.keys.session(id);
        let mut load = redis::pipe();
        load.cmd("HGETALL").arg(&key).cmd("PTTL").arg(&key);
        let loaded: RedisResult<(HashMap<String, String>, i64)> = connection.pipeline(&load).await;
        if loaded.is_err() {
            self.queries.lock().await.take();
        }
        let (fields, left) = loaded?;
        let Some(revision) = fields.get("revision") else { return Ok(None) };
        let subscriptions = fields.keys().filter_map(|field| field.strip_prefix('+'));
        Ok(Some(SavedSession {
            revision: revision.clone(),
            shows_apps: fields.contains_key("apps"),
            principal: fields.get("principal").cloned(),
            subscriptions: subscriptions.map(ToOwned::to_owned).collect(),
            left: Duration::from_millis(left.try_into().unwrap_or_default()),
        }))
    }
}

#[async_trait]
impl SessionStore for RedisCluster {
    async fn save(&self, id: &str, session: SavedSession, keep: Duration) -> Result<(), StoreUnavailable> {
        self.write_and_wait(SessionAction::Save { id: id.to_owned(), session, keep }).await
    }

    async fn load(&self, id: &str) -> Result<Option<SavedSession>, StoreUnavailable> {
        if !self.shared.status.is_reader_connected() {
            return Err(StoreUnavailable);
        }
        match timeout(WAIT, self.load_session(id)).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a session could not be loaded");
                Err(StoreUnavailable)
            }
            Err(_) => Err(StoreUnavailable),
        }
    }

    async fn subscribe(&self, id: &str, uri: &str) -> Result<(), StoreUnavailable> {
        self.write_and_wait(SessionAction::Subscribe { id: id.to_owned(), uri: uri.to_owned() }).await
    }

    fn unsubscribe(&self, id: &str, uri: &str) {
        self.queue_write(SessionAction::Unsubscribe { id: id.to_owned(), uri: uri.to_owned() }, None);
    }

    fn end(&self, id: &str) {
        self.queue_write(SessionAction::End { id: id.to_owned() }, None);
    }

    fn touch(&self, ids: Vec<Arc<str>>, keep: Duration) {
        self.queue_write(SessionAction::Touch { ids, keep }, None);
    }

    async fn exchange_usage(&self, used: Vec<ClientUsage>) -> Result<Vec<ClientUsage>, StoreUnavailable> {
        if !self.shared.status.is_reader_connected() {
            return Err(StoreUnavailable);
        }
        match timeout(WAIT, self.exchange(&used)).await {
            Ok(Ok(elsewhere)) => Ok(elsewhere),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the usage of clients could not be exchanged");
                Err(StoreUnavailable)
            }
            Err(_) => Err(StoreUnavailable),
        }
    }

    async fn next(&self) -> SessionEvent {
        match self.session_events.lock().await.recv().await {
            Some(event) => event,
            // Cannot happen: the tasks hold the senders until this replica is dropped.
            None => std::future::pending().await,
        }
    }
}
