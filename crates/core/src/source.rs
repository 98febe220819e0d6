//! The trait that every place resources come from implements.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use crate::uri_template::Specificity;
use crate::{Cache, Change, Contents, Error, Meta, Proof, Resource, Result, Template, Uri, UriTemplate};

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

    /// One page of resources in URI order: those after `after`, at most `limit`.
    async fn list(&self, after: Option<&Uri>, limit: usize) -> Result<Page>;

    /// What is at `uri`, or [`Error::NotFound`].
    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents>;

    /// The templates whose URIs [`read`](Source::read) also answers.
    async fn templates(&self) -> Result<Templates> {
        Ok(Templates { proof: Some(Proof::always()), ..Templates::default() })
    }

    /// Values for the variable that somebody is typing, best first.
    async fn complete(&self, _asked: Partial<'_>) -> Result<Completion> {
        Ok(Completion::default())
    }

    /// What stands directly below `uri`, as one page in URI order; [`Error::NotDirectory`] where
    /// nothing can.
    async fn children(&self, uri: &Uri, _after: Option<&Uri>, _limit: usize) -> Result<Page> {
        Err(Error::NotDirectory(uri.clone()))
    }

    /// How long and by whom answers of this source may be kept, where an answer does not say.
    fn cache(&self) -> Cache {
        Cache::default()
    }

    /// For how long what was read at `uri` may be given to anybody again without asking. A catalog then
    /// also asks once for all who want it at the same time, without telling who they are.
    fn kept_for(&self, _uri: &Uri) -> Option<Duration> {
        None
    }

    /// The URI whose changes are the changes of `uri`, for those that stand for the same thing: that of a
    /// file for one of its parts. It is asked for what was subscribed to and for what changed.
    fn subject(&self, uri: &Uri) -> Uri {
        uri.clone()
    }

    /// Somebody wants to hear of changes of this subject from now on, while there is a watch. A source that
    /// cannot look at everything it has looks at these. It may be told the same again.
    fn follow(&self, _subject: &Uri) {}

    /// Nobody wants to hear of changes of this subject any more.
    fn unfollow(&self, _subject: &Uri) {}

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

    async fn list(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        (**self).list(after, limit).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        (**self).read(uri, context).await
    }

    async fn templates(&self) -> Result<Templates> {
        (**self).templates().await
    }

    async fn complete(&self, asked: Partial<'_>) -> Result<Completion> {
        (**self).complete(asked).await
    }

    async fn children(&self, uri: &Uri, after: Option<&Uri>, limit: usize) -> Result<Page> {
        (**self).children(uri, after, limit).await
    }

    fn cache(&self) -> Cache {
        (**self).cache()
    }

    fn kept_for(&self, uri: &Uri) -> Option<Duration> {
        (**self).kept_for(uri)
    }

    fn subject(&self, uri: &Uri) -> Uri {
        (**self).subject(uri)
    }

    fn follow(&self, subject: &Uri) {
        (**self).follow(subject);
    }

    fn unfollow(&self, subject: &Uri) {
        (**self).unfollow(subject);
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
    /// Tells for how long the page is right, where the source can tell.
    pub proof: Option<Proof>,
}

/// The templates of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Templates {
    /// The templates, in any order.
    pub templates: Vec<Template>,
    /// Tells for how long these are all of them, where the source can tell.
    pub proof: Option<Proof>,
}

impl From<Vec<Template>> for Templates {
    fn from(templates: Vec<Template>) -> Self {
        Self { templates, proof: None }
    }
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
    /// The most values that one answer may hold.
    pub const LIMIT: usize = 100;

    /// The values that begin with what was typed, ignoring case, in the order given.
    pub fn of<S: Into<String> + AsRef<str>>(values: impl IntoIterator<Item = S>, typed: &str) -> Self {
        let typed = typed.to_lowercase();
        let mut total = 0;
        let mut kept = Vec::new();
        for value in values {
            if !value.as_ref().to_lowercase().starts_with(&typed) {
                continue;
            }
            total += 1;
            if kept.len() < Self::LIMIT {
                kept.push(value.into());
            }
        }
        Self { more: total > kept.len() as u64, values: kept, total: Some(total) }
    }
}

/// What a source may want to know of, or tell to, whoever asked.
#[derive(Clone, Debug, Default)]
pub struct Context {
    identity: Option<Identity>,
    progress: Option<Arc<dyn Progress>>,
    client: Option<IpAddr>,
    memory: Option<Arc<dyn Memory>>,
}

impl Context {
    /// With this identity of the caller.
    pub fn with_identity(self, identity: Option<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// With somebody who wants to hear how far a long read has come.
    pub fn with_progress(self, progress: Arc<dyn Progress>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// With the network address that the request came from.
    pub fn with_client(self, client: Option<IpAddr>) -> Self {
        Self { client, ..self }
    }

    /// With a bound on the memory for contents.
    pub fn with_memory(self, memory: Arc<dyn Memory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// The same for what is done once for all who ask: without an identity, and with no memory reserved for anybody.
    pub fn for_everybody(self) -> Self {
        Self { identity: None, memory: None, ..self }
    }

    /// The network address that the request came from, where that is known. Whatever is bounded for each client is
    /// bounded for each address.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Reserves memory for `bytes` more of contents. A source that knows how large its contents are calls this before
    /// it loads them, and returns the error as it is where there is no memory: the server then waits for some,
    /// without holding anything of the source, and reads again.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.memory.as_ref().is_none_or(|memory| memory.reserve(bytes)) {
            return Ok(());
        }
        Err(Error::Unavailable("the server has no memory left for large contents; try again later".into()))
    }

    /// Who asks, where that is known.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Says how far a long read has come. Cheap when nobody listens.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        if let Some(progress) = &self.progress {
            progress.report(done, total);
        }
    }
}

/// A bound on the memory for contents.
pub trait Memory: Send + Sync {
    /// Reserves so many bytes more for the contents of one read, and reports whether there were as many.
    fn reserve(&self, bytes: usize) -> bool;
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
