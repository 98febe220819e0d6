//! The contract suite, on sources made of functions.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use libris::{Catalog, FunctionSource, Instance, Notifier, Request, Source, Uri};
use libris_core::contract::{Fixture, check};
use std::sync::Arc;

use crate::uri;

#[derive(Default)]
struct Notes {
    notes: Mutex<BTreeMap<String, String>>,
    notifier: Notifier,
}

#[libris::resources]
impl Notes {
    /// How many there are.
    #[resource("notes://count", cache = "1h")]
    fn count(&self) -> String {
        self.notes().len().to_string()
    }

    #[resource("notes://about", mime = "text/plain")]
    async fn about(&self) -> &'static str {
        "notes"
    }

    /// One note.
    #[resource("notes://all/{id}{?upper}", mime = "text/plain")]
    fn note(&self, id: &str, upper: Option<bool>) -> Option<String> {
        let note = self.notes().get(id).cloned()?;
        Some(if upper == Some(true) { note.to_uppercase() } else { note })
    }

    #[complete("notes://all/{id}{?upper}", id)]
    fn ids(&self) -> Vec<String> {
        self.notes().keys().cloned().collect()
    }

    #[list("notes://all/{id}{?upper}")]
    async fn all(&self) -> Vec<Instance> {
        self.notes().keys().map(Instance::of).collect()
    }

    #[changes]
    fn changes(&self) -> &Notifier {
        &self.notifier
    }
}

impl Notes {
    fn with(names: &[&str]) -> Self {
        let notes = Self::default();
        notes.notes().extend(names.iter().map(|name| (name.to_string(), format!("about {name}"))));
        notes
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.notes.lock().unwrap()
    }
}

/// A source that is made of notes, and the notes.
struct Made<S> {
    source: S,
    notes: Arc<Notes>,
}

fn id(uri: &Uri) -> String {
    uri.path().strip_prefix('/').unwrap().to_owned()
}

#[async_trait]
impl<S: Source> Fixture for Made<S> {
    fn source(&self) -> &dyn Source {
        &self.source
    }

    fn unknown(&self) -> Uri {
        uri("notes://all/unknown")
    }

    fn invalid(&self) -> Vec<Uri> {
        ["notes://all/a?upper=x", "notes://all/a?other=1", "notes://all/..%2f", "notes://all/a/b"]
            .map(uri)
            .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let added = uri(&format!("notes://all/added-{number}"));
        self.notes.notes().insert(id(&added), "new".into());
        self.notes.notifier.added(&added).unwrap();
        Some(added)
    }

    async fn change(&self, uri: &Uri) -> bool {
        self.notes.notes().insert(id(uri), "changed".into());
        self.notes.notifier.updated(uri).is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        self.notes.notes().remove(&id(uri));
        self.notes.notifier.removed(uri).is_ok()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

const NAMES: [&str; 5] = ["a", "a b", "ä/ö", "b", "c%20d"];

#[tokio::test]
async fn a_source_that_the_attributes_make() {
    let notes = Arc::new(Notes::with(&NAMES));
    check(&Made { source: notes.clone(), notes }).await;
}

#[tokio::test]
async fn a_catalog_with_one_and_another() {
    let notes = Arc::new(Notes::with(&NAMES));
    let other = FunctionSource::new().resource("notes://all/", || "").resource("other://x", || "x");
    check(&Made { source: Catalog::new(vec![notes.clone(), Arc::new(other)]), notes }).await;
}

/// Resources that come and go by a handle.
struct Built {
    functions: FunctionSource,
}

#[async_trait]
impl Fixture for Built {
    fn source(&self) -> &dyn Source {
        &self.functions
    }

    fn unknown(&self) -> Uri {
        uri("lib://unknown")
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let added = uri(&format!("lib://added/{number}"));
        self.functions.handle().resource(added.as_str(), || "added").unwrap();
        Some(added)
    }

    async fn change(&self, uri: &Uri) -> bool {
        self.functions.handle().resource(uri.as_str(), || "changed").is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        self.functions.handle().remove(uri).unwrap()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn a_source_that_is_built() {
    let page =
        |request: Request| async move { Ok::<_, libris::Error>(format!("{}", request.variable::<u8>("n")?)) };
    let functions = FunctionSource::new()
        .resource("lib://a", || "a")
        .resource("lib://b", || async { vec![0u8] })
        .template("lib://pages/{n}", page)
        .complete("lib://pages/{n}", "n", |_| vec!["1", "12", "2"])
        .list("lib://pages/{n}", || async { vec!["1", "12", "2"] });
    check(&Built { functions }).await;
}
