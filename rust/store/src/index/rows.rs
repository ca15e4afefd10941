//! Rows of the checkpoint for sessions, messages and topics, and their encoding.
//!
//! | table | key | value, in the forms of [`crate::record`] |
//! | --- | --- | --- |
//! | `session` | session | version: byte; flags: byte (0 user name, 1 away, 2 will, 3 maybe sent); opened: `u64` ms; expiry: `u32` s; client id: text; user name: text; away since: `u64` ms; maybe sent below: varint; exactly_once: count, packet ids; publishes: count, (packet id, delivery number: varint, delivery); releases: count, packet ids; will: flags byte, length: varint, body of a will record |
//! | `subscription` | session | count, (filter: text, options: byte, id: varint) |
//! | `queue` | session, a delivery number | see [`DeliveryChunk`](crate::index::chunk) |
//! | `message` | message number over 256 | see [`MessageRow`](crate::index::messages) |
//! | `body` | message number | see [`bodies`](crate::index::bodies); of messages in segments up to `moved` |
//! | `retained` | topic | message number |
//! | `segment` | segment number | bytes of live messages in it |
//! | `note` | key of a [`Record::Note`](crate::record::Record::Note) | its value |
//! | `meta` | `format`, `applied_lsn`, `next_number`, `moved`, `store`, `streams` | `u64`; 16 bytes; see `StreamTable::encode` |
//!
//! A *delivery* is: message number: varint; QoS and RETAIN: byte; size of the message: varint; count and subscription
//! ids: varints. The *size* of a message is the size of topic, properties and payload.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::weight::tree_bytes;
use crate::record::{MessageRecord, Record, SessionOpened, WillSet, qos};
use crate::wire::{
    BodyError, RecordReader, put_bytes, put_text, put_u16, put_u32, put_u64, put_varint,
};

/// The stored state of a session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SessionRow {
    /// The client identifier.
    pub client_id: String,
    /// The user name of its last connection.
    pub username: Option<String>,
    /// Protocol level of its last connection.
    pub version: u8,
    /// Start of its last connection in Unix milliseconds.
    pub opened_at_ms: u64,
    /// End of its last connection in Unix milliseconds; `None` if it is connected, or if the broker died before the
    /// end.
    pub away_since_ms: Option<u64>,
    /// Session expiry interval in seconds; `u32::MAX` is for ever.
    pub expiry_s: u32,
    /// QoS 2 packet identifiers that the client has not released.
    pub exactly_once: BTreeSet<u16>,
    /// In-flight messages with their packet identifiers, in the order in which they were first sent.
    pub publishes: Vec<(u16, StoredDelivery)>,
    /// Packet identifiers whose PUBREL is open, in the order of their PUBRECs.
    pub releases: Vec<u16>,
    /// The will.
    pub will: Option<StoredWill>,
    /// If the broker died while the client was connected, queued deliveries with a lower number may have been sent:
    /// the log has no record of the connection's end.
    pub maybe_sent_below: u64,
}

impl SessionRow {
    /// Size on the heap, in bytes, without the row itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let publishes = self.publishes.iter();
        let ids = publishes.map(|(_, delivery)| delivery.subscription_ids.capacity() * 4);
        self.client_id.capacity()
            + self.username.as_ref().map_or(0, String::capacity)
            + self.exactly_once.len() * tree_bytes::<u16>()
            + self.publishes.capacity() * size_of::<(u16, StoredDelivery)>()
            + ids.sum::<usize>()
            + self.releases.capacity() * 2
            + self.will.as_ref().map_or(0, StoredWill::heap_bytes)
    }
}

/// A stored will.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredWill {
    /// Will Delay Interval in seconds.
    pub delay_s: u32,
    /// QoS: 0 to 2.
    pub qos: u8,
    /// RETAIN.
    pub retain: bool,
    /// Topic name.
    pub topic: String,
    /// Encoded properties.
    pub properties: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

impl StoredWill {
    fn heap_bytes(&self) -> usize {
        self.topic.capacity() + self.properties.capacity() + self.payload.capacity()
    }
}

/// A message that is queued for a session or in flight to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredDelivery {
    /// Number of the delivery; it orders the queue of the session.
    pub number: u64,
    /// Number of the message.
    pub message: u64,
    /// QoS: 0 to 2.
    pub qos: u8,
    /// RETAIN.
    pub retain: bool,
    /// Size of the message's topic, properties and payload in bytes.
    pub bytes: u32,
    /// Subscription Identifiers.
    pub subscription_ids: Vec<u32>,
}

/// Subscriptions of a session: by filter, the options and the Subscription Identifier (0: none).
pub type StoredSubscriptions = BTreeMap<String, (u8, u32)>;

/// The content of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredMessage {
    flags: u8,
    body: Vec<u8>,
}

impl StoredMessage {
    pub(crate) fn new(flags: u8, body: Vec<u8>) -> Result<Self, BodyError> {
        let stored = Self { flags, body };
        stored.parse().map(|_| ())?;
        Ok(stored)
    }

    /// The message as it was recorded, with the recipients of that record.
    pub fn message(&self) -> MessageRecord<'_> {
        // INVARIANT: `new` has decoded the same bytes.
        self.parse().expect("checked when it was read")
    }

    fn parse(&self) -> Result<MessageRecord<'_>, BodyError> {
        match Record::decode(1, self.flags, &self.body)? {
            Record::Message(message) => Ok(message),
            _ => Err(BodyError::Kind(1)),
        }
    }
}

/// Offset of the client identifier in a session row: after version, flags, opened, expiry.
const CLIENT_ID: usize = 14;
const USERNAME: u8 = 1;
const AWAY: u8 = 2;
const WILL: u8 = 4;
const MAYBE_SENT: u8 = 8;
const RETAIN: u8 = 4;

impl SessionRow {
    /// Applies a new connection.
    pub(crate) fn open(&mut self, opened: &SessionOpened<'_>) {
        opened.client_id.clone_into(&mut self.client_id);
        self.username = opened.username.map(str::to_owned);
        self.version = opened.version;
        self.opened_at_ms = opened.at_ms;
        self.expiry_s = opened.expiry_s;
        self.away_since_ms = None;
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let bit = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(self.version);
        out.push(
            bit(self.username.is_some(), USERNAME)
                | bit(self.away_since_ms.is_some(), AWAY)
                | bit(self.will.is_some(), WILL)
                | bit(self.maybe_sent_below > 0, MAYBE_SENT),
        );
        put_u64(self.opened_at_ms, out);
        put_u32(self.expiry_s, out);
        put_text(&self.client_id, out);
        if let Some(username) = &self.username {
            put_text(username, out);
        }
        if let Some(at_ms) = self.away_since_ms {
            put_u64(at_ms, out);
        }
        if self.maybe_sent_below > 0 {
            put_varint(self.maybe_sent_below, out);
        }
        put_varint(self.exactly_once.len() as u64, out);
        for &id in &self.exactly_once {
            put_u16(id, out);
        }
        put_varint(self.publishes.len() as u64, out);
        for (packet_id, delivery) in &self.publishes {
            put_u16(*packet_id, out);
            put_varint(delivery.number, out);
            delivery.encode(out);
        }
        put_varint(self.releases.len() as u64, out);
        for &id in &self.releases {
            put_u16(id, out);
        }
        if let Some(will) = &self.will {
            will.encode(out);
        }
    }

    /// The client identifier of an encoded row, without decoding the rest.
    pub(crate) fn client_id_of(bytes: &[u8]) -> Result<&str, BodyError> {
        let mut from = RecordReader(bytes);
        from.take(CLIENT_ID)?;
        from.text()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        let mut reader = RecordReader(bytes);
        let from = &mut reader;
        let (version, flags) = (from.byte()?, from.byte()?);
        if flags & !(USERNAME | AWAY | WILL | MAYBE_SENT) != 0 {
            return Err(BodyError::Flags);
        }
        let has = |flag: u8| flags & flag != 0;
        let row = Self {
            version,
            opened_at_ms: from.u64()?,
            expiry_s: from.u32()?,
            client_id: from.text()?.to_owned(),
            username: if has(USERNAME) {
                Some(from.text()?.to_owned())
            } else {
                None
            },
            away_since_ms: if has(AWAY) { Some(from.u64()?) } else { None },
            maybe_sent_below: if has(MAYBE_SENT) { from.varint()? } else { 0 },
            exactly_once: packet_ids(from)?.into_iter().collect(),
            publishes: {
                let count = from.length()?;
                let mut publishes = Vec::with_capacity(count);
                for _ in 0..count {
                    let (packet_id, number) = (from.u16()?, from.varint()?);
                    publishes.push((packet_id, StoredDelivery::decode(number, from)?));
                }
                publishes
            },
            releases: packet_ids(from)?,
            will: if has(WILL) {
                Some(StoredWill::decode(from)?)
            } else {
                None
            },
        };
        reader.end()?;
        Ok(row)
    }
}

fn packet_ids(from: &mut RecordReader<'_>) -> Result<Vec<u16>, BodyError> {
    let count = from.length()?;
    (0..count).map(|_| from.u16()).collect()
}

impl StoredWill {
    pub(crate) fn new(will: &WillSet<'_>) -> Self {
        Self {
            delay_s: will.delay_s,
            qos: will.qos,
            retain: will.retain,
            topic: will.topic.to_owned(),
            properties: will.properties.to_owned(),
            payload: will.payload.to_owned(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let set = WillSet {
            session: 0,
            delay_s: self.delay_s,
            qos: self.qos,
            retain: self.retain,
            topic: &self.topic,
            properties: &self.properties,
            payload: &self.payload,
        };
        let mut body = Vec::new();
        set.encode(&mut body);
        out.push(Record::WillSet(set).flags());
        put_bytes(&body, out);
    }

    fn decode(from: &mut RecordReader<'_>) -> Result<Self, BodyError> {
        let flags = from.byte()?;
        let set = WillSet::decode(flags, &mut RecordReader(from.bytes()?))?;
        Ok(Self::new(&set))
    }
}

impl StoredDelivery {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.message, out);
        out.push(self.qos | if self.retain { RETAIN } else { 0 });
        put_varint(u64::from(self.bytes), out);
        put_varint(self.subscription_ids.len() as u64, out);
        for &id in &self.subscription_ids {
            put_varint(u64::from(id), out);
        }
    }

    fn decode(number: u64, from: &mut RecordReader<'_>) -> Result<Self, BodyError> {
        let message = from.varint()?;
        let options = from.byte()?;
        if options & !(0b11 | RETAIN) != 0 {
            return Err(BodyError::Flags);
        }
        let bytes = u32::try_from(from.varint()?).map_err(|_| BodyError::Number)?;
        let count = from.length()?;
        let mut subscription_ids = Vec::with_capacity(count);
        for _ in 0..count {
            let id = u32::try_from(from.varint()?).map_err(|_| BodyError::Number)?;
            subscription_ids.push(id);
        }
        let retain = options & RETAIN != 0;
        Ok(Self {
            number,
            message,
            qos: qos(options)?,
            retain,
            bytes,
            subscription_ids,
        })
    }
}

pub(crate) fn encode_subscriptions(subscriptions: &StoredSubscriptions, out: &mut Vec<u8>) {
    put_varint(subscriptions.len() as u64, out);
    for (filter, (options, id)) in subscriptions {
        put_text(filter, out);
        out.push(*options);
        put_varint(u64::from(*id), out);
    }
}

pub(crate) fn decode_subscriptions(bytes: &[u8]) -> Result<StoredSubscriptions, BodyError> {
    let mut reader = RecordReader(bytes);
    let mut subscriptions = StoredSubscriptions::new();
    for _ in 0..reader.length()? {
        let filter = reader.text()?.to_owned();
        let options = reader.byte()?;
        let id = u32::try_from(reader.varint()?).map_err(|_| BodyError::Number)?;
        subscriptions.insert(filter, (options, id));
    }
    reader.end()?;
    Ok(subscriptions)
}
