//! A shard's part of the memory budget: accounts of chunks, memory of clients, and when to compare the sum with the
//! budget.

use std::sync::Arc;

use mqttcore_session::{Chunk, ChunkAccount};

use crate::clients::client::Client;
use crate::clients::link::Link;
use crate::runtime::memory::{MemoryLevel, ShardMemory};
use crate::shard::Shard;

/// Maximum number of bytes of a large frame that one read takes: the rest of a message of 1 MB (ADR 0133).
const LARGE_READ_BYTES: usize = 1024 * 1024;
/// The same for a frame whose buffer grows with its bytes, and for all while much is in transit.
pub(crate) const SMALLER_READ_BYTES: usize = 256 * 1024;
/// While the messages of a shard take more than this, large frames are read in smaller steps, so that reading does not
/// outrun writing.
const IN_TRANSIT_BYTES: usize = 32 * 1024 * 1024;

impl Shard {
    /// Maximum number of bytes of a large frame that a read takes now.
    pub(crate) fn large_read_bytes(&self) -> usize {
        if self.memory().chunk_bytes() < IN_TRANSIT_BYTES {
            LARGE_READ_BYTES
        } else {
            SMALLER_READ_BYTES
        }
    }

    pub(crate) fn memory(&self) -> &ShardMemory {
        self.engine.memory.shard(self.index)
    }

    /// How much of the budget was used when somebody looked last.
    pub(crate) fn memory_level(&self) -> MemoryLevel {
        self.engine.memory.level()
    }

    /// Counts `bytes` that are about to be held; once they are many, the sum is compared with the budget.
    pub(crate) fn count_growth(&self, bytes: usize) {
        let grown = self.grown.get() + bytes;
        if grown < self.engine.memory.step() {
            return self.grown.set(grown);
        }
        self.grown.set(0);
        self.engine.memory.judge();
    }

    fn replace_weight(&self, slot: usize, bytes: u32) -> u32 {
        let mut weighed = self.weighed.borrow_mut();
        if weighed.len() <= slot {
            weighed.resize(slot + 1, 0);
        }
        std::mem::replace(&mut weighed[slot], bytes)
    }

    /// Copies bytes that came over `link` to a chunk, which its account counts.
    pub(crate) fn new_chunk(&self, link: &Link, bytes: &[u8]) -> Chunk {
        self.count_growth(bytes.len());
        self.marked(Chunk::new(bytes, Some(self.account_of(link))))
    }

    /// The account of bytes that were received over `link`.
    pub(crate) fn account_of<'l>(&self, link: &'l Link) -> &'l Arc<ChunkAccount> {
        link.account.get_or_init(|| self.memory().account())
    }
}

impl Client {
    /// Counts the memory of the session and its connection.
    pub(crate) fn weigh(&self, shard: &Shard) {
        let link = self.link_ref();
        let connection = link.as_ref().map_or(0, |link| link.heap_bytes());
        let session = SESSION_BYTES + self.id.len() + self.session.borrow().heap_bytes();
        self.count(shard, session + connection);
    }

    /// Counts the session out, which has ended.
    pub(crate) fn count_out(&self, shard: &Shard) {
        self.count(shard, 0);
    }

    fn count(&self, shard: &Shard, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = shard.replace_weight(self.handle.slot() as usize, bytes);
        let sessions = &shard.memory().sessions;
        if bytes > before {
            sessions.add(u64::from(bytes - before));
            shard.count_growth((bytes - before) as usize);
        } else if bytes < before {
            sessions.sub(u64::from(before - bytes));
        }
    }
}

/// Memory of a session without its tables: itself, its login, its texts, its entries in the tables of the shard.
const SESSION_BYTES: usize = size_of::<Client>() + 240;
