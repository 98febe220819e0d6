//! Responses that a view joins from several answers of a source, or takes parts out of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use libris::uri_template::Specificity;
use libris::{
    Completion, CompletionRequest, Config, Content, Contents, Context, Freshness, Identity, Operation, Page,
    Policy, Proof, Resource, Result, Rights, Rules, Server, Source, UnavailableSource, Uri, UriTemplate,
};

use crate::shelf::uri;

/// Shows everything but `a:hidden`. That its parts are hidden with it is left to the view.
struct Public;

impl Rules for Public {
    fn allow(&self, _: Operation, uri: &Uri) -> bool {
        uri.as_str() != "a:hidden"
    }
}

impl Policy for Public {
    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::new(Self)
    }
}

/// A source that answers what it is told to.
#[derive(Default)]
struct Scripted {
    /// Pages by the URI that they follow.
    pages: BTreeMap<Option<Uri>, Page>,
    contents: Vec<Content>,
    completion: Completion,
}

#[async_trait]
impl Source for Scripted {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        Some(Specificity::EXACT)
    }

    async fn list(&self, after: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(self.pages[&after.cloned()].clone())
    }

    async fn read(&self, _: &Uri, _: &Context) -> Result<Contents> {
        Ok(Contents { parts: self.contents.clone(), freshness: Freshness::unproven() })
    }

    async fn complete(&self, _: CompletionRequest<'_>, _: &Context) -> Result<Completion> {
        Ok(self.completion.clone())
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }
}

impl Scripted {
    fn served(self) -> Server {
        Server::with_policy(Arc::new(self), Config::default(), Arc::new(Public))
    }
}

fn resources(names: &[&str]) -> Vec<Resource> {
    names.iter().map(|name| Resource::new(uri(name), *name)).collect()
}

async fn list(server: &Server, limit: usize) -> Page {
    server.view_for(None).snapshot().list(None, limit, &Context::default()).await.unwrap()
}

/// Two pages that one page is made of, since the first has something hidden on it.
fn two_pages(first: Page, second: Page) -> Server {
    let first = Page { more: true, resources: resources(&["a:1", "a:hidden"]), ..first };
    let second = Page { resources: resources(&["a:x"]), ..second };
    Scripted { pages: [(None, first), (Some(uri("a:hidden")), second)].into(), ..Scripted::default() }
        .served()
}

#[tokio::test]
async fn a_joined_page_is_as_fresh_as_all_its_parts() {
    for broken in 0..2 {
        let holds = Arc::new(AtomicBool::new(true));
        let proven = |number: usize| {
            let watched = holds.clone();
            let proof = Proof::new(move || number != broken || watched.load(Ordering::SeqCst));
            Page { freshness: Freshness::proven(proof), ..Page::default() }
        };
        let joined = list(&two_pages(proven(0), proven(1)), 2).await;
        assert_eq!(joined.resources.len(), 2);
        let proof = joined.freshness.proof.expect("both parts have a proof");
        assert!(proof.holds());
        holds.store(false, Ordering::SeqCst);
        assert!(!proof.holds(), "part {broken} has changed");
    }
}

#[tokio::test]
async fn a_joined_page_names_each_source_that_is_missing_from_a_part_once() {
    let missing = |names: &[&str]| {
        let unavailable = names.iter().map(|name| UnavailableSource {
            source: (*name).to_owned(),
            since: SystemTime::UNIX_EPOCH,
            stale: false,
        });
        Page { unavailable: unavailable.collect(), ..Page::default() }
    };
    let joined = list(&two_pages(missing(&["one"]), missing(&["one", "other"])), 2).await;
    assert_eq!(joined.unavailable, missing(&["one", "other"]).unavailable);
}

#[tokio::test]
async fn a_source_that_promises_more_and_has_nothing_ends_the_list() {
    let promising = |names: &[&str]| Page { resources: resources(names), more: true, ..Page::default() };
    let pages = [(None, promising(&["a:1"])), (Some(uri("a:1")), promising(&[]))].into();
    let joined = list(&Scripted { pages, ..Scripted::default() }.served(), 2).await;
    assert_eq!((joined.resources.len(), joined.more), (1, false));
}

#[tokio::test]
async fn a_part_of_what_is_hidden_is_hidden_in_contents_too() {
    let contents = ["a:1", "a:1?lines=1-2", "a:hidden", "a:hidden?lines=1-2"]
        .map(|name| Content::text(uri(name), "text/plain", "text"))
        .to_vec();
    let server = Scripted { contents, ..Scripted::default() }.served();
    let read = server.view_for(None).snapshot().read(&uri("a:index"), &Context::default()).await.unwrap();
    let seen: Vec<_> = read.parts.iter().map(|part| part.uri.as_str()).collect();
    assert_eq!(seen, ["a:1", "a:1?lines=1-2"]);
}

#[tokio::test]
async fn values_are_counted_only_where_all_are_known() {
    for (more, total) in [(false, Some(2)), (true, None)] {
        let values = ["1", "2", "hidden"].map(str::to_owned).to_vec();
        let completion = Completion { values, total: Some(3), more, proof: None };
        let server = Scripted { completion, ..Scripted::default() }.served();
        let template = UriTemplate::parse("a:{name}").unwrap();
        // The client may send the variable itself among those that are known.
        let known = BTreeMap::from([("name".to_owned(), "1".to_owned())]);
        let asked =
            CompletionRequest { template: &template, variable: "name", typed: "", known: &known, limit: 9 };
        let view = server.view_for(None);
        let completion = view.snapshot().complete(asked, &Context::default()).await.unwrap();
        assert_eq!(completion, Completion { values: vec!["1".into(), "2".into()], total, more, proof: None });
    }
}

#[tokio::test]
async fn a_value_for_a_variable_that_is_known_is_offered_again() {
    let values = ["1", "2"].map(str::to_owned).to_vec();
    let completion = Completion { values: values.clone(), total: None, more: false, proof: None };
    let server = Scripted { completion, ..Scripted::default() }.served();
    let template = UriTemplate::parse("a:{directory}/{name}").unwrap();
    let known = BTreeMap::from([("directory".to_owned(), "1".to_owned())]);
    let asked =
        CompletionRequest { template: &template, variable: "directory", typed: "", known: &known, limit: 9 };
    let view = server.view_for(None);
    assert_eq!(view.snapshot().complete(asked, &Context::default()).await.unwrap().values, values);
}

#[tokio::test]
async fn values_beyond_the_limit_are_told_of() {
    for (limit, more) in [(1, true), (2, false), (3, false)] {
        let values = ["1", "2"].map(str::to_owned).to_vec();
        let completion = Completion { values: values.clone(), total: Some(2), more: false, proof: None };
        let server = Scripted { completion, ..Scripted::default() }.served();
        let template = UriTemplate::parse("a:{name}").unwrap();
        let known = BTreeMap::new();
        let asked =
            CompletionRequest { template: &template, variable: "name", typed: "", known: &known, limit };
        let view = server.view_for(None);
        let completion = view.snapshot().complete(asked, &Context::default()).await.unwrap();
        let values = values.into_iter().take(limit).collect();
        assert_eq!(completion, Completion { values, total: Some(2), more, proof: None }, "{limit}");
    }
}

/// Where a variable before it is missing, nothing tells whether a value leads to something hidden.
#[tokio::test]
async fn a_value_behind_a_missing_variable_is_not_offered() {
    let completion = Completion { values: vec!["hidden".to_owned()], total: None, more: false, proof: None };
    let server = Scripted { completion, ..Scripted::default() }.served();
    let template = UriTemplate::parse("a:{directory}/{name}").unwrap();
    for (known, offered) in [(None, 0), (Some("1"), 1)] {
        let known = known.map(|value: &str| ("directory".to_owned(), value.to_owned())).into_iter().collect();
        let asked =
            CompletionRequest { template: &template, variable: "name", typed: "", known: &known, limit: 9 };
        let view = server.view_for(None);
        let values = view.snapshot().complete(asked, &Context::default()).await.unwrap().values;
        assert_eq!(values.len(), offered, "{known:?}");
    }
}
