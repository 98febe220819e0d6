//! Memory accounting of subscriptions, per client and in total.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::should_shrink;

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
    /// The client at `address`; without an address, the listener itself.
    pub(super) fn new(address: Option<IpAddr>, listener: u64) -> Self {
        address.map_or(Self::Listener(listener), |address| Self::Known(libris_core::Client::at(address)))
    }

    /// The client to report to sources.
    pub(super) fn known(self) -> libris_core::Client {
        match self {
            Self::Known(client) => client,
            Self::Listener(_) => libris_core::Client::default(),
        }
    }
}

/// The budget that a subscription would exceed, with its limit in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverBudget {
    /// The budget of the client.
    Client(usize),
    /// The budget of all clients.
    Total(usize),
}

/// The accounts of all clients, and their total.
pub(super) struct SubscriptionBudget {
    total: SubscriptionAccount,
    total_limit: usize,
    clients: HashMap<BudgetOwner, SubscriptionAccount>,
    client_limit: usize,
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

    fn has_room(&self, name: &str, subject: &str, limit: usize) -> bool {
        self.cost(name, subject) <= limit.saturating_sub(self.bytes)
    }

    fn charge(&mut self, name: &Arc<str>, subject: &Arc<str>) {
        self.bytes += self.cost(name, subject);
        self.subscriptions += 1;
        for text in [name, subject] {
            *self.texts.entry(text.clone()).or_default() += 1;
        }
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
    pub(super) fn new(total_limit: usize, client_limit: usize) -> Self {
        Self { total: SubscriptionAccount::default(), total_limit, clients: HashMap::new(), client_limit }
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

    /// Charges a subscription. An error changes nothing.
    pub(super) fn charge(
        &mut self,
        client: BudgetOwner,
        name: &Arc<str>,
        subject: &Arc<str>,
    ) -> Result<(), OverBudget> {
        let fits = match self.clients.get(&client) {
            Some(account) => account.has_room(name, subject, self.client_limit),
            None => SubscriptionAccount::default().has_room(name, subject, self.client_limit),
        };
        if !fits {
            return Err(OverBudget::Client(self.client_limit));
        }
        if !self.total.has_room(name, subject, self.total_limit) {
            return Err(OverBudget::Total(self.total_limit));
        }
        self.clients.entry(client).or_default().charge(name, subject);
        self.total.charge(name, subject);
        Ok(())
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

    /// The bytes charged to each client that has subscriptions.
    #[cfg(test)]
    pub(super) fn clients(&self) -> HashMap<BudgetOwner, usize> {
        self.clients.iter().map(|(client, account)| (*client, account.bytes)).collect()
    }
}
