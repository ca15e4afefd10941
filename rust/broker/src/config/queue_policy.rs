//! `queue_policy`: what happens to a message for a kept session whose queue is full.

use mqttcore_topics::TopicFilter;

/// What becomes of a publish for a kept session whose queue is full, by `queue_policy` of its topic, its publisher or the
/// broker. Which message a session drops is its [`QueuePolicy`](mqttcore_session::QueuePolicy).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FullQueuePolicy {
    /// It is acknowledged, and the session drops a message by its own policy.
    #[default]
    Drop,
    /// It is refused, or waits.
    Refuse,
}

/// A rule of the configuration: what becomes of messages on these topics.
#[derive(Clone, Debug)]
pub struct TopicQueuePolicy {
    /// The topics.
    pub filter: TopicFilter,
    /// Their policy.
    pub queue_policy: FullQueuePolicy,
}
