//! Walks the tree to find the topics that a filter matches, in several calls.
//!
//! The walk has a fixed order: first the topic that ends at a node, then its levels by the digits of their hashes,
//! then by their bytes. So every topic has a place in that order, with or without a value, and a walk can continue
//! from it in any later version.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::TopicFilter;
use crate::levels::{SEPARATOR, is_match, levels, split_level};
use crate::tree::hamt::{DIGIT_BITS, KeyKind, digit, find};
use crate::tree::hash::Hasher;
use crate::tree::update::{Fields, HERE, KIDS, fields_of};
use crate::tree::word::{View, Word};

/// The topic after which a walk continues, with the hashes of its levels.
pub(crate) struct WalkPosition {
    topic: Box<str>,
    hashes: Vec<u64>,
}

impl WalkPosition {
    pub(crate) fn new(topic: Box<str>, hasher: &Hasher) -> Self {
        let digests = topic
            .split('/')
            .map(|level| hasher.hash(level.as_bytes()))
            .collect();
        Self {
            topic,
            hashes: digests,
        }
    }

    /// The level `depth` of the topic and its hash.
    fn level(&self, depth: usize) -> Option<(&[u8], u64)> {
        let hash = self.hashes.get(depth)?;
        Some((self.topic.split('/').nth(depth)?.as_bytes(), *hash))
    }
}

/// The pattern of a filter at one level.
#[derive(Clone, Copy)]
enum LevelPattern<'f> {
    /// This level.
    Only(&'f [u8]),
    /// Any one level.
    Any,
    /// The parent, and everything below.
    All,
    /// No further level.
    End,
}

/// One part of the tree that is not visited yet.
#[derive(Clone, Copy)]
struct Task<'g> {
    /// A map, or an item of one.
    word: Word<'g>,
    /// The level of the items of the map.
    depth: usize,
    /// Length of the topic before that level.
    path_len: usize,
    /// The bits of the hash that the path through the map has used.
    shift: u32,
    /// The path to here is that of the topic where the walk continues: what comes before it is skipped.
    is_bound: bool,
}

/// One call of a walk.
pub(crate) struct WalkCall<'a> {
    hasher: &'a Hasher,
    filter: &'a str,
    levels: SmallVec<[&'a [u8]; 16]>,
    resume: Option<&'a WalkPosition>,
    /// Whether topics that begin with `$` match a leading wildcard: for the broker itself.
    is_inner: bool,
}

impl<'a> WalkCall<'a> {
    pub(crate) fn new(
        filter: &'a TopicFilter,
        hasher: &'a Hasher,
        resume: Option<&'a WalkPosition>,
    ) -> Self {
        let filter = filter.as_str();
        let levels = filter.split('/').map(str::as_bytes).collect();
        Self {
            hasher,
            filter,
            levels,
            resume,
            is_inner: false,
        }
    }

    /// A walk over all topics.
    pub(crate) fn for_all(hasher: &'a Hasher, resume: Option<&'a WalkPosition>) -> Self {
        Self {
            hasher,
            filter: "#",
            levels: SmallVec::from_slice(&[b"#".as_slice()]),
            resume,
            is_inner: true,
        }
    }

    /// Visits the matches; returns the topic after which to continue, or `None` at the end.
    pub(crate) fn walk<'g>(
        &self,
        root: Fields<'g>,
        limit: usize,
        visit: &mut dyn FnMut(&str, Word<'g>),
    ) -> Option<Box<str>> {
        let mut walk = Walk {
            ask: self,
            pending: Vec::new(),
            path: Vec::new(),
            looked_at: 0,
            visit,
        };
        walk.open(root, 0, self.resume.is_some());
        while let Some(task) = walk.pending.pop() {
            if walk.looked_at == limit {
                return Some(utf8(&walk.path).into());
            }
            walk.run(task);
        }
        None
    }

    fn want(&self, depth: usize) -> LevelPattern<'a> {
        let last = self.levels.len() - 1;
        match self.levels.get(depth.min(last)) {
            Some(&b"#") => LevelPattern::All,
            Some(_) | None if depth > last => LevelPattern::End,
            Some(&b"+") => LevelPattern::Any,
            Some(level) => LevelPattern::Only(level),
            None => LevelPattern::End,
        }
    }

    /// The filter from level `depth` on.
    fn rest(&self, depth: usize) -> &'a [u8] {
        let last = self.levels.len() - 1;
        let skipped = &self.levels[..depth.min(last)];
        let start: usize = skipped.iter().map(|level| level.len() + 1).sum();
        &self.filter.as_bytes()[start..]
    }

    /// [MQTT-4.7.2-1] A leading wildcard does not reach topics that begin with `$`.
    fn is_out_of_reach(&self, depth: usize, level: &[u8]) -> bool {
        !self.is_inner
            && depth == 0
            && level.first() == Some(&b'$')
            && !matches!(self.want(0), LevelPattern::Only(_))
    }

    /// The order of a text that begins at level `depth`, compared with the topic where the walk continues.
    fn order(&self, text: &[u8], mut depth: usize) -> Ordering {
        let mut rest = Some(text);
        loop {
            let resumed = self.resume.and_then(|resume| resume.level(depth));
            let (Some(text), Some((level, hash))) = (rest, resumed) else {
                return rest.is_some().cmp(&resumed.is_some());
            };
            let (mine, below) = split_level(text);
            let order = order_of_levels((mine, self.hasher.hash(mine)), (level, hash));
            if order.is_ne() {
                return order;
            }
            rest = below;
            depth += 1;
        }
    }
}

/// The order in which a map is walked: by the digits of the hashes, then by the bytes.
fn order_of_levels(one: (&[u8], u64), two: (&[u8], u64)) -> Ordering {
    let digits = |hash| {
        (0..u64::BITS)
            .step_by(DIGIT_BITS as usize)
            .map(move |s| digit(hash, s))
    };
    digits(one.1)
        .cmp(digits(two.1))
        .then_with(|| one.0.cmp(two.0))
}

fn utf8(path: &[u8]) -> &str {
    // INVARIANT: a path is made of whole levels of topic names, joined by separators.
    std::str::from_utf8(path).expect("levels are valid UTF-8")
}

struct Walk<'w, 'a, 'g> {
    ask: &'w WalkCall<'a>,
    /// The last task is the next one: tasks are pushed in reverse order.
    pending: Vec<Task<'g>>,
    /// The topic that was visited last.
    path: Vec<u8>,
    looked_at: usize,
    visit: &'w mut dyn FnMut(&str, Word<'g>),
}

impl<'g> Walk<'_, '_, 'g> {
    /// Plans the levels below a node whose topic is in `path`.
    fn open(&mut self, fields: Fields<'g>, depth: usize, is_bound: bool) {
        let path_len = self.path.len() + usize::from(depth > 0);
        let kids = fields[KIDS];
        let word = match self.ask.want(depth) {
            LevelPattern::End => Word::EMPTY,
            LevelPattern::Any | LevelPattern::All => kids,
            LevelPattern::Only(level) => {
                let hash = self.ask.hasher.hash(level);
                find(kids, hash, level, KeyKind::Level).unwrap_or(Word::EMPTY)
            }
        };
        if !word.is_empty() {
            self.pending.push(Task {
                word,
                depth,
                path_len,
                shift: 0,
                is_bound,
            });
        }
    }

    fn run(&mut self, task: Task<'g>) {
        match task.word.view() {
            View::Hamt(branches) => self.split(task, branches.bitmap(), branches.slots()),
            View::Collision(list) => {
                let items = list.words().iter().rev();
                self.pending.extend(items.map(|item| Task {
                    word: *item,
                    ..task
                }));
            }
            View::Leaf(leaf) => self.leaf(task, leaf.text(), leaf.word(0)),
            View::Entry(entry) => self.entry(task, entry.text(), *fields_of(entry)),
            _ => {}
        }
    }

    /// Plans the slots of a HAMT block, without those before the topic where the walk continues.
    fn split(&mut self, task: Task<'g>, bitmap: u64, slots: &[Word<'g>]) {
        let resume = self.ask.resume.filter(|_| task.is_bound);
        let resumed = resume.and_then(|resume| resume.level(task.depth));
        let first = resumed.map(|(_, hash)| digit(hash, task.shift));
        let digits = (0..u64::BITS)
            .rev()
            .filter(|digit| bitmap & (1 << digit) != 0);
        for (digit, word) in digits.zip(slots.iter().rev()) {
            if first.is_none_or(|first| digit >= first) {
                let is_bound = first == Some(digit);
                let shift = task.shift + DIGIT_BITS;
                self.pending.push(Task {
                    word: *word,
                    shift,
                    is_bound,
                    ..task
                });
            }
        }
    }

    fn leaf(&mut self, task: Task<'g>, text: &[u8], payload: Word<'g>) {
        if task.is_bound && self.ask.order(text, task.depth).is_le() {
            return;
        }
        self.look_at(task, text);
        if !self.ask.is_out_of_reach(task.depth, text) && is_match(self.ask.rest(task.depth), text)
        {
            (self.visit)(utf8(&self.path), payload);
        }
    }

    fn entry(&mut self, task: Task<'g>, run: &[u8], fields: Fields<'g>) {
        let (order, levels) = self.order_of_run(task, run);
        if order.is_lt() || !self.wants_run(task.depth, run) {
            return;
        }
        let depth = task.depth + levels;
        self.set_path(task, run);
        if order.is_eq() {
            self.open(fields, depth, true);
            return;
        }
        self.looked_at += 1;
        let wants_this = matches!(self.ask.want(depth), LevelPattern::End | LevelPattern::All);
        if wants_this && !fields[HERE].is_empty() {
            (self.visit)(utf8(&self.path), fields[HERE]);
        }
        self.open(fields, depth, false);
    }

    /// Whether the filter may match below these levels.
    fn wants_run(&self, depth: usize, run: &[u8]) -> bool {
        let mut levels = levels(run).zip(depth..);
        !self.ask.is_out_of_reach(depth, run)
            && levels.all(|(level, depth)| match self.ask.want(depth) {
                LevelPattern::Only(wanted) => level == wanted,
                LevelPattern::Any | LevelPattern::All => true,
                LevelPattern::End => false,
            })
    }

    /// The order of the topics below a run, compared with the topic where the walk continues: equal if that topic is
    /// below the run, too, or is its end. Also returns the number of levels of the run.
    fn order_of_run(&self, task: Task<'g>, run: &[u8]) -> (Ordering, usize) {
        let resume = self.ask.resume.filter(|_| task.is_bound);
        let (mut order, mut count) = (Ordering::Equal, 0);
        for level in levels(run) {
            let resumed = resume.and_then(|resume| resume.level(task.depth + count));
            order = order.then_with(|| {
                resumed.map_or(Ordering::Greater, |resumed| {
                    order_of_levels((level, self.ask.hasher.hash(level)), resumed)
                })
            });
            count += 1;
        }
        (order, count)
    }

    fn look_at(&mut self, task: Task<'g>, text: &[u8]) {
        self.set_path(task, text);
        self.looked_at += 1;
    }

    fn set_path(&mut self, task: Task<'g>, text: &[u8]) {
        self.path.truncate(task.path_len.saturating_sub(1));
        if task.depth > 0 {
            self.path.push(SEPARATOR);
        }
        self.path.extend_from_slice(text);
    }
}
