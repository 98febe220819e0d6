//! Writes to Redis: the changes of this replica's sources, and its sessions.
//!
//! While Redis cannot be reached, changes wait in a bounded queue, and so do removals of sessions (`session_queue`).
//! The writer probes whether Redis accepts writes again: after a failure with pauses that grow from 100 milliseconds to
//! two seconds, and every five seconds while there is nothing to write, so that the replica knows that it is degraded
//! before it needs to write.

use std::collections::{HashSet, VecDeque};
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris::wire::http::{SavedSession, SessionEvent};
use libris::{Change, ClusterEvent};
use redis::{Pipeline, RedisResult};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

use crate::ReplicaState;
use crate::connection::{ReconnectPause, RedisConnection, reason};
use crate::entry::{self, EntryId, StreamMessage};
use crate::session_queue::{SessionAction, SessionWrite};

/// The approximate maximum number of entries in the stream. Redis removes the oldest.
const STREAM_LENGTH: usize = 65_536;

/// The largest number of changes per entry.
const CHANGES_PER_ENTRY: usize = 128;

/// The largest number of session writes per pipeline.
const WRITES_AT_ONCE: usize = 128;

/// The limits of unpublished changes: their number, and the bytes of their encoded lines. If a limit is exceeded, one
/// [`Change::Lost`] replaces all of them.
const MAX_PENDING: usize = 100_000;
const MAX_PENDING_BYTES: usize = 8 << 20;

/// How long a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the writer probes whether Redis accepts writes while there is nothing to write.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// After how many seconds the key of the probe expires.
const PROBE_TTL: usize = 60;

/// Adds a subscription to a session, unless Redis has lost the session: `HSET` would then create a hash that never
/// expires.
const SUBSCRIBE: &str =
    "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], ARGV[1], '') end";

/// The changes that are not published yet: each once, in the order of their first occurrence.
#[derive(Default)]
pub(crate) struct Pending {
    state: Mutex<PendingState>,
    added: Notify,
}

#[derive(Default)]
struct PendingState {
    queue: PendingQueue,
    /// The number of the last change.
    last: u64,
}

#[derive(Default)]
struct PendingQueue {
    /// The encoded changes, each with the number of its first occurrence, in the order of these numbers.
    order: VecDeque<(u64, String)>,
    lines: HashSet<String>,
    bytes: usize,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        // A poisoned lock is usable: every statement leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().queue.order.len()
    }

    /// Adds a change. Returns its number.
    pub(crate) fn put(&self, change: &Change) -> u64 {
        let line = StreamMessage::Change(change.clone()).encode().unwrap_or_else(|| "L".to_owned());
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.queue.put(number, line);
        drop(state);
        self.added.notify_one();
        number
    }

    /// Removes and returns the changes for the next stream entry.
    fn take(&self) -> Vec<(u64, String)> {
        let queue = &mut self.lock().queue;
        let count = queue.order.len().min(CHANGES_PER_ENTRY);
        let taken: Vec<_> = queue.order.drain(..count).collect();
        for (_, line) in &taken {
            queue.lines.remove(line);
            queue.bytes -= line.len();
        }
        if queue.order.is_empty() {
            *queue = PendingQueue::default();
        }
        taken
    }

    /// Puts changes whose publication failed back to the front of the queue, before later changes: if a resource was
    /// added and then removed, the removal stays after the addition.
    fn put_back(&self, lines: Vec<(u64, String)>) {
        let queue = &mut self.lock().queue;
        let later = mem::take(queue);
        lines.into_iter().chain(later.order).for_each(|(number, line)| queue.put(number, line));
    }

    /// The number before which all changes are published, if all taken changes are.
    fn published_before(&self) -> u64 {
        let state = self.lock();
        state.queue.order.front().map_or(state.last + 1, |(number, _)| *number)
    }
}

impl PendingQueue {
    fn put(&mut self, number: u64, line: String) {
        if self.lines.contains(&line) {
            return;
        }
        if self.order.len() >= MAX_PENDING || self.bytes + line.len() > MAX_PENDING_BYTES {
            let first = self.order.front().map_or(number, |(first, _)| *first);
            *self = Self::default();
            return self.put(first, "L".to_owned());
        }
        self.bytes += line.len();
        self.lines.insert(line.clone());
        self.order.push_back((number, line));
    }
}

/// The task that writes to Redis.
pub(crate) struct RedisWriter {
    shared: Arc<ReplicaState>,
    events: mpsc::Sender<ClusterEvent>,
    session_events: mpsc::Sender<SessionEvent>,
    connection: Option<RedisConnection>,
    /// The number of the next stream entry of this replica.
    number: u64,
    pause: ReconnectPause,
    /// Whether all sessions must be saved again, because writes have failed, and Redis may have lost sessions.
    must_save_again: bool,
}

impl RedisWriter {
    pub(crate) fn new(
        shared: Arc<ReplicaState>,
        events: mpsc::Sender<ClusterEvent>,
        session_events: mpsc::Sender<SessionEvent>,
    ) -> Self {
        let (connection, pause) = (None, ReconnectPause::new());
        Self { shared, events, session_events, connection, number: 1, pause, must_save_again: false }
    }

    /// Writes until the replica ends.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            () = shared.status.stopped() => {}
            () = self.write_forever() => {}
        }
    }

    async fn write_forever(&mut self) {
        let shared = self.shared.clone();
        loop {
            let taken = shared.pending.take();
            let writes = shared.session_queue.take(WRITES_AT_ONCE);
            let changes: Vec<_> = taken.iter().map(|(_, line)| &**line).collect();
            match self.write(&changes, &writes).await {
                Ok(position) => {
                    for done in writes.into_iter().filter_map(|write| write.done) {
                        // Fails if the caller no longer waits.
                        let _ = done.send(true);
                    }
                    shared.published.fetch_add(changes.len(), Ordering::Relaxed);
                    self.report_published(&changes, position).await;
                    shared.status.set_writer(Ok(()));
                    self.pause = ReconnectPause::new();
                    self.must_save_again |= shared.session_queue.has_dropped();
                    // If the channel of events is full, the next write tries again.
                    if self.must_save_again {
                        self.must_save_again = self.session_events.try_send(SessionEvent::SaveAgain).is_err();
                    }
                    self.wait_for_writes().await;
                }
                Err(error) => {
                    shared.pending.put_back(taken);
                    shared.session_queue.put_back(writes);
                    shared.status.set_writer(Err(reason(&error)));
                    self.connection = None;
                    self.must_save_again = true;
                    self.refuse_writes().await;
                }
            }
        }
    }

    /// Waits until there is something to write, or until the next probe is due.
    async fn wait_for_writes(&self) {
        let (pending, sessions) = (&self.shared.pending, &self.shared.session_queue);
        let added = async {
            while pending.len() == 0 && sessions.is_empty() {
                tokio::select! {
                    () = pending.added.notified() => {}
                    () = sessions.added() => {}
                }
            }
        };
        // A time-out has the same effect as a write: the next batch, which is then a probe.
        let _ = timeout(PROBE_INTERVAL, added).await;
    }

    /// Fails all session writes except removals until the pause before the next attempt ends.
    async fn refuse_writes(&mut self) {
        let due = Instant::now() + self.pause.next();
        loop {
            tokio::select! {
                () = sleep_until(due) => return,
                () = self.shared.session_queue.added() => self.shared.session_queue.put_back(Vec::new()),
            }
        }
    }

    /// Reports at which position changes of this replica were published.
    async fn report_published(&self, changes: &[&str], position: Option<EntryId>) {
        let Some(position) = position.filter(|_| !changes.is_empty()) else { return };
        let messages = entry::decode(&changes.join("\n")).into_iter();
        let changes = messages.filter_map(|message| match message {
            StreamMessage::Change(change) => Some(change),
            _ => None,
        });
        let published_before = self.shared.pending.published_before();
        let (changes, position) = (changes.collect(), position.into());
        // Fails if the replica has ended.
        let _ = self.events.send(ClusterEvent::Published { changes, position, published_before }).await;
    }

    /// Writes changes and sessions in one pipeline. Returns the id of the stream entry, if one was written. Fails if
    /// Redis does not accept writes, even if there is nothing to write.
    async fn write(&mut self, changes: &[&str], writes: &[SessionWrite]) -> RedisResult<Option<EntryId>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.shared.connector.connect(RESPONSE_TIMEOUT).await?,
        };
        let mut pipeline = redis::pipe();
        let mut events = Vec::new();
        for write in writes {
            events.extend(self.add_write(&mut pipeline, &write.action));
        }
        let lines: Vec<_> = events.iter().map(String::as_str).chain(changes.iter().copied()).collect();
        if !lines.is_empty() {
            pipeline.cmd("XADD").arg(self.shared.keys.stream()).arg("MAXLEN").arg("~").arg(STREAM_LENGTH);
            pipeline.arg("*").arg("r").arg(&self.shared.replica).arg("n").arg(self.number);
            pipeline.arg("d").arg(lines.join("\n"));
        } else {
            // Without `XADD`, the commands of the pipeline may all succeed on a full Redis, so the probe writes a key.
            pipeline.cmd("SETEX").arg(self.shared.keys.probe()).arg(PROBE_TTL).arg("").ignore();
        }
        if pipeline.len() > 1 {
            // In one transaction, so that no replica learns of a subscription that is not saved.
            pipeline.atomic();
        }
        let ids: Vec<String> = connection.pipeline(&pipeline).await?;
        // The number grows only after success. After a failure it is unknown whether the entry was written. The next
        // entry then has the same number, so that readers see no gap.
        self.number += u64::from(!lines.is_empty());
        self.connection = Some(connection);
        Ok(ids.first().and_then(|id| EntryId::parse(id)))
    }

    /// Adds a session write to the pipeline. Returns the stream line that announces the write to other replicas; `None`
    /// if the write needs no announcement.
    fn add_write(&self, pipeline: &mut Pipeline, action: &SessionAction) -> Option<String> {
        let keys = &self.shared.keys;
        match action {
            SessionAction::Save { id, session, keep } => {
                let key = keys.session(id);
                let SavedSession { revision, shows_apps, principal, subscriptions, .. } = session;
                pipeline.cmd("HSET").arg(&key).arg("revision").arg(revision).ignore();
                if *shows_apps {
                    pipeline.cmd("HSET").arg(&key).arg("apps").arg("").ignore();
                }
                if let Some(principal) = principal {
                    pipeline.cmd("HSET").arg(&key).arg("principal").arg(principal).ignore();
                }
                for uri in subscriptions {
                    pipeline.cmd("HSET").arg(&key).arg(format!("+{uri}")).arg("").ignore();
                }
                touch(pipeline, &key, *keep);
                None
            }
            SessionAction::Subscribe { id, uri } => {
                pipeline
                    .cmd("EVAL")
                    .arg(SUBSCRIBE)
                    .arg(1)
                    .arg(keys.session(id))
                    .arg(format!("+{uri}"))
                    .ignore();
                StreamMessage::Subscribed { session: id.clone(), uri: uri.clone() }.encode()
            }
            SessionAction::Unsubscribe { id, uri } => {
                pipeline.cmd("HDEL").arg(keys.session(id)).arg(format!("+{uri}")).ignore();
                StreamMessage::Unsubscribed { session: id.clone(), uri: uri.clone() }.encode()
            }
            SessionAction::End { id } => {
                pipeline.cmd("DEL").arg(keys.session(id)).ignore();
                StreamMessage::Ended { session: id.clone() }.encode()
            }
            SessionAction::Touch { ids, keep } => {
                ids.iter().for_each(|id| touch(pipeline, &keys.session(id), *keep));
                None
            }
        }
    }
}

/// Postpones the expiry of a session, if it exists. From the remaining TTL, other replicas compute how long the session
/// has been idle.
fn touch(pipeline: &mut Pipeline, key: &str, keep: Duration) {
    pipeline.cmd("PEXPIRE").arg(key).arg(keep.as_millis() as u64).ignore();
}

#[cfg(test)]
mod tests {
    use super::{CHANGES_PER_ENTRY, MAX_PENDING, Pending};
    use libris::{Change, Uri};

    /// The lines for the next entry.
    fn take(pending: &Pending) -> Vec<String> {
        pending.take().into_iter().map(|(_, line)| line).collect()
    }

    fn updated(number: usize) -> Change {
        Change::Updated(Uri::parse(&format!("a://{number}")).unwrap())
    }

    #[test]
    fn a_change_waits_once_and_in_order() {
        let pending = Pending::default();
        for number in [1, 2, 1, 3] {
            pending.put(&updated(number));
        }
        assert_eq!(take(&pending), ["Ua://1", "Ua://2", "Ua://3"]);
        assert_eq!(take(&pending), Vec::<String>::new());
        pending.put(&updated(1));
        assert_eq!(pending.len(), 1, "it changed again");
    }

    #[test]
    fn unpublished_changes_return_before_later_ones() {
        let pending = Pending::default();
        let uri = || Uri::parse("a://1").unwrap();
        pending.put(&Change::Added(uri()));
        let taken = pending.take();
        pending.put(&Change::Removed(uri()));
        pending.put_back(taken);
        assert_eq!(take(&pending), ["Aa://1", "Ra://1"]);
    }

    #[test]
    fn an_entry_is_bounded_and_unpublished_changes_return() {
        let pending = Pending::default();
        (0..CHANGES_PER_ENTRY + 1).for_each(|number| _ = pending.put(&updated(number)));
        let taken = pending.take();
        assert_eq!((taken.len(), pending.len()), (CHANGES_PER_ENTRY, 1));
        pending.put_back(taken);
        assert_eq!(pending.len(), CHANGES_PER_ENTRY + 1);
    }

    #[test]
    fn too_many_changes_become_lost_changes() {
        let pending = Pending::default();
        (0..MAX_PENDING).for_each(|number| _ = pending.put(&updated(number)));
        assert_eq!(pending.len(), MAX_PENDING);
        pending.put(&updated(MAX_PENDING));
        assert_eq!(take(&pending), ["L"]);
    }

    #[test]
    fn a_change_counts_as_published_after_its_first_occurrence_and_all_before() {
        let pending = Pending::default();
        assert_eq!(pending.published_before(), 1);
        assert_eq!([1, 2, 1].map(|number| pending.put(&updated(number))), [1, 2, 3]);
        assert_eq!(pending.published_before(), 1);
        let taken = pending.take();
        assert_eq!(pending.put(&updated(1)), 4);
        assert_eq!(pending.published_before(), 4, "it changed again");
        pending.put_back(taken);
        assert_eq!(pending.published_before(), 1);
        assert_eq!(take(&pending), ["Ua://1", "Ua://2"]);
        assert_eq!(pending.published_before(), 5);
        // One lost change stands for all dropped ones.
        (0..=MAX_PENDING).for_each(|number| _ = pending.put(&updated(number)));
        assert_eq!((pending.len(), pending.published_before()), (1, 5));
    }
}
