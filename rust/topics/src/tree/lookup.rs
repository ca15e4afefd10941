//! Looks up one text in the tree: a topic, or a filter.

use super::hamt::{KeyKind, find};
use super::hash::Hasher;
use super::update::{Fields, HASH, HERE, KIDS, PLUS, fields_of};
use super::word::{View, Word};
use crate::levels::{SEPARATOR, split_level};

/// Returns the payload of a text without wildcards, empty if it has none.
pub(crate) fn payload_of<'g>(root: Fields<'g>, hasher: &Hasher, text: &[u8]) -> Word<'g> {
    look_up(root, text, |fields, rest| kid(fields, hasher, rest))
}

/// Returns the payload of a filter, empty if it has none.
pub(crate) fn payload_of_filter<'g>(root: Fields<'g>, hasher: &Hasher, filter: &[u8]) -> Word<'g> {
    look_up(root, filter, |fields, rest| match rest {
        [b'+'] | [b'+', SEPARATOR, ..] => fields[PLUS],
        _ => kid(fields, hasher, rest),
    })
}

fn kid<'g>(fields: Fields<'g>, hasher: &Hasher, rest: &[u8]) -> Word<'g> {
    let level = split_level(rest).0;
    find(fields[KIDS], hasher.hash(level), level, KeyKind::Level).unwrap_or(Word::EMPTY)
}

/// Follows a text from node to node. `child` returns an item that may begin like the rest of the text.
fn look_up<'g>(
    root: Fields<'g>,
    text: &[u8],
    child: impl Fn(Fields<'g>, &[u8]) -> Word<'g>,
) -> Word<'g> {
    let (mut fields, mut rest) = (root, text);
    loop {
        if rest == b"#" {
            return fields[HASH];
        }
        let entry = match child(fields, rest).view() {
            View::Leaf(leaf) if leaf.text() == rest => return leaf.word(0),
            View::Entry(entry) => entry,
            _ => return Word::EMPTY,
        };
        fields = *fields_of(entry);
        match rest.strip_prefix(entry.text()) {
            Some([]) => return fields[HERE],
            Some([SEPARATOR, below @ ..]) => rest = below,
            _ => return Word::EMPTY,
        }
    }
}
