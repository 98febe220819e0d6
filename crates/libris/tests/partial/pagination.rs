//! Pages of a list while a source fails and recovers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use libris::{Catalog, Context, Source as _, Uri};
use proptest::collection::{btree_set, vec};
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::prop_assert_eq;
use tokio::time::sleep;

use crate::toy::{Behaviour, Toy, catalog, uri};

/// Lists everything in pages, and does something before each of them.
async fn paginate(catalog: &Catalog, limit: usize, mut before: impl AsyncFnMut(usize)) -> Vec<Uri> {
    let (mut all, mut after) = (Vec::new(), None);
    for number in 0.. {
        before(number).await;
        let page = catalog.list(after.as_ref(), limit, &Context::default()).await.unwrap();
        assert!(page.resources.len() <= limit);
        assert!(!page.more || !page.resources.is_empty(), "a client would not know where to go on");
        all.extend(page.resources.into_iter().map(|resource| resource.uri));
        after = all.last().cloned();
        if !page.more {
            break;
        }
    }
    all
}

fn of_scheme<'a>(uris: &'a [Uri], scheme: &str) -> Vec<&'a Uri> {
    uris.iter().filter(|uri| uri.scheme() == scheme).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_resources_of_a_healthy_source_are_listed_once() {
    let healthy = Arc::new(Toy::new("m", 10_000));
    let toys = [healthy.clone(), Arc::new(Toy::new("b", 3_000)), Arc::new(Toy::new("n", 3_000))];
    // The resources of one are among those of the healthy one.
    let among = (0..10_000).step_by(3).map(|number| uri(&format!("m:{number:05}a")));
    toys[2].resources.lock().unwrap().extend(among);
    let catalog = catalog(&toys);
    let cycle =
        [Behaviour::Answers, Behaviour::Fails, Behaviour::Answers, Behaviour::Hangs, Behaviour::Panics];
    let listed = paginate(&catalog, 100, async |page| {
        toys[1].behave(cycle[page / 3 % cycle.len()]);
        toys[2].behave(cycle[page / 7 % cycle.len()]);
        sleep(Duration::from_millis(700)).await;
    })
    .await;
    assert!(listed.is_sorted_by(|one, other| one < other), "in order, and each once");
    let healthy: Vec<_> = healthy.resources.lock().unwrap().iter().cloned().collect();
    let listed: Vec<_> =
        listed.into_iter().filter(|uri| !uri.as_str().ends_with('a') && uri.scheme() == "m").collect();
    assert_eq!(listed, healthy);
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        3 => Just(Behaviour::Answers),
        1 => Just(Behaviour::Fails),
        1 => Just(Behaviour::Hangs),
        1 => Just(Behaviour::Panics),
        1 => Just(Behaviour::FailsLater),
        1 => Just(Behaviour::Alternates),
    ]
}

fn numbers() -> impl Strategy<Value = BTreeSet<usize>> {
    btree_set(0..60_usize, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever the others do, each resource of a source that answers is listed exactly once, and in order.
    #[test]
    fn pages_are_exact_for_sources_that_answer(
        healthy in vec(numbers(), 1..4),
        others in vec(numbers(), 1..3),
        limit in 1..12_usize,
        steps in vec((0..2_usize, behaviours(), 0..4_000_u64), 1..30),
        known in 0..2_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let toy = |scheme, numbers: &BTreeSet<usize>| {
                let toy = Toy::new(scheme, 0);
                // All have the same URIs, so that they interleave and coincide.
                let uris = numbers.iter().map(|number| uri(&format!("x:{number:02}")));
                toy.resources.lock().unwrap().extend(uris);
                Arc::new(toy)
            };
            let healthy: Vec<_> = healthy.iter().map(|numbers| toy("h", numbers)).collect();
            let others: Vec<_> = others.iter().map(|numbers| toy("o", numbers)).collect();
            let all: Vec<_> = others.iter().chain(&healthy).cloned().collect();
            let catalog = catalog(&all);
            if known == 1 {
                paginate(&catalog, limit, async |_| {}).await;
            }
            let listed = paginate(&catalog, limit, async |page| {
                if let Some((index, behaviour, pause)) = steps.get(page) {
                    others[index % others.len()].behave(*behaviour);
                    sleep(Duration::from_millis(*pause)).await;
                }
            })
            .await;
            prop_assert_eq!(of_scheme(&listed, "x").len(), listed.len());
            let expected: BTreeSet<Uri> = healthy.iter().flat_map(|toy| toy.resources.lock().unwrap().clone()).collect();
            let each: BTreeSet<Uri> = listed.iter().cloned().collect();
            prop_assert_eq!(each.len(), listed.len(), "no resource twice");
            let of_healthy: Vec<_> = listed.iter().filter(|uri| expected.contains(*uri)).cloned().collect();
            prop_assert_eq!(of_healthy, expected.into_iter().collect::<Vec<_>>());
            Ok(())
        })?;
    }
}
