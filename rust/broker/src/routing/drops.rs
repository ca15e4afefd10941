//! Messages that are dropped: a reason, a counter, an event and a line in the log.

use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::{DropReason, Message};

use crate::clients::client::Client;
use crate::clients::target::Target;
use crate::config::hooks::EventKind;
use crate::routing::memory::{self, Shortage};
use crate::routing::session_records;
use crate::runtime::log::{Escaped, LogCategory};
use crate::runtime::metrics::Counter;
use crate::shard::{EventDetails, Shard};

/// Most members of a group that may not have a message and are tried all the same.
const MOST_DENIALS: usize = 32;

/// Why a message is dropped.
#[derive(Clone, Copy)]
pub(super) enum Drop {
    Backlog,
    Denied,
    Ended,
    /// Memory is short, and the client does not take it at once.
    Memory,
    Session(DropReason),
}

impl Drop {
    /// How many members of a group may be tried before the message is dropped for this reason.
    ///
    /// Members without room are passed over by later messages, so all may be tried. Members that may not have this one
    /// are asked for the next, so their number is bounded. A message that is too large [MQTT-3.1.2-25] or has expired
    /// goes to nobody else.
    pub(super) fn most_tried(self) -> usize {
        use DropReason::{BacklogFull, Offline, OutsideMountPoint, QueueFull};
        match self {
            Self::Backlog | Self::Ended | Self::Memory => usize::MAX,
            Self::Session(QueueFull | BacklogFull | Offline) => usize::MAX,
            Self::Denied | Self::Session(OutsideMountPoint) => MOST_DENIALS,
            Self::Session(_) => 0,
        }
    }
}

/// Takes a message that reaches nobody out of the books of the store, and into those of drops.
pub(super) fn discard(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    key: u64,
    reason: Drop,
) {
    session_records::dropped(shard, client, key);
    dropped(shard, client, message, key, reason);
}

/// A message of a group came too late for a session that ended, and nobody else could take it. One of a plain
/// subscription is as if it had come after its end.
pub(super) fn book_late(shard: &Shard, message: &Message, target: &Target) {
    if target.choice.is_none() {
        return;
    }
    let (counter, why) = ledger(shard, Drop::Ended);
    counter.add(1);
    shard.log.warn(LogCategory::Dropped, shard.now(), || {
        let topic = Escaped(message.topic());
        format!("message for a shared subscription on {topic} dropped: {why}")
    });
}

/// Books a deliberate drop: a counter, a line in the log, an event.
pub(super) fn dropped(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    key: u64,
    reason: Drop,
) {
    if matches!(reason, Drop::Memory) {
        memory::report_of(shard, Shortage::Delivery, Some(client));
        return shard.tell(EventKind::Dropped, client, of_topic(message));
    }
    let (counter, why) = ledger(shard, reason);
    counter.add(1);
    let is_acknowledged = key != 0 && message.qos() > QoS::AtMostOnce;
    if is_acknowledged && matches!(reason, Drop::Session(DropReason::QueueFull)) {
        shard.metrics().dropped_acknowledged.add(1);
    }
    if matches!(reason, Drop::Session(DropReason::Offline)) {
        // What QoS 0 means for a session that is away: counted, but nobody's fault.
        return;
    }
    shard.tell(EventKind::Dropped, client, of_topic(message));
    shard.log.warn(LogCategory::Dropped, shard.now(), || {
        let (id, topic) = (Escaped(&client.id), Escaped(message.topic()));
        format!("message for client {id} on {topic} dropped: {why}")
    });
}

fn of_topic(message: &Message) -> EventDetails<'_> {
    EventDetails {
        topic: Some(message.topic()),
        reason: None,
    }
}

pub(super) fn ledger(shard: &Shard, reason: Drop) -> (&Counter, &'static str) {
    let metrics = shard.metrics();
    match reason {
        Drop::Backlog => (&metrics.dropped_qos0_backlog, "the client reads too slowly"),
        Drop::Denied => (&metrics.dropped_denied, "its grant denies the topic"),
        Drop::Ended => (&metrics.dropped_session_ended, "its session ended"),
        Drop::Memory => (&metrics.dropped_memory, Shortage::Delivery.text()),
        Drop::Session(DropReason::BacklogFull) => {
            (&metrics.dropped_qos0_backlog, "the client reads too slowly")
        }
        Drop::Session(DropReason::Offline) => (
            &metrics.dropped_offline,
            "QoS 0 and the client is not connected",
        ),
        Drop::Session(DropReason::Revoked) => (
            &metrics.dropped_denied,
            "its grant no longer allows the topic",
        ),
        Drop::Session(DropReason::OutsideMountPoint) => (
            &metrics.dropped_denied,
            "its topic is outside of the client's mount point",
        ),
        Drop::Session(DropReason::Expired) => (&metrics.dropped_expired, "it expired"),
        Drop::Session(DropReason::PacketTooLarge) => (
            &metrics.dropped_too_large,
            "it exceeds the client's Maximum Packet Size",
        ),
        Drop::Session(_) => (&metrics.dropped_queue_full, "its queue is full"),
    }
}
