//! Reads the topic of a message that the broker has accepted.

use mqttcore_session::Message;
use mqttcore_topics::{TopicLimits, TopicName};

/// The limits of the session checked it when it came in.
pub(crate) const AS_IT_CAME: TopicLimits = TopicLimits::AS_IT_CAME;

/// The topic that `message` was published to.
pub(crate) fn topic_of(message: &Message) -> Option<TopicName<'_>> {
    TopicName::parse(message.topic(), &AS_IT_CAME).ok()
}
