//! A message in the router, and the reasons why it may not be routed.

use std::rc::Rc;
use std::sync::MutexGuard;

use mqttcore_codec::{PacketId, QoS};
use mqttcore_session::Message;
use mqttcore_store::Durability;
use mqttcore_topics::TopicName;

use crate::clients::client::Client;
use crate::routing::memory::{self, Shortage};
use crate::runtime::log::{Escaped, LogCategory};
use crate::runtime::metrics::Metrics;
use crate::shard::{EngineState, NewEvent, RecentKind, Shard};

/// One message in the router.
pub(crate) struct Publication<'a> {
    /// The publisher; `None` is the broker itself.
    pub(crate) publisher: Option<&'a Rc<Client>>,
    pub(crate) topic: TopicName<'a>,
    pub(crate) message: &'a Message,
    /// The publisher's identifier, above QoS 0.
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) retaining: Retaining<'a>,
    /// Kafka has it already.
    pub(crate) is_logged: bool,
    /// It was accepted before: it is recorded, and stored as the retained message, even if no subscriber gets it.
    pub(crate) is_accepted: bool,
    /// The result of routing.
    pub(crate) routed: Routed,
}

/// Results of routing a message.
#[derive(Default)]
pub(crate) struct Routed {
    /// How many targets it has.
    pub(super) found: usize,
    /// How many of them get it: the first ones.
    pub(super) kept: usize,
    /// Why some of them, or all, do not.
    pub(super) refused: Option<Unroutable>,
    /// How safe it has to be before they get it, if they have to wait.
    pub(super) waits_for: Option<Durability>,
}

impl<'a> Publication<'a> {
    /// One that is not retained yet.
    pub(crate) fn new(
        publisher: Option<&'a Rc<Client>>,
        topic: TopicName<'a>,
        message: &'a Message,
        packet_id: Option<PacketId>,
    ) -> Self {
        Self {
            publisher,
            topic,
            message,
            packet_id,
            retaining: Retaining::default(),
            is_logged: false,
            is_accepted: false,
            routed: Routed::default(),
        }
    }

    /// Whether its publisher, or later subscribers, depend on its record.
    pub(super) fn is_waited_for(&self) -> bool {
        self.message.qos() > QoS::AtMostOnce || self.retaining.outcome != Retention::None
    }

    /// The number of a durable publisher, and the identifier that it may not use for another
    /// message until it has released it. That of a message that is refused is free again.
    pub(crate) fn exactly_once_key(&self, engine: &EngineState) -> Option<(u64, u16)> {
        let is_gated = self.message.qos() == QoS::ExactlyOnce && self.routed.refused.is_none();
        let packet_id = self.packet_id.filter(|_| is_gated)?;
        Some((self.publisher?.number(engine)?, packet_id.get()))
    }
}

/// Why a message is not routed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unroutable {
    /// The disk is too full for its records.
    NoRoom,
    /// It would wait in memory for a subscriber, and memory is short.
    NoMemory,
    /// The queue of a kept session is full, and the policy of the message says that it is refused then.
    QueueFull,
    /// The search for its subscribers exceeds the limit of steps (abuse H15).
    TooManyFilters,
    /// It would be a record of Kafka, which does not accept it, for this reason.
    NotLogged(&'static str),
}

impl Unroutable {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotLogged(why) => why,
            Self::NoRoom => "the disk is nearly full",
            Self::NoMemory => Shortage::Publish.text(),
            Self::QueueFull => "the queue of a subscriber is full",
            Self::TooManyFilters => "too many filters with wildcards match parts of its topic",
        }
    }

    /// Counts it for the listener of its publisher.
    pub(crate) fn count(self, metrics: &Metrics, listener: Option<usize>) {
        let refusals = metrics.refusals(listener);
        let counter = match self {
            Self::NoRoom | Self::NotLogged(_) => &refusals.refused_no_room,
            Self::NoMemory => &refusals.refused_memory,
            Self::QueueFull => &refusals.refused_queue_full,
            Self::TooManyFilters => &refusals.refused_too_many_filters,
        };
        counter.add(1);
    }

    /// The category of its log line.
    fn category(self) -> LogCategory {
        match self {
            Self::NoRoom => LogCategory::Disk,
            Self::NotLogged(_) => LogCategory::Kafka,
            Self::NoMemory => LogCategory::MemoryPublish,
            Self::QueueFull => LogCategory::QueueFull,
            Self::TooManyFilters => LogCategory::TooManyFilters,
        }
    }
}

/// Counts and logs a message that is not routed.
pub(crate) fn report_unroutable(shard: &Shard, publication: &Publication<'_>, why: Unroutable) {
    let listener = publication.publisher.and_then(|client| client.listener());
    why.count(shard.metrics(), listener);
    if let Some(client) = publication.publisher {
        let event = NewEvent {
            kind: RecentKind::Refused,
            client_id: &client.id,
            topic: Some(publication.topic.as_str()),
            why: Some(why.text()),
            reason: None,
        };
        shard.record_event(client, event);
    }
    if why == Unroutable::NoMemory {
        let publisher = publication.publisher.map(|client| &**client);
        return memory::log_of(shard, Shortage::Publish, publisher);
    }
    shard.log.warn(why.category(), shard.now(), || {
        let (topic, why) = (Escaped(publication.topic.as_str()), why.text());
        match publication.publisher {
            Some(client) => {
                let text = format!("publish of {} to {topic} refused: {why}", client.named());
                client.log_entry("publish_refused", text)
            }
            None => format!("publish of the broker to {topic} refused: {why}").into(),
        }
    });
}

/// The effect of a publish on the retained message of its topic.
#[derive(Default)]
pub(crate) struct Retaining<'w> {
    pub(crate) outcome: Retention,
    /// The store has the message that was there before.
    pub(crate) was_stored: bool,
    /// The lock of the topic, held until the record is written.
    pub(crate) lock: Option<MutexGuard<'w, ()>>,
}

/// The same in a word.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Retention {
    /// Nothing: it has no RETAIN flag.
    #[default]
    None,
    Kept,
    Cleared,
    /// The store of retained messages is full.
    Refused,
}
