//! A large partial frame: it has a buffer of its own, which becomes the chunk of its message (ADR 0084).
//!
//! If the shard has room for it, the buffer has the announced length from the start. Otherwise it grows with the bytes
//! that arrive, so that announcements alone do not use up the address space.

use std::collections::TryReserveError;

use crate::runtime::address_space::{AddressSpace, Reservation};
use crate::shard::SCRATCH_BYTES;

/// Maximum number of bytes of a large frame that one read takes.
pub(super) const LARGE_READ_BYTES: usize = 4 * SCRATCH_BYTES;

/// A partial frame with a buffer of its own.
pub(super) struct LargeFrame {
    /// The bytes that have arrived, and zeros where reads have had room.
    buffer: Vec<u8>,
    /// Number of bytes that have arrived.
    filled: usize,
    /// Length of the whole frame.
    len: usize,
    /// Of the whole length; `None` if the buffer grows with the bytes.
    _reservation: Option<Reservation>,
}

impl LargeFrame {
    /// A frame of `len` bytes that begins with `bytes`.
    pub(super) fn new(bytes: &[u8], len: usize, space: &AddressSpace) -> Self {
        let (mut buffer, mut reservation) = (Vec::new(), space.reserve(len));
        if reservation.is_some() && buffer.try_reserve_exact(len).is_err() {
            reservation = None;
        }
        buffer.extend_from_slice(bytes);
        Self {
            buffer,
            filled: bytes.len(),
            len,
            _reservation: reservation,
        }
    }

    /// Length of the whole frame.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Memory of the frame in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Makes room for the next read, which ends with the frame at the latest.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no address space.
    pub(super) fn make_room(&mut self) -> Result<(), TryReserveError> {
        let end = self.end_of_read();
        if end <= self.buffer.len() {
            return Ok(());
        }
        if end > self.buffer.capacity() {
            let wanted = self.len.min(end.max(2 * self.buffer.capacity()));
            self.buffer.try_reserve_exact(wanted - self.buffer.len())?;
        }
        self.buffer.resize(end, 0);
        Ok(())
    }

    /// The place for the next read, after [`Self::make_room`].
    pub(super) fn place(&mut self) -> &mut [u8] {
        let end = self.end_of_read().min(self.buffer.len());
        &mut self.buffer[self.filled..end]
    }

    /// Counts `bytes` that a read has put into the place.
    pub(super) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.filled == self.len
    }

    /// The bytes of a complete frame.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    fn end_of_read(&self) -> usize {
        self.len.min(self.filled + LARGE_READ_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn read(frame: &mut LargeFrame, byte: u8) {
        frame.make_room().expect("there is memory");
        let place = frame.place();
        place.fill(byte);
        let read = place.len();
        frame.fill(read);
    }

    #[test]
    fn a_frame_that_the_shard_has_room_for_does_not_move() {
        let space = AddressSpace::default();
        let mut frame = LargeFrame::new(&[1; 5_000], MIB, &space);
        let place = frame.buffer.as_ptr();

        while !frame.is_complete() {
            read(&mut frame, 2);
        }

        assert_eq!((frame.buffer.as_ptr(), frame.buffer.len()), (place, MIB));
    }

    #[test]
    fn beyond_that_a_buffer_is_at_most_twice_as_large_as_what_has_arrived() {
        let space = AddressSpace::default();
        let _others = space.reserve(15 * MIB).expect("there is room");
        let mut frame = LargeFrame::new(&[1; 5_000], 8 * MIB, &space);
        assert!(frame.buffer.capacity() < 6_000);

        while !frame.is_complete() {
            let before = frame.filled;
            read(&mut frame, 2);
            let most = 2 * before + LARGE_READ_BYTES;
            assert!(frame.buffer.capacity() <= most, "{before}");
        }

        let buffer = frame.into_buffer();
        assert_eq!((buffer.len(), buffer.capacity()), (8 * MIB, 8 * MIB));
        assert!(buffer[..5_000].iter().all(|byte| *byte == 1));
        assert!(buffer[5_000..].iter().all(|byte| *byte == 2));
    }

    #[test]
    fn a_length_that_no_memory_has_room_for_is_an_error_once_it_is_needed() {
        let space = AddressSpace::default();
        let mut frame = LargeFrame::new(&[1; 5_000], usize::MAX, &space);
        assert!(frame.make_room().is_ok());

        frame.filled = usize::MAX / 2;

        assert!(frame.make_room().is_err());
    }
}
