//! PUBLISH.

use super::Context;
use crate::property_id::place;
use crate::var_int::var_int_len;
use crate::wire::{PacketReader, PacketWriter};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, PropertyId, ProtocolVersion, QoS,
    Text,
};

/// An application message in transfer.
///
/// Topic name (2 bytes of length and text), packet identifier (2 bytes, above QoS 0), in version 5 properties, and the
/// payload up to the end of the packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Publish<'a> {
    /// QoS, packet identifier and DUP.
    pub delivery: PublishQoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The topic name; empty only in version 5 with a topic alias.
    pub topic: Text<'a>,
    /// Properties of version 5.
    pub properties: Properties<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

/// How a PUBLISH is delivered: a packet identifier exists above QoS 0 only [MQTT-2.2.1-2].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PublishQoS {
    /// QoS 0.
    AtMostOnce,
    /// QoS 1.
    AtLeastOnce {
        /// The identifier for PUBACK.
        packet_id: PacketId,
        /// Whether it may be a retransmission.
        dup: bool,
    },
    /// QoS 2.
    ExactlyOnce {
        /// The identifier for PUBREC, PUBREL and PUBCOMP.
        packet_id: PacketId,
        /// Whether it may be a retransmission.
        dup: bool,
    },
}

impl PublishQoS {
    /// The QoS.
    #[inline]
    #[must_use]
    pub const fn qos(self) -> QoS {
        match self {
            Self::AtMostOnce => QoS::AtMostOnce,
            Self::AtLeastOnce { .. } => QoS::AtLeastOnce,
            Self::ExactlyOnce { .. } => QoS::ExactlyOnce,
        }
    }

    /// The packet identifier; `None` at QoS 0.
    #[inline]
    #[must_use]
    pub const fn packet_id(self) -> Option<PacketId> {
        match self {
            Self::AtMostOnce => None,
            Self::AtLeastOnce { packet_id, .. } | Self::ExactlyOnce { packet_id, .. } => {
                Some(packet_id)
            }
        }
    }

    /// Whether the packet may be a retransmission.
    #[inline]
    #[must_use]
    pub const fn dup(self) -> bool {
        match self {
            Self::AtMostOnce => false,
            Self::AtLeastOnce { dup, .. } | Self::ExactlyOnce { dup, .. } => dup,
        }
    }

    #[inline]
    fn read(flags: u8, reader: &mut PacketReader<'_>) -> Result<Self, DecodeError> {
        let dup = flags & DUP != 0;
        match flags & QOS {
            QOS_0 => Ok(Self::AtMostOnce),
            QOS_1 => Ok(Self::AtLeastOnce {
                packet_id: reader.packet_id()?,
                dup,
            }),
            QOS_2 => Ok(Self::ExactlyOnce {
                packet_id: reader.packet_id()?,
                dup,
            }),
            _ => Err(DecodeError::PublishQoS),
        }
    }

    #[inline]
    const fn flags(self) -> u8 {
        let qos = match self {
            Self::AtMostOnce => QOS_0,
            Self::AtLeastOnce { .. } => QOS_1,
            Self::ExactlyOnce { .. } => QOS_2,
        };
        if self.dup() { qos | DUP } else { qos }
    }
}

impl<'a> Publish<'a> {
    /// Rejects invalid combinations of flags; the flags are decoded with the body.
    #[inline]
    pub(crate) const fn check_flags(flags: u8) -> Result<(), DecodeError> {
        match flags & QOS {
            QOS => Err(DecodeError::PublishQoS),
            QOS_0 if flags & DUP != 0 => Err(DecodeError::DupAtQoS0),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        flags: u8,
        context: Context<'_>,
    ) -> Result<Self, DecodeError> {
        let topic = reader.text()?;
        let delivery = PublishQoS::read(flags, reader)?;
        let properties = context.properties(reader, place(PacketType::Publish))?;
        if topic.is_empty() && !properties.contains(PropertyId::TopicAlias) {
            return Err(DecodeError::EmptyTopic);
        }
        Ok(Self {
            delivery,
            retain: flags & RETAIN != 0,
            topic,
            properties,
            payload: reader.take_rest(),
        })
    }

    /// Writes all fields except the payload; the length includes the payload.
    #[inline]
    pub(crate) fn write_head(
        &self,
        version: ProtocolVersion,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        let properties = if version.has_properties() {
            self.properties
        } else {
            Properties::EMPTY
        };
        if self.topic.is_empty() && !properties.contains(PropertyId::TopicAlias) {
            return Err(EncodeError::EmptyTopic);
        }
        let mut flags = self.delivery.flags();
        if self.retain {
            flags |= RETAIN;
        }
        writer.u8(PacketType::Publish.first_byte() | flags);
        writer.length(self.remaining_len(version)?)?;
        writer.text(self.topic)?;
        if let Some(packet_id) = self.delivery.packet_id() {
            writer.packet_id(packet_id);
        }
        if version.has_properties() {
            properties.write(place(PacketType::Publish), writer)?;
        }
        Ok(())
    }

    #[inline]
    fn remaining_len(&self, version: ProtocolVersion) -> Result<usize, EncodeError> {
        let packet_id = if self.delivery.packet_id().is_some() {
            2
        } else {
            0
        };
        let properties = if version.has_properties() {
            length_prefixed(self.properties.as_bytes().len())?
        } else {
            0
        };
        Ok(2 + self.topic.len() + packet_id + properties + self.payload.len())
    }
}

/// The size of `len` bytes with their length as a Variable Byte Integer.
#[inline]
fn length_prefixed(len: usize) -> Result<usize, EncodeError> {
    let prefix = u32::try_from(len)
        .ok()
        .and_then(var_int_len)
        .ok_or(EncodeError::PacketTooLong)?;
    Ok(prefix + len)
}

const RETAIN: u8 = 0b0001;
const QOS: u8 = 0b0110;
const QOS_0: u8 = 0b0000;
const QOS_1: u8 = 0b0010;
const QOS_2: u8 = 0b0100;
const DUP: u8 = 0b1000;
