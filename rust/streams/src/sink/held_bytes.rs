//! Memory accounting of the sink: bytes that stages and commits hold, as a part of the broker's memory budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array as _, RecordBatch};

/// The sum over all holders.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldTotal(Arc<AtomicUsize>);

impl HeldTotal {
    pub(super) fn bytes(&self) -> usize {
        // ORDERING: an approximate value is enough.
        self.0.load(Ordering::Relaxed)
    }

    /// Creates a holder with 0 bytes.
    pub(super) fn part(&self) -> HeldBytes {
        HeldBytes {
            total: self.clone(),
            bytes: 0,
        }
    }
}

/// Bytes of one holder; dropping it subtracts them from the sum.
#[derive(Debug)]
pub(super) struct HeldBytes {
    total: HeldTotal,
    bytes: usize,
}

impl HeldBytes {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the holder's bytes.
    pub(super) fn set(&mut self, bytes: usize) {
        let total = &self.total.0;
        // ORDERING: as in `HeldTotal::bytes`.
        total.fetch_add(bytes, Ordering::Relaxed);
        total.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Sets the holder's bytes to the size of one batch.
    pub(super) fn set_batch(&mut self, batch: &RecordBatch) {
        let columns = batch.columns().iter();
        let bytes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        self.set(bytes.sum());
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_until_it_is_dropped() {
        let total = HeldTotal::default();
        let (mut first, mut second) = (total.part(), total.part());

        first.set(1_000);
        second.set(70);
        first.set(200);
        assert_eq!(total.bytes(), 270);
        drop(second);
        assert_eq!(total.bytes(), 200);
        drop(first);
        assert_eq!(total.bytes(), 0);
    }
}
