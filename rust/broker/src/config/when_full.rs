//! What becomes of a publish for a kept session whose queue is full, as configurations and grants say it.

use mqttcore_topics::TopicFilter;

/// What becomes of a publish for a kept session whose queue is full.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WhenFull {
    /// It is acknowledged, and the session drops a message by its own policy.
    #[default]
    Drop,
    /// It is refused, or waits.
    Refuse,
}

/// A rule of the configuration: what becomes of messages on these topics.
#[derive(Clone, Debug)]
pub struct TopicWhenFull {
    /// The topics.
    pub filter: TopicFilter,
    /// Their policy.
    pub when_full: WhenFull,
}
