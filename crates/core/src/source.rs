//! The trait that every place resources come from implements.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use crate::uri_template::Specificity;
use crate::{
    Change, Client, Contents, Error, Freshness, Lease, Meta, Proof, Resource, Result, Template, Uri,
    UriTemplate,
};

/// A place resources come from.
///
/// Only [`list`](Source::list), [`read`](Source::read) and [`covers`](Source::covers) must be written;
/// the rest has defaults that say "nothing more". The contract suite (feature `contract`) tells whether
/// an implementation keeps what is promised here.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Whether a URI is this source's business, and how closely it is meant.
    ///
    /// `None` means that [`read`](Source::read) would say not found. It must not do any work: it is
    /// asked of every source for every read.
    fn covers(&self, uri: &Uri) -> Option<Specificity>;

    /// Whether something may come to be at `uri` where there is nothing, or be removed, while the source stays as it is
    /// configured: true for a path in a folder, false for a resource with a fixed URI. Like
    /// [`covers`](Source::covers) it must not do any work.
    ///
    /// Such a URI can be subscribed to before anything is there. A view therefore accepts a subscription to one that is
    /// hidden too, so that hidden and absent resources cannot be told apart.
    fn may_appear(&self, uri: &Uri) -> bool {
        self.covers(uri).is_some_and(|specificity| specificity != Specificity::EXACT)
    }

    /// What this source is called in the status, the log and the metrics, such as `files docs` or `sqlite shop`. It
    /// must not tell a path or a secret.
    fn name(&self) -> Cow<'_, str> {
        "source".into()
    }

    /// One page of resources in URI order: those after `after`, at most `limit`.
    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page>;

    /// What is at `uri`, or [`Error::NotFound`].
    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents>;

    /// The templates whose URIs [`read`](Source::read) also answers.
    async fn templates(&self, _context: &Context) -> Result<Templates> {
        Ok(Templates { freshness: Freshness::proven(Proof::always()), ..Templates::default() })
    }

    /// Values for the variable that somebody is typing, best first.
    async fn complete(&self, _asked: Partial<'_>, _context: &Context) -> Result<Completion> {
        Ok(Completion::default())
    }

    /// What stands directly below `uri`, as one page in URI order; [`Error::NotDirectory`] where
    /// nothing can.
    async fn children(
        &self,
        uri: &Uri,
        _after: Option<&Uri>,
        _limit: usize,
        _context: &Context,
    ) -> Result<Page> {
        Err(Error::NotDirectory(uri.clone()))
    }

    /// Whether contents at `uri` are costly and do not depend on who asks. A catalog then reads them once for all who
    /// ask at the same time, without an identity, and again only when the [`ttl`](Freshness::ttl) of the contents has
    /// run out or their [`proof`](Freshness::proof) does not hold any more.
    fn is_shared(&self, _uri: &Uri) -> bool {
        false
    }

    /// The URI whose changes are the changes of `uri`, for those that stand for the same thing: that of a
    /// file for one of its parts. It is asked for what was subscribed to and for what changed.
    fn subject(&self, uri: &Uri) -> Uri {
        uri.clone()
    }

    /// Somebody wants to hear of changes of this subject from now on, while there is a watch. A source that
    /// cannot look at everything it has looks at these; where that takes long, each client has a share of its time.
    /// `client` is one of those who want it. It may be told the same again.
    fn follow(&self, _subject: &Uri, _client: Client) {}

    /// Nobody wants to hear of changes of this subject any more.
    fn unfollow(&self, _subject: &Uri) {}

    /// How many requests for contents and completions this source works on at once. A catalog lets no more in, and of
    /// one client at most three quarters of them; the others wait outside, each client in a queue of its own. Lists and
    /// watches come on top. A source that bounds its work by something else than requests has a [`Budget`](crate::Budget)
    /// of its own and leaves this as it is.
    fn concurrency(&self) -> usize {
        64
    }

    /// Changes from now on; `None` if this source cannot tell. Once this returns, no change is missed.
    /// Dropping the stream stops the watch.
    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(None)
    }
}

#[async_trait]
impl<S: Source + ?Sized> Source for Arc<S> {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (**self).covers(uri)
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        (**self).may_appear(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        (**self).name()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        (**self).list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        (**self).read(uri, context).await
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        (**self).templates(context).await
    }

    async fn complete(&self, asked: Partial<'_>, context: &Context) -> Result<Completion> {
        (**self).complete(asked, context).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        (**self).children(uri, after, limit, context).await
    }

    fn is_shared(&self, uri: &Uri) -> bool {
        (**self).is_shared(uri)
    }

    fn subject(&self, uri: &Uri) -> Uri {
        (**self).subject(uri)
    }

    fn follow(&self, subject: &Uri, client: Client) {
        (**self).follow(subject, client);
    }

    fn unfollow(&self, subject: &Uri) {
        (**self).unfollow(subject);
    }

    fn concurrency(&self) -> usize {
        (**self).concurrency()
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        (**self).watch().await
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The resources, in URI order.
    pub resources: Vec<Resource>,
    /// Whether there may be more after the last one.
    pub more: bool,
    /// For how long, and by whom, the page may be used again.
    pub freshness: Freshness,
    /// The sources whose resources are missing from the page, or as they were last known. Only a catalog fills this
    /// in; a source that cannot list returns an error.
    pub unavailable: Vec<Unavailable>,
}

/// The templates of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Templates {
    /// The templates, in any order.
    pub templates: Vec<Template>,
    /// For how long, and by whom, they may be used again.
    pub freshness: Freshness,
    /// The sources whose templates are missing, or as they were last known.
    pub unavailable: Vec<Unavailable>,
}

impl From<Vec<Template>> for Templates {
    fn from(templates: Vec<Template>) -> Self {
        Self { templates, ..Self::default() }
    }
}

/// A source that did not answer when a catalog was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The [name](Source::name) of the source.
    pub source: String,
    /// Since when it has not answered.
    pub since: SystemTime,
    /// Whether what the source listed before is part of the response; if not, nothing of the source is.
    pub stale: bool,
}

/// A template that somebody is filling in.
#[derive(Clone, Copy, Debug)]
pub struct Partial<'a> {
    /// The template.
    pub template: &'a UriTemplate,
    /// The variable being typed.
    pub variable: &'a str,
    /// What has been typed of it.
    pub typed: &'a str,
    /// The variables that are already filled in.
    pub known: &'a BTreeMap<String, String>,
    /// How many values are wanted at most.
    pub limit: usize,
}

/// Values for a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The values, best first.
    pub values: Vec<String>,
    /// How many there are in all, where that is known.
    pub total: Option<u64>,
    /// Whether there are more than `values`.
    pub more: bool,
}

impl Completion {
    /// The most values that one response of the protocol may hold.
    pub const LIMIT: usize = 100;

    /// The first `limit` values that begin with what was typed, ignoring case, in the order given.
    pub fn of<S: Into<String> + AsRef<str>>(
        values: impl IntoIterator<Item = S>,
        typed: &str,
        limit: usize,
    ) -> Self {
        let typed = typed.to_lowercase();
        let mut total = 0;
        let mut kept = Vec::new();
        for value in values {
            if !value.as_ref().to_lowercase().starts_with(&typed) {
                continue;
            }
            total += 1;
            if kept.len() < limit {
                kept.push(value.into());
            }
        }
        Self { more: total > kept.len() as u64, values: kept, total: Some(total) }
    }
}

/// The caller of a request, as a source may want to know it, and what the source may report to the caller.
#[derive(Clone, Debug, Default)]
pub struct Context {
    identity: Option<Identity>,
    /// Whether a source used the identity, or that there is none.
    identity_used: Arc<AtomicBool>,
    progress: Option<Arc<dyn Progress>>,
    client: Client,
    memory: Option<Arc<dyn Memory>>,
    visibility: Option<Arc<dyn Visibility>>,
    permit: Option<Arc<HeldPermit>>,
}

/// A permit to work on a request, and the one that was held when it was taken.
#[derive(Debug)]
struct HeldPermit {
    _lease: Lease,
    _outer: Option<Arc<HeldPermit>>,
}

impl Context {
    /// With a permit to work on the request, beside those that it has. All are given back when the last clone of the
    /// context is dropped, so a source whose work cannot be cancelled moves a clone into that work: the permit is then
    /// held until the work has ended, also if nobody waits for it any more.
    pub fn with_permit(self, lease: Lease) -> Self {
        let permit = HeldPermit { _lease: lease, _outer: self.permit };
        Self { permit: Some(Arc::new(permit)), ..self }
    }

    /// With what the caller may see.
    pub fn with_visibility(self, visibility: Arc<dyn Visibility>) -> Self {
        Self { visibility: Some(visibility), ..self }
    }

    /// Whether the caller may see a resource. A source asks this for whatever it names in contents beside the resource
    /// that is read, such as the entries of a directory. Lists, completions and the resource itself are checked by the
    /// view.
    pub fn sees(&self, uri: &Uri) -> bool {
        self.visibility.as_ref().is_none_or(|visibility| visibility.sees(uri))
    }

    /// Whether nothing is hidden from the caller, so that [`sees`](Self::sees) need not be asked for each resource.
    pub fn sees_everything(&self) -> bool {
        self.visibility.is_none()
    }

    /// With this identity of the caller.
    pub fn with_identity(self, identity: Option<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// With somebody who wants to hear how far a long read has come.
    pub fn with_progress(self, progress: Arc<dyn Progress>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// With the client that the request came from.
    pub fn with_client(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// With a bound on the memory for contents.
    pub fn with_memory(self, memory: Arc<dyn Memory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// The same for what is done once for all who ask: with nothing of the caller but the client in whose turn it is
    /// done, and whoever wants to hear how far it has come.
    pub fn without_caller(self) -> Self {
        Self { client: self.client, progress: self.progress, ..Self::default() }
    }

    /// The client that the request came from. A source that has a queue takes turns from a [`Budget`](crate::Budget)
    /// in the client's name, so that no client waits behind all requests of another.
    pub fn client(&self) -> Client {
        self.client
    }

    /// Reserves memory for `bytes` more of contents. A source that knows how large its contents are calls this before
    /// it loads them, and returns the error as it is where there is no memory: the server then waits for some,
    /// without holding anything of the source, and reads again.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        granted(self.memory.as_ref().is_none_or(|memory| memory.reserve(bytes)))
    }

    /// Reserves memory for `bytes` more of contents that are being loaded and must not be loaded twice, such as the
    /// output of a program that runs. Where there is no memory the error is final: the server does not read again.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        granted(self.memory.as_ref().is_none_or(|memory| memory.grow(bytes)))
    }

    /// Who asks, where that is known. A response for whose making this was called is for this caller alone.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity_used.store(true, Ordering::Release);
        self.identity.as_ref()
    }

    /// Whether [`identity`](Self::identity) was called on this context or on a clone of it. Then the response is not
    /// for others, and must not be cached for them.
    pub fn identity_was_used(&self) -> bool {
        self.identity_used.load(Ordering::Acquire)
    }

    /// Says how far a long read has come. Cheap when nobody listens.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        if let Some(progress) = &self.progress {
            progress.report(done, total);
        }
    }
}

fn granted(granted: bool) -> Result<()> {
    if granted { Ok(()) } else { Err(Error::NO_MEMORY) }
}

/// What a caller may see.
pub trait Visibility: Send + Sync {
    /// Whether the caller may read what is at `uri`.
    fn sees(&self, uri: &Uri) -> bool;
}

impl std::fmt::Debug for dyn Visibility {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visibility")
    }
}

/// A bound on the memory for contents.
pub trait Memory: Send + Sync {
    /// Reserves so many bytes more for the contents of one read, and reports whether there were as many. If not, the
    /// read fails, and the server waits for memory and reads again.
    fn reserve(&self, bytes: usize) -> bool;

    /// The same for a read that is not to be repeated.
    fn grow(&self, bytes: usize) -> bool;
}

impl std::fmt::Debug for dyn Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

/// Who asks, as whoever has checked it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: Arc<str>,
    claims: Arc<Meta>,
}

impl Identity {
    /// Somebody of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), claims: Arc::default() }
    }

    /// With what else is known of them, such as roles.
    pub fn with_claims(self, claims: Meta) -> Self {
        Self { claims: Arc::new(claims), ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What else is known of them.
    pub fn claims(&self) -> &Meta {
        &self.claims
    }
}

/// Somebody who wants to hear how far a long read has come.
pub trait Progress: Send + Sync {
    /// `done` of `total` units are done. Called often; the receiver thins out.
    fn report(&self, done: u64, total: Option<u64>);
}

impl std::fmt::Debug for dyn Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}
