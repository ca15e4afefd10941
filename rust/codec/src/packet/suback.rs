//! SUBACK.

use super::{Context, check_reason, read_reason};
use crate::property_id::place;
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, ProtocolVersion, ReasonCode,
};

/// The answer to SUBSCRIBE.
///
/// Packet identifier (2 bytes), in version 5 properties, then a reason code (1 byte) for each filter. 3.x has 0, 1, 2
/// and 0x80; every error is encoded as 0x80 there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubAck<'a> {
    /// The identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// For each filter the granted QoS or an error, in the order of SUBSCRIBE.
    pub reasons: Vec<ReasonCode>,
}

impl<'a> SubAck<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        let properties = context.properties(reader, place(PacketType::SubAck))?;
        if reader.is_empty() {
            return Err(DecodeError::NoReasonCodes);
        }
        let mut reasons = Vec::with_capacity(reader.len());
        while !reader.is_empty() {
            reasons.push(read_code(reader, context.version)?);
        }
        Ok(Self {
            packet_id,
            properties,
            reasons,
        })
    }

    pub(crate) fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        if self.reasons.is_empty() {
            return Err(EncodeError::NoReasonCodes);
        }
        writer.packet(PacketType::SubAck.first_byte(), |body| {
            body.packet_id(self.packet_id);
            if version.has_properties() {
                self.properties.write(place(PacketType::SubAck), body)?;
            }
            for &reason in &self.reasons {
                check_reason(reason, PacketType::SubAck)?;
                let code = match version {
                    ProtocolVersion::V5 => reason,
                    ProtocolVersion::V3_1 | ProtocolVersion::V3_1_1 => {
                        reason.subscribe_return_code()
                    }
                };
                body.u8(code.value());
            }
            Ok(())
        })
    }
}

fn read_code(
    reader: &mut PacketReader<'_>,
    version: ProtocolVersion,
) -> Result<ReasonCode, DecodeError> {
    let reason = read_reason(reader, PacketType::SubAck)?;
    if version.has_properties() || reason == reason.subscribe_return_code() {
        return Ok(reason);
    }
    Err(DecodeError::ReasonCode(reason.value(), PacketType::SubAck))
}
