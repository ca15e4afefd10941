//! From topics to the payloads of all filters that match them.
//!
//! A topic opens branches: one in the exact index, one in the tree, one more wherever a `+` stands beside a literal
//! level. Each branch is a chain of reads that wait for each other, so in a large tree many branches, of one topic
//! or of several, advance in turn: one read each, with the next already asked for.

use smallvec::SmallVec;

use super::version::State;
use crate::levels::{is_match, level_len};
use crate::tree::hamt::{DIGIT_BITS, Keys, digit, find, slot};
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
    level: u16,
    lane: u8,
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

    /// The topic from a level on.
    #[inline]
    fn rest(&self, level: usize) -> &'t [u8] {
        &self.topic[self.levels[level].start as usize..]
    }
}

/// Collects the payload of every filter that matches `topic`: one branch after the other.
#[inline]
pub(crate) fn collect<'g>(version: &'g State, hasher: &Hasher, topic: &[u8]) -> Found<'g> {
    let mut lanes = [Lane::new(topic)];
    let mut walk = Walk::new(hasher, &mut lanes);
    if version.has_exact() {
        let exact = find(version.exact(), hasher.hash(topic), topic, Keys::Whole);
        if let Some(leaf) = exact.and_then(Word::block) {
            walk.lanes[0].take(leaf.word(0));
        }
    }
    if version.has_wild() {
        let mut next = walk.enter(reachable(version.wild(), topic), 0, 0);
        while let Some(mut branch) = next {
            next = loop {
                match walk.step(branch) {
                    Some(further) => branch = further,
                    None => break walk.pending.pop(),
                }
            };
        }
    }
    let [lane] = lanes;
    lane.found
}

/// As [`collect`] for each lane, all branches in turn. What was found is on its way into the cache afterwards.
pub(crate) fn collect_in_turn<'g>(version: &'g State, hasher: &Hasher, lanes: &mut [Lane<'_, 'g>]) {
    let mut walk = Walk::new(hasher, lanes);
    for index in 0..walk.lanes.len().min(LANES) {
        // INVARIANT: there are few lanes.
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 lanes")]
        let lane = index as u8;
        let topic = walk.lanes[index].topic;
        if version.has_exact() {
            walk.pending.push(Branch {
                word: version.exact(),
                path: hasher.hash(topic),
                level: 0,
                lane,
                through: Through::Whole,
            });
        }
        if version.has_wild() {
            let first = walk.enter(reachable(version.wild(), topic), lane, 0);
            walk.pending.extend(first);
        }
    }
    walk.run_in_turn();
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
    pending: SmallVec<[Branch<'g>; 32]>,
}

impl<'w, 't, 'g> Walk<'w, 't, 'g> {
    #[inline]
    fn new(hasher: &'w Hasher, lanes: &'w mut [Lane<'t, 'g>]) -> Self {
        Self {
            hasher,
            lanes,
            pending: SmallVec::new(),
        }
    }

    /// Visits a node; answers the branch of its literal child. That of `+` waits.
    #[inline]
    fn enter(&mut self, fields: Fields<'g>, lane: u8, level: u16) -> Option<Branch<'g>> {
        let here = &mut self.lanes[usize::from(lane)];
        here.take(fields[HASH]);
        let Some(found) = here.level(usize::from(level), self.hasher) else {
            here.take(fields[HERE]);
            return None;
        };
        let branch = |word, through| Branch {
            word,
            path: found.hash,
            level,
            lane,
            through,
        };
        let literal = branch(fields[KIDS], Through::Literal);
        if fields[PLUS].is_empty() {
            return (!fields[KIDS].is_empty()).then_some(literal);
        }
        let plus = branch(fields[PLUS], Through::Plus);
        if fields[KIDS].is_empty() {
            return Some(plus);
        }
        plus.word.prefetch();
        self.pending.push(plus);
        Some(literal)
    }

    /// Advances a branch by one read; `None` at its end.
    #[inline]
    fn step(&mut self, branch: Branch<'g>) -> Option<Branch<'g>> {
        match branch.word.view() {
            View::Hamt(block) => {
                let digit = digit(branch.path, 0);
                let bitmap = block.tag();
                (bitmap & (1 << digit) != 0).then(|| Branch {
                    word: block.word(slot(bitmap, digit)),
                    path: branch.path >> DIGIT_BITS,
                    ..branch
                })
            }
            View::Leaf(leaf) => {
                self.leaf(leaf, branch);
                None
            }
            View::Entry(entry) => {
                if branch.through == Through::Literal && !self.is_level_of(entry, branch) {
                    return None;
                }
                self.enter(fields_of(entry), branch.lane, branch.level + 1)
            }
            View::Collision(list) => self.find_in_list(list, branch),
            _ => None,
        }
    }

    /// Takes the payload of a leaf that matches the topic from the branch's level on.
    #[inline]
    fn leaf(&mut self, leaf: Block<'g>, branch: Branch<'g>) {
        let lane = &mut self.lanes[usize::from(branch.lane)];
        let matches = match branch.through {
            Through::Whole => leaf.text() == lane.topic,
            // Most leaves that a literal level leads to have that level, so the tag would save little.
            Through::Literal | Through::Plus => {
                is_match(leaf.text(), lane.rest(usize::from(branch.level)))
            }
        };
        if matches {
            lane.take(leaf.word(0));
        }
    }

    #[inline]
    fn is_level_of(&self, entry: Block<'g>, branch: Branch<'g>) -> bool {
        let lane = &self.lanes[usize::from(branch.lane)];
        let level = lane.levels[usize::from(branch.level)];
        let name = &lane.topic[level.start as usize..level.end as usize];
        entry.tag() == tag(level.hash) && entry.text() == name
    }

    #[cold]
    fn find_in_list(&self, list: Block<'g>, branch: Branch<'g>) -> Option<Branch<'g>> {
        let lane = &self.lanes[usize::from(branch.lane)];
        let (keys, name) = match branch.through {
            Through::Whole => (Keys::Whole, lane.topic),
            Through::Literal | Through::Plus => {
                let level = lane.levels[usize::from(branch.level)];
                let name = &lane.topic[level.start as usize..level.end as usize];
                (Keys::Level, name)
            }
        };
        let mut items = list.words().iter();
        let has_name = |item: &&Word<'g>| item.block().is_some_and(|item| keys.is(name, item));
        let word = *items.find(has_name)?;
        Some(Branch { word, ..branch })
    }

    /// Advances all branches in turn until none is left.
    fn run_in_turn(&mut self) {
        while !self.pending.is_empty() {
            let mut index = 0;
            while let Some(branch) = self.pending.get(index) {
                match self.step(*branch) {
                    Some(further) => {
                        further.word.prefetch();
                        self.pending[index] = further;
                        index += 1;
                    }
                    None => {
                        self.pending.swap_remove(index);
                    }
                }
            }
        }
    }
}
