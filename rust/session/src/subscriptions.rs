//! The subscriptions of a session.

use mqttcore_topics::{Options, SubscriptionFilter};

/// A granted subscription.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// The topic filter.
    pub filter: SubscriptionFilter,
    /// The granted options.
    pub options: Options,
}

/// Granted subscriptions, sorted by filter text. As large as one of them.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a vector in place would add a word to each session"
)]
pub(crate) enum Subscriptions {
    #[default]
    None,
    /// The usual case, stored without allocation.
    One(Subscription),
    Many(Box<Vec<Subscription>>),
}

/// Levels of a filter from the first `+` on.
pub(crate) fn wildcard_levels(filter: &SubscriptionFilter) -> u32 {
    u32::try_from(filter.filter().wildcard_levels()).unwrap_or(u32::MAX)
}

impl Subscriptions {
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Many(held) => {
                size_of::<Vec<Subscription>>() + held.capacity() * size_of::<Subscription>()
            }
            _ => 0,
        }
    }

    pub(crate) fn as_slice(&self) -> &[Subscription] {
        match self {
            Self::None => &[],
            Self::One(held) => std::slice::from_ref(held),
            Self::Many(held) => held,
        }
    }

    /// Levels of all filters, each from its first `+` on.
    pub(crate) fn wildcard_levels(&self) -> u32 {
        let each = self.as_slice().iter();
        let each = each.map(|held| wildcard_levels(&held.filter));
        each.fold(0, u32::saturating_add)
    }

    fn as_mut_slice(&mut self) -> &mut [Subscription] {
        match self {
            Self::None => &mut [],
            Self::One(held) => std::slice::from_mut(held),
            Self::Many(held) => held,
        }
    }

    fn place(&self, filter: &SubscriptionFilter) -> Result<usize, usize> {
        self.as_slice()
            .binary_search_by(|held| held.filter.as_str().cmp(filter.as_str()))
    }

    pub(crate) fn contains(&self, filter: &SubscriptionFilter) -> bool {
        self.place(filter).is_ok()
    }

    /// Adds a subscription or replaces an equal one [MQTT-3.8.4-3].
    pub(crate) fn insert(&mut self, filter: SubscriptionFilter, options: Options) {
        let place = match self.place(&filter) {
            Ok(place) => {
                self.as_mut_slice()[place].options = options;
                return;
            }
            Err(place) => place,
        };
        let subscription = Subscription { filter, options };
        *self = match std::mem::take(self) {
            Self::None => Self::One(subscription),
            Self::One(held) => {
                let mut both = vec![held];
                both.insert(place, subscription);
                Self::Many(Box::new(both))
            }
            Self::Many(mut held) => {
                held.insert(place, subscription);
                Self::Many(held)
            }
        };
    }

    pub(crate) fn remove(&mut self, filter: &SubscriptionFilter) -> bool {
        let Ok(place) = self.place(filter) else {
            return false;
        };
        match self {
            Self::Many(held) if held.len() > 1 => {
                held.remove(place);
            }
            _ => *self = Self::None,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_as_large_as_one_of_them() {
        assert_eq!(size_of::<Subscription>(), 16);
        assert_eq!(size_of::<Subscriptions>(), size_of::<Subscription>());
    }
}
