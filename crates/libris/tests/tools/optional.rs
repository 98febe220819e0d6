//! The tools that a configuration adds: bundles, a tool for each template, and those for connectors.

use std::sync::Arc;

use libris::{Catalog, Config, FunctionSource, Request, Server, ToolsConfig};
use serde_json::{Value, json};

use crate::host::{Host, MODERN, catalog, files, folder};

async fn names(host: &mut Host) -> Vec<String> {
    let listed = host.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_has_the_passages_within_its_budget() {
    let long = format!(
        "# Keys\n\n{}\n\n## Rotation\n\nRotate the keys every ninety days.\n",
        "filler text\n".repeat(500)
    );
    let copy = "# Copy\n\n## Rotation\n\nRotate the keys every ninety days.\n";
    let folder =
        folder(&[("keys.md", &long), ("copy.md", copy), ("other.md", "# Other\n\nNothing of it.\n")]);
    let tools = ToolsConfig { bundle: true, ..ToolsConfig::default() };
    let server = Arc::new(Server::new(catalog(&folder), Config { tools, ..Config::default() }));
    let mut host = Host::http(server, MODERN).await;
    assert_eq!(names(&mut host).await.last().unwrap(), "bundle_resources");
    let bundle = host.call("bundle_resources", json!({ "query": "rotate keys", "budget": 400 })).await;
    assert!(!bundle.is_error(), "{}", bundle.text());
    let passages = bundle.structured()["passages"].as_array().unwrap();
    assert!(bundle.structured()["tokens"].as_u64().unwrap() <= 400, "{bundle:?}");
    let texts: Vec<_> = passages.iter().map(|passage| passage["text"].as_str().unwrap()).collect();
    let holding = texts.iter().filter(|text| text.contains("Rotate the keys every ninety days.")).count();
    assert_eq!(holding, 1, "near-duplicates are left out: {texts:?}");
    assert!(passages.iter().all(|passage| passage["reason"].as_str().unwrap().contains("result ")));
    let nothing = host.call("bundle_resources", json!({ "query": "xylophone" })).await;
    assert_eq!(nothing.structured()["passages"], json!([]));
    assert!(nothing.text().contains("file:///docs/"), "{}", nothing.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_a_tool() {
    let functions =
        FunctionSource::new().template("weather://forecast/{city}/{date}{?units}", |request: Request| {
            let value = |name| request.optional::<String>(name).unwrap().unwrap_or_default();
            format!("{} on {}: rain, {}", value("city"), value("date"), value("units"))
        });
    let tools = ToolsConfig { templates: true, ..ToolsConfig::default() };
    let catalog = Arc::new(Catalog::new(vec![Arc::new(functions)]));
    let server = Arc::new(Server::new(catalog, Config { tools, ..Config::default() }));
    for mut host in Host::both(&server, MODERN).await {
        let listed = host.ask("tools/list", json!({})).await;
        let tool = listed["result"]["tools"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(tool["inputSchema"]["required"], json!(["city", "date"]), "{tool}");
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
        let name = tool["name"].as_str().unwrap();
        let read = host.call(name, json!({ "city": "Lima", "date": "today" })).await;
        assert_eq!(read.structured()["text"], "Lima on today: rain, ");
        assert_eq!(read.structured()["uri"], "weather://forecast/Lima/today");
        let missing = host.call(name, json!({ "city": "Lima" })).await;
        assert!(missing.is_error() && missing.text() == "`date` is missing", "{}", missing.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connectors_get_search_and_fetch() {
    let folder = folder(&[("guide/keys.md", "# Keys\n\nRotate them.\n")]);
    let tools = ToolsConfig {
        connector: true,
        citation_base: Some("https://docs.example.com/".to_owned()),
        ..ToolsConfig::default()
    };
    let server = Arc::new(Server::new(catalog(&folder), Config { tools, ..Config::default() }));
    let mut host = Host::stdio(server, MODERN).await;
    assert_eq!(names(&mut host).await[3..], ["search", "fetch"]);
    let found = host.call("search", json!({ "query": "rotate keys" })).await;
    let json: Value = serde_json::from_str(found.text()).unwrap();
    assert_eq!(json, *found.structured());
    let result = &json["results"][0];
    assert_eq!(result["url"], "https://docs.example.com/guide/keys.md");
    let fetched = host.call("fetch", json!({ "id": result["id"] })).await;
    let json: Value = serde_json::from_str(fetched.text()).unwrap();
    assert_eq!((&json["text"], &json["id"]), (&json!("# Keys\n\nRotate them.\n"), &result["id"]));
    assert_eq!((&json["title"], &json["url"]), (&json!("keys.md"), &result["url"]));
    let missing = host.call("fetch", json!({ "id": "file:///docs/guide/key.md" })).await;
    assert!(missing.is_error() && missing.text().contains("guide/keys.md"), "{}", missing.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_without_an_index_are_found_by_name() {
    let folder = folder(&[("guide/on-call.md", "# Pager\n"), ("guide/lunch.md", "# Lunch\n")]);
    let catalog = Arc::new(Catalog::new(vec![files(&folder)]));
    let mut host = Host::stdio(Arc::new(Server::new(catalog, Config::default())), MODERN).await;
    let found = host.call("search_resources", json!({ "query": "the pager on call" })).await;
    assert_eq!(found.structured()["results"][0]["uri"], "file:///docs/guide/on-call.md");
}
