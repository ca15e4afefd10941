//! `queue_policy` for publishes: drop or refuse messages for a kept session with a full queue.

use mqttcore_topics::TopicFilter;

/// The treatment of a publish for a kept session with a full queue, from the `queue_policy` of the topic, the
/// publisher or the broker. Which message a session drops is its [`QueuePolicy`](mqttcore_session::QueuePolicy).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FullQueuePolicy {
    /// The publish is acknowledged, and the session drops a message by its own policy.
    #[default]
    Drop,
    /// The publish is refused, or waits for room.
    Refuse,
}

/// A rule of the configuration: queue policy by topic.
#[derive(Clone, Debug)]
pub struct TopicQueuePolicy {
    /// The topics.
    pub filter: TopicFilter,
    /// Their policy.
    pub queue_policy: FullQueuePolicy,
}
