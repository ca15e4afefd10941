//! Merges matching sets, so that each subscriber is visited once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use smallvec::SmallVec;

use super::walk::MatchedFilter;
use crate::SubscriberId;
use crate::subscribers::{PackedSubscription, set};
use crate::tree::word::Word;

/// Up to this number, subscriptions are copied and sorted; above it, the sets are merged in place.
const FEW: usize = 512;

/// The merged subscriptions of one subscriber.
pub(crate) struct Merged {
    pub(crate) subscriber: SubscriberId,
    pub(crate) qos: QoS,
    pub(crate) retain_as_published: bool,
    pub(crate) ids: SmallVec<[NonZeroU32; 8]>,
}

impl Merged {
    /// Merges the subscriptions of one subscriber.
    pub(crate) fn of(run: &[PackedSubscription]) -> Option<Self> {
        let retains = |one: &PackedSubscription| one.retain_as_published();
        Some(Self {
            subscriber: run.first()?.subscriber(),
            qos: run.iter().map(|one| one.qos()).max()?,
            retain_as_published: run.iter().any(retains),
            ids: run.iter().filter_map(|one| one.id()).collect(),
        })
    }
}

/// Visits the subscriptions of each subscriber of `sets` together, in order of their numbers; `keep` decides about
/// each subscription first.
#[inline]
pub(crate) fn merge(
    found: &[MatchedFilter<'_>],
    keep: impl Fn(PackedSubscription) -> bool,
    mut visit: impl FnMut(&[PackedSubscription]),
) {
    let sets = found.iter().map(|found| found.payload);
    let total: usize = sets.clone().map(set::len).sum();
    if total > FEW {
        merge_large(sets, keep, visit);
        return;
    }
    let mut all: SmallVec<[PackedSubscription; 32]> = SmallVec::with_capacity(total);
    for set in sets {
        set::for_each(set, |subscription| {
            if keep(subscription) {
                all.push(subscription);
            }
        });
    }
    all.sort_unstable();
    let is_same =
        |one: &PackedSubscription, next: &PackedSubscription| one.subscriber() == next.subscriber();
    all.chunk_by(is_same).for_each(&mut visit);
}

/// Like [`merge`], with a heap of the next subscription of each set.
fn merge_large<'g>(
    sets: impl Iterator<Item = Word<'g>>,
    keep: impl Fn(PackedSubscription) -> bool,
    mut visit: impl FnMut(&[PackedSubscription]),
) {
    let mut sources: Vec<_> = sets.map(set::Iter::new).collect();
    let mut heads: BinaryHeap<_> = sources
        .iter_mut()
        .enumerate()
        .filter_map(|(index, source)| source.next().map(|head| Reverse((head, index))))
        .collect();
    let mut run: SmallVec<[PackedSubscription; 8]> = SmallVec::new();
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((next, index)) = *head;
        if keep(next) {
            if run
                .first()
                .is_some_and(|one| one.subscriber() != next.subscriber())
            {
                visit(&run);
                run.clear();
            }
            run.push(next);
        }
        match sources[index].next() {
            Some(next) => *head = Reverse((next, index)),
            None => {
                PeekMut::pop(head);
            }
        }
    }
    if !run.is_empty() {
        visit(&run);
    }
}
