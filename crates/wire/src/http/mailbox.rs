//! The news of a session: on their way on its newest stream, and told again where they got lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_util::stream;
use tokio::sync::watch;

use super::body::Event;
use crate::lock::lock;
use crate::protocol::notification;
use crate::{Listener, News};

/// How many news are remembered after they were sent, and for how long.
const REMEMBERED: usize = 1024;
const REMEMBER: Duration = Duration::from_secs(60);

/// The news of a session.
pub(super) struct Mailbox {
    pub(super) listener: Arc<dyn Listener>,
    sent: Mutex<Sent>,
    /// The number of the stream that was opened last and is still open.
    newest: watch::Sender<Vec<u64>>,
}

/// What was sent and may not have arrived, by the ids of the events.
#[derive(Default)]
struct Sent {
    last: u64,
    streams: u64,
    events: BTreeMap<u64, Told>,
}

struct Told {
    when: Instant,
    stream: u64,
    news: News,
}

impl Mailbox {
    pub(super) fn new(listener: Arc<dyn Listener>) -> Self {
        Self { listener, sent: Mutex::default(), newest: watch::Sender::new(Vec::new()) }
    }

    /// Opens a stream. News go to the stream that was opened last; `seen` is the last event that the
    /// client says it has, and whatever was sent after it is owed again.
    pub(super) fn open(self: &Arc<Self>, seen: Option<u64>) -> impl Stream<Item = Event> + Send + 'static {
        let number = {
            let mut sent = lock(&self.sent);
            for (id, told) in std::mem::take(&mut sent.events) {
                if seen.is_none_or(|seen| id > seen) && told.when.elapsed() < REMEMBER {
                    self.listener.owe(told.news);
                }
            }
            sent.streams += 1;
            sent.streams
        };
        self.newest.send_modify(|open| open.push(number));
        let open = Open { mailbox: self.clone(), number, newest: self.newest.subscribe() };
        stream::unfold(open, async |mut open| {
            let event = open.next().await;
            Some((event, open))
        })
    }

    fn send(&self, stream: u64, news: News) -> Event {
        let framed = notification(&news, "");
        let mut sent = lock(&self.sent);
        sent.last += 1;
        let id = sent.last;
        sent.events.insert(id, Told { when: Instant::now(), stream, news });
        while sent.events.len() > REMEMBERED {
            sent.events.pop_first();
        }
        Event::Message { framed, id: Some(id) }
    }
}

/// A stream that is open.
struct Open {
    mailbox: Arc<Mailbox>,
    number: u64,
    newest: watch::Receiver<Vec<u64>>,
}

impl Open {
    async fn next(&mut self) -> Event {
        loop {
            let number = self.number;
            // The mailbox holds the sender, so this cannot fail.
            let _ = self.newest.wait_for(|open| open.last() == Some(&number)).await;
            tokio::select! {
                biased;
                _ = self.newest.wait_for(|open| open.last() != Some(&number)) => {}
                news = self.mailbox.listener.next() => return self.mailbox.send(number, news),
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.mailbox.newest.send_modify(|open| open.retain(|&number| number != self.number));
        if self.mailbox.newest.borrow().is_empty() {
            return;
        }
        // Nobody will resume this stream while another is open, which is told instead.
        let mut sent = lock(&self.mailbox.sent);
        sent.events.retain(|_, told| {
            let lost = told.stream == self.number;
            if lost && told.when.elapsed() < REMEMBER {
                self.mailbox.listener.owe(told.news.clone());
            }
            !lost
        });
    }
}
