//! The trait `Store`, which the engine uses, and the store that keeps nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::backup::CopyProgress;
use crate::error::StoreError;
use crate::files::Files;
use crate::index::restore::KeptSession;
use crate::index::rows::{StoredDelivery, StoredMessage};
use crate::stats::LogStats;
use crate::wal::batch::Batch;
use crate::wal::{Durability, LogObserver, Pressure, SpacePolicy, Ticket};

/// Stores records, and the sessions, queues and messages that result from them.
///
/// Appending never blocks. Reading blocks until all earlier batches are applied: do not call it
/// on a shard.
pub trait Store: Send + Sync {
    /// Copies a batch into the log queue and clears it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    fn append(
        &self,
        batch: &mut Batch,
        durability: Durability,
        space: SpacePolicy,
    ) -> Result<Ticket, StoreError>;

    /// Whether the batch is safe; also false if it was refused.
    fn is_kept(&self, ticket: Ticket) -> bool;

    /// Blocks until the batch is safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, [`StoreError::Stopped`].
    fn wait(&self, ticket: Ticket) -> Result<(), StoreError>;

    /// Sets the observer; only the first call has an effect.
    fn observe(&self, observer: Arc<dyn LogObserver>);

    /// Whether the log queue has room; if not, the caller should not read from publishers.
    fn has_room(&self) -> bool;

    /// How little space is free on the disk.
    fn pressure(&self) -> Pressure;

    /// Allocates `count` numbers that no message, delivery or session of this store has had;
    /// returns the first.
    fn numbers(&self, count: u64) -> u64;

    /// Calls `visit` for each kept session, oldest first.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn sessions(&self, visit: &mut dyn FnMut(KeptSession)) -> Result<(), StoreError>;

    /// Calls `visit` with number and client identifier of each kept session, in no order; fast, also for a million
    /// sessions.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn clients(&self, visit: &mut dyn FnMut(u64, &str)) -> Result<(), StoreError>;

    /// Calls `visit` for those sessions with these numbers that still exist; the numbers must ascend.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn restore(
        &self,
        numbers: &[u64],
        visit: &mut dyn FnMut(KeptSession),
    ) -> Result<(), StoreError>;

    /// Up to `limit` queued deliveries of a session, in order, from number `from` on.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn queue(
        &self,
        session: u64,
        from: u64,
        limit: usize,
    ) -> Result<Vec<StoredDelivery>, StoreError>;

    /// Up to `limit` deliveries as [`Store::queue`], with their messages, about `bytes` together
    /// at most, but at least one delivery if one is queued. A message that was removed is `None`.
    ///
    /// # Errors
    ///
    /// Those of [`Store::queue`] and [`Store::message`].
    fn page(
        &self,
        session: u64,
        from: u64,
        limit: usize,
        bytes: u64,
    ) -> Result<Vec<(StoredDelivery, Option<StoredMessage>)>, StoreError> {
        let queue = self.queue(session, from, limit)?;
        let mut page = Vec::new();
        for delivery in first_bytes(queue, bytes) {
            let message = self.message(delivery.message)?;
            page.push((delivery, message));
        }
        Ok(page)
    }

    /// Calls `visit` with each topic that has a retained message, and the number of the message.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn retained(&self, visit: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError>;

    /// Calls `visit` with key and value of each note.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn notes(&self, visit: &mut dyn FnMut(&str, &[u8])) -> Result<(), StoreError>;

    /// A message; `None` if no delivery and no topic refers to it.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint, and [`StoreError::Damaged`] if its checksum is wrong.
    fn message(&self, message: u64) -> Result<Option<StoredMessage>, StoreError>;

    /// Writes a checkpoint, so that the next start is fast and old segments can be removed.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint, [`StoreError::Stopped`].
    fn checkpoint(&self) -> Result<(), StoreError>;

    /// Copies the store into an empty folder while it is in use; returns the bytes of the copy, and tells `progress`
    /// meanwhile. The copy contains all batches that were appended before.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint and of the file system, [`StoreError::Stopped`];
    /// [`StoreError::Missing`] if the store keeps nothing.
    fn backup(&self, to: &dyn Files, progress: &CopyProgress) -> Result<u64, StoreError>;

    /// Figures of the store. Never blocks, so figures of the index may be a little older than
    /// those of the log.
    fn stats(&self) -> StoreStats;

    /// Writes and syncs all batches, writes a checkpoint, and releases the folder. Later appends
    /// fail.
    ///
    /// # Errors
    ///
    /// The error that stopped the store.
    fn close(&self) -> Result<(), StoreError>;
}

/// The front part of `queue` up to the message with which the sum reaches `bytes`.
pub(crate) fn first_bytes(
    queue: Vec<StoredDelivery>,
    bytes: u64,
) -> impl Iterator<Item = StoredDelivery> {
    let mut taken = 0;
    queue.into_iter().take_while(move |delivery| {
        let is_taken = taken < bytes.max(1);
        taken += u64::from(delivery.bytes);
        is_taken
    })
}

/// Figures of a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StoreStats {
    /// Figures of the log.
    pub log: LogStats,
    /// LSN of the last record that was applied to the index.
    pub applied_lsn: u64,
    /// Changed rows of the index that are not in the checkpoint.
    pub pending_rows: u64,
    /// Bytes of memory that these rows and the cached pages of the checkpoint take.
    pub index_memory_bytes: u64,
    /// Bytes of live messages, in the log and in the checkpoint.
    pub live_bytes: u64,
    /// Checkpoints written since the store was opened.
    pub checkpoints: u64,
    /// Time since the last checkpoint, or since the store was opened.
    pub checkpoint_age: Duration,
}

/// A store that keeps nothing: every batch counts as safe at once.
#[derive(Debug)]
pub struct MemoryStore {
    numbers: std::sync::atomic::AtomicU64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { numbers: 1.into() }
    }
}

impl Store for MemoryStore {
    fn append(
        &self,
        batch: &mut Batch,
        _: Durability,
        _: SpacePolicy,
    ) -> Result<Ticket, StoreError> {
        batch.clear();
        Ok(Ticket {
            number: 0,
            durability: Durability::Memory,
        })
    }

    fn is_kept(&self, _: Ticket) -> bool {
        true
    }

    fn wait(&self, _: Ticket) -> Result<(), StoreError> {
        Ok(())
    }

    fn observe(&self, _: Arc<dyn LogObserver>) {}

    fn has_room(&self) -> bool {
        true
    }

    fn pressure(&self) -> Pressure {
        Pressure::None
    }

    fn numbers(&self, count: u64) -> u64 {
        // ORDERING: only uniqueness matters.
        self.numbers
            .fetch_add(count, std::sync::atomic::Ordering::Relaxed)
    }

    fn sessions(&self, _: &mut dyn FnMut(KeptSession)) -> Result<(), StoreError> {
        Ok(())
    }

    fn clients(&self, _: &mut dyn FnMut(u64, &str)) -> Result<(), StoreError> {
        Ok(())
    }

    fn restore(&self, _: &[u64], _: &mut dyn FnMut(KeptSession)) -> Result<(), StoreError> {
        Ok(())
    }

    fn queue(&self, _: u64, _: u64, _: usize) -> Result<Vec<StoredDelivery>, StoreError> {
        Ok(Vec::new())
    }

    fn retained(&self, _: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError> {
        Ok(())
    }

    fn notes(&self, _: &mut dyn FnMut(&str, &[u8])) -> Result<(), StoreError> {
        Ok(())
    }

    fn message(&self, _: u64) -> Result<Option<StoredMessage>, StoreError> {
        Ok(None)
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn backup(&self, _: &dyn Files, _: &CopyProgress) -> Result<u64, StoreError> {
        Err(StoreError::Missing)
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
