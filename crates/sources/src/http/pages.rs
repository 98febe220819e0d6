//! The pages of a response: all pages of a list, and the URI of the next page of a resource.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libris_core::uri_template::Variables;
use libris_core::{Budget, Client, Freshness, Proof, Uri};
use tokio::time::timeout;
use url::Url;

use super::HttpInner;
use super::cache::RequiredFreshness;
use super::endpoint::ApiEndpoint;
use super::fault::HttpFault;
use super::list::{ListSource, Pagination};
use super::response::ApiResponse;
use super::{extract, link};

/// The memory for the pages of lists that are being fetched, beyond [`UNRESERVED_PAGE_BYTES`] of each list. The
/// pages stay in memory until the last one has arrived, even if they are no longer cached. One client may use three
/// quarters of this memory.
const PAGE_MEMORY_BYTES: usize = 32 << 20;

/// Lists whose pages together have at most this size need no reservation.
const UNRESERVED_PAGE_BYTES: u64 = 1 << 20;

/// The time-out of the wait for memory.
const PAGES_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest URL or cursor of a next page, in bytes. It becomes a part of the next request and of its cache key.
const MAX_NEXT_BYTES: usize = 8 << 10;

static PAGE_MEMORY: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(PAGE_MEMORY_BYTES));

/// The endpoint and the URL of a list.
type ListLocation = (Arc<ApiEndpoint>, Url);

impl HttpInner {
    /// The endpoint and the URL of a list for these variables.
    pub(super) fn locate(
        &self,
        list_source: &ListSource,
        variables: Variables,
    ) -> Result<ListLocation, HttpFault> {
        match list_source {
            ListSource::Endpoint(endpoint) => Ok((endpoint.clone(), endpoint.url(variables)?)),
            ListSource::From(from) => {
                let uri = from
                    .expand(&variables)
                    .and_then(|text| Uri::parse(&text))
                    .map_err(|_| HttpFault::InvalidValues)?;
                // A value such as `..` would name another resource.
                from.matches(&uri).ok_or(HttpFault::InvalidValues)?;
                let (endpoint, variables) = self.endpoint(&uri).ok_or(HttpFault::Missing)?;
                let url = endpoint.url(variables)?;
                Ok((endpoint, url))
            }
        }
    }

    /// Fetches the pages of a list, with a proof that holds while all of them are fresh. If one page fails, the list fails:
    /// an incomplete list must not look complete.
    pub(super) async fn pages(
        &self,
        (endpoint, mut url): ListLocation,
        pages: &Pagination,
        required: RequiredFreshness,
        client: Client,
    ) -> Result<(Vec<Arc<ApiResponse>>, Option<Proof>), HttpFault> {
        let (mut responses, mut freshness) = (Vec::new(), Freshness::unlimited());
        let mut seen = HashSet::from([url.clone()]);
        let (mut bytes, mut memory) = (0, None);
        loop {
            let fetched = self.cache.get(&endpoint, url.clone(), required, client).await?;
            bytes += fetched.api_response.body.len() as u64;
            responses.push(fetched.api_response);
            freshness = freshness.and(fetched.freshness);
            if pages.max_pages == 1 {
                return Ok((responses, freshness.proof));
            }
            let next = self.next_page(&url, pages, &responses[responses.len() - 1..], client).await?;
            let next = next.map(|next| endpoint.with_constant_query(next));
            // A faulty service may link to a page that was fetched before.
            let Some(next) = next.filter(|next| seen.insert(next.clone())) else {
                return Ok((responses, freshness.proof));
            };
            if responses.len() >= pages.max_pages || bytes > self.max_size {
                tracing::warn!("only the first {} pages of a list are taken", responses.len());
                return Ok((responses, freshness.proof));
            }
            if bytes > UNRESERVED_PAGE_BYTES && memory.is_none() {
                // Reserved at once for all pages that may follow: lists that each hold some memory and wait for more
                // would deadlock.
                let most = usize::try_from(2 * self.max_size).unwrap_or(usize::MAX);
                let taken = timeout(PAGES_TIMEOUT, PAGE_MEMORY.take(client, most)).await;
                memory = Some(taken.ok().flatten().ok_or(HttpFault::NoMemory)?);
            }
            url = next;
        }
    }

    /// The URL of the page after this one; `None` after the last.
    async fn next_page(
        &self,
        url: &Url,
        pages: &Pagination,
        page: &[Arc<ApiResponse>],
        client: Client,
    ) -> Result<Option<Url>, HttpFault> {
        let Some(pointer) = pages.next.clone() else { return Ok(page[0].next.clone()) };
        let field = move |page: &[Arc<ApiResponse>]| extract::field(page[0].text()?, &pointer);
        let found = self.parser.run(page, client, field).await?;
        if found.as_ref().is_some_and(|found| found.len() > MAX_NEXT_BYTES) {
            tracing::warn!("the next page of a list has a URL or cursor of more than {MAX_NEXT_BYTES} bytes");
            return Err(HttpFault::Malformed);
        }
        Ok(found.filter(|found| !found.is_empty()).and_then(|found| match &pages.cursor {
            None => link::same_origin(url, &found),
            Some(cursor) => {
                let others = url
                    .query_pairs()
                    .filter(|(name, _)| name != cursor)
                    .map(|(name, value)| (name.into_owned(), value.into_owned()));
                let others: Vec<_> = others.collect();
                let mut next = url.clone();
                next.query_pairs_mut().clear().extend_pairs(others).append_pair(cursor, &found);
                Some(next)
            }
        }))
    }

    /// The URI of the next page of a resource; `None` if no template of this source serves that page.
    pub(super) fn next_uri(&self, uri: &Uri, next: &Url) -> Option<Uri> {
        let (endpoint, variables) = self.endpoint(uri)?;
        let current = endpoint.url(variables).ok()?;
        let origin = current.origin().ascii_serialization();
        let own = self.templates.closest(uri).into_iter().map(|(template, entry, _)| (template, entry));
        let templates =
            own.chain(self.templates.iter()).filter(|(_, entry)| entry.endpoint.origin() == origin);
        let mut uris = templates.filter_map(|(template, entry)| {
            let variables = entry.endpoint.variables_of(next)?;
            self.uri_of(&template.expand(&variables).ok()?, &entry.endpoint)
        });
        uris.find(|found| found != uri).or_else(|| {
            // Some services link to the next page under another path, such as one with a numeric ID instead of a name.
            let same_end = |url: &Url| url.path().rsplit('/').next().map(str::to_owned);
            let (template, entry, variables) =
                self.templates.closest(uri).filter(|_| same_end(&current) == same_end(next))?;
            let variables = entry.endpoint.with_query_of(next, &variables)?;
            self.uri_of(&template.expand(&variables).ok()?, &entry.endpoint).filter(|found| found != uri)
        })
    }

    /// Parses a URI; `None` unless this endpoint serves it.
    fn uri_of(&self, text: &str, endpoint: &ApiEndpoint) -> Option<Uri> {
        let uri = Uri::parse(text).ok()?;
        let (found, variables) = self.endpoint(&uri)?;
        (found.number == endpoint.number && found.url(variables).is_ok()).then_some(uri)
    }
}
