//! A large partial frame: it has a buffer of its own, which becomes the chunk of its message (ADR 0084).
//!
//! If the shard has room for it, the buffer has the announced length from the start. Otherwise it grows with the bytes
//! that arrive, so that announcements alone do not use up the address space.

use std::collections::TryReserveError;

use crate::runtime::address_space::AddressSpace;
use crate::runtime::reserved_bytes::Reservation;
use crate::shard::SMALLER_READ_BYTES;
use crate::transport::socket::ReadPlace;

/// A partial frame with a buffer of its own.
pub(super) struct LargeFrame {
    /// The bytes that have arrived.
    buffer: Vec<u8>,
    /// Length of the whole frame.
    len: usize,
    /// Number of bytes that the next read may take.
    room: usize,
    /// Of the whole length; `None` if the buffer grows with the bytes.
    reservation: Option<Reservation>,
    /// The buffer is that of an earlier message: all of it takes memory from the start.
    is_reused: bool,
}

impl LargeFrame {
    /// A frame of `len` bytes that begins with `bytes`.
    pub(super) fn new(bytes: &[u8], len: usize, space: &AddressSpace) -> Self {
        let mut reservation = space.reserve(len);
        let reused = reservation.as_ref().and_then(|_| space.spare_buffer(len));
        let is_reused = reused.is_some();
        let mut buffer = reused.unwrap_or_default();
        if reservation.is_some() && buffer.try_reserve_exact(len).is_err() {
            reservation = None;
        }
        buffer.extend_from_slice(bytes);
        Self {
            buffer,
            len,
            room: 0,
            reservation,
            is_reused,
        }
    }

    /// Length of the whole frame.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of bytes that take memory: those that have arrived, or all of a buffer that is used again.
    pub(super) fn bytes(&self) -> usize {
        if self.is_reused {
            self.buffer.capacity()
        } else {
            self.buffer.len()
        }
    }

    /// Makes room for the next read, of at most `most` bytes, which ends with the frame at the latest.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no address space.
    pub(super) fn make_room(&mut self, most: usize) -> Result<(), TryReserveError> {
        let (filled, capacity) = (self.buffer.len(), self.buffer.capacity());
        let most = if self.reservation.is_some() {
            most
        } else {
            most.min(SMALLER_READ_BYTES)
        };
        self.room = most.min(self.len - filled);
        let end = filled + self.room;
        if end > capacity {
            let wanted = self.len.min(end.max(2 * capacity));
            self.buffer.try_reserve_exact(wanted - filled)?;
        }
        Ok(())
    }

    /// The place for the next read, after [`Self::make_room`].
    pub(super) fn place(&mut self) -> ReadPlace<'_> {
        ReadPlace::Behind(&mut self.buffer, self.room)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.buffer.len() == self.len
    }

    /// The bytes of a complete frame.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqttcore_session::BufferKeeper;

    use super::*;
    use crate::runtime::spare_buffers::SpareBuffers;

    const MIB: usize = 1024 * 1024;

    fn read(frame: &mut LargeFrame, byte: u8) {
        frame.make_room(MIB).expect("there is memory");
        let ReadPlace::Behind(buffer, most) = frame.place() else {
            panic!("it has a buffer");
        };
        buffer.resize(buffer.len() + most, byte);
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
    fn the_buffer_of_an_earlier_message_is_used_again_and_counts_as_a_whole() {
        let buffers = Arc::<SpareBuffers>::default();
        let space = AddressSpace::new(&buffers);
        let buffer = vec![7; MIB];
        let place = buffer.as_ptr();
        buffers.keep(buffer);

        let frame = LargeFrame::new(&[1; 5_000], MIB, &space);
        let other = LargeFrame::new(&[1; 5_000], MIB, &space);

        assert_eq!((frame.buffer.as_ptr(), frame.bytes()), (place, MIB));
        assert_eq!(other.bytes(), 5_000);
    }

    #[test]
    fn beyond_that_a_buffer_is_at_most_twice_as_large_as_what_has_arrived() {
        let space = AddressSpace::default();
        let _others = space.reserve(15 * MIB).expect("there is room");
        let mut frame = LargeFrame::new(&[1; 5_000], 8 * MIB, &space);
        assert!(frame.buffer.capacity() < 6_000);

        while !frame.is_complete() {
            let before = frame.bytes();
            read(&mut frame, 2);
            let most = 2 * before + SMALLER_READ_BYTES;
            assert!(frame.buffer.capacity() <= most, "{before}");
        }

        let buffer = frame.into_buffer();
        assert_eq!((buffer.len(), buffer.capacity()), (8 * MIB, 8 * MIB));
        assert!(buffer[..5_000].iter().all(|byte| *byte == 1));
        assert!(buffer[5_000..].iter().all(|byte| *byte == 2));
    }

    #[test]
    fn a_length_that_no_memory_has_room_for_takes_no_more_than_its_bytes() {
        let space = AddressSpace::default();
        let mut frame = LargeFrame::new(&[1; 5_000], usize::MAX, &space);

        read(&mut frame, 2);

        assert_eq!(frame.bytes(), 5_000 + SMALLER_READ_BYTES);
        assert!(frame.buffer.capacity() <= 10_000 + SMALLER_READ_BYTES);
    }
}
