//! Pages of resources and templates: each item is listed once, and invalid cursors are errors.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libris::uri_template::Specificity;
use libris::wire::http::{self, Endpoint};
use libris::{
    Catalog, Completion, CompletionRequest, Config, Contents, Context, Error, Page, Resource, Result, Server,
    Source, Template, Templates, Uri, UriTemplate,
};
use serde_json::{Value, json};

/// A source with these resources and templates, all of them called by its name.
struct Shelf {
    name: &'static str,
    resources: &'static [&'static str],
    templates: &'static [&'static str],
}

#[async_trait]
impl Source for Shelf {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.resources.contains(&uri.as_str()).then_some(Specificity::EXACT)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
        let mut uris: Vec<_> = self.resources.iter().map(|text| Uri::parse(text).unwrap()).collect();
        uris.retain(|uri| after.is_none_or(|after| uri > after));
        uris.sort();
        let more = uris.len() > limit;
        let resources = uris.into_iter().take(limit).map(|uri| Resource::new(uri, self.name)).collect();
        Ok(Page { resources, more, ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    async fn templates(&self, _: &Context) -> Result<Templates> {
        let template = |text: &&str| Template::new(UriTemplate::parse(text).unwrap(), self.name);
        Ok(Templates { templates: self.templates.iter().map(template).collect(), ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _: &Context) -> Result<Completion> {
        Ok(Completion::of([self.name], "", asked.limit))
    }
}

/// A catalog of two sources that have a template in common.
fn catalog() -> Arc<Catalog> {
    let first = Shelf {
        name: "first",
        resources: &["a:1", "a:3", "a:5"],
        templates: &["a:{name}", "a:{name}/lines{?from}", "a:all/{name}"],
    };
    let second = Shelf {
        name: "second",
        resources: &["a:2", "a:3", "a:4"],
        templates: &["a:{name}/notes", "a:{name}", "a:all/{name}"],
    };
    Arc::new(Catalog::new(vec![Arc::new(first), Arc::new(second)]))
}

/// The server of a catalog, with pages of one item.
fn endpoint(catalog: Arc<Catalog>) -> Arc<Endpoint> {
    let server = Server::new(catalog, Config { page: 1, ..Config::default() });
    Endpoint::new(Arc::new(server), http::Config::default())
}

/// The response to a request for a page.
async fn ask(endpoint: &Arc<Endpoint>, method: &str, cursor: Option<&str>) -> Value {
    let mut params = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    if let Some(cursor) = cursor {
        params["cursor"] = cursor.into();
    }
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = axum::http::Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .body(axum::body::Body::from(message.to_string()))
        .unwrap();
    let response = endpoint.clone().handle(request).await;
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The pages of a list, one after the other, and the cursors that led to them.
async fn pages(endpoint: &Arc<Endpoint>, method: &str, key: &str) -> (Vec<Value>, Vec<String>) {
    let (mut items, mut cursors) = (Vec::new(), Vec::<String>::new());
    loop {
        let answer = ask(endpoint, method, cursors.last().map(String::as_str)).await;
        let page = answer["result"][key].as_array().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(page.len(), 1, "{answer}");
        items.extend_from_slice(page);
        assert!(items.len() < 100, "the pages do not end");
        match answer["result"]["nextCursor"].as_str() {
            Some(next) => cursors.push(next.to_owned()),
            None => return (items, cursors),
        }
    }
}

#[tokio::test]
async fn a_template_of_two_sources_is_listed_once() {
    let catalog = catalog();
    let named = |template: &Template| format!("{} of {}", template.uri, template.name);
    let listed: Vec<_> =
        catalog.templates(&Context::default()).await.unwrap().templates.iter().map(named).collect();
    let expected = [
        "a:all/{name} of first",
        "a:{name} of first",
        "a:{name}/lines{?from} of first",
        "a:{name}/notes of second",
    ];
    assert_eq!(listed, expected);
    let (paged, _) = pages(&endpoint(catalog.clone()), "resources/templates/list", "resourceTemplates").await;
    let text = |template: &Value| {
        format!("{} of {}", template["uriTemplate"].as_str().unwrap(), template["name"].as_str().unwrap())
    };
    assert_eq!(paged.iter().map(text).collect::<Vec<_>>(), expected);
    // Whoever's template is listed completes it.
    for (template, owner) in [("a:{name}", "first"), ("a:{name}/notes", "second")] {
        let template = UriTemplate::parse(template).unwrap();
        let partial = CompletionRequest {
            template: &template,
            variable: "name",
            typed: "",
            known: &Default::default(),
            limit: 9,
        };
        assert_eq!(
            catalog.complete(partial, &Context::default()).await.unwrap().values,
            [owner],
            "{template}"
        );
    }
}

#[tokio::test]
async fn a_resource_of_two_sources_is_listed_once() {
    let (paged, _) = pages(&endpoint(catalog()), "resources/list", "resources").await;
    let text = |resource: &Value| {
        format!("{} of {}", resource["uri"].as_str().unwrap(), resource["name"].as_str().unwrap())
    };
    assert_eq!(
        paged.iter().map(text).collect::<Vec<_>>(),
        ["a:1 of first", "a:2 of second", "a:3 of first", "a:4 of second", "a:5 of first"]
    );
}

#[tokio::test]
async fn a_cursor_with_a_flipped_bit_is_refused() {
    let endpoint = endpoint(catalog());
    for (method, key) in [("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")]
    {
        let (_, cursors) = pages(&endpoint, method, key).await;
        for cursor in cursors {
            let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
            for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut garbled = bytes.clone();
                garbled[at] ^= 1 << bit;
                let answer = ask(&endpoint, method, Some(&URL_SAFE_NO_PAD.encode(garbled))).await;
                assert_eq!(answer["error"]["code"], -32602, "{method}, bit {bit} of byte {at}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn a_cursor_of_another_list_is_refused() {
    let endpoint = endpoint(catalog());
    let (_, resources) = pages(&endpoint, "resources/list", "resources").await;
    let (_, templates) = pages(&endpoint, "resources/templates/list", "resourceTemplates").await;
    for (method, cursors) in [("resources/list", templates), ("resources/templates/list", resources)] {
        let answer = ask(&endpoint, method, Some(&cursors[0])).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
}
