//! PUBACK, PUBREC, PUBREL and PUBCOMP.

use super::{Context, read_outcome, write_outcome};
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, ProtocolVersion, ReasonCode,
};

/// An acknowledgement on the way of a PUBLISH.
///
/// Packet identifier (2 bytes); in version 5 then, both optional, reason code (1) and properties.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ack<'a> {
    /// The identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// The outcome; 3.x always says success and cannot be told otherwise.
    pub reason: ReasonCode,
    /// Properties of version 5.
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    /// A plain success.
    #[must_use]
    pub const fn success(packet_id: PacketId) -> Self {
        Self {
            packet_id,
            reason: ReasonCode::SUCCESS,
            properties: Properties::EMPTY,
        }
    }

    #[inline]
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        packet_type: PacketType,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        let (reason, properties) = read_outcome(reader, packet_type, context)?;
        Ok(Self {
            packet_id,
            reason,
            properties,
        })
    }

    pub(crate) fn write(
        &self,
        packet_type: PacketType,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        writer.packet(packet_type.first_byte(), |body| {
            body.packet_id(self.packet_id);
            write_outcome(body, (self.reason, self.properties), packet_type, version)
        })
    }
}
