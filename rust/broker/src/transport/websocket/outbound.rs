//! Frames to a client: one binary frame for each packet, built around the outbox's bytes.
//!
//! The standard allows many packets in a frame, but some clients do not read the next packet of a frame before the
//! socket has new bytes.

use std::io::IoSlice;

use smallvec::SmallVec;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::inbound::HEADER_BYTES;
use crate::transport::outbox::{Outbox, OutboxCursor, PIECES, packet_len};

/// Maximum number of frames that one write begins; each needs a slice for its header and one or more for its payload.
const FRAMES: usize = PIECES / 2 - 1;

/// State of the outgoing frames.
#[derive(Default)]
pub(super) struct Outbound {
    /// Bytes to write first: control frames, or the rest of a header.
    head: SmallVec<[u8; 16]>,
    /// Number of unsent outbox bytes of the current frame.
    left: usize,
}

/// Headers of the frames that one write begins, in order; those that the write does not reach are discarded.
#[derive(Default)]
pub(super) struct Headers(SmallVec<[Header; 16]>);

#[derive(Clone, Copy)]
struct Header {
    bytes: [u8; HEADER_BYTES],
    len: usize,
    payload: usize,
}

impl Header {
    /// The header of an unfragmented, unmasked frame.
    fn new(opcode: OpCode, payload: usize) -> Self {
        let header = FrameHeader {
            opcode,
            ..FrameHeader::default()
        };
        let mut bytes = [0; HEADER_BYTES];
        let mut rest = &mut bytes[..];
        let written = header.format(payload as u64, &mut rest);
        debug_assert!(written.is_ok(), "no header is longer");
        let len = HEADER_BYTES - rest.len();
        Self {
            bytes,
            len,
            payload,
        }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Outbound {
    pub(super) fn has_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Number of unsent outbox bytes of the current frame.
    pub(super) fn begun(&self) -> usize {
        self.left
    }

    pub(super) fn is_between_frames(&self) -> bool {
        self.head.is_empty() && self.left == 0
    }

    /// Inserts a Pong before the next frame.
    pub(super) fn push_pong(&mut self, payload: &[u8]) {
        push_frame(&mut self.head, OpCode::Control(Control::Pong), payload);
    }

    /// Fills `slices` with the next bytes to write; returns the number of filled slices.
    pub(super) fn plan<'a>(
        &'a self,
        outbox: &'a Outbox,
        headers: &'a mut Headers,
        slices: &mut [IoSlice<'a>; PIECES],
    ) -> usize {
        headers.fill(outbox, self.left);
        let mut slices = slices.iter_mut();
        let mut count = 0;
        let mut push = |bytes: &'a [u8]| {
            let Some(slice) = slices.next() else {
                return false;
            };
            *slice = IoSlice::new(bytes);
            count += 1;
            true
        };
        let mut walk = outbox.walk();
        let mut fits = self.head.is_empty() || push(&self.head);
        fits = fits && push_part(&mut walk, self.left, &mut push);
        for header in &headers.0 {
            fits =
                fits && push(header.as_slice()) && push_part(&mut walk, header.payload, &mut push);
        }
        count
    }

    /// Advances by `count` written bytes; returns how many of them were the outbox's.
    pub(super) fn advance(&mut self, count: usize, headers: &Headers) -> usize {
        let mut count = count;
        let mut taken = self.advance_frame(&mut count);
        for header in &headers.0 {
            if count == 0 {
                break;
            }
            self.head = SmallVec::from_slice(header.as_slice());
            self.left = header.payload;
            taken += self.advance_frame(&mut count);
        }
        taken
    }

    /// Advances within the current frame.
    fn advance_frame(&mut self, count: &mut usize) -> usize {
        let own = self.head.len().min(*count);
        if own == self.head.len() {
            self.head = SmallVec::new();
        } else {
            self.head.drain(..own);
        }
        let taken = self.left.min(*count - own);
        self.left -= taken;
        *count -= own + taken;
        taken
    }

    /// The rest of the current frame, `last_bytes`, an outstanding Pong, and the Close frame.
    ///
    /// If `last_bytes` is shorter than that rest, it was cut, and the stream ends without them.
    pub(super) fn into_last(
        self,
        last_bytes: &[u8],
        ping: Option<Vec<u8>>,
        code: Option<CloseCode>,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head.len() + last_bytes.len() + 32);
        let Some((begun, mut rest)) = last_bytes.split_at_checked(self.left) else {
            return out;
        };
        out.extend_from_slice(&self.head);
        out.extend_from_slice(begun);
        while !rest.is_empty() {
            let (packet, behind) = rest.split_at(packet_len(rest, rest.len()));
            push_frame(&mut out, OpCode::Data(Data::Binary), packet);
            rest = behind;
        }
        if let Some(ping) = ping {
            push_frame(&mut out, OpCode::Control(Control::Pong), &ping);
        }
        let body = code.map(|code| u16::from(code).to_be_bytes());
        let body = body.as_ref().map_or(&[][..], |bytes| bytes);
        push_frame(&mut out, OpCode::Control(Control::Close), body);
        out
    }
}

impl Headers {
    /// Adds a header for each packet after the first `skip` bytes of `outbox`, up to the limit.
    fn fill(&mut self, outbox: &Outbox, skip: usize) {
        let mut walk = outbox.walk();
        walk.skip(skip);
        let mut waiting = outbox.len() - skip;
        while waiting > 0 && self.0.len() < FRAMES {
            let packet = walk.packet_len(waiting);
            self.0.push(Header::new(OpCode::Data(Data::Binary), packet));
            walk.skip(packet);
            waiting -= packet;
        }
    }
}

/// Calls `push` with the next `len` bytes piece by piece; returns false if `push` does.
fn push_part<'a>(
    walk: &mut OutboxCursor<'a>,
    len: usize,
    push: &mut impl FnMut(&'a [u8]) -> bool,
) -> bool {
    let mut left = len;
    while left > 0 {
        let part = walk.take(left);
        if part.is_empty() || !push(part) {
            return false;
        }
        left -= part.len();
    }
    true
}

fn push_frame(out: &mut impl Extend<u8>, opcode: OpCode, payload: &[u8]) {
    let header = Header::new(opcode, payload.len());
    out.extend(header.as_slice().iter().copied());
    out.extend(payload.iter().copied());
}

#[cfg(test)]
mod tests {
    use mqttcore_session::Chunk;

    use super::*;

    /// A PUBLISH to "t" with `len` bytes of payload.
    fn packet(len: u8) -> Vec<u8> {
        let mut out = vec![0x30, len + 3, 0, 1, b't'];
        out.extend((0..len).map(|at| b'a' + at % 26));
        out
    }

    fn outbox(packets: &[Vec<u8>]) -> Outbox {
        let mut outbox = Outbox::default();
        let chunk: Chunk = packets.concat().into();
        let half = chunk.len() / 2;
        outbox.push_shared(&chunk, 0..half);
        outbox.push_with(|own| own.extend_from_slice(&chunk[half..]));
        outbox
    }

    /// Writes everything in steps of `step` bytes.
    fn written(outbound: &mut Outbound, outbox: &mut Outbox, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while !outbox.is_empty() || outbound.has_head() {
            let mut headers = Headers::default();
            let mut slices = Outbox::empty_slices();
            let count = outbound.plan(outbox, &mut headers, &mut slices);
            let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            let len = step.min(bytes.len());
            out.extend_from_slice(&bytes[..len]);
            let taken = outbound.advance(len, &headers);
            outbox.advance(taken);
        }
        out
    }

    fn framed(packets: &[Vec<u8>]) -> Vec<u8> {
        let frame = |packet: &Vec<u8>| {
            let mut out = vec![0x82, u8::try_from(packet.len()).expect("short")];
            out.extend(packet);
            out
        };
        packets.iter().flat_map(frame).collect()
    }

    #[test]
    fn each_packet_is_a_frame_however_little_the_socket_takes() {
        let packets: Vec<Vec<u8>> = (0..100).map(packet).collect();
        let wanted = framed(&packets);

        for step in [1, 2, 3, 7, 64, 1_000, usize::MAX] {
            let found = written(&mut Outbound::default(), &mut outbox(&packets), step);
            assert!(found == wanted, "{step} bytes a write");
        }
    }

    #[test]
    fn what_comes_later_does_not_join_a_frame_that_began() {
        let (mut outbound, first) = (Outbound::default(), packet(4));
        let mut outbox = outbox(std::slice::from_ref(&first));
        let mut headers = Headers::default();
        outbound.plan(&outbox, &mut headers, &mut Outbox::empty_slices());
        let taken = outbound.advance(5, &headers);
        outbox.advance(taken);
        outbox.push_with(|own| own.extend_from_slice(&packet(2)));

        let wanted = framed(&[first, packet(2)]);
        assert_eq!(written(&mut outbound, &mut outbox, 9), wanted[5..]);
    }

    #[test]
    fn a_pong_stands_between_frames_and_is_written_without_one() {
        let mut outbound = Outbound::default();
        assert!(outbound.is_between_frames());
        outbound.push_pong(b"!");

        let wanted = [b"\x8A\x01!".to_vec(), framed(&[packet(1)])].concat();
        assert_eq!(written(&mut outbound, &mut outbox(&[packet(1)]), 2), wanted);
    }

    #[test]
    fn a_packet_in_many_pieces_is_one_frame() {
        let mut outbox = Outbox::default();
        let chunk: Chunk = vec![b'x'; 1_000].into();
        outbox.push_with(|own| own.extend_from_slice(b"\x30\xC8\x01"));
        for _ in 0..200 {
            outbox.push_shared(&chunk, 5..6);
        }

        let found = written(&mut Outbound::default(), &mut outbox, usize::MAX);
        assert_eq!(found[..7], *b"\x82\x7E\x00\xCB\x30\xC8\x01");
        assert_eq!(found.len(), 7 + 200);
    }

    #[test]
    fn the_last_bytes_end_the_frame_under_way() {
        let outbound = Outbound {
            head: SmallVec::from_slice(b"\x04"),
            left: 4,
        };
        let last = outbound.into_last(b"rest\xD0\x00\xE0\x00", None, Some(CloseCode::Normal));

        assert_eq!(
            last,
            b"\x04rest\x82\x02\xD0\x00\x82\x02\xE0\x00\x88\x02\x03\xE8"
        );
    }

    #[test]
    fn a_frame_that_lost_its_bytes_is_not_closed_over() {
        let outbound = Outbound {
            left: 4,
            ..Outbound::default()
        };

        assert_eq!(outbound.into_last(b"", None, None), b"");
    }
}
