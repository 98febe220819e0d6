//! Reads that continue after their caller is gone, so that a retry finds the result.
//!
//! Notion limits the request rate, so a long page may take longer than the time-out of a caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libris_core::{Content, Error, Flight, Flights, Result, Uri};
use tokio::sync::oneshot;

use super::NotionInner;
use super::read::NotionUri;

/// The maximum number of abandoned reads, in progress or completed.
const MAX_ABANDONED_READS: usize = 8;

/// A URI, and the value of the generation counter of its Notion object when the read started.
pub(super) type AbandonedReadKey = (Uri, u64);

/// The time and the content of a completed read.
pub(super) type CompletedRead = (Instant, Content);

type ReadOutcome = Result<CompletedRead, Arc<Error>>;

/// Reads in progress, and abandoned reads.
#[derive(Default)]
pub(super) struct AbandonedReads {
    in_flight: Flights<AbandonedReadKey, ReadOutcome>,
    /// The results of abandoned reads; `None` while they are in progress.
    abandoned: Mutex<HashMap<AbandonedReadKey, Option<CompletedRead>>>,
}

impl AbandonedReads {
    fn abandoned(&self) -> MutexGuard<'_, HashMap<AbandonedReadKey, Option<CompletedRead>>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotionInner {
    /// Takes the result of an abandoned read if there is one. Otherwise starts a read, or joins one in progress.
    pub(super) async fn read(
        self: &Arc<Self>,
        key: AbandonedReadKey,
        asked: NotionUri,
    ) -> Result<CompletedRead> {
        let start = || {
            let (inner, uri) = (self.clone(), key.0.clone());
            async move {
                let read = asked.read(&inner, &uri).await;
                read.map(|content| (Instant::now(), content))
                    .map_err(|fault| Arc::new(fault.into_error(&uri)))
            }
        };
        let flight = self.reads.in_flight.join(&key, || self.take(&key).map(Ok), start);
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(self.clone().finish_read(key, flight, sender));
        match receiver.await {
            Ok(outcome) => outcome.map_err(|error| Error::from_shared(&error)),
            Err(cause) => Err(Error::failed("read from Notion", cause)),
        }
    }

    /// Completes a read; stores the result if the caller is gone.
    async fn finish_read(
        self: Arc<Self>,
        key: AbandonedReadKey,
        mut flight: Flight<ReadOutcome>,
        mut sender: oneshot::Sender<ReadOutcome>,
    ) {
        tokio::select! {
            outcome = &mut flight => {
                // A caller receives the result, so it is not stored for a retry.
                self.reads.abandoned().remove(&key);
                return drop(sender.send(outcome));
            }
            () = sender.closed() => {}
        }
        if !self.abandon(&key) {
            return;
        }
        let done = flight.await.ok();
        let mut abandoned = self.reads.abandoned();
        match abandoned.get_mut(&key) {
            Some(abandoned) if done.is_some() => *abandoned = done,
            _ => drop(abandoned.remove(&key)),
        }
    }

    /// Registers an abandoned read. Returns whether the task of this caller continues the read: not if there are
    /// [`MAX_ABANDONED_READS`] already, or if the task of an earlier caller continues the same read.
    fn abandon(&self, key: &AbandonedReadKey) -> bool {
        let mut abandoned = self.reads.abandoned();
        abandoned.retain(|_, done| done.as_ref().is_none_or(|(when, _)| when.elapsed() < self.config.cache));
        if abandoned.len() >= MAX_ABANDONED_READS || abandoned.contains_key(key) {
            return false;
        }
        abandoned.insert(key.clone(), None);
        true
    }

    /// Removes and returns the result of an abandoned read, if it is younger than the setting `cache`.
    fn take(&self, key: &AbandonedReadKey) -> Option<CompletedRead> {
        let mut abandoned = self.reads.abandoned();
        abandoned.get(key)?.as_ref()?;
        abandoned.remove(key).flatten().filter(|(when, _)| when.elapsed() < self.config.cache)
    }
}
