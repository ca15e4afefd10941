//! Memory accounting of the index: heap bytes of its changed rows.
//!
//! Rows are measured again whenever the log has grown by a step. Every change is a record, so rows that were not
//! measured yet are a small part.

use crate::index::Index;

/// Rows are measured again after this many bytes of records,
const STEP_BYTES: u64 = 64 * 1024;
/// or after this part of the last result, if that is more.
const STEP_PART: u64 = 8;

/// The last measurement, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    changes: usize,
    frozen: usize,
    /// Value of `pending_bytes` at that time.
    at: u64,
}

impl Index {
    /// Heap bytes of rows that the checkpoint does not have, without frozen rows.
    pub(crate) fn pending_row_bytes(&self) -> usize {
        self.weight.changes
    }

    /// Heap bytes of all such rows, frozen ones included, and of the checkpoint's cached pages.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.weight.changes + self.weight.frozen + self.tables.cached_bytes()
    }

    /// Measures the rows again if the log has grown by a step.
    pub(super) fn weigh_if_due(&mut self) {
        let step = STEP_BYTES.max(self.weight.changes as u64 / STEP_PART);
        if self.pending_bytes >= self.weight.at + step {
            self.weight.changes = self.changes.heap_bytes();
            self.weight.at = self.pending_bytes;
        }
    }

    /// Accounts `rows` bytes as frozen while they are written.
    pub(super) fn weigh_frozen(&mut self, rows: usize) {
        self.weight = Weight {
            frozen: rows,
            ..Weight::default()
        };
    }

    /// Removes the frozen rows from the account after they were written.
    pub(super) fn forget_frozen(&mut self) {
        self.weight.frozen = 0;
    }
}

/// Bytes of an entry in a `BTreeMap` or `BTreeSet`, whose nodes are about two thirds full.
pub(super) const fn tree_bytes<T>() -> usize {
    size_of::<T>() * 3 / 2
}
