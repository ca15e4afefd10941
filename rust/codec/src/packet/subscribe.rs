//! SUBSCRIBE.

use super::Context;
use crate::property_id::place;
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, ProtocolVersion, QoS, Text,
};

/// A request for subscriptions.
///
/// Packet identifier (2 bytes), in version 5 properties, then each topic filter (2 bytes of length and text) with its
/// options (1 byte). There is at least one filter; filters are checked as text only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subscribe<'a> {
    /// The identifier for SUBACK.
    pub packet_id: PacketId,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// Topic filters and options, in the order of the packet; each takes at least three bytes.
    pub filters: Vec<(Text<'a>, SubscriptionOptions)>,
}

/// Options of a subscription; 3.x has only the QoS.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SubscriptionOptions {
    /// The maximum QoS of messages to the client.
    pub maximum_qos: QoS,
    /// Whether the client's own messages are left out.
    pub no_local: bool,
    /// Whether messages keep the RETAIN flag of their publisher.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

/// When retained messages are sent for a SUBSCRIBE.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum RetainHandling {
    /// They are sent for each SUBSCRIBE.
    #[default]
    SendAtSubscribe = 0,
    /// They are sent if the subscription is new.
    SendIfNew = 1,
    /// They are not sent.
    DoNotSend = 2,
}

impl SubscriptionOptions {
    fn read(byte: u8, version: ProtocolVersion) -> Result<Self, DecodeError> {
        let reserved = if version.has_properties() {
            RESERVED
        } else {
            !MAXIMUM_QOS
        };
        if byte & reserved != 0 {
            return Err(DecodeError::ReservedSubscriptionOptions);
        }
        Ok(Self {
            maximum_qos: QoS::try_from(byte & MAXIMUM_QOS)
                .map_err(|_| DecodeError::SubscriptionQoS)?,
            no_local: byte & NO_LOCAL != 0,
            retain_as_published: byte & RETAIN_AS_PUBLISHED != 0,
            retain_handling: match byte >> RETAIN_HANDLING_SHIFT {
                0 => RetainHandling::SendAtSubscribe,
                1 => RetainHandling::SendIfNew,
                2 => RetainHandling::DoNotSend,
                _ => return Err(DecodeError::RetainHandling),
            },
        })
    }

    fn byte(self, version: ProtocolVersion) -> u8 {
        let mut byte = u8::from(self.maximum_qos);
        if !version.has_properties() {
            return byte;
        }
        if self.no_local {
            byte |= NO_LOCAL;
        }
        if self.retain_as_published {
            byte |= RETAIN_AS_PUBLISHED;
        }
        byte | (self.retain_handling as u8) << RETAIN_HANDLING_SHIFT
    }
}

impl<'a> Subscribe<'a> {
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let packet_id = reader.packet_id()?;
        let properties = context.properties(reader, place(PacketType::Subscribe))?;
        if reader.is_empty() {
            return Err(DecodeError::NoFilters(PacketType::Subscribe));
        }
        let mut filters = Vec::new();
        while !reader.is_empty() {
            let filter = reader.text()?;
            let options = SubscriptionOptions::read(reader.u8()?, context.version)?;
            filters.push((filter, options));
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
        writer.packet(PacketType::Subscribe.first_byte(), |body| {
            body.packet_id(self.packet_id);
            if version.has_properties() {
                self.properties.write(place(PacketType::Subscribe), body)?;
            }
            for &(filter, options) in &self.filters {
                body.text(filter)?;
                body.u8(options.byte(version));
            }
            Ok(())
        })
    }
}

const MAXIMUM_QOS: u8 = 0b0000_0011;
const NO_LOCAL: u8 = 0b0000_0100;
const RETAIN_AS_PUBLISHED: u8 = 0b0000_1000;
const RETAIN_HANDLING_SHIFT: u32 = 4;
const RESERVED: u8 = 0b1100_0000;
