//! What the log says: one typed record for each step that must outlive the process.
//!
//! Every record has a *type* and *flags* (a byte each, in the frame), and a body. Fields stand in
//! the order given here; see [`crate::BodyError`] for what is refused. `session`, `message`,
//! `delivery` and counts are varints; packet identifiers are `u16`; `text` is a `u16` length and
//! UTF-8; `bytes` is a varint length and bytes; *rest* goes to the end of the body.
//!
//! | type | record | flags | body |
//! | --- | --- | --- | --- |
//! | 1 | [`Message`] | 0-1 QoS, 2 RETAIN, 3 kept, 4 gate, 5 expiry, 6 source, 7 rows | rows: see [`Streamed`]; message; gate: session, packet id; expiry: `u64` ms; source: text, the user name in it behind U+0000; topic: text; properties: bytes; recipients; payload: rest |
//! | 2 | [`Record::Route`] | | message; first delivery; recipients |
//! | 3 | [`Record::Gate`] | | session; packet id |
//! | 4 | [`Record::Released`] | | session; packet id |
//! | 5 | [`Record::Sending`] | | session; delivery; packet id |
//! | 6 | [`Record::Received`] | | session; packet id |
//! | 7 | [`Record::Completed`] | | session; then to the end (packet id, varint length of the run) |
//! | 8 | [`Record::Dropped`] | | session; delivery |
//! | 9 | [`Opened`] | 0 user name | session; `u64` ms; version: byte; expiry: `u32` s; client id: text; user name: text |
//! | 10 | [`Record::Away`] | 0 maybe sent | session; `u64` ms; expiry: `u32` s; maybe sent: varint |
//! | 11 | [`Record::Ended`] | | session |
//! | 12 | [`Record::Subscribed`] | | session; options: byte; subscription id: varint, 0 none; filter: text |
//! | 13 | [`Record::Unsubscribed`] | | session; filter: text |
//! | 14 | [`Record::RetainCleared`] | | topic: text |
//! | 15 | [`WillSet`] | 0-1 QoS, 2 RETAIN | session; delay: `u32` s; topic: text; properties: bytes; payload: rest |
//! | 16 | [`Record::WillEnded`] | | session |
//! | 20 | [`Record::Stream`] | | stream: `u32`; epoch: `u64`; name: text |
//! | 21 | [`Record::Sealed`] | | stream: `u32`; partition: `u16`; end: `u64` |
//! | 22 | [`Record::Note`] | | key: text; value: rest |
//! | 255 | commit marker | | see [`crate::journal`] |
//!
//! Recipients: a count, then for each: session; a byte with QoS in bits 0-1, RETAIN in 2, and in 3
//! whether subscription identifiers follow (a count and varints). Delivery *i* of a message has
//! the number `first + i`; of a [`Message`], `first` is its own number.

mod parts;
mod recipients;

use crate::wire::{BodyError, Reader, put_text, put_u16, put_u32, put_u64, put_varint};

pub use self::parts::{Message, Opened, WillSet};
pub(crate) use self::parts::{is_streamed, qos};
pub use crate::rows::{Row, Rows, RowsBuf, Streamed};
pub use crate::runs::{PacketIds, PacketIdsBuf};
pub use recipients::{Recipient, Recipients, RecipientsBuf};

/// One step, borrowing from the log or from whoever writes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Record<'a> {
    /// A message came in.
    Message(Message<'a>),
    /// A message that the log has goes to more sessions: a retained one to a new subscriber, or
    /// the rest of a large fan-out.
    Route {
        /// Number of the message.
        message: u64,
        /// Number of the first delivery.
        first: u64,
        /// Who gets it.
        recipients: Recipients<'a>,
    },
    /// A QoS 2 PUBLISH came in and nothing of it is kept but its identifier.
    Gate {
        /// The publisher's session.
        session: u64,
        /// The publisher's identifier.
        packet_id: u16,
    },
    /// The publisher released a QoS 2 identifier: it stands for a new message from now on.
    Released {
        /// The publisher's session.
        session: u64,
        /// The publisher's identifier.
        packet_id: u16,
    },
    /// A queued message got a packet identifier and is about to leave.
    Sending {
        /// The receiver's session.
        session: u64,
        /// Number of the delivery.
        delivery: u64,
        /// Its identifier.
        packet_id: u16,
    },
    /// The receiver has the QoS 2 message, or may have one that the log does not: only its release
    /// is open.
    Received {
        /// The receiver's session.
        session: u64,
        /// Its identifier.
        packet_id: u16,
    },
    /// Exchanges with a receiver ended.
    Completed {
        /// The receiver's session.
        session: u64,
        /// Their identifiers.
        packet_ids: PacketIds<'a>,
    },
    /// A queued message left the queue without a packet identifier: at QoS 0, or dropped.
    Dropped {
        /// The receiver's session.
        session: u64,
        /// Number of the delivery.
        delivery: u64,
    },
    /// A session began, or a connection resumed it.
    Opened(Opened<'a>),
    /// A session's connection ended; its expiry runs.
    Away {
        /// The session.
        session: u64,
        /// Since when, in unix milliseconds.
        at_ms: u64,
        /// How long it is kept from then on, in seconds; `u32::MAX` is for ever.
        expiry_s: u32,
        /// The broker died with the client connected: deliveries in its queue with a lower number may have been
        /// sent. 0 if the end of the connection was seen.
        maybe_sent_below: u64,
    },
    /// A session ended: nothing of it is left.
    Ended {
        /// The session.
        session: u64,
    },
    /// A subscription was granted or changed.
    Subscribed {
        /// The session.
        session: u64,
        /// As the client wrote it.
        filter: &'a str,
        /// Packed as the engine likes; the store does not look.
        options: u8,
        /// Subscription Identifier; 0 is none.
        id: u32,
    },
    /// A subscription ended.
    Unsubscribed {
        /// The session.
        session: u64,
        /// As the client wrote it.
        filter: &'a str,
    },
    /// A topic has no retained message any more.
    RetainCleared {
        /// The topic.
        topic: &'a str,
    },
    /// A connection left a will.
    WillSet(WillSet<'a>),
    /// A will was published or cancelled; what it became is in the same batch.
    WillEnded {
        /// The session.
        session: u64,
    },
    /// A stream has this number from now on; or its offsets mean something else than before.
    Stream {
        /// Its number, which no stream of this store had before.
        stream: u32,
        /// Grows whenever an offset that somebody knows may mean another row.
        epoch: u64,
        /// Its name.
        name: &'a str,
    },
    /// Rows are in files that are safe: the log is not needed for them.
    Sealed {
        /// The stream.
        stream: u32,
        /// The partition.
        partition: u16,
        /// The first offset that is not sealed.
        end: u64,
    },
    /// The engine notes something that is true with what else is in the batch, and only then.
    Note {
        /// What it is about; the last note of a key stands.
        key: &'a str,
        /// As the engine likes it; the store does not look. Empty: the key has no note any more.
        value: &'a [u8],
    },
}

pub(crate) const COMMIT: u8 = 255;
const MAYBE_SENT: u8 = 1;

impl<'a> Record<'a> {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Message(_) => 1,
            Self::Route { .. } => 2,
            Self::Gate { .. } => 3,
            Self::Released { .. } => 4,
            Self::Sending { .. } => 5,
            Self::Received { .. } => 6,
            Self::Completed { .. } => 7,
            Self::Dropped { .. } => 8,
            Self::Opened(_) => 9,
            Self::Away { .. } => 10,
            Self::Ended { .. } => 11,
            Self::Subscribed { .. } => 12,
            Self::Unsubscribed { .. } => 13,
            Self::RetainCleared { .. } => 14,
            Self::WillSet(_) => 15,
            Self::WillEnded { .. } => 16,
            Self::Stream { .. } => 20,
            Self::Sealed { .. } => 21,
            Self::Note { .. } => 22,
        }
    }

    pub(crate) fn flags(&self) -> u8 {
        match self {
            Self::Message(message) => message.flags(),
            Self::WillSet(will) => will.flags(),
            Self::Opened(opened) => opened.flags(),
            Self::Away {
                maybe_sent_below, ..
            } if *maybe_sent_below > 0 => MAYBE_SENT,
            _ => 0,
        }
    }

    pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Message(ref message) => message.encode(out),
            Self::Route {
                message,
                first,
                recipients,
            } => {
                put_varint(message, out);
                put_varint(first, out);
                recipients.encode(out);
            }
            Self::Gate { session, packet_id }
            | Self::Released { session, packet_id }
            | Self::Received { session, packet_id } => {
                put_varint(session, out);
                put_u16(packet_id, out);
            }
            Self::Sending {
                session,
                delivery,
                packet_id,
            } => {
                put_varint(session, out);
                put_varint(delivery, out);
                put_u16(packet_id, out);
            }
            Self::Completed {
                session,
                packet_ids,
            } => {
                put_varint(session, out);
                packet_ids.encode(out);
            }
            Self::Dropped { session, delivery } => {
                put_varint(session, out);
                put_varint(delivery, out);
            }
            Self::Opened(ref opened) => opened.encode(out),
            Self::Away {
                session,
                at_ms,
                expiry_s,
                maybe_sent_below,
            } => {
                put_varint(session, out);
                put_u64(at_ms, out);
                put_u32(expiry_s, out);
                if maybe_sent_below > 0 {
                    put_varint(maybe_sent_below, out);
                }
            }
            Self::Ended { session } | Self::WillEnded { session } => put_varint(session, out),
            Self::Subscribed {
                session,
                filter,
                options,
                id,
            } => {
                put_varint(session, out);
                out.push(options);
                put_varint(u64::from(id), out);
                put_text(filter, out);
            }
            Self::Unsubscribed { session, filter } => {
                put_varint(session, out);
                put_text(filter, out);
            }
            Self::RetainCleared { topic } => put_text(topic, out),
            Self::WillSet(ref will) => will.encode(out),
            Self::Stream {
                stream,
                epoch,
                name,
            } => {
                put_u32(stream, out);
                put_u64(epoch, out);
                put_text(name, out);
            }
            Self::Sealed {
                stream,
                partition,
                end,
            } => {
                put_u32(stream, out);
                put_u16(partition, out);
                put_u64(end, out);
            }
            Self::Note { key, value } => {
                put_text(key, out);
                out.extend_from_slice(value);
            }
        }
    }

    /// Reads what [`Record::encode_body`] wrote.
    pub(crate) fn decode(kind: u8, flags: u8, body: &'a [u8]) -> Result<Self, BodyError> {
        let mut reader = Reader(body);
        if !(matches!(kind, 1 | 9 | 15) || kind == 10 && flags == MAYBE_SENT || flags == 0) {
            return Err(BodyError::Flags);
        }
        let from = &mut reader;
        let record = match kind {
            1 => Self::Message(Message::decode(flags, from)?),
            2 => Self::Route {
                message: from.varint()?,
                first: from.varint()?,
                recipients: Recipients::decode(from)?,
            },
            3 => Self::Gate {
                session: from.varint()?,
                packet_id: from.u16()?,
            },
            4 => Self::Released {
                session: from.varint()?,
                packet_id: from.u16()?,
            },
            5 => Self::Sending {
                session: from.varint()?,
                delivery: from.varint()?,
                packet_id: from.u16()?,
            },
            6 => Self::Received {
                session: from.varint()?,
                packet_id: from.u16()?,
            },
            7 => Self::Completed {
                session: from.varint()?,
                packet_ids: PacketIds::decode(from)?,
            },
            8 => Self::Dropped {
                session: from.varint()?,
                delivery: from.varint()?,
            },
            9 => Self::Opened(Opened::decode(flags, from)?),
            10 => Self::Away {
                session: from.varint()?,
                at_ms: from.u64()?,
                expiry_s: from.u32()?,
                maybe_sent_below: if flags == MAYBE_SENT {
                    from.varint()?
                } else {
                    0
                },
            },
            11 => Self::Ended {
                session: from.varint()?,
            },
            12 => Self::Subscribed {
                session: from.varint()?,
                options: from.byte()?,
                id: u32::try_from(from.varint()?).map_err(|_| BodyError::Number)?,
                filter: from.text()?,
            },
            13 => Self::Unsubscribed {
                session: from.varint()?,
                filter: from.text()?,
            },
            14 => Self::RetainCleared {
                topic: from.text()?,
            },
            15 => Self::WillSet(WillSet::decode(flags, from)?),
            16 => Self::WillEnded {
                session: from.varint()?,
            },
            20 => Self::Stream {
                stream: from.u32()?,
                epoch: from.u64()?,
                name: from.text()?,
            },
            21 => Self::Sealed {
                stream: from.u32()?,
                partition: from.u16()?,
                end: from.u64()?,
            },
            22 => Self::Note {
                key: from.text()?,
                value: from.rest(),
            },
            kind => return Err(BodyError::Kind(kind)),
        };
        reader.end()?;
        Ok(record)
    }
}
