//! Proofs of missing resources in a catalog of several sources.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use libris::uri_template::Specificity;
use libris::{Catalog, Content, Contents, Context, Error, Freshness, Page, Proof, Result, Source, Uri};

use crate::toy::uri;

/// A source that may have `a:b`, and whose answers are valid until somebody says otherwise.
struct Shelf {
    has_it: bool,
    is_proven: bool,
    valid: Arc<AtomicBool>,
}

impl Shelf {
    fn with_validity(has_it: bool, is_proven: bool) -> (Arc<dyn Source>, Arc<AtomicBool>) {
        let valid = Arc::new(AtomicBool::new(true));
        (Arc::new(Self { has_it, is_proven, valid: valid.clone() }), valid)
    }
}

#[async_trait]
impl Source for Shelf {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        Some(Specificity::EXACT)
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        let valid = self.valid.clone();
        let proof = self.is_proven.then(|| Proof::new(move || valid.load(Ordering::SeqCst)));
        match self.has_it {
            true => Ok(Contents::from(Content::text(uri.clone(), "text/plain", "a toy"))
                .with_freshness(Freshness::proven(proof))),
            false => Err(Error::missing(uri, "look elsewhere").with_proof(proof)),
        }
    }
}

async fn proof(sources: Vec<Arc<dyn Source>>) -> Option<Proof> {
    let catalog = Catalog::new(sources);
    let proof = match catalog.read(&uri("a:b"), &Context::default()).await {
        Ok(contents) => contents.freshness.proof,
        Err(error) => error.proof().cloned(),
    }?;
    // The proof ends with the catalog, which therefore has to live on.
    std::mem::forget(catalog);
    Some(proof)
}

#[tokio::test]
async fn a_resource_behind_a_missing_one_is_proven_by_both() {
    for changed in 0..2 {
        let (missing, one) = Shelf::with_validity(false, true);
        let (found, other) = Shelf::with_validity(true, true);
        let proof = proof(vec![missing, found]).await.unwrap();
        assert!(proof.holds());
        [one, other][changed].store(false, Ordering::SeqCst);
        assert!(!proof.holds(), "source {changed} has changed");
    }
    // The first source may get the resource without telling.
    let (missing, _) = Shelf::with_validity(false, false);
    let (found, _) = Shelf::with_validity(true, true);
    assert!(proof(vec![missing, found]).await.is_none());
}

#[tokio::test]
async fn a_missing_resource_is_proven_by_all_sources() {
    for changed in 0..2 {
        let ((one, first), (other, second)) =
            (Shelf::with_validity(false, true), Shelf::with_validity(false, true));
        let proof = proof(vec![one, other]).await.unwrap();
        assert!(proof.holds());
        [first, second][changed].store(false, Ordering::SeqCst);
        assert!(!proof.holds(), "source {changed} has changed");
    }
    for is_proven in [[true, false], [false, true]] {
        let sources = is_proven.map(|is_proven| Shelf::with_validity(false, is_proven).0);
        assert!(proof(sources.into()).await.is_none(), "{is_proven:?}");
    }
}

#[tokio::test]
async fn a_new_source_may_have_what_is_missing() {
    let (missing, _) = Shelf::with_validity(false, true);
    let catalog = Catalog::new(vec![missing]);
    let error = catalog.read(&uri("a:b"), &Context::default()).await.unwrap_err();
    let proof = error.proof().cloned().unwrap();
    assert!(proof.holds());
    catalog.add(Shelf::with_validity(true, true).0);
    assert!(!proof.holds());
}
