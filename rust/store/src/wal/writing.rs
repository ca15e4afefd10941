//! The thread that writes the log.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::wal::commit::{Committer, Pressure};
use crate::wal::queue::{CommitGroup, Durability, LogCommand};
use crate::wal::shared::LogShared;
use crate::wal::writer::WrittenGroup;

/// Passes written groups on, and gives them back with [`LogShared::recycle`].
pub(crate) type GroupForwarder = Box<dyn FnMut(CommitGroup, Option<WrittenGroup>) + Send>;

/// Idle time after which batches are synced that do not ask for it.
const IDLE: Duration = Duration::from_secs(1);
/// Delay of the sync that makes rows visible, if no batch asks for an earlier one.
const ROWS_UNSEEN: Duration = Duration::from_millis(50);

/// Starts the thread over an opened log.
///
/// # Errors
///
/// The system gives no thread.
pub(super) fn start(
    shared: Arc<LogShared>,
    committer: Committer,
    forward: GroupForwarder,
) -> Result<JoinHandle<()>, StoreError> {
    let mut writing = Writing {
        shared,
        committer,
        forward,
        rows_due: None,
    };
    let on_panic = Arc::clone(&writing.shared).stop_on_panic();
    let thread = mqttcore_panics::spawn("mqttcore-log", on_panic, move || writing.run());
    thread.map_err(|error| StoreError::io("start the thread of", "log", error))
}

/// State of the log's thread.
struct Writing {
    shared: Arc<LogShared>,
    committer: Committer,
    forward: GroupForwarder,
    /// When written rows are synced at the latest.
    rows_due: Option<Instant>,
}

/// The next work of the thread.
enum Work {
    Group(CommitGroup),
    Commands(Vec<LogCommand>),
    Idle,
    Rows,
    End,
}

impl Writing {
    fn run(&mut self) {
        self.note_segments();
        let mut is_settled = true;
        loop {
            let done = match self.next(is_settled) {
                Work::Group(group) => {
                    is_settled = false;
                    self.commit(group)
                }
                Work::Commands(commands) => self.run_commands(commands),
                Work::Rows => self.sync_written(),
                Work::Idle if is_settled => self.look_for_room(),
                Work::Idle => {
                    is_settled = true;
                    self.settle()
                }
                Work::End => {
                    if let Err(error) = self.settle() {
                        self.shared.stop(&error);
                    }
                    return;
                }
            };
            if let Err(error) = done {
                self.shared.stop(&error);
                return;
            }
        }
    }

    /// Blocks until there is work; without limit if everything is synced.
    fn next(&self, is_settled: bool) -> Work {
        let shared = &*self.shared;
        let mut queue = shared.lock_queue();
        loop {
            if !queue.commands.is_empty() {
                return Work::Commands(std::mem::take(&mut queue.commands));
            }
            if let Some(group) = queue.pop() {
                return Work::Group(group);
            }
            if queue.is_closed {
                return Work::End;
            }
            // The system does not report when a full disk has room again, so the thread polls.
            let is_watched = shared.pressure() > Pressure::None;
            if is_settled && !is_watched {
                queue = shared
                    .arrived
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let due = self
                .rows_due
                .map(|due| due.saturating_duration_since(Instant::now()));
            let (woken, timeout) = shared
                .arrived
                .wait_timeout(queue, due.unwrap_or(IDLE))
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if timeout.timed_out() && queue.is_empty() {
                return if due.is_some() {
                    Work::Rows
                } else {
                    Work::Idle
                };
            }
        }
    }

    fn commit(&mut self, mut group: CommitGroup) -> Result<(), StoreError> {
        let last = group.last_ticket;
        let durability = group.durability();
        let segment = self.committer.writer.current.header.number;
        let essential = group.essential();
        let (written, refused) = self.committer.write(&mut group)?;
        // The pressure is published before the refusal, so that callers see the reason.
        let is_rolled = segment != self.committer.writer.current.header.number;
        if is_rolled || !refused.is_empty() {
            self.note_segments();
        }
        self.shared.refuse(&refused);
        if group.essential() < essential {
            // Later records may depend on an essential batch that is missing.
            return Err(StoreError::NoSpace);
        }
        self.note_written(&group, written.as_ref());
        self.shared.publish(Durability::Os, last);
        if written.is_some_and(|written| written.has_rows) {
            self.rows_due
                .get_or_insert_with(|| Instant::now() + ROWS_UNSEEN);
        }
        if durability == Durability::Fsync || self.rows_due.is_some_and(|due| due <= Instant::now())
        {
            self.sync(last)?;
            // On a shared core, the callers that wait for the sync go on before the index thread (ADR 0140).
            thread::yield_now();
        }
        (self.forward)(group, written);
        Ok(())
    }

    fn sync(&mut self, number: u64) -> Result<(), StoreError> {
        let began = Instant::now();
        self.committer.writer.sync()?;
        self.rows_due = None;
        self.shared.lock_stats().syncs.add(began.elapsed());
        // ORDERING: the sync happened before.
        self.shared
            .durable_lsn
            .store(self.committer.writer.durable_lsn, Ordering::Release);
        self.shared.publish(Durability::Fsync, number);
        Ok(())
    }

    /// When idle: syncs unsynced groups, and writes a marker with the durable LSN.
    fn settle(&mut self) -> Result<(), StoreError> {
        self.sync_written()?;
        self.committer.writer.testify()?;
        self.committer.writer.sync()?;
        self.committer.restore()?;
        self.note_pressure();
        self.shared.lock_queue().trim();
        Ok(())
    }

    /// Syncs everything that was written.
    fn sync_written(&mut self) -> Result<(), StoreError> {
        // ORDERING: this thread wrote it.
        let last = self.shared.written.load(Ordering::Relaxed);
        self.sync(last)
    }

    /// Checks whether the disk has room again.
    fn look_for_room(&mut self) -> Result<(), StoreError> {
        self.committer.restore()?;
        self.note_pressure();
        Ok(())
    }

    fn run_commands(&mut self, commands: Vec<LogCommand>) -> Result<(), StoreError> {
        for command in commands {
            command(&mut self.committer)?;
        }
        self.note_segments();
        Ok(())
    }

    fn note_written(&self, group: &CommitGroup, written: Option<&WrittenGroup>) {
        let Some(written) = written else { return };
        let mut stats = self.shared.lock_stats();
        stats.groups += 1;
        stats.records += u64::from(group.records);
        stats.batches += group.batches.len() as u64;
        stats.bytes += group.bytes.len() as u64;
        stats.last_lsn = written.last_lsn;
    }

    fn note_segments(&self) {
        let writer = &self.committer.writer;
        let older: u64 = writer.older.iter().map(|segment| segment.bytes).sum();
        let mut stats = self.shared.lock_stats();
        stats.segments = writer.older.len() as u64 + 1;
        stats.log_bytes = older + writer.current.bytes;
        drop(stats);
        let full = self.committer.writer.older.iter();
        let full = full.map(|past| (past.number, past.last_lsn)).collect();
        self.shared.note_full_segments(full);
        self.note_pressure();
    }

    fn note_pressure(&self) {
        // If the free space cannot be measured, the next write reports the problem.
        let pressure = self.committer.pressure().unwrap_or(Pressure::Hard);
        self.shared.note_pressure(pressure);
    }
}
