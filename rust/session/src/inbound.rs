//! Messages from the client: handles PUBLISH and PUBREL, sends PUBACK, PUBREC and PUBCOMP.

use std::num::NonZeroU16;

use mqttcore_codec::{Ack, PacketId, PacketType, Property, Publish, QoS, ReasonCode, Text};
use mqttcore_topics::TopicName;

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::composed::check_property;
use crate::control::{Control, ControlKind, Details, listed};
use crate::event::{ExchangeRecord, SessionEvent};
use crate::gate::AckToken;
use crate::live::TopicAliases;
use crate::request::{PublishRequest, PublishTopic, Request};
use crate::session::Session;
use crate::violation::Violation;

impl Session {
    /// Acknowledges a publish of the client, or refuses it with `reason`.
    ///
    /// Call it once for each [`Request::Publish`], in their order [MQTT-4.6.0-2, -3]; QoS 0 gets no acknowledgement.
    /// The acknowledgement is sent once the token is confirmed. A v5 client gets `reason`; a 3.x client always gets a
    /// success (docs/decisions.md, 22). After an error a v5 client may use a QoS 2 identifier again at once
    /// [MQTT-4.3.3-9].
    pub fn accept_publish(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        reason: ReasonCode,
    ) -> AckToken {
        match qos {
            QoS::AtMostOnce => self.gate.last(),
            QoS::AtLeastOnce => {
                let reason = listed(reason, PacketType::PubAck);
                self.hold_ack(Control(ControlKind::PubAck(packet_id, reason)))
            }
            QoS::ExactlyOnce => match self.settle_exactly_once(packet_id, reason) {
                Some(reason) => self.hold_ack(Control(ControlKind::PubRec(packet_id, reason))),
                None => self.gate.last(),
            },
        }
    }

    /// Like [`Session::accept_publish`] with a `reason` that refuses, and with details for a client that asked for
    /// problem information [MQTT-3.1.2-29].
    pub fn refuse_publish(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        reason: ReasonCode,
        details: Details,
    ) -> AckToken {
        let details = self.allowed(details);
        match qos {
            QoS::AtMostOnce => self.gate.last(),
            QoS::AtLeastOnce => {
                let told = (packet_id, listed(reason, PacketType::PubAck));
                self.hold_ack(Control::explained(PacketType::PubAck, told, details))
            }
            QoS::ExactlyOnce => match self.settle_exactly_once(packet_id, reason) {
                Some(reason) => {
                    let told = (packet_id, reason);
                    self.hold_ack(Control::explained(PacketType::PubRec, told, details))
                }
                None => self.gate.last(),
            },
        }
    }

    pub(crate) fn handle_publish<'p>(
        &mut self,
        publish: Publish<'p>,
    ) -> Result<Request<'p>, Violation> {
        let qos = publish.delivery.qos();
        self.check_offer(qos, publish.retain)?;
        let alias = self.check_properties(&publish)?;
        self.check_quota(qos)?;
        let topic = self.resolve_topic(publish.topic, alias)?;
        let Some(packet_id) = publish.delivery.packet_id() else {
            return Ok(Request::Publish(self.request(publish, topic)));
        };
        self.live.link.open_publishes += 1;
        if qos == QoS::ExactlyOnce && !self.is_first(packet_id) {
            return Ok(Request::None);
        }
        Ok(Request::Publish(self.request(publish, topic)))
    }

    pub(crate) fn handle_pubrel(&mut self, ack: Ack<'_>) -> Result<Request<'static>, Violation> {
        let packet_id = ack.packet_id;
        let rare = self.live.rare_mut();
        let Some(incoming) = rare.and_then(|rare| rare.incoming.as_deref_mut()) else {
            return self.complete_unknown(packet_id);
        };
        if incoming.pending.contains(&packet_id) {
            return Err(EARLY_RELEASE);
        }
        if !incoming.received.remove(packet_id) {
            return self.complete_unknown(packet_id);
        }
        self.forgive_stray();
        let done = Control(ControlKind::PubComp(packet_id, ReasonCode::SUCCESS));
        if self.is_durable {
            let token = self.hold_ack(done);
            let record = ExchangeRecord::Released { packet_id };
            self.live.events.push_back(SessionEvent::Record {
                token: Some(token),
                record,
            });
        } else {
            self.live.controls.push_back(done);
        }
        Ok(Request::None)
    }

    /// A PUBREL with an unknown identifier creates no state (abuse D13). In a durable session it may repeat a PUBREL
    /// whose release is not safe yet, so PUBCOMP waits for the same token. A flood of them ends the connection
    /// (abuse D15).
    fn complete_unknown(&mut self, packet_id: PacketId) -> Result<Request<'static>, Violation> {
        let told = (packet_id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND);
        let details = self.allowed(Details::reason("no such message is open"));
        let done = Control::explained(PacketType::PubComp, told, details);
        if self.is_durable {
            self.live.held.push(self.gate.last(), done);
        } else {
            self.live.controls.push_back(done);
        }
        self.stray()
    }

    fn request<'p>(&self, publish: Publish<'p>, topic: PublishTopic<'p>) -> PublishRequest<'p> {
        PublishRequest {
            version: self.version,
            publish,
            topic,
        }
    }

    /// Holds `control` until a new token is confirmed. Without a connection, `control` is dropped.
    fn hold_ack(&mut self, control: Control) -> AckToken {
        let token = self.gate.issue_token();
        if self.is_connected() {
            self.live.held.push(token, control);
        }
        token
    }

    /// Stores the outcome of a QoS 2 PUBLISH and returns the reason code of its PUBREC. Returns `None` if the PUBLISH
    /// came over a connection that has ended: the client sends the message again.
    fn settle_exactly_once(
        &mut self,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> Option<ReasonCode> {
        let incoming = self.live.rare_mut()?.incoming.as_deref_mut()?;
        let mut pending = incoming.pending.iter();
        let place = pending.position(|&pending| pending == packet_id)?;
        incoming.pending.remove(place);
        let reason = listed(reason, PacketType::PubRec);
        let is_told = self.version.has_properties();
        if !(is_told && reason.is_error()) {
            incoming.received.insert(packet_id);
        }
        Some(reason)
    }

    /// Whether a QoS 2 PUBLISH is a new message, whatever its DUP flag says. A repeat is answered with another PUBREC,
    /// but not before the first one is confirmed.
    fn is_first(&mut self, packet_id: PacketId) -> bool {
        let incoming = self.live.rare.incoming.get_or_insert_default();
        if incoming.pending.contains(&packet_id) {
            return false;
        }
        if !incoming.received.contains(packet_id) {
            incoming.pending.push(packet_id);
            return true;
        }
        let answers =
            |held: &Control| matches!(held.0, ControlKind::PubRec(id, _) if id == packet_id);
        if !self.live.held.iter().any(answers) {
            let again = Control(ControlKind::PubRec(packet_id, ReasonCode::SUCCESS));
            self.live.held.push(self.gate.last(), again);
        }
        false
    }

    fn check_offer(&self, qos: QoS, retain: bool) -> Result<(), Violation> {
        if qos > self.limits.maximum_qos {
            return Err(QOS_ABOVE_MAXIMUM);
        }
        if retain && !self.limits.retain_available {
            return Err(RETAIN_UNAVAILABLE);
        }
        Ok(())
    }

    /// Checks that the client has at most Receive Maximum publishes in flight [MQTT-3.3.4-7]; 3.x has no such limit.
    fn check_quota(&self, qos: QoS) -> Result<(), Violation> {
        let is_full =
            self.live.link.open_publishes >= u32::from(self.limits.receive_maximum.max(1));
        if is_full && qos > QoS::AtMostOnce && self.version.has_properties() {
            return Err(RECEIVE_MAXIMUM);
        }
        Ok(())
    }

    /// Checks all properties in one pass and returns the topic alias.
    fn check_properties(&self, publish: &Publish<'_>) -> Result<Option<NonZeroU16>, Violation> {
        let mut found = None;
        for property in publish.properties {
            match property {
                Property::TopicAlias(alias) => found = Some(alias),
                Property::SubscriptionIdentifier(_) => return Err(SUBSCRIPTION_ID),
                property => check_property(property, publish.payload, &self.limits)?,
            }
        }
        Ok(found)
    }

    fn resolve_topic<'p>(
        &mut self,
        text: Text<'p>,
        alias: Option<NonZeroU16>,
    ) -> Result<PublishTopic<'p>, Violation> {
        let maximum = self.limits.topic_alias_maximum;
        if let Some(alias) = alias
            && text.is_empty()
        {
            let topic = self.aliases().resolve(alias, maximum);
            return topic.map(PublishTopic::Owned);
        }
        let topic = TopicName::parse(text.as_str(), &self.limits.topic);
        let topic = topic.map_err(Violation::topic_name)?;
        let mounted = match &self.live.rare.mount_point {
            Some(mount_point) => mount_point.name(topic).map_err(Violation::topic_name)?,
            None => None,
        };
        let topic = mounted.map_or(PublishTopic::Packet(topic), PublishTopic::Owned);
        if let Some(alias) = alias {
            self.aliases().set(alias, topic.as_name(), maximum)?;
        }
        Ok(topic)
    }

    fn aliases(&mut self) -> &mut IncomingAliases {
        let empty = || {
            Box::new(TopicAliases {
                incoming: IncomingAliases::default(),
                outgoing: OutgoingAliases::new(0),
            })
        };
        &mut self.live.rare.aliases.get_or_insert_with(empty).incoming
    }
}

const QOS_ABOVE_MAXIMUM: Violation = Violation::limit(
    ReasonCode::QOS_NOT_SUPPORTED,
    "MQTT-3.2.2-11",
    "QoS is above the maximum",
);
const RETAIN_UNAVAILABLE: Violation = Violation::limit(
    ReasonCode::RETAIN_NOT_SUPPORTED,
    "MQTT-3.2.2-14",
    "RETAIN is set, but retained messages are not available",
);
const RECEIVE_MAXIMUM: Violation = Violation::limit(
    ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
    "MQTT-3.3.4-7",
    "more messages in flight than Receive Maximum",
);
const SUBSCRIPTION_ID: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-3.3.4-6",
    "PUBLISH of a client has a Subscription Identifier",
);
const EARLY_RELEASE: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-4.3.3-4",
    "PUBREL before PUBREC",
);
