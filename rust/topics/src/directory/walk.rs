//! From topics to the payloads of all filters that match them.
//!
//! A topic opens branches: one in the exact index, one in the tree, one more wherever a `+` stands beside a literal
//! level. Each branch is a chain of reads that wait for each other, so in a large tree many branches, of one topic
//! or of several, advance in turn: one read each, with the next already asked for.

use smallvec::SmallVec;

use super::version::State;
use crate::levels::{is_match, level_len};
use crate::tree::hamt::{DIGIT_BITS, Keys, digit, find};
use crate::tree::hash::{Hasher, tag};
use crate::tree::node::Block;
use crate::tree::update::{Fields, HASH, HERE, KIDS, PLUS, fields_of};
use crate::tree::word::{View, Word};

/// The payloads that matched.
pub(crate) type Found<'g> = SmallVec<[Word<'g>; 12]>;

/// Most topics whose branches advance in turn.
pub(crate) const LANES: usize = 16;

/// One level of the topic: where it starts and ends, and its hash.
#[derive(Clone, Copy)]
struct Level {
    start: u32,
    end: u32,
    hash: u64,
}

/// One topic on its way through the tree.
pub(crate) struct Lane<'t, 'g> {
    topic: &'t [u8],
    /// The levels seen so far, shared by all branches.
    levels: SmallVec<[Level; 8]>,
    pub(crate) found: Found<'g>,
}

/// Where a branch stands: at a map or at an item of one.
#[derive(Clone, Copy)]
struct Branch<'g> {
    word: Word<'g>,
    /// The digits of the hash that are still to be used.
    path: u64,
    /// The number of the level that the items are found by.
    level: u32,
    lane: u32,
    /// What the items are to the level.
    through: Through,
}

/// The way to an item.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Through {
    /// By a literal level.
    Literal,
    /// By `+`, which fits any level.
    Plus,
    /// By the whole text, in the exact index.
    Whole,
}

impl<'t, 'g> Lane<'t, 'g> {
    #[inline]
    pub(crate) fn new(topic: &'t [u8]) -> Self {
        Self {
            topic,
            levels: SmallVec::new(),
            found: SmallVec::new(),
        }
    }

    /// Returns a level, or `None` behind the last. Levels are asked for in order.
    #[inline]
    fn level(&mut self, index: usize, hasher: &Hasher) -> Option<Level> {
        if let Some(level) = self.levels.get(index) {
            return Some(*level);
        }
        let start = self.levels.last().map_or(0, |last| last.end as usize + 1);
        let rest = self.topic.get(start..)?;
        let len = level_len(rest);
        // INVARIANT: a topic has at most 65,535 bytes, so the casts cut nothing.
        #[expect(clippy::cast_possible_truncation, reason = "topics are short")]
        let level = Level {
            start: start as u32,
            end: (start + len) as u32,
            hash: hasher.hash(&rest[..len]),
        };
        self.levels.push(level);
        Some(level)
    }

    #[inline]
    fn take(&mut self, payload: Word<'g>) {
        if !payload.is_empty() {
            self.found.push(payload);
        }
    }

    #[inline]
    fn name(&self, level: Level) -> &'t [u8] {
        &self.topic[level.start as usize..level.end as usize]
    }

    /// The topic from a level on.
    #[inline]
    fn rest(&self, level: usize) -> &'t [u8] {
        &self.topic[self.levels[level].start as usize..]
    }
}

/// Collects the payload of every filter that matches the topic of `lane`: one branch after the other.
#[inline]
pub(crate) fn collect<'g>(version: &'g State, hasher: &Hasher, lane: &mut Lane<'_, 'g>) {
    let topic = lane.topic;
    if version.has_exact() {
        let exact = find(version.exact(), hasher.hash(topic), topic, Keys::Whole);
        if let Some(leaf) = exact.and_then(Word::block) {
            lane.take(leaf.word(0));
        }
    }
    if version.has_wild() {
        lane.follow(hasher, reachable(version.wild(), topic));
    }
}

/// A node to visit, and the number of the level that its children are compared with.
type Node<'g> = (Fields<'g>, usize);

impl<'g> Lane<'_, 'g> {
    /// Follows the literal chain; what `+` opens beside it waits in a list.
    #[inline]
    fn follow(&mut self, hasher: &Hasher, root: Fields<'g>) {
        let mut pending: SmallVec<[Node<'g>; 4]> = SmallVec::new();
        let (mut fields, mut index) = (root, 0);
        loop {
            let next = self.visit(hasher, fields, index, &mut pending);
            let Some(node) = next.or_else(|| pending.pop()) else {
                return;
            };
            (fields, index) = node;
        }
    }

    /// Visits one node; answers the literal child when it is a node too.
    #[inline]
    fn visit(
        &mut self,
        hasher: &Hasher,
        fields: Fields<'g>,
        index: usize,
        pending: &mut SmallVec<[Node<'g>; 4]>,
    ) -> Option<Node<'g>> {
        self.take(fields[HASH]);
        let Some(level) = self.level(index, hasher) else {
            self.take(fields[HERE]);
            return None;
        };
        let rest = &self.topic[level.start as usize..];
        if !fields[PLUS].is_empty()
            && let Some(node) = self.child(fields[PLUS], rest)
        {
            pending.push((node, index + 1));
        }
        let kid = find(fields[KIDS], level.hash, self.name(level), Keys::Level)?;
        self.child(kid, rest).map(|node| (node, index + 1))
    }

    /// Takes the payload of a leaf that matches; answers the node of an entry.
    #[inline]
    fn child(&mut self, child: Word<'g>, rest: &[u8]) -> Option<Fields<'g>> {
        match child.view() {
            View::Leaf(leaf) => {
                if is_match(leaf.text(), rest) {
                    self.take(leaf.word(0));
                }
                None
            }
            View::Entry(entry) => Some(fields_of(entry)),
            _ => None,
        }
    }
}

/// As [`collect`] for each lane, of which there are at most [`LANES`]: all branches in turn.
pub(crate) fn collect_in_turn<'g>(version: &'g State, hasher: &Hasher, lanes: &mut [Lane<'_, 'g>]) {
    let mut walk = Walk {
        hasher,
        lanes,
        opened: SmallVec::new(),
    };
    for (index, lane) in (0_u32..).zip(0..walk.lanes.len()) {
        let topic = walk.lanes[lane].topic;
        if version.has_exact() {
            walk.opened.push(Branch {
                word: version.exact(),
                path: hasher.hash(topic),
                level: 0,
                lane: index,
                through: Through::Whole,
            });
        }
        if version.has_wild() {
            walk.open(reachable(version.wild(), topic), index, 0);
        }
    }
    walk.run();
}

/// [MQTT-4.7.2-1] A leading wildcard does not reach topics that begin with `$`.
#[inline]
fn reachable<'g>(mut root: Fields<'g>, topic: &[u8]) -> Fields<'g> {
    if topic.first() == Some(&b'$') {
        root[PLUS] = Word::EMPTY;
        root[HASH] = Word::EMPTY;
    }
    root
}

struct Walk<'w, 't, 'g> {
    hasher: &'w Hasher,
    lanes: &'w mut [Lane<'t, 'g>],
    /// Branches that did not advance yet.
    opened: SmallVec<[Branch<'g>; 32]>,
}

impl<'g> Walk<'_, '_, 'g> {
    /// Advances all branches in turn until none is left.
    fn run(&mut self) {
        let mut branches = SmallVec::<[Branch<'g>; 32]>::new();
        loop {
            branches.append(&mut self.opened);
            if branches.is_empty() {
                return;
            }
            let mut index = 0;
            while let Some(branch) = branches.get_mut(index) {
                if self.advance(branch) {
                    index += 1;
                } else {
                    branches.swap_remove(index);
                }
            }
        }
    }

    /// Visits a node: takes what ends here and opens the branches below.
    #[inline]
    fn open(&mut self, fields: Fields<'g>, lane: u32, level: u32) {
        let here = &mut self.lanes[lane as usize];
        here.take(fields[HASH]);
        let Some(found) = here.level(level as usize, self.hasher) else {
            here.take(fields[HERE]);
            return;
        };
        let fields = [(PLUS, Through::Plus), (KIDS, Through::Literal)]
            .map(|(field, through)| (fields[field], through));
        for (word, through) in fields {
            if !word.is_empty() {
                word.prefetch(digit(found.hash, 0));
                self.opened.push(Branch {
                    word,
                    path: found.hash,
                    level,
                    lane,
                    through,
                });
            }
        }
    }

    /// Advances a branch by one read and asks for the next; `false` at its end.
    #[inline]
    fn advance(&mut self, branch: &mut Branch<'g>) -> bool {
        match branch.word.view() {
            View::Hamt(branches) => {
                let Some(slot) = branches.slot(digit(branch.path, 0)) else {
                    return false;
                };
                branch.path >>= DIGIT_BITS;
                branch.word = slot;
                slot.prefetch(digit(branch.path, 0));
                return true;
            }
            View::Leaf(leaf) => self.leaf(leaf, branch),
            View::Entry(entry)
                if branch.through == Through::Plus || self.is_level_of(entry, branch) =>
            {
                self.open(fields_of(entry), branch.lane, branch.level + 1);
            }
            View::Collision(list) => {
                if let Some(item) = self.find_in_list(list, branch) {
                    branch.word = item;
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// Takes the payload of a leaf that matches the topic from the branch's level on.
    #[inline]
    fn leaf(&mut self, leaf: Block<'g>, branch: &Branch<'g>) {
        let lane = &mut self.lanes[branch.lane as usize];
        let matches = match branch.through {
            Through::Whole => leaf.text() == lane.topic,
            Through::Literal | Through::Plus => {
                is_match(leaf.text(), lane.rest(branch.level as usize))
            }
        };
        if matches {
            lane.take(leaf.word(0));
        }
    }

    #[inline]
    fn is_level_of(&self, entry: Block<'g>, branch: &Branch<'g>) -> bool {
        let lane = &self.lanes[branch.lane as usize];
        let level = lane.levels[branch.level as usize];
        entry.tag() == tag(level.hash) && entry.text() == lane.name(level)
    }

    #[cold]
    fn find_in_list(&self, list: Block<'g>, branch: &Branch<'g>) -> Option<Word<'g>> {
        let lane = &self.lanes[branch.lane as usize];
        let (keys, name) = match branch.through {
            Through::Whole => (Keys::Whole, lane.topic),
            Through::Literal | Through::Plus => {
                let level = lane.levels[branch.level as usize];
                (Keys::Level, lane.name(level))
            }
        };
        let mut items = list.words().iter().copied();
        items.find(|item| item.block().is_some_and(|item| keys.is(name, item)))
    }
}
