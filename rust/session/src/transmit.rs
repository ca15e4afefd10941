//! Packets and messages that the engine writes to the client.

use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Instant;

use mqttcore_codec::{
    EncodeError, PacketId, Properties, PropertiesBuf, Property, ProtocolVersion, Publish,
    PublishQoS, QoS, Text, encode_publish_head,
};

use crate::alias::AliasUse;
use crate::chunk::Chunk;
use crate::control::Control;
use crate::message::{Message, is_forwarded};
use crate::queue::{Outgoing, SubscriptionIds};

/// A packet to write. Packets must be written in the order in which they were polled.
#[derive(Clone, Debug)]
pub enum Transmit {
    /// A message; its payload need not be copied.
    Publish(PublishTransmit),
    /// Anything else.
    Control(Control),
}

/// A PUBLISH: a shared message and the fields that belong to this client.
#[derive(Clone, Debug)]
pub struct PublishTransmit {
    pub(crate) outgoing: Outgoing,
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) dup: bool,
    pub(crate) alias: Option<AliasUse>,
    /// Length of the topic prefix that is removed for the client.
    pub(crate) hidden: usize,
}

impl PublishTransmit {
    /// The message.
    pub fn message(&self) -> &Message {
        &self.outgoing.message
    }

    /// The QoS of the delivery.
    pub fn qos(&self) -> QoS {
        self.outgoing.qos
    }

    /// The packet identifier; `None` at QoS 0.
    pub fn packet_id(&self) -> Option<PacketId> {
        self.packet_id
    }

    /// Whether it was sent before, on an earlier connection [MQTT-3.3.1-1].
    pub fn dup(&self) -> bool {
        self.dup
    }

    /// The RETAIN flag of the delivery.
    pub fn retain(&self) -> bool {
        self.outgoing.retain
    }

    /// The topic alias that the packet sets or uses.
    pub fn alias(&self) -> Option<AliasUse> {
        self.alias
    }

    /// The Subscription Identifiers of the delivery.
    pub fn subscription_ids(&self) -> &[NonZeroU32] {
        self.outgoing.subscription_ids.as_slice()
    }

    /// The engine's key of the delivery, from [`Delivery`](crate::Delivery).
    pub fn key(&self) -> u64 {
        self.outgoing.key
    }

    /// The publisher's own frame, if this client may get it unchanged.
    pub fn shared_frame(&self, version: ProtocolVersion) -> Option<(&Chunk, Range<usize>)> {
        let outgoing = &self.outgoing;
        let is_plain = outgoing.qos == QoS::AtMostOnce
            && !outgoing.retain
            && self.alias.is_none()
            && self.hidden == 0
            && self.subscription_ids().is_empty();
        outgoing.message.frame(version).filter(|_| is_plain)
    }

    /// Appends all bytes of the packet before the payload. The lengths include the payload, which the caller writes
    /// next.
    ///
    /// The remaining message expiry is computed at `now` [MQTT-3.3.2-6]. `scratch` is cleared before use; reuse it to
    /// avoid allocations.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if the packet is too long for MQTT; `out` is then unchanged.
    pub fn encode_head(
        &self,
        version: ProtocolVersion,
        now: Instant,
        scratch: &mut PropertiesBuf,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let message = &self.outgoing.message;
        let publish = Publish {
            delivery: self.delivery(),
            retain: self.outgoing.retain,
            topic: self.topic(),
            properties: self.properties(version, now, scratch)?,
            payload: message.payload(),
        };
        encode_publish_head(&publish, version, out)
    }

    /// Appends the whole packet.
    ///
    /// # Errors
    ///
    /// As [`PublishTransmit::encode_head`].
    pub fn encode(
        &self,
        version: ProtocolVersion,
        now: Instant,
        scratch: &mut PropertiesBuf,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.encode_head(version, now, scratch, out)?;
        out.extend_from_slice(self.outgoing.message.payload());
        Ok(())
    }

    fn topic(&self) -> Text<'_> {
        if let Some(AliasUse::Replace(_)) = self.alias {
            return Text::EMPTY;
        }
        let topic = self.outgoing.message.topic();
        // INVARIANT: the topic was checked when it was published.
        Text::new(topic.get(self.hidden..).unwrap_or(topic)).expect("a published topic is text")
    }

    fn delivery(&self) -> PublishQoS {
        let dup = self.dup;
        match (self.packet_id, self.outgoing.qos) {
            (Some(packet_id), QoS::AtLeastOnce) => PublishQoS::AtLeastOnce { packet_id, dup },
            (Some(packet_id), QoS::ExactlyOnce) => PublishQoS::ExactlyOnce { packet_id, dup },
            _ => PublishQoS::AtMostOnce,
        }
    }

    fn properties<'a>(
        &'a self,
        version: ProtocolVersion,
        now: Instant,
        scratch: &'a mut PropertiesBuf,
    ) -> Result<Properties<'a>, EncodeError> {
        let message = &self.outgoing.message;
        let is_own = self.alias.is_some()
            || message.rewrites_properties()
            || !self.subscription_ids().is_empty();
        if !is_own || !version.has_properties() {
            return Ok(message.properties());
        }
        scratch.clear();
        for property in message.properties().iter().filter(is_forwarded) {
            scratch.push(match property {
                Property::MessageExpiryInterval(seconds) => Property::MessageExpiryInterval(
                    message.remaining_expiry_s(now).unwrap_or(seconds),
                ),
                property => property,
            })?;
        }
        if let Some(alias) = self.alias {
            scratch.push(Property::TopicAlias(alias.alias()))?;
        }
        for id in self.subscription_ids() {
            scratch.push(Property::SubscriptionIdentifier(*id))?;
        }
        Ok(scratch.as_properties())
    }
}

/// Maximum number of bytes that an alias adds: the property, and one more in each of two lengths.
pub(crate) const ALIAS_BYTES: u64 = 5;

/// The size of the PUBLISH for `outgoing` without an alias, for a client of `version` from which `hidden` bytes of the
/// topic are hidden.
pub(crate) fn publish_bytes(outgoing: &Outgoing, version: ProtocolVersion, hidden: usize) -> u64 {
    let ids = || subscription_id_bytes(&outgoing.subscription_ids);
    packet_bytes(&outgoing.message, outgoing.qos, version, hidden, ids)
}

impl Message {
    /// The size of a PUBLISH with this message, for a client of `version` that does not see `hidden` bytes of the
    /// topic.
    pub fn packet_bytes(&self, version: ProtocolVersion, hidden: usize) -> u64 {
        packet_bytes(self, self.qos(), version, hidden, || 0)
    }
}

fn packet_bytes(
    message: &Message,
    qos: QoS,
    version: ProtocolVersion,
    hidden: usize,
    id_bytes: impl FnOnce() -> u64,
) -> u64 {
    let packet_id = if qos == QoS::AtMostOnce { 0 } else { 2 };
    let properties = if version.has_properties() {
        with_length(message.forwarded_properties_len() as u64 + id_bytes())
    } else {
        0
    };
    let payload = message.payload_range().len();
    let topic = message.topic_len().saturating_sub(hidden);
    1 + with_length(2 + topic as u64 + packet_id + properties + payload as u64)
}

fn subscription_id_bytes(ids: &SubscriptionIds) -> u64 {
    let ids = ids.as_slice().iter();
    ids.map(|id| 1 + var_int_bytes(u64::from(id.get()))).sum()
}

/// The size of `bytes` bytes with their length as a Variable Byte Integer.
pub(crate) fn with_length(bytes: u64) -> u64 {
    var_int_bytes(bytes) + bytes
}

const fn var_int_bytes(value: u64) -> u64 {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}
