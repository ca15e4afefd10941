//! A published message, shared by all recipients.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::{Properties, PropertiesBuf, Property, ProtocolVersion, Publish, QoS};
use mqttcore_topics::TopicName;

use crate::chunk::{Chunk, ChunkAccount};

/// Topic, properties and payload in shared bytes, with what a receiver must know beside them.
///
/// 48 bytes and one reference count: a clone allocates nothing. The bytes are those of the
/// publisher's own PUBLISH inside of the chunk that its read produced, so that a chunk stays
/// alive as long as one of its messages; [`Message::release_chunk`] cuts that tie.
#[derive(Clone)]
pub struct Message {
    bytes: Chunk,
    /// The topic begins here; in front of it lies the fixed header, if `form` knows one.
    topic_at: u32,
    properties_at: u32,
    payload_at: u32,
    end: u32,
    topic_bytes: u16,
    header_bytes: u8,
    form: FrameForm,
    qos: QoS,
    retain: bool,
    dup: bool,
    /// A property must not be forwarded as it is.
    rewrites: bool,
    expires_at: Option<Instant>,
}

/// Whether the bytes around the message are a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FrameForm {
    /// Topic, properties, payload and nothing else.
    Bare,
    /// A whole QoS 0 PUBLISH of this version, fit to be forwarded byte for byte.
    Frame(ProtocolVersion),
}

impl Message {
    /// Takes over a PUBLISH that was decoded from `source`, with its topic as it was parsed, without copying it.
    ///
    /// `source` is the whole frame, fixed header included; `chunk` holds the same bytes from
    /// `frame_at` on (the caller decodes from its read buffer, and copies all frames of one read
    /// into one chunk). Message Expiry begins to run at `now`.
    ///
    /// A PUBLISH without topic text was sent under an alias: use [`Message::copied`] for it.
    pub fn from_publish(
        now: Instant,
        version: ProtocolVersion,
        (topic, publish): (TopicName<'_>, &Publish<'_>),
        source: &[u8],
        chunk: &Chunk,
        frame_at: usize,
    ) -> Self {
        debug_assert_eq!(topic.as_str(), publish.topic.as_str());
        debug_assert_eq!(
            chunk.get(frame_at..frame_at + source.len()),
            Some(source),
            "the chunk holds the frame that was decoded"
        );
        Self::within(now, version, publish, source, chunk, frame_at).unwrap_or_else(|| {
            let (properties, payload) = (publish.properties, publish.payload);
            let qos = publish.delivery.qos();
            Self::copied(now, topic, properties, payload, qos, publish.retain)
                .with_dup(publish.delivery.dup())
                .charged_to(chunk.account())
        })
    }

    /// Copies a message whose parts were checked: that of a PUBLISH whose topic came by alias, or a
    /// figure that the broker tells. Others are [composed](Message::composed).
    ///
    /// Topic alias, Subscription Identifiers and Will Delay are left out of `properties`.
    pub fn copied(
        now: Instant,
        topic: TopicName<'_>,
        properties: Properties<'_>,
        payload: &[u8],
        qos: QoS,
        retain: bool,
    ) -> Self {
        Self::from_parts(topic, properties, payload, qos, retain).published_at(now)
    }

    /// A message that a store kept, with what is left of its expiry.
    ///
    /// `properties` are those of a [`Message`]: what must not be forwarded was left out before.
    pub fn restored(
        topic: TopicName<'_>,
        properties: Properties<'_>,
        payload: &[u8],
        qos: QoS,
        retain: bool,
        expires_at: Option<Instant>,
    ) -> Self {
        let parts = Self::from_parts(topic, properties, payload, qos, retain);
        Self {
            expires_at,
            ..parts
        }
    }

    /// The topic that it was published to.
    pub fn topic_name(&self) -> TopicName<'_> {
        TopicName::from_checked(self.topic())
    }

    /// The text of that topic.
    pub fn topic(&self) -> &str {
        let end = self.topic_at + u32::from(self.topic_bytes);
        // INVARIANT: the bytes are the checked text that they were made from.
        std::str::from_utf8(self.slice(self.topic_at, end)).expect("a topic is UTF-8")
    }

    /// The properties as published, Topic Alias included; empty from a 3.x publisher.
    pub fn properties(&self) -> Properties<'_> {
        Properties::from_checked(self.slice(self.properties_at, self.payload_at))
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.slice(self.payload_at, self.end)
    }

    /// The payload's place in [`Message::bytes`], to send it without copying it.
    pub fn payload_range(&self) -> Range<usize> {
        self.payload_at as usize..self.end as usize
    }

    /// The shared bytes that hold the message, maybe among others.
    pub fn bytes(&self) -> &Chunk {
        &self.bytes
    }

    /// Has `account` count its bytes, unless one does or others share them already.
    pub fn charge(&mut self, account: &Arc<ChunkAccount>) {
        self.bytes.charge(account);
    }

    /// The same, where there is an account.
    pub(crate) fn charged_to(mut self, account: Option<&Arc<ChunkAccount>>) -> Self {
        if let Some(account) = account {
            self.charge(account);
        }
        self
    }

    /// The QoS that it was published with.
    pub fn qos(&self) -> QoS {
        self.qos
    }

    /// The RETAIN flag that it was published with.
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// The DUP flag of the PUBLISH, for rows of streams; it is never forwarded.
    pub fn dup(&self) -> bool {
        self.dup
    }

    /// The same message, said to have come with this DUP flag.
    #[must_use]
    pub fn with_dup(self, dup: bool) -> Self {
        Self { dup, ..self }
    }

    /// When it is too late to begin delivering it.
    pub fn expires_at(&self) -> Option<Instant> {
        self.expires_at
    }

    /// Whether it is too late to begin delivering it [MQTT-3.3.2-5].
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// The Message Expiry Interval to forward: what is left, in seconds, rounded up
    /// [MQTT-3.3.2-6].
    pub fn remaining_expiry_s(&self, now: Instant) -> Option<u32> {
        let left = self.expires_at?.saturating_duration_since(now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// Bytes of topic, properties and payload.
    pub fn len(&self) -> usize {
        (self.end - self.payload_at) as usize
            + (self.payload_at - self.properties_at) as usize
            + usize::from(self.topic_bytes)
    }

    /// Whether it carries nothing but a topic: to retain it is to remove what is retained.
    pub fn is_empty(&self) -> bool {
        self.payload_at == self.end
    }

    /// Bytes of heap that this message keeps alive, alone or with others.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + 4 * size_of::<usize>()
    }

    /// The publisher's own QoS 0 frame, if a receiver of version `receiver` may get it byte for
    /// byte: RETAIN 0, no topic alias, no Subscription Identifier, no Message Expiry, and the
    /// same form (3.1 and 3.1.1 write PUBLISH alike).
    pub fn frame(&self, receiver: ProtocolVersion) -> Option<(&Chunk, Range<usize>)> {
        let FrameForm::Frame(version) = self.form else {
            return None;
        };
        let start = self.topic_at as usize - usize::from(self.header_bytes);
        let is_same_form = version.has_properties() == receiver.has_properties();
        is_same_form.then_some((&self.bytes, start..self.end as usize))
    }

    /// The same message in bytes of its own, if it is a small part of a larger chunk.
    ///
    /// For messages that wait (decision 18): a message that is most of its chunk stays shared.
    pub fn release_chunk(&mut self) {
        if self.len() * 2 >= self.bytes.len() {
            return;
        }
        let topic_bytes = u32::from(self.topic_bytes);
        let properties_bytes = self.payload_at - self.properties_at;
        let topic = self.slice(self.topic_at, self.topic_at + topic_bytes);
        let rest = self.slice(self.properties_at, self.end);
        let bytes = [topic, rest].concat();
        self.end = self.end - self.properties_at + topic_bytes;
        self.topic_at = 0;
        self.properties_at = topic_bytes;
        self.payload_at = topic_bytes + properties_bytes;
        self.form = FrameForm::Bare;
        self.bytes = Chunk::new(&bytes, self.bytes.account());
    }

    /// The same message on another topic; its expiry does not run yet.
    pub(crate) fn moved_to(&self, topic: TopicName<'_>) -> Self {
        let (properties, payload) = (self.properties(), self.payload());
        Self::from_parts(topic, properties, payload, self.qos, self.retain)
            .charged_to(self.bytes.account())
    }

    /// The same message, published at `now`: its expiry begins again.
    #[must_use]
    pub fn published_at(mut self, now: Instant) -> Self {
        self.expires_at = expiry(now, self.properties().message_expiry_interval());
        self
    }

    /// Whether the properties cannot be forwarded as they are.
    pub(crate) fn rewrites_properties(&self) -> bool {
        self.rewrites || self.expires_at.is_some()
    }

    pub(crate) fn topic_len(&self) -> usize {
        usize::from(self.topic_bytes)
    }

    /// Bytes of the properties that are forwarded; an expiry keeps its size when it is rewritten.
    pub(crate) fn forwarded_properties_len(&self) -> usize {
        if !self.rewrites {
            return (self.payload_at - self.properties_at) as usize;
        }
        let mut kept = PropertiesBuf::default();
        // INVARIANT: they were decoded, so each of them can be encoded.
        copy_forwarded(self.properties(), &mut kept).expect("decoded properties encode");
        kept.as_properties().as_bytes().len()
    }

    fn within(
        now: Instant,
        version: ProtocolVersion,
        publish: &Publish<'_>,
        source: &[u8],
        chunk: &Chunk,
        frame_at: usize,
    ) -> Option<Self> {
        let topic = publish.topic.as_str();
        let properties = publish.properties.as_bytes();
        let topic_at = offset_of(source, topic.as_bytes())?;
        let payload_at = source.len().checked_sub(publish.payload.len())?;
        let facts = PropertyFacts::of(now, publish.properties);
        let qos = publish.delivery.qos();
        let is_frame = qos == QoS::AtMostOnce
            && !publish.retain
            && !facts.rewrites
            && facts.expires_at.is_none();
        let place = |at: usize| u32::try_from(frame_at.checked_add(at)?).ok();
        Some(Self {
            bytes: chunk.clone(),
            topic_at: place(topic_at)?,
            properties_at: place(payload_at.checked_sub(properties.len())?)?,
            payload_at: place(payload_at)?,
            end: place(source.len())?,
            topic_bytes: u16::try_from(topic.len()).ok()?,
            header_bytes: u8::try_from(topic_at).ok()?,
            form: if is_frame {
                FrameForm::Frame(version)
            } else {
                FrameForm::Bare
            },
            qos,
            retain: publish.retain,
            dup: publish.delivery.dup(),
            rewrites: facts.rewrites,
            expires_at: facts.expires_at,
        })
    }

    /// Its expiry does not run yet.
    pub(crate) fn from_parts(
        topic: TopicName<'_>,
        properties: Properties<'_>,
        payload: &[u8],
        qos: QoS,
        retain: bool,
    ) -> Self {
        let (topic, mut kept) = (topic.as_str(), PropertiesBuf::default());
        let properties = if properties.iter().all(|property| is_forwarded(&property)) {
            properties
        } else {
            // INVARIANT: they were decoded, so each of them can be encoded.
            copy_forwarded(properties, &mut kept).expect("decoded properties encode");
            kept.as_properties()
        };
        let bytes = [topic.as_bytes(), properties.as_bytes(), payload].concat();
        // INVARIANT: topic and properties come from packets or builders, which cap their sizes.
        let place = |at: usize| u32::try_from(at).expect("a message is below 4 GiB");
        let topic_bytes = u16::try_from(topic.len()).expect("a topic is below 64 KiB");
        let properties_at = topic.len();
        let payload_at = properties_at + properties.as_bytes().len();
        Self {
            topic_at: 0,
            properties_at: place(properties_at),
            payload_at: place(payload_at),
            end: place(bytes.len()),
            bytes: bytes.into(),
            topic_bytes,
            header_bytes: 0,
            form: FrameForm::Bare,
            qos,
            retain,
            dup: false,
            rewrites: false,
            expires_at: None,
        }
    }

    fn slice(&self, start: u32, end: u32) -> &[u8] {
        // INVARIANT: the offsets were computed for these bytes and are ascending.
        &self.bytes[start as usize..end as usize]
    }
}

impl fmt::Debug for Message {
    /// Tells the topic and sizes; payloads stay out of logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Message")
            .field("topic", &self.topic())
            .field("payload_bytes", &self.payload().len())
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// What one walk over the properties tells.
struct PropertyFacts {
    rewrites: bool,
    expires_at: Option<Instant>,
}

impl PropertyFacts {
    fn of(now: Instant, properties: Properties<'_>) -> Self {
        let mut facts = Self {
            rewrites: false,
            expires_at: None,
        };
        for property in properties {
            if let Property::MessageExpiryInterval(seconds) = property {
                facts.expires_at = expiry(now, Some(seconds));
            }
            facts.rewrites |= !is_forwarded(&property);
        }
        facts
    }
}

fn expiry(now: Instant, interval_s: Option<u32>) -> Option<Instant> {
    now.checked_add(Duration::from_secs(u64::from(interval_s?)))
}

/// Whether a receiver gets this property of the publisher's (or of the will's).
pub(crate) fn is_forwarded(property: &Property<'_>) -> bool {
    !matches!(
        property,
        Property::TopicAlias(_)
            | Property::SubscriptionIdentifier(_)
            | Property::WillDelayInterval(_)
    )
}

fn copy_forwarded(
    properties: Properties<'_>,
    out: &mut PropertiesBuf,
) -> Result<(), mqttcore_codec::EncodeError> {
    for property in properties.iter().filter(is_forwarded) {
        out.push(property)?;
    }
    Ok(())
}

/// Where `part`, which is not empty, lies in `whole`.
fn offset_of(whole: &[u8], part: &[u8]) -> Option<usize> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (!part.is_empty() && start + part.len() <= whole.len()).then_some(start)
}
