//! Publishes messages of the broker itself, for the embedding program and for operators.

use std::rc::Rc;
use std::time::Instant;

use mqttcore_codec::{Properties, PropertiesBuf, QoS};
use mqttcore_session::{Message, MessageError, ServerLimits};
use mqttcore_topics::{TopicError, TopicName};

use crate::operations::asking::AskError;
use crate::routing::publication::Unroutable;
use crate::routing::{external, journal, router};
use crate::service::{Answer, BrokerHandle};
use crate::shard::Shard;

/// A message of the broker itself was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic is not a topic name.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Properties or payload are not valid.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The broker has stopped.
    #[error("the broker is stopped")]
    Stopped,
    /// The disk is nearly full, and the message would have to be stored.
    #[error("the disk is nearly full")]
    NoRoom,
    /// Memory is short, and the message would have to wait for a subscriber.
    #[error("memory is short, and the message would wait for a subscriber")]
    NoMemory,
    /// The queue of a kept session is full, and the queue policy refuses the message.
    #[error("the queue of a subscriber is full")]
    QueueFull,
    /// The search for subscribers visits too many wildcard filters that match parts of the topic.
    #[error("too many filters with wildcards match parts of the topic")]
    TooManyFilters,
    /// The message was delivered, but Kafka rejected it or another message that the broker itself published meanwhile.
    #[error("Kafka did not accept the message")]
    NotLogged,
}

/// Makes a message of the broker itself; its expiry starts now.
pub(crate) fn message(
    topic: &str,
    payload: &[u8],
    qos: QoS,
    retain: bool,
    properties: Properties<'_>,
    limits: &ServerLimits,
) -> Result<Message, PublishError> {
    let name = TopicName::parse(topic, &limits.topic)?;
    let message = Message::composed(name, properties, payload, qos, retain, limits)?;
    Ok(message.published_at(Instant::now()))
}

impl BrokerHandle {
    /// Like [`Broker::publish`](crate::Broker::publish), with the deadline of a change.
    ///
    /// # Errors
    ///
    /// [`AskError`] for the question, [`PublishError`] for the message.
    pub async fn publish(
        &self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        retain: bool,
        properties: &PropertiesBuf,
    ) -> Result<Result<usize, PublishError>, AskError> {
        let config = self.config().await?;
        let properties = properties.as_properties();
        let message = match message(topic, payload, qos, retain, properties, &config.limits) {
            Ok(message) => message,
            Err(error) => return Ok(Err(error)),
        };
        self.change(0, move |shard, answer| publish(shard, message, answer))
            .await
    }
}

/// Routes a message of the broker itself; answers when its durability is reached.
pub(crate) fn publish(
    shard: &Rc<Shard>,
    mut message: Message,
    answer: Answer<Result<usize, PublishError>>,
) {
    message.charge(&shard.memory().own_account);
    let lost = external::own_lost(shard);
    let matched = router::try_publish_own(shard, &message).map_err(|why| match why {
        Unroutable::NoRoom | Unroutable::NotLogged(_) => PublishError::NoRoom,
        Unroutable::NoMemory => PublishError::NoMemory,
        Unroutable::QueueFull => PublishError::QueueFull,
        Unroutable::TooManyFilters => PublishError::TooManyFilters,
    });
    // Before the answer: its receiver may stop the broker, or disconnect a subscriber.
    shard.flush_mailboxes();
    let own = Rc::clone(shard);
    let then = move || {
        let is_logged = external::own_lost(&own) == lost;
        answer(matched.and_then(|count| is_logged.then_some(count).ok_or(PublishError::NotLogged)));
    };
    journal::when_safe(shard, Box::new(then));
}
