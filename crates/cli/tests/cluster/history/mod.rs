//! A history checker: clients of both eras at three replicas read when they are notified, while replicas die or stop for
//! a while, Redis restarts, stops or refuses writes, its stream is trimmed, and the network is cut. What they do is
//! recorded and checked afterwards.

mod observer;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Something that happened, with its time since the beginning of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordedOperation {
    at: Duration,
    event: RecordedEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RecordedEvent {
    /// The resource has this version since now.
    Written { uri: String, version: u64 },
    /// A client was notified by a replica.
    Notified { client: usize, replica: usize, uri: String },
    /// A client received a response to a request that it sent at `sent`.
    Read { client: usize, replica: usize, uri: String, version: u64, sent: Duration },
    /// A fault began or ended.
    Fault(String),
    /// Nothing is pending: until the next fault, each notification is due to a later write.
    Calm,
}

/// All operations, in the order of their times.
struct History {
    began: Instant,
    operations: Mutex<Vec<RecordedOperation>>,
}

impl History {
    fn new() -> Self {
        Self { began: Instant::now(), operations: Mutex::default() }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn record(&self, event: RecordedEvent) {
        let mut operations = self.operations.lock().unwrap();
        let at = self.now();
        operations.push(RecordedOperation { at, event });
    }

    fn operations(&self) -> Vec<RecordedOperation> {
        self.operations.lock().unwrap().clone()
    }
}

/// A guarantee that a history contradicts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Violation {
    /// The client was not notified after the last change of the resource, and does not have it.
    LostNotice { client: usize, uri: String, has: Option<u64>, current: u64 },
    /// The client was notified after a change of the resource, and then read an older version.
    StaleRead { client: usize, uri: String, read: Option<u64>, current: u64 },
    /// After a notification, a replica returned an older version than it had returned before the notification.
    Regression { client: usize, replica: usize, uri: String, read: u64, before: u64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The violations of a history at whose end nothing is pending. Each client is expected to read a resource after each
/// notification of it, and to have read it at the beginning.
fn violations(operations: &[RecordedOperation], clients: usize) -> Vec<Violation> {
    let mut current: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
    for operation in operations {
        if let RecordedEvent::Written { uri, version } = &operation.event {
            current.insert(uri, (*version, operation.at));
        }
    }
    let mut found = Vec::new();
    for client in 0..clients {
        for (uri, (current, written)) in &current {
            let mut has = None;
            let mut was_notified = false;
            for operation in operations {
                match &operation.event {
                    RecordedEvent::Read { client: by, uri: of, version, .. }
                        if (*by, &**of) == (client, *uri) =>
                    {
                        has = Some(*version);
                    }
                    RecordedEvent::Notified { client: by, uri: of, .. } if (*by, &**of) == (client, *uri) => {
                        was_notified |= operation.at > *written;
                    }
                    _ => {}
                }
            }
            if has != Some(*current) {
                let (uri, current) = ((*uri).to_owned(), *current);
                found.push(match was_notified {
                    true => Violation::StaleRead { client, uri, read: has, current },
                    false => Violation::LostNotice { client, uri, has, current },
                });
            }
        }
    }
    found.extend(regressions(operations));
    found.extend(stale_reads_in_calm(operations, clients));
    found
}

/// Reads that followed the first notification of a write, made while nothing else was pending, and returned an older
/// version. With faults, a notification may be due to an earlier write, and a read after it is compared only with what
/// the replica has returned before.
fn stale_reads_in_calm(operations: &[RecordedOperation], clients: usize) -> Vec<Violation> {
    let mut found = Vec::new();
    // The writes since the last calm that are the first of their resource.
    let mut written: BTreeMap<&str, u64> = BTreeMap::new();
    let mut is_calm = false;
    // The clients that were notified of these writes, and when; the time is removed with the first read afterwards.
    let mut notified: BTreeMap<(usize, &str), Option<Duration>> = BTreeMap::new();
    for operation in operations {
        match &operation.event {
            RecordedEvent::Calm | RecordedEvent::Fault(_) => {
                is_calm = operation.event == RecordedEvent::Calm;
                written.clear();
                notified.clear();
            }
            RecordedEvent::Written { uri, version } if is_calm => {
                written.entry(uri).or_insert(*version);
            }
            RecordedEvent::Notified { client, uri, .. }
                if *client < clients && written.contains_key(&**uri) =>
            {
                notified.entry((*client, uri)).or_insert(Some(operation.at));
            }
            RecordedEvent::Read { client, uri, version, sent, .. } => {
                let Some(since) = notified.get_mut(&(*client, uri.as_str())) else { continue };
                if since.is_some_and(|since| *sent >= since) {
                    *since = None;
                    let current = written[uri.as_str()];
                    if *version < current {
                        let (client, uri, read) = (*client, uri.clone(), Some(*version));
                        found.push(Violation::StaleRead { client, uri, read, current });
                    }
                }
            }
            RecordedEvent::Written { .. } | RecordedEvent::Notified { .. } => {}
        }
    }
    found
}

/// Reads after a notification that returned less than the replica had returned to anybody before that notification.
fn regressions(operations: &[RecordedOperation]) -> Vec<Violation> {
    // The highest version that each replica has returned of each resource, and what it was at each client's last
    // notification.
    let mut returned: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    let mut at_notification: BTreeMap<(usize, usize, &str), (Duration, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for operation in operations {
        match &operation.event {
            RecordedEvent::Notified { client, replica, uri } => {
                let highest = returned.get(&(*replica, uri.as_str())).copied().unwrap_or_default();
                at_notification.insert((*client, *replica, uri.as_str()), (operation.at, highest));
            }
            RecordedEvent::Read { client, replica, uri, version, sent } => {
                if let Some((notified, before)) = at_notification.get(&(*client, *replica, uri.as_str()))
                    && sent >= notified
                    && version < before
                {
                    let (client, replica, uri) = (*client, *replica, uri.clone());
                    let (read, before) = (*version, *before);
                    found.push(Violation::Regression { client, replica, uri, read, before });
                }
                let highest = returned.entry((*replica, uri.as_str())).or_default();
                *highest = (*highest).max(*version);
            }
            RecordedEvent::Written { .. } | RecordedEvent::Fault(_) | RecordedEvent::Calm => {}
        }
    }
    found
}

#[cfg(test)]
mod checker {
    use super::{RecordedEvent, RecordedOperation, Violation, violations};
    use std::time::Duration;

    const URI: &str = "a:b";

    fn at(milliseconds: u64, event: RecordedEvent) -> RecordedOperation {
        RecordedOperation { at: Duration::from_millis(milliseconds), event }
    }

    fn written(time: u64, version: u64) -> RecordedOperation {
        at(time, RecordedEvent::Written { uri: URI.to_owned(), version })
    }

    fn notified(time: u64, client: usize, replica: usize) -> RecordedOperation {
        at(time, RecordedEvent::Notified { client, replica, uri: URI.to_owned() })
    }

    fn read(sent: u64, time: u64, client: usize, replica: usize, version: u64) -> RecordedOperation {
        let (uri, sent) = (URI.to_owned(), Duration::from_millis(sent));
        at(time, RecordedEvent::Read { client, replica, uri, version, sent })
    }

    #[test]
    fn a_client_that_reads_what_it_was_notified_of_is_right() {
        let history =
            [written(0, 1), read(1, 2, 0, 0, 1), written(3, 2), notified(4, 0, 0), read(4, 5, 0, 0, 2)];
        assert_eq!(violations(&history, 1), []);
    }

    #[test]
    fn a_notice_that_never_comes_is_found() {
        let history =
            [written(0, 1), read(1, 2, 0, 0, 1), notified(3, 0, 0), read(3, 4, 0, 0, 1), written(5, 2)];
        let uri = URI.to_owned();
        assert_eq!(
            violations(&history, 1),
            [Violation::LostNotice { client: 0, uri, has: Some(1), current: 2 }]
        );
    }

    #[test]
    fn a_stale_read_after_the_last_notice_is_found() {
        let history =
            [written(0, 1), read(1, 2, 0, 0, 1), written(3, 2), notified(4, 0, 0), read(4, 5, 0, 0, 1)];
        let uri = URI.to_owned();
        assert_eq!(
            violations(&history, 1),
            [Violation::StaleRead { client: 0, uri, read: Some(1), current: 2 }]
        );
    }

    #[test]
    fn a_replica_that_goes_back_after_a_notice_is_found_although_it_recovers() {
        let history = [
            written(0, 2),
            read(1, 2, 1, 0, 2),
            notified(3, 0, 0),
            read(4, 5, 0, 0, 1),
            notified(6, 0, 0),
            read(7, 8, 0, 0, 2),
        ];
        let uri = URI.to_owned();
        let regression = Violation::Regression { client: 0, replica: 0, uri, read: 1, before: 2 };
        assert_eq!(violations(&history, 1), [regression]);
        // A request that was sent before the notification may be answered with what was current then.
        let history =
            [written(0, 2), read(1, 2, 1, 0, 2), notified(3, 0, 0), read(2, 5, 0, 0, 1), read(6, 7, 0, 0, 2)];
        assert_eq!(violations(&history, 1), []);
    }

    #[test]
    fn a_stale_read_in_calm_is_found_although_the_replica_recovers() {
        let history = |calm: bool| {
            let calm = if calm { RecordedEvent::Calm } else { RecordedEvent::Fault(String::new()) };
            [
                written(0, 1),
                read(1, 2, 0, 0, 1),
                at(3, calm),
                written(4, 2),
                notified(5, 0, 0),
                read(6, 7, 0, 0, 1),
                notified(8, 0, 0),
                read(9, 10, 0, 0, 2),
            ]
        };
        let uri = URI.to_owned();
        let stale = Violation::StaleRead { client: 0, uri, read: Some(1), current: 2 };
        assert_eq!(violations(&history(true), 1), [stale]);
        // With faults, the first notification may be due to an earlier write.
        assert_eq!(violations(&history(false), 1), []);
    }
}
