//! Pages for which a catalog asks only some of its sources, because the others have nothing on them.

use std::sync::Arc;
use std::time::Duration;

use libris::{Context, Proof, Source as _, Uri};
use tokio::time::Instant;

use crate::toy::{Behaviour, MINUTE, Toy, catalog, missing, uri, uris};

/// Three sources, one after the other in the order of URIs, in another order in the catalog.
fn toys() -> [Arc<Toy>; 3] {
    ["b", "a", "c"].map(|scheme| Arc::new(Toy::new(scheme, 5).spanning().proving()))
}

fn asked(toys: &[Arc<Toy>]) -> Vec<usize> {
    toys.iter().map(|toy| toy.asked()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_page_asks_only_the_sources_that_can_be_on_it() {
    let toys = toys();
    let catalog = catalog(&toys);
    let page = async |after: Option<&Uri>| catalog.list(after, 3, &Context::default()).await.unwrap();
    let first = page(None).await;
    assert_eq!((uris(&first), first.more), (vec!["a:00000", "a:00001", "a:00002"], true));
    assert_eq!(asked(&toys), [0, 1, 0]);
    // The first source has no more, so the next one is asked too; the last one is behind both.
    let second = page(Some(&first.resources[2].uri)).await;
    assert_eq!(uris(&second), ["a:00003", "a:00004", "b:00000"]);
    assert_eq!(asked(&toys), [1, 2, 1]);
    let last = page(Some(&uri("c:00001"))).await;
    assert_eq!((uris(&last), last.more), (vec!["c:00002", "c:00003", "c:00004"], false));
    assert_eq!(asked(&toys), [1, 2, 2]);
    let nothing = page(Some(&uri("d:0"))).await;
    assert_eq!((uris(&nothing), nothing.more), (vec![], false));
    assert_eq!(nothing.freshness.ttl, Duration::ZERO);
    assert_eq!(asked(&toys), [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_page_can_be_cached_if_the_sources_on_it_prove_theirs() {
    let proving = Arc::new(Toy::new("a", 5).spanning().proving());
    let unproven = Arc::new(Toy::new("b", 5).spanning());
    let catalog = catalog(&[unproven, proving]);
    let proof = async |after: Option<&Uri>| {
        let page = catalog.list(after, 3, &Context::default()).await.unwrap();
        (page.freshness.proof.as_ref().is_some_and(Proof::holds), page.freshness.ttl)
    };
    assert_eq!(proof(None).await, (true, MINUTE));
    assert_eq!(proof(Some(&uri("a:00003"))).await, (false, Duration::ZERO));
    assert_eq!(proof(Some(&uri("b:00001"))).await, (false, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn pages_are_the_same_as_those_of_all_sources() {
    for limit in [1, 2, 3, 4, 5, 7, 14, 15, 16] {
        let unknown = ["b", "a", "c"].map(|scheme| Arc::new(Toy::new(scheme, 5)));
        let (all, few) = (catalog(&unknown), catalog(&toys()));
        let mut after = None;
        loop {
            let one = all.list(after.as_ref(), limit, &Context::default()).await.unwrap();
            let other = few.list(after.as_ref(), limit, &Context::default()).await.unwrap();
            assert_eq!((uris(&one), one.more), (uris(&other), other.more), "{limit} {after:?}");
            after = one.resources.last().map(|last| last.uri.clone());
            if !one.more {
                break;
            }
        }
    }
}

/// As a mounted MCP server, whose apps have another scheme than its other resources.
#[tokio::test(start_paused = true)]
async fn a_page_between_the_ranges_of_a_source_does_not_ask_it() {
    let outer = Arc::new(Toy::new("a", 2).with_resource("c:00000").spanning().proving());
    let inner = Arc::new(Toy::new("b", 5).spanning().proving());
    let catalog = catalog(&[outer.clone(), inner.clone()]);
    let page = async |after: Option<&Uri>| catalog.list(after, 2, &Context::default()).await.unwrap();
    assert_eq!(uris(&page(None).await), ["a:00000", "a:00001"]);
    assert_eq!(uris(&page(Some(&uri("a:00001"))).await), ["b:00000", "b:00001"]);
    let asked = outer.asked();
    assert_eq!(uris(&page(Some(&uri("b:00001"))).await), ["b:00002", "b:00003"]);
    assert_eq!(outer.asked(), asked);
    assert_eq!(uris(&page(Some(&uri("b:00003"))).await), ["b:00004", "c:00000"]);
    assert_eq!(outer.asked(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_named_on_its_own_pages() {
    let toys = toys();
    let catalog = catalog(&toys);
    toys[0].behave(Behaviour::Fails);
    let first = catalog.list(None, 3, &Context::default()).await.unwrap();
    assert_eq!(missing(&first.unavailable), []);
    let second = catalog.list(Some(&uri("a:00002")), 3, &Context::default()).await.unwrap();
    assert_eq!((uris(&second), second.more), (vec!["a:00003", "a:00004", "c:00000"], true));
    assert_eq!(missing(&second.unavailable), [("b", false)]);
    // The page of a source that fails is not an error while the catalog has others.
    toys[2].behave(Behaviour::Fails);
    let last = catalog.list(Some(&uri("c:00001")), 3, &Context::default()).await.unwrap();
    assert_eq!((uris(&last), missing(&last.unavailable)), (vec![], vec![("c", false)]));
}

#[tokio::test(start_paused = true)]
async fn a_later_source_is_stored_from_its_first_page_on() {
    let first = Arc::new(Toy::new("a", 4).spanning());
    let second = Arc::new(Toy::new("b", 4).spanning());
    let catalog = catalog(&[first, second.clone()]);
    let page = async |after: &str| catalog.list(Some(&uri(after)), 3, &Context::default()).await.unwrap();
    assert_eq!(uris(&page("a:00003").await), ["b:00000", "b:00001", "b:00002"]);
    second.behave(Behaviour::Fails);
    let stale = page("a:00003").await;
    assert_eq!(uris(&stale), ["b:00000", "b:00001", "b:00002"]);
    assert_eq!(missing(&stale.unavailable), [("b", true)]);
}

#[tokio::test(start_paused = true)]
async fn the_others_do_not_wait_for_a_source_that_hangs() {
    let toys = toys();
    toys[1].behave(Behaviour::Hangs);
    toys[2].behave(Behaviour::Hangs);
    let (catalog, begun) = (catalog(&toys), Instant::now());
    let page = catalog.list(None, 3, &Context::default()).await.unwrap();
    assert_eq!(uris(&page), ["b:00000", "b:00001", "b:00002"]);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}: the time-outs add up", begun.elapsed());
}
