//! Events of a session for the engine.

use mqttcore_codec::{PacketId, QoS};

use crate::gate::AckToken;
use crate::message::Message;

/// Something that the engine has to do or to count.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// Durable sessions only: write `record`. If there is a token, an acknowledgement waits for the record: confirm the
    /// token once the record is safe. Without a token, the record may be written later.
    Record {
        /// The token to confirm.
        token: Option<AckToken>,
        /// The record to write.
        record: ExchangeRecord,
    },
    /// A message that was accepted for this client will not reach it. If the message has a key and the session is
    /// durable: write that the delivery ended, and confirm [`Session::last_token`](crate::Session::last_token) once
    /// that is safe.
    Dropped {
        /// Why the message is dropped.
        reason: DropReason,
        /// The QoS of the delivery.
        qos: QoS,
        /// The engine's key of the delivery.
        key: u64,
        /// The message.
        message: Message,
    },
    /// The next message to send is held: call [`Session::ask_undecided`](crate::Session::ask_undecided).
    Undecided,
    /// The queue is full and its policy is to disconnect the client: disconnect it with 0x97.
    Overflowed,
    /// The will delay has passed, or the session has ended: publish the will.
    WillDue(Message),
    /// The session has expired: remove it and its subscriptions.
    Expired,
}

/// One step of the QoS exchanges of a durable session.
///
/// Steps that the engine starts itself (CONNECT, publish, subscription) are not reported: the engine has their token
/// already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExchangeRecord {
    /// A message got a packet identifier and is about to be sent. A QoS 2 PUBLISH waits for the record. It is written
    /// even with key 0: if the identifier were lost in a crash, it could be used again, and the client would take the
    /// new message for a repeat.
    Sending {
        /// The packet identifier.
        packet_id: PacketId,
        /// QoS 1 or 2.
        qos: QoS,
        /// The engine's key of the delivery.
        key: u64,
    },
    /// The client has the QoS 2 message, so it must never be sent again. PUBREL waits for the record. Not reported with
    /// key 0.
    Received {
        /// The packet identifier.
        packet_id: PacketId,
        /// The engine's key of the delivery.
        key: u64,
    },
    /// An exchange with the client has ended: its identifier is free.
    Completed {
        /// The identifier.
        packet_id: PacketId,
    },
    /// The client released its own QoS 2 publish: the identifier stands for a new message from now on. PUBCOMP waits
    /// for the record.
    Released {
        /// The client's identifier.
        packet_id: PacketId,
    },
}

/// Why a message does not reach a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DropReason {
    /// The message is QoS 0 and the client is offline.
    Offline,
    /// The message is QoS 0 and the client reads too slowly.
    BacklogFull,
    /// The queue is full.
    QueueFull,
    /// The message expired before its delivery began [MQTT-3.3.2-5].
    Expired,
    /// The message is larger than the client's Maximum Packet Size [MQTT-3.1.2-25].
    PacketTooLarge,
    /// The client has lost the right to the message.
    Revoked,
    /// The topic is outside of the client's mount point.
    OutsideMountPoint,
    /// The engine decided so about a held message.
    Decision,
}
