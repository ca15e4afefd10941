//! The index thread: applies written groups to the index, starts checkpoints and compaction.
//!
//! A thread of its own writes each checkpoint from a draft. The index is locked only when the
//! draft is made and when the checkpoint is finished.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use redb::Database;

use crate::durable::{StoreOptions, spawn};
use crate::error::StoreError;
use crate::files::Files;
use crate::index::flush::CheckpointDraft;
use crate::index::{Index, bodies};
use crate::stats::Checkpoints;
use crate::wal::batch::Batch;
use crate::wal::commit::Committer;
use crate::wal::queue::CommitGroup;
use crate::wal::shared::LogShared;
use crate::wal::writer::WrittenGroup;
use crate::wal::{Durability, Pressure, SpacePolicy};
use mqttcore_panics::Panicked;

/// Idle time after which the thread checks whether the disk needs space.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Interval in which the thread checks whether a checkpoint is finished.
const LOOK: Duration = Duration::from_millis(5);

/// Approximate bytes of a changed row in the checkpoint; messages stay in the log.
const ROW_BYTES: u64 = 256;

/// Requests to the index thread.
pub(crate) enum IndexRequest {
    Group(CommitGroup, Option<WrittenGroup>),
    Checkpoint(CheckpointWaiter),
}

/// Is notified when the checkpoint is finished.
type CheckpointWaiter = Sender<Result<(), StoreError>>;

/// The thread.
pub(crate) struct IndexThread {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) shared: Arc<LogShared>,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) options: StoreOptions,
    pub(crate) checkpoints: Arc<Checkpoints>,
}

/// A checkpoint that is being written.
struct CheckpointWriting {
    thread: JoinHandle<Result<CompactionResult, StoreError>>,
    frozen: Arc<CheckpointDraft>,
    asked: Vec<CheckpointWaiter>,
}

/// Result of compacting old segments.
pub(crate) struct CompactionResult {
    /// Live messages of segments up to this one are in the checkpoint.
    pub(crate) moved: u64,
    /// Segments up to this one can be removed.
    pub(crate) droppable: Option<u64>,
}

/// State of checkpoints and compaction.
#[derive(Default)]
struct Maintenance {
    writing: Option<CheckpointWriting>,
    /// Callers that wait for a checkpoint that has not begun.
    asked: Vec<CheckpointWaiter>,
    is_due: bool,
    /// Whether the next checkpoint only removes segments without live messages, since moving live
    /// messages needs space.
    is_pressed: bool,
    /// Bytes of new records when that was last so.
    pressed_at: u64,
}

impl IndexThread {
    pub(crate) fn run(&self, requests: &Receiver<IndexRequest>) {
        let mut upkeep = Maintenance::default();
        loop {
            let patience = if upkeep.writing.is_some() { LOOK } else { IDLE };
            let done = match requests.recv_timeout(patience) {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    upkeep.is_due |= upkeep.writing.is_none() && self.needs_room();
                    Ok(())
                }
                Ok(IndexRequest::Group(group, written)) => {
                    self.take_in(group, written, &mut upkeep)
                }
                Ok(IndexRequest::Checkpoint(asked)) => {
                    upkeep.asked.push(asked);
                    Ok(())
                }
            };
            if let Err(error) = done.and_then(|()| self.step(&mut upkeep)) {
                return self.stop(upkeep, &error);
            }
        }
        // Everything is written. If the store has stopped, recovery does the rest.
        let last = self.finish(&mut upkeep).and_then(|()| {
            upkeep.is_due = true;
            self.begin(&mut upkeep)?;
            self.finish(&mut upkeep)
        });
        if let Err(error) = last {
            self.stop(upkeep, &error);
        }
    }

    fn stop(&self, upkeep: Maintenance, error: &StoreError) {
        self.shared.stop(error);
        let written = upkeep.writing.map(|writing| writing.asked);
        for asked in upkeep
            .asked
            .into_iter()
            .chain(written.into_iter().flatten())
        {
            // The caller may be gone.
            let _ = asked.send(Err(error.clone()));
        }
    }

    fn take_in(
        &self,
        group: CommitGroup,
        written: Option<WrittenGroup>,
        upkeep: &mut Maintenance,
    ) -> Result<(), StoreError> {
        let mut index = self.index();
        if let Some(written) = written {
            index.apply_group(&group.bytes, &written)?;
        }
        let (bytes, rows) = (index.pending_bytes, index.pending_rows());
        let row_bytes = index.pending_row_bytes();
        let wanted = index.wanted_bytes();
        drop(index);
        self.shared.wanted(wanted);
        self.shared.recycle(group);
        let limits = &self.options;
        upkeep.is_due |= bytes >= limits.checkpoint_bytes
            || rows >= limits.checkpoint_rows
            || row_bytes >= limits.checkpoint_row_bytes;
        if self.is_pressed(bytes, upkeep) {
            (upkeep.is_pressed, upkeep.is_due) = (true, true);
        }
        // If the disk is too slow, new batches wait in the log queue.
        let is_late = bytes / 2 >= limits.checkpoint_bytes
            || rows / 2 >= limits.checkpoint_rows
            || row_bytes / 2 >= limits.checkpoint_row_bytes;
        if is_late { self.finish(upkeep) } else { Ok(()) }
    }

    /// Whether the disk is nearly full and a checkpoint would free at least one segment. Checked
    /// under load, too: a busy log must not use up the reserve.
    fn is_pressed(&self, bytes: u64, upkeep: &mut Maintenance) -> bool {
        if bytes < upkeep.pressed_at {
            // A checkpoint was finished since.
            upkeep.pressed_at = 0;
        }
        let is_pressed = self.shared.pressure() > Pressure::None
            && bytes - upkeep.pressed_at >= self.options.wal.segment_bytes / 4
            && self.has_spent_segment();
        if is_pressed {
            upkeep.pressed_at = bytes;
        }
        is_pressed
    }

    /// Whether the oldest segment has no live message.
    fn has_spent_segment(&self) -> bool {
        let full = self.shared.full_segments();
        let index = self.index();
        let is_pinned = |number| index.streams.pinned().is_some_and(|first| first <= number);
        let is_live = |number| index.live().get(&number).is_some_and(|bytes| *bytes > 0);
        full.first()
            .is_some_and(|(number, _)| !is_pinned(*number) && !is_live(*number))
    }

    /// Whether the disk is nearly full. New messages are refused then, so no checkpoint becomes
    /// due by its size, but deliveries since the last one may have freed segments.
    fn needs_room(&self) -> bool {
        self.shared.pressure() > Pressure::None && self.index().pending_bytes > 0
    }

    /// Finishes a checkpoint that was written, begins one that is requested.
    fn step(&self, upkeep: &mut Maintenance) -> Result<(), StoreError> {
        let is_written = |writing: &CheckpointWriting| writing.thread.is_finished();
        if upkeep.writing.as_ref().is_some_and(is_written) {
            self.finish(upkeep)?;
        }
        let is_wanted = upkeep.is_due || !upkeep.asked.is_empty();
        if is_wanted && upkeep.writing.is_none() {
            self.begin(upkeep)?;
        }
        Ok(())
    }

    /// Makes a draft of the changes and starts the thread that writes it.
    fn begin(&self, upkeep: &mut Maintenance) -> Result<(), StoreError> {
        upkeep.is_due = false;
        let is_pressed = std::mem::take(&mut upkeep.is_pressed);
        let asked = std::mem::take(&mut upkeep.asked);
        if !self.is_safe()? || !self.has_room(ROW_BYTES * self.index().pending_rows() as u64)? {
            // The log has all records. Acknowledgements free space later.
            answer(asked);
            return Ok(());
        }
        let mut index = self.index();
        let frozen = index.freeze();
        let (database, moved) = (index.database(), index.moved_through());
        drop(index);
        let segments_kept = match self.shared.pressure() {
            _ if is_pressed => usize::MAX,
            Pressure::None => self.options.segments_kept,
            _ => 0,
        };
        let work = CheckpointWork {
            files: Arc::clone(&self.files),
            shared: Arc::clone(&self.shared),
            segments_kept,
            reserve_bytes: self.options.wal.ballast_bytes,
            frozen: Arc::clone(&frozen),
            database,
            moved,
        };
        let on_panic = |panicked: Panicked| Err(panicked.into());
        upkeep.writing = Some(CheckpointWriting {
            thread: spawn("checkpoint", on_panic, move || work.write())?,
            frozen,
            asked,
        });
        Ok(())
    }

    /// Waits for the checkpoint that is being written, if there is one, and installs it in the
    /// index.
    fn finish(&self, upkeep: &mut Maintenance) -> Result<(), StoreError> {
        let Some(writing) = upkeep.writing.take() else {
            return Ok(());
        };
        // INVARIANT: the guard turns a panic into an error.
        let compacted = writing.thread.join().expect("the guard caught it");
        let compacted = match compacted {
            Ok(compacted) => compacted,
            Err(error) => {
                upkeep.asked.extend(writing.asked);
                return Err(error);
            }
        };
        let mut index = self.index();
        index.thaw(&writing.frozen)?;
        index.moved(compacted.moved);
        if let Some(through) = compacted.droppable {
            index.close(through);
        }
        drop(index);
        self.checkpoints.add();
        if let Some(through) = compacted.droppable {
            self.shared.ask(Box::new(move |committer| {
                committer.writer.drop_up_to(through)?;
                committer.restore()
            }));
        }
        answer(writing.asked);
        Ok(())
    }

    /// Syncs all applied records; false if the log is being closed, which syncs them: the last
    /// checkpoint is written after that.
    fn is_safe(&self) -> Result<bool, StoreError> {
        let applied_lsn = self.index().applied_lsn;
        if applied_lsn <= self.shared.durable_lsn() {
            return Ok(true);
        }
        let mut nothing = Batch::default();
        let all = self
            .shared
            .append(&mut nothing, Durability::Fsync, SpacePolicy::Essential);
        all.map_or(Ok(false), |ticket| self.shared.wait(ticket).map(|()| true))
    }

    fn has_room(&self, bytes: u64) -> Result<bool, StoreError> {
        let reserve_bytes = self.options.wal.ballast_bytes;
        has_room(&*self.files, &self.shared, bytes, reserve_bytes)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(asked: Vec<CheckpointWaiter>) {
    for asked in asked {
        // The caller may be gone.
        let _ = asked.send(Ok(()));
    }
}

/// Work of the thread that writes a checkpoint.
struct CheckpointWork {
    files: Arc<dyn Files>,
    shared: Arc<LogShared>,
    segments_kept: usize,
    reserve_bytes: u64,
    frozen: Arc<CheckpointDraft>,
    database: Arc<Database>,
    moved: u64,
}

impl CheckpointWork {
    /// Writes the checkpoint, and compacts segments beyond
    /// [`StoreOptions::segments_kept`](crate::StoreOptions::segments_kept).
    fn write(&self) -> Result<CompactionResult, StoreError> {
        self.frozen.write(&self.database)?;
        let full = self.shared.full_segments();
        let surplus = self.movable(&full, self.segments_kept)?;
        compact(
            &self.frozen,
            &self.database,
            &*self.files,
            (&full, surplus),
            self.moved,
        )
    }

    /// How many of the `full` segments beyond `kept` can be compacted in the free space.
    fn movable(&self, full: &[(u64, u64)], kept: usize) -> Result<usize, StoreError> {
        let mut needed = 0;
        let surplus = full.len().saturating_sub(kept);
        for (place, (number, _)) in full[..surplus].iter().enumerate() {
            needed += 2 * self.frozen.live.get(number).copied().unwrap_or_default();
            if needed > 0 && !has_room(&*self.files, &self.shared, needed, self.reserve_bytes)? {
                return Ok(place);
            }
        }
        Ok(surplus)
    }
}

/// Whether the disk has room for so many bytes, with the reserve if that is necessary and enough.
fn has_room(
    files: &dyn Files,
    shared: &LogShared,
    bytes: u64,
    reserve_bytes: u64,
) -> Result<bool, StoreError> {
    const MARGIN: u64 = 1 << 20;
    let lacking = || match files.space() {
        Ok(space) => Ok(bytes
            .saturating_add(MARGIN)
            .saturating_sub(space.free_bytes)),
        Err(error) => Err(StoreError::io("measure", ".", error)),
    };
    match lacking()? {
        0 => return Ok(true),
        lack if lack > reserve_bytes => return Ok(false),
        _ => shared.ask_for(Committer::give_up_reserve),
    };
    Ok(lacking()? == 0)
}

/// Compacts the oldest `surplus` of the `full` segments: moves their live messages into the
/// checkpoint that was just written.
pub(crate) fn compact(
    frozen: &CheckpointDraft,
    database: &Database,
    files: &dyn Files,
    (full, surplus): (&[(u64, u64)], usize),
    mut moved: u64,
) -> Result<CompactionResult, StoreError> {
    let pinned = frozen.streams().pinned().unwrap_or(u64::MAX);
    for (number, last_lsn) in &full[..surplus] {
        // Segments that stay for other reasons are not compacted.
        if *number >= pinned || *last_lsn > frozen.applied_lsn() {
            break;
        }
        if *number > moved && frozen.live.contains_key(number) {
            bodies::move_segment(database, files, *number)?;
            moved = *number;
        }
    }
    Ok(CompactionResult {
        moved,
        droppable: frozen.droppable(full, moved),
    })
}
