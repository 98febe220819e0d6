//! A bounded cache that forgets what was not used for longest.

use std::collections::HashMap;
use std::sync::Mutex;

/// Values by the key of a file or directory, within a budget.
pub(crate) struct Cache<V> {
    budget: usize,
    kept: Mutex<Kept<V>>,
}

struct Kept<V> {
    slots: HashMap<Box<str>, Slot<V>>,
    weight: usize,
    clock: u64,
}

struct Slot<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<V: Clone> Cache<V> {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, kept: Mutex::new(Kept { slots: HashMap::new(), weight: 0, clock: 0 }) }
    }

    pub(crate) fn find(&self, key: &str) -> Option<V> {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        let slot = kept.slots.get_mut(key)?;
        slot.used = now;
        Some(slot.value.clone())
    }

    /// The value of a key, which is made if there is none.
    pub(super) fn find_or_keep(&self, key: &str, weight: usize, make: impl FnOnce() -> V) -> V {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        if let Some(slot) = kept.slots.get_mut(key) {
            slot.used = now;
            return slot.value.clone();
        }
        let value = make();
        kept.keep(key, weight, value.clone(), self.budget);
        value
    }

    pub(crate) fn keep(&self, key: &str, weight: usize, value: V) {
        let mut kept = self.lock();
        kept.clock += 1;
        kept.keep(key, weight, value, self.budget);
    }

    /// Forgets all but what is worth keeping. Returns whether anything is left.
    pub(super) fn retain(&self, worth: impl Fn(&V) -> bool) -> bool {
        let mut kept = self.lock();
        kept.slots.retain(|_, slot| worth(&slot.value));
        kept.weight = kept.slots.values().map(|slot| slot.weight).sum();
        !kept.slots.is_empty()
    }

    pub(super) fn forget(&self, key: &str) {
        let mut kept = self.lock();
        if let Some(old) = kept.slots.remove(key) {
            kept.weight -= old.weight;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept<V>> {
        // A panic between two of our statements leaves at worst a wrong weight.
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<V> Kept<V> {
    fn keep(&mut self, key: &str, weight: usize, value: V, budget: usize) {
        let slot = Slot { value, weight, used: self.clock };
        self.weight += weight;
        if let Some(old) = self.slots.insert(key.into(), slot) {
            self.weight -= old.weight;
        }
        while self.weight > budget && self.slots.len() > 1 {
            self.forget_half();
        }
    }

    /// Forgets the half that was not used for longest: the cost of finding it is shared by as many.
    fn forget_half(&mut self) {
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
    use super::Cache;

    #[test]
    fn forgets_what_is_not_worth_keeping() {
        let cache = Cache::new(10);
        for n in 0..4 {
            cache.keep(&n.to_string(), 2, n);
        }
        assert!(cache.retain(|n| *n > 1));
        assert_eq!((cache.find("1"), cache.find("2")), (None, Some(2)));
        cache.keep("heavy", 6, 9);
        assert_eq!(cache.find("3"), Some(3));
        assert!(!cache.retain(|_| false));
    }

    #[test]
    fn forgets_the_oldest_and_never_the_newest() {
        let cache = Cache::new(10);
        for n in 0..10 {
            cache.keep(&n.to_string(), 1, n);
        }
        assert_eq!(cache.find("0"), Some(0));
        cache.keep("heavy", 4, 99);
        assert_eq!(cache.find("heavy"), Some(99));
        assert_eq!(cache.find("0"), Some(0));
        assert_eq!(cache.find("1"), None);
        cache.keep("heaviest", 1000, 7);
        assert_eq!(cache.find("heaviest"), Some(7));
        assert_eq!(cache.find("heavy"), None);
    }
}
