//! The memory budget of contents, from before they are loaded until the last byte of their response is sent.
//!
//! A client that does not read its responses holds memory that others need. While a request waits for memory, the
//! connections of clients that read fewer than [`MIN_RATE`] bytes a second are closed. Over HTTP/2 each stream is
//! measured separately: it must reach [`MIN_RATE`] divided by the number of streams with unsent bytes.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use libris_core::{Budget, Client, Lease};
use tokio::time::{Instant, sleep, timeout};

use crate::envelope::Framed;
use crate::lock::lock;
use crate::pool;

/// The interval at which slow clients are searched for while a request waits.
const SLOW_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The minimum period over which the read rate of a client is measured. A short period would be misleading: the kernel
/// accepts megabytes at once, and then nothing until the client has read a good part of them, which takes a slow client
/// seconds.
const RATE_PERIOD: Duration = Duration::from_secs(12);

/// The time between the start of a response and the start of its first measurement.
const FIRST_MEASUREMENT: Duration = Duration::from_secs(1);

/// The bytes per second that a client must read while others wait for the memory of its response.
const MIN_RATE: u64 = 128 << 10;

/// The maximum number of bytes of a response that are encoded but not yet sent.
pub(crate) const ENCODED_AHEAD: usize = 13 * pool::SIZE;

/// A connection or an HTTP/2 stream on which responses are sent.
pub(crate) trait Recipient: Send + Sync {
    /// The number of bytes sent so far.
    fn bytes_sent(&self) -> u64;

    /// How many recipients with unsent bytes share the bandwidth of the connection.
    fn sharers(&self) -> u64 {
        1
    }

    /// Closes the connection or resets the stream.
    fn close(&self);
}

/// Responses of up to this many bytes have a budget of their own, so that they do not wait for larger responses.
const SMALL_RESPONSE: usize = 64 << 10;

/// Responses above [`SMALL_RESPONSE`] and of up to this many bytes have a second budget, for the same reason.
const MEDIUM_RESPONSE: usize = 1 << 20;

/// Responses of up to this many bytes do not wait for memory.
const TINY_RESPONSE: usize = 4 << 10;

/// How much of the budget one client may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// Three quarters.
    ThreeQuarters,
    /// All of it, for a transport with only one client.
    All,
}

/// The memory budget of one server for contents, split by the size of responses.
pub(crate) struct ContentBudget {
    small: Arc<Budget>,
    medium: Arc<Budget>,
    large: Arc<Budget>,
    /// How long a response waits for memory.
    max_wait: Duration,
    sending: Mutex<UnsentResponses>,
}

/// The responses being sent.
#[derive(Default)]
struct UnsentResponses {
    /// The last key in `responses`.
    last: u64,
    responses: HashMap<u64, UnsentResponse>,
    /// When slow clients were last searched for.
    last_search: Option<Instant>,
}

struct UnsentResponse {
    recipient: Weak<dyn Recipient>,
    /// The start of the current measurement, and the bytes sent by then. The first measurement starts later than the
    /// response, because the first bytes only fill the socket buffers and do not show the client's read rate.
    measured: Option<(Instant, u64)>,
    /// The start of the response.
    began: Instant,
}

impl ContentBudget {
    /// Creates a budget of this many bytes, with the given share for each client.
    pub(crate) fn new(bytes: usize, share: Share, max_wait: Duration) -> Arc<Self> {
        let budget = |bytes| match share {
            Share::ThreeQuarters => Budget::new(bytes),
            Share::All => Budget::with_share(bytes, bytes),
        };
        let (small, medium) = (bytes / 12, bytes / 6);
        Arc::new(Self {
            small: budget(small),
            medium: budget(medium),
            large: budget(bytes - small - medium),
            max_wait,
            sending: Mutex::default(),
        })
    }

    fn budget(&self, bytes: usize) -> &Arc<Budget> {
        if bytes <= SMALL_RESPONSE {
            &self.small
        } else if bytes <= MEDIUM_RESPONSE {
            &self.medium
        } else {
            &self.large
        }
    }

    /// Reserves memory if it is available now.
    pub(crate) fn try_take(self: &Arc<Self>, client: Client, bytes: usize) -> Option<ContentLease> {
        let lease = self.budget(bytes).try_take(client, bytes)?;
        Some(ContentLease { budget: self.clone(), reserved: lease, number: OnceLock::new() })
    }

    /// Reserves memory, waiting for up to `max_wait`.
    pub(crate) async fn take(self: &Arc<Self>, client: Client, bytes: usize) -> Option<ContentLease> {
        let budget = self.budget(bytes);
        let lease = match budget.try_take_fairly(client, bytes) {
            Some(lease) => lease,
            // Boxed, or the future of every response would have room for the state of a wait.
            None => {
                let taking = timeout(self.max_wait, budget.take(client, bytes));
                Box::pin(self.closing_slow_connections(taking)).await.ok().flatten()?
            }
        };
        Some(ContentLease { budget: self.clone(), reserved: lease, number: OnceLock::new() })
    }

    /// A reservation of zero bytes, for a response that is sent although the budget is used up.
    pub(crate) fn uncounted(self: &Arc<Self>) -> ContentLease {
        ContentLease { budget: self.clone(), reserved: self.small.empty_lease(), number: OnceLock::new() }
    }

    /// The number of reserved bytes.
    pub(crate) fn used(&self) -> usize {
        self.small.used() + self.medium.used() + self.large.used()
    }

    /// Awaits `taking`, and meanwhile closes connections of slow clients to free memory.
    async fn closing_slow_connections<T>(&self, taking: impl Future<Output = T>) -> T {
        let mut taking = pin!(taking);
        loop {
            tokio::select! {
                biased;
                taken = &mut taking => return taken,
                () = async { self.close_slow_connections(); sleep(SLOW_CHECK_INTERVAL).await } => {}
            }
        }
    }

    /// Closes the connections of clients that hold memory and read too slowly.
    pub(crate) fn close_slow_connections(&self) {
        let now = Instant::now();
        let slow: Vec<_> = {
            let mut sending = lock(&self.sending);
            if sending.last_search.is_some_and(|last_search| now < last_search + SLOW_CHECK_INTERVAL) {
                return;
            }
            sending.last_search = Some(now);
            sending.responses.values_mut().filter_map(|response| response.slow_recipient(now)).collect()
        };
        // Not under the lock: closing may drop a response that is in the table.
        slow.iter().for_each(|recipient| recipient.close());
    }
}

impl UnsentResponse {
    /// The recipient, if its client has read too slowly since the measurement started.
    fn slow_recipient(&mut self, now: Instant) -> Option<Arc<dyn Recipient>> {
        let recipient = self.recipient.upgrade().filter(|_| now >= self.began + FIRST_MEASUREMENT)?;
        let taken = recipient.bytes_sent();
        let (since, before) = *self.measured.get_or_insert((now, taken));
        let time = now.saturating_duration_since(since);
        if time < RATE_PERIOD {
            return None;
        }
        let least = MIN_RATE * time.as_millis() as u64 / 1000 / recipient.sharers().max(1);
        if taken.saturating_sub(before) < least {
            return Some(recipient);
        }
        self.measured = Some((now, taken));
        None
    }
}

/// A memory reservation of one response, released on drop.
pub(crate) struct ContentLease {
    budget: Arc<ContentBudget>,
    reserved: Lease,
    /// The key of the response in [`UnsentResponses::responses`], once it is being sent.
    number: OnceLock<u64>,
}

impl ContentLease {
    /// Registers the response as being sent to this recipient, so that its rate is measured.
    pub(crate) fn sending_to(&self, recipient: &Arc<impl Recipient + 'static>) {
        self.number.get_or_init(|| {
            let recipient: Arc<dyn Recipient> = recipient.clone();
            let recipient = Arc::downgrade(&recipient);
            let response = UnsentResponse { recipient, measured: None, began: Instant::now() };
            let mut sending = lock(&self.budget.sending);
            sending.last += 1;
            let number = sending.last;
            sending.responses.insert(number, response);
            number
        });
    }
}

impl Drop for ContentLease {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            lock(&self.budget.sending).responses.remove(number);
        }
    }
}

/// A message for a client, with its memory reservation.
pub(crate) struct Outgoing {
    pub(crate) framed: Framed,
    pub(crate) lease: Option<ContentLease>,
}

impl From<Framed> for Outgoing {
    fn from(framed: Framed) -> Self {
        Self { framed, lease: None }
    }
}

/// The memory that one request has reserved for its contents.
pub(crate) struct RequestReservation {
    budget: Arc<ContentBudget>,
    client: Client,
    state: Mutex<Reservation>,
}

#[derive(Default)]
struct Reservation {
    lease: Option<ContentLease>,
    /// How many bytes of contents the request has reserved memory for, without the encoding buffers.
    bytes: usize,
    /// Whether responses already occupy the reserved memory, so that it cannot be released to wait for more.
    held: bool,
    /// The size of the last reservation that failed.
    wanted: Option<usize>,
    /// Whether the request is waiting for memory.
    waiting: bool,
    /// When the last wait for memory ended.
    granted: Option<std::time::Instant>,
}

impl RequestReservation {
    pub(crate) fn new(budget: &Arc<ContentBudget>, client: Client) -> Self {
        Self { budget: budget.clone(), client, state: Mutex::default() }
    }

    /// An empty reservation of the same client.
    pub(crate) fn separate(&self) -> Self {
        Self::new(&self.budget, self.client)
    }

    /// Reserves memory for this many more bytes, if it is available now.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let mut state = lock(&self.state);
        let bytes = state.bytes.saturating_add(bytes);
        let needed = with_buffers(bytes);
        let available = match &mut state.lease {
            // Memory granted after a wait is reserved already.
            Some(lease) if needed <= lease.reserved.amount() => true,
            // A reservation in the largest budget grows in place. A smaller one may have to move to another budget.
            Some(lease) if lease.reserved.amount() > MEDIUM_RESPONSE => lease.reserved.resize(needed),
            _ => match self.budget.try_take(self.client, needed) {
                Some(lease) => {
                    state.lease = Some(lease);
                    true
                }
                None => false,
            },
        };
        match available {
            true => state.bytes = bytes,
            false => state.wanted = Some(needed),
        }
        available
    }

    /// Like [`reserve`](Self::reserve), for contents that are being loaded and must not be loaded again.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let available = self.reserve(bytes);
        if !available {
            // The request will not wait for this memory, so it is not recorded as wanted.
            lock(&self.state).wanted = None;
            self.budget.close_slow_connections();
        }
        available
    }

    /// Like [`grow`](Self::grow), for contents of `bytes` in total that are loaded already.
    pub(crate) fn reserve_loaded(&self, bytes: usize) -> bool {
        let reserved = lock(&self.state).bytes;
        self.grow(bytes.saturating_sub(reserved))
    }

    /// Like [`reserve`](Self::reserve), for `bytes` in total. After `false`, the request can drop its contents and
    /// [wait](Self::wait).
    pub(crate) fn reserve_total(&self, bytes: usize) -> bool {
        let reserved = lock(&self.state).bytes;
        self.reserve(bytes.saturating_sub(reserved))
    }

    /// Reserves `bytes` in total for responses that stay in memory until the batch is sent. From now on the request does
    /// not wait for memory. `false` if memory is short.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        lock(&self.state).held = true;
        self.reserve_loaded(bytes)
    }

    /// Releases the reservation, and waits until the reservation that failed last can be granted, so that the request
    /// can start over. `false` if it is not granted in time, if none failed, or if memory is held.
    pub(crate) async fn wait(&self) -> bool {
        let wanted = {
            let mut state = lock(&self.state);
            if state.held {
                return false;
            }
            state.bytes = 0;
            // Requests that wait for memory while they hold some could deadlock.
            state.lease = None;
            let Some(wanted) = state.wanted.take() else { return false };
            state.waiting = true;
            wanted
        };
        let lease = self.budget.take(self.client, wanted).await;
        let available = lease.is_some();
        let mut state = lock(&self.state);
        (state.lease, state.waiting, state.granted) = (lease, false, Some(std::time::Instant::now()));
        available
    }

    /// The end of the last wait for memory, or the current time while the request waits; `None` if it never waited. The
    /// time limit of the request counts from here, because the length of a wait depends on how fast other clients read.
    pub(crate) fn resumed(&self) -> Option<std::time::Instant> {
        let state = lock(&self.state);
        if state.waiting { Some(std::time::Instant::now()) } else { state.granted }
    }

    /// The reservation for a response: the reservation that the request made, resized; or a new one, for which this
    /// function waits. `None` if memory is short.
    pub(crate) async fn lease_for(&self, framed: &Framed) -> Option<ContentLease> {
        let bytes = match framed.encoded() {
            Some(_) => framed.size(),
            None => with_buffers(framed.size()),
        };
        self.lease(bytes).await
    }

    /// Releases the reservation.
    pub(crate) fn release(&self) {
        let mut state = lock(&self.state);
        (state.lease, state.bytes) = (None, 0);
    }

    /// Like [`lease_for`](Self::lease_for), for a response of this many bytes.
    pub(crate) async fn lease(&self, bytes: usize) -> Option<ContentLease> {
        let lease = lock(&self.state).lease.take();
        match lease {
            // Responses this small are always sent, because the error that memory is short is one of them.
            None if bytes <= TINY_RESPONSE => {
                let lease = self.budget.try_take(self.client, bytes);
                Some(lease.unwrap_or_else(|| self.budget.uncounted()))
            }
            None => self.budget.take(self.client, bytes).await,
            // The response may be larger than the reservation.
            Some(mut lease) => lease.reserved.resize(bytes).then_some(lease),
        }
    }

    /// The reservation for a response of a route, of this many bytes: what the route reserved, reduced to `bytes`; or, if
    /// that is too little, a new one, for which this function waits. `None` if memory is short.
    pub(crate) async fn lease_for_bytes(&self, bytes: usize) -> Option<ContentLease> {
        let lease = lock(&self.state).lease.take();
        match lease {
            Some(mut lease) if bytes <= lease.reserved.amount() => {
                lease.reserved.resize(bytes).then_some(lease)
            }
            lease => {
                // Requests that wait for memory while they hold some could deadlock.
                drop(lease);
                self.budget.take(self.client, bytes).await
            }
        }
    }
}

/// The memory that `bytes` of contents take while they are encoded and sent: the contents and the encoding buffers.
fn with_buffers(bytes: usize) -> usize {
    bytes.saturating_add(bytes.min(ENCODED_AHEAD))
}

#[cfg(test)]
mod tests;
