//! Random subscriptions and changes: a caller is notified as if what is hidden from it were not there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use libris::wire::{Caller, Client, Listener, Notification, Service as _};
use libris::{Change, Server, Uri};
use tokio::time::{sleep, timeout};

use crate::people::{People, Sight, Who};
use crate::random::{Random, seeds};
use crate::shelf::{Predicate, Seen, Shelf, Stock, Universe, uri};
use crate::streams::{COMMON, SECRET, world};
use crate::worlds::{WINDOW, World};

/// How many random sequences are checked.
const CASES: u64 = 400;

/// Longer than any debounce window and any pause between two notifications of the list.
const QUIET: Duration = Duration::from_secs(10);

fn join(server: &Server, who: Who) -> Arc<dyn Listener> {
    let caller = Caller { authorization: who.authorization().map(str::as_bytes), ..Caller::default() };
    server.cached_view(&caller).unwrap().listener(Client::default()).unwrap()
}

/// Everything that waits to be sent.
async fn taken(listener: &dyn Listener) -> Vec<Notification> {
    let mut all = Vec::new();
    while let Ok(notification) = timeout(Duration::from_millis(1), listener.next()).await {
        all.push(notification);
    }
    all
}

/// Everything that waits to be told, in the order of its text.
async fn told(listener: &dyn Listener) -> Vec<String> {
    let text = |notification| match notification {
        Notification::ListChanged => "the list".to_owned(),
        Notification::PromptsChanged => "the prompts".to_owned(),
        Notification::ToolsChanged => "the tools".to_owned(),
        Notification::Updated(uri) => uri.to_string(),
    };
    let mut all: Vec<_> = taken(listener).await.into_iter().map(text).collect();
    all.sort();
    all
}

/// A caller that listens to the server with the policy, and to the one without what is hidden from the caller.
struct Ear {
    who: Who,
    policy: Arc<dyn Listener>,
    reduced: Arc<dyn Listener>,
    /// What it has subscribed to, seen or not.
    subscribed: BTreeSet<String>,
    /// What of it has become visible since it was last told something: that is a change of it.
    regained: BTreeSet<String>,
}

struct Case {
    seed: u64,
    random: Random,
    universe: &'static Universe,
    sights: [Sight; 2],
    /// The policy of the server `policy`.
    people: Arc<People>,
    policy: World,
    reduced: [World; 2],
    ears: Vec<Ear>,
    /// Keep the watches open, so that all servers know from the start what has changed.
    _companions: Vec<Arc<dyn Listener>>,
    log: Vec<String>,
}

impl Case {
    async fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0000_ea25);
        let universe = Universe::of(false);
        let stock = Stock::random(universe, &mut random);
        let sights = Sight::pair(universe, &mut random);
        let everything = Arc::new(Seen::new(universe, Predicate::Everything));
        let people = People::new(&sights);
        let policy = World::new(Shelf::new(&stock, everything), people.clone(), 9);
        let reduced = [0, 1]
            .map(|at: usize| World::new(Shelf::new(&stock, sights[at].seen.clone()), People::open(), 9));
        let mut companions = Vec::new();
        for world in [&policy, &reduced[0], &reduced[1]] {
            let companion = join(&world.server, Who::B);
            companion.follow_list().await.unwrap();
            companions.push(companion);
        }
        let mut ears = Vec::new();
        for who in [Who::A, Who::B, Who::Anonymous] {
            let (policy, reduced) = (join(&policy.server, who), join(&reduced[index(who)].server, who));
            if random.chance(50) {
                policy.listed();
                reduced.listed();
            }
            ears.push(Ear { who, policy, reduced, subscribed: BTreeSet::new(), regained: BTreeSet::new() });
        }
        let log =
            vec![format!("seed {seed}: A sees {:?}, B sees {:?}", sights[0].predicate, sights[1].predicate)];
        Self { seed, random, universe, sights, people, policy, reduced, ears, _companions: companions, log }
    }

    async fn run(mut self) {
        for _ in 0..5 + self.random.below(12) {
            let ear = self.random.below(self.ears.len());
            match self.random.below(15) {
                0..4 => self.subscribe(ear).await,
                4 => {
                    self.log.push(format!("{:?} follows the list", self.ears[ear].who));
                    self.ears[ear].policy.follow_list().await.unwrap();
                    self.ears[ear].reduced.follow_list().await.unwrap();
                }
                5 => {
                    self.log.push(format!("{:?} lists", self.ears[ear].who));
                    self.ears[ear].policy.listed();
                    self.ears[ear].reduced.listed();
                }
                6 => {
                    self.compare().await;
                    self.change_rights().await;
                }
                // What is told is taken later, once the rights have changed.
                7 => {
                    self.change();
                    sleep(QUIET).await;
                    self.change_rights().await;
                }
                // The rights change while changes are debounced: up to two windows after the change.
                8 | 9 => {
                    (0..=self.random.below(3)).for_each(|_| self.change());
                    let pause = WINDOW * u32::try_from(self.random.below(9)).unwrap() / 4;
                    self.log.push(format!("{pause:?} pass"));
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                    self.change_rights().await;
                }
                // A stream has taken notifications, cannot send them, and puts them back once the rights have changed.
                10 => {
                    self.change();
                    sleep(QUIET).await;
                    let mut taken_before = Vec::new();
                    for ear in &self.ears {
                        taken_before.push((taken(&*ear.policy).await, taken(&*ear.reduced).await));
                    }
                    self.change_rights().await;
                    self.log.push("what was taken before is put back".to_owned());
                    for (ear, (ours, theirs)) in self.ears.iter().zip(taken_before) {
                        ours.into_iter().for_each(|notification| ear.policy.requeue(notification));
                        theirs.into_iter().for_each(|notification| ear.reduced.requeue(notification));
                    }
                }
                _ => (0..=self.random.below(3)).for_each(|_| self.change()),
            }
            if self.random.chance(70) {
                self.compare().await;
            }
        }
        self.compare().await;
    }

    async fn subscribe(&mut self, ear: usize) {
        let uri = self.random.pick(&self.universe.all).clone();
        let ear = &mut self.ears[ear];
        if ear.subscribed.remove(uri.as_str()) {
            self.log.push(format!("{:?} unsubscribes from {uri}", ear.who));
            ear.regained.remove(uri.as_str());
            ear.policy.unsubscribe(uri.as_str());
            ear.reduced.unsubscribe(uri.as_str());
            return;
        }
        self.log.push(format!("{:?} subscribes to {uri}", ear.who));
        let outcomes = (ear.policy.subscribe(uri.as_str()).await, ear.reduced.subscribe(uri.as_str()).await);
        assert_eq!(format!("{:?}", outcomes.0), format!("{:?}", outcomes.1), "{}", self.log.join("\n"));
        if outcomes.0.is_ok() {
            ear.subscribed.insert(uri.to_string());
        }
        // Where it is not there, nothing is told of it but that events were dropped.
        if !self.sights[index(ear.who)].seen.has(&uri) {
            ear.reduced.unsubscribe(uri.as_str());
        }
    }

    /// A change, which a server without the resource does not hear of.
    fn change(&mut self) {
        let uri = self.random.pick(&self.universe.resources).clone();
        let change = match self.random.below(11) {
            0 => Change::Lost,
            1..4 => Change::Added(uri.clone()),
            4..6 => Change::Removed(uri.clone()),
            6..8 => Change::Described(uri.clone()),
            _ => Change::Updated(uri.clone()),
        };
        self.log.push(format!("{change:?}"));
        self.policy.shelf.report(&change);
        for (world, sight) in self.reduced.iter().zip(&self.sights) {
            if change == Change::Lost || sight.seen.has(&uri) {
                world.shelf.report(&change);
            }
        }
    }

    /// Other rights. Without what is hidden, this is a change of the list; what has become hidden is not there to be
    /// subscribed to, and what has become visible is subscribed to again.
    async fn change_rights(&mut self) {
        let before = std::mem::replace(&mut self.sights, Sight::pair(self.universe, &mut self.random));
        // Sometimes one of them keeps its rights.
        if self.random.chance(40) {
            let kept = self.random.below(2);
            self.sights[kept] = before[kept].clone();
        }
        let [a, b] = &self.sights;
        self.log.push(format!("now A sees {:?}, and B {:?}", a.predicate, b.predicate));
        if self.random.chance(50) {
            self.people = People::new(&self.sights);
            self.policy.server.set_policy(self.people.clone());
        } else {
            self.log.push("by a revocation".to_owned());
            self.people.change(&self.sights);
            self.policy.server.revoke();
        }
        for (at, world) in self.reduced.iter().enumerate() {
            world.shelf.show(self.sights[at].seen.clone());
            if format!("{:?}", before[at].rights) != format!("{:?}", self.sights[at].rights) {
                world.shelf.report(&Change::Described(self.universe.resources[0].clone()));
            }
        }
        sleep(QUIET).await;
        for ear in &mut self.ears {
            let (before, seen) = (&before[index(ear.who)].seen, &self.sights[index(ear.who)].seen);
            for name in &ear.subscribed {
                let uri = Uri::parse(name).unwrap();
                if !seen.has(&uri) {
                    ear.reduced.unsubscribe(name);
                } else if !before.has(&uri) {
                    ear.reduced.subscribe(name).await.unwrap();
                    ear.regained.insert(name.clone());
                }
            }
        }
    }

    async fn compare(&mut self) {
        sleep(QUIET).await;
        for ear in &mut self.ears {
            let (mut ours, mut theirs) = (told(&*ear.policy).await, told(&*ear.reduced).await);
            let log = self.log.join("\n");
            let seen = &self.sights[index(ear.who)].seen;
            let regained = std::mem::take(&mut ear.regained);
            for name in regained.iter().filter(|name| seen.has(&Uri::parse(name).unwrap())) {
                assert!(ours.contains(name), "seed {}: {name} is visible again after\n{log}", self.seed);
            }
            ours.retain(|name| !regained.contains(name));
            theirs.retain(|name| !regained.contains(name));
            assert_eq!(ours, theirs, "seed {}: what {:?} is told after\n{log}", self.seed, ear.who);
            let is_seen = |text: &String| text == "the list" || seen.has(&Uri::parse(text).unwrap());
            assert!(ours.iter().all(is_seen), "seed {}: {ours:?} after\n{log}", self.seed);
        }
        let visible = self.ears.iter().flat_map(|ear| {
            let seen = &self.sights[index(ear.who)].seen;
            ear.subscribed.iter().map(|name| uri(name)).filter(|uri| seen.has(uri))
        });
        let wanted: BTreeSet<_> = visible.map(|uri| uri.without_query()).collect();
        assert_eq!(self.policy.shelf.followed(), wanted, "seed {}\n{}", self.seed, self.log.join("\n"));
        self.log.push("all are told".to_owned());
    }
}

/// Which of the two sights somebody has.
fn index(who: Who) -> usize {
    usize::from(who == Who::B)
}

#[tokio::test(start_paused = true)]
async fn what_a_view_hides_is_not_told_of() {
    for seed in seeds(CASES) {
        Case::new(seed).await.run().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_follows_the_list_late_has_not_missed_what_is_hidden() {
    let (world, _) = world();
    let companion = join(&world.server, Who::A);
    companion.follow_list().await.unwrap();
    for (name, changes) in [
        (SECRET, [Change::Added as fn(Uri) -> Change, Change::Removed, Change::Described]),
        (COMMON, [Change::Added, Change::Removed, Change::Described]),
    ] {
        for change in changes {
            let late = join(&world.server, Who::B);
            late.listed();
            world.shelf.report(&change(uri(name)));
            sleep(QUIET).await;
            late.follow_list().await.unwrap();
            let expected: &[&str] = if name == SECRET { &[] } else { &["the list"] };
            assert_eq!(told(&*late).await, expected, "{:?}", change(uri(name)));
        }
    }
}
