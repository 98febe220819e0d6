//! Passes rows to a sink; large rows are decoded on blocking threads.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{CONNECTION_LOST, DriverError, RowSink, StopSignal};
use crate::sql::value::SqlValue;

/// Rows of at least this many bytes are decoded and written on a thread for blocking work.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const MIN_OFFLOADED_BYTES: u64 = 64 * 1024;

/// A sink and the progress of its statement.
pub(super) struct SinkOutput {
    /// `None` only while another thread has the sink.
    sink: Option<Box<dyn RowSink>>,
    stop: Arc<StopSignal>,
    /// Whether the database has returned a row.
    pub(super) begun: bool,
    /// Whether the sink accepts no more rows.
    pub(super) enough: bool,
}

impl SinkOutput {
    pub(super) fn new(sink: Box<dyn RowSink>, stop: Arc<StopSignal>) -> Self {
        Self { sink: Some(sink), stop, begun: false, enough: false }
    }

    /// Moves the sink to a new output for another thread. The caller then replaces `self` with that output.
    #[cfg(feature = "sqlite")]
    pub(super) fn take_sink(&mut self) -> Self {
        Self { sink: self.sink.take(), stop: Arc::clone(&self.stop), ..*self }
    }

    pub(super) fn stop(&self) -> &Arc<StopSignal> {
        &self.stop
    }

    pub(super) fn columns(&mut self, names: Vec<String>) {
        if let Some(sink) = &mut self.sink {
            sink.columns(names);
        }
    }

    /// Passes a row to the sink, unless the sink accepts no more rows.
    pub(super) fn row(&mut self, row: Vec<SqlValue>) {
        self.begun = true;
        if let Some(sink) = &mut self.sink
            && !self.enough
            && let ControlFlow::Break(()) = sink.row(row)
        {
            self.stop_output();
        }
    }

    /// Decodes a row of `size` bytes and passes it to the sink, unless the statement is to stop.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) async fn decoded(
        &mut self,
        size: u64,
        decode: impl FnOnce() -> sqlx::Result<Vec<SqlValue>> + Send + 'static,
    ) -> sqlx::Result<()> {
        self.begun = true;
        if self.enough || self.stop.requested() {
            return Ok(());
        }
        if size < MIN_OFFLOADED_BYTES {
            self.row(decode()?);
            return Ok(());
        }
        let Some(mut sink) = self.sink.take() else { return Err(sqlx::Error::WorkerCrashed) };
        let written = tokio::task::spawn_blocking(move || {
            let flow = decode().map(|row| sink.row(row));
            (sink, flow)
        });
        let (sink, flow) = written.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        self.sink = Some(sink);
        if flow?.is_break() {
            self.stop_output();
        }
        Ok(())
    }

    /// Reports to the sink that the next row has `size` bytes and is too large.
    pub(super) fn oversized(&mut self, size: u64) {
        self.begun = true;
        if let Some(sink) = &mut self.sink
            && !self.enough
        {
            sink.oversized(size);
            self.stop_output();
        }
    }

    /// Accepts no more rows, and stops the statement.
    fn stop_output(&mut self) {
        self.enough = true;
        self.stop.request();
    }

    pub(super) fn into_sink(self) -> Result<Box<dyn RowSink>, DriverError> {
        self.sink.ok_or(DriverError::Unavailable(CONNECTION_LOST))
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::any::Any;
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::thread::{ThreadId, current};

    use super::{MIN_OFFLOADED_BYTES, SinkOutput};
    use crate::sql::driver::{RowSink, StopSignal};
    use crate::sql::value::SqlValue;

    /// Records the thread of each row, and has enough after three.
    struct Threads(Vec<ThreadId>);

    impl RowSink for Threads {
        fn columns(&mut self, _names: Vec<String>) {}

        fn row(&mut self, _row: Vec<SqlValue>) -> ControlFlow<()> {
            self.0.push(current().id());
            if self.0.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }

        fn oversized(&mut self, _size: u64) {}
    }

    #[tokio::test]
    async fn large_rows_are_written_on_another_thread() {
        let stop = Arc::new(StopSignal::default());
        let mut output = SinkOutput::new(Box::new(Threads(Vec::new())), Arc::clone(&stop));
        for size in
            [MIN_OFFLOADED_BYTES - 1, MIN_OFFLOADED_BYTES, MIN_OFFLOADED_BYTES * 2, MIN_OFFLOADED_BYTES]
        {
            assert_eq!(stop.requested(), output.enough);
            output.decoded(size, || Ok(Vec::new())).await.unwrap();
        }
        assert!(output.enough && stop.requested(), "after three rows");
        let sink: Box<dyn Any> = output.into_sink().unwrap();
        let threads = sink.downcast::<Threads>().unwrap().0;
        let here = current().id();
        assert_eq!(threads.iter().map(|id| *id == here).collect::<Vec<_>>(), [true, false, false]);
    }
}
