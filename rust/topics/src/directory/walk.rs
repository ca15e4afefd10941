//! Walks the tree to find the payloads of all filters that match a topic.
//!
//! A topic opens branches: one in the exact index, one in the tree, and another one wherever the tree has both `+`
//! and the literal level. Each branch is a chain of dependent reads. In a large tree, the branches of one or several
//! topics are therefore interleaved: each advances by one read and prefetches its next one.

use smallvec::SmallVec;

use super::version::DirectoryVersion;
use crate::Search;
use crate::levels::{is_match_counted, level_len, split_level, taken_by};
use crate::subscribers::{parts, set};
use crate::tree::hamt::{DIGIT_BITS, KeyKind, digit, find};
use crate::tree::hash::Hasher;
use crate::tree::node::Block;
use crate::tree::update::{Fields, HASH, HERE, KIDS, PLUS, fields_of};
use crate::tree::word::{View, Word};

/// A filter that matched, with its payload.
#[derive(Clone, Copy)]
pub(crate) struct MatchedFilter<'g> {
    pub(crate) payload: Word<'g>,
    /// The handle of the only subscription, if the leaf stores it.
    pub(crate) handle: Word<'g>,
}

impl<'g> MatchedFilter<'g> {
    pub(crate) fn plain(payload: Word<'g>) -> Self {
        let handle = Word::EMPTY;
        Self { payload, handle }
    }

    #[inline]
    fn of(leaf: Block<'g>) -> Self {
        let (payload, handle) = match leaf.words() {
            [payload, handle] => (*payload, *handle),
            words => (words.first().copied().unwrap_or(Word::EMPTY), Word::EMPTY),
        };
        Self { payload, handle }
    }
}

/// Maximum number of interleaved topics.
pub(crate) const INTERLEAVED_TOPICS: usize = 16;

/// Maximum number of steps of the walk of one topic: nodes visited, and a share for `+` passed between nodes. A topic
/// that takes more is refused.
///
/// A topic of `n` levels leads to less than 2^(n+1) nodes, and to that many only if filters have both `+` and a
/// literal on every level. So a topic of up to [`LEVELS_FOR_SURE`] levels is never refused, and a longer one only
/// with such filters.
pub(crate) const MOST_STEPS: usize = 8192;

/// Up to this number of levels, the nodes take at most half of the steps.
pub(crate) const LEVELS_FOR_SURE: usize = MOST_STEPS.ilog2() as usize - 2;

/// Number of `+` passed between nodes that take about as long as one node.
const PASSED_A_STEP: usize = 4;

/// Number of level hashes that a walk caches: its branches need the same ones.
const KEPT: usize = 8;

/// One level of a topic: where it starts and ends, and its hash.
#[derive(Clone, Copy)]
struct TopicLevel {
    start: u32,
    end: u32,
    hash: u64,
}

impl TopicLevel {
    const NONE: Self = Self {
        start: u32::MAX,
        end: 0,
        hash: 0,
    };
}

/// The walk of one topic through the tree.
pub(crate) struct TopicWalk<'t, 'g> {
    topic: &'t [u8],
    /// The last hashed level of each start position modulo [`KEPT`].
    levels: [TopicLevel; KEPT],
    pub(crate) found: SmallVec<[MatchedFilter<'g>; 12]>,
    /// Nodes visited.
    nodes: usize,
    /// Number of `+` passed in runs of levels between nodes.
    passed: usize,
}

/// The position of a branch: a map or an item of one.
#[derive(Clone, Copy)]
struct Branch<'g> {
    word: Word<'g>,
    /// The digits of the hash that are not used yet.
    path: u64,
    /// Start of the level that is the key of the items.
    at: u32,
    topic_walk: u32,
    through: ItemKey,
}

/// The key of the items.
#[derive(Clone, Copy, Eq, PartialEq)]
enum ItemKey {
    /// A level of the topic, in the tree.
    Level,
    /// The whole text, in the exact index.
    Whole,
}

impl<'t, 'g> TopicWalk<'t, 'g> {
    #[inline]
    pub(crate) fn new(topic: &'t [u8]) -> Self {
        Self {
            topic,
            levels: [TopicLevel::NONE; KEPT],
            found: SmallVec::new(),
            nodes: 0,
            passed: 0,
        }
    }

    #[inline]
    fn steps(&self) -> usize {
        self.nodes + self.passed / PASSED_A_STEP
    }

    /// Cost of the walk, and whether it was complete.
    #[inline]
    pub(crate) fn search(&self) -> Search {
        let subscriptions = || {
            let sets = self.found.iter().map(|found| parts(found.payload).0);
            sets.map(set::len).sum::<usize>()
        };
        Search {
            steps: self.steps().max(1) + subscriptions(),
            is_complete: !self.is_given_up(),
        }
    }

    /// Whether the walk stopped early because it took too many steps.
    #[inline]
    pub(crate) fn is_given_up(&self) -> bool {
        self.steps() > MOST_STEPS
    }

    /// Returns the level that starts at byte `at`.
    #[inline]
    fn level(&mut self, at: usize, hasher: &Hasher) -> TopicLevel {
        let kept = &mut self.levels[at % KEPT];
        if kept.start as usize != at {
            let rest = &self.topic[at..];
            let len = level_len(rest);
            // INVARIANT: a topic has at most 65,535 bytes, so the casts cut nothing.
            #[expect(clippy::cast_possible_truncation, reason = "topics are short")]
            let level = TopicLevel {
                start: at as u32,
                end: (at + len) as u32,
                hash: hasher.hash(&rest[..len]),
            };
            *kept = level;
        }
        *kept
    }

    #[inline]
    fn take(&mut self, payload: Word<'g>) {
        if !payload.is_empty() {
            self.found.push(MatchedFilter::plain(payload));
        }
    }

    #[inline]
    fn name(&self, level: TopicLevel) -> &'t [u8] {
        &self.topic[level.start as usize..level.end as usize]
    }
}

/// Collects the payload of every filter that matches the topic of `topic_walk`: one branch after the other.
#[inline]
pub(crate) fn collect<'g>(
    version: &'g DirectoryVersion,
    hasher: &Hasher,
    topic_walk: &mut TopicWalk<'_, 'g>,
) {
    let topic = topic_walk.topic;
    if version.has_exact() {
        let exact = find(version.exact(), hasher.hash(topic), topic, KeyKind::Whole);
        if let Some(leaf) = exact.and_then(Word::block) {
            topic_walk.found.push(MatchedFilter::of(leaf));
        }
    }
    if version.has_wild() {
        topic_walk.follow(hasher, &reachable(version.wild(), topic));
    }
}

/// A node to visit.
#[derive(Clone, Copy)]
struct Node<'n, 'g> {
    fields: &'n Fields<'g>,
    /// Start of the level that its children are compared with; one byte past the end of the topic if no level is
    /// left.
    at: usize,
}

impl<'g> TopicWalk<'_, 'g> {
    /// Follows the literal levels; branches of `+` wait in a list.
    #[inline]
    fn follow(&mut self, hasher: &Hasher, root: &Fields<'g>) {
        let mut pending: SmallVec<[Node<'_, 'g>; 8]> = SmallVec::new();
        let mut node = Node {
            fields: root,
            at: 0,
        };
        loop {
            self.nodes += 1;
            if self.is_given_up() {
                return;
            }
            let next = self.visit(hasher, node, &mut pending);
            let Some(next) = next.or_else(|| pending.pop()) else {
                return;
            };
            node = next;
        }
    }

    /// Visits one node; returns the literal child if it is a node, too.
    #[inline]
    fn visit<'n>(
        &mut self,
        hasher: &Hasher,
        Node { fields, at }: Node<'n, 'g>,
        pending: &mut SmallVec<[Node<'n, 'g>; 8]>,
    ) -> Option<Node<'n, 'g>>
    where
        'g: 'n,
    {
        self.take(fields[HASH]);
        if at > self.topic.len() {
            self.take(fields[HERE]);
            return None;
        }
        if !fields[PLUS].is_empty()
            && let Some(node) = self.child(fields[PLUS], at)
        {
            pending.push(node);
        }
        if fields[KIDS].is_empty() {
            return None;
        }
        let level = self.level(at, hasher);
        let kid = find(fields[KIDS], level.hash, self.name(level), KeyKind::Level)?;
        self.child(kid, at)
    }

    /// Takes the payload of a leaf that matches; returns the node of an entry that matches.
    #[inline]
    fn child(&mut self, child: Word<'g>, at: usize) -> Option<Node<'g, 'g>> {
        let rest = &self.topic[at..];
        match child.view() {
            View::Leaf(leaf) => {
                if is_match_counted(leaf.text(), rest, &mut self.passed) {
                    self.found.push(MatchedFilter::of(leaf));
                }
                None
            }
            View::Entry(entry) => {
                let taken = taken_by(entry.text(), rest, &mut self.passed)?;
                Some(Node {
                    fields: fields_of(entry),
                    at: at + taken + 1,
                })
            }
            _ => None,
        }
    }
}

/// Like [`collect`] for several walks, at most [`INTERLEAVED_TOPICS`], with interleaved branches.
pub(crate) fn collect_interleaved<'g>(
    version: &'g DirectoryVersion,
    hasher: &Hasher,
    topic_walks: &mut [TopicWalk<'_, 'g>],
) {
    let mut walk = Walk {
        hasher,
        topic_walks,
        opened: SmallVec::new(),
    };
    for (index, topic_walk) in (0_u32..).zip(0..walk.topic_walks.len()) {
        let topic = walk.topic_walks[topic_walk].topic;
        if version.has_exact() {
            walk.opened.push(Branch {
                word: version.exact(),
                path: hasher.hash(topic),
                at: 0,
                topic_walk: index,
                through: ItemKey::Whole,
            });
        }
        if version.has_wild() {
            walk.open(&reachable(version.wild(), topic), index, 0);
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
    topic_walks: &'w mut [TopicWalk<'t, 'g>],
    /// Branches that have not advanced yet.
    opened: SmallVec<[Branch<'g>; 32]>,
}

impl<'g> Walk<'_, '_, 'g> {
    /// Advances all branches, interleaved, until none is left.
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

    /// Visits a node: takes the payloads that end here and opens the branches below.
    #[inline]
    fn open(&mut self, fields: &Fields<'g>, topic_walk: u32, at: u32) {
        let here = &mut self.topic_walks[topic_walk as usize];
        if here.is_given_up() {
            return;
        }
        here.nodes += 1;
        here.take(fields[HASH]);
        if at as usize > here.topic.len() {
            here.take(fields[HERE]);
            return;
        }
        let mut open = |word: Word<'g>, path| {
            word.prefetch(digit(path, 0));
            self.opened.push(Branch {
                word,
                path,
                at,
                topic_walk,
                through: ItemKey::Level,
            });
        };
        if !fields[PLUS].is_empty() {
            open(fields[PLUS], 0);
        }
        if !fields[KIDS].is_empty() {
            open(fields[KIDS], here.level(at as usize, self.hasher).hash);
        }
    }

    /// Advances a branch by one read and prefetches the next; `false` at its end.
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
            View::Entry(entry) => {
                let topic_walk = &mut self.topic_walks[branch.topic_walk as usize];
                let rest = &topic_walk.topic[branch.at as usize..];
                if let Some(taken) = taken_by(entry.text(), rest, &mut topic_walk.passed) {
                    // INVARIANT: a topic has at most 65,535 bytes, so the cast cuts nothing.
                    #[expect(clippy::cast_possible_truncation, reason = "topics are short")]
                    let at = branch.at + taken as u32 + 1;
                    self.open(fields_of(entry), branch.topic_walk, at);
                }
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
        let topic_walk = &mut self.topic_walks[branch.topic_walk as usize];
        let matches = match branch.through {
            ItemKey::Whole => leaf.text() == topic_walk.topic,
            ItemKey::Level => {
                let rest = &topic_walk.topic[branch.at as usize..];
                is_match_counted(leaf.text(), rest, &mut topic_walk.passed)
            }
        };
        if matches {
            topic_walk.found.push(MatchedFilter::of(leaf));
        }
    }

    #[cold]
    fn find_in_list(&self, list: Block<'g>, branch: &Branch<'g>) -> Option<Word<'g>> {
        let topic = self.topic_walks[branch.topic_walk as usize].topic;
        let (keys, name) = match branch.through {
            ItemKey::Whole => (KeyKind::Whole, topic),
            ItemKey::Level => (KeyKind::Level, split_level(&topic[branch.at as usize..]).0),
        };
        let mut items = list.words().iter().copied();
        items.find(|item| item.block().is_some_and(|item| keys.is(name, item)))
    }
}
