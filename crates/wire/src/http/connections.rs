//! The connections that are open: bounded in all and for each client. Where the limit is reached, idle ones are evicted.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use libris_core::{Budget, Client, Lease};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::pulse::Pulse;
use super::sessions::Peer;
use crate::lock::lock;
use crate::unsent::Recipient as _;

/// How long a new connection waits for another one to make room.
const WAIT: Duration = Duration::from_secs(2);

/// How many new connections may wait for that. They have descriptors that are reserved for sources.
const WAITERS: usize = 32;

/// How often it looks for another one that can.
const LOOK: Duration = Duration::from_millis(100);

/// How many connections are examined when one has to be evicted.
const MAX_EVICTION_SCAN: usize = 64;

/// With more connections than this, or half of those that there may be, a connection that waits for a request gives back
/// what it needs only for answering it.
const CROWD: usize = 2_048;

/// How many connections may be noted that are not there any more, at least.
const SPARE: usize = 64;

/// The response to a client whose connection is over the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\ncontent-length: 110\r\nretry-after: 5\r\nconnection: close\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\
    \"message\":\"too many connections are open; try again later\"}}";

/// The connections that are open.
pub(super) struct Connections {
    most: usize,
    budget: Arc<Budget>,
    state: Mutex<State>,
    evicted: AtomicUsize,
    refused: AtomicUsize,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Those that had sent no request when they were last examined, the oldest first.
    unused: VecDeque<(Client, Weak<Pulse>)>,
    /// The others, the one first that was opened or last examined first.
    used: VecDeque<(Client, Weak<Pulse>)>,
}

/// A connection that was accepted, before it is known whether there is room for it.
pub(super) struct Arrival {
    pub(super) peer: Peer,
    pub(super) pulse: Arc<Pulse>,
    connections: Arc<Connections>,
    lease: Option<Lease>,
}

impl Connections {
    /// Room for `most` connections, or as many as there are file descriptors for if that is less.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let there_are = descriptors().map_or(most, for_connections);
        if there_are < most {
            tracing::info!(
                connections = there_are,
                "the limit of open files allows fewer connections; raise `ulimit -n`"
            );
        }
        let most = most.min(there_are);
        Arc::new(Self {
            most,
            budget: Budget::with_waiters(most, WAITERS),
            state: Mutex::default(),
            evicted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        })
    }

    /// How many were closed to make room for others since the start.
    pub(super) fn evicted(&self) -> usize {
        self.evicted.load(Ordering::Relaxed)
    }

    /// How many were refused since the start.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.budget.used()
    }

    /// Whether there are so many that each must do with little memory.
    pub(super) fn is_crowded(&self) -> bool {
        self.count() > CROWD.min(self.most / 2)
    }

    /// Tells each of them that the server stops.
    pub(super) fn stop(&self) {
        let open: Vec<_> = {
            let state = lock(&self.state);
            state
                .unused
                .iter()
                .chain(&state.used)
                .filter_map(|(_, connection)| connection.upgrade())
                .collect()
        };
        open.iter().for_each(|connection| connection.stop());
    }

    /// How many there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes in a connection. Where the limit is reached, an idle one is closed for it.
    pub(super) fn arrive(self: &Arc<Self>, address: IpAddr) -> Arrival {
        let client = Client::at(address);
        let lease = self.budget.try_take(client, 1);
        if lease.is_none() {
            self.evict(client);
        }
        let mut state = lock(&self.state);
        state.last += 1;
        let peer = Peer { client, connection: Some(state.last) };
        Arrival { peer, pulse: Arc::default(), connections: self.clone(), lease }
    }

    /// Takes in a connection that was taken in among others before.
    pub(super) fn arrive_again(self: &Arc<Self>, peer: Peer, pulse: Arc<Pulse>) -> Arrival {
        let lease = self.budget.try_take(peer.client, 1);
        if lease.is_none() {
            self.evict(peer.client);
        }
        Arrival { peer, pulse, connections: self.clone(), lease }
    }
}

impl Connections {
    /// Waits for room. More has to be made where others have taken what was made before.
    async fn wait(&self, client: Client) -> Option<Lease> {
        let mut taking = pin!(timeout(WAIT, self.budget.take(client, 1)));
        loop {
            tokio::select! {
                biased;
                lease = &mut taking => return lease.ok().flatten(),
                () = sleep(LOOK) => self.evict(client),
            }
        }
    }

    /// Closes an idle connection: one without a request if there is one, and of this client rather than of another.
    fn evict(&self, client: Client) {
        let idle = {
            let mut state = lock(&self.state);
            state.settle();
            let own = state.unused(Some(client)).or_else(|| state.idle(client));
            // Another client's makes no room where this one has its share.
            own.or_else(|| self.budget.is_full().then(|| state.unused(None)).flatten())
        };
        if let Some(pulse) = idle {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            pulse.close();
        }
    }
}

impl State {
    /// Takes out the oldest connection that has sent no request, of this client or of any.
    fn unused(&mut self, client: Option<Client>) -> Option<Arc<Pulse>> {
        let mut unused = self.unused.iter().enumerate().filter(|(_, (_, pulse))| is_unused(pulse));
        let (at, _) = match client {
            None => unused.next(),
            Some(client) => unused.take(MAX_EVICTION_SCAN).find(|(_, (owner, _))| *owner == client),
        }?;
        self.unused.remove(at)?.1.upgrade()
    }

    /// Takes out a connection of this client that waits for no response. Those of others stay: a client that keeps
    /// connections open within its share loses none to a flood.
    fn idle(&mut self, client: Client) -> Option<Arc<Pulse>> {
        for _ in 0..self.used.len().min(MAX_EVICTION_SCAN) {
            let (owner, connection) = self.used.pop_front()?;
            let Some(pulse) = connection.upgrade() else { continue };
            if owner == client && pulse.is_idle() {
                return Some(pulse);
            }
            // Examined last the next time.
            self.used.push_back((owner, connection));
        }
        None
    }

    /// Moves those that have sent a request since they were opened.
    fn settle(&mut self) {
        while let Some((client, connection)) = self.unused.pop_front_if(|(_, pulse)| !is_unused(pulse)) {
            if connection.strong_count() > 0 {
                self.used.push_back((client, connection));
            }
        }
        while self.used.pop_front_if(|(_, connection)| connection.strong_count() == 0).is_some() {}
    }
}

impl Arrival {
    /// Waits for room; `None` if there is none, which the client is told.
    pub(super) async fn admitted(self, stream: &TcpStream) -> Option<Lease> {
        let Self { peer: Peer { client, .. }, pulse, connections, lease } = self;
        let lease = match lease {
            Some(lease) => Some(lease),
            None => connections.wait(client).await,
        };
        if lease.is_none() {
            tracing::debug!(?client, "too many connections are open");
            connections.refused.fetch_add(1, Ordering::Relaxed);
            let _ = stream.try_write(FULL);
            return None;
        }
        let mut state = lock(&connections.state);
        state.settle();
        // Behind one that stays, those that have ended are forgotten all at once.
        if state.unused.len() + state.used.len() > SPARE + 2 * connections.count() {
            state.unused.retain(|(_, connection)| connection.strong_count() > 0);
            state.used.retain(|(_, connection)| connection.strong_count() > 0);
        }
        state.unused.push_back((client, Arc::downgrade(&pulse)));
        lease
    }
}

fn is_unused(pulse: &Weak<Pulse>) -> bool {
    pulse.upgrade().is_some_and(|pulse| pulse.is_unused())
}

/// How many file descriptors the process may have open.
fn descriptors() -> Option<usize> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).current.map(|most| usize::try_from(most).unwrap_or(usize::MAX))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// How many of the file descriptors connections may take. The rest is for what is served: a source that cannot open
/// its files cannot tell what to hide.
fn for_connections(descriptors: usize) -> usize {
    let reserved = (descriptors / 4).clamp(128, 4_096).min(descriptors - descriptors / 4);
    descriptors.saturating_sub(reserved).max(1)
}

#[cfg(test)]
mod tests {
    use super::{Connections, Lease, Pulse, for_connections, lock};
    use futures_util::FutureExt as _;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    #[test]
    fn descriptors_are_left_for_sources() {
        assert_eq!(for_connections(1_024), 768);
        assert_eq!(for_connections(20_000), 15_904);
        assert_eq!(for_connections(1_000_000), 995_904);
        assert_eq!(for_connections(256), 128);
        assert_eq!(for_connections(16), 4);
    }

    /// The two ends of a connection.
    async fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    /// Connections of these clients that have said nothing yet, in this order.
    async fn open(connections: &Arc<Connections>, clients: &[u8]) -> Vec<(Arc<Pulse>, Lease)> {
        let (_client, stream) = ends().await;
        let mut open = Vec::new();
        for last in clients {
            let arrival = connections.arrive(address(*last));
            let pulse = arrival.pulse.clone();
            open.push((pulse, arrival.admitted(&stream).await.unwrap()));
        }
        open
    }

    /// Which of them have been told to close.
    fn closed(open: &[(Arc<Pulse>, Lease)]) -> Vec<usize> {
        let is_closed = |pulse: &Arc<Pulse>| pulse.closed().now_or_never().is_some();
        open.iter().enumerate().filter(|(_, (pulse, _))| is_closed(pulse)).map(|(at, _)| at).collect()
    }

    #[tokio::test]
    async fn who_says_nothing_makes_room_for_a_newcomer() {
        let connections = Connections::new(4);
        let (_client, stream) = ends().await;
        let mut open = open(&connections, &[1, 1, 1]).await;
        open[0].0.served();
        // The client has its share, and the oldest of its connections has begun to speak.
        let late = connections.arrive(address(1));
        assert!(late.lease.is_none());
        assert_eq!(closed(&open), [1]);
        open.remove(1);
        assert!(late.admitted(&stream).await.is_some());
        // Another client has room of its own.
        assert!(connections.arrive(address(2)).lease.is_some());
    }

    #[tokio::test]
    async fn a_client_makes_room_for_itself_first() {
        let connections = Connections::new(4);
        let mut open = open(&connections, &[1, 2, 2, 1]).await;
        let _late = connections.arrive(address(2));
        assert_eq!(closed(&open), [1]);
        // One that has none itself takes that of another.
        open.remove(1);
        connections.arrive(address(2)).lease.map(std::mem::forget).unwrap();
        let _other = connections.arrive(address(3));
        assert_eq!(closed(&open), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn more_room_is_made_where_others_took_it() {
        let connections = Connections::new(4);
        let (_client, stream) = ends().await;
        let mut open = open(&connections, &[1, 1, 1, 3]).await;
        let late = connections.arrive(address(2));
        assert_eq!(closed(&open), [0]);
        open.remove(0);
        let quick = connections.arrive(address(4));
        assert!(quick.lease.is_some());
        let (pulse, lease) = open.remove(0);
        tokio::spawn(async move {
            pulse.closed().await;
            drop(lease);
        });
        assert!(late.admitted(&stream).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_is_told_to_come_back() {
        let connections = Connections::new(4);
        let open = open(&connections, &[1, 1, 1]).await;
        // They wait for responses.
        for (pulse, _) in &open {
            pulse.asked();
        }
        let (mut client, stream) = ends().await;
        assert!(connections.arrive(address(1)).admitted(&stream).await.is_none());
        drop(stream);
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("retry-after: 5"), "{told}");
        assert!(closed(&open).is_empty());
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{told}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
        assert_eq!((connections.evicted(), connections.refused()), (0, 1));
    }

    #[tokio::test]
    async fn a_client_loses_its_own_idle_connections_and_not_those_of_others() {
        let connections = Connections::new(8);
        let mut open = open(&connections, &[2, 2, 1, 1, 1, 1, 1, 1]).await;
        open.iter().for_each(|(pulse, _)| pulse.served());
        open[2].0.asked();
        let _late = connections.arrive(address(1));
        // The oldest of its own that waits for no response.
        assert_eq!(closed(&open), [3]);
        open.remove(3);
        assert!(connections.arrive(address(3)).lease.is_some_and(|lease| {
            std::mem::forget(lease);
            true
        }));
        let _other = connections.arrive(address(3));
        assert!(closed(&open).is_empty());
        assert_eq!(connections.evicted(), 1);
    }

    #[tokio::test]
    async fn who_has_its_share_closes_no_connection_of_another() {
        let connections = Connections::new(8);
        let open = open(&connections, &[2, 1, 1, 1, 1, 1, 1]).await;
        for (pulse, _) in &open[1..] {
            pulse.asked();
        }
        // There is room for others, and its own all wait for responses.
        let _late = connections.arrive(address(1));
        assert!(closed(&open).is_empty());
    }

    #[tokio::test]
    async fn a_connection_has_a_place_among_all_and_one_among_few() {
        let (all, few) = (Connections::new(8), Connections::new(4));
        let (_client, stream) = ends().await;
        let open = open(&all, &[1, 1, 1, 2]).await;
        let mut places = Vec::new();
        for (pulse, _) in &open[..3] {
            let peer = all.arrive(address(1)).peer;
            places.push(few.arrive_again(peer, pulse.clone()).admitted(&stream).await.unwrap());
        }
        // The client has its share of those, and the oldest makes room.
        let late = all.arrive(address(1));
        assert!(late.lease.is_some());
        assert!(few.arrive_again(late.peer, late.pulse.clone()).lease.is_none());
        assert_eq!(closed(&open), [0]);
    }

    #[tokio::test]
    async fn connections_that_have_ended_are_forgotten() {
        let connections = Connections::new(40);
        // Also behind one that stays and says nothing.
        for clients in [&[][..], &[1]] {
            let _stays = open(&connections, clients).await;
            for _ in 0..500 {
                let open = open(&connections, &[2, 3]).await;
                open[0].0.served();
            }
            let state = lock(&connections.state);
            let noted = state.unused.len() + state.used.len();
            assert!(noted < 100, "{noted} of {} connections", connections.count());
        }
    }
}
