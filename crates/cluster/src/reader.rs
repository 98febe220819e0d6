//! Reads the Redis stream: delivers the entries of other replicas, and detects entries that this replica has missed.
//!
//! After a disconnection the reader continues after the last entry that it has read. It reports [`Change::Lost`] if
//! entries in between are gone: because the stream was trimmed, because Redis restarted or failed over (and may have
//! lost its last writes), or because the numbers of a replica's entries have a gap.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libris::cluster::RECENT_PERIOD;
use libris::wire::http::SessionEvent;
use libris::{Change, ClusterEvent};
use redis::streams::{StreamId, StreamReadReply};
use redis::{RedisResult, Script, cmd};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::ReplicaState;
use crate::connection::{ReconnectPause, RedisConnection, reason};
use crate::entry::{self, EntryId, StreamMessage};

/// How long Redis waits for an entry before it responds without one.
const BLOCK: Duration = Duration::from_secs(2);

/// How long a response may take. A connection that broke silently is detected after this time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest number of entries per response.
const ENTRIES: usize = 128;

/// Stands for the id of a replica in entries that only mark a position. No replica has this id.
const MARK: &str = "mark";

/// The largest number of replicas whose entry numbers are tracked. When it is reached, all numbers are discarded.
const MAX_REPLICAS: usize = 4_096;

/// Returns the state of the server and of the stream. Creates the incarnation key if it is missing. One script, so that
/// the result is consistent, and so that Redis Cluster runs it on the node that holds the stream.
static INSPECT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A Redis that refuses writes can still be read.
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], string.format('%.0f', now) .. ' ' .. ARGV[1]) end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local answer = {run or '', redis.call('GET', KEYS[2]), string.format('%.0f', now), '', '', '', ''}
if redis.call('EXISTS', KEYS[1]) == 1 then
    local info = redis.call('XINFO', 'STREAM', KEYS[1])
    for at = 1, #info, 2 do
        if info[at] == 'length' then answer[4] = tostring(info[at + 1]) end
        if info[at] == 'last-generated-id' then answer[5] = info[at + 1] end
        if info[at] == 'first-entry' and info[at + 1] then answer[6] = info[at + 1][1] end
        if info[at] == 'entries-added' then answer[7] = tostring(info[at + 1]) end
    end
end
return answer
"#,
    )
});

/// The state of the server and of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inspection {
    /// The run id of the Redis process, and the value of `Keys::incarnation`, which differs after the database was
    /// emptied.
    incarnation: (String, String),
    /// The clock of Redis, in Unix milliseconds.
    now: u64,
    /// When the database was first used, in Unix milliseconds.
    created: u64,
    /// The first entry of the stream; `None` if the stream is empty.
    first: Option<EntryId>,
    /// The last entry that was ever added, even if it was trimmed since; `None` if the stream does not exist.
    last: Option<EntryId>,
    /// Whether entries were removed from the stream.
    is_trimmed: bool,
}

impl Inspection {
    fn parse(answer: &[String]) -> Option<Self> {
        let [run, incarnation, now, length, last, first, added] = answer else { return None };
        let created = incarnation.split(' ').next()?.parse().ok()?;
        Some(Self {
            incarnation: (run.clone(), incarnation.clone()),
            now: now.parse().ok()?,
            created,
            first: EntryId::parse(first),
            last: EntryId::parse(last),
            // Redis before 7.0 does not report `entries-added`; its streams are treated as trimmed.
            is_trimmed: !length.is_empty() && length != added,
        })
    }

    /// The position at which a new replica starts to read: before the entries of the last minute ([`RECENT_PERIOD`]).
    fn recent_start(&self) -> EntryId {
        EntryId::at(self.now.saturating_sub(RECENT_PERIOD.as_millis() as u64))
    }

    /// Whether the stream still has all changes of the last minute.
    fn knows_recent_changes(&self) -> bool {
        let start = self.recent_start();
        let is_complete = !self.is_trimmed || self.first.is_some_and(|first| first <= start);
        EntryId::at(self.created) <= start && is_complete
    }

    /// Whether entries after `last_read` are gone.
    fn has_lost_since(&self, last_read: EntryId) -> bool {
        self.is_trimmed && self.first.is_none_or(|first| first > last_read) && self.last != Some(last_read)
    }
}

/// Where the reader continues after a disconnection.
struct Position {
    incarnation: (String, String),
    last_read: EntryId,
    /// The number of the last entry of each replica.
    numbers: HashMap<String, u64>,
}

/// The channels into which the reader sends events.
struct EventSenders {
    changes: mpsc::Sender<ClusterEvent>,
    sessions: mpsc::Sender<SessionEvent>,
}

impl EventSenders {
    /// Reports that all entries up to this one are delivered.
    async fn reached(&self, id: EntryId) -> Result<(), Closed> {
        let reached = ClusterEvent::Reached { position: id.into() };
        self.changes.send(reached).await.map_err(|_| Closed)
    }
}

/// A receiver of the events no longer exists, because this replica has ended.
struct Closed;

/// Reads the stream until the replica ends.
pub(crate) async fn run(
    shared: Arc<ReplicaState>,
    changes: mpsc::Sender<ClusterEvent>,
    sessions: mpsc::Sender<SessionEvent>,
) {
    let senders = EventSenders { changes, sessions };
    tokio::select! {
        () = shared.status.stopped() => {}
        () = read_forever(&shared, &senders) => {}
    }
}

async fn read_forever(shared: &ReplicaState, senders: &EventSenders) {
    let mut position = None;
    let mut pause = ReconnectPause::new();
    loop {
        let mut is_open = false;
        let failed = match read_stream(shared, senders, &mut position, &mut is_open).await {
            Ok(Closed) => return,
            Err(error) => error,
        };
        shared.status.set_reader(Err(reason(&failed)), false);
        if is_open {
            pause = ReconnectPause::new();
        }
        sleep(pause.next()).await;
    }
}

/// Connects, and reads from `position` until the connection fails. Sets `is_open` once it is connected.
async fn read_stream(
    shared: &ReplicaState,
    senders: &EventSenders,
    position: &mut Option<Position>,
    is_open: &mut bool,
) -> RedisResult<Closed> {
    let mut connection = shared.connector.connect(RESPONSE_TIMEOUT).await?;
    let state = inspect(shared, &mut connection).await?;
    *is_open = true;
    let is_first = position.is_none();
    let (mut is_other, mut is_lost) = (is_first, false);
    let at = position.get_or_insert_with(|| Position {
        incarnation: state.incarnation.clone(),
        last_read: state.recent_start(),
        numbers: HashMap::new(),
    });
    if !is_first {
        shared.reconnected.fetch_add(1, Ordering::Relaxed);
        is_other = at.incarnation != state.incarnation;
        is_lost = is_other || state.has_lost_since(at.last_read);
        if is_other {
            at.incarnation = state.incarnation.clone();
            at.numbers.clear();
            // In a new stream, the ids may be lower than `last_read`.
            at.last_read = at.last_read.min(state.recent_start());
            if senders.sessions.send(SessionEvent::SaveAgain).await.is_err() {
                return Ok(Closed);
            }
        }
    }
    // After a loss, everything counts as changed, which includes all changes until now.
    let now = EntryId::at(state.now);
    if is_lost && report_lost(shared, senders, now).await.is_err() {
        return Ok(Closed);
    }
    // Sent after the loss: before the relay knows of the loss, no cache entry of the new sequence is valid.
    if is_other {
        let sequence = format!("{} {}", at.incarnation.0, at.incarnation.1);
        let position = if is_lost { now } else { at.last_read };
        let begun = ClusterEvent::Begun { sequence, position: position.into() };
        if senders.changes.send(begun).await.is_err() {
            return Ok(Closed);
        }
    } else if is_lost && senders.reached(now).await.is_err() {
        return Ok(Closed);
    }
    if is_lost {
        // An entry without changes: all replicas reach a position after this loss. Otherwise this replica would refuse
        // what the others cache, until the next change.
        let mut mark = cmd("XADD");
        mark.arg(shared.keys.stream()).arg("*").arg("r").arg(MARK).arg("n").arg(0).arg("d").arg("");
        // Fails if Redis refuses writes; the replica can still read.
        let marked: RedisResult<String> = connection.query(&mark).await;
        if let Err(error) = marked {
            tracing::debug!(%error, "the position after lost changes could not be marked");
        }
    }
    // Only the first connection reads the last minute of the stream. After a reconnection, the reader continues after
    // the last entry that it has read.
    shared.status.set_reader(Ok(()), is_first && state.knows_recent_changes());
    let stream = shared.keys.stream();
    let mut now = state.now;
    loop {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(ENTRIES).arg("BLOCK").arg(BLOCK.as_millis() as u64);
        read.arg("STREAMS").arg(&stream).arg(at.last_read.to_string());
        let reply: Option<StreamReadReply> = connection.query(&read).await?;
        let entries = reply.map(|reply| reply.keys).unwrap_or_default();
        let mut has_new = false;
        for entry in entries.into_iter().flat_map(|key| key.ids) {
            let Some(id) = EntryId::parse(&entry.id) else { continue };
            now = now.max(id.milliseconds);
            let age = now.saturating_sub(id.milliseconds);
            let delivered = deliver(shared, senders, at, (id, &entry), age).await;
            if delivered.is_err() {
                return Ok(Closed);
            }
            at.last_read = id;
            has_new = true;
        }
        if has_new && senders.reached(at.last_read).await.is_err() {
            return Ok(Closed);
        }
    }
}

/// Reports that changes before this entry were missed.
async fn report_lost(shared: &ReplicaState, senders: &EventSenders, id: EntryId) -> Result<(), Closed> {
    shared.lost.fetch_add(1, Ordering::Relaxed);
    let event = ClusterEvent::Changed { change: Change::Lost, age: Duration::ZERO, position: id.into() };
    senders.changes.send(event).await.map_err(|_| Closed)
}

/// Delivers an entry, which was written `age` milliseconds ago, unless this replica has written it.
async fn deliver(
    shared: &ReplicaState,
    senders: &EventSenders,
    at: &mut Position,
    (id, entry): (EntryId, &StreamId),
    age: u64,
) -> Result<(), Closed> {
    let (Some(replica), Some(number), Some(data)) =
        (entry.get::<String>("r"), entry.get::<u64>("n"), entry.get::<String>("d"))
    else {
        return report_lost(shared, senders, id).await;
    };
    if replica == shared.replica {
        return Ok(());
    }
    if at.numbers.len() >= MAX_REPLICAS {
        at.numbers.clear();
    }
    let before = at.numbers.insert(replica, number);
    if before.is_some_and(|before| number > before + 1) {
        report_lost(shared, senders, id).await?;
    }
    for message in entry::decode(&data) {
        shared.received.fetch_add(1, Ordering::Relaxed);
        let sent = match message {
            StreamMessage::Change(change) => {
                let age = Duration::from_millis(age);
                let event = ClusterEvent::Changed { change, age, position: id.into() };
                senders.changes.send(event).await.is_ok()
            }
            StreamMessage::Subscribed { session: id, uri } => {
                senders.sessions.send(SessionEvent::Subscribed { id, uri }).await.is_ok()
            }
            StreamMessage::Unsubscribed { session: id, uri } => {
                senders.sessions.send(SessionEvent::Unsubscribed { id, uri }).await.is_ok()
            }
            StreamMessage::Ended { session: id } => {
                senders.sessions.send(SessionEvent::Ended { id }).await.is_ok()
            }
        };
        if !sent {
            return Err(Closed);
        }
    }
    Ok(())
}

async fn inspect(shared: &ReplicaState, connection: &mut RedisConnection) -> RedisResult<Inspection> {
    let mut script = INSPECT.key(shared.keys.stream());
    script.key(shared.keys.incarnation()).arg(&shared.replica);
    let answer: Vec<String> = connection.invoke(&script).await?;
    Inspection::parse(&answer).ok_or_else(|| {
        redis::RedisError::from((redis::ErrorKind::UnexpectedReturnType, "the state of Redis cannot be read"))
    })
}

#[cfg(test)]
mod tests {
    use super::{EntryId, Inspection};

    fn inspection(created: u64, now: u64, length: &str, added: &str, first: &str, last: &str) -> Inspection {
        let answer = ["run", &format!("{created} replica"), &now.to_string(), length, last, first, added];
        Inspection::parse(&answer.map(ToOwned::to_owned)).unwrap()
    }

    #[test]
    fn ids_are_ordered_by_time_and_number() {
        let id = |text| EntryId::parse(text).unwrap();
        assert!(id("9-5") < id("10-0") && id("10-1") < id("10-2"));
        assert_eq!(id("1700000000000-12").to_string(), "1700000000000-12");
        assert_eq!(EntryId::parse(""), None);
        assert_eq!(EntryId::parse("1"), None);
    }

    #[test]
    fn the_last_minute_is_known_if_nothing_of_it_is_gone() {
        let minute = 60_000;
        let now = 10 * minute;
        // An old database whose stream was never trimmed, or not within the last minute.
        assert!(inspection(0, now, "", "", "", "").knows_recent_changes());
        assert!(inspection(0, now, "2", "2", "599000-0", "599001-0").knows_recent_changes());
        assert!(inspection(0, now, "2", "9", "1000-0", "599001-0").knows_recent_changes());
        // Trimmed within the last minute, or a database that is younger.
        assert!(!inspection(0, now, "2", "9", "599000-0", "599001-0").knows_recent_changes());
        assert!(!inspection(now - 1, now, "", "", "", "").knows_recent_changes());
        // Redis before 7.0 does not say whether the stream was trimmed.
        assert!(!inspection(0, now, "2", "", "599000-0", "599001-0").knows_recent_changes());
    }

    #[test]
    fn entries_are_lost_if_the_stream_was_trimmed_beyond_the_last_one_read() {
        let read = EntryId::parse("5000-0").unwrap();
        assert!(!inspection(0, 9000, "2", "2", "6000-0", "7000-0").has_lost_since(read), "never trimmed");
        assert!(!inspection(0, 9000, "2", "5", "4000-0", "7000-0").has_lost_since(read));
        assert!(!inspection(0, 9000, "2", "5", "5000-0", "7000-0").has_lost_since(read));
        assert!(inspection(0, 9000, "2", "5", "5000-1", "7000-0").has_lost_since(read));
        assert!(inspection(0, 9000, "0", "5", "", "7000-0").has_lost_since(read));
        assert!(!inspection(0, 9000, "0", "5", "", "5000-0").has_lost_since(read), "all were read");
    }
}
