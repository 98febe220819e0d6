//! Reloading the configuration while serving.

use std::io::IsTerminal as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use libris::auth::Authenticator;
use libris::rules::RuleSet;
use libris::{Catalog, FileVersion, FileVersionStamp, Policy, PolicyHandle};
use tokio::task::JoinHandle;

use crate::audit_log::AuditWriter;
use crate::auth::{self, AuthArguments};
use crate::config::Config;
use crate::rule_config::LocalCallers;
use crate::serve;
use crate::sources::{ConfiguredSource, OpenedConfig, SourceArguments, check_roots};
use crate::terminal::{advice, is_unreadable, note, report};

/// The polling interval of the configuration file. One `stat` is cheaper and more reliable than a watch of a file that
/// editors replace. A rule that revokes a right takes effect within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The first pause before a source that could not be opened is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The parts of a running server that a reload affects, besides its sources.
pub(crate) struct ServerAccess {
    pub(crate) rules: RuleSet,
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) arguments: AuthArguments,
    /// Whether every caller must authenticate, because other machines can reach the server.
    pub(crate) must_authenticate: bool,
    pub(crate) policy: PolicyHandle,
    pub(crate) audit: Option<AuditWriter>,
}

impl ServerAccess {
    /// Puts the rules and the authentication of a new configuration into effect. If its authentication is invalid, neither
    /// changes.
    fn replace(&mut self, config: &mut Config, file: Option<&Path>) -> Result<()> {
        let authenticator = self.arguments.reopen(config, file, self.authenticator.as_ref())?;
        if self.must_authenticate && !auth::authenticates(authenticator.as_ref()) {
            return Err(advice(
                "the new configuration has no authentication, but other machines can reach this server",
                "restore `[auth]`; to serve everybody, start Libris again with --allow-remote",
            ));
        }
        let rules = RuleSet::new(std::mem::take(&mut config.rules));
        let is_same = match (&authenticator, &self.authenticator) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (new, old) => new.is_none() && old.is_none(),
        };
        if rules == self.rules && is_same {
            return Ok(());
        }
        let open: Arc<dyn Policy> = Arc::new(LocalCallers);
        self.policy.replace(serve::policy(&rules, authenticator.as_ref()).unwrap_or(open));
        (self.rules, self.authenticator) = (rules, authenticator);
        tracing::info!(
            rules = self.rules.rules().len(),
            authentication = auth::authenticates(self.authenticator.as_ref()),
            "new access rules and authentication are in effect"
        );
        Ok(())
    }
}

/// Reloads the configuration when its file changes or SIGHUP arrives, and replaces the sources of the catalog. An
/// invalid configuration is reported, and the previous one stays in effect. If the configuration could not be read because
/// of an I/O error, it is read again at the next poll, because it may revoke a right. Sources that could not be opened are
/// tried again with exponential backoff.
///
/// `stamp` is the stamp that the configuration file had before the sources in `open` were read from it. A change since
/// then triggers a reload.
///
/// New rules and authentication take effect even if a source cannot be opened, and at once, even while sources are being
/// opened, because opening can take long.
pub(crate) async fn run(
    arguments: SourceArguments,
    mut open: Vec<ConfiguredSource>,
    catalog: Arc<Catalog>,
    mut access: ServerAccess,
    stamp: Option<FileVersionStamp>,
) {
    let file = arguments.file();
    let mut version = FileVersion::new(stamp);
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    let mut hangup = Hangup::new();
    let mut retry = Retry::new();
    let mut opening = OpeningSources::default();
    loop {
        tokio::select! {
            () = hangup.received() => access.audit.iter().for_each(AuditWriter::reopen),
            (opened, error) = opening.finished() => {
                open = opened;
                if opening.is_outdated {
                    opening.start(&arguments, &open, &catalog);
                } else if let Some(error) = error {
                    report_unchanged(&error);
                    if is_unreadable(&error) {
                        version.set_unreadable(file.as_deref().and_then(FileVersionStamp::of));
                    }
                }
                continue;
            }
            _ = polls.tick() => {
                let now = file.as_deref().and_then(FileVersionStamp::of);
                // A missing file is most likely being replaced.
                if now.is_none() || !version.is_due(&now) {
                    let has_unopened = open.iter().any(|source| source.failure.is_some());
                    if has_unopened && opening.is_idle() && retry.begin_if_due() {
                        opening.retry(&open, &catalog);
                    }
                    continue;
                }
            }
        }
        retry = Retry::new();
        // Before the file is read, so that a later change is noticed.
        let now = file.as_deref().and_then(FileVersionStamp::of);
        let replaced = tokio::task::block_in_place(|| {
            catch_panic(|| {
                let (mut config, _) = arguments.definitions()?;
                access.replace(&mut config, file.as_deref())
            })
        });
        match replaced {
            Ok(()) => {
                version.set_read(now);
                opening.start(&arguments, &open, &catalog);
            }
            Err(error) if is_unreadable(&error) => {
                if version.set_unreadable(now) {
                    report_unchanged(&error);
                }
            }
            Err(error) => {
                version.set_read(now);
                report_unchanged(&error);
            }
        }
    }
}

/// Reports that a configuration has no effect.
fn report_unchanged(error: &anyhow::Error) {
    report(error);
    note("the previous configuration stays in effect");
}

/// The sources that are open now, and why the configuration has no effect on them, if it has none.
type OpeningResult = (Vec<ConfiguredSource>, Option<anyhow::Error>);

/// Opens sources in a thread of its own, because opening one can take as long as a network file system hangs. Rules that
/// change meanwhile take effect at once.
#[derive(Default)]
struct OpeningSources {
    thread: Option<JoinHandle<OpeningResult>>,
    /// Whether the configuration changed since the thread read it.
    is_outdated: bool,
}

impl OpeningSources {
    fn is_idle(&self) -> bool {
        self.thread.is_none()
    }

    /// Reads the configuration, opens its sources and replaces those of the catalog; once the thread is idle.
    fn start(&mut self, arguments: &SourceArguments, open: &[ConfiguredSource], catalog: &Arc<Catalog>) {
        self.is_outdated = !self.is_idle();
        if self.is_outdated {
            return;
        }
        let (arguments, open, catalog) = (arguments.clone(), open.to_vec(), catalog.clone());
        self.thread = Some(tokio::task::spawn_blocking(move || {
            let reloaded = catch_panic(|| {
                let reloaded = arguments.open(&open)?;
                replace(&catalog, &open, &reloaded.sources);
                Ok(reloaded)
            });
            match reloaded {
                Ok(OpenedConfig { sources, errors, .. }) => {
                    errors.iter().for_each(|error| report(error));
                    tracing::info!("reloaded the configuration");
                    (sources, None)
                }
                Err(error) => (open, Some(error)),
            }
        }));
    }

    /// Tries to open the sources that could not be opened.
    fn retry(&mut self, open: &[ConfiguredSource], catalog: &Arc<Catalog>) {
        let (open, catalog) = (open.to_vec(), catalog.clone());
        self.thread = Some(tokio::task::spawn_blocking(move || (retry_unopened(&open, &catalog), None)));
    }

    /// The sources that are open when the thread is done; never, if there is no thread.
    async fn finished(&mut self) -> OpeningResult {
        let Some(thread) = &mut self.thread else { return std::future::pending().await };
        let opened = thread.await;
        self.thread = None;
        match opened {
            Ok(opened) => opened,
            // The thread catches panics, so this is the end of the program.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Replaces the sources of the catalog, unless they are the same.
fn replace(catalog: &Catalog, old: &[ConfiguredSource], new: &[ConfiguredSource]) {
    let same =
        new.len() == old.len() && new.iter().zip(old).all(|(new, old)| Arc::ptr_eq(&new.source, &old.source));
    if !same {
        catalog.replace(new.iter().map(|opened| opened.source.clone()).collect());
    }
}

/// Tries to open the sources that could not be opened, and adds those that succeed to the catalog.
fn retry_unopened(open: &[ConfiguredSource], catalog: &Catalog) -> Vec<ConfiguredSource> {
    let tried = catch_panic(|| {
        let mut sources = open.to_vec();
        for source in sources.iter_mut().filter(|source| source.failure.is_some()) {
            // If opening fails again, the catalog keeps the old `UnopenedSource`, and with it the start of the outage.
            let mut again = source.clone();
            if again.open_again() {
                tracing::warn!(source = again.label, "a source could be opened and is available");
                *source = again;
            }
        }
        check_roots(&sources)?;
        replace(catalog, open, &sources);
        Ok(sources)
    });
    tried.unwrap_or_else(|error| {
        tracing::warn!(%error, "a source could be opened, but cannot be served");
        open.to_vec()
    })
}

/// Exponential backoff of opening sources.
struct Retry {
    next: Instant,
    pause: Duration,
}

impl Retry {
    const LONGEST_PAUSE: Duration = Duration::from_secs(30);

    fn new() -> Self {
        Self { next: Instant::now() + FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// Returns whether the pause is over. If so, the next pause begins, twice as long.
    fn begin_if_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        self.next = now + self.pause;
        true
    }
}

/// Converts a panic, such as one while a source is opened, into an error, so that the server keeps running and reloads
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

/// SIGHUP, the signal to reopen the audit log and to reload the configuration.
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
        let text = anstream::adapter::strip_str(&describe(&error)).to_string();
        assert!(text.contains("caused a panic: a semaphore too many\nhint: "), "{text}");
        assert_eq!(catch_panic(|| Ok(1)).unwrap(), 1);
    }
}
