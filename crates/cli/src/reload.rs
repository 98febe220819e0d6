//! Reloading the configuration while serving.

use std::io::IsTerminal as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use libris::Catalog;

use crate::sources::{OpenSource, SourceArguments};
use crate::terminal::{advice, describe, note};

/// The polling interval of the configuration file. One `stat` is cheaper and more reliable than a watch of a file that
/// editors replace.
const POLL: Duration = Duration::from_secs(1);

/// Reloads the configuration when its file changes or SIGHUP arrives, and replaces the sources of the catalog. An
/// invalid configuration is reported, and the previous one stays in effect.
pub(crate) async fn run(sources: SourceArguments, mut open: Vec<OpenSource>, catalog: Arc<Catalog>) {
    let file = sources.file();
    let mut seen = file.as_deref().and_then(stamp);
    let mut polls = tokio::time::interval(POLL);
    let mut hangup = Hangup::new();
    loop {
        tokio::select! {
            () = hangup.received() => {}
            _ = polls.tick() => {
                let now = file.as_deref().and_then(stamp);
                // A missing file is most likely being replaced.
                if now.is_none() || now == seen {
                    continue;
                }
                seen = now;
            }
        }
        let reloaded = tokio::task::block_in_place(|| {
            catch_panic(|| {
                let (_, opened) = sources.open(&open)?;
                let same = opened.len() == open.len()
                    && opened.iter().zip(&open).all(|(new, old)| Arc::ptr_eq(&new.source, &old.source));
                if !same {
                    catalog.replace(opened.iter().map(|opened| opened.source.clone()).collect());
                }
                Ok(opened)
            })
        });
        match reloaded {
            Ok(opened) => {
                open = opened;
                tracing::info!("reloaded the configuration");
            }
            Err(error) => {
                note(format_args!("{}\nthe previous configuration stays in effect", describe(&error)));
            }
        }
    }
}

/// Turns a panic, such as one while a source is opened, into an error, so that the server keeps running and reloads
/// later configurations.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Err(advice(
            format!("the configuration caused a panic: {text}"),
            "this is a bug in Libris: please report it, with your change to the file",
        ))
    })
}

/// The modification time and size of a file.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// SIGHUP, the signal to reload the configuration.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    fn new() -> Self {
        Self {
            // In a terminal, SIGHUP means that the terminal was closed, and ends the program.
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
    use super::catch_panic;
    use crate::terminal::describe;

    #[test]
    fn a_panic_is_an_error() {
        let error = catch_panic::<()>(|| panic!("a {} too many", "semaphore")).unwrap_err();
        assert!(describe(&error).contains("caused a panic: a semaphore too many\nhint: "));
        assert_eq!(catch_panic(|| Ok(1)).unwrap(), 1);
    }
}
