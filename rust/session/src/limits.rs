//! Limits of one session, with the defaults of the threat model.

use mqttcore_codec::{Limits, QoS};
use mqttcore_topics::TopicLimits;

/// Largest packet that MQTT can announce, in bytes with its fixed header.
pub const PACKET_BYTES_MAX: u32 = 268_435_460;

/// Every limit that a session enforces, and what CONNACK announces of it.
///
/// The fields are public: the caller validates the configuration, the session trusts it. Sessions share the limits in
/// an `Arc`; a client with limits of its own gets its own copy.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one switch of the configuration"
)]
pub struct ServerLimits {
    /// QoS 1 and 2 messages that a v5 client may have in flight to the server, at least 1.
    pub receive_maximum: u16,
    /// Largest packet that is accepted after CONNECT, in bytes with its fixed header.
    pub maximum_packet_size: u32,
    /// Largest packet that is accepted up to and including CONNECT, in bytes with its fixed header.
    pub connect_packet_bytes: u32,
    /// Topic aliases that a v5 client may set on one connection.
    pub topic_alias_maximum: u16,
    /// Highest number of topic aliases that the server sets on one connection, if the client accepts as many.
    pub outgoing_topic_alias_maximum: u16,
    /// Highest QoS that is accepted in a PUBLISH or a will, and granted to a subscription.
    pub maximum_qos: QoS,
    /// Retained publishes are accepted.
    pub retain_available: bool,
    /// Filters with `+` or `#` are accepted.
    pub wildcard_subscription_available: bool,
    /// Subscription Identifiers are accepted.
    pub subscription_identifiers_available: bool,
    /// `$share/name/filter` is accepted.
    pub shared_subscription_available: bool,
    /// Longest Keep Alive of a v5 client in seconds, also used if the client disables Keep Alive; 0: no cap.
    pub keep_alive_max_s: u16,
    /// Longest time in seconds that a session outlives its connection; `u32::MAX`: no limit.
    pub session_expiry_max_s: u32,
    /// Maximum length of a client identifier, in bytes.
    pub client_id_bytes: usize,
    /// Refuses client identifiers with `+`, `#`, control or non-characters (abuse C12).
    pub client_id_strict: bool,
    /// Maximum number of QoS 1 and 2 messages in flight to the client, even if its Receive Maximum is higher; at least
    /// 1.
    pub inflight_max: u16,
    /// Maximum bytes of topics, properties and payloads of unacknowledged QoS 1 and 2 publishes. A larger message is
    /// sent alone. 0: no limit.
    pub max_inflight_bytes: usize,
    /// Maximum number of messages that the queue holds in memory. Further messages wait in the store if it has them,
    /// unless the queue policy drops the oldest.
    pub queue_messages: usize,
    /// Maximum bytes of topics, properties and payloads that the queue holds in memory.
    pub queue_bytes: usize,
    /// Maximum number of queued messages in memory and in the store together.
    pub queue_disk_messages: usize,
    /// Maximum bytes of topics, properties and payloads of queued messages in memory and in the store together.
    pub queue_disk_bytes: usize,
    /// Treatment of a message if the queue is full.
    pub queue_policy: QueuePolicy,
    /// Queues QoS 0 messages, too, while the client is offline.
    pub queue_qos0: bool,
    /// Delivers at the granted QoS of the subscription, even if the message was published at a lower QoS.
    pub upgrade_outgoing_qos: bool,
    /// Maximum bytes of QoS 0 messages that wait to be polled while the client is connected.
    pub qos0_backlog_bytes: usize,
    /// Maximum number of subscriptions of a session.
    pub subscriptions: usize,
    /// Maximum number of levels of all filters of a session, each from its first `+` on: a search for a topic may visit
    /// them all. A filter that exceeds it is refused with 0x97.
    pub wildcard_levels: usize,
    /// Maximum number of filters in one SUBSCRIBE that are handled; further ones are refused with 0x97.
    pub filters_per_packet: usize,
    /// Maximum length and depth of topic names and filters.
    pub topic: TopicLimits,
    /// Maximum number of user properties in one packet.
    pub user_properties: u16,
    /// Maximum bytes of user properties in one packet.
    pub user_property_bytes: u32,
    /// AUTH packets that a client may send in one exchange.
    pub authentication_rounds: u8,
    /// Stray acknowledgements, minus valid ones, that are tolerated on one connection; more end it with 0x96 (abuse
    /// D15).
    pub stray_acknowledgements: u16,
    /// Refuses a payload that is not UTF-8 although its Payload Format Indicator is 1 (abuse B15).
    pub payload_format_checked: bool,
}

/// Treatments of a message if the queue is full (docs/decisions.md, 20).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum QueuePolicy {
    /// The new message is dropped.
    #[default]
    DropNewest,
    /// The oldest messages are dropped.
    DropOldest,
    /// The message is dropped, and a connected client is disconnected with 0x97.
    Disconnect,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            receive_maximum: 64,
            // a payload of 1 MiB, and 64 KiB for its topic and properties
            maximum_packet_size: (1 << 20) + (64 << 10),
            connect_packet_bytes: 8 << 10,
            topic_alias_maximum: 10,
            outgoing_topic_alias_maximum: 10,
            maximum_qos: QoS::ExactlyOnce,
            retain_available: true,
            wildcard_subscription_available: true,
            subscription_identifiers_available: true,
            shared_subscription_available: true,
            keep_alive_max_s: 3_600,
            session_expiry_max_s: 7 * 24 * 3_600,
            client_id_bytes: 256,
            client_id_strict: true,
            inflight_max: 32,
            max_inflight_bytes: 0,
            queue_messages: 1_000,
            queue_bytes: 8 << 20,
            queue_disk_messages: usize::MAX,
            queue_disk_bytes: 1 << 30,
            queue_policy: QueuePolicy::DropNewest,
            queue_qos0: false,
            upgrade_outgoing_qos: false,
            // as the largest packet (ADR 0143)
            qos0_backlog_bytes: (1 << 20) + (64 << 10),
            subscriptions: 1_000,
            wildcard_levels: 8_000,
            filters_per_packet: 100,
            topic: TopicLimits::default(),
            user_properties: 64,
            user_property_bytes: 16 << 10,
            authentication_rounds: 8,
            stray_acknowledgements: 1_000,
            payload_format_checked: false,
        }
    }
}

impl ServerLimits {
    /// Decoder limits before CONNECT is accepted.
    pub fn before_connect(&self) -> Limits {
        self.with_packet_bytes(self.connect_packet_bytes)
    }

    /// Decoder limits after CONNECT is accepted.
    pub fn after_connect(&self) -> Limits {
        self.with_packet_bytes(self.maximum_packet_size)
    }

    /// The QoS of a delivery: the lower one of published and granted QoS [MQTT-3.8.4-8], or the granted one if that is
    /// configured.
    pub fn outgoing_qos(&self, published: QoS, granted: QoS) -> QoS {
        if self.upgrade_outgoing_qos {
            granted
        } else {
            published.min(granted)
        }
    }

    fn with_packet_bytes(&self, packet_bytes: u32) -> Limits {
        Limits {
            packet_bytes,
            user_properties: self.user_properties,
            user_property_bytes: self.user_property_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decoder_takes_smaller_packets_before_connect_than_afterwards() {
        let limits = ServerLimits {
            connect_packet_bytes: 1,
            maximum_packet_size: 2,
            user_properties: 3,
            user_property_bytes: 4,
            ..ServerLimits::default()
        };

        let of = |limits: Limits| {
            let properties = (limits.user_properties, limits.user_property_bytes);
            (limits.packet_bytes, properties)
        };
        assert_eq!(of(limits.before_connect()), (1, (3, 4)));
        assert_eq!(of(limits.after_connect()), (2, (3, 4)));
    }
}
