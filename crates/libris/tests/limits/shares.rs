//! Each limit of an identity, and of all callers together: who reaches it is refused, and nobody else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use http_body_util::BodyExt as _;
use libris::wire::http;
use libris::wire::http::UsageLimits;
use libris::{
    Authenticate, Catalog, Config, FunctionSource, Identity, Policy, Request, Rights, Server,
    SubscriptionConfig,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{Client, LONG, Named, listen, requests, serve, source};

#[tokio::test]
async fn reads_in_progress_count_against_their_identity() {
    let (entered, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (inside, opened) = (entered.clone(), gate.clone());
    let slow = FunctionSource::new().template("note://slow/{number}", move |request: Request| {
        let (inside, opened) = (inside.clone(), opened.clone());
        async move {
            inside.add_permits(1);
            let _ = opened.acquire().await;
            request.uri().to_string()
        }
    });
    let limits = UsageLimits { concurrent_requests: Some(2), ..UsageLimits::default() };
    let http = http::Config { identity_limits: limits, ..http::Config::default() };
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source()), Arc::new(slow)]));
    let server = Server::with_policy(catalog, Config::default(), Arc::new(Named));
    let (address, _serving) = serve(server, http).await;
    let greedy = [("authorization", "greedy")];
    let mut reading = Vec::new();
    for number in 0..2 {
        let mut client = Client::new(address, &greedy).await;
        let uri = json!({ "uri": format!("note://slow/{number}") });
        reading.push(tokio::spawn(async move { client.open("resources/read", uri).await.status() }));
    }
    entered.acquire_many(2).await.unwrap().forget();
    for headers in [vec![greedy[0]], vec![greedy[0], LONG]] {
        let (status, retry, body) = Client::new(address, &headers).await.read().await;
        assert_eq!((status, retry.is_some()), (503, true), "{body}");
        assert!(body["error"]["data"]["retryAfterMs"].is_u64(), "{body}");
    }
    for headers in [vec![("authorization", "modest")], Vec::new()] {
        assert_eq!(Client::new(address, &headers).await.read().await.0, 200);
    }
    gate.add_permits(2);
    for read in reading {
        assert_eq!(read.await.unwrap().as_u16(), 200);
    }
    assert_eq!(Client::new(address, &greedy).await.read().await.0, 200);
}

#[tokio::test]
async fn the_memory_of_subscriptions_counts_against_their_identity() {
    let subscriptions =
        SubscriptionConfig { identity_subscription_bytes: Some(64 << 10), ..SubscriptionConfig::default() };
    let notes =
        FunctionSource::new().template("note://long/{+name}", |request: Request| request.uri().to_string());
    let catalog = Arc::new(Catalog::new(vec![Arc::new(notes)]));
    let config = Config { subscriptions, ..Config::default() };
    let server = Server::with_policy(catalog, config, Arc::new(Named));
    let (address, _serving) = serve(server, http::Config::default()).await;
    let mut greedy = Client::new(address, &[("authorization", "greedy")]).await;
    // In two sessions: the limit is that of the identity.
    let sessions = [greedy.initialize().await.unwrap(), greedy.initialize().await.unwrap()];
    let mut accepted = 0;
    loop {
        let uri = format!("note://long/{accepted}/{}", "a".repeat(4 << 10));
        let session = &sessions[accepted % 2];
        let (_, body) = greedy.in_session(session, "resources/subscribe", json!({ "uri": uri })).await;
        if body.get("error").is_some() {
            break;
        }
        accepted += 1;
        assert!(accepted < 32, "nothing counts the bytes");
    }
    assert!(accepted >= 4, "{accepted}");
    for session in &sessions {
        let uri = format!("note://long/other/{}", "a".repeat(4 << 10));
        let (_, body) = greedy.in_session(session, "resources/subscribe", json!({ "uri": uri })).await;
        assert!(body.get("error").is_some(), "{body}");
    }
    let mut modest = Client::new(address, &[("authorization", "modest")]).await;
    let session = modest.initialize().await.unwrap();
    let uri = json!({ "uri": format!("note://long/mine/{}", "a".repeat(4 << 10)) });
    let (_, body) = modest.in_session(&session, "resources/subscribe", uri).await;
    assert_eq!(body["result"], json!({}));
}

#[tokio::test]
async fn a_caller_without_limits_of_its_own_cannot_use_up_the_total() {
    for extra in [None, Some(LONG)] {
        let http = http::Config { total_limits: requests(8), ..http::Config::default() };
        let (address, _serving) = listen(http, SubscriptionConfig::default()).await;
        for (who, expected) in [(Some("greedy"), 6), (None, 2)] {
            let headers: Vec<_> = who.map(|who| ("authorization", who)).into_iter().chain(extra).collect();
            let mut client = Client::new(address, &headers).await;
            let mut admitted = 0;
            while client.read().await.0 == 200 {
                admitted += 1;
                assert!(admitted < 20, "nothing limits the rate");
            }
            assert_eq!(admitted, expected, "{who:?}");
        }
    }
    let subscriptions = SubscriptionConfig { total_subscriptions: Some(4), ..SubscriptionConfig::default() };
    let (address, _serving) = listen(http::Config::default(), subscriptions).await;
    for (who, expected) in [(vec![("authorization", "greedy")], 3), (Vec::new(), 1)] {
        let mut client = Client::new(address, &who).await;
        let mut accepted = 0;
        for uri in ["note://one", "note://two", "note://three"].repeat(2) {
            // A session each, because a repeated subscription does not count.
            let session = client.initialize().await.unwrap();
            let (_, body) = client.in_session(&session, "resources/subscribe", json!({ "uri": uri })).await;
            accepted += usize::from(body.get("result").is_some());
        }
        assert_eq!(accepted, expected, "{who:?}");
    }
}

#[tokio::test]
async fn notifications_on_event_streams_count_as_bytes() {
    let source = source();
    let handle = source.handle();
    let subscriptions = SubscriptionConfig { window: Duration::from_millis(1), ..Default::default() };
    let config = Config { subscriptions, ..Config::default() };
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source)]));
    let limits = UsageLimits { bytes_per_minute: Some(2_000), ..UsageLimits::default() };
    let http = http::Config { identity_limits: limits, ..http::Config::default() };
    let (address, _serving) = serve(Server::with_policy(catalog, config, Arc::new(Named)), http).await;
    for (who, in_session) in [("modern", false), ("legacy", true)] {
        let headers = [("authorization", who)];
        let (mut listening, mut reading) =
            (Client::new(address, &headers).await, Client::new(address, &headers).await);
        let mut stream = match in_session {
            true => {
                let session = listening.initialize().await.unwrap();
                let uri = json!({ "uri": "note://one" });
                listening.in_session(&session, "resources/subscribe", uri).await;
                let headers = [("mcp-session-id", &*session)];
                listening.send(Method::GET, "/mcp", &headers, String::new()).await
            }
            false => {
                let params = json!({ "notifications": { "resourceSubscriptions": ["note://one"] } });
                let mut stream = listening.open("subscriptions/listen", params).await;
                stream.body_mut().frame().await.unwrap().unwrap();
                stream
            }
        };
        assert_eq!(reading.read().await.0, 200, "{who}");
        // Each notification has more than 80 bytes. The last one shows that the stream stays open.
        for number in 0..41 {
            if number == 40 {
                assert_eq!(reading.read().await.0, 429, "{who}");
            }
            handle.updated("note://one").unwrap();
            let mut text = String::new();
            while !text.contains("notifications/resources/updated") {
                let frame = stream.body_mut().frame().await.unwrap().unwrap();
                text.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
            }
        }
    }
}

/// Publishes a document.
struct Documented;

impl Authenticate for Documented {
    fn public_document(&self, path: &str) -> Option<String> {
        (path == "/.well-known/test").then(|| "{}".to_owned())
    }
}

impl Policy for Documented {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::everything()
    }
}

#[tokio::test]
async fn public_documents_count_against_the_rate_of_their_address() {
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source())]));
    let server = Server::with_policy(catalog, Config::default(), Arc::new(Documented));
    let http = http::Config { address_limits: requests(2), ..http::Config::default() };
    let (address, _serving) = serve(server, http).await;
    let mut client = Client::new(address, &[]).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = client.send(Method::GET, "/.well-known/test", &[], String::new()).await;
        statuses.push(response.status().as_u16());
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn the_rate_of_all_callers_together_is_limited() {
    for extra in [None, Some(LONG)] {
        let http = http::Config { total_limits: requests(5), ..http::Config::default() };
        let (address, _serving) = listen(http, SubscriptionConfig::default()).await;
        let mut statuses = Vec::new();
        for who in [Some("ada"), Some("bob"), None, Some("ada"), Some("eve"), Some("eve"), Some("joe"), None]
        {
            let headers: Vec<_> = who.map(|who| ("authorization", who)).into_iter().chain(extra).collect();
            let (status, retry, body) = Client::new(address, &headers).await.read().await;
            assert_eq!(retry.is_some(), status == 429, "{body}");
            statuses.push(status);
        }
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    }
}

#[tokio::test]
async fn a_client_that_subscribes_in_a_loop_is_slowed() {
    let (address, _serving) = listen(http::Config::default(), SubscriptionConfig::default()).await;
    let mut looping = Client::new(address, &[("authorization", "looping")]).await;
    let session = looping.initialize().await.unwrap();
    let uri = json!({ "uri": "note://one" });
    let began = Instant::now();
    // The burst, and the requests for which the bucket was refilled meanwhile.
    for _ in 0..2_000 {
        looping.in_session(&session, "resources/subscribe", uri.clone()).await;
    }
    let refilled = began.elapsed().as_millis() as usize / 50 + 1;
    for _ in 0..refilled {
        looping.in_session(&session, "resources/subscribe", uri.clone()).await;
    }
    let since = Instant::now();
    for _ in 0..10 {
        let (_, body) = looping.in_session(&session, "resources/subscribe", uri.clone()).await;
        assert_eq!(body["result"], json!({}));
    }
    let slowed = since.elapsed();
    assert!(slowed >= Duration::from_millis(400), "ten subscriptions took {slowed:?}");
    // Its reads are not delayed, and neither are the subscriptions of others, whose own burst is not used.
    let mut other = Client::new(address, &[("authorization", "other")]).await;
    let session = other.initialize().await.unwrap();
    let since = Instant::now();
    for _ in 0..10 {
        let (_, body) = other.in_session(&session, "resources/subscribe", uri.clone()).await;
        assert_eq!(body["result"], json!({}));
    }
    assert!(since.elapsed() < slowed, "{:?}, {slowed:?}", since.elapsed());
    assert_eq!(looping.open("resources/read", uri).await.status().as_u16(), 200);
}
