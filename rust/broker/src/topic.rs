//! The topic of a message that is already in the broker.

use mqttcore_session::Message;
use mqttcore_topics::{MAX_BYTES, MAX_LEVELS, TopicLimits, TopicName};

/// The limits of the session checked it when it came in; here only its form counts, or a topic that
/// the configuration allows would be refused later by narrower defaults.
pub(crate) const AS_IT_CAME: TopicLimits = TopicLimits {
    bytes: MAX_BYTES,
    levels: MAX_LEVELS,
    refuse_control_characters: false,
};

/// The topic that `message` was published to.
pub(crate) fn topic_of(message: &Message) -> Option<TopicName<'_>> {
    TopicName::parse(message.topic(), &AS_IT_CAME).ok()
}
