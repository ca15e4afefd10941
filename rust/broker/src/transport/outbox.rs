//! The outbox of one connection: bytes to write; equal bytes are shared between clients.
//!
//! A forwarded frame is a span of the chunk that its publisher's read produced. Adjacent spans of one chunk merge, so
//! that sixteen frames of one read are written as one piece. Bytes that differ from client to client are owned, between
//! the spans.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use mqttcore_codec::decode_var_int;
use mqttcore_session::{Chunk, Idle};

/// Maximum number of pieces in one `writev`.
pub(crate) const PIECES: usize = 128;
/// Maximum size of an owned piece, so that written pieces are freed.
const OWNED_BYTES: usize = 64 * 1024;
/// The longest fixed header of an MQTT packet.
const FIXED_HEADER_BYTES: usize = 5;
/// A piece of this size is a large message: those that are shorter are parts of a read buffer.
const LARGE_BYTES: usize = 256 * 1024;
/// Payloads below this size are copied, since that is cheaper than a reference.
pub(crate) const SHARE_FROM_BYTES: usize = 1024;

/// The write queue of one connection; on the heap only while the connection has something to write.
pub(crate) struct Outbox {
    pieces: VecDeque<OutboxPiece>,
    /// Bytes of the front piece that are already written.
    written: usize,
    bytes: usize,
    /// Capacity of the owned pieces.
    owned: usize,
    /// The socket accepts nothing now: new bytes must not keep whole chunks alive.
    is_blocked: bool,
    /// Packets that are not fully written; see [`Outbox::packets`].
    packets: u32,
}

/// Each variant but `Payload` begins with a packet.
enum OutboxPiece {
    Owned(Vec<u8>),
    Shared(Chunk, Range<usize>),
    /// The rest of a packet whose first bytes end the piece before.
    Payload(Chunk, Range<usize>),
}

impl OutboxPiece {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            // INVARIANT: `push_shared` and `push_payload` refuse ranges outside of the chunk.
            Self::Shared(chunk, range) | Self::Payload(chunk, range) => {
                chunk.get(range.clone()).unwrap_or_default()
            }
        }
    }
}

impl Idle for Outbox {
    const IDLE: Self = Self {
        pieces: VecDeque::new(),
        written: 0,
        bytes: 0,
        owned: 0,
        is_blocked: false,
        packets: 0,
    };

    fn idle() -> &'static Self {
        const { &Self::IDLE }
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::IDLE
    }
}

impl Outbox {
    /// Whether it is as a new one but for its memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.bytes == 0 && !self.is_blocked
    }

    /// Bytes that are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Number of packets that are not fully written. After a partial write it assumes that all have the same length.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Whether the socket accepted nothing at the last attempt.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether a large message is at its front.
    pub(crate) fn begins_large(&self) -> bool {
        let mut first = self.pieces.iter().take(2);
        first.any(|piece| piece.as_slice().len() >= LARGE_BYTES)
    }

    /// Heap bytes that are not shared.
    pub(crate) fn own_bytes(&self) -> usize {
        self.owned + self.pieces.capacity() * size_of::<OutboxPiece>()
    }

    /// Appends `range` of `chunk`, a whole packet. It is copied only if the socket is blocked.
    pub(crate) fn push_shared(&mut self, chunk: &Chunk, range: Range<usize>) {
        debug_assert!(range.start <= range.end && range.end <= chunk.len());
        if self.is_blocked && !is_most_of(&range, chunk) {
            let bytes = chunk.get(range).unwrap_or_default();
            self.push_with(|own| own.extend_from_slice(bytes));
            return;
        }
        self.bytes += range.len();
        self.packets = self.packets.wrapping_add(1);
        if let Some(OutboxPiece::Shared(last, span)) = self.pieces.back_mut()
            && span.end == range.start
            && last.is_same(chunk)
        {
            span.end = range.end;
            return;
        }
        self.pieces
            .push_back(OutboxPiece::Shared(chunk.clone(), range));
    }

    /// Appends `range` of `chunk` as the rest of the packet that the last [`Self::push_with`] began.
    pub(crate) fn push_payload(&mut self, chunk: &Chunk, range: Range<usize>) {
        debug_assert!(range.start <= range.end && range.end <= chunk.len());
        self.bytes += range.len();
        match self.pieces.back_mut() {
            Some(OutboxPiece::Owned(begun)) if self.is_blocked && !is_most_of(&range, chunk) => {
                let before = begun.capacity();
                begun.extend_from_slice(chunk.get(range).unwrap_or_default());
                self.owned += begun.capacity() - before;
            }
            _ => self
                .pieces
                .push_back(OutboxPiece::Payload(chunk.clone(), range)),
        }
    }

    /// Calls `write` to append a packet, maybe without its payload.
    pub(crate) fn push_with<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let takes_more = |piece: &OutboxPiece| matches!(piece, OutboxPiece::Owned(own) if own.len() < OWNED_BYTES);
        if !self.pieces.back().is_some_and(takes_more) {
            self.pieces.push_back(OutboxPiece::Owned(Vec::new()));
        }
        let Some(OutboxPiece::Owned(buffer)) = self.pieces.back_mut() else {
            unreachable!("an owned piece was just pushed");
        };
        let (before, room) = (buffer.len(), buffer.capacity());
        let result = write(buffer);
        self.bytes += buffer.len() - before;
        self.owned += buffer.capacity() - room;
        self.packets = self.packets.wrapping_add(u32::from(buffer.len() > before));
        if buffer.is_empty() {
            self.owned -= buffer.capacity();
            self.pieces.pop_back();
        }
        result
    }

    /// Fills `slices` with queued bytes, front first, and returns the number of filled slices.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES]) -> usize {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let skip = if count == 0 { self.written } else { 0 };
            *slice = IoSlice::new(piece.as_slice().get(skip..).unwrap_or_default());
            count += 1;
        }
        count
    }

    /// Iterates over the queued bytes, front first.
    pub(crate) fn walk(&self) -> OutboxCursor<'_> {
        let mut pieces = self.pieces.iter();
        let first = pieces.next().map(OutboxPiece::as_slice).unwrap_or_default();
        OutboxCursor {
            piece: first.get(self.written..).unwrap_or_default(),
            pieces,
        }
    }

    /// Remaining bytes of a packet whose first bytes are written.
    pub(crate) fn begun(&self) -> usize {
        let mut pieces = self.pieces.iter();
        let Some(first) = pieces.next() else { return 0 };
        let piece = first.as_slice();
        if matches!(first, OutboxPiece::Payload(..)) {
            return piece.len() - self.written;
        }
        let (mut walk, mut end) = (OutboxCursor { piece, pieces }, 0);
        while end < self.written {
            let packet = walk.packet_len(self.bytes + self.written - end);
            walk.skip(packet);
            end += packet;
        }
        end - self.written
    }

    /// The front piece, if it is the only one.
    pub(crate) fn single(&self) -> Option<&[u8]> {
        match self.pieces.len() {
            1 => self.pieces.front()?.as_slice().get(self.written..),
            _ => None,
        }
    }

    pub(crate) fn empty_slices<'a>() -> [IoSlice<'a>; PIECES] {
        [IoSlice::new(&[]); PIECES]
    }

    /// Removes `count` written bytes from the front.
    pub(crate) fn advance(&mut self, count: usize) {
        self.is_blocked = false;
        debug_assert!(count <= self.bytes);
        self.packets = self.packets_behind(count);
        self.bytes -= count;
        self.written += count;
        while let Some(front) = self.pieces.front() {
            let len = front.as_slice().len();
            if self.written < len {
                return;
            }
            self.written -= len;
            if let Some(OutboxPiece::Owned(own)) = self.pieces.pop_front() {
                self.owned -= own.capacity();
            }
        }
        if self.pieces.capacity() > 16 {
            self.pieces = VecDeque::new();
        }
    }

    /// Number of packets that remain after `count` bytes are written.
    fn packets_behind(&self, count: usize) -> u32 {
        if count == self.bytes {
            return 0;
        }
        let left = (self.bytes - count) as u128 * u128::from(self.packets);
        u32::try_from(left.div_ceil(self.bytes as u128)).unwrap_or(u32::MAX)
    }

    /// Copies queued bytes out of chunks that they would otherwise keep alive (docs/decisions.md, 18). New bytes are
    /// copied, too, until the socket accepts bytes again.
    ///
    /// A span that is most of its chunk stays shared, so that many slow clients hold one copy.
    pub(crate) fn release_chunks(&mut self) {
        self.is_blocked = true;
        for piece in &mut self.pieces {
            match piece {
                OutboxPiece::Shared(chunk, range) if !is_most_of(range, chunk) => {
                    let own = piece.as_slice().to_vec();
                    self.owned += own.capacity();
                    *piece = OutboxPiece::Owned(own);
                }
                OutboxPiece::Payload(chunk, range) if !is_most_of(range, chunk) => {
                    let bytes = chunk.get(range.clone()).unwrap_or_default();
                    let own = Chunk::new(bytes, chunk.account());
                    let all = 0..own.len();
                    *piece = OutboxPiece::Payload(own, all);
                }
                _ => {}
            }
        }
    }
}

/// A position in an outbox, from which bytes are read in order.
#[derive(Clone)]
pub(crate) struct OutboxCursor<'a> {
    piece: &'a [u8],
    pieces: std::collections::vec_deque::Iter<'a, OutboxPiece>,
}

impl<'a> OutboxCursor<'a> {
    /// Returns the next contiguous bytes, at most `most`; empty at the end.
    pub(crate) fn take(&mut self, most: usize) -> &'a [u8] {
        while self.piece.is_empty() {
            match self.pieces.next() {
                Some(piece) => self.piece = piece.as_slice(),
                None => return &[],
            }
        }
        let (taken, rest) = self.piece.split_at(most.min(self.piece.len()));
        self.piece = rest;
        taken
    }

    /// Copies the next bytes into `out` without advancing, and returns their number.
    pub(crate) fn peek(&self, out: &mut [u8]) -> usize {
        let (mut ahead, mut len) = (self.clone(), 0);
        loop {
            let part = ahead.take(out.len() - len);
            if part.is_empty() {
                return len;
            }
            out[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
    }

    /// The length of the packet that begins here; `waiting` of its bytes are queued.
    pub(crate) fn packet_len(&self, waiting: usize) -> usize {
        let mut first = [0; FIXED_HEADER_BYTES];
        let len = self.peek(&mut first);
        packet_len(&first[..len], waiting)
    }

    /// Skips the next `count` bytes.
    pub(crate) fn skip(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            match self.take(left).len() {
                0 => return,
                taken => left -= taken,
            }
        }
    }

    /// Moves the next `count` bytes into `out`.
    pub(crate) fn copy(&mut self, count: usize, out: &mut Vec<u8>) {
        let mut left = count;
        while left > 0 {
            match self.take(left) {
                [] => return,
                part => {
                    out.extend_from_slice(part);
                    left -= part.len();
                }
            }
        }
    }
}

/// The length of the packet that begins with `first`; `waiting` of its bytes are queued.
pub(crate) fn packet_len(first: &[u8], waiting: usize) -> usize {
    let remaining = first.get(1..).map(decode_var_int);
    let Some(Ok(Some((remaining, len)))) = remaining else {
        debug_assert!(false, "the outbox holds whole packets");
        return waiting;
    };
    waiting.min(usize::try_from(remaining).map_or(waiting, |remaining| 1 + len + remaining))
}

/// Whether the chunk of `range` is at most twice as large as `range`.
fn is_most_of(range: &Range<usize>, chunk: &Chunk) -> bool {
    range.len() * 2 >= chunk.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str) -> Chunk {
        Chunk::from(text.as_bytes())
    }

    fn waiting(outbox: &Outbox) -> Vec<u8> {
        let mut slices = Outbox::empty_slices();
        let count = outbox.fill(&mut slices);
        slices[..count].iter().flat_map(|s| s.to_vec()).collect()
    }

    #[test]
    fn adjacent_spans_of_one_chunk_become_one_piece() {
        let chunk = chunk("abcdef");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..2);
        outbox.push_shared(&chunk, 2..5);

        assert_eq!(outbox.single(), Some(&b"abcde"[..]));
        assert_eq!(outbox.len(), 5);
    }

    #[test]
    fn spans_with_a_gap_stay_apart_and_in_order() {
        let chunk = chunk("abcdef");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..2);
        outbox.push_with(|own| own.extend_from_slice(b"--"));
        outbox.push_shared(&chunk, 4..6);

        assert_eq!(outbox.single(), None);
        assert_eq!(waiting(&outbox), b"ab--ef");
    }

    #[test]
    fn a_partial_write_leaves_exactly_the_rest() {
        let chunk = chunk("abcdef");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..4);
        outbox.push_with(|own| own.extend_from_slice(b"xyz"));
        outbox.advance(5);

        assert_eq!(waiting(&outbox), b"yz");
        assert_eq!(outbox.len(), 2);
        outbox.advance(2);
        assert!(outbox.is_empty());
    }

    #[test]
    fn packets_that_are_not_written_are_counted() {
        let chunk = chunk("abcdef");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..2);
        outbox.push_shared(&chunk, 2..4);
        outbox.push_with(|own| own.extend_from_slice(b"xyz"));
        outbox.push_with(|_| ());
        outbox.push_with(|own| own.push(b'h'));
        outbox.push_payload(&chunk, 4..6);

        assert_eq!(outbox.packets(), 4);
        outbox.advance(4);
        assert_eq!(outbox.packets(), 3);
        outbox.advance(5);
        assert_eq!((outbox.len(), outbox.packets()), (1, 1));
        outbox.advance(1);
        assert_eq!(outbox.packets(), 0);
    }

    #[test]
    fn a_large_message_begins_with_its_header_or_in_the_middle() {
        let large = Chunk::from(vec![0; LARGE_BYTES]);
        let mut outbox = Outbox::default();
        assert!(!outbox.begins_large());
        outbox.push_with(|own| own.extend_from_slice(b"head"));
        assert!(!outbox.begins_large());
        outbox.push_payload(&large, 0..large.len());

        assert!(outbox.begins_large());
        outbox.advance(10);
        assert!(outbox.begins_large());
        outbox.advance(LARGE_BYTES - 6);
        assert!(!outbox.begins_large());
    }

    #[test]
    fn a_walk_takes_parts_and_looks_ahead_over_pieces() {
        let chunk = chunk("abcdef");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..4);
        outbox.push_with(|own| own.extend_from_slice(b"xyz"));
        outbox.advance(1);
        let (mut walk, mut ahead) = (outbox.walk(), [0; 5]);

        assert_eq!(walk.take(1), b"b");
        assert_eq!((walk.peek(&mut ahead), &ahead), (5, b"cdxyz"));
        assert_eq!((walk.take(9), walk.take(2)), (&b"cd"[..], &b"xy"[..]));
        assert_eq!((walk.peek(&mut ahead), ahead[0]), (1, b'z'));
        assert_eq!((walk.take(9), walk.take(9)), (&b"z"[..], &b""[..]));
    }

    #[test]
    fn a_write_that_appends_nothing_leaves_no_piece() {
        let mut outbox = Outbox::default();
        outbox.push_with(|_| ());

        assert!(outbox.is_empty());
        assert!(outbox.pieces.is_empty());
    }

    #[test]
    fn queued_bytes_survive_the_release_of_their_chunk() {
        let chunk = chunk("abcdefghij");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..3);
        outbox.advance(1);
        outbox.release_chunks();

        assert_eq!(chunk.holders(), 1);
        assert_eq!(waiting(&outbox), b"bc");
    }

    #[test]
    fn what_comes_while_the_socket_is_blocked_does_not_keep_its_chunk() {
        let chunk = chunk("abcdefghij");
        let mut outbox = Outbox::default();
        outbox.push_shared(&chunk, 0..9);
        outbox.release_chunks();
        outbox.push_shared(&chunk, 0..2);
        let while_blocked = chunk.holders();
        outbox.advance(1);
        outbox.push_shared(&chunk, 3..5);

        assert_eq!(waiting(&outbox), b"bcdefghiabde");
        assert_eq!((while_blocked, chunk.holders()), (2, 3));
    }
}
