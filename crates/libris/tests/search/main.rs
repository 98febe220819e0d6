//! Search through a view: what the feeder indexes, what a caller may see, and sources that search themselves.
#![cfg(feature = "search")]

#[cfg(feature = "embeddings")]
mod embeddings;
mod faults;
mod twice;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
use libris::uri_template::Specificity;
use libris::{
    Catalog, Completion, CompletionRequest, Content, Contents, Context, Error, Identity, Operation, Page,
    PathNote, Policy, Resource, Result, Rights, SearchAnswer, SearchConfig, SearchHit, SearchQuery, Server,
    Source, Uri, UriTemplate, View,
};
use libris_sources::files;
use proptest::prelude::Strategy as _;

fn folder(texts: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in texts {
        let path = folder.path().join("docs").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn files(folder: &tempfile::TempDir) -> Arc<dyn Source> {
    let config = files::Config { path: folder.path().join("docs"), ..files::Config::default() };
    Arc::new(files::Files::open(config).unwrap())
}

async fn indexed(sources: Vec<Arc<dyn Source>>, config: SearchConfig) -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::new(sources));
    // Other tests use all processors, so that the lowest priority would take long.
    catalog.start_search(SearchConfig { is_awaited: true, ..config }).unwrap();
    tokio::time::timeout(Duration::from_secs(60), catalog.search_index_completed())
        .await
        .expect("the index is complete in time")
        .unwrap();
    catalog
}

fn view(catalog: &Arc<Catalog>) -> View {
    Server::new(catalog.clone(), libris::Config::default()).view_for(None)
}

async fn search(view: &View, text: &str) -> SearchAnswer {
    view.search(&SearchQuery::new(text, 10), &Context::default()).await.unwrap()
}

fn uris(answer: &SearchAnswer) -> Vec<&str> {
    answer.hits.iter().map(|hit| &*hit.uri).collect()
}

/// The text of the status.
async fn status(catalog: &Arc<Catalog>) -> String {
    catalog.add_status();
    let status = catalog.read(&Uri::parse("libris://status").unwrap(), &Context::default()).await.unwrap();
    match &status.parts[0].body {
        libris::ContentBody::Text(text) => text.clone(),
        libris::ContentBody::Bytes(_) => panic!("the status is text"),
    }
}

/// Searches until the answer has this many hits.
async fn until(view: &View, text: &str, hits: usize) -> SearchAnswer {
    let found = async {
        loop {
            let answer = search(view, text).await;
            if answer.hits.len() == hits {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("the change is not found")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_found_by_text_and_by_name_and_changes_are_followed() {
    let folder = folder(&[("guide.md", "# Keys\n\nRotate them.\n"), ("logo.png", "\u{89}PNG")]);
    let notes = vec![PathNote { path: "guide".to_owned(), note: "for operators".to_owned() }];
    let catalog = indexed(vec![files(&folder)], SearchConfig { notes, ..SearchConfig::default() }).await;
    let view = view(&catalog);
    let answer = search(&view, "rotating keys").await;
    assert_eq!(uris(&answer), ["file:///docs/guide.md"]);
    assert_eq!((answer.hits[0].note.as_deref(), answer.indexing), (Some("for operators"), None));
    assert_eq!(uris(&search(&view, "logo").await), ["file:///docs/logo.png"]);
    assert_eq!(uris(&search(&view, "operators").await), ["file:///docs/guide.md"]);
    let path = folder.path().join("docs/new.md");
    std::fs::write(&path, "about retention").unwrap();
    assert_eq!(uris(&until(&view, "retention", 1).await), ["file:///docs/new.md"]);
    std::fs::write(&path, "about something else entirely").unwrap();
    until(&view, "retention", 0).await;
    std::fs::remove_file(&path).unwrap();
    until(&view, "entirely", 0).await;
}

/// The index on disk is used again, and built anew if any of its files is truncated or deleted.
#[tokio::test(flavor = "multi_thread")]
async fn the_index_on_disk_is_used_again_and_rebuilt_when_damaged() {
    let folder = folder(&[("a.md", "about retention"), ("b.md", "about backups")]);
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("index");
    let config = SearchConfig { folder: Some(path.clone()), ..SearchConfig::default() };
    let found = async || {
        let catalog = indexed(vec![files(&folder)], config.clone()).await;
        let answer = search(&view(&catalog), "retention").await;
        (uris(&answer).join(" "), status(&catalog).await.contains("memory"))
    };
    let expected = ("file:///docs/a.md".to_owned(), false);
    assert_eq!(found().await, expected);
    let names = || -> BTreeSet<_> {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
        entries.filter(|entry| entry.metadata().unwrap().len() > 0).map(|entry| entry.file_name()).collect()
    };
    let before = names();
    assert_eq!((found().await, names()), (expected.clone(), before), "the index is used again");
    for at in 0..names().len() {
        // The names change when the index is built anew.
        let Some(name) = names().into_iter().nth(at) else { break };
        let file = path.join(&name);
        let data = std::fs::read(&file).unwrap();
        std::fs::write(&file, &data[..data.len() / 2]).unwrap();
        assert_eq!(found().await, expected, "{name:?} is truncated");
    }
    for entry in std::fs::read_dir(&path).unwrap() {
        std::fs::write(entry.unwrap().path(), "").unwrap();
    }
    assert_eq!(found().await, expected, "all files are empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_leaves_the_index_in_memory() {
    let folder = folder(&[("a.md", "about retention")]);
    // Below a file, so that also root cannot create it.
    let config =
        SearchConfig { folder: Some(folder.path().join("docs/a.md/index")), ..SearchConfig::default() };
    let catalog = indexed(vec![files(&folder)], config).await;
    assert!(status(&catalog).await.contains("in memory only"));
    assert_eq!(uris(&search(&view(&catalog), "retention").await), ["file:///docs/a.md"]);
}

/// An index in memory has a bound; resources beyond it are found by name, and the status says how many.
#[tokio::test(flavor = "multi_thread")]
async fn the_index_in_memory_is_bounded() {
    let name = |number: u64| {
        let hash = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..10).map(|at| char::from(b'a' + (hash >> (at * 5) & 15) as u8)).collect::<String>() + ".md"
    };
    let texts: Vec<_> = (0..60).map(|number| (name(number), incompressible(number))).collect();
    let mut names: Vec<_> = texts.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    // Resources are indexed in the order of their URIs.
    let (last, before) = (&names[59], &names[58]);
    let texts: Vec<_> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
    let folder = folder(&texts);
    let config = SearchConfig { memory: 100_000, ..SearchConfig::default() };
    let catalog = indexed(vec![files(&folder)], config).await;
    let view = view(&catalog);
    let answer = search(&view, "everywhere").await;
    assert!((1..60).contains(&answer.total), "{}", answer.total);
    let left_out = 60 - answer.total;
    assert!(status(&catalog).await.contains(&format!("so {left_out} more are found by name only")));
    // Only callers who see everything learn how many.
    let rules = RuleSet::new(vec![Rule {
        who: Who::default(),
        uris: vec![UriPattern::parse("libris://*").unwrap()],
        operations: Operations::ALL,
        effect: Effect::Allow,
    }]);
    let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(SameRights(Rights::everything()))));
    let restricted = Server::with_policy(catalog.clone(), libris::Config::default(), policy).view_for(None);
    let uri = Uri::parse("libris://status").unwrap();
    let shown = restricted.snapshot().read(&uri, &Context::default()).await.unwrap();
    let shown = format!("{:?}", shown.parts[0].body);
    assert!(shown.contains("so some more are found by name only"), "{shown}");
    let found = search(&view, last.trim_end_matches(".md")).await;
    assert_eq!(uris(&found), [format!("file:///docs/{last}")]);
    // A change of a resource beyond the bound is no reason to exceed it.
    let more = format!("{} everywhere unheard", incompressible(99));
    std::fs::write(folder.path().join("docs").join(last), more).unwrap();
    std::fs::remove_file(folder.path().join("docs").join(before)).unwrap();
    let fewer = format!("so {} more are found by name only", left_out - 1);
    let noticed = async {
        while !status(&catalog).await.contains(&fewer) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.expect("the removal is noticed");
}

/// About 8 kB of words that no other number has, and one that all have.
fn incompressible(number: u64) -> String {
    let mut state = number * 0x9e37_79b9 + 1;
    let words = (0..1000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("w{:x}", state >> 40)
    });
    words.chain(["everywhere".to_owned()]).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_catalogs_share_a_folder() {
    let folder = folder(&[("a.md", "about retention")]);
    let cache = tempfile::tempdir().unwrap();
    let config = SearchConfig { folder: Some(cache.path().join("index")), ..SearchConfig::default() };
    let first = indexed(vec![files(&folder)], config.clone()).await;
    let second = indexed(vec![files(&folder)], config).await;
    assert_eq!(uris(&search(&view(&second), "retention").await), ["file:///docs/a.md"]);
    assert!(status(&second).await.contains("another process updates the index"));
    // The second updates the index once the first is gone.
    drop(first);
    std::fs::write(folder.path().join("docs/new.md"), "about backups").unwrap();
    assert_eq!(uris(&until(&view(&second), "backups", 1).await), ["file:///docs/new.md"]);
}

/// Resources in memory, one of which finds the others.
struct Notes {
    texts: Vec<(Uri, String)>,
    /// What its own search returns; `None` never answers.
    own: Option<Vec<String>>,
}

impl Notes {
    fn new(texts: &[(&str, &str)]) -> Self {
        let parsed = texts.iter().map(|(uri, text)| (Uri::parse(uri).unwrap(), (*text).to_owned()));
        let mut texts: Vec<_> = parsed.collect();
        texts.sort();
        Self { texts, own: Some(Vec::new()) }
    }
}

#[async_trait]
impl Source for Notes {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.texts.iter().any(|(known, _)| known == uri).then_some(Specificity::EXACT)
    }

    fn name(&self) -> Cow<'_, str> {
        "notes".into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
        let mut rest = self.texts.iter().filter(|(uri, _)| after.is_none_or(|after| uri > after));
        let resources =
            rest.by_ref().take(limit).map(|(uri, _)| Resource::new(uri.clone(), uri.as_str())).collect();
        Ok(Page { resources, more: rest.next().is_some(), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        let found = self.texts.iter().find(|(known, _)| known == uri);
        let (_, text) = found.ok_or_else(|| Error::NotFound(uri.clone()))?;
        Ok(Content::text(uri.clone(), "text/plain", text.clone()).into())
    }

    fn has_search(&self) -> bool {
        true
    }

    async fn search(&self, query: &SearchQuery, _: &Context) -> Result<Option<SearchAnswer>> {
        let Some(own) = &self.own else { return std::future::pending().await };
        if own.is_empty() {
            return Ok(None);
        }
        let hits = own.iter().map(|uri| SearchHit { uri: uri.clone(), ..SearchHit::default() });
        let hits = hits.take(query.limit).collect();
        Ok(Some(SearchAnswer { total: own.len(), hits, ..SearchAnswer::default() }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_searches_itself_is_fused_and_a_slow_one_is_named() {
    let texts = [("note:a", "about retention"), ("note:b", "unrelated"), ("note:c", "unrelated")];
    let own = vec!["note:b".to_owned(), "note:a".to_owned()];
    let catalog =
        indexed(vec![Arc::new(Notes { own: Some(own), ..Notes::new(&texts) })], SearchConfig::default())
            .await;
    let answer = search(&view(&catalog), "retention").await;
    assert_eq!((uris(&answer), answer.total), (vec!["note:a", "note:b"], 2));
    assert_eq!(answer.hits[1].source, "notes");
    let query = SearchQuery::new("retention", 1);
    let answer = view(&catalog).search(&query, &Context::default()).await.unwrap();
    assert_eq!((uris(&answer), answer.total), (vec!["note:a"], 2), "all hits of the source count");

    let catalog =
        indexed(vec![Arc::new(Notes { own: None, ..Notes::new(&texts) })], SearchConfig::default()).await;
    let answer = search(&view(&catalog), "retention").await;
    assert_eq!((uris(&answer), &*answer.left_out), (vec!["note:a"], &["notes".to_owned()][..]));
    // Only those who may read the status learn the name.
    let allowed = Rule {
        who: Who::default(),
        uris: vec![UriPattern::parse("note:*").unwrap()],
        operations: Operations::ALL,
        effect: Effect::Allow,
    };
    let rules = RuleSet::new(vec![allowed]);
    let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(SameRights(Rights::everything()))));
    let view = Server::with_policy(catalog, libris::Config::default(), policy).view_for(None);
    assert_eq!(search(&view, "retention").await.left_out, ["a source"]);
}

/// Gives every caller the same rights.
struct SameRights(Rights);

impl Policy for SameRights {
    fn rights(&self, _: Option<&Identity>) -> Rights {
        self.0.clone()
    }
}

const WORDS: [&str; 6] = ["retention", "backup", "keys", "rotation", "server", "zebra"];

/// Random rules over the URIs of the property test: patterns, operations and effects.
fn rules() -> impl proptest::strategy::Strategy<Value = RuleSet> {
    let pattern =
        proptest::sample::select(vec!["note:0", "note:1", "note:2", "note:3", "note:1*", "note:*", "**"]);
    let operations = proptest::sample::select(vec![
        Operations::ALL,
        [Operation::Search].into_iter().collect(),
        [Operation::Read].into_iter().collect(),
        [Operation::List, Operation::Subscribe].into_iter().collect(),
    ]);
    let effect = proptest::sample::select(vec![
        Effect::Allow,
        Effect::Allow,
        Effect::Deny,
        Effect::Require([Box::from("secret")].into()),
    ]);
    let rule = (pattern, operations, effect).prop_map(|(pattern, operations, effect)| Rule {
        who: Who::default(),
        uris: vec![UriPattern::parse(pattern).unwrap()],
        operations,
        effect,
    });
    proptest::collection::vec(rule, 1..6).prop_map(RuleSet::new)
}

/// The answer under any rules is that of a server that has the visible resources only, also for the resources that a
/// source finds itself: the same hits, counts, snippets, duplicates, corrections and completions.
#[test]
fn hidden_resources_never_show() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let words = proptest::collection::vec(0..WORDS.len(), 1..6);
    // A long text is a near-duplicate of the other long ones.
    let documents = proptest::collection::vec((words, proptest::bool::ANY), 1..8);
    // A word, a misspelt word, the beginning of a word, a phrase, and a word without another.
    let query = (0..WORDS.len(), 0..WORDS.len(), 0..5, 2..6_usize).prop_map(|(word, other, form, length)| {
        let (word, other) = (WORDS[word], WORDS[other]);
        match form {
            0 => word.to_owned(),
            1 => word.replacen('e', "ee", 1),
            2 => word[..length.min(word.len())].to_owned(),
            3 => format!("\"{word} {other}\""),
            _ => format!("{word} -{other}"),
        }
    });
    let config = proptest::test_runner::Config { cases: 48, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let padding = (0..60).map(|number| format!("padding{number}")).collect::<Vec<_>>().join(" ");
    let law = |(documents, query, rules): (Vec<(Vec<usize>, bool)>, String, RuleSet)| {
        let texts: Vec<_> = documents
            .iter()
            .enumerate()
            .map(|(number, (words, is_long))| {
                let text = words.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" ");
                let text = if *is_long { format!("{padding} {text}") } else { text };
                (format!("note:{number}"), text)
            })
            .collect();
        let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(SameRights(Rights::everything()))));
        let rights = policy.rights(None);
        let is_visible = |uri: &str| {
            let uri = Uri::parse(uri).unwrap();
            [Operation::Search, Operation::Read].into_iter().all(|operation| rights.allow(operation, &uri))
        };
        let all: Vec<_> = texts.iter().map(|(uri, text)| (&**uri, &**text)).collect();
        let seen: Vec<_> = all.iter().filter(|(uri, _)| is_visible(uri)).copied().collect();
        let own: Vec<_> = texts.iter().map(|(uri, _)| uri.clone()).rev().collect();
        let own_seen: Vec<_> = own.iter().filter(|uri| is_visible(uri)).cloned().collect();
        let (hiding, only) = runtime.block_on(async {
            let hiding = indexed(
                vec![Arc::new(Notes { own: Some(own), ..Notes::new(&all) })],
                SearchConfig::default(),
            )
            .await;
            let only = indexed(
                vec![Arc::new(Notes { own: Some(own_seen), ..Notes::new(&seen) })],
                SearchConfig::default(),
            )
            .await;
            let hiding = Server::with_policy(hiding, libris::Config::default(), policy).view_for(None);
            (search(&hiding, &query).await, search(&view(&only), &query).await)
        });
        let shown = format!("{hiding:?}");
        for (uri, _) in all.iter().filter(|(uri, _)| !is_visible(uri)) {
            proptest::prop_assert!(!shown.contains(&format!("\"{uri}\"")), "{} shows in {}", uri, shown);
        }
        proptest::prop_assert_eq!(hiding, only);
        Ok(())
    };
    runner.run(&(documents, query, rules()), law).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hit_needs_the_rights_to_search_and_to_read() {
    let texts = [("note:a", "retention"), ("note:b", "retention"), ("note:c", "retention of c")];
    let catalog = indexed(vec![Arc::new(Notes::new(&texts))], SearchConfig::default()).await;
    let rule = |uri: &str, operations: Operations, effect| Rule {
        who: Who::default(),
        uris: vec![UriPattern::parse(uri).unwrap()],
        operations,
        effect,
    };
    let rules = RuleSet::new(vec![
        rule("note:b", Operations::ALL, Effect::Require([Box::from("secret")].into())),
        rule("note:c", [Operation::Search].into_iter().collect(), Effect::Deny),
        rule("**", Operations::ALL, Effect::Allow),
    ]);
    let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(SameRights(Rights::everything()))));
    let view = Server::with_policy(catalog, libris::Config::default(), policy).view_for(None);
    let answer = search(&view, "retention").await;
    assert_eq!((uris(&answer), answer.total), (vec!["note:a"], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_is_no_prefix_is_searched() {
    let folder = folder(&[("guides/rotation.md", "# Key rotation\n"), ("other.md", "text")]);
    let catalog = indexed(vec![files(&folder)], SearchConfig::default()).await;
    let view = view(&catalog);
    let template = UriTemplate::parse("file:///docs/{+path}{?lines,bytes}").unwrap();
    let complete = async |typed: &str| {
        let known = std::collections::BTreeMap::new();
        let partial =
            CompletionRequest { template: &template, variable: "path", typed, known: &known, limit: 10 };
        view.snapshot().complete(partial, &Context::default()).await.unwrap()
    };
    let Completion { values, .. } = complete("rotation").await;
    assert_eq!(values, ["guides/rotation.md"]);
    assert_eq!(complete("nothing-like-this").await.values, Vec::<String>::new());
}
