//! Results of hot topics, kept by one worker while nothing changes.

use smallvec::SmallVec;

use super::Directory;
use crate::subscribers::Subscription;
use crate::sync::{Acquire, Arc};
use crate::{Match, SubscriberId, TopicName, Visitor};

/// The most receivers of a topic that is kept.
pub(crate) const MOST_CACHED: usize = 16;

/// The longest topic that is kept, in bytes.
const TOPIC_BYTES: usize = 80;

/// Topics that are kept; a power of two.
const ENTRIES: usize = 512;

/// Matches after which the cache asks itself whether it is of use.
const WINDOW: u32 = 256;

/// Hits a window below which it is not.
const FEW_HITS: u32 = WINDOW / 4;

/// Matches that a cache which was of no use stands aside for.
const PAUSE: u32 = 16 * WINDOW;

/// The last small results of one worker, each good until the next commit. Owned by the worker, for one directory.
///
/// It pays where few topics get many messages and subscriptions are quiet. Where hits are rare it stands aside by
/// itself: it costs a counter then.
#[derive(Default)]
pub struct MatchCache {
    /// The directory that the entries are of.
    identity: Option<Arc<()>>,
    entries: Vec<Entry>,
    seen: u32,
    hits: u32,
    pause: u32,
}

#[derive(Clone)]
struct Entry {
    hash: u64,
    /// The commits that were over when this was looked up.
    commits: u64,
    topic_len: usize,
    receivers: usize,
    /// Subscriptions, as bits, of one subscriber each.
    sums: [u64; MOST_CACHED],
    topic: [u8; TOPIC_BYTES],
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            hash: 0,
            commits: u64::MAX,
            topic_len: 0,
            receivers: 0,
            sums: [0; MOST_CACHED],
            topic: [0; TOPIC_BYTES],
        }
    }
}

impl Entry {
    #[inline]
    fn is_of(&self, hash: u64, commits: u64, topic: &[u8]) -> bool {
        self.hash == hash
            && self.commits == commits
            && self.topic.get(..self.topic_len) == Some(topic)
    }

    fn sums(&self) -> &[u64] {
        &self.sums[..self.receivers]
    }
}

impl MatchCache {
    /// Makes an empty cache. It takes its memory, about 120 KB, with the first match.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the cache stands aside because its last window had too few hits.
    pub fn is_aside(&self) -> bool {
        self.pause > 0
    }

    /// Counts a match; `false` while the cache stands aside.
    #[inline]
    fn takes_part(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        self.seen += 1;
        if self.seen > WINDOW {
            self.pause = if self.hits < FEW_HITS { PAUSE } else { 0 };
            (self.seen, self.hits) = (1, 0);
        }
        true
    }

    /// Forgets everything when the directory is another one.
    fn belong_to(&mut self, directory: &Directory) {
        let is_same = |identity: &Arc<()>| Arc::ptr_eq(identity, &directory.identity);
        if !self.identity.as_ref().is_some_and(is_same) {
            self.identity = Some(Arc::clone(&directory.identity));
            self.entries = vec![Entry::default(); ENTRIES];
        }
    }
}

impl Directory {
    /// As [`match_one`](crate::Snapshot::match_one) on the current version, by way of a worker's cache.
    ///
    /// Every commit that is over when this begins is seen; one that is under way may be. A hit takes no pin. Who
    /// left is passed over, and results with No Local or shared groups are never kept.
    #[inline]
    pub fn match_cached(
        &self,
        cache: &mut MatchCache,
        topic: TopicName<'_>,
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) {
        let text = topic.as_str().as_bytes();
        if text.len() > TOPIC_BYTES || !cache.takes_part() {
            self.snapshot().match_one(topic, publisher, random, visitor);
            return;
        }
        cache.belong_to(self);
        let hash = self.hasher.hash(text);
        // ORDERING: Acquire pairs with the release of a commit: a result that is looked up from here on shows it.
        let commits = self.commits.load(Acquire);
        let index = usize::try_from(hash).unwrap_or(0) % ENTRIES;
        let entry = &cache.entries[index];
        if entry.is_of(hash, commits, text) && self.visit_sums(entry.sums(), commits, visitor) {
            cache.hits += 1;
            return;
        }
        let snapshot = self.snapshot();
        let mut sums = SmallVec::new();
        if !snapshot.summarize(text, &mut sums) {
            snapshot.match_one(topic, publisher, random, visitor);
            return;
        }
        let entry = &mut cache.entries[index];
        entry.sums[..sums.len()].copy_from_slice(&sums);
        entry.topic[..text.len()].copy_from_slice(text);
        (entry.hash, entry.commits) = (hash, commits);
        (entry.topic_len, entry.receivers) = (text.len(), sums.len());
        for sum in sums {
            let sum = Subscription::from_bits(sum);
            // Under the pin of the snapshot a number means whom it meant in its version.
            if let Some(handle) = self.clients.handle(sum.subscriber()) {
                visit_sum(sum, handle, visitor);
            }
        }
    }

    /// Visits what a result adds up to; `false`, and no visit, when a commit was over before the handles were read.
    ///
    /// A number means somebody else only after its cleaning commit, so these handles are those of the result.
    #[inline]
    fn visit_sums(&self, sums: &[u64], commits: u64, visitor: &mut impl Visitor) -> bool {
        let mut handles = [None; MOST_CACHED];
        for (handle, sum) in handles.iter_mut().zip(sums) {
            *handle = self
                .clients
                .handle(Subscription::from_bits(*sum).subscriber());
        }
        // ORDERING: Acquire, and the handles were read with acquire: a commit that is over by now and made way for
        // another owner of a number is seen here.
        if self.commits.load(Acquire) != commits {
            return false;
        }
        for (handle, sum) in handles.into_iter().zip(sums) {
            if let Some(handle) = handle {
                visit_sum(Subscription::from_bits(*sum), handle, visitor);
            }
        }
        true
    }
}

#[inline]
fn visit_sum(sum: Subscription, handle: u64, visitor: &mut impl Visitor) {
    visitor.plain(Match {
        handle,
        subscriber: sum.subscriber(),
        qos: sum.qos(),
        retain_as_published: sum.retain_as_published(),
        ids: sum.id().as_slice(),
    });
}
