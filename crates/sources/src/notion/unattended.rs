//! Reads that go on when nobody waits for them any more, so that whoever asks again finds them done.
//!
//! Notion answers few requests a second, so a long page may take longer than anybody waits for one answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libris_core::{Content, Error, Flight, Flights, Result, Uri};
use tokio::sync::oneshot;

use super::Inner;
use super::read::NotionUri;

/// How many may go on, or be done and wait to be asked for.
const MOST: usize = 8;

/// What is read, and how often it was seen to be edited before.
pub(super) type ReadKey = (Uri, u64);

/// When something was read, and what it was.
pub(super) type Done = (Instant, Content);

type ReadOutcome = Result<Done, Arc<Error>>;

/// Reads under way, and those that were left.
#[derive(Default)]
pub(super) struct SharedReads {
    under_way: Flights<ReadKey, ReadOutcome>,
    /// What came of those that nobody waited for; nothing while they go on.
    left: Mutex<HashMap<ReadKey, Option<Done>>>,
}

impl SharedReads {
    fn left(&self) -> MutexGuard<'_, HashMap<ReadKey, Option<Done>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// What was read since somebody left, or is read now for all who ask.
    pub(super) async fn read(self: &Arc<Self>, key: ReadKey, asked: NotionUri) -> Result<Done> {
        let start = || {
            let (inner, uri) = (self.clone(), key.0.clone());
            async move {
                let read = asked.read(&inner, &uri).await;
                read.map(|content| (Instant::now(), content)).map_err(|fault| Arc::new(fault.at(&uri)))
            }
        };
        let flight = self.reads.under_way.join(&key, || self.take(&key).map(Ok), start);
        let (tell, told) = oneshot::channel();
        tokio::spawn(self.clone().attend(key, flight, tell));
        match told.await {
            Ok(outcome) => outcome.map_err(|error| Error::again(&error)),
            Err(cause) => Err(Error::failed("read from Notion", cause)),
        }
    }

    /// Tells what comes of a read, or keeps it where nobody waits any more.
    async fn attend(
        self: Arc<Self>,
        key: ReadKey,
        mut flight: Flight<ReadOutcome>,
        mut tell: oneshot::Sender<ReadOutcome>,
    ) {
        tokio::select! {
            outcome = &mut flight => {
                // Somebody came back for it.
                self.reads.left().remove(&key);
                return drop(tell.send(outcome));
            }
            () = tell.closed() => {}
        }
        if !self.leave(&key) {
            return;
        }
        let done = flight.await.ok();
        let mut left = self.reads.left();
        match left.get_mut(&key) {
            Some(left) if done.is_some() => *left = done,
            _ => drop(left.remove(&key)),
        }
    }

    /// Whether a read that nobody waits for may go on. It is to go on once, however many have left it.
    fn leave(&self, key: &ReadKey) -> bool {
        let mut left = self.reads.left();
        left.retain(|_, done| done.as_ref().is_none_or(|(when, _)| when.elapsed() < self.config.cache));
        if left.len() >= MOST || left.contains_key(key) {
            return false;
        }
        left.insert(key.clone(), None);
        true
    }

    /// What came of a read that was left, if it was not long ago.
    fn take(&self, key: &ReadKey) -> Option<Done> {
        let mut left = self.reads.left();
        left.get(key)?.as_ref()?;
        left.remove(key).flatten().filter(|(when, _)| when.elapsed() < self.config.cache)
    }
}
