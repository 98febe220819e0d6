//! Reading the configuration again while it is being served.

use std::io::IsTerminal as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use libris::Catalog;

use crate::config::{Opened, What};
use crate::terminal::{advice, describe, note};

/// How often the configuration file is looked at. A look is one call to the system, which is cheaper and
/// surer than to watch a file that editors replace.
const LOOK: Duration = Duration::from_secs(1);

/// Reads the configuration again when its file changes or SIGHUP arrives, and serves what it says then.
/// One that is wrong is reported, and the one before stays in force.
pub(crate) async fn run(what: What, mut open: Vec<Opened>, catalog: Arc<Catalog>) {
    let file = what.file();
    let mut seen = file.as_deref().and_then(stamp);
    let mut look = tokio::time::interval(LOOK);
    let mut hangup = Hangup::new();
    loop {
        tokio::select! {
            () = hangup.received() => {}
            _ = look.tick() => {
                let now = file.as_deref().and_then(stamp);
                // A file that is gone is most likely being replaced.
                if now.is_none() || now == seen {
                    continue;
                }
                seen = now;
            }
        }
        let renewed = tokio::task::block_in_place(|| {
            surviving(|| {
                let (_, opened) = what.open(&open)?;
                let same = opened.len() == open.len()
                    && opened.iter().zip(&open).all(|(new, old)| Arc::ptr_eq(&new.source, &old.source));
                if !same {
                    catalog.replace(opened.iter().map(|opened| opened.source.clone()).collect());
                }
                Ok(opened)
            })
        });
        match renewed {
            Ok(opened) => {
                open = opened;
                tracing::info!("read the configuration again");
            }
            Err(error) => {
                note(format_args!("{}\nthe configuration that was in force stays", describe(&error)));
            }
        }
    }
}

/// Does what may panic, such as opening a source, and makes that an error: the server goes on, and so does the
/// reading of later configurations.
fn surviving<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Err(advice(
            format!("the configuration made Libris fail: {text}"),
            "this is a defect of Libris: please report it with what you changed in the file",
        ))
    })
}

/// What changes when a file changes.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The signal that asks for the configuration to be read again.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    fn new() -> Self {
        Self {
            // In a terminal the signal says that it was closed, and ends the program as it always does.
            #[cfg(unix)]
            signal: (!std::io::stdin().is_terminal())
                .then(|| tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok())
                .flatten(),
        }
    }

    async fn received(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::surviving;
    use crate::terminal::describe;

    #[test]
    fn a_panic_is_an_error() {
        let error = surviving::<()>(|| panic!("a {} too many", "semaphore")).unwrap_err();
        assert!(describe(&error).contains("made Libris fail: a semaphore too many\nhint: "));
        assert_eq!(surviving(|| Ok(1)).unwrap(), 1);
    }
}
