//! Copies the path of a change, and folds nodes that have only one filter.

use smallvec::SmallVec;

use super::node::{Edit, place_of};
use super::update::{Fields, HASH, HERE, fields_of, leaf, make_entry};
use super::word::{BlockKind, View, Word};

/// One block on the path of a change; it is copied.
#[derive(Clone, Copy)]
pub(crate) enum PathStep<'g> {
    /// A HAMT block, through one of its slots.
    Slot { block: Word<'g>, digit: u32 },
    /// A HAMT block without the slot.
    Gap { block: Word<'g>, digit: u32 },
    /// A collision list, through one of its items.
    Listed { list: Word<'g>, index: usize },
    /// A collision list without the item; `index` is its place.
    Unlisted { list: Word<'g>, index: usize },
    /// A node, through one of its fields; `entry` is the block of the node, empty for the root.
    Node { entry: Word<'g>, field: usize },
}

/// Copies the path, last step first, and writes the root.
pub(super) fn ascend<'g>(
    edit: &mut Edit<'g>,
    root: &mut Fields<'g>,
    mut child: Word<'g>,
    mut steps: SmallVec<[PathStep<'g>; 8]>,
) {
    while let Some(step) = steps.pop() {
        match step {
            PathStep::Node { entry, field } if entry.is_empty() => root[field] = child,
            step => child = copy(edit, child, step),
        }
    }
}

/// Copies one block of the path with its new child; if the child is empty, without it.
pub(super) fn copy<'g>(edit: &mut Edit<'g>, child: Word<'g>, step: PathStep<'g>) -> Word<'g> {
    match step {
        PathStep::Slot { block, digit } => copy_slot(edit, block, digit, child),
        PathStep::Gap { block: word, digit } => {
            let (bitmap, slots) = bitmap_and_slots(word);
            let (before, after) = slots.split_at(place_of(bitmap, digit));
            edit.retire(word);
            edit.make_branches(bitmap | 1 << digit, &[before, &[child], after])
        }
        PathStep::Listed { list: word, index } => copy_listed(edit, word, index, child),
        PathStep::Unlisted { list: word, index } => {
            let (tag, items) = tag_and_words(word);
            let (before, after) = items.split_at(index);
            edit.retire(word);
            edit.make(BlockKind::Collision, tag, &[before, &[child], after], &[])
        }
        PathStep::Node { entry, field } => copy_entry(edit, entry, field, child),
    }
}

fn tag_and_words(word: Word<'_>) -> (u32, &[Word<'_>]) {
    word.block()
        .map_or((0, &[]), |block| (block.tag(), block.words()))
}

fn bitmap_and_slots(word: Word<'_>) -> (u64, &[Word<'_>]) {
    match word.view() {
        View::Hamt(branches) => (branches.bitmap(), branches.slots()),
        _ => (0, &[]),
    }
}

fn copy_entry<'g>(edit: &mut Edit<'g>, entry: Word<'g>, field: usize, child: Word<'g>) -> Word<'g> {
    let Some(block) = entry.block() else {
        return Word::EMPTY;
    };
    // A map with several entries is not folded, whatever else the node has.
    if child.is_hamt() {
        return edit.with_word(entry, field, child);
    }
    let mut fields = *fields_of(block);
    fields[field] = child;
    match fold(edit, block.tag(), block.text(), &fields) {
        Some(folded) => {
            edit.retire(entry);
            folded
        }
        None => edit.with_word(entry, field, child),
    }
}

fn copy_slot<'g>(edit: &mut Edit<'g>, word: Word<'g>, digit: u32, child: Word<'g>) -> Word<'g> {
    let (bitmap, slots) = bitmap_and_slots(word);
    let index = place_of(bitmap, digit);
    if !child.is_empty() && (child.is_hamt() || slots.len() > 1) {
        return edit.with_word(word, index, child);
    }
    edit.retire(word);
    if !child.is_empty() {
        return child;
    }
    let (before, after) = (&slots[..index], &slots[index + 1..]);
    match (before, after) {
        ([], []) => Word::EMPTY,
        ([only], []) | ([], [only]) if !only.is_hamt() => *only,
        _ => edit.make_branches(bitmap & !(1 << digit), &[before, after]),
    }
}

fn copy_listed<'g>(edit: &mut Edit<'g>, word: Word<'g>, index: usize, child: Word<'g>) -> Word<'g> {
    if !child.is_empty() {
        return edit.with_word(word, index, child);
    }
    let (tag, items) = tag_and_words(word);
    let (before, after) = (&items[..index], &items[index + 1..]);
    edit.retire(word);
    match (before, after) {
        ([only], []) | ([], [only]) => *only,
        _ => edit.make(BlockKind::Collision, tag, &[before, after], &[]),
    }
}

/// Folds a node that has only one filter or one entry below it; `None` if it has more.
fn fold<'g>(edit: &mut Edit<'g>, tag: u32, run: &[u8], fields: &Fields<'g>) -> Option<Word<'g>> {
    let mut present = (0..fields.len()).filter(|field| !fields[*field].is_empty());
    let (Some(field), None) = (present.next(), present.next()) else {
        return None;
    };
    let word = fields[field];
    match (field, word.view()) {
        (HERE, _) => Some(leaf(edit, tag, &[run], word)),
        (HASH, _) => Some(leaf(edit, tag, &[run, b"/#"], word)),
        (_, View::Leaf(below)) => {
            edit.retire(word);
            Some(leaf(edit, tag, &[run, b"/", below.text()], below.word(0)))
        }
        (_, View::Entry(below)) => {
            edit.retire(word);
            let text = [run, b"/", below.text()];
            Some(make_entry(edit, tag, &text, fields_of(below)))
        }
        _ => None,
    }
}
