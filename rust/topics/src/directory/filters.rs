//! The filters of one subscriber, so that its subscriptions can be removed when it leaves.

use std::collections::BTreeSet;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::SubscriptionFilter;
use crate::tree::hash::Hasher;

/// Up to here a list is searched from end to end.
const FEW: usize = 32;

/// A filter and its hash: its place in the order of a long set.
pub(crate) type Place = (u64, SubscriptionFilter);

/// A set of filters: a list while it is short, then ordered by hash, so that most steps of a search compare numbers
/// instead of texts. A filter shares its text with the caller's.
#[derive(Debug)]
pub(crate) enum Filters {
    Few(SmallVec<[SubscriptionFilter; 1]>),
    Many(BTreeSet<Place>),
}

impl Default for Filters {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

fn keyed(hasher: &Hasher, filter: SubscriptionFilter) -> Place {
    (hasher.hash(filter.as_str().as_bytes()), filter)
}

impl Filters {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(set) => set.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a filter that is not in the set.
    pub(crate) fn insert(&mut self, hasher: &Hasher, filter: SubscriptionFilter) {
        match self {
            Self::Few(list) if list.len() < FEW => {
                list.reserve_exact(usize::from(list.len() == list.capacity()));
                list.push(filter);
            }
            Self::Few(list) => {
                let all = list.drain(..).chain([filter]);
                *self = Self::Many(all.map(|one| keyed(hasher, one)).collect());
            }
            Self::Many(set) => {
                set.insert(keyed(hasher, filter));
            }
        }
    }

    pub(crate) fn remove(&mut self, hasher: &Hasher, filter: &SubscriptionFilter) {
        match self {
            Self::Few(list) => {
                if let Some(index) = list.iter().position(|other| other == filter) {
                    list.swap_remove(index);
                }
            }
            Self::Many(set) => {
                set.remove(&keyed(hasher, filter.clone()));
            }
        }
    }

    /// Visits the filters behind `after`, or all; answers where to go on when `limit` of a long set were visited.
    ///
    /// A short set has no order that lasts, so all of it is visited.
    pub(crate) fn visit(
        &self,
        after: Option<&Place>,
        limit: usize,
        visit: &mut dyn FnMut(&SubscriptionFilter),
    ) -> Option<Place> {
        match self {
            Self::Few(list) => {
                list.iter().for_each(visit);
                None
            }
            Self::Many(set) => {
                let start = after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut places = set.range::<Place, _>((start, Bound::Unbounded));
                let last = places
                    .by_ref()
                    .take(limit.max(1))
                    .inspect(|(_, filter)| visit(filter));
                let last = last.last();
                places.next().and(last).cloned()
            }
        }
    }

    /// Takes up to `limit` filters out.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<SubscriptionFilter> {
        match self {
            Self::Few(list) => list.drain(list.len().saturating_sub(limit)..).collect(),
            Self::Many(set) => {
                let taken = (0..limit).map_while(|_| set.pop_first());
                let taken = taken.map(|(_, filter)| filter).collect();
                if set.is_empty() {
                    *self = Self::default();
                }
                taken
            }
        }
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
    fn a_filter_stays_until_it_is_removed_or_taken_in_short_and_long_sets() {
        let hasher = Hasher::new(1);
        for count in [1, FEW, FEW + 1, 5 * FEW] {
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
