//! MQTT over WebSocket: packets as the bytes of binary frames (MQTT 5.0 section 6).
//!
//! Frames are taken apart in the buffer that they are read into, and built around the outbox's own
//! bytes, so a WebSocket connection holds no more than a plain one and the state of one frame each
//! way. Where frames begin and end says nothing about packets [MQTT-6.0.0-2].

mod inbound;
mod upgrade;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use self::inbound::{Ending, Inbound};
use crate::outbox::{Outbox, PIECES};
use crate::transport::{Input, Output, Stop, poll_receive};

pub(crate) use self::inbound::Fault;
pub(crate) use self::upgrade::{Refused, accept};

/// Bytes of packets in one frame to a client. Many libraries hold a message until it is whole, and
/// some take no large ones.
const FRAME_BYTES: usize = u16::MAX as usize;

/// A stream of frames on a TCP stream.
pub(crate) struct WebSocket {
    stream: TcpStream,
    framing: Framing,
}

/// Where both directions are in their frames.
#[derive(Default)]
pub(crate) struct Framing {
    inbound: Inbound,
    /// Frame headers and control frames, written before anything of the outbox.
    head: SmallVec<[u8; 16]>,
    /// Bytes of the outbox that the frame under way was announced to carry and still lacks.
    left: usize,
}

impl WebSocket {
    pub(crate) fn new(stream: TcpStream, framing: Framing) -> Self {
        Self { stream, framing }
    }

    pub(crate) fn into_parts(self) -> (TcpStream, Framing) {
        (self.stream, self.framing)
    }

    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads once; what is left of it when the frames are taken off stands at the front.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<Result<Input, Stop>> {
        match self.framing.inbound.ending() {
            None => {}
            Some(Ending::Close(_)) => return Poll::Ready(Err(Stop::Lost)),
            Some(Ending::Fault(fault)) => return Poll::Ready(Err(Stop::Fault(fault))),
        }
        let raw = ready!(poll_receive(&mut self.stream, cx, bytes))?;
        let payload = self.framing.decode(&mut bytes[..raw]);
        Poll::Ready(Ok(Input { raw, payload }))
    }

    /// Writes once: what is left of the frame under way, or a new one with all that waits.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &Outbox,
    ) -> Poll<io::Result<Output>> {
        self.framing.begin(outbox.len());
        let mut slices = [IoSlice::new(&[]); PIECES + 1];
        let (head, pieces) = slices.split_at_mut(1);
        head[0] = IoSlice::new(&self.framing.head);
        let count = outbox.fill(pieces, self.framing.left);
        let stream = Pin::new(&mut self.stream);
        let raw = ready!(stream.poll_write_vectored(cx, &slices[..=count]))?;
        let payload = self.framing.advance(raw);
        Poll::Ready(Ok(Output { raw, payload }))
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.framing.head.is_empty() || self.framing.inbound.has_ping()
    }

    pub(crate) fn owes_close(&self) -> bool {
        matches!(self.framing.inbound.ending(), Some(Ending::Close(_)))
    }

    pub(crate) fn into_last(self, farewell: &[u8]) -> (TcpStream, Vec<u8>) {
        (self.stream, self.framing.into_last(farewell))
    }
}

impl Framing {
    /// Takes the frames off `bytes`; the bytes of packets stand at the front then, and their
    /// number is returned.
    pub(crate) fn decode(&mut self, bytes: &mut [u8]) -> usize {
        self.inbound.decode(bytes)
    }

    /// Begins a frame for `waiting` bytes, unless one is under way or nothing waits.
    fn begin(&mut self, waiting: usize) {
        if self.left > 0 || !self.head.is_empty() {
            return;
        }
        if let Some(ping) = self.inbound.take_ping() {
            push_frame(&mut self.head, OpCode::Control(Control::Pong), &ping);
        }
        if waiting > 0 {
            self.left = waiting.min(FRAME_BYTES);
            push_header(&mut self.head, OpCode::Data(Data::Binary), self.left);
        }
    }

    /// Takes off `count` written bytes; those that were not the outbox's come first.
    fn advance(&mut self, count: usize) -> usize {
        let own = count.min(self.head.len());
        if own == self.head.len() {
            self.head = SmallVec::new();
        } else {
            self.head.drain(..own);
        }
        self.left -= count - own;
        count - own
    }

    /// The rest of the frame under way, `farewell` and the Close frame. A farewell that is shorter
    /// than that rest was cut: then the stream just ends.
    fn into_last(mut self, farewell: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head.len() + farewell.len() + 32);
        let Some((begun, fresh)) = farewell.split_at_checked(self.left) else {
            return out;
        };
        out.append(&mut self.head.to_vec());
        out.extend_from_slice(begun);
        if let Some(ping) = self.inbound.take_ping() {
            push_frame(&mut out, OpCode::Control(Control::Pong), &ping);
        }
        for part in fresh.chunks(FRAME_BYTES) {
            push_frame(&mut out, OpCode::Data(Data::Binary), part);
        }
        let code = match self.inbound.ending() {
            None => Some(CloseCode::Normal),
            Some(Ending::Close(code)) => code,
            Some(Ending::Fault(fault)) => Some(fault.code()),
        };
        let body = code.map(|code| u16::from(code).to_be_bytes());
        let body = body.as_ref().map_or(&[][..], |bytes| bytes);
        push_frame(&mut out, OpCode::Control(Control::Close), body);
        out
    }
}

fn push_frame(out: &mut impl Extend<u8>, opcode: OpCode, payload: &[u8]) {
    push_header(out, opcode, payload.len());
    out.extend(payload.iter().copied());
}

/// Appends the header of an unfragmented, unmasked frame.
fn push_header(out: &mut impl Extend<u8>, opcode: OpCode, len: usize) {
    let header = FrameHeader {
        opcode,
        ..FrameHeader::default()
    };
    let mut bytes = [0; inbound::HEADER_BYTES];
    let mut rest = &mut bytes[..];
    let written = header.format(len as u64, &mut rest);
    debug_assert!(written.is_ok(), "no header is longer");
    let unused = rest.len();
    out.extend(bytes.into_iter().take(inbound::HEADER_BYTES - unused));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(pings: &[u8]) -> Framing {
        let mut framing = Framing::default();
        framing.decode(&mut pings.to_vec());
        framing
    }

    #[test]
    fn a_frame_takes_what_waits_when_it_begins() {
        let mut framing = Framing::default();
        framing.begin(3);
        framing.begin(9);

        assert_eq!(framing.head.as_slice(), b"\x82\x03");
        assert_eq!(framing.advance(4), 2);
        assert_eq!((framing.left, framing.head.len()), (1, 0));
    }

    #[test]
    fn a_pong_stands_before_a_frame_and_never_in_it() {
        let mut framing = framing(b"\x89\x81\0\0\0\0!");
        framing.begin(300);

        assert_eq!(framing.head.as_slice(), b"\x8A\x01!\x82\x7E\x01\x2C");
    }

    #[test]
    fn the_last_bytes_end_the_frame_under_way() {
        let mut framing = Framing::default();
        framing.begin(4);
        framing.advance(1);

        assert_eq!(
            framing.into_last(b"restnew"),
            b"\x04rest\x82\x03new\x88\x02\x03\xE8"
        );
    }

    #[test]
    fn a_frame_that_lost_its_bytes_is_not_closed_over() {
        let mut framing = Framing::default();
        framing.begin(4);

        assert_eq!(framing.into_last(b""), b"");
    }

    #[test]
    fn a_clients_close_is_answered_with_its_own_code() {
        let framing = framing(b"\x88\x82\0\0\0\0\x03\xE9");

        assert_eq!(framing.into_last(b""), b"\x88\x02\x03\xE9");
    }
}
