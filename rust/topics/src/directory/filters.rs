//! The filters of one subscriber, so that its subscriptions can be removed when it leaves.

use std::collections::BTreeMap;
use std::{mem, slice};

use crate::SubscriptionFilter;
use crate::tree::hash::Hasher;

/// Up to this length a list is searched from end to end.
const FEW: usize = 32;

/// A set of filters: a list while it is short, then lists in the order of their hashes. A filter shares its text with
/// the caller's.
///
/// Two words: every subscriber has one of these, and most have one filter.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a vector in place would make each of these four words"
)]
pub(crate) enum Filters {
    #[default]
    None,
    One(SubscriptionFilter),
    Few(Box<Vec<SubscriptionFilter>>),
    Many(Box<Ordered>),
}

/// A long set: 11 bytes a filter, since it keeps no hashes.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    len: usize,
    /// Filters whose hashes are at least the key of their list, and below that of the next list. No list is empty; only
    /// filters with equal hashes make one longer than [`FEW`].
    lists: BTreeMap<u64, Vec<SubscriptionFilter>>,
}

fn hash_of(hasher: &Hasher, filter: &SubscriptionFilter) -> u64 {
    hasher.hash(filter.as_str().as_bytes())
}

impl Filters {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Many(set) => set.len,
            few => few.list().len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The filters of a short set.
    fn list(&self) -> &[SubscriptionFilter] {
        match self {
            Self::One(filter) => slice::from_ref(filter),
            Self::Few(list) => list,
            Self::None | Self::Many(_) => &[],
        }
    }

    /// Removes and returns the list of a short set.
    fn take_list(&mut self) -> Vec<SubscriptionFilter> {
        match mem::take(self) {
            Self::None => Vec::new(),
            Self::One(filter) => vec![filter],
            Self::Few(list) => *list,
            Self::Many(set) => {
                *self = Self::Many(set);
                Vec::new()
            }
        }
    }

    /// Makes a short set of these filters.
    fn of(mut list: Vec<SubscriptionFilter>) -> Self {
        if list.len() > 1 {
            return Self::Few(Box::new(list));
        }
        list.pop().map_or(Self::None, Self::One)
    }

    /// Adds a filter that is not in the set.
    pub(crate) fn insert(&mut self, hasher: &Hasher, filter: SubscriptionFilter) {
        if let Self::Many(set) = self {
            set.insert(hasher, filter);
            return;
        }
        if self.is_empty() {
            *self = Self::One(filter);
            return;
        }
        let mut list = self.take_list();
        list.reserve_exact(1);
        list.push(filter);
        *self = if list.len() <= FEW {
            Self::of(list)
        } else {
            let mut set = Ordered::default();
            for one in list {
                set.insert(hasher, one);
            }
            Self::Many(Box::new(set))
        };
    }

    pub(crate) fn remove(&mut self, hasher: &Hasher, filter: &SubscriptionFilter) {
        if let Self::Many(set) = self {
            set.remove(hasher, filter);
        } else if matches!(self, Self::One(only) if only == filter) {
            *self = Self::default();
        } else if let Some(index) = self.list().iter().position(|other| other == filter) {
            let mut list = self.take_list();
            list.swap_remove(index);
            *self = Self::of(list);
        }
    }

    /// Visits the filters from the hash `from` on; returns from where to continue if `limit` filters of a long set were
    /// visited.
    ///
    /// A short set has no lasting order, so all of it is visited.
    pub(crate) fn visit(
        &self,
        hasher: &Hasher,
        (from, limit): (u64, usize),
        visit: &mut dyn FnMut(&SubscriptionFilter),
    ) -> Option<u64> {
        let Self::Many(set) = self else {
            self.list().iter().for_each(visit);
            return None;
        };
        let mut visited = 0;
        for (&key, list) in set.lists.range(set.key_of(from)..) {
            if visited >= limit {
                return Some(key);
            }
            // Lists may have been merged since the last visit.
            let is_left = |filter: &&_| key >= from || hash_of(hasher, filter) >= from;
            let left = list.iter().filter(is_left);
            visited += left.inspect(|filter| visit(filter)).count();
        }
        None
    }

    /// Removes and returns up to `limit` filters.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<SubscriptionFilter> {
        if let Self::Many(set) = self {
            let taken = set.take(limit);
            if set.len == 0 {
                *self = Self::default();
            }
            return taken;
        }
        let mut list = self.take_list();
        let taken = list.split_off(list.len().saturating_sub(limit));
        *self = Self::of(list);
        taken
    }
}

impl Ordered {
    /// The key of the list for filters with this hash, whether there is one or not.
    fn key_of(&self, hash: u64) -> u64 {
        let before = self.lists.range(..=hash).next_back();
        before.map_or(0, |(key, _)| *key)
    }

    fn insert(&mut self, hasher: &Hasher, filter: SubscriptionFilter) {
        let key = self.key_of(hash_of(hasher, &filter));
        let list = self.lists.entry(key).or_default();
        list.reserve_exact(1);
        list.push(filter);
        self.len += 1;
        if list.len() > FEW
            && let Some((key, upper)) = split(hasher, list)
        {
            self.lists.insert(key, upper);
        }
    }

    fn remove(&mut self, hasher: &Hasher, filter: &SubscriptionFilter) {
        let key = self.key_of(hash_of(hasher, filter));
        let Some(list) = self.lists.get_mut(&key) else {
            return;
        };
        let Some(index) = list.iter().position(|other| other == filter) else {
            return;
        };
        list.swap_remove(index);
        self.len -= 1;
        if list.is_empty() {
            self.lists.remove(&key);
        } else if list.len() < list.capacity() / 2 {
            list.shrink_to_fit();
        }
    }

    fn take(&mut self, limit: usize) -> Vec<SubscriptionFilter> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(mut first) = self.lists.first_entry()
        {
            let list = first.get_mut();
            let rest = list.len().saturating_sub(limit - taken.len());
            taken.extend(list.drain(rest..));
            if list.is_empty() {
                first.remove();
            }
        }
        self.len -= taken.len();
        taken
    }
}

/// Removes the filters with the higher hashes, about half; returns the lowest of these hashes, and the filters. `None` if
/// all hashes are equal.
fn split(
    hasher: &Hasher,
    list: &mut Vec<SubscriptionFilter>,
) -> Option<(u64, Vec<SubscriptionFilter>)> {
    let hash = |filter: &SubscriptionFilter| hash_of(hasher, filter);
    list.sort_by_cached_key(hash);
    let middle = hash(list.get(list.len() / 2)?);
    let cut = match list.partition_point(|filter| hash(filter) < middle) {
        0 => list.partition_point(|filter| hash(filter) == middle),
        cut => cut,
    };
    let upper = list.split_off(cut);
    list.shrink_to_fit();
    Some((hash(upper.first()?), upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicLimits;

    fn filter(number: usize) -> SubscriptionFilter {
        SubscriptionFilter::parse(&format!("a/{number}"), &TopicLimits::default()).unwrap()
    }

    /// Filters of a long set.
    const LONG: usize = if cfg!(miri) { 3 * FEW } else { 1_000 };

    #[test]
    fn a_set_is_two_words_and_a_filter_one() {
        let word = size_of::<usize>();
        assert_eq!(size_of::<Filters>(), 2 * word);
        assert_eq!(size_of::<SubscriptionFilter>(), word);
    }

    #[test]
    fn a_filter_stays_until_it_is_removed_or_taken_in_short_and_long_sets() {
        for count in [1, 2, FEW, FEW + 1, LONG / 2, LONG] {
            assert_all_come_back(count, &Hasher::new(1));
            // Four hashes only.
            assert_all_come_back(count, &Hasher::masked(1, 3 << 62));
        }
    }

    /// Inserts `count` filters, removes one, and takes the others.
    fn assert_all_come_back(count: usize, hasher: &Hasher) {
        let mut filters = Filters::default();
        (0..count).for_each(|number| filters.insert(hasher, filter(number)));
        filters.remove(hasher, &filter(0));
        filters.remove(hasher, &filter(count));
        assert_eq!(filters.len(), count - 1);

        let mut taken = filters.take(7);
        while !filters.is_empty() {
            taken.extend(filters.take(7));
        }

        let texts = |filters: &mut dyn Iterator<Item = SubscriptionFilter>| {
            let mut texts: Vec<_> = filters.map(|filter| filter.to_string()).collect();
            texts.sort();
            texts
        };
        let expected = texts(&mut (1..count).map(filter));
        assert_eq!(texts(&mut taken.into_iter()), expected);
    }

    /// Between two visits lists are divided, and others end.
    #[test]
    fn a_filter_that_stays_is_visited_once_whatever_changes_between_the_visits() {
        let hasher = Hasher::new(1);
        let mut filters = Filters::default();
        (0..500).for_each(|number| filters.insert(&hasher, filter(number)));
        let (mut from, mut calls) = (0, 0);
        let mut seen = Vec::new();

        loop {
            let next = filters.visit(&hasher, (from, 20), &mut |one| seen.push(one.to_string()));
            calls += 1;
            for number in 0..50 {
                filters.remove(&hasher, &filter(50 * calls + number));
                filters.insert(&hasher, filter(10_000 + 50 * calls + number));
            }
            let Some(next) = next else { break };
            assert!(next > from);
            from = next;
        }

        assert!(calls > 8, "{calls}");
        let count = |number: usize| {
            let text = filter(number).to_string();
            seen.iter().filter(|one| **one == text).count()
        };
        assert!((0..50).all(|number| count(number) == 1));
        assert!((50..500).all(|number| count(number) <= 1));
    }

    #[test]
    fn a_long_set_has_short_lists_without_slack() {
        let hasher = Hasher::new(1);
        let mut filters = Filters::default();
        (0..10 * LONG).for_each(|number| filters.insert(&hasher, filter(number)));

        let Filters::Many(set) = &filters else {
            panic!("a long set");
        };
        let bytes: usize = set
            .lists
            .values()
            .map(|list| size_of_val(list) + list.capacity() * size_of::<SubscriptionFilter>())
            .sum();
        assert!(set.lists.values().all(|list| list.len() <= FEW));
        assert!(bytes <= 10 * 10 * LONG, "{bytes}");
    }
}
