//! What each tool returns, and what it says if something is wrong.

use std::sync::Arc;

use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
use libris::{Catalog, Config, Policy, Rights, Server, Source, ToolsConfig};
use libris_sources::inline;
use serde_json::{Value, json};

use crate::host::{Host, MODERN, REVISIONS, catalog, folder, indexed, server, write};

const KEYS: &str =
    "# Keys\n\nRotate the signing keys every ninety days.\n\n## Lost keys\n\nTell the people on call.\n";

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_revision_lists_and_calls_the_tools_over_every_transport() {
    let folder = folder(&[("guide/keys.md", KEYS), ("README.md", "# Handbook\n")]);
    let server = server(&folder).await;
    for revision in REVISIONS {
        for mut host in Host::both(&server, revision).await {
            assert_eq!(host.introduction["capabilities"]["tools"], json!({}), "{revision}");
            let listed = host.ask("tools/list", json!({})).await;
            assert_eq!(names(&listed), ["search_resources", "read_resource", "list_resources"]);
            let (has_hints, has_schemas) = (revision > "2025", revision >= "2025-06-18");
            for tool in listed["result"]["tools"].as_array().unwrap() {
                assert_eq!(tool["inputSchema"]["type"], "object");
                assert_eq!(tool["annotations"]["readOnlyHint"] == true, has_hints, "{revision}");
                assert_eq!(tool["annotations"]["idempotentHint"] == true, has_hints, "{revision}");
                assert_eq!(tool["outputSchema"]["type"] == "object", has_schemas, "{revision}");
            }
            assert_eq!(listed["result"]["ttlMs"].is_number(), revision == MODERN);
            assert_eq!(listed["result"]["resultType"] == "complete", revision == MODERN);
            let found = host.call("search_resources", json!({ "query": "rotate keys" })).await;
            assert!(found.text().contains("file:///docs/guide/keys.md lines 1-"), "{}", found.text());
            assert_eq!(found.structured().is_object(), has_schemas);
            assert_eq!(found.links().is_empty(), !has_schemas);
            let read = host.call("read_resource", json!({ "uri": "file:///docs/guide/keys.md" })).await;
            assert_eq!(read.enclosed().0.join("\n"), KEYS.trim_end());
            assert!(!read.is_error());
            assert!(read.0["ttlMs"].is_null());
            let listed = host.call("list_resources", json!({})).await;
            assert!(listed.text().contains("file:///docs/guide/"), "{}", listed.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_gives_the_passage_to_read() {
    let folder = folder(&[("guide/keys.md", KEYS), ("guide/other.md", "# Backups\n\nEvery night.\n")]);
    let mut host = Host::stdio(server(&folder).await, MODERN).await;
    let found = host.call("search_resources", json!({ "query": "lost keys", "limit": 1 })).await;
    let results = found.structured()["results"].as_array().unwrap();
    let [result] = &results[..] else { panic!("{found:?}") };
    assert_eq!((&result["uri"], &result["title"]), (&json!("file:///docs/guide/keys.md"), &json!("Keys")));
    assert_eq!(found.links(), ["file:///docs/guide/keys.md"]);
    let arguments = json!({ "uri": result["uri"], "lines": result["lines"] });
    assert!(found.text().contains(&format!("next: read_resource {arguments}")), "{}", found.text());
    let read = host.call("read_resource", arguments).await;
    assert!(read.structured()["text"].as_str().unwrap().contains("people on call"), "{read:?}");
    assert_eq!(read.structured()["lines"], result["lines"]);
    let elsewhere = json!({ "query": "backups", "scope": "file:///docs/guide/k" });
    let elsewhere = host.call("search_resources", elsewhere).await;
    assert!(elsewhere.text().contains("Without `scope`") && elsewhere.text().contains("guide/other.md"));
    assert_eq!(elsewhere.structured()["results"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_can_be_restricted_to_an_audience_and_a_time() {
    let resource = |name: &str, annotations: Value| {
        let mut resource =
            json!({ "uri": format!("note:///{name}"), "name": format!("rota {name}"), "text": "the pager" });
        resource.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
        resource
    };
    let notes = [
        resource("user", json!({ "audience": ["user"] })),
        resource("model", json!({ "audience": ["assistant"] })),
        resource("new", json!({ "last_modified": "2026-05-01T00:00:00Z" })),
        resource("old", json!({ "last_modified": "2020-05-01T00:00:00Z" })),
    ];
    let config: inline::Config = serde_json::from_value(json!({ "resource": notes })).unwrap();
    let source: Arc<dyn Source> = Arc::new(inline::Inline::new(config, std::path::Path::new(".")).unwrap());
    let catalog = Arc::new(Catalog::new(vec![source]));
    indexed(&catalog, Vec::new()).await;
    let mut host = Host::stdio(Arc::new(Server::new(catalog, Config::default())), MODERN).await;
    // The second query matches names only.
    for query in ["pager", "rot"] {
        let mut found = async |filter: Value| {
            let mut arguments = json!({ "query": query });
            arguments.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
            let found = host.call("search_resources", arguments).await;
            let results = found.structured()["results"].as_array().unwrap().clone();
            let mut names: Vec<_> = results
                .iter()
                .map(|hit| hit["uri"].as_str().unwrap()["note:///".len()..].to_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(found(json!({})).await, ["model", "new", "old", "user"]);
        assert_eq!(found(json!({ "audience": "user" })).await, ["new", "old", "user"]);
        assert_eq!(found(json!({ "audience": "assistant" })).await, ["model", "new", "old"]);
        assert_eq!(found(json!({ "modified_since": "2026-01-31" })).await, ["new"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_is_read_part_by_part() {
    let text: String = (1..=2_000).map(|line| format!("line {line}\n")).collect();
    let folder = folder(&[("long.txt", &text)]);
    let mut host = Host::http(server(&folder).await, MODERN).await;
    let mut arguments = json!({ "uri": "file:///docs/long.txt", "max_bytes": 4_000 });
    let (mut all, mut calls) = (String::new(), 0);
    loop {
        let read = host.call("read_resource", arguments.clone()).await;
        let part = read.structured()["text"].as_str().unwrap();
        assert!(part.len() <= 4_000);
        all.push_str(part);
        calls += 1;
        match &read.structured()["next"] {
            Value::Null => break,
            next => arguments = next.clone(),
        }
    }
    assert_eq!(all, text);
    assert!(calls > 3);
    let last = host.call("read_resource", json!({ "uri": "file:///docs/long.txt", "lines": "-2" })).await;
    assert_eq!(last.structured()["text"], "line 1999\nline 2000\n");
    assert_eq!(
        (&last.structured()["lines"], &last.structured()["next"]),
        (&json!("1999-2000"), &Value::Null)
    );
    let beyond =
        host.call("read_resource", json!({ "uri": "file:///docs/long.txt", "lines": "3000-" })).await;
    assert!(beyond.is_error() && beyond.text().contains("past the end"), "{}", beyond.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_larger_than_the_limit_of_its_source_begins_with_its_first_lines() {
    let line = "x".repeat(99) + "\n";
    let folder = folder(&[("huge.log", &line.repeat(100_000))]);
    let mut host = Host::stdio(server(&folder).await, MODERN).await;
    let read = host.call("read_resource", json!({ "uri": "file:///docs/huge.log" })).await;
    assert!(!read.is_error(), "{}", read.text());
    let next = &read.structured()["next"];
    assert_eq!(read.structured()["lines"], "1-327");
    assert_eq!(next["lines"], "328-");
    let line =
        host.call("read_resource", json!({ "uri": "file:///docs/huge.log", "lines": "99999-100000" })).await;
    assert_eq!(line.structured()["text"].as_str().unwrap().len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_is_shown_and_other_binary_data_is_described() {
    let folder = folder(&[]);
    let png = b"\x89PNG\r\n\x1a\n\x00\x01\x02\xfe\xff";
    write(&folder, "logo.png", png);
    write(&folder, "data.bin", &[0, 159, 146, 150]);
    let mut host = Host::http(server(&folder).await, MODERN).await;
    let logo = host.call("read_resource", json!({ "uri": "file:///docs/logo.png" })).await;
    let picture = &logo.0["content"][1];
    assert_eq!((&picture["type"], &picture["mimeType"]), (&json!("image"), &json!("image/png")));
    let data = host.call("read_resource", json!({ "uri": "file:///docs/data.bin" })).await;
    assert!(data.text().contains("4 bytes") && !data.is_error(), "{}", data.text());
    assert_eq!(data.0["content"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_listed_with_counts_and_in_pages() {
    let mut texts: Vec<_> = (0..120).map(|number| (format!("many/{number:03}.md"), "x".to_owned())).collect();
    texts.push(("guide/a.md".to_owned(), "# Title of a".to_owned()));
    let texts: Vec<_> = texts.iter().map(|(path, text)| (&**path, &**text)).collect();
    let folder = folder(&texts);
    let mut host = Host::stdio(server(&folder).await, MODERN).await;
    let top = host.call("list_resources", json!({})).await;
    assert_eq!(top.structured()["parent"], "file:///docs/");
    let entry = |at: usize| &top.structured()["entries"][at];
    assert_eq!((&entry(0)["uri"], &entry(0)["count"]), (&json!("file:///docs/guide/"), &json!(1)));
    assert_eq!((&entry(1)["count"], &entry(1)["countIsMinimum"]), (&json!(100), &json!(true)));
    let mut arguments = json!({ "parent": "file:///docs/many/" });
    let mut seen = Vec::new();
    loop {
        let page = host.call("list_resources", arguments.clone()).await;
        let entries = page.structured()["entries"].as_array().unwrap();
        assert!(entries.len() <= 50);
        seen.extend(entries.iter().map(|entry| entry["uri"].as_str().unwrap().to_owned()));
        match &page.structured()["nextCursor"] {
            Value::Null => break,
            cursor => arguments["cursor"] = cursor.clone(),
        }
    }
    assert_eq!(seen.len(), 120);
    assert!(seen.is_sorted());
    let guide = host.call("list_resources", json!({ "parent": "file:///docs/guide" })).await;
    assert!(
        guide.text().contains("file:///docs/guide/a.md — Title of a (text/markdown, 12 bytes)"),
        "{}",
        guide.text()
    );
    assert_eq!(guide.links(), ["file:///docs/guide/a.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_dead_ends() {
    let folder = folder(&[("guide/on-call.md", "# On call\n"), ("guide/first-day.md", "# First day\n")]);
    let mut host = Host::http(server(&folder).await, MODERN).await;
    let cases = [
        (
            "read_resource",
            json!({ "uri": "file:///docs/guide/oncall.md" }),
            "- file:///docs/guide/on-call.md",
        ),
        ("read_resource", json!({ "uri": "file:///docs/gide/on-call.md" }), "- file:///docs/guide/"),
        ("read_resource", json!({ "uri": "file:///docs/guide/zzz" }), "- file:///docs/guide/first-day.md"),
        ("read_resource", json!({ "uri": "flie:///x/on-call.md" }), "- file:///docs/guide/on-call.md"),
        ("read_resource", json!({ "uri": "not a uri" }), "- file:///docs/ (2 resources)"),
        ("read_resource", json!({}), "`uri` is missing"),
        ("read_resource", json!({ "uri": "file:///docs/", "line": "1" }), "did you mean `lines`?"),
        ("read_resource", json!({ "uri": "file:///docs/", "lines": "x" }), "`lines` must be a range"),
        ("list_resources", json!({ "parent": "file:///docs/giude/" }), "- file:///docs/guide/"),
        ("list_resources", json!({ "cursor": "forged" }), "without one"),
        ("search_resources", json!({ "query": " " }), "`query` is missing"),
        ("search_resources", json!({ "query": "x", "limit": 0 }), "from 1 to 50"),
    ];
    for (tool, arguments, expected) in cases {
        let result = host.call(tool, arguments.clone()).await;
        assert!(result.is_error() && result.text().contains(expected), "{arguments}: {}", result.text());
    }
    let nothing = host.call("search_resources", json!({ "query": "xylophone" })).await;
    assert!(!nothing.is_error() && nothing.structured()["results"] == json!([]), "{}", nothing.text());
    assert!(nothing.text().contains("file:///docs/ (2 resources)"), "{}", nothing.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tools_and_wrong_parameters_are_errors_of_the_protocol() {
    let folder = folder(&[("a.md", "x")]);
    for mut host in Host::both(&server(&folder).await, MODERN).await {
        for (params, message) in [
            (
                json!({ "name": "read_resources", "arguments": {} }),
                "unknown tool `read_resources`; did you mean `read_resource`?",
            ),
            (json!({ "arguments": {} }), "`name` is missing, or not a string"),
            (json!({ "name": "bundle_resources" }), "unknown tool `bundle_resources`"),
        ] {
            let answer = host.ask("tools/call", params).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().starts_with(message), "{answer}");
        }
        let answer = host.ask("tools/list", json!({ "cursor": "x" })).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_can_be_off() {
    let folder = folder(&[("a.md", "x")]);
    let tools = ToolsConfig { enabled: false, ..ToolsConfig::default() };
    let server = Arc::new(Server::new(catalog(&folder).await, Config { tools, ..Config::default() }));
    for revision in REVISIONS {
        let mut host = Host::stdio(server.clone(), revision).await;
        assert!(host.introduction["capabilities"]["tools"].is_null());
        assert!(!host.introduction["instructions"].as_str().unwrap().contains("search_resources"));
        let listed = host.ask("tools/list", json!({})).await;
        match revision {
            MODERN => assert_eq!(listed["error"]["code"], -32601),
            _ => assert_eq!(listed["result"], json!({ "tools": [] })),
        }
        let called = host.ask("tools/call", json!({ "name": "list_resources" })).await;
        assert_eq!(called["error"]["code"], -32601, "{called}");
    }
}

fn rules(rules: &[(&str, Effect)]) -> Arc<dyn Policy> {
    struct Anybody;

    impl Policy for Anybody {
        fn rights(&self, _: Option<&libris::Identity>) -> Rights {
            Rights::everything()
        }
    }
    let rule = |(pattern, effect): &(&str, Effect)| Rule {
        who: Who::ANYONE,
        uris: vec![UriPattern::parse(pattern).unwrap()],
        operations: Operations::ALL,
        effect: effect.clone(),
    };
    let rules = RuleSet::new(rules.iter().map(rule).collect());
    Arc::new(RulesPolicy::new(&rules, Arc::new(Anybody)))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_can_turn_tools_off() {
    let folder = folder(&[("a.md", "x")]);
    let (allow, deny) = (Effect::Allow, Effect::Deny);
    let everything: &[&str] = &["search_resources", "read_resource", "list_resources"];
    for (given, expected) in [
        (vec![("file:///docs/**", allow.clone())], everything),
        (vec![("file:///docs/**", allow.clone()), ("**", deny.clone())], everything),
        (vec![("libris://tools/list_resources", deny.clone()), ("**", allow.clone())], &everything[..2]),
        (vec![("libris://tools/**", deny.clone()), ("**", allow.clone())], &everything[..0]),
    ] {
        let server = Server::with_policy(catalog(&folder).await, Config::default(), rules(&given));
        let mut host = Host::stdio(Arc::new(server), "2025-11-25").await;
        let listed = host.ask("tools/list", json!({})).await;
        assert_eq!(names(&listed), expected, "{given:?}");
        assert_eq!(host.introduction["capabilities"]["tools"].is_object(), !expected.is_empty());
        let called = host.ask("tools/call", json!({ "name": "list_resources", "arguments": {} })).await;
        assert_eq!(called["result"].is_object(), expected.contains(&"list_resources"), "{called}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_read_anew() {
    let folder = folder(&[("a.md", "one\n")]);
    for mut host in Host::both(&server(&folder).await, MODERN).await {
        for text in ["one\n", "another\n", "a third text\n"] {
            write(&folder, "a.md", text.as_bytes());
            for _ in 0..3 {
                let read = host.call("read_resource", json!({ "uri": "file:///docs/a.md" })).await;
                assert_eq!(read.structured()["text"], text);
            }
        }
    }
}
