//! A connection pool: a bounded number of connections, each of which runs one statement at a time to its end.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use libris_core::{Budget, Context, Lease};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::stop::StopOnDrop;
use super::{
    CONNECTION_LOST, DriverError, DriverSettings, REQUEST_CONTEXT, RowSink, SinkOutput, Statement,
    StopSignal, TIMEOUT_GRACE,
};

/// The interval between cancel requests for one statement. They are repeated, because a server ignores a request that
/// arrives just before the statement starts.
const CANCEL_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// How long a statement may run past its deadline before the connection is closed. Also the time-out for the reset
/// of a connection.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// The operations that differ between databases.
#[async_trait]
pub(super) trait Backend: Send + Sync + 'static {
    type Connection: Send + 'static;

    /// Whether the database is a server. The pool closes an unresponsive connection to a server. SQLite runs
    /// statements in this process, and the pool always waits until they have ended.
    const REMOTE: bool;

    async fn connect(&self) -> Result<Self::Connection, DriverError>;

    /// Runs a statement to its end. The caller awaits this end even after a stop request.
    async fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        output: &mut SinkOutput,
    ) -> Result<(), DriverError>;

    /// Cancels the running statement of a server session; `false` unless the server confirmed this in time.
    async fn cancel(&self, session: u64) -> bool;

    /// Resets a connection for the next statement; `false` if that fails.
    async fn recover(&self, connection: &mut Self::Connection) -> bool;
}

/// A connection pool of one database.
pub(super) struct Pool<B: Backend> {
    connections: Arc<ConnectionPool<B>>,
}

/// The idle connections, and the permits that bound the number of open ones, of which one client may have three quarters.
struct ConnectionPool<B: Backend> {
    backend: B,
    settings: DriverSettings,
    idle: Mutex<Vec<B::Connection>>,
    permits: Arc<Budget>,
}

impl<B: Backend> Pool<B> {
    pub(super) fn new(backend: B, settings: DriverSettings) -> Self {
        let permits = Budget::new(settings.connections);
        Self { connections: Arc::new(ConnectionPool { backend, settings, idle: Mutex::default(), permits }) }
    }

    pub(super) fn backend(&self) -> &B {
        &self.connections.backend
    }

    /// Closes the idle connections.
    #[cfg(feature = "sqlite")]
    pub(super) fn clear(&self) {
        self.connections.idle().clear();
    }

    pub(super) async fn run(
        &self,
        statement: &Statement,
        sink: Box<dyn RowSink>,
    ) -> Result<Box<dyn RowSink>, DriverError> {
        let stop = Arc::new(StopSignal::default());
        let _leaving = StopOnDrop(Arc::clone(&stop));
        let output = SinkOutput::new(sink, stop);
        let run = async {
            let request = REQUEST_CONTEXT.try_with(Context::clone).unwrap_or_default();
            let permit = self.connections.permits.take(request.client(), 1).await;
            let Some(permit) = permit else { return Err(DriverError::TimedOut) };
            let task = Arc::clone(&self.connections).attempt(statement.clone(), output, (permit, request));
            tokio::spawn(task).await.unwrap_or(Err(DriverError::Unavailable(CONNECTION_LOST)))
        };
        let time_limit = self.connections.settings.timeout + TIMEOUT_GRACE;
        timeout(time_limit, run).await.unwrap_or(Err(DriverError::TimedOut))
    }
}

/// How a statement ended.
struct StatementEnd {
    outcome: Result<(), DriverError>,
    /// Whether the connection can be reused: it responds, and no cancel request for it is in flight.
    reusable: bool,
}

impl<B: Backend> ConnectionPool<B> {
    fn idle(&self) -> MutexGuard<'_, Vec<B::Connection>> {
        // A panic with the lock held leaves the list consistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement, and holds the permits until the statement has ended.
    async fn attempt(
        self: Arc<Self>,
        statement: Statement,
        mut output: SinkOutput,
        _permits: (Lease, Context),
    ) -> Result<Box<dyn RowSink>, DriverError> {
        // A statement of SQLite runs on another thread, and must also end if the runtime drops this task.
        let _ending = StopOnDrop(Arc::clone(output.stop()));
        // The server may have closed an idle connection: then retry once with a new one.
        let mut idle_connection = self.idle().pop();
        loop {
            let was_idle = idle_connection.is_some();
            let mut connection = match idle_connection.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            if output.stop().requested() {
                self.idle().push(connection);
                return Err(DriverError::TimedOut);
            }
            let StatementEnd { outcome, reusable } =
                self.supervise(&mut connection, &statement, &mut output).await;
            if reusable && self.recover(&mut connection).await {
                self.idle().push(connection);
            }
            match outcome {
                Ok(()) => return output.into_sink(),
                Err(_) if output.enough => return output.into_sink(),
                Err(_) if output.stop().requested() => return Err(DriverError::TimedOut),
                Err(problem) if problem.breaks_connection() && was_idle && !output.begun => {
                    self.idle().clear()
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    async fn connect(&self) -> Result<B::Connection, DriverError> {
        match B::REMOTE {
            true => {
                let connected = timeout(self.settings.timeout + TIMEOUT_GRACE, self.backend.connect()).await;
                connected.unwrap_or(Err(DriverError::TimedOut))
            }
            false => self.backend.connect().await,
        }
    }

    async fn recover(&self, connection: &mut B::Connection) -> bool {
        timeout(CLOSE_GRACE, self.backend.recover(connection)).await.unwrap_or(false)
    }

    /// Runs a statement; on a stop request or a time-out, cancels it repeatedly until it has ended.
    async fn supervise(
        &self,
        connection: &mut B::Connection,
        statement: &Statement,
        output: &mut SinkOutput,
    ) -> StatementEnd {
        let deadline = Instant::now() + self.settings.timeout + TIMEOUT_GRACE;
        let stop = Arc::clone(output.stop());
        let mut run = pin!(self.backend.run(connection, statement, output));
        tokio::select! {
            outcome = &mut run => {
                let reusable = !outcome.as_ref().is_err_and(DriverError::breaks_connection);
                return StatementEnd { outcome, reusable };
            }
            () = stop.wait() => {}
            () = sleep_until(deadline) => stop.request(),
        }
        if !B::REMOTE {
            return StatementEnd { outcome: run.await, reusable: true };
        }
        let mut reusable = true;
        loop {
            // The cancel request is awaited, because one still in flight could hit the next statement of the
            // connection.
            let cancel = async {
                match stop.session() {
                    Some(session) => self.backend.cancel(session).await,
                    None => true,
                }
            };
            let (outcome, cancelled) = tokio::join!(timeout(CANCEL_RETRY_INTERVAL, &mut run), cancel);
            reusable &= cancelled;
            if let Ok(outcome) = outcome {
                reusable &= !outcome.as_ref().is_err_and(DriverError::breaks_connection);
                return StatementEnd { outcome, reusable };
            }
            if Instant::now() > deadline + CLOSE_GRACE {
                tracing::warn!("a statement does not end, and its connection is closed");
                return StatementEnd { outcome: Err(DriverError::TimedOut), reusable: false };
            }
            // If the server cannot be reached, its own time-out ends the statement.
            if !cancelled && let Ok(outcome) = timeout_at(deadline + CLOSE_GRACE, &mut run).await {
                return StatementEnd { outcome, reusable: false };
            }
        }
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use libris_core::{Budget, Client, Context};
    use tokio::sync::Notify;
    use tokio::time::{Instant, sleep, timeout};

    use super::{Backend, Pool, REQUEST_CONTEXT};
    use crate::sql::driver::{DriverError, DriverSettings, RowSink, SinkOutput, Statement};
    use crate::sql::value::SqlValue;

    /// A database whose statements run until the second cancel request.
    struct Endless<const REMOTE: bool> {
        running: AtomicUsize,
        cancelled: AtomicUsize,
        release: Notify,
        /// Whether cancel requests succeed.
        reachable: bool,
    }

    #[async_trait]
    impl<const REMOTE: bool> Backend for Endless<REMOTE> {
        type Connection = ();

        const REMOTE: bool = REMOTE;

        async fn connect(&self) -> Result<(), DriverError> {
            Ok(())
        }

        async fn run(&self, (): &mut (), _: &Statement, output: &mut SinkOutput) -> Result<(), DriverError> {
            output.stop().runs_in(7);
            self.running.fetch_add(1, Ordering::SeqCst);
            self.release.notified().await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }

        async fn cancel(&self, session: u64) -> bool {
            assert_eq!(session, 7);
            if self.cancelled.fetch_add(1, Ordering::SeqCst) > 0 {
                self.release.notify_one();
            }
            self.reachable
        }

        async fn recover(&self, (): &mut ()) -> bool {
            true
        }
    }

    struct Nothing;

    impl RowSink for Nothing {
        fn columns(&mut self, _names: Vec<String>) {}

        fn row(&mut self, _row: Vec<SqlValue>) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }

        fn oversized(&mut self, _size: u64) {}
    }

    /// A pool of one connection, whose statement was abandoned by its caller.
    async fn abandoned<const REMOTE: bool>(reachable: bool) -> Pool<Endless<REMOTE>> {
        abandoned_by(Context::default(), reachable).await
    }

    /// Like [`abandoned`], with a given request context.
    async fn abandoned_by<const REMOTE: bool>(request: Context, reachable: bool) -> Pool<Endless<REMOTE>> {
        let settings = DriverSettings { connections: 1, timeout: Duration::from_secs(60), max_bytes: 1 };
        let (running, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let pool = Pool::new(Endless { running, cancelled, release: Notify::new(), reachable }, settings);
        let statement = Statement::new(String::new(), Vec::new());
        let mut asked = Box::pin(REQUEST_CONTEXT.scope(request, pool.run(&statement, Box::new(Nothing))));
        while pool.backend().running.load(Ordering::SeqCst) == 0 {
            assert!(timeout(Duration::from_millis(5), &mut asked).await.is_err());
        }
        drop(asked);
        pool
    }

    /// Waits until the permit is free. Returns the number of idle connections.
    async fn freed<const REMOTE: bool>(pool: &Pool<Endless<REMOTE>>) -> usize {
        let begun = Instant::now();
        while pool.connections.permits.is_full() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the permit is not freed");
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(pool.backend().running.load(Ordering::SeqCst), 0, "the statement has ended");
        pool.connections.idle().len()
    }

    #[tokio::test]
    async fn a_permit_is_kept_until_the_statement_has_ended() {
        let pool = abandoned::<false>(true).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
            assert!(pool.connections.permits.is_full());
        }
        pool.backend().release.notify_one();
        assert_eq!(freed(&pool).await, 1);
    }

    #[tokio::test]
    async fn the_permit_of_the_catalog_is_held_until_the_statement_has_ended() {
        let permits = Budget::new(1);
        let permit = permits.try_take(Client::default(), 1).unwrap();
        let pool = abandoned_by::<false>(Context::default().with_permit(permit), true).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
            assert!(permits.is_full());
        }
        pool.backend().release.notify_one();
        assert!(permits.take(Client::default(), 1).await.is_some());
    }

    /// Lists and reads have permits of their own in the catalog, but share the connections.
    #[tokio::test]
    async fn statements_of_one_client_leave_a_connection_to_others() {
        let settings = DriverSettings { connections: 4, timeout: Duration::from_secs(60), max_bytes: 1 };
        let (running, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let backend = Endless::<false> { running, cancelled, release: Notify::new(), reachable: true };
        let pool = Pool::new(backend, settings);
        let statement = Statement::new(String::new(), Vec::new());
        let run = |last| {
            let request = Context::default().with_client(Client::at([127, 0, 0, last].into()));
            Box::pin(REQUEST_CONTEXT.scope(request, pool.run(&statement, Box::new(Nothing))))
        };
        let mut slow: Vec<_> = (0..8).map(|_| run(1)).collect();
        for asked in &mut slow {
            assert!(timeout(Duration::from_millis(5), asked).await.is_err());
        }
        assert_eq!(pool.backend().running.load(Ordering::SeqCst), 3);
        let (mut other, begun) = (run(2), Instant::now());
        while pool.backend().running.load(Ordering::SeqCst) < 4 {
            assert!(begun.elapsed() < Duration::from_secs(20), "another client waits");
            assert!(timeout(Duration::from_millis(5), &mut other).await.is_err());
        }
        drop((slow, other));
        pool.backend().release.notify_waiters();
    }

    #[tokio::test]
    async fn a_statement_is_cancelled_until_it_has_ended() {
        let pool = abandoned::<true>(true).await;
        assert_eq!(freed(&pool).await, 1);
        assert_eq!(pool.backend().cancelled.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_connection_that_may_yet_be_cancelled_is_closed() {
        let pool = abandoned::<true>(false).await;
        while pool.backend().cancelled.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        pool.backend().release.notify_one();
        assert_eq!(freed(&pool).await, 0);
    }
}
