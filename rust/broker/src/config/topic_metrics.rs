//! Metrics of topics: counters that the configuration asks for.

use std::sync::Arc;

use mqttcore_topics::TopicFilter;

/// Counts the messages that clients publish to some topics.
#[derive(Clone, Debug)]
pub struct TopicMetric {
    /// The label of its counters.
    pub name: Arc<str>,
    /// The topics.
    pub filter: TopicFilter,
}
