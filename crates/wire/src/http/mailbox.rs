//! The news of a session: on their way on its newest stream, and told again where they got lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_util::stream;
use tokio::sync::watch;

use super::body::Event;
use crate::lock::lock;
use crate::protocol::notification;
use crate::{Listener, News};

/// How many streams of a session stay open; a further one ends the oldest, whose client is most likely
/// gone without a word.
const STREAMS: usize = 4;

/// What was sent in this time may not have reached a client that does not say what it has.
const DOUBT: Duration = Duration::from_secs(60);

/// More news than a session can be subscribed to, so that only what it left is ever forgotten.
const REMEMBERED: usize = 10_000;

/// The news of a session.
pub(super) struct Mailbox {
    pub(super) listener: Arc<dyn Listener>,
    sent: Mutex<Sent>,
    /// The numbers of the streams that are open, the newest last.
    open: watch::Sender<Vec<u64>>,
}

/// What was sent and may not have arrived: of each the last time, so it is bounded by the subscriptions.
#[derive(Default)]
struct Sent {
    last: u64,
    streams: u64,
    news: HashMap<News, Told>,
}

#[derive(Clone, Copy)]
struct Told {
    /// The id of the event.
    id: u64,
    when: Instant,
    stream: u64,
}

impl Mailbox {
    pub(super) fn new(listener: Arc<dyn Listener>) -> Self {
        Self { listener, sent: Mutex::default(), open: watch::Sender::new(Vec::new()) }
    }

    /// How many streams are open.
    pub(super) fn streams(&self) -> usize {
        self.open.borrow().len()
    }

    /// Opens a stream. News go to the stream that was opened last; `seen` is the last event that the
    /// client says it has, and whatever was sent after it is owed again.
    pub(super) fn open(self: &Arc<Self>, seen: Option<u64>) -> impl Stream<Item = Event> + Send + 'static {
        let number = {
            let mut sent = lock(&self.sent);
            let seen = seen.filter(|seen| *seen <= sent.last);
            for (news, told) in std::mem::take(&mut sent.news) {
                if seen.map_or(told.when.elapsed() < DOUBT, |seen| told.id > seen) {
                    self.listener.owe(news);
                }
            }
            sent.streams += 1;
            sent.streams
        };
        self.open.send_modify(|open| {
            open.push(number);
            if open.len() > STREAMS {
                open.remove(0);
            }
        });
        let open = Open { mailbox: self.clone(), number, open: self.open.subscribe() };
        stream::unfold(open, async |mut open| {
            let event = open.next().await?;
            Some((event, open))
        })
    }

    fn send(&self, stream: u64, news: News) -> Event {
        let framed = notification(&news, "");
        let mut sent = lock(&self.sent);
        sent.last += 1;
        let id = sent.last;
        if sent.news.len() >= REMEMBERED
            && let Some(oldest) =
                sent.news.iter().min_by_key(|(_, told)| told.id).map(|(news, _)| news.clone())
        {
            sent.news.remove(&oldest);
        }
        sent.news.insert(news, Told { id, when: Instant::now(), stream });
        Event::Message { framed, id: Some(id), room: None }
    }
}

/// A stream that is open.
struct Open {
    mailbox: Arc<Mailbox>,
    number: u64,
    open: watch::Receiver<Vec<u64>>,
}

impl Open {
    /// The next event; `None` once newer streams have taken its place.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let number = self.number;
            // The mailbox holds the sender, so waiting cannot fail.
            let mine =
                self.open.wait_for(|open| open.last() == Some(&number) || !open.contains(&number)).await;
            if !mine.ok()?.contains(&number) {
                return None;
            }
            tokio::select! {
                biased;
                _ = self.open.wait_for(|open| open.last() != Some(&number)) => {}
                news = self.mailbox.listener.next() => return Some(self.mailbox.send(number, news)),
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.mailbox.open.send_modify(|open| open.retain(|&number| number != self.number));
        if self.mailbox.streams() == 0 {
            return;
        }
        // Nobody will resume this stream while another is open, which is told instead.
        let mut sent = lock(&self.mailbox.sent);
        sent.news.retain(|news, told| {
            let lost = told.stream == self.number;
            if lost {
                self.mailbox.listener.owe(news.clone());
            }
            !lost
        });
    }
}
