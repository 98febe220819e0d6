//! A source with scripted failures.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris::catalog::Config;
use libris::uri_template::Specificity;
use libris::{
    CacheScope, Catalog, Change, Completion, CompletionRequest, Content, Contents, Context, Error, Freshness,
    Page, Proof, Resource, Result, Source, Template, Templates, UnavailableSource, Uri, UriSpan, UriTemplate,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

/// How long clients may use the lists of a source that proves them.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The reason of a permanent fault.
pub(crate) const REJECTED: &str = "it rejects the user or the password; hint: correct them in `url`";

/// The reason of a transient fault.
pub(crate) const STARTING: &str = "it is starting; try again later";

/// How the source responds to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Answers,
    Hangs,
    Fails,
    IsUnavailable,
    /// Fails permanently, with a hint.
    RejectsPassword,
    /// Fails for now, and says so.
    IsStarting,
    Panics,
    IsBusy,
    Denies,
    /// Fails for later pages of a list, and answers the first one.
    FailsLater,
    /// Fails every third time.
    Alternates,
    /// Uses the caller's identity, and fails.
    FailsForOne,
}

pub(crate) struct Toy {
    name: &'static str,
    scheme: &'static str,
    pub(crate) resources: Mutex<BTreeSet<Uri>>,
    pub(crate) behaviour: Mutex<Behaviour>,
    /// The delay of each response.
    delay: Duration,
    /// Whether lists have a proof.
    proves: bool,
    /// Whether it tells where its resources are in the order of all URIs.
    spans: bool,
    /// Its limit of concurrent requests.
    concurrency: usize,
    /// The number of list requests.
    pub(crate) asked: AtomicUsize,
    /// How many lists are in progress now, and were at most, of all toys that share it.
    pub(crate) load: Arc<Load>,
    watchers: Mutex<Vec<UnboundedSender<Option<Change>>>>,
}

#[derive(Default)]
pub(crate) struct Load {
    now: AtomicUsize,
    pub(crate) most: AtomicUsize,
}

impl Toy {
    /// A source with `count` resources under `scheme`, which answers.
    pub(crate) fn new(scheme: &'static str, count: usize) -> Self {
        let resources = (0..count).map(|number| uri(&format!("{scheme}:{number:05}"))).collect();
        Self {
            name: scheme,
            scheme,
            resources: Mutex::new(resources),
            behaviour: Mutex::new(Behaviour::Answers),
            delay: Duration::ZERO,
            proves: false,
            spans: false,
            concurrency: 64,
            asked: AtomicUsize::new(0),
            load: Arc::default(),
            watchers: Mutex::default(),
        }
    }

    pub(crate) fn with_resource(self, text: &str) -> Self {
        self.resources.lock().unwrap().insert(uri(text));
        self
    }

    pub(crate) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(crate) fn slow(self, delay: Duration, load: &Arc<Load>) -> Self {
        Self { delay, load: load.clone(), ..self }
    }

    pub(crate) fn proving(self) -> Self {
        Self { proves: true, ..self }
    }

    pub(crate) fn spanning(self) -> Self {
        Self { spans: true, ..self }
    }

    pub(crate) fn one_at_a_time(self) -> Self {
        Self { concurrency: 1, ..self }
    }

    pub(crate) fn behaving(self, behaviour: Behaviour) -> Self {
        self.behave(behaviour);
        self
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Reports a change.
    pub(crate) fn tell(&self, change: &Change) {
        self.send(Some(change));
    }

    /// Makes the watch panic.
    pub(crate) fn panic_in_watch(&self) {
        self.send(None);
    }

    fn send(&self, change: Option<&Change>) {
        self.watchers.lock().unwrap().retain(|watcher| watcher.send(change.cloned()).is_ok());
    }

    async fn act(&self, is_first: bool, context: &Context) -> Result<()> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.load.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.load.most.fetch_max(now, Ordering::SeqCst);
        let _left = Left(&self.load);
        if !self.delay.is_zero() {
            sleep(self.delay).await;
        }
        let behaviour = *self.behaviour.lock().unwrap();
        let failure = || Error::failed("list the toys", "the secret path is broken");
        match behaviour {
            Behaviour::Answers => Ok(()),
            Behaviour::Hangs => pending().await,
            Behaviour::Fails => Err(failure()),
            Behaviour::IsUnavailable => Err(Error::Unavailable("the toy shop is closed".to_owned())),
            Behaviour::RejectsPassword => Err(Error::Unavailable(REJECTED.to_owned())),
            Behaviour::IsStarting => Err(Error::Unavailable(STARTING.to_owned())),
            Behaviour::Panics => panic!("on purpose"),
            Behaviour::IsBusy => Err(Error::Busy("too many toys are wanted")),
            Behaviour::Denies => Err(Error::Denied(uri("toy:shop"))),
            Behaviour::FailsLater if !is_first => Err(failure()),
            Behaviour::Alternates if asked.is_multiple_of(3) => Err(failure()),
            Behaviour::FailsLater | Behaviour::Alternates => Ok(()),
            Behaviour::FailsForOne => match context.identity() {
                Some(_) => Err(failure()),
                None => Ok(()),
            },
        }
    }
}

struct Left<'a>(&'a Load);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Source for Toy {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == self.scheme).then_some(Specificity::EXACT)
    }

    fn name(&self) -> Cow<'_, str> {
        self.name.into()
    }

    fn span(&self) -> Option<UriSpan> {
        let own = UriSpan::below(&format!("{}:", self.scheme));
        self.spans.then(|| self.resources.lock().unwrap().iter().map(UriSpan::of).fold(own, UriSpan::union))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.act(after.is_none(), context).await?;
        let resources = self.resources.lock().unwrap();
        let mut rest = resources.iter().filter(|uri| after.is_none_or(|after| *uri > after));
        let page: Vec<_> =
            rest.by_ref().take(limit).map(|uri| Resource::new(uri.clone(), uri.as_str())).collect();
        let freshness = match self.proves {
            true => Freshness::proven(Proof::always()).with_ttl(MINUTE).with_scope(CacheScope::Public),
            false => Freshness::unproven(),
        };
        Ok(Page { resources: page, more: rest.next().is_some(), freshness, ..Page::default() })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.act(true, context).await?;
        match self.resources.lock().unwrap().contains(uri) {
            true => Ok(Content::text(uri.clone(), "text/plain", "a toy").into()),
            false => Err(Error::NotFound(uri.clone())),
        }
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        self.act(true, context).await?;
        let template = UriTemplate::parse(&format!("{}:{{number}}", self.scheme)).unwrap();
        Ok(vec![Template::new(template, "toy")].into())
    }

    async fn complete(&self, asked: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        self.act(true, context).await?;
        Ok(Completion::of(["00000"], asked.typed, asked.limit))
    }

    async fn children(&self, _: &Uri, _: Option<&Uri>, _: usize, context: &Context) -> Result<Page> {
        self.act(true, context).await?;
        Ok(Page::default())
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        self.act(true, &Context::default()).await?;
        let (sender, receiver) = unbounded_channel();
        self.watchers.lock().unwrap().push(sender);
        let changes = stream::unfold(receiver, async |mut receiver| {
            let change: Option<Change> = receiver.recv().await?;
            Some((change.expect("a change, or a panic on purpose"), receiver))
        });
        Ok(Some(changes.boxed()))
    }
}

pub(crate) fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

pub(crate) fn catalog(toys: &[Arc<Toy>]) -> Catalog {
    configured(toys, Config::default())
}

pub(crate) fn strict(toys: &[Arc<Toy>]) -> Catalog {
    configured(toys, Config { strict: true, ..Config::default() })
}

fn configured(toys: &[Arc<Toy>], config: Config) -> Catalog {
    Catalog::with_config(toys.iter().map(|toy| toy.clone() as Arc<dyn Source>).collect(), config)
}

pub(crate) async fn list(catalog: &Catalog) -> Result<Page> {
    timeout(MINUTE, catalog.list(None, 100, &Context::default())).await.expect("a list in time")
}

/// The URIs of a page.
pub(crate) fn uris(page: &Page) -> Vec<&str> {
    page.resources.iter().map(|resource| resource.uri.as_str()).collect()
}

/// The names of the sources that are missing from a response, and whether what is listed of them is stale.
pub(crate) fn missing(unavailable: &[UnavailableSource]) -> Vec<(&str, bool)> {
    unavailable.iter().map(|UnavailableSource { source, stale, .. }| (&**source, *stale)).collect()
}

/// Waits until all sources are listed.
pub(crate) async fn recovered(catalog: &Catalog) -> Duration {
    let begun = Instant::now();
    while !list(catalog).await.unwrap().unavailable.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "the sources have not recovered");
        sleep(Duration::from_millis(100)).await;
    }
    begun.elapsed()
}

/// The next change; panics after a time-out.
pub(crate) async fn next(changes: &mut BoxStream<'static, Change>) -> Change {
    timeout(MINUTE * 5, changes.next()).await.expect("a change in time").expect("a watch that goes on")
}

/// The text of a resource.
pub(crate) async fn text(catalog: &Catalog, at: &str) -> Result<String> {
    let contents =
        timeout(MINUTE, catalog.read(&uri(at), &Context::default())).await.expect("an answer in time")?;
    match contents.parts.into_iter().next().unwrap().body {
        libris::ContentBody::Text(text) => Ok(text),
        body => panic!("{body:?} is not text"),
    }
}
