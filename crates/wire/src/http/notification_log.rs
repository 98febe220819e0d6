//! The notifications of a session. They are sent on its newest event stream, and sent again if they may have been lost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::Stream;
use futures_util::stream;
use tokio::sync::watch;

use super::body::Event;
use super::shared_session::SharedSession;
use crate::lock::lock;
use crate::protocol;
use crate::{Failure, Listener, Notification};
use libris_core::Identity;

/// The maximum number of open event streams of a session. Opening one more ends the oldest, which the client has most
/// likely lost without the server noticing.
const MAX_STREAMS: usize = 4;

/// If a client opens a stream without a valid `Last-Event-ID`, the notifications that were sent within this period are sent
/// again.
pub(super) const RESEND_PERIOD: Duration = Duration::from_secs(60);

/// The maximum number of recorded notifications. Normally there is at most one per subscription; the limit bounds memory
/// if a listener yields notifications for other resources.
const MAX_RECORDED: usize = 10_000;

/// The notifications of a session.
pub(super) struct NotificationLog {
    /// The same object as `recording`, as a trait object for callers.
    pub(super) listener: Arc<dyn Listener>,
    recording: Arc<RecordingListener>,
    /// The same object as `sent` of `recording`.
    sent: Arc<Mutex<SentNotifications>>,
    /// The numbers of the open event streams, the newest last.
    open: watch::Sender<Vec<u64>>,
    /// Counts the open event streams of all sessions.
    counter: OnceLock<Arc<AtomicUsize>>,
}

/// Notifications that were sent but perhaps did not arrive. Only the last one of each resource is recorded, so there
/// are hardly more of them than subscriptions.
#[derive(Default)]
struct SentNotifications {
    /// The last event id.
    last: u64,
    /// The number of the newest event stream. Streams are counted from 1.
    streams: u64,
    /// By event id.
    events: BTreeMap<u64, Delivery>,
    /// The event id of each notification in `events`.
    ids: HashMap<Notification, u64>,
}

/// A sent notification.
struct Delivery {
    notification: Notification,
    when: Instant,
    stream: u64,
}

impl SentNotifications {
    /// Records a notification, replacing an earlier equal one. Returns its event id.
    fn record(&mut self, stream: u64, notification: Notification) -> u64 {
        self.last += 1;
        if let Some(before) = self.ids.insert(notification.clone(), self.last) {
            self.events.remove(&before);
        }
        self.events.insert(self.last, Delivery { notification, when: Instant::now(), stream });
        if self.events.len() > MAX_RECORDED
            && let Some((_, oldest)) = self.events.pop_first()
        {
            self.ids.remove(&oldest.notification);
        }
        self.last
    }

    fn forget(&mut self, notification: &Notification) {
        if let Some(id) = self.ids.remove(notification) {
            self.events.remove(&id);
        }
        if self.ids.capacity() > 32 && self.ids.len() < self.ids.capacity() / 8 {
            self.ids.shrink_to(self.ids.len() * 2);
        }
    }
}

/// Wraps the listener of the service. When the client unsubscribes from a resource, discards the recorded notification of
/// that resource. Saves the subscriptions of a session that replicas share.
struct RecordingListener {
    /// The listener of the service.
    listener: Arc<dyn Listener>,
    sent: Arc<Mutex<SentNotifications>>,
    shared: Option<SharedSession>,
    /// The subscriptions of a shared session.
    subscriptions: Mutex<HashSet<Arc<str>>>,
}

impl RecordingListener {
    /// Subscribes without saving the subscription in the store.
    async fn subscribe_locally(&self, uri: &str) -> Result<(), Failure> {
        self.listener.subscribe(uri).await?;
        if self.shared.is_some() {
            lock(&self.subscriptions).insert(uri.into());
        }
        Ok(())
    }

    /// Ends a subscription without removing it from the store.
    fn unsubscribe_locally(&self, uri: &str) {
        self.listener.unsubscribe(uri);
        lock(&self.subscriptions).remove(uri);
        lock(&self.sent).forget(&Notification::Updated(uri.into()));
    }
}

#[async_trait]
impl Listener for RecordingListener {
    async fn follow_list(&self) -> Result<(), Failure> {
        self.listener.follow_list().await
    }

    async fn follow_prompts(&self) -> Result<(), Failure> {
        self.listener.follow_prompts().await
    }

    async fn follow_tools(&self) -> Result<(), Failure> {
        self.listener.follow_tools().await
    }

    fn listed(&self) {
        self.listener.listed();
    }

    async fn reserve(&self, uris: &[&str]) -> Result<(), Failure> {
        self.listener.reserve(uris).await
    }

    async fn subscribe(&self, uri: &str) -> Result<(), Failure> {
        self.subscribe_locally(uri).await?;
        if let Some(shared) = &self.shared {
            // An error is ignored: the subscription works at this replica, and the next `SessionEvent::SaveAgain` saves it.
            let _ = shared.store.subscribe(&shared.id, uri).await;
        }
        Ok(())
    }

    fn unsubscribe(&self, uri: &str) {
        self.unsubscribe_locally(uri);
        if let Some(shared) = &self.shared {
            shared.store.unsubscribe(&shared.id, uri);
        }
    }

    async fn next(&self) -> Notification {
        self.listener.next().await
    }

    fn renew(&self, identity: Option<&Identity>) {
        self.listener.renew(identity);
    }

    fn requeue(&self, notification: Notification) {
        self.listener.requeue(notification);
    }
}

impl NotificationLog {
    pub(super) fn new(listener: Arc<dyn Listener>, shared: Option<SharedSession>) -> Self {
        // A client may send a `Last-Event-ID` that it got from another replica. If this id were also one of this replica,
        // notifications up to it would count as delivered. Each replica starts at a random id, so that this almost never
        // happens.
        let last = if shared.is_some() { first_event_id() } else { 0 };
        let sent = Arc::new(Mutex::new(SentNotifications { last, ..SentNotifications::default() }));
        let subscriptions = Mutex::default();
        let recording = Arc::new(RecordingListener { listener, sent: sent.clone(), shared, subscriptions });
        let (open, counter) = (watch::Sender::new(Vec::new()), OnceLock::new());
        Self { listener: recording.clone(), recording, sent, open, counter }
    }

    /// Sets the counter of the open event streams of all sessions. Call it before the first stream is opened.
    pub(super) fn count_streams_in(&self, counter: &Arc<AtomicUsize>) {
        self.counter.get_or_init(|| counter.clone());
    }

    /// Subscribes to a resource that the client subscribed to at another replica.
    pub(super) async fn subscribe_locally(&self, uri: &str) -> Result<(), Failure> {
        self.recording.subscribe_locally(uri).await
    }

    /// Ends a subscription that the client ended at another replica.
    pub(super) fn unsubscribe_locally(&self, uri: &str) {
        self.recording.unsubscribe_locally(uri);
    }

    /// The subscriptions of a session that replicas share.
    pub(super) fn subscriptions(&self) -> Vec<String> {
        lock(&self.recording.subscriptions).iter().map(|uri| uri.to_string()).collect()
    }

    /// The number of open event streams.
    pub(super) fn streams(&self) -> usize {
        self.open.borrow().len()
    }

    /// Opens an event stream, which gets all further notifications until another one is opened. `seen` is the
    /// `Last-Event-ID` of the client: notifications sent after it become pending again. Without a valid id, all
    /// notifications of the last `RESEND_PERIOD` become pending again.
    pub(super) fn open(self: &Arc<Self>, seen: Option<u64>) -> impl Stream<Item = Event> + Send + 'static {
        let number = {
            let mut sent = lock(&self.sent);
            let seen = seen.filter(|seen| *seen <= sent.last);
            sent.ids = HashMap::new();
            for (id, delivery) in std::mem::take(&mut sent.events) {
                if seen.map_or(delivery.when.elapsed() < RESEND_PERIOD, |seen| id > seen) {
                    self.listener.requeue(delivery.notification);
                }
            }
            sent.streams += 1;
            sent.streams
        };
        self.change_open(|open| {
            open.push(number);
            if open.len() > MAX_STREAMS {
                open.remove(0);
            }
        });
        let open = OpenStream { log: self.clone(), number, open: self.open.subscribe() };
        stream::unfold(open, async |mut open| {
            let event = open.next().await?;
            Some((event, open))
        })
    }

    /// Changes the list of open event streams, and counts them.
    fn change_open(&self, change: impl FnOnce(&mut Vec<u64>)) {
        self.open.send_modify(|open| {
            let before = open.len();
            change(open);
            if let Some(counter) = self.counter.get() {
                counter.fetch_add(open.len(), Ordering::Relaxed);
                counter.fetch_sub(before, Ordering::Relaxed);
            }
        });
    }

    /// Waits for a notification, and records that `stream` sends it.
    async fn next(&self, stream: u64) -> Event {
        let mut next = pin!(self.listener.next());
        poll_fn(|context| {
            // Locked before the listener yields a notification, so that a concurrent `unsubscribe` sees the recorded
            // notification and discards it.
            let mut sent = lock(&self.sent);
            next.as_mut().poll(context).map(|notification| {
                let framed = protocol::notification(&notification, "");
                Event::Message { framed, id: Some(sent.record(stream, notification)), lease: None }
            })
        })
        .await
    }
}

/// A random first event id, small enough that the ids after it do not overflow.
fn first_event_id() -> u64 {
    let mut bytes = [0; 8];
    // Hardly fails: the session id was a random number too. If it does, the ids start at zero.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes) >> 2
}

/// An open event stream.
struct OpenStream {
    log: Arc<NotificationLog>,
    number: u64,
    open: watch::Receiver<Vec<u64>>,
}

impl OpenStream {
    /// The next event; `None` once this stream is no longer one of the `MAX_STREAMS` newest. Waits while a newer stream
    /// is open.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let number = self.number;
            // The log holds the sender, so waiting cannot fail.
            let mine =
                self.open.wait_for(|open| open.last() == Some(&number) || !open.contains(&number)).await;
            if !mine.ok()?.contains(&number) {
                return None;
            }
            tokio::select! {
                biased;
                _ = self.open.wait_for(|open| open.last() != Some(&number)) => {}
                event = self.log.next(number) => return Some(event),
            }
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.log.change_open(|open| open.retain(|&number| number != self.number));
        if self.log.streams() == 0 {
            return;
        }
        // The client will not resume this stream while another one is open. The notifications sent on this stream become
        // pending again, and go to the newest open stream.
        let mut sent = lock(&self.log.sent);
        let SentNotifications { events, ids, .. } = &mut *sent;
        events.retain(|_, delivery| {
            let lost = delivery.stream == self.number;
            if lost {
                ids.remove(&delivery.notification);
                self.log.listener.requeue(delivery.notification.clone());
            }
            !lost
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_RECORDED, NotificationLog};
    use crate::http::queue_listener::QueueListener;
    use crate::{Listener as _, Notification};
    use futures_util::StreamExt as _;
    use std::pin::pin;
    use std::sync::Arc;

    fn updated(number: usize) -> Notification {
        Notification::Updated(format!("a:{number}").into())
    }

    #[tokio::test]
    async fn unsubscribing_discards_the_recorded_notification() {
        let queue = Arc::new(QueueListener::default());
        let log = Arc::new(NotificationLog::new(queue.clone(), None));
        let mut stream = pin!(log.open(None));
        for number in 0..100 {
            queue.requeue(updated(number));
            stream.next().await.unwrap();
        }
        let name: Arc<str> = "a:text".into();
        queue.requeue(Notification::Updated(name.clone()));
        stream.next().await.unwrap();
        assert!(Arc::strong_count(&name) > 1);
        log.listener.unsubscribe(&name);
        assert_eq!(Arc::strong_count(&name), 1, "the text is still held");
        for number in 0..99 {
            log.listener.unsubscribe(&format!("a:{number}"));
        }
        let _next = log.open(None);
        assert_eq!(queue.take_pending(), [updated(99)]);
    }

    #[tokio::test]
    async fn the_newest_notifications_are_recorded_and_resent_in_order() {
        let queue = Arc::new(QueueListener::default());
        let log = Arc::new(NotificationLog::new(queue.clone(), None));
        let mut stream = pin!(log.open(None));
        for number in (0..MAX_RECORDED + 5).chain([7]) {
            queue.requeue(updated(number));
            stream.next().await.unwrap();
        }
        let _next = log.open(None);
        let pending = queue.take_pending();
        let expected: Vec<_> = (5..MAX_RECORDED + 5).filter(|n| *n != 7).chain([7]).map(updated).collect();
        assert_eq!(pending.len(), expected.len());
        assert!(pending == expected, "{:?} … {:?}", pending.first(), pending.last());
    }
}
