//! UNSUBSCRIBE.

use super::Context;
use crate::property_id::place;
use crate::wire::{PacketReader, PacketWriter};
use crate::{DecodeError, EncodeError, PacketId, PacketType, Properties, ProtocolVersion, Text};

/// A request to end subscriptions.
///
/// Packet identifier (2 bytes), in version 5 properties, then each topic filter (2 bytes of length and text). There is
/// at least one filter; filters are checked as text only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsubscribe<'a> {
    /// The identifier for UNSUBACK.
    pub packet_id: PacketId,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// Topic filters in the order of the packet.
    pub filters: Vec<Text<'a>>,
}

impl<'a> Unsubscribe<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        let properties = context.properties(reader, place(PacketType::Unsubscribe))?;
        if reader.is_empty() {
            return Err(DecodeError::NoFilters(PacketType::Unsubscribe));
        }
        let mut filters = Vec::new();
        while !reader.is_empty() {
            filters.push(reader.text()?);
        }
        Ok(Self {
            packet_id,
            properties,
            filters,
        })
    }

    pub(crate) fn write(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        if self.filters.is_empty() {
            return Err(EncodeError::NoFilters);
        }
        writer.packet(PacketType::Unsubscribe.first_byte(), |body| {
            body.packet_id(self.packet_id);
            if version.has_properties() {
                self.properties
                    .write(place(PacketType::Unsubscribe), body)?;
            }
            for &filter in &self.filters {
                body.text(filter)?;
            }
            Ok(())
        })
    }
}
