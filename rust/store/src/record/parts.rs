//! Records with many fields: messages, sessions, wills.

use crate::record::recipients::Recipients;
use crate::rows::Streamed;
use crate::wire::{
    BodyError, RecordReader, put_bytes, put_text, put_u16, put_u32, put_u64, put_varint,
};

/// A message and its recipients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MessageRecord<'a> {
    /// Its number, from [`crate::Store::numbers`]; also the number of its first delivery.
    pub message: u64,
    /// QoS of the PUBLISH: 0 to 2.
    pub qos: u8,
    /// RETAIN of the PUBLISH.
    pub retain: bool,
    /// Whether it becomes the retained message of its topic.
    pub kept: bool,
    /// The publisher's session and QoS 2 packet identifier, if that session is durable.
    pub exactly_once: Option<(u64, u16)>,
    /// Unix milliseconds after which its delivery must not begin.
    pub expires_at_ms: Option<u64>,
    /// The publisher of a retained message or of a row.
    pub source: Option<&'a str>,
    /// The publisher's user name, for a retained message; it has no U+0000, which MQTT forbids in texts.
    pub username: Option<&'a str>,
    /// The rows of streams that it is, if any.
    pub streamed: Option<Streamed<'a>>,
    /// Topic name.
    pub topic: &'a str,
    /// Properties, encoded by the engine.
    pub properties: &'a [u8],
    /// Durable sessions that get it.
    pub recipients: Recipients<'a>,
    /// Payload.
    pub payload: &'a [u8],
}

/// The state of a session after a connection opened or resumed it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionOpened<'a> {
    /// The session; a new number if the client starts clean.
    pub session: u64,
    /// Time of the event in Unix milliseconds.
    pub at_ms: u64,
    /// Protocol level of the connection: 3, 4 or 5.
    pub version: u8,
    /// Session expiry interval in seconds; `u32::MAX` is for ever.
    pub expiry_s: u32,
    /// The client identifier.
    pub client_id: &'a str,
    /// The user name in force.
    pub username: Option<&'a str>,
}

/// The end of a session's connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Away {
    /// The session.
    pub session: u64,
    /// Time of the disconnect in Unix milliseconds.
    pub at_ms: u64,
    /// Session expiry interval from then on, in seconds; `u32::MAX` is for ever.
    pub expiry_s: u32,
    /// If the broker died while the client was connected, queued deliveries with a lower number may have been sent. 0
    /// if the broker saw the connection end.
    pub maybe_sent_below: u64,
}

/// A will.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WillSet<'a> {
    /// The session.
    pub session: u64,
    /// Will Delay Interval in seconds.
    pub delay_s: u32,
    /// QoS: 0 to 2.
    pub qos: u8,
    /// RETAIN.
    pub retain: bool,
    /// Topic name.
    pub topic: &'a str,
    /// Properties, encoded by the engine.
    pub properties: &'a [u8],
    /// Payload.
    pub payload: &'a [u8],
}

const QOS: u8 = 0b11;
const RETAIN: u8 = 1 << 2;
const KEPT: u8 = 1 << 3;
const EXACTLY_ONCE: u8 = 1 << 4;
const EXPIRY: u8 = 1 << 5;
const SOURCE: u8 = 1 << 6;
const STREAMED: u8 = 1 << 7;
const USERNAME: u8 = 1;
const MAYBE_SENT: u8 = 1;
/// Separates a source from its user name.
const BEHIND_SOURCE: &str = "\0";

impl<'a> MessageRecord<'a> {
    /// Size of topic, properties and payload in bytes.
    pub(crate) fn size(&self) -> u32 {
        let size = self.topic.len() + self.properties.len() + self.payload.len();
        // INVARIANT: a message comes from a packet, which is below 256 MiB.
        u32::try_from(size).expect("a message is below 4 GiB")
    }

    pub(super) fn flags(&self) -> u8 {
        let bit = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        self.qos & QOS
            | bit(self.retain, RETAIN)
            | bit(self.kept, KEPT)
            | bit(self.exactly_once.is_some(), EXACTLY_ONCE)
            | bit(self.expires_at_ms.is_some(), EXPIRY)
            | bit(self.source.is_some(), SOURCE)
            | bit(self.streamed.is_some(), STREAMED)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(streamed) = &self.streamed {
            streamed.encode(out);
        }
        put_varint(self.message, out);
        if let Some((session, packet_id)) = self.exactly_once {
            put_varint(session, out);
            put_u16(packet_id, out);
        }
        if let Some(at_ms) = self.expires_at_ms {
            put_u64(at_ms, out);
        }
        if let Some(source) = self.source {
            match self.username {
                Some(username) => put_text(&[source, username].join(BEHIND_SOURCE), out),
                None => put_text(source, out),
            }
        }
        put_text(self.topic, out);
        put_bytes(self.properties, out);
        self.recipients.encode(out);
        out.extend_from_slice(self.payload);
    }

    pub(super) fn decode(flags: u8, from: &mut RecordReader<'a>) -> Result<Self, BodyError> {
        let has = |flag: u8| flags & flag != 0;
        let mut message = Self {
            qos: qos(flags)?,
            retain: has(RETAIN),
            kept: has(KEPT),
            streamed: if has(STREAMED) {
                Some(Streamed::decode(from)?)
            } else {
                None
            },
            message: from.varint()?,
            exactly_once: if has(EXACTLY_ONCE) {
                Some((from.varint()?, from.u16()?))
            } else {
                None
            },
            expires_at_ms: if has(EXPIRY) { Some(from.u64()?) } else { None },
            source: if has(SOURCE) {
                Some(from.text()?)
            } else {
                None
            },
            username: None,
            topic: from.text()?,
            properties: from.bytes()?,
            recipients: Recipients::decode(from)?,
            payload: from.rest(),
        };
        if let Some((source, username)) = message
            .source
            .and_then(|text| text.split_once(BEHIND_SOURCE))
        {
            (message.source, message.username) = (Some(source), Some(username));
        }
        Ok(message)
    }
}

impl<'a> SessionOpened<'a> {
    pub(super) fn flags(&self) -> u8 {
        if self.username.is_some() { USERNAME } else { 0 }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.session, out);
        put_u64(self.at_ms, out);
        out.push(self.version);
        put_u32(self.expiry_s, out);
        put_text(self.client_id, out);
        if let Some(username) = self.username {
            put_text(username, out);
        }
    }

    pub(super) fn decode(flags: u8, from: &mut RecordReader<'a>) -> Result<Self, BodyError> {
        if flags & !USERNAME != 0 {
            return Err(BodyError::Flags);
        }
        Ok(Self {
            session: from.varint()?,
            at_ms: from.u64()?,
            version: from.byte()?,
            expiry_s: from.u32()?,
            client_id: from.text()?,
            username: if flags & USERNAME == 0 {
                None
            } else {
                Some(from.text()?)
            },
        })
    }
}

impl Away {
    pub(super) fn flags(self) -> u8 {
        if self.maybe_sent_below > 0 {
            MAYBE_SENT
        } else {
            0
        }
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        put_varint(self.session, out);
        put_u64(self.at_ms, out);
        put_u32(self.expiry_s, out);
        if self.maybe_sent_below > 0 {
            put_varint(self.maybe_sent_below, out);
        }
    }

    pub(super) fn decode(flags: u8, from: &mut RecordReader<'_>) -> Result<Self, BodyError> {
        if flags & !MAYBE_SENT != 0 {
            return Err(BodyError::Flags);
        }
        Ok(Self {
            session: from.varint()?,
            at_ms: from.u64()?,
            expiry_s: from.u32()?,
            maybe_sent_below: if flags == MAYBE_SENT {
                from.varint()?
            } else {
                0
            },
        })
    }
}

impl<'a> WillSet<'a> {
    pub(super) fn flags(&self) -> u8 {
        self.qos & QOS | if self.retain { RETAIN } else { 0 }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.session, out);
        put_u32(self.delay_s, out);
        put_text(self.topic, out);
        put_bytes(self.properties, out);
        out.extend_from_slice(self.payload);
    }

    pub(crate) fn decode(flags: u8, from: &mut RecordReader<'a>) -> Result<Self, BodyError> {
        if flags & !(QOS | RETAIN) != 0 {
            return Err(BodyError::Flags);
        }
        Ok(Self {
            qos: qos(flags)?,
            retain: flags & RETAIN != 0,
            session: from.varint()?,
            delay_s: from.u32()?,
            topic: from.text()?,
            properties: from.bytes()?,
            payload: from.rest(),
        })
    }
}

/// Whether the body of a record of this kind begins with rows.
pub(crate) fn is_streamed(kind: u8, flags: u8) -> bool {
    kind == 1 && flags & STREAMED != 0
}

pub(crate) fn qos(bits: u8) -> Result<u8, BodyError> {
    let qos = bits & QOS;
    if qos == QOS {
        Err(BodyError::Flags)
    } else {
        Ok(qos)
    }
}
