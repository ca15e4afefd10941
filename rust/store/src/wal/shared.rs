//! State that the log's thread shares with its callers: the log queue and the positions of the
//! log.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::StoreError;
use crate::stats::LogStats;
use crate::wal::batch::Batch;
use crate::wal::commit::{Committer, Pressure};
use crate::wal::log::LogObserver;
use crate::wal::queue::{CommitGroup, Durability, LogCommand, LogQueue, SpacePolicy, Ticket};
use mqttcore_panics::Panicked;

/// State that the log's thread shares with its callers.
pub(crate) struct LogShared {
    pub(super) queue: Mutex<LogQueue>,
    pub(super) arrived: Condvar,
    /// Refused tickets; threads that wait for a ticket sleep on this lock.
    refused: Mutex<BTreeSet<u64>>,
    settled: Condvar,
    pub(super) written: AtomicU64,
    durable: AtomicU64,
    /// The last synced LSN; readers of rows show rows up to it.
    pub(crate) durable_lsn: Arc<AtomicU64>,
    pressure: AtomicU8,
    pub(super) stopped: OnceLock<StoreError>,
    observer: OnceLock<Arc<dyn LogObserver>>,
    stats: Mutex<LogStats>,
    /// The last ticket that the index thread has processed.
    applied: Mutex<u64>,
    caught_up: Condvar,
    /// Number and last LSN of each full segment.
    full: Mutex<Vec<(u64, u64)>>,
    queue_bytes: usize,
}

/// Refused tickets that [`LogShared::wait`] remembers.
const REMEMBERED: usize = 65_536;

impl LogShared {
    pub(super) fn new(queue_bytes: usize, durable_lsn: u64) -> Self {
        Self {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            refused: Mutex::default(),
            settled: Condvar::new(),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            durable_lsn: Arc::new(AtomicU64::new(durable_lsn)),
            pressure: AtomicU8::new(0),
            stopped: OnceLock::new(),
            observer: OnceLock::new(),
            stats: Mutex::default(),
            applied: Mutex::default(),
            caught_up: Condvar::new(),
            full: Mutex::default(),
            queue_bytes,
        }
    }

    /// Copies a batch into the log queue and clears it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub(crate) fn append(
        &self,
        batch: &mut Batch,
        durability: Durability,
        space: SpacePolicy,
    ) -> Result<Ticket, StoreError> {
        self.check()?;
        let mut queue = self.lock_queue();
        if queue.is_closed {
            return Err(StoreError::Stopped("it was closed".into()));
        }
        let was_empty = queue.is_empty();
        let ticket = queue.push(batch, durability, space);
        drop(queue);
        batch.clear();
        if was_empty {
            self.arrived.notify_one();
        }
        Ok(ticket)
    }

    /// Has the log's thread run a command between two groups; false if the thread has ended.
    pub(crate) fn ask(&self, command: LogCommand) -> bool {
        let mut queue = self.lock_queue();
        if queue.is_closed {
            return false;
        }
        queue.commands.push(command);
        drop(queue);
        self.arrived.notify_one();
        true
    }

    /// Has the log's thread run `question` and blocks for its result; `None` if the thread has
    /// ended.
    pub(crate) fn ask_for<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Committer) -> Result<T, StoreError> + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = channel();
        let is_asked = self.ask(Box::new(move |committer| {
            // The caller waits for the answer.
            let _ = sender.send(question(committer)?);
            Ok(())
        }));
        if is_asked { answer.recv().ok() } else { None }
    }

    /// Whether the log queue has room; a hint, since `append` always accepts.
    pub(crate) fn has_room(&self) -> bool {
        self.lock_queue().bytes < self.queue_bytes
    }

    /// Whether a batch is queued.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock_queue().bytes > 0
    }

    /// Reports the bytes of live messages to the observer.
    pub(crate) fn wanted(&self, bytes: u64) {
        if let Some(observer) = self.observer.get() {
            observer.wanted(bytes);
        }
    }

    pub(crate) fn scrubbed(&self, damage: Option<&StoreError>) {
        if let Some(observer) = self.observer.get() {
            observer.scrubbed(damage);
        }
    }

    #[cfg(feature = "columnar")]
    pub(crate) fn tiered(&self, stream: &str, problem: Option<&StoreError>) {
        if let Some(observer) = self.observer.get() {
            observer.tiered(stream, problem);
        }
    }

    /// Whether the batch is safe; also `false` if it was refused.
    pub(crate) fn is_kept(&self, ticket: Ticket) -> bool {
        let reached = ticket.number <= self.reached(ticket.durability);
        reached && !self.lock_refused().contains(&ticket.number)
    }

    /// Blocks until the batch is safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, or what stopped the store.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        let mut refused = self.lock_refused();
        loop {
            if refused.contains(&ticket.number) {
                return Err(StoreError::NoSpace);
            }
            if ticket.number <= self.reached(ticket.durability) {
                return Ok(());
            }
            self.check()?;
            refused = self
                .settled
                .wait(refused)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn observe(&self, observer: Arc<dyn LogObserver>) {
        // Only the first observer is used.
        let _ = self.observer.set(observer);
        // The log may have stopped before the observer was set; a second call of `stopped` is
        // ignored.
        if let (Some(error), Some(observer)) = (self.stopped.get(), self.observer.get()) {
            observer.stopped(error);
        }
    }

    pub(crate) fn durable_lsn(&self) -> u64 {
        // ORDERING: whoever sees the number may read what is below it from the disk only.
        self.durable_lsn.load(Ordering::Acquire)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        // ORDERING: a hint.
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Soft,
            _ => Pressure::Hard,
        }
    }

    pub(crate) fn stats(&self) -> LogStats {
        let mut stats = self.lock_stats().clone();
        stats.durable_lsn = self.durable_lsn();
        let queue = self.lock_queue();
        stats.waiting_bytes = queue.bytes as u64;
        stats.memory_bytes = queue.heap_bytes() as u64;
        drop(queue);
        stats
    }

    /// Publishes the pressure.
    pub(super) fn note_pressure(&self, pressure: Pressure) {
        // ORDERING: a hint.
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// Publishes number and last LSN of each full segment, oldest first.
    pub(super) fn note_full_segments(&self, full: Vec<(u64, u64)>) {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = full;
    }

    /// Number and last LSN of each full segment, oldest first.
    pub(crate) fn full_segments(&self) -> Vec<(u64, u64)> {
        self.full
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes a group back that was dealt with.
    pub(crate) fn recycle(&self, group: CommitGroup) {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = group.last_ticket;
        self.caught_up.notify_all();
        let mut queue = self.lock_queue();
        let was_full = queue.bytes >= self.queue_bytes;
        queue.recycle(group);
        let is_full = queue.bytes >= self.queue_bytes;
        drop(queue);
        if was_full
            && !is_full
            && let Some(observer) = self.observer.get()
        {
            observer.has_room();
        }
    }

    /// Blocks until all batches that were appended before have been processed.
    pub(crate) fn catch_up(&self) {
        let appended = self.lock_queue().last_ticket;
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        while *applied < appended && self.check().is_ok() {
            applied = self
                .caught_up
                .wait(applied)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.stopped.get() {
            Some(error) => Err(StoreError::Stopped(error.to_string().into())),
            None => Ok(()),
        }
    }

    /// Stops the log: later appends fail.
    pub(crate) fn stop(&self, error: &StoreError) {
        if self.stopped.set(error.clone()).is_ok()
            && let Some(observer) = self.observer.get()
        {
            observer.stopped(error);
        }
        // Nobody does what was asked for any more; who waits for an answer hears that.
        let mut queue = self.lock_queue();
        queue.is_closed = true;
        let commands = std::mem::take(&mut queue.commands);
        drop(queue);
        drop(commands);
        self.arrived.notify_one();
        drop(self.lock_refused());
        self.settled.notify_all();
        drop(self.applied.lock().unwrap_or_else(PoisonError::into_inner));
        self.caught_up.notify_all();
    }

    /// Returns the panic handler of a thread of the store: it stops the log.
    pub(crate) fn stop_on_panic(self: Arc<Self>) -> impl FnOnce(Panicked) + Send + 'static {
        move |panicked| self.stop(&panicked.into())
    }

    fn reached(&self, durability: Durability) -> u64 {
        // ORDERING: pairs with the release in `publish`.
        match durability {
            Durability::Memory => u64::MAX,
            Durability::Os => self.written.load(Ordering::Acquire),
            Durability::Fsync => self.durable.load(Ordering::Acquire),
        }
    }

    /// Publishes that all batches up to `number` have reached `durability`.
    pub(super) fn publish(&self, durability: Durability, number: u64) {
        let mark = if durability == Durability::Fsync {
            &self.durable
        } else {
            &self.written
        };
        // ORDERING: what was written or synced happened before.
        mark.store(number, Ordering::Release);
        if let Some(observer) = self.observer.get() {
            observer.kept(durability, number);
        }
        // Threads that saw the old value under this lock sleep by now.
        drop(self.lock_refused());
        self.settled.notify_all();
    }

    /// Publishes refused tickets.
    pub(super) fn refuse(&self, tickets: &[Ticket]) {
        if tickets.is_empty() {
            return;
        }
        let mut refused = self.lock_refused();
        refused.extend(tickets.iter().map(|ticket| ticket.number));
        while refused.len() > REMEMBERED {
            refused.pop_first();
        }
        drop(refused);
        self.lock_stats().refused_batches += tickets.len() as u64;
        if let Some(observer) = self.observer.get() {
            observer.refused(tickets);
        }
    }

    pub(super) fn lock_queue(&self) -> MutexGuard<'_, LogQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_refused(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_stats(&self) -> MutexGuard<'_, LogStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
