//! The memory budget: what is counted against it, how much of it is used, and its two watermarks (ADR 0033).
//!
//! Message chunks count themselves ([`Chunk`](mqttcore_session::Chunk)). A shard counts its sessions with the buffers
//! of their connections, and connections before admission. Everything else is measured at each tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use mqttcore_session::{ChunkAccount, ChunkTotal};

use crate::runtime::metrics::Counter;
use crate::runtime::spare_buffers::SpareBuffers;

/// Watermarks of a level in percent of the budget: it begins at the first and ends below the second.
const HIGH: (usize, usize) = (75, 70);
const FULL: (usize, usize) = (90, 85);
/// A shard computes the sum again when its chunks have grown by this part of the budget ...
const STEPS: usize = 256;
/// ... but at least by this many bytes.
const STEP_MIN_BYTES: usize = 16 * 1024;

/// How much of the budget is used.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum MemoryLevel {
    /// No restrictions.
    #[default]
    Normal,
    /// Above the low watermark: queues are spilled, the largest publishers are read slowly, QoS 0 messages are not
    /// queued.
    High,
    /// Above the high watermark: requests that would hold memory for long are refused.
    Full,
}

impl MemoryLevel {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Normal,
            1 => Self::High,
            _ => Self::Full,
        }
    }

    /// The next level at `used` bytes of `budget`, if this is the current one.
    fn next(self, used: usize, budget: usize) -> Self {
        let limit = |(from, until): (usize, usize), level| {
            let percent = if self >= level { until } else { from };
            budget / 100 * percent
        };
        if used >= limit(FULL, Self::Full) {
            Self::Full
        } else if used >= limit(HIGH, Self::High) {
            Self::High
        } else {
            Self::Normal
        }
    }
}

/// The budget, and the bytes counted against it.
pub(crate) struct Memory {
    budget: AtomicUsize,
    level: AtomicU8,
    /// Bytes of tables that belong to no shard, as of the last tick.
    tables: AtomicUsize,
    /// Bytes of password hashes, as of the last tick.
    passwords: AtomicUsize,
    shards: Vec<ShardMemory>,
}

/// The counters of one shard. Only its thread writes them.
pub(crate) struct ShardMemory {
    chunks: Arc<ChunkTotal>,
    spare: Arc<SpareBuffers>,
    /// Counts messages that arrived over no connection.
    pub(crate) own_account: Arc<ChunkAccount>,
    /// Bytes of sessions and of the buffers of their connections.
    pub(crate) sessions: Counter,
    /// Bytes of connections before admission.
    pub(crate) pending: Counter,
}

impl ShardMemory {
    fn new() -> Self {
        let spare = Arc::<SpareBuffers>::default();
        let keeper = Arc::<SpareBuffers>::clone(&spare);
        let chunks = Arc::new(ChunkTotal::with_keeper(keeper));
        Self {
            own_account: ChunkAccount::new(Arc::clone(&chunks)),
            chunks,
            spare,
            sessions: Counter::default(),
            pending: Counter::default(),
        }
    }

    /// Bytes of the messages that arrived on the shard.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunks.bytes()
    }

    /// Buffers of large messages that arrived on the shard.
    pub(crate) fn spare_buffers(&self) -> &Arc<SpareBuffers> {
        &self.spare
    }

    /// Creates an account for the messages of one connection.
    pub(crate) fn account(&self) -> Arc<ChunkAccount> {
        ChunkAccount::new(Arc::clone(&self.chunks))
    }
}

/// Bytes in use, by kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct MemoryUse {
    /// Topics, properties and payloads of all messages: queued, in flight, retained or being written; and spare buffers
    /// of large ones.
    pub(crate) messages: usize,
    pub(crate) sessions: usize,
    pub(crate) pending: usize,
    pub(crate) tables: usize,
    pub(crate) passwords: usize,
}

impl MemoryUse {
    pub(crate) fn sum(self) -> usize {
        self.messages + self.sessions + self.pending + self.tables + self.passwords
    }
}

impl Memory {
    pub(crate) fn new(shards: usize, budget: usize) -> Self {
        Self {
            budget: AtomicUsize::new(budget),
            level: AtomicU8::default(),
            tables: AtomicUsize::default(),
            passwords: AtomicUsize::default(),
            shards: (0..shards).map(|_| ShardMemory::new()).collect(),
        }
    }

    pub(crate) fn shard(&self, index: usize) -> &ShardMemory {
        &self.shards[index]
    }

    /// Changes the budget.
    pub(crate) fn set_budget(&self, budget: usize) {
        // ORDERING: statistics and hints, like all atomics here.
        self.budget.store(budget, Ordering::Relaxed);
        self.judge();
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// Stores the bytes of tables that belong to no shard, and those of password hashes.
    pub(crate) fn set_measured(&self, tables: usize, passwords: usize) {
        self.tables.store(tables, Ordering::Relaxed);
        self.passwords.store(passwords, Ordering::Relaxed);
        self.judge();
    }

    /// The level that [`Memory::judge`] found last.
    pub(crate) fn level(&self) -> MemoryLevel {
        MemoryLevel::of(self.level.load(Ordering::Relaxed))
    }

    /// How much a shard's chunks may grow before it computes the sum again.
    pub(crate) fn step(&self) -> usize {
        (self.budget() / STEPS).max(STEP_MIN_BYTES)
    }

    /// Computes the sum of all bytes in use and stores the level.
    pub(crate) fn judge(&self) -> MemoryLevel {
        let level = self.level().next(self.used().sum(), self.budget());
        self.level.store(level as u8, Ordering::Relaxed);
        level
    }

    pub(crate) fn used(&self) -> MemoryUse {
        let mut used = MemoryUse {
            tables: self.tables.load(Ordering::Relaxed),
            passwords: self.passwords.load(Ordering::Relaxed),
            ..MemoryUse::default()
        };
        let bytes = |counter: &Counter| usize::try_from(counter.value()).unwrap_or(usize::MAX);
        for shard in &self.shards {
            used.messages += shard.chunks.bytes() + shard.spare.bytes();
            used.sessions += bytes(&shard.sessions);
            used.pending += bytes(&shard.pending);
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_session::Chunk;

    use super::*;

    #[test]
    fn levels_are_reached_at_their_watermarks_and_left_below_them() {
        use MemoryLevel::{Full, High, Normal};
        let next = |level: MemoryLevel, used| level.next(used, 1_000);

        assert_eq!((next(Normal, 749), next(Normal, 750)), (Normal, High));
        assert_eq!((next(High, 700), next(High, 699)), (High, Normal));
        assert_eq!((next(High, 899), next(High, 900)), (High, Full));
        assert_eq!((next(Full, 850), next(Full, 849)), (Full, High));
        assert_eq!((next(Full, 699), next(Normal, 950)), (Normal, Full));
    }

    #[test]
    fn bytes_of_shards_and_of_tables_are_one_sum() {
        let memory = Memory::new(2, 10_000);
        let account = memory.shard(0).account();
        let chunk = Chunk::new(&[0; 4_000], Some(&account));
        let own = Chunk::new(&[0; 500], Some(&memory.shard(1).own_account));
        memory.shard(1).sessions.add(1_000);
        memory.shard(0).pending.add(100);
        memory.set_measured(1_500, 500);

        let used = memory.used();
        assert_eq!(used.messages, chunk.heap_bytes() + own.heap_bytes());
        assert_eq!(
            (used.sessions, used.pending, used.tables, used.passwords),
            (1_000, 100, 1_500, 500)
        );
        assert_eq!(memory.level(), MemoryLevel::High);
        drop(chunk);
        assert_eq!(memory.judge(), MemoryLevel::Normal);
    }

    #[test]
    fn a_new_budget_is_judged_at_once() {
        let memory = Memory::new(1, 1_000);
        memory.set_measured(500, 0);
        memory.set_budget(500);

        assert_eq!((memory.budget(), memory.level()), (500, MemoryLevel::Full));
    }
}
