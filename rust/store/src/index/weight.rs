//! The memory of the index: what its changed rows take on the heap.
//!
//! They are weighed when the log has grown by enough: each change is a record, so that what is missing stays small
//! beside the rest.

use crate::index::Index;

/// The rows are weighed again after so many bytes of records ...
const STEP_BYTES: u64 = 64 * 1024;
/// ... or after as many as this part of what they took.
const STEP_PART: u64 = 8;

/// Bytes of the rows, when they were weighed last.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    changes: usize,
    frozen: usize,
    /// Bytes of records since the checkpoint, as of then.
    at: u64,
}

impl Index {
    /// Bytes of heap that rows take which the checkpoint does not have.
    pub(crate) fn pending_row_bytes(&self) -> usize {
        self.weight.changes
    }

    /// The same, with the rows that are being written and the cached pages of the checkpoint.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.weight.changes + self.weight.frozen + self.tables.cached_bytes()
    }

    /// Weighs the rows if they may have become many more.
    pub(super) fn weigh_if_due(&mut self) {
        let step = STEP_BYTES.max(self.weight.changes as u64 / STEP_PART);
        if self.pending_bytes >= self.weight.at + step {
            self.weight.changes = self.changes.heap_bytes();
            self.weight.at = self.pending_bytes;
        }
    }

    /// The rows are being written.
    pub(super) fn weigh_frozen(&mut self, rows: usize) {
        self.weight = Weight {
            frozen: rows,
            ..Weight::default()
        };
    }

    /// They are written.
    pub(super) fn forget_frozen(&mut self) {
        self.weight.frozen = 0;
    }
}

/// What an entry takes in a `BTreeMap` or a `BTreeSet`, whose nodes are about two thirds full.
pub(super) const fn tree_bytes<T>() -> usize {
    size_of::<T>() * 3 / 2
}
