//! An in-memory source, correct or with one flaw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::uri_template::Specificity;
use crate::{
    CacheScope, Change, Client, Completion, CompletionRequest, Content, Contents, Context, DIRECTORY, Error,
    Freshness, Page, Proof, Resource, Result, SearchAnswer, SearchQuery, Source, Template, Templates, Uri,
    UriTemplate,
};

/// A flaw of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Unordered,
    Duplicates,
    OversizedPages,
    MoreAfterTheEnd,
    NoMoreTooEarly,
    StartsOverAtTheEnd,
    StartsOverAfterStrangers,
    DoesNotCover,
    ListsWhatIsGone,
    EmptyReads,
    WrongMime,
    WrongSize,
    EmptyForUnknown,
    FailsOnInvalid,
    ReadsWhatItDoesNotCover,
    ChildrenOfChildren,
    MissingChildren,
    EverythingIsADirectory,
    NamelessTemplate,
    WrongTotal,
    TooManyValues,
    CompletesToNowhere,
    ForgetsWhatIsTyped,
    CompletesAnything,
    SearchesUnannounced,
    PagesByCount,
    ProvesReadsForEver,
    ProvesListsForEver,
    ProofsNeverHold,
    PublicReadsForOne,
    PublicListsForOne,
    SharedReadsForOne,
    SubjectOfASubject,
    ForeignSubject,
    SilentToSubjects,
    UnfollowedForEver,
    UnfollowEndsTheWatch,
    SilentAdd,
    SilentChange,
    SilentRemove,
    WatchEnds,
    /// Not a flaw: `Lost` is always a correct report.
    OnlyLost,
}

/// Directories and files in memory. A directory has no data.
pub(super) struct MemorySource {
    flaw: Option<Flaw>,
    entries: Mutex<BTreeMap<Uri, Option<String>>>,
    watchers: Mutex<Vec<UnboundedSender<Change>>>,
    followed: Mutex<BTreeSet<Uri>>,
    /// The subjects that were unfollowed at some time.
    unfollowed: Mutex<BTreeSet<Uri>>,
    /// The last resource of the last page, and the offset at which the next page begins, for a source that
    /// paginates by offset.
    counted: Mutex<(Option<Uri>, usize)>,
}

pub(super) fn uri(path: &str) -> Uri {
    Uri::parse(&format!("memory://box/{path}")).unwrap()
}

impl MemorySource {
    pub(super) fn new(flaw: Option<Flaw>) -> Self {
        let directories = ["docs", "docs/deep"].map(|path| (uri(path), None));
        let files = ["a.txt", "docs/b%20c", "docs/deep/d", "docs/deep/e", "docs/%C3%A9", "z"]
            .map(|path| (uri(path), Some(format!("this is {path}"))));
        Self {
            flaw,
            entries: Mutex::new(directories.into_iter().chain(files).collect()),
            watchers: Mutex::default(),
            followed: Mutex::default(),
            unfollowed: Mutex::default(),
            counted: Mutex::default(),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn put(&self, uri: &Uri, text: &str) {
        let old = self.entries.lock().unwrap().insert(uri.clone(), Some(text.into()));
        match old {
            None if !self.has(Flaw::SilentAdd) => self.report(Change::Added(uri.clone())),
            Some(_) if self.has(Flaw::SilentToSubjects) && !self.followed.lock().unwrap().contains(uri) => {}
            Some(_) if self.has(Flaw::UnfollowedForEver) && self.unfollowed.lock().unwrap().contains(uri) => {
            }
            Some(_) if !self.has(Flaw::SilentChange) => self.report(Change::Updated(uri.clone())),
            _ => {}
        }
    }

    pub(super) fn delete(&self, uri: &Uri) -> bool {
        let old = self.entries.lock().unwrap().remove(uri);
        if old.is_some() && !self.has(Flaw::SilentRemove) {
            self.report(Change::Removed(uri.clone()));
        }
        old.is_some()
    }

    fn report(&self, change: Change) {
        let change = if self.has(Flaw::OnlyLost) { Change::Lost } else { change };
        self.watchers.lock().unwrap().retain(|watcher| watcher.send(change.clone()).is_ok());
    }

    fn resource(&self, uri: &Uri, text: Option<&String>) -> Resource {
        let mut resource = Resource::new(uri.clone(), uri.path());
        let mime = if text.is_some() { "application/octet-stream" } else { DIRECTORY };
        resource.mime = Some(if self.has(Flaw::WrongMime) { "text/wrong" } else { mime }.into());
        resource.size = text.map(|text| text.len() as u64 + u64::from(self.has(Flaw::WrongSize)));
        resource
    }

    fn page(&self, keep: impl Fn(&Uri) -> bool, after: Option<&Uri>, limit: usize) -> Page {
        let entries = self.entries.lock().unwrap();
        let after =
            after.filter(|uri| !self.has(Flaw::StartsOverAfterStrangers) || entries.contains_key(*uri));
        let last = entries.keys().next_back();
        let after = after.filter(|after| !self.has(Flaw::StartsOverAtTheEnd) || Some(*after) != last);
        let mut rest: Vec<_> = entries
            .iter()
            .filter(|(uri, _)| keep(uri) && after.is_none_or(|after| *uri > after))
            .map(|(uri, text)| self.resource(uri, text.as_ref()))
            .collect();
        if self.has(Flaw::ListsWhatIsGone) && after.is_none_or(|after| uri("zz") > *after) {
            rest.push(Resource::new(uri("zz"), "gone"));
        }
        if self.has(Flaw::Unordered) {
            rest.reverse();
        }
        if self.has(Flaw::Duplicates)
            && let Some(first) = rest.first().cloned()
        {
            rest.insert(0, first);
        }
        let mut more = rest.len() > limit;
        if self.has(Flaw::NoMoreTooEarly) {
            more = rest.len() > limit + 1;
        }
        more |= self.has(Flaw::MoreAfterTheEnd);
        rest.truncate(limit + usize::from(self.has(Flaw::OversizedPages)));
        let mut freshness = Freshness::proven(self.has(Flaw::ProvesListsForEver).then(Proof::always));
        if self.has(Flaw::PublicListsForOne) {
            freshness = freshness.with_ttl(Duration::from_secs(60)).with_scope(CacheScope::Public);
        }
        Page { resources: rest, more, freshness, ..Page::default() }
    }

    /// Continues at the offset where the last page ended, like a source that paginates by offset; `None` if that page did
    /// not end with `after`.
    fn page_by_count(&self, after: &Uri, limit: usize) -> Option<Page> {
        let mut counted = self.counted.lock().unwrap();
        let start = counted.1;
        if counted.0.as_ref() != Some(after) {
            return None;
        }
        let mut page = self.page(|_| true, None, usize::MAX);
        page.more = page.resources.len() > start + limit;
        page.resources = page.resources.into_iter().skip(start).take(limit).collect();
        *counted = (page.resources.last().map(|last| last.uri.clone()), start + limit);
        Some(page)
    }
}

#[async_trait]
impl Source for MemorySource {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        let own = uri.as_str().starts_with("memory://box/");
        (own && !(self.has(Flaw::DoesNotCover) && uri.path().starts_with("/docs/")))
            .then_some(Specificity::EXACT)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        if self.has(Flaw::PagesByCount) {
            if let Some(page) = after.and_then(|after| self.page_by_count(after, limit)) {
                return Ok(page);
            }
            let page = self.page(|_| true, after, limit);
            let last = page.resources.last().map(|last| last.uri.clone());
            if after.is_none() {
                *self.counted.lock().unwrap() = (last, limit);
            }
            return Ok(page);
        }
        let mut page = self.page(|_| true, after, limit);
        if self.has(Flaw::PublicListsForOne) && context.identity().is_some() {
            page.resources.pop();
        }
        Ok(page)
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let invalid = uri.path().contains("%00") || uri.path().contains("%2F");
        if invalid && self.has(Flaw::FailsOnInvalid) {
            return Err(Error::failed("read the file", "no such file"));
        }
        if self.covers(uri).is_none() && self.has(Flaw::ReadsWhatItDoesNotCover) {
            return Ok(Content::text(uri.clone(), "text/plain", "surprise").into());
        }
        let entries = self.entries.lock().unwrap();
        match entries.get(&uri.without_query()) {
            Some(_) if self.has(Flaw::EmptyReads) => Ok(Vec::new().into()),
            Some(Some(text)) => {
                let mut freshness = Freshness::proven(self.has(Flaw::ProvesReadsForEver).then(Proof::always));
                let mut text = text.clone();
                if self.has(Flaw::ProofsNeverHold) {
                    freshness = Freshness::proven(Proof::new(|| false));
                }
                if self.has(Flaw::PublicReadsForOne) {
                    freshness = freshness.with_ttl(Duration::from_secs(60)).with_scope(CacheScope::Public);
                }
                if (self.has(Flaw::PublicReadsForOne) || self.has(Flaw::SharedReadsForOne))
                    && let Some(identity) = context.identity()
                {
                    text = format!("{text} for {}", identity.name());
                }
                let content = Content::bytes(uri.clone(), "application/octet-stream", text);
                Ok(Contents::from(content).with_freshness(freshness))
            }
            Some(None) => Ok(Content::text(uri.clone(), DIRECTORY, "").into()),
            None if self.has(Flaw::EmptyForUnknown) => {
                Ok(Content::text(uri.clone(), "text/plain", "").into())
            }
            None => Err(Error::NotFound(uri.clone())),
        }
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let name = if self.has(Flaw::NamelessTemplate) { "" } else { "file" };
        let template = |text| Ok(Template::new(UriTemplate::parse(text)?, name));
        let texts = ["memory://box/{+path}{?lines}", "memory://box/{folder}/{file}"];
        Ok(texts.into_iter().map(template).collect::<Result<Vec<_>>>()?.into())
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        let entries = self.entries.lock().unwrap();
        let paths = entries.keys().filter_map(|uri| String::from_utf8(Uri::decode_segment(uri.path())?).ok());
        let mut values: Vec<String> = match asked.variable {
            "path" => paths.map(|path| path[1..].into()).collect(),
            "folder" => vec!["docs".into()],
            "file" => {
                let folder = format!("/{}/", asked.known.get("folder").map_or("", String::as_str));
                paths.filter_map(|path| Some(path.strip_prefix(&folder)?.to_owned())).collect()
            }
            _ if self.has(Flaw::CompletesAnything) => vec!["anything".into()],
            _ => Vec::new(),
        };
        // `{file}` matches one path segment.
        values.retain(|value| asked.variable != "file" || !value.contains('/'));
        if self.has(Flaw::CompletesToNowhere) && asked.variable == "file" {
            values.push("nowhere".into());
        }
        if self.has(Flaw::ForgetsWhatIsTyped) && !asked.typed.is_empty() {
            values.clear();
        }
        if self.has(Flaw::TooManyValues) && !values.is_empty() {
            let values: Vec<_> = (0..101).map(|number| number.to_string()).collect();
            return Ok(Completion { values, total: None, more: false, proof: None });
        }
        let mut completion = Completion::of(values, asked.typed, asked.limit);
        if self.has(Flaw::WrongTotal) {
            completion.total = completion.total.map(|total| total + 1);
        }
        Ok(completion)
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        _context: &Context,
    ) -> Result<Page> {
        let entry = self.entries.lock().unwrap().get(uri).cloned();
        match entry {
            None => return Err(Error::NotFound(uri.clone())),
            Some(Some(_)) if self.has(Flaw::EverythingIsADirectory) => return Ok(Page::default()),
            Some(Some(_)) => return Err(Error::NotDirectory(uri.clone())),
            Some(None) => {}
        }
        let directory = format!("{uri}/");
        let keep = |uri: &Uri| {
            let Some(name) = uri.as_str().strip_prefix(&directory) else { return false };
            !(self.has(Flaw::MissingChildren) && name == "deep")
                && (self.has(Flaw::ChildrenOfChildren) || !name.contains('/'))
        };
        Ok(self.page(keep, after, limit))
    }

    fn has_search(&self) -> bool {
        !self.has(Flaw::SearchesUnannounced)
    }

    async fn search(&self, _: &SearchQuery, _: &Context) -> Result<Option<SearchAnswer>> {
        Ok(Some(SearchAnswer::default()))
    }

    fn is_shared(&self, _uri: &Uri) -> bool {
        self.has(Flaw::SharedReadsForOne)
    }

    fn subject(&self, uri: &Uri) -> Uri {
        let whole = uri.without_query();
        match self.flaw {
            Some(Flaw::SubjectOfASubject) => Uri::parse(&format!("{whole}x")).unwrap(),
            Some(Flaw::ForeignSubject) => Uri::parse("other://subject").unwrap(),
            Some(Flaw::SilentToSubjects) => Uri::parse(&format!("{whole}?all")).unwrap(),
            _ => whole,
        }
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        self.followed.lock().unwrap().insert(subject.clone());
    }

    fn unfollow(&self, subject: &Uri) {
        let followed = self.followed.lock().unwrap().remove(subject);
        if !followed && self.has(Flaw::UnfollowEndsTheWatch) {
            self.watchers.lock().unwrap().clear();
        }
        self.unfollowed.lock().unwrap().insert(subject.clone());
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let (sender, receiver) = unbounded_channel();
        if !self.has(Flaw::WatchEnds) {
            self.watchers.lock().unwrap().push(sender);
        }
        let next = |mut receiver: tokio::sync::mpsc::UnboundedReceiver<Change>| async move {
            receiver.recv().await.map(|change| (change, receiver))
        };
        Ok(Some(stream::unfold(receiver, next).boxed()))
    }
}
