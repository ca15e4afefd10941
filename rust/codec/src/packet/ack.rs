//! PUBACK, PUBREC, PUBREL and PUBCOMP.

use super::{Context, read_outcome, write_outcome};
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, ProtocolVersion, ReasonCode,
};

/// One acknowledgement in the exchange of a PUBLISH.
///
/// Packet identifier (2 bytes); in version 5 also reason code (1) and properties, both optional.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ack<'a> {
    /// The identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// The outcome; in 3.x always success.
    pub reason: ReasonCode,
    /// Properties of version 5.
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    /// An acknowledgement with success and without properties.
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
