//! Retained values: concrete topics, matched by a wildcard filter.

use std::collections::BTreeMap;

use crate::sync::{Mutex, MutexGuard};
use crate::{TopicFilter, TopicName};

/// One value a topic. Shared by reference; readers and writers may be on any thread.
pub struct Retained<V> {
    values: Mutex<BTreeMap<String, V>>,
    weigh: fn(&V) -> usize,
}

/// Where a walk goes on. Owned: it holds no version, so it may wait as long as it likes.
#[derive(Clone, Debug)]
pub struct Cursor {
    after: String,
}

impl<V: Clone + Send + Sync + 'static> Retained<V> {
    /// Makes an empty store. `seed` keys its hashes and must not be known to publishers.
    pub fn new(seed: u64) -> Self {
        Self::weighing(seed, |_| 0)
    }

    /// As [`new`](Self::new), and keeps the sum of `weigh` over all values.
    pub fn weighing(seed: u64, weigh: fn(&V) -> usize) -> Self {
        let _ = seed;
        Self {
            values: Mutex::default(),
            weigh,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, V>> {
        self.values
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Stores the value of `topic`; returns the one before.
    pub fn set(&self, topic: TopicName<'_>, value: V) -> Option<V> {
        self.lock().insert(topic.as_str().to_owned(), value)
    }

    /// Removes the value of `topic`; returns it.
    pub fn remove(&self, topic: TopicName<'_>) -> Option<V> {
        self.lock().remove(topic.as_str())
    }

    /// Returns a clone of the value of `topic`.
    pub fn get(&self, topic: TopicName<'_>) -> Option<V> {
        self.lock().get(topic.as_str()).cloned()
    }

    /// Returns the number of topics with a value.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no topic has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sum of the weights of all values.
    pub fn weight(&self) -> usize {
        self.lock().values().map(self.weigh).sum()
    }

    /// Visits the values that `filter` matches, from `cursor` on; returns where to go on, or `None` at the end.
    ///
    /// A call looks at no more than `limit` (at least one) entries, matching or not, so it may visit none and still
    /// return a cursor. A topic that has a value during the whole walk is visited exactly once. `visit` runs under
    /// the pin: it must not block. A leading wildcard does not reach topics that begin with `$` [MQTT-4.7.2-1].
    pub fn walk(
        &self,
        filter: &TopicFilter,
        cursor: Option<Cursor>,
        limit: usize,
        visit: &mut dyn FnMut(&str, &V),
    ) -> Option<Cursor> {
        let after = cursor.map(|cursor| cursor.after);
        let values = self.lock();
        let mut looked_at = 0;
        for (topic, value) in values.iter() {
            if after.as_ref().is_some_and(|after| topic <= after) {
                continue;
            }
            if filter.matches(TopicName::unchecked(topic)) {
                visit(topic, value);
            }
            looked_at += 1;
            if looked_at >= limit {
                return Some(Cursor {
                    after: topic.clone(),
                });
            }
        }
        None
    }
}
