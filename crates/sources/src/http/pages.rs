//! The pages of a response: all pages of a list, and the URI of the next page of a resource.

use std::collections::HashSet;
use std::sync::Arc;

use libris_core::uri_template::Variables;
use libris_core::{Client, Uri};
use url::Url;

use super::HttpInner;
use super::cache::RequiredFreshness;
use super::endpoint::ApiEndpoint;
use super::fault::HttpFault;
use super::list::{ListPages, ListSource};
use super::response::ApiResponse;
use super::{extract, link};

/// The endpoint and the URL of a list.
type ListLocation = (Arc<ApiEndpoint>, Url);

impl HttpInner {
    /// The location of a list.
    pub(super) fn located(
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
                    .map_err(|_| HttpFault::Values)?;
                // A value such as `..` would name another resource.
                from.matches(&uri).ok_or(HttpFault::Values)?;
                let (endpoint, variables) = self.endpoint(&uri).ok_or(HttpFault::Missing)?;
                let url = endpoint.url(variables)?;
                Ok((endpoint, url))
            }
        }
    }

    /// The pages of a list. A failure of one page is a failure of the list, which must not look complete.
    pub(super) async fn pages(
        &self,
        (endpoint, mut url): ListLocation,
        pages: &ListPages,
        want: RequiredFreshness,
        asker: Client,
    ) -> Result<Vec<Arc<ApiResponse>>, HttpFault> {
        let mut answers = Vec::new();
        let mut seen = HashSet::from([url.clone()]);
        let mut bytes = 0;
        loop {
            let answer = self.cache.get(&endpoint, url.clone(), want, asker).await?.answer;
            bytes += answer.body.len() as u64;
            answers.push(answer);
            if pages.max_pages == 1 {
                return Ok(answers);
            }
            let next = self.next_page(&url, pages, &answers[answers.len() - 1..], asker).await?;
            let next = next.map(|next| endpoint.with_constant_query(next));
            // A service may name a page as its own successor.
            let Some(next) = next.filter(|next| seen.insert(next.clone())) else { return Ok(answers) };
            if answers.len() >= pages.max_pages || bytes > self.max_size {
                tracing::warn!("only the first {} pages of a list are taken", answers.len());
                return Ok(answers);
            }
            url = next;
        }
    }

    /// The URL of the page after this one.
    async fn next_page(
        &self,
        url: &Url,
        pages: &ListPages,
        page: &[Arc<ApiResponse>],
        asker: Client,
    ) -> Result<Option<Url>, HttpFault> {
        let Some(pointer) = pages.next.clone() else { return Ok(page[0].next.clone()) };
        let field = move |page: &[Arc<ApiResponse>]| extract::field(page[0].text()?, &pointer);
        let found = self.parser.run(page, asker, field).await?;
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

    /// The URI of the next page of a resource; `None` if no template of this source serves it.
    pub(super) fn next_uri(&self, uri: &Uri, next: &Url) -> Option<Uri> {
        let (endpoint, variables) = self.endpoint(uri)?;
        let current = endpoint.url(variables).ok()?;
        let origin = current.origin().ascii_serialization();
        let own = self.templates.closest(uri).into_iter().map(|(template, filled, _)| (template, filled));
        let templates =
            own.chain(self.templates.iter()).filter(|(_, filled)| filled.endpoint.origin() == origin);
        let mut uris = templates.filter_map(|(template, filled)| {
            let variables = filled.endpoint.variables_of(next)?;
            self.uri_of(&template.expand(&variables).ok()?, &filled.endpoint)
        });
        uris.find(|found| found != uri).or_else(|| {
            // Some services name the next page by another path, such as one with a number instead of a name.
            let same_end = |url: &Url| url.path().rsplit('/').next().map(str::to_owned);
            let (template, filled, variables) =
                self.templates.closest(uri).filter(|_| same_end(&current) == same_end(next))?;
            let variables = filled.endpoint.with_query_of(next, &variables)?;
            self.uri_of(&template.expand(&variables).ok()?, &filled.endpoint).filter(|found| found != uri)
        })
    }

    /// The URI with this text, if it is of this endpoint.
    fn uri_of(&self, text: &str, endpoint: &ApiEndpoint) -> Option<Uri> {
        let uri = Uri::parse(text).ok()?;
        let (found, variables) = self.endpoint(&uri)?;
        (found.number == endpoint.number && found.url(variables).is_ok()).then_some(uri)
    }
}
