//! Memory accounting of subscriptions, per client and in total.

use std::collections::HashMap;
use std::sync::Arc;

use super::{SubscriptionConfig, SubscriptionLimit, should_shrink};

/// Bytes charged for a subscription in addition to its texts: its entries in the maps of the listener, the subject and
/// the client, in the set of pending notifications and in the record of sent ones, each in a hash table that has just
/// doubled.
pub(super) const SUBSCRIPTION_OVERHEAD: usize = 384;

/// Bytes charged for a distinct text in addition to its length: the allocation's header and its entries in the maps
/// by text and by subject.
pub(super) const TEXT_OVERHEAD: usize = 320;

/// The owner of a subscription budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BudgetOwner {
    /// All listeners of one client share a budget.
    Known(libris_core::Client),
    /// The listener has a budget of its own.
    Listener(u64),
}

impl BudgetOwner {
    /// The client; if it is not known, the listener itself.
    pub(super) fn new(client: libris_core::Client, listener: u64) -> Self {
        if client.is_known() { Self::Known(client) } else { Self::Listener(listener) }
    }

    fn has_identity(self) -> bool {
        matches!(self, Self::Known(client) if client.has_identity())
    }

    /// The client to report to sources.
    pub(super) fn known(self) -> libris_core::Client {
        match self {
            Self::Known(client) => client,
            Self::Listener(_) => libris_core::Client::default(),
        }
    }
}

/// The budget that a subscription would exceed, with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverBudget {
    /// The bytes of the client.
    Client(usize),
    /// The bytes of all clients.
    Total(usize),
    /// The number of subscriptions of the client.
    ClientCount(usize),
    /// The number of subscriptions of all clients.
    TotalCount(usize),
}

/// The accounts of all clients, and their total.
pub(super) struct SubscriptionBudget {
    total: SubscriptionAccount,
    total_limit: SubscriptionLimit,
    clients: HashMap<BudgetOwner, SubscriptionAccount>,
    address_limit: SubscriptionLimit,
    identity_limit: SubscriptionLimit,
    /// The bytes reserved for subscriptions that are about to be charged. They limit further reservations, but not
    /// charges: otherwise a subscription could fail because of its own reservation.
    reserved: HashMap<BudgetOwner, usize>,
    reserved_in_total: usize,
}

/// The bytes that subscriptions cost in the account of their client, and in the total. The latter are fewer if other
/// clients hold the same texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SubscriptionCost {
    client: usize,
    total: usize,
}

impl SubscriptionCost {
    /// Removes up to `cost` from this cost, and returns the removed part.
    pub(super) fn take(&mut self, cost: Self) -> Self {
        let taken = Self { client: self.client.min(cost.client), total: self.total.min(cost.total) };
        self.client -= taken.client;
        self.total -= taken.total;
        taken
    }

    /// The sum for each client, without zeros, and in total.
    #[cfg(test)]
    pub(super) fn sums(
        costs: impl Iterator<Item = (BudgetOwner, Self)>,
    ) -> (HashMap<BudgetOwner, usize>, usize) {
        let (mut clients, mut total) = (HashMap::new(), 0);
        for (client, cost) in costs {
            *clients.entry(client).or_default() += cost.client;
            total += cost.total;
        }
        clients.retain(|_, bytes| *bytes > 0);
        (clients, total)
    }
}

/// The charges for subscriptions: a flat charge for each, and one for each distinct text.
#[derive(Default)]
struct SubscriptionAccount {
    /// How many references subscriptions hold to each text; a subscription holds one to its name and one
    /// to its subject.
    texts: HashMap<Arc<str>, usize>,
    subscriptions: usize,
    bytes: usize,
}

impl SubscriptionAccount {
    fn cost(&self, name: &str, subject: &str) -> usize {
        let cost = |text: &str| if self.texts.contains_key(text) { 0 } else { TEXT_OVERHEAD + text.len() };
        SUBSCRIPTION_OVERHEAD + cost(name) + if name == subject { 0 } else { cost(subject) }
    }

    /// Whether a subscription fits within a limit in bytes.
    fn has_room(&self, name: &str, subject: &str, limit: usize) -> bool {
        self.cost(name, subject) <= limit.saturating_sub(self.bytes)
    }

    /// Whether the number of subscriptions is below its limit.
    fn is_below_count(&self, limit: SubscriptionLimit) -> bool {
        limit.count.is_none_or(|count| self.subscriptions < count)
    }

    /// Adds a subscription, and returns its cost.
    fn charge(&mut self, name: &Arc<str>, subject: &Arc<str>) -> usize {
        let cost = self.cost(name, subject);
        self.bytes += cost;
        self.subscriptions += 1;
        for text in [name, subject] {
            *self.texts.entry(text.clone()).or_default() += 1;
        }
        cost
    }

    fn refund(&mut self, name: &str, subject: &str) {
        self.bytes -= SUBSCRIPTION_OVERHEAD;
        self.subscriptions -= 1;
        for text in [name, subject] {
            let Some(references) = self.texts.get_mut(text) else { continue };
            *references -= 1;
            if *references == 0 {
                self.texts.remove(text);
                self.bytes -= TEXT_OVERHEAD + text.len();
            }
        }
        if should_shrink(self.texts.len(), self.texts.capacity()) {
            self.texts.shrink_to(self.texts.len() * 2);
        }
    }
}

impl SubscriptionBudget {
    pub(super) fn new(config: &SubscriptionConfig) -> Self {
        let SubscriptionConfig { total_subscriptions, subscription_bytes, .. } = *config;
        Self {
            total: SubscriptionAccount::default(),
            total_limit: SubscriptionLimit { count: total_subscriptions, bytes: subscription_bytes },
            clients: HashMap::new(),
            address_limit: config.address_limit(),
            identity_limit: config.identity_limit(),
            reserved: HashMap::new(),
            reserved_in_total: 0,
        }
    }

    /// The limit of one client.
    fn limit_of(&self, client: BudgetOwner) -> SubscriptionLimit {
        if client.has_identity() { self.identity_limit } else { self.address_limit }
    }

    /// Adds to `cost` the minimum cost of a subscription to the URI `name`. The subject, which may cost more, is not
    /// known yet.
    pub(super) fn add_least_cost(&self, client: BudgetOwner, name: &str, cost: &mut SubscriptionCost) {
        cost.client += match self.clients.get(&client) {
            Some(account) => account.cost(name, name),
            None => SubscriptionAccount::default().cost(name, name),
        };
        cost.total += self.total.cost(name, name);
    }

    /// Fails if this cost exceeds the bytes that are neither charged nor reserved.
    pub(super) fn check(&self, client: BudgetOwner, cost: SubscriptionCost) -> Result<(), OverBudget> {
        let used = self.bytes_of(client) + self.reserved.get(&client).copied().unwrap_or_default();
        let limit = self.limit_of(client).bytes;
        if cost.client > limit.saturating_sub(used) {
            return Err(OverBudget::Client(limit));
        }
        let limit = self.total_limit.bytes;
        if cost.total > limit.saturating_sub(self.total.bytes + self.reserved_in_total) {
            return Err(OverBudget::Total(limit));
        }
        Ok(())
    }

    /// Reserves this cost. An error changes nothing.
    pub(super) fn reserve(&mut self, client: BudgetOwner, cost: SubscriptionCost) -> Result<(), OverBudget> {
        self.check(client, cost)?;
        if cost != SubscriptionCost::default() {
            *self.reserved.entry(client).or_default() += cost.client;
            self.reserved_in_total += cost.total;
        }
        Ok(())
    }

    /// Takes back a reservation, or a part of it.
    pub(super) fn release(&mut self, client: BudgetOwner, cost: SubscriptionCost) {
        self.reserved_in_total -= cost.total;
        if let Some(reserved) = self.reserved.get_mut(&client) {
            *reserved -= cost.client;
            if *reserved == 0 {
                self.reserved.remove(&client);
            }
        }
    }

    /// The bytes charged for all subscriptions.
    pub(super) fn bytes(&self) -> usize {
        self.total.bytes
    }

    /// The number of subscriptions.
    pub(super) fn subscriptions(&self) -> usize {
        self.total.subscriptions
    }

    /// The interned copy of this text, if a subscription holds one.
    pub(super) fn interned(&self, text: &str) -> Option<Arc<str>> {
        self.total.texts.get_key_value(text).map(|(text, _)| text.clone())
    }

    /// Charges a subscription, and returns its cost. An error changes nothing.
    pub(super) fn charge(
        &mut self,
        client: BudgetOwner,
        name: &Arc<str>,
        subject: &Arc<str>,
    ) -> Result<SubscriptionCost, OverBudget> {
        let limit = self.limit_of(client);
        let none = SubscriptionAccount::default();
        let account = self.clients.get(&client).unwrap_or(&none);
        if !account.is_below_count(limit) {
            return Err(OverBudget::ClientCount(limit.count.unwrap_or_default()));
        }
        if !account.has_room(name, subject, limit.bytes) {
            return Err(OverBudget::Client(limit.bytes));
        }
        if !self.total.is_below_count(self.total_limit) {
            return Err(OverBudget::TotalCount(self.total_limit.count.unwrap_or_default()));
        }
        if !self.total.has_room(name, subject, self.total_limit.bytes) {
            return Err(OverBudget::Total(self.total_limit.bytes));
        }
        Ok(SubscriptionCost {
            client: self.clients.entry(client).or_default().charge(name, subject),
            total: self.total.charge(name, subject),
        })
    }

    /// Takes back the charge for a subscription.
    pub(super) fn refund(&mut self, client: BudgetOwner, name: &str, subject: &str) {
        if let Some(account) = self.clients.get_mut(&client) {
            account.refund(name, subject);
            if account.subscriptions == 0 {
                self.clients.remove(&client);
            }
        }
        self.total.refund(name, subject);
    }

    /// The bytes charged to a client.
    pub(super) fn bytes_of(&self, client: BudgetOwner) -> usize {
        self.clients.get(&client).map_or(0, |account| account.bytes)
    }

    /// The bytes reserved for each client, and in total.
    #[cfg(test)]
    pub(super) fn reservations(&self) -> (HashMap<BudgetOwner, usize>, usize) {
        (self.reserved.clone(), self.reserved_in_total)
    }

    /// The bytes charged to each client that has subscriptions.
    #[cfg(test)]
    pub(super) fn clients(&self) -> HashMap<BudgetOwner, usize> {
        self.clients.iter().map(|(client, account)| (*client, account.bytes)).collect()
    }
}
