//! AUTH, of version 5 only.

use super::{Context, read_outcome, write_outcome};
use crate::wire::{PacketReader, PacketWriter};
use crate::{DecodeError, EncodeError, PacketType, Properties, ProtocolVersion, ReasonCode};

/// A step of an enhanced authentication.
///
/// Reason code (1 byte) and properties; both are left out for a success without properties. The session checks that
/// there is an Authentication Method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Auth<'a> {
    /// Success, continue or re-authenticate.
    pub reason: ReasonCode,
    /// Authentication Method, Authentication Data and other properties.
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let (reason, properties) = read_outcome(reader, PacketType::Auth, context)?;
        Ok(Self { reason, properties })
    }

    pub(crate) fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        if !version.has_properties() {
            return Err(EncodeError::NotInVersion(PacketType::Auth, version));
        }
        writer.packet(PacketType::Auth.first_byte(), |body| {
            write_outcome(
                body,
                (self.reason, self.properties),
                PacketType::Auth,
                version,
            )
        })
    }
}
