//! Input of a client: the bytes of its reads and a cursor in them.
//!
//! A shard has one read buffer. Messages of a read share one chunk, a copy that is made once for each read. If a step
//! is paused, the frames after it stay in that chunk: only the cursor is kept, nothing is copied. A small partial frame
//! at the end of a read is stored apart and put before the next read. A large one gets a buffer: the rest is read into
//! it, and it becomes the chunk of its message.

use std::collections::TryReserveError;
use std::ops::Range;
use std::task::{Poll, ready};

use mqttcore_codec::{Limits, frame_len};
use mqttcore_session::{Chunk, Idle, OnDemand};

use crate::connection::held_publishes::{HeldPublishes, TopicRules};
use crate::connection::large_frame::LargeFrame;
use crate::routing::batch::MessageBatch;
use crate::runtime::address_space::AddressSpace;
use crate::transport::SCRATCH_BYTES;
use crate::transport::socket::{ReadBytes, ReadEnd, ReadPlace};

/// A partial frame up to this size is put before the next read; a larger one gets a buffer.
pub(super) const PARTIAL_BYTES: usize = 4096;

/// Input that is not handled yet; on the heap only while there is any.
pub(super) struct Input(OnDemand<UnhandledInput>);

/// The parts of [`Input`].
struct UnhandledInput {
    /// A partial frame of at most [`PARTIAL_BYTES`].
    partial: Vec<u8>,
    /// A larger partial frame.
    large: Option<Box<LargeFrame>>,
    /// Complete frames after a paused step.
    unread: Option<Box<Unread>>,
}

impl Idle for UnhandledInput {
    const IDLE: Self = Self {
        partial: Vec::new(),
        large: None,
        unread: None,
    };

    fn idle() -> &'static Self {
        const { &Self::IDLE }
    }
}

/// Input that is complete after a read.
pub(super) enum Arrived<'s> {
    /// The partial frame of before, and the bytes of the read.
    Read(&'s [u8]),
    /// One large frame.
    Frame(Vec<u8>),
}

/// A read that is handled in part.
pub(super) struct Unread {
    chunk: Chunk,
    /// Number of handled bytes.
    used: usize,
}

impl Input {
    /// Input that a client sent after its CONNECT; `new_chunk` copies bytes into a chunk.
    pub(super) fn new(bytes: &[u8], new_chunk: impl FnOnce(&[u8]) -> Chunk) -> Self {
        let mut input = OnDemand::<UnhandledInput>::NONE;
        if !bytes.is_empty() {
            input.unread = Some(Box::new(Unread::new(new_chunk(bytes))));
        }
        Self(input)
    }

    /// Whether nothing that was read is unhandled.
    pub(super) fn is_empty(&self) -> bool {
        let input = &*self.0;
        input.partial.is_empty() && input.large.is_none() && input.unread.is_none()
    }

    /// Frees the memory of empty buffers.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            self.0.clear();
        }
    }

    /// Takes the unhandled frames.
    pub(super) fn take_unread(&mut self) -> Option<Box<Unread>> {
        self.0.get_mut()?.unread.take()
    }

    /// Makes room for the next read of a large frame, of at most `most` bytes.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no address space.
    pub(super) fn make_room(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.large_mut()
            .map_or(Ok(()), |large| large.make_room(most))
    }

    fn large_mut(&mut self) -> Option<&mut LargeFrame> {
        self.0.get_mut()?.large.as_deref_mut()
    }

    /// Calls `read` with the place for the next bytes: `scratch` after the small partial frame, or the buffer of the
    /// large one, which has room. Returns the result of `read`, and the input that is complete now.
    pub(super) fn read<'s>(
        &mut self,
        scratch: &'s mut [u8],
        read: impl FnOnce(ReadPlace<'_>) -> Poll<Result<ReadBytes, ReadEnd>>,
    ) -> Poll<Result<(ReadBytes, Option<Arrived<'s>>), ReadEnd>> {
        if let Some(large) = self.large_mut() {
            let read = ready!(read(large.place()))?;
            let complete = self.0.large.take_if(|large| large.is_complete());
            let frame = complete.map(|large| Arrived::Frame(large.into_buffer()));
            return Poll::Ready(Ok((read, frame)));
        }
        let partial = self.0.partial.len();
        scratch[..partial].copy_from_slice(&self.0.partial);
        let read = ready!(read(ReadPlace::Over(&mut scratch[partial..])))?;
        if partial > 0 {
            self.0.partial.clear();
        }
        let bytes = &scratch[..partial + read.payload];
        Poll::Ready(Ok((read, Some(Arrived::Read(bytes)))))
    }

    /// Whether the partial frame is larger than the read buffer.
    pub(super) fn is_large(&self) -> bool {
        let large = self.0.large.as_ref();
        large.is_some_and(|large| large.len() > SCRATCH_BYTES)
    }

    /// Memory of the partial frame in bytes.
    pub(super) fn partial_bytes(&self) -> u32 {
        let large = self.0.large.as_ref();
        let bytes = self.0.partial.capacity() + large.map_or(0, |large| large.bytes());
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Stores the unhandled frames of `batch`; `new_chunk` copies bytes into a chunk.
    pub(super) fn keep_unread(
        &mut self,
        batch: ReadBatch<'_>,
        new_chunk: impl FnOnce(&[u8]) -> Chunk,
    ) {
        if let Some(unread) = batch.into_unread(new_chunk) {
            self.0.unread = Some(Box::new(unread));
        }
    }

    /// Stores the partial frame at the end of `batch`; a large one may reserve its length in `space`.
    pub(super) fn keep_partial(
        &mut self,
        batch: &ReadBatch<'_>,
        limits: &Limits,
        space: &AddressSpace,
    ) {
        let rest = batch.rest();
        if rest.is_empty() {
            return;
        }
        // An invalid header is reported when it is decoded.
        match frame_len(rest, limits) {
            Ok(Some(len)) if rest.len() > PARTIAL_BYTES => {
                self.0.large = Some(Box::new(LargeFrame::new(rest, len, space)));
            }
            _ => self.0.partial.extend_from_slice(rest),
        }
    }
}

impl Unread {
    pub(super) fn new(chunk: Chunk) -> Self {
        Self { chunk, used: 0 }
    }

    /// A batch that continues at the cursor.
    pub(super) fn batch(&self) -> ReadBatch<'_> {
        ReadBatch {
            used: self.used,
            chunk: Some(self.chunk.clone()),
            ..ReadBatch::new(&self.chunk)
        }
    }
}

/// The bytes of one read, and the chunk that its messages share after the first one needs it.
pub(super) struct ReadBatch<'a> {
    bytes: &'a [u8],
    /// Number of handled bytes.
    used: usize,
    /// Number of handled frames.
    pub(super) frames: u32,
    chunk: Option<Chunk>,
    /// Publishes that wait to be routed with later ones.
    pub(super) together: MessageBatch<'a>,
    /// Publishes that wait for plugins.
    pub(super) held: HeldPublishes,
    /// Publishes so far.
    pub(super) publishes: u32,
    /// How many the rate limit allows.
    pub(super) allowed: u32,
    pub(super) rules: TopicRules<'a>,
}

impl<'a> ReadBatch<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            used: 0,
            frames: 0,
            chunk: None,
            together: MessageBatch::default(),
            held: HeldPublishes::default(),
            publishes: 0,
            allowed: u32::MAX,
            rules: TopicRules::default(),
        }
    }

    /// The unhandled bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    /// Advances by the next frame, of `len` bytes; returns its position.
    pub(super) fn pass(&mut self, len: usize) -> Range<usize> {
        let start = self.used;
        self.used += len;
        self.frames += 1;
        start..self.used
    }

    /// The bytes of a frame, and the chunk with the same bytes at the same position; `new_chunk` copies bytes into a
    /// chunk.
    pub(super) fn source(
        &mut self,
        frame: Range<usize>,
        new_chunk: impl FnOnce(&[u8]) -> Chunk,
    ) -> (&'a [u8], &Chunk) {
        let source = self.bytes.get(frame).unwrap_or_default();
        let chunk = self.chunk.get_or_insert_with(|| new_chunk(self.bytes));
        (source, chunk)
    }

    /// The unhandled rest, if there is any: in the existing chunk if there is one, so that it is not copied again.
    fn into_unread(self, new_chunk: impl FnOnce(&[u8]) -> Chunk) -> Option<Unread> {
        if self.rest().is_empty() {
            return None;
        }
        Some(match self.chunk {
            Some(chunk) => Unread {
                chunk,
                used: self.used,
            },
            None => Unread::new(new_chunk(self.rest())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes that a read takes.
    const MOST: usize = 1024 * 1024;

    fn new_chunk(bytes: &[u8]) -> Chunk {
        bytes.into()
    }

    #[test]
    fn a_pause_keeps_the_chunk_of_a_read_and_moves_the_cursor() {
        let mut input = Input::new(b"", new_chunk);
        let mut batch = ReadBatch::new(b"abcdef");
        let frame = batch.pass(2);
        let chunk = batch.source(frame, new_chunk).1.clone();

        input.keep_unread(batch, new_chunk);
        let unread = input.take_unread().unwrap();
        let mut batch = unread.batch();
        assert_eq!(batch.rest(), b"cdef");
        let frame = batch.pass(1);
        input.keep_unread(batch, new_chunk);

        let unread = input.take_unread().unwrap();
        let mut batch = unread.batch();
        assert_eq!((frame, batch.rest()), (2..3, &b"def"[..]));
        assert!(batch.source(3..4, new_chunk).1.is_same(&chunk));
        batch.pass(3);
        input.keep_unread(batch, new_chunk);
        assert!(input.take_unread().is_none());
    }

    /// Reads `bytes`; returns the complete input, and the size of the buffer.
    fn read(input: &mut Input, scratch: &mut [u8], bytes: &[u8]) -> (Option<Vec<u8>>, usize) {
        let mut room = 0;
        input.make_room(MOST).expect("there is memory");
        let read = input.read(scratch, |place| {
            match place {
                ReadPlace::Over(place) => {
                    room = place.len();
                    place[..bytes.len()].copy_from_slice(bytes);
                }
                ReadPlace::Behind(buffer, most) => {
                    room = most;
                    buffer.extend_from_slice(bytes);
                }
            }
            Poll::Ready(Ok(ReadBytes::new(bytes.len(), bytes.len())))
        });
        let Poll::Ready(Ok((_, arrived))) = read else {
            panic!("nothing was read");
        };
        let bytes = arrived.map(|arrived| match arrived {
            Arrived::Read(bytes) => bytes.to_vec(),
            Arrived::Frame(frame) => frame,
        });
        (bytes, room)
    }

    #[test]
    fn the_start_of_a_small_frame_stands_in_front_of_the_next_read() {
        let (mut input, limits) = (Input::new(b"", new_chunk), Limits::default());
        input.keep_partial(&ReadBatch::new(b"ab"), &limits, &AddressSpace::default());
        let mut scratch = vec![0; SCRATCH_BYTES];

        let first = read(&mut input, &mut scratch, b"cde");
        let second = read(&mut input, &mut scratch, b"f");

        assert_eq!(first, (Some(b"abcde".to_vec()), SCRATCH_BYTES - 2));
        assert_eq!(second, (Some(b"f".to_vec()), SCRATCH_BYTES));
    }

    /// A PUBLISH at QoS 0 with `payload` bytes of payload.
    fn publish(payload: usize) -> Vec<u8> {
        let mut body = b"\x00\x01t".to_vec();
        body.extend((0..payload).map(|index| index.to_le_bytes()[0]));
        let mut frame = vec![0x30];
        let mut left = body.len();
        while left > 127 {
            frame.push(left.to_le_bytes()[0] | 128);
            left >>= 7;
        }
        frame.push(left.to_le_bytes()[0]);
        [frame, body].concat()
    }

    #[test]
    fn a_large_frame_is_read_into_one_buffer_whatever_the_reads_are() {
        let frame = publish(700_000);
        for step in [1_000, 65_536, 100_000, usize::MAX] {
            let (mut input, limits) = (Input::new(b"", new_chunk), Limits::default());
            let mut scratch = vec![0; SCRATCH_BYTES];
            let (start, mut rest) = frame.split_at(SCRATCH_BYTES);
            input.keep_partial(&ReadBatch::new(start), &limits, &AddressSpace::default());

            let complete = loop {
                input.make_room(MOST).expect("there is memory");
                let pending = input.read(&mut scratch, |_| Poll::Pending);
                assert!(input.is_large() && pending.is_pending());
                let len = step.min(rest.len()).min(MOST);
                let (bytes, more) = rest.split_at(len);
                rest = more;
                let (arrived, room) = read(&mut input, &mut scratch, bytes);
                assert!(room <= more.len() + len, "a read ends with the frame");
                if let Some(arrived) = arrived {
                    break arrived;
                }
            };

            assert!(rest.is_empty() && !input.is_large());
            assert_eq!(complete, frame);
        }
    }

    #[test]
    fn the_announced_length_takes_no_memory_before_its_bytes_arrive() {
        let (mut input, limits) = (Input::new(b"", new_chunk), Limits::default());

        input.keep_partial(
            &ReadBatch::new(&publish(900_000)[..5_000]),
            &limits,
            &AddressSpace::default(),
        );

        assert_eq!(input.partial_bytes(), 5_000);
    }
}
