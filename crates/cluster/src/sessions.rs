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
use crate::session_queue::{SessionAction, SessionWrite};

/// How long a caller waits for a write. After that, the write fails with [`StoreUnavailable`].
const WAIT: Duration = Duration::from_secs(1);

impl RedisCluster {
    fn queue_write(&self, action: SessionAction, done: Option<oneshot::Sender<bool>>) {
        self.shared.session_queue.put(SessionWrite { action, done });
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

    async fn load_session(&self, id: &str) -> RedisResult<Option<SavedSession>> {
        let key = self.shared.keys.session(id);
        let mut load = redis::pipe();
        load.cmd("HGETALL").arg(&key).cmd("PTTL").arg(&key);
        let load = async |mut connection: RedisConnection| connection.pipeline(&load).await;
        let (fields, left): (HashMap<String, String>, i64) =
            self.queries.run(&self.shared.connector, load).await?;
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
        self.load_session(id).await.map_err(|error| {
            tracing::warn!(%error, "a session could not be loaded");
            StoreUnavailable
        })
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
        self.exchange(&used).await.map_err(|error| {
            tracing::debug!(%error, "the usage of clients could not be exchanged");
            StoreUnavailable
        })
    }

    async fn next(&self) -> SessionEvent {
        match self.session_events.lock().await.recv().await {
            Some(event) => event,
            // Cannot happen: the tasks hold the senders until this replica is dropped.
            None => std::future::pending().await,
        }
    }
}
