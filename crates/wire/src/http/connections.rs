//! Limits the open connections, in total and for each client. A new connection over the limit evicts an idle one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use libris_core::{Budget, Client, Lease};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::liveness::Liveness;
use super::sessions::Peer;
use crate::content_budget::Recipient as _;
use crate::lock::lock;

/// How long a new connection waits for a slot, which is a unit of the connection limit.
const SLOT_WAIT: Duration = Duration::from_secs(2);

/// How many new connections may wait for a slot. Few, because meanwhile they use file descriptors that are reserved for
/// sources.
const MAX_WAITERS: usize = 32;

/// The interval at which a waiting connection evicts another one.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of connections that one eviction examines.
const MAX_EVICTION_SCAN: usize = 64;

/// With more connections than this, or than half of the maximum if that is less, each idle connection drops hyper's
/// connection object to free memory.
const CROWDED: usize = 2_048;

/// Closed connections are removed when the queues have this many more entries than twice the number of open
/// connections.
const PRUNE_SLACK: usize = 64;

/// The response to a client whose connection is over the limit.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\ncontent-length: 110\r\nretry-after: 5\r\nconnection: close\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\
    \"message\":\"too many connections are open; try again later\"}}";

/// The open connections and their limit. An endpoint has one instance for all connections, and one for those of HTTP/2.
pub(super) struct Connections {
    most: usize,
    budget: Arc<Budget>,
    state: Mutex<ConnectionQueues>,
    evicted: AtomicUsize,
    refused: AtomicUsize,
}

#[derive(Default)]
struct ConnectionQueues {
    /// The number of the last accepted connection.
    last: u64,
    /// Connections that had received no request when they were last examined, the oldest first.
    unused: VecDeque<(Client, Weak<Liveness>)>,
    /// Connections that have received a request, the least recently queued or examined first.
    used: VecDeque<(Client, Weak<Liveness>)>,
}

/// An accepted connection, perhaps without a slot yet.
pub(super) struct AcceptedConnection {
    pub(super) peer: Peer,
    pub(super) liveness: Arc<Liveness>,
    connections: Arc<Connections>,
    lease: Option<Lease>,
}

impl Connections {
    /// Bounds the connections to `most`, or to the file descriptors that [are not reserved](connection_limit) if these
    /// are fewer.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let available = descriptor_limit().map_or(most, connection_limit);
        if available < most {
            tracing::info!(
                connections = available,
                "the limit of open files allows fewer connections; raise `ulimit -n`"
            );
        }
        let most = most.min(available);
        Arc::new(Self {
            most,
            budget: Budget::with_waiters(most, MAX_WAITERS),
            state: Mutex::default(),
            evicted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        })
    }

    /// The number of connections closed to make room for others, since the start.
    pub(super) fn evicted(&self) -> usize {
        self.evicted.load(Ordering::Relaxed)
    }

    /// The number of connections refused since the start.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        self.budget.used()
    }

    /// Whether there are so many connections that idle ones must drop hyper's connection objects to free memory.
    pub(super) fn is_crowded(&self) -> bool {
        self.count() > CROWDED.min(self.most / 2)
    }

    /// Starts the graceful shutdown of every connection.
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

    /// The maximum number of connections.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes a slot for a new connection. If no slot is free, evicts an idle connection;
    /// [`wait_for_slot`](AcceptedConnection::wait_for_slot) then waits for the slot.
    pub(super) fn accept(self: &Arc<Self>, address: IpAddr) -> AcceptedConnection {
        let client = Client::at(address);
        let lease = self.budget.try_take(client, 1);
        if lease.is_none() {
            self.evict(client);
        }
        let mut state = lock(&self.state);
        state.last += 1;
        let peer = Peer { client, address: Some(address), connection: Some(state.last) };
        AcceptedConnection { peer, liveness: Arc::default(), connections: self.clone(), lease }
    }

    /// Takes a slot for a connection that already has a slot in another `Connections`: an HTTP/2 connection takes one
    /// in both.
    pub(super) fn accept_existing(
        self: &Arc<Self>,
        peer: Peer,
        liveness: Arc<Liveness>,
    ) -> AcceptedConnection {
        let lease = self.budget.try_take(peer.client, 1);
        if lease.is_none() {
            self.evict(peer.client);
        }
        AcceptedConnection { peer, liveness, connections: self.clone(), lease }
    }
}

impl Connections {
    /// Waits for a slot; `None` if there is none in time. Evicts repeatedly, because another connection may take the
    /// slot that an eviction has freed.
    async fn wait(&self, client: Client) -> Option<Lease> {
        let mut taking = pin!(timeout(SLOT_WAIT, self.budget.take(client, 1)));
        loop {
            tokio::select! {
                biased;
                lease = &mut taking => return lease.ok().flatten(),
                () = sleep(EVICTION_INTERVAL) => self.evict(client),
            }
        }
    }

    /// Evicts an idle connection to make room for this client. In order of preference: a connection of this client on
    /// which no request has arrived; another idle connection of this client; if the total limit is reached, a
    /// connection of any client on which no request has arrived.
    fn evict(&self, client: Client) {
        let idle = {
            let mut state = lock(&self.state);
            state.update_queues();
            let own = state.take_unused(Some(client)).or_else(|| state.take_idle(client));
            // While the client is at its own limit, evicting a connection of another client does not help.
            own.or_else(|| self.budget.is_full().then(|| state.take_unused(None)).flatten())
        };
        if let Some(liveness) = idle {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            liveness.close();
        }
    }
}

impl ConnectionQueues {
    /// Removes the oldest connection that has received no request, of this client or of any client.
    fn take_unused(&mut self, client: Option<Client>) -> Option<Arc<Liveness>> {
        let mut unused = self.unused.iter().enumerate().filter(|(_, (_, liveness))| is_unused(liveness));
        let (at, _) = match client {
            None => unused.next(),
            Some(client) => unused.take(MAX_EVICTION_SCAN).find(|(_, (owner, _))| *owner == client),
        }?;
        self.unused.remove(at)?.1.upgrade()
    }

    /// Removes a connection of this client that has no response outstanding. Used connections of other clients are
    /// never evicted, so that a flood of new connections does not close those of clients within their share.
    fn take_idle(&mut self, client: Client) -> Option<Arc<Liveness>> {
        for _ in 0..self.used.len().min(MAX_EVICTION_SCAN) {
            let (owner, connection) = self.used.pop_front()?;
            let Some(liveness) = connection.upgrade() else { continue };
            if owner == client && liveness.is_idle() {
                return Some(liveness);
            }
            // At the back, so that the next eviction examines it last.
            self.used.push_back((owner, connection));
        }
        None
    }

    /// Moves connections that have received their first request from the front of `unused` to `used`, and removes
    /// closed ones from the front of both.
    fn update_queues(&mut self) {
        while let Some((client, connection)) = self.unused.pop_front_if(|(_, liveness)| !is_unused(liveness))
        {
            if connection.strong_count() > 0 {
                self.used.push_back((client, connection));
            }
        }
        while self.used.pop_front_if(|(_, connection)| connection.strong_count() == 0).is_some() {}
    }
}

impl AcceptedConnection {
    /// Waits for a slot. If there is none in time, writes a 503 response to `stream` and returns `None`.
    pub(super) async fn wait_for_slot(self, stream: Option<&TcpStream>) -> Option<Lease> {
        let Self { peer: Peer { client, .. }, liveness, connections, lease } = self;
        let lease = match lease {
            Some(lease) => Some(lease),
            None => connections.wait(client).await,
        };
        if lease.is_none() {
            tracing::debug!(?client, "too many connections are open");
            connections.refused.fetch_add(1, Ordering::Relaxed);
            if let Some(stream) = stream {
                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
            }
            return None;
        }
        let mut state = lock(&connections.state);
        state.update_queues();
        // `update_queues` does not reach closed connections behind an open one. They are removed in one pass.
        if state.unused.len() + state.used.len() > PRUNE_SLACK + 2 * connections.count() {
            state.unused.retain(|(_, connection)| connection.strong_count() > 0);
            state.used.retain(|(_, connection)| connection.strong_count() > 0);
        }
        state.unused.push_back((client, Arc::downgrade(&liveness)));
        lease
    }
}

fn is_unused(liveness: &Weak<Liveness>) -> bool {
    liveness.upgrade().is_some_and(|liveness| liveness.is_unused())
}

/// The process's limit of open file descriptors.
fn descriptor_limit() -> Option<usize> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).current.map(|most| usize::try_from(most).unwrap_or(usize::MAX))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// The number of file descriptors that connections may use. The rest is reserved for sources: for example, a source
/// that cannot open its ignore files cannot decide what to hide.
fn connection_limit(descriptors: usize) -> usize {
    let reserved = (descriptors / 4).clamp(128, 4_096).min(descriptors - descriptors / 4);
    descriptors.saturating_sub(reserved).max(1)
}

#[cfg(test)]
mod tests {
    use super::{Connections, Lease, Liveness, connection_limit, lock};
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
        assert_eq!(connection_limit(1_024), 768);
        assert_eq!(connection_limit(20_000), 15_904);
        assert_eq!(connection_limit(1_000_000), 995_904);
        assert_eq!(connection_limit(256), 128);
        assert_eq!(connection_limit(16), 4);
    }

    /// The client and the server end of a connection.
    async fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    /// Opens connections of these clients, in this order. They have received no request.
    async fn open(connections: &Arc<Connections>, clients: &[u8]) -> Vec<(Arc<Liveness>, Lease)> {
        let (_client, stream) = ends().await;
        let mut open = Vec::new();
        for last in clients {
            let accepted = connections.accept(address(*last));
            let liveness = accepted.liveness.clone();
            open.push((liveness, accepted.wait_for_slot(Some(&stream)).await.unwrap()));
        }
        open
    }

    /// The indexes of the connections that are being closed.
    fn closed(open: &[(Arc<Liveness>, Lease)]) -> Vec<usize> {
        let is_closed = |liveness: &Arc<Liveness>| liveness.close_requested().now_or_never().is_some();
        open.iter().enumerate().filter(|(_, (liveness, _))| is_closed(liveness)).map(|(at, _)| at).collect()
    }

    #[tokio::test]
    async fn a_connection_without_a_request_is_evicted_for_a_new_one() {
        let connections = Connections::new(4);
        let (_client, stream) = ends().await;
        let mut open = open(&connections, &[1, 1, 1]).await;
        open[0].0.record_request();
        // The client has used its share, and the oldest of its connections has received a request.
        let late = connections.accept(address(1));
        assert!(late.lease.is_none());
        assert_eq!(closed(&open), [1]);
        open.remove(1);
        assert!(late.wait_for_slot(Some(&stream)).await.is_some());
        // Another client has a share of its own.
        assert!(connections.accept(address(2)).lease.is_some());
    }

    #[tokio::test]
    async fn a_client_evicts_its_own_connections_first() {
        let connections = Connections::new(4);
        let mut open = open(&connections, &[1, 2, 2, 1]).await;
        let _late = connections.accept(address(2));
        assert_eq!(closed(&open), [1]);
        // For a client without connections, one of another client is evicted.
        open.remove(1);
        connections.accept(address(2)).lease.map(std::mem::forget).unwrap();
        let _other = connections.accept(address(3));
        assert_eq!(closed(&open), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_connection_evicts_again_if_another_takes_the_slot() {
        let connections = Connections::new(4);
        let (_client, stream) = ends().await;
        let mut open = open(&connections, &[1, 1, 1, 3]).await;
        let late = connections.accept(address(2));
        assert_eq!(closed(&open), [0]);
        open.remove(0);
        let quick = connections.accept(address(4));
        assert!(quick.lease.is_some());
        let (liveness, lease) = open.remove(0);
        tokio::spawn(async move {
            liveness.close_requested().await;
            drop(lease);
        });
        assert!(late.wait_for_slot(Some(&stream)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_over_the_limit_gets_503_with_retry_after() {
        let connections = Connections::new(4);
        let open = open(&connections, &[1, 1, 1]).await;
        // All responses are outstanding.
        for (liveness, _) in &open {
            liveness.begin_request();
        }
        let (mut client, stream) = ends().await;
        assert!(connections.accept(address(1)).wait_for_slot(Some(&stream)).await.is_none());
        drop(stream);
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        assert!(received.starts_with("HTTP/1.1 503") && received.contains("retry-after: 5"), "{received}");
        assert!(closed(&open).is_empty());
        let (head, body) = received.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{received}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
        assert_eq!((connections.evicted(), connections.refused()), (0, 1));
    }

    #[tokio::test]
    async fn a_client_loses_its_own_idle_connections_and_not_those_of_others() {
        let connections = Connections::new(8);
        let mut open = open(&connections, &[2, 2, 1, 1, 1, 1, 1, 1]).await;
        open.iter().for_each(|(liveness, _)| liveness.record_request());
        open[2].0.begin_request();
        let _late = connections.accept(address(1));
        // The oldest of its own connections without an outstanding response.
        assert_eq!(closed(&open), [3]);
        open.remove(3);
        assert!(connections.accept(address(3)).lease.is_some_and(|lease| {
            std::mem::forget(lease);
            true
        }));
        let _other = connections.accept(address(3));
        assert!(closed(&open).is_empty());
        assert_eq!(connections.evicted(), 1);
    }

    #[tokio::test]
    async fn a_client_at_its_limit_evicts_no_connection_of_another() {
        let connections = Connections::new(8);
        let open = open(&connections, &[2, 1, 1, 1, 1, 1, 1]).await;
        for (liveness, _) in &open[1..] {
            liveness.begin_request();
        }
        // Other clients still have slots, and all connections of this client have outstanding responses.
        let _late = connections.accept(address(1));
        assert!(closed(&open).is_empty());
    }

    #[tokio::test]
    async fn an_http2_connection_also_takes_a_slot_of_the_smaller_limit() {
        let (all, few) = (Connections::new(8), Connections::new(4));
        let (_client, stream) = ends().await;
        let open = open(&all, &[1, 1, 1, 2]).await;
        let mut leases = Vec::new();
        for (liveness, _) in &open[..3] {
            let peer = all.accept(address(1)).peer;
            leases.push(
                few.accept_existing(peer, liveness.clone()).wait_for_slot(Some(&stream)).await.unwrap(),
            );
        }
        // The client has used its share of `few`, and its oldest connection is evicted.
        let late = all.accept(address(1));
        assert!(late.lease.is_some());
        assert!(few.accept_existing(late.peer, late.liveness.clone()).lease.is_none());
        assert_eq!(closed(&open), [0]);
    }

    #[tokio::test]
    async fn closed_connections_are_pruned() {
        let connections = Connections::new(40);
        // In the second round, they are queued behind an open connection that has received no request.
        for clients in [&[][..], &[1]] {
            let _stays = open(&connections, clients).await;
            for _ in 0..500 {
                let open = open(&connections, &[2, 3]).await;
                open[0].0.record_request();
            }
            let state = lock(&connections.state);
            let queued = state.unused.len() + state.used.len();
            assert!(queued < 100, "{queued} of {} connections", connections.count());
        }
    }
}
