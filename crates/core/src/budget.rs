//! Quantities that clients share, such as bytes of memory or requests in progress: bounded in total, and for each
//! client.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Whose share of a [`Budget`] a request draws on: everything that comes from one network address is one client.
///
/// A program that embeds an endpoint and knows its callers by something else, such as a proxy's header, puts a
/// `Client` of its own into the extensions of the HTTP request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client(Option<IpAddr>);

impl Client {
    /// The client at this address. An IPv6 network of 64 bits counts as one address, since its owner has all of it.
    pub fn at(address: IpAddr) -> Self {
        Self(Some(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        }))
    }

    /// The address, or the first one of its IPv6 network; `None` where the transport knows none.
    pub fn address(self) -> Option<IpAddr> {
        self.0
    }
}

/// How many may wait for one budget at once. Waiting costs little memory; it is bounded so that nobody waits behind
/// more than can be served in time.
const WAITERS: usize = 1_024;

/// A quantity that clients share: a semaphore that is fair to each of them.
///
/// One client may hold three quarters of it, unless said otherwise. Clients that wait are served round-robin, so a
/// client with one request waits for at most one request of every other client. It has no clock: whoever waits for no
/// longer than some time drops the future.
#[derive(Debug)]
pub struct Budget {
    /// What there is in all.
    total: usize,
    /// What one client may hold.
    share: usize,
    /// How many may wait.
    waiters: usize,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: usize,
    /// The client that was counted last, and what it holds: most often the next one is the same.
    last: (Client, usize),
    /// What each other client holds.
    others: HashMap<Client, usize>,
    /// A queue for each client that waits, the next one to be served first.
    queues: VecDeque<ClientQueue>,
}

/// The requests of one client that wait, in the order in which they came. Never empty.
#[derive(Debug)]
struct ClientQueue {
    client: Client,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    amount: usize,
    granted: oneshot::Sender<()>,
}

impl Budget {
    /// A budget of which each client may hold three quarters, and all but one where it is smaller than four.
    pub fn new(total: usize) -> Arc<Self> {
        Self::with_share(total, most(total))
    }

    /// Whether all of it is in use.
    pub fn is_full(&self) -> bool {
        self.used() >= self.total
    }

    /// A budget of which each client may hold `share`.
    pub fn with_share(total: usize, share: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            share: share.clamp(1, total.max(1)),
            waiters: WAITERS,
            state: Mutex::default(),
        })
    }

    /// A budget that so many may wait for.
    pub fn with_waiters(total: usize, waiters: usize) -> Arc<Self> {
        Arc::new(Self { total, share: most(total), waiters, state: Mutex::default() })
    }

    /// Takes `amount` if it is there. More than a client's share counts as all of the share, so that what is large
    /// is served while nothing else is.
    pub fn try_take(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        let amount = amount.min(self.share);
        self.state().take(self, client, amount).then(|| self.lease(client, amount))
    }

    /// Takes `amount`, waiting for it; `None` if too many wait already. One client may have three quarters of those who
    /// wait.
    pub async fn take(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        match self.try_take_fairly(client, amount) {
            Some(lease) => Some(lease),
            // Boxed, or everybody who takes something would make room for waiting.
            None => Box::pin(self.wait(client, amount)).await,
        }
    }

    /// Takes `amount` if it is there and nobody waits for it.
    pub fn try_take_fairly(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        let amount = amount.min(self.share);
        let mut state = self.state();
        let taken = state.queues.is_empty() && state.take(self, client, amount);
        taken.then(|| self.lease(client, amount))
    }

    async fn wait(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        let amount = amount.min(self.share);
        let mut waiting = {
            let mut state = self.state();
            // Those who gave up leave their place to others.
            state.forget_closed();
            let all: usize = state.queues.iter().map(|queue| queue.waiting.len()).sum();
            let own = state.queues.iter().position(|queue| queue.client == client);
            let own_length = own.map_or(0, |own| state.queues[own].waiting.len());
            if all >= self.waiters || own_length >= self.waiters - self.waiters / 4 {
                return None;
            }
            let (granted, receiver) = oneshot::channel();
            let waiter = Waiter { amount, granted };
            match own {
                Some(own) => state.queues[own].waiting.push_back(waiter),
                None => state.queues.push_back(ClientQueue { client, waiting: [waiter].into() }),
            }
            state.serve(self);
            // A grant that nobody receives any more is given back.
            Granted { budget: self.clone(), client, amount, receiver }
        };
        (&mut waiting.receiver).await.ok()?;
        Some(self.lease(client, amount))
    }

    /// A lease of nothing, which is always there.
    pub fn empty_lease(self: &Arc<Self>) -> Lease {
        self.lease(Client::default(), 0)
    }

    /// Whether somebody waits for what others hold.
    fn is_short(&self) -> bool {
        !self.state().queues.is_empty()
    }

    /// How much is in use.
    pub fn used(&self) -> usize {
        self.state().used
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        // It is whole between two statements, so a panic elsewhere leaves it so.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(self: &Arc<Self>, client: Client, amount: usize) -> Lease {
        Lease { budget: self.clone(), client, amount }
    }

    fn give_back(&self, client: Client, amount: usize) {
        let mut state = self.state();
        state.give_back(client, amount);
        state.serve(self);
    }
}

/// What one client may hold of `total`: three quarters, at least one, and where there are more than one not all.
fn most(total: usize) -> usize {
    total.saturating_sub((total / 4).max(1)).max(1)
}

impl BudgetState {
    /// Takes `amount` if it is there, for the client and in all, and reports whether it was.
    fn take(&mut self, budget: &Budget, client: Client, amount: usize) -> bool {
        self.look_up(client);
        if self.used.saturating_add(amount) > budget.total || !self.is_within_share(budget, client, amount) {
            return false;
        }
        self.used += amount;
        self.last.1 += amount;
        true
    }

    fn is_within_share(&self, budget: &Budget, client: Client, amount: usize) -> bool {
        let held = if self.last.0 == client { Some(self.last.1) } else { self.others.get(&client).copied() };
        held.unwrap_or_default().saturating_add(amount) <= budget.share
    }

    fn give_back(&mut self, client: Client, amount: usize) {
        self.look_up(client);
        self.used -= amount;
        self.last.1 -= amount;
    }

    /// Makes `client` the one that was counted last.
    fn look_up(&mut self, client: Client) {
        if self.last.0 == client {
            return;
        }
        let held = self.others.remove(&client).unwrap_or_default();
        let (client, held) = std::mem::replace(&mut self.last, (client, held));
        if held > 0 {
            self.others.insert(client, held);
        }
    }

    /// Grants what there is to those who wait, to one client after the other. One who waits for much is not overtaken
    /// by others, or it would wait for ever, except by those it could not go before anyway because its own client's
    /// share is used up.
    fn serve(&mut self, budget: &Budget) {
        let mut at = 0;
        while let Some(queue) = self.queues.get_mut(at) {
            let client = queue.client;
            let closed = queue.waiting.iter().take_while(|waiter| waiter.granted.is_closed()).count();
            queue.waiting.drain(..closed);
            let Some(amount) = queue.waiting.front().map(|waiter| waiter.amount) else {
                self.queues.remove(at);
                continue;
            };
            if self.take(budget, client, amount) {
                self.grant_first(at);
            } else if self.is_within_share(budget, client, amount) {
                return;
            } else {
                at += 1;
            }
        }
    }

    /// Gives the first waiter of a client what was taken for it, and the client its place behind the others.
    fn grant_first(&mut self, at: usize) {
        let Some(mut queue) = self.queues.remove(at) else { return };
        if let Some(waiter) = queue.waiting.pop_front()
            && waiter.granted.send(()).is_err()
        {
            self.give_back(queue.client, waiter.amount);
        }
        if !queue.waiting.is_empty() {
            self.queues.push_back(queue);
        }
    }

    fn forget_closed(&mut self) {
        for queue in &mut self.queues {
            queue.waiting.retain(|waiter| !waiter.granted.is_closed());
        }
        self.queues.retain(|queue| !queue.waiting.is_empty());
    }
}

/// What a waiter was or will be granted.
struct Granted {
    budget: Arc<Budget>,
    client: Client,
    amount: usize,
    receiver: oneshot::Receiver<()>,
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.receiver.close();
        // Granted in the moment in which the waiter gave up.
        if self.receiver.try_recv().is_ok() {
            self.budget.give_back(self.client, self.amount);
        }
    }
}

/// What somebody holds of a [`Budget`]. Dropping it gives it back.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Budget>,
    client: Client,
    amount: usize,
}

impl Lease {
    /// Whether somebody waits for what is held here.
    pub fn is_needed(&self) -> bool {
        self.amount > 0 && self.budget.is_short()
    }

    /// How much it is.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Makes it `amount` if that is there, and reports whether it was; otherwise it stays as it is.
    pub fn resize(&mut self, amount: usize) -> bool {
        let amount = amount.min(self.budget.share);
        if let Some(less) = self.amount.checked_sub(amount) {
            if less > 0 {
                self.amount = amount;
                self.budget.give_back(self.client, less);
            }
            return true;
        }
        let taken = self.budget.state().take(&self.budget, self.client, amount - self.amount);
        if taken {
            self.amount = amount;
        }
        taken
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.budget.give_back(self.client, self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Client, WAITERS};
    use futures_util::FutureExt as _;

    fn client(last: u8) -> Client {
        Client::at([127, 0, 0, last].into())
    }

    #[test]
    fn one_client_can_use_up_only_its_share() {
        let budget = Budget::with_share(10, 6);
        let first = budget.try_take(client(1), 5).unwrap();
        assert!(budget.try_take(client(1), 2).is_none());
        let rest = budget.try_take(client(1), 1).unwrap();
        let other = budget.try_take(client(2), 4).unwrap();
        assert!(budget.try_take(client(3), 1).is_none());
        assert_eq!(budget.used(), 10);
        drop((first, rest, other));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn more_than_a_share_is_served_when_nothing_else_is() {
        let budget = Budget::with_share(10, 6);
        let all = budget.try_take(client(1), 100).unwrap();
        assert_eq!(all.amount(), 6);
        assert!(budget.try_take(client(1), 1).is_none());
    }

    #[test]
    fn networks_of_ipv6_are_one_client_and_mapped_addresses_are_ipv4() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:127.0.0.1"), at("127.0.0.1"));
    }

    #[tokio::test]
    async fn who_waits_is_served_in_order_unless_its_share_is_used_up() {
        let budget = Budget::with_share(10, 8);
        let held = budget.try_take(client(1), 8).unwrap();
        let other = budget.try_take(client(2), 2).unwrap();
        let mut same = Box::pin(budget.take(client(1), 4));
        let mut third = Box::pin(budget.take(client(3), 2));
        assert!((&mut same).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert!(budget.is_short());
        drop(other);
        // The first in line cannot go on whatever is free, and does not hold up the next.
        let third = third.await.unwrap();
        drop(held);
        assert_eq!(same.await.unwrap().amount(), 4);
        drop(third);
        assert_eq!(budget.used(), 0);
        assert!(!budget.is_short());
    }

    #[tokio::test]
    async fn what_is_large_is_not_overtaken_for_ever() {
        let budget = Budget::with_share(10, 10);
        let held = budget.try_take(client(1), 6).unwrap();
        let mut large = Box::pin(budget.take(client(2), 9));
        let mut small = Box::pin(budget.take(client(3), 4));
        assert!((&mut large).now_or_never().is_none());
        // It would fit, and with others like it would keep the large one waiting.
        assert!((&mut small).now_or_never().is_none());
        drop(held);
        let large = large.await.unwrap();
        assert_eq!(large.amount(), 9);
        assert!((&mut small).now_or_never().is_none());
        drop(large);
        assert_eq!(small.await.unwrap().amount(), 4);
    }

    #[tokio::test]
    async fn who_gives_up_leaves_nothing_behind() {
        let budget = Budget::with_share(4, 4);
        let held = budget.try_take(client(1), 4).unwrap();
        let mut left = Box::pin(budget.take(client(2), 1));
        assert!((&mut left).now_or_never().is_none());
        drop(held);
        drop(left);
        assert_eq!(budget.used(), 0);
        assert!(budget.try_take(client(3), 4).is_some());
    }

    #[tokio::test]
    async fn those_who_wait_are_bounded_in_all_and_for_each_client() {
        let budget = Budget::with_share(1, 1);
        let _held = budget.try_take(client(1), 1).unwrap();
        let wait = |last| {
            let budget = budget.clone();
            let mut wait = Box::pin(async move { budget.take(client(last), 1).await.is_some() });
            ((&mut wait).now_or_never().is_none()).then_some(wait)
        };
        let waiting: Vec<_> = (0..WAITERS).map_while(|_| wait(2)).collect();
        assert_eq!(waiting.len(), WAITERS - WAITERS / 4);
        let others: Vec<_> = (0..WAITERS).map_while(|_| wait(3)).collect();
        assert_eq!(others.len(), WAITERS / 4);
        assert!(wait(4).is_none());
        // Those who give up leave their places, although nothing was given back meanwhile.
        drop(waiting);
        assert!(wait(2).is_some());
    }

    #[tokio::test]
    async fn a_lease_is_needed_while_somebody_waits() {
        let budget = Budget::with_share(4, 4);
        let held = budget.try_take(client(1), 4).unwrap();
        assert!(!held.is_needed());
        let mut waiting = Box::pin(budget.take(client(2), 1));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(held.is_needed() && !budget.empty_lease().is_needed());
        drop(held);
        assert!(!waiting.await.unwrap().is_needed());
    }

    #[test]
    fn a_lease_grows_and_shrinks() {
        let budget = Budget::with_share(10, 8);
        let mut lease = budget.try_take(client(1), 2).unwrap();
        assert!(lease.resize(100) && lease.amount() == 8);
        assert!(lease.resize(3));
        let other = budget.try_take(client(2), 6).unwrap();
        assert!(!lease.resize(5) && lease.amount() == 3);
        drop((lease, other));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn of_a_small_budget_something_is_left_for_another_client() {
        let shares: Vec<_> = [1, 2, 3, 4, 5, 8, 64].iter().map(|total| Budget::new(*total).share).collect();
        assert_eq!(shares, [1, 1, 2, 3, 4, 6, 48]);
    }

    #[tokio::test]
    async fn clients_that_wait_are_served_in_turn() {
        let budget = Budget::new(1);
        let mut held = budget.try_take(client(1), 1);
        let order = std::sync::Mutex::new(Vec::new());
        let wait = async |last| {
            let lease = budget.take(client(last), 1).await.unwrap();
            order.lock().unwrap().push(last);
            drop(lease);
        };
        let mut all = Box::pin(futures_util::future::join_all([1, 1, 1, 1, 2, 2, 3].map(wait)));
        assert!((&mut all).now_or_never().is_none());
        drop(held.take());
        all.await;
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(budget.used(), 0);
    }
}
