//! CONNACK.

use super::{Context, check_reason, read_reason};
use crate::property_id::place;
use crate::wire::{PacketReader, PacketWriter};
use crate::{DecodeError, EncodeError, PacketType, Properties, ProtocolVersion, ReasonCode};

/// The answer to CONNECT.
///
/// Flags (1 byte), reason code or 3.x return code (1 byte), and properties in version 5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnAck<'a> {
    /// Whether the server has a session of this client; not encoded in 3.1.
    pub session_present: bool,
    /// Success, or why the connection is refused; 3.x has the nearest return code.
    pub reason: ReasonCode,
    /// Properties of version 5.
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let session_present = match (context.version, reader.u8()?) {
            (ProtocolVersion::V3_1, _) | (_, 0) => false,
            (_, SESSION_PRESENT) => true,
            _ => return Err(DecodeError::ConnAckFlags),
        };
        let reason = read_code(reader, context.version)?;
        if session_present && reason != ReasonCode::SUCCESS {
            return Err(DecodeError::SessionPresentOnError);
        }
        Ok(Self {
            session_present,
            reason,
            properties: context.properties(reader, place(PacketType::ConnAck))?,
        })
    }

    pub(crate) fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        if self.session_present && self.reason != ReasonCode::SUCCESS {
            return Err(EncodeError::SessionPresentOnError);
        }
        writer.packet(PacketType::ConnAck.first_byte(), |body| {
            let has_flag = version != ProtocolVersion::V3_1;
            body.u8(u8::from(has_flag && self.session_present));
            if !version.has_properties() {
                body.u8(self.reason.connect_return_code());
                return Ok(());
            }
            check_reason(self.reason, PacketType::ConnAck)?;
            body.u8(self.reason.value());
            self.properties.write(place(PacketType::ConnAck), body)
        })
    }
}

fn read_code(
    reader: &mut PacketReader<'_>,
    version: ProtocolVersion,
) -> Result<ReasonCode, DecodeError> {
    if version.has_properties() {
        return read_reason(reader, PacketType::ConnAck);
    }
    let code = reader.u8()?;
    ReasonCode::from_connect_return_code(code)
        .ok_or(DecodeError::ReasonCode(code, PacketType::ConnAck))
}

const SESSION_PRESENT: u8 = 1;
