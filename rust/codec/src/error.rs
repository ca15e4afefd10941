//! Decode and encode errors.

use thiserror::Error;

use crate::{PacketType, PropertyId, ProtocolVersion, ReasonCode, TextError};

/// The peer sent bytes that cannot become a packet, whatever follows.
///
/// If bytes are missing, decoding returns `Ok(None)` instead.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DecodeError {
    /// A Variable Byte Integer is longer than its value needs.
    #[error("[MQTT-1.5.5-1] variable byte integer is padded")]
    PaddedVarInt,
    /// A Variable Byte Integer is longer than four bytes.
    #[error("[MQTT5 1.5.5] variable byte integer is longer than 4 bytes")]
    VarIntTooLong,
    /// Packet type 0, or AUTH before version 5.
    #[error("[MQTT5 2.1.2] packet type {0} is reserved")]
    ReservedPacketType(u8),
    /// The flags in the first byte are not valid for the packet type.
    #[error("[MQTT-2.1.3-1] fixed header flags are not valid for {0:?}")]
    FixedHeaderFlags(PacketType),
    /// A PUBLISH with both QoS bits set.
    #[error("[MQTT-3.3.1-4] PUBLISH has QoS 3")]
    PublishQoS,
    /// A PUBLISH of QoS 0 has DUP set.
    #[error("[MQTT-3.3.1-2] PUBLISH of QoS 0 has DUP set")]
    DupAtQoS0,
    /// The announced packet is longer than [`Limits::packet_bytes`](crate::Limits).
    #[error("[MQTT-3.2.2-15] packet is larger than the maximum packet size")]
    PacketTooLarge,
    /// The first packet of a connection is not CONNECT.
    #[error("[MQTT-3.1.0-1] the first packet is not CONNECT")]
    ConnectExpected,
    /// A field extends beyond the end of its packet or property list.
    #[error("[MQTT-4.13.1-1] a field extends beyond the end of the packet")]
    Truncated,
    /// Bytes follow the last field of the packet.
    #[error("[MQTT-4.13.1-1] bytes follow the last field of the packet")]
    TrailingBytes,
    /// A string is not MQTT text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A packet identifier is 0.
    #[error("[MQTT-2.2.1-3] packet identifier is 0")]
    ZeroPacketId,
    /// The protocol name of CONNECT is neither `MQTT` nor `MQIsdp`.
    #[error("[MQTT-3.1.2-1] unknown protocol name")]
    ProtocolName,
    /// The protocol level of CONNECT is not supported, or does not match the protocol name.
    #[error("[MQTT-3.1.2-2] protocol level {level} is not supported")]
    ProtocolLevel {
        /// The level byte.
        level: u8,
        /// The version of a CONNACK that the client can read.
        answer: ProtocolVersion,
    },
    /// The reserved bit of the connect flags is set (3.1 ignores it).
    #[error("[MQTT-3.1.2-3] reserved connect flag is set")]
    ReservedConnectFlag,
    /// Will QoS or Will Retain is set without a will.
    #[error("[MQTT-3.1.2-11] will QoS or will retain without a will")]
    WillFlags,
    /// Both Will QoS bits are set.
    #[error("[MQTT-3.1.2-12] will QoS is 3")]
    WillQoS,
    /// A password without a user name, before version 5.
    #[error("[MQTT 3.1.1 MQTT-3.1.2-22] a password without a user name")]
    PasswordWithoutUserName,
    /// Reserved bits of the connect acknowledge flags are set.
    #[error("[MQTT-3.2.2-1] reserved connect acknowledge flags are set")]
    ConnAckFlags,
    /// A CONNACK has an error code and Session Present.
    #[error("[MQTT-3.2.2-6] Session Present is set in a CONNACK with a failure code")]
    SessionPresentOnError,
    /// A reason or return code that this packet type does not allow.
    #[error("[MQTT5 2.4] {1:?} does not allow reason code 0x{0:02X}")]
    ReasonCode(u8, PacketType),
    /// No property has this identifier.
    #[error("[MQTT5 2.2.2.2] unknown property 0x{0:02X}")]
    UnknownProperty(u32),
    /// The property is not allowed in this packet, or in a will.
    #[error("[MQTT5 2.2.2.2] property {0:?} is not allowed here")]
    MisplacedProperty(PropertyId),
    /// The property is allowed once and occurs twice.
    #[error("[MQTT5 2.2.2.2] property {0:?} appears more than once")]
    DuplicateProperty(PropertyId),
    /// The value is outside of the property's range, such as 2 for a boolean.
    #[error("[MQTT5 2.2.2.2] property {0:?} has a value out of range")]
    PropertyValue(PropertyId),
    /// The value is 0, which the property does not allow.
    #[error("[MQTT5 2.2.2.2] property {0:?} is 0")]
    ZeroProperty(PropertyId),
    /// More user properties than [`Limits::user_properties`](crate::Limits).
    #[error("too many user properties")]
    TooManyUserProperties,
    /// More bytes than [`Limits::user_property_bytes`](crate::Limits).
    #[error("user properties are longer than the limit")]
    UserPropertiesTooLong,
    /// Authentication Data without an Authentication Method.
    #[error("[MQTT5 3.1.2.11.10] authentication data without a method")]
    AuthenticationDataWithoutMethod,
    /// The topic name is empty and there is no topic alias.
    #[error("[MQTT-4.7.3-1] topic name is empty and has no alias")]
    EmptyTopic,
    /// SUBSCRIBE or UNSUBSCRIBE without a topic filter.
    #[error("[MQTT-3.8.3-2] {0:?} without a topic filter")]
    NoFilters(PacketType),
    /// SUBACK, or UNSUBACK of version 5, without a reason code.
    #[error("[MQTT-3.8.4-6] the packet has no reason code")]
    NoReasonCodes,
    /// Reserved bits of the subscription options are set.
    #[error("[MQTT-3.8.3-5] reserved subscription options are set")]
    ReservedSubscriptionOptions,
    /// The subscription options have QoS 3.
    #[error("[MQTT5 3.8.3.1] a subscription requests QoS 3")]
    SubscriptionQoS,
    /// The subscription options have Retain Handling 3.
    #[error("[MQTT5 3.8.3.1] retain handling is 3")]
    RetainHandling,
}

impl DecodeError {
    /// The reason code for CONNACK or DISCONNECT of version 5.
    #[must_use]
    pub const fn reason_code(self) -> ReasonCode {
        match self {
            Self::PaddedVarInt
            | Self::VarIntTooLong
            | Self::ReservedPacketType(_)
            | Self::FixedHeaderFlags(_)
            | Self::PublishQoS
            | Self::DupAtQoS0
            | Self::Truncated
            | Self::TrailingBytes
            | Self::Text(_)
            | Self::ReservedConnectFlag
            | Self::WillFlags
            | Self::WillQoS
            | Self::PasswordWithoutUserName
            | Self::ConnAckFlags
            | Self::UnknownProperty(_)
            | Self::MisplacedProperty(_)
            | Self::ReservedSubscriptionOptions => ReasonCode::MALFORMED_PACKET,
            Self::PacketTooLarge => ReasonCode::PACKET_TOO_LARGE,
            Self::ProtocolName | Self::ProtocolLevel { .. } => {
                ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
            }
            Self::ZeroProperty(PropertyId::TopicAlias) => ReasonCode::TOPIC_ALIAS_INVALID,
            Self::TooManyUserProperties | Self::UserPropertiesTooLong => ReasonCode::QUOTA_EXCEEDED,
            Self::ConnectExpected
            | Self::ZeroPacketId
            | Self::SessionPresentOnError
            | Self::ReasonCode(..)
            | Self::DuplicateProperty(_)
            | Self::PropertyValue(_)
            | Self::ZeroProperty(_)
            | Self::AuthenticationDataWithoutMethod
            | Self::EmptyTopic
            | Self::NoFilters(_)
            | Self::NoReasonCodes
            | Self::SubscriptionQoS
            | Self::RetainHandling => ReasonCode::PROTOCOL_ERROR,
        }
    }

    /// The id of the violated statement in MQTT 5.0.
    ///
    /// Rules without an id return `MQTT-4.13.1-1`. The password rule exists in 3.1.1 only and returns its id there.
    #[must_use]
    pub const fn statement(self) -> &'static str {
        match self {
            Self::PaddedVarInt | Self::VarIntTooLong => "MQTT-1.5.5-1",
            Self::FixedHeaderFlags(PacketType::PubRel) => "MQTT-3.6.1-1",
            Self::FixedHeaderFlags(PacketType::Subscribe) => "MQTT-3.8.1-1",
            Self::FixedHeaderFlags(PacketType::Unsubscribe) => "MQTT-3.10.1-1",
            Self::FixedHeaderFlags(PacketType::Disconnect) => "MQTT-3.14.1-1",
            Self::FixedHeaderFlags(PacketType::Auth) => "MQTT-3.15.1-1",
            Self::FixedHeaderFlags(_) => "MQTT-2.1.3-1",
            Self::PublishQoS => "MQTT-3.3.1-4",
            Self::DupAtQoS0 => "MQTT-3.3.1-2",
            Self::PacketTooLarge => "MQTT-3.2.2-15",
            Self::ConnectExpected => "MQTT-3.1.0-1",
            Self::Text(TextError::NullCharacter) => "MQTT-1.5.4-2",
            Self::Text(_) => "MQTT-1.5.4-1",
            Self::ZeroPacketId => "MQTT-2.2.1-3",
            Self::ProtocolName => "MQTT-3.1.2-1",
            Self::ProtocolLevel { .. } => "MQTT-3.1.2-2",
            Self::ReservedConnectFlag => "MQTT-3.1.2-3",
            Self::WillFlags => "MQTT-3.1.2-11",
            Self::WillQoS => "MQTT-3.1.2-12",
            Self::PasswordWithoutUserName => "MQTT-3.1.2-22",
            Self::ConnAckFlags => "MQTT-3.2.2-1",
            Self::SessionPresentOnError => "MQTT-3.2.2-6",
            Self::ReasonCode(_, packet_type) => reason_statement(packet_type),
            Self::ZeroProperty(PropertyId::TopicAlias) => "MQTT-3.3.2-8",
            Self::EmptyTopic => "MQTT-4.7.3-1",
            Self::NoFilters(PacketType::Unsubscribe) => "MQTT-3.10.3-2",
            Self::NoFilters(_) => "MQTT-3.8.3-2",
            Self::NoReasonCodes => "MQTT-3.8.4-6",
            Self::ReservedSubscriptionOptions => "MQTT-3.8.3-5",
            _ => "MQTT-4.13.1-1",
        }
    }

    /// The return code of a 3.x CONNACK, if one may be sent for this error.
    ///
    /// Only an unsupported protocol level of a 3.x client is answered: 1, unacceptable protocol version. After every
    /// other error in a 3.x CONNECT the connection is closed without a packet [MQTT 3.1.1 MQTT-3.1.4-1].
    /// [`connack_for_error`](crate::connack_for_error) handles version 5, too.
    #[must_use]
    pub const fn connack_3x(self) -> Option<u8> {
        match self {
            Self::ProtocolLevel {
                answer: ProtocolVersion::V3_1 | ProtocolVersion::V3_1_1,
                ..
            } => Some(1),
            _ => None,
        }
    }
}

const fn reason_statement(packet_type: PacketType) -> &'static str {
    match packet_type {
        PacketType::ConnAck => "MQTT-3.2.2-8",
        PacketType::PubAck => "MQTT-3.4.2-1",
        PacketType::PubRec => "MQTT-3.5.2-1",
        PacketType::PubRel => "MQTT-3.6.2-1",
        PacketType::PubComp => "MQTT-3.7.2-1",
        PacketType::SubAck => "MQTT-3.9.3-2",
        PacketType::UnsubAck => "MQTT-3.11.3-2",
        PacketType::Disconnect => "MQTT-3.14.2-1",
        PacketType::Auth => "MQTT-3.15.2-1",
        _ => "MQTT-4.13.1-1",
    }
}

/// A packet cannot be encoded: an error of the caller, not of the peer.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EncodeError {
    /// A string or binary field is longer than 65,535 bytes.
    #[error("a field is longer than 65,535 bytes")]
    FieldTooLong,
    /// The packet has more than 268,435,455 bytes after its fixed header.
    #[error("the packet is longer than Remaining Length can express")]
    PacketTooLong,
    /// A value is above 268,435,455.
    #[error("a value is too large for a variable byte integer")]
    VarIntTooLarge,
    /// The packet type does not exist in this version.
    #[error("MQTT version {1} has no {0:?}")]
    NotInVersion(PacketType, ProtocolVersion),
    /// The properties are not valid in this packet; the error is that of the decoder.
    #[error("properties: {0}")]
    Properties(DecodeError),
    /// The packet type does not allow this reason code.
    #[error("{1:?} cannot carry {0}")]
    ReasonCode(ReasonCode, PacketType),
    /// The topic name is empty and there is no topic alias.
    #[error("topic name is empty and has no alias")]
    EmptyTopic,
    /// SUBSCRIBE or UNSUBSCRIBE without a topic filter.
    #[error("the packet has no topic filter")]
    NoFilters,
    /// SUBACK, or UNSUBACK of version 5, without a reason code.
    #[error("the packet has no reason code")]
    NoReasonCodes,
    /// A CONNACK has an error code and Session Present.
    #[error("Session Present is set in a CONNACK with a failure code")]
    SessionPresentOnError,
    /// A password without a user name, before version 5.
    #[error("a password without a user name")]
    PasswordWithoutUserName,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that no test vector of a client's packet causes.
    #[test]
    fn errors_name_the_statement_that_was_broken() {
        for (error, statement) in [
            (DecodeError::PacketTooLarge, "MQTT-3.2.2-15"),
            (DecodeError::NoReasonCodes, "MQTT-3.8.4-6"),
        ] {
            assert_eq!(error.statement(), statement);
        }
    }
}
