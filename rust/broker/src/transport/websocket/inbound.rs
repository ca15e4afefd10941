//! Frames from a client: masked, decoded in the read buffer (RFC 6455 section 5).

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use crate::transport::socket::FramingError;

/// The longest header: two bytes, eight of length, four of mask.
pub(super) const HEADER_BYTES: usize = 14;
/// Maximum payload of a control frame (RFC 6455 section 5.5).
const CONTROL_BYTES: u64 = 125;
/// Maximum length of a message: that of the longest MQTT packet. Messages are not buffered, so this bounds no memory;
/// it ends a message that never ends (abuse I07).
const MESSAGE_BYTES: u64 = 268_435_460;
/// Maximum number of frames in a message (abuse I07).
const FRAGMENTS: u16 = 1_024;

/// How the frames of a client end.
#[derive(Clone, Copy, Debug)]
pub(super) enum FramesEnd {
    /// A Close frame, with its status code if it has one.
    Close(Option<CloseCode>),
    Fault(FramingError),
}

/// The current frame.
#[derive(Default)]
pub(super) struct Inbound {
    /// A partial header.
    partial_header: [u8; HEADER_BYTES],
    partial_len: usize,
    /// Number of missing payload bytes of the frame.
    left: u64,
    /// Rotated so that its first byte is for the next payload byte.
    mask: [u8; 4],
    /// Set while the current frame is a control frame.
    control: Option<(Control, Vec<u8>)>,
    /// Bytes and frames of the current message, this frame included; 0 frames: there is none.
    message_bytes: u64,
    fragments: u16,
    is_last_fragment: bool,
    /// The payload of the last Ping without a Pong.
    ping: Option<Vec<u8>>,
    /// Number of control frames since the last call of `take_control_frames`.
    control_frames: u32,
    ending: Option<FramesEnd>,
}

impl Inbound {
    /// Unmasks `bytes` and moves the bytes of packets to the front; returns their number.
    ///
    /// Bytes after a Close frame or a fault are ignored.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> usize {
        let (mut read, mut kept) = (0, 0);
        while read < bytes.len() && self.ending.is_none() {
            if self.left == 0 {
                match self.take_header(&bytes[read..]) {
                    Ok(taken) => read += taken,
                    Err(fault) => self.ending = Some(FramesEnd::Fault(fault)),
                }
                continue;
            }
            let end = bytes.len().min(read.saturating_add(self.left_here()));
            let part = &mut bytes[read..end];
            unmask(part, &mut self.mask);
            self.left -= part.len() as u64;
            if let Some((_, payload)) = &mut self.control {
                payload.extend_from_slice(part);
            } else {
                bytes.copy_within(read..end, kept);
                kept += end - read;
            }
            read = end;
            self.end_frame_if_whole();
        }
        kept
    }

    pub(super) fn ending(&self) -> Option<FramesEnd> {
        self.ending
    }

    pub(super) fn has_ping(&self) -> bool {
        self.ping.is_some()
    }

    pub(super) fn take_ping(&mut self) -> Option<Vec<u8>> {
        self.ping.take()
    }

    /// Bytes of control frames that it keeps.
    #[cfg(any(test, fuzzing))]
    pub(super) fn held_bytes(&self) -> usize {
        let control = self.control.as_ref().map(|(_, payload)| payload.len());
        control.unwrap_or(0) + self.ping.as_ref().map_or(0, Vec::len)
    }

    /// Number of control frames that have begun since the last call.
    pub(super) fn take_control_frames(&mut self) -> u32 {
        std::mem::take(&mut self.control_frames)
    }

    fn left_here(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// Consumes a header, or a part of one, at the front; returns its length in `bytes`.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, FramingError> {
        let before = self.partial_len;
        let fits = bytes.len().min(HEADER_BYTES - before);
        self.partial_header[before..before + fits].copy_from_slice(&bytes[..fits]);
        let mut cursor = Cursor::new(&self.partial_header[..before + fits]);
        let parsed = FrameHeader::parse(&mut cursor)
            .map_err(|_| protocol("a frame with an unknown opcode"))?;
        let Some((header, len)) = parsed else {
            self.partial_len = before + fits;
            return Ok(fits);
        };
        let header_len = usize::try_from(cursor.position()).unwrap_or(HEADER_BYTES);
        self.partial_len = 0;
        self.begin_frame(&header, len)?;
        Ok(header_len - before)
    }

    fn begin_frame(&mut self, header: &FrameHeader, len: u64) -> Result<(), FramingError> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(protocol("a frame with reserved bits"));
        }
        self.mask = header.mask.ok_or(protocol("a frame that is not masked"))?;
        match header.opcode {
            OpCode::Control(kind) => self.begin_control(kind, header.is_final, len)?,
            OpCode::Data(kind) => self.begin_data(kind, header.is_final, len)?,
        }
        self.left = len;
        self.end_frame_if_whole();
        Ok(())
    }

    fn begin_control(
        &mut self,
        kind: Control,
        is_final: bool,
        len: u64,
    ) -> Result<(), FramingError> {
        if !is_final || len > CONTROL_BYTES {
            return Err(protocol("a control frame that is long or fragmented"));
        }
        self.control_frames += 1;
        self.control = Some((kind, Vec::new()));
        Ok(())
    }

    fn begin_data(&mut self, kind: Data, is_final: bool, len: u64) -> Result<(), FramingError> {
        match kind {
            Data::Binary if self.fragments == 0 => {}
            Data::Continue if self.fragments > 0 => {}
            // [MQTT-6.0.0-1]
            Data::Text => return Err(fault(CloseCode::Unsupported, "a text frame")),
            _ => return Err(protocol("an unexpected data or continuation frame")),
        }
        self.message_bytes = self.message_bytes.saturating_add(len);
        self.fragments += 1;
        self.is_last_fragment = is_final;
        if self.message_bytes > MESSAGE_BYTES {
            return Err(fault(
                CloseCode::Size,
                "a message longer than the largest packet",
            ));
        }
        if self.fragments > FRAGMENTS {
            return Err(fault(CloseCode::Policy, "a message in too many frames"));
        }
        Ok(())
    }

    fn end_frame_if_whole(&mut self) {
        if self.left > 0 {
            return;
        }
        match self.control.take() {
            Some((Control::Ping, payload)) => self.ping = Some(payload),
            Some((Control::Close, payload)) => self.ending = Some(closing(&payload)),
            Some(_) => {}
            None if self.is_last_fragment => (self.fragments, self.message_bytes) = (0, 0),
            None => {}
        }
    }
}

/// Decodes a Close frame; its status code is sent back (RFC 6455 section 5.5.1).
fn closing(payload: &[u8]) -> FramesEnd {
    let Some((code, reason)) = payload.split_at_checked(2) else {
        return match payload {
            [] => FramesEnd::Close(None),
            _ => FramesEnd::Fault(protocol("a Close frame of one byte")),
        };
    };
    let code = CloseCode::from(
        code.iter()
            .fold(0, |code, byte| code << 8 | u16::from(*byte)),
    );
    if !code.is_allowed() {
        return FramesEnd::Fault(protocol(
            "a Close frame with a status code that is not allowed",
        ));
    }
    if std::str::from_utf8(reason).is_err() {
        return FramesEnd::Fault(fault(CloseCode::Invalid, "a Close frame that is not UTF-8"));
    }
    FramesEnd::Close(Some(code))
}

fn protocol(what: &'static str) -> FramingError {
    fault(CloseCode::Protocol, what)
}

fn fault(code: CloseCode, what: &'static str) -> FramingError {
    FramingError { code, what }
}

/// Unmasks `bytes` and rotates the mask for the following bytes.
fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    let word = u32::from_ne_bytes(*mask);
    let wide = u64::from(word) << 32 | u64::from(word);
    let mut words = bytes.chunks_exact_mut(8);
    for chunk in &mut words {
        // INVARIANT: `chunks_exact_mut` gives chunks of exactly this length.
        let value = u64::from_ne_bytes((&*chunk).try_into().expect("eight bytes"));
        chunk.copy_from_slice(&(value ^ wide).to_ne_bytes());
    }
    let rest = words.into_remainder();
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    let turn = rest.len() % 4;
    mask.rotate_left(turn);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame as a client makes it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [0x11, 0x22, 0x33, 0x44];
        let mut out = vec![first];
        match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
            (Ok(len @ ..126), _) => out.push(0x80 | len),
            (_, Ok(len)) => {
                out.push(0xFE);
                out.extend_from_slice(&len.to_be_bytes());
            }
            _ => {
                out.push(0xFF);
                out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
        out
    }

    /// Decodes `bytes` in reads of `step` bytes.
    fn decoded(bytes: &[u8], step: usize) -> (Vec<u8>, Inbound) {
        let mut inbound = Inbound::default();
        let mut out = Vec::new();
        for part in bytes.chunks(step) {
            let mut part = part.to_vec();
            let kept = inbound.decode(&mut part);
            out.extend_from_slice(&part[..kept]);
        }
        (out, inbound)
    }

    fn fault_of(bytes: &[u8]) -> CloseCode {
        match decoded(bytes, bytes.len()).1.ending() {
            Some(FramesEnd::Fault(fault)) => fault.code(),
            other => panic!("no fault: {other:?}"),
        }
    }

    #[test]
    fn frames_of_every_length_come_out_whole_however_they_are_split() {
        let lengths = [0, 1, 3, 4, 8, 125, 126, 127, 1_000, 65_535, 65_536, 70_001];
        let payload = |len: usize| (0..=255).cycle().take(len).collect::<Vec<u8>>();
        let bytes: Vec<u8> = lengths
            .iter()
            .flat_map(|&len| frame(0x82, &payload(len)))
            .collect();
        let wanted: Vec<u8> = lengths.iter().flat_map(|&len| payload(len)).collect();

        for step in [1, 2, 3, 5, 7, 13, 14, 15, 4_096, bytes.len()] {
            let (found, inbound) = decoded(&bytes, step);
            assert!(found == wanted, "{step} bytes a read");
            assert!(inbound.ending().is_none(), "{step} bytes a read");
        }
    }

    #[test]
    fn a_fragmented_message_with_pings_between_comes_out_whole() {
        let bytes = [
            frame(0x02, b"ab"),
            frame(0x89, b"1"),
            frame(0x00, b""),
            frame(0x89, b"2"),
            frame(0x80, b"cd"),
            frame(0x82, b"ef"),
        ]
        .concat();

        for step in [1, bytes.len()] {
            let (found, mut inbound) = decoded(&bytes, step);
            assert_eq!(found, b"abcdef");
            assert_eq!(inbound.take_ping().as_deref(), Some(&b"2"[..]));
        }
    }

    #[test]
    fn every_broken_frame_ends_the_stream_with_its_code() {
        let too_many = [frame(0x02, b""), vec![frame(0x00, b""); 1_024].concat()].concat();
        let unmasked = b"\x82\x01a".to_vec();
        let rows: [(&str, Vec<u8>, CloseCode); 16] = [
            ("unmasked", unmasked, CloseCode::Protocol),
            ("first reserved bit", frame(0xC2, b"a"), CloseCode::Protocol),
            ("second", frame(0xA2, b"a"), CloseCode::Protocol),
            ("third", frame(0x92, b"a"), CloseCode::Protocol),
            ("opcode 3", frame(0x83, b"a"), CloseCode::Protocol),
            ("opcode 11", frame(0x8B, b"a"), CloseCode::Protocol),
            ("long ping", frame(0x89, &[0; 126]), CloseCode::Protocol),
            ("torn ping", frame(0x09, b"a"), CloseCode::Protocol),
            ("text", frame(0x81, b"a"), CloseCode::Unsupported),
            (
                "continuation of nothing",
                frame(0x80, b"a"),
                CloseCode::Protocol,
            ),
            (
                "message in a message",
                [frame(0x02, b"a"), frame(0x82, b"b")].concat(),
                CloseCode::Protocol,
            ),
            (
                "63 bits of length",
                b"\x82\xFF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0".to_vec(),
                CloseCode::Size,
            ),
            ("1,025 fragments", too_many, CloseCode::Policy),
            ("half a code", frame(0x88, b"a"), CloseCode::Protocol),
            (
                "a code nobody sends",
                frame(0x88, b"\x03\xED"),
                CloseCode::Protocol,
            ),
            (
                "a reason of bytes",
                frame(0x88, b"\x03\xE8\xFF"),
                CloseCode::Invalid,
            ),
        ];

        for (name, bytes, code) in rows {
            assert_eq!(fault_of(&bytes), code, "{name}");
        }
    }

    #[test]
    fn what_came_before_a_fault_is_still_there() {
        let bytes = [frame(0x82, b"ab"), frame(0x81, b"cd")].concat();
        let (found, inbound) = decoded(&bytes, bytes.len());

        assert_eq!(found, b"ab");
        assert!(matches!(inbound.ending(), Some(FramesEnd::Fault(_))));
    }

    #[test]
    fn nothing_behind_a_close_is_looked_at() {
        let bytes = [frame(0x88, b"\x03\xE8bye"), frame(0x82, b"ab")].concat();
        let (found, inbound) = decoded(&bytes, bytes.len());

        assert_eq!(found, b"");
        let ending = inbound.ending();
        assert!(matches!(
            ending,
            Some(FramesEnd::Close(Some(CloseCode::Normal)))
        ));
    }
}
