//! Sets of subscriptions, one a subscriber, ordered by subscriber.
//!
//! A set is a word: nothing, one subscription, a sorted array of up to 256, or a 16-way branch by the bits of the
//! subscriber's number. A branch holds more than 256, has two children or more, and stands as deep as its
//! subscribers differ, so equal content has equal shape, and a change copies 2.5 KB however large the set is.

use smallvec::SmallVec;

use super::subscription::Subscription;
use crate::SubscriberId;
use crate::sync::ones;
use crate::tree::node::{Block, Edit};
use crate::tree::word::{Kind, View, Word};

/// The largest array.
pub(crate) const ARRAY_LEN: usize = 256;

/// The most that are asked for before they are visited.
pub(crate) const FEW: usize = 16;

const DIGIT_BITS: u32 = 4;
const SHIFT_BITS: u32 = 16;

/// What a branch is beside its children.
#[derive(Clone, Copy)]
struct Shape {
    bitmap: u32,
    shift: u32,
    /// The bits of the subscribers above the digit.
    prefix: u64,
    len: u64,
}

impl Shape {
    fn of(branch: Block<'_>) -> Self {
        let summary = branch.word(0).value();
        Self {
            bitmap: branch.tag() & ((1 << SHIFT_BITS) - 1),
            shift: branch.tag() >> SHIFT_BITS,
            prefix: summary >> 33,
            len: (summary >> 1) & u64::from(u32::MAX),
        }
    }

    fn has(self, subscriber: u64) -> bool {
        subscriber >> (self.shift + DIGIT_BITS) == self.prefix
    }

    fn digit(self, subscriber: u64) -> u32 {
        digit(subscriber, self.shift)
    }

    fn slot(self, digit: u32) -> usize {
        ones(u64::from(self.bitmap & ((1 << digit) - 1)))
    }

    /// The first word: prefix and count.
    fn summary<'g>(self) -> Word<'g> {
        Word::inline(self.prefix << 33 | self.len << 1 | 1)
    }

    fn make<'g>(self, edit: &mut Edit<'g>, children: &[&[Word<'g>]]) -> Word<'g> {
        let first = [self.summary()];
        let mut words: SmallVec<[&[Word<'g>]; 4]> = SmallVec::from_slice(&[&first[..]]);
        words.extend_from_slice(children);
        edit.make(
            Kind::Branch,
            self.bitmap | self.shift << SHIFT_BITS,
            &words,
            &[],
        )
    }
}

fn digit(subscriber: u64, shift: u32) -> u32 {
    // INVARIANT: masked to 4 bits.
    ((subscriber >> shift) & 15) as u32
}

fn key(subscription: Word<'_>) -> u64 {
    u64::from(Subscription::from_bits(subscription.value()).subscriber().0)
}

/// The place of the highest digit in which two different subscribers differ.
fn shift_between(one: u64, two: u64) -> u32 {
    (one ^ two).ilog2() / DIGIT_BITS * DIGIT_BITS
}

fn position(array: &[Word<'_>], subscriber: u64) -> Result<usize, usize> {
    array.binary_search_by_key(&subscriber, |word| key(*word))
}

/// The number of subscriptions.
pub(crate) fn len(set: Word<'_>) -> usize {
    match set.view() {
        View::Inline(_) => 1,
        View::Array(array) => array.words().len(),
        // INVARIANT: a branch counts what is in memory.
        View::Branch(branch) => usize::try_from(Shape::of(branch).len).unwrap_or(usize::MAX),
        _ => 0,
    }
}

/// How many subscribers in the set have a smaller number.
pub(crate) fn rank(set: Word<'_>, subscriber: SubscriberId) -> usize {
    let subscriber = u64::from(subscriber.0);
    let (mut word, mut before) = (set, 0);
    loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                if !shape.has(subscriber) {
                    let is_behind = subscriber >> (shape.shift + DIGIT_BITS) > shape.prefix;
                    return before + if is_behind { len(word) } else { 0 };
                }
                let digit = shape.digit(subscriber);
                let slot = 1 + shape.slot(digit);
                before += branch.words()[1..slot]
                    .iter()
                    .map(|child| len(*child))
                    .sum::<usize>();
                if shape.bitmap & (1 << digit) == 0 {
                    return before;
                }
                word = branch.word(slot);
            }
            View::Array(array) => {
                return before + position(array.words(), subscriber).unwrap_or_else(|at| at);
            }
            View::Inline(_) => return before + usize::from(key(word) < subscriber),
            _ => return before,
        }
    }
}

/// The subscription of a subscriber.
pub(crate) fn of(set: Word<'_>, subscriber: SubscriberId) -> Option<Subscription> {
    let found = nth(set, rank(set, subscriber))?;
    (found.subscriber() == subscriber).then_some(found)
}

/// The subscription with this rank.
pub(crate) fn nth(set: Word<'_>, mut rank: usize) -> Option<Subscription> {
    let mut word = set;
    loop {
        match word.view() {
            View::Branch(branch) => {
                let mut children = branch.words()[1..].iter();
                word = loop {
                    let child = *children.next()?;
                    match rank.checked_sub(len(child)) {
                        Some(behind) => rank = behind,
                        None => break child,
                    }
                };
            }
            View::Array(array) => {
                let word = array.words().get(rank)?;
                return Some(Subscription::from_bits(word.value()));
            }
            View::Inline(bits) => return (rank == 0).then_some(Subscription::from_bits(bits)),
            _ => return None,
        }
    }
}

/// Visits the subscriptions in order.
#[inline]
pub(crate) fn for_each(set: Word<'_>, mut visit: impl FnMut(Subscription)) {
    match set.view() {
        View::Inline(bits) => visit(Subscription::from_bits(bits)),
        View::Empty => {}
        View::Array(array) => {
            let subscriptions = array.words().iter();
            subscriptions.for_each(|word| visit(Subscription::from_bits(word.value())));
        }
        _ => Iter::new(set).for_each(visit),
    }
}

/// The subscriptions of a small set, or the first of an array.
#[inline]
pub(crate) fn first_few(set: Word<'_>) -> impl Iterator<Item = Subscription> {
    let (one, array) = match set.view() {
        View::Inline(bits) => (Some(Subscription::from_bits(bits)), [].as_slice()),
        View::Array(array) => (None, array.words()),
        _ => (None, [].as_slice()),
    };
    let few = array.iter().take(FEW);
    one.into_iter()
        .chain(few.map(|word| Subscription::from_bits(word.value())))
}

/// The subscriptions in order.
pub(crate) struct Iter<'g> {
    array: std::slice::Iter<'g, Word<'g>>,
    pending: SmallVec<[Word<'g>; 16]>,
}

impl<'g> Iter<'g> {
    pub(crate) fn new(set: Word<'g>) -> Self {
        let mut pending = SmallVec::new();
        pending.push(set);
        Self {
            array: [].iter(),
            pending,
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = Subscription;

    #[inline]
    fn next(&mut self) -> Option<Subscription> {
        loop {
            if let Some(word) = self.array.next() {
                return Some(Subscription::from_bits(word.value()));
            }
            match self.pending.pop()?.view() {
                View::Inline(bits) => return Some(Subscription::from_bits(bits)),
                View::Array(array) => self.array = array.words().iter(),
                View::Branch(branch) => {
                    let children = &branch.words()[1..];
                    for child in children {
                        child.prefetch(0);
                    }
                    self.pending.extend(children.iter().rev().copied());
                }
                _ => {}
            }
        }
    }
}

/// Tells who left: their subscriptions are dropped from what is copied anyway. `None` while nobody left.
pub(crate) type Dead<'a> = Option<&'a dyn Fn(SubscriberId) -> bool>;

/// A changed set.
pub(crate) struct Changed<'g> {
    pub(crate) set: Word<'g>,
    /// What the subscriber had before.
    pub(crate) old: Option<Subscription>,
    /// Subscriptions of others that were dropped because they are dead.
    pub(crate) dropped: usize,
}

/// Adds a subscription, or replaces the one of the same subscriber.
pub(crate) fn insert<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    new: Subscription,
    dead: Dead<'_>,
) -> Changed<'g> {
    let subscriber = u64::from(new.subscriber().0);
    let mut path: Path<'g> = SmallVec::new();
    let mut word = set;
    let mut changed = loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                if !shape.has(subscriber) {
                    break Changed::plain(above(edit, word, shape, new), None);
                }
                let digit = shape.digit(subscriber);
                path.push(Step { word, shape, digit });
                if shape.bitmap & (1 << digit) == 0 {
                    break Changed::plain(new.word(), None);
                }
                word = branch.word(1 + shape.slot(digit));
            }
            View::Array(array) => break insert_in_array(edit, word, array.words(), new, dead),
            View::Inline(bits) if key(word) == subscriber => {
                break Changed::plain(new.word(), Some(Subscription::from_bits(bits)));
            }
            View::Inline(bits) if is_dead(dead, Subscription::from_bits(bits)) => {
                break Changed {
                    set: new.word(),
                    old: None,
                    dropped: 1,
                };
            }
            View::Inline(_) => break Changed::plain(pair(edit, word, new.word()), None),
            _ => break Changed::plain(new.word(), None),
        }
    };
    if changed.old == Some(new) {
        return Changed::plain(set, changed.old);
    }
    let added = u64::from(changed.old.is_none());
    changed.copy(edit, path, added, 0);
    changed
}

/// Removes the subscription of a subscriber.
pub(crate) fn remove<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    subscriber: SubscriberId,
    dead: Dead<'_>,
) -> Changed<'g> {
    let subscriber = u64::from(subscriber.0);
    let mut path: Path<'g> = SmallVec::new();
    let mut word = set;
    let mut changed = loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                let digit = shape.digit(subscriber);
                if !shape.has(subscriber) || shape.bitmap & (1 << digit) == 0 {
                    return Changed::plain(set, None);
                }
                path.push(Step { word, shape, digit });
                word = branch.word(1 + shape.slot(digit));
            }
            View::Array(array) => {
                let Ok(index) = position(array.words(), subscriber) else {
                    return Changed::plain(set, None);
                };
                break remove_from_array(edit, word, array.words(), index, dead);
            }
            View::Inline(bits) if key(word) == subscriber => {
                break Changed::plain(Word::EMPTY, Some(Subscription::from_bits(bits)));
            }
            _ => return Changed::plain(set, None),
        }
    };
    changed.copy(edit, path, 0, 1);
    changed
}

fn is_dead(dead: Dead<'_>, subscription: Subscription) -> bool {
    dead.is_some_and(|is_dead| is_dead(subscription.subscriber()))
}

impl<'g> Changed<'g> {
    fn plain(set: Word<'g>, old: Option<Subscription>) -> Self {
        Self {
            set,
            old,
            dropped: 0,
        }
    }

    /// Copies the branches on the way to the changed child, last first.
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

    /// Makes the branch with another child in this place, which may be empty, or none was there.
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

/// Joins small sets to one array and retires them.
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
    edit.make(Kind::Array, 0, &[&sorted], &[])
}

fn insert_in_array<'g>(
    edit: &mut Edit<'g>,
    word: Word<'g>,
    array: &'g [Word<'g>],
    new: Subscription,
    dead: Dead<'_>,
) -> Changed<'g> {
    let found = position(array, u64::from(new.subscriber().0));
    let (before, after) = match found {
        Ok(index) => (&array[..index], &array[index + 1..]),
        Err(index) => array.split_at(index),
    };
    let old = found.ok().map(|index| array[index].value());
    let old = old.map(Subscription::from_bits);
    if old == Some(new) {
        return Changed::plain(word, old);
    }
    edit.retire(word);
    join(edit, before, &[new.word()], after, (old, dead))
}

fn remove_from_array<'g>(
    edit: &mut Edit<'g>,
    word: Word<'g>,
    array: &'g [Word<'g>],
    index: usize,
    dead: Dead<'_>,
) -> Changed<'g> {
    edit.retire(word);
    let old = Some(Subscription::from_bits(array[index].value()));
    join(edit, &array[..index], &[], &array[index + 1..], (old, dead))
}

/// Makes the set of what is left of an array, with a new subscription in its place.
fn join<'g>(
    edit: &mut Edit<'g>,
    before: &[Word<'g>],
    new: &[Word<'g>],
    after: &[Word<'g>],
    (old, dead): (Option<Subscription>, Dead<'_>),
) -> Changed<'g> {
    let len = before.len() + new.len() + after.len();
    let is_dead = |word: &&Word<'g>| is_dead(dead, Subscription::from_bits(word.value()));
    let has_dead = dead.is_some() && before.iter().chain(after).any(|word| is_dead(&word));
    if !has_dead && (2..=ARRAY_LEN).contains(&len) {
        return Changed::plain(edit.make(Kind::Array, 0, &[before, new, after], &[]), old);
    }
    let mut all: SmallVec<[Word<'g>; 16]> = SmallVec::new();
    all.extend(before.iter().filter(|word| !is_dead(word)).copied());
    all.extend_from_slice(new);
    all.extend(after.iter().filter(|word| !is_dead(word)).copied());
    Changed {
        set: build(edit, &all),
        old,
        // Counted by what is left: whoever leaves meanwhile is dead to some of the questions above only.
        dropped: len - all.len(),
    }
}

/// Makes a set of sorted subscriptions. The depth is at most 8: one call a digit.
fn build<'g>(edit: &mut Edit<'g>, sorted: &[Word<'g>]) -> Word<'g> {
    match sorted {
        [] => return Word::EMPTY,
        [only] => return *only,
        _ if sorted.len() <= ARRAY_LEN => return edit.make(Kind::Array, 0, &[sorted], &[]),
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

/// Makes the branch above `branch` that a subscriber outside of its prefix needs.
fn above<'g>(edit: &mut Edit<'g>, branch: Word<'g>, shape: Shape, new: Subscription) -> Word<'g> {
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
    use crate::sync::{Ledger, pin};
    use crate::tree::node::Size;

    /// Somebody leaves between two questions about it, so the answers differ within one copy.
    #[test]
    fn what_dies_while_its_set_is_copied_is_counted_once() {
        let (guard, ledger) = (pin(), Ledger::new());
        let mut edit = Edit::new(&guard, &ledger, Size::default());
        let of = |number| Subscription::new(SubscriberId(number), Options::at(QoS::AtMostOnce));
        let all = [1, 2, 3, 4].map(|number| of(number).word());
        for alive_for in 0..8 {
            let asked = Cell::new(0);
            let dead = |_| {
                asked.set(asked.get() + 1);
                asked.get() > alive_for
            };
            let set = build(&mut edit, &all);

            let changed = insert(&mut edit, set, of(9), Some(&dead));

            assert_eq!(len(changed.set) + changed.dropped, 5, "{alive_for}");
        }
    }
}
