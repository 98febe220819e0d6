//! Lists while sources are unavailable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use libris::{CacheScope, Catalog, Change, Context, Error, Identity, Source as _};
use tokio::time::{Instant, sleep, timeout};

use crate::toy::{
    Behaviour, Load, MINUTE, REJECTED, Toy, catalog, list, missing, next, recovered, strict, text, uri, uris,
};

const LIMIT: Duration = Duration::from_secs(5);

fn five() -> Vec<Arc<Toy>> {
    let toys = [
        Toy::new("a", 2),
        Toy::new("b", 1).behaving(Behaviour::Hangs),
        Toy::new("c", 1),
        Toy::new("d", 1).behaving(Behaviour::Fails),
        Toy::new("e", 1),
    ];
    toys.map(Arc::new).into()
}

#[tokio::test(start_paused = true)]
async fn a_list_has_the_sources_that_answer_in_time() {
    let toys = five();
    let catalog = catalog(&toys);
    catalog.add_status();
    let (before, begun) = (SystemTime::now(), Instant::now());
    let page = list(&catalog).await.unwrap();
    assert!((LIMIT..LIMIT * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(uris(&page), ["a:00000", "a:00001", "c:00000", "e:00000", "libris://status"]);
    assert_eq!(missing(&page.unavailable), [("b", false), ("d", false)]);
    for unavailable in &page.unavailable {
        assert!((before..=SystemTime::now()).contains(&unavailable.since));
    }
    assert_eq!(page.freshness, Default::default(), "such a page is not used again");
    assert!(page.freshness.proof.is_none());

    // The catalog does not wait for a source that is known to hang: the paused clock does not advance.
    let (asked, begun) = (toys[1].asked(), Instant::now());
    let again = list(&catalog).await.unwrap();
    assert_eq!((again.unavailable, begun.elapsed()), (page.unavailable, Duration::ZERO));
    assert_eq!(toys[1].asked(), asked);

    let templates = catalog.templates(&Context::default()).await.unwrap();
    let names: Vec<_> = templates.templates.iter().map(|template| template.uri.as_str()).collect();
    assert_eq!(names, ["a:{number}", "c:{number}", "e:{number}", "libris://status{?as}"]);
    assert_eq!(missing(&templates.unavailable), [("b", false), ("d", false)]);
}

#[tokio::test(start_paused = true)]
async fn recoveries_are_announced() {
    let toys = five();
    let catalog = catalog(&toys);
    catalog.add_status();
    let mut changes = catalog.watch().await.unwrap().unwrap();
    list(&catalog).await.unwrap();
    let status = Change::Updated(uri("libris://status"));
    assert_eq!(next(&mut changes).await, status.clone());
    toys.iter().for_each(|toy| toy.behave(Behaviour::Answers));
    let mut seen = Vec::new();
    while let Ok(change) = timeout(Duration::from_secs(60), changes.next()).await {
        seen.push(change.unwrap());
    }
    assert!(seen.contains(&Change::Lost) && seen.contains(&status), "{seen:?}");
    let page = list(&catalog).await.unwrap();
    assert_eq!(page.unavailable, []);
    assert_eq!(
        uris(&page),
        ["a:00000", "a:00001", "b:00000", "c:00000", "d:00000", "e:00000", "libris://status"]
    );
    // Their watches, which could not be opened before, are open now.
    for name in ["b:00000", "d:00000"] {
        toys.iter().for_each(|toy| toy.tell(&Change::Updated(uri(name))));
        for _ in &toys {
            assert_eq!(next(&mut changes).await, Change::Updated(uri(name)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn probes_back_off() {
    let toy = Arc::new(Toy::new("a", 1).behaving(Behaviour::IsUnavailable));
    let catalog = catalog(&[toy.clone(), Arc::new(Toy::new("b", 1))]);
    list(&catalog).await.unwrap();
    let mut probes = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(100) {
        let asked = toy.asked();
        sleep(Duration::from_millis(500)).await;
        list(&catalog).await.unwrap();
        if toy.asked() > asked {
            probes.push(begun.elapsed().as_secs());
        }
    }
    assert_eq!(probes, [1, 3, 7, 15, 31, 61, 91], "after 1, 2, 4, 8, 16, 30 and 30 seconds");
    toy.behave(Behaviour::Answers);
    assert!(recovered(&catalog).await <= Duration::from_secs(31));

    // The backoff is kept if a source fails right after it recovered.
    toy.behave(Behaviour::IsUnavailable);
    list(&catalog).await.unwrap();
    toy.behave(Behaviour::Answers);
    assert!(recovered(&catalog).await > Duration::from_secs(20));
    sleep(Duration::from_secs(100)).await;
    toy.behave(Behaviour::IsUnavailable);
    list(&catalog).await.unwrap();
    toy.behave(Behaviour::Answers);
    assert!(recovered(&catalog).await < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn the_last_known_listing_is_served_and_marked() {
    let toys = [Toy::new("a", 3), Toy::new("b", 1), Toy::new("c", 2).proving()].map(Arc::new);
    let catalog = catalog(&toys);
    let page = list(&catalog).await.unwrap();
    catalog.templates(&Context::default()).await.unwrap();
    for behaviour in [Behaviour::Fails, Behaviour::Hangs, Behaviour::Panics, Behaviour::IsUnavailable] {
        toys[0].behave(behaviour);
        toys[2].behave(behaviour);
        let stale = list(&catalog).await.unwrap();
        assert_eq!(uris(&stale), ["a:00000", "a:00001", "a:00002", "b:00000"]);
        // What a source proves is not copied, and so is not known without it.
        assert_eq!(missing(&stale.unavailable), [("a", true), ("c", false)]);
        assert!(stale.freshness.proof.is_none());
        let templates = catalog.templates(&Context::default()).await.unwrap();
        assert_eq!(missing(&templates.unavailable), [("a", true), ("c", true)]);
        assert_eq!(templates.templates.len(), 3);
        toys.iter().for_each(|toy| toy.behave(Behaviour::Answers));
        recovered(&catalog).await;
        assert_eq!(list(&catalog).await.unwrap(), page);
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_caller_was_listed_is_not_for_others() {
    let toys = [Toy::new("a", 3).behaving(Behaviour::FailsForOne), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    let ada = Context::default().with_identity(Some(Identity::new("ada")));
    let page = catalog.list(None, 100, &ada).await.unwrap();
    assert_eq!(missing(&page.unavailable), [("a", false)]);
    sleep(Duration::from_secs(1)).await;
    // A failure for one caller does not mark the source as unavailable.
    assert_eq!(list(&catalog).await.unwrap().unavailable, []);
    // Lists that depend on the caller are not remembered.
    toys[0].behave(Behaviour::Fails);
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("a", false)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_further_on_does_not_hide_the_beginning() {
    let toys = [Toy::new("a", 3).behaving(Behaviour::FailsLater), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    let page_two =
        async |catalog: &Catalog| catalog.list(Some(&uri("a:00001")), 2, &Context::default()).await.unwrap();
    let page = page_two(&catalog).await;
    assert_eq!((uris(&page), missing(&page.unavailable)), (vec!["b:00000"], vec![("a", false)]));
    for _ in 0..3 {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(list(&catalog).await.unwrap().unavailable, []);
        let page = page_two(&catalog).await;
        assert_eq!(
            (uris(&page), missing(&page.unavailable)),
            (vec!["a:00002", "b:00000"], vec![("a", true)])
        );
    }
    // A probe tells whether it is the source that fails.
    sleep(Duration::from_secs(2)).await;
    toys[0].behave(Behaviour::Fails);
    page_two(&catalog).await;
    sleep(Duration::from_millis(100)).await;
    let asked = toys[0].asked();
    // It was listed from its beginning before.
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("a", true)]);
    assert_eq!(toys[0].asked(), asked, "it is unavailable, and not asked");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_which_nothing_is_known_is_an_error() {
    let toys =
        [Toy::new("a", 1).behaving(Behaviour::IsUnavailable), Toy::new("b", 1).behaving(Behaviour::Fails)]
            .map(Arc::new);
    let catalog = catalog(&toys);
    let failure = async |catalog: &Catalog| {
        let page = list(catalog).await.unwrap_err().to_string();
        assert_eq!(catalog.templates(&Context::default()).await.unwrap_err().to_string(), page);
        let later = catalog.list(Some(&uri("a:00000")), 9, &Context::default()).await;
        assert_eq!(later.unwrap_err().to_string(), page);
        page
    };
    assert_eq!(
        failure(&catalog).await,
        "`a`, `b` are unavailable; the error of `a`: the toy shop is closed; hint: if this persists, check the source"
    );
    catalog.add_status();
    assert_eq!(
        failure(&catalog).await,
        "`a`, `b` are unavailable; the error of `a`: the toy shop is closed; hint: read `libris://status` for the \
         state of the sources, and try again once they are available"
    );
    // A permanent fault has its own advice, and never that to try again.
    let toys = [Arc::new(Toy::new("a", 1).behaving(Behaviour::RejectsPassword))];
    let expected = format!("`a` is unavailable; the error: {REJECTED}");
    assert_eq!(failure(&crate::toy::catalog(&toys)).await, expected);
    catalog.replace(toys.iter().map(|toy| toy.clone() as _).collect());
    assert_eq!(
        failure(&catalog).await,
        format!("{expected}; `libris://status` has the state of the sources")
    );
    // A catalog without sources is not a failure.
    catalog.replace(Vec::new());
    assert_eq!(uris(&list(&catalog).await.unwrap()), ["libris://status"]);
    assert_eq!(uris(&list(&Catalog::new(Vec::new())).await.unwrap()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn who_is_busy_or_denies_is_not_unavailable() {
    let toys = [Toy::new("a", 1).behaving(Behaviour::IsBusy), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    assert!(matches!(list(&catalog).await, Err(Error::Busy(_))));
    toys[0].behave(Behaviour::Denies);
    let page = list(&catalog).await.unwrap();
    assert_eq!((uris(&page), missing(&page.unavailable)), (vec!["b:00000"], vec![]));
    assert!(page.freshness.proof.is_none());
    toys[0].behave(Behaviour::Answers);
    assert_eq!(uris(&list(&catalog).await.unwrap()), ["a:00000", "b:00000"]);
}

#[tokio::test(start_paused = true)]
async fn strict_catalogs_list_everything_or_nothing() {
    let toys = [Toy::new("a", 1), Toy::new("b", 1).behaving(Behaviour::Fails)].map(Arc::new);
    let catalog = strict(&toys);
    for _ in 0..2 {
        assert_eq!(list(&catalog).await.unwrap_err().to_string(), "could not list the toys");
        assert!(catalog.templates(&Context::default()).await.is_err());
    }
    toys[1].behave(Behaviour::Hangs);
    let error = list(&catalog).await.unwrap_err().to_string();
    assert_eq!(error, "`b` is unavailable: it did not answer within 5s");
    assert!(catalog.watch().await.is_ok(), "a watch that opens late goes on");
    toys[1].behave(Behaviour::Fails);
    assert!(catalog.watch().await.is_err());
    // It is asked each time.
    toys[1].behave(Behaviour::Answers);
    let page = list(&catalog).await.unwrap();
    assert_eq!((uris(&page), missing(&page.unavailable)), (vec!["a:00000", "b:00000"], vec![]));
    catalog.add_status();
    assert!(text(&catalog, "libris://status").await.unwrap().contains("All 2 sources are available."));
}

#[tokio::test(start_paused = true)]
async fn sources_are_queried_at_once_but_not_all() {
    let load = Arc::new(Load::default());
    let second = Duration::from_secs(1);
    let toys: Vec<_> = (0..40).map(|_| Arc::new(Toy::new("a", 1).slow(second, &load))).collect();
    let few = catalog(&toys[..10]);
    let begun = Instant::now();
    list(&few).await.unwrap();
    assert_eq!((begun.elapsed().as_secs(), load.most.load(Ordering::SeqCst)), (1, 10));
    let many = catalog(&toys);
    let begun = Instant::now();
    list(&many).await.unwrap();
    assert_eq!((begun.elapsed().as_secs(), load.most.load(Ordering::SeqCst)), (3, 16));
}

#[tokio::test(start_paused = true)]
async fn many_callers_do_not_wait_for_a_source_in_a_row() {
    let toys = five();
    let catalog = catalog(&toys);
    let begun = Instant::now();
    for page in join_all((0..300).map(|_| list(&catalog))).await {
        assert_eq!(missing(&page.unwrap().unavailable), [("b", false), ("d", false)]);
    }
    assert!(begun.elapsed() < LIMIT * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_now_and_then_is_not_announced_all_the_time() {
    let toys = [Toy::new("a", 1).behaving(Behaviour::Alternates), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    let mut changes = catalog.watch().await.unwrap().unwrap();
    let mut recoveries = 0;
    for _ in 0..600 {
        list(&catalog).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        while let Some(change) = changes.next().now_or_never() {
            recoveries += usize::from(change == Some(Change::Lost));
        }
    }
    assert!((3..30).contains(&recoveries), "{recoveries} in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn probes_end_with_the_source() {
    let toys = five();
    let catalog = catalog(&toys);
    list(&catalog).await.unwrap();
    let asked = toys[3].asked();
    catalog.replace(vec![toys[0].clone()]);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(toys[3].asked(), asked);
    assert_eq!(list(&catalog).await.unwrap().unavailable, []);
    drop(catalog);
    for toy in &toys {
        assert_eq!(Arc::strong_count(toy), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_unique() {
    let toys = [Toy::new("a", 1).named("toy"), Toy::new("b", 1).named("toy"), Toy::new("c", 1)].map(Arc::new);
    toys[1].behave(Behaviour::Fails);
    let catalog = catalog(&toys);
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("toy 2", false)]);
    // A name is free once its source has left; one that stays keeps its name.
    let other = Arc::new(Toy::new("d", 1).named("toy").behaving(Behaviour::Fails));
    catalog.replace(vec![other, toys[1].clone(), toys[2].clone()]);
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("toy", false), ("toy 2", false)]);
    // One that comes has another name than all that stay, also those behind it.
    let failing = |scheme| Arc::new(Toy::new(scheme, 1).named("toy").behaving(Behaviour::Fails));
    catalog.replace(vec![failing("e"), toys[1].clone(), toys[2].clone()]);
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("toy", false), ("toy 2", false)]);
    catalog.replace(vec![failing("f"), failing("g"), toys[1].clone(), toys[2].clone()]);
    let names = [("toy", false), ("toy 3", false), ("toy 2", false)];
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), names);
    catalog.add(failing("h"));
    let names = [("toy", false), ("toy 3", false), ("toy 2", false), ("toy 4", false)];
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), names);
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_what_is_known() {
    let toys = five();
    let catalog = catalog(&toys);
    catalog.add_status();
    catalog.add_status();
    assert_eq!(
        text(&catalog, "libris://status").await.unwrap(),
        "# Status of the sources\n\nAll 5 sources are available.\n\n| Source | State | Remarks |\n|---|---|---|\n\
         | a | available |  |\n| b | available |  |\n| c | available |  |\n| d | available |  |\n| e | available |  |\n"
    );
    let status = catalog.read(&uri("libris://status"), &Context::default()).await.unwrap();
    let proof = status.freshness.proof.unwrap();
    assert!(proof.holds());
    list(&catalog).await.unwrap();
    assert!(!proof.holds());
    toys[0].behave(Behaviour::Fails);
    let page = list(&catalog).await.unwrap();
    let since = |index: usize| {
        let time = jiff::Timestamp::try_from(page.unavailable[index].since).unwrap();
        jiff::Timestamp::from_second(time.as_second()).unwrap()
    };
    let (a, b, d) = (since(0), since(1), since(2));
    assert_eq!(
        text(&catalog, "libris://status?as=markdown").await.unwrap(),
        format!(
            "# Status of the sources\n\n3 of 5 sources are unavailable.\n\n| Source | State | Remarks |\n|---|---|---|\n\
             | a | unavailable since {a} | could not list the toys; listed as last known: 2 resources |\n\
             | b | unavailable since {b} | it did not answer within 5s; its resources are not listed |\n\
             | c | available |  |\n\
             | d | unavailable since {d} | could not list the toys; its resources are not listed |\n\
             | e | available |  |\n"
        )
    );
    let json: serde_json::Value =
        serde_json::from_str(&text(&catalog, "libris://status?as=json").await.unwrap()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({ "unavailable": 3, "sources": [
            { "source": "a", "available": false, "since": a.to_string(), "reason": "could not list the toys",
              "lastKnown": { "resources": 2, "complete": true } },
            { "source": "b", "available": false, "since": b.to_string(), "reason": "it did not answer within 5s" },
            { "source": "c", "available": true },
            { "source": "d", "available": false, "since": d.to_string(), "reason": "could not list the toys" },
            { "source": "e", "available": true },
        ] })
    );
    assert!(matches!(text(&catalog, "libris://status?as=xml").await, Err(Error::Invalid(_))));
    assert!(text(&catalog, "libris://status/a").await.unwrap_err().is_not_found());
    // It stays when the sources are others.
    catalog.replace(vec![toys[2].clone()]);
    assert!(text(&catalog, "libris://status").await.unwrap().contains("The source is available."));
}

#[tokio::test(start_paused = true)]
async fn the_status_does_not_make_lists_less_fresh() {
    let catalog = catalog(&[Arc::new(Toy::new("a", 1).proving())]);
    catalog.add_status();
    let page = list(&catalog).await.unwrap();
    assert_eq!(uris(&page), ["a:00000", "libris://status"]);
    assert_eq!((page.freshness.ttl, page.freshness.scope), (MINUTE, CacheScope::Public));
    assert!(page.freshness.proof.unwrap().holds());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_probe() {
    let toys = [Toy::new("a", 1).one_at_a_time().behaving(Behaviour::Hangs), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    list(&catalog).await.unwrap();
    // The first probe begins after a second, and hangs for five.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(toys[0].asked(), 2);
    let begun = Instant::now();
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("a", false)]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
