//! Responses are cached by the rules of HTTP (RFC 9111) and within the limits of the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use libris_core::{CacheScope, Change, Client, CompletionRequest, Context, Source, UriTemplate};

use crate::server::{Answer, Body, Server};
use crate::{read, refusal, source, uri};

const ONE: &str = "[[resource]]\nuri = \"a://b\"\nurl = \"b\"\n";

const DATE: &str = "Fri, 02 Jan 2026 03:04:05 GMT";

/// The number of requests that three reads cause if responses have these headers.
async fn asked(cache: &str, headers: &'static [(&'static str, &'static str)]) -> usize {
    let answer = move |received: &_| {
        let plain = Answer::new(200, "text/plain", "text");
        headers.iter().fold(plain, |answer, (name, value)| answer.with(name, value)).tagged(received)
    };
    let server = Server::start(answer).await;
    let source = source(&server, &format!("{cache}\n{ONE}"));
    for _ in 0..3 {
        assert_eq!(read(&source, "a://b").await.unwrap(), "text");
    }
    let received = server.received();
    for (at, received) in received.iter().enumerate() {
        let kept = at > 0 && !headers.iter().any(|(_, value)| value.contains("no-store") || *value == "*");
        assert_eq!(received.header("if-none-match").is_some(), kept, "{headers:?} {at}");
    }
    received.len()
}

#[tokio::test]
async fn answers_are_as_fresh_as_they_say() {
    for (cache, headers, expected) in [
        ("", &[][..], 3),
        ("cache = { ttl = \"1m\" }", &[], 1),
        ("", &[("cache-control", "max-age=60")], 1),
        ("", &[("cache-control", "private, max-age=60")], 1),
        ("", &[("cache-control", "max-age=60"), ("age", "61")], 3),
        ("", &[("expires", "Fri, 01 Jan 2100 00:00:00 GMT")], 1),
        ("", &[("cache-control", "max-age=60"), ("vary", "accept")], 1),
        ("", &[("cache-control", "max-age=60"), ("vary", "*")], 3),
        // Directives that set no lifetime leave the configured `ttl` in force.
        ("cache = { ttl = \"1m\" }", &[("cache-control", "private")], 1),
        ("cache = { ttl = \"1m\" }", &[("cache-control", "public, must-revalidate")], 1),
        ("cache = { ttl = \"1m\" }", &[("pragma", "x")], 1),
        ("cache = { ttl = \"1m\" }", &[("pragma", "no-cache")], 3),
        ("cache = { ttl = \"1m\" }", &[("cache-control", "private, max-age=0")], 3),
        ("cache = { ttl = \"1m\" }", &[("cache-control", "no-cache")], 3),
        ("cache = { ttl = \"1m\" }", &[("cache-control", "no-store")], 3),
        ("cache = { max_age = \"0s\" }", &[("cache-control", "max-age=60")], 3),
        ("cache = { bytes = 0 }", &[("cache-control", "no-store, max-age=60")], 3),
    ] {
        assert_eq!(asked(cache, headers).await, expected, "{cache} {headers:?}");
    }
}

#[tokio::test]
async fn freshness_is_told_on() {
    let server = Server::start(|_| Answer::json("1").with("cache-control", "private, max-age=7200")).await;
    let source = source(&server, &format!("cache = {{ max_age = \"10m\", scope = \"public\" }}\n{ONE}"));
    let cache = source.read(&uri("a://b"), &Context::default()).await.unwrap().freshness;
    assert!(cache.ttl > Duration::from_secs(540) && cache.ttl <= Duration::from_secs(600), "{cache:?}");
    assert_eq!(cache.scope, CacheScope::Private);
}

#[tokio::test]
async fn what_was_known_is_given_while_the_service_fails() {
    let status = Arc::new(AtomicU16::new(200));
    let said = status.clone();
    let server = Server::start(move |received| match said.load(Ordering::SeqCst) {
        200 => Answer::json("[1]").tagged(received),
        failure => Answer::status(failure),
    })
    .await;
    let lasting = source(&server, ONE);
    let strict = source(&server, &format!("cache = {{ stale_if_error = \"0s\" }}\n{ONE}"));
    for source in [&lasting, &strict] {
        assert_eq!(read(source, "a://b").await.unwrap(), "[1]");
    }
    for failure in [500, 502, 503, 429] {
        status.store(failure, Ordering::SeqCst);
        let contents = lasting.read(&uri("a://b"), &Context::default()).await.unwrap();
        assert!(contents.parts[0].meta.as_ref().unwrap().contains_key("dev.libris/stale"), "{failure}");
        assert_eq!(contents.freshness.ttl, Duration::ZERO);
        assert!(refusal(&strict, "a://b").await.starts_with("unavailable: "), "{failure}");
    }
    // A response with `must-revalidate` or `no-cache` is not served stale.
    for directive in ["must-revalidate", "no-cache"] {
        let failing = Arc::new(AtomicU16::new(200));
        let said = failing.clone();
        let strict = Server::start(move |_| match said.load(Ordering::SeqCst) {
            200 => Answer::json("[1]").with("cache-control", directive),
            failure => Answer::status(failure),
        })
        .await;
        let refused = source(&strict, ONE);
        assert_eq!(read(&refused, "a://b").await.unwrap(), "[1]");
        failing.store(500, Ordering::SeqCst);
        assert!(refusal(&refused, "a://b").await.starts_with("unavailable: "), "{directive}");
    }
    status.store(200, Ordering::SeqCst);
    assert!(lasting.read(&uri("a://b"), &Context::default()).await.unwrap().parts[0].meta.is_none());
    // 404 removes the stale response from the cache.
    status.store(404, Ordering::SeqCst);
    assert_eq!(
        refusal(&lasting, "a://b").await,
        "no resource at `a://b`: the service answered 404 Not Found"
    );
    status.store(500, Ordering::SeqCst);
    assert!(refusal(&lasting, "a://b").await.starts_with("unavailable: "));
}

/// A service that answers with these headers, then with 304 Not Modified, then with errors.
async fn renewed(first: &'static [(&'static str, &'static str)], then: &'static [(&str, &str)]) -> Server {
    let count = AtomicU16::new(0);
    Server::start(move |received| {
        let with = |answer: Answer, headers: &[(&str, &str)]| {
            headers.iter().fold(answer, |answer, (name, value)| answer.with(name, value))
        };
        let conditional = ["if-none-match", "if-modified-since"].map(|name| received.header(name).is_some());
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => with(Answer::new(200, "text/plain", "text"), first),
            1 | 2 if conditional.contains(&true) => with(Answer::new(304, "text/plain", ""), then),
            _ => Answer::status(500),
        }
    })
    .await
}

#[tokio::test]
async fn what_has_not_changed_is_still_private_and_strict() {
    let server = renewed(&[("etag", "\"1\""), ("cache-control", "private, must-revalidate")], &[]).await;
    let source = source(&server, &format!("cache = {{ scope = \"public\" }}\n{ONE}"));
    for _ in 0..3 {
        let contents = source.read(&uri("a://b"), &Context::default()).await.unwrap();
        assert_eq!(contents.freshness.scope, CacheScope::Private);
    }
    assert!(refusal(&source, "a://b").await.starts_with("unavailable: "));
}

#[tokio::test]
async fn what_has_not_changed_is_kept_however_little_is_said() {
    for first in [&[("etag", "\"1\"")][..], &[("etag", "W/\"1\"")], &[("last-modified", DATE)]] {
        for then in [&[][..], &[("last-modified", DATE)]] {
            let server = renewed(first, then).await;
            let source = source(&server, ONE);
            for _ in 0..4 {
                assert_eq!(read(&source, "a://b").await.unwrap(), "text", "{first:?} {then:?}");
            }
        }
    }
    // The headers of a 304 response update the cached ones.
    let server = renewed(&[("etag", "\"1\"")], &[("cache-control", "private, max-age=60")]).await;
    let source = source(&server, &format!("cache = {{ scope = \"public\" }}\n{ONE}"));
    for _ in 0..4 {
        read(&source, "a://b").await.unwrap();
    }
    let contents = source.read(&uri("a://b"), &Context::default()).await.unwrap();
    assert_eq!((contents.freshness.scope, server.received().len()), (CacheScope::Private, 2));
}

/// Responses with large headers take as much memory as they have, so that few of them are cached.
#[tokio::test]
async fn headers_count_for_the_size_of_the_cache() {
    let large = "h".repeat(40_000);
    let server = Server::start(move |_| {
        Answer::new(200, "text/plain", "text").with("cache-control", "max-age=60").with("x-large", &large)
    })
    .await;
    let templates = "cache = { bytes = 1000000 }\n[[template]]\nuri = \"a://{x}\"\nurl = \"{/x}\"\n";
    let source = source(&server, templates);
    for _ in 0..2 {
        for number in 0..30 {
            read(&source, &format!("a://{number}")).await.unwrap();
        }
    }
    let asked = server.received().len();
    assert!(asked > 45, "{asked} requests for 2 × 30 reads");
}

#[tokio::test]
async fn a_response_is_proven_until_another_one_is_stored() {
    let number = Arc::new(AtomicU16::new(1));
    let said = number.clone();
    let server = Server::start(move |received| {
        let answer = Answer::json(said.load(Ordering::SeqCst)).with("cache-control", "max-age=60");
        answer.tagged(received)
    })
    .await;
    let source = source(&server, ONE);
    let mut changes = source.watch().await.unwrap().unwrap();
    let first = source.read(&uri("a://b"), &Context::default()).await.unwrap().freshness;
    let proof = first.proof.unwrap();
    assert!(proof.holds());
    assert!(first.expires.is_some(), "clients get the rest of the lifetime");
    source.follow(&uri("a://b"), Client::default());
    number.store(2, Ordering::SeqCst);
    let change =
        tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change is told");
    assert_eq!(change, Some(Change::Updated(uri("a://b"))));
    assert!(!proof.holds(), "a subscriber reads what has changed");
    let second = source.read(&uri("a://b"), &Context::default()).await.unwrap();
    assert!(second.freshness.proof.unwrap().holds());
}

#[tokio::test]
async fn lists_and_completions_are_proven_while_all_their_pages_are_fresh() {
    let config = "[[template]]\nuri = \"a://{id}\"\nurl = \"x/{id}\"\n\
                  list = { url = \"x\", values = { id = \"/id\" } }\n\
                  [[template]]\nuri = \"b://{size}\"\nurl = \"y/{size}\"\ncomplete = { size = [\"s\", \"m\"] }\n";
    for (second_page, is_proven) in [("max-age=60", true), ("no-cache", false)] {
        let server = Server::start(move |received| match received.target.contains("page=2") {
            false => Answer::json(serde_json::json!([{ "id": "1" }]))
                .with("cache-control", "max-age=60")
                .with("link", "<?page=2>; rel=\"next\""),
            true => Answer::json(serde_json::json!([{ "id": "2" }])).with("cache-control", second_page),
        })
        .await;
        let source = source(&server, config);
        let page = source.list(None, 10, &Context::default()).await.unwrap();
        assert_eq!(page.resources.len(), 2);
        assert_eq!(page.freshness.proof.is_some_and(|proof| proof.holds()), is_proven, "{second_page}");
        let complete = async |uri: &str, variable: &str| {
            let (template, known) = (UriTemplate::parse(uri).unwrap(), Default::default());
            let request =
                CompletionRequest { template: &template, variable, typed: "", known: &known, limit: 10 };
            source.complete(request, &Context::default()).await.unwrap()
        };
        let ids = complete("a://{id}", "id").await;
        assert_eq!(ids.values, ["1", "2"]);
        assert_eq!(ids.proof.is_some_and(|proof| proof.holds()), is_proven, "{second_page}");
        let sizes = complete("b://{size}", "size").await;
        assert!(sizes.proof.is_some_and(|proof| proof.holds()), "configured values never change");
    }
}

#[tokio::test]
async fn a_response_without_a_lifetime_has_no_proof() {
    for cache_control in ["no-store", "no-cache", "max-age=0"] {
        let server = Server::start(move |_| Answer::json("1").with("cache-control", cache_control)).await;
        let source = source(&server, ONE);
        let freshness = source.read(&uri("a://b"), &Context::default()).await.unwrap().freshness;
        assert!(freshness.proof.is_none() && freshness.expires.is_none(), "{cache_control}");
    }
}

#[tokio::test]
async fn a_change_that_another_replica_reports_drops_the_response() {
    let server = Server::start(|received| {
        Answer::json(format!("\"{}\"", received.target)).with("cache-control", "max-age=600")
    })
    .await;
    let source = source(&server, &format!("{ONE}[[resource]]\nuri = \"a://c\"\nurl = \"c\"\n"));
    let requests = async || {
        for text in ["a://b", "a://c"] {
            read(&source, text).await.unwrap();
        }
        let mut targets: Vec<_> = server.received().into_iter().map(|received| received.target).collect();
        targets.sort();
        targets
    };
    assert_eq!(requests().await, ["/b", "/c"]);
    assert_eq!(requests().await, Vec::<String>::new(), "both are cached");
    let kept = source.read(&uri("a://b"), &Context::default()).await.unwrap().freshness.proof.unwrap();
    source.invalidate(&Change::Updated(uri("a://b")));
    assert!(!kept.holds());
    assert_eq!(requests().await, ["/b"]);
    source.invalidate(&Change::Lost);
    assert_eq!(requests().await, ["/b", "/c"]);
}

#[tokio::test]
async fn a_request_from_before_a_reported_change_is_neither_joined_nor_stored() {
    let (asked, mut targets) = tokio::sync::mpsc::unbounded_channel();
    let answered = Arc::new(AtomicU16::new(0));
    let count = answered.clone();
    let server = Server::start(move |received| {
        asked.send(received.target.clone()).unwrap();
        match count.fetch_add(1, Ordering::SeqCst) {
            // The first request is under way until its client leaves.
            0 => Answer { body: Body::Never, ..Answer::json("") },
            _ => Answer::json("2").with("cache-control", "max-age=600"),
        }
    })
    .await;
    let source = Arc::new(source(&server, ONE));
    let early = source.clone();
    let early = tokio::spawn(async move { read(&*early, "a://b").await });
    targets.recv().await.unwrap();
    source.invalidate(&Change::Updated(uri("a://b")));
    assert_eq!(read(&*source, "a://b").await.unwrap(), "2", "it would wait for the first request otherwise");
    early.abort();
    assert_eq!(read(&*source, "a://b").await.unwrap(), "2");
    assert_eq!(answered.load(Ordering::SeqCst), 2, "the second read is from the cache");
}
