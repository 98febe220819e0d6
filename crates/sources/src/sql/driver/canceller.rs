//! Cancels statements of a database server, over a separate connection.

use std::time::Duration;

use futures_core::future::BoxFuture;
use sqlx::{ConnectOptions as _, Connection};
use tokio::sync::Mutex;

/// The connection that cancels the statements of other connections. It is opened when it is first needed.
pub(super) struct Canceller<C: Connection> {
    options: C::Options,
    connection: Mutex<Option<C>>,
}

impl<C: Connection> Canceller<C> {
    pub(super) fn new(options: C::Options) -> Self {
        Self { options, connection: Mutex::default() }
    }

    /// Runs a cancel request. Returns whether the server confirmed it within `timeout`.
    pub(super) async fn cancel(
        &self,
        timeout: Duration,
        run: impl for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, sqlx::Result<()>> + Send,
    ) -> bool {
        let cancel = async {
            let mut idle = self.connection.lock().await;
            // A connection that fails or is too slow is not put back.
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => self.options.connect().await?,
            };
            run(&mut connection).await?;
            *idle = Some(connection);
            Ok::<_, sqlx::Error>(())
        };
        match tokio::time::timeout(timeout, cancel).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not cancel a statement");
                false
            }
            Err(_) => false,
        }
    }
}
