//! Fixed headers, and the functions that decode and encode whole packets.

use crate::limits::Limits;
use crate::packet::{
    Ack, Auth, ConnAck, Connect, Context, Disconnect, Packet, Publish, SubAck, Subscribe, UnsubAck,
    Unsubscribe,
};
use crate::var_int::decode_var_int;
use crate::wire::{PacketReader, PacketWriter};
use crate::{DecodeError, EncodeError, PacketType, ProtocolVersion};

/// A complete fixed header within the limits.
#[derive(Clone, Copy)]
struct Header {
    packet_type: PacketType,
    flags: u8,
    /// Offset of the body.
    body_at: usize,
    /// Length of the whole packet.
    len: usize,
}

impl Header {
    #[inline]
    fn read(src: &[u8], limits: &Limits) -> Result<Option<Self>, DecodeError> {
        let Some((&first_byte, rest)) = src.split_first() else {
            return Ok(None);
        };
        let packet_type = PacketType::of(first_byte).ok_or(DecodeError::ReservedPacketType(0))?;
        let flags = first_byte & FLAGS;
        check_flags(packet_type, flags)?;
        let Some((remaining_len, length_len)) = decode_var_int(rest)? else {
            return Ok(None);
        };
        let body_at = 1 + length_len;
        let len = usize::try_from(remaining_len).map_or(usize::MAX, |len| body_at + len);
        if u32::try_from(len).is_ok_and(|len| len <= limits.packet_bytes) {
            return Ok(Some(Self {
                packet_type,
                flags,
                body_at,
                len,
            }));
        }
        Err(DecodeError::PacketTooLarge)
    }

    /// The body; `None` until it is complete.
    #[inline]
    fn body<'a>(&self, src: &'a [u8]) -> Option<PacketReader<'a>> {
        src.get(self.body_at..self.len).map(PacketReader::new)
    }
}

/// Checks the flags for all versions; 3.1 allows DUP in requests that are sent again.
#[inline]
fn check_flags(packet_type: PacketType, flags: u8) -> Result<(), DecodeError> {
    if packet_type == PacketType::Publish {
        return Publish::check_flags(flags);
    }
    let fixed = packet_type.first_byte() & FLAGS;
    if flags == fixed || fixed != 0 && flags == fixed | DUP {
        return Ok(());
    }
    Err(DecodeError::FixedHeaderFlags(packet_type))
}

/// Rejects a first byte that only another version allows.
#[inline]
fn check_version(first_byte: u8, version: ProtocolVersion) -> Result<(), DecodeError> {
    match PacketType::of(first_byte) {
        Some(PacketType::Auth) if !version.has_properties() => {
            Err(DecodeError::ReservedPacketType(PacketType::Auth as u8))
        }
        Some(
            packet_type @ (PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe),
        ) if first_byte & DUP != 0 && version != ProtocolVersion::V3_1 => {
            Err(DecodeError::FixedHeaderFlags(packet_type))
        }
        _ => Ok(()),
    }
}

/// The length of the packet at the front of `src`, in bytes with its fixed header.
///
/// Returns `None` until the fixed header is complete; the body may still be missing.
///
/// # Errors
///
/// [`DecodeError::PacketTooLarge`] above `limits`, and every error of a fixed header that applies to all versions.
/// [`decode`] finds the others once the packet is complete.
#[inline]
pub fn frame_len(src: &[u8], limits: &Limits) -> Result<Option<usize>, DecodeError> {
    Ok(Header::read(src, limits)?.map(|header| header.len))
}

/// Decodes the packet at the front of `src`; returns it with its length in bytes.
///
/// Returns `None` if bytes are missing. A CONNECT is decoded in the version that it names. Packets without a list, such
/// as PUBLISH, are decoded without allocation.
///
/// # Errors
///
/// Any [`DecodeError`]; an invalid fixed header is reported before the body has arrived.
#[inline]
pub fn decode<'a>(
    src: &'a [u8],
    version: ProtocolVersion,
    limits: &Limits,
) -> Result<Option<(Packet<'a>, usize)>, DecodeError> {
    if let Some(&first_byte) = src.first() {
        check_version(first_byte, version)?;
    }
    let Some(header) = Header::read(src, limits)? else {
        return Ok(None);
    };
    let Some(mut reader) = header.body(src) else {
        return Ok(None);
    };
    let context = Context { version, limits };
    let packet = read_body(header, &mut reader, context)?;
    reader.finish()?;
    Ok(Some((packet, header.len)))
}

#[inline]
fn read_body<'a>(
    header: Header,
    reader: &mut PacketReader<'a>,
    context: Context<'_>,
) -> Result<Packet<'a>, DecodeError> {
    let packet_type = header.packet_type;
    Ok(match packet_type {
        PacketType::Connect => Packet::Connect(Connect::read(reader, context.limits)?),
        PacketType::ConnAck => Packet::ConnAck(ConnAck::read(reader, context)?),
        PacketType::Publish => Packet::Publish(Publish::read(reader, header.flags, context)?),
        PacketType::PubAck => Packet::PubAck(Ack::read(reader, packet_type, context)?),
        PacketType::PubRec => Packet::PubRec(Ack::read(reader, packet_type, context)?),
        PacketType::PubRel => Packet::PubRel(Ack::read(reader, packet_type, context)?),
        PacketType::PubComp => Packet::PubComp(Ack::read(reader, packet_type, context)?),
        PacketType::Subscribe => Packet::Subscribe(Subscribe::read(reader, context)?),
        PacketType::SubAck => Packet::SubAck(SubAck::read(reader, context)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::read(reader, context)?),
        PacketType::UnsubAck => Packet::UnsubAck(UnsubAck::read(reader, context)?),
        PacketType::PingReq => Packet::PingReq,
        PacketType::PingResp => Packet::PingResp,
        PacketType::Disconnect => Packet::Disconnect(Disconnect::read(reader, context)?),
        PacketType::Auth => Packet::Auth(Auth::read(reader, context)?),
    })
}

/// Decodes the first packet of a connection, which must be CONNECT.
///
/// # Errors
///
/// [`DecodeError::ConnectExpected`] on the first byte of any other packet [MQTT-3.1.0-1]; otherwise like [`decode`].
/// [`connack_for_error`](crate::connack_for_error) returns the CONNACK for an error.
pub fn decode_connect<'a>(
    src: &'a [u8],
    limits: &Limits,
) -> Result<Option<(Connect<'a>, usize)>, DecodeError> {
    let first_type = src.first().map(|&byte| PacketType::of(byte));
    if first_type.is_some_and(|first| first != Some(PacketType::Connect)) {
        return Err(DecodeError::ConnectExpected);
    }
    let Some(header) = Header::read(src, limits)? else {
        return Ok(None);
    };
    let Some(mut reader) = header.body(src) else {
        return Ok(None);
    };
    let connect = Connect::read(&mut reader, limits)?;
    reader.finish()?;
    Ok(Some((connect, header.len)))
}

/// Appends the packet to `out`, in the format of `version`.
///
/// A CONNECT is encoded in its own version. 3.x has no properties, subscription options or reason codes: they are left
/// out, or mapped to a return code if 3.x has one.
///
/// # Errors
///
/// Any [`EncodeError`], if [`decode`] would reject the packet; `out` is then unchanged.
pub fn encode(
    packet: &Packet<'_>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    whole_or_nothing(out, |writer| match packet {
        Packet::Connect(connect) => connect.write(writer),
        Packet::ConnAck(connack) => connack.write(version, writer),
        Packet::Publish(publish) => {
            publish.write_head(version, writer)?;
            writer.raw(publish.payload);
            Ok(())
        }
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            ack.write(packet.packet_type(), version, writer)
        }
        Packet::Subscribe(subscribe) => subscribe.write(version, writer),
        Packet::SubAck(suback) => suback.write(version, writer),
        Packet::Unsubscribe(unsubscribe) => unsubscribe.write(version, writer),
        Packet::UnsubAck(unsuback) => unsuback.write(version, writer),
        Packet::PingReq | Packet::PingResp => {
            writer.packet(packet.packet_type().first_byte(), |_| Ok(()))
        }
        Packet::Disconnect(disconnect) => disconnect.write(version, writer),
        Packet::Auth(auth) => auth.write(version, writer),
    })
}

/// Appends a PUBLISH without its payload; the lengths include the payload.
///
/// The caller writes the payload after these bytes, so that it can be shared.
///
/// # Errors
///
/// Like [`encode`].
#[inline]
pub fn encode_publish_head(
    publish: &Publish<'_>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    whole_or_nothing(out, |writer| publish.write_head(version, writer))
}

#[inline]
fn whole_or_nothing(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut PacketWriter<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let len = out.len();
    let result = write(&mut PacketWriter::new(out));
    if result.is_err() {
        out.truncate(len);
    }
    result
}

const FLAGS: u8 = 0x0F;
const DUP: u8 = 0b1000;
