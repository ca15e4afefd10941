//! Changes of a set; a change copies the path to its place.

use smallvec::SmallVec;

use super::{ARRAY_LEN, DIGIT_BITS, Shape, digit, for_each, key, position, shift_between};
use crate::SubscriberId;
use crate::subscribers::PackedSubscription;
use crate::tree::node::Edit;
use crate::tree::word::{BlockKind, View, Word};

/// Returns whether a subscriber is removed: copied blocks leave out its subscriptions. `None` while no subscriber is
/// removed.
pub(crate) type RemovedSubscribers<'a> = Option<&'a dyn Fn(SubscriberId) -> bool>;

/// A changed set.
pub(crate) struct ChangedSet<'g> {
    pub(crate) set: Word<'g>,
    /// The previous subscription of the subscriber.
    pub(crate) old: Option<PackedSubscription>,
    /// Subscriptions of removed subscribers that were dropped.
    pub(crate) dropped: usize,
}

/// Adds a subscription, or replaces that of the same subscriber.
pub(crate) fn insert<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    new: PackedSubscription,
    removed: RemovedSubscribers<'_>,
) -> ChangedSet<'g> {
    let subscriber = u64::from(new.subscriber().0);
    let mut path: Path<'g> = SmallVec::new();
    let mut word = set;
    let mut changed = loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                if !shape.has(subscriber) {
                    break ChangedSet::plain(above(edit, word, shape, new), None);
                }
                let digit = shape.digit(subscriber);
                path.push(Step { word, shape, digit });
                if shape.bitmap & (1 << digit) == 0 {
                    break ChangedSet::plain(new.word(), None);
                }
                word = branch.word(1 + shape.slot(digit));
            }
            View::Array(array) => break insert_in_array(edit, word, array.words(), new, removed),
            View::Inline(bits) => {
                let old = PackedSubscription::from_bits(bits);
                break insert_beside(edit, word, old, new, removed);
            }
            _ => break ChangedSet::plain(new.word(), None),
        }
    };
    if changed.old == Some(new) {
        return ChangedSet::plain(set, changed.old);
    }
    let added = u64::from(changed.old.is_none());
    changed.copy(edit, path, added, 0);
    changed
}

/// Adds a subscription to a set of one, which is `word`.
fn insert_beside<'g>(
    edit: &mut Edit<'g>,
    word: Word<'g>,
    old: PackedSubscription,
    new: PackedSubscription,
    removed: RemovedSubscribers<'_>,
) -> ChangedSet<'g> {
    if old.subscriber() == new.subscriber() {
        return ChangedSet::plain(new.word(), Some(old));
    }
    if is_removed(removed, old) {
        return ChangedSet {
            set: new.word(),
            old: None,
            dropped: 1,
        };
    }
    ChangedSet::plain(pair(edit, word, new.word()), None)
}

/// Removes the subscription of a subscriber.
pub(crate) fn remove<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    subscriber: SubscriberId,
    removed: RemovedSubscribers<'_>,
) -> ChangedSet<'g> {
    let subscriber = u64::from(subscriber.0);
    let mut path: Path<'g> = SmallVec::new();
    let mut word = set;
    let mut changed = loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                let digit = shape.digit(subscriber);
                if !shape.has(subscriber) || shape.bitmap & (1 << digit) == 0 {
                    return ChangedSet::plain(set, None);
                }
                path.push(Step { word, shape, digit });
                word = branch.word(1 + shape.slot(digit));
            }
            View::Array(array) => {
                let Ok(index) = position(array.words(), subscriber) else {
                    return ChangedSet::plain(set, None);
                };
                break remove_from_array(edit, word, array.words(), index, removed);
            }
            View::Inline(bits) if key(word) == subscriber => {
                break ChangedSet::plain(Word::EMPTY, Some(PackedSubscription::from_bits(bits)));
            }
            _ => return ChangedSet::plain(set, None),
        }
    };
    changed.copy(edit, path, 0, 1);
    changed
}

fn is_removed(removed: RemovedSubscribers<'_>, subscription: PackedSubscription) -> bool {
    removed.is_some_and(|is_removed| is_removed(subscription.subscriber()))
}

impl<'g> ChangedSet<'g> {
    /// An unchanged set.
    pub(crate) fn nothing(set: Word<'g>) -> Self {
        Self::plain(set, None)
    }

    fn plain(set: Word<'g>, old: Option<PackedSubscription>) -> Self {
        Self {
            set,
            old,
            dropped: 0,
        }
    }

    /// Copies the branches on the way to the changed child, from the bottom up.
    #[inline]
    fn copy(&mut self, edit: &mut Edit<'g>, mut path: Path<'g>, added: u64, removed: u64) {
        let removed = removed + self.dropped as u64;
        while let Some(step) = path.pop() {
            self.set = step.with_child(edit, self.set, added, removed);
        }
    }
}

/// A branch on the way to the changed child.
struct Step<'g> {
    word: Word<'g>,
    shape: Shape,
    digit: u32,
}

type Path<'g> = SmallVec<[Step<'g>; 8]>;

impl<'g> Step<'g> {
    fn children(&self) -> &'g [Word<'g>] {
        self.word.block().map_or(&[], |branch| &branch.words()[1..])
    }

    /// Makes the branch with another child at this place. The old or the new child may be empty.
    fn with_child(
        self,
        edit: &mut Edit<'g>,
        child: Word<'g>,
        added: u64,
        removed: u64,
    ) -> Word<'g> {
        let bit = 1 << self.digit;
        let (before, after) = self.children().split_at(self.shape.slot(self.digit));
        let after = if self.shape.bitmap & bit == 0 {
            after
        } else {
            &after[1..]
        };
        let shape = Shape {
            len: self.shape.len + added - removed,
            ..self.shape
        };
        if shape.bitmap & bit != 0 && !child.is_empty() && shape.len > ARRAY_LEN as u64 {
            let words = [(0, shape.summary()), (1 + before.len(), child)];
            return edit.with_words(self.word, words);
        }
        edit.retire(self.word);
        if shape.len <= ARRAY_LEN as u64 {
            return gather(edit, &[before, &[child], after]);
        }
        if !child.is_empty() {
            let bitmap = shape.bitmap | bit;
            return Shape { bitmap, ..shape }.make(edit, &[before, &[child], after]);
        }
        match (before, after) {
            ([only], []) | ([], [only]) => *only,
            _ => {
                let bitmap = shape.bitmap & !bit;
                Shape { bitmap, ..shape }.make(edit, &[before, after])
            }
        }
    }
}

/// Joins small sets into one array and retires them.
fn gather<'g>(edit: &mut Edit<'g>, sets: &[&[Word<'g>]]) -> Word<'g> {
    let mut all: Vec<Word<'g>> = Vec::with_capacity(ARRAY_LEN);
    for set in sets.iter().copied().flatten() {
        for_each(*set, |subscription| all.push(subscription.word()));
        retire_all(edit, *set);
    }
    build(edit, &all)
}

/// Retires every block of a set.
pub(crate) fn retire_all<'g>(edit: &mut Edit<'g>, set: Word<'g>) {
    let mut pending: SmallVec<[Word<'g>; 16]> = SmallVec::new();
    pending.push(set);
    while let Some(word) = pending.pop() {
        if let View::Branch(branch) = word.view() {
            pending.extend_from_slice(&branch.words()[1..]);
        }
        edit.retire(word);
    }
}

fn pair<'g>(edit: &mut Edit<'g>, one: Word<'g>, two: Word<'g>) -> Word<'g> {
    let sorted = if key(one) < key(two) {
        [one, two]
    } else {
        [two, one]
    };
    edit.make(BlockKind::Array, 0, &[&sorted], &[])
}

fn insert_in_array<'g>(
    edit: &mut Edit<'g>,
    word: Word<'g>,
    array: &'g [Word<'g>],
    new: PackedSubscription,
    removed: RemovedSubscribers<'_>,
) -> ChangedSet<'g> {
    let found = position(array, u64::from(new.subscriber().0));
    let (before, after) = match found {
        Ok(index) => (&array[..index], &array[index + 1..]),
        Err(index) => array.split_at(index),
    };
    let old = found.ok().map(|index| array[index].value());
    let old = old.map(PackedSubscription::from_bits);
    if old == Some(new) {
        return ChangedSet::plain(word, old);
    }
    edit.retire(word);
    join(edit, before, &[new.word()], after, (old, removed))
}

fn remove_from_array<'g>(
    edit: &mut Edit<'g>,
    word: Word<'g>,
    array: &'g [Word<'g>],
    index: usize,
    removed: RemovedSubscribers<'_>,
) -> ChangedSet<'g> {
    edit.retire(word);
    let old = Some(PackedSubscription::from_bits(array[index].value()));
    join(
        edit,
        &array[..index],
        &[],
        &array[index + 1..],
        (old, removed),
    )
}

/// Makes a set of the rest of an array and a new subscription at its place.
fn join<'g>(
    edit: &mut Edit<'g>,
    before: &[Word<'g>],
    new: &[Word<'g>],
    after: &[Word<'g>],
    (old, removed): (Option<PackedSubscription>, RemovedSubscribers<'_>),
) -> ChangedSet<'g> {
    let len = before.len() + new.len() + after.len();
    let is_removed =
        |word: &&Word<'g>| is_removed(removed, PackedSubscription::from_bits(word.value()));
    let has_removed = removed.is_some() && before.iter().chain(after).any(|word| is_removed(&word));
    if !has_removed && (2..=ARRAY_LEN).contains(&len) {
        return ChangedSet::plain(
            edit.make(BlockKind::Array, 0, &[before, new, after], &[]),
            old,
        );
    }
    let mut all: SmallVec<[Word<'g>; 16]> = SmallVec::new();
    all.extend(before.iter().filter(|word| !is_removed(word)).copied());
    all.extend_from_slice(new);
    all.extend(after.iter().filter(|word| !is_removed(word)).copied());
    ChangedSet {
        set: build(edit, &all),
        old,
        // Counted by what is left, since a subscriber may be removed between the calls above.
        dropped: len - all.len(),
    }
}

/// Makes a set of sorted subscriptions. The recursion depth is at most 8: one call for each digit.
fn build<'g>(edit: &mut Edit<'g>, sorted: &[Word<'g>]) -> Word<'g> {
    match sorted {
        [] => return Word::EMPTY,
        [only] => return *only,
        _ if sorted.len() <= ARRAY_LEN => return edit.make(BlockKind::Array, 0, &[sorted], &[]),
        _ => {}
    }
    let (first, last) = (key(sorted[0]), key(sorted[sorted.len() - 1]));
    let shift = shift_between(first, last);
    let mut children: SmallVec<[Word<'g>; 16]> = SmallVec::new();
    let mut bitmap = 0;
    for same in sorted.chunk_by(|one, two| digit(key(*one), shift) == digit(key(*two), shift)) {
        bitmap |= 1 << digit(key(same[0]), shift);
        children.push(build(edit, same));
    }
    let prefix = first >> (shift + DIGIT_BITS);
    let shape = Shape {
        bitmap,
        shift,
        prefix,
        len: sorted.len() as u64,
    };
    shape.make(edit, &[&children])
}

/// Makes the branch above `branch` for a subscriber outside of its prefix.
fn above<'g>(
    edit: &mut Edit<'g>,
    branch: Word<'g>,
    shape: Shape,
    new: PackedSubscription,
) -> Word<'g> {
    let subscriber = u64::from(new.subscriber().0);
    let inside = shape.prefix << (shape.shift + DIGIT_BITS);
    // The lowest subscriber that the branch could hold differs from the new one above the branch's own digits.
    let shift = shift_between(inside, subscriber);
    let (old_digit, new_digit) = (digit(inside, shift), digit(subscriber, shift));
    let new = new.word();
    let children = if old_digit < new_digit {
        [branch, new]
    } else {
        [new, branch]
    };
    let shape = Shape {
        bitmap: 1 << old_digit | 1 << new_digit,
        shift,
        prefix: subscriber >> (shift + DIGIT_BITS),
        len: shape.len + 1,
    };
    shape.make(edit, &[&children])
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use mqttcore_codec::QoS;

    use super::*;
    use crate::Options;
    use crate::subscribers::set::len;
    use crate::sync::{GarbageCounter, pin};
    use crate::tree::node::Size;

    /// Somebody leaves between two questions about it, so the answers differ within one copy.
    #[test]
    fn what_dies_while_its_set_is_copied_is_counted_once() {
        let (guard, garbage) = (pin(), GarbageCounter::new());
        let mut edit = Edit::new(&guard, &garbage, Size::default());
        let of =
            |number| PackedSubscription::new(SubscriberId(number), Options::at(QoS::AtMostOnce));
        let all = [1, 2, 3, 4].map(|number| of(number).word());
        for alive_for in 0..8 {
            let asked = Cell::new(0);
            let removed = |_| {
                asked.set(asked.get() + 1);
                asked.get() > alive_for
            };
            let set = build(&mut edit, &all);

            let changed = insert(&mut edit, set, of(9), Some(&removed));

            assert_eq!(len(changed.set) + changed.dropped, 5, "{alive_for}");
        }
    }
}
