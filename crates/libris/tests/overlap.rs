//! Sources of one catalog with overlapping URIs: which one is read, and which one is followed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use libris::uri_template::Specificity;
use libris::wire::Client;
use libris::{
    CacheScope, Catalog, Completion, CompletionRequest, Content, ContentBody, Contents, Context, Error,
    Freshness, Page, Proof, Resource, Result, Source, Template, Templates, Uri, UriTemplate,
};
use tokio::sync::Semaphore;

/// How long clients may use templates.
const MINUTE: Duration = Duration::from_secs(60);

/// A source that covers all URIs, with scripted content.
struct Shelf {
    name: &'static str,
    specificity: Specificity,
    /// Whether somebody else chooses its URIs.
    is_exclusive: bool,
    has: Has,
    followed: Mutex<BTreeSet<(Uri, Client)>>,
    /// The number of requests in progress.
    working: AtomicUsize,
    /// Each request for children or values waits for one of these.
    may_answer: Semaphore,
}

/// What a source answers to whatever it is asked for.
#[derive(Clone, Copy)]
enum Has {
    Everything,
    Nothing,
    /// It fails.
    Faults,
}

impl Shelf {
    fn new(name: &'static str, has: Has) -> Self {
        Self {
            name,
            specificity: Specificity::EXACT,
            is_exclusive: false,
            has,
            followed: Mutex::default(),
            working: AtomicUsize::new(0),
            may_answer: Semaphore::new(Semaphore::MAX_PERMITS),
        }
    }

    /// One that means its URIs less closely.
    fn vague(self) -> Self {
        Self { specificity: UriTemplate::parse("a:{name}").unwrap().specificity(), ..self }
    }

    /// One that may have any URI and claims none.
    fn any(self) -> Self {
        Self { specificity: UriTemplate::parse("{+uri}").unwrap().specificity(), ..self }
    }

    /// One whose URIs somebody else chooses.
    fn exclusive(self) -> Self {
        Self { is_exclusive: true, ..self }
    }

    /// One that answers requests for children or values when the test says so.
    fn held(self) -> Self {
        Self { may_answer: Semaphore::new(0), ..self }
    }

    fn answer<T>(&self, uri: &Uri, answer: T) -> Result<T> {
        match self.has {
            Has::Everything => Ok(answer),
            Has::Nothing => Err(Error::NotFound(uri.clone())),
            Has::Faults => Err(Error::failed("ask the shelf", "it fell over")),
        }
    }

    async fn work(&self) {
        self.working.fetch_add(1, Ordering::SeqCst);
        self.may_answer.acquire().await.unwrap().forget();
        self.working.fetch_sub(1, Ordering::SeqCst);
    }

    fn followed(&self) -> Vec<(String, Client)> {
        self.followed.lock().unwrap().iter().map(|(uri, client)| (uri.to_string(), *client)).collect()
    }
}

#[async_trait]
impl Source for Shelf {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        Some(self.specificity)
    }

    fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        self.name.into()
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page { resources: vec![Resource::new(uri("a:1"), self.name)], ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        let part = Content::text(uri.clone(), "text/plain", self.name);
        self.answer(uri, Contents { parts: vec![part], freshness: Freshness::proven(Proof::always()) })
    }

    async fn templates(&self, _: &Context) -> Result<Templates> {
        let templates = vec![Template::new(UriTemplate::parse("a:{name}").unwrap(), self.name)];
        let freshness = Freshness::proven(Proof::always()).with_ttl(MINUTE).with_scope(CacheScope::Public);
        Ok(Templates { templates, freshness, ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _: &Context) -> Result<Completion> {
        self.work().await;
        Ok(Completion::of([self.name], "", asked.limit))
    }

    async fn children(&self, uri: &Uri, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        self.work().await;
        self.answer(uri, Page { resources: vec![Resource::new(uri.clone(), self.name)], ..Page::default() })
    }

    /// A subject that tells the source.
    fn subject(&self, uri: &Uri) -> Uri {
        Uri::parse(&format!("{}?{}", uri.without_query(), self.name)).unwrap()
    }

    fn follow(&self, subject: &Uri, client: Client) {
        self.followed.lock().unwrap().insert((subject.clone(), client));
    }

    fn unfollow(&self, subject: &Uri) {
        self.followed.lock().unwrap().retain(|(followed, _)| followed != subject);
    }

    fn concurrency(&self) -> usize {
        1
    }
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

fn catalog(shelves: &[&Arc<Shelf>]) -> Catalog {
    Catalog::new(shelves.iter().map(|shelf| Arc::clone(shelf) as Arc<dyn Source>).collect())
}

/// The name of the source whose contents these are.
fn origin(contents: &Contents) -> &str {
    match &contents.parts[0].body {
        ContentBody::Text(name) => name,
        body => panic!("{body:?} is not text"),
    }
}

#[tokio::test]
async fn the_source_that_means_a_uri_most_closely_answers() {
    let (vague, exact) = (
        Arc::new(Shelf::new("vague", Has::Everything).vague()),
        Arc::new(Shelf::new("exact", Has::Everything)),
    );
    for shelves in [[&vague, &exact], [&exact, &vague]] {
        let catalog = catalog(&shelves);
        assert_eq!(catalog.covers(&uri("a:1")), Some(Specificity::EXACT));
        let read = catalog.read(&uri("a:1"), &Context::default()).await.unwrap();
        assert_eq!(origin(&read), "exact");
        let children = catalog.children(&uri("a:1"), None, 9, &Context::default()).await.unwrap();
        assert_eq!(&*children.resources[0].name, "exact");
        assert_eq!(catalog.subject(&uri("a:1")), uri("a:1?exact"));
    }
}

#[tokio::test]
async fn of_equals_the_source_that_was_added_first_answers() {
    let [one, other, last] = ["one", "other", "last"].map(|name| Arc::new(Shelf::new(name, Has::Everything)));
    let catalog = catalog(&[&one, &other]);
    catalog.add(last);
    let context = Context::default();
    assert_eq!(origin(&catalog.read(&uri("a:1"), &context).await.unwrap()), "one");
    assert_eq!(&*catalog.list(None, 9, &context).await.unwrap().resources[0].name, "one");
    assert_eq!(catalog.subject(&uri("a:1")), uri("a:1?one"));
}

#[tokio::test]
async fn what_one_source_does_not_have_is_asked_of_the_next() {
    let empty = Arc::new(Shelf::new("empty", Has::Nothing));
    let full = Arc::new(Shelf::new("full", Has::Everything));
    let catalog = catalog(&[&empty, &full]);
    let read = catalog.read(&uri("a:1"), &Context::default()).await.unwrap();
    assert_eq!(origin(&read), "full");
    assert!(read.freshness.proof.is_none(), "nothing proves that the first source has nothing there still");
    let children = catalog.children(&uri("a:1"), None, 9, &Context::default()).await.unwrap();
    assert_eq!(&*children.resources[0].name, "full");
}

#[tokio::test]
async fn a_source_that_fails_is_not_passed_over() {
    let broken = Arc::new(Shelf::new("broken", Has::Faults));
    let full = Arc::new(Shelf::new("full", Has::Everything));
    let catalog = catalog(&[&broken, &full]);
    let read = catalog.read(&uri("a:1"), &Context::default()).await;
    assert!(matches!(read, Err(Error::Failed { .. })), "{read:?}");
    let children = catalog.children(&uri("a:1"), None, 9, &Context::default()).await;
    assert!(matches!(children, Err(Error::Failed { .. })), "{children:?}");
}

#[tokio::test]
async fn contents_are_proven_while_the_sources_are_the_same() {
    let [one, other] = ["one", "other"].map(|name| Arc::new(Shelf::new(name, Has::Everything)));
    let catalog = catalog(&[&one]);
    let read = async |catalog: &Catalog| {
        let contents = catalog.read(&uri("a:1"), &Context::default()).await.unwrap();
        contents.freshness.proof.expect("the source has a proof")
    };
    let proof = read(&catalog).await;
    assert!(proof.holds());
    catalog.add(other);
    assert!(!proof.holds(), "the new source may mean the URI more closely");
    let proof = read(&catalog).await;
    assert!(proof.holds());
    drop(catalog);
    assert!(!proof.holds(), "nobody tells any more whether the sources are the same");
}

#[tokio::test]
async fn one_source_follows_a_subject_and_all_are_told_that_nobody_does() {
    let (vague, exact) = (
        Arc::new(Shelf::new("vague", Has::Everything).vague()),
        Arc::new(Shelf::new("exact", Has::Everything)),
    );
    let catalog = catalog(&[&vague]);
    let client = Client::at([127, 0, 0, 7].into());
    catalog.follow(&uri("a:1"), client);
    assert_eq!(vague.followed(), [("a:1".to_owned(), client)]);
    catalog.add(exact.clone());
    catalog.follow(&uri("a:2"), client);
    assert_eq!(vague.followed(), [("a:1".to_owned(), client)]);
    assert_eq!(exact.followed(), [("a:2".to_owned(), client)]);
    for subject in ["a:1", "a:2"] {
        catalog.unfollow(&uri(subject));
    }
    assert!(vague.followed().is_empty() && exact.followed().is_empty());
}

#[tokio::test]
async fn children_and_values_take_turns() {
    let shelf = Arc::new(Shelf::new("held", Has::Everything).held());
    let catalog = catalog(&[&shelf]);
    let (template, known) = (UriTemplate::parse("a:{name}").unwrap(), Default::default());
    let asked =
        CompletionRequest { template: &template, variable: "name", typed: "", known: &known, limit: 9 };
    let context = Context::default();
    let mut values = [0, 1].map(|_| catalog.complete(asked, &context));
    for waiting in &mut values {
        assert!(waiting.now_or_never().is_none());
    }
    assert_eq!(shelf.working.load(Ordering::SeqCst), 1);
    shelf.may_answer.add_permits(2);
    for waiting in values {
        assert_eq!(waiting.await.unwrap().values, ["held"]);
    }
    let place = uri("a:1");
    let mut children = [0, 1].map(|_| catalog.children(&place, None, 9, &context));
    for waiting in &mut children {
        assert!(waiting.now_or_never().is_none());
    }
    assert_eq!(shelf.working.load(Ordering::SeqCst), 1);
    shelf.may_answer.add_permits(2);
    for waiting in children {
        assert_eq!(waiting.await.unwrap().resources.len(), 1);
    }
}

#[tokio::test]
async fn the_status_does_not_make_templates_less_fresh() {
    let catalog = catalog(&[&Arc::new(Shelf::new("full", Has::Everything))]);
    catalog.add_status();
    let Templates { templates, freshness, .. } = catalog.templates(&Context::default()).await.unwrap();
    assert_eq!(templates.len(), 2);
    assert_eq!((freshness.ttl, freshness.scope), (MINUTE, CacheScope::Public));
    assert!(freshness.proof.unwrap().holds());
}

#[tokio::test]
async fn a_catalog_without_sources_is_empty_until_one_is_added() {
    let catalog = catalog(&[]);
    let page = catalog.list(None, 9, &Context::default()).await.unwrap();
    let proof = page.freshness.proof.expect("nothing else could be listed");
    assert!(page.resources.is_empty() && proof.holds());
    catalog.add(Arc::new(Shelf::new("full", Has::Everything)));
    assert!(!proof.holds());
}

#[tokio::test]
async fn a_uri_that_an_exclusive_source_shares_is_served_from_neither() {
    let shelf = |name| Shelf::new(name, Has::Everything);
    let pairs = [
        [shelf("one").exclusive(), shelf("other").exclusive()],
        [shelf("one").exclusive(), shelf("other")],
        [shelf("one"), shelf("other").exclusive()],
        // An exclusive source cannot put a resource in the place of one that another source has by a template.
        [shelf("one").exclusive(), shelf("other").vague()],
        [shelf("one").vague().exclusive(), shelf("other").vague().exclusive()],
    ];
    for pair in pairs {
        let pair = pair.map(Arc::new);
        let catalog = catalog(&[&pair[0], &pair[1]]);
        let error = catalog.read(&uri("a:1"), &Context::default()).await.unwrap_err().to_string();
        let expected = "`a:1` is served neither from `one` nor from `other`, because both have it; hint: set `uris = \
                        \"prefixed\"` for one of them";
        assert_eq!(error, expected);
        let children = catalog.children(&uri("a:1"), None, 9, &Context::default()).await;
        assert_eq!(children.unwrap_err().to_string(), expected);
        assert!(catalog.list(None, 9, &Context::default()).await.unwrap().resources.is_empty());
        assert!(catalog.templates(&Context::default()).await.unwrap().templates.is_empty());
        catalog.follow(&uri("a:1"), Client::default());
        assert!(pair.iter().all(|shelf| shelf.followed().is_empty()));
    }
}

#[tokio::test]
async fn a_source_that_claims_a_uri_more_closely_than_an_exclusive_one_answers() {
    let shelf = |name| Shelf::new(name, Has::Everything);
    let pairs = [
        [shelf("best"), shelf("other").vague().exclusive()],
        [shelf("best").exclusive(), shelf("other").vague().exclusive()],
        // One that claims nothing does not collide.
        [shelf("best").exclusive(), shelf("other").any()],
        [shelf("best").any().exclusive(), shelf("other").any().exclusive()],
    ];
    for pair in pairs {
        let pair = pair.map(Arc::new);
        let catalog = catalog(&[&pair[0], &pair[1]]);
        assert_eq!(origin(&catalog.read(&uri("a:1"), &Context::default()).await.unwrap()), "best");
        assert_eq!(catalog.list(None, 9, &Context::default()).await.unwrap().resources.len(), 1);
    }
}

/// A source that covers nothing and has a hint for URIs of one scheme.
struct Hinting(&'static str);

#[async_trait]
impl Source for Hinting {
    fn covers(&self, _uri: &Uri) -> Option<Specificity> {
        None
    }

    async fn list(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _context: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        (uri.scheme() == self.0).then(|| format!("a hint of {}", self.0))
    }
}

#[tokio::test]
async fn a_uri_that_no_source_covers_gets_the_hint_of_one() {
    let hinting = || ["one", "other"].map(|scheme| Arc::new(Hinting(scheme)) as Arc<dyn Source>);
    let catalog = Catalog::new(hinting().into());
    for (text, expected) in [
        ("one:x", "no resource at `one:x`: a hint of one"),
        ("other:x", "no resource at `other:x`: a hint of other"),
        ("third:x", "no resource at `third:x`"),
    ] {
        let error = catalog.read(&uri(text), &Context::default()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    // A source that covers the URI knows better.
    let exact = Arc::new(Shelf::new("exact", Has::Nothing)) as Arc<dyn Source>;
    let catalog = Catalog::new(hinting().into_iter().chain([exact]).collect());
    let error = catalog.read(&uri("one:x"), &Context::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "no resource at `one:x`");
}
