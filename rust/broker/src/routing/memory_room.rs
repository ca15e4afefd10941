//! Refusal of publishes that would be queued in memory while memory is short.

use mqttcore_codec::QoS;
use mqttcore_session::{Message, QueuePolicy};
use mqttcore_store::Durability;

use crate::clients::target::Target;
use crate::routing::publication::Publication;
use crate::routing::{memory, message_records};
use crate::shard::Shard;

/// Whether a publish is refused because it would wait in memory for one of `targets`.
pub(crate) fn lacks_memory(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &[Target],
) -> bool {
    let message = publication.message;
    if message.qos() == QoS::AtMostOnce || !memory::is_full(shard) {
        return false;
    }
    let is_stored = message_records::durability_of(shard, publication) > Durability::Memory;
    targets
        .iter()
        .filter(|target| !target.is_stream())
        .any(|target| waits_in_memory(shard, message, is_stored, target))
}

/// Whether `message` would stay in memory for a target, until its client connects or has room.
fn waits_in_memory(shard: &Shard, message: &Message, is_stored: bool, target: &Target) -> bool {
    let limits = &shard.config().limits;
    if limits.outgoing_qos(message.qos(), target.qos) == QoS::AtMostOnce {
        return false;
    }
    let (handle, engine) = (target.handle, &shard.engine);
    let availability = engine
        .availability
        .availability(handle.shard(), handle.slot());
    let waits = !availability.is_online || availability.holds_much;
    let goes_to_disk = is_stored
        && limits.queue_policy != QueuePolicy::DropOldest
        && engine.durable.number(handle).is_some();
    waits && !goes_to_disk
}
