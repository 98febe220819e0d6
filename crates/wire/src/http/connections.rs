//! The connections that are open: bounded in all and for each client, with room made by those that say nothing.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

use super::pulse::Pulse;
use super::sessions::Peer;
use crate::budget::{Budget, Client, Lease};
use crate::lock::lock;
use crate::unsent::Recipient as _;

/// How long a new connection waits for another one to make room.
const WAIT: Duration = Duration::from_secs(2);

/// How many new connections may wait for that. They have descriptors that are reserved for sources.
const WAITERS: usize = 32;

/// How often it looks for another one that can.
const LOOK: Duration = Duration::from_millis(100);

/// How many of the oldest connections are tried when one has to make room.
const TRIED: usize = 64;

/// What a client hears that finds no room.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n";

/// The connections that are open.
pub(super) struct Connections {
    most: usize,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Those that had sent no request when they were last looked at, the oldest first.
    silent: VecDeque<(Client, Weak<Pulse>)>,
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
        Arc::new(Self { most, budget: Budget::with_waiters(most, WAITERS), state: Mutex::default() })
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.budget.used()
    }

    /// How many there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes in a connection. Where there is no room, the oldest one that says nothing is closed for it.
    pub(super) fn arrive(self: &Arc<Self>, address: IpAddr) -> Arrival {
        let client = Client::at(address);
        let lease = self.budget.try_take(client, 1);
        let mut state = lock(&self.state);
        if lease.is_none() {
            state.make_room(client);
        }
        state.last += 1;
        let peer = Peer { client, connection: Some(state.last) };
        Arrival { peer, pulse: Arc::default(), connections: self.clone(), lease }
    }
}

impl Connections {
    /// Waits for room. More has to be made where others have taken what was made before.
    async fn wait(&self, client: Client) -> Option<Lease> {
        let mut taking = pin!(self.budget.take(client, 1, WAIT));
        loop {
            tokio::select! {
                biased;
                lease = &mut taking => return lease,
                () = sleep(LOOK) => lock(&self.state).make_room(client),
            }
        }
    }
}

impl State {
    /// Closes the oldest connection that has said nothing: of this client if it has one among those that are tried.
    fn make_room(&mut self, client: Client) {
        let silent = || self.silent.iter().enumerate().filter(|(_, (_, pulse))| is_silent(pulse));
        let own = silent().take(TRIED).find(|(_, (owner, _))| *owner == client);
        let Some(at) = own.or_else(|| silent().next()).map(|(at, _)| at) else { return };
        if let Some(pulse) = self.silent.remove(at).and_then(|(_, pulse)| pulse.upgrade()) {
            pulse.close();
        }
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
            tracing::debug!(?client, "no room for a connection");
            let _ = stream.try_write(FULL);
            return None;
        }
        let mut state = lock(&connections.state);
        // Those that have ended or begun to speak go when they come to the front.
        while state.silent.front().is_some_and(|(_, pulse)| !is_silent(pulse)) {
            state.silent.pop_front();
        }
        state.silent.push_back((client, Arc::downgrade(&pulse)));
        lease
    }
}

fn is_silent(pulse: &Weak<Pulse>) -> bool {
    pulse.upgrade().is_some_and(|pulse| pulse.is_silent())
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
    use super::{Connections, for_connections};
    use std::net::{IpAddr, Ipv4Addr};
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

    #[tokio::test]
    async fn who_says_nothing_makes_room_for_a_newcomer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let connections = Connections::new(4);
        let mut open = Vec::new();
        for _ in 0..3 {
            let arrival = connections.arrive(address(1));
            let pulse = arrival.pulse.clone();
            open.push((pulse, arrival.admitted(&stream).await.unwrap()));
        }
        open[0].0.served();
        // The client has its share, and the oldest of its connections has begun to speak.
        let late = connections.arrive(address(1));
        assert!(late.lease.is_none());
        open[1].0.closed().await;
        open.remove(1);
        assert!(late.admitted(&stream).await.is_some());
        // Another client has room of its own.
        assert!(connections.arrive(address(2)).lease.is_some());
    }
}
