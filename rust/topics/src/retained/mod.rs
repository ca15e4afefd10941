//! Retained values: a store of one value for each topic, searched by filters.
//!
//! The tree is that of the directory, with topics as texts and the cell of a value as payload. Replacing a value
//! swaps it in its cell; only a topic that is added or removed makes a version.

mod cell;
mod walk;

use smallvec::SmallVec;

use crate::sync::{AtomicUsize, GarbageCounter, Guard, Relaxed, Root, free_what_is_over, pin};
use crate::tree::hash::Hasher;
use crate::tree::lookup::payload_of;
use crate::tree::node::{Edit, GROUP_CURSOR_BYTES, Size, TreeVersion, measure};
use crate::tree::update::{Fields, change_tree};
use crate::tree::word::{Stored, Word};
use crate::{TopicFilter, TopicName};

use cell::Cell;
use walk::{WalkCall, WalkPosition};

/// One value for each topic. Shared by reference; readers and writers may be on any thread.
///
/// ```
/// use mqttcore_topics::{RetainedStore, TopicFilter, TopicLimits, TopicName};
///
/// let (retained, limits) = (RetainedStore::new(42), TopicLimits::default());
/// retained.set(TopicName::parse("rooms/1/light", &limits)?, "on");
/// retained.set(TopicName::parse("rooms/2/light", &limits)?, "off");
///
/// let mut seen = Vec::new();
/// let filter = TopicFilter::parse("rooms/+/light", &limits)?;
/// let rest = retained.walk(&filter, None, 100, &mut |topic, value| seen.push(format!("{topic} {value}")));
/// seen.sort();
/// assert_eq!(seen, ["rooms/1/light on", "rooms/2/light off"]);
/// assert!(rest.is_none());
/// # Ok::<(), mqttcore_topics::TopicError>(())
/// ```
pub struct RetainedStore<V: Clone + Send + Sync + 'static> {
    /// Its cells are of `V`.
    root: Root<State>,
    hasher: Hasher,
    weigh: fn(&V) -> usize,
    garbage: GarbageCounter,
    len: AtomicUsize,
    weight: AtomicUsize,
}

/// One version of the store; a compare-and-set replaces it.
struct State {
    fields: [Stored; 4],
    size: Size,
}

impl State {
    fn fields(&self) -> Fields<'_> {
        self.fields.each_ref().map(Stored::get)
    }
}

impl TreeVersion for State {
    fn empty() -> Self {
        Self {
            fields: [const { Stored::EMPTY }; 4],
            size: Size::default(),
        }
    }

    fn roots(&self) -> SmallVec<[Word<'_>; 5]> {
        SmallVec::from_slice(&self.fields())
    }
}

/// Position of a walk. It holds no version, so it may be kept for any time.
#[derive(Clone, Debug)]
pub struct RetainedCursor {
    /// The last topic that was visited. The walk is past it and everything before it, but not past the topics below
    /// it.
    after: Box<str>,
}

impl<V: Clone + Send + Sync + 'static> RetainedStore<V> {
    /// Makes an empty store. `seed` is the key of its hashes; publishers must not know it.
    pub fn new(seed: u64) -> Self {
        Self::weighing(seed, |_| 0)
    }

    /// Like [`new`](Self::new); also keeps the sum of `weigh` over all values.
    pub fn weighing(seed: u64, weigh: fn(&V) -> usize) -> Self {
        Self::with_hasher(Hasher::new(seed), weigh)
    }

    /// Like [`weighing`](Self::weighing), with only the hash bits in `mask`: for tests of collisions.
    #[doc(hidden)]
    pub fn with_hash_mask(seed: u64, weigh: fn(&V) -> usize, mask: u64) -> Self {
        Self::with_hasher(Hasher::masked(seed, mask), weigh)
    }

    fn with_hasher(hasher: Hasher, weigh: fn(&V) -> usize) -> Self {
        Self {
            root: Root::new(State::empty()),
            hasher,
            weigh,
            garbage: GarbageCounter::new(),
            len: AtomicUsize::new(0),
            weight: AtomicUsize::new(0),
        }
    }

    /// Stores the value of `topic`; returns the previous one.
    ///
    /// If the topic has a value, it is replaced in place: a reader sees the old or the new value, never none.
    pub fn set(&self, topic: TopicName<'_>, value: V) -> Option<V> {
        let guard = pin();
        // ORDERING: Relaxed, here and below: counts that order nothing. What comes is counted before it can be
        // seen, what goes after, so that neither count falls below zero.
        self.weight.fetch_add((self.weigh)(&value), Relaxed);
        let old = self.store(topic.as_str().as_bytes(), value, &guard);
        if let Some(old) = old {
            self.weight.fetch_sub((self.weigh)(old), Relaxed);
        }
        old.cloned()
    }

    /// Replaces the value in its cell, or links a new cell; repeats that until no other writer was faster.
    fn store<'g>(&'g self, topic: &[u8], mut value: V, guard: &'g Guard) -> Option<&'g V> {
        loop {
            let version = self.root.load(guard);
            let payload = payload_of(version.fields(), &self.hasher, topic);
            let Some(cell) = Cell::<V>::of(payload) else {
                match self.link(version, topic, payload, value, guard) {
                    Ok(()) => return None,
                    Err(unused) => value = unused,
                }
                continue;
            };
            match cell.replace(value, guard) {
                Ok(old) => return Some(old),
                Err(unused) => match self.link(version, topic, payload, unused, guard) {
                    Ok(()) => return None,
                    Err(unused) => value = unused,
                },
            }
        }
    }

    /// Replaces `gone`, which is empty or a cell without value, by a new cell; returns the value if another writer
    /// was faster.
    fn link(
        &self,
        version: &State,
        topic: &[u8],
        gone: Word<'_>,
        value: V,
        guard: &Guard,
    ) -> Result<(), V> {
        let new = Cell::<V>::make(value.clone());
        self.len.fetch_add(1, Relaxed); // ORDERING: see `set`.
        if self.exchange(version, topic, new, guard) {
            Cell::<V>::retire(gone, guard);
            return Ok(());
        }
        self.len.fetch_sub(1, Relaxed); // ORDERING: see `set`.
        Cell::<V>::retire(new, guard);
        Err(value)
    }

    /// Publishes a version in which `topic` has the payload `new`; `false` if another writer was faster.
    fn exchange(&self, version: &State, topic: &[u8], new: Word<'_>, guard: &Guard) -> bool {
        free_what_is_over();
        let mut edit = Edit::new(guard, &self.garbage, version.size);
        let mut fields = version.fields();
        if !change_tree(&mut edit, &self.hasher, &mut fields, topic, |_, _| new) {
            return true;
        }
        let next = State {
            fields: fields.map(Stored::from),
            size: edit.size(),
        };
        edit.publish(&self.root, version, next)
    }

    /// Removes the value of `topic`; returns it.
    pub fn remove(&self, topic: TopicName<'_>) -> Option<V> {
        self.remove_if(topic, |_| true)
    }

    /// Removes the value of `topic` if `is_due` returns true for it; returns it.
    ///
    /// If another thread stores a value meanwhile, `is_due` is called again with that value.
    pub fn remove_if(&self, topic: TopicName<'_>, is_due: impl Fn(&V) -> bool) -> Option<V> {
        let guard = pin();
        let topic = topic.as_str().as_bytes();
        let gone = payload_of(self.root.load(&guard).fields(), &self.hasher, topic);
        let old = Cell::<V>::of(gone)?.take_if(is_due, &guard)?;
        self.len.fetch_sub(1, Relaxed); // ORDERING: see `set`.
        self.weight.fetch_sub((self.weigh)(old), Relaxed);
        loop {
            let version = self.root.load(&guard);
            // A writer may have replaced and retired this cell meanwhile.
            if !payload_of(version.fields(), &self.hasher, topic).is_same(gone) {
                break;
            }
            if self.exchange(version, topic, Word::EMPTY, &guard) {
                Cell::<V>::retire(gone, &guard);
                break;
            }
        }
        Some(old.clone())
    }

    /// Returns a clone of the value of `topic`.
    pub fn get(&self, topic: TopicName<'_>) -> Option<V> {
        let guard = pin();
        let fields = self.root.load(&guard).fields();
        let payload = payload_of(fields, &self.hasher, topic.as_str().as_bytes());
        Cell::<V>::of(payload)?.load(&guard).cloned()
    }

    /// Returns the number of topics with a value.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) // ORDERING: see `set`.
    }

    /// Whether no topic has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sum of the weights of all values.
    pub fn weight(&self) -> usize {
        self.weight.load(Relaxed) // ORDERING: see `set`.
    }

    /// Visits the values that `filter` matches, from `cursor` on; returns where to continue, or `None` at the end.
    ///
    /// A call visits at most `limit` nodes of the tree (at least one), whether they match or not. So it visits at
    /// most `limit` values, and may visit none and still return a cursor. A topic that has a value during the whole
    /// walk is visited exactly once; the order is not specified. `visit` runs under the pin: it must not block. A
    /// leading wildcard does not match topics that begin with `$` [MQTT-4.7.2-1].
    pub fn walk(
        &self,
        filter: &TopicFilter,
        cursor: Option<RetainedCursor>,
        limit: usize,
        visit: &mut dyn FnMut(&str, &V),
    ) -> Option<RetainedCursor> {
        let resume = cursor.map(|cursor| WalkPosition::new(cursor.after, &self.hasher));
        self.answer(
            &WalkCall::new(filter, &self.hasher, resume.as_ref()),
            limit,
            visit,
        )
    }

    /// Like [`walk`](Self::walk) over all topics, including those that begin with `$`: for the broker itself.
    pub fn walk_all(
        &self,
        cursor: Option<RetainedCursor>,
        limit: usize,
        visit: &mut dyn FnMut(&str, &V),
    ) -> Option<RetainedCursor> {
        let resume = cursor.map(|cursor| WalkPosition::new(cursor.after, &self.hasher));
        self.answer(
            &WalkCall::for_all(&self.hasher, resume.as_ref()),
            limit,
            visit,
        )
    }

    fn answer(
        &self,
        ask: &WalkCall<'_>,
        limit: usize,
        visit: &mut dyn FnMut(&str, &V),
    ) -> Option<RetainedCursor> {
        let guard = pin();
        let fields = self.root.load(&guard).fields();
        let after = ask.walk(fields, limit.max(1), &mut |topic, payload| {
            if let Some(value) = Cell::<V>::of(payload).and_then(|cell| cell.load(&guard)) {
                visit(topic, value);
            }
        });
        after.map(|after| RetainedCursor { after })
    }

    /// Compares the counts with the whole tree; for tests, without concurrent writers.
    ///
    /// # Errors
    ///
    /// A description of the difference.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<usize, String> {
        let guard = pin();
        let version = self.root.load(&guard);
        let mut reached = measure(&version.fields());
        // The size of a cell is that of a group cursor; it counts as an entry.
        reached.nodes -= self.len();
        reached.bytes -= self.len() * GROUP_CURSOR_BYTES;
        if reached == version.size {
            return Ok(reached.nodes);
        }
        Err(format!(
            "I6: {reached:?} reachable, {:?} counted",
            version.size
        ))
    }
}

impl<V: Clone + Send + Sync + 'static> Drop for RetainedStore<V> {
    fn drop(&mut self) {
        Cell::<V>::clear_all(&mut self.root);
    }
}
