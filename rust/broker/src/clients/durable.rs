//! The set of sessions that the store keeps, readable from every shard.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use mqttcore_topics::TopicName;

use crate::clients::full_sessions::{FullSessions, Rights};
use crate::clients::handle::{GENERATION_BITS, Handle};

/// The store's numbers of durable sessions, by shard and slot.
///
/// The shard that routes a message writes its recipients to the log, whichever shard they are on, so it must know their
/// numbers without asking. Lookups take no lock.
pub(crate) struct DurableSessions {
    shards: Vec<Slots>,
    /// Number of sessions with a full queue; one more if the total of all queues is at its limit.
    full: AtomicUsize,
    /// The total of all queues is at its limit: a queue that is not empty takes no more messages.
    are_all_full: AtomicBool,
    sessions: FullSessions,
}

/// Chunks of slots, each twice as long as the one before, allocated on first use.
struct Slots([OnceLock<Box<[AtomicU64]>>; CHUNKS]);

const FIRST_CHUNK: u64 = 1 << FIRST_CHUNK_BITS;
const FIRST_CHUNK_BITS: u32 = 8;
const CHUNKS: usize = 33 - FIRST_CHUNK_BITS as usize;
const NUMBER_BITS: u32 = u64::BITS - GENERATION_BITS;
/// Flag in a number: only the will of this slot's client is stored, not its session.
const WILL_ALONE: u64 = 1 << (NUMBER_BITS - 1);
/// Flag in a number: the queue of the session is full.
const FULL: u64 = 1 << (NUMBER_BITS - 2);
/// Flag in a number: the queue of the session is not empty.
const WAITING: u64 = 1 << (NUMBER_BITS - 3);

impl DurableSessions {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards)
                .map(|_| Slots(array::from_fn(|_| OnceLock::new())))
                .collect(),
            full: AtomicUsize::default(),
            are_all_full: AtomicBool::default(),
            sessions: FullSessions::default(),
        }
    }

    /// Stores the number of the session at `handle`, which is below 2^37; 0 removes it.
    pub(crate) fn set(&self, handle: Handle, number: u64) {
        debug_assert!(number < WAITING, "2^37 sessions were never made");
        self.store(handle, number);
    }

    /// Publishes the queue state of the kept session at `handle`: whether messages are queued, and its rights if the
    /// queue is full. Call it only on the session's own shard.
    pub(crate) fn set_queue(&self, handle: Handle, is_waiting: bool, full: Option<Rights>) {
        let Some(word) = self.load(handle).filter(|word| word & WILL_ALONE == 0) else {
            return;
        };
        let is_full = full.is_some();
        if let Some(rights) = full {
            self.sessions.set_rights(handle.word(), rights);
        }
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let told = word & !(WAITING | FULL) | bit(is_waiting, WAITING) | bit(is_full, FULL);
        if told != word {
            self.store(handle, told);
        }
    }

    /// Publishes whether the total of all queues is at its limit.
    pub(crate) fn set_all_full(&self, is_full: bool) {
        // ORDERING: a hint, like all accesses to this field.
        if self.are_all_full.swap(is_full, Ordering::Relaxed) == is_full {
            return;
        }
        if is_full {
            self.full.fetch_add(1, Ordering::Relaxed);
        } else {
            self.full.fetch_sub(1, Ordering::Relaxed);
            self.sessions.wake_all();
        }
    }

    /// Whether the total of all queues is at its limit.
    pub(crate) fn are_all_full(&self) -> bool {
        // ORDERING: a hint.
        self.are_all_full.load(Ordering::Relaxed)
    }

    /// Whether the kept session at `handle` has a full queue, or has queued messages while the total of all queues is
    /// at its limit. A hint, since further messages may be in mailboxes.
    pub(crate) fn is_full(&self, handle: Handle) -> bool {
        let full = FULL | if self.are_all_full() { WAITING } else { 0 };
        let is_full = |word: u64| word & WILL_ALONE == 0 && word & full != 0;
        self.has_full() && self.load(handle).is_some_and(is_full)
    }

    /// Whether any kept session has a full queue.
    pub(crate) fn has_full(&self) -> bool {
        // ORDERING: a hint.
        self.full.load(Ordering::Relaxed) > 0
    }

    /// Whether the kept session at `handle` has a full queue itself.
    pub(crate) fn is_marked_full(&self, handle: Handle) -> bool {
        let is_full = |word: u64| word & (WILL_ALONE | FULL) == FULL;
        self.load(handle).is_some_and(is_full)
    }

    /// Whether the session at `handle`, which has a full queue, may receive messages on `topic`.
    pub(crate) fn receives(&self, handle: Handle, topic: TopicName<'_>) -> bool {
        self.sessions.receives(handle.word(), topic)
    }

    /// Waits until the queue of the session at `handle` has room, or the session has ended.
    pub(crate) async fn has_room(&self, handle: Handle) {
        let is_full = || self.is_full(handle);
        self.sessions.wait(handle.word(), is_full).await;
    }

    /// Records that the will at `handle` is stored under `number`, and its session is not stored.
    pub(crate) fn set_will_alone(&self, handle: Handle, number: u64) {
        debug_assert!(number < WAITING, "2^37 sessions were never made");
        self.store(handle, WILL_ALONE | number);
    }

    fn store(&self, handle: Handle, number: u64) {
        let (chunk, offset) = place(handle.slot());
        let make = || {
            (0..FIRST_CHUNK << chunk)
                .map(|_| AtomicU64::new(0))
                .collect()
        };
        let chunk = self.shards[handle.shard()].0[chunk].get_or_init(make);
        let generation = u64::from(handle.generation()) << NUMBER_BITS;
        let word = if number == 0 { 0 } else { generation | number };
        let before = chunk[offset].load(Ordering::Relaxed);
        let (was_full, is_full) = (before & FULL != 0, word & FULL != 0);
        if is_full && !was_full {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with `load`. A session is set before its first subscription is committed, so whoever
        // matches the subscription sees the number. Each slot has one writer, the thread of its shard.
        chunk[offset].store(word, Ordering::Release);
        if was_full && !is_full {
            self.full.fetch_sub(1, Ordering::Relaxed);
        }
        let has_gone = before & !word;
        if has_gone & FULL != 0 || has_gone & WAITING != 0 && self.are_all_full() {
            self.sessions.remove(handle.word());
        }
    }

    /// The number of the session at `handle`; `None` if it is not stored, or if its slot has another session now.
    pub(crate) fn number(&self, handle: Handle) -> Option<u64> {
        let word = self.load(handle)?;
        (word & WILL_ALONE == 0).then_some(word & !(FULL | WAITING))
    }

    /// The number of the will at `handle`, if its session is not stored.
    pub(crate) fn will_alone(&self, handle: Handle) -> Option<u64> {
        let number = self.load(handle)?;
        (number & WILL_ALONE != 0).then_some(number & !WILL_ALONE)
    }

    fn load(&self, handle: Handle) -> Option<u64> {
        let (chunk, offset) = place(handle.slot());
        let word = self.shards[handle.shard()].0[chunk].get()?[offset].load(Ordering::Acquire);
        let is_it = word >> NUMBER_BITS == u64::from(handle.generation());
        let number = word & ((1 << NUMBER_BITS) - 1);
        (is_it && number != 0).then_some(number)
    }
}

/// The chunk of a slot, and its index in it.
fn place(slot: u32) -> (usize, usize) {
    let shifted = u64::from(slot) + FIRST_CHUNK;
    let top = shifted.ilog2();
    let offset = shifted - (1 << top);
    // INVARIANT: below the length of its chunk, at most 2^32.
    let offset = usize::try_from(offset).expect("64-bit targets only");
    ((top - FIRST_CHUNK_BITS) as usize, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(slot: u32, generation: u32) -> Handle {
        Handle::new(1, generation, slot)
    }

    #[test]
    fn a_session_is_found_under_its_own_generation_alone() {
        let sessions = DurableSessions::new(2);
        sessions.set(handle(300, 7), 99);

        assert_eq!(sessions.number(handle(300, 7)), Some(99));
        assert_eq!(sessions.number(handle(300, 8)), None);
        assert_eq!(sessions.number(handle(301, 7)), None);
        assert_eq!(sessions.number(handle(100_000, 7)), None);
        sessions.set(handle(300, 7), 0);
        assert_eq!(sessions.number(handle(300, 7)), None);
    }

    #[test]
    fn a_session_with_nothing_but_its_will_is_not_kept() {
        let sessions = DurableSessions::new(2);
        sessions.set_will_alone(handle(3, 7), 99);

        assert_eq!(sessions.number(handle(3, 7)), None);
        assert_eq!(sessions.will_alone(handle(3, 7)), Some(99));
        assert_eq!(sessions.will_alone(handle(3, 8)), None);
        sessions.set(handle(3, 7), 100);
        assert_eq!(sessions.will_alone(handle(3, 7)), None);
    }

    #[expect(clippy::unnecessary_wraps, reason = "as `set_queue` takes it")]
    fn full() -> Option<Rights> {
        Some(Rights::default())
    }

    #[test]
    fn a_full_queue_is_known_until_it_has_room_or_its_session_ends() {
        let sessions = DurableSessions::new(2);
        sessions.set_queue(handle(3, 7), true, full());
        assert!(!sessions.has_full(), "it is not kept");
        sessions.set(handle(3, 7), 99);
        sessions.set(handle(4, 7), 98);

        sessions.set_queue(handle(3, 7), true, full());
        sessions.set_queue(handle(3, 7), true, full());
        sessions.set_queue(handle(4, 7), true, full());

        assert!(sessions.is_full(handle(3, 7)) && sessions.is_full(handle(4, 7)));
        assert!(!sessions.is_full(handle(3, 8)), "another generation");
        assert_eq!(sessions.number(handle(3, 7)), Some(99));
        sessions.set_queue(handle(3, 7), true, None);
        assert!(!sessions.is_full(handle(3, 7)) && sessions.has_full());
        sessions.set(handle(4, 7), 0);
        assert!(!sessions.has_full());
    }

    #[test]
    fn when_all_queues_together_are_full_those_are_that_have_anything() {
        let sessions = DurableSessions::new(2);
        for slot in [3, 4] {
            sessions.set(handle(slot, 7), 99);
        }
        sessions.set_queue(handle(3, 7), true, None);
        assert!(!sessions.has_full());

        sessions.set_all_full(true);
        sessions.set_all_full(true);

        assert!(sessions.is_full(handle(3, 7)) && !sessions.is_full(handle(4, 7)));
        assert!(!sessions.is_full(handle(3, 8)), "another generation");
        assert_eq!(sessions.number(handle(3, 7)), Some(99));
        sessions.set_queue(handle(3, 7), false, None);
        assert!(!sessions.is_full(handle(3, 7)));
        sessions.set_all_full(false);
        assert!(!sessions.has_full());
    }

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let places: Vec<_> = (0..2_000).map(place).collect();

        assert_eq!(places[0], (0, 0));
        assert_eq!(places[255], (0, 255));
        assert_eq!(places[256], (1, 0));
        assert_eq!(place(u32::MAX).0, CHUNKS - 1);
        let mut unique = places.clone();
        unique.dedup();
        assert_eq!(unique.len(), places.len());
    }
}
