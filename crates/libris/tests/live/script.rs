//! A scripted source, with a server and listeners.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris::uri_template::Specificity;
use libris::wire::{Caller, Client, Failure, Listener, Notification, Service as _};
use libris::{
    Catalog, Change, Config, Contents, Context, Error, Page, Result, Server, Source, SubscriptionConfig, Uri,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// A listener of an anonymous caller.
pub(crate) fn joined(server: &Server, client: Client) -> Result<Arc<dyn Listener>, Failure> {
    server.cached_view(&Caller::default()).unwrap().listener(client)
}

/// A source that changes when it is told to. It has everything under its scheme, and what is behind a
/// `?` stands for a part of what is before it. Only drafts come and go.
pub(crate) struct Script {
    scheme: &'static str,
    pub(crate) watchers: Mutex<Vec<UnboundedSender<Change>>>,
    /// What somebody wants to hear of, and who.
    pub(crate) followed: Mutex<BTreeMap<Uri, Client>>,
}

impl Script {
    pub(crate) fn new(scheme: &'static str) -> Arc<Self> {
        Arc::new(Self { scheme, watchers: Mutex::default(), followed: Mutex::default() })
    }

    pub(crate) fn say(&self, change: impl Fn(Uri) -> Change, uri: &str) {
        self.tell(&change(Uri::parse(uri).unwrap()));
    }

    pub(crate) fn tell(&self, change: &Change) {
        self.watchers.lock().unwrap().retain(|watcher| watcher.send(change.clone()).is_ok());
    }

    /// Who wants to hear of this subject, as it was last told.
    pub(crate) fn client(&self, subject: &str) -> Option<Client> {
        self.followed.lock().unwrap().get(&Uri::parse(subject).unwrap()).copied()
    }

    /// The number of open watches.
    pub(crate) fn watches(&self) -> usize {
        self.watchers.lock().unwrap().iter().filter(|watcher| !watcher.is_closed()).count()
    }
}

#[async_trait]
impl Source for Script {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == self.scheme).then_some(Specificity::EXACT)
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.covers(uri).is_some() && uri.as_str().contains("draft")
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }

    fn follow(&self, subject: &Uri, client: Client) {
        self.followed.lock().unwrap().insert(subject.clone(), client);
    }

    fn unfollow(&self, subject: &Uri) {
        self.followed.lock().unwrap().remove(subject);
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        // As with a folder, it takes a while.
        tokio::task::yield_now().await;
        let (sender, receiver) = unbounded_channel();
        self.watchers.lock().unwrap().push(sender);
        let changes = stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|change| (change, receiver))
        });
        Ok(Some(changes.boxed()))
    }
}

pub(crate) fn server(sources: Vec<Arc<dyn Source>>) -> (Server, Arc<Catalog>) {
    let catalog = Arc::new(Catalog::new(sources));
    let subscriptions =
        SubscriptionConfig { subscriptions: 3, listeners: 2, ..SubscriptionConfig::default() };
    (Server::new(catalog.clone(), Config { subscriptions, ..Config::default() }), catalog)
}

/// A server of one source, and a listener of it.
pub(crate) fn listening() -> (Arc<Script>, Server, Arc<dyn Listener>) {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = joined(&server, Client::default()).unwrap();
    (script, server, listener)
}

/// Adds so many resources to the list of a source, with a pause after each.
pub(crate) fn storm(script: &Arc<Script>, count: usize, pause: Duration) {
    let script = script.clone();
    tokio::spawn(async move {
        for n in 0..count {
            script.say(Change::Added, &format!("a:{n}"));
            tokio::time::sleep(pause).await;
        }
    });
}

pub(crate) fn updated(uri: &str) -> Notification {
    Notification::Updated(uri.into())
}

/// All notifications until two seconds pass without one.
pub(crate) async fn told(listener: &dyn Listener) -> Vec<Notification> {
    let mut all = Vec::new();
    while let Ok(news) = timeout(Duration::from_secs(2), listener.next()).await {
        all.push(news);
    }
    all
}

pub(crate) fn count(server: &Server, name: &str) -> usize {
    server.counts().into_iter().find(|(known, _)| *known == name).expect("a count of this name").1
}
