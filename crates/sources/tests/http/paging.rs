//! Pages of lists and of resources.

use libris_core::{CompletionRequest, Context, Meta, Source, UriTemplate};
use libris_sources::Http;
use serde_json::{Value, json};

use crate::server::{Answer, Received, Server};
use crate::{source, uri};

/// The page in the query of a request, from 1.
fn page(received: &Received, parameter: &str) -> u64 {
    let url = url::Url::parse(&format!("http://x{}", received.target)).unwrap();
    url.query_pairs().find(|(name, _)| name == parameter).map_or(1, |(_, value)| value.parse().unwrap())
}

/// Three pages of two stations each.
fn stations(page: u64) -> Value {
    json!([{ "id": format!("s{}", 2 * page - 1) }, { "id": format!("s{}", 2 * page) }])
}

fn linked(received: &Received) -> Answer {
    let page = page(received, "page");
    let answer = Answer::json(stations(page)).with("cache-control", "no-cache").tagged(received);
    match page {
        1 | 2 => answer.with("link", format!("<?page={}>; rel=\"next\", <?page=3>; rel=\"last\"", page + 1)),
        _ => answer,
    }
}

fn cursors(received: &Received) -> Answer {
    let page = page(received, "after");
    Answer::json(json!({ "data": stations(page), "paging": { "after": (page < 3).then_some(page + 1) } }))
}

async fn listed(source: &Http) -> String {
    match source.list(None, 100, &Context::default()).await {
        Ok(page) => page.resources.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

fn template(list: &str) -> String {
    format!("[[template]]\nuri = \"a://{{id}}\"\nurl = \"stations/{{id}}\"\nlist = {{ {list} }}\n")
}

const VALUES: &str = "values = { id = \"/id\" }";

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let server = Server::start(linked).await;
    let query = "query = { key = \"k\" }\n";
    let all = source(&server, &(query.to_owned() + &template(&format!("url = \"stations\", {VALUES}"))));
    assert_eq!(listed(&all).await, "s1 s2 s3 s4 s5 s6");
    let asked: Vec<_> = server.received().into_iter().map(|received| received.target).collect();
    assert_eq!(asked, ["/stations?key=k", "/stations?page=2&key=k", "/stations?page=3&key=k"]);
    // Completion uses all pages too.
    let uri = UriTemplate::parse("a://{id}").unwrap();
    let known = Default::default();
    let asked = CompletionRequest { template: &uri, variable: "id", typed: "s", known: &known, limit: 100 };
    assert_eq!(all.complete(asked, &Context::default()).await.unwrap().total, Some(6));

    for (pages, expected) in [(1, "s1 s2"), (2, "s1 s2 s3 s4")] {
        let some = source(&server, &template(&format!("url = \"stations\", {VALUES}, max_pages = {pages}")));
        assert_eq!(listed(&some).await, expected);
    }
}

#[tokio::test]
async fn cursors_are_followed() {
    let server = Server::start(cursors).await;
    let list = format!(
        "url = \"stations?size=2\", items = \"/data\", {VALUES}, next = \"/paging/after\", cursor = \"after\""
    );
    assert_eq!(listed(&source(&server, &template(&list))).await, "s1 s2 s3 s4 s5 s6");
    let asked: Vec<_> = server.received().into_iter().map(|received| received.target).collect();
    assert_eq!(asked, ["/stations?size=2", "/stations?size=2&after=2", "/stations?size=2&after=3"]);

    // The URL of the next page, and completions.
    let server = Server::start(|received| {
        let page = page(received, "p");
        Answer::json(json!({ "data": stations(page), "next": (page < 3).then(|| format!("/stations?p={}", page + 1)) }))
    })
    .await;
    let complete =
        "complete = { id = { url = \"stations\", items = \"/data\", value = \"/id\", next = \"/next\" } }";
    let source =
        source(&server, &format!("[[template]]\nuri = \"a://{{id}}\"\nurl = \"{{id}}\"\n{complete}\n"));
    let uri = UriTemplate::parse("a://{id}").unwrap();
    let known = Default::default();
    let asked = CompletionRequest { template: &uri, variable: "id", typed: "", known: &known, limit: 100 };
    assert_eq!(source.complete(asked, &Context::default()).await.unwrap().total, Some(6));
}

#[tokio::test]
async fn pages_end() {
    // A page that fails, one that names itself, and one elsewhere.
    let elsewhere = Server::start(|_| Answer::json("[]")).await;
    let url = elsewhere.url();
    let server = Server::start(move |received| match received.target.as_str() {
        "/broken" => Answer::json(stations(1)).with("link", "<?page=2>; rel=next"),
        "/broken?page=2" => Answer::status(403),
        "/loop" => Answer::json(stations(1)).with("link", "</loop>; rel=next"),
        "/elsewhere" => Answer::json(stations(1)).with("link", format!("<{url}>; rel=next")),
        _ => Answer::status(404),
    })
    .await;
    let list =
        async |url: &str| listed(&source(&server, &template(&format!("url = \"{url}\", {VALUES}")))).await;
    assert_eq!(
        list("broken").await,
        "the service with the list for `a://{id}` answered 403 Forbidden: check the rights of the credentials that this server sends"
    );
    assert_eq!(list("loop").await, "s1 s2");
    assert_eq!(list("elsewhere").await, "s1 s2");
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn a_change_on_a_later_page_is_noticed() {
    let more = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = more.clone();
    let server = Server::start(move |received| match page(received, "page") {
        2 if seen.load(std::sync::atomic::Ordering::SeqCst) => Answer::json(stations(3)),
        2 => Answer::json(stations(2)),
        _ => linked(received),
    })
    .await;
    let source = source(&server, &template(&format!("url = \"stations\", {VALUES}")));
    assert_eq!(listed(&source).await, "s1 s2 s3 s4");
    more.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(listed(&source).await, "s1 s2 s5 s6");
}

#[tokio::test]
async fn a_wrong_pointer_is_named() {
    let server = Server::start(|_| Answer::json(json!({ "data": { "stations": 7 } }))).await;
    let list = async |items: &str| {
        listed(&source(&server, &template(&format!("url = \"stations\", items = \"{items}\", {VALUES}"))))
            .await
    };
    assert_eq!(
        list("/stations").await,
        "the list for `a://{id}` cannot be used: the response has nothing at the JSON pointer `/stations`; correct `items` in the configuration"
    );
    assert_eq!(
        list("/data/stations").await,
        "the list for `a://{id}` cannot be used: what the response has at the JSON pointer `/data/stations` is not an array or an object; correct `items` in the configuration"
    );
    let complete = "complete = { id = { url = \"stations\", items = \"/stations\" } }";
    let source =
        source(&server, &format!("[[template]]\nuri = \"a://{{id}}\"\nurl = \"{{id}}\"\n{complete}\n"));
    let uri = UriTemplate::parse("a://{id}").unwrap();
    let known = Default::default();
    let asked = CompletionRequest { template: &uri, variable: "id", typed: "", known: &known, limit: 100 };
    let error = source.complete(asked, &Context::default()).await.unwrap_err().to_string();
    assert!(error.contains("nothing at the JSON pointer `/stations`; correct `items`"), "{error}");
}

async fn meta(source: &Http, text: &str) -> Option<Meta> {
    source.read(&uri(text), &Context::default()).await.unwrap().parts.remove(0).meta
}

#[tokio::test]
async fn the_next_page_of_a_resource_is_a_uri() {
    let server = Server::start(|received| {
        let next = match received.target.as_str() {
            "/repos/o/r/issues?state=open&token=t" => {
                "</repositories/7/issues?state=open&page=2&token=t>; rel=next"
            }
            "/repos/o/r/issues?state=open&page=2&token=t" => "<?state=open&page=3&label=a&label=b>; rel=next",
            "/repos/o/r/issues?label=a&label=b&token=t" => "<?cursor=x>; rel=next",
            "/repos/o/r/issues?token=t" => "</repositories/7/pulls?page=2>; rel=next",
            "/all?token=t" => "</all?page=2>; rel=next",
            _ => return Answer::json("[]"),
        };
        Answer::json("[]").with("link", next)
    })
    .await;
    let source = source(
        &server,
        r#"
        query = { token = "t" }
        [[template]]
        uri = "git://{owner}/{repo}/issues{?state,page,label*}"
        url = "repos/{owner}/{repo}/issues{?state,page,label*}"
        [[resource]]
        uri = "git://all"
        url = "all"
        [[template]]
        uri = "git://all{?page}"
        url = "all{?page}"
        "#,
    );
    for (text, key, value) in [
        ("git://o/r/issues?state=open", "dev.libris/next", json!("git://o/r/issues?state=open&page=2")),
        (
            "git://o/r/issues?state=open&page=2",
            "dev.libris/next",
            json!("git://o/r/issues?state=open&page=3&label=a&label=b"),
        ),
        // No template has these parameters, or this path.
        ("git://o/r/issues?label=a&label=b", "dev.libris/more", json!(true)),
        ("git://o/r/issues", "dev.libris/more", json!(true)),
        ("git://all", "dev.libris/next", json!("git://all?page=2")),
    ] {
        assert_eq!(meta(&source, text).await, Some(Meta::from_iter([(key.to_owned(), value)])), "{text}");
    }
    assert_eq!(meta(&source, "git://all?page=2").await, None);
}

/// The next page names itself by a cursor of many bytes, which would be a part of each URL that follows.
#[tokio::test]
async fn a_cursor_that_is_too_long_is_not_followed() {
    let server =
        Server::start(|_| Answer::json(json!({ "data": stations(1), "after": "c".repeat(100_000) }))).await;
    let list =
        format!("url = \"stations\", items = \"/data\", {VALUES}, next = \"/after\", cursor = \"after\"");
    let said = listed(&source(&server, &template(&list))).await;
    assert!(said.contains("sent malformed JSON"), "{said}");
    assert_eq!(server.received().len(), 1);
}

/// Every page has a next one, and each is large.
#[tokio::test]
async fn a_list_without_an_end_stops() {
    let server = Server::start(|received| {
        let page = page(received, "page");
        let padding = "x".repeat(100_000);
        Answer::json(json!([{ "id": format!("s{page}"), "padding": padding }]))
            .with("link", format!("<?page={}>; rel=next", page + 1))
    })
    .await;
    let list = template(&format!("url = \"stations\", {VALUES}, max_pages = 100"));
    // Of pages of 100 KB, eleven exceed the size of one response, which is 1 MiB here.
    assert_eq!(listed(&source(&server, &list)).await.split(' ').count(), 11);
    assert_eq!(server.received().len(), 11);
}
