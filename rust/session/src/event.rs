//! Events of a session for the engine.

use mqttcore_codec::{PacketId, QoS};

use crate::gate::AckToken;
use crate::message::Message;

/// Something the engine has to do or may want to count.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// Durable sessions only: write `record`. With a token, an acknowledgement waits for it: confirm the
    /// token once the record is safe; without one it may be written late.
    Record {
        /// What to confirm.
        token: Option<AckToken>,
        /// What to write.
        record: ExchangeRecord,
    },
    /// A message that was accepted for this client will not reach it. If it has a key and the session is durable:
    /// write that the delivery ended, and confirm [`Session::last_token`](crate::Session::last_token) once that is safe.
    Dropped {
        /// Why.
        reason: DropReason,
        /// The engine's own number of the delivery.
        key: u64,
        /// The message.
        message: Message,
    },
    /// The queue is full and its policy says that the client goes: disconnect it with 0x97.
    Overflowed,
    /// The will's delay has passed, or the session has ended: publish it.
    WillDue(Message),
    /// The session has ended: forget it, and its subscriptions.
    Expired,
}

/// One step of a durable session's QoS exchanges.
///
/// Steps that the engine takes itself (a CONNECT, a publish, a subscription) are not told: it
/// holds their token already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExchangeRecord {
    /// A message got a packet identifier and is about to be sent. Above QoS 1 the PUBLISH waits for
    /// it, and it is told even with key 0: whoever forgets the identifier may use it again, and the
    /// client would take the new message for a repeat.
    Sending {
        /// Its identifier from now on.
        packet_id: PacketId,
        /// QoS 1 or 2.
        qos: QoS,
        /// The engine's own number of the delivery.
        key: u64,
    },
    /// The client has the QoS 2 message: it must never be sent again, and PUBREL waits for this. Not
    /// told with key 0.
    Received {
        /// Its identifier.
        packet_id: PacketId,
        /// The engine's own number of the delivery.
        key: u64,
    },
    /// An exchange with the client has ended: its identifier is free.
    Completed {
        /// The identifier.
        packet_id: PacketId,
    },
    /// The client released a QoS 2 publish of its own: the identifier stands for a new message
    /// from now on, and PUBCOMP waits for this.
    Released {
        /// The client's identifier.
        packet_id: PacketId,
    },
}

/// Why a message does not reach a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DropReason {
    /// QoS 0, and the client is away.
    Offline,
    /// QoS 0, and the client does not take them fast enough.
    BacklogFull,
    /// The queue has no room for it.
    QueueFull,
    /// Its Message Expiry passed before its delivery began [MQTT-3.3.2-5].
    Expired,
    /// It is larger than the client's Maximum Packet Size [MQTT-3.1.2-25].
    PacketTooLarge,
    /// The client may not have it any more.
    Revoked,
    /// The client cannot see its topic from behind its mount point.
    OutsideMountPoint,
}
