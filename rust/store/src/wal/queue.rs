//! The log queue: batches that wait for the log's thread, in groups.

use std::collections::VecDeque;

use crate::error::StoreError;
use crate::wal::batch::Batch;
use crate::wal::commit::Committer;

/// Limits of one group, in bytes and in records.
pub(crate) const GROUP_BYTES: usize = 4 << 20;
const GROUP_RECORDS: u32 = 8_192;

/// Durability: the failures that a message survives before it is acknowledged.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Durability {
    /// The batch was accepted: it survives nothing.
    Memory,
    /// The batch was written: it survives a crash of the process.
    Os,
    /// The batch was synced: it survives a power cut.
    Fsync,
}

/// Whether a batch may be refused when the disk is nearly full.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SpacePolicy {
    /// The batch may be refused.
    Ordinary,
    /// The batch records something that has happened already: it may use the reserve.
    Essential,
}

/// Identifies an appended batch. The store and the [`crate::LogObserver`] report when it is safe.
///
/// Tickets of one store grow by one from batch to batch, in the order in which they are written.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket {
    /// The number of the batch.
    pub number: u64,
    /// The durability that the batch asked for.
    pub durability: Durability,
}

/// One batch of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchMark {
    pub(crate) ticket: Ticket,
    pub(crate) space: SpacePolicy,
    /// End of its frames in the group's bytes.
    pub(crate) end: usize,
    pub(crate) records: u32,
}

/// A commit group: batches that one write and one sync make safe.
#[derive(Debug, Default)]
pub(crate) struct CommitGroup {
    pub(crate) bytes: Vec<u8>,
    pub(crate) batches: Vec<BatchMark>,
    pub(crate) records: u32,
    /// Number of the last batch, including refused ones.
    pub(crate) last_ticket: u64,
    /// Bytes of its frames in the queue.
    pub(crate) queued_bytes: usize,
    /// [`CommitGroup::heap_bytes`] when it left the queue.
    weight: usize,
}

impl CommitGroup {
    fn has_room(&self, batch: &Batch) -> bool {
        self.batches.is_empty()
            || self.bytes.len() + batch.len_bytes() <= GROUP_BYTES
                && self.records.saturating_add(batch.records) <= GROUP_RECORDS
    }

    fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.batches.capacity() * size_of::<BatchMark>()
    }

    fn push(&mut self, batch: &Batch, ticket: Ticket, space: SpacePolicy) {
        self.bytes.extend_from_slice(&batch.bytes);
        self.records += batch.records;
        self.last_ticket = ticket.number;
        self.queued_bytes += batch.len_bytes();
        let (end, records) = (self.bytes.len(), batch.records);
        self.batches.push(BatchMark {
            ticket,
            space,
            end,
            records,
        });
    }

    /// Number of essential batches.
    pub(crate) fn essential(&self) -> usize {
        let marks = self.batches.iter();
        marks
            .filter(|mark| mark.space == SpacePolicy::Essential)
            .count()
    }

    /// The highest durability that a batch of the group asks for.
    pub(crate) fn durability(&self) -> Durability {
        let asked = self.batches.iter().map(|mark| mark.ticket.durability);
        asked.max().unwrap_or(Durability::Memory)
    }

    /// Removes the batches that `is_refused` selects; returns their tickets.
    pub(crate) fn refuse(&mut self, is_refused: impl Fn(&BatchMark) -> bool) -> Vec<Ticket> {
        let (mut kept, mut refused) = (Vec::new(), Vec::new());
        let mut marks = Vec::new();
        let (mut start, mut records) = (0, 0);
        for mark in &self.batches {
            if is_refused(mark) {
                refused.push(mark.ticket);
            } else {
                kept.extend_from_slice(&self.bytes[start..mark.end]);
                records += mark.records;
                marks.push(BatchMark {
                    end: kept.len(),
                    ..*mark
                });
            }
            start = mark.end;
        }
        (self.bytes, self.batches, self.records) = (kept, marks, records);
        refused
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.batches.clear();
        self.records = 0;
        self.queued_bytes = 0;
    }
}

/// A request to the log's thread besides writing.
pub(crate) type LogCommand = Box<dyn FnOnce(&mut Committer) -> Result<(), StoreError> + Send>;

/// The queue of the log's thread.
#[derive(Default)]
pub(crate) struct LogQueue {
    pub(crate) commands: Vec<LogCommand>,
    groups: VecDeque<CommitGroup>,
    /// Empty groups, kept for their memory.
    spare: Vec<CommitGroup>,
    pub(crate) bytes: usize,
    /// Memory of the groups that left the queue and are not back.
    away: usize,
    pub(crate) last_ticket: u64,
    pub(crate) is_closed: bool,
}

impl LogQueue {
    /// Appends a batch to the last group, or to a new one.
    pub(crate) fn push(
        &mut self,
        batch: &Batch,
        durability: Durability,
        space: SpacePolicy,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket {
            number: self.last_ticket,
            durability,
        };
        self.bytes += batch.len_bytes();
        if let Some(group) = self.groups.back_mut()
            && group.has_room(batch)
        {
            group.push(batch, ticket, space);
            return ticket;
        }
        let mut group = self.spare.pop().unwrap_or_default();
        group.push(batch, ticket, space);
        self.groups.push_back(group);
        ticket
    }

    /// Whether no group is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<CommitGroup> {
        let mut group = self.groups.pop_front()?;
        group.weight = group.heap_bytes();
        self.away += group.weight;
        Some(group)
    }

    /// Bytes of heap: groups that are queued, being written or applied, and empty ones.
    pub(crate) fn heap_bytes(&self) -> usize {
        let groups = self.groups.iter().chain(&self.spare);
        self.away + groups.map(CommitGroup::heap_bytes).sum::<usize>()
    }

    /// Frees the empty groups, since nothing is written.
    pub(crate) fn trim(&mut self) {
        self.spare.clear();
    }

    /// Takes a group back after it was processed, for its memory.
    pub(crate) fn recycle(&mut self, mut group: CommitGroup) {
        const SPARE: usize = 2;
        self.bytes -= group.queued_bytes;
        self.away -= group.weight;
        group.clear();
        if self.spare.len() < SPARE && group.bytes.capacity() <= 2 * GROUP_BYTES {
            self.spare.push(group);
        }
    }
}
