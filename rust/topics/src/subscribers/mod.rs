//! The subscribers of one filter: a set of plain subscriptions, and shared groups.
//!
//! Without groups, the payload of a filter is the plain set. With groups, it is an extended block of two words: the
//! plain set, and a map from share name to the group's block. The block of a group has three words: the set of its
//! members, its cursor, and the set of its available members; if its strategy hashes, the ring is a fourth word. A
//! change of a plain subscription does not touch the groups, and a change of a group does not touch the plain set.

pub(crate) mod ring;
pub(crate) mod set;
mod subscription;

use smallvec::SmallVec;

use crate::tree::hamt::{KeyKind, find};
use crate::tree::hash::Hasher;
use crate::tree::node::{Edit, GroupCursor};
use crate::tree::update::change_map;
use crate::tree::word::{BlockKind, View, Word};
use crate::{ShareName, SubscriberId, SubscriptionFilter};

pub(crate) use set::RemovedSubscribers;
pub(crate) use subscription::PackedSubscription;

use set::ChangedSet;

/// One change of the subscriptions of one filter.
#[derive(Clone, Copy)]
pub(crate) enum SubscriptionStep {
    Insert {
        subscription: PackedSubscription,
        is_available: bool,
    },
    Remove(SubscriberId),
    /// A member of a group becomes available or unavailable. Has no effect on a plain set.
    SetAvailable(SubscriberId, bool),
}

/// A shared group on one filter.
#[derive(Clone, Copy)]
pub(crate) struct SharedGroup<'g> {
    pub(crate) members: Word<'g>,
    /// The available members, possibly all.
    pub(crate) available: Word<'g>,
    /// Seats of the members, if the strategy hashes.
    pub(crate) ring: Word<'g>,
    cursor: Word<'g>,
}

/// The effect of a step on the counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Effect {
    /// The subscriber had a subscription before.
    pub(crate) existed: bool,
    /// The group had no member before, or has none after the step.
    pub(crate) group_came_or_went: bool,
    /// Subscriptions of removed subscribers that were dropped.
    pub(crate) dropped: usize,
}

/// Whether a filter's payload has groups.
#[inline]
pub(crate) fn is_extended(payload: Word<'_>) -> bool {
    matches!(payload.view(), View::Extended(_))
}

/// Splits the payload of a filter: the plain set and the map of groups.
pub(crate) fn parts(payload: Word<'_>) -> (Word<'_>, Word<'_>) {
    match payload.view() {
        View::Extended(block) => (block.word(0), block.word(1)),
        _ => (payload, Word::EMPTY),
    }
}

impl<'g> SharedGroup<'g> {
    /// Splits the payload of a group; no members if the word is not a group.
    pub(crate) fn of(payload: Word<'g>) -> Self {
        let word = |index| match payload.view() {
            View::Extended(block) => block.words().get(index).copied().unwrap_or(Word::EMPTY),
            _ => Word::EMPTY,
        };
        Self {
            members: word(0),
            cursor: word(1),
            available: word(2),
            ring: word(3),
        }
    }

    pub(crate) fn cursor(&self) -> Option<&'g GroupCursor> {
        self.cursor.group_cursor()
    }
}

/// Applies a step to the plain set of the payload of `filter`, or to its group.
pub(crate) fn apply<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    payload: Word<'g>,
    filter: &SubscriptionFilter,
    (step, removed): (SubscriptionStep, RemovedSubscribers<'_>),
) -> (Word<'g>, Effect) {
    let (mut plain, mut groups) = parts(payload);
    let before = [plain, groups];
    let effect = match filter.share() {
        None => {
            let changed = apply_to_set(edit, plain, (step, removed));
            plain = changed.set;
            Effect {
                existed: changed.old.is_some(),
                group_came_or_went: false,
                dropped: changed.dropped,
            }
        }
        Some(name) => apply_to_group(edit, hasher, &mut groups, (name, filter), (step, removed)),
    };
    if plain.is_same(before[0]) && groups.is_same(before[1]) {
        return (payload, effect);
    }
    if let View::Extended(_) = payload.view() {
        edit.retire(payload);
    }
    if groups.is_empty() {
        return (plain, effect);
    }
    (
        edit.make(BlockKind::Extended, 0, &[&[plain, groups]], &[]),
        effect,
    )
}

fn apply_to_set<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    (step, removed): (SubscriptionStep, RemovedSubscribers<'_>),
) -> ChangedSet<'g> {
    match step {
        SubscriptionStep::Insert { subscription, .. } => {
            set::insert(edit, set, subscription, removed)
        }
        SubscriptionStep::Remove(subscriber) => set::remove(edit, set, subscriber, removed),
        SubscriptionStep::SetAvailable(..) => ChangedSet::nothing(set),
    }
}

/// Applies a step to the available members; `members` is the set after that step.
fn apply_to_available<'g>(
    edit: &mut Edit<'g>,
    (available, members): (Word<'g>, Word<'g>),
    (step, removed): (SubscriptionStep, RemovedSubscribers<'_>),
) -> Word<'g> {
    let (subscriber, arriving) = match step {
        SubscriptionStep::Insert {
            subscription,
            is_available,
        } => (
            subscription.subscriber(),
            is_available.then_some(subscription),
        ),
        SubscriptionStep::SetAvailable(subscriber, true) => {
            (subscriber, set::of(members, subscriber))
        }
        SubscriptionStep::SetAvailable(subscriber, false)
        | SubscriptionStep::Remove(subscriber) => (subscriber, None),
    };
    match arriving {
        Some(subscription) => set::insert(edit, available, subscription, removed).set,
        None => set::remove(edit, available, subscriber, removed).set,
    }
}

/// Applies a step to the ring of a group, if members have keys.
fn apply_to_ring<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    ring: Word<'g>,
    step: SubscriptionStep,
) -> Word<'g> {
    let Some(key) = edit.key() else {
        return ring;
    };
    match step {
        SubscriptionStep::Insert { subscription, .. } => {
            ring::sit(edit, hasher, ring, (subscription.subscriber(), key))
        }
        SubscriptionStep::Remove(subscriber) => {
            ring::stand_up(edit, hasher, ring, (subscriber, key))
        }
        SubscriptionStep::SetAvailable(..) => ring,
    }
}

fn apply_to_group<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    groups: &mut Word<'g>,
    (name, filter): (ShareName<'_>, &SubscriptionFilter),
    step: (SubscriptionStep, RemovedSubscribers<'_>),
) -> Effect {
    let mut effect = Effect::default();
    let name = name.as_str().as_bytes();
    change_map(edit, hasher, groups, name, |edit, payload| {
        let old = SharedGroup::of(payload);
        let changed = apply_to_set(edit, old.members, step);
        let members = changed.set;
        let available = apply_to_available(edit, (old.available, members), step);
        let ring = apply_to_ring(edit, hasher, old.ring, step.0);
        effect = Effect {
            existed: changed.old.is_some(),
            group_came_or_went: old.members.is_empty() != members.is_empty(),
            dropped: changed.dropped,
        };
        let kept = [members, available, ring];
        let same = kept.iter().zip([old.members, old.available, old.ring]);
        if same.into_iter().all(|(new, old)| new.is_same(old)) {
            return payload;
        }
        edit.retire(payload);
        if members.is_empty() {
            return retire_group(edit, [available, ring], old.cursor);
        }
        make_group(edit, kept, old.cursor, filter)
    });
    effect
}

/// Makes the block of a group; creates a round-robin cursor if there is none.
fn make_group<'g>(
    edit: &mut Edit<'g>,
    [members, available, ring]: [Word<'g>; 3],
    cursor: Word<'g>,
    filter: &SubscriptionFilter,
) -> Word<'g> {
    let cursor = if cursor.is_empty() {
        edit.make_group_cursor(filter)
    } else {
        cursor
    };
    let ring: &[Word<'g>] = if ring.is_empty() { &[] } else { &[ring] };
    let fields = [&[members, cursor, available], ring];
    edit.make(BlockKind::Extended, 1, &fields, &[])
}

/// Retires the sets and the cursor of a group without members; the sets may only contain members that have left.
fn retire_group<'g>(edit: &mut Edit<'g>, sets: [Word<'g>; 2], cursor: Word<'g>) -> Word<'g> {
    for set in sets {
        set::retire_all(edit, set);
    }
    edit.retire(cursor);
    Word::EMPTY
}

/// The group with this name in the payload of a filter; without members if there is none.
pub(crate) fn group_of<'g>(
    payload: Word<'g>,
    hasher: &Hasher,
    name: ShareName<'_>,
) -> SharedGroup<'g> {
    let name = name.as_str().as_bytes();
    let leaf =
        find(parts(payload).1, hasher.hash(name), name, KeyKind::Whole).and_then(Word::block);
    SharedGroup::of(leaf.map_or(Word::EMPTY, |leaf| leaf.word(0)))
}

/// Visits the groups of a filter's payload, in no particular order.
pub(crate) fn for_each_group<'g>(
    groups: Word<'g>,
    mut visit: impl FnMut(SharedGroup<'g>, &'g GroupCursor),
) {
    let mut pending: SmallVec<[Word<'g>; 16]> = SmallVec::new();
    pending.push(groups);
    while let Some(word) = pending.pop() {
        match word.view() {
            View::Hamt(_) | View::Collision(_) => pending.extend_from_slice(word.children()),
            View::Leaf(leaf) => {
                let group = SharedGroup::of(leaf.word(0));
                if let Some(cursor) = group.cursor() {
                    visit(group, cursor);
                }
            }
            _ => {}
        }
    }
}
