//! Taking rights away from open streams: after that, nothing is sent about what was hidden.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Method;
use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use libris::wire::Caller;
use libris::{Authenticate, Change, Identified, Identity, Policy, Rights};
use serde_json::json;

use crate::people::Who;
use crate::rules::{PlainWho, Verdict, compiled};
use crate::shelf::{Predicate, Seen, Shelf, Stock, Universe, uri};
use crate::streams::{COMMON, SECRET};
use crate::worlds::{Connection, Sent, Transport, World};

const STREAMS: usize = 1_000;

/// The debounce window: longer than a busy machine needs to replace the policy.
const WINDOW: Duration = Duration::from_millis(200);

/// How long a revocation may take to reach all streams, whose clients run in this process too.
const PROMPT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });

/// Identifies callers by name until it revokes them.
struct Revocable(AtomicBool);

impl Authenticate for Revocable {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        Identified::Caller(caller.authorization.map(|name| Identity::new(String::from_utf8_lossy(name))))
    }

    fn is_valid(&self, identity: &Identity) -> bool {
        identity.name() != "as A" || !self.0.load(Ordering::SeqCst)
    }
}

impl Policy for Revocable {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::everything()
    }
}

fn world(policy: Arc<dyn Policy>) -> World {
    let universe = Universe::of(false);
    let everything = Arc::new(Seen::new(universe, Predicate::Everything));
    World::debounced(Shelf::new(&Stock::of(universe), everything), policy, 100, WINDOW)
}

/// Opens a stream that listens to both resources.
async fn listen(address: std::net::SocketAddr, who: Who) -> (Connection, Incoming) {
    let mut connection = Connection::http(Transport::Http1, address).await;
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": { "resourceSubscriptions": [SECRET, COMMON], "resourcesListChanged": true },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } });
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let sent = Sent { method: Method::POST, who, headers: &headers, body: message.to_string() };
    let mut body = connection.open(sent).await.into_body();
    let acknowledged = until(&mut body, "acknowledged").await;
    assert!(acknowledged.contains(SECRET), "{acknowledged}");
    (connection, body)
}

/// What arrives until this text does, or the stream ends.
async fn until(body: &mut Incoming, text: &str) -> String {
    let mut arrived = String::new();
    while !arrived.contains(text) {
        let Some(frame) = body.frame().await else { break };
        arrived.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
    }
    arrived
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_streams_fall_silent_about_what_a_new_rule_hides() {
    let all: &[_] = &libris::Operation::ALL;
    let access = |rules: &[_]| -> Arc<dyn Policy> {
        Arc::new(libris::rules::RulesPolicy::new(
            &compiled(rules),
            Arc::new(Revocable(AtomicBool::new(false))),
        ))
    };
    let allow = (PlainWho::Anyone, "**", all, Verdict::Allow);
    let world = world(access(&[allow]));
    let (address, _serving) = world.listen().await;
    let mut streams = join_all((0..STREAMS).map(|_| listen(address, Who::A))).await;
    // Pending when the rights change, because it is debounced.
    world.shelf.report(&Change::Updated(uri(SECRET)));
    let began = std::time::Instant::now();
    world.server.set_policy(access(&[(PlainWho::Anyone, SECRET, all, Verdict::Deny), allow]));
    let in_effect = began.elapsed();
    let told = join_all(streams.iter_mut().map(async |(_, body)| until(body, "list_changed").await)).await;
    let took = began.elapsed();
    for text in told {
        assert!(text.contains("list_changed") && !text.contains(SECRET), "{text}");
    }
    eprintln!("the policy was replaced in {in_effect:?}, and all streams were told after {took:?}");
    assert!(took < PROMPT, "{took:?}");
    world.shelf.report(&Change::Updated(uri(SECRET)));
    world.shelf.report(&Change::Updated(uri(COMMON)));
    let told = join_all(streams.iter_mut().map(async |(_, body)| until(body, COMMON).await)).await;
    for text in told {
        assert!(text.contains(COMMON) && !text.contains(SECRET), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_streams_of_a_revoked_identity_end() {
    let policy = Arc::new(Revocable(AtomicBool::new(false)));
    let allow = (PlainWho::Anyone, "**", &libris::Operation::ALL[..], Verdict::Allow);
    let rules = compiled(&[allow]);
    let world = world(Arc::new(libris::rules::RulesPolicy::new(&rules, policy.clone())));
    let (address, _serving) = world.listen().await;
    let mut revoked = join_all((0..STREAMS).map(|_| listen(address, Who::A))).await;
    let (_other, mut stays) = listen(address, Who::B).await;
    policy.0.store(true, Ordering::SeqCst);
    let began = std::time::Instant::now();
    world.server.revoke();
    world.shelf.report(&Change::Updated(uri(SECRET)));
    let told = join_all(revoked.iter_mut().map(async |(_, body)| until(body, "\"result\"").await)).await;
    let took = began.elapsed();
    eprintln!("all streams had ended after {took:?}");
    for text in told {
        assert!(text.contains("\"result\"") && !text.contains(SECRET), "{text}");
    }
    assert!(took < PROMPT, "{took:?}");
    assert!(until(&mut stays, SECRET).await.contains(SECRET));
}
