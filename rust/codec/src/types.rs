//! Small types that several packets share: version, QoS, packet identifier.

use std::fmt;
use std::num::NonZeroU16;

use thiserror::Error;

/// A version of the protocol, as the level byte of CONNECT names it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// MQTT 3.1, protocol name `MQIsdp`.
    V3_1 = 3,
    /// MQTT 3.1.1.
    V3_1_1 = 4,
    /// MQTT 5.0.
    V5 = 5,
}

impl ProtocolVersion {
    /// Every version that the codec supports.
    pub const ALL: [Self; 3] = [Self::V3_1, Self::V3_1_1, Self::V5];

    /// The protocol level on the wire: 3, 4 or 5.
    #[inline]
    #[must_use]
    pub const fn level(self) -> u8 {
        self as u8
    }

    /// The version with this level, if the codec supports it.
    #[must_use]
    pub const fn from_level(level: u8) -> Option<Self> {
        match level {
            3 => Some(Self::V3_1),
            4 => Some(Self::V3_1_1),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// Whether packets of this version carry properties and reason codes.
    #[inline]
    #[must_use]
    pub const fn has_properties(self) -> bool {
        matches!(self, Self::V5)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_1 => "3.1",
            Self::V3_1_1 => "3.1.1",
            Self::V5 => "5.0",
        })
    }
}

/// Delivery guarantee of a message; ordered from weak to strong.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum QoS {
    /// QoS 0: no acknowledgement.
    #[default]
    AtMostOnce = 0,
    /// QoS 1: acknowledged by PUBACK.
    AtLeastOnce = 1,
    /// QoS 2: the four-packet exchange.
    ExactlyOnce = 2,
}

/// A number above 2 where a QoS was expected.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{0} is not a QoS: allowed are 0, 1 and 2")]
pub struct UnknownQoS(pub u8);

impl TryFrom<u8> for QoS {
    type Error = UnknownQoS;

    #[inline]
    fn try_from(value: u8) -> Result<Self, UnknownQoS> {
        match value {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(UnknownQoS(value)),
        }
    }
}

impl From<QoS> for u8 {
    #[inline]
    fn from(qos: QoS) -> Self {
        qos as Self
    }
}

/// A packet identifier, 1 to 65,535.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The smallest identifier.
    pub const MIN: Self = Self(NonZeroU16::MIN);
    /// The largest identifier.
    pub const MAX: Self = Self(NonZeroU16::MAX);

    /// The identifier with this value; `None` for 0.
    #[inline]
    #[must_use]
    pub const fn new(value: u16) -> Option<Self> {
        match NonZeroU16::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The value on the wire.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl From<NonZeroU16> for PacketId {
    fn from(value: NonZeroU16) -> Self {
        Self(value)
    }
}

impl From<PacketId> for NonZeroU16 {
    fn from(id: PacketId) -> Self {
        id.0
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of a packet: the upper four bits of its first byte.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's own")]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The type in the first byte of a packet; `None` for type 0.
    #[inline]
    #[must_use]
    pub const fn of(first_byte: u8) -> Option<Self> {
        Some(match first_byte >> 4 {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The first byte of a packet of this type, with its fixed flags.
    ///
    /// The flags of a PUBLISH vary and are 0 here.
    #[inline]
    pub(crate) const fn first_byte(self) -> u8 {
        let flags = match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        };
        (self as u8) << 4 | flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_packet_identifiers_are_printed_as_the_specification_writes_them() {
        let versions = [
            ProtocolVersion::V3_1,
            ProtocolVersion::V3_1_1,
            ProtocolVersion::V5,
        ];

        assert_eq!(
            versions.map(|version| version.to_string()),
            ["3.1", "3.1.1", "5.0"]
        );
        assert_eq!(PacketId::new(700).unwrap().to_string(), "700");
    }
}
