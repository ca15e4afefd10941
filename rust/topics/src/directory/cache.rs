//! A worker's cache of match results, valid until the directory changes.

use smallvec::SmallVec;

use super::Directory;
use super::snapshot::{MatchRequest, Snapshot, summarize};
use super::walk::{INTERLEAVED_TOPICS, TopicWalk};
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

/// Number of sets of two results that a cache without memory remembers.
const PROBE_SETS: usize = 32;

/// The recent small results of one worker, valid until the directory changes. Owned by the worker, for one
/// directory.
///
/// It is useful if few topics get many messages and subscriptions rarely change. If hits are rare it disables
/// itself: then it costs a counter and no memory.
#[derive(Default)]
pub struct MatchCache {
    /// The directory of the entries.
    identity: Option<Arc<()>>,
    /// `None` until a window has shown that entries would be useful.
    entries: Option<Box<[Entry; ENTRIES]>>,
    probe: Probe,
    seen: u32,
    hits: u32,
    pause: u32,
}

/// The last results: those that would have been hits. Sets of two: two topics by turns do not hide each other.
#[derive(Default)]
struct Probe([[u64; 2]; PROBE_SETS]);

impl Probe {
    /// Whether this was one of the last two results of its set.
    fn saw(&mut self, hash: u64, changes: u64) -> bool {
        let result = hash ^ changes;
        let set = &mut self.0[usize::try_from(hash).unwrap_or(0) % PROBE_SETS];
        let [last, before] = *set;
        if last != result {
            *set = [result, last];
        }
        last == result || before == result
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
    /// Makes an empty cache. It allocates its memory, about 190 KB, after 256 matches of which a quarter would have
    /// been hits.
    pub fn new() -> Self {
        Self::default()
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
            self.entries = None;
            self.pause = PAUSE;
        } else if self.entries.is_none() {
            let entries = vec![Entry::default(); ENTRIES].into_boxed_slice();
            self.entries = entries.try_into().ok();
        }
        (self.seen, self.hits) = (1, 0);
    }

    /// The entry of this result.
    #[inline]
    fn find(&self, key: Key<'_>) -> Option<&Entry> {
        let entries = self.entries.as_ref()?;
        let places = places(key.hash).into_iter();
        let mut entries = places.map(|place| &entries[place]);
        entries.find(|entry| entry.is_of(key))
    }

    /// Visits the receivers of this result; `false` if it is not in the cache.
    #[inline]
    fn visit(&mut self, key: Key<'_>, visitor: &mut impl Visitor) -> bool {
        let Some(entry) = self.find(key) else {
            return false;
        };
        visitor.searched(Search {
            steps: 1,
            is_complete: true,
        });
        let receivers = entry.receivers().iter();
        receivers.for_each(|receiver| receiver.visit(visitor));
        self.hits += 1;
        true
    }

    /// Delivers the result of a search, and caches it if possible.
    #[inline]
    fn deliver_and_keep(
        &mut self,
        (snapshot, topic_walk): (&Snapshot<'_>, &TopicWalk<'_, '_>),
        key: Option<Key<'_>>,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        let mut sums = SmallVec::new();
        let entry = key.filter(|_| summarize(topic_walk, &mut sums));
        let Some((key, entry)) = entry.and_then(|key| Some((key, self.place_for(key)?))) else {
            snapshot.deliver(topic_walk, message, visitor);
            return;
        };
        visitor.searched(topic_walk.search());
        entry.keep(key);
        for sum in sums {
            // Under the pin of the snapshot a subscriber number has the meaning that it had in its version. Removed
            // subscribers are left out; a removal from here on changes the count.
            let subscriber = PackedSubscription::from_bits(sum).subscriber();
            if let Some(handle) = snapshot.directory.clients.handle(subscriber) {
                entry.add(Receiver { handle, sum });
            }
        }
        let receivers = entry.receivers().iter();
        receivers.for_each(|receiver| receiver.visit(visitor));
    }

    /// The entry for this result. The second place is used if the first one has another topic that may be in use,
    /// too.
    fn place_for(&mut self, key: Key<'_>) -> Option<&mut Entry> {
        let [first, second] = places(key.hash);
        let entries = self.entries.as_mut()?;
        let is_taken = entries[first].changes == key.changes;
        Some(&mut entries[if is_taken { second } else { first }])
    }

    /// Clears the cache if the directory is another one.
    #[inline]
    fn belong_to(&mut self, directory: &Directory) {
        let is_same = |identity: &Arc<()>| Arc::ptr_eq(identity, &directory.identity);
        if !self.identity.as_ref().is_some_and(is_same) {
            self.begin(directory);
        }
    }

    #[cold]
    fn begin(&mut self, directory: &Directory) {
        self.identity = Some(Arc::clone(&directory.identity));
        if let Some(entries) = &mut self.entries {
            entries.fill(Entry::default());
        }
    }
}

/// One value for each of the topics that are searched for together.
type Group<T> = SmallVec<[T; INTERLEAVED_TOPICS]>;

/// The source of the result of a topic: the cache, or one of the searches.
#[derive(Clone, Copy)]
struct Source<'t> {
    key: Option<Key<'t>>,
    walk: Option<usize>,
}

/// The two adjacent entries that may hold a topic.
#[inline]
fn places(hash: u64) -> [usize; 2] {
    let first = usize::try_from(hash).unwrap_or(0) % ENTRIES;
    [first, first ^ 1]
}

impl Directory {
    /// Like [`match_one`](crate::Snapshot::match_one) on the current version, with a worker's cache.
    ///
    /// It sees every commit and leave that was completed before it begins, and may see one that runs at the same
    /// time. A hit takes no pin and reads one shared word. Results with No Local or shared groups are never cached.
    /// Returns whether the result came from the cache.
    #[inline]
    pub fn match_cached(
        &self,
        cache: &mut MatchCache,
        topic: TopicName<'_>,
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) -> bool {
        let message = MatchRequest {
            topic,
            publisher,
            random,
        };
        let key = self.key_in(cache, topic);
        if key.is_some_and(|key| cache.visit(key, visitor)) {
            return true;
        }
        self.search_and_keep(cache, key, message, visitor);
        false
    }

    /// Searches for the receivers of a message, delivers the result, and caches it if possible. Not inlined: a hit
    /// needs none of its stack.
    #[inline(never)]
    fn search_and_keep(
        &self,
        cache: &mut MatchCache,
        key: Option<Key<'_>>,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        let snapshot = self.snapshot();
        let topic_walk = snapshot.search(message.topic);
        cache.deliver_and_keep((&snapshot, &topic_walk), key, message, visitor);
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
        if cache.entries.is_none() {
            cache.hits += u32::from(cache.probe.saw(key.hash, key.changes));
            return None;
        }
        Some(key)
    }

    /// Like [`match_many`](crate::Snapshot::match_many), with a worker's cache: only topics that are not in the cache
    /// are searched for, and a topic that occurs several times in a row is searched for once. Returns the number of
    /// results from the cache.
    pub fn match_many_cached(
        &self,
        cache: &mut MatchCache,
        topics: &[TopicName<'_>],
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) -> usize {
        let mut hits = 0;
        for (group, topics) in topics.chunks(INTERLEAVED_TOPICS).enumerate() {
            let first = group * INTERLEAVED_TOPICS;
            let (sources, missed) = self.sources(cache, topics);
            let snapshot = (!missed.is_empty()).then(|| self.snapshot());
            let topic_walks = snapshot
                .as_ref()
                .map(|snapshot| snapshot.search_many(&missed));
            for ((place, topic), source) in topics.iter().enumerate().zip(&sources) {
                let index = first + place;
                visitor.topic(index);
                let message = MatchRequest {
                    topic: *topic,
                    publisher,
                    random: self.hasher.scramble(random ^ index as u64),
                };
                if source.key.is_some_and(|key| cache.visit(key, visitor)) {
                    hits += 1;
                    continue;
                }
                let walk = source.walk.and_then(|walk| topic_walks.as_ref()?.get(walk));
                if let Some(found) = snapshot.as_ref().zip(walk) {
                    cache.deliver_and_keep(found, source.key, message, visitor);
                } else {
                    // A result of this group has taken its place in the cache.
                    self.snapshot()
                        .match_one(*topic, publisher, message.random, visitor);
                }
            }
        }
        hits
    }

    /// The sources of the results of `topics`, and the topics to search for.
    fn sources<'t>(
        &self,
        cache: &mut MatchCache,
        topics: &[TopicName<'t>],
    ) -> (Group<Source<'t>>, Group<TopicName<'t>>) {
        let (mut sources, mut missed) = (Group::<Source<'t>>::new(), Group::new());
        for (place, topic) in topics.iter().enumerate() {
            let before = place.checked_sub(1).and_then(|before| topics.get(before));
            if let Some(same) = sources.last().filter(|_| before == Some(topic)) {
                sources.push(*same);
                continue;
            }
            let key = self.key_in(cache, *topic);
            let is_cached = key.is_some_and(|key| cache.find(key).is_some());
            let walk = (!is_cached).then_some(missed.len());
            if walk.is_some() {
                missed.push(*topic);
            }
            sources.push(Source { key, walk });
        }
        (sources, missed)
    }
}
