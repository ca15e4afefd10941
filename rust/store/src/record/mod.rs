//! Records of the log: one type for each change that must survive the process.
//!
//! Every record has a *type* and *flags* (a byte each, in the frame), and a body. Fields stand in
//! the order given here; see [`crate::BodyError`] for what is refused. `session`, `message`,
//! `delivery` and counts are varints; packet identifiers are `u16`; `text` is a `u16` length and
//! UTF-8; `bytes` is a varint length and bytes; *rest* goes to the end of the body.
//!
//! | type | record | flags | body |
//! | --- | --- | --- | --- |
//! | 1 | [`MessageRecord`] | 0-1 QoS, 2 RETAIN, 3 kept, 4 exactly-once key, 5 expiry, 6 source, 7 rows | rows: see [`Streamed`]; message; exactly-once key: session, packet id; expiry: `u64` ms; source: text, the user name in it behind U+0000; topic: text; properties: bytes; recipients; payload: rest |
//! | 2 | [`Record::Route`] | | message; first delivery; recipients |
//! | 3 | [`Record::ExactlyOnceKey`] | | session; packet id |
//! | 4 | [`Record::Released`] | | session; packet id |
//! | 5 | [`Record::Sending`] | | session; delivery; packet id |
//! | 6 | [`Record::Received`] | | session; packet id |
//! | 7 | [`Record::Completed`] | | session; then to the end (packet id, varint length of the run) |
//! | 8 | [`Record::Dropped`] | | session; delivery |
//! | 9 | [`SessionOpened`] | 0 user name | session; `u64` ms; version: byte; expiry: `u32` s; client id: text; user name: text |
//! | 10 | [`Away`] | 0 maybe sent | session; `u64` ms; expiry: `u32` s; maybe sent: varint |
//! | 11 | [`Record::Ended`] | | session |
//! | 12 | [`Record::Subscribed`] | | session; options: byte; subscription id: varint, 0 none; filter: text |
//! | 13 | [`Record::Unsubscribed`] | | session; filter: text |
//! | 14 | [`Record::RetainCleared`] | | topic: text |
//! | 15 | [`WillSet`] | 0-1 QoS, 2 RETAIN | session; delay: `u32` s; topic: text; properties: bytes; payload: rest |
//! | 16 | [`Record::WillEnded`] | | session |
//! | 20 | [`Record::Stream`] | | stream: `u32`; epoch: `u64`; name: text |
//! | 21 | [`Record::Sealed`] | | stream: `u32`; partition: `u16`; end: `u64` |
//! | 22 | [`Record::Note`] | | key: text; value: rest |
//! | 255 | commit marker | | see [`crate::wal`] |
//!
//! Recipients: a count, then for each: session; a byte with QoS in bits 0-1, RETAIN in 2, and in 3
//! whether subscription identifiers follow (a count and varints). Delivery *i* of a message has
//! the number `first + i`; of a [`MessageRecord`], `first` is its own number.

mod parts;
mod recipients;

use crate::wire::{BodyError, RecordReader};

pub use self::parts::{Away, MessageRecord, SessionOpened, WillSet};
pub(crate) use self::parts::{is_streamed, qos};
pub use crate::rows::{RowRef, RowRefs, RowRefsBuf, Streamed};
pub use crate::runs::{PacketIdRuns, PacketIdRunsBuf};
pub use recipients::{Recipient, Recipients, RecipientsBuf};

pub(crate) const COMMIT: u8 = 255;

/// Functions that write the fields of a body; each has the name of the [`RecordReader`] method that reads the field.
mod put {
    use super::{PacketIdRuns, Recipients};
    pub(super) use crate::wire::{
        put_text as text, put_u16 as u16, put_u32 as u32, put_u64 as u64, put_varint as varint,
    };

    pub(super) fn byte(value: u8, out: &mut Vec<u8>) {
        out.push(value);
    }

    pub(super) fn varint_u32(value: u32, out: &mut Vec<u8>) {
        varint(value.into(), out);
    }

    pub(super) fn remainder(value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    pub(super) fn recipients(value: Recipients<'_>, out: &mut Vec<u8>) {
        value.encode(out);
    }

    pub(super) fn packet_ids(value: PacketIdRuns<'_>, out: &mut Vec<u8>) {
        value.encode(out);
    }
}

/// Declares [`Record`] and how each record is written and read: its type in the frame, then the fields of its body in
/// order, each with its encoding. Records with flags are structs with their own `encode` and `decode`.
macro_rules! records {
    (
        with_flags { $( $(#[$struct_doc:meta])* $struct_kind:literal $Struct:ident($type:ty), )* }
        without_flags { $( $(#[$doc:meta])* $kind:literal $Name:ident {
            $( $(#[$field_doc:meta])* $field:ident: $field_type:ty = $encoding:ident, )*
        } )* }
    ) => {
        /// One change of the state, borrowed from the log or from its writer.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Record<'a> {
            $( $(#[$struct_doc])* $Struct($type), )*
            $( $(#[$doc])* $Name { $( $(#[$field_doc])* $field: $field_type, )* }, )*
        }

        impl<'a> Record<'a> {
            pub(crate) fn kind(&self) -> u8 {
                match self {
                    $( Self::$Struct(_) => $struct_kind, )*
                    $( Self::$Name { .. } => $kind, )*
                }
            }

            pub(crate) fn flags(&self) -> u8 {
                match self {
                    $( Self::$Struct(record) => record.flags(), )*
                    _ => 0,
                }
            }

            pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
                match *self {
                    $( Self::$Struct(ref record) => record.encode(out), )*
                    $( Self::$Name { $( $field ),* } => { $( put::$encoding($field, out); )* } )*
                }
            }

            /// Decodes a body that [`Record::encode_body`] wrote.
            pub(crate) fn decode(kind: u8, flags: u8, body: &'a [u8]) -> Result<Self, BodyError> {
                let mut from = RecordReader(body);
                let record = match kind {
                    $( $struct_kind => Self::$Struct(<$type>::decode(flags, &mut from)?), )*
                    _ if flags != 0 => return Err(BodyError::Flags),
                    $( $kind => Self::$Name { $( $field: from.$encoding()? ),* }, )*
                    _ => return Err(BodyError::Kind(kind)),
                };
                from.end()?;
                Ok(record)
            }
        }
    };
}

records! {
    with_flags {
        /// A message was accepted.
        1 Message(MessageRecord<'a>),
        /// A session began, or a connection resumed it.
        9 Opened(SessionOpened<'a>),
        /// A session's connection ended; its expiry interval runs.
        10 Away(Away),
        /// A connection set a will.
        15 WillSet(WillSet<'a>),
    }
    without_flags {
        /// A message that the log already has goes to more sessions: a retained message to a new subscriber, or the
        /// rest of a large fan-out.
        2 Route {
            /// Number of the message.
            message: u64 = varint,
            /// Number of the first delivery.
            first: u64 = varint,
            /// Its recipients.
            recipients: Recipients<'a> = recipients,
        }
        /// A QoS 2 PUBLISH was accepted and only its identifier is stored.
        3 ExactlyOnceKey {
            /// The publisher's session.
            session: u64 = varint,
            /// The publisher's packet identifier.
            packet_id: u16 = u16,
        }
        /// The publisher released a QoS 2 identifier: its next use is a new message.
        4 Released {
            /// The publisher's session.
            session: u64 = varint,
            /// The publisher's packet identifier.
            packet_id: u16 = u16,
        }
        /// A queued message got a packet identifier and will be sent.
        5 Sending {
            /// The receiver's session.
            session: u64 = varint,
            /// Number of the delivery.
            delivery: u64 = varint,
            /// Its packet identifier.
            packet_id: u16 = u16,
        }
        /// The receiver has the QoS 2 message, or may have a message that the log does not have: only its release is
        /// open.
        6 Received {
            /// The receiver's session.
            session: u64 = varint,
            /// Its packet identifier.
            packet_id: u16 = u16,
        }
        /// Exchanges with a receiver are complete.
        7 Completed {
            /// The receiver's session.
            session: u64 = varint,
            /// Their packet identifiers.
            packet_ids: PacketIdRuns<'a> = packet_ids,
        }
        /// A queued message left the queue without a packet identifier: sent at QoS 0, or dropped.
        8 Dropped {
            /// The receiver's session.
            session: u64 = varint,
            /// Number of the delivery.
            delivery: u64 = varint,
        }
        /// A session ended: all its state is deleted.
        11 Ended {
            /// The session.
            session: u64 = varint,
        }
        /// A subscription was granted or changed.
        12 Subscribed {
            /// The session.
            session: u64 = varint,
            /// Subscription options, packed by the engine; the store does not interpret them.
            options: u8 = byte,
            /// Subscription Identifier; 0 is none.
            id: u32 = varint_u32,
            /// The topic filter as the client sent it.
            filter: &'a str = text,
        }
        /// A subscription ended.
        13 Unsubscribed {
            /// The session.
            session: u64 = varint,
            /// The topic filter as the client sent it.
            filter: &'a str = text,
        }
        /// The retained message of a topic was removed.
        14 RetainCleared {
            /// The topic.
            topic: &'a str = text,
        }
        /// A will was published or cancelled; the published message is in the same batch.
        16 WillEnded {
            /// The session.
            session: u64 = varint,
        }
        /// A stream has this number from now on, or its offsets have a new epoch.
        20 Stream {
            /// Its number, which no earlier stream of this store had.
            stream: u32 = u32,
            /// Grows whenever an offset that a consumer may know can refer to another row.
            epoch: u64 = u64,
            /// Its name.
            name: &'a str = text,
        }
        /// Rows are in durable files: the log is no longer needed for them.
        21 Sealed {
            /// The stream.
            stream: u32 = u32,
            /// The partition.
            partition: u16 = u16,
            /// The first offset that is not sealed.
            end: u64 = u64,
        }
        /// A value that the engine stores under a key, atomically with the rest of the batch.
        22 Note {
            /// The key; its last note is valid.
            key: &'a str = text,
            /// The value, encoded by the engine; the store does not interpret it. Empty: the key is removed.
            value: &'a [u8] = remainder,
        }
    }
}

impl<'a> RecordReader<'a> {
    fn varint_u32(&mut self) -> Result<u32, BodyError> {
        u32::try_from(self.varint()?).map_err(|_| BodyError::Number)
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "as all functions that read a field"
    )]
    fn remainder(&mut self) -> Result<&'a [u8], BodyError> {
        Ok(self.rest())
    }

    fn recipients(&mut self) -> Result<Recipients<'a>, BodyError> {
        Recipients::decode(self)
    }

    fn packet_ids(&mut self) -> Result<PacketIdRuns<'a>, BodyError> {
        PacketIdRuns::decode(self)
    }
}
