//! A feed that clients subscribe to: entries come, change and go while it is served.
//!
//! ```sh
//! cargo run -p libris --example feed -- 127.0.0.1:4747
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris::{Instance, Notifier, Result};

/// How many entries the feed keeps.
const KEPT: u64 = 20;

#[derive(Default)]
struct Feed {
    entries: Mutex<BTreeMap<u64, String>>,
    notifier: Notifier,
}

#[libris::resources]
impl Feed {
    /// What was said last.
    #[resource("feed://latest", title = "Latest", priority = 1.0)]
    fn latest(&self) -> Option<String> {
        self.entries().values().next_back().cloned()
    }

    /// One entry, by its number.
    #[resource("feed://entries/{number}", mime = "text/plain")]
    fn entry(&self, number: u64) -> Option<String> {
        self.entries().get(&number).cloned()
    }

    #[list("feed://entries/{number}")]
    fn all(&self) -> Vec<Instance> {
        self.entries().keys().map(Instance::of).collect()
    }

    #[complete("feed://entries/{number}", number)]
    fn numbers(&self) -> Vec<String> {
        self.entries().keys().map(u64::to_string).collect()
    }

    #[changes]
    fn changes(&self) -> &Notifier {
        &self.notifier
    }
}

impl Feed {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something new, and tells those who listen.
    fn say(&self, number: u64) -> Result<()> {
        self.entries().insert(number, format!("entry {number}"));
        self.notifier.added(format!("feed://entries/{number}"))?;
        if let Some(old) = number.checked_sub(KEPT) {
            self.entries().remove(&old);
            self.notifier.removed(format!("feed://entries/{old}"))?;
        }
        self.notifier.updated("feed://latest")
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let feed = Arc::new(Feed::default());
    feed.say(0)?;
    let author = feed.clone();
    tokio::spawn(async move {
        for number in 1.. {
            tokio::time::sleep(Duration::from_millis(500)).await;
            author.say(number)?;
        }
        libris::Result::<()>::Ok(())
    });
    match std::env::args().nth(1) {
        Some(address) => libris::serve(feed).name("feed").http(address).await,
        None => libris::serve(feed).name("feed").await,
    }
}
