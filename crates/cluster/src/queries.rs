//! The connection for queries whose caller waits: sessions, the shared cache and the usage of clients.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

use crate::connection::{Connector, RedisConnection};

/// The time limit for a query, including the time to open the connection.
const WAIT: Duration = Duration::from_secs(1);

/// The connection for queries, opened when it is first needed.
#[derive(Default)]
pub(crate) struct QueryConnection {
    open: Arc<Mutex<Option<RedisConnection>>>,
}

impl QueryConnection {
    /// Runs a query within [`WAIT`]. After any failure, the next query opens another connection, because the network
    /// may have been cut silently.
    pub(crate) async fn run<T, F>(
        &self,
        connector: &Arc<Connector>,
        query: impl FnOnce(RedisConnection) -> F + Send,
    ) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>> + Send,
    {
        let querying = async { query(self.connection(connector).await?).await };
        let answer = match timeout(WAIT, querying).await {
            Ok(answer) => answer,
            Err(_) => Err(RedisError::from((ErrorKind::Io, "Redis did not answer within a second"))),
        };
        if answer.is_err() {
            // If the lock is held, a connection is being opened.
            if let Ok(mut open) = self.open.try_lock() {
                open.take();
            }
        }
        answer
    }

    async fn connection(&self, connector: &Arc<Connector>) -> RedisResult<RedisConnection> {
        let mut open: OwnedMutexGuard<_> = self.open.clone().lock_owned().await;
        if let Some(connection) = &*open {
            return Ok(connection.clone());
        }
        let connector = connector.clone();
        // In a task, so that opening continues if the caller no longer waits: with Sentinels that do not answer, it takes
        // longer than a query may, and no query would ever succeed. The lock lets only one connection be opened.
        let opening = tokio::spawn(async move {
            let connection = connector.connect(WAIT).await?;
            *open = Some(connection.clone());
            Ok(connection)
        });
        opening.await.unwrap_or_else(|_| Err(RedisError::from((ErrorKind::Io, "connecting was cancelled"))))
    }
}
