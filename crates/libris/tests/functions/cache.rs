//! Cached results, and single-flight calls of functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libris::{Catalog, Context, Error, Notifier, Result, Source};
use tokio::sync::Semaphore;

use crate::{read, text, uri};

/// Counts the calls of its functions, which wait for the gate.
struct Slow {
    runs: AtomicUsize,
    gate: Semaphore,
    notifier: Notifier,
}

#[libris::resources]
impl Slow {
    #[resource("slow://kept/{id}", cache = "300s")]
    async fn kept(&self, id: u32) -> Result<String> {
        let _ = self.gate.acquire().await;
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        match id {
            0 => Err(Error::Unavailable(format!("run {run}"))),
            1 => Err(Error::failed("work", "a cause")),
            2 => panic!("on purpose"),
            _ => Ok(format!("run {run}")),
        }
    }

    #[resource("slow://brief", cache = "20ms")]
    fn brief(&self) -> String {
        self.runs.fetch_add(1, Ordering::SeqCst).to_string()
    }

    #[resource("slow://always")]
    fn always(&self) -> String {
        self.runs.fetch_add(1, Ordering::SeqCst).to_string()
    }

    #[changes]
    fn changes(&self) -> &Notifier {
        &self.notifier
    }
}

fn slow(open: usize) -> (Arc<Slow>, Arc<Catalog>) {
    let slow = Slow { runs: AtomicUsize::new(0), gate: Semaphore::new(open), notifier: Notifier::new() };
    let slow = Arc::new(slow);
    (slow.clone(), Arc::new(Catalog::new(vec![slow])))
}

#[tokio::test]
async fn a_hundred_readers_run_it_once() {
    for (id, answers) in [(7, true), (0, false), (1, false)] {
        let (slow, catalog) = slow(0);
        let at = format!("slow://kept/{id}");
        let readers: Vec<_> = (0..100)
            .map(|_| {
                let (catalog, at) = (catalog.clone(), at.clone());
                tokio::spawn(async move { read(&*catalog, &at).await })
            })
            .collect();
        // Until all reads have started.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        slow.gate.add_permits(1000);
        for reader in readers {
            match reader.await.unwrap() {
                Ok((text, _)) => assert!(answers && text == "run 0", "{text}"),
                Err(Error::Unavailable(why)) => assert!(id == 0 && why == "run 0", "{why}"),
                Err(error) => assert!(id == 1 && error.to_string() == "could not work", "{error}"),
            }
        }
        assert_eq!(slow.runs.load(Ordering::SeqCst), 1, "{at}");
        // Failures are not cached, successes are.
        let _ = read(&*catalog, &at).await;
        assert_eq!(slow.runs.load(Ordering::SeqCst), if answers { 1 } else { 2 });
    }
}

#[tokio::test]
async fn whoever_leaves_does_not_take_the_answer_along() {
    let (slow, catalog) = slow(0);
    let reader = |catalog: Arc<Catalog>| tokio::spawn(async move { text(&*catalog, "slow://kept/7").await });
    let first = reader(catalog.clone());
    tokio::task::yield_now().await;
    let second = reader(catalog.clone());
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    slow.gate.add_permits(1);
    assert_eq!(second.await.unwrap(), "run 0");

    // When all callers have dropped their reads, the call is cancelled, and the next read starts another one.
    slow.gate.forget_permits(1);
    slow.notifier.updated("slow://kept/7").unwrap();
    let third = reader(catalog.clone());
    tokio::task::yield_now().await;
    third.abort();
    let _ = third.await;
    slow.gate.add_permits(1);
    assert_eq!(text(&*catalog, "slow://kept/7").await, "run 1");
}

#[tokio::test]
async fn kept_until_it_is_old_or_told_to_have_changed() {
    let (slow, catalog) = slow(1000);
    assert_eq!(text(&*catalog, "slow://kept/7").await, "run 0");
    assert_eq!(text(&*catalog, "slow://kept/7").await, "run 0");
    assert_eq!(text(&*catalog, "slow://kept/8").await, "run 1");
    slow.notifier.updated("slow://kept/7").unwrap();
    assert_eq!(text(&*catalog, "slow://kept/7").await, "run 2");
    let brief = text(&*catalog, "slow://brief").await;
    while text(&*catalog, "slow://brief").await == brief {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(text(&*catalog, "slow://always").await, text(&*catalog, "slow://always").await);
}

#[tokio::test]
async fn nothing_is_kept_when_the_sources_are_replaced() {
    let (slow, catalog) = slow(1000);
    assert_eq!(text(&*catalog, "slow://kept/7").await, "run 0");
    catalog.replace(vec![slow]);
    assert_eq!(text(&*catalog, "slow://kept/7").await, "run 1");
}

#[tokio::test]
async fn the_hint_tells_what_is_left() {
    let (_slow, catalog) = slow(1000);
    let context = Context::default();
    let ttl = async || {
        let contents = catalog.read(&uri("slow://kept/7"), &context).await.unwrap();
        contents.freshness.ttl
    };
    let (first, second) = (ttl().await, ttl().await);
    assert!(second < first && first <= Duration::from_secs(300) && second > Duration::from_secs(200));
}

#[tokio::test]
async fn a_panic_keeps_nobody_waiting() {
    let (slow, catalog) = slow(0);
    let readers: Vec<_> = (0..10)
        .map(|_| {
            let catalog = catalog.clone();
            tokio::spawn(async move { read(&*catalog, "slow://kept/2").await })
        })
        .collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    slow.gate.add_permits(100);
    for reader in readers {
        let ended = tokio::time::timeout(Duration::from_secs(10), reader).await.expect("it still waits");
        assert!(ended.unwrap_err().is_panic());
    }
    assert_eq!(text(&*catalog, "slow://kept/3").await, "run 1");
}

#[tokio::test]
async fn whoever_was_told_of_a_change_reads_what_is_new() {
    let (slow, catalog) = slow(0);
    let early = {
        let catalog = catalog.clone();
        tokio::spawn(async move { text(&*catalog, "slow://kept/7").await })
    };
    tokio::task::yield_now().await;
    slow.notifier.updated("slow://kept/7").unwrap();
    let late = {
        let catalog = catalog.clone();
        tokio::spawn(async move { text(&*catalog, "slow://kept/7").await })
    };
    tokio::task::yield_now().await;
    slow.gate.add_permits(100);
    early.await.unwrap();
    assert_eq!(late.await.unwrap(), "run 1");
}

#[tokio::test]
async fn what_is_shared_is_made_for_nobody_in_particular() {
    let described = libris::ResourceSpec::new("a://who").cache(Duration::from_secs(3600));
    let functions = libris::FunctionSource::new().resource(described, |request: libris::Request| {
        request.context().identity().map_or("nobody", |_| "somebody").to_owned()
    });
    let catalog = Catalog::new(vec![Arc::new(functions)]);
    let ada = Context::default().with_identity(Some(libris::Identity::new("ada")));
    let grace = Context::default().with_identity(Some(libris::Identity::new("grace")));
    for context in [ada, grace, Context::default()] {
        let contents = catalog.read(&uri("a://who"), &context).await.unwrap();
        assert_eq!(contents.parts[0].body, libris::ContentBody::Text("nobody".into()));
        assert!(!context.identity_was_used(), "what is shared may be cached for everybody");
    }
}

#[tokio::test]
async fn for_ever_is_long_enough() {
    let described = libris::ResourceSpec::new("a://b").cache(Duration::MAX);
    let runs = AtomicUsize::new(0);
    let count = move || runs.fetch_add(1, Ordering::SeqCst).to_string();
    let catalog = Catalog::new(vec![Arc::new(libris::FunctionSource::new().resource(described, count))]);
    for _ in 0..2 {
        assert_eq!(text(&catalog, "a://b").await, "0");
    }
}

#[tokio::test]
async fn what_is_kept_is_of_its_source() {
    let hour = Duration::from_secs(3600);
    let there = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = there.clone();
    let kept = |uri: &str| libris::ResourceSpec::new(uri).cache(hour);
    let first = libris::FunctionSource::new()
        .resource(kept("a://b"), move || seen.load(Ordering::SeqCst).then_some("first"));
    let second = libris::FunctionSource::new().resource(kept("a://b"), || "second");
    let catalog = Catalog::new(vec![Arc::new(first), Arc::new(second)]);
    assert_eq!(text(&catalog, "a://b").await, "second");
    there.store(true, Ordering::SeqCst);
    assert_eq!(text(&catalog, "a://b").await, "first");
}

/// Lists nothing, as fresh as it is told to be.
struct Fresh(libris::Freshness);

#[async_trait::async_trait]
impl Source for Fresh {
    fn covers(&self, _: &libris::Uri) -> Option<libris::uri_template::Specificity> {
        None
    }

    async fn list(&self, _: Option<&libris::Uri>, _: usize, _: &Context) -> Result<libris::Page> {
        Ok(libris::Page { freshness: self.0.clone(), ..libris::Page::default() })
    }

    async fn read(&self, uri: &libris::Uri, _: &Context) -> Result<libris::Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    async fn templates(&self, _: &Context) -> Result<libris::Templates> {
        Ok(libris::Templates { freshness: self.0.clone(), ..libris::Templates::default() })
    }
}

#[tokio::test]
async fn what_is_joined_is_as_fresh_as_the_stalest() {
    use libris::{CacheScope, Freshness, Proof};
    let second = Duration::from_secs(1);
    let fresh = Freshness::proven(Proof::always()).with_ttl(second * 2).with_scope(CacheScope::Public);
    let brief = fresh.clone().with_ttl(second);
    let private = fresh.clone().with_scope(CacheScope::Private);
    let unproven = Freshness { proof: None, ..fresh.clone() };
    let ended = fresh.clone().and_proof(Some(Proof::new(|| false)));
    for (other, ttl, scope, holds) in [
        (fresh.clone(), second * 2, CacheScope::Public, Some(true)),
        (brief, second, CacheScope::Public, Some(true)),
        (private, second * 2, CacheScope::Private, Some(true)),
        (unproven, second * 2, CacheScope::Public, None),
        (ended, second * 2, CacheScope::Public, Some(false)),
    ] {
        for both in [[fresh.clone(), other.clone()], [other.clone(), fresh.clone()]] {
            let catalog = Catalog::new(both.into_iter().map(|one| Arc::new(Fresh(one)) as _).collect());
            let context = Context::default();
            let listed = catalog.list(None, 10, &context).await.unwrap().freshness;
            let templates = catalog.templates(&context).await.unwrap().freshness;
            for freshness in [&listed, &templates] {
                let proof = freshness.proof.as_ref().map(Proof::holds);
                assert_eq!((freshness.ttl, freshness.scope, proof), (ttl, scope, holds));
            }
            catalog.replace(Vec::new());
            let ended = |freshness: libris::Freshness| freshness.proof.is_none_or(|proof| !proof.holds());
            assert!(ended(listed) && ended(templates), "other sources list otherwise");
        }
    }
}
