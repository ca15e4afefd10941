//! Why rows are no messages, and why messages are not delivered.

use arrow_schema::DataType;
use mqttcore_codec::{DecodeError, EncodeError, PacketType, QoS, ReasonCode, TextError};
use mqttcore_topics::TopicError;
use thiserror::Error;

use crate::ID;
use crate::columns::NAMES;

/// The columns of a batch are not those of messages.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ColumnError {
    /// No message has it.
    #[error("unknown column {0:?}; allowed: {names}", names = NAMES.join(", "))]
    Unknown(String),
    /// Every message needs it.
    #[error("column {0} is missing")]
    Missing(&'static str),
    /// It has another type.
    #[error("column {column} is {found}; allowed: {allowed:?}")]
    Type {
        /// Which one.
        column: &'static str,
        /// The type that it has.
        found: DataType,
        /// The types that it may have.
        allowed: &'static [DataType],
    },
    /// User properties are something else.
    #[error(
        "column user_properties is {0}; allowed: a list of structs of two texts, key and value"
    )]
    Pairs(DataType),
    /// The protocol has no place for it.
    #[error("column {0}: only MQTT 5.0 has a place for it")]
    NotCarried(&'static str),
}

/// A row is no message, or none that this server takes.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RowError {
    /// The topic is null.
    #[error("it has no topic")]
    NoTopic,
    /// The topic is no topic name.
    #[error("topic {topic:?}: {1}", topic = Shown(.0))]
    Topic(String, TopicError),
    /// The response topic is no topic name.
    #[error("response topic {topic:?}: {1}", topic = Shown(.0))]
    ResponseTopic(String, TopicError),
    /// A number that is neither 0, 1 nor 2.
    #[error("{0} is no QoS")]
    QoS(i64),
    /// Seconds below 0, or more than 32 bits of them.
    #[error("{0} is no expiry")]
    Expiry(i64),
    /// A key or a value is null.
    #[error("a user property has a null")]
    NullProperty,
    /// A text that MQTT cannot carry.
    #[error("{text:?}: {1}", text = Shown(.0))]
    Text(String, TextError),
    /// A value that its field cannot carry.
    #[error(transparent)]
    Field(#[from] EncodeError),
    /// The server takes less than this QoS.
    #[error("QoS {qos} is more than the server takes", qos = u8::from(*.0))]
    MaximumQoS(QoS),
    /// The server keeps no retained messages.
    #[error("the server takes no retained messages")]
    RetainNotAvailable,
    /// The packet is larger than the server takes.
    #[error("{bytes} bytes are more than a packet to this server may have: {most}")]
    TooLarge {
        /// What it would have.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
}

/// A text of a stranger in an error: what is longer than a line is cut.
struct Shown<'a>(&'a str);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?}...", self.0.split_at(end).0),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Characters of a text that an error shows.
const SHOWN: usize = 100;

/// Why a [`Publisher`](crate::Publisher) cannot go on; it is of no use afterwards.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// Client identifier, user name or password cannot be sent.
    #[error("the login: {0}")]
    Login(EncodeError),
    /// Client identifier or user name is no text of MQTT.
    #[error("the login: {0}")]
    LoginText(#[from] TextError),
    /// A batch has other columns.
    #[error(transparent)]
    Columns(#[from] ColumnError),
    /// A row cannot be sent; none of its batch was.
    #[error("{ID} {id}: {error}")]
    Row {
        /// The row's name.
        id: String,
        /// What is wrong with it.
        error: RowError,
    },
    /// The server did not let the client in.
    #[error("refused: {reason}{}", said(.text.as_ref()))]
    ConnectionRefused {
        /// Why.
        reason: ReasonCode,
        /// What the server says of it.
        text: Option<String>,
    },
    /// The server acknowledges nothing.
    #[error("the server takes QoS 0 only and would not acknowledge a message")]
    NothingAcknowledged,
    /// The server refused a message.
    #[error("{ID} {id} is refused: {reason}{}", said(.text.as_ref()))]
    Refused {
        /// The row's name.
        id: String,
        /// Why.
        reason: ReasonCode,
        /// What the server says of it.
        text: Option<String>,
    },
    /// The server ended the connection.
    #[error("the server disconnects: {reason}{}", said(.text.as_ref()))]
    Disconnected {
        /// Why.
        reason: ReasonCode,
        /// What the server says of it.
        text: Option<String>,
    },
    /// The server sent bytes that are no packet.
    #[error("the server sends no MQTT: {0}")]
    Undecodable(#[from] DecodeError),
    /// The server sent a packet that has no place here.
    #[error("the server sends {0:?} where none belongs")]
    Unexpected(PacketType),
    /// The server acknowledged what it was not sent, or not in this way.
    #[error("the server sends {0:?} for packet identifier {1}, which does not wait for it")]
    Unasked(PacketType, u16),
    /// The server kept a session that was to be a new one.
    #[error("[MQTT-3.2.2-4] the server kept a session that was to be a new one")]
    SessionPresent,
}

fn said(text: Option<&String>) -> String {
    text.map_or_else(String::new, |text| format!(" ({:?})", Shown(text)))
}
