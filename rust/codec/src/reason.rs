//! Reason codes, the packets in which each is allowed, and their 3.x counterparts.

use std::fmt;

use crate::{PacketType, QoS};

/// Outcome of a request, or why a connection ends: one byte of an acknowledgement, DISCONNECT or AUTH.
///
/// Only values that MQTT 5.0 defines can be represented. 3.x return codes are mapped to them and back.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReasonCode(u8);

macro_rules! reason_codes {
    ($($value:literal $constant:ident $name:literal [$($packet:ident)+])+) => {
        impl ReasonCode {
            $(
                #[doc = concat!("`", stringify!($value), "` ", $name, ".")]
                pub const $constant: Self = Self($value);
            )+

            /// The name in the specification; 0 is "Success" in every packet.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => $name,)+
                    _ => "Unknown",
                }
            }

            /// Bit `n` is set if packet type `n` may carry `value`; 0 for unknown values.
            const fn packets(value: u8) -> u16 {
                match value {
                    $($value => 0 $(| 1 << PacketType::$packet as u16)+,)+
                    _ => 0,
                }
            }

            /// Every reason code of MQTT 5.0, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$constant),+];
        }
    };
}

reason_codes! {
    0x00 SUCCESS "Success" [ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth]
    0x01 GRANTED_QOS_1 "Granted QoS 1" [SubAck]
    0x02 GRANTED_QOS_2 "Granted QoS 2" [SubAck]
    0x04 DISCONNECT_WITH_WILL "Disconnect with Will Message" [Disconnect]
    0x10 NO_MATCHING_SUBSCRIBERS "No matching subscribers" [PubAck PubRec]
    0x11 NO_SUBSCRIPTION_EXISTED "No subscription existed" [UnsubAck]
    0x18 CONTINUE_AUTHENTICATION "Continue authentication" [Auth]
    0x19 RE_AUTHENTICATE "Re-authenticate" [Auth]
    0x80 UNSPECIFIED_ERROR "Unspecified error" [ConnAck PubAck PubRec SubAck UnsubAck Disconnect]
    0x81 MALFORMED_PACKET "Malformed Packet" [ConnAck Disconnect]
    0x82 PROTOCOL_ERROR "Protocol Error" [ConnAck Disconnect]
    0x83 IMPLEMENTATION_SPECIFIC_ERROR "Implementation specific error"
        [ConnAck PubAck PubRec SubAck UnsubAck Disconnect]
    0x84 UNSUPPORTED_PROTOCOL_VERSION "Unsupported Protocol Version" [ConnAck]
    0x85 CLIENT_IDENTIFIER_NOT_VALID "Client Identifier not valid" [ConnAck]
    0x86 BAD_USER_NAME_OR_PASSWORD "Bad User Name or Password" [ConnAck]
    0x87 NOT_AUTHORIZED "Not authorized" [ConnAck PubAck PubRec SubAck UnsubAck Disconnect]
    0x88 SERVER_UNAVAILABLE "Server unavailable" [ConnAck]
    0x89 SERVER_BUSY "Server busy" [ConnAck Disconnect]
    0x8A BANNED "Banned" [ConnAck]
    0x8B SERVER_SHUTTING_DOWN "Server shutting down" [Disconnect]
    0x8C BAD_AUTHENTICATION_METHOD "Bad authentication method" [ConnAck Disconnect]
    0x8D KEEP_ALIVE_TIMEOUT "Keep Alive timeout" [Disconnect]
    0x8E SESSION_TAKEN_OVER "Session taken over" [Disconnect]
    0x8F TOPIC_FILTER_INVALID "Topic Filter invalid" [SubAck UnsubAck Disconnect]
    0x90 TOPIC_NAME_INVALID "Topic Name invalid" [ConnAck PubAck PubRec Disconnect]
    0x91 PACKET_IDENTIFIER_IN_USE "Packet Identifier in use" [PubAck PubRec SubAck UnsubAck]
    0x92 PACKET_IDENTIFIER_NOT_FOUND "Packet Identifier not found" [PubRel PubComp]
    0x93 RECEIVE_MAXIMUM_EXCEEDED "Receive Maximum exceeded" [Disconnect]
    0x94 TOPIC_ALIAS_INVALID "Topic Alias invalid" [Disconnect]
    0x95 PACKET_TOO_LARGE "Packet too large" [ConnAck Disconnect]
    0x96 MESSAGE_RATE_TOO_HIGH "Message rate too high" [Disconnect]
    0x97 QUOTA_EXCEEDED "Quota exceeded" [ConnAck PubAck PubRec SubAck Disconnect]
    0x98 ADMINISTRATIVE_ACTION "Administrative action" [Disconnect]
    0x99 PAYLOAD_FORMAT_INVALID "Payload format invalid" [ConnAck PubAck PubRec Disconnect]
    0x9A RETAIN_NOT_SUPPORTED "Retain not supported" [ConnAck Disconnect]
    0x9B QOS_NOT_SUPPORTED "QoS not supported" [ConnAck Disconnect]
    0x9C USE_ANOTHER_SERVER "Use another server" [ConnAck Disconnect]
    0x9D SERVER_MOVED "Server moved" [ConnAck Disconnect]
    0x9E SHARED_SUBSCRIPTIONS_NOT_SUPPORTED "Shared Subscriptions not supported"
        [SubAck Disconnect]
    0x9F CONNECTION_RATE_EXCEEDED "Connection rate exceeded" [ConnAck Disconnect]
    0xA0 MAXIMUM_CONNECT_TIME "Maximum connect time" [Disconnect]
    0xA1 SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED "Subscription Identifiers not supported"
        [SubAck Disconnect]
    0xA2 WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED "Wildcard Subscriptions not supported"
        [SubAck Disconnect]
}

impl ReasonCode {
    /// The name of `0x00` in DISCONNECT.
    pub const NORMAL_DISCONNECTION: Self = Self::SUCCESS;
    /// The name of `0x00` in SUBACK.
    pub const GRANTED_QOS_0: Self = Self::SUCCESS;

    /// The reason code with this value; `None` if MQTT 5.0 defines none.
    #[inline]
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if Self::packets(value) == 0 {
            return None;
        }
        Some(Self(value))
    }

    /// The SUBACK code that grants `qos`.
    #[must_use]
    pub const fn granted(qos: QoS) -> Self {
        match qos {
            QoS::AtMostOnce => Self::GRANTED_QOS_0,
            QoS::AtLeastOnce => Self::GRANTED_QOS_1,
            QoS::ExactlyOnce => Self::GRANTED_QOS_2,
        }
    }

    /// The byte on the wire.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }

    /// Whether it is an error: 0x80 or more.
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// Whether a packet of this type may carry it.
    ///
    /// It does not check which side may send it. Source: MQTT 5.0 section 2.4.
    #[inline]
    #[must_use]
    pub const fn allowed_in(self, packet_type: PacketType) -> bool {
        Self::packets(self.0) & (1 << packet_type as u16) != 0
    }

    /// The nearest CONNACK return code of 3.x, 0 to 5.
    ///
    /// A reason without a counterpart in 3.x becomes 3, server unavailable. A malformed CONNECT gets no CONNACK at all
    /// in 3.x; the caller must handle that. Source: MQTT 3.1.1 section 3.2.2.3.
    #[must_use]
    pub const fn connect_return_code(self) -> u8 {
        match self {
            Self::SUCCESS => 0,
            Self::UNSUPPORTED_PROTOCOL_VERSION => 1,
            Self::CLIENT_IDENTIFIER_NOT_VALID => 2,
            Self::BAD_USER_NAME_OR_PASSWORD => 4,
            Self::NOT_AUTHORIZED | Self::BANNED | Self::BAD_AUTHENTICATION_METHOD => 5,
            _ => 3,
        }
    }

    /// The reason code of a 3.x CONNACK return code; `None` above 5.
    #[must_use]
    pub const fn from_connect_return_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::SUCCESS,
            1 => Self::UNSUPPORTED_PROTOCOL_VERSION,
            2 => Self::CLIENT_IDENTIFIER_NOT_VALID,
            3 => Self::SERVER_UNAVAILABLE,
            4 => Self::BAD_USER_NAME_OR_PASSWORD,
            5 => Self::NOT_AUTHORIZED,
            _ => return None,
        })
    }

    /// The SUBACK return code of 3.x: the granted QoS, or 0x80 for every error.
    ///
    /// 3.1 has no error code; other brokers also send 0x80 there.
    pub(crate) const fn subscribe_return_code(self) -> Self {
        if self.is_error() {
            return Self::UNSPECIFIED_ERROR;
        }
        self
    }
}

impl fmt::Debug for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReasonCode(0x{:02X} {})", self.0, self.name())
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqtt_5_0_defines_43_values() {
        let defined = (0..=u8::MAX).filter_map(ReasonCode::new).count();

        assert_eq!(defined, 43);
        assert_eq!(ReasonCode::ALL.len(), 43);
    }

    #[test]
    fn a_reason_code_is_printed_with_its_number_and_its_name() {
        let reason = ReasonCode::NOT_AUTHORIZED;

        assert_eq!(reason.to_string(), "0x87 Not authorized");
        assert_eq!(format!("{reason:?}"), "ReasonCode(0x87 Not authorized)");
    }

    #[test]
    fn return_codes_of_3_x_map_back_to_themselves() {
        for code in 0..=5 {
            let reason = ReasonCode::from_connect_return_code(code).unwrap();

            assert_eq!(reason.connect_return_code(), code);
        }
        assert_eq!(ReasonCode::from_connect_return_code(6), None);
    }
}
