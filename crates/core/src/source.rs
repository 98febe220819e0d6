//! The trait that every place resources come from implements.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use crate::uri_template::Specificity;
use crate::{Cache, Change, Contents, Error, Proof, Resource, Result, Template, Uri, UriTemplate};

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

    /// The URI whose changes are the changes of `uri`, for those that stand for the same thing: that of a
    /// file for one of its parts. It is asked for what was subscribed to and for what changed.
    fn subject(&self, uri: &Uri) -> Uri {
        uri.clone()
    }

    /// Changes from now on; `None` if this source cannot tell. Once this returns, no change is missed.
    /// Dropping the stream stops the watch.
    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(None)
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
#[derive(Clone, Default)]
pub struct Context {
    progress: Option<Arc<dyn Progress>>,
}

impl Context {
    /// A context whose caller wants to hear how far a long read has come.
    pub fn with_progress(progress: Arc<dyn Progress>) -> Self {
        Self { progress: Some(progress) }
    }

    /// Says how far a long read has come. Cheap when nobody listens.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        if let Some(progress) = &self.progress {
            progress.report(done, total);
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("progress", &self.progress.is_some()).finish()
    }
}

/// Somebody who wants to hear how far a long read has come.
pub trait Progress: Send + Sync {
    /// `done` of `total` units are done. Called often; the receiver thins out.
    fn report(&self, done: u64, total: Option<u64>);
}
