//! Input of a client: the bytes of its reads and a cursor in them.
//!
//! A shard has one read buffer. Messages of a read share one chunk, a copy that is made once for each read. If a step
//! is paused, the frames after it stay in that chunk: only the cursor is kept, nothing is copied. A partial frame at
//! the end of a read is stored apart and put before the next read.

use std::borrow::Cow;
use std::ops::Range;

use mqttcore_codec::{Limits, frame_len};
use mqttcore_session::Chunk;

use crate::connection::held_publishes::HeldPublishes;
use crate::routing::batch::MessageBatch;
use crate::shard::SCRATCH_BYTES;

/// A partial frame up to this size is put before the next read instead of growing a buffer.
pub(super) const PARTIAL_BYTES: usize = 4096;

/// Input that is not handled yet.
pub(super) struct Input {
    /// A partial frame.
    partial: Vec<u8>,
    /// Complete frames after a paused step.
    unread: Option<Box<Unread>>,
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
        let unread = || Box::new(Unread::new(new_chunk(bytes)));
        Self {
            partial: Vec::new(),
            unread: (!bytes.is_empty()).then(unread),
        }
    }

    /// Takes the unhandled frames.
    pub(super) fn take_unread(&mut self) -> Option<Box<Unread>> {
        self.unread.take()
    }

    /// The part of `scratch` for the next read: after the partial frame, unless that is large.
    pub(super) fn prepare(&self, scratch: &mut [u8], limits: &Limits) -> Range<usize> {
        let partial = self.partial.len();
        if partial > PARTIAL_BYTES {
            return 0..SCRATCH_BYTES.min(self.missing(limits));
        }
        scratch[..partial].copy_from_slice(&self.partial);
        partial..SCRATCH_BYTES
    }

    /// Returns the input after `len` bytes were read to `place`; `None` while a large frame is incomplete.
    pub(super) fn complete<'s>(
        &mut self,
        scratch: &'s [u8],
        place: Range<usize>,
        len: usize,
        limits: &Limits,
    ) -> Option<Cow<'s, [u8]>> {
        let end = place.start + len;
        if self.partial.len() <= PARTIAL_BYTES {
            self.partial.clear();
            return Some(Cow::Borrowed(&scratch[..end]));
        }
        self.partial.extend_from_slice(&scratch[place.start..end]);
        (self.missing(limits) == 0).then(|| Cow::Owned(std::mem::take(&mut self.partial)))
    }

    /// Number of missing bytes of the partial frame.
    fn missing(&self, limits: &Limits) -> usize {
        let announced = frame_len(&self.partial, limits);
        let whole = announced.ok().flatten().unwrap_or(SCRATCH_BYTES);
        whole.saturating_sub(self.partial.len())
    }

    /// Whether the partial frame is larger than the read buffer.
    pub(super) fn is_large(&self, limits: &Limits) -> bool {
        self.partial.len() + self.missing(limits) > SCRATCH_BYTES
    }

    /// Memory of the partial frame in bytes.
    pub(super) fn partial_bytes(&self) -> usize {
        self.partial.capacity()
    }

    /// Stores the unhandled frames of `batch`; `new_chunk` copies bytes into a chunk.
    pub(super) fn keep_unread(
        &mut self,
        batch: ReadBatch<'_>,
        new_chunk: impl FnOnce(&[u8]) -> Chunk,
    ) {
        self.unread = batch.into_unread(new_chunk).map(Box::new);
    }

    /// Stores the partial frame at the end of `batch`.
    pub(super) fn keep_partial(&mut self, batch: &ReadBatch<'_>) {
        self.partial.extend_from_slice(batch.rest());
    }
}

impl Unread {
    fn new(chunk: Chunk) -> Self {
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
    chunk: Option<Chunk>,
    /// Publishes that wait to be routed with later ones.
    pub(super) together: MessageBatch<'a>,
    /// Publishes that wait for plugins.
    pub(super) held: HeldPublishes,
}

impl<'a> ReadBatch<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            used: 0,
            chunk: None,
            together: MessageBatch::default(),
            held: HeldPublishes::default(),
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

    #[test]
    fn the_start_of_a_small_frame_stands_in_front_of_the_next_read() {
        let (mut input, limits) = (Input::new(b"", new_chunk), Limits::default());
        input.keep_partial(&ReadBatch::new(b"ab"));
        let mut scratch = vec![0; SCRATCH_BYTES];

        let place = input.prepare(&mut scratch, &limits);
        scratch[place.start..][..3].copy_from_slice(b"cde");
        let bytes = input.complete(&scratch, place, 3, &limits);

        assert_eq!(bytes.as_deref(), Some(&b"abcde"[..]));
        assert_eq!(input.prepare(&mut scratch, &limits), 0..SCRATCH_BYTES);
    }
}
