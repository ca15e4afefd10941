//! A table that grows without moving its slots: read without a lock, indexed by small numbers.

use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use mqttcore_slab::prefer_huge;

/// Indices of the first bucket; each further bucket doubles the table.
const FIRST_BITS: u32 = 6;

/// Buckets for every index below 2^32.
const BUCKETS: usize = 33 - FIRST_BITS as usize;

/// Bucket and offset of an index, the same in all tables.
#[derive(Clone, Copy)]
pub(crate) struct TableIndex {
    bucket: usize,
    offset: usize,
}

impl TableIndex {
    /// Bucket 0 holds the first 64 indices, bucket `b` those with `b + 6` significant bits.
    #[inline]
    pub(crate) const fn of(index: u32) -> Self {
        let bits = u32::BITS - (index | ((1 << FIRST_BITS) - 1)).leading_zeros();
        let bucket = (bits - FIRST_BITS) as usize;
        let first = if bucket == 0 { 0 } else { 1 << (bits - 1) };
        Self {
            bucket,
            offset: (index - first) as usize,
        }
    }
}

/// Slots are created in buckets, with their default value, when one of the bucket is first used. Each slot
/// serves `SHARE` indices, a power of two up to 64.
///
/// Atomics of std in all builds: making a bucket is one step, and which thread does it changes nothing.
pub(crate) struct Table<T, const SHARE: usize = 1> {
    buckets: [AtomicPtr<T>; BUCKETS],
}

// SAFETY: a table owns its slots, as a vector does.
unsafe impl<T: Send, const SHARE: usize> Send for Table<T, SHARE> {}
// SAFETY: slots are handed out as shared references only.
unsafe impl<T: Send + Sync, const SHARE: usize> Sync for Table<T, SHARE> {}

impl<T: Default, const SHARE: usize> Table<T, SHARE> {
    pub(crate) fn new() -> Self {
        const { assert!(SHARE.is_power_of_two() && SHARE <= 1 << FIRST_BITS) }
        Self {
            buckets: [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS],
        }
    }

    /// Returns the slot, if it exists.
    #[inline]
    pub(crate) fn slot(&self, place: TableIndex) -> Option<&T> {
        // ORDERING: Acquire pairs with the release of `make`: the slots are there when their bucket is.
        let bucket = NonNull::new(self.buckets[place.bucket].load(Acquire))?;
        // SAFETY: the bucket was made by `make`, with a slot for each offset that a place in it has, and is freed with
        // the table only.
        Some(unsafe { bucket.add(place.offset / SHARE).as_ref() })
    }

    /// Returns the slot; creates its bucket if necessary.
    pub(crate) fn slot_or_default(&self, place: TableIndex) -> &T {
        loop {
            if let Some(slot) = self.slot(place) {
                return slot;
            }
            self.make(place.bucket);
        }
    }

    #[cold]
    fn make(&self, bucket: usize) {
        let len = len(bucket, SHARE);
        let mut slots: Vec<T> = Vec::with_capacity(len);
        prefer_huge(slots.as_mut_ptr().cast(), len * size_of::<T>());
        slots.resize_with(len, T::default);
        let slots = Box::into_raw(slots.into_boxed_slice());
        // ORDERING: Release: who sees the bucket sees its slots; acquire: or those of who was faster.
        let made =
            self.buckets[bucket].compare_exchange(ptr::null_mut(), slots.cast(), AcqRel, Acquire);
        if made.is_err() {
            // SAFETY: made above, and nobody else saw it.
            drop(unsafe { Box::from_raw(slots) });
        }
    }
}

impl<T, const SHARE: usize> Drop for Table<T, SHARE> {
    fn drop(&mut self) {
        for (bucket, slots) in self.buckets.iter_mut().enumerate() {
            if let Some(slots) = NonNull::new(*slots.get_mut()) {
                let slots = ptr::slice_from_raw_parts_mut(slots.as_ptr(), len(bucket, SHARE));
                // SAFETY: made from a box of this length by `make`; nobody borrows it any more.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

/// The slots of a bucket.
const fn len(bucket: usize, share: usize) -> usize {
    let double = bucket.saturating_sub(1);
    (1 << (FIRST_BITS as usize + double)) / share
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    fn marked<const SHARE: usize>() -> Table<AtomicU32, SHARE> {
        let table: Table<AtomicU32, SHARE> = Table::new();
        for index in 0..5000 {
            table
                .slot_or_default(TableIndex::of(index))
                .store(index, Relaxed);
        }
        table
    }

    #[test]
    fn every_index_has_a_slot_of_its_own() {
        let table = marked::<1>();
        for index in 0..5000 {
            let slot = table.slot(TableIndex::of(index));
            assert_eq!(slot.map(|slot| slot.load(Relaxed)), Some(index));
        }
        assert!(table.slot(TableIndex::of(u32::MAX)).is_none());
    }

    #[test]
    fn a_slot_serves_neighbours_and_nobody_else() {
        let table = marked::<64>();
        for index in 0..4992 {
            let slot = table.slot(TableIndex::of(index));
            assert_eq!(slot.map(|slot| slot.load(Relaxed)), Some(index | 63));
        }
    }

    #[test]
    fn threads_that_make_one_bucket_share_it() {
        let table: Table<AtomicU32> = Table::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for index in 0..1000 {
                        let slot = table.slot_or_default(TableIndex::of(index));
                        slot.fetch_add(1, Relaxed);
                    }
                });
            }
        });

        for index in 0..1000 {
            let slot = table.slot(TableIndex::of(index));
            assert_eq!(slot.map(|slot| slot.load(Relaxed)), Some(4));
        }
    }
}
