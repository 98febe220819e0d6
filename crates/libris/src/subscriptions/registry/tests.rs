//! The charges for subscriptions always equal a recount.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use libris_core::{Client, Uri};
use proptest::prelude::*;

use super::super::SubscriptionConfig;
use super::super::budget::{BudgetOwner, SUBSCRIPTION_OVERHEAD, SubscriptionCost, TEXT_OVERHEAD};
use super::{Registry, SubscriptionRefusal};
use crate::FunctionSource;
use crate::rights::{CurrentPolicy, OpenPolicy};
use crate::view::View;

/// An action of a client. Listeners are numbered in the order in which they joined.
#[derive(Clone, Debug)]
enum ClientAction {
    Join(Option<u8>),
    Subscribe(usize, String),
    Reserve(usize, Vec<&'static str>),
    Unsubscribe(usize, String),
    Change(String),
    FollowList(usize),
    ChangeRights,
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<ClientAction>> {
    let listener = 0..8_usize;
    // Few enough to repeat; some have the same subject, and some are not in normal form.
    let name =
        || proptest::sample::select(vec!["a:x", "A:x", "a:x?1", "a:y?1", "a:long-long-long-long", "a:y"]);
    let step = prop_oneof![
        2 => proptest::option::of(0..3_u8).prop_map(ClientAction::Join),
        6 => (listener.clone(), name()).prop_map(|(listener, name)| ClientAction::Subscribe(listener, name.into())),
        2 => (listener.clone(), proptest::collection::vec(name(), 0..4))
            .prop_map(|(listener, names)| ClientAction::Reserve(listener, names)),
        3 => (listener.clone(), name()).prop_map(|(listener, name)| ClientAction::Unsubscribe(listener, name.into())),
        1 => name().prop_map(|name| ClientAction::Change(name.into())),
        1 => listener.clone().prop_map(ClientAction::FollowList),
        1 => Just(ClientAction::ChangeRights),
        1 => listener.prop_map(ClientAction::Leave),
    ];
    proptest::collection::vec(step, 0..60)
}

/// A view without restrictions.
fn view() -> Arc<View> {
    let access = Arc::new(CurrentPolicy::new(Arc::new(OpenPolicy)));
    Arc::new(View::new(Arc::new(FunctionSource::new()), access, None))
}

fn subject(name: &str) -> Uri {
    Uri::parse(name).unwrap().without_query()
}

/// Removes a listener, one subscription at a time.
fn leave(registry: &mut Registry, listener: u64) {
    while registry.leave(listener, 1).is_continue() {}
}

/// Recounts the charges for the subscriptions of these members.
fn recount<'a>(members: impl Iterator<Item = &'a super::RegisteredListener>) -> usize {
    let mut texts = HashSet::new();
    let mut subscriptions = 0;
    for (name, subject) in members.flat_map(|member| &member.subscriptions) {
        texts.extend([&**name, subject.as_str()]);
        subscriptions += SUBSCRIPTION_OVERHEAD;
    }
    subscriptions + texts.iter().map(|text| TEXT_OVERHEAD + text.len()).sum::<usize>()
}

fn check(registry: &Registry, limits: &SubscriptionConfig) {
    assert_eq!(registry.bytes(), recount(registry.members.values()));
    assert!(registry.bytes() <= limits.subscription_bytes);
    let mut clients = HashMap::<BudgetOwner, Vec<&super::RegisteredListener>>::new();
    for member in registry.members.values().filter(|member| !member.subscriptions.is_empty()) {
        clients.entry(member.client).or_default().push(member);
    }
    let recounted: HashMap<_, _> =
        clients.into_iter().map(|(client, members)| (client, recount(members.into_iter()))).collect();
    assert_eq!(registry.budget.clients(), recounted);
    assert!(recounted.values().all(|bytes| *bytes <= limits.client_subscription_bytes));
    let reserved = registry.members.values().map(|member| (member.client, member.reserved));
    assert_eq!(registry.budget.reservations(), SubscriptionCost::sums(reserved));
    let names: usize = registry.members.values().map(|member| member.subscriptions.len()).sum();
    assert_eq!(registry.subscriptions(), names);
    assert_eq!(registry.subjects.values().map(HashSet::len).sum::<usize>(), names);
    assert!(registry.changed.iter().all(|subject| registry.client_following(subject).is_some()));
    let mut classes = HashMap::new();
    for member in registry.members.values() {
        *classes.entry(member.class).or_insert(0) += 1;
    }
    let counted: HashMap<_, _> =
        registry.classes.iter().map(|(class, (_, members))| (*class, *members)).collect();
    assert_eq!(counted, classes);
    assert!(registry.list_followers.iter().all(|listener| registry.members.contains_key(listener)));
    // One allocation for each distinct text.
    let mut texts = HashMap::<&str, *const u8>::new();
    let held = registry.members.values().flat_map(|member| &member.subscriptions);
    for text in held.flat_map(|(name, subject)| [&**name, subject.as_str()]) {
        assert_eq!(*texts.entry(text).or_insert(text.as_ptr()), text.as_ptr(), "two copies of `{text}`");
    }
}

proptest! {
    #[test]
    fn charges_equal_a_recount(
        steps in steps(), total in 0..8_000_usize, client in 0..4_000_usize, most in 1..5_usize,
    ) {
        let limits =
            SubscriptionConfig { subscription_bytes: total, client_subscription_bytes: client, ..SubscriptionConfig::default() };
        let mut registry = Registry::new(&limits);
        let mut joined = Vec::new();
        for step in steps {
            let at = |number: usize| joined.get(number).copied().unwrap_or(u64::MAX);
            match step {
                ClientAction::Join(address) => {
                    let client = address.map(|last| Client::at([127, 0, 0, last].into()));
                    joined.push(registry.join(view(), client.unwrap_or_default()).0);
                }
                ClientAction::Subscribe(number, name) => {
                    let before = (registry.bytes(), registry.budget.clients());
                    let subscribed = registry.subscribe(at(number), &name, subject(&name), most);
                    if subscribed.is_err() {
                        prop_assert_eq!(before, (registry.bytes(), registry.budget.clients()));
                    }
                }
                ClientAction::Reserve(number, names) => {
                    let mut cost = SubscriptionCost::default();
                    let _ = registry.add_least_cost(at(number), &names, &mut cost);
                    let _ = registry.reserve(at(number), cost);
                }
                ClientAction::Unsubscribe(number, name) => {
                    registry.unsubscribe(at(number), &name);
                }
                ClientAction::Change(name) => {
                    registry.change(&subject(&name));
                }
                ClientAction::FollowList(number) => {
                    let listener = at(number);
                    if registry.members.contains_key(&listener) {
                        registry.follow_list(listener);
                    }
                }
                ClientAction::ChangeRights => {
                    registry.notify_changed_rights();
                }
                ClientAction::Leave(number) => leave(&mut registry, at(number)),
            }
            check(&registry, &limits);
        }
        for listener in joined {
            leave(&mut registry, listener);
        }
        prop_assert_eq!((registry.bytes(), registry.subjects.len()), (0, 0));
        prop_assert!(registry.budget.clients().is_empty());
        prop_assert_eq!(registry.budget.reservations(), Default::default());
    }
}

#[test]
fn a_reservation_excludes_further_ones_and_not_what_it_is_for() {
    // Room for two subscriptions to URIs of three bytes.
    let each = SUBSCRIPTION_OVERHEAD + TEXT_OVERHEAD + 3;
    let limits = SubscriptionConfig { client_subscription_bytes: 2 * each, ..SubscriptionConfig::default() };
    let mut registry = Registry::new(&limits);
    let address = Client::at([127, 0, 0, 1].into());
    let (one, _) = registry.join(view(), address);
    let (other, _) = registry.join(view(), address);
    let cost = |registry: &Registry, listener, names: &[&str]| {
        let mut cost = SubscriptionCost::default();
        registry.add_least_cost(listener, names, &mut cost).map(|()| cost)
    };
    assert!(cost(&registry, one, &["a:1", "a:2", "a:3"]).is_err());
    let both = cost(&registry, one, &["a:1", "a:2"]).unwrap();
    assert!(registry.reserve(one, both).is_ok());
    assert!(cost(&registry, other, &["a:3"]).is_err());
    for name in ["a:1", "a:2"] {
        assert!(registry.subscribe(one, name, subject(name), 9).is_ok());
    }
    // The subscriptions have used up the reservation. The other listener's subscription to a text that the client holds
    // costs only the overhead, but the limit is reached.
    assert_eq!(registry.budget.reservations(), Default::default());
    assert!(cost(&registry, other, &["a:1"]).is_err());
    registry.unsubscribe(one, "a:2");
    let again = cost(&registry, other, &["a:1"]).unwrap();
    assert!(registry.reserve(other, again).is_ok());
    assert!(cost(&registry, one, &["a:2"]).is_err());
    // A new reservation replaces the one before, and one that is given up ends with its listener.
    assert!(registry.reserve(other, SubscriptionCost::default()).is_ok());
    let more = cost(&registry, one, &["a:2"]).unwrap();
    assert!(registry.reserve(one, more).is_ok());
    leave(&mut registry, one);
    assert_eq!(registry.budget.reservations(), Default::default());
}

#[test]
fn listeners_of_one_address_share_a_budget() {
    let limits = SubscriptionConfig {
        client_subscription_bytes: 2 * (SUBSCRIPTION_OVERHEAD + TEXT_OVERHEAD + 3),
        ..SubscriptionConfig::default()
    };
    let mut registry = Registry::new(&limits);
    let address = |text: &str| Client::at(text.parse().unwrap());
    let (one, _) = registry.join(view(), address("2001:db8::1"));
    let (same_network, _) = registry.join(view(), address("2001:db8::2"));
    let (other, _) = registry.join(view(), address("2001:db8:0:1::1"));
    let mut subscribe = |listener, name: &str| registry.subscribe(listener, name, subject(name), 9);
    assert!(subscribe(one, "a:1").is_ok());
    assert!(subscribe(same_network, "a:2").is_ok());
    assert!(matches!(subscribe(one, "a:3"), Err(SubscriptionRefusal::Budget(_))));
    assert!(matches!(subscribe(same_network, "a:3"), Err(SubscriptionRefusal::Budget(_))));
    assert!(subscribe(other, "a:3").is_ok());
    leave(&mut registry, same_network);
    assert!(registry.subscribe(one, "a:3", subject("a:3"), 9).is_ok());
}

#[test]
fn unlimited_budgets_do_not_overflow() {
    let limits = SubscriptionConfig {
        subscription_bytes: usize::MAX,
        client_subscription_bytes: usize::MAX,
        subscriptions: usize::MAX,
        ..SubscriptionConfig::default()
    };
    let mut registry = Registry::new(&limits);
    let (listener, _) = registry.join(view(), Client::default());
    assert!(registry.subscribe(listener, "a:x", subject("a:x"), usize::MAX).is_ok());
    assert_eq!(registry.bytes(), SUBSCRIPTION_OVERHEAD + TEXT_OVERHEAD + 3);
}

#[test]
fn subscriptions_that_end_give_their_memory_back() {
    let mut registry = Registry::new(&SubscriptionConfig::default());
    let (stays, _) = registry.join(view(), Client::default());
    let (leaves, _) = registry.join(view(), Client::default());
    let names: Vec<_> = (0..1_000).map(|number| format!("a:{number}")).collect();
    for name in &names {
        for listener in [stays, leaves] {
            assert!(registry.subscribe(listener, name, subject(name), 1_000).is_ok());
        }
    }
    for name in &names[1..] {
        registry.unsubscribe(stays, name);
    }
    assert!(registry.members[&stays].subscriptions.capacity() <= 64);
    let mut batches = 1;
    while registry.leave(leaves, 32).is_continue() {
        batches += 1;
        assert_eq!(registry.members[&leaves].subscriptions.len(), 1_000 - 32 * (batches - 1));
    }
    assert_eq!(batches, 1_000_usize.div_ceil(32));
    assert!(registry.subjects.capacity() <= 64);
}
