//! Which listeners are notified of which changes, and how often.

use std::time::Duration;

use libris::wire::{Client, Notification};
use libris::{Change, Config, Server, SubscriptionConfig};
use tokio::time::timeout;

use crate::script::{Script, joined, listening, server, storm, told, updated};

#[tokio::test(start_paused = true)]
async fn only_what_was_asked_for_is_told() {
    let (script, _server, listener) = listening();
    listener.subscribe("a:one").await.unwrap();
    script.say(Change::Updated, "a:other");
    script.say(Change::Added, "a:new");
    script.say(Change::Described, "a:one");
    assert_eq!(told(&*listener).await, []);
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
    script.say(Change::Removed, "a:one");
    script.say(Change::Added, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
    listener.unsubscribe("a:one");
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_part_is_told_under_its_own_name() {
    let (script, _server, listener) = listening();
    listener.subscribe("a:one?lines=1-3").await.unwrap();
    listener.subscribe("a:one").await.unwrap();
    script.say(Change::Updated, "a:one");
    let mut all = told(&*listener).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("a:one"), updated("a:one?lines=1-3")]);
    // A change of a part is a change of the whole resource.
    script.say(Change::Updated, "a:one?lines=7-9");
    assert_eq!(told(&*listener).await.len(), 2);
    listener.unsubscribe("a:one?lines=1-3");
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
    // Notifications contain the URI as the client wrote it, not its normal form.
    listener.subscribe("A:two").await.unwrap();
    script.say(Change::Updated, "a:two");
    assert_eq!(told(&*listener).await, [updated("A:two")]);
}

#[tokio::test(start_paused = true)]
async fn what_happens_often_is_told_once_for_each_window() {
    let (script, _server, listener) = listening();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    for n in 0..10_000 {
        script.say(Change::Updated, "a:one");
        script.say(Change::Added, &format!("a:{n}"));
    }
    assert_eq!(told(&*listener).await, [Notification::ListChanged, updated("a:one")]);
    // A listener that does not read holds one set, not a queue.
    for _ in 0..50 {
        script.say(Change::Updated, "a:one");
        script.say(Change::Removed, "a:two");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(told(&*listener).await, [Notification::ListChanged, updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_only_says_something_else_is_told_seldom() {
    let (script, _server, listener) = listening();
    listener.follow_list().await.unwrap();
    let growing = script.clone();
    tokio::spawn(async move {
        for _ in 0..100 {
            growing.say(Change::Described, "a:log");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let count = told(&*listener).await.len();
    assert!((3..=8).contains(&count), "told {count} times in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn another_description_is_told_a_second_after_the_last_one() {
    let (script, _server, listener) = listening();
    listener.follow_list().await.unwrap();
    let mut last = None;
    for _ in 0..3 {
        script.say(Change::Described, "a:log");
        assert_eq!(listener.next().await, Notification::ListChanged);
        let now = tokio::time::Instant::now();
        let pause = last.replace(now).map_or(Duration::from_secs(1), |last| now - last);
        assert!((1_000..1_100).contains(&pause.as_millis()), "{pause:?}");
    }
    // One that comes with another change is not told once more.
    tokio::time::sleep(Duration::from_secs(20)).await;
    script.say(Change::Described, "a:log");
    script.say(Change::Added, "a:new");
    assert_eq!(told(&*listener).await, [Notification::ListChanged]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_rests_is_told_every_eight_seconds() {
    let (script, _server, listener) = listening();
    listener.follow_list().await.unwrap();
    storm(&script, 1_000, Duration::from_millis(100));
    let begun = tokio::time::Instant::now();
    let mut last = begun;
    while begun.elapsed() < Duration::from_secs(90) {
        listener.next().await;
        assert!(last.elapsed() <= Duration::from_millis(8_100), "{:?}", last.elapsed());
        last = tokio::time::Instant::now();
    }
}

#[tokio::test(start_paused = true)]
async fn a_debounce_window_ends_however_often_something_changes() {
    let (script, _server, listener) = listening();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    let busy = script.clone();
    tokio::spawn(async move {
        for n in 0..100 {
            busy.say(Change::Updated, "a:one");
            busy.say(Change::Added, &format!("a:{n}"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let begun = tokio::time::Instant::now();
    let mut first = [listener.next().await, listener.next().await];
    first.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(first, [Notification::ListChanged, updated("a:one")]);
    assert!(begun.elapsed() <= Duration::from_millis(70), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn all_of_many_resources_that_change_at_once_are_told() {
    let script = Script::new("a");
    let server = Server::new(script.clone(), Config::default());
    let listener = joined(&server, Client::default()).unwrap();
    let names: Vec<_> = (0..100).map(|n| format!("a:{n:02}")).collect();
    for name in &names {
        listener.subscribe(name).await.unwrap();
    }
    for change in [Some(()), None] {
        match change {
            Some(()) => names.iter().for_each(|name| script.say(Change::Updated, name)),
            None => script.tell(&Change::Lost),
        }
        let mut all = told(&*listener).await;
        all.sort_by_key(|news| format!("{news:?}"));
        assert_eq!(all, names.iter().map(|name| updated(name)).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_delivered_is_told_again_while_it_is_wanted() {
    let (_script, _server, listener) = listening();
    listener.subscribe("a:one").await.unwrap();
    listener.requeue(updated("a:one"));
    listener.requeue(Notification::ListChanged);
    assert_eq!(told(&*listener).await, [updated("a:one"), Notification::ListChanged]);
    listener.requeue(updated("a:one"));
    listener.unsubscribe("a:one");
    listener.requeue(updated("a:one"));
    assert_eq!(told(&*listener).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_keeps_changing_is_told_ever_less_often() {
    let (script, _server, listener) = listening();
    listener.follow_list().await.unwrap();
    storm(&script, 20_000, Duration::from_millis(1));
    let mut told = Vec::new();
    while let Ok(news) = timeout(Duration::from_secs(9), listener.next()).await {
        assert_eq!(news, Notification::ListChanged);
        told.push(tokio::time::Instant::now());
    }
    assert!((5..=10).contains(&told.len()), "told {} times in twenty seconds", told.len());
    // The last change is notified at the end of the window.
    let last = told.last().unwrap().duration_since(told[0]);
    assert!((20_000..20_700).contains(&last.as_millis()), "last told after {last:?}");
    // After a pause, the next change is notified immediately.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let began = tokio::time::Instant::now();
    script.say(Change::Removed, "a:1");
    listener.next().await;
    assert!(began.elapsed() <= Duration::from_millis(55), "{:?}", began.elapsed());
    // The one after it is debounced.
    script.say(Change::Removed, "a:2");
    listener.next().await;
    assert!(began.elapsed() <= Duration::from_millis(110), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn whoever_listed_before_is_owed_what_may_have_changed() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let first = joined(&server, Client::default()).unwrap();
    first.listed();
    first.follow_list().await.unwrap();
    assert_eq!(told(&*first).await, [Notification::ListChanged], "nobody was watching when it listed");
    let second = joined(&server, Client::default()).unwrap();
    script.say(Change::Added, "a:new");
    assert_eq!(told(&*first).await, [Notification::ListChanged]);
    second.listed();
    second.follow_list().await.unwrap();
    assert_eq!(told(&*second).await, [Notification::ListChanged], "it may have listed before that change");
    drop(second);
    let third = joined(&server, Client::default()).unwrap();
    third.listed();
    third.follow_list().await.unwrap();
    assert_eq!(told(&*third).await, [], "nothing happened");
}

#[tokio::test(start_paused = true)]
async fn whoever_missed_something_is_told_to_look_again() {
    let (script, _server, listener) = listening();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    script.tell(&Change::Lost);
    assert_eq!(told(&*listener).await, [Notification::ListChanged, updated("a:one")]);
    // Changes may have been missed if a watch ends by itself.
    script.watchers.lock().unwrap().clear();
    assert_eq!(told(&*listener).await, [Notification::ListChanged, updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn no_window_is_too_long() {
    let script = Script::new("a");
    let subscriptions = SubscriptionConfig { window: Duration::MAX, ..SubscriptionConfig::default() };
    let server = Server::new(script.clone(), Config { subscriptions, ..Config::default() });
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    script.say(Change::Added, "a:one");
    for _ in 0..2 {
        timeout(Duration::from_secs(3_700), listener.next()).await.expect("news after an hour at most");
    }
}
