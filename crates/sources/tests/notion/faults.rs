//! Failures of the Notion API: rate limits, time-outs and invalid responses; no error contains the token.

use std::time::{Duration, Instant};

use libris_core::{Context, Error, Source as _, Uri};
use libris_sources::{Notion, notion};
use serde_json::json;

use super::Bench;
use super::server::{Odd, SOON, TOKEN, id};

fn furnish(bench: &Bench) {
    let mut workspace = bench.server.workspace();
    for number in 1..=9 {
        workspace.page(&id(number), &format!("Page {number}"), json!({ "type": "workspace" }));
    }
}

fn page(number: usize) -> String {
    format!("notion://pages/{}", id(number))
}

#[tokio::test]
async fn a_storm_is_ridden_out() {
    let bench = Bench::new().await;
    furnish(&bench);
    bench.server.workspace().storm = Some(Instant::now() + Duration::from_secs(2));
    let pages: Vec<_> = (1..=9).map(page).collect();
    let reads = futures_util::future::join_all(pages.iter().map(|uri| bench.read(uri)));
    let reads = tokio::time::timeout(SOON, reads).await.expect("it ends");
    assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    let workspace = bench.server.workspace();
    let until = workspace.storm.unwrap();
    let refused = workspace.requests.iter().filter(|(when, _)| *when < until).count();
    // Three may ask at the same time, and each waits as long as it is told to, which is until the end.
    assert!(refused <= 3, "{refused} requests in two seconds of storm");
}

#[tokio::test]
async fn a_request_is_not_retried_if_notion_asks_to_wait_longer_than_the_retry_timeout() {
    for status in [429, 503, 529] {
        let bench = Bench::with(|config| config.retry_timeout = Duration::from_secs(5)).await;
        furnish(&bench);
        {
            let mut workspace = bench.server.workspace();
            (workspace.refusal, workspace.retry_after) = (status, 60);
            workspace.storm = Some(Instant::now() + Duration::from_secs(3600));
        }
        let mut asked = [0; 3];
        for (number, asked) in asked.iter_mut().enumerate() {
            let error = bench.read(&page(number + 1)).await.unwrap_err();
            let said = error.to_string();
            assert!(said.starts_with(&format!("Notion answered {status}")), "{said}");
            // The wait began before the second read.
            assert!(
                said.ends_with("try again in 60 seconds") || number > 0 && said.contains("try again in "),
                "{said}"
            );
            *asked = bench.server.workspace().requests.len();
        }
        // The requests of the first read may be on their way together; those of the others are not sent.
        assert!(asked[0] <= 3 && asked == [asked[0]; 3], "{status}: {asked:?} requests");
    }
}

#[tokio::test]
async fn a_read_that_was_left_goes_on() {
    let bench = Bench::new().await;
    furnish(&bench);
    let until = Instant::now() + Duration::from_secs(1);
    bench.server.workspace().storm = Some(until);
    let left = tokio::time::timeout(Duration::from_millis(100), bench.read(&page(1))).await;
    assert!(left.is_err(), "{left:?}");
    let requests = |path: &str| {
        let workspace = bench.server.workspace();
        workspace.requests.iter().filter(|(when, asked)| *when > until && asked.contains(path)).count()
    };
    let done = async {
        while requests("/pages/") == 0 || requests("/blocks/") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, done).await.expect("it goes on");
    // Whoever asks again needs nothing more of Notion, and whoever asks then is given what is there.
    bench.server.workspace().odd = vec![("/v1/", Odd::Status(404))];
    assert!(bench.text(&page(1)).await.starts_with("# Page 1"));
    assert!(bench.read(&page(1)).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn retries_end_after_the_retry_timeout() {
    let bench = Bench::with(|config| config.retry_timeout = Duration::from_millis(1500)).await;
    furnish(&bench);
    bench.server.workspace().retry_after = 1;
    bench.server.workspace().storm = Some(Instant::now() + Duration::from_secs(3600));
    let error = bench.read(&page(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "Notion answered 429 Too Many Requests; try again in 1 second");
    bench.server.workspace().storm = None;
    bench.server.workspace().odd.push(("/blocks/", Odd::Down(2)));
    tokio::time::timeout(SOON, async { while bench.read(&page(1)).await.is_err() {} })
        .await
        .expect("it comes back");
}

#[tokio::test]
async fn the_list_of_before_is_better_than_none() {
    let bench = Bench::with(|config| {
        config.cache = Duration::ZERO;
        config.retry_timeout = Duration::ZERO;
    })
    .await;
    furnish(&bench);
    let before = bench.notion.list(None, 100, &Context::default()).await.unwrap().resources;
    bench.server.workspace().odd = vec![("/search", Odd::Status(503))];
    assert_eq!(bench.notion.list(None, 100, &Context::default()).await.unwrap().resources, before);
}

#[tokio::test]
async fn an_old_list_is_given_while_notion_is_down() {
    let bench = Bench::with(|config| config.cache = Duration::ZERO).await;
    furnish(&bench);
    let before = bench.notion.list(None, 100, &Context::default()).await.unwrap().resources;
    bench.server.workspace().odd = vec![("/search", Odd::Status(503))];
    // A search is tried for much longer than this.
    let lists = futures_util::future::join_all(
        (0..8).map(async |_| bench.notion.list(None, 100, &Context::default()).await),
    );
    let lists = tokio::time::timeout(Duration::from_secs(10), lists).await.expect("soon");
    assert!(lists.into_iter().all(|list| list.unwrap().resources == before));
    // The next read fails without waiting.
    let next =
        tokio::time::timeout(Duration::from_secs(1), bench.notion.list(None, 100, &Context::default())).await;
    assert_eq!(next.expect("at once").unwrap().resources, before);
}

#[tokio::test]
async fn a_search_that_fails_fails_once_for_all() {
    let bench = Bench::with(|config| config.retry_timeout = Duration::from_millis(600)).await;
    bench.server.workspace().odd = vec![("/search", Odd::Status(503))];
    let lists = futures_util::future::join_all(
        (0..8).map(async |_| bench.notion.list(None, 100, &Context::default()).await),
    )
    .await;
    for list in lists {
        let said = list.unwrap_err().to_string();
        assert_eq!(said, "Notion answered 503 Service Unavailable; try again later");
    }
    assert_eq!(bench.server.workspace().asked("/search"), 2);
}

#[tokio::test]
async fn each_fault_is_told() {
    let bench = Bench::with(|config| config.retry_timeout = Duration::from_millis(100)).await;
    furnish(&bench);
    let mut said = String::new();
    for (name, odd) in [
        ("401", Odd::Status(401)),
        ("403", Odd::Status(403)),
        ("404", Odd::Status(404)),
        ("400", Odd::Status(400)),
        ("500", Odd::Status(500)),
        ("html", Odd::Html),
        ("redirect", Odd::Redirect),
        ("huge", Odd::Huge),
        ("endless", Odd::Endless),
    ] {
        bench.server.workspace().odd = vec![("/blocks/", odd)];
        let error = bench.read(&page(1)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(TOKEN), "{shown}");
        said += &format!("{name}: {error}\n");
    }
    // How much had come when it was enough differs.
    insta::with_settings!({ filters => [(r"has \d+ bytes", "has [some] bytes")] }, {
        insta::assert_snapshot!(said, @r#"
        401: Notion answered 401 Unauthorized: check the token of this server
        403: no resource at `notion://pages/0b5f3c1e-0000-4000-8000-000000000001`: Notion answered 403 Forbidden: check that the connection of this server may read content
        404: no resource at `notion://pages/0b5f3c1e-0000-4000-8000-000000000001`: Notion has no such page or database, or it is not shared with the connection of this server; hint: share it with the connection in Notion
        400: could not query Notion
        500: Notion answered 500 Internal Server Error; try again later
        html: could not parse the response of Notion
        redirect: could not query Notion
        huge: `notion://pages/0b5f3c1e-0000-4000-8000-000000000001` has [some] bytes, more than the limit of 8388608
        endless: this takes too many requests to Notion; read a smaller page or database
        "#);
    });
    // Other pages are not affected.
    assert!(bench.read("notion://workspace/info").await.is_ok());
}

#[tokio::test]
async fn what_is_missing_is_not_found() {
    let bench = Bench::new().await;
    furnish(&bench);
    bench.server.workspace().pages.get_mut(&id(2)).unwrap()["in_trash"] = true.into();
    bench.server.workspace().database(&id(100), &id(101), "Tasks");
    let rows = |number: usize| format!("notion://databases/{}/rows", id(number));
    for uri in [page(77), page(2), page(100), "notion://pages/abc123".into(), rows(1)] {
        match bench.read(&uri).await {
            Err(Error::Missing { uri: at, .. }) => assert_eq!(at.as_str(), uri),
            other => panic!("{uri}: {other:?}"),
        }
    }
    let error = bench.read(&format!("{}?after=0.elsewhere", rows(100))).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    let listed = bench.notion.list(None, 100, &Context::default()).await.unwrap().resources;
    assert!(!listed.iter().any(|resource| resource.uri.as_str() == page(2)));
    // None of them was asked for in a way that could mean something else.
    let asked = bench.server.workspace().requests.iter().any(|(_, path)| path.contains("abc123"));
    assert!(!asked);
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let config = notion::Config {
        url: "http://127.0.0.1:9".into(),
        retry_timeout: Duration::ZERO,
        ..Default::default()
    };
    let notion = Notion::with_token(config, TOKEN).unwrap();
    let error = notion.list(None, 1, &Context::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "Notion does not answer now; try again later");
    // Whoever watches other things is not kept from it.
    assert!(notion.watch().await.unwrap().is_some());
}

#[test]
fn the_token_is_not_sent_in_the_clear() {
    let said = |url: &str| {
        let config = notion::Config { url: url.into(), ..Default::default() };
        Notion::with_token(config, TOKEN).err().map(|error| error.to_string())
    };
    assert_eq!(said("https://notion.example"), None);
    assert_eq!(said("http://localhost:1"), None);
    for url in ["http://notion.example", "ftp://localhost", "nothing", "http://localhost.example"] {
        assert!(said(url).expect("a refusal").contains(url), "{url}");
    }
    let config = notion::Config { token_env: "LIBRIS_TEST_NO_SUCH_TOKEN".into(), ..Default::default() };
    let error = Notion::new(config).err().unwrap().to_string();
    assert_eq!(error, "the environment variable `LIBRIS_TEST_NO_SUCH_TOKEN` has no Notion token: set it");
}

#[tokio::test]
async fn what_is_the_same_is_watched_as_one() {
    let bench = Bench::new().await;
    let subject = |uri: &str| bench.notion.subject(&Uri::parse(uri).unwrap()).to_string();
    let bare = id(1).replace('-', "");
    assert_eq!(subject(&format!("notion://workspace/pages/{bare}?format=json")), page(1));
    assert_eq!(
        subject(&format!("notion://databases/{bare}/rows?after=0.x")),
        format!("notion://databases/{}/rows", id(1))
    );
    assert_eq!(subject("notion://workspace/info"), "notion://workspace/info");
}
