//! What an engine sees of a store, whatever is behind it.

use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;
use crate::files::Files;
use crate::index::restore::KeptSession;
use crate::index::rows::{StoredDelivery, StoredMessage};
use crate::stats::LogStats;
use crate::wal::batch::Batch;
use crate::wal::{Durability, LogObserver, Pressure, SpacePolicy, Ticket};

/// Keeps records, and what they amount to.
///
/// Appending never waits for the disk. Reading waits until everything appended before is in what
/// is read: do it where nobody waits for you.
pub trait Store: Send + Sync {
    /// Puts a batch into the line and empties it.
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

    /// Whether the batch is kept; false for one that was refused, too.
    fn is_kept(&self, ticket: Ticket) -> bool;

    /// Sleeps until the batch is kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, [`StoreError::Stopped`].
    fn wait(&self, ticket: Ticket) -> Result<(), StoreError>;

    /// Names who hears what becomes of batches; the first one stays.
    fn observe(&self, observer: Arc<dyn LogObserver>);

    /// Whether less waits for the disk than should; else read nothing new from publishers.
    fn has_room(&self) -> bool;

    /// How tight the room on the disk is.
    fn pressure(&self) -> Pressure;

    /// Takes `count` numbers that no message, delivery or session of this store ever had; returns
    /// the first.
    fn numbers(&self, count: u64) -> u64;

    /// Hands every kept session to `visit`, oldest first.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn sessions(&self, visit: &mut dyn FnMut(KeptSession)) -> Result<(), StoreError>;

    /// Hands number and client identifier of every kept session to `visit`, in no order: what can
    /// be had of very many at once.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn clients(&self, visit: &mut dyn FnMut(u64, &str)) -> Result<(), StoreError>;

    /// Hands those of the sessions with these numbers that there are to `visit`; the numbers
    /// ascend.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn restore(
        &self,
        numbers: &[u64],
        visit: &mut dyn FnMut(KeptSession),
    ) -> Result<(), StoreError>;

    /// Up to `limit` deliveries that wait for a session, in order, from number `from` on.
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

    /// Up to `limit` deliveries as [`Store::queue`], with their messages, of which there are about
    /// `bytes` at most: at least one delivery, if any waits. A message that nobody refers to is
    /// `None`.
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

    /// Hands every topic with a retained message to `visit`, with the message's number.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn retained(&self, visit: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError>;

    /// Hands every note to `visit`, by its key.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint.
    fn notes(&self, visit: &mut dyn FnMut(&str, &[u8])) -> Result<(), StoreError>;

    /// A message that some delivery or topic refers to; `None` if none does.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint, and [`StoreError::Damaged`] if its bytes are not as they were.
    fn message(&self, message: u64) -> Result<Option<StoredMessage>, StoreError>;

    /// Brings the checkpoint up to what is written, so that opening is quick and segments go.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint, [`StoreError::Stopped`].
    fn checkpoint(&self) -> Result<(), StoreError>;

    /// Copies the store as it is now into an empty folder, while it goes on; returns the bytes of
    /// the copy. All that was appended before is in it.
    ///
    /// # Errors
    ///
    /// Those of the checkpoint and of the file system, [`StoreError::Stopped`];
    /// [`StoreError::Missing`] where nothing is kept.
    fn backup(&self, to: &dyn Files) -> Result<u64, StoreError>;

    /// Figures; never waits, so those of what can be read may be a little older than the others.
    fn stats(&self) -> StoreStats;

    /// Writes and syncs everything, brings the checkpoint up to date, gives the folder back, and
    /// takes nothing more.
    ///
    /// # Errors
    ///
    /// What stopped the store, if something did.
    fn close(&self) -> Result<(), StoreError>;
}

/// The front part of `queue` whose messages have `bytes` together, but for the last one.
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

/// Figures about a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StoreStats {
    /// Those of the log.
    pub log: LogStats,
    /// Records up to here are in what can be read.
    pub applied_lsn: u64,
    /// Rows in memory that the checkpoint does not have.
    pub pending_rows: u64,
    /// Bytes of messages that are still wanted, in the log and in the checkpoint.
    pub live_bytes: u64,
    /// Checkpoints written since the store was opened.
    pub checkpoints: u64,
    /// Since the last one, or since the store was opened.
    pub checkpoint_age: Duration,
}

/// Keeps nothing: every batch is kept at once and gone.
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

    fn backup(&self, _: &dyn Files) -> Result<u64, StoreError> {
        Err(StoreError::Missing)
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
