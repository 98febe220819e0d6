//! Whether this replica is connected to Redis, that is, whether both its reader and its writer work.

use libris::ClusterEvent;
use tokio::sync::watch;

/// The state of the connections of the reader and the writer.
#[derive(Clone, Debug)]
struct RedisLinkState {
    /// `Ok` while the reader is connected, otherwise the reason why it is not; empty before its first attempt.
    reader: Result<(), String>,
    writer: Result<(), String>,
    /// Whether this is the first connection of the reader, and the stream still has all changes of the last minute, which
    /// the reader then delivers. Always false after a reconnection.
    knows_recent_changes: bool,
    is_stopped: bool,
}

impl RedisLinkState {
    fn failure(&self) -> Option<&String> {
        let reader = self.reader.as_ref().err();
        // The writer may fail before the reader has tried to connect.
        reader.filter(|reason| !reason.is_empty()).or(self.writer.as_ref().err()).or(reader)
    }
}

/// The state of the connections, which the reader and the writer report.
pub(crate) struct LinkStatus(watch::Sender<RedisLinkState>);

impl Default for LinkStatus {
    fn default() -> Self {
        // The writer counts as working until it fails, because it connects only when there is something to write.
        let reader = Err(String::new());
        Self(watch::Sender::new(RedisLinkState {
            reader,
            writer: Ok(()),
            knows_recent_changes: false,
            is_stopped: false,
        }))
    }
}

impl LinkStatus {
    pub(crate) fn set_reader(&self, state: Result<(), String>, knows_recent_changes: bool) {
        self.0.send_modify(|link| {
            link.reader = state;
            link.knows_recent_changes = knows_recent_changes;
        });
    }

    pub(crate) fn set_writer(&self, state: Result<(), String>) {
        self.0.send_if_modified(|link| std::mem::replace(&mut link.writer, state) != link.writer);
    }

    /// Whether the reader is connected to Redis.
    pub(crate) fn is_reader_connected(&self) -> bool {
        self.0.borrow().reader.is_ok()
    }

    /// Completes [`stopped`](Self::stopped), which ends the tasks of the replica.
    pub(crate) fn stop(&self) {
        self.0.send_modify(|link| link.is_stopped = true);
    }

    /// Completes after [`stop`](Self::stop).
    pub(crate) async fn stopped(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|link| link.is_stopped).await;
    }

    pub(crate) fn watch(&self) -> StatusWatch {
        StatusWatch { state: self.0.subscribe(), reported: None }
    }
}

/// Converts changes of the state into events.
pub(crate) struct StatusWatch {
    state: watch::Receiver<RedisLinkState>,
    /// Whether the last event was `Connected`; `None` before the first event.
    reported: Option<bool>,
}

impl StatusWatch {
    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> ClusterEvent {
        loop {
            if self.state.changed().await.is_err() {
                return std::future::pending().await;
            }
            let state = self.state.borrow_and_update().clone();
            match state.failure() {
                Some(reason) if self.reported != Some(false) => {
                    self.reported = Some(false);
                    return ClusterEvent::Disconnected { reason: reason.clone() };
                }
                None if self.reported != Some(true) => {
                    self.reported = Some(true);
                    return ClusterEvent::Connected { knows_recent_changes: state.knows_recent_changes };
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LinkStatus;
    use futures_util::FutureExt as _;
    use libris::ClusterEvent;

    #[test]
    fn a_replica_is_connected_while_it_can_read_and_write() {
        let status = LinkStatus::default();
        let mut watch = status.watch();
        let mut next = || watch.next().now_or_never();
        let disconnected = |reason: &str| Some(ClusterEvent::Disconnected { reason: reason.to_owned() });
        let connected = |knows_recent_changes| Some(ClusterEvent::Connected { knows_recent_changes });
        assert_eq!(next(), None);
        status.set_reader(Err("refused".to_owned()), false);
        assert_eq!(next(), disconnected("refused"));
        status.set_reader(Err("refused again".to_owned()), false);
        assert_eq!(next(), None);
        status.set_reader(Ok(()), true);
        assert_eq!(next(), connected(true));
        status.set_writer(Err("read only".to_owned()));
        assert_eq!(next(), disconnected("read only"));
        status.set_writer(Ok(()));
        assert_eq!(next(), connected(true));
        status.set_writer(Ok(()));
        assert_eq!(next(), None);
    }

    #[test]
    fn the_reason_is_that_of_the_first_failure() {
        let status = LinkStatus::default();
        let mut watch = status.watch();
        status.set_writer(Err("refused".to_owned()));
        let reason = "refused".to_owned();
        assert_eq!(watch.next().now_or_never(), Some(ClusterEvent::Disconnected { reason }));
    }
}
