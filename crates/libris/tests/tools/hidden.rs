//! Hidden resources show through none of the tools, nor through the index, the instructions or bundles.

use std::sync::Arc;

use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
use libris::{Catalog, Config, Operation, PathNote, Policy, Rights, Server, ToolsConfig};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::host::{Host, MODERN, files, folder, indexed};

/// Everybody may call.
struct Anybody;

impl Policy for Anybody {
    fn rights(&self, _: Option<&libris::Identity>) -> Rights {
        Rights::everything()
    }
}

/// A folder in which every file has a word of its own in its path, its title and its text.
fn library(count: usize) -> Vec<(String, String)> {
    let file = |number: usize| {
        let word = word(number);
        let path = format!("f{}/{word}.md", number % 3);
        (path, format!("# About {word}\n\nEverybody talks of {word} and of zebras.\n"))
    };
    (0..count).map(file).collect()
}

fn word(number: usize) -> String {
    format!("quokka{}", ["alpha", "bravo", "carol", "delta", "eagle", "fjord", "grape", "hotel"][number])
}

#[test]
fn hidden_resources_show_through_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    let strategy = (vec(any::<bool>(), 8), any::<bool>(), any::<bool>());
    TestRunner::new(config)
        .run(&strategy, |(hidden, by_folder, is_indexed)| {
            runtime.block_on(check(&hidden, by_folder, is_indexed));
            Ok(())
        })
        .unwrap();
}

async fn check(hidden: &[bool], by_folder: bool, is_indexed: bool) {
    let texts = library(hidden.len());
    let borrowed: Vec<_> = texts.iter().map(|(path, text)| (&**path, &**text)).collect();
    let folder = folder(&borrowed);
    let is_hidden = |number: usize| hidden[number] || by_folder && number % 3 == 1;
    let mut rules = Vec::new();
    let mut rule = |pattern: &str, effect: Effect| {
        rules.push(Rule {
            who: Who::ANYONE,
            uris: vec![UriPattern::parse(pattern).unwrap()],
            operations: Operations::ALL,
            effect,
        });
    };
    if by_folder {
        rule("file:///docs/f1/**", Effect::Deny);
    }
    for (number, (path, _)) in texts.iter().enumerate().filter(|(number, _)| hidden[*number]) {
        rule(&format!("file:///docs/{path}"), Effect::Deny);
        assert!(is_hidden(number));
    }
    rule("**", Effect::Allow);
    let policy = Arc::new(RulesPolicy::new(&RuleSet::new(rules), Arc::new(Anybody)));
    let notes: Vec<_> = (0..hidden.len())
        .map(|number| PathNote { path: texts[number].0.clone(), note: format!("note on {}", word(number)) })
        .collect();
    let catalog = Arc::new(Catalog::new(vec![files(&folder)]));
    if is_indexed {
        indexed(&catalog, notes.clone()).await;
    }
    catalog.add_index(notes.clone());
    let tools = ToolsConfig { bundle: true, ..ToolsConfig::default() };
    let server = Arc::new(Server::with_policy(catalog, Config { notes, tools, ..Config::default() }, policy));
    let mut host = Host::stdio(server, MODERN).await;
    let mut said = vec![host.introduction.to_string()];
    let mut calls = vec![
        ("search_resources", json!({ "query": "zebras" })),
        ("search_resources", json!({ "query": "everybody talks", "limit": 50 })),
        ("search_resources", json!({ "query": "quokkaalph quokkabrav" })),
        ("search_resources", json!({ "query": "nothing-at-all" })),
        ("list_resources", json!({})),
        ("bundle_resources", json!({ "query": "zebras everybody" })),
        ("read_resource", json!({ "uri": "libris://index" })),
        ("read_resource", json!({ "uri": "libris://index?below=file:///docs/f1/" })),
    ];
    for number in 0..3 {
        calls.push(("list_resources", json!({ "parent": format!("file:///docs/f{number}/") })));
        calls.push(("read_resource", json!({ "uri": format!("file:///docs/f{number}/") })));
        calls.push(("read_resource", json!({ "uri": format!("file:///docs/f{number}/quokka.md") })));
    }
    for (tool, arguments) in calls {
        said.push(host.call(tool, arguments).await.0.to_string());
    }
    said.push(host.ask("resources/read", json!({ "uri": "libris://index" })).await.to_string());
    for (number, (name, _)) in texts.iter().enumerate().take(hidden.len()) {
        let (word, is_hidden) = (word(number), is_hidden(number));
        let shown: Vec<_> = said.iter().filter(|text| text.contains(&word)).collect();
        match is_hidden {
            true => assert!(shown.is_empty(), "{word} of {hidden:?}, {by_folder}: {shown:?}"),
            false => assert!(shown.len() > 3, "{word} of {hidden:?}, {by_folder}: {said:?}"),
        }
        // What is hidden looks as if it were not there.
        let uri = format!("file:///docs/{name}");
        let read = host.call("read_resource", json!({ "uri": uri })).await;
        assert_eq!(read.is_error(), is_hidden);
        assert!(
            !is_hidden || read.text().starts_with(&format!("There is no resource at `{uri}`")),
            "{read:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_requires_a_scope_to_read_is_not_found_by_its_name() {
    let folder = folder(&[("open-zebra.md", "# Open\n"), ("secret-zebra.md", "# Secret\n")]);
    let rule = |pattern: &str, operations: Operations, effect: Effect| Rule {
        who: Who::ANYONE,
        uris: vec![UriPattern::parse(pattern).unwrap()],
        operations,
        effect,
    };
    let read = [Operation::Read].into_iter().collect();
    let rules = vec![
        rule("file:///docs/secret-zebra.md", read, Effect::Require(["zebras:read".into()].into())),
        rule("**", Operations::ALL, Effect::Allow),
    ];
    let policy = Arc::new(RulesPolicy::new(&RuleSet::new(rules), Arc::new(Anybody)));
    let catalog = Arc::new(Catalog::new(vec![files(&folder)]));
    let server = Arc::new(Server::with_policy(catalog, Config::default(), policy));
    let mut host = Host::stdio(server, MODERN).await;
    let found = host.call("search_resources", json!({ "query": "zebra" })).await.0.to_string();
    assert!(found.contains("open-zebra.md") && !found.contains("secret-zebra.md"), "{found}");
}
