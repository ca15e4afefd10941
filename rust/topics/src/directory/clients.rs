//! The subscribers of a directory: numbers, handles, availability, filters, removal.

use std::collections::VecDeque;

use super::filters::Filters;
use crate::SubscriberId;
use crate::sync::table::{Table, TableIndex};
use crate::sync::{
    Acquire, Arc, AtomicU32, AtomicU64, AtomicUsize, Guard, Mutex, MutexGuard, Relaxed, Release,
    lock, prefetch,
};
use crate::tree::word::Word;

/// The largest number that a subscription can hold.
const MAX_SUBSCRIBERS: u32 = 1 << 31;

/// Subscribers for each word of flags, one bit each.
const ROW: usize = u64::BITS as usize;

/// The bit of a subscriber in its word of flags.
#[inline]
fn bit(id: SubscriberId) -> u64 {
    1 << (id.0 % u64::BITS)
}

/// All subscribers of a directory.
pub(crate) struct Clients {
    /// Flags of subscribers that are not removed: dense, so that they stay in the processor's cache.
    alive_words: Table<AtomicU64, ROW>,
    /// Flags of subscribers that are not available to shared groups.
    away_words: Table<AtomicU64, ROW>,
    handles: Table<AtomicU64>,
    /// Keys of publishers for shared groups; `None` if no strategy uses them.
    keys: Option<Table<AtomicU64>>,
    /// Filters of each subscriber; locked by its writers, never by a match.
    filters: Table<Mutex<Filters>>,
    next: AtomicU32,
    /// Numbers whose subscriptions are gone and whose grace period is over.
    free: Arc<Mutex<Vec<u32>>>,
    /// Removed subscribers whose subscriptions are not cleaned yet.
    removed: Mutex<VecDeque<SubscriberId>>,
    pub(crate) alive: AtomicUsize,
    /// Number of subscriptions of removed subscribers.
    pub(crate) removed_subscriptions: AtomicUsize,
}

impl Clients {
    pub(crate) fn new(keeps_keys: bool) -> Self {
        Self {
            keys: keeps_keys.then(Table::new),
            alive_words: Table::new(),
            away_words: Table::new(),
            handles: Table::new(),
            filters: Table::new(),
            next: AtomicU32::new(0),
            free: Arc::default(),
            removed: Mutex::default(),
            alive: AtomicUsize::new(0),
            removed_subscriptions: AtomicUsize::new(0),
        }
    }

    /// Allocates a free number, or the next new one.
    pub(crate) fn join(&self, handle: u64, key: u64) -> SubscriberId {
        let number = lock(&self.free).pop().unwrap_or_else(|| self.next_number());
        let (id, place) = (SubscriberId(number), TableIndex::of(number));
        self.filters.slot_or_default(place);
        // ORDERING: Release: who reads this handle sees the cleaning commit that freed the number.
        self.handles.slot_or_default(place).store(handle, Release);
        if let Some(keys) = &self.keys {
            keys.slot_or_default(place).store(key, Relaxed); // ORDERING: read by whoever has the id.
        }
        let away = self.away_words.slot_or_default(place);
        away.fetch_and(!bit(id), Relaxed); // ORDERING: read under the lock of its filters, by whoever has the id.
        let alive = self.alive_words.slot_or_default(place);
        alive.fetch_or(bit(id), Release); // ORDERING: Release pairs with the acquire of `handle`.
        self.alive.fetch_add(1, Relaxed); // ORDERING: a count that orders nothing.
        id
    }

    fn next_number(&self) -> u32 {
        let number = self.next.fetch_add(1, Relaxed); // ORDERING: only the number matters.
        assert!(
            number < MAX_SUBSCRIBERS,
            "2^31 subscribers at once are out of reach of memory"
        );
        number
    }

    /// Returns the handle of a subscriber that is not removed.
    #[inline]
    pub(crate) fn handle(&self, id: SubscriberId) -> Option<u64> {
        self.handle_kept(id, Word::EMPTY)
    }

    /// Like [`handle`](Self::handle), with the handle that a leaf stores, which saves a read.
    #[inline]
    pub(crate) fn handle_kept(&self, id: SubscriberId, kept: Word<'_>) -> Option<u64> {
        let place = TableIndex::of(id.0);
        let alive = self.alive_words.slot(place)?;
        // ORDERING: Acquire pairs with the release of `join`: the handle is that of this joining. A subscription of
        // an earlier joining is in no version that this pin can reach.
        if alive.load(Acquire) & bit(id) == 0 {
            return None;
        }
        if kept.is_empty() {
            return Some(self.handles.slot(place)?.load(Acquire)); // ORDERING: as above.
        }
        Some(kept.value() >> 1)
    }

    /// The handle of a subscriber as leaves store it, valid while the subscriber has its number; `None` if it needs
    /// all 64 bits.
    pub(crate) fn kept_handle<'g>(&self, id: SubscriberId) -> Option<Word<'g>> {
        let slot = self.handles.slot(TableIndex::of(id.0))?;
        // ORDERING: Acquire: as in `handle`; whoever subscribes joined before.
        let handle = slot.load(Acquire);
        (handle >> 63 == 0).then(|| Word::inline(handle << 1 | 1))
    }

    /// Returns the key of a subscriber, if keys are kept.
    pub(crate) fn key(&self, id: SubscriberId) -> Option<u64> {
        let key = self.keys.as_ref()?.slot(TableIndex::of(id.0))?;
        Some(key.load(Relaxed)) // ORDERING: Relaxed: the caller has the id from `join`.
    }

    /// Whether a subscriber of a version was removed.
    pub(crate) fn is_removed(&self, id: SubscriberId) -> bool {
        // ORDERING: Relaxed: a subscriber that left is removed in every version that this pin can reach.
        let word = self
            .alive_words
            .slot(TableIndex::of(id.0))
            .map(|word| word.load(Relaxed));
        word.is_none_or(|word| word & bit(id) == 0)
    }

    /// Whether a subscriber is available to its shared groups. Call it under the lock of its filters.
    pub(crate) fn is_available(&self, id: SubscriberId) -> bool {
        let away = self.away_words.slot(TableIndex::of(id.0));
        away.is_none_or(|away| away.load(Relaxed) & bit(id) == 0) // ORDERING: the lock orders it.
    }

    /// Sets whether a subscriber is available; returns `false` if nothing changed. Call it under the lock of its
    /// filters.
    pub(crate) fn set_available(&self, id: SubscriberId, is_available: bool) -> bool {
        let Some(away) = self.away_words.slot(TableIndex::of(id.0)) else {
            return false;
        };
        // ORDERING: as above.
        let before = if is_available {
            away.fetch_and(!bit(id), Relaxed)
        } else {
            away.fetch_or(bit(id), Relaxed)
        };
        (before & bit(id) == 0) != is_available
    }

    /// Upper bound of all numbers that were allocated.
    pub(crate) fn numbers(&self) -> u32 {
        self.next.load(Relaxed).min(MAX_SUBSCRIBERS) // ORDERING: a count that orders nothing.
    }

    /// Prefetches the handle of a subscriber.
    #[inline]
    pub(crate) fn prefetch(&self, id: SubscriberId) {
        if let Some(handle) = self.handles.slot(TableIndex::of(id.0)) {
            prefetch(handle);
        }
    }

    /// Prefetches the entry of a subscriber that a commit will read.
    #[inline]
    pub(crate) fn prefetch_entry(&self, id: SubscriberId) {
        if let Some(filters) = self.filters.slot(TableIndex::of(id.0)) {
            prefetch(filters);
        }
        self.prefetch(id);
    }

    /// Locks a subscriber's filters against other changes; `None` for a number that was never allocated.
    pub(crate) fn filters(&self, id: SubscriberId) -> Option<MutexGuard<'_, Filters>> {
        self.filters.slot(TableIndex::of(id.0)).map(lock)
    }

    /// Marks a subscriber as removed; `false` if it was removed before.
    pub(crate) fn leave(&self, id: SubscriberId, guard: &Guard) -> bool {
        let (Some(alive), Some(filters)) = (
            self.alive_words.slot(TableIndex::of(id.0)),
            self.filters(id),
        ) else {
            return false;
        };
        // ORDERING: Relaxed: the lock orders writers, and a match needs only the bit.
        if alive.fetch_and(!bit(id), Relaxed) & bit(id) == 0 {
            return false;
        }
        self.alive.fetch_sub(1, Relaxed); // ORDERING: a count that orders nothing.
        if filters.is_empty() {
            drop(filters);
            self.recycle(id, guard);
            return true;
        }
        self.removed_subscriptions.fetch_add(filters.len(), Relaxed); // ORDERING: as above.
        drop(filters);
        lock(&self.removed).push_back(id);
        true
    }

    /// Takes a removed subscriber out of the queue; the caller puts it back or recycles it.
    pub(crate) fn next_removed(&self) -> Option<SubscriberId> {
        lock(&self.removed).pop_front()
    }

    /// Returns a removed subscriber that still has subscriptions to the queue.
    pub(crate) fn put_back(&self, id: SubscriberId) {
        lock(&self.removed).push_front(id);
    }

    /// Frees a number after all matches that may have seen one of its subscriptions have ended.
    pub(crate) fn recycle(&self, id: SubscriberId, guard: &Guard) {
        let free = Arc::clone(&self.free);
        guard.defer(move || lock(&free).push(id.0));
    }
}
