//! The subscribers: which number means whom, whether it is alive, and what it subscribed to.

use std::collections::VecDeque;

use super::filters::Filters;
use super::table::Table;
use crate::SubscriberId;
use crate::sync::{
    Acquire, Arc, AtomicU32, AtomicU64, AtomicUsize, Guard, Mutex, MutexGuard, Relaxed, Release,
    lock,
};

/// The largest number that a subscription can hold.
const MAX_SUBSCRIBERS: u32 = 1 << 31;

/// Seats of one row, one bit each in its word of the living.
const ROW: u32 = u64::BITS;

/// What a match reads of 64 subscribers.
struct Row {
    alive: AtomicU64,
    handles: [AtomicU64; ROW as usize],
}

impl Default for Row {
    fn default() -> Self {
        Self {
            alive: AtomicU64::new(0),
            handles: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// The bit and the place of a subscriber in its row.
#[inline]
fn seat(id: SubscriberId) -> (u64, usize) {
    let place = id.0 % ROW;
    (1 << place, place as usize)
}

/// All subscribers of a directory.
pub(crate) struct Clients {
    rows: Table<Row>,
    /// Locked by whoever changes the subscriptions of one subscriber, never by a match.
    filters: Table<Mutex<Filters>>,
    next: AtomicU32,
    /// Numbers whose subscriptions are gone and whose grace period is over.
    free: Arc<Mutex<Vec<u32>>>,
    /// Left, with subscriptions still to be removed.
    departed: Mutex<VecDeque<SubscriberId>>,
    pub(crate) alive: AtomicUsize,
    /// Subscriptions of those that left.
    pub(crate) dead_subscriptions: AtomicUsize,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self {
            rows: Table::new(),
            filters: Table::new(),
            next: AtomicU32::new(0),
            free: Arc::default(),
            departed: Mutex::default(),
            alive: AtomicUsize::new(0),
            dead_subscriptions: AtomicUsize::new(0),
        }
    }

    /// Takes a free number, or the next one that nobody had.
    pub(crate) fn join(&self, handle: u64) -> SubscriberId {
        let number = lock(&self.free).pop().unwrap_or_else(|| self.next_number());
        self.filters.slot_or_default(number);
        let id = SubscriberId(number);
        let (bit, place) = seat(id);
        let row = self.rows.slot_or_default(number / ROW);
        // ORDERING: Relaxed: a match reaches the seat through a subscription that is published later.
        row.handles[place].store(handle, Relaxed);
        // ORDERING: Release pairs with the acquire of `handle`.
        row.alive.fetch_or(bit, Release);
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

    /// Returns the handle of a subscriber that is alive.
    #[inline]
    pub(crate) fn handle(&self, id: SubscriberId) -> Option<u64> {
        let (bit, place) = seat(id);
        let row = self.rows.slot(id.0 / ROW)?;
        // ORDERING: Acquire pairs with the release of `join`: the handle is that of this joining. A subscription of
        // an earlier joining is in no version that this pin can reach.
        let is_alive = row.alive.load(Acquire) & bit != 0;
        is_alive.then(|| row.handles[place].load(Relaxed))
    }

    /// Locks a subscriber's filters against other changes; `None` for a number that nobody ever had.
    pub(crate) fn filters(&self, id: SubscriberId) -> Option<MutexGuard<'_, Filters>> {
        self.filters.slot(id.0).map(lock)
    }

    /// Tombstones a subscriber; `false` if it left before.
    pub(crate) fn leave(&self, id: SubscriberId, guard: &Guard) -> bool {
        let (Some(row), Some(filters)) = (self.rows.slot(id.0 / ROW), self.filters(id)) else {
            return false;
        };
        let bit = seat(id).0;
        // ORDERING: Relaxed: the lock orders writers, and a match needs only the bit.
        if row.alive.fetch_and(!bit, Relaxed) & bit == 0 {
            return false;
        }
        self.alive.fetch_sub(1, Relaxed); // ORDERING: a count that orders nothing.
        if filters.is_empty() {
            drop(filters);
            self.recycle(id, guard);
            return true;
        }
        self.dead_subscriptions.fetch_add(filters.len(), Relaxed); // ORDERING: as above.
        drop(filters);
        lock(&self.departed).push_back(id);
        true
    }

    /// Takes one of those that left; it belongs to the caller until it is put back or recycled.
    pub(crate) fn next_departed(&self) -> Option<SubscriberId> {
        lock(&self.departed).pop_front()
    }

    /// Puts one back whose subscriptions are not all removed.
    pub(crate) fn put_back(&self, id: SubscriberId) {
        lock(&self.departed).push_front(id);
    }

    /// Frees a number once every match that may have seen a subscription of it is over.
    pub(crate) fn recycle(&self, id: SubscriberId, guard: &Guard) {
        let free = Arc::clone(&self.free);
        guard.defer(move || lock(&free).push(id.0));
    }
}
