//! Requests of a client that the engine decides: PUBLISH, SUBSCRIBE, UNSUBSCRIBE, AUTH.

use std::time::Instant;

use mqttcore_codec::{
    PacketId, Properties, ProtocolVersion, Publish, QoS, ReasonCode, RetainHandling,
};
use mqttcore_topics::{Options, SubscriptionFilter, TopicName, TopicNameBuf};

use crate::cause::Cause;
use crate::chunk::Chunk;
use crate::message::Message;

/// A task of the engine after the session has handled a packet.
#[derive(Debug)]
pub enum Request<'p> {
    /// No action is needed.
    None,
    /// Route the message, then call [`Session::accept_publish`](crate::Session::accept_publish).
    Publish(PublishRequest<'p>),
    /// Add the subscriptions, then call [`Session::complete_subscribe`](crate::Session::complete_subscribe).
    Subscribe(SubscribeRequest),
    /// Remove the subscriptions, then call [`Session::complete_unsubscribe`](crate::Session::complete_unsubscribe).
    Unsubscribe(UnsubscribeRequest),
    /// The client starts a re-authentication with the method of its CONNECT. Call
    /// [`Session::auth_continue`](crate::Session::auth_continue) or
    /// [`Session::auth_succeed`](crate::Session::auth_succeed), or disconnect the client.
    Reauthenticate {
        /// The client's first data.
        data: Option<&'p [u8]>,
    },
    /// The client continues an open exchange; answer as for [`Request::Reauthenticate`].
    Authenticate {
        /// The client's next data.
        data: Option<&'p [u8]>,
    },
    /// The client sent DISCONNECT: detach the session for this cause and close the connection.
    Disconnect(Cause),
}

/// A publish of the client, checked against every rule that the session knows.
///
/// The engine decides whether the client may publish to the topic, and whether the topic is reserved (`$SYS`).
#[derive(Debug)]
pub struct PublishRequest<'p> {
    pub(crate) version: ProtocolVersion,
    pub(crate) publish: Publish<'p>,
    pub(crate) topic: PublishTopic<'p>,
}

/// The checked topic of a publish.
#[derive(Clone, Debug)]
pub enum PublishTopic<'p> {
    /// The topic is in the packet.
    Packet(TopicName<'p>),
    /// The topic came as an alias, or has the prefix of a mount point.
    Owned(TopicNameBuf),
}

impl PublishTopic<'_> {
    /// The topic as a checked name.
    pub fn as_name(&self) -> TopicName<'_> {
        match self {
            Self::Packet(name) => *name,
            Self::Owned(name) => name.as_name(),
        }
    }
}

impl<'p> PublishRequest<'p> {
    /// The topic, with its alias resolved and the mount point's prefix added.
    pub fn topic(&self) -> TopicName<'_> {
        self.topic.as_name()
    }

    /// The topic, for use after the request is dropped.
    pub fn into_topic(self) -> PublishTopic<'p> {
        self.topic
    }

    /// The QoS.
    pub fn qos(&self) -> QoS {
        self.publish.delivery.qos()
    }

    /// The identifier to acknowledge; `None` at QoS 0.
    pub fn packet_id(&self) -> Option<PacketId> {
        self.publish.delivery.packet_id()
    }

    /// The RETAIN flag.
    pub fn retain(&self) -> bool {
        self.publish.retain
    }

    /// The payload.
    pub fn payload(&self) -> &'p [u8] {
        self.publish.payload
    }

    /// The properties as sent, a Topic Alias included.
    pub fn properties(&self) -> Properties<'p> {
        self.publish.properties
    }

    /// Makes the message for the receivers.
    ///
    /// `source` is the frame that the packet was decoded from, and `chunk` holds the same bytes from `frame_at` on: see
    /// [`Message::from_publish`]. If the topic came as an alias or is behind a mount point, the message is copied.
    pub fn to_message(
        &self,
        now: Instant,
        source: &[u8],
        chunk: &Chunk,
        frame_at: usize,
    ) -> Message {
        match self.topic {
            PublishTopic::Packet(topic) => {
                let publish = (topic, &self.publish);
                Message::from_publish(now, self.version, publish, source, chunk, frame_at)
            }
            PublishTopic::Owned(_) => self.to_owned_message(now).in_place_of(chunk),
        }
    }

    /// Makes a message with its own copy of the bytes.
    pub fn to_owned_message(&self, now: Instant) -> Message {
        let Publish {
            properties,
            payload,
            retain,
            delivery,
            ..
        } = self.publish;
        Message::copied(now, self.topic(), properties, payload, self.qos(), retain)
            .with_dup(delivery.dup())
    }
}

/// A SUBSCRIBE with parsed filters; the engine decides the rest.
#[derive(Clone, Debug)]
pub struct SubscribeRequest {
    /// The identifier that SUBACK repeats.
    pub packet_id: PacketId,
    /// The filters in the order of the packet; return them in the same order.
    pub entries: Vec<SubscribeEntry>,
}

/// One filter of a SUBSCRIBE.
#[derive(Clone, Debug)]
pub struct SubscribeEntry {
    /// The topic filter.
    pub filter: SubscriptionFilter,
    /// The options to grant; the engine may lower the QoS.
    pub options: Options,
    /// How to handle retained messages; never sent for a shared subscription (docs/decisions.md, 12).
    pub retain_handling: RetainHandling,
    /// The session has no such subscription yet.
    pub is_new: bool,
    /// Why the filter is refused. The session refuses filters beyond its limits; the engine may refuse more, and must
    /// not clear a refusal.
    pub refused: Option<ReasonCode>,
}

impl SubscribeEntry {
    /// Whether the retained messages are to be sent [MQTT-3.3.1-9, -10, -11].
    pub fn wants_retained(&self) -> bool {
        let is_wanted = match self.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => self.is_new,
            RetainHandling::DoNotSend => false,
        };
        is_wanted && self.refused.is_none() && !self.filter.is_shared()
    }

    /// The SUBACK code: the granted QoS, or why not [MQTT-3.8.4-7].
    pub fn reason(&self) -> ReasonCode {
        self.refused
            .unwrap_or(ReasonCode::granted(self.options.qos))
    }
}

/// An UNSUBSCRIBE with every filter parsed.
#[derive(Clone, Debug)]
pub struct UnsubscribeRequest {
    /// The identifier that UNSUBACK repeats.
    pub packet_id: PacketId,
    /// The filters in the order of the packet; return them in the same order.
    pub entries: Vec<UnsubscribeEntry>,
}

/// One filter of an UNSUBSCRIBE.
#[derive(Clone, Debug)]
pub struct UnsubscribeEntry {
    /// The topic filter.
    pub filter: SubscriptionFilter,
    /// The session has this subscription; the engine removes it from the directory.
    pub exists: bool,
    /// Why the engine refuses it, if it does.
    pub refused: Option<ReasonCode>,
}
