//! The filters of one subscriber, so that its subscriptions can be removed when it leaves.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::{mem, slice};

use crate::SubscriptionFilter;
use crate::tree::hash::Hasher;

/// Up to this length a list is searched from end to end.
const FEW: usize = 32;

/// Key of a filter in a long set: its hash, then the filter.
pub(crate) type FilterKey = (u64, SubscriptionFilter);

/// A set of filters: a list while it is short, then ordered by hash, so that most steps of a search compare numbers
/// instead of texts. A filter shares its text with the caller's.
///
/// As large as a filter: every subscriber has one of these, and most have one filter.
#[derive(Debug)]
pub(crate) enum Filters {
    One(SubscriptionFilter),
    Few(Box<[SubscriptionFilter]>),
    Many(Box<Ordered>),
}

/// Filters in the order of their hashes.
#[derive(Debug, Default)]
pub(crate) struct Ordered(BTreeSet<FilterKey>);

impl Default for Filters {
    fn default() -> Self {
        Self::Few(Box::default())
    }
}

fn keyed(hasher: &Hasher, filter: SubscriptionFilter) -> FilterKey {
    (hasher.hash(filter.as_str().as_bytes()), filter)
}

impl Filters {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Many(set) => set.0.len(),
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
            Self::Many(_) => &[],
        }
    }

    /// Removes and returns the list of a short set.
    fn take_list(&mut self) -> Vec<SubscriptionFilter> {
        match mem::take(self) {
            Self::One(filter) => vec![filter],
            Self::Few(list) => list.into_vec(),
            Self::Many(set) => {
                *self = Self::Many(set);
                Vec::new()
            }
        }
    }

    /// Makes a short set of these filters.
    fn of(mut list: Vec<SubscriptionFilter>) -> Self {
        match list.pop() {
            Some(filter) if list.is_empty() => Self::One(filter),
            popped => {
                list.extend(popped);
                Self::Few(list.into())
            }
        }
    }

    /// Adds a filter that is not in the set.
    pub(crate) fn insert(&mut self, hasher: &Hasher, filter: SubscriptionFilter) {
        if let Self::Many(set) = self {
            set.0.insert(keyed(hasher, filter));
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
            let all = list.into_iter().map(|one| keyed(hasher, one));
            Self::Many(Box::new(Ordered(all.collect())))
        };
    }

    pub(crate) fn remove(&mut self, hasher: &Hasher, filter: &SubscriptionFilter) {
        if let Self::Many(set) = self {
            set.0.remove(&keyed(hasher, filter.clone()));
        } else if matches!(self, Self::One(only) if only == filter) {
            *self = Self::default();
        } else if let Some(index) = self.list().iter().position(|other| other == filter) {
            let mut list = self.take_list();
            list.swap_remove(index);
            *self = Self::of(list);
        }
    }

    /// Visits the filters after `after`, or all; returns where to continue if `limit` filters of a long set were
    /// visited.
    ///
    /// A short set has no lasting order, so all of it is visited.
    pub(crate) fn visit(
        &self,
        after: Option<&FilterKey>,
        limit: usize,
        visit: &mut dyn FnMut(&SubscriptionFilter),
    ) -> Option<FilterKey> {
        let Self::Many(set) = self else {
            self.list().iter().for_each(visit);
            return None;
        };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut places = set.0.range::<FilterKey, _>((start, Bound::Unbounded));
        let last = places
            .by_ref()
            .take(limit.max(1))
            .inspect(|(_, filter)| visit(filter));
        let last = last.last();
        places.next().and(last).cloned()
    }

    /// Removes and returns up to `limit` filters.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<SubscriptionFilter> {
        if let Self::Many(set) = self {
            let taken = (0..limit).map_while(|_| set.0.pop_first());
            let taken = taken.map(|(_, filter)| filter).collect();
            if set.0.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicLimits;

    fn filter(number: usize) -> SubscriptionFilter {
        SubscriptionFilter::parse(&format!("a/{number}"), &TopicLimits::default()).unwrap()
    }

    #[test]
    fn a_set_is_as_large_as_a_filter() {
        assert_eq!(size_of::<Filters>(), size_of::<SubscriptionFilter>());
    }

    #[test]
    fn a_filter_stays_until_it_is_removed_or_taken_in_short_and_long_sets() {
        let hasher = Hasher::new(1);
        for count in [1, 2, FEW, FEW + 1, 5 * FEW] {
            let mut filters = Filters::default();
            for number in 0..count {
                filters.insert(&hasher, filter(number));
            }
            filters.remove(&hasher, &filter(0));
            filters.remove(&hasher, &filter(count));
            assert_eq!(filters.len(), count - 1);

            let mut taken = filters.take(7);
            while !filters.is_empty() {
                taken.extend(filters.take(7));
            }
            let mut left: Vec<_> = taken.iter().map(ToString::to_string).collect();
            let mut expected: Vec<_> = (1..count)
                .map(|number| filter(number).to_string())
                .collect();
            left.sort();
            expected.sort();
            assert_eq!(left, expected);
        }
    }
}
