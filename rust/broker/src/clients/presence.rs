//! Availability of sessions for messages of shared subscriptions, visible to every shard.

use std::sync::atomic::{AtomicU8, Ordering};

/// The availability of every session: connected, and ready for messages; readable from every shard.
///
/// Shared subscriptions use it to skip members that are offline or full (docs/decisions.md, 13). One byte a session;
/// only the session's own shard writes it.
pub(crate) struct AvailabilityTable {
    shards: Vec<Vec<AtomicU8>>,
}

/// The availability of one session. A hint: the session decides when the message arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one bit of a byte")]
pub(crate) struct Availability {
    /// The session is connected.
    pub(crate) is_online: bool,
    /// The next message would be queued behind others.
    pub(crate) is_full: bool,
    /// The session refused the last message and has had no room since.
    pub(crate) is_refusing: bool,
    /// Many bytes are queued for it in memory.
    pub(crate) holds_much: bool,
}

impl Availability {
    /// For a session without a byte: a reload may allow more sessions than there are bytes.
    const UNKNOWN: Self = Self::connected(true);

    /// The state after a connection began or ended; not full until the session reports otherwise.
    pub(crate) const fn connected(is_online: bool) -> Self {
        Self {
            is_online,
            is_full: false,
            is_refusing: false,
            holds_much: false,
        }
    }

    fn of(byte: u8) -> Self {
        Self {
            is_online: byte & 1 != 0,
            is_full: byte & 2 != 0,
            is_refusing: byte & 4 != 0,
            holds_much: byte & 8 != 0,
        }
    }

    fn byte(self) -> u8 {
        u8::from(self.is_online)
            | u8::from(self.is_full) << 1
            | u8::from(self.is_refusing) << 2
            | u8::from(self.holds_much) << 3
    }
}

impl AvailabilityTable {
    pub(crate) fn new(shards: usize, sessions: usize) -> Self {
        let bytes = || (0..sessions).map(|_| AtomicU8::default()).collect();
        Self {
            shards: (0..shards).map(|_| bytes()).collect(),
        }
    }

    pub(crate) fn availability(&self, shard: usize, slot: u32) -> Availability {
        let byte = self.shards[shard].get(slot as usize);
        // ORDERING: a hint.
        byte.map_or(Availability::UNKNOWN, |byte| {
            Availability::of(byte.load(Ordering::Relaxed))
        })
    }

    /// Call it only on the thread of `shard`.
    pub(crate) fn set(&self, shard: usize, slot: u32, availability: Availability) {
        if let Some(byte) = self.shards[shard].get(slot as usize) {
            byte.store(availability.byte(), Ordering::Relaxed); // ORDERING: a hint.
        }
    }
}
