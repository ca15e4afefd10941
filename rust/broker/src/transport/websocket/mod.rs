//! MQTT over WebSocket: packets as the bytes of binary frames (MQTT 5.0 section 6).
//!
//! Frames are decoded in the read buffer and built around the outbox's bytes, so a WebSocket connection needs no more
//! memory than a plain one and the state of one frame in each direction. The frames of a client need not match
//! packets [MQTT-6.0.0-2]; the broker sends one packet in each frame, because some clients rely on it.

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/websocket.rs"]
pub(crate) mod fuzzing;
mod inbound;
mod outbound;
mod upgrade;

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tungstenite::protocol::frame::coding::CloseCode;

use self::inbound::{FramesEnd, Inbound};
use self::outbound::{Headers, Outbound};
use crate::transport::outbox::Outbox;
use crate::transport::socket::{ReadBytes, ReadEnd, ReadPlace, Socket, WrittenBytes};

pub(crate) use self::upgrade::{Refused, accept};

/// A WebSocket on a socket.
pub(crate) struct WebSocket {
    stream: Socket,
    framing: Framing,
}

/// State of the frames in both directions.
#[derive(Default)]
pub(crate) struct Framing {
    inbound: Inbound,
    outbound: Outbound,
}

impl WebSocket {
    pub(crate) fn new(stream: Socket, framing: Framing) -> Self {
        Self { stream, framing }
    }

    pub(crate) fn into_parts(self) -> (Socket, Framing) {
        (self.stream, self.framing)
    }

    /// Heap size in bytes, including its box.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.stream.heap_bytes()
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.stream
    }

    pub(crate) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.stream
    }

    /// Reads once and decodes frames; the payload is at the front of the buffer.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<Result<ReadBytes, ReadEnd>> {
        match self.framing.inbound.ending() {
            None => {}
            Some(FramesEnd::Close(_)) => return Poll::Ready(Err(ReadEnd::Lost)),
            Some(FramesEnd::Fault(fault)) => return Poll::Ready(Err(ReadEnd::Fault(fault))),
        }
        let input = ready!(self.stream.poll_read(cx, ReadPlace::Over(bytes)))?;
        let payload = self.framing.decode(&mut bytes[..input.payload]);
        let control_frames = self.framing.inbound.take_control_frames();
        Poll::Ready(Ok(ReadBytes {
            payload,
            control_frames: input.control_frames.saturating_add(control_frames),
            ..input
        }))
    }

    /// Writes once: the rest of the current frame, then a frame for each packet in the outbox.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &Outbox,
    ) -> Poll<io::Result<WrittenBytes>> {
        let Framing { inbound, outbound } = &mut self.framing;
        if outbound.is_between_frames()
            && let Some(ping) = inbound.take_ping()
        {
            outbound.push_pong(&ping);
        }
        let mut headers = Headers::default();
        let mut slices: [IoSlice<'_>; _] = Outbox::empty_slices();
        let count = outbound.plan(outbox, &mut headers, &mut slices);
        let written = ready!(self.stream.poll_write_slices(cx, &slices[..count]))?;
        let payload = outbound.advance(written.payload, &headers);
        Poll::Ready(Ok(WrittenBytes { payload, ..written }))
    }

    pub(crate) fn has_output(&self) -> bool {
        let Framing { inbound, outbound } = &self.framing;
        outbound.has_head() || inbound.has_ping() || self.stream.has_output()
    }

    pub(crate) fn must_answer_close(&self) -> bool {
        matches!(self.framing.inbound.ending(), Some(FramesEnd::Close(_)))
    }

    /// Number of unsent outbox bytes of the current frame.
    pub(crate) fn begun(&self) -> usize {
        self.framing.outbound.begun()
    }

    pub(crate) fn into_last(self, last_bytes: &[u8]) -> (Socket, Vec<u8>) {
        (self.stream, self.framing.into_last(last_bytes))
    }
}

impl Framing {
    /// Decodes the frames in `bytes`: moves the bytes of packets to the front and returns their number.
    pub(crate) fn decode(&mut self, bytes: &mut [u8]) -> usize {
        self.inbound.decode(bytes)
    }

    /// The rest of the current frame, `last_bytes`, and the Close frame.
    fn into_last(mut self, last_bytes: &[u8]) -> Vec<u8> {
        let code = match self.inbound.ending() {
            None => Some(CloseCode::Normal),
            Some(FramesEnd::Close(code)) => code,
            Some(FramesEnd::Fault(fault)) => Some(fault.code()),
        };
        self.outbound
            .into_last(last_bytes, self.inbound.take_ping(), code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_of(bytes: &[u8]) -> Vec<u8> {
        let mut framing = Framing::default();
        framing.decode(&mut bytes.to_vec());
        framing.into_last(b"")
    }

    #[test]
    fn a_close_says_what_the_clients_last_frame_calls_for() {
        assert_eq!(last_of(b""), b"\x88\x02\x03\xE8");
        assert_eq!(last_of(b"\x88\x82\0\0\0\0\x03\xE9"), b"\x88\x02\x03\xE9");
        assert_eq!(last_of(b"\x88\x80\0\0\0\0"), b"\x88\x00");
        assert_eq!(last_of(b"\x81\x80\0\0\0\0"), b"\x88\x02\x03\xEB");
        assert_eq!(last_of(b"\x89\x81\0\0\0\0!"), b"\x8A\x01!\x88\x02\x03\xE8");
    }
}
