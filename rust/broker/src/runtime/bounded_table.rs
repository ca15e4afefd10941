//! A map whose size is bounded although its keys come from clients (abuse H07).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, RandomState};
use std::time::Instant;

/// Maximum number of remembered entries that are not in use.
const REMEMBERED_MAX: usize = 65_536;

/// A value of a [`BoundedTable`].
pub(crate) trait Remembered: Default {
    /// Whether the entry must stay. The number of such entries is limited elsewhere.
    fn is_in_use(&self) -> bool;

    /// Whether the value equals a new one, so that the entry can be removed.
    fn is_as_new(&self, now: Instant) -> bool;
}

/// A map with a randomly seeded hash. It removes entries that equal new ones, and remembers at most 65,536 that are not
/// in use.
pub(crate) struct BoundedTable<K, V> {
    entries: HashMap<K, V, RandomState>,
    /// Number of entries at which the next sweep starts.
    sweep_at: usize,
}

impl<K, V> Default for BoundedTable<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            sweep_at: REMEMBERED_MAX / 2,
        }
    }
}

impl<K: Eq + Hash, V: Remembered> BoundedTable<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Whether adding `key` would start a sweep.
    pub(crate) fn is_full_for(&self, key: &K) -> bool {
        self.entries.len() >= self.sweep_at && !self.entries.contains_key(key)
    }

    /// Removes the values whose key `keeps` rejects.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&K) -> bool) {
        self.entries.retain(|key, _| keeps(key));
    }

    /// The value of `key`; adds a new one if there is none.
    pub(crate) fn entry(&mut self, key: K, now: Instant) -> &mut V {
        if self.is_full_for(&key) {
            self.sweep(now);
        }
        self.entries.entry(key).or_default()
    }

    /// Changes the value of `key` if there is one, and removes it if it then equals a new one.
    pub(crate) fn change(&mut self, key: K, now: Instant, change: impl FnOnce(&mut V)) {
        if let Entry::Occupied(mut entry) = self.entries.entry(key) {
            change(entry.get_mut());
            if !entry.get().is_in_use() && entry.get().is_as_new(now) {
                entry.remove();
            }
        }
    }

    /// Removes entries that equal new ones, then any others in excess: sorting by age would cost more than the limit
    /// saves.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let mut remembered = 0;
        self.entries.retain(|_, value| {
            if value.is_in_use() {
                return true;
            }
            if value.is_as_new(now) {
                return false;
            }
            remembered += 1;
            remembered <= REMEMBERED_MAX / 2
        });
        self.sweep_at = self.entries.len() + REMEMBERED_MAX / 2;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether it is in use, and until when it differs from a new one.
    #[derive(Default)]
    struct Value(bool, Option<Instant>);

    impl Remembered for Value {
        fn is_in_use(&self) -> bool {
            self.0
        }

        fn is_as_new(&self, now: Instant) -> bool {
            self.1.is_none_or(|until| until <= now)
        }
    }

    #[test]
    fn h07_a_million_keys_leave_a_bounded_table_and_every_entry_in_use() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let mut table = BoundedTable::<u32, Value>::default();

        for key in 0..1_000_000 {
            *table.entry(key, now) = Value(key % 1_000 == 0, Some(later));
        }

        assert!(table.entries.len() <= REMEMBERED_MAX + 1_000);
        assert!((0..1_000).all(|key| table.get(&(key * 1_000)).is_some()));
    }

    #[test]
    fn entries_that_are_as_new_go_first() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let mut table = BoundedTable::<u32, Value>::default();
        *table.entry(0, now) = Value(false, Some(later));

        for key in 1..1_000_000 {
            *table.entry(key, now) = Value(false, Some(now));
        }

        assert!(table.get(&0).is_some());
    }

    #[test]
    fn a_change_that_makes_an_entry_as_new_removes_it() {
        let now = Instant::now();
        let mut table = BoundedTable::<u32, Value>::default();
        table.entry(7, now).0 = true;

        table.change(7, now, |value| value.0 = false);

        assert!(table.get(&7).is_none());
    }
}
