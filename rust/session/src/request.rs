//! Requests of a client that the engine decides: PUBLISH, SUBSCRIBE, UNSUBSCRIBE, AUTH.

use std::time::Instant;

use mqttcore_codec::{
    PacketId, Properties, ProtocolVersion, Publish, QoS, ReasonCode, RetainHandling,
};
use mqttcore_topics::{Options, SubscriptionFilter, TopicName, TopicNameBuf};

use crate::cause::Cause;
use crate::chunk::Chunk;
use crate::message::Message;

/// What the engine has to do after the session has handled a packet.
#[derive(Debug)]
pub enum Request<'p> {
    /// Nothing.
    None,
    /// Route a message, then call [`Session::accept_publish`](crate::Session::accept_publish).
    Publish(PublishRequest<'p>),
    /// Subscribe, then call [`Session::complete_subscribe`](crate::Session::complete_subscribe).
    Subscribe(SubscribeRequest),
    /// Unsubscribe, then call
    /// [`Session::complete_unsubscribe`](crate::Session::complete_unsubscribe).
    Unsubscribe(UnsubscribeRequest),
    /// The client begins to authenticate again, by the method of its CONNECT. Answer with
    /// [`Session::auth_continue`](crate::Session::auth_continue),
    /// [`Session::auth_succeed`](crate::Session::auth_succeed), or disconnect it.
    Reauthenticate {
        /// The client's first data.
        data: Option<&'p [u8]>,
    },
    /// The client continues an open exchange; answer as above.
    Authenticate {
        /// The client's next data.
        data: Option<&'p [u8]>,
    },
    /// The client said goodbye: detach the session for this cause and close.
    Disconnect(Cause),
}

/// A message that the client publishes, checked against everything a session can know.
///
/// Whether the client may publish there, and whether the topic is the broker's own (`$SYS`), is
/// the engine's to decide.
#[derive(Debug)]
pub struct PublishRequest<'p> {
    pub(crate) version: ProtocolVersion,
    pub(crate) publish: Publish<'p>,
    pub(crate) topic: PublishTopic<'p>,
}

/// The topic that a message is published to, checked, and where its text is.
#[derive(Clone, Debug)]
pub enum PublishTopic<'p> {
    /// In the packet.
    Packet(TopicName<'p>),
    /// It came as an alias, or stands behind a mount point.
    Owned(TopicNameBuf),
}

impl PublishTopic<'_> {
    /// The topic as text that was checked.
    pub fn as_name(&self) -> TopicName<'_> {
        match self {
            Self::Packet(name) => *name,
            Self::Owned(name) => name.as_name(),
        }
    }
}

impl<'p> PublishRequest<'p> {
    /// The topic, resolved if it came as an alias, behind the mount point if there is one.
    pub fn topic(&self) -> TopicName<'_> {
        self.topic.as_name()
    }

    /// The same, which outlives the request.
    pub fn into_topic(self) -> PublishTopic<'p> {
        self.topic
    }

    /// The QoS.
    pub fn qos(&self) -> QoS {
        self.publish.delivery.qos()
    }

    /// What to acknowledge, above QoS 0.
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

    /// The message for its receivers.
    ///
    /// `source` is the frame that the packet was decoded from, and `chunk` holds the same bytes
    /// from `frame_at` on: see [`Message::from_publish`]. A message whose topic is not in
    /// the packet as it is, for an alias or a mount point, is copied.
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
            PublishTopic::Owned(_) => self.to_owned_message(now).charged_to(chunk.account()),
        }
    }

    /// The message in bytes of its own.
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

/// A SUBSCRIBE with every filter parsed; the engine decides what is still open.
#[derive(Clone, Debug)]
pub struct SubscribeRequest {
    /// The identifier that SUBACK repeats.
    pub packet_id: PacketId,
    /// The filters, in their order; give them back in the same order.
    pub entries: Vec<SubscribeEntry>,
}

/// One filter of a SUBSCRIBE.
#[derive(Clone, Debug)]
pub struct SubscribeEntry {
    /// The topic filter.
    pub filter: SubscriptionFilter,
    /// The granted options: the engine may lower the QoS.
    pub options: Options,
    /// What to do with retained messages; never any on a shared subscription (decision 12).
    pub retain_handling: RetainHandling,
    /// The session has no such subscription yet.
    pub is_new: bool,
    /// Why it is refused. The session has refused what is beyond its limits; the engine may
    /// refuse more, and leaves what is refused already.
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
    /// The filters, in their order; give them back in the same order.
    pub entries: Vec<UnsubscribeEntry>,
}

/// One filter of an UNSUBSCRIBE.
#[derive(Clone, Debug)]
pub struct UnsubscribeEntry {
    /// The topic filter.
    pub filter: SubscriptionFilter,
    /// The session has such a subscription; the engine takes it out of the directory.
    pub exists: bool,
    /// Why it is refused, if the engine does so.
    pub refused: Option<ReasonCode>,
}
