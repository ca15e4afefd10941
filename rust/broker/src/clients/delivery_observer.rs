//! Observers of deliveries (ADR 0118).

use mqttcore_session::Message;

use crate::clients::target::Target;

/// Sees the messages of shards of the type `S`, and their targets.
pub(crate) trait DeliveryObserver<S>: Send + Sync {
    /// Sees a message before the session of `target`, on this shard, gets it.
    fn observe(&self, shard: &S, message: &Message, target: &Target);
}
