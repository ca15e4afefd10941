//! Publishes messages of the broker itself, for the embedding program and for operators.

use std::rc::Rc;
use std::time::{Duration, Instant};

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

/// Messages that a shard publishes for one job; it serves other clients between jobs.
const MESSAGES_A_JOB: usize = 32;

/// Time since the last turn of a shard from which on another one publishes; turns are recorded ten times a second.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// A message for [`BrokerHandle::publish_many`].
#[derive(Clone, Debug)]
pub struct OwnMessage {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// The QoS.
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// Properties of MQTT 5.0.
    pub properties: PropertiesBuf,
}

impl OwnMessage {
    fn made(&self, limits: &ServerLimits) -> Result<Message, PublishError> {
        let properties = self.properties.as_properties();
        let (topic, payload) = (&self.topic, &self.payload);
        message(topic, payload, self.qos, self.retain, properties, limits)
    }
}

/// Why none of several messages was published.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishManyError {
    /// One of the messages is not valid.
    #[error("message {index}: {error}")]
    Message {
        /// Its position.
        index: usize,
        /// The reason.
        error: PublishError,
    },
    /// The broker was not asked.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Why one of several messages was not published.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unpublished {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] PublishError),
    /// The shard did not answer: it may still publish the message.
    #[error(transparent)]
    Unanswered(AskError),
    /// The shard did not answer about messages before this one.
    #[error("the shard did not answer about messages before this one")]
    NotSent,
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
        let config = self.config()?;
        let properties = properties.as_properties();
        let message = match message(topic, payload, qos, retain, properties, &config.limits) {
            Ok(message) => message,
            Err(error) => return Ok(Err(error)),
        };
        let change = move |shard: &Rc<Shard>, answer| publish(shard, message, answer);
        self.change(self.publishing_shard(), change).await
    }

    /// Publishes messages in their order, each as [`publish`](Self::publish) does. Returns for each one how many
    /// subscriptions matched, or why it was not published. If one of them is not valid, none is published.
    ///
    /// # Errors
    ///
    /// [`PublishManyError`]: nothing was published.
    pub async fn publish_many(
        &self,
        messages: &[OwnMessage],
    ) -> Result<Vec<Result<usize, Unpublished>>, PublishManyError> {
        let config = self.config().map_err(AskError::from)?;
        let made = messages.iter().enumerate().map(|(index, message)| {
            let made = message.made(&config.limits);
            made.map_err(|error| PublishManyError::Message { index, error })
        });
        let made: Vec<Message> = made.collect::<Result<_, _>>()?;
        // Where a full queue refuses messages, each one meets the queues as those before it have left them.
        let may_refuse = config.may_refuse_when_full();
        let at_once = if may_refuse { 1 } else { MESSAGES_A_JOB };
        let shard = self.publishing_shard();
        let mut outcomes = Vec::with_capacity(made.len());
        for part in made.chunks(at_once) {
            let (part, count) = (part.to_vec(), part.len());
            let published = self.change(shard, move |shard, answer| {
                publish_all(shard, part, answer);
            });
            let published = published.await;
            if may_refuse {
                self.await_deliveries().await;
            }
            match published {
                Ok(published) => {
                    outcomes.extend(published.into_iter().map(|one| Ok(one?)));
                }
                Err(error) => {
                    outcomes.extend(vec![Err(Unpublished::Unanswered(error)); count]);
                    break;
                }
            }
        }
        outcomes.resize(made.len(), Err(Unpublished::NotSent));
        Ok(outcomes)
    }

    /// The shard that publishes messages of the broker itself: the first one, unless it has not turned for a while and
    /// another one has.
    fn publishing_shard(&self) -> usize {
        let engine = self.engine();
        let turns = engine.map(|engine| engine.last_turns.ages(Instant::now()));
        let turned = turns.and_then(|ages| ages.iter().position(|age| *age < LATE_AFTER));
        turned.unwrap_or(0)
    }

    /// Waits until the shards have handled the deliveries that were sent to them before.
    async fn await_deliveries(&self) {
        for shard in 0..self.shards() {
            // A shard that does not answer in time is not waited for.
            let _ = self.read(shard, |_| ()).await;
        }
    }
}

/// Routes a message of the broker itself; answers when its durability is reached.
pub(crate) fn publish(
    shard: &Rc<Shard>,
    message: Message,
    answer: Answer<Result<usize, PublishError>>,
) {
    let only = move |mut outcomes: Vec<Result<usize, PublishError>>| {
        // INVARIANT: each message has an outcome.
        answer(outcomes.pop().unwrap_or(Err(PublishError::Stopped)));
    };
    publish_all(shard, vec![message], Box::new(only));
}

/// Routes messages of the broker itself in their order; answers when the durability of all is reached.
fn publish_all(
    shard: &Rc<Shard>,
    messages: Vec<Message>,
    answer: Answer<Vec<Result<usize, PublishError>>>,
) {
    let lost = external::own_lost(shard);
    let matched: Vec<_> = messages
        .into_iter()
        .map(|message| route(shard, message))
        .collect();
    // Before the answer: its receiver may stop the broker, or disconnect a subscriber.
    shard.flush_mailboxes();
    let own = Rc::clone(shard);
    let then = move || {
        let is_logged = external::own_lost(&own) == lost;
        let logged = |count| is_logged.then_some(count).ok_or(PublishError::NotLogged);
        let outcomes = matched.into_iter().map(|matched| matched.and_then(logged));
        answer(outcomes.collect());
    };
    journal::when_safe(shard, Box::new(then));
}

/// Routes a message of the broker itself; returns how many subscriptions matched.
fn route(shard: &Rc<Shard>, mut message: Message) -> Result<usize, PublishError> {
    message.charge(&shard.memory().own_account);
    router::try_publish_own(shard, &message).map_err(|why| match why {
        Unroutable::NoRoom | Unroutable::NotLogged(_) => PublishError::NoRoom,
        Unroutable::NoMemory => PublishError::NoMemory,
        Unroutable::QueueFull => PublishError::QueueFull,
        Unroutable::TooManyFilters => PublishError::TooManyFilters,
    })
}
