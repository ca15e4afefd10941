//! Several matching sets, one visit a subscriber.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use smallvec::SmallVec;

use crate::SubscriberId;
use crate::subscribers::{Subscription, set};
use crate::tree::word::Word;

/// Up to here subscriptions are copied and sorted; beyond, the sets are merged as they stand.
const FEW: usize = 512;

/// What the matching subscriptions of one subscriber add up to.
pub(crate) struct Merged {
    pub(crate) subscriber: SubscriberId,
    pub(crate) qos: QoS,
    pub(crate) retain_as_published: bool,
    pub(crate) ids: SmallVec<[NonZeroU32; 8]>,
}

impl Merged {
    pub(crate) fn new(first: Subscription) -> Self {
        Self {
            subscriber: first.subscriber(),
            qos: first.qos(),
            retain_as_published: first.retain_as_published(),
            ids: first.id().into_iter().collect(),
        }
    }

    fn add(&mut self, other: Subscription) {
        self.qos = self.qos.max(other.qos());
        self.retain_as_published |= other.retain_as_published();
        self.ids.extend(other.id());
    }
}

/// Visits each subscriber of `sets` once, in order of their numbers; `keep` decides about each subscription first.
pub(crate) fn merge(
    sets: &[Word<'_>],
    keep: impl Fn(Subscription) -> bool,
    visit: impl FnMut(&Merged),
) {
    let total: usize = sets.iter().map(|set| set::len(*set)).sum();
    let mut runs = Runs {
        current: None,
        visit,
    };
    if total <= FEW {
        let mut all: SmallVec<[Subscription; 64]> = SmallVec::with_capacity(total);
        for set in sets {
            set::for_each(*set, |subscription| all.push(subscription));
        }
        all.sort_unstable();
        all.into_iter()
            .filter(|subscription| keep(*subscription))
            .for_each(|one| runs.push(one));
    } else {
        merge_large(sets, |subscription| {
            if keep(subscription) {
                runs.push(subscription);
            }
        });
    }
    runs.finish();
}

/// Visits the subscriptions of all sets in order, by a heap of the sets' next ones.
fn merge_large(sets: &[Word<'_>], mut visit: impl FnMut(Subscription)) {
    let mut sources: Vec<_> = sets.iter().map(|set| set::Iter::new(*set)).collect();
    let mut heads: BinaryHeap<_> = sources
        .iter_mut()
        .enumerate()
        .filter_map(|(index, source)| source.next().map(|head| Reverse((head, index))))
        .collect();
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((subscription, index)) = *head;
        visit(subscription);
        match sources[index].next() {
            Some(next) => *head = Reverse((next, index)),
            None => {
                std::collections::binary_heap::PeekMut::pop(head);
            }
        }
    }
}

/// Joins neighbours of the same subscriber.
struct Runs<V> {
    current: Option<Merged>,
    visit: V,
}

impl<V: FnMut(&Merged)> Runs<V> {
    fn push(&mut self, next: Subscription) {
        match &mut self.current {
            Some(current) if current.subscriber == next.subscriber() => current.add(next),
            _ => {
                self.finish();
                self.current = Some(Merged::new(next));
            }
        }
    }

    fn finish(&mut self) {
        if let Some(current) = self.current.take() {
            (self.visit)(&current);
        }
    }
}
