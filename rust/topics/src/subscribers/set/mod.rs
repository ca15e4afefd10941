//! Sets of subscriptions, one for each subscriber, ordered by subscriber.
//!
//! A set is a word: nothing, one subscription, a sorted array of up to 256, or a 16-way branch by the bits of the
//! subscriber's number. A branch has more than 256 subscriptions and at least two children, and its level is the
//! highest digit in which its subscribers differ. So equal content has equal shape, and a change copies 2.5 KB,
//! whatever the size of the set.

mod change;

use smallvec::SmallVec;

use super::subscription::PackedSubscription;
use crate::SubscriberId;
use crate::sync::ones;
use crate::tree::node::{Block, Edit};
use crate::tree::word::{BlockKind, View, Word};

pub(crate) use change::{ChangedSet, RemovedSubscribers, insert, remove, retire_all};

/// The largest array.
pub(crate) const ARRAY_LEN: usize = 256;

/// Maximum number of subscriptions that are prefetched before they are visited.
pub(crate) const FEW: usize = 16;

const DIGIT_BITS: u32 = 4;
const SHIFT_BITS: u32 = 16;

/// The shape of a branch, without its children.
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
            BlockKind::Branch,
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
    u64::from(
        PackedSubscription::from_bits(subscription.value())
            .subscriber()
            .0,
    )
}

/// The shift of the highest digit in which two different subscribers differ.
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

/// Number of subscribers in the set with a smaller number.
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
pub(crate) fn of(set: Word<'_>, subscriber: SubscriberId) -> Option<PackedSubscription> {
    let found = nth(set, rank(set, subscriber))?;
    (found.subscriber() == subscriber).then_some(found)
}

/// The subscription with this rank.
pub(crate) fn nth(set: Word<'_>, mut rank: usize) -> Option<PackedSubscription> {
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
                return Some(PackedSubscription::from_bits(word.value()));
            }
            View::Inline(bits) => {
                return (rank == 0).then_some(PackedSubscription::from_bits(bits));
            }
            _ => return None,
        }
    }
}

/// Visits the subscriptions in order.
#[inline]
pub(crate) fn for_each(set: Word<'_>, mut visit: impl FnMut(PackedSubscription)) {
    match set.view() {
        View::Inline(bits) => visit(PackedSubscription::from_bits(bits)),
        View::Empty => {}
        View::Array(array) => {
            let subscriptions = array.words().iter();
            subscriptions.for_each(|word| visit(PackedSubscription::from_bits(word.value())));
        }
        _ => Iter::new(set).for_each(visit),
    }
}

/// The subscriptions of a small set, or the first of an array.
#[inline]
pub(crate) fn first_few(set: Word<'_>) -> impl Iterator<Item = PackedSubscription> {
    let (one, array) = match set.view() {
        View::Inline(bits) => (Some(PackedSubscription::from_bits(bits)), [].as_slice()),
        View::Array(array) => (None, array.words()),
        _ => (None, [].as_slice()),
    };
    let few = array.iter().take(FEW);
    one.into_iter()
        .chain(few.map(|word| PackedSubscription::from_bits(word.value())))
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

    /// The subscriptions from a rank on.
    fn from_rank(set: Word<'g>, mut rank: usize) -> Self {
        let mut pending = SmallVec::new();
        let mut word = set;
        while let View::Branch(branch) = word.view() {
            let mut children = branch.words()[1..].iter();
            let Some(child) = children.find(|child| {
                let is_behind = rank >= len(**child);
                rank -= if is_behind { len(**child) } else { 0 };
                !is_behind
            }) else {
                break;
            };
            pending.extend(children.rev().copied());
            word = *child;
        }
        let array = match word.view() {
            View::Array(array) => array.words().get(rank..).unwrap_or_default(),
            _ => &[],
        };
        if let View::Inline(_) = word.view()
            && rank == 0
        {
            pending.push(word);
        }
        Self {
            array: array.iter(),
            pending,
        }
    }
}

/// The subscriptions from a rank on, then those before it; each one once.
pub(crate) fn ring(set: Word<'_>, start: usize) -> impl Iterator<Item = PackedSubscription> {
    Iter::from_rank(set, start).chain(Iter::new(set).take(start))
}

impl Iterator for Iter<'_> {
    type Item = PackedSubscription;

    #[inline]
    fn next(&mut self) -> Option<PackedSubscription> {
        loop {
            if let Some(word) = self.array.next() {
                return Some(PackedSubscription::from_bits(word.value()));
            }
            match self.pending.pop()?.view() {
                View::Inline(bits) => return Some(PackedSubscription::from_bits(bits)),
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
