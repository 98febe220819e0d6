//! Notifications under rights that differ by operation, or change.

use std::sync::Arc;

use libris::wire::{Client, Failure, Notification};
use libris::{Change, Config, Identity, Operation, Policy, Rights, Rules, Server, Uri};

use crate::script::{Script, joined, told, updated};

/// Allows everything but these operations on these resources.
#[derive(Clone)]
struct Without(Vec<(Operation, &'static str)>);

impl Rules for Without {
    fn allow(&self, operation: Operation, uri: &Uri) -> bool {
        !self.0.iter().any(|(denied, name)| *denied == operation && uri.as_str() == *name)
    }
}

/// Everybody has the same rights.
struct Same(Rights);

impl Policy for Same {
    fn rights(&self, _: Option<&Identity>) -> Rights {
        self.0.clone()
    }
}

fn without(denied: &[(Operation, &'static str)]) -> Arc<Same> {
    Arc::new(Same(Rights::new(Without(denied.to_vec()))))
}

fn server(script: &Arc<Script>, denied: &[(Operation, &'static str)]) -> Server {
    Server::with_policy(script.clone(), Config::default(), without(denied))
}

#[tokio::test(start_paused = true)]
async fn who_may_read_may_not_subscribe_for_that() {
    let script = Script::new("a");
    let server = server(&script, &[(Operation::Subscribe, "a:one"), (Operation::Subscribe, "a:draft")]);
    let listener = joined(&server, Client::default()).unwrap();
    assert_eq!(listener.subscribe("a:one").await, Err(Failure::not_found("a:one")));
    // Like what is absent, it may be subscribed to, and no source works for that.
    listener.subscribe("a:draft").await.unwrap();
    assert_eq!(script.client("a:draft"), None);
    script.say(Change::Updated, "a:draft");
    assert_eq!(told(&*listener).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_to_be_told_with_the_right_to_it() {
    let script = Script::new("a");
    let server = server(&script, &[]);
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    listener.subscribe("a:two").await.unwrap();
    server.set_policy(without(&[(Operation::Subscribe, "a:one")]));
    assert_eq!((script.client("a:one"), script.client("a:two")), (None, Some(Client::default())));
    script.say(Change::Updated, "a:one");
    script.say(Change::Updated, "a:two");
    assert_eq!(told(&*listener).await, [updated("a:two")]);
    server.set_policy(without(&[]));
    assert_eq!(told(&*listener).await, [updated("a:one")], "it may have changed meanwhile");
    assert_eq!(script.client("a:one"), Some(Client::default()));
}

#[tokio::test(start_paused = true)]
async fn the_list_is_told_to_those_who_may_list_what_changes() {
    let script = Script::new("a");
    let server = server(&script, &[(Operation::List, "a:unlisted"), (Operation::Read, "a:unread")]);
    let listener = joined(&server, Client::default()).unwrap();
    listener.follow_list().await.unwrap();
    script.say(Change::Added, "a:unlisted");
    script.say(Change::Described, "a:unlisted");
    assert_eq!(told(&*listener).await, []);
    script.say(Change::Added, "a:unread");
    assert_eq!(told(&*listener).await, [Notification::ListChanged]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_subscribed_to_any_more_is_not_told_when_it_becomes_visible() {
    let script = Script::new("a");
    let server = server(&script, &[(Operation::Subscribe, "a:draft")]);
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:draft").await.unwrap();
    listener.unsubscribe("a:draft");
    server.set_policy(without(&[]));
    assert_eq!(told(&*listener).await, []);
}
