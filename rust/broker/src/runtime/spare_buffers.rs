//! Buffers of large messages that nobody holds any more, kept for the next ones.
//!
//! glibc returns the end of an arena to the system whenever a few large buffers are free there, and each page of the next
//! one causes a page fault (ADR 0147).

use std::sync::{Mutex, MutexGuard, PoisonError};

use mqttcore_session::BufferKeeper;

/// Smaller buffers are freed: the allocator keeps them itself.
const FROM_BYTES: usize = 128 * 1024;
/// Maximum number of bytes that are kept.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The spare buffers of one engine thread; other threads may add to them.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Mutex<Spare>);

#[derive(Debug, Default)]
struct Spare {
    /// Empty buffers; the last one was freed last, so that most of it is in a cache.
    buffers: Vec<Vec<u8>>,
    /// Their capacity.
    bytes: usize,
    /// The smallest number of buffers since the last call of [`SpareBuffers::free_unused`].
    least: usize,
}

impl Spare {
    fn remove(&mut self, place: usize) -> Vec<u8> {
        let buffer = self.buffers.remove(place);
        self.bytes -= buffer.capacity();
        self.least = self.least.min(self.buffers.len());
        buffer
    }
}

impl BufferKeeper for SpareBuffers {
    /// Keeps `buffer` if it is large and there is room for it.
    fn keep(&self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity < FROM_BYTES {
            return;
        }
        let mut spare = self.lock();
        if spare.bytes + capacity <= MOST_BYTES {
            buffer.clear();
            spare.bytes += capacity;
            spare.buffers.push(buffer);
        }
    }
}

impl SpareBuffers {
    /// Takes a buffer for `len` bytes which is at most twice as large.
    pub(crate) fn take(&self, len: usize) -> Option<Vec<u8>> {
        if len < FROM_BYTES / 2 {
            return None;
        }
        let mut spare = self.lock();
        let fits = |buffer: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&buffer.capacity());
        let place = spare.buffers.iter().rposition(fits)?;
        Some(spare.remove(place))
    }

    /// Frees the buffers that were not needed since the last call.
    pub(crate) fn free_unused(&self) {
        let mut spare = self.lock();
        let unused: Vec<_> = (0..spare.least).map(|_| spare.remove(0)).collect();
        spare.least = spare.buffers.len();
        // Other threads need not wait until they are freed.
        drop(spare);
        drop(unused);
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Spare> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn buffer(bytes: usize) -> Vec<u8> {
        vec![7; bytes]
    }

    #[test]
    fn the_buffer_that_was_kept_last_is_taken_first_and_is_empty() {
        let spare = SpareBuffers::default();
        let (first, last) = (buffer(MIB), buffer(MIB));
        let place = last.as_ptr();
        spare.keep(first);
        spare.keep(last);

        let taken = spare.take(MIB - 1).expect("one fits");

        assert_eq!((taken.as_ptr(), taken.len()), (place, 0));
        assert_eq!(spare.bytes(), MIB);
    }

    #[test]
    fn a_buffer_is_taken_only_for_at_least_half_of_its_size() {
        let spare = SpareBuffers::default();
        spare.keep(buffer(MIB));

        assert!(spare.take(MIB + 1).is_none());
        assert!(spare.take(MIB / 2 - 1).is_none());
        assert!(spare.take(MIB / 2).is_some());
        assert_eq!(spare.bytes(), 0);
    }

    #[test]
    fn small_buffers_and_those_beyond_16_mib_are_freed() {
        let spare = SpareBuffers::default();
        spare.keep(buffer(FROM_BYTES - 1));
        assert_eq!(spare.bytes(), 0);

        spare.keep(buffer(MOST_BYTES - MIB));
        spare.keep(buffer(MIB));
        spare.keep(buffer(FROM_BYTES));

        assert_eq!(spare.bytes(), MOST_BYTES);
    }

    #[test]
    fn buffers_that_were_not_needed_between_two_calls_are_freed() {
        let spare = SpareBuffers::default();
        for _ in 0..3 {
            spare.keep(buffer(MIB));
        }
        spare.free_unused();
        assert_eq!(spare.bytes(), 3 * MIB, "they are new");

        let one = spare.take(MIB).expect("a buffer");
        spare.keep(one);
        spare.free_unused();
        assert_eq!(spare.bytes(), MIB, "one was needed");

        spare.free_unused();
        assert_eq!(spare.bytes(), 0);
    }
}
