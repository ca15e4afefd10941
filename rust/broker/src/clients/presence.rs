//! Availability of sessions for messages of shared subscriptions, visible to every shard.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Sessions of one block of the table.
const BLOCK: usize = 4_096;

/// The availability of every session: connected, and ready for messages; readable from every shard.
///
/// Shared subscriptions use it to skip members that are offline or full (docs/decisions.md, 13). One byte a session;
/// only the session's own shard writes it. A block of them takes memory from its first session on.
pub(crate) struct AvailabilityTable {
    shards: Vec<Vec<OnceLock<Box<[AtomicU8]>>>>,
    /// Sessions of a shard that have a byte.
    sessions: usize,
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
        let blocks = || (0..sessions.div_ceil(BLOCK)).map(|_| OnceLock::new());
        Self {
            shards: (0..shards).map(|_| blocks().collect()).collect(),
            sessions,
        }
    }

    /// The block of a session and the index in it; `None` if the session has no byte.
    fn place(&self, shard: usize, slot: u32) -> Option<(&OnceLock<Box<[AtomicU8]>>, usize)> {
        let slot = Some(slot as usize).filter(|slot| *slot < self.sessions)?;
        Some((self.shards[shard].get(slot / BLOCK)?, slot % BLOCK))
    }

    pub(crate) fn availability(&self, shard: usize, slot: u32) -> Availability {
        self.place(shard, slot)
            .map_or(Availability::UNKNOWN, |(block, place)| {
                // ORDERING: a hint.
                let byte = block
                    .get()
                    .map(|bytes| bytes[place].load(Ordering::Relaxed));
                Availability::of(byte.unwrap_or_default())
            })
    }

    /// Call it only on the thread of `shard`.
    pub(crate) fn set(&self, shard: usize, slot: u32, availability: Availability) {
        if let Some((block, place)) = self.place(shard, slot) {
            let bytes = block.get_or_init(|| (0..BLOCK).map(|_| AtomicU8::default()).collect());
            bytes[place].store(availability.byte(), Ordering::Relaxed); // ORDERING: a hint.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_memory_from_its_first_session_on_and_others_keep_their_state() {
        let table = AvailabilityTable::new(2, BLOCK + 1);
        let offline = Availability::connected(false);
        let full = Availability {
            is_full: true,
            ..Availability::connected(true)
        };
        let last = u32::try_from(BLOCK).expect("small");

        table.set(1, last, full);

        assert_eq!(table.availability(1, last), full);
        assert_eq!(table.availability(1, 0), offline);
        assert_eq!(table.availability(0, last), offline);
        let blocks = table.shards.iter().flatten();
        assert_eq!(blocks.filter(|block| block.get().is_some()).count(), 1);
    }

    #[test]
    fn a_session_beyond_the_table_is_taken_for_connected() {
        let table = AvailabilityTable::new(1, 1);

        table.set(0, 1, Availability::connected(false));

        assert_eq!(table.availability(0, 1), Availability::UNKNOWN);
        assert_eq!(table.availability(0, 0), Availability::connected(false));
    }
}
