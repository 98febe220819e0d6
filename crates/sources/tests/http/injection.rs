//! URL and header injection through template variables.

use libris_core::uri_template::Variables;
use libris_core::{Uri, UriTemplate};
use libris_sources::Http;

use crate::server::{Answer, Server};
use crate::{config, read, refusal, source};

const ATTEMPTS: [&str; 24] = [
    "../",
    "..",
    "../../admin",
    "..%2fadmin",
    "%2e%2e/admin",
    "?x=y",
    "#x",
    "@evil.example",
    "//evil.example",
    "https://evil.example/",
    "x\r\nx-evil: yes",
    "x\nGET /evil HTTP/1.1\n\n",
    ";rm -rf /",
    "$(reboot)",
    "`reboot`",
    "-rf",
    "a\0b",
    "%00",
    "..\\..\\admin",
    "\u{2024}\u{2024}/",
    "\u{ff0e}\u{ff0e}\u{ff0f}",
    "&x=y",
    "{city}",
    "LONG",
];

#[tokio::test]
async fn values_change_nothing_but_themselves() {
    let server = Server::start(|_| Answer::json("{}")).await;
    let source = source(
        &server,
        r#"
        query = { fixed = "1" }
        [[template]]
        uri = "weather://forecast/{city}{?date}"
        url = "forecast/{city}/daily{?date}"
        "#,
    );
    let template = UriTemplate::parse("weather://forecast/{city}{?date}").unwrap();
    let long = "x".repeat(7_000);
    let (mut in_path, mut in_query) = (0, 0);
    for attempt in ATTEMPTS {
        let attempt = if attempt == "LONG" { &long } else { attempt };
        for (city, date) in [(attempt, "today"), ("Paris", attempt)] {
            let expanded = template.expand(&Variables::from_iter([("city", city), ("date", date)])).unwrap();
            // The same value with fewer characters escaped.
            for text in [expanded, format!("weather://forecast/{city}?date={date}")] {
                let Ok(uri) = Uri::parse(&text) else { continue };
                let _ = read(&source, uri.as_str()).await;
            }
            for received in server.received() {
                let (path, query) = received.target.split_once('?').expect(&received.target);
                let segments: Vec<_> = path.split('/').collect();
                assert_eq!(segments.len(), 4, "{attempt:?}: {}", received.target);
                assert_eq!((segments[0], segments[1], segments[3]), ("", "forecast", "daily"));
                let city = String::from_utf8(Uri::decode_segment(segments[2]).unwrap()).unwrap();
                assert!(!city.split(['/', '\\']).any(|piece| piece == ".."), "{attempt:?}: {city}");
                let names: Vec<_> = query.split('&').map(|pair| pair.split('=').next().unwrap()).collect();
                assert!(names == ["date", "fixed"] || names == ["fixed"], "{attempt:?}: {query}");
                assert_eq!(received.method, "GET");
                assert_eq!(received.header("host"), Some(&*server.address.to_string()));
                let headers: Vec<_> = received.headers.iter().map(|(name, _)| name.as_str()).collect();
                let mut sorted = headers.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, ["accept", "accept-encoding", "host", "user-agent"], "{attempt:?}");
                match city == attempt {
                    true => in_path += 1,
                    false => in_query += 1,
                }
            }
        }
    }
    // Harmless values reach the upstream, escaped.
    assert!(in_path >= 10 && in_query >= 10, "{in_path} {in_query}");
}

#[tokio::test]
async fn parameters_are_those_that_the_template_names() {
    let server = Server::start(|_| Answer::json("{}")).await;
    let source = source(
        &server,
        r#"
        query = { tenant = "acme" }
        [[template]]
        uri = "books://all{?genre*,page}"
        url = "books{?genre*,page}"
        [[template]]
        uri = "books://tagged{;tags*}"
        url = "tagged{;tags*}"
        "#,
    );
    for uri in [
        "books://all?tenant=evil",
        "books://all?tenant=evil&admin=true",
        "books://all?genre=novel&tenant=evil",
        "books://all?page=1&te%6eant=evil",
        "books://tagged;admin=true",
    ] {
        let refused = refusal(&source, uri).await;
        assert!(refused.starts_with(&format!("no resource at `{}`", Uri::parse(uri).unwrap())), "{refused}");
    }
    assert!(server.received().is_empty());
    read(&source, "books://all?genre=novel&page=1&genre=poetry").await.unwrap();
    assert_eq!(server.received()[0].target, "/books?genre=novel&genre=poetry&page=1&tenant=acme");
}

#[test]
fn what_the_configuration_sets_cannot_be_a_variable_too() {
    for (url, name) in
        [("b{?tenant}", "tenant"), ("b?tenant={x}", "tenant"), ("b?page%2dsize={x}", "page-size")]
    {
        let text = format!(
            "base = \"https://x.example\"\nquery = {{ {name} = \"acme\" }}\n\
             [[template]]\nuri = \"a://b{{?x,tenant}}\"\nurl = \"{url}\"\n"
        );
        let expected = format!(
            "`a://b{{?x,tenant}}`: its URL has the parameter `{name}`, which `query` sets; hint: remove one of them"
        );
        assert_eq!(Http::new(config(&text)).err().unwrap().to_string(), expected);
    }
}
