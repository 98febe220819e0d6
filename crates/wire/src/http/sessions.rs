//! All sessions by id. Their number is limited in total, for each client, and for each connection that opens them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libris_core::Client;

use super::session::HttpSession;
use crate::ServiceView;
use crate::lock::lock;

/// The sender of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) client: Client,
    /// The full address of the connection; `client` has only the network of an IPv6 address.
    pub(super) address: Option<IpAddr>,
    /// The number of its connection, if this server accepted it.
    pub(super) connection: Option<u64>,
}

/// The resolution of the LRU order: a session that is used again within this time is not moved in it.
const RESOLUTION: Duration = Duration::from_secs(1);

/// The maximum number of sessions that one eviction examines. Busy ones are not evicted.
const MAX_EVICTION_SCAN: usize = 16;

/// All sessions by id.
pub(super) struct Sessions {
    most: usize,
    /// The maximum number of sessions of a client without an identity.
    share: usize,
    /// The maximum number of sessions of a client with an identity.
    identity_share: usize,
    idle: Duration,
    began: Instant,
    table: Mutex<SessionTable>,
    /// The number of open event streams.
    streams: Arc<AtomicUsize>,
}

#[derive(Default)]
struct SessionTable {
    open: HashMap<Arc<str>, SessionEntry>,
    /// The sessions of each owner in eviction order. Every session has an entry for each of its owners.
    order: BTreeSet<(Owner, Rank, Arc<str>)>,
    counts: HashMap<Owner, usize>,
    /// The clients ordered by how many sessions they have.
    largest: BTreeSet<(usize, Client)>,
}

struct SessionEntry {
    session: Arc<HttpSession>,
    peer: Peer,
    rank: Rank,
}

/// A scope in which the number of sessions is limited. Every session belongs to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Owner {
    Connection(u64),
    Client(Client),
    /// All sessions. Must be the last variant: `sweep` relies on these entries being the last in `order`.
    Everybody,
}

/// The eviction order: first the sessions that were never used after the handshake, then the least recently used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    used: bool,
    /// When it was opened or last used.
    last: Duration,
}

impl Peer {
    /// The same peer with the authenticated identity as its client, if the view has one.
    pub(super) fn identified(self, view: &dyn ServiceView) -> Self {
        Self { client: view.client().unwrap_or(self.client), ..self }
    }

    fn owners(self) -> impl Iterator<Item = Owner> {
        let connection = self.connection.map(Owner::Connection);
        connection.into_iter().chain([Owner::Client(self.client), Owner::Everybody])
    }
}

impl Sessions {
    pub(super) fn new(most: usize, idle: Duration) -> Self {
        let share = most - most / 4;
        let (began, table, streams) = (Instant::now(), Mutex::default(), Arc::default());
        Self { most, share, identity_share: share, idle, began, table, streams }
    }

    /// Sets the maximum number of sessions of each address and of each identity; three quarters of all by default.
    pub(super) fn with_shares(self, address: Option<usize>, identity: Option<usize>) -> Self {
        let share = |given: Option<usize>| given.unwrap_or(self.share).min(self.most);
        Self { share: share(address), identity_share: share(identity), ..self }
    }

    /// The maximum number of sessions of an owner. A connection may have as many as an eighth of all, since a proxy opens
    /// the sessions of many clients on few connections.
    fn limit(&self, owner: Owner) -> usize {
        match owner {
            Owner::Connection(_) => self.most.div_ceil(8),
            Owner::Client(client) if client.has_identity() => self.identity_share,
            Owner::Client(_) => self.share,
            Owner::Everybody => self.most,
        }
    }

    /// Opens a session under this id, or returns the one that has it. If an owner is at its limit, another session of that
    /// owner is evicted; `None` if all sessions that were examined are busy.
    pub(super) fn open(&self, id: &Arc<str>, session: HttpSession, peer: Peer) -> Option<Arc<HttpSession>> {
        let now = self.began.elapsed();
        session.notifications.count_streams_in(&self.streams);
        let mut ended = Vec::new();
        let mut table = lock(&self.table);
        if let Some(entry) = table.open.get(id) {
            return Some(entry.session.clone());
        }
        let full = |table: &SessionTable, owner| {
            table.counts.get(&owner).is_some_and(|count| *count >= self.limit(owner))
        };
        let there_is_room = peer.owners().all(|owner| {
            if !full(&table, owner) {
                return true;
            }
            let made = table.make_room(owner, now);
            let is_room = made.is_some();
            ended.extend(made);
            is_room
        });
        let session = there_is_room.then(|| {
            let (session, rank) = (Arc::new(session), Rank { used: false, last: now });
            table.insert(id.clone(), SessionEntry { session: session.clone(), peer, rank });
            session
        });
        drop(table);
        // Not under the lock: dropping a session ends its subscriptions.
        ended.iter().for_each(|session: &Arc<HttpSession>| session.evict());
        session
    }

    /// The session with this id. Does not count as a use of the session.
    pub(super) fn peek(&self, id: &str) -> Option<Arc<HttpSession>> {
        lock(&self.table).open.get(id).map(|entry| entry.session.clone())
    }

    /// All sessions by id.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<HttpSession>)> {
        lock(&self.table).open.iter().map(|(id, entry)| (id.clone(), entry.session.clone())).collect()
    }

    /// The ids of the sessions that were used within this time, or are in use.
    pub(super) fn used_within(&self, time: Duration) -> Vec<Arc<str>> {
        let now = self.began.elapsed();
        let table = lock(&self.table);
        let is_used = |entry: &SessionEntry| entry.rank.last + time >= now || entry.session.is_in_use();
        table.open.iter().filter(|(_, entry)| is_used(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// The session with this id, which becomes the most recently used.
    pub(super) fn find(&self, id: &str) -> Option<Arc<HttpSession>> {
        let now = self.began.elapsed();
        let mut table = lock(&self.table);
        let entry = table.open.get(id)?;
        let session = entry.session.clone();
        if !entry.rank.used || now >= entry.rank.last + RESOLUTION {
            table.promote(id, Rank { used: true, last: now });
        }
        Some(session)
    }

    /// The number of open sessions, and of their event streams. A stream of an ended session counts until the stream
    /// ends too.
    pub(super) fn count(&self) -> (usize, usize) {
        (lock(&self.table).open.len(), self.streams.load(Ordering::Relaxed))
    }

    /// Ends a session. Returns whether there was one.
    pub(super) fn close(&self, id: &str) -> bool {
        let closed = lock(&self.table).remove(id);
        if let Some(session) = &closed {
            session.ended.cancel();
        }
        closed.is_some()
    }

    /// Ends the sessions that have been idle for too long.
    pub(super) fn sweep(&self) {
        let now = self.began.elapsed();
        let mut ended = Vec::new();
        let mut table = lock(&self.table);
        let idle: Vec<_> = [false, true]
            .into_iter()
            .flat_map(|used| {
                let from = (Owner::Everybody, Rank { used, last: Duration::ZERO }, Arc::from(""));
                let old = move |rank: &Rank| rank.used == used && rank.last + self.idle <= now;
                table.order.range(from..).take_while(move |(_, rank, _)| old(rank)).map(|(.., id)| id.clone())
            })
            .collect();
        for id in idle {
            if table.open.get(&id).is_some_and(|entry| entry.session.is_in_use()) {
                table.promote(&id, Rank { used: true, last: now });
            } else {
                ended.extend(table.remove(&id));
            }
        }
        drop(table);
        ended.iter().for_each(|session| session.ended.cancel());
    }
}

impl SessionTable {
    fn insert(&mut self, id: Arc<str>, entry: SessionEntry) {
        for owner in entry.peer.owners() {
            self.order.insert((owner, entry.rank, id.clone()));
            self.count(owner, 1);
        }
        self.open.insert(id, entry);
    }

    fn remove(&mut self, id: &str) -> Option<Arc<HttpSession>> {
        let (id, entry) = self.open.remove_entry(id)?;
        for owner in entry.peer.owners() {
            self.order.remove(&(owner, entry.rank, id.clone()));
            self.count(owner, -1);
        }
        Some(entry.session)
    }

    /// Changes the rank of a session in the eviction order.
    fn promote(&mut self, id: &str, rank: Rank) {
        let Some((id, mut entry)) = self.open.remove_entry(id) else { return };
        for owner in entry.peer.owners() {
            self.order.remove(&(owner, entry.rank, id.clone()));
            self.order.insert((owner, rank, id.clone()));
        }
        entry.rank = rank;
        self.open.insert(id, entry);
    }

    /// Removes the first session in the eviction order of an owner, except busy ones, and returns it; the caller ends
    /// the session. For `Everybody`, removes a session of the client that has the most sessions.
    fn make_room(&mut self, owner: Owner, now: Duration) -> Option<Arc<HttpSession>> {
        let owner = match owner {
            Owner::Everybody => Owner::Client(self.largest.last()?.1),
            owner => owner,
        };
        for _ in 0..MAX_EVICTION_SCAN {
            let first = Rank { used: false, last: Duration::ZERO };
            let id = match self.order.range((owner, first, Arc::from(""))..).next() {
                Some((other, _, id)) if *other == owner => id.clone(),
                _ => return None,
            };
            if !self.open.get(&id)?.session.is_busy() {
                return self.remove(&id);
            }
            // A busy session counts as used now, so that the next attempt examines another one.
            self.promote(&id, Rank { used: true, last: now });
        }
        None
    }

    /// Changes the recorded number of sessions of an owner by `change`.
    fn count(&mut self, owner: Owner, change: isize) {
        let before = self.counts.get(&owner).copied().unwrap_or_default();
        let after = before.saturating_add_signed(change);
        match after {
            0 => self.counts.remove(&owner),
            _ => self.counts.insert(owner, after),
        };
        if let Owner::Client(client) = owner {
            self.largest.remove(&(before, client));
            if after > 0 {
                self.largest.insert((after, client));
            }
        }
    }
}

/// 128 random bits in hexadecimal; `None` if the system provides no random numbers.
pub(super) fn random_id() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::{Owner, Peer, Sessions, random_id};
    use crate::Revision;
    use crate::empty::Empty;
    use crate::envelope::Id;
    use crate::http::queue_listener::QueueListener;
    use crate::http::session::HttpSession;
    use crate::lock::lock;
    use libris_core::Client;
    use std::sync::Arc;
    use std::time::Duration;

    fn session() -> HttpSession {
        HttpSession::new(Arc::new(Empty), Revision::V2025_06_18, 1, Arc::new(QueueListener::default()), None)
    }

    impl Sessions {
        /// Opens a session under a new id.
        fn open_new(&self, session: HttpSession, peer: Peer) -> Option<Arc<str>> {
            let id: Arc<str> = random_id()?.into();
            self.open(&id, session, peer).map(|_| id)
        }
    }

    fn peer(client: u8, connection: u64) -> Peer {
        let address = [127, 0, 0, client].into();
        Peer { client: Client::at(address), address: Some(address), connection: Some(connection) }
    }

    fn sessions(most: usize) -> Sessions {
        Sessions::new(most, Duration::from_secs(60))
    }

    #[test]
    fn a_client_over_its_limit_loses_its_own_sessions() {
        let sessions = sessions(80);
        let mine = sessions.open_new(session(), peer(1, 1)).unwrap();
        let flood: Vec<_> = (0..100).map(|_| sessions.open_new(session(), peer(1, 2)).unwrap()).collect();
        // A connection may have an eighth, and the oldest are evicted.
        assert!(sessions.find(&mine).is_some());
        assert_eq!(flood.iter().filter(|id| sessions.find(id).is_some()).count(), 10);
        assert!(flood[90..].iter().all(|id| sessions.find(id).is_some()));
        for connection in 3..100 {
            sessions.open_new(session(), peer(1, connection)).unwrap();
        }
        assert_eq!(lock(&sessions.table).counts[&Owner::Client(peer(1, 1).client)], 60);
        let other = sessions.open_new(session(), peer(2, 1000)).unwrap();
        assert!(sessions.find(&other).is_some());
    }

    #[test]
    fn a_full_table_evicts_a_session_of_the_largest_client() {
        let sessions = sessions(8);
        let open = |client, connection| sessions.open_new(session(), peer(client, connection)).unwrap();
        let many: Vec<_> = (0..5).map(|number| open(1, number)).collect();
        let few: Vec<_> = (5..8).map(|number| open(2, number)).collect();
        let is_open = |id: &Arc<str>| lock(&sessions.table).open.contains_key(id);
        for (at, id) in many.iter().chain(&few).enumerate() {
            assert!(at == 3 || sessions.find(id).is_some());
        }
        open(3, 8);
        assert!(!is_open(&many[3]), "the one that was never used");
        open(4, 9);
        assert!(!is_open(&many[0]), "the least recently used one");
        assert!(few.iter().all(is_open));
        assert_eq!(sessions.count().0, 8);
    }

    #[test]
    fn busy_sessions_are_not_evicted_and_a_new_one_is_refused() {
        let sessions = sessions(2);
        let ids = [0, 1].map(|number| sessions.open_new(session(), peer(number, number.into())).unwrap());
        let busy = ids.map(|id| sessions.find(&id).unwrap().run(&Id::parse("1").unwrap()));
        assert!(sessions.open_new(session(), peer(9, 9)).is_none());
        drop(busy);
        assert!(sessions.open_new(session(), peer(9, 9)).is_some());
    }

    #[test]
    fn a_session_with_a_stream_can_be_evicted_but_is_not_idle() {
        let sessions = Sessions::new(2, Duration::ZERO);
        let ids = [1, 2].map(|number| sessions.open_new(session(), peer(number, number.into())).unwrap());
        let held = ids.map(|id| sessions.find(&id).unwrap());
        let _streams = held.each_ref().map(|session| session.notifications.open(None));
        sessions.sweep();
        assert_eq!(sessions.count(), (2, 2));
        assert!(sessions.open_new(session(), peer(9, 9)).is_some());
        assert_eq!(held.iter().filter(|session| session.ended.is_cancelled()).count(), 1);
    }

    /// `/metrics` asks for the count at every request, so it must not visit the sessions.
    #[test]
    fn streams_are_counted_until_they_end() {
        let sessions = sessions(10);
        let ids = [1, 2].map(|number| sessions.open_new(session(), peer(number, number.into())).unwrap());
        let held = ids.each_ref().map(|id| sessions.find(id).unwrap());
        let mut streams: Vec<_> = (0..3).map(|_| held[0].notifications.open(None)).collect();
        let other = held[1].notifications.open(None);
        assert_eq!(sessions.count(), (2, 4));
        // A session has four streams at most: the oldest ends, even if nobody polls it.
        streams.extend((0..3).map(|_| held[0].notifications.open(None)));
        assert_eq!(sessions.count(), (2, 5));
        drop(streams.remove(0));
        assert_eq!(sessions.count(), (2, 5), "it does not count twice");
        sessions.close(&ids[1]);
        assert_eq!(sessions.count(), (1, 5));
        drop(other);
        assert_eq!(sessions.count(), (1, 4));
        drop(streams);
        assert_eq!(sessions.count(), (1, 0));
    }

    #[test]
    fn an_evicted_session_is_ended() {
        let sessions = sessions(8);
        let first = sessions.open_new(session(), peer(1, 1)).map(|id| sessions.find(&id).unwrap()).unwrap();
        let other = sessions.open_new(session(), peer(1, 2)).map(|id| sessions.find(&id).unwrap()).unwrap();
        sessions.open_new(session(), peer(1, 1)).unwrap();
        assert!(first.ended.is_cancelled() && !other.ended.is_cancelled());
    }

    #[test]
    fn a_busy_session_is_not_idle() {
        let sessions = Sessions::new(10, Duration::ZERO);
        let held = sessions.open_new(session(), peer(1, 1)).map(|id| sessions.find(&id).unwrap()).unwrap();
        let busy = held.run(&Id::parse("1").unwrap());
        sessions.sweep();
        assert!(!held.ended.is_cancelled() && sessions.count().0 == 1);
        let batch = held.run_batch();
        drop(busy);
        sessions.sweep();
        assert!(!held.ended.is_cancelled() && sessions.count().0 == 1);
        drop(batch);
        sessions.sweep();
        assert!(held.ended.is_cancelled() && sessions.count().0 == 0);
    }

    #[test]
    fn ended_sessions_leave_no_entries() {
        let sessions = Sessions::new(10, Duration::ZERO);
        let first = sessions.open_new(session(), peer(1, 1)).unwrap();
        let held = sessions.open_new(session(), peer(1, 1)).map(|id| sessions.find(&id).unwrap()).unwrap();
        sessions.close(&first);
        assert!(sessions.find(&first).is_none());
        assert!(!held.ended.is_cancelled());
        sessions.sweep();
        assert!(held.ended.is_cancelled());
        let table = lock(&sessions.table);
        assert!(table.open.is_empty() && table.order.is_empty() && table.counts.is_empty());
        assert!(table.largest.is_empty());
    }
}
