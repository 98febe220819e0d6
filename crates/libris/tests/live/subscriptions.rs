//! Subscriptions: what is allowed, their limits, and the calls of `follow` and `unfollow` on sources.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use libris::uri_template::Specificity;
use libris::wire::{Client, Failure, Service as _};
use libris::{Change, Config, Contents, Context, Page, Result, Server, Source, SubscriptionConfig, Uri};
use tokio::time::timeout;

use crate::script::{Script, count, joined, listening, server, told, updated};

#[tokio::test(start_paused = true)]
async fn a_source_knows_what_somebody_wants_to_hear_of() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let followed = || script.followed.lock().unwrap().keys().map(Uri::to_string).collect::<Vec<_>>();
    let (one, other) =
        (joined(&server, Client::default()).unwrap(), joined(&server, Client::default()).unwrap());
    for (listener, uri) in [(&one, "a:x"), (&one, "a:x?lines=1-3"), (&one, "a:y"), (&other, "a:x")] {
        listener.subscribe(uri).await.unwrap();
    }
    assert_eq!(followed(), ["a:x", "a:y"]);
    one.unsubscribe("a:x");
    one.unsubscribe("a:x?lines=1-3");
    one.unsubscribe("a:y");
    assert_eq!(followed(), ["a:x"]);
    script.tell(&Change::Lost);
    told(&*other).await;
    assert_eq!(followed(), ["a:x"]);
    drop(other);
    assert_eq!(followed(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_cannot_be_subscribed_to() {
    let (server, _) = server(vec![Script::new("a")]);
    let listener = joined(&server, Client::default()).unwrap();
    assert_eq!(listener.subscribe("b:one").await, Err(Failure::not_found("b:one")));
    assert!(matches!(listener.subscribe("no uri").await, Err(Failure::Invalid { .. })));
    for uri in ["a:1", "a:2", "a:3", "a:3"] {
        listener.subscribe(uri).await.unwrap();
    }
    // A request above the limit is refused after a delay, to slow down clients that retry.
    let begun = tokio::time::Instant::now();
    {
        let refused = listener.subscribe("a:4");
        tokio::pin!(refused);
        assert!(timeout(Duration::from_millis(49), &mut refused).await.is_err());
        assert!(matches!(refused.await, Err(Failure::Internal { .. })));
    }
    assert_eq!(begun.elapsed(), Duration::from_millis(50));
    listener.unsubscribe("a:3");
    listener.subscribe("a:4").await.unwrap();
    let _second = joined(&server, Client::default()).unwrap();
    assert!(joined(&server, Client::default()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_was_given_up_is_not_there() {
    let (script, _server, listener) = listening();
    {
        let mut given_up = Box::pin(listener.subscribe("a:one"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
    }
    listener.subscribe("a:one").await.unwrap();
    assert_eq!(script.watches(), 1);
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
}

/// A URI just below the length limit.
fn long(name: &str) -> String {
    format!("a:{name}/{}", "x".repeat(8_000))
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_uri_is_held_once_for_all_listeners() {
    let server = Server::new(Script::new("a"), Config::default());
    let listeners: Vec<_> = (0..10).map(|_| joined(&server, Client::default()).unwrap()).collect();
    for listener in &listeners {
        for n in 0..30 {
            listener.subscribe(&long(&n.to_string())).await.unwrap();
        }
    }
    let bytes = count(&server, "subscription_bytes");
    assert_eq!(count(&server, "subscriptions"), 300);
    assert!((30 * 8_000..2 * 30 * 8_000).contains(&bytes), "{bytes} bytes for 30 distinct texts");
    drop(listeners);
    assert_eq!(count(&server, "subscription_bytes"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_subscriptions_are_bounded_for_each_client_and_in_all() {
    let subscriptions = SubscriptionConfig {
        subscription_bytes: 1 << 20,
        client_subscription_bytes: 1 << 18,
        ..SubscriptionConfig::default()
    };
    let server = Server::new(Script::new("a"), Config { subscriptions, ..Config::default() });
    let mut listeners = Vec::new();
    for client in 0..7 {
        let listener = joined(&server, Client::default()).unwrap();
        let mut granted = 0;
        let (message, data) = loop {
            let before = server.counts();
            match listener.subscribe(&long(&format!("{client}/{granted}"))).await {
                Ok(()) => granted += 1,
                Err(Failure::Internal { message, data }) => {
                    assert_eq!(server.counts(), before, "a refused subscription changes nothing");
                    break (message, data);
                }
                Err(other) => panic!("{other:?}"),
            }
            assert!(granted < 100, "{granted} subscriptions of 8,000 bytes");
        };
        if client < 4 {
            assert!((28..32).contains(&granted), "{granted}");
            assert!(message.contains("`262144`") && message.contains("unsubscribe"), "{message}");
            assert_eq!(data.unwrap()["limit"], 262_144);
            listener.unsubscribe(&long(&format!("{client}/0")));
            listener.subscribe(&long(&format!("{client}/n"))).await.unwrap();
        } else {
            // The first four leave some room that was too little for one more of theirs.
            assert!(granted < 4, "{granted}");
            assert!(message.contains("`1048576`") && message.contains("later"), "{message}");
            assert_eq!(data.unwrap()["limit"], 1_048_576);
        }
        listeners.push(listener);
    }
    listeners.truncate(1);
    assert!(count(&server, "subscription_bytes") <= 1 << 18);
    drop(listeners);
    assert_eq!((count(&server, "subscription_bytes"), count(&server, "subscriptions")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn too_many_bytes_of_uris_are_refused_before_they_are_parsed() {
    let subscriptions =
        SubscriptionConfig { client_subscription_bytes: 1 << 20, ..SubscriptionConfig::default() };
    let server = Server::new(Script::new("a"), Config { subscriptions, ..Config::default() });
    let address = Client::at([127, 0, 0, 1].into());
    let listeners: Vec<_> = (0..3).map(|_| joined(&server, address).unwrap()).collect();
    // None of them is a URI, which parsing would say.
    let uris: Vec<_> = (0..60).map(|number| format!("{number} {}", "x".repeat(8_000))).collect();
    let uris: Vec<_> = uris.iter().map(String::as_str).collect();
    let outcomes = futures_util::future::join_all(listeners.iter().map(|listener| listener.reserve(&uris)));
    let refusals: Vec<_> = outcomes.await.into_iter().filter_map(Result::err).collect();
    // Those that fit get their memory, although all of them ask at once.
    let [Failure::Internal { message, .. }] = &refusals[..] else { panic!("{refusals:?}") };
    assert!(message.contains("`1048576`"), "{message}");
    assert_eq!((count(&server, "subscription_bytes"), count(&server, "subscriptions")), (0, 0));
    drop(listeners);
    let listener = joined(&server, address).unwrap();
    listener.reserve(&uris).await.unwrap();
    listener.reserve(&[]).await.unwrap();
    let both = [uris.clone(), uris].concat();
    listener.reserve(&both).await.unwrap();
}

/// More subscriptions than are ended at once.
#[tokio::test(start_paused = true)]
async fn a_listener_with_many_subscriptions_leaves_none_behind() {
    let script = Script::new("a");
    let server = Server::new(script.clone(), Config::default());
    let subscribed = async || {
        let listener = joined(&server, Client::default()).unwrap();
        for n in 0..100 {
            listener.subscribe(&format!("a:{n}")).await.unwrap();
        }
        assert_eq!((count(&server, "subscriptions"), script.followed.lock().unwrap().len()), (100, 100));
        listener
    };
    let nothing_is_left = || {
        let counts = ["listeners", "subscriptions", "subscription_bytes"].map(|name| count(&server, name));
        counts == [0; 3] && script.followed.lock().unwrap().is_empty()
    };
    drop(subscribed().await);
    let ended = async {
        while !nothing_is_left() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(4), ended).await.expect("they end before the watch does");
    // Where there is no runtime, they end before the drop does.
    let listener = subscribed().await;
    std::thread::spawn(|| drop(listener)).join().unwrap();
    assert!(nothing_is_left());
}

/// Whose share of a source's time is used to look at a subject.
#[tokio::test(start_paused = true)]
async fn a_source_is_told_who_wants_to_hear_of_a_subject() {
    let script = Script::new("a");
    let server = Server::new(script.clone(), Config::default());
    let clients = [1, 2].map(|last| Client::at([127, 0, 0, last].into()));
    let listeners = clients.map(|client| joined(&server, client).unwrap());
    listeners[0].subscribe("a:other").await.unwrap();
    listeners[0].subscribe("a:one").await.unwrap();
    assert_eq!(script.client("a:one"), Some(clients[0]));
    listeners[1].subscribe("a:one").await.unwrap();
    assert_eq!(script.client("a:one"), Some(clients[1]), "the one with fewer subscriptions");
}

/// A source that takes its time to follow what is called `slow`.
struct Slow {
    script: Arc<Script>,
    /// Locked by the test for as long as it is to take.
    turn: Mutex<()>,
    waits: AtomicBool,
}

#[async_trait]
impl Source for Slow {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.script.covers(uri)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.script.list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.script.read(uri, context).await
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        if subject.as_str() == "a:slow" {
            self.waits.store(true, Ordering::SeqCst);
            drop(self.turn.lock().unwrap());
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        self.script.watch().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_source_that_is_slow_to_follow_holds_up_nobody_else() {
    let (turn, waits) = (Mutex::default(), AtomicBool::new(false));
    let slow = Arc::new(Slow { script: Script::new("a"), turn, waits });
    let server = Arc::new(Server::new(slow.clone(), Config::default()));
    let quick = joined(&server, Client::default()).unwrap();
    quick.subscribe("a:quick").await.unwrap();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let holder = slow.clone();
    let (held, holds) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _turn = holder.turn.lock().unwrap();
        held.send(()).unwrap();
        // It ends when the test does, however that ends.
        let _ = gone.recv_timeout(Duration::from_secs(30));
    });
    holds.recv().unwrap();
    let patient = joined(&server, Client::default()).unwrap();
    let subscribing = tokio::spawn(async move { patient.subscribe("a:slow").await });
    let asked = async {
        while !slow.waits.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), asked).await.expect("it is asked to follow");
    slow.script.say(Change::Updated, "a:quick");
    let news = timeout(Duration::from_secs(10), quick.next()).await;
    assert_eq!(news.expect("news while the other source is busy"), updated("a:quick"));
    assert!(!subscribing.is_finished());
    drop(go);
    subscribing.await.unwrap().unwrap();
    thread.join().unwrap();
}

/// A source that records the order of calls, and does not return from `follow` before it may.
struct Ordered {
    script: Arc<Script>,
    calls: Mutex<Vec<&'static str>>,
    may_follow: Mutex<std::sync::mpsc::Receiver<()>>,
}

#[async_trait]
impl Source for Ordered {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.script.covers(uri)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.script.list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.script.read(uri, context).await
    }

    fn follow(&self, _: &Uri, _: Client) {
        self.calls.lock().unwrap().push("follow begins");
        // The end of the test ends it too.
        let _ = self.may_follow.lock().unwrap().recv();
        self.calls.lock().unwrap().push("follow ends");
    }

    fn unfollow(&self, _: &Uri) {
        self.calls.lock().unwrap().push("unfollow");
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        self.script.watch().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_about_one_subject_do_not_overtake_each_other() {
    let (may_follow, waits) = std::sync::mpsc::channel();
    let (calls, script) = (Mutex::default(), Script::new("a"));
    let source = Arc::new(Ordered { script, calls, may_follow: Mutex::new(waits) });
    let server = Server::new(source.clone(), Config::default());
    let listener = joined(&server, Client::default()).unwrap();
    let (subscriber, leaver) = (listener.clone(), listener);
    let subscribing = tokio::spawn(async move { subscriber.subscribe("a:one").await });
    while source.calls.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let unsubscribing = std::thread::spawn(move || leaver.unsubscribe("a:one"));
    // As soon as the subscription is gone, the source would be told at once if nothing held that up.
    while count(&server, "subscriptions") > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(*source.calls.lock().unwrap(), ["follow begins"]);
    }
    may_follow.send(()).unwrap();
    subscribing.await.unwrap().unwrap();
    unsubscribing.join().unwrap();
    assert_eq!(*source.calls.lock().unwrap(), ["follow begins", "follow ends", "unfollow"]);
}

#[test]
fn by_default_each_session_and_stream_of_the_http_transports_may_listen() {
    let transports = libris::wire::http::Config::default();
    let listeners = SubscriptionConfig::default().listeners;
    assert!(listeners >= transports.sessions + transports.event_streams, "{listeners}");
}
