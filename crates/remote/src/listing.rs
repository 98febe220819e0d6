//! Fetches all pages of the lists of a server, within limits.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use libris_core::uri_template::TemplateSet;
use libris_core::{CacheScope, Resource, Template, Uri};
use rmcp::model::{ErrorCode, PaginatedRequestParams};
use rmcp::service::ServiceError;
use tokio::time::{Instant, timeout_at};

use crate::config::RemoteLimits;
use crate::convert;
use crate::fault::RemoteFault;
use crate::link::UpstreamSession;
use crate::mount::UriMount;

/// A whole list may be this many times as large as the largest message (`max_message`).
const LIST_FACTOR: usize = 4;

/// Fetching a whole list may take this many times as long as one request may (`timeout`).
const LIST_TIME_FACTOR: u32 = 4;

/// All resources of a server.
#[derive(Default)]
pub(crate) struct ResourceList {
    /// In URI order, with served URIs.
    pub(crate) resources: Vec<Resource>,
    /// Upstream URIs by served URI, only those that [`UriMount::inner`] cannot compute, because the server does not
    /// write them in normal form.
    pub(crate) originals: HashMap<Uri, Box<str>>,
    /// The schemes of the served URIs.
    pub(crate) schemes: BTreeSet<Box<str>>,
    pub(crate) hints: CacheHints,
}

/// All templates of a server.
pub(crate) struct TemplateList {
    /// With served URIs.
    pub(crate) templates: Vec<Template>,
    /// The upstream template by served template.
    pub(crate) originals: HashMap<Box<str>, Box<str>>,
    pub(crate) set: TemplateSet<()>,
    pub(crate) schemes: BTreeSet<Box<str>>,
    pub(crate) hints: CacheHints,
}

/// How long a response may be cached, and for whom. For a list, this is the strictest of its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheHints {
    pub(crate) ttl: Duration,
    pub(crate) scope: CacheScope,
}

/// Without hints, the TTL is zero and the scope is private.
impl Default for CacheHints {
    fn default() -> Self {
        Self { ttl: Duration::ZERO, scope: CacheScope::Private }
    }
}

impl ResourceList {
    /// Fetches all pages.
    pub(crate) async fn fetch(
        session: &UpstreamSession,
        mount: &UriMount,
        limits: &RemoteLimits,
    ) -> Result<Self, RemoteFault> {
        let mut walk = PageWalk::new(session, limits, session.supports_resources());
        let mut list = Self::default();
        let mut malformed = 0;
        while let Some(cursor) = walk.next_cursor() {
            let page = walk.ask(session.peer.list_resources(cursor)).await?;
            let Some(page) = page else { break };
            walk.add(page.resources.len(), page.next_cursor, page.ttl_ms, page.cache_scope)?;
            for resource in page.resources {
                let original = resource.uri.clone();
                walk.add_bytes(convert::resource_weight(&resource))?;
                match convert::resource(resource, mount) {
                    Ok(resource) => list.add(resource, original, mount),
                    Err(_) => malformed += 1,
                }
            }
        }
        if malformed > 0 {
            tracing::warn!(malformed, "resources of an MCP server have malformed URIs and are left out");
        }
        list.sort(walk.hints());
        Ok(list)
    }

    /// Completes the list after all pages were added: sorts it and removes duplicates.
    pub(crate) fn sort(&mut self, hints: CacheHints) {
        self.resources.sort_by(|one, other| one.uri.cmp(&other.uri));
        self.resources.dedup_by(|one, other| one.uri == other.uri);
        self.hints = hints;
    }

    /// Adds a resource, whose upstream URI is `original`.
    pub(crate) fn add(&mut self, resource: Resource, original: String, mount: &UriMount) {
        if mount.inner(&resource.uri).is_none_or(|inner| *inner.as_str() != *original) {
            self.originals.insert(resource.uri.clone(), original.into());
        }
        if !self.schemes.contains(resource.uri.scheme()) {
            self.schemes.insert(resource.uri.scheme().into());
        }
        self.resources.push(resource);
    }

    /// The resource at a URI.
    pub(crate) fn find(&self, uri: &Uri) -> Option<&Resource> {
        let at = self.resources.binary_search_by(|resource| resource.uri.cmp(uri)).ok()?;
        self.resources.get(at)
    }
}

impl TemplateList {
    /// Fetches all pages. A malformed template is left out.
    pub(crate) async fn fetch(
        session: &UpstreamSession,
        mount: &UriMount,
        limits: &RemoteLimits,
    ) -> Result<Self, RemoteFault> {
        let mut walk = PageWalk::new(session, limits, session.supports_resources());
        let (mut templates, mut originals, mut schemes) = (Vec::new(), HashMap::new(), BTreeSet::new());
        while let Some(cursor) = walk.next_cursor() {
            let page = walk.ask(session.peer.list_resource_templates(cursor)).await?;
            let Some(page) = page else { break };
            walk.add(page.resource_templates.len(), page.next_cursor, page.ttl_ms, page.cache_scope)?;
            for template in page.resource_templates {
                walk.add_bytes(convert::template_weight(&template))?;
                let original = template.uri_template.clone();
                match convert::template(template, mount) {
                    Ok(template) => {
                        let text = template.uri.as_str();
                        if let Some((scheme, _)) =
                            text.split_once(':').filter(|(scheme, _)| !scheme.contains('{'))
                        {
                            schemes.insert(scheme.to_ascii_lowercase().into_boxed_str());
                        }
                        originals.insert(text.into(), original.into());
                        templates.push(template);
                    }
                    Err(cause) => {
                        tracing::warn!(%cause, "a template of an MCP server is malformed and left out");
                    }
                }
            }
        }
        let set = TemplateSet::new(templates.iter().map(|template: &Template| (template.uri.clone(), ())));
        Ok(Self { templates, originals, set, schemes, hints: walk.hints() })
    }
}

/// Pages through a list, and enforces the limits on pages, entries, bytes and time.
pub(crate) struct PageWalk<'a> {
    session: &'a UpstreamSession,
    limits: &'a RemoteLimits,
    deadline: Instant,
    /// The cursor of the next page, which is `Some(None)` for the first one; `None` after the last page.
    next: Option<Option<String>>,
    /// The cursors so far, to detect a list that repeats itself.
    seen: HashSet<String>,
    pages: usize,
    entries: usize,
    bytes: usize,
    hints: Option<CacheHints>,
}

impl<'a> PageWalk<'a> {
    /// Begins at the first page. If the server does not declare the capability (`supported`), it need not answer, so
    /// there are no pages.
    pub(crate) fn new(session: &'a UpstreamSession, limits: &'a RemoteLimits, supported: bool) -> Self {
        let deadline = Instant::now() + limits.timeout * LIST_TIME_FACTOR;
        let next = supported.then_some(None);
        let (seen, hints) = (HashSet::new(), None);
        Self { session, limits, deadline, next, seen, pages: 0, entries: 0, bytes: 0, hints }
    }

    /// The parameters of the request for the next page, which are `Some(None)` for the first one; `None` after the last
    /// page.
    pub(crate) fn next_cursor(&mut self) -> Option<Option<PaginatedRequestParams>> {
        let cursor = self.next.take()?;
        Some(cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor))))
    }

    /// Waits for a page; `None` if the server does not know the method, which is accepted only for the first page.
    pub(crate) async fn ask<T>(
        &self,
        page: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<Option<T>, RemoteFault> {
        let limit = self.limits.timeout;
        let deadline = self.deadline.min(Instant::now() + limit);
        match timeout_at(deadline, page).await {
            Ok(Ok(page)) => Ok(Some(page)),
            Ok(Err(ServiceError::McpError(error)))
                if error.code == ErrorCode::METHOD_NOT_FOUND && self.pages == 0 =>
            {
                Ok(None)
            }
            Ok(Err(error)) => Err(self.session.fault(error, limit)),
            Err(_) => Err(RemoteFault::Silent(limit)),
        }
    }

    /// Counts a page with its number of entries, its next cursor and its cache hints.
    pub(crate) fn add(
        &mut self,
        entries: usize,
        next: Option<String>,
        ttl_ms: Option<u64>,
        scope: Option<rmcp::model::CacheScope>,
    ) -> Result<(), RemoteFault> {
        self.pages += 1;
        self.entries += entries;
        if self.entries > self.limits.max_resources {
            return Err(RemoteFault::EndlessList(self.limits.max_resources));
        }
        if next.is_some() && self.pages >= self.limits.max_pages {
            return Err(RemoteFault::EndlessPages(self.limits.max_pages));
        }
        if let Some(cursor) = &next {
            self.add_bytes(cursor.len())?;
            if !self.seen.insert(cursor.clone()) {
                return Err(RemoteFault::RepeatedCursor);
            }
        }
        let hints = convert::hints(ttl_ms, scope);
        self.hints = Some(self.hints.map_or(hints, |before| CacheHints {
            ttl: before.ttl.min(hints.ttl),
            scope: before.scope.max(hints.scope),
        }));
        self.next = next.map(Some);
        Ok(())
    }

    /// Counts the memory of an entry.
    pub(crate) fn add_bytes(&mut self, bytes: usize) -> Result<(), RemoteFault> {
        self.bytes += bytes;
        let limit = self.limits.max_message.saturating_mul(LIST_FACTOR);
        if self.bytes > limit { Err(RemoteFault::LargeList(limit)) } else { Ok(()) }
    }

    pub(crate) fn hints(&self) -> CacheHints {
        self.hints.unwrap_or_default()
    }
}
