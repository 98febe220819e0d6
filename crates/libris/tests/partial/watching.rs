//! Watches while sources are unavailable.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use libris::{Change, Source as _};
use tokio::time::{Instant, timeout};

use crate::toy::{Behaviour, Toy, catalog, next, text, uri};

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_be_opened_is_opened_later() {
    for behaviour in [Behaviour::Fails, Behaviour::Panics, Behaviour::IsUnavailable] {
        let toys = [Toy::new("a", 1).behaving(behaviour), Toy::new("b", 1)].map(Arc::new);
        let catalog = catalog(&toys);
        catalog.add_status();
        let mut changes = catalog.watch().await.unwrap().unwrap();
        toys[1].tell(&Change::Updated(uri("b:00000")));
        assert_eq!(next(&mut changes).await, Change::Updated(uri("b:00000")));
        let status = Change::Updated(uri("libris://status"));
        let told = text(&catalog, "libris://status").await.unwrap();
        assert!(told.contains("| a | available | changes are not reported since 20"), "{told}");

        // Retries after 1, 2, 4 … seconds cause no notification.
        assert!(timeout(Duration::from_secs(100), changes.next()).await.is_err());
        assert_eq!(toys[0].asked(), 8, "at once, and after 1, 2, 4, 8, 16, 30 and 30 seconds");
        toys[0].behave(Behaviour::Answers);
        let begun = Instant::now();
        let opened = [next(&mut changes).await, next(&mut changes).await];
        assert!(opened.contains(&Change::Lost) && opened.contains(&status), "{opened:?}");
        assert!(begun.elapsed() <= Duration::from_secs(30));
        toys[0].tell(&Change::Updated(uri("a:00000")));
        assert_eq!(next(&mut changes).await, Change::Updated(uri("a:00000")));
        assert!(!text(&catalog, "libris://status").await.unwrap().contains("not reported"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_opened_again() {
    let toys = [Toy::new("a", 1), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    let mut changes = catalog.watch().await.unwrap().unwrap();
    toys[0].panic_in_watch();
    assert_eq!(next(&mut changes).await, Change::Lost);
    toys[1].tell(&Change::Updated(uri("b:00000")));
    assert_eq!(next(&mut changes).await, Change::Updated(uri("b:00000")));
    assert_eq!(next(&mut changes).await, Change::Lost);
    toys[0].tell(&Change::Updated(uri("a:00000")));
    assert_eq!(next(&mut changes).await, Change::Updated(uri("a:00000")));
}

#[tokio::test(start_paused = true)]
async fn the_status_is_watched_once() {
    let toys = [Toy::new("a", 1), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    catalog.add_status();
    catalog.add_status();
    let mut changes = catalog.watch().await.unwrap().unwrap();
    toys[0].behave(Behaviour::Fails);
    crate::toy::list(&catalog).await.unwrap();
    assert_eq!(next(&mut changes).await, Change::Updated(uri("libris://status")));
    assert_eq!(timeout(Duration::from_millis(100), changes.next()).await.ok(), None);
}
