//! Caches verified credentials, so that a token is verified once instead of at every request.

use std::collections::{HashMap, VecDeque};
use std::sync::{PoisonError, RwLock};
use std::time::SystemTime;

use libris_core::{Client, Identity};

/// The number of bytes at the end of a credential that are its key in the hash map. Tokens and certificates end with
/// their signature, and API keys with their secret, so their last bytes differ.
const TAIL: usize = 32;

/// The estimated memory of an entry besides the credential and its claims, in bytes.
const OVERHEAD: usize = 1 << 10;

/// Verified credentials with their identities. One client may use at most three quarters of the memory limit. When the
/// limit is reached, the oldest credentials of the client that uses the most memory are evicted.
pub(crate) struct RememberedCredentials {
    limit: usize,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<[u8; TAIL], Entry>,
    clients: HashMap<Client, ClientEntries>,
    bytes: usize,
}

struct Entry {
    credential: Box<[u8]>,
    identity: Identity,
    /// The generation of the keys with which the credential was verified.
    generation: u64,
    client: Client,
    /// Identifies the entry in the queue of its client.
    number: u64,
}

/// The entries that requests of one client inserted.
#[derive(Default)]
struct ClientEntries {
    /// The key and number of each entry, oldest first.
    order: VecDeque<([u8; TAIL], u64)>,
    bytes: usize,
    /// The number of the newest entry.
    last: u64,
}

impl Entry {
    fn size(&self) -> usize {
        size(&self.credential)
    }
}

/// The estimated memory of an entry, in bytes: the credential, its claims (at most as long as the credential), and the
/// overhead.
fn size(credential: &[u8]) -> usize {
    2 * credential.len() + OVERHEAD
}

fn tail(credential: &[u8]) -> [u8; TAIL] {
    let mut tail = [0; TAIL];
    let end = &credential[credential.len().saturating_sub(TAIL)..];
    tail[..end.len()].copy_from_slice(end);
    tail
}

impl RememberedCredentials {
    /// An empty cache of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: RwLock::default() }
    }

    /// The identity of a credential, if it was verified with this generation of keys and has not expired.
    pub(crate) fn find(&self, credential: &[u8], generation: u64) -> Option<Identity> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let entry = state.entries.get(&tail(credential))?;
        let is_current = entry.generation == generation && *entry.credential == *credential;
        (is_current && !entry.identity.has_expired(SystemTime::now())).then(|| entry.identity.clone())
    }

    /// Caches a credential that this client has sent, unless it is larger than the memory that one client may use.
    pub(crate) fn insert(&self, client: Client, credential: &[u8], generation: u64, identity: Identity) {
        let size = size(credential);
        let share = self.limit - self.limit / 4;
        if size > share {
            return;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let key = tail(credential);
        state.remove(&key);
        while state.clients.get(&client).is_some_and(|own| own.bytes + size > share) && state.evict(client) {}
        while state.bytes + size > self.limit {
            let largest =
                state.clients.iter().max_by_key(|(_, entries)| entries.bytes).map(|(client, _)| *client);
            if !largest.is_some_and(|client| state.evict(client)) {
                break;
            }
        }
        let own = state.clients.entry(client).or_default();
        own.last += 1;
        own.bytes += size;
        let number = own.last;
        own.order.push_back((key, number));
        state.bytes += size;
        state
            .entries
            .insert(key, Entry { credential: credential.into(), identity, generation, client, number });
    }
}

impl State {
    fn remove(&mut self, key: &[u8; TAIL]) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.size();
        if let Some(own) = self.clients.get_mut(&entry.client) {
            own.bytes -= entry.size();
            own.order.retain(|(_, number)| *number != entry.number);
            if own.order.is_empty() {
                self.clients.remove(&entry.client);
            }
        }
    }

    /// Evicts the oldest credential of a client; `false` if the client has none.
    fn evict(&mut self, client: Client) -> bool {
        let oldest = self.clients.get(&client).and_then(|own| own.order.front()).map(|(key, _)| *key);
        oldest.inspect(|key| self.remove(key)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{OVERHEAD, RememberedCredentials, size};
    use libris_core::{Client, Identity};
    use std::time::{Duration, SystemTime};

    fn client(number: u8) -> Client {
        Client::at([127, 0, 0, number].into())
    }

    fn token(number: usize) -> Vec<u8> {
        format!("{number:0100}").into_bytes()
    }

    #[test]
    fn a_credential_is_found_whole_in_its_generation_and_until_it_expires() {
        let remembered = RememberedCredentials::new(1 << 20);
        let expires = Some(SystemTime::now() + Duration::from_secs(600));
        remembered.insert(client(1), &token(7), 3, Identity::new("ada").with_expiry(expires));
        assert_eq!(remembered.find(&token(7), 3).unwrap().name(), "ada");
        assert!(remembered.find(&token(7), 4).is_none(), "keys have changed since");
        assert!(remembered.find(&token(8), 3).is_none());
        let mut same_end = token(7);
        same_end[0] = b'x';
        assert!(remembered.find(&same_end, 3).is_none());
        assert!(remembered.find(b"", 3).is_none());
        let past = Some(SystemTime::now() - Duration::from_secs(1));
        remembered.insert(client(1), &token(7), 3, Identity::new("ada").with_expiry(past));
        assert!(remembered.find(&token(7), 3).is_none());
    }

    #[test]
    fn one_client_forgets_its_own_and_the_memory_is_bounded() {
        let each = size(&token(0));
        assert!(each > OVERHEAD);
        let remembered = RememberedCredentials::new(16 * each);
        let is_there = |number| remembered.find(&token(number), 0).is_some();
        remembered.insert(client(1), &token(1000), 0, Identity::new("small"));
        for number in 0..100 {
            remembered.insert(client(2), &token(number), 0, Identity::new("large"));
        }
        assert_eq!(
            (0..100).filter(|number| is_there(*number)).collect::<Vec<_>>(),
            (88..100).collect::<Vec<_>>()
        );
        assert!(is_there(1000), "the credential of another client stays");
        for number in 2000..2010 {
            remembered.insert(client(3), &token(number), 0, Identity::new("third"));
        }
        assert!(is_there(1000) && is_there(2009));
        assert!(remembered.state.read().unwrap().bytes <= 16 * each);
    }

    #[test]
    fn what_is_replaced_leaves_nothing_behind() {
        let remembered = RememberedCredentials::new(1 << 20);
        for generation in 0..1000 {
            remembered.insert(client((generation % 3) as u8), &token(1), generation, Identity::new("ada"));
        }
        let state = remembered.state.read().unwrap();
        assert_eq!(state.bytes, size(&token(1)));
        assert_eq!((state.entries.len(), state.clients.len()), (1, 1));
        assert_eq!(state.clients[&client(0)].order.len(), 1);
    }
}
