//! Queries sources for one page of a merged list: only the sources whose resources can be on the page.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::try_join;
use libris_core::{Context, Freshness, Page, Result, Uri};
use tokio::time::timeout;

use crate::catalog::Config;
use crate::gate::GatedSource;
use crate::query::{self, SourceResponse};

/// How long a page waits for the sources with the lowest URIs before it queries the others too.
const HEAD_START: Duration = Duration::from_millis(50);

/// A request for one page of the merged list.
#[derive(Clone, Copy)]
pub(crate) struct MergedPageRequest<'a> {
    pub(crate) after: Option<&'a Uri>,
    pub(crate) limit: usize,
    pub(crate) context: &'a Context,
    pub(crate) config: Config,
}

impl MergedPageRequest<'_> {
    /// The responses of all sources, in the order of `sources`. The response of a source that was not queried is an
    /// empty page.
    ///
    /// The sources whose resources come first in URI order, and those whose [range of URIs](GatedSource::span) is
    /// unknown, are queried first. If they respond within [`HEAD_START`] and have more resources than fit on the page,
    /// sources without URIs between the start and the end of the page are not queried: then the page depends neither on
    /// the speed nor on the proofs of these sources.
    pub(crate) async fn responses(&self, sources: &[GatedSource]) -> Result<Vec<SourceResponse<Page>>> {
        let starts: Vec<_> = sources.iter().map(|gated| self.start(gated)).collect();
        let lowest = starts.iter().filter_map(|start| match start {
            SourceStart::At(start) => Some(*start),
            SourceStart::Unknown | SourceStart::Never => None,
        });
        let lowest = lowest.min();
        let is_first = |start: &SourceStart<'_>| match start {
            SourceStart::Unknown => true,
            SourceStart::At(start) => Some(*start) == lowest,
            SourceStart::Never => false,
        };
        let (first, rest): (Vec<usize>, Vec<usize>) =
            (0..sources.len()).partition(|at| is_first(&starts[*at]));
        let rest: Vec<_> = rest.into_iter().filter(|at| starts[*at] != SourceStart::Never).collect();
        let mut responses: Vec<_> = sources.iter().map(|_| None).collect();
        let mut put = |asked: &[usize], answers: Vec<SourceResponse<Page>>| {
            asked.iter().zip(answers).for_each(|(at, answer)| responses[*at] = Some(answer));
        };
        let mut early = pin!(self.all(sources, &first));
        match timeout(HEAD_START, early.as_mut()).await {
            Ok(answers) => {
                let answers = answers?;
                let end = page_end(&answers);
                let is_behind = |at: &usize| match (&end, starts[*at]) {
                    (Some(end), SourceStart::At(start)) => *start > *end.as_str(),
                    _ => false,
                };
                put(&first, answers);
                let rest: Vec<_> = rest.into_iter().filter(|at| !is_behind(at)).collect();
                put(&rest, self.all(sources, &rest).await?);
            }
            Err(_) => {
                let (answers, others) = try_join(early, self.all(sources, &rest)).await?;
                put(&first, answers);
                put(&rest, others);
            }
        }
        Ok(responses.into_iter().map(|response| response.unwrap_or_else(not_asked)).collect())
    }

    async fn all(&self, sources: &[GatedSource], asked: &[usize]) -> Result<Vec<SourceResponse<Page>>> {
        let Self { after, limit, context, config } = *self;
        let list = |at: &usize| {
            let gated = &sources[*at];
            // If all resources of the source are after `after`, this is the first page of the source. A page that is
            // queried without `after` can be stored as the start of the source's last known list.
            let is_first = |after: &&Uri| gated.span().is_some_and(|span| span.is_after(after));
            gated.list(after.filter(|after| !is_first(after)), limit, context, config)
        };
        query::all(asked.iter().map(list).collect()).await
    }

    fn start<'a>(&'a self, gated: &'a GatedSource) -> SourceStart<'a> {
        match gated.span() {
            None => SourceStart::Unknown,
            Some(span) => span.start_after(self.after).map_or(SourceStart::Never, SourceStart::At),
        }
    }
}

/// Where the resources of a source begin at the earliest, after the start of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceStart<'a> {
    Unknown,
    At(&'a str),
    /// All resources of the source are before the page.
    Never,
}

/// The response of a source that has nothing on the page.
fn not_asked() -> SourceResponse<Page> {
    SourceResponse::Current(Page { freshness: Freshness::unlimited(), ..Page::default() })
}

/// The URI at which a merged page with these responses ends at the latest; `None` if all responses are complete.
fn page_end(answers: &[SourceResponse<Page>]) -> Option<Uri> {
    let pages = answers.iter().filter_map(|answer| match answer {
        SourceResponse::Current(page) | SourceResponse::LastKnown(page, _) => Some(page),
        SourceResponse::Missing { .. } => None,
    });
    // A source may have resources directly after the last one of an incomplete page, so the merged page ends there.
    pages.filter(|page| page.more).filter_map(|page| page.resources.last()).map(|last| last.uri.clone()).min()
}
