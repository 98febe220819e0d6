//! An LRU cache with a weight limit.

use std::collections::HashMap;
use std::sync::Mutex;

/// Values by key. When their total weight exceeds the limit, the half that was used least recently is evicted.
pub(crate) struct LruCache<V> {
    budget: usize,
    entries: Mutex<LruEntries<V>>,
}

struct LruEntries<V> {
    slots: HashMap<Box<str>, LruSlot<V>>,
    weight: usize,
    /// Advances with each access.
    clock: u64,
}

struct LruSlot<V> {
    value: V,
    weight: usize,
    /// The value of `clock` at the last access.
    used: u64,
}

impl<V: Clone> LruCache<V> {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, entries: Mutex::new(LruEntries { slots: HashMap::new(), weight: 0, clock: 0 }) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<V> {
        let mut entries = self.lock();
        entries.clock += 1;
        let now = entries.clock;
        let slot = entries.slots.get_mut(key)?;
        slot.used = now;
        Some(slot.value.clone())
    }

    /// Returns the value of a key. If the key is absent, inserts the result of `make` first.
    pub(super) fn get_or_insert_with(&self, key: &str, weight: usize, make: impl FnOnce() -> V) -> V {
        let mut entries = self.lock();
        entries.clock += 1;
        let now = entries.clock;
        if let Some(slot) = entries.slots.get_mut(key) {
            slot.used = now;
            return slot.value.clone();
        }
        let value = make();
        entries.insert(key, weight, value.clone(), self.budget);
        value
    }

    pub(super) fn insert(&self, key: &str, weight: usize, value: V) {
        self.insert_within(self.budget, key, weight, value);
    }

    /// Inserts a value, then evicts entries until the total weight is at most `budget` and at most the limit of
    /// the cache, or until one entry is left.
    pub(crate) fn insert_within(&self, budget: usize, key: &str, weight: usize, value: V) {
        let mut entries = self.lock();
        entries.clock += 1;
        entries.insert(key, weight, value, budget.min(self.budget));
    }

    /// Replaces the value of a key with the one that `make` computes from it (from `None` if the key is
    /// absent), and sets its weight. The cache stays locked meanwhile, so no other caller can replace the
    /// value.
    pub(super) fn update(&self, key: &str, make: impl FnOnce(Option<&V>) -> (usize, V)) -> V {
        let mut entries = self.lock();
        entries.clock += 1;
        let (weight, value) = make(entries.slots.get(key).map(|slot| &slot.value));
        entries.insert(key, weight, value.clone(), self.budget);
        value
    }

    /// The sum of the weights.
    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        self.lock().weight
    }

    /// Removes the values for which `keep` is false. Returns whether any are left.
    pub(super) fn retain(&self, keep: impl Fn(&V) -> bool) -> bool {
        let mut entries = self.lock();
        entries.slots.retain(|_, slot| keep(&slot.value));
        entries.weight = entries.slots.values().map(|slot| slot.weight).sum();
        !entries.slots.is_empty()
    }

    pub(super) fn remove(&self, key: &str) {
        let mut entries = self.lock();
        if let Some(old) = entries.slots.remove(key) {
            entries.weight -= old.weight;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LruEntries<V>> {
        // After a panic while the lock was held, at worst the total weight is wrong.
        self.entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<V> LruEntries<V> {
    fn insert(&mut self, key: &str, weight: usize, value: V, budget: usize) {
        let slot = LruSlot { value, weight, used: self.clock };
        self.weight += weight;
        if let Some(old) = self.slots.insert(key.into(), slot) {
            self.weight -= old.weight;
        }
        while self.weight > budget && self.slots.len() > 1 {
            self.evict_older_half();
        }
    }

    /// Evicts the half that was used least recently, which costs amortised constant time per insertion.
    fn evict_older_half(&mut self) {
        let mut used: Vec<u64> = self.slots.values().map(|slot| slot.used).collect();
        let middle = used.len() / 2;
        let (_, median, _) = used.select_nth_unstable(middle);
        let median = *median;
        self.slots.retain(|_, slot| slot.used >= median);
        self.weight = self.slots.values().map(|slot| slot.weight).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::LruCache;

    #[test]
    fn retain_removes_values_with_their_weight() {
        let cache = LruCache::new(10);
        for n in 0..4 {
            cache.insert(&n.to_string(), 2, n);
        }
        assert!(cache.retain(|n| *n > 1));
        assert_eq!((cache.get("1"), cache.get("2")), (None, Some(2)));
        cache.insert("heavy", 6, 9);
        assert_eq!(cache.get("3"), Some(3));
        assert!(!cache.retain(|_| false));
    }

    #[test]
    fn evicts_the_least_recently_used_and_never_the_newest() {
        let cache = LruCache::new(10);
        for n in 0..10 {
            cache.insert(&n.to_string(), 1, n);
        }
        assert_eq!(cache.get("0"), Some(0));
        cache.insert("heavy", 4, 99);
        assert_eq!(cache.get("heavy"), Some(99));
        assert_eq!(cache.get("0"), Some(0));
        assert_eq!(cache.get("1"), None);
        cache.insert("heaviest", 1000, 7);
        assert_eq!(cache.get("heaviest"), Some(7));
        assert_eq!(cache.get("heavy"), None);
    }
}
