//! Protocol violations of a client, with the statement that each one breaks.

use mqttcore_codec::{DecodeError, ReasonCode};
use mqttcore_topics::TopicError;
use thiserror::Error;

use crate::composed::MessageError;

/// A packet, or a silence, that ends the connection [MQTT-4.13.1-1].
///
/// Before CONNACK, [`connack_failure`](crate::connack_failure) sends the reason, afterwards
/// [`Session::disconnect_packet`](crate::Session::disconnect_packet). For a 3.x client the connection is closed without
/// a packet [MQTT-3.1.1 4.8.0-1].
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("[{statement}] {what}")]
pub struct Violation {
    /// The reason code for CONNACK or DISCONNECT.
    pub reason: ReasonCode,
    /// The id of the violated statement, or the section or limit.
    pub statement: &'static str,
    /// The fault; never contains text of the client.
    pub what: &'static str,
    /// Whether a rule of MQTT or a limit of the server was violated.
    pub fault: ViolationKind,
}

/// Whether a client violated a rule of MQTT or a limit of the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ViolationKind {
    /// A rule of MQTT: the client is broken or hostile.
    Protocol,
    /// A limit: the packet is valid, but it exceeds a limit or uses a feature that the server does not offer.
    Limit,
}

impl Violation {
    /// A violation of a rule of MQTT.
    pub const fn protocol(reason: ReasonCode, statement: &'static str, what: &'static str) -> Self {
        Self {
            reason,
            statement,
            what,
            fault: ViolationKind::Protocol,
        }
    }

    /// A violation of a limit of this server.
    pub const fn limit(reason: ReasonCode, statement: &'static str, what: &'static str) -> Self {
        Self {
            reason,
            statement,
            what,
            fault: ViolationKind::Limit,
        }
    }

    /// The client uses a version of MQTT that the listener does not accept: 0x84, or return code 1 for 3.x.
    pub const fn protocol_version() -> Self {
        Self::limit(
            ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            "MQTT-3.1.2-2",
            "the listener does not accept this protocol version",
        )
    }

    /// An invalid topic name: 0x90 [MQTT-3.3.2-2]; 0x82 if it is empty.
    pub(crate) fn topic_name(error: TopicError) -> Self {
        Self::topic(
            ReasonCode::TOPIC_NAME_INVALID,
            error,
            "topic name is not valid",
        )
    }

    /// An invalid topic filter: 0x8F; 0x82 if it is empty. It is never stored (abuse E02, E06).
    pub(crate) fn topic_filter(error: TopicError) -> Self {
        Self::topic(
            ReasonCode::TOPIC_FILTER_INVALID,
            error,
            "topic filter is not valid",
        )
    }

    /// 0x8F and 0x90 require a well-formed text, which an empty one is not [MQTT-4.7.3-1].
    fn topic(reason: ReasonCode, error: TopicError, what: &'static str) -> Self {
        let reason = match error {
            TopicError::Empty => ReasonCode::PROTOCOL_ERROR,
            _ => reason,
        };
        let statement = match error.statement() {
            "" => "limit topic",
            statement => statement,
        };
        Self {
            reason,
            statement,
            what,
            fault: fault_of(error),
        }
    }
}

fn fault_of(error: TopicError) -> ViolationKind {
    match error {
        TopicError::TooLong | TopicError::TooManyLevels | TopicError::ControlCharacter => {
            ViolationKind::Limit
        }
        _ => ViolationKind::Protocol,
    }
}

impl From<MessageError> for Violation {
    /// 0x82 for a response topic that is empty or has wildcards, else 0x90; 0x99 for the payload format and 0x95 for
    /// the size.
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::ResponseTopic(TopicError::WildcardInName) => Self::protocol(
                ReasonCode::PROTOCOL_ERROR,
                "MQTT-3.3.2-14",
                "response topic contains a wildcard",
            ),
            MessageError::ResponseTopic(error) => Self::topic_name(error),
            MessageError::PayloadFormat => Self::protocol(
                ReasonCode::PAYLOAD_FORMAT_INVALID,
                "MQTT5 3.3.2.3.2",
                "payload is not UTF-8, but its Payload Format Indicator is 1",
            ),
            MessageError::TooLarge(_) => Self::limit(
                ReasonCode::PACKET_TOO_LARGE,
                "MQTT5 1.5.5",
                "message is larger than the largest packet",
            ),
        }
    }
}

impl From<DecodeError> for Violation {
    /// A decode error as a violation, so that one type carries every reason to close.
    fn from(error: DecodeError) -> Self {
        Self::protocol(
            error.reason_code(),
            error.statement(),
            "packet is malformed",
        )
    }
}
