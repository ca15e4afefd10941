//! The children of a node: a 64-way branch by hash, with only as many levels as are needed to distinguish the keys.
//!
//! A map is a word: nothing, one item, or a HAMT block. Items are leaves, entries, and lists of leaves and entries
//! with equal hashes. A HAMT block with one slot leads to another HAMT block, so equal content has equal shape.

use smallvec::SmallVec;

use super::hash::{Hasher, tag};
use super::node::{Block, Edit};
use super::path::PathStep;
use super::word::{BlockKind, View, Word};
use crate::levels::SEPARATOR;

/// Bits of the hash that one level takes.
pub(crate) const DIGIT_BITS: u32 = 6;

const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;

/// The key of the items of a map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyKind {
    /// The first level of its text.
    Level,
    /// Its whole text.
    Whole,
}

impl KeyKind {
    /// The key of an item.
    pub(crate) fn of(self, item: Block<'_>) -> &[u8] {
        let text = item.text();
        match self {
            Self::Whole => text,
            Self::Level => crate::levels::split_level(text).0,
        }
    }

    /// Whether the item has this key.
    #[inline]
    pub(crate) fn is(self, key: &[u8], item: Block<'_>) -> bool {
        match item.text().strip_prefix(key) {
            Some([]) => true,
            Some([byte, ..]) => self == Self::Level && *byte == SEPARATOR,
            None => false,
        }
    }
}

/// The digit of `hash` at a depth of `shift` bits.
pub(crate) const fn digit(hash: u64, shift: u32) -> u32 {
    // INVARIANT: masked to 6 bits.
    ((hash >> shift) & DIGIT_MASK) as u32
}

/// Finds the leaf or entry with this key.
///
/// If only one item has this hash, its level is not compared: the caller compares its whole text.
#[expect(
    clippy::inline_always,
    reason = "a twentieth of the instructions of a match"
)]
#[inline(always)]
pub(crate) fn find<'g>(map: Word<'g>, hash: u64, key: &[u8], keys: KeyKind) -> Option<Word<'g>> {
    let mut word = map;
    let mut path = hash;
    loop {
        match word.view() {
            View::Hamt(branches) => {
                let digit = digit(path, 0);
                branches.prefetch(digit);
                word = branches.slot(digit)?;
                path >>= DIGIT_BITS;
            }
            View::Leaf(item) | View::Entry(item) => {
                let may_be = item.tag() == tag(hash);
                return (may_be && (keys == KeyKind::Level || item.text() == key)).then_some(word);
            }
            View::Collision(list) if list.tag() == tag(hash) => {
                return list
                    .words()
                    .iter()
                    .copied()
                    .find(|item| item.block().is_some_and(|item| keys.is(key, item)));
            }
            _ => return None,
        }
    }
}

/// The result of a search in a branch.
#[derive(Clone, Copy)]
pub(crate) enum SlotState<'g> {
    /// Nothing.
    Vacant,
    /// The leaf or entry with this key.
    Same(Word<'g>),
    /// An item with another key, at this depth in bits.
    Other(Word<'g>, u32),
}

/// Searches a key and records in `steps` the blocks that a change has to copy.
pub(crate) fn locate<'g>(
    map: Word<'g>,
    hash: u64,
    key: &[u8],
    keys: KeyKind,
    hasher: &Hasher,
    steps: &mut SmallVec<[PathStep<'g>; 8]>,
) -> SlotState<'g> {
    let mut word = map;
    let mut shift = 0;
    loop {
        match word.view() {
            View::Hamt(branches) => {
                let digit = digit(hash, shift);
                if shift <= 2 * DIGIT_BITS {
                    branches.prefetch_all();
                }
                let Some(slot) = branches.slot(digit) else {
                    steps.push(PathStep::Gap { block: word, digit });
                    return SlotState::Vacant;
                };
                steps.push(PathStep::Slot { block: word, digit });
                word = slot;
                shift += DIGIT_BITS;
            }
            View::Leaf(item) | View::Entry(item) => {
                if item.tag() == tag(hash) && keys.is(key, item) {
                    return SlotState::Same(word);
                }
                return SlotState::Other(word, shift);
            }
            View::Collision(list) if item_hash(word, keys, hasher) == hash => {
                return locate_in_list(word, list, key, keys, steps);
            }
            View::Collision(_) => return SlotState::Other(word, shift),
            _ => return SlotState::Vacant,
        }
    }
}

fn locate_in_list<'g>(
    word: Word<'g>,
    list: Block<'g>,
    key: &[u8],
    keys: KeyKind,
    steps: &mut SmallVec<[PathStep<'g>; 8]>,
) -> SlotState<'g> {
    let found = list
        .words()
        .binary_search_by(|item| key_of(*item, keys).cmp(key));
    match found {
        Ok(index) => {
            steps.push(PathStep::Listed { list: word, index });
            SlotState::Same(list.word(index))
        }
        Err(index) => {
            steps.push(PathStep::Unlisted { list: word, index });
            SlotState::Vacant
        }
    }
}

/// The key of a leaf, an entry, or of the first item of a list.
pub(crate) fn key_of(item: Word<'_>, keys: KeyKind) -> &[u8] {
    match item.view() {
        View::Leaf(item) | View::Entry(item) => keys.of(item),
        View::Collision(list) => list.words().first().map_or(&[], |item| key_of(*item, keys)),
        _ => &[],
    }
}

/// Computes the hash of an item from its key.
pub(crate) fn item_hash(item: Word<'_>, keys: KeyKind, hasher: &Hasher) -> u64 {
    hasher.hash(key_of(item, keys))
}

/// Makes the smallest map of two items with different keys, at a depth of `shift` bits.
pub(crate) fn pair<'g>(
    edit: &mut Edit<'g>,
    one: (u64, Word<'g>),
    two: (u64, Word<'g>),
    mut shift: u32,
    keys: KeyKind,
) -> Word<'g> {
    if one.0 == two.0 {
        let is_sorted = key_of(one.1, keys) < key_of(two.1, keys);
        let items = if is_sorted {
            [one.1, two.1]
        } else {
            [two.1, one.1]
        };
        return edit.make(BlockKind::Collision, tag(one.0), &[&items], &[]);
    }
    let mut digits: SmallVec<[u32; 16]> = SmallVec::new();
    while digit(one.0, shift) == digit(two.0, shift) {
        digits.push(digit(one.0, shift));
        shift += DIGIT_BITS;
    }
    let (first, second) = (digit(one.0, shift), digit(two.0, shift));
    let items = if first < second {
        [one.1, two.1]
    } else {
        [two.1, one.1]
    };
    let mut map = edit.make_branches(1 << first | 1 << second, &[&items]);
    for digit in digits.into_iter().rev() {
        map = edit.make_branches(1 << digit, &[&[map]]);
    }
    map
}
