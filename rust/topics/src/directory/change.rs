//! Changes of a batch, their outcomes, and the statistics of the directory.

use std::ops::Deref;

use smallvec::{SmallVec, smallvec};

use crate::{Options, SubscriptionFilter};

/// One step of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Adds a subscription, or replaces the options of the one with the same filter [MQTT-3.8.4-3].
    Subscribe {
        /// The filter to subscribe to.
        filter: &'a SubscriptionFilter,
        /// The options.
        options: Options,
    },
    /// Removes the subscription with exactly this filter [MQTT-3.10.4-1].
    Unsubscribe {
        /// The filter to unsubscribe from.
        filter: &'a SubscriptionFilter,
    },
}

impl<'a> Change<'a> {
    /// The filter of the step.
    pub fn filter(&self) -> &'a SubscriptionFilter {
        match self {
            Self::Subscribe { filter, .. } | Self::Unsubscribe { filter } => filter,
        }
    }
}

/// The outcome of one change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChangeOutcome {
    /// The subscriber had this subscription before the step.
    pub existed: bool,
    /// The topic filter had no subscription before the step, or has none after it.
    ///
    /// Subscriptions of subscribers that have left count until they are cleaned, or until a commit on the same filter
    /// drops them. [`clean_with`](crate::Directory::clean_with) reports a filter that loses its last subscription by
    /// cleaning.
    pub first_or_last: bool,
}

/// One outcome for each change, in order. A slice; a few outcomes need no heap memory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChangeOutcomes(SmallVec<[ChangeOutcome; 8]>);

impl ChangeOutcomes {
    /// Outcomes of changes that were not made.
    pub(crate) fn of_none(changes: usize) -> Self {
        Self(smallvec![ChangeOutcome::default(); changes])
    }
}

impl ChangeOutcomes {
    pub(crate) fn push(&mut self, outcome: ChangeOutcome) {
        self.0.push(outcome);
    }
}

impl Deref for ChangeOutcomes {
    type Target = [ChangeOutcome];

    fn deref(&self) -> &[ChangeOutcome] {
        &self.0
    }
}

impl IntoIterator for ChangeOutcomes {
    type Item = ChangeOutcome;
    type IntoIter = smallvec::IntoIter<[ChangeOutcome; 8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ChangeOutcomes {
    type Item = &'a ChangeOutcome;
    type IntoIter = std::slice::Iter<'a, ChangeOutcome>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<const N: usize> PartialEq<[ChangeOutcome; N]> for ChangeOutcomes {
    fn eq(&self, other: &[ChangeOutcome; N]) -> bool {
        **self == other[..]
    }
}

/// Statistics of one version and of the subscribers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DirectoryStats {
    /// Distinct topic filters; a group on a filter does not count separately.
    pub filters: usize,
    /// Subscriptions, including those of removed subscribers that are not cleaned or dropped yet.
    pub subscriptions: usize,
    /// Subscriptions in shared groups.
    pub shared_subscriptions: usize,
    /// Subscriptions with wildcards, in shared groups or not.
    pub wildcard_subscriptions: usize,
    /// Shared groups: pairs of share name and topic filter.
    pub shared_groups: usize,
    /// Heap blocks of the tree.
    pub nodes: usize,
    /// Bytes of these blocks, without the overhead of the allocator.
    pub bytes: usize,
    /// Committed batches that changed something.
    pub version: u64,
    /// Subscribers that are not removed.
    pub subscribers: usize,
    /// Subscriptions of removed subscribers that are not cleaned yet.
    pub removed_subscriptions: usize,
    /// Replaced bytes that wait for their grace period, with the overhead of the allocator and the epoch.
    pub retired_bytes: usize,
    /// Attempts to commit that lost to another writer.
    pub lost_races: u64,
    /// Commits that yielded to readers because too many retired bytes waited.
    pub garbage_waits: u64,
}
