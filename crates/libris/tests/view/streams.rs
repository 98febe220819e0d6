//! Streams of notifications over HTTP, and what becomes of cached responses when the policy is replaced.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use libris::{Change, Identity, Policy, Rights};
use serde_json::{Value, json};

use crate::people::{People, Sight, Who};
use crate::random::Random;
use crate::shelf::{Predicate, Seen, Shelf, Stock, Universe, uri};
use crate::worlds::{Connection, Sent, Transport, World};

/// A URI that A may see and B may not, and one that both may see.
pub(crate) const SECRET: &str = "shelf:///p0";
pub(crate) const COMMON: &str = "shelf:///p1";

/// A shelf with everything on it, A who sees all of it, and B who does not see the secret.
pub(crate) fn world() -> (World, [Sight; 2]) {
    let mut random = Random::new(0);
    let universe = Universe::of(false);
    let stock = Stock::of(universe);
    let hides = |seed: &u64| {
        let predicate = Predicate::Some { seed: *seed, percent: 50 };
        !predicate.shows(&uri(SECRET)) && predicate.shows(&uri(COMMON))
    };
    let seed = (0..).find(hides).unwrap();
    let a = Sight::new(universe, Predicate::Everything, &mut random);
    let b = Sight::new(universe, Predicate::Some { seed, percent: 50 }, &mut random);
    let everything = Arc::new(Seen::new(universe, Predicate::Everything));
    let sights = [a, b];
    (World::new(Shelf::new(&stock, everything), People::new(&sights), 100), sights)
}

/// Events as they arrive.
pub(crate) struct Events {
    body: Incoming,
    arrived: String,
}

impl Events {
    /// The next message.
    async fn next(&mut self) -> Value {
        tokio::time::timeout(Duration::from_secs(30), self.message()).await.expect("there is a message")
    }

    async fn message(&mut self) -> Value {
        loop {
            while let Some(end) = self.arrived.find("\n\n") {
                let rest = self.arrived.split_off(end + 2);
                let event = std::mem::replace(&mut self.arrived, rest);
                if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return serde_json::from_str(data).unwrap();
                }
            }
            let frame = self.body.frame().await.expect("the stream goes on").unwrap();
            self.arrived.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
}

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A stream of `subscriptions/listen`, which wants to hear of both resources and of the list.
async fn listen(connection: &mut Connection, who: Who) -> (Events, Value) {
    listen_to(connection, who, &[SECRET.to_owned(), COMMON.to_owned()]).await
}

/// A stream of `subscriptions/listen`, which wants to hear of these resources and of the list, and the resources that it
/// will hear of.
pub(crate) async fn listen_to(connection: &mut Connection, who: Who, uris: &[String]) -> (Events, Value) {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": { "resourceSubscriptions": uris, "resourcesListChanged": true },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } });
    let headers =
        [JSON, ACCEPT, ("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let sent = Sent { method: Method::POST, who, headers: &headers, body: message.to_string() };
    let body = connection.open(sent).await.into_body();
    let mut events = Events { body, arrived: String::new() };
    let granted = events.next().await["params"]["notifications"]["resourceSubscriptions"].take();
    (events, granted)
}

#[tokio::test]
async fn who_listens_hears_of_what_it_sees() {
    for transport in [Transport::Http1, Transport::Http2] {
        let (world, _) = world();
        let (address, _serving) = world.listen().await;
        let (mut a, mut b) =
            (Connection::http(transport, address).await, Connection::http(transport, address).await);
        let (mut of_a, granted) = listen(&mut a, Who::A).await;
        assert_eq!(granted, json!([SECRET, COMMON]));
        let (mut of_b, granted) = listen(&mut b, Who::B).await;
        assert_eq!(granted, json!([COMMON]));
        world.shelf.report(&Change::Updated(uri(SECRET)));
        assert_eq!(of_a.next().await["params"]["uri"], SECRET);
        world.shelf.report(&Change::Removed(uri(SECRET)));
        assert_eq!(of_a.next().await["method"], "notifications/resources/list_changed");
        assert_eq!(of_a.next().await["params"]["uri"], SECRET);
        world.shelf.report(&Change::Updated(uri(COMMON)));
        // The first that B hears of.
        assert_eq!(of_b.next().await["params"]["uri"], COMMON);
        assert_eq!(of_a.next().await["params"]["uri"], COMMON);
    }
}

#[tokio::test]
async fn a_session_hears_of_what_its_caller_sees_now() {
    let (world, [everything, some]) = world();
    let (address, _serving) = world.listen().await;
    let mut connection = Connection::http(Transport::Http1, address).await;
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let message = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let sent = |method: Method, headers, body| Sent { method, who: Who::A, headers, body };
    let opened = connection.ask(sent(Method::POST, &[JSON, ACCEPT], message("initialize", params))).await;
    let session = opened.session.unwrap();
    let headers = [JSON, ACCEPT, ("mcp-session-id", &*session)];
    for name in [SECRET, COMMON] {
        let subscribe = message("resources/subscribe", json!({ "uri": name }));
        assert!(connection.ask(sent(Method::POST, &headers, subscribe)).await.body.contains("\"result\":{}"));
    }
    let mut stream = Connection::http(Transport::Http1, address).await;
    let body = stream.open(sent(Method::GET, &headers[1..], String::new())).await.into_body();
    let mut events = Events { body, arrived: String::new() };
    world.shelf.report(&Change::Updated(uri(SECRET)));
    assert_eq!(events.next().await["params"]["uri"], SECRET);
    // From now on it has the rights of the other.
    world.server.set_policy(People::new(&[some, everything]));
    assert_eq!(events.next().await["method"], "notifications/resources/list_changed");
    assert_eq!(events.next().await["method"], "notifications/prompts/list_changed");
    world.shelf.report(&Change::Updated(uri(SECRET)));
    world.shelf.report(&Change::Updated(uri(COMMON)));
    assert_eq!(events.next().await["params"]["uri"], COMMON);
    let read = message("resources/read", json!({ "uri": SECRET }));
    let refused = connection.ask(sent(Method::POST, &headers, read)).await;
    assert!(refused.body.contains("-32002"), "{}", refused.body);
}

/// Everybody sees everything, but not everybody is let in.
struct Closed;

impl Policy for Closed {
    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::everything()
    }
}

/// The result of a request of the newest revision; `long` sends it through hyper.
async fn ask(connection: &mut Connection, who: Who, method: &str, name: &str, long: bool) -> Value {
    let params = json!({ "uri": name, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut headers = vec![JSON, ACCEPT, ("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    headers.extend((method == "resources/read").then_some(("mcp-name", name)));
    headers.extend(long.then_some(("x-long", "1")));
    let sent = Sent { method: Method::POST, who, headers: &headers, body: message.to_string() };
    let mut answer: Value = serde_json::from_str(&connection.ask(sent).await.body).unwrap();
    answer["result"].take()
}

#[tokio::test]
async fn a_response_that_was_made_for_one_caller_is_not_given_to_another() {
    let (world, [everything, _]) = world();
    // All have the same rights, so they share cached responses.
    world.server.set_policy(People::new(&[everything.clone(), everything]));
    let (address, _serving) = world.listen().await;
    let mut connection = Connection::http(Transport::Http1, address).await;
    for long in [false, true, false] {
        for (who, name) in [(Who::A, "A"), (Who::B, "B"), (Who::Anonymous, "nobody")] {
            let read = ask(&mut connection, who, "resources/read", "shelf:///me", long).await;
            assert_eq!(read["contents"][0]["text"], format!("shelf:///me of {name}"));
        }
    }
}

#[tokio::test]
async fn a_response_that_was_for_everybody_is_private_once_there_is_a_policy() {
    let stock = Stock::of(Universe::of(false));
    let everything = Arc::new(Seen::new(Universe::of(false), Predicate::Everything));
    let world = World::new(Shelf::new(&stock, everything), People::open(), 100);
    let (address, _serving) = world.listen().await;
    let mut connection = Connection::http(Transport::Http1, address).await;
    let mut scopes = async |long: bool| {
        let mut scopes = Vec::new();
        for method in ["resources/list", "resources/templates/list", "resources/read"] {
            let result = ask(&mut connection, Who::Anonymous, method, COMMON, long).await;
            scopes.push(result["cacheScope"].as_str().unwrap().to_owned());
        }
        scopes
    };
    // The second time, the responses are cached.
    for long in [false, true] {
        assert_eq!(scopes(long).await, ["public"; 3]);
    }
    world.server.set_policy(Arc::new(Closed));
    for long in [false, true] {
        assert_eq!(scopes(long).await, ["private"; 3]);
    }
    world.server.set_policy(People::open());
    for long in [false, true] {
        assert_eq!(scopes(long).await, ["public"; 3]);
    }
}
