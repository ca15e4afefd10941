//! The write-ahead log: opening, appending, observers, closing.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::error::StoreError;
use crate::files::Files;
use crate::stats::LogStats;
use crate::wal::batch::Batch;
use crate::wal::commit::{Committer, Pressure};
use crate::wal::numbering::Numbering;
use crate::wal::open::{LogExpectation, RecordVisitor, Recovery, open};
use crate::wal::queue::{Durability, SpacePolicy, Ticket};
use crate::wal::shared::LogShared;
use crate::wal::writing::{self, GroupForwarder};

/// Is called when batches are safe or refused. Called on the log's thread: must return quickly
/// and must not append.
pub trait LogObserver: Send + Sync {
    /// All batches up to `number` that asked for `durability` or less are safe, except refused
    /// ones, which were reported before.
    fn kept(&self, durability: Durability, number: u64);

    /// These batches were refused because the disk is full; nothing of them was written. If one
    /// of them was essential, [`LogObserver::stopped`] follows, since later records may depend on
    /// it.
    fn refused(&self, tickets: &[Ticket]);

    /// [`Wal::has_room`] is true again. May be called on the index thread.
    fn has_room(&self) {}

    /// Bytes of live messages ([`StoreStats::live_bytes`](crate::StoreStats::live_bytes));
    /// reported after each group, on the index thread.
    fn wanted(&self, _bytes: u64) {}

    /// A full segment was scrubbed: `None` if it is intact. Called on the scrubber's thread.
    fn scrubbed(&self, _damage: Option<&StoreError>) {}

    /// Files of a stream cannot be moved to object storage, or can again: `None`. Called on the thread that moves them.
    fn tiered(&self, _stream: &str, _problem: Option<&StoreError>) {}

    /// The store has stopped: batches that are not safe yet are lost.
    fn stopped(&self, error: &StoreError);
}

/// The log and its thread. Any number of threads may share it.
pub struct Wal {
    pub(crate) shared: Arc<LogShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Options of a log.
#[derive(Clone, Copy, Debug)]
pub struct WalOptions {
    /// Size of a segment file.
    pub segment_bytes: u64,
    /// Size of the file that is removed when the disk is full; 0: no reserve.
    pub ballast_bytes: u64,
    /// Free bytes on the disk below which the pressure is [`Pressure::Soft`]; at most a tenth of
    /// the disk.
    pub soft_bytes: u64,
    /// Bytes in the log queue from which on [`Wal::has_room`] is false.
    pub queue_bytes: usize,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            ballast_bytes: 64 << 20,
            soft_bytes: 1 << 30,
            queue_bytes: 32 << 20,
        }
    }
}

impl Wal {
    /// Opens the log in `files`, or creates one, and starts its thread. Calls `visit` with each
    /// record, in order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] and other reasons why the log cannot be used; errors of `visit`.
    pub fn open(
        files: &Arc<dyn Files>,
        options: &WalOptions,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(Self, Recovery), StoreError> {
        let known = LogExpectation::begin(options.segment_bytes);
        let mut numbering = Numbering::default();
        let (mut writer, recovery) = open(files, &known, &mut |logged| {
            numbering.observe(&logged.record);
            visit(logged)
        })?;
        writer.numbering = numbering;
        let committer = Committer::new(writer, options.into())?;
        let recycling = |shared: &Arc<LogShared>| {
            let shared = Arc::clone(shared);
            Box::new(move |group, _| shared.recycle(group)) as GroupForwarder
        };
        let wal = Self::start(committer, options.queue_bytes, recycling)?;
        Ok((wal, recovery))
    }

    /// Starts the thread.
    pub(crate) fn start(
        committer: Committer,
        queue_bytes: usize,
        forward: impl FnOnce(&Arc<LogShared>) -> GroupForwarder,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(LogShared::new(queue_bytes, committer.writer.durable_lsn));
        let forward = forward(&shared);
        let thread = writing::start(Arc::clone(&shared), committer, forward)?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Copies a batch into the log queue and clears it. Never blocks.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub fn append(
        &self,
        batch: &mut Batch,
        durability: Durability,
        space: SpacePolicy,
    ) -> Result<Ticket, StoreError> {
        self.shared.append(batch, durability, space)
    }

    /// Whether the batch is safe; also false if it was refused.
    pub fn is_kept(&self, ticket: Ticket) -> bool {
        self.shared.is_kept(ticket)
    }

    /// Blocks until the batch is safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, [`StoreError::Stopped`].
    pub fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.shared.wait(ticket)
    }

    /// Whether the log queue has room; if not, the caller should not read from publishers.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// How little space is free on the disk.
    pub fn pressure(&self) -> Pressure {
        self.shared.pressure()
    }

    /// Sets the observer; only the first call has an effect.
    pub fn observe(&self, observer: Arc<dyn LogObserver>) {
        self.shared.observe(observer);
    }

    /// Counters and positions of the log.
    pub fn stats(&self) -> LogStats {
        self.shared.stats()
    }

    /// Checks that the log has not stopped.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.shared.check()
    }

    /// Writes and syncs all batches and ends the thread. Later calls have no effect.
    ///
    /// # Errors
    ///
    /// The error that stopped the log.
    pub fn close(&self) -> Result<(), StoreError> {
        self.shared.lock_queue().is_closed = true;
        self.shared.arrived.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A thread that panicked has stopped the log already.
        let _ = thread.map(JoinHandle::join);
        self.shared
            .stopped
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        // Callers that need the result call `close` first.
        let _ = self.close();
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wal").finish_non_exhaustive()
    }
}
