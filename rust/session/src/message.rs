//! A published message, shared by all recipients.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::{Properties, PropertiesBuf, Property, ProtocolVersion, Publish, QoS};
use mqttcore_topics::TopicName;

use crate::chunk::{Chunk, ChunkAccount};

/// Topic, properties and payload in shared bytes, and other data for receivers.
///
/// 48 bytes and one reference count: a clone allocates nothing. The bytes are a part of the chunk that holds the
/// publisher's PUBLISH, so one message keeps the whole chunk alive; [`Message::release_chunk`] copies the message out
/// of it.
#[derive(Clone)]
pub struct Message {
    bytes: Chunk,
    /// Start of the topic; before it is the fixed header, if `form` is a frame.
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
    /// Some property must be changed before it is forwarded.
    rewrites: bool,
    expires_at: Option<Instant>,
}

/// Words of a chunk beside its bytes: reference count, account with its bytes, buffer, length.
const CHUNK_WORDS: usize = 5;

/// Whether the bytes around the message are a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FrameForm {
    /// Only topic, properties and payload.
    Bare,
    /// A whole QoS 0 PUBLISH of this version, which can be forwarded byte for byte.
    Frame(ProtocolVersion),
}

impl Message {
    /// Makes a message from a PUBLISH that was decoded from `source`, without copying it.
    ///
    /// `source` is the whole frame with its fixed header; `chunk` holds the same bytes from `frame_at` on (the caller
    /// decodes from its read buffer, and copies all frames of one read into one chunk). Message Expiry starts to run at
    /// `now`.
    ///
    /// If the PUBLISH has an alias instead of a topic, use [`Message::copied`].
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
                .in_place_of(chunk)
        })
    }

    /// Copies a message whose parts are checked: a PUBLISH with a topic alias, or a value that the broker publishes.
    /// For other messages use [`composed`](Message::composed).
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

    /// Restores a stored message, with the rest of its expiry.
    ///
    /// `properties` are those of a [`Message`]: properties that must not be forwarded were left out before.
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
        // INVARIANT: the bytes are the text that was checked when the message was made.
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

    /// Counts the bytes in `account`, unless another account counts them or other messages share them.
    pub fn charge(&mut self, account: &Arc<ChunkAccount>) {
        self.bytes.charge(account);
    }

    /// The message, counted and marked as `chunk` is, whose message it has replaced.
    pub(crate) fn in_place_of(mut self, chunk: &Chunk) -> Self {
        if let Some(account) = chunk.account() {
            self.charge(account);
        }
        if chunk.stamp() != 0 {
            self.bytes = self.bytes.with_stamp(chunk.stamp());
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

    /// The same message with another DUP flag.
    #[must_use]
    pub fn with_dup(self, dup: bool) -> Self {
        Self { dup, ..self }
    }

    /// When the message expires: its delivery must begin earlier.
    pub fn expires_at(&self) -> Option<Instant> {
        self.expires_at
    }

    /// Whether the message has expired [MQTT-3.3.2-5].
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// The Message Expiry Interval to forward: the remaining seconds, rounded up [MQTT-3.3.2-6].
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

    /// Whether the payload is empty: a retained message without payload removes the one before it.
    pub fn is_empty(&self) -> bool {
        self.payload_at == self.end
    }

    /// Heap bytes that this message keeps alive, maybe together with other messages.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + CHUNK_WORDS * size_of::<usize>()
    }

    /// The publisher's own QoS 0 frame, if a receiver of version `receiver` may get it byte for byte: RETAIN 0, no
    /// topic alias, no Subscription Identifier, no Message Expiry, and the same PUBLISH format (3.1 and 3.1.1 have the
    /// same).
    pub fn frame(&self, receiver: ProtocolVersion) -> Option<(&Chunk, Range<usize>)> {
        let FrameForm::Frame(version) = self.form else {
            return None;
        };
        let start = self.topic_at as usize - usize::from(self.header_bytes);
        let is_same_form = version.has_properties() == receiver.has_properties();
        is_same_form.then_some((&self.bytes, start..self.end as usize))
    }

    /// Copies the message out of its chunk if it is a small part of it.
    ///
    /// For queued messages (docs/decisions.md, 18). A message that is most of its chunk stays shared.
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
        let chunk = Chunk::new(&bytes, self.bytes.account());
        self.bytes = chunk.with_stamp(self.bytes.stamp());
    }

    /// The same message on another topic; its expiry does not run yet.
    pub(crate) fn moved_to(&self, topic: TopicName<'_>) -> Self {
        let (properties, payload) = (self.properties(), self.payload());
        Self::from_parts(topic, properties, payload, self.qos, self.retain).in_place_of(&self.bytes)
    }

    /// The same message, published at `now`: its expiry begins again.
    #[must_use]
    pub fn published_at(mut self, now: Instant) -> Self {
        self.expires_at = expiry(now, self.properties().message_expiry_interval());
        self
    }

    /// The same message, which expires with `other`.
    pub(crate) fn expiring_with(self, other: &Self) -> Self {
        Self {
            expires_at: other.expires_at,
            ..self
        }
    }

    /// Whether the properties cannot be forwarded as they are.
    pub(crate) fn rewrites_properties(&self) -> bool {
        self.rewrites || self.expires_at.is_some()
    }

    pub(crate) fn topic_len(&self) -> usize {
        usize::from(self.topic_bytes)
    }

    /// Bytes of the properties that are forwarded; rewriting an expiry does not change its size.
    pub(crate) fn forwarded_properties_len(&self) -> usize {
        if !self.rewrites {
            return (self.payload_at - self.properties_at) as usize;
        }
        let mut kept = PropertiesBuf::default();
        // INVARIANT: the properties were decoded, so each of them can be encoded.
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

    /// Makes a message whose expiry does not run yet.
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
            // INVARIANT: the properties were decoded, so each of them can be encoded.
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
    /// Prints the topic and sizes; payloads stay out of logs.
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

/// Result of one pass over the properties.
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

/// Whether this property of a publish or will is forwarded to receivers.
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

/// Offset of `part`, which is not empty, in `whole`.
fn offset_of(whole: &[u8], part: &[u8]) -> Option<usize> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (!part.is_empty() && start + part.len() <= whole.len()).then_some(start)
}
