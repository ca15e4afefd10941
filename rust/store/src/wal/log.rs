//! The log itself: who opens it, appends to it and hears of it.

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

/// Hears what becomes of batches. Called on the thread of the log: be quick, and never append.
pub trait LogObserver: Send + Sync {
    /// Every batch up to `number` that asked for `durability` or less is kept, but for those that were
    /// refused, which have been told before.
    fn kept(&self, durability: Durability, number: u64);

    /// There was no room for these. They have left no trace. If one of them was essential,
    /// [`LogObserver::stopped`] comes next: what follows would not be true without it.
    fn refused(&self, tickets: &[Ticket]);

    /// [`Wal::has_room`] says yes again. May be called on the thread behind the log.
    fn has_room(&self) {}

    /// Messages of so many bytes are wanted ([`StoreStats::live_bytes`](crate::StoreStats::live_bytes)); told behind each
    /// group, on the thread behind the log.
    fn wanted(&self, _bytes: u64) {}

    /// A segment that nobody writes to was read again, and is damaged, or whole. Called on the
    /// thread of the scrubber.
    fn scrubbed(&self, _damage: Option<&StoreError>) {}

    /// The store takes nothing any more; whatever was not kept never will be.
    fn stopped(&self, error: &StoreError);
}

/// The log and the thread that writes it. May be shared by any number of threads.
pub struct Wal {
    pub(crate) shared: Arc<LogShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct WalOptions {
    /// Size of a segment file.
    pub segment_bytes: u64,
    /// Size of the file that is given up when the disk is full; 0 is no reserve.
    pub ballast_bytes: u64,
    /// Free bytes on the disk below which [`Pressure::Soft`] holds; on a small disk a tenth of it.
    pub soft_bytes: u64,
    /// Bytes that may wait for the disk before [`Wal::has_room`] says no.
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
    /// Opens the log in `files`, or begins one, and starts its thread. `visit` sees every record
    /// that is there, in order.
    ///
    /// # Errors
    ///
    /// Whatever keeps the log from being trusted: see [`StoreError`]; and what `visit` returns.
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

    /// Puts a batch into the line and empties it. Never waits.
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

    /// Whether the batch is kept; false for one that was refused, too.
    pub fn is_kept(&self, ticket: Ticket) -> bool {
        self.shared.is_kept(ticket)
    }

    /// Sleeps until the batch is kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, [`StoreError::Stopped`].
    pub fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.shared.wait(ticket)
    }

    /// Whether less waits for the disk than should; else read nothing new from publishers.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// How tight the room on the disk is.
    pub fn pressure(&self) -> Pressure {
        self.shared.pressure()
    }

    /// Names who hears what becomes of batches; the first one stays.
    pub fn observe(&self, observer: Arc<dyn LogObserver>) {
        self.shared.observe(observer);
    }

    /// Removes the full segments up to number `through`, soon: nobody needs them any more.
    pub fn drop_segments(&self, through: u64) {
        self.shared.ask(Box::new(move |committer| {
            committer.writer.drop_up_to(through)?;
            committer.restore()
        }));
    }

    /// Counters, and where the log stands.
    pub fn stats(&self) -> LogStats {
        self.shared.stats()
    }

    /// Whether it goes on.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.shared.check()
    }

    /// Writes and syncs everything, and ends the thread. Later calls change nothing.
    ///
    /// # Errors
    ///
    /// What stopped the log, if something did.
    pub fn close(&self) -> Result<(), StoreError> {
        self.shared.lock_queue().is_closed = true;
        self.shared.arrived.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // One that panicked has stopped the log.
        let _ = thread.map(JoinHandle::join);
        self.shared
            .stopped
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        let _ = self.close();
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wal").finish_non_exhaustive()
    }
}
