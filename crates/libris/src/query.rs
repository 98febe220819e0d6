//! Queries to sources: with a timeout, and with the last known listing as fallback while a source is unavailable.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use libris_core::{
    Context, Error, Freshness, Page, Prompts, Result, SkillPage, SourceTools, Templates, UnavailableSource,
    Uri,
};
use tokio::time::{Sleep, sleep};

use crate::catalog::Config;
use crate::gate::{GatedSource, SourceRole, WeakGatedSource};
use crate::health::{Outage, SourceFault, SourceHealth, rfc3339};
use crate::list_cache::PageRequest;

/// How many sources a list queries concurrently.
const CONCURRENT_QUERIES: usize = 16;

/// The result of a list query to one source.
pub(crate) enum SourceResponse<T> {
    /// The response of the source.
    Current(T),
    /// The source is unavailable; this is its last known listing.
    LastKnown(T, UnavailableSource),
    /// The source is unavailable and has no last known listing.
    Missing { unavailable: UnavailableSource, reason: Arc<str> },
}

/// A list query, whose failure may start an outage of the source.
struct SourceQuery<'a> {
    context: &'a Context,
    config: Config,
    /// The page size for the probes that follow a failure.
    limit: usize,
    /// Whether a failure of this query starts an outage: true for queries that every client makes, such as for the
    /// first page.
    starts_outage: bool,
}

impl GatedSource {
    /// Lists one page, or the last known one if the source is unavailable.
    pub(crate) async fn list(
        &self,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
        config: Config,
    ) -> Result<SourceResponse<Page>> {
        let query = SourceQuery { context, config, limit, starts_outage: after.is_none() };
        let request = PageRequest { after, limit };
        let page = |context: Context| async move {
            match self.source().whole_list() {
                Some(Freshness { scope, .. }) => {
                    self.lists().page(self.source(), scope, request, &context).await
                }
                None => self.source().list(after, limit, &context).await,
            }
        };
        match self.query(query, page).await? {
            Ok(page) => {
                let known = self.health().last_known();
                // A page that depends on the caller's identity must not be stored for others.
                match page.freshness.proof.is_none() || self.source().may_fail() {
                    _ if context.identity_was_used() => {}
                    true => known.learn(after, &page),
                    false => known.forget(),
                }
                Ok(SourceResponse::Current(page))
            }
            Err(outage) => {
                let known = self.health().last_known().page(after, limit);
                Ok(self.unavailable_response(outage, known))
            }
        }
    }

    /// The templates of the source, or the last known ones if it is unavailable.
    pub(crate) async fn templates(
        &self,
        context: &Context,
        config: Config,
    ) -> Result<SourceResponse<Templates>> {
        let query = SourceQuery { context, config, limit: 1, starts_outage: true };
        let templates = |context: Context| async move { self.source().templates(&context).await };
        match self.query(query, templates).await? {
            Ok(given) => {
                let is_stored = given.freshness.proof.is_none() || self.source().may_fail();
                if is_stored && !context.identity_was_used() {
                    self.health().last_known().learn_templates(&given.templates);
                }
                Ok(SourceResponse::Current(given))
            }
            Err(outage) => {
                let known = self.health().last_known().templates();
                Ok(self.unavailable_response(outage, known.map(Templates::from)))
            }
        }
    }

    /// One page of the skills of the source. Skills have no last known listing.
    pub(crate) async fn skills(
        &self,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
        config: Config,
    ) -> Result<SourceResponse<SkillPage>> {
        // A source that cannot list its skills can perhaps still list its resources, so this failure does not start an
        // outage.
        let query = SourceQuery { context, config, limit: 1, starts_outage: false };
        let skills = |context: Context| async move { self.source().skills(after, limit, &context).await };
        match self.query(query, skills).await? {
            Ok(page) => Ok(SourceResponse::Current(page)),
            Err(outage) => Ok(self.unavailable_response(outage, None)),
        }
    }

    /// The prompts of the source. Prompts have no last known listing.
    pub(crate) async fn prompts(&self, context: &Context, config: Config) -> Result<SourceResponse<Prompts>> {
        let query = SourceQuery { context, config, limit: 1, starts_outage: false };
        let prompts = |context: Context| async move { self.source().prompts(&context).await };
        match self.query(query, prompts).await? {
            Ok(prompts) => Ok(SourceResponse::Current(prompts)),
            Err(outage) => Ok(self.unavailable_response(outage, None)),
        }
    }

    /// The tools of the source, or the last known ones if it is unavailable: another source must not take over their names
    /// meanwhile.
    pub(crate) async fn tools(
        &self,
        context: &Context,
        config: Config,
    ) -> Result<SourceResponse<SourceTools>> {
        let query = SourceQuery { context, config, limit: 1, starts_outage: false };
        let tools = |context: Context| async move { self.source().tools(&context).await };
        match self.query(query, tools).await? {
            Ok(given) => {
                if !context.identity_was_used() {
                    self.health().last_known().learn_tools(&given.tools);
                }
                Ok(SourceResponse::Current(given))
            }
            Err(outage) => {
                let known = self.health().last_known().tools();
                let known = known.map(|tools| SourceTools { tools, ..SourceTools::default() });
                Ok(self.unavailable_response(outage, known))
            }
        }
    }

    fn unavailable_response<T>(&self, outage: Outage, known: Option<T>) -> SourceResponse<T> {
        let unavailable = self.health().unavailable(&outage, known.is_some());
        match known {
            Some(known) => SourceResponse::LastKnown(known, unavailable),
            None => SourceResponse::Missing { unavailable, reason: outage.reason },
        }
    }

    /// Queries the source, unless it is unavailable (open circuit). An outer error fails the whole list; an inner error
    /// is the outage of this source.
    async fn query<T: Default, F: Future<Output = Result<T>>>(
        &self,
        query: SourceQuery<'_>,
        answer: impl FnOnce(Context) -> F,
    ) -> Result<Result<T, Outage>> {
        let Config { source_timeout, strict } = query.config;
        let outage = || self.health().outage().filter(|_| !strict);
        if let Some(outage) = outage() {
            return Ok(Err(outage));
        }
        // The wait is longer than a query may take. If hanging queries for the first page hold all permits, they time
        // out while this query waits, and start an outage; the check below then returns it.
        let permit = self.listing_permit(query.context, source_timeout.saturating_mul(2)).await;
        if let Some(outage) = outage() {
            return Ok(Err(outage));
        }
        let answer = bounded_answer(source_timeout, answer(permit?)).await;
        let fault = match answer {
            Ok(answer) => {
                // Strict mode queries a source during an outage too.
                if strict && self.health().outage().is_some() {
                    self.health().recover();
                }
                return Ok(Ok(answer));
            }
            Err(SourceFault::Error(error)) => match SourceFault::of(error) {
                Ok(fault) => fault,
                // A source that denies the caller lists nothing for it.
                Err(Error::Denied(_)) => return Ok(Ok(T::default())),
                Err(error) => return Err(error),
            },
            Err(fault) => fault,
        };
        // A later page, or a page for one identity, may fail because of this caller. Such a failure must not make the
        // source unavailable for others.
        let outage = match query.starts_outage && !query.context.identity_was_used() {
            true => self.health().fail(&fault),
            false => self.health().record_suspicion(&fault),
        };
        self.probe(query.limit, query.config);
        if strict { Err(fault.into_error(self.health().name())) } else { Ok(Err(outage)) }
    }

    /// Awaits the response to a request that is not a list query, with a timeout if the source is known to hang. The
    /// error of an unavailable source says since when it is unavailable and what to do. `sources` are all sources of
    /// the catalog.
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

    /// The error for the caller. During an outage, it says since when and why.
    fn explained(&self, fault: SourceFault, config: Config, sources: &[Self]) -> Error {
        let Some(outage) = self.health().outage().filter(|_| !config.strict) else {
            // Perhaps only this resource is unavailable; a probe finds out.
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
        let (name, since) = (self.health().name(), rfc3339(outage.since));
        let why = advised(&why, sources);
        Error::Unavailable(format!("`{name}` is unavailable since {since}: {why}"))
    }

    /// Starts a task that probes the source until it is available, unless such a task runs already, or the source is
    /// available and a probe succeeded within the last second.
    fn probe(&self, limit: usize, config: Config) {
        if self.health().begin_probes() {
            let probes = Probes { health: self.health().clone(), ended: false };
            tokio::spawn(probes.run(self.downgrade(), limit, config));
        }
    }

    /// Probes the source: lists a page and the templates. `None` if the source is busy.
    async fn probe_once(&self, limit: usize, config: Config) -> Option<Result<(), SourceFault>> {
        let context = self.listing_permit(&Context::default(), config.source_timeout).await.ok()?;
        let source = self.source();
        let queried = async move {
            source.list(None, limit, &context).await?;
            source.templates(&context).await.map(drop)
        };
        match bounded_answer(config.source_timeout, queried).await {
            Err(SourceFault::Error(Error::Busy(_))) => None,
            // A source that refuses a request has answered it, so it is available.
            Err(SourceFault::Error(Error::Invalid(_) | Error::Denied(_))) | Ok(()) => Some(Ok(())),
            Err(fault) => Some(Err(fault)),
        }
    }
}

/// The task that probes a source. It keeps neither the source nor the catalog alive.
struct Probes {
    health: Arc<SourceHealth>,
    ended: bool,
}

impl Probes {
    async fn run(mut self, source: WeakGatedSource, limit: usize, config: Config) {
        loop {
            sleep(self.health.pause()).await;
            let Some(gated) = source.upgrade() else { return };
            match gated.probe_once(limit, config).await {
                Some(Ok(())) => {
                    self.ended = true;
                    return self.health.recover_by_probe();
                }
                Some(Err(fault)) => drop(self.health.fail(&fault)),
                // A busy source is not unavailable.
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

/// The response or the last known listing of each source; a source that has neither contributes only its entry in
/// `unavailable`. Fails if such a source exists and no source of the role [`SourceRole::Content`] has a response or a
/// last known listing.
pub(crate) fn gathered<T: ListResponse>(
    sources: &[GatedSource],
    answers: Vec<SourceResponse<T>>,
) -> Result<Vec<(&GatedSource, T)>> {
    let mut all = Vec::with_capacity(answers.len());
    let mut missing = Vec::new();
    let mut is_known = false;
    for (gated, answer) in sources.iter().zip(answers) {
        is_known |= gated.role() == SourceRole::Content && !matches!(answer, SourceResponse::Missing { .. });
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
            let reason = advised(reason, sources);
            Err(Error::Unavailable(format!("{names} {are} unavailable; the error{of}: {reason}")))
        }
        _ => Ok(all),
    }
}

/// A list response that can name unavailable sources.
pub(crate) trait ListResponse: Default {
    /// The same response with this unavailable source.
    fn with_unavailable(self, unavailable: UnavailableSource) -> Self;
}

impl ListResponse for Page {
    fn with_unavailable(self, unavailable: UnavailableSource) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

impl ListResponse for Templates {
    fn with_unavailable(self, unavailable: UnavailableSource) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

impl ListResponse for SkillPage {
    fn with_unavailable(self, unavailable: UnavailableSource) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

impl ListResponse for Prompts {
    fn with_unavailable(self, unavailable: UnavailableSource) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

impl ListResponse for SourceTools {
    fn with_unavailable(self, unavailable: UnavailableSource) -> Self {
        Self { unavailable: vec![unavailable], ..self }
    }
}

/// The reason of an outage, and what to do. If the reason already says what to do, only a reference to
/// `libris://status` is added: a permanent fault, such as a wrong password, must not end with the advice to try again.
fn advised(reason: &str, sources: &[GatedSource]) -> String {
    let has_status = sources.iter().any(|gated| gated.role() == SourceRole::Status);
    let has_advice = ["; hint: ", "try again"].iter().any(|advice| reason.contains(advice));
    match (has_status, has_advice) {
        (true, true) => format!("{reason}; `libris://status` has the state of the sources"),
        (true, false) => format!(
            "{reason}; hint: read `libris://status` for the state of the sources, and try again once they are available"
        ),
        (false, true) => reason.to_owned(),
        (false, false) => format!("{reason}; hint: if this persists, check the source"),
    }
}

/// The first five names, in backticks, and the number of further names.
pub(crate) fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MAX_NAMES: usize = 5;
    let mut names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.len() > MAX_NAMES {
        let rest = names.len() - MAX_NAMES;
        names.truncate(MAX_NAMES);
        names.push(format!("{rest} more"));
    }
    names.join(", ")
}

/// Runs queries concurrently, at most [`CONCURRENT_QUERIES`] at once. Returns the results in the order of the queries,
/// or the first error.
pub(crate) async fn all<T>(queries: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    match queries.len() <= CONCURRENT_QUERIES {
        true => try_join_all(queries).await,
        false => stream::iter(queries).buffered(CONCURRENT_QUERIES).try_collect().await,
    }
}

/// Awaits a response with a timeout, and turns a panic into a fault.
pub(crate) async fn bounded_answer<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T>>,
) -> Result<T, SourceFault> {
    match within(Some(limit), AssertUnwindSafe(answer).catch_unwind()).await {
        Some(Ok(answer)) => answer.map_err(SourceFault::Error),
        Some(Err(_)) => Err(SourceFault::Panicked),
        None => Err(SourceFault::TimedOut(limit)),
    }
}

/// Awaits a future with an optional timeout. A future that is ready at once needs no timer.
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
