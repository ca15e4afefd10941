//! A table that grows without moving: read without a lock, indexed by small numbers.

use crate::sync::OnceLock;

/// Slots of the first bucket; each further bucket doubles the table.
const FIRST_BITS: u32 = 4;

/// Buckets for every index below 2^32.
const BUCKETS: usize = 33 - FIRST_BITS as usize;

/// Slots that come into being, with their default value, the first time that somebody asks for one nearby.
pub(crate) struct Table<T> {
    buckets: [OnceLock<Box<[T]>>; BUCKETS],
}

impl<T: Default> Table<T> {
    pub(crate) fn new() -> Self {
        Self {
            buckets: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Returns the slot, if it came into being.
    #[inline]
    pub(crate) fn slot(&self, index: u32) -> Option<&T> {
        let (bucket, offset) = place(index);
        self.buckets[bucket].get()?.get(offset)
    }

    /// Returns the slot; makes its bucket if nobody did before.
    pub(crate) fn slot_or_default(&self, index: u32) -> &T {
        let (bucket, offset) = place(index);
        let len = 1_usize << (u32::try_from(bucket.max(1) - 1).unwrap_or(0) + FIRST_BITS);
        let slots = self.buckets[bucket].get_or_init(|| (0..len).map(|_| T::default()).collect());
        &slots[offset]
    }
}

/// Bucket 0 holds the first 16 indices, bucket `b` those with `b + 4` significant bits.
#[inline]
fn place(index: u32) -> (usize, usize) {
    let bits = u32::BITS - index.leading_zeros();
    let bucket = bits.saturating_sub(FIRST_BITS);
    let first = if bucket == 0 { 0 } else { 1 << (bits - 1) };
    (bucket as usize, (index - first) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, Relaxed};

    #[test]
    fn every_index_has_a_slot_of_its_own() {
        let table: Table<AtomicU32> = Table::new();
        for index in 0..5000 {
            table.slot_or_default(index).store(index, Relaxed);
        }
        for index in 0..5000 {
            assert_eq!(
                table.slot(index).map(|slot| slot.load(Relaxed)),
                Some(index)
            );
        }
        assert!(table.slot(u32::MAX).is_none());
    }
}
