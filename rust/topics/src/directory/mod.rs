//! The subscription directory: join, commit changes, clean, statistics.
//!
//! The root points to one immutable [`DirectoryVersion`]. A writer makes the next version, which shares everything
//! except the changed path with the last one, and installs it by compare-and-set; if it loses the race, it starts
//! again. A reader pins the current version and walks it without a lock, and writes nothing that another thread
//! reads.

mod audit;
mod cache;
mod change;
mod choice;
mod clients;
#[cfg(all(test, not(any(loom, shuttle))))]
mod corrupted;
#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod effort;
mod filters;
mod listing;
mod merge;
#[cfg(all(test, loom))]
mod models;
mod snapshot;
mod version;
mod walk;

use std::hint::spin_loop;

use crate::subscribers::{PackedSubscription, RemovedSubscribers, SubscriptionStep};
use crate::sync::{
    Arc, AtomicU64, GarbageCounter, Guard, Relaxed, Release, Root, end_epoch, free_what_is_over,
    is_pinned, pin, prefetch, reclaim, slab, yield_now,
};
use crate::tree::hash::Hasher;
use crate::tree::node::{Edit, TreeVersion, clear};
use crate::tree::word::Word;
use crate::{Strategy, SubscriberId, SubscriptionFilter};

use clients::Clients;
use version::{DirectoryVersion, Draft};

pub use cache::MatchCache;
pub use change::{Change, ChangeOutcome, ChangeOutcomes, DirectoryStats};
pub use listing::Listing;
pub use snapshot::Snapshot;

/// Maximum number of subscriptions that one commit of a cleaning removes.
const CLEANING_BATCH: usize = 256;

/// Changes between two attempts of a writer to advance the epoch. The next commits reuse the memory that waits for
/// its grace period, and this amount fits into a closer cache. Pins alone attempt it every 128th time.
const CHANGES_AN_EPOCH: u64 = 32;

/// Above these retired bytes, writers help to reclaim.
const HELP_BYTES: usize = 32 << 20;

/// Changes between two checks of the retired bytes.
const CHANGES_A_LOOK: u64 = 64;

/// Above these retired bytes, writers wait for readers: the budget of 64 MiB, minus what may be retired while they
/// wait.
const WAIT_BYTES: usize = 60 << 20;

/// Maximum number of turns that one commit waits for readers: about 10 ms.
const MOST_TURNS: usize = 10_000;

/// Turns between two yields of the time slice. If other threads wait for the processor, each yield takes
/// milliseconds, and a commit should not wait for ten thousand of them.
const TURNS_A_YIELD: usize = 64;

/// Below this number of dead subscriptions a sweep is not worthwhile.
const FEW_REMOVED: usize = 1024;

/// Pause instructions after the first race that a commit lost; doubled after each further one.
const PAUSES: u32 = 32;

/// Maximum number of pause instructions: some microseconds.
const MOST_PAUSES: u32 = 512;

/// All subscriptions. Shared by reference; readers and writers may be on any thread.
///
/// ```
/// use mqttcore_codec::QoS;
/// use mqttcore_topics::*;
///
/// struct Receivers(Vec<u64>);
///
/// impl Visitor for Receivers {
///     fn plain(&mut self, found: Match<'_>) {
///         self.0.push(found.handle);
///     }
///     fn shared(&mut self, candidate: Match<'_>) -> bool {
///         self.0.push(candidate.handle);
///         true
///     }
///     fn shared_offline(&mut self, _: Match<'_>) {}
/// }
///
/// let (directory, limits) = (Directory::new(42, Strategy::RoundRobin), TopicLimits::default());
/// let id = directory.join(7);
/// let filter = SubscriptionFilter::parse("sensors/+/temperature", &limits)?;
/// directory.commit(id, &[Change::Subscribe { filter: &filter, options: Options::at(QoS::AtLeastOnce) }]);
///
/// let mut receivers = Receivers(Vec::new());
/// let topic = TopicName::parse("sensors/1/temperature", &limits)?;
/// directory.snapshot().match_one(topic, None, 0, &mut receivers);
/// assert_eq!(receivers.0, [7]);
/// # Ok::<(), TopicError>(())
/// ```
pub struct Directory {
    root: Root<DirectoryVersion>,
    clients: Clients,
    hasher: Hasher,
    strategy: Strategy,
    garbage: GarbageCounter,
    lost_races: AtomicU64,
    garbage_waits: AtomicU64,
    /// Number of completed commits and leaves: a [`MatchCache`] compares it.
    changes: AtomicU64,
    /// Distinguishes this directory from all others that a cache has seen.
    identity: Arc<()>,
}

impl Directory {
    /// Makes an empty directory. `seed` is the key of its hashes; publishers must not know it.
    pub fn new(seed: u64, strategy: Strategy) -> Self {
        Self::with_hasher(Hasher::new(seed), strategy)
    }

    /// Like [`new`](Self::new), with only the hash bits in `mask`: for tests of collisions.
    #[doc(hidden)]
    pub fn with_hash_mask(seed: u64, strategy: Strategy, mask: u64) -> Self {
        Self::with_hasher(Hasher::masked(seed, mask), strategy)
    }

    fn with_hasher(hasher: Hasher, strategy: Strategy) -> Self {
        Self {
            root: Root::new(DirectoryVersion::empty()),
            clients: Clients::new(strategy.hashes()),
            hasher,
            strategy,
            garbage: GarbageCounter::new(),
            lost_races: AtomicU64::new(0),
            garbage_waits: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            identity: Arc::default(),
        }
    }

    /// Adds a subscriber. `handle` is chosen by the caller and returned with every match.
    ///
    /// The subscriber is available to its shared groups until [`set_available`](Self::set_available) changes that.
    ///
    /// The id of a subscriber that has left is reused after its subscriptions are cleaned and no match can have seen
    /// them.
    ///
    /// # Panics
    ///
    /// With 2^31 subscribers at once.
    pub fn join(&self, handle: u64) -> SubscriberId {
        self.join_as(handle, handle)
    }

    /// Like [`join`](Self::join), with a key that stays the same if the subscriber leaves and returns, such as
    /// [`key_of`](Self::key_of) its client id. Strategies that hash identify publishers and members by this key.
    ///
    /// # Panics
    ///
    /// With 2^31 subscribers at once.
    pub fn join_as(&self, handle: u64, key: u64) -> SubscriberId {
        self.clients.join(handle, key)
    }

    /// A key for [`join_as`](Self::join_as); equal in every directory with the same seed.
    pub fn key_of(&self, client_id: &str) -> u64 {
        self.hasher.hash(client_id.as_bytes())
    }

    /// Tombstones a subscriber in O(1): no match that starts afterwards delivers to it.
    ///
    /// Its subscriptions are removed by [`clean`](Self::clean). The caller must not use the id any more.
    pub fn leave(&self, id: SubscriberId) {
        if self.clients.leave(id, &pin()) {
            // ORDERING: Release, as that of a commit: who sees this count sees the bit cleared.
            self.changes.fetch_add(1, Release);
        }
    }

    /// Removes up to `limit` subscriptions of subscribers that have left; returns the number of remaining ones.
    pub fn clean(&self, limit: usize) -> usize {
        self.clean_with(limit, &mut |_| {})
    }

    /// Like [`clean`](Self::clean), and calls `gone` with each filter that lost its last subscription by it.
    ///
    /// Together with the outcomes of commits this reports for each filter, strictly in turn, its first and its last
    /// subscription. Subscribers that have left count until they are cleaned, or until a commit on the same filter
    /// drops them.
    pub fn clean_with(&self, limit: usize, gone: &mut dyn FnMut(&SubscriptionFilter)) -> usize {
        let mut budget = limit;
        while budget > 0 {
            let Some(id) = self.clients.next_removed() else {
                break;
            };
            let cleaned = self.clean_one(id, budget.min(CLEANING_BATCH), gone);
            budget -= cleaned;
            self.help_reclaim(cleaned);
        }
        self.clients.removed_subscriptions.load(Relaxed) // ORDERING: a count that orders nothing.
    }

    fn clean_one(
        &self,
        id: SubscriberId,
        limit: usize,
        gone: &mut dyn FnMut(&SubscriptionFilter),
    ) -> usize {
        let Some(mut filters) = self.clients.filters(id) else {
            return 0;
        };
        let taken = filters.take(limit);
        let guard = pin();
        let steps = taken
            .iter()
            .map(|filter| (filter, SubscriptionStep::Remove(id)));
        let outcomes = self.publish(id, &steps, &guard);
        let is_done = filters.is_empty();
        drop(filters);
        // ORDERING: Relaxed: a count that orders nothing.
        self.clients
            .removed_subscriptions
            .fetch_sub(taken.len(), Relaxed);
        if is_done {
            self.clients.recycle(id, &guard);
        } else {
            self.clients.put_back(id);
        }
        drop(guard);
        let last = taken
            .iter()
            .zip(outcomes)
            .filter(|(_, outcome)| outcome.first_or_last);
        last.for_each(|(filter, _)| gone(filter));
        taken.len()
    }

    /// Whether cleaning should not wait for a quiet moment, because many subscriptions of removed subscribers remain.
    pub fn is_sweep_due(&self) -> bool {
        // ORDERING: Relaxed: a count that orders nothing.
        let removed = self.clients.removed_subscriptions.load(Relaxed);
        if removed <= FEW_REMOVED {
            return false;
        }
        let all = self.root.load(&pin()).counts.subscriptions;
        removed > all.saturating_sub(removed) / 8
    }

    /// Applies a batch atomically: every match sees all of it or nothing. Returns one outcome for each change, in
    /// order.
    ///
    /// Changes of a subscriber that has left do nothing, and their outcomes say so. Locks the filters of this
    /// subscriber; batches of other subscribers run concurrently.
    pub fn commit(&self, id: SubscriberId, changes: &[Change<'_>]) -> ChangeOutcomes {
        // Loads both at once; under the lock they would be loaded one after the other.
        self.clients.prefetch_entry(id);
        for change in changes {
            prefetch(change.filter().filter().as_str().as_ptr());
        }
        let Some(mut filters) = self.clients.filters(id) else {
            return ChangeOutcomes::of_none(changes.len());
        };
        if self.clients.is_removed(id) {
            return ChangeOutcomes::of_none(changes.len());
        }
        let is_available = self.clients.is_available(id);
        let steps = changes.iter().map(|change| match *change {
            Change::Subscribe { filter, options } => {
                let subscription = PackedSubscription::new(id, options);
                let step = SubscriptionStep::Insert {
                    subscription,
                    is_available,
                };
                (filter, step)
            }
            Change::Unsubscribe { filter } => (filter, SubscriptionStep::Remove(id)),
        });
        let outcomes = self.publish(id, &steps, &pin());
        for (change, outcome) in changes.iter().zip(&outcomes) {
            match change {
                Change::Subscribe { filter, .. } if !outcome.existed => {
                    filters.insert(&self.hasher, (*filter).clone());
                }
                Change::Unsubscribe { filter } if outcome.existed => {
                    filters.remove(&self.hasher, filter);
                }
                _ => {}
            }
        }
        drop(filters);
        self.help_reclaim(outcomes.len());
        outcomes
    }

    /// Sets whether a subscriber is available: whether it can take messages of its shared groups at once.
    ///
    /// Available members are asked first, so that the others do not slow down a message. It makes one commit if the
    /// subscriber has shared subscriptions.
    pub fn set_available(&self, id: SubscriberId, is_available: bool) {
        let Some(filters) = self.clients.filters(id) else {
            return;
        };
        if self.clients.is_removed(id) || !self.clients.set_available(id, is_available) {
            return;
        }
        let mut shared = Vec::new();
        filters.visit(&self.hasher, (0, usize::MAX), &mut |filter| {
            shared.extend(filter.share().map(|_| filter.clone()));
        });
        if shared.is_empty() {
            return;
        }
        let step = SubscriptionStep::SetAvailable(id, is_available);
        let steps = shared.iter().map(|filter| (filter, step));
        self.publish(id, &steps, &pin());
        drop(filters);
        self.help_reclaim(shared.len());
    }

    /// Makes and publishes versions until no other writer was faster.
    fn publish<'f>(
        &self,
        id: SubscriberId,
        steps: &(impl Iterator<Item = (&'f SubscriptionFilter, SubscriptionStep)> + Clone),
        guard: &Guard,
    ) -> ChangeOutcomes {
        let is_removed = |other| other != id && self.clients.is_removed(other);
        // ORDERING: Relaxed: a hint; who is not dropped today is cleaned later.
        let has_removed = self.clients.removed_subscriptions.load(Relaxed) > 0;
        let removed: RemovedSubscribers<'_> = if has_removed { Some(&is_removed) } else { None };
        let handles = |lone| self.kept_handle(lone);
        let mut pauses = PAUSES;
        loop {
            // Before the version is loaded: the longer an attempt takes after that, the more often it loses.
            free_what_is_over();
            let current = self.root.load(guard);
            let mut edit = Edit::new(guard, &self.garbage, current.counts.size);
            edit.keep_handles(&handles);
            edit.deal_by(self.clients.key(id));
            let mut draft = Draft::new(current);
            let mut outcomes = ChangeOutcomes::default();
            for (filter, step) in steps.clone() {
                outcomes.push(draft.apply(&mut edit, &self.hasher, filter, (step, removed)));
            }
            if !draft.is_changed {
                return outcomes;
            }
            let next = draft.finish(&edit);
            if edit.publish(&self.root, current, next) {
                // ORDERING: Release pairs with the acquire of a cache: who sees this count sees the commit.
                self.changes.fetch_add(1, Release);
                return outcomes;
            }
            self.lost_races.fetch_add(1, Relaxed); // ORDERING: a count that orders nothing.
            // The writer that won commits again meanwhile, with the upper blocks in its own cache.
            for _ in 0..pauses {
                spin_loop();
            }
            pauses = MOST_PAUSES.min(2 * pauses);
        }
    }

    /// Keeps the garbage within its budget: helps to reclaim it, then waits for readers that delay that.
    ///
    /// The wait is limited, since a reader may itself wait for the caller. There is none if this thread holds a pin:
    /// it would wait for itself. `steps` of the last commit: a large one ends the epoch by itself, since it replaced as
    /// many blocks as small ones together.
    fn help_reclaim(&self, steps: usize) {
        let changes = self.changes.load(Relaxed); // ORDERING: Relaxed: any number will do.
        if changes.is_multiple_of(CHANGES_AN_EPOCH) || steps as u64 >= CHANGES_AN_EPOCH {
            end_epoch();
        }
        if self.garbage.bytes() <= HELP_BYTES {
            return;
        }
        if changes.is_multiple_of(CHANGES_A_LOOK) {
            reclaim();
        }
        if self.garbage.bytes() <= WAIT_BYTES || is_pinned() {
            return;
        }
        self.garbage_waits.fetch_add(1, Relaxed); // ORDERING: a count that orders nothing.
        for turn in 0..MOST_TURNS {
            if turn % TURNS_A_YIELD == 0 {
                yield_now();
            }
            reclaim();
            if self.garbage.bytes() <= WAIT_BYTES {
                return;
            }
        }
    }

    /// Pins the current version. For short use: it delays the reclamation of replaced memory.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self)
    }

    /// Counts of the current version, consistent with each other.
    pub fn stats(&self) -> DirectoryStats {
        let guard = pin();
        free_what_is_over();
        let version = self.root.load(&guard);
        DirectoryStats {
            filters: version.counts.filters,
            subscriptions: version.counts.subscriptions,
            shared_subscriptions: version.counts.shared_subscriptions,
            wildcard_subscriptions: version.counts.wild_subscriptions,
            shared_groups: version.counts.groups,
            nodes: version.counts.size.nodes,
            bytes: version.counts.size.bytes,
            version: version.number,
            // ORDERING: Relaxed: counts that order nothing.
            subscribers: self.clients.alive.load(Relaxed),
            removed_subscriptions: self.clients.removed_subscriptions.load(Relaxed),
            retired_bytes: self.garbage.bytes(),
            lost_races: self.lost_races.load(Relaxed),
            garbage_waits: self.garbage_waits.load(Relaxed),
        }
    }

    /// Returns the free blocks that this thread keeps for later commits to the system.
    ///
    /// A thread keeps at most 512 KiB, for all directories and retained stores, and frees them when it ends. A spare
    /// chunk of 2 MiB that no thread uses is returned, too.
    pub fn trim() {
        drop(pin());
        free_what_is_over();
        slab::trim();
    }

    /// Memory of the blocks of all directories and retained stores in bytes, including blocks that threads keep for
    /// later commits; for tests and reports.
    #[doc(hidden)]
    pub fn heap_bytes() -> usize {
        slab::used_bytes()
    }

    /// Walks the whole tree and checks its invariants and counts; for tests. Returns the shape of the tree as text.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold, in words.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<String, String> {
        let guard = pin();
        let handles = |lone| self.kept_handle(lone);
        let is_removed = |id| self.clients.is_removed(id);
        audit::audit(
            self.root.load(&guard),
            &self.hasher,
            (&handles, &is_removed),
        )
    }

    /// The handle that a leaf stores beside its only subscription.
    fn kept_handle<'g>(&self, lone: u64) -> Option<Word<'g>> {
        let subscriber = PackedSubscription::from_bits(lone).subscriber();
        self.clients.kept_handle(subscriber)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        clear(&mut self.root);
    }
}
