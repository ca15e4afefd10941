//! Sets of subscriptions, one a subscriber, ordered by subscriber.
//!
//! A set is a word: nothing, one subscription, a sorted array of up to 256, or a 16-way branch by the bits of the
//! subscriber's number. A branch holds more than 256, has two children or more, and stands as deep as its
//! subscribers differ, so equal content has equal shape, and a change copies 2.5 KB however large the set is.

use smallvec::SmallVec;

use super::subscription::Subscription;
use crate::SubscriberId;
use crate::tree::node::{Block, Edit};
use crate::tree::word::{Kind, View, Word};

/// The largest array.
pub(crate) const ARRAY_LEN: usize = 256;

/// The most that are asked for before they are visited.
const FEW: usize = 16;

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
        (self.bitmap & ((1 << digit) - 1)).count_ones() as usize
    }

    fn make<'g>(self, edit: &mut Edit<'g>, children: &[&[Word<'g>]]) -> Word<'g> {
        let summary = Word::inline(self.prefix << 33 | self.len << 1 | 1);
        let first = [summary];
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
                View::Branch(branch) => self
                    .pending
                    .extend(branch.words()[1..].iter().rev().copied()),
                _ => {}
            }
        }
    }
}

/// Adds a subscription, or replaces the one of the same subscriber; answers the new set and the old subscription.
pub(crate) fn insert<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    new: Subscription,
) -> (Word<'g>, Option<Subscription>) {
    let subscriber = u64::from(new.subscriber().0);
    let mut path: SmallVec<[Step<'g>; 8]> = SmallVec::new();
    let mut word = set;
    let (mut child, old) = loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                if !shape.has(subscriber) {
                    break (above(edit, word, shape, new), None);
                }
                let digit = shape.digit(subscriber);
                path.push(Step { word, shape, digit });
                if shape.bitmap & (1 << digit) == 0 {
                    break (new.word(), None);
                }
                word = branch.word(1 + shape.slot(digit));
            }
            View::Array(array) => break insert_in_array(edit, word, array.words(), new),
            View::Inline(bits) if key(word) == subscriber => {
                break (new.word(), Some(Subscription::from_bits(bits)));
            }
            View::Inline(_) => break (pair(edit, word, new.word()), None),
            _ => break (new.word(), None),
        }
    };
    if old == Some(new) {
        return (set, old);
    }
    while let Some(step) = path.pop() {
        child = step.with_child(edit, child, u64::from(old.is_none()));
    }
    (child, old)
}

/// Removes the subscription of a subscriber; answers the new set and what it removed.
pub(crate) fn remove<'g>(
    edit: &mut Edit<'g>,
    set: Word<'g>,
    subscriber: SubscriberId,
) -> (Word<'g>, Option<Subscription>) {
    let subscriber = u64::from(subscriber.0);
    let mut path: SmallVec<[Step<'g>; 8]> = SmallVec::new();
    let mut word = set;
    let (mut child, old) = loop {
        match word.view() {
            View::Branch(branch) => {
                let shape = Shape::of(branch);
                let digit = shape.digit(subscriber);
                if !shape.has(subscriber) || shape.bitmap & (1 << digit) == 0 {
                    return (set, None);
                }
                path.push(Step { word, shape, digit });
                word = branch.word(1 + shape.slot(digit));
            }
            View::Array(array) => {
                let Ok(index) = position(array.words(), subscriber) else {
                    return (set, None);
                };
                break (
                    remove_from_array(edit, word, array.words(), index),
                    array.word(index),
                );
            }
            View::Inline(_) if key(word) == subscriber => break (Word::EMPTY, word),
            _ => return (set, None),
        }
    };
    while let Some(step) = path.pop() {
        child = step.without_one(edit, child);
    }
    (child, Some(Subscription::from_bits(old.value())))
}

/// A branch on the way to the changed child.
struct Step<'g> {
    word: Word<'g>,
    shape: Shape,
    digit: u32,
}

impl<'g> Step<'g> {
    fn children(&self) -> &'g [Word<'g>] {
        self.word.block().map_or(&[], |branch| &branch.words()[1..])
    }

    fn with_child(self, edit: &mut Edit<'g>, child: Word<'g>, added: u64) -> Word<'g> {
        let is_there = self.shape.bitmap & (1 << self.digit) != 0;
        let (before, after) = self.children().split_at(self.shape.slot(self.digit));
        let after = if is_there { &after[1..] } else { after };
        let bitmap = self.shape.bitmap | 1 << self.digit;
        let shape = Shape {
            bitmap,
            len: self.shape.len + added,
            ..self.shape
        };
        edit.retire(self.word);
        shape.make(edit, &[before, &[child], after])
    }

    fn without_one(self, edit: &mut Edit<'g>, child: Word<'g>) -> Word<'g> {
        let slot = self.shape.slot(self.digit);
        let (before, after) = (&self.children()[..slot], &self.children()[slot + 1..]);
        let shape = Shape {
            len: self.shape.len - 1,
            ..self.shape
        };
        edit.retire(self.word);
        if shape.len <= ARRAY_LEN as u64 {
            return gather(edit, &[before, &[child], after]);
        }
        if !child.is_empty() {
            return shape.make(edit, &[before, &[child], after]);
        }
        match (before, after) {
            ([only], []) | ([], [only]) => *only,
            _ => {
                let bitmap = shape.bitmap & !(1 << self.digit);
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
    edit.make(Kind::Array, 0, &[&all], &[])
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
) -> (Word<'g>, Option<Subscription>) {
    match position(array, u64::from(new.subscriber().0)) {
        Ok(index) => {
            let old = Subscription::from_bits(array[index].value());
            if old == new {
                return (word, Some(old));
            }
            edit.retire(word);
            let (before, after) = (&array[..index], &array[index + 1..]);
            let set = edit.make(Kind::Array, 0, &[before, &[new.word()], after], &[]);
            (set, Some(old))
        }
        Err(index) => {
            edit.retire(word);
            let (before, after) = array.split_at(index);
            if array.len() < ARRAY_LEN {
                return (
                    edit.make(Kind::Array, 0, &[before, &[new.word()], after], &[]),
                    None,
                );
            }
            let all = [before, &[new.word()], after].concat();
            (build(edit, &all), None)
        }
    }
}

fn remove_from_array<'g>(
    edit: &mut Edit<'g>,
    word: Word<'g>,
    array: &'g [Word<'g>],
    index: usize,
) -> Word<'g> {
    edit.retire(word);
    let (before, after) = (&array[..index], &array[index + 1..]);
    match (before, after) {
        ([only], []) | ([], [only]) => *only,
        _ => edit.make(Kind::Array, 0, &[before, after], &[]),
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
