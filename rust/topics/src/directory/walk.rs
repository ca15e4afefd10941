//! From a topic to the payloads of all filters that match it.

use smallvec::SmallVec;

use super::version::State;
use crate::levels::{is_match, level_len};
use crate::tree::hamt::{Keys, find};
use crate::tree::hash::Hasher;
use crate::tree::update::{Fields, HASH, HERE, KIDS, PLUS, fields_of};
use crate::tree::word::{View, Word};

/// The payloads that matched.
pub(crate) type Found<'g> = SmallVec<[Word<'g>; 16]>;

/// A node to visit, and the number of the level that its children are compared with.
type Branch<'g> = (Fields<'g>, usize);

/// Collects the payload of every filter that matches `topic`.
pub(crate) fn collect<'g>(version: &'g State, hasher: &Hasher, topic: &[u8]) -> Found<'g> {
    let mut found = Found::new();
    if version.counts.filters > version.counts.wild_filters {
        let exact = find(version.exact(), hasher.hash(topic), topic, Keys::Whole);
        found.extend(exact.map(payload));
    }
    if version.counts.wild_filters > 0 {
        Walk {
            hasher,
            topic,
            levels: SmallVec::new(),
            found: &mut found,
        }
        .run(version.wild());
    }
    found
}

fn payload(leaf: Word<'_>) -> Word<'_> {
    leaf.block().map_or(Word::EMPTY, |leaf| leaf.word(0))
}

/// One level of the topic: where it starts and ends, and its hash.
#[derive(Clone, Copy)]
struct Level {
    start: usize,
    end: usize,
    hash: u64,
}

struct Walk<'w, 'g> {
    hasher: &'w Hasher,
    topic: &'w [u8],
    /// The levels seen so far, shared by all branches.
    levels: SmallVec<[Level; 16]>,
    found: &'w mut Found<'g>,
}

impl<'g> Walk<'_, 'g> {
    /// Follows the literal chain; what `+` opens beside it waits in a list.
    fn run(&mut self, mut root: Fields<'g>) {
        if self.topic.first() == Some(&b'$') {
            // [MQTT-4.7.2-1] A leading wildcard does not reach this topic.
            root[PLUS] = Word::EMPTY;
            root[HASH] = Word::EMPTY;
        }
        let mut pending: SmallVec<[Branch<'g>; 8]> = SmallVec::new();
        let mut next = Some((root, 0));
        while let Some((fields, index)) = next {
            next = self
                .visit(fields, index, &mut pending)
                .or_else(|| pending.pop());
        }
    }

    /// Visits one node; answers the literal child when it is a node too.
    fn visit(
        &mut self,
        fields: Fields<'g>,
        index: usize,
        pending: &mut SmallVec<[Branch<'g>; 8]>,
    ) -> Option<Branch<'g>> {
        self.take(fields[HASH]);
        let Some(level) = self.level(index) else {
            self.take(fields[HERE]);
            return None;
        };
        let rest = &self.topic[level.start..];
        pending.extend(self.child(fields[PLUS], rest, index));
        let name = &rest[..level.end - level.start];
        let kid = find(fields[KIDS], level.hash, name, Keys::Level)?;
        self.child(kid, rest, index)
    }

    /// Takes the payload of a leaf that matches; answers the node of an entry.
    fn child(&mut self, child: Word<'g>, rest: &[u8], index: usize) -> Option<Branch<'g>> {
        match child.view() {
            View::Leaf(leaf) => {
                if is_match(leaf.text(), rest) {
                    self.take(leaf.word(0));
                }
                None
            }
            View::Entry(entry) => Some((fields_of(entry), index + 1)),
            _ => None,
        }
    }

    fn take(&mut self, payload: Word<'g>) {
        if !payload.is_empty() {
            self.found.push(payload);
        }
    }

    /// Returns a level, or `None` behind the last. Levels are asked for in order.
    fn level(&mut self, index: usize) -> Option<Level> {
        if let Some(level) = self.levels.get(index) {
            return Some(*level);
        }
        let start = self.levels.last().map_or(0, |last| last.end + 1);
        let rest = self.topic.get(start..)?;
        let len = level_len(rest);
        let level = Level {
            start,
            end: start + len,
            hash: self.hasher.hash(&rest[..len]),
        };
        self.levels.push(level);
        Some(level)
    }
}
