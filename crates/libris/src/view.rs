//! The catalog as one caller may see it: what is hidden does not exist.

use std::borrow::Cow;
use std::sync::Arc;

use libris_core::uri_template::{Prefix, Variables};
use libris_core::{
    Completion, Contents, Context, Error, Identity, Page, Partial, Resource, Result, Source, Templates, Uri,
    Visibility,
};

use crate::rights::{Access, Operation, Rights};
use crate::status;

/// The most values that a source is asked for where some of them may be hidden.
const MOST_VALUES: usize = 10_000;

/// The catalog under one set of rights.
pub struct View {
    source: Arc<dyn Source>,
    access: Arc<Access>,
    identity: Option<Identity>,
    /// What the caller could see at this generation of the policy.
    rights: Rights,
    generation: u64,
}

impl View {
    /// What a caller with this identity may see of a source.
    pub(crate) fn new(source: Arc<dyn Source>, access: Arc<Access>, identity: Option<Identity>) -> Self {
        // Read first: a policy that is replaced meanwhile makes the rights outdated, and not the other way round.
        let generation = access.generation();
        let rights = access.policy().rights(identity.as_ref());
        Self { source, access, identity, rights, generation }
    }

    /// Whether the policy is still the one that it was made by.
    pub(crate) fn is_current(&self) -> bool {
        self.access.generation() == self.generation
    }

    /// Whose view it is, where that is known.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// What the caller may see now.
    pub fn now(&self) -> Snapshot<'_> {
        let rights = match self.is_current() {
            true => Cow::Borrowed(&self.rights),
            false => Cow::Owned(self.access.policy().rights(self.identity.as_ref())),
        };
        Snapshot { source: &self.source, rights }
    }
}

/// What a caller may see at one time: all of a request is answered under the same rights.
pub struct Snapshot<'v> {
    source: &'v Arc<dyn Source>,
    rights: Cow<'v, Rights>,
}

impl Snapshot<'_> {
    /// The rights that it is taken under.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Whether this may be done to the resource at `uri`, and to the resource that it is a part of.
    pub fn allows(&self, operation: Operation, uri: &Uri) -> bool {
        if self.rights.are_everything() {
            return true;
        }
        if !self.rights.allow(operation, uri) {
            return false;
        }
        let whole = self.source.subject(uri);
        whole == *uri || self.rights.allow(operation, &whole)
    }

    /// Whether there could be something at `uri`. A hidden resource is treated like an absent one: it could be there
    /// if the source says so of URIs at which nothing is.
    pub fn covers(&self, operation: Operation, uri: &Uri) -> bool {
        match self.allows(operation, uri) {
            true => self.source.covers(uri).is_some(),
            false => self.source.may_appear(uri),
        }
    }

    /// The error as the caller may see it: why a source is unavailable, and its name, are for those who may read the
    /// status of the sources.
    fn redacted(&self, error: Error) -> Error {
        match error {
            Error::Unavailable(_) if !self.allows(Operation::Read, &status::uri()) => {
                Error::Unavailable("a source is unavailable; try again later".to_owned())
            }
            error => error,
        }
    }

    /// One page of resources in URI order: those after `after`, at most `limit`. Pages are as full as they would be if
    /// what is hidden were not there.
    pub async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return self.source.list(after, limit, context).await;
        }
        self.refilled(after, ListRequest { below: None, limit, context }).await
    }

    /// What stands directly below `uri`, as one page in URI order.
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
        if !self.allows(Operation::List, uri) {
            return Err(Error::NotFound(uri.clone()));
        }
        self.refilled(after, ListRequest { below: Some(uri), limit, context }).await
    }

    /// A page of what is visible, refilled from the pages that follow until it is full.
    async fn refilled(&self, after: Option<&Uri>, request: ListRequest<'_>) -> Result<Page> {
        let is_visible = |resource: &Resource| self.allows(Operation::List, &resource.uri);
        let mut page = self.page(after, &request).await?;
        let mut last = page.resources.last().map(|last| last.uri.clone());
        page.resources.retain(is_visible);
        // One more than fits tells that there is more: the last page must not promise another that is empty.
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

    /// A page with what is hidden.
    async fn page(&self, after: Option<&Uri>, request: &ListRequest<'_>) -> Result<Page> {
        let ListRequest { below, limit, context } = *request;
        match below {
            None => self.source.list(after, limit, context).await,
            Some(uri) => self.source.children(uri, after, limit, context).await,
        }
        .map_err(|error| self.redacted(error))
    }

    /// The templates by which something may be read.
    pub async fn templates(&self, context: &Context) -> Result<Templates> {
        let rights = &*self.rights;
        let mut templates = self.source.templates(context).await.map_err(|error| self.redacted(error))?;
        if !rights.are_everything() {
            templates.templates.retain(|template| rights.offer(&template.uri));
        }
        Ok(templates)
    }

    /// What is at `uri`.
    pub async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return self.source.read(uri, context).await;
        }
        if !self.allows(Operation::Read, uri) {
            return Err(Error::NotFound(uri.clone()));
        }
        let visible = Visible { source: self.source.clone(), rights: rights.clone() };
        let context = context.clone().with_visibility(Arc::new(visible));
        let mut contents = self.source.read(uri, &context).await.map_err(|error| self.redacted(error))?;
        contents.parts.retain(|part| part.uri == *uri || context.sees(&part.uri));
        Ok(contents)
    }

    /// Values for the variable that somebody is typing, best first.
    pub async fn complete(&self, asked: Partial<'_>, context: &Context) -> Result<Completion> {
        let rights = &*self.rights;
        if rights.are_everything() {
            return self.source.complete(asked, context).await;
        }
        if !rights.offer(asked.template) {
            return Err(Error::invalid(format!("unknown template `{}`", asked.template)));
        }
        // All of them, since what is hidden must not take the place of what is not, nor be counted.
        let all = Partial { limit: MOST_VALUES, ..asked };
        let completion = self.source.complete(all, context).await;
        let Completion { mut values, total, more } = completion.map_err(|error| self.redacted(error))?;
        values.retain(|value| self.completes(asked, value));
        let total = total.filter(|_| !more).map(|_| values.len() as u64);
        let more = more || values.len() > asked.limit;
        values.truncate(asked.limit);
        Ok(Completion { values, total, more })
    }

    /// Whether this value leads to something that may be read. Where a variable before it is missing, nothing tells, and
    /// the value may be the name of something hidden.
    fn completes(&self, asked: Partial<'_>, value: &str) -> bool {
        let mut variables: Variables =
            asked.known.iter().filter(|(name, _)| *name != asked.variable).collect();
        let without = asked.template.prefix(&variables);
        variables.insert(asked.variable, value);
        match asked.template.prefix(&variables) {
            Prefix::Whole(uri) => Uri::parse(&uri).is_ok_and(|uri| self.allows(Operation::Read, &uri)),
            open if open == without => false,
            Prefix::Open(prefix) => self.rights.may_allow_below(&prefix),
        }
    }
}

/// What is listed: everything, or what stands directly below a directory.
struct ListRequest<'a> {
    below: Option<&'a Uri>,
    limit: usize,
    context: &'a Context,
}

/// What a caller may see beside the resource that it reads.
struct Visible {
    source: Arc<dyn Source>,
    rights: Rights,
}

impl Visibility for Visible {
    fn sees(&self, uri: &Uri) -> bool {
        if !self.rights.allow(Operation::Read, uri) {
            return false;
        }
        let whole = self.source.subject(uri);
        whole == *uri || self.rights.allow(Operation::Read, &whole)
    }
}
