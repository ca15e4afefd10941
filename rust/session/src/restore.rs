//! Restores a session from a store, and lists what a store has to keep of one.

use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{PacketId, ProtocolVersion};

use crate::inflight::InFlightEntry;
use crate::limits::ServerLimits;
use crate::message::Message;
use crate::outbound::Delivery;
use crate::queue::{Outgoing, SubscriptionIds};
use crate::session::Session;
use crate::subscriptions::Subscription;
use crate::will::WillMessage;

impl Session {
    /// A session that was kept: without a connection since `since`, and without state so far.
    ///
    /// Put back what it had with the `restore_` methods, each in the order in which it came to be.
    /// Its deadlines run from `since`, so the expiry of a session and the delay of its will go on
    /// while the broker is down.
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

    /// Puts back a granted subscription.
    pub fn restore_subscription(&mut self, subscription: Subscription) {
        let Subscription { filter, options } = subscription;
        self.subscriptions.insert(filter, options);
    }

    /// Puts back the will of a connection that ended without a word to the store.
    pub fn restore_will(&mut self, will: WillMessage) {
        self.live.will = Some(Box::new(will));
    }

    /// Puts back a QoS 2 identifier of the client's that it has not released: a repeat of its
    /// PUBLISH is a repeat [MQTT-4.3.3-10].
    pub fn restore_received(&mut self, packet_id: PacketId) {
        let incoming = self.live.incoming.get_or_insert_default();
        incoming.received.insert(packet_id);
    }

    /// Restores a message in flight, at the QoS of `delivery`: it is sent again under its
    /// own identifier, as a repeat [MQTT-4.4.0-1, MQTT-3.3.1-1].
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

    /// Puts back an identifier whose PUBREL waits for PUBCOMP [MQTT-4.3.3-6].
    pub fn restore_release(&mut self, packet_id: PacketId) {
        self.live.packet_ids.use_up();
        self.live.in_flight.restore_release(packet_id);
    }

    /// QoS 2 identifiers of the client's that it has not released, for a store that begins to keep
    /// the session.
    pub fn unreleased_ids(&self) -> impl Iterator<Item = PacketId> {
        let incoming = self.live.incoming.iter();
        incoming.flat_map(|incoming| incoming.received.iter())
    }

    /// QoS 2 identifiers of messages to the client without PUBCOMP, for the same.
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
    }
}
