//! Restores a session from a store, and lists the state that a store has to keep.

use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{PacketId, ProtocolVersion};

use crate::inflight::InFlightEntry;
use crate::limits::ServerLimits;
use crate::message::Message;
use crate::outbound::Delivery;
use crate::queue::{Hold, Outgoing, SubscriptionIds};
use crate::session::Session;
use crate::subscriptions::Subscription;
use crate::will::WillMessage;

impl Session {
    /// Creates a session that was stored. It has no connection since `since`, and no state yet.
    ///
    /// Restore its state with the `restore_` methods, each in the original order. Deadlines run from `since`, so
    /// session expiry and will delay continue while the broker is down.
    pub fn restored(
        version: ProtocolVersion,
        limits: Arc<ServerLimits>,
        since: Instant,
        expiry_interval_s: u32,
    ) -> Self {
        let mut session = Self::new(limits);
        session.version = version;
        session.since = Some(since);
        session.expiry_interval_s = expiry_interval_s;
        session
    }

    /// Restores a granted subscription.
    pub fn restore_subscription(&mut self, subscription: Subscription) {
        let Subscription { filter, options } = subscription;
        self.subscriptions.insert(filter, options);
    }

    /// Restores the will of a connection whose end was not recorded.
    pub fn restore_will(&mut self, will: WillMessage) {
        self.live.rare.will = Some(Box::new(will));
    }

    /// Restores a QoS 2 identifier that the client has not released: a PUBLISH with it is a repeat [MQTT-4.3.3-10].
    pub fn restore_received(&mut self, packet_id: PacketId) {
        let incoming = self.live.rare.incoming.get_or_insert_default();
        incoming.received.insert(packet_id);
    }

    /// Restores a message in flight, at the QoS of `delivery`: it is sent again with its packet identifier and DUP
    /// [MQTT-4.4.0-1, MQTT-3.3.1-1], once the engine has decided about it if it is held.
    pub fn restore_publish(
        &mut self,
        packet_id: PacketId,
        message: Message,
        delivery: Delivery<'_>,
    ) {
        let outgoing = outgoing(message, delivery);
        self.live.packet_ids.use_up();
        self.live
            .in_flight
            .restore(InFlightEntry::restored(outgoing, packet_id));
    }

    /// Restores an identifier whose PUBREL waits for PUBCOMP [MQTT-4.3.3-6].
    pub fn restore_release(&mut self, packet_id: PacketId) {
        self.live.packet_ids.use_up();
        self.live.in_flight.restore_release(packet_id);
    }

    /// QoS 2 identifiers that the client has not released, for a store that starts to keep the session.
    pub fn unreleased_ids(&self) -> impl Iterator<Item = PacketId> {
        let incoming = self.live.rare.incoming.iter();
        incoming.flat_map(|incoming| incoming.received.iter())
    }

    /// QoS 2 identifiers of messages to the client without PUBCOMP, for a store that starts to keep the session.
    pub fn exactly_once_ids(&self) -> impl Iterator<Item = PacketId> {
        self.live.in_flight.exactly_once_ids()
    }
}

pub(crate) fn outgoing(message: Message, delivery: Delivery<'_>) -> Outgoing {
    Outgoing {
        message,
        subscription_ids: SubscriptionIds::new(delivery.subscription_ids),
        key: delivery.key,
        qos: delivery.qos,
        retain: delivery.retain,
        maybe_sent: false,
        hold: Hold::new(delivery.is_held),
    }
}
