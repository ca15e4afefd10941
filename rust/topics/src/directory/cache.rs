//! A worker's cache of match results, valid until the directory changes.

use smallvec::SmallVec;

use super::Directory;
use super::snapshot::{MatchRequest, summarize};
use crate::subscribers::PackedSubscription;
use crate::sync::{Acquire, Arc};
use crate::{Match, Search, SubscriberId, TopicName, Visitor};

/// Maximum number of receivers of a cached topic.
pub(crate) const MOST_CACHED: usize = 16;

/// Maximum length of a cached topic, in bytes.
const TOPIC_BYTES: usize = 80;

/// Number of cached topics; a power of two.
const ENTRIES: usize = 512;

/// Matches after which the cache decides whether it is useful.
const WINDOW: u32 = 256;

/// Hits in a window below which it is not useful.
const FEW_HITS: u32 = WINDOW / 4;

/// Matches for which a cache that was not useful is disabled.
const PAUSE: u32 = 16 * WINDOW;

/// Number of results that a cache without memory remembers.
const PROBES: usize = 64;

/// The recent small results of one worker, valid until the directory changes. Owned by the worker, for one
/// directory.
///
/// It is useful if few topics get many messages and subscriptions rarely change. If hits are rare it disables
/// itself: then it costs a counter and no memory.
#[derive(Default)]
pub struct MatchCache {
    /// The directory that the entries are of.
    identity: Option<Arc<()>>,
    /// Empty until a window showed that they would be useful.
    entries: Vec<Entry>,
    probe: Probe,
    seen: u32,
    hits: u32,
    pause: u32,
}

/// Which results would have been hits.
struct Probe([u64; PROBES]);

impl Default for Probe {
    fn default() -> Self {
        Self([0; PROBES])
    }
}

impl Probe {
    /// Whether this was the last result with this index.
    fn saw(&mut self, hash: u64, changes: u64) -> bool {
        let seen = hash ^ changes;
        let place = usize::try_from(hash).unwrap_or(0) % PROBES;
        std::mem::replace(&mut self.0[place], seen) == seen
    }
}

#[derive(Clone, Copy, Default)]
struct Receiver {
    handle: u64,
    /// Its merged subscriptions, as bits.
    sum: u64,
}

/// In the order in which a hit reads it, from the start of a cache line on.
#[derive(Clone)]
#[repr(C, align(64))]
struct Entry {
    hash: u64,
    /// Number of changes before the lookup.
    changes: u64,
    topic_len: u16,
    receiver_count: u16,
    topic: [u8; TOPIC_BYTES],
    receivers: [Receiver; MOST_CACHED],
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            hash: 0,
            changes: u64::MAX,
            topic_len: 0,
            receiver_count: 0,
            topic: [0; TOPIC_BYTES],
            receivers: [Receiver::default(); MOST_CACHED],
        }
    }
}

/// The key of a result.
#[derive(Clone, Copy)]
struct Key<'t> {
    hash: u64,
    /// Number of changes before the lookup.
    changes: u64,
    topic: &'t [u8],
}

impl Entry {
    #[inline]
    fn is_of(&self, key: Key<'_>) -> bool {
        self.hash == key.hash
            && self.changes == key.changes
            && self.topic.get(..self.topic_len.into()) == Some(key.topic)
    }

    #[inline]
    fn receivers(&self) -> &[Receiver] {
        &self.receivers[..self.receiver_count.into()]
    }

    /// Caches a result that is small enough; makes room for its receivers.
    fn keep(&mut self, key: Key<'_>) {
        self.topic[..key.topic.len()].copy_from_slice(key.topic);
        // INVARIANT: at most `TOPIC_BYTES`.
        self.topic_len = u16::try_from(key.topic.len()).unwrap_or(0);
        (self.hash, self.changes, self.receiver_count) = (key.hash, key.changes, 0);
    }

    fn add(&mut self, receiver: Receiver) {
        self.receivers[usize::from(self.receiver_count)] = receiver;
        self.receiver_count += 1;
    }
}

impl Receiver {
    #[inline]
    fn visit(self, visitor: &mut impl Visitor) {
        let sum = PackedSubscription::from_bits(self.sum);
        visitor.plain(Match {
            handle: self.handle,
            subscriber: sum.subscriber(),
            qos: sum.qos(),
            retain_as_published: sum.retain_as_published(),
            ids: sum.id().as_slice(),
        });
    }
}

impl MatchCache {
    /// Makes an empty cache. It takes its memory, about 190 KB, once a quarter of 256 matches would have been hits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the cache is disabled because its last window had too few hits.
    pub fn is_aside(&self) -> bool {
        self.pause > 0
    }

    /// Counts a match; `false` while the cache is disabled.
    #[inline]
    fn takes_part(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        self.seen += 1;
        if self.seen > WINDOW {
            self.end_window();
        }
        self.pause == 0
    }

    #[cold]
    fn end_window(&mut self) {
        if self.hits < FEW_HITS {
            self.entries = Vec::new();
            self.pause = PAUSE;
        } else if self.entries.is_empty() {
            self.entries = vec![Entry::default(); ENTRIES];
        }
        (self.seen, self.hits) = (1, 0);
    }

    /// Clears the cache if the directory is another one.
    fn belong_to(&mut self, directory: &Directory) {
        let is_same = |identity: &Arc<()>| Arc::ptr_eq(identity, &directory.identity);
        if !self.identity.as_ref().is_some_and(is_same) {
            self.identity = Some(Arc::clone(&directory.identity));
            self.entries.fill(Entry::default());
        }
    }
}

/// The two adjacent entries that may hold a topic.
#[inline]
fn places(hash: u64) -> [usize; 2] {
    let first = usize::try_from(hash).unwrap_or(0) % ENTRIES;
    [first, first ^ 1]
}

impl Directory {
    /// As [`match_one`](crate::Snapshot::match_one) on the current version, with a worker's cache.
    ///
    /// Every commit and leave that is over when this begins is seen; one that is under way may be. A hit
    /// takes no pin and reads one word that is shared. Results with No Local or shared groups are never
    /// cached. Returns whether the result came from the cache.
    #[inline]
    pub fn match_cached(
        &self,
        cache: &mut MatchCache,
        topic: TopicName<'_>,
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) -> bool {
        let Some(key) = self.key_in(cache, topic) else {
            self.snapshot().match_one(topic, publisher, random, visitor);
            return false;
        };
        let places = places(key.hash);
        let mut entries = places.into_iter().map(|place| &cache.entries[place]);
        if let Some(entry) = entries.find(|entry| entry.is_of(key)) {
            cache.hits += 1;
            visitor.searched(Search {
                steps: 1,
                is_complete: true,
            });
            let receivers = entry.receivers().iter();
            receivers.for_each(|receiver| receiver.visit(visitor));
            return true;
        }
        let message = MatchRequest {
            topic,
            publisher,
            random,
        };
        // The second place is for a topic whose first place is taken by another topic that may be in use, too.
        let [first, second] = places;
        let is_taken = cache.entries[first].changes == key.changes;
        let entry = &mut cache.entries[if is_taken { second } else { first }];
        self.match_and_keep(entry, key, message, visitor);
        false
    }

    /// The key of a topic whose result may be in the cache; `None` while the cache has no memory or is
    /// disabled.
    #[inline]
    fn key_in<'t>(&self, cache: &mut MatchCache, topic: TopicName<'t>) -> Option<Key<'t>> {
        let topic = topic.as_str().as_bytes();
        if topic.len() > TOPIC_BYTES || !cache.takes_part() {
            return None;
        }
        cache.belong_to(self);
        let key = Key {
            hash: self.hasher.hash(topic),
            // ORDERING: Acquire pairs with the release of a change: a result that is looked up from here on shows it.
            changes: self.changes.load(Acquire),
            topic,
        };
        if cache.entries.is_empty() {
            cache.hits += u32::from(cache.probe.saw(key.hash, key.changes));
            return None;
        }
        Some(key)
    }

    /// Matches a topic and caches the result if possible.
    #[inline]
    fn match_and_keep(
        &self,
        entry: &mut Entry,
        key: Key<'_>,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        let snapshot = self.snapshot();
        let topic_walk = snapshot.search(message.topic);
        let mut sums = SmallVec::new();
        if !summarize(&topic_walk, &mut sums) {
            snapshot.deliver(&topic_walk, message, visitor);
            return;
        }
        visitor.searched(topic_walk.search());
        entry.keep(key);
        for sum in sums {
            // Under the pin of the snapshot a subscriber number has the meaning that it had in its version. Removed
            // subscribers are left out; a removal from here on changes the count.
            let subscriber = PackedSubscription::from_bits(sum).subscriber();
            if let Some(handle) = self.clients.handle(subscriber) {
                entry.add(Receiver { handle, sum });
            }
        }
        let receivers = entry.receivers().iter();
        receivers.for_each(|receiver| receiver.visit(visitor));
    }

    /// As [`match_many`](crate::Snapshot::match_many), with a worker's cache if the tree is too small for
    /// interleaving. Returns how many results came from the cache.
    pub fn match_many_cached(
        &self,
        cache: &mut MatchCache,
        topics: &[TopicName<'_>],
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) -> usize {
        let snapshot = self.snapshot();
        if snapshot.is_worth_interleaving() {
            snapshot.match_many(topics, publisher, random, visitor);
            return 0;
        }
        drop(snapshot);
        let mut hits = 0;
        for (index, topic) in topics.iter().enumerate() {
            visitor.topic(index);
            let random = self.hasher.scramble(random ^ index as u64);
            let is_hit = self.match_cached(cache, *topic, publisher, random, visitor);
            hits += usize::from(is_hit);
        }
        hits
    }
}
