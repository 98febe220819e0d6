//! The memory budget of input that cannot be answered yet, mostly unfinished request heads. When the budget is
//! exceeded, the client with the most such input loses a connection: the one whose input is the oldest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};

use libris_core::Client;

use super::liveness::Liveness;
use crate::content_budget::Recipient as _;
use crate::lock::lock;

/// The unfinished input of all connections.
pub(super) struct InputBudget {
    /// The budget in bytes.
    most: usize,
    table: Mutex<InputTable>,
}

#[derive(Default)]
struct InputTable {
    /// The last sequence number.
    last: u64,
    /// The bytes of all clients.
    used: usize,
    clients: HashMap<Client, Inputs>,
    /// The clients ordered by how many bytes they hold.
    largest: BTreeSet<(usize, Client)>,
}

/// The unfinished input of one client.
#[derive(Default)]
struct Inputs {
    bytes: usize,
    /// The size and the connection of each input, by sequence number, so that the oldest is first.
    inputs: BTreeMap<u64, (usize, Weak<Liveness>)>,
}

impl Inputs {
    /// The sequence number of the oldest input that holds memory.
    fn oldest(&self) -> Option<u64> {
        self.inputs.iter().find(|(_, (size, _))| *size > 0).map(|(number, _)| *number)
    }
}

/// The memory reservation for the unfinished input of one connection, released on drop.
pub(super) struct InputReservation {
    budget: Arc<InputBudget>,
    client: Client,
    number: u64,
}

impl InputBudget {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, table: Mutex::default() })
    }

    /// The bytes of unfinished input in memory.
    pub(super) fn used(&self) -> usize {
        lock(&self.table).used
    }

    /// Registers a connection of this client that has unfinished input, initially of zero bytes.
    pub(super) fn register(self: &Arc<Self>, client: Client, liveness: &Arc<Liveness>) -> InputReservation {
        let mut table = lock(&self.table);
        table.last += 1;
        let number = table.last;
        let inputs = table.clients.entry(client).or_default();
        inputs.inputs.insert(number, (0, Arc::downgrade(liveness)));
        InputReservation { budget: self.clone(), client, number }
    }
}

impl InputReservation {
    /// Sets the size of the reservation. If this exceeds the budget, connections are evicted, possibly this one.
    pub(super) fn resize(&mut self, bytes: usize) {
        let evicted = {
            let mut table = lock(&self.budget.table);
            table.resize(self.client, self.number, bytes);
            table.evict(self.budget.most)
        };
        // Not under the lock: closing a connection may drop an entry of the table.
        evicted.iter().for_each(|connection| connection.close());
    }
}

impl Drop for InputReservation {
    fn drop(&mut self) {
        let mut table = lock(&self.budget.table);
        table.resize(self.client, self.number, 0);
        table.remove(self.client, self.number);
    }
}

impl InputTable {
    fn resize(&mut self, client: Client, number: u64, bytes: usize) {
        let Some(inputs) = self.clients.get_mut(&client) else { return };
        // Missing if this connection was evicted.
        let Some((size, _)) = inputs.inputs.get_mut(&number) else { return };
        let before = std::mem::replace(size, bytes);
        if before == bytes {
            return;
        }
        self.largest.remove(&(inputs.bytes, client));
        inputs.bytes = inputs.bytes - before + bytes;
        self.used = self.used - before + bytes;
        if inputs.bytes > 0 {
            self.largest.insert((inputs.bytes, client));
        }
    }

    fn remove(&mut self, client: Client, number: u64) -> Option<Arc<Liveness>> {
        let inputs = self.clients.get_mut(&client)?;
        let removed = inputs.inputs.remove(&number);
        if inputs.inputs.is_empty() {
            self.clients.remove(&client);
        }
        removed?.1.upgrade()
    }

    /// Removes inputs until the rest is within the budget, and returns their connections, which must be closed.
    fn evict(&mut self, most: usize) -> Vec<Arc<Liveness>> {
        let mut evicted = Vec::new();
        while self.used > most
            && let Some(&(_, client)) = self.largest.last()
            && let Some(number) = self.clients.get(&client).and_then(Inputs::oldest)
        {
            self.resize(client, number, 0);
            evicted.extend(self.remove(client, number));
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::{InputBudget, InputReservation, Liveness};
    use crate::lock::lock;
    use futures_util::FutureExt as _;
    use libris_core::Client;
    use std::sync::Arc;

    fn register(budget: &Arc<InputBudget>, last: u8, bytes: usize) -> (Arc<Liveness>, InputReservation) {
        let liveness = Arc::<Liveness>::default();
        let mut reservation = budget.register(Client::at([127, 0, 0, last].into()), &liveness);
        reservation.resize(bytes);
        (liveness, reservation)
    }

    /// The indexes of the connections that were asked to close since the last call.
    fn closed(open: &[(Arc<Liveness>, InputReservation)]) -> Vec<usize> {
        let is_closed = |liveness: &Arc<Liveness>| liveness.close_requested().now_or_never().is_some();
        open.iter().enumerate().filter(|(_, (liveness, _))| is_closed(liveness)).map(|(at, _)| at).collect()
    }

    #[test]
    fn the_oldest_input_of_the_client_with_the_most_is_evicted() {
        let budget = InputBudget::new(100);
        let mut open: Vec<_> =
            [(2, 30), (1, 20), (1, 20), (1, 20)].map(|(last, bytes)| register(&budget, last, bytes)).into();
        assert!(closed(&open).is_empty());
        open.push(register(&budget, 3, 11));
        assert_eq!(closed(&open), [1]);
        assert_eq!(budget.used(), 81);
        // A head that grows evicts others just like a new one.
        open[2].1.resize(40);
        assert_eq!(closed(&open), [2]);
        open[0].1.resize(200);
        assert_eq!(closed(&open), [0]);
    }

    #[test]
    fn released_reservations_leave_no_entries() {
        let budget = InputBudget::new(10);
        let open: Vec<_> =
            [(1, 4), (2, 5), (1, 6), (3, 0)].map(|(last, bytes)| register(&budget, last, bytes)).into();
        drop(open);
        let table = lock(&budget.table);
        assert!(table.used == 0 && table.clients.is_empty() && table.largest.is_empty());
    }
}
