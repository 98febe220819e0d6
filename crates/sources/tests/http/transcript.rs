//! What a client gets from an HTTP API, with and without an OpenAPI document.

use libris_sources::Http;
use libris_sources::http::openapi::{self, Config};
use serde_json::json;

use crate::server::{Answer, Received, Server};
use crate::source;

#[path = "../transcripts/mod.rs"]
mod transcripts;

fn weather(received: &Received) -> Answer {
    match received.target.as_str() {
        "/stations" => Answer::json(json!({ "data": [
            { "id": "lima", "name": "Lima" },
            { "id": "paris", "name": "Paris" },
        ] })),
        "/stations/lima" => Answer::json(json!({ "id": "lima", "temperature": 18 })),
        "/history/lima" => Answer::json(json!(["Monday", "Tuesday"])).with("link", "<?page=2>; rel=next"),
        "/history/lima?page=2" => Answer::json(json!(["Wednesday"])),
        "/status/429" => Answer::status(429).with("retry-after", 30),
        target => match target.strip_prefix("/status/") {
            Some(status) => Answer::status(status.parse().unwrap()),
            None => Answer::status(404),
        },
    }
}

#[tokio::test]
async fn an_api() {
    let server = Server::start(weather).await;
    let source = source(
        &server,
        r#"
        [[resource]]
        uri = "weather://stations"
        url = "stations"
        title = "Stations"
        description = "All stations."
        mime = "application/json"

        [[template]]
        uri = "weather://station/{id}"
        url = "stations/{id}"
        mime = "application/json"
        title = "A station"
        list = { from = "weather://stations", items = "/data", values = { id = "/id" }, title = "/name" }

        [[template]]
        uri = "weather://history/{id}{?page}"
        url = "history/{id}{?page}"

        [[template]]
        uri = "weather://status/{code}"
        url = "status/{code}"
        complete = { code = { from = "weather://stations", items = "/stations" } }
        "#,
    );
    let mut transcript = transcripts::Transcript::of(&source);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("weather://station/{id}", "id", "pa").await;
    transcript.complete("weather://status/{code}", "code", "").await;
    for uri in [
        "weather://station/lima",
        "weather://history/lima",
        "weather://history/lima?page=2",
        "weather://station/limaa",
        "weather://station/quito",
        "weather://stations/lima",
        "weather://history/lima?pages=2",
        "weather://status/400",
        "weather://status/401",
        "weather://status/403",
        "weather://status/404",
        "weather://status/500",
        "weather://status/429",
    ] {
        transcript.read(uri).await;
    }
    insta::assert_snapshot!("http", transcript.text());
}

const LIBRARY: &str = r#"
openapi: 3.1.0
info: { title: City Library }
paths:
  /branches:
    get:
      operationId: listBranches
      tags: [branches]
  /books:
    get:
      operationId: listBooks
      summary: The books of the library
      description: All books, or those of one language.
      tags: [books]
      parameters:
        - { name: language, in: query, description: "The language of the books. An ISO code.", schema: { enum: [en, fr, es], default: en } }
        - { name: genre, in: query, schema: { type: array, items: { type: string, enum: [novel, poetry, science] } } }
        - { name: page, in: query, description: The page, schema: { type: integer, default: 1 } }
      responses:
        200: { content: { application/json: {} } }
  /books/{book-id}:
    get:
      operationId: getBook
      summary: One book
      tags: [books]
      parameters:
        - { name: book-id, in: path, required: true, description: The number of the book, schema: { type: string } }
  /admin/users:
    get: { operationId: listUsers, tags: [admin, books] }
"#;

fn library(received: &Received) -> Answer {
    match received.target.as_str() {
        "/books" => Answer::json(json!(["Emma", "Ulysses"])).with("link", "</books?page=2>; rel=\"next\""),
        "/books?page=2" => Answer::json(json!(["Candide"])),
        "/books?genre=novel&genre=poetry&language=fr" => Answer::json(json!(["Candide"])),
        _ => Answer::status(404),
    }
}

#[tokio::test]
async fn an_openapi_document() {
    let server = Server::start(library).await;
    let config = Config {
        base: Some(server.url()),
        name: Some("library".into()),
        tags: vec!["books".into()],
        exclude: vec!["/admin/**".into()],
        ..Config::new(server.url())
    };
    let source = Http::new(openapi::derive(&config, LIBRARY).unwrap()).unwrap();
    let mut transcript = transcripts::Transcript::of(&source);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("library://books{?genre*,language,page}", "language", "").await;
    for uri in [
        "library://books",
        "library://books?page=2",
        "library://books?genre=novel&genre=poetry&language=fr",
        "library://books?language=de",
        "library://books?genre=novel&genre=poems",
        "library://books?langauge=fr",
        "library://book/7",
        "library://books/7",
    ] {
        transcript.read(uri).await;
    }
    insta::assert_snapshot!("openapi", transcript.text());
}

#[test]
fn operations_are_selected() {
    let selected = |config: Config| {
        let config = Config { base: Some("https://api.example".into()), ..config };
        let http = openapi::derive(&config, LIBRARY).map_err(|error| error.to_string())?;
        let resources = http.resources.iter().map(|entry| entry.uri.to_string());
        let templates = http.templates.iter().map(|entry| entry.uri.to_string());
        Ok::<_, String>(resources.chain(templates).collect::<Vec<_>>().join(" "))
    };
    let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    let include = |items: &[&str]| selected(Config { include: list(items), ..Config::new("a.yaml") });
    let exclude = |items: &[&str]| selected(Config { exclude: list(items), ..Config::new("a.yaml") });
    let tags = |items: &[&str]| selected(Config { tags: list(items), ..Config::new("a.yaml") });
    let name = |name: &str| {
        selected(Config {
            name: Some(name.to_owned()),
            include: list(&["/branches"]),
            ..Config::new("a.yaml")
        })
    };
    let told = [
        include(&["/books/*"]),
        include(&["/b*", "listUsers"]),
        include(&["/books/{book-id}"]),
        exclude(&["list*"]),
        exclude(&["/**"]),
        tags(&["branches", "admin"]),
        tags(&["boks"]),
        include(&["/boks"]),
        include(&["users"]),
        name("lib"),
        name("api://library"),
        name("api://library/v1"),
        name("Not a scheme"),
    ];
    let told: Vec<_> =
        told.into_iter().map(|told| told.unwrap_or_else(|error| format!("error: {error}"))).collect();
    insta::assert_snapshot!("selected", told.join("\n"));
}
