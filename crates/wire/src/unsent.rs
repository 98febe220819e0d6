//! Memory for contents, from before they are loaded until the last of their response is sent.
//!
//! A client that does not take its responses holds memory that others need. While somebody waits for memory, the
//! connections of clients that take less than [`SLOWEST`] bytes a second are closed. Over HTTP/2 each stream is measured
//! by itself, and must take its part of that.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use libris_core::{Budget, Client, Lease};
use tokio::time::{Instant, sleep, timeout};

use crate::envelope::Framed;
use crate::lock::lock;
use crate::pool;

/// How often slow clients are looked for while somebody waits.
const LOOK: Duration = Duration::from_millis(250);

/// Over what time the speed of a client is measured, at least. The system takes megabytes at once and then nothing until
/// the client has read a good part of them, which takes a slow one seconds.
const PERIOD: Duration = Duration::from_secs(12);

/// How long after its beginning a response is looked at first.
const START: Duration = Duration::from_secs(1);

/// How many bytes a second a client must take while others wait for the memory that its response is in.
const SLOWEST: u64 = 128 << 10;

/// How many bytes of a response are encoded ahead of the client, at most.
pub(crate) const GATHERED: usize = 13 * pool::SIZE;

/// A connection, or a stream of HTTP/2, that responses are sent on.
pub(crate) trait Recipient: Send + Sync {
    /// How many bytes the client has taken so far.
    fn taken(&self) -> u64;

    /// How many recipients have the speed of one connection together.
    fn sharers(&self) -> u64 {
        1
    }

    /// Closes it.
    fn close(&self);
}

/// Responses of up to so many bytes have memory of their own, and do not wait for larger ones.
const SMALL: usize = 64 << 10;
const MEDIUM: usize = 1 << 20;

/// Responses of up to so many bytes do not wait for memory.
const TINY: usize = 4 << 10;

/// How much of the memory one client may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// Three quarters.
    Most,
    /// All of it, where there is no other client.
    All,
}

/// The memory of one server for contents.
pub(crate) struct Unsent {
    small: Arc<Budget>,
    medium: Arc<Budget>,
    large: Arc<Budget>,
    /// How long a response waits for memory.
    patience: Duration,
    sending: Mutex<Sending>,
}

/// The responses that are being sent.
#[derive(Default)]
struct Sending {
    last: u64,
    responses: HashMap<u64, Response>,
    /// When slow clients were last looked for.
    looked: Option<Instant>,
}

struct Response {
    recipient: Weak<dyn Recipient>,
    /// Since when its speed is measured, and how much the recipient had taken by then. Not from the beginning: what is
    /// taken at once goes into the system's buffers, and tells nothing of what the client will take.
    measured: Option<(Instant, u64)>,
    began: Instant,
}

impl Unsent {
    /// Memory of so many bytes, of which each client may have a share.
    pub(crate) fn new(bytes: usize, share: Share, patience: Duration) -> Arc<Self> {
        let budget = |bytes| match share {
            Share::Most => Budget::new(bytes),
            Share::All => Budget::with_share(bytes, bytes),
        };
        let (small, medium) = (bytes / 12, bytes / 6);
        Arc::new(Self {
            small: budget(small),
            medium: budget(medium),
            large: budget(bytes - small - medium),
            patience,
            sending: Mutex::default(),
        })
    }

    fn budget(&self, bytes: usize) -> &Arc<Budget> {
        if bytes <= SMALL {
            &self.small
        } else if bytes <= MEDIUM {
            &self.medium
        } else {
            &self.large
        }
    }

    /// Takes memory if there is some.
    pub(crate) fn try_take(self: &Arc<Self>, client: Client, bytes: usize) -> Option<Room> {
        let lease = self.budget(bytes).try_take(client, bytes)?;
        Some(Room { unsent: self.clone(), lease, number: OnceLock::new() })
    }

    /// Takes memory, waiting for it for a while.
    pub(crate) async fn take(self: &Arc<Self>, client: Client, bytes: usize) -> Option<Room> {
        let budget = self.budget(bytes);
        let lease = match budget.try_take_fairly(client, bytes) {
            Some(lease) => lease,
            // Boxed, or every response would make room for waiting.
            None => {
                let taking = timeout(self.patience, budget.take(client, bytes));
                Box::pin(self.closing_slow_connections(taking)).await.ok().flatten()?
            }
        };
        Some(Room { unsent: self.clone(), lease, number: OnceLock::new() })
    }

    /// Room for a response that is in memory already although there is none for it.
    pub(crate) fn uncounted(self: &Arc<Self>) -> Room {
        Room { unsent: self.clone(), lease: self.small.empty_lease(), number: OnceLock::new() }
    }

    /// How many bytes are in use.
    pub(crate) fn used(&self) -> usize {
        self.small.used() + self.medium.used() + self.large.used()
    }

    /// Waits for memory, and sees to it that there will be some.
    async fn closing_slow_connections<T>(&self, taking: impl Future<Output = T>) -> T {
        let mut taking = pin!(taking);
        loop {
            tokio::select! {
                biased;
                taken = &mut taking => return taken,
                () = async { self.close_slow_connections(); sleep(LOOK).await } => {}
            }
        }
    }

    /// Closes the connections of clients that hold memory and take too little.
    pub(crate) fn close_slow_connections(&self) {
        let now = Instant::now();
        let slow: Vec<_> = {
            let mut sending = lock(&self.sending);
            if sending.looked.is_some_and(|looked| now < looked + LOOK) {
                return;
            }
            sending.looked = Some(now);
            sending.responses.values_mut().filter_map(|response| response.slow_recipient(now)).collect()
        };
        // Not under the lock: whatever closes may drop a response that is in the table.
        slow.iter().for_each(|recipient| recipient.close());
    }
}

impl Response {
    /// The recipient, if it has taken too little since its speed is measured.
    fn slow_recipient(&mut self, now: Instant) -> Option<Arc<dyn Recipient>> {
        let recipient = self.recipient.upgrade().filter(|_| now >= self.began + START)?;
        let taken = recipient.taken();
        let (since, before) = *self.measured.get_or_insert((now, taken));
        let time = now.saturating_duration_since(since);
        if time < PERIOD {
            return None;
        }
        let least = SLOWEST * time.as_millis() as u64 / 1000 / recipient.sharers().max(1);
        if taken.saturating_sub(before) < least {
            return Some(recipient);
        }
        self.measured = Some((now, taken));
        None
    }
}

/// Memory that a response holds. Dropping it gives it back.
pub(crate) struct Room {
    unsent: Arc<Unsent>,
    lease: Lease,
    /// Which of the responses that are being sent it is for.
    number: OnceLock<u64>,
}

impl Room {
    /// From now on its response is being sent on this connection.
    pub(crate) fn sending_to(&self, recipient: &Arc<impl Recipient + 'static>) {
        self.number.get_or_init(|| {
            let recipient: Arc<dyn Recipient> = recipient.clone();
            let recipient = Arc::downgrade(&recipient);
            let response = Response { recipient, measured: None, began: Instant::now() };
            let mut sending = lock(&self.unsent.sending);
            sending.last += 1;
            let number = sending.last;
            sending.responses.insert(number, response);
            number
        });
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            lock(&self.unsent.sending).responses.remove(number);
        }
    }
}

/// A message on its way to a client, with the memory that it is in.
pub(crate) struct Outgoing {
    pub(crate) framed: Framed,
    pub(crate) room: Option<Room>,
}

impl From<Framed> for Outgoing {
    fn from(framed: Framed) -> Self {
        Self { framed, room: None }
    }
}

/// The memory that one request has reserved for its contents.
pub(crate) struct Reserved {
    unsent: Arc<Unsent>,
    client: Client,
    state: Mutex<Reservation>,
}

#[derive(Default)]
struct Reservation {
    room: Option<Room>,
    /// How much of it is spoken for.
    bytes: usize,
    /// Whether some of it is in use already, so that it cannot be given back to wait for more.
    held: bool,
    /// How much was asked for in vain.
    wanted: Option<usize>,
    /// Whether memory is being waited for, or else when it was last granted after a wait.
    waiting: bool,
    granted: Option<std::time::Instant>,
}

impl Reserved {
    pub(crate) fn new(unsent: &Arc<Unsent>, client: Client) -> Self {
        Self { unsent: unsent.clone(), client, state: Mutex::default() }
    }

    /// Reserves memory for so many bytes more, if there is some.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let mut state = lock(&self.state);
        let bytes = state.bytes.saturating_add(bytes);
        let needed = with_buffers(bytes);
        let there = match &mut state.room {
            // What was waited for is there already.
            Some(room) if needed <= room.lease.amount() => true,
            Some(room) if room.lease.amount() > MEDIUM => room.lease.resize(needed),
            _ => match self.unsent.try_take(self.client, needed) {
                Some(room) => {
                    state.room = Some(room);
                    true
                }
                None => false,
            },
        };
        match there {
            true => state.bytes = bytes,
            false => state.wanted = Some(needed),
        }
        there
    }

    /// The same for contents that are being loaded and are not to be loaded again.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let there = self.reserve(bytes);
        if !there {
            // Nobody will wait for it.
            lock(&self.state).wanted = None;
            self.unsent.close_slow_connections();
        }
        there
    }

    /// The same for contents of `bytes` in all that are loaded already.
    pub(crate) fn reserve_loaded(&self, bytes: usize) -> bool {
        let reserved = lock(&self.state).bytes;
        self.grow(bytes.saturating_sub(reserved))
    }

    /// Makes sure that memory is reserved for `bytes` in all, which are in use until the response is sent: from now on the
    /// request does not wait for memory. `false` if there is none.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        lock(&self.state).held = true;
        self.reserve_loaded(bytes)
    }

    /// Waits until what was asked for in vain can be had, for a request that starts over. Whether there is a point
    /// in that.
    pub(crate) async fn wait(&self) -> bool {
        let wanted = {
            let mut state = lock(&self.state);
            if state.held {
                return false;
            }
            state.bytes = 0;
            // Those who hold memory do not wait for more: they would wait for each other.
            state.room = None;
            let Some(wanted) = state.wanted.take() else { return false };
            state.waiting = true;
            wanted
        };
        let room = self.unsent.take(self.client, wanted).await;
        let there = room.is_some();
        let mut state = lock(&self.state);
        (state.room, state.waiting, state.granted) = (room, false, Some(std::time::Instant::now()));
        there
    }

    /// Since when the request has had the memory that it waited for; nothing if it did not wait. While it waits, its time
    /// does not run: what it waits for is that clients read.
    pub(crate) fn resumed(&self) -> Option<std::time::Instant> {
        let state = lock(&self.state);
        if state.waiting { Some(std::time::Instant::now()) } else { state.granted }
    }

    /// The room for a response: what was reserved, or else what is waited for.
    pub(crate) async fn settle(&self, framed: &Framed) -> Option<Room> {
        let bytes = match framed.encoded() {
            Some(_) => framed.size(),
            None => with_buffers(framed.size()),
        };
        let room = lock(&self.state).room.take();
        match room {
            // So little is sent in any case, or a client could not even be told that it has to wait.
            None if bytes <= TINY => {
                let room = self.unsent.try_take(self.client, bytes);
                Some(room.unwrap_or_else(|| self.unsent.uncounted()))
            }
            None => self.unsent.take(self.client, bytes).await,
            // It may be more than was reserved.
            Some(mut room) => room.lease.resize(bytes).then_some(room),
        }
    }
}

/// How much memory contents take that are encoded while they are sent.
fn with_buffers(bytes: usize) -> usize {
    bytes.saturating_add(bytes.min(GATHERED))
}

#[cfg(test)]
mod tests;
