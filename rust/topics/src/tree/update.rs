//! One change of the tree: walk down, change one payload, copy the path on the way back.
//!
//! A tree is a node: four words. `kids` is a map of the literal levels below, `plus` the item of `+`, `hash` the
//! payload of `#`, and `here` the payload of the filter that ends here. If a subtree has one filter, it is a leaf
//! with the rest of that filter as text. The leaf unfolds into an entry when a second filter shares its first level,
//! and the entry folds back when one of the two is removed. The text of an entry is the run of levels that all
//! filters below it share: it is divided when a filter leaves the run in the middle, and joined with the entry below
//! when that is the only item left. So equal content has equal shape, whatever the order of changes.

use smallvec::SmallVec;

use super::hamt::{KeyKind, SlotState, item_hash, locate, pair};
use super::hash::{Hasher, tag};
use super::node::{Block, Edit};
use super::path::{PathStep, ascend, copy};
use super::word::{BlockKind, View, Word};
use crate::levels::{SEPARATOR, shared_levels, split_level};

/// The words of a node.
pub(crate) type Fields<'g> = [Word<'g>; 4];

/// The map of literal levels below.
pub(crate) const KIDS: usize = 0;
/// The leaf or entry of `+`.
pub(crate) const PLUS: usize = 1;
/// The payload of `#`.
pub(crate) const HASH: usize = 2;
/// The payload of the filter that ends at this node.
pub(crate) const HERE: usize = 3;

const NO_FIELDS: Fields<'static> = [Word::EMPTY; 4];

/// Changes one payload: gets the current one (empty if there is none), returns the new one (empty to remove it), and
/// retires what it replaces. The same word means no change.
pub(crate) trait PayloadChange<'g>: FnMut(&mut Edit<'g>, Word<'g>) -> Word<'g> {}

impl<'g, F: FnMut(&mut Edit<'g>, Word<'g>) -> Word<'g>> PayloadChange<'g> for F {}

/// Changes the payload of `filter` in the tree `root`; returns whether anything changed.
pub(crate) fn change_tree<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    root: &mut Fields<'g>,
    filter: &[u8],
    mut change: impl PayloadChange<'g>,
) -> bool {
    let mut steps = SmallVec::new();
    let Some(child) = descend(edit, hasher, *root, filter, &mut steps, &mut change) else {
        return false;
    };
    ascend(edit, root, child, steps);
    true
}

/// Changes the payload of `key` in a map of whole texts; returns whether anything changed.
pub(crate) fn change_map<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    map: &mut Word<'g>,
    key: &[u8],
    mut change: impl PayloadChange<'g>,
) -> bool {
    let mut steps = SmallVec::new();
    let hash = hasher.hash(key);
    let slot = locate(*map, hash, key, KeyKind::Whole, hasher, &mut steps);
    let payload = match slot {
        SlotState::Same(word) => payload_of(word),
        SlotState::Vacant | SlotState::Other(..) => Word::EMPTY,
    };
    let new = change(edit, payload);
    if new.is_same(payload) {
        return false;
    }
    if let SlotState::Same(leaf) = slot {
        edit.retire(leaf);
    }
    let mut child = leaf(edit, tag(hash), &[key], new);
    if let SlotState::Other(item, shift) = slot {
        let other = (item_hash(item, KeyKind::Whole, hasher), item);
        child = pair(edit, other, (hash, child), shift, KeyKind::Whole);
    }
    while let Some(step) = steps.pop() {
        child = copy(edit, child, step);
    }
    *map = child;
    true
}

fn payload_of(leaf: Word<'_>) -> Word<'_> {
    leaf.block().map_or(Word::EMPTY, |leaf| leaf.word(0))
}

/// A leaf, or nothing for an empty payload.
pub(super) fn leaf<'g>(
    edit: &mut Edit<'g>,
    tag: u32,
    text: &[&[u8]],
    payload: Word<'g>,
) -> Word<'g> {
    if payload.is_empty() {
        return Word::EMPTY;
    }
    edit.make_leaf(tag, text, payload)
}

/// Makes the leaf for the rest of a filter.
fn rest_leaf<'g>(edit: &mut Edit<'g>, hasher: &Hasher, rest: &[u8], payload: Word<'g>) -> Word<'g> {
    leaf(
        edit,
        level_tag(hasher, split_level(rest).0),
        &[rest],
        payload,
    )
}

/// `+` has a field of its own, so its hash is not needed.
fn level_tag(hasher: &Hasher, level: &[u8]) -> u32 {
    if level == b"+" {
        0
    } else {
        tag(hasher.hash(level))
    }
}

/// Walks to the place of `filter` and changes the payload there. Returns the new child of the last step, or
/// `None` if nothing changed.
///
/// Longer than other functions: node, entry and the rest of the filter go down together, and each step can end the walk.
fn descend<'g, 'a>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    root: Fields<'g>,
    filter: &'a [u8],
    steps: &mut SmallVec<[PathStep<'g>; 8]>,
    change: &mut impl PayloadChange<'g>,
) -> Option<Word<'g>> {
    let (mut fields, mut entry) = (root, Word::EMPTY);
    let mut rest = filter;
    loop {
        if rest == b"#" {
            steps.push(PathStep::Node { entry, field: HASH });
            return changed(edit, fields[HASH], change);
        }
        let level = split_level(rest).0;
        let (field, hash) = match level {
            b"+" => (PLUS, 0),
            _ => (KIDS, hasher.hash(level)),
        };
        steps.push(PathStep::Node { entry, field });
        let word = match slot_of(&fields, (field, hash), level, hasher, steps) {
            SlotState::Same(word) => word,
            vacant => {
                let payload = changed(edit, Word::EMPTY, change)?;
                let new = leaf(edit, tag(hash), &[rest], payload);
                return Some(beside(edit, hasher, vacant, (hash, new)));
            }
        };
        let block = match word.view() {
            View::Entry(block) => block,
            View::Leaf(block) => return change_leaf(edit, hasher, (word, block), rest, change),
            _ => unreachable!("a map holds leaves and entries"),
        };
        fields = *fields_of(block);
        entry = word;
        match rest.strip_prefix(block.text()) {
            Some([]) => {
                steps.push(PathStep::Node { entry, field: HERE });
                return changed(edit, fields[HERE], change);
            }
            Some([SEPARATOR, below @ ..]) => rest = below,
            _ => {
                let payload = changed(edit, Word::EMPTY, change)?;
                edit.retire(word);
                return Some(divide(edit, hasher, block, rest, payload));
            }
        }
    }
}

/// Makes a new leaf at a place without an item of its key: alone, or in a map with the other item there.
fn beside<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    place: SlotState<'g>,
    new: (u64, Word<'g>),
) -> Word<'g> {
    let SlotState::Other(item, shift) = place else {
        return new.1;
    };
    let other = (item_hash(item, KeyKind::Level, hasher), item);
    pair(edit, other, new, shift, KeyKind::Level)
}

/// The place of a level below a node, by its field and the hash of the level.
fn slot_of<'g>(
    fields: &Fields<'g>,
    (field, hash): (usize, u64),
    level: &[u8],
    hasher: &Hasher,
    steps: &mut SmallVec<[PathStep<'g>; 8]>,
) -> SlotState<'g> {
    match fields[field] {
        kids if field == KIDS => locate(kids, hash, level, KeyKind::Level, hasher, steps),
        plus if plus.is_empty() => SlotState::Vacant,
        plus => SlotState::Same(plus),
    }
}

/// Runs the change; `None` if it left the payload as it was.
fn changed<'g>(
    edit: &mut Edit<'g>,
    payload: Word<'g>,
    change: &mut impl PayloadChange<'g>,
) -> Option<Word<'g>> {
    let new = change(edit, payload);
    (!new.is_same(payload)).then_some(new)
}

/// The words of an entry's node.
#[inline]
pub(crate) fn fields_of(entry: Block<'_>) -> &Fields<'_> {
    // INVARIANT: entries are made by `make_entry` only, with four words.
    entry
        .words()
        .first_chunk()
        .expect("an entry has four words")
}

/// Changes the leaf whose first level is that of `rest`: changes its payload, or unfolds it.
fn change_leaf<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    (word, block): (Word<'g>, Block<'g>),
    rest: &[u8],
    change: &mut impl PayloadChange<'g>,
) -> Option<Word<'g>> {
    if block.text() == rest {
        let payload = changed(edit, block.word(0), change)?;
        edit.retire(word);
        return Some(leaf(edit, block.tag(), &[rest], payload));
    }
    let payload = changed(edit, Word::EMPTY, change)?;
    edit.retire(word);
    Some(unfold(
        edit,
        hasher,
        (block.text(), block.word(0)),
        (rest, payload),
    ))
}

/// Makes the entry of two different filters whose first level is equal.
fn unfold<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    old: (&[u8], Word<'g>),
    new: (&[u8], Word<'g>),
) -> Word<'g> {
    let run = shared_levels(old.0, new.0);
    let mut fields = NO_FIELDS;
    place(edit, hasher, &mut fields, behind(old.0, run), old.1);
    place(edit, hasher, &mut fields, behind(new.0, run), new.1);
    let tag = level_tag(hasher, split_level(new.0).0);
    make_entry(edit, tag, &[&new.0[..run]], &fields)
}

/// Makes an entry above a filter and `entry`, from the levels that the filter shares with the run of `entry`.
fn divide<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    entry: Block<'g>,
    rest: &[u8],
    payload: Word<'g>,
) -> Word<'g> {
    let text = entry.text();
    let run = shared_levels(text, rest);
    let mut fields = NO_FIELDS;
    if let Some(below) = behind(text, run) {
        let level = split_level(below).0;
        let tag = level_tag(hasher, level);
        let lower = make_entry(edit, tag, &[below], fields_of(entry));
        place_item(edit, hasher, &mut fields, lower, level == b"+");
    }
    place(edit, hasher, &mut fields, behind(rest, run), payload);
    make_entry(edit, entry.tag(), &[&text[..run]], &fields)
}

/// The rest of a text after its first `len` bytes (whole levels) and the separator.
fn behind(text: &[u8], len: usize) -> Option<&[u8]> {
    text.get(len + 1..)
}

/// Puts the rest of a filter into a new node, which has at most one other item.
fn place<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    fields: &mut Fields<'g>,
    rest: Option<&[u8]>,
    payload: Word<'g>,
) {
    let Some(rest) = rest else {
        fields[HERE] = payload;
        return;
    };
    if rest == b"#" {
        fields[HASH] = payload;
        return;
    }
    let new = rest_leaf(edit, hasher, rest, payload);
    place_item(edit, hasher, fields, new, split_level(rest).0 == b"+");
}

fn place_item<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    fields: &mut Fields<'g>,
    new: Word<'g>,
    is_plus: bool,
) {
    if is_plus {
        fields[PLUS] = new;
    } else if fields[KIDS].is_empty() {
        fields[KIDS] = new;
    } else {
        let hash = |item| (item_hash(item, KeyKind::Level, hasher), item);
        fields[KIDS] = pair(edit, hash(fields[KIDS]), hash(new), 0, KeyKind::Level);
    }
}

pub(super) fn make_entry<'g>(
    edit: &mut Edit<'g>,
    tag: u32,
    run: &[&[u8]],
    fields: &Fields<'g>,
) -> Word<'g> {
    edit.make(BlockKind::Entry, tag, &[fields], run)
}
