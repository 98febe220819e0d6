//! A view: the catalog under the rights of one caller. A hidden resource looks exactly like a missing one.

mod prompts;
mod skills;
mod tools;

use std::borrow::Cow;
use std::sync::Arc;

use libris_core::uri_template::TemplatePrefix;
use libris_core::{
    Completion, CompletionRequest, Contents, Context, Error, Identity, IndexingProgress, Page, Resource,
    Result, SearchAnswer, SearchQuery, Source, Templates, Uri, Visibility,
};

use crate::rights::{CurrentPolicy, Decision, Operation, Rights};
use crate::status;

/// How many completion values a view requests from a source before it filters out hidden values.
const MAX_UNFILTERED_VALUES: usize = 10_000;

/// The catalog under the rights of one caller.
pub struct View {
    source: Arc<dyn Source>,
    access: Arc<CurrentPolicy>,
    identity: Option<Identity>,
    /// The rights that the policy granted when its generation counter was `generation`.
    rights: Rights,
    generation: u64,
}

impl View {
    /// The view of a source for a caller with this identity.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        access: Arc<CurrentPolicy>,
        identity: Option<Identity>,
    ) -> Self {
        // Read the generation first: if the policy is replaced in between, the rights count as outdated.
        let generation = access.generation();
        let rights = access.policy().rights(identity.as_ref());
        Self { source, access, identity, rights, generation }
    }

    /// The view of the same caller with renewed credentials, whose identity may have other rights.
    pub(crate) fn renewed(&self, identity: Option<Identity>) -> Self {
        Self::new(self.source.clone(), self.access.clone(), identity)
    }

    /// Whether the policy is still the one for which the view was created, and no identity was revoked since.
    pub(crate) fn is_current(&self) -> bool {
        self.access.generation() == self.generation
    }

    /// The identity of the caller, if known.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Searches for resources that the caller may search and read, under its current rights.
    pub async fn search(&self, query: &SearchQuery, context: &Context) -> Result<SearchAnswer> {
        self.snapshot().search(query, context).await
    }

    /// A snapshot of the view with the caller's current rights, for one request.
    pub fn snapshot(&self) -> ViewSnapshot<'_> {
        let rights = match self.is_current() {
            true => Cow::Borrowed(&self.rights),
            false => Cow::Owned(self.access.policy().rights(self.identity.as_ref())),
        };
        ViewSnapshot { source: &self.source, rights }
    }
}

/// A view with fixed rights, so that one request is answered under the same rights throughout.
pub struct ViewSnapshot<'v> {
    source: &'v Arc<dyn Source>,
    rights: Cow<'v, Rights>,
}

impl ViewSnapshot<'_> {
    /// The rights of the caller.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The decision of the rights about an operation on `uri` under all its [names](Source::aliases).
    pub fn decide(&self, operation: Operation, uri: &Uri) -> Decision {
        self.rights.decide(operation, uri, || self.source.aliases(uri))
    }

    /// Whether the caller may perform this operation on `uri`.
    pub fn allows(&self, operation: Operation, uri: &Uri) -> bool {
        self.decide(operation, uri) == Decision::Allow
    }

    /// Whether a source covers `uri`. For a hidden resource, returns [`Source::may_appear`] instead, so that callers
    /// cannot distinguish hidden from missing resources. If the caller lacks required scopes: an error if a source
    /// covers `uri`, otherwise `false`.
    pub fn covers(&self, operation: Operation, uri: &Uri) -> Result<bool> {
        match self.decide(operation, uri) {
            Decision::Allow => Ok(self.source.covers(uri).is_some()),
            Decision::Deny => Ok(self.source.may_appear(uri)),
            Decision::Require(scopes) => self.challenge(uri, scopes).map_or(Ok(false), Err),
        }
    }

    /// The error that tells the caller which scopes an operation on `uri` requires; `None` if no source covers `uri`,
    /// because then the resource is missing.
    fn challenge(&self, uri: &Uri, scopes: Arc<[Box<str>]>) -> Option<Error> {
        self.source.covers(uri)?;
        Some(Error::ScopeRequired { uri: uri.clone(), scopes })
    }

    /// Removes from an error the details that must not reach this caller: hints, and the name and fault of an
    /// unavailable source unless the caller may read `libris://status`.
    fn redacted(&self, error: Error) -> Error {
        match error {
            Error::Unavailable(_) if !self.allows(Operation::Read, &status::uri()) => Error::Unavailable(
                "a source is unavailable; if this persists, tell the administrator of this server".to_owned(),
            ),
            // The hint may name resources that are hidden from this caller.
            Error::Missing { uri, .. } => Error::NotFound(uri),
            error => error,
        }
    }

    /// One page of at most `limit` resources in URI order after `after`. Hidden resources do not shorten a page.
    pub async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return self.source.list(after, limit, context).await;
        }
        self.refilled(after, ListRequest { below: None, limit, context }).await
    }

    /// One page of the children of a directory, in URI order.
    pub async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return self.source.children(uri, after, limit, context).await;
        }
        if self.decide(Operation::List, uri) == Decision::Deny {
            return Err(Error::NotFound(uri.clone()));
        }
        self.refilled(after, ListRequest { below: Some(uri), limit, context }).await
    }

    /// One page of the children of a directory, whose URI may be written with or without the slash at its end.
    pub async fn directory(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let missing = match self.children(uri, after, limit, context).await {
            Err(error) if error.is_not_found() => error,
            answered => return answered,
        };
        let Some(other) = other_spelling(uri) else { return Err(missing) };
        match self.children(&other, after, limit, context).await {
            Err(error) if error.is_not_found() => Err(missing),
            answered => answered,
        }
    }

    /// A page of visible resources, refilled from the following pages until it is full.
    async fn refilled(&self, after: Option<&Uri>, request: ListRequest<'_>) -> Result<Page> {
        let is_visible = |resource: &Resource| self.decide(Operation::List, &resource.uri) != Decision::Deny;
        let mut page = self.page(after, &request).await?;
        let mut last = page.resources.last().map(|last| last.uri.clone());
        page.resources.retain(is_visible);
        // Read one resource more than fits, so that `more` is exact and no cursor leads to an empty page.
        while page.more && page.resources.len() <= request.limit && last.is_some() {
            let next = self.page(last.as_ref(), &request).await?;
            last = next.resources.last().map(|last| last.uri.clone());
            page.more = next.more;
            page.freshness = page.freshness.and(next.freshness);
            for source in next.unavailable {
                if !page.unavailable.contains(&source) {
                    page.unavailable.push(source);
                }
            }
            page.resources.extend(next.resources.into_iter().filter(is_visible));
        }
        page.more = page.resources.len() > request.limit;
        page.resources.truncate(request.limit);
        Ok(page)
    }

    /// A page of the source, including hidden resources.
    async fn page(&self, after: Option<&Uri>, request: &ListRequest<'_>) -> Result<Page> {
        let ListRequest { below, limit, context } = *request;
        match below {
            None => self.source.list(after, limit, context).await,
            Some(uri) => self.source.children(uri, after, limit, context).await,
        }
        .map_err(|error| self.redacted(error))
    }

    /// The templates that may match a resource that the caller may read.
    pub async fn templates(&self, context: &Context) -> Result<Templates> {
        let rights = &*self.rights;
        let mut templates = self.source.templates(context).await.map_err(|error| self.redacted(error))?;
        if !rights.are_everything() {
            templates.templates.retain(|template| rights.offer(&template.uri));
        }
        Ok(templates)
    }

    /// Reads `uri`, without hidden parts.
    pub async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return self.source.read(uri, context).await;
        }
        match self.decide(Operation::Read, uri) {
            Decision::Allow => {}
            Decision::Deny => return Err(Error::NotFound(uri.clone())),
            Decision::Require(scopes) => {
                let challenge = self.challenge(uri, scopes);
                return Err(challenge.unwrap_or_else(|| Error::NotFound(uri.clone())));
            }
        }
        let visible = RightsVisibility { source: self.source.clone(), rights: rights.clone() };
        let context = context.clone().with_visibility(Arc::new(visible));
        let mut contents = self.source.read(uri, &context).await.map_err(|error| self.redacted(error))?;
        contents.parts.retain(|part| part.uri == *uri || context.reads(&part.uri));
        Ok(contents)
    }

    /// Searches for resources that the caller may search and read. In a catalog, hidden resources influence neither the
    /// hits nor their number, order, snippets or corrections. If the source of the view is not a catalog and ignores
    /// the visibility, its hits are filtered.
    pub async fn search(&self, query: &SearchQuery, context: &Context) -> Result<SearchAnswer> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return Ok(self.source.search(query, context).await?.unwrap_or_default());
        }
        let visible =
            SearchVisibility(RightsVisibility { source: self.source.clone(), rights: rights.clone() });
        let context = context.clone().with_visibility(Arc::new(visible));
        let answer = self.source.search(query, &context).await.map_err(|error| self.redacted(error))?;
        let mut answer = answer.unwrap_or_default();
        // A source that is not a catalog may ignore the visibility.
        let sees = |uri: &str| Uri::parse(uri).is_ok_and(|uri| context.sees(&uri));
        let all = answer.hits.len();
        answer.hits.retain(|hit| sees(&hit.uri));
        answer.total = answer.total.saturating_sub(all - answer.hits.len());
        for hit in &mut answer.hits {
            hit.duplicates.retain(|uri| sees(uri));
        }
        if !answer.left_out.is_empty() && !self.allows(Operation::Read, &status::uri()) {
            answer.left_out = vec!["a source".to_owned()];
        }
        // The number of resources that are being indexed includes hidden ones.
        answer.indexing = answer.indexing.map(|_| IndexingProgress::default());
        Ok(answer)
    }

    /// Completes a template variable, without values that lead to hidden resources.
    pub async fn complete(&self, partial: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        let rights = &*self.rights;
        if rights.are_everything() {
            let completion = self.source.complete(partial, context).await?;
            return Ok(self.or_searched(completion, partial, context).await);
        }
        if !rights.offer(partial.template) {
            return Err(Error::invalid(format!(
                "unknown template `{}`; `resources/templates/list` has the templates",
                partial.template
            )));
        }
        // Request as many values as possible, because hidden values must neither displace visible values nor be
        // counted.
        let all = CompletionRequest { limit: MAX_UNFILTERED_VALUES, ..partial };
        // A value may name a resource with another URI than that of the template, which only the source can check.
        let visible = RightsVisibility { source: self.source.clone(), rights: rights.clone() };
        let restricted = context.clone().with_visibility(Arc::new(visible));
        let completion = self.source.complete(all, &restricted).await;
        let Completion { mut values, total, more, proof } =
            completion.map_err(|error| self.redacted(error))?;
        values.retain(|value| self.leads_to_visible(partial, value));
        let total = total.filter(|_| !more).map(|_| values.len() as u64);
        let more = more || values.len() > partial.limit;
        values.truncate(partial.limit);
        Ok(self.or_searched(Completion { values, total, more, proof }, partial, context).await)
    }

    /// Returns `completion` if it has values, if nothing was typed, or if the search fails. Otherwise searches for the
    /// typed text, and returns the values that the variable has in the URIs of the hits, so that a word in the middle
    /// of a path or title completes too.
    async fn or_searched(
        &self,
        completion: Completion,
        partial: CompletionRequest<'_>,
        context: &Context,
    ) -> Completion {
        if !completion.values.is_empty() || partial.typed.trim().is_empty() {
            return completion;
        }
        let query = SearchQuery::new(partial.typed, partial.limit);
        let Ok(answer) = self.search(&query, context).await else { return completion };
        let mut values: Vec<String> = Vec::new();
        for hit in answer.hits {
            let variables = Uri::parse(&hit.uri).ok().and_then(|uri| partial.template.matches(&uri));
            let Some(variables) = variables else { continue };
            let agrees = |(name, value): (&String, &String)| {
                name == partial.variable
                    || value.is_empty()
                    || variables.text(name).is_none_or(|text| text == value)
            };
            if partial.known.iter().all(agrees)
                && let Some(value) = variables.text(partial.variable)
                && !value.is_empty()
                && !values.iter().any(|known| known == value)
            {
                values.push(value.to_owned());
            }
        }
        Completion { total: Some(values.len() as u64), more: false, values, proof: None }
    }

    /// Whether this value leads to a resource that the caller may see. If an earlier variable of the template has no
    /// value, the resource is unknown; the result is then `false`, because the value may name a hidden resource.
    fn leads_to_visible(&self, partial: CompletionRequest<'_>, value: &str) -> bool {
        let known = partial.known.iter().filter(|(name, _)| *name != partial.variable);
        let known: Vec<_> = known.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let without =
            partial.template.prefix(&partial.template.variables_from_completions(known.iter().copied()));
        let variables =
            partial.template.variables_from_completions(known.into_iter().chain([(partial.variable, value)]));
        match (partial.template.prefix(&variables), without) {
            (Ok(TemplatePrefix::Whole(uri)), _) => {
                Uri::parse(&uri).is_ok_and(|uri| self.decide(Operation::Read, &uri) != Decision::Deny)
            }
            (Ok(open), Ok(without)) if open == without => false,
            (Ok(TemplatePrefix::Open(prefix)), _) => self.rights.may_allow_below(&prefix),
            (Err(_), _) => false,
        }
    }
}

/// The URI with a trailing slash added or removed; `None` if it has a query or a fragment.
fn other_spelling(uri: &Uri) -> Option<Uri> {
    if uri.query().is_some() || uri.fragment().is_some() {
        return None;
    }
    match uri.as_str().strip_suffix('/') {
        Some(without) => Uri::parse(without).ok(),
        None => Uri::parse(&format!("{uri}/")).ok(),
    }
}

/// A request for pages of all resources, or of the children of a directory.
struct ListRequest<'a> {
    below: Option<&'a Uri>,
    limit: usize,
    context: &'a Context,
}

/// The visibility check that a source applies to resources that it names in contents.
struct RightsVisibility {
    source: Arc<dyn Source>,
    rights: Rights,
}

impl RightsVisibility {
    fn decide(&self, operation: Operation, uri: &Uri) -> Decision {
        self.rights.decide(operation, uri, || self.source.aliases(uri))
    }
}

impl Visibility for RightsVisibility {
    fn sees(&self, uri: &Uri) -> bool {
        self.decide(Operation::Read, uri) != Decision::Deny
    }

    fn reads(&self, uri: &Uri) -> bool {
        self.decide(Operation::Read, uri) == Decision::Allow
    }

    fn lists(&self, uri: &Uri) -> bool {
        self.decide(Operation::List, uri) != Decision::Deny
    }

    fn sees_below(&self, prefix: &str) -> bool {
        self.rights.may_allow_below(prefix)
    }

    fn class(&self) -> Option<u64> {
        Some(self.rights.class())
    }

    fn shared_class(&self) -> Option<String> {
        self.rights.shared_class()
    }
}

/// The visibility check of a search. A hit shows contents, so the caller must be allowed to read the resource too.
struct SearchVisibility(RightsVisibility);

impl Visibility for SearchVisibility {
    fn sees(&self, uri: &Uri) -> bool {
        let needed = [Operation::Search, Operation::Read];
        needed.into_iter().all(|operation| self.0.decide(operation, uri) == Decision::Allow)
    }

    fn class(&self) -> Option<u64> {
        self.0.class()
    }
}
