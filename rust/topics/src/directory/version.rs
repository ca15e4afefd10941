//! One immutable state of the directory, and the draft of the next.

use smallvec::SmallVec;

use super::ChangeOutcome;
use crate::subscribers::{self, Effect, RemovedSubscribers, SubscriptionStep};
use crate::tree::hamt::{KeyKind, find};
use crate::tree::hash::Hasher;
use crate::tree::lookup::payload_of_filter;
use crate::tree::node::{Edit, Size, TreeVersion};
use crate::tree::update::{Fields, change_map, change_tree};
use crate::tree::word::{Stored, Word};
use crate::{SubscriptionFilter, TopicFilter};

/// From this number of filters with wildcards on, the branches of one topic are interleaved.
const LARGE: usize = 50_000;

/// From this number of filters on, several topics are interleaved: a smaller tree fits into the processor's cache.
const WORTH_TURNS: usize = 30_000;

/// One version of the directory; a compare-and-set replaces it.
pub(crate) struct DirectoryVersion {
    /// Filters without wildcards, by their whole text.
    exact: Stored,
    /// Filters with wildcards, level by level.
    wild: [Stored; 4],
    pub(crate) counts: DirectoryCounts,
    /// Number of the version; each version has exactly the next number.
    pub(crate) number: u64,
}

/// Exact counts of a version, updated with each change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct DirectoryCounts {
    pub(crate) filters: usize,
    pub(crate) wild_filters: usize,
    pub(crate) subscriptions: usize,
    /// Subscriptions in groups.
    pub(crate) shared_subscriptions: usize,
    /// Subscriptions with wildcards, in groups or not.
    pub(crate) wild_subscriptions: usize,
    pub(crate) groups: usize,
    pub(crate) size: Size,
}

impl DirectoryVersion {
    /// A state of any words, for tests of the audit.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn forged(exact: Word<'_>, wild: Fields<'_>, counts: DirectoryCounts) -> Self {
        Self {
            exact: exact.into(),
            wild: wild.map(Stored::from),
            counts,
            number: 0,
        }
    }

    /// Whether the exact index holds a filter.
    #[inline]
    pub(crate) fn has_exact(&self) -> bool {
        !self.exact.get().is_empty()
    }

    /// Whether the tree holds a filter.
    #[inline]
    pub(crate) fn has_wild(&self) -> bool {
        self.counts.wild_filters > 0
    }

    /// Whether the branches of one topic should be interleaved.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.counts.wild_filters >= LARGE && self.has_exact()
    }

    /// Whether several topics should be interleaved.
    #[inline]
    pub(crate) fn is_worth_interleaving(&self) -> bool {
        self.counts.filters >= WORTH_TURNS
    }

    pub(crate) fn exact(&self) -> Word<'_> {
        self.exact.get()
    }

    pub(crate) fn wild(&self) -> Fields<'_> {
        self.wild.each_ref().map(Stored::get)
    }

    /// Returns the payload of a filter, empty if it has none.
    pub(crate) fn payload(&self, hasher: &Hasher, filter: &TopicFilter) -> Word<'_> {
        let text = filter.as_str().as_bytes();
        if filter.has_wildcard() {
            return payload_of_filter(self.wild(), hasher, text);
        }
        let leaf = find(self.exact(), hasher.hash(text), text, KeyKind::Whole);
        leaf.and_then(Word::block)
            .map_or(Word::EMPTY, |leaf| leaf.word(0))
    }
}

impl TreeVersion for DirectoryVersion {
    fn empty() -> Self {
        Self {
            exact: Stored::EMPTY,
            wild: [const { Stored::EMPTY }; 4],
            counts: DirectoryCounts::default(),
            number: 0,
        }
    }

    fn roots(&self) -> SmallVec<[Word<'_>; 5]> {
        let mut roots = SmallVec::from_slice(&self.wild());
        roots.push(self.exact());
        roots
    }
}

/// The draft of the next version.
pub(crate) struct Draft<'g> {
    exact: Word<'g>,
    wild: Fields<'g>,
    counts: DirectoryCounts,
    number: u64,
    /// Whether the draft differs from the version that it began with.
    pub(crate) is_changed: bool,
}

impl<'g> Draft<'g> {
    pub(crate) fn new(version: &'g DirectoryVersion) -> Self {
        Self {
            exact: version.exact(),
            wild: version.wild(),
            counts: version.counts,
            number: version.number,
            is_changed: false,
        }
    }

    pub(crate) fn finish(self, edit: &Edit<'g>) -> DirectoryVersion {
        DirectoryVersion {
            exact: self.exact.into(),
            wild: self.wild.map(Stored::from),
            counts: DirectoryCounts {
                size: edit.size(),
                ..self.counts
            },
            number: self.number + 1,
        }
    }

    /// Applies one step to the subscriptions with a filter.
    pub(crate) fn apply(
        &mut self,
        edit: &mut Edit<'g>,
        hasher: &Hasher,
        filter: &SubscriptionFilter,
        (step, removed): (SubscriptionStep, RemovedSubscribers<'_>),
    ) -> ChangeOutcome {
        let is_wild = filter.filter().has_wildcard();
        let text = filter.filter().as_str().as_bytes();
        let (mut effect, mut first_or_last) = (Effect::default(), false);
        let run = |edit: &mut Edit<'g>, old: Word<'g>| {
            let (new, what) = subscribers::apply(edit, hasher, old, filter, (step, removed));
            effect = what;
            first_or_last = old.is_empty() != new.is_empty();
            new
        };
        self.is_changed |= if is_wild {
            change_tree(edit, hasher, &mut self.wild, text, run)
        } else {
            change_map(edit, hasher, &mut self.exact, text, run)
        };
        self.count(step, effect, first_or_last, is_wild);
        let counts = &mut self.counts;
        count_subscriptions(&mut counts.subscriptions, step, effect);
        if filter.share().is_some() {
            count_subscriptions(&mut counts.shared_subscriptions, step, effect);
        }
        if is_wild {
            count_subscriptions(&mut counts.wild_subscriptions, step, effect);
        }
        ChangeOutcome {
            existed: effect.existed,
            first_or_last,
        }
    }

    fn count(
        &mut self,
        step: SubscriptionStep,
        effect: Effect,
        first_or_last: bool,
        is_wild: bool,
    ) {
        let counts = &mut self.counts;
        let (filter, group) = (
            usize::from(first_or_last),
            usize::from(effect.group_came_or_went),
        );
        let wild = if is_wild { filter } else { 0 };
        match step {
            SubscriptionStep::Insert { .. } => {
                counts.filters += filter;
                counts.wild_filters += wild;
                counts.groups += group;
            }
            SubscriptionStep::Remove(_) => {
                counts.filters -= filter;
                counts.wild_filters -= wild;
                counts.groups -= group;
            }
            SubscriptionStep::SetAvailable(..) => {}
        }
    }
}

/// Updates a number of subscriptions; `dropped` ones have the same filter and the same group.
fn count_subscriptions(count: &mut usize, step: SubscriptionStep, effect: Effect) {
    *count -= effect.dropped;
    match step {
        SubscriptionStep::Insert { .. } => *count += usize::from(!effect.existed),
        SubscriptionStep::Remove(_) => *count -= usize::from(effect.existed),
        SubscriptionStep::SetAvailable(..) => {}
    }
}
