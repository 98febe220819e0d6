//! Cached results of `#[list]` functions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libris::{Catalog, Context, Error, FunctionSource, Identity, Notifier, Page, Result, Source, Uri};
use tokio::sync::Semaphore;

use crate::uri;

/// Counts the runs of its list functions, which wait for the gate.
struct Notes {
    names: Mutex<Vec<String>>,
    runs: AtomicUsize,
    gate: Semaphore,
    notifier: Notifier,
}

#[libris::resources]
impl Notes {
    /// One note.
    #[resource("notes://all/{name}", mime = "text/markdown")]
    fn note(&self, name: &str) -> String {
        name.to_owned()
    }

    #[list("notes://all/{name}")]
    async fn names(&self) -> Result<Vec<String>> {
        let _ = self.gate.acquire().await;
        self.runs.fetch_add(1, Ordering::SeqCst);
        let names = self.names.lock().unwrap().clone();
        if names.is_empty() { Err(Error::Unavailable("no notes".into())) } else { Ok(names) }
    }

    #[changes]
    fn changes(&self) -> &Notifier {
        &self.notifier
    }
}

fn notes(open: usize) -> (Arc<Notes>, Arc<Catalog>) {
    let notes = Notes {
        names: Mutex::new((10..30).map(|number| number.to_string()).collect()),
        runs: AtomicUsize::new(0),
        gate: Semaphore::new(open),
        notifier: Notifier::new(),
    };
    let notes = Arc::new(notes);
    (notes.clone(), Arc::new(Catalog::new(vec![notes])))
}

impl Notes {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn push(&self, name: &str) {
        self.names.lock().unwrap().push(name.to_owned());
    }
}

async fn page(source: &dyn Source, after: Option<&str>, context: &Context) -> Page {
    source.list(after.map(uri).as_ref(), 6, context).await.unwrap()
}

/// The names on the pages after `after`, to the end.
async fn rest(source: &dyn Source, mut after: Option<String>, context: &Context) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let page = page(source, after.as_deref(), context).await;
        after = page.resources.last().map(|last| last.uri.to_string());
        names.extend(page.resources.iter().map(|resource| resource.name.clone()));
        if !page.more {
            return names;
        }
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn a_walk_runs_the_function_once() {
    let (notes, catalog) = notes(1);
    let context = Context::default();
    for walk in 1..4 {
        assert_eq!(rest(&*catalog, None, &context).await, numbers(10..30));
        assert_eq!(notes.runs(), walk);
    }
    let first = page(&*catalog, None, &context).await;
    let direct = notes.list(None, 6, &context).await.unwrap();
    assert_eq!(first.resources, direct.resources, "all metadata is cached");
}

#[tokio::test]
async fn the_pages_of_a_walk_are_of_one_list() {
    let (notes, catalog) = notes(1);
    let context = Context::default();
    page(&*catalog, None, &context).await;
    notes.push("99");
    let after = Some("notes://all/15".to_owned());
    assert_eq!(rest(&*catalog, after, &context).await, numbers(16..30), "the list is from before the change");
    assert_eq!(notes.runs(), 1);
    assert_eq!(rest(&*catalog, None, &context).await.len(), 21);
    assert_eq!(notes.runs(), 2);
}

#[tokio::test]
async fn a_reported_change_ends_a_cached_list() {
    let (notes, catalog) = notes(1);
    let context = Context::default();
    let after = Some("notes://all/15".to_owned());
    page(&*catalog, None, &context).await;
    // The contents of a note are not part of the list.
    notes.notifier.updated("notes://all/16").unwrap();
    rest(&*catalog, after.clone(), &context).await;
    assert_eq!(notes.runs(), 1);
    notes.push("99");
    notes.notifier.added("notes://all/99").unwrap();
    assert_eq!(rest(&*catalog, after, &context).await.last().unwrap(), "99");
    assert_eq!(notes.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cached_list_expires() {
    let (notes, catalog) = notes(1);
    let context = Context::default();
    page(&*catalog, None, &context).await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    page(&*catalog, Some("notes://all/15"), &context).await;
    assert_eq!(notes.runs(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    page(&*catalog, Some("notes://all/15"), &context).await;
    assert_eq!(notes.runs(), 2);
}

#[tokio::test]
async fn concurrent_walks_share_a_run() {
    let (notes, catalog) = notes(0);
    let walks: Vec<_> = (0..20)
        .map(|number| {
            let catalog = catalog.clone();
            let after = (number % 2 == 1).then_some("notes://all/15");
            tokio::spawn(async move { page(&*catalog, after, &Context::default()).await.resources.len() })
        })
        .collect();
    // Until all walks have started.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    notes.gate.add_permits(1);
    for walk in walks {
        assert_eq!(walk.await.unwrap(), 6);
    }
    assert_eq!(notes.runs(), 1);
}

#[tokio::test]
async fn an_error_is_not_cached() {
    let (notes, _) = notes(1);
    let strict = libris::catalog::Config { strict: true, ..libris::catalog::Config::default() };
    let catalog = Catalog::with_config(vec![notes.clone()], strict);
    let names = std::mem::take(&mut *notes.names.lock().unwrap());
    let error = catalog.list(None, 6, &Context::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "no notes");
    *notes.names.lock().unwrap() = names;
    assert_eq!(rest(&catalog, None, &Context::default()).await.len(), 20);
    assert_eq!(notes.runs(), 2);
}

/// What each caller may list.
struct Private {
    runs: AtomicUsize,
}

#[libris::resources]
impl Private {
    #[resource("private://{name}")]
    fn note(&self, name: &str) -> String {
        name.to_owned()
    }

    #[list("private://{name}")]
    fn names(&self, who: Option<&Identity>) -> Vec<String> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let who = who.map_or("nobody", Identity::name);
        (10..20).map(|number| format!("{who}-{number}")).collect()
    }
}

#[tokio::test]
async fn a_list_that_depends_on_the_caller_is_cached_per_caller() {
    let private = Arc::new(Private { runs: AtomicUsize::new(0) });
    let catalog = Catalog::new(vec![private.clone()]);
    let identities = [None, Some("ada"), Some("grace")];
    let callers = || identities.map(|name| Context::default().with_identity(name.map(Identity::new)));
    for context in callers() {
        page(&catalog, None, &context).await;
    }
    for (context, name) in callers().into_iter().zip(identities) {
        let name = name.unwrap_or("nobody");
        let names = rest(&catalog, Some(format!("private://{name}-15")), &context).await;
        assert_eq!(names, (16..20).map(|number| format!("{name}-{number}")).collect::<Vec<_>>());
        assert!(context.identity_was_used(), "the response must not be cached for others");
    }
    assert_eq!(private.runs.load(Ordering::SeqCst), 3);
    let claims = [("admin".to_owned(), true.into())].into_iter().collect();
    let admin = Context::default().with_identity(Some(Identity::new("ada").with_claims(claims)));
    page(&catalog, Some("private://ada-15"), &admin).await;
    assert_eq!(private.runs.load(Ordering::SeqCst), 4, "other claims may list other resources");
}

#[tokio::test]
async fn lists_of_closures_are_cached_too() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let functions = FunctionSource::new().template("a://{n}", || "text").list("a://{n}", move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async { numbers(10..30) }
    });
    let handle = functions.handle();
    let catalog = Catalog::new(vec![Arc::new(functions)]);
    let context = Context::default();
    assert_eq!(rest(&catalog, None, &context).await, numbers(10..30));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    page(&catalog, None, &context).await;
    handle.resource("a://50", || "added").unwrap();
    let last: Uri = catalog.list(Some(&uri("a://29")), 6, &context).await.unwrap().resources[0].uri.clone();
    assert_eq!((last.as_str(), runs.load(Ordering::SeqCst)), ("a://50", 3));
}

#[test]
fn a_span_contains_what_is_listed() {
    let (notes, _) = notes(1);
    let span = notes.span().unwrap();
    let start = |after: &str| span.start_after(Some(&uri(after))).map(str::to_owned);
    assert_eq!(span.start_after(None), Some("notes://all/"));
    assert_eq!(start("notes://all/10").as_deref(), Some("notes://all/10"));
    assert_eq!(start("notes://b"), None);
}

#[tokio::test]
async fn a_list_without_functions_is_cached_until_it_changes() {
    let functions = FunctionSource::new().resource("one://a", || "a");
    let handle = functions.handle();
    let proof =
        async || Source::list(&functions, None, 10, &Context::default()).await.unwrap().freshness.proof;
    let before = proof().await.unwrap();
    handle.updated("one://a").unwrap();
    assert!(before.holds(), "contents are not part of the list");
    handle.resource("one://b", || "b").unwrap();
    assert!(!before.holds());
    let before = proof().await.unwrap();
    handle.remove("one://b").unwrap();
    assert!(!before.holds());
    let listing = FunctionSource::new()
        .template("note://{name}", |_: libris::Request| "a note")
        .list("note://{name}", async || vec!["a".to_owned()]);
    let page = Source::list(&listing, None, 10, &Context::default()).await.unwrap();
    assert!(page.freshness.proof.is_none(), "a function may list something else at any time");
}
