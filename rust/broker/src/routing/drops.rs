//! Dropped messages: causes, counters, events and log lines.

use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::{DropReason, Message};

use crate::clients::client::Client;
use crate::clients::target::Target;
use crate::config::plugin_event::EventKind;
use crate::routing::memory::{self, Shortage};
use crate::routing::session_records;
use crate::runtime::log::{Escaped, LogCategory};
use crate::runtime::tallies::DropCounters;
use crate::shard::{EventDetails, Shard};

/// Maximum number of members of a group that are tried although they may not receive a message.
const MOST_DENIALS: usize = 32;

/// Why a message is dropped.
#[derive(Clone, Copy)]
pub(crate) enum DropCause {
    Backlog,
    Denied,
    Ended,
    /// Memory is short, and the client does not read the message at once.
    Memory,
    Session(DropReason),
}

impl DropCause {
    /// Maximum number of members of a group that are tried before the message is dropped for this reason. Later
    /// messages skip members without room, so all of them may be tried. Members without permission are asked again
    /// for the next message, so their number is limited. A message that is too large [MQTT-3.1.2-25] or expired is
    /// not offered to other members.
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

/// A message that is dropped.
#[derive(Clone, Copy)]
pub(super) struct Dropped<'m> {
    pub(super) message: &'m Message,
    /// The QoS of the delivery.
    pub(super) qos: QoS,
    /// The store's key of the delivery; 0 if it is not stored.
    pub(super) key: u64,
}

impl<'m> Dropped<'m> {
    /// A message that its session has not seen, granted with `granted`.
    pub(super) fn unseen(shard: &Shard, message: &'m Message, granted: QoS, key: u64) -> Self {
        let limits = &shard.config().limits;
        let qos = limits.outgoing_qos(message.qos(), granted);
        Self { message, qos, key }
    }
}

/// Drops a message: removes its delivery from the store, and counts the drop.
pub(super) fn drop_message(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    dropped: Dropped<'_>,
    reason: DropCause,
) {
    session_records::write_dropped(shard, client, dropped.key);
    count_drop(shard, client, dropped, reason);
}

/// Counts a message of a group that reached its member after the end of its session, if no other member could take
/// it. A message of a plain subscription is ignored, as if it had been published after the end.
pub(super) fn count_late_drop(shard: &Shard, message: &Message, target: &Target) {
    if target.choice.is_none() {
        return;
    }
    let (counter, why) = drop_counter(shard, DropCause::Ended);
    counter.count(Dropped::unseen(shard, message, target.qos, target.key).qos);
    shard.log.warn(LogCategory::Dropped, shard.now(), || {
        let topic = Escaped(message.topic());
        format!("message for a shared subscription on {topic} dropped: {why}")
    });
}

/// Counts and logs a drop and notifies the plugins.
fn count_drop(shard: &Rc<Shard>, client: &Rc<Client>, dropped: Dropped<'_>, reason: DropCause) {
    let Dropped { message, qos, key } = dropped;
    let (counter, why) = drop_counter(shard, reason);
    counter.count(qos);
    let is_acknowledged = key != 0 && message.qos() > QoS::AtMostOnce;
    if is_acknowledged && matches!(reason, DropCause::Session(DropReason::QueueFull)) {
        shard.metrics().dropped_acknowledged.add(1);
    }
    if matches!(reason, DropCause::Session(DropReason::Offline)) {
        // QoS 0 for an offline session: counted, but not logged.
        return;
    }
    let details = EventDetails {
        topic: Some(message.topic()),
        reason: None,
        why: Some(why),
    };
    shard.send_event(EventKind::Dropped, client, details);
    if matches!(reason, DropCause::Memory) {
        return memory::log_of(shard, Shortage::Delivery, Some(client));
    }
    shard.log.warn(LogCategory::Dropped, shard.now(), || {
        let (who, topic) = (client.named(), Escaped(message.topic()));
        let text = format!("message for {who} on {topic} dropped: {why}");
        client.log_entry("dropped", text)
    });
}

fn drop_counter(shard: &Shard, reason: DropCause) -> (&DropCounters, &'static str) {
    let metrics = shard.metrics();
    match reason {
        DropCause::Backlog => (&metrics.dropped_qos0_backlog, "the client reads too slowly"),
        DropCause::Denied => (&metrics.dropped_denied, "its grant denies the topic"),
        DropCause::Ended => (&metrics.dropped_session_ended, "its session ended"),
        DropCause::Memory => (&metrics.dropped_memory, Shortage::Delivery.text()),
        DropCause::Session(DropReason::BacklogFull) => {
            (&metrics.dropped_qos0_backlog, "the client reads too slowly")
        }
        DropCause::Session(DropReason::Offline) => (
            &metrics.dropped_offline,
            "QoS 0 and the client is not connected",
        ),
        DropCause::Session(DropReason::Revoked) => (
            &metrics.dropped_denied,
            "its grant no longer allows the topic",
        ),
        DropCause::Session(DropReason::OutsideMountPoint) => (
            &metrics.dropped_denied,
            "its topic is outside of the client's mount point",
        ),
        DropCause::Session(DropReason::Decision) => (&metrics.dropped_hook, "a plugin dropped it"),
        DropCause::Session(DropReason::Expired) => (&metrics.dropped_expired, "it expired"),
        DropCause::Session(DropReason::PacketTooLarge) => (
            &metrics.dropped_too_large,
            "it exceeds the client's Maximum Packet Size",
        ),
        DropCause::Session(_) => (&metrics.dropped_queue_full, "its queue is full"),
    }
}
