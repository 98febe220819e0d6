//! Reads that continue after their caller is gone, so that a retry finds the result.
//!
//! Notion limits the request rate, so a long page may take longer than the time-out of a caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libris_core::{Content, Error, Flight, Flights, Result, Uri};
use tokio::sync::oneshot;

use super::Inner;
use super::read::NotionUri;

/// The most abandoned reads, in progress or completed.
const MOST: usize = 8;

/// A URI, and the generation of its object.
pub(super) type ReadKey = (Uri, u64);

/// The time and the content of a completed read.
pub(super) type Done = (Instant, Content);

type ReadOutcome = Result<Done, Arc<Error>>;

/// Reads in progress, and abandoned reads.
#[derive(Default)]
pub(super) struct SharedReads {
    under_way: Flights<ReadKey, ReadOutcome>,
    /// The results of abandoned reads; `None` while they are in progress.
    left: Mutex<HashMap<ReadKey, Option<Done>>>,
}

impl SharedReads {
    fn left(&self) -> MutexGuard<'_, HashMap<ReadKey, Option<Done>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The result of an abandoned read, or of a read that concurrent callers share.
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
            Ok(outcome) => outcome.map_err(|error| Error::from_shared(&error)),
            Err(cause) => Err(Error::failed("read from Notion", cause)),
        }
    }

    /// Completes a read; stores the result if the caller is gone.
    async fn attend(
        self: Arc<Self>,
        key: ReadKey,
        mut flight: Flight<ReadOutcome>,
        mut tell: oneshot::Sender<ReadOutcome>,
    ) {
        tokio::select! {
            outcome = &mut flight => {
                // A caller is waiting again.
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

    /// Whether an abandoned read may continue. It continues once, however many callers abandoned it.
    fn leave(&self, key: &ReadKey) -> bool {
        let mut left = self.reads.left();
        left.retain(|_, done| done.as_ref().is_none_or(|(when, _)| when.elapsed() < self.config.cache));
        if left.len() >= MOST || left.contains_key(key) {
            return false;
        }
        left.insert(key.clone(), None);
        true
    }

    /// The result of an abandoned read, if it is recent.
    fn take(&self, key: &ReadKey) -> Option<Done> {
        let mut left = self.reads.left();
        left.get(key)?.as_ref()?;
        left.remove(key).flatten().filter(|(when, _)| when.elapsed() < self.config.cache)
    }
}
