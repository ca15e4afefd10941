//! Assigns offsets and times to the rows of each partition.

use std::collections::BTreeMap;

use crate::record::{self, Record};
use crate::rows::{RowRef, RowSlots, Streamed};
use crate::wal::frame;

/// A partition of a stream.
pub(crate) type PartitionId = (u32, u16);

/// The next offsets and the last time. The log's thread assigns them in log order, only to rows
/// that are written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Numbering {
    next: BTreeMap<PartitionId, u64>,
    last_us: u64,
}

impl Numbering {
    /// Advances past a row that was read back.
    pub(crate) fn observe(&mut self, record: &Record<'_>) {
        if let Record::Message(record::MessageRecord {
            streamed: Some(streamed),
            ..
        }) = record
        {
            self.observe_rows(streamed);
        }
    }

    pub(crate) fn observe_rows(&mut self, streamed: &Streamed<'_>) {
        self.pass(streamed.at_us);
        for row in streamed.rows.iter() {
            self.reach((row.stream, row.partition), row.offset.saturating_add(1));
        }
    }

    /// Makes later rows have this time or a later one.
    pub(crate) fn pass(&mut self, at_us: u64) {
        self.last_us = self.last_us.max(at_us);
    }

    /// Raises the next offset of `key` to at least `offset`.
    pub(crate) fn reach(&mut self, key: PartitionId, offset: u64) {
        let next = self.next.entry(key).or_default();
        *next = offset.max(*next);
    }

    /// The offset of the next row of `key`.
    #[cfg(feature = "columnar")]
    pub(crate) fn next(&self, key: PartitionId) -> u64 {
        self.next.get(&key).copied().unwrap_or_default()
    }

    /// All partitions that have had a row, with their next offsets.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (PartitionId, u64)> + '_ {
        self.next.iter().map(|(key, next)| (*key, *next))
    }

    pub(crate) fn last_us(&self) -> u64 {
        self.last_us
    }

    /// Assigns offset and time to each row in `frames`; returns whether there is one.
    pub(crate) fn number(&mut self, frames: &mut [u8]) -> bool {
        let mut has_rows = false;
        frame::bodies_mut(frames, record::is_streamed, |body| {
            // INVARIANT: batches are made of records that `Record::encode_body` wrote.
            let mut slots = RowSlots::of(body).expect("a list at the front of the body");
            self.last_us = self.last_us.max(slots.at_us());
            slots.set_at_us(self.last_us);
            slots.fill(|stream, partition| {
                let next = self.next.entry((stream, partition)).or_default();
                *next += 1;
                *next - 1
            });
            has_rows = true;
        });
        has_rows
    }

    /// Undoes [`Numbering::number`] for frames that were not written.
    pub(crate) fn take_back(&mut self, frames: &mut [u8]) {
        frame::bodies_mut(frames, record::is_streamed, |body| {
            // INVARIANT: as above.
            let mut slots = RowSlots::of(body).expect("a list at the front of the body");
            slots.fill(|stream, partition| {
                let next = self.next.entry((stream, partition)).or_default();
                *next -= 1;
                0
            });
        });
    }
}

/// The partition of a row.
impl From<RowRef> for PartitionId {
    fn from(row: RowRef) -> Self {
        (row.stream, row.partition)
    }
}
