//! One text in the tree: a concrete one, or a filter as such.

use super::hamt::{Keys, find};
use super::hash::Hasher;
use super::update::{Fields, HASH, HERE, KIDS, PLUS, fields_of};
use super::word::{View, Word};
use crate::levels::split_level;

/// Returns the payload of a text without wildcards, empty if it has none.
pub(crate) fn payload_of<'g>(root: Fields<'g>, hasher: &Hasher, text: &[u8]) -> Word<'g> {
    let (mut fields, mut rest) = (root, text);
    loop {
        let (level, below) = split_level(rest);
        let child = find(fields[KIDS], hasher.hash(level), level, Keys::Level);
        match child.map(Word::view) {
            Some(View::Leaf(leaf)) if leaf.text() == rest => return leaf.word(0),
            Some(View::Entry(entry)) => fields = fields_of(entry),
            _ => return Word::EMPTY,
        }
        match below {
            Some(below) => rest = below,
            None => return fields[HERE],
        }
    }
}

/// Returns the payload of a filter, empty if it has none.
pub(crate) fn payload_of_filter<'g>(root: Fields<'g>, hasher: &Hasher, filter: &[u8]) -> Word<'g> {
    let (mut fields, mut rest) = (root, filter);
    loop {
        if rest == b"#" {
            return fields[HASH];
        }
        let (level, below) = split_level(rest);
        let child = if level == b"+" {
            Some(fields[PLUS])
        } else {
            find(fields[KIDS], hasher.hash(level), level, Keys::Level)
        };
        match child.map(Word::view) {
            Some(View::Leaf(leaf)) if leaf.text() == rest => return leaf.word(0),
            Some(View::Entry(entry)) => fields = fields_of(entry),
            _ => return Word::EMPTY,
        }
        match below {
            Some(below) => rest = below,
            None => return fields[HERE],
        }
    }
}
