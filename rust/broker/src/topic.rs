//! The topic of a message that is already in the broker.

use mqttcore_session::Message;
use mqttcore_topics::{TopicLimits, TopicName};

/// The limits of the session checked it when it came in; here only its form counts, or a topic that
/// the configuration allows would be refused later by narrower defaults.
pub(crate) const AS_IT_CAME: TopicLimits = TopicLimits {
    refuse_control_characters: false,
    ..TopicLimits::WIDEST
};

/// The topic that `message` was published to.
pub(crate) fn topic_of(message: &Message) -> Option<TopicName<'_>> {
    TopicName::parse(message.topic(), &AS_IT_CAME).ok()
}
