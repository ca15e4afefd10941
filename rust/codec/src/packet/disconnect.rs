//! DISCONNECT.

use super::{Context, read_outcome, write_outcome};
use crate::wire::{PacketReader, PacketWriter};
use crate::{DecodeError, EncodeError, PacketType, Properties, ProtocolVersion, ReasonCode};

/// The last packet of a connection.
///
/// Reason code (1 byte) and properties, both optional; 3.x has none, so they are dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Disconnect<'a> {
    /// Why the connection ends.
    pub reason: ReasonCode,
    /// Properties of version 5.
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let (reason, properties) = read_outcome(reader, PacketType::Disconnect, context)?;
        Ok(Self { reason, properties })
    }

    pub(crate) fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        writer.packet(PacketType::Disconnect.first_byte(), |body| {
            write_outcome(
                body,
                (self.reason, self.properties),
                PacketType::Disconnect,
                version,
            )
        })
    }
}
