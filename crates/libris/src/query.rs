//! Queries of what a source has: within a time limit, and with what was last known of a source that does not answer.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use libris_core::{Context, Error, Page, Result, Templates, Unavailable, Uri};
use tokio::time::{Sleep, sleep};

use crate::catalog::Config;
use crate::gate::{Gated, Role, WeakGated};
use crate::health::{Outage, SourceFault, SourceHealth, rfc3339};
use crate::status;

/// How many sources are queried at once.
const CONCURRENT: usize = 16;

/// What a query gave.
pub(crate) enum SourceResponse<T> {
    /// What the source has.
    Current(T),
    /// What the source had when it last answered.
    LastKnown(T, Unavailable),
    /// Nothing is known of what the source has.
    Missing { unavailable: Unavailable, reason: Arc<str> },
}

/// A query that may begin an outage.
struct SourceQuery<'a> {
    context: &'a Context,
    config: Config,
    /// How many resources to ask for to find out whether the source is available again.
    limit: usize,
    /// Whether it asks for what comes first, as everybody does.
    is_first: bool,
}

impl Gated {
    /// A page of what the source has, or had.
    pub(crate) async fn list(
        &self,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
        config: Config,
    ) -> Result<SourceResponse<Page>> {
        let query = SourceQuery { context, config, limit, is_first: after.is_none() };
        let page = |context: Context| async move { self.source().list(after, limit, &context).await };
        match self.ask(query, page).await? {
            Ok(page) => {
                // What was listed for one caller is not for others.
                if !context.identity_was_used() {
                    self.health().last_known().learn(after, &page);
                }
                Ok(SourceResponse::Current(page))
            }
            Err(outage) => Ok(self.last_known(outage, self.health().last_known().page(after, limit))),
        }
    }

    /// The templates that the source has, or had.
    pub(crate) async fn templates(
        &self,
        context: &Context,
        config: Config,
    ) -> Result<SourceResponse<Templates>> {
        let query = SourceQuery { context, config, limit: 1, is_first: true };
        let templates = |context: Context| async move { self.source().templates(&context).await };
        match self.ask(query, templates).await? {
            Ok(given) => {
                if given.freshness.proof.is_none() && !context.identity_was_used() {
                    self.health().last_known().learn_templates(&given.templates);
                }
                Ok(SourceResponse::Current(given))
            }
            Err(outage) => {
                let known = self.health().last_known().templates();
                Ok(self.last_known(outage, known.map(Templates::from)))
            }
        }
    }

    fn last_known<T>(&self, outage: Outage, known: Option<T>) -> SourceResponse<T> {
        let unavailable = self.health().unavailable(&outage, known.is_some());
        match known {
            Some(known) => SourceResponse::LastKnown(known, unavailable),
            None => SourceResponse::Missing { unavailable, reason: outage.reason },
        }
    }

    /// Asks the source, unless it is unavailable.
    async fn ask<T: Default, F: Future<Output = Result<T>>>(
        &self,
        query: SourceQuery<'_>,
        answer: impl FnOnce(Context) -> F,
    ) -> Result<Result<T, Outage>> {
        let Config { source_timeout, strict } = query.config;
        let outage = || self.health().outage().filter(|_| !strict);
        if let Some(outage) = outage() {
            return Ok(Err(outage));
        }
        // Longer than those who have a turn may take: if all of them hang, the source is unavailable by then.
        let turn = self.listing_turn(query.context, source_timeout.saturating_mul(2)).await;
        if let Some(outage) = outage() {
            return Ok(Err(outage));
        }
        let answer = caught(source_timeout, answer(turn?)).await;
        let fault = match answer {
            Ok(answer) => {
                // In strict mode a source is asked although it is unavailable.
                if strict && self.health().outage().is_some() {
                    self.health().recover();
                }
                return Ok(Ok(answer));
            }
            Err(SourceFault::Error(error)) => match SourceFault::of(error) {
                Ok(fault) => fault,
                // What is not for this caller is not there.
                Err(Error::Denied(_)) => return Ok(Ok(T::default())),
                Err(error) => return Err(error),
            },
            Err(fault) => fault,
        };
        // A failure may be due to where the caller goes on in the list, or to who the caller is. It must not make the
        // source unavailable to others then.
        let outage = match query.is_first && !query.context.identity_was_used() {
            true => self.health().fail(&fault),
            false => self.health().doubt(&fault),
        };
        self.probe(query.limit, query.config);
        if strict { Err(fault.into_error(self.health().name())) } else { Ok(Err(outage)) }
    }

    /// Waits for the answer to a request about one resource: not for long where the source is known to hang. The error
    /// of a source that is unavailable says so, and what to do; `sources` are all that there are.
    pub(crate) async fn answer<T>(
        &self,
        config: Config,
        sources: &[Self],
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let hangs = !config.strict && self.health().outage().is_some_and(|outage| outage.hangs);
        let fault = match within(hangs.then_some(config.source_timeout), answer).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => SourceFault::Error(error),
            None => SourceFault::TimedOut(config.source_timeout),
        };
        Err(self.explained(fault, config, sources))
    }

    fn explained(&self, fault: SourceFault, config: Config, sources: &[Self]) -> Error {
        let Some(outage) = self.health().outage().filter(|_| !config.strict) else {
            // It may be this resource alone that cannot be had.
            if let SourceFault::Error(Error::Unavailable(_)) = fault {
                self.probe(1, config);
            }
            return fault.into_error(self.health().name());
        };
        let why = match fault {
            SourceFault::Error(Error::Unavailable(why)) => why,
            SourceFault::Error(error @ Error::Failed { .. }) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::debug!(%error, cause, "a request to an unavailable source failed");
                outage.reason.to_string()
            }
            SourceFault::Error(error) => return error,
            fault => fault.reason(),
        };
        let (name, since, hint) = (self.health().name(), rfc3339(outage.since), hint(sources));
        Error::Unavailable(format!("`{name}` is unavailable since {since}: {why}; hint: {hint}"))
    }

    /// Finds out whether the source is available, and if not, when it is again. Nothing is started where somebody
    /// finds out already.
    fn probe(&self, limit: usize, config: Config) {
        if self.health().begin_probes() {
            let probes = Probes { health: self.health().clone(), ended: false };
            tokio::spawn(probes.run(self.downgrade(), limit, config));
        }
    }

    /// Queries the source as a list does; `None` if it has no time for that.
    async fn probed(&self, limit: usize, config: Config) -> Option<Result<(), SourceFault>> {
        let context = self.listing_turn(&Context::default(), config.source_timeout).await.ok()?;
        let source = self.source();
        let queried = async move {
            source.list(None, limit, &context).await?;
            source.templates(&context).await.map(drop)
        };
        match caught(config.source_timeout, queried).await {
            Err(SourceFault::Error(Error::Busy(_))) => None,
            // What is not for everybody is an answer too.
            Err(SourceFault::Error(Error::Invalid(_) | Error::Denied(_))) | Ok(()) => Some(Ok(())),
            Err(fault) => Some(Err(fault)),
        }
    }
}

/// The task that probes a source, which holds neither the source nor the catalog.
struct Probes {
    health: Arc<SourceHealth>,
    ended: bool,
}

impl Probes {
    async fn run(mut self, source: WeakGated, limit: usize, config: Config) {
        loop {
            sleep(self.health.pause()).await;
            let Some(gated) = source.upgrade() else { return };
            match gated.probed(limit, config).await {
                Some(Ok(())) => {
                    self.ended = true;
                    return self.health.recover_by_probe();
                }
                Some(Err(fault)) => drop(self.health.fail(&fault)),
                // A source that is busy is not unavailable for that.
                None if self.health.outage().is_none() => return,
                None => {}
            }
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        if !self.ended {
            self.health.abandon_probes();
        }
    }
}

/// What the sources answered, and of those that did not what was last known. An error if nothing is known of any.
pub(crate) fn gathered<T: ListResponse>(
    sources: &[Gated],
    answers: Vec<SourceResponse<T>>,
) -> Result<Vec<(&Gated, T)>> {
    let mut all = Vec::with_capacity(answers.len());
    let mut missing = Vec::new();
    let mut is_known = false;
    for (gated, answer) in sources.iter().zip(answers) {
        is_known |= gated.role() == Role::Content && !matches!(answer, SourceResponse::Missing { .. });
        let given = match answer {
            SourceResponse::Current(given) => given,
            SourceResponse::LastKnown(known, unavailable) => known.with_unavailable(unavailable),
            SourceResponse::Missing { unavailable, reason } => {
                missing.push((gated, reason));
                T::default().with_unavailable(unavailable)
            }
        };
        all.push((gated, given));
    }
    match missing.first() {
        Some((first, reason)) if !is_known => {
            let names = quoted(missing.iter().map(|(gated, _)| gated.health().name()));
            let are = if missing.len() == 1 { "is" } else { "are" };
            let of =
                if missing.len() == 1 { String::new() } else { format!(" of `{}`", first.health().name()) };
            Err(Error::Unavailable(format!(
                "{names} {are} unavailable; the error{of}: {reason}; hint: {}",
                hint(sources)
            )))
        }
        _ => Ok(all),
    }
}

/// What a query gives.
pub(crate) trait ListResponse: Default {
    /// The same, naming a source that is unavailable.
    fn with_unavailable(self, unavailable: Unavailable) -> Self;
}

impl ListResponse for Page {
    fn with_unavailable(self, unavailable: Unavailable) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

impl ListResponse for Templates {
    fn with_unavailable(self, unavailable: Unavailable) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

/// What to do about a source that is unavailable.
fn hint(sources: &[Gated]) -> &'static str {
    match sources.iter().any(|gated| gated.role() == Role::Status) {
        true => status::HINT,
        false => "try again later",
    }
}

/// The first few of these names.
pub(crate) fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 5;
    let mut names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.len() > MOST {
        let rest = names.len() - MOST;
        names.truncate(MOST);
        names.push(format!("{rest} more"));
    }
    names.join(", ")
}

/// Queries several sources at once; gives what they answered in the order of the queries.
pub(crate) async fn all<T>(queries: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    match queries.len() <= CONCURRENT {
        true => try_join_all(queries).await,
        false => stream::iter(queries).buffered(CONCURRENT).try_collect().await,
    }
}

/// Waits for an answer for so long, and makes a panic a fault.
pub(crate) async fn caught<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T>>,
) -> Result<T, SourceFault> {
    match within(Some(limit), AssertUnwindSafe(answer).catch_unwind()).await {
        Some(Ok(answer)) => answer.map_err(SourceFault::Error),
        Some(Err(_)) => Err(SourceFault::Panicked),
        None => Err(SourceFault::TimedOut(limit)),
    }
}

/// Waits for a future for so long. One that is ready at once needs no timer.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let Some(limit) = limit else { return Poll::Pending };
        timer.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context).map(|()| None)
    })
    .await
}
