//! UNSUBACK.

use super::{Context, check_reason, read_reason};
use crate::property_id::place;
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, ProtocolVersion, ReasonCode,
};

/// The answer to UNSUBSCRIBE.
///
/// Packet identifier (2 bytes); in version 5 also properties and a reason code (1 byte) for each filter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnsubAck<'a> {
    /// The identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// The outcome for each filter, in the order of UNSUBSCRIBE; empty in 3.x.
    pub reasons: Vec<ReasonCode>,
}

impl<'a> UnsubAck<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let mut unsuback = Self {
            packet_id: reader.packet_id()?,
            properties: context.properties(reader, place(PacketType::UnsubAck))?,
            reasons: Vec::new(),
        };
        if !context.version.has_properties() {
            return Ok(unsuback);
        }
        if reader.is_empty() {
            return Err(DecodeError::NoReasonCodes);
        }
        unsuback.reasons.reserve_exact(reader.len());
        while !reader.is_empty() {
            let reason = read_reason(reader, PacketType::UnsubAck)?;
            unsuback.reasons.push(reason);
        }
        Ok(unsuback)
    }

    pub(crate) fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        writer.packet(PacketType::UnsubAck.first_byte(), |body| {
            body.packet_id(self.packet_id);
            if !version.has_properties() {
                return Ok(());
            }
            if self.reasons.is_empty() {
                return Err(EncodeError::NoReasonCodes);
            }
            self.properties.write(place(PacketType::UnsubAck), body)?;
            for &reason in &self.reasons {
                check_reason(reason, PacketType::UnsubAck)?;
                body.u8(reason.value());
            }
            Ok(())
        })
    }
}
