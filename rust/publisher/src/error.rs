//! Errors: rows that are not messages, and messages that are not delivered.

use arrow_schema::DataType;
use mqttcore_codec::{DecodeError, EncodeError, PacketType, QoS, ReasonCode, TextError};
use mqttcore_topics::TopicError;
use thiserror::Error;

use crate::ID;
use crate::columns::NAMES;

/// The columns of a batch are not valid for messages.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ColumnError {
    /// Messages have no such column.
    #[error("unknown column {0:?}; allowed: {names}", names = NAMES.join(", "))]
    Unknown(String),
    /// A required column.
    #[error("column {0} is missing")]
    Missing(&'static str),
    /// The column has another type.
    #[error("column {column} is {found}; allowed: {allowed:?}")]
    Type {
        /// Which one.
        column: &'static str,
        /// The type that it has.
        found: DataType,
        /// The types that it may have.
        allowed: &'static [DataType],
    },
    /// The column of user properties has another type.
    #[error(
        "column user_properties is {0}; allowed: a list of structs of two texts, key and value"
    )]
    Pairs(DataType),
    /// The column requires another protocol version.
    #[error("column {0} requires MQTT 5.0")]
    NotCarried(&'static str),
}

/// A row is not a valid message, or the server does not accept it.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RowError {
    /// The topic is null.
    #[error("the topic is null")]
    NoTopic,
    /// The topic is not a valid topic name.
    #[error("topic {topic:?}: {1}", topic = Shortened(.0))]
    Topic(String, TopicError),
    /// The response topic is not a valid topic name.
    #[error("response topic {topic:?}: {1}", topic = Shortened(.0))]
    ResponseTopic(String, TopicError),
    /// A QoS other than 0, 1 and 2.
    #[error("{0} is not a QoS: allowed are 0, 1 and 2")]
    QoS(i64),
    /// The message expiry interval is below 0 or exceeds 32 bits.
    #[error("{0} is not a message expiry interval: allowed are 0 to 4294967295 s")]
    Expiry(i64),
    /// A key or a value is null.
    #[error("a user property has a null key or value")]
    NullProperty,
    /// A text is not a valid MQTT string.
    #[error("{text:?}: {1}", text = Shortened(.0))]
    Text(String, TextError),
    /// A value does not fit its field.
    #[error(transparent)]
    Field(#[from] EncodeError),
    /// The QoS is above the server's maximum.
    #[error("QoS {qos} is above the server's Maximum QoS", qos = u8::from(*.0))]
    MaximumQoS(QoS),
    /// The server does not support retained messages.
    #[error("the server does not support retained messages")]
    RetainNotAvailable,
    /// The packet exceeds the server's maximum packet size.
    #[error("the packet has {bytes} bytes; the server accepts at most {most}")]
    TooLarge {
        /// Size of the packet.
        bytes: usize,
        /// Maximum size.
        most: usize,
    },
}

/// Foreign text in an error, truncated to about one line.
struct Shortened<'a>(&'a str);

impl std::fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?}...", self.0.split_at(end).0),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Characters of a text that an error shows.
const SHOWN: usize = 100;

/// A [`Publisher`](crate::Publisher) has failed; it cannot be used afterwards.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PublisherFailure {
    /// Client identifier, user name or password cannot be sent.
    #[error("client identifier, user name or password: {0}")]
    Login(EncodeError),
    /// Client identifier or user name is not a valid MQTT string.
    #[error("client identifier, user name or password: {0}")]
    LoginText(#[from] TextError),
    /// The columns of a batch are not valid.
    #[error(transparent)]
    Columns(#[from] ColumnError),
    /// A row cannot be sent; no row of its batch was sent.
    #[error("{ID} {id}: {error}")]
    Row {
        /// The row's name.
        id: String,
        /// The fault.
        error: RowError,
    },
    /// The server rejected the connection.
    #[error("the server rejected the connection: {reason}{}", said(.text.as_ref()))]
    ConnectionRefused {
        /// Why.
        reason: ReasonCode,
        /// The server's reason string.
        text: Option<String>,
    },
    /// The server supports QoS 0 only.
    #[error("the server supports QoS 0 only, so it does not acknowledge messages")]
    NothingAcknowledged,
    /// The server refused a message.
    #[error("the server rejected {ID} {id}: {reason}{}", said(.text.as_ref()))]
    Refused {
        /// The row's name.
        id: String,
        /// Why.
        reason: ReasonCode,
        /// The server's reason string.
        text: Option<String>,
    },
    /// The server ended the connection.
    #[error("the server disconnected: {reason}{}", said(.text.as_ref()))]
    Disconnected {
        /// Why.
        reason: ReasonCode,
        /// The server's reason string.
        text: Option<String>,
    },
    /// The server sent bytes that are not an MQTT packet.
    #[error("the server sent bytes that are not MQTT: {0}")]
    Undecodable(#[from] DecodeError),
    /// The server sent a packet that is not expected.
    #[error("the server sent an unexpected {0:?}")]
    Unexpected(PacketType),
    /// The server sent an acknowledgement that no message waits for.
    #[error("the server sent {0:?} for packet identifier {1}, which does not wait for it")]
    Unasked(PacketType, u16),
    /// The server resumed a session although Clean Start was set.
    #[error("[MQTT-3.2.2-4] the server resumed a session although Clean Start is set")]
    SessionPresent,
}

fn said(text: Option<&String>) -> String {
    text.map_or_else(String::new, |text| format!(" ({:?})", Shortened(text)))
}
