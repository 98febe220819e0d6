//! Resources and templates from OpenAPI documents.

use std::collections::BTreeMap;
use std::path::Path;

use libris_core::{CompletionRequest, Context, Source, UriTemplate};
use libris_sources::Http;
use libris_sources::http::openapi::{self, Config};
use libris_sources::http::{Choice, Choices, TextOrSecret};
use serde_json::json;

use crate::server::{Answer, Server};
use crate::{read, refusal};

const LIBRARY: &str = include_str!("../../../../examples/openapi/library.yaml");

#[tokio::test]
async fn what_can_be_got_is_served() {
    let server = Server::start(|received| match received.target.as_str() {
        "/openapi.yaml" => {
            Answer::new(200, "text/yaml", LIBRARY.replace("https://api.library.example/{version}", "/v1"))
        }
        "/v1/books/a%20b/text" => Answer::new(200, "text/markdown", "# A"),
        target if target.starts_with("/v1/") => Answer::json(json!(target)),
        _ => Answer::status(404),
    })
    .await;
    // A host named on the command line is an allowed host.
    let config = Config::new(format!("{}/openapi.yaml", server.url()));
    let document = openapi::read(&config, Path::new("")).await.unwrap();
    let source = Http::new(openapi::derive(&config, &document).unwrap()).unwrap();

    let listed = source.list(None, 100, &Context::default()).await.unwrap().resources;
    let listed: Vec<_> =
        listed.iter().map(|one| (one.uri.as_str(), &*one.name, one.title.as_deref())).collect();
    assert_eq!(
        listed,
        [
            ("city-library://books", "listBooks", Some("The books of the library")),
            ("city-library://branches", "listBranches", Some("All branches")),
        ]
    );
    let templates = source.templates(&Context::default()).await.unwrap().templates;
    let mut texts: Vec<_> =
        templates.iter().map(|one| (one.uri.as_str(), one.mime.as_deref().unwrap())).collect();
    texts.sort_unstable();
    assert_eq!(
        texts,
        [
            ("city-library://books/{book_id}", "application/json"),
            ("city-library://books/{book_id}/text", "text/markdown"),
            ("city-library://books{?genre*,language,page_size}", "application/json"),
            ("city-library://search{?q}", "application/json"),
        ]
    );
    for (uri, target) in [
        ("city-library://branches", "/v1/branches"),
        ("city-library://books", "/v1/books"),
        ("city-library://books?language=fr&page_size=5", "/v1/books?language=fr&page%2Dsize=5"),
        ("city-library://books?genre=novel&genre=poetry", "/v1/books?genre=novel&genre=poetry"),
        ("city-library://books/7", "/v1/books/7"),
        ("city-library://search?q=a%26b", "/v1/search?q=a%26b"),
    ] {
        assert_eq!(read(&source, uri).await.unwrap(), json!(target).to_string());
    }
    assert_eq!(read(&source, "city-library://books/a%20b/text").await.unwrap(), "# A");
    assert_eq!(
        refusal(&source, "city-library://search").await,
        "`city-library://search` lacks a value for `q`: add one"
    );
    let template = UriTemplate::parse("city-library://books{?genre*,language,page_size}").unwrap();
    let known = Default::default();
    let asked =
        CompletionRequest { template: &template, variable: "language", typed: "", known: &known, limit: 100 };
    assert_eq!(source.complete(asked, &Context::default()).await.unwrap().values, ["en", "fr", "es"]);
}

/// The headers of the configuration go to every operation and with the request for the document itself, and a header
/// parameter of an operation that they have needs no value.
#[tokio::test]
async fn configured_headers_are_sent() {
    const DOCUMENT: &str = r#"
    openapi: 3.1.0
    info: { title: Library }
    servers: [{ url: /v1 }]
    paths:
      /books:
        get:
          operationId: listBooks
          parameters: [{ name: X-Tenant, in: header, required: true, schema: { type: string } }]
          responses: { 200: { content: { application/json: {} } } }
    "#;
    let server = Server::start(|received| match received.target.as_str() {
        "/openapi.yaml" => Answer::new(200, "text/yaml", DOCUMENT),
        _ => Answer::json(json!("books")),
    })
    .await;
    let configured: Config = toml::from_str(&format!(
        r#"
        document = "{}/openapi.yaml"
        limits = {{ allow_private = true }}
        headers = {{ authorization = {{ env = "CARGO_PKG_NAME", prefix = "Bearer " }}, x-tenant = "main" }}
        "#,
        server.url()
    ))
    .unwrap();
    let document = openapi::read(&configured, Path::new("")).await.unwrap();
    let source = Http::new(openapi::derive(&configured, &document).unwrap()).unwrap();
    assert_eq!(read(&source, "library://books").await.unwrap(), "\"books\"");
    let received = server.received();
    assert_eq!(received.iter().map(|one| &*one.target).collect::<Vec<_>>(), ["/openapi.yaml", "/v1/books"]);
    for request in &received {
        assert_eq!(request.header("authorization"), Some("Bearer libris-sources"), "{}", request.target);
        assert_eq!(request.header("x-tenant"), Some("main"), "{}", request.target);
    }
    // Without the header, the operation cannot be called, so it is not served.
    let without = Config { headers: BTreeMap::new(), ..configured };
    let refused = openapi::derive(&without, &document).unwrap_err().to_string();
    assert!(refused.contains("no GET operation that can be served"), "{refused}");
}

fn config() -> Config {
    Config { base: Some("https://api.example".into()), ..Config::new("api.json") }
}

fn derived(document: &str) -> Result<libris_sources::http::Config, String> {
    openapi::derive(&config(), document).map_err(|error| error.to_string())
}

#[test]
fn documents_that_cannot_be_served_say_why() {
    for (document, expected) in [
        ("", "it has no key `openapi`"),
        ("{", "cannot be read"),
        ("a: [", "cannot be read"),
        ("swagger: '2.0'", "convert it to OpenAPI 3"),
        ("openapi: 4.0.0", "it is of OpenAPI 4.0.0; hint: convert it to OpenAPI 3"),
        (
            "openapi: 3.0.0\npaths: {}",
            "no GET operation that can be served; hint: see the warnings about operations that are left out",
        ),
        (
            "openapi: 3.0.0\npaths: { /a: { post: {} } }",
            "no GET operation that can be served; hint: see the warnings about operations that are left out",
        ),
        // A required parameter that a URI cannot carry.
        (
            "openapi: 3.0.0\npaths: { /a: { get: { parameters: [{ name: x, in: header, required: true }] } } }",
            "no GET operation that can be served; hint: see the warnings about operations that are left out",
        ),
        // Cyclic references, and references to other documents.
        (
            "openapi: 3.0.0\npaths: { /a: { $ref: '#/paths/~1a' } }",
            "no GET operation that can be served; hint: see the warnings about operations that are left out",
        ),
        (
            "openapi: 3.0.0\npaths: { /a: { $ref: 'file:///etc/passwd' } }",
            "no GET operation that can be served; hint: see the warnings about operations that are left out",
        ),
    ] {
        let error = derived(document).unwrap_err();
        assert!(error.contains(expected), "{document}: {error}");
    }
    let nowhere =
        openapi::derive(&Config::new("a.json"), "openapi: 3.0.0\npaths: {}").unwrap_err().to_string();
    assert!(nowhere.contains("set `base`"), "{nowhere}");
}

#[test]
fn a_document_cannot_make_much_of_little() {
    // YAML aliases: each line refers twice to the previous one, which would expand exponentially.
    let mut bomb = String::from("openapi: 3.0.0\na0: &a0 [x, x]\n");
    for line in 1..40 {
        bomb.push_str(&format!("a{line}: &a{line} [*a{}, *a{}]\n", line - 1, line - 1));
    }
    assert!(derived(&bomb).unwrap_err().contains("cannot be read"));
    let deep = format!("openapi: 3.0.0\nx: {}", "[".repeat(100_000));
    assert!(derived(&deep).unwrap_err().contains("cannot be read"));
    let deep = format!("{{\"openapi\": \"3.0.0\", \"x\": {}", "[".repeat(100_000));
    assert!(derived(&deep).unwrap_err().contains("cannot be read"));
}

#[test]
fn odd_paths_become_uris() {
    let path =
        |path: &str| format!("{{\"openapi\": \"3.0.0\", \"paths\": {{ \"{path}\": {{ \"get\": {{}} }} }} }}");
    for (written, expected) in [
        ("/", "api:///"),
        ("/users:all", "api://users%3Aall"),
        ("/me@home/x", "api://me%40home/x"),
        ("/a/{b}.json", "api://a/{b}.json"),
        ("/{a-b}/{c.d}", "api://{a_b}/{c_d}"),
    ] {
        let config = derived(&path(written)).unwrap();
        let resource = config.resources.first().map(|entry| entry.uri.to_string());
        let found = resource.or_else(|| config.templates.first().map(|entry| entry.uri.to_string()));
        assert_eq!(found.as_deref(), Some(expected), "{written}");
        Http::new(config).unwrap();
    }
    let twice = "openapi: 3.0.0\npaths: { '/{id}': { get: { parameters: [{ name: id, in: query }] } } }";
    assert_eq!(derived(twice).unwrap().templates[0].uri.as_str(), "api://{id}{?id_}");
    for wrong in ["x", "/a/{b", "/a b"] {
        assert!(derived(&path(wrong)).is_err(), "{wrong}");
    }
}

/// The template of a document with one operation with these parameters, and the completions of each.
fn with_parameters(parameters: &str) -> (String, BTreeMap<String, Vec<String>>) {
    let document = format!(
        "openapi: 3.1.0
paths: {{ /a: {{ get: {{ parameters: [{parameters}] }} }} }}
components: {{ schemas: {{
    Sort: {{ type: string, enum: [asc, desc] }},
    Box: {{ type: object }},
    Circle: {{ anyOf: [{{ $ref: '#/components/schemas/Circle' }}] }} }} }}"
    );
    let template = derived(&document).unwrap().templates.remove(0);
    let offered = template.complete.into_iter().map(|(name, choices)| match choices {
        Choices::Fixed(choices) => (name, choices.iter().map(plain).collect()),
        Choices::Found(found) => panic!("{found:?}"),
    });
    (template.uri.as_str().to_owned(), offered.collect())
}

fn plain(choice: &Choice) -> String {
    match choice {
        Choice::Plain(value) => value.clone(),
        Choice::Labelled { value, label } => panic!("{value} {label}"),
    }
}

#[test]
fn words_that_are_truths_elsewhere_stay_words() {
    let (uri, offered) = with_parameters(
        "{ name: y, in: query }, { name: country, in: query, schema: { enum: [DK, NO, on, true] } }",
    );
    assert_eq!(uri, "api://a{?country,y}");
    assert_eq!(offered["country"], ["DK", "NO", "on", "true"]);
}

#[test]
fn what_is_wrapped_is_found() {
    let (uri, offered) = with_parameters(
        "{ name: a, in: query, schema: { anyOf: [{ type: array, items: { $ref: '#/components/schemas/Sort' } }, { type: 'null' }] } },
         { name: b, in: query, schema: { anyOf: [{ $ref: '#/components/schemas/Sort' }, { type: 'null' }] } },
         { name: c, in: query, schema: { allOf: [{ $ref: '#/components/schemas/Sort' }], default: asc } },
         { name: d, in: query, schema: { oneOf: [{ type: 'null' }, { type: boolean }] } },
         { name: e, in: query, schema: { anyOf: [{ type: integer }, { type: string }] } },
         { name: f, in: query, schema: { $ref: '#/components/schemas/Circle' } },
         { name: g, in: query, schema: { $ref: '#/components/schemas/Box' } },
         { name: h, in: query, schema: { anyOf: [{ $ref: '#/components/schemas/Box' }, { type: 'null' }] } }",
    );
    assert_eq!(uri, "api://a{?a*,b,c,d,e,f}");
    let offered: Vec<_> = offered.iter().map(|(name, values)| (&**name, values.join(" "))).collect();
    let expected = [("a", "asc desc"), ("b", "asc desc"), ("c", "asc desc"), ("d", "true false")];
    assert_eq!(offered, expected.map(|(name, values)| (name, values.to_owned())));
}

#[tokio::test]
async fn names_that_differ_upstream_differ_here() {
    let (uri, _) = with_parameters(
        "{ name: page-size, in: query }, { name: page_size, in: query }, { name: 'page[size]', in: query },
         { name: 都市, in: query }, { name: 日付, in: query }",
    );
    assert_eq!(uri, "api://a{?page_size_,page_size__,page_size,__,___}");
    let server = Server::start(|received| Answer::json(json!(received.target))).await;
    let document = "openapi: 3.0.0
paths:
  '/a/{id}/{i-d}/{i_d}': { get: { parameters: [{ name: id, in: query }, { name: page-size, in: query }, { name: page_size, in: query }] } }";
    let mut config = Config::new(format!("{}/openapi.yaml", server.url()));
    config.base = Some(server.url());
    let source = Http::new(openapi::derive(&config, document).unwrap()).unwrap();
    let uri = "api://a/1/2/3?id_=4&page_size=5&page_size_=6";
    assert_eq!(read(&source, uri).await.unwrap(), "\"/a/1/2/3?id=4&page%2Dsize=6&page_size=5\"");
}

#[test]
fn an_operation_that_cannot_be_served_harms_no_other() {
    let document = "openapi: 3.0.0
paths:
  /good: { get: {} }
  '/twice/{a-b}': { get: { operationId: first } }
  '/twice/{a.b}': { get: { operationId: second } }
  /up/../there: { get: {} }
  '/a?key=1': { get: {} }";
    let config = Config { query: [("key".into(), TextOrSecret::Plain("2".into()))].into(), ..config() };
    let http = openapi::derive(&config, document).unwrap();
    let resources: Vec<_> = http.resources.iter().map(|entry| entry.uri.as_str()).collect();
    let templates: Vec<_> = http.templates.iter().map(|entry| entry.name.as_deref().unwrap()).collect();
    assert_eq!((resources, templates), (vec!["api://good"], vec!["first"]));
    Http::new(http).unwrap();
    // If no operation can be served, the error gives the reason.
    let error = derived("openapi: 3.0.0\npaths: { /up/../there: { get: {} } }").unwrap_err();
    assert_eq!(
        error,
        "`api://up/there`: its URL is not in normal form; hint: write it without `.` and `..` segments"
    );
}

#[test]
fn the_nearest_server_is_asked() {
    let document = "openapi: 3.0.0
servers: [{ url: 'https://api.example:{port}/v{major}/', variables: { port: { default: 8443 }, major: { default: '2' } } }]
paths:
  /a: { get: {} }
  /b: { servers: [{ url: 'https://path.example/' }], get: {} }
  '/c/{x}': { servers: [{ url: 'https://path.example' }], get: { servers: [{ url: 'https://operation.example/v1' }] } }
  /d: { get: { servers: [{ url: 'https://{region}.example', variables: { region: { enum: [eu] } } }] } }
  /e: { get: { servers: [{ url: /elsewhere }] } }";
    let derive = |config: &Config| {
        let http = openapi::derive(config, document).unwrap();
        let urls = http.resources.iter().map(|entry| entry.url.clone());
        let urls: Vec<_> = urls.chain(http.templates.iter().map(|entry| entry.url.clone())).collect();
        (http.base.clone().unwrap(), urls.join(" "))
    };
    // Operations whose server URL cannot be resolved are skipped.
    let (base, urls) = derive(&Config::new("api.yaml"));
    assert_eq!(base, "https://api.example:8443/v2");
    assert_eq!(urls, "/a https://path.example/b https://operation.example/v1/c/{x}");
    let (_, urls) = derive(&Config::new("https://docs.example/v1/api.yaml"));
    assert!(urls.contains("https://docs.example/elsewhere/e"), "{urls}");
    let (base, urls) = derive(&config());
    assert_eq!((&*base, &*urls), ("https://api.example", "/a /b /d /e /c/{x}"));

    let own = "openapi: 3.0.0\npaths: { /a: { get: {} }, /b: { servers: [{ url: 'https://b.example' }], get: {} } }";
    let http = openapi::derive(&Config::new("api.yaml"), own).unwrap();
    assert_eq!(http.resources.iter().map(|entry| &*entry.url).collect::<Vec<_>>(), ["https://b.example/b"]);

    let unknown =
        "openapi: 3.0.0\nservers: [{ url: 'https://{region}.example' }]\npaths: { /a: { get: {} } }";
    let error = openapi::derive(&Config::new("api.yaml"), unknown).unwrap_err().to_string();
    assert!(error.contains("has a variable without a default: set `base`"), "{error}");
}
