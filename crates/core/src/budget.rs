//! Budgets: fair weighted semaphores for memory, permits and other quantities, limited in total and per client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Client;

/// The default maximum number of waiters of a budget. Its purpose is to bound the waiting time, not the memory.
const MAX_WAITERS: usize = 1_024;

/// A weighted semaphore that is fair to clients.
///
/// By default, one client may hold three quarters of the total. Waiting clients are served round-robin, so a client with
/// one request waits for at most one request of every other client. There is no built-in timeout: drop the future to stop
/// waiting.
#[derive(Debug)]
pub struct Budget {
    /// The total amount.
    total: usize,
    /// The maximum amount per client without an identity.
    share: usize,
    /// The maximum amount per identity.
    identity_share: usize,
    /// The maximum number of waiters.
    waiters: usize,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: usize,
    /// The client of the last operation, and the amount that it holds. This client is not in `others`. The next
    /// operation is usually of the same client, and then needs no lookup in the map.
    last: (Client, usize),
    /// The amounts that the other clients hold.
    others: HashMap<Client, usize>,
    /// The queues of waiting clients, in round-robin order.
    queues: VecDeque<ClientQueue>,
}

/// The waiting requests of one client, in FIFO order. Never empty.
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
    /// A budget of which each client may hold three quarters, rounded up, but never all unless `total` is one.
    pub fn new(total: usize) -> Arc<Self> {
        Self::with_share(total, default_share(total))
    }

    /// Whether the total amount is in use.
    pub fn is_full(&self) -> bool {
        self.used() >= self.total
    }

    /// A budget of which each client may hold `share`.
    pub fn with_share(total: usize, share: usize) -> Arc<Self> {
        Self::with_shares(total, Some(share), Some(share))
    }

    /// A budget in which the share of each client with an identity is `identity`, and the share of each other client is
    /// `address`. `None` means three quarters of `total`.
    pub fn with_shares(total: usize, address: Option<usize>, identity: Option<usize>) -> Arc<Self> {
        let share = |share: Option<usize>| share.unwrap_or(default_share(total)).clamp(1, total.max(1));
        let (share, identity_share) = (share(address), share(identity));
        Arc::new(Self { total, share, identity_share, waiters: MAX_WAITERS, state: Mutex::default() })
    }

    /// A budget of which each client may hold three quarters, with this maximum number of waiters.
    pub fn with_waiters(total: usize, waiters: usize) -> Arc<Self> {
        let share = default_share(total);
        Arc::new(Self { total, share, identity_share: share, waiters, state: Mutex::default() })
    }

    /// The maximum amount of this client.
    fn share_of(&self, client: Client) -> usize {
        if client.has_identity() { self.identity_share } else { self.share }
    }

    /// Takes `amount` if it is available, even if other requests are waiting. An amount above the client's share is reduced
    /// to the share, so that large requests can succeed when the client holds nothing else.
    pub fn try_take(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        let amount = amount.min(self.share_of(client));
        self.state().take(self, client, amount).then(|| self.lease(client, amount))
    }

    /// Waits for `amount` and takes it. An amount above the client's share is reduced to the share. `None` if the
    /// maximum number of requests is waiting already, or if three quarters of that number are requests of this client.
    pub async fn take(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        match self.try_take_fairly(client, amount) {
            Some(lease) => Some(lease),
            // Boxed, so that futures that need not wait stay small.
            None => Box::pin(self.wait(client, amount)).await,
        }
    }

    /// Takes `amount` if it is available and no other request is waiting.
    pub fn try_take_fairly(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        let amount = amount.min(self.share_of(client));
        let mut state = self.state();
        let taken = state.queues.is_empty() && state.take(self, client, amount);
        taken.then(|| self.lease(client, amount))
    }

    /// Like [`take`](Self::take), but blocks the thread, so it must not be called in an async task.
    pub fn take_blocking(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        self.try_take_fairly(client, amount).or_else(|| self.queue(client, amount)?.received_blocking())
    }

    async fn wait(self: &Arc<Self>, client: Client, amount: usize) -> Option<Lease> {
        self.queue(client, amount)?.received().await
    }

    /// Adds a waiter; `None` if too many requests wait already.
    fn queue(self: &Arc<Self>, client: Client, amount: usize) -> Option<PendingGrant> {
        let amount = amount.min(self.share_of(client));
        let mut state = self.state();
        // Cancelled waiters must not count.
        state.remove_cancelled();
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
        Some(PendingGrant { budget: self.clone(), client, amount, receiver: Some(receiver) })
    }

    /// A lease of amount zero.
    pub fn empty_lease(self: &Arc<Self>) -> Lease {
        self.lease(Client::default(), 0)
    }

    /// Whether requests are waiting.
    fn has_waiters(&self) -> bool {
        !self.state().queues.is_empty()
    }

    /// The amount in use.
    pub fn used(&self) -> usize {
        self.state().used
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        // Poisoning is ignored: nothing can panic between two updates that belong together.
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

/// The default share of one client: three quarters of `total`, at least one, and never all unless `total` is one.
fn default_share(total: usize) -> usize {
    total.saturating_sub((total / 4).max(1)).max(1)
}

impl BudgetState {
    /// Takes `amount` if the total and the client's share allow it. Returns whether the amount was taken.
    fn take(&mut self, budget: &Budget, client: Client, amount: usize) -> bool {
        self.make_last(client);
        if self.used.saturating_add(amount) > budget.total || !self.is_within_share(budget, client, amount) {
            return false;
        }
        self.used += amount;
        self.last.1 += amount;
        true
    }

    fn is_within_share(&self, budget: &Budget, client: Client, amount: usize) -> bool {
        let held = if self.last.0 == client { Some(self.last.1) } else { self.others.get(&client).copied() };
        held.unwrap_or_default().saturating_add(amount) <= budget.share_of(client)
    }

    fn give_back(&mut self, client: Client, amount: usize) {
        self.make_last(client);
        self.used -= amount;
        self.last.1 -= amount;
    }

    /// Moves the amount of `client` into `last`.
    fn make_last(&mut self, client: Client) {
        if self.last.0 == client {
            return;
        }
        let held = self.others.remove(&client).unwrap_or_default();
        let (client, held) = std::mem::replace(&mut self.last, (client, held));
        if held > 0 {
            self.others.insert(client, held);
        }
    }

    /// Grants available amounts to waiters, round-robin over the clients. A waiter whose amount is not available blocks the
    /// waiters after it, so that large requests do not starve. A waiter whose client has used up its share is skipped.
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

    /// Grants the first waiter of a client its amount, and moves the client to the end of the round-robin order.
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

    fn remove_cancelled(&mut self) {
        for queue in &mut self.queues {
            queue.waiting.retain(|waiter| !waiter.granted.is_closed());
        }
        self.queues.retain(|queue| !queue.waiting.is_empty());
    }
}

/// The receiving side of a [`Waiter`]. If the future is cancelled after the amount was granted but before it was received,
/// dropping this value returns the amount.
struct PendingGrant {
    budget: Arc<Budget>,
    client: Client,
    amount: usize,
    /// `None` once the amount was received.
    receiver: Option<oneshot::Receiver<()>>,
}

impl PendingGrant {
    async fn received(mut self) -> Option<Lease> {
        self.receiver.as_mut()?.await.ok()?;
        self.receiver = None;
        Some(self.budget.lease(self.client, self.amount))
    }

    fn received_blocking(mut self) -> Option<Lease> {
        self.receiver.take()?.blocking_recv().ok()?;
        Some(self.budget.lease(self.client, self.amount))
    }
}

impl Drop for PendingGrant {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        receiver.close();
        // The amount was granted before the receiver was closed.
        if receiver.try_recv().is_ok() {
            self.budget.give_back(self.client, self.amount);
        }
    }
}

/// An amount taken from a [`Budget`]. Dropping the lease returns the amount.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Budget>,
    client: Client,
    amount: usize,
}

impl Lease {
    /// Whether requests are waiting that may be granted if this lease is returned.
    pub fn is_needed(&self) -> bool {
        self.amount > 0 && self.budget.has_waiters()
    }

    /// The amount.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Changes the lease to `amount`, or to the client's share if that is less. If the additional amount is not
    /// available, returns `false` and leaves the lease unchanged.
    pub fn resize(&mut self, amount: usize) -> bool {
        let amount = amount.min(self.budget.share_of(self.client));
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
    use super::{Budget, MAX_WAITERS};
    use crate::{Authentication, Client, Identity};
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
    fn identities_have_shares_independent_of_their_address() {
        let ada = Client::of(&Identity::new("ada"));
        assert_eq!(ada, Client::of(&Identity::new("ada")));
        assert_ne!(ada, Client::of(&Identity::new("bob")));
        let by_key = Authentication::ApiKey { id: "1".into() };
        assert_ne!(ada, Client::of(&Identity::new("ada").with_authentication(by_key)), "another principal");
        let budget = Budget::with_shares(10, Some(2), Some(5));
        let held = budget.try_take(ada, 5).unwrap();
        assert!(budget.try_take(ada, 1).is_none());
        let stranger = budget.try_take(client(1), 5).unwrap();
        assert_eq!((held.amount(), stranger.amount()), (5, 2));
        assert!(budget.try_take(client(1), 1).is_none() && budget.try_take(client(2), 1).is_some());
    }

    #[test]
    fn more_than_a_share_counts_as_the_share() {
        let budget = Budget::with_share(10, 6);
        let all = budget.try_take(client(1), 100).unwrap();
        assert_eq!(all.amount(), 6);
        assert!(budget.try_take(client(1), 1).is_none());
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_mapped_addresses_are_ipv4() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:127.0.0.1"), at("127.0.0.1"));
    }

    #[tokio::test]
    async fn waiters_are_served_in_order_unless_their_share_is_used_up() {
        let budget = Budget::with_share(10, 8);
        let held = budget.try_take(client(1), 8).unwrap();
        let other = budget.try_take(client(2), 2).unwrap();
        let mut same = Box::pin(budget.take(client(1), 4));
        let mut third = Box::pin(budget.take(client(3), 2));
        assert!((&mut same).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert!(budget.has_waiters());
        drop(other);
        // The first waiter is blocked by its client's share, and does not block the next.
        let third = third.await.unwrap();
        drop(held);
        assert_eq!(same.await.unwrap().amount(), 4);
        drop(third);
        assert_eq!(budget.used(), 0);
        assert!(!budget.has_waiters());
    }

    #[tokio::test]
    async fn large_requests_do_not_starve() {
        let budget = Budget::with_share(10, 10);
        let held = budget.try_take(client(1), 6).unwrap();
        let mut large = Box::pin(budget.take(client(2), 9));
        let mut small = Box::pin(budget.take(client(3), 4));
        assert!((&mut large).now_or_never().is_none());
        // The amount is available, but granting it would delay the large request.
        assert!((&mut small).now_or_never().is_none());
        drop(held);
        let large = large.await.unwrap();
        assert_eq!(large.amount(), 9);
        assert!((&mut small).now_or_never().is_none());
        drop(large);
        assert_eq!(small.await.unwrap().amount(), 4);
    }

    #[tokio::test]
    async fn a_cancelled_waiter_holds_nothing() {
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
    async fn waiters_are_bounded_in_total_and_per_client() {
        let budget = Budget::with_share(1, 1);
        let _held = budget.try_take(client(1), 1).unwrap();
        let wait = |last| {
            let budget = budget.clone();
            let mut wait = Box::pin(async move { budget.take(client(last), 1).await.is_some() });
            ((&mut wait).now_or_never().is_none()).then_some(wait)
        };
        let waiting: Vec<_> = (0..MAX_WAITERS).map_while(|_| wait(2)).collect();
        assert_eq!(waiting.len(), MAX_WAITERS - MAX_WAITERS / 4);
        let others: Vec<_> = (0..MAX_WAITERS).map_while(|_| wait(3)).collect();
        assert_eq!(others.len(), MAX_WAITERS / 4);
        assert!(wait(4).is_none());
        // Cancelled waiters do not count, although no lease was returned meanwhile.
        drop(waiting);
        assert!(wait(2).is_some());
    }

    #[tokio::test]
    async fn a_lease_is_needed_while_requests_wait() {
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
    fn threads_wait_in_turn_too() {
        let budget = Budget::new(1);
        let held = budget.take_blocking(client(1), 1).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.take_blocking(client(2), 1).map(|lease| lease.amount()));
            while !held.is_needed() {
                std::thread::yield_now();
            }
            assert!(budget.try_take_fairly(client(3), 1).is_none());
            drop(held);
            assert_eq!(waiting.join().unwrap(), Some(1));
        });
        assert_eq!(budget.used(), 0);
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
    fn one_client_cannot_hold_all_of_a_small_budget() {
        let shares: Vec<_> = [1, 2, 3, 4, 5, 8, 64].iter().map(|total| Budget::new(*total).share).collect();
        assert_eq!(shares, [1, 1, 2, 3, 4, 6, 48]);
    }

    #[tokio::test]
    async fn waiting_clients_are_served_round_robin() {
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
