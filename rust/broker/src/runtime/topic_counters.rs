//! Counters of messages received on the topics of `[[metrics.topics]]` (ADR 0117).

use std::sync::Arc;

use mqttcore_topics::{TopicFilter, TopicName};

use crate::config::topic_metrics::TopicMetric;
use crate::runtime::metrics::Counter;

/// The counters of one shard, in the order of the configuration.
#[derive(Debug, Default)]
pub(crate) struct TopicCounters(Box<[FilterCounters]>);

#[derive(Debug)]
struct FilterCounters {
    filter: TopicFilter,
    messages: Counter,
    bytes: Counter,
}

/// Messages received on the topics of a metric.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicCount {
    /// The label of the metric.
    pub name: Arc<str>,
    /// Received PUBLISH packets, also those that were refused.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

impl TopicCounters {
    pub(crate) fn new(metrics: &[TopicMetric]) -> Self {
        let counters = metrics.iter().map(|metric| FilterCounters {
            filter: metric.filter.clone(),
            messages: Counter::default(),
            bytes: Counter::default(),
        });
        Self(counters.collect())
    }

    /// Counts a PUBLISH for each filter that matches its topic. Only the shard's own thread may call this.
    #[inline]
    pub(crate) fn count<'t>(&self, topic: impl FnOnce() -> TopicName<'t>, bytes: u64) {
        if !self.0.is_empty() {
            self.count_matching(topic(), bytes);
        }
    }

    #[cold]
    fn count_matching(&self, topic: TopicName<'_>, bytes: u64) {
        for counters in self.0.iter().filter(|one| one.filter.matches(topic)) {
            counters.messages.add(1);
            counters.bytes.add(bytes);
        }
    }

    /// Adds these counters to `sums`, which are of the same metrics.
    pub(crate) fn add_to(&self, sums: &mut [TopicCount]) {
        for (sum, counters) in sums.iter_mut().zip(&self.0) {
            sum.messages += counters.messages.value();
            sum.bytes += counters.bytes.value();
        }
    }
}

impl TopicCount {
    pub(crate) fn new(name: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(name),
            messages: 0,
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::TopicLimits;

    use super::*;

    fn metric(name: &str, filter: &str) -> TopicMetric {
        TopicMetric {
            name: name.into(),
            filter: TopicFilter::parse(filter, &TopicLimits::default()).unwrap(),
        }
    }

    #[test]
    fn each_filter_that_matches_counts_a_message() {
        let metrics = [metric("a", "a/#"), metric("all", "#"), metric("b", "b")];
        let shards = [TopicCounters::new(&metrics), TopicCounters::new(&metrics)];
        let publish = |shard: &TopicCounters, topic: &str, bytes| {
            let topic = TopicName::parse(topic, &TopicLimits::default()).unwrap();
            shard.count(|| topic, bytes);
        };

        publish(&shards[0], "a/1", 10);
        publish(&shards[1], "a/2", 5);
        publish(&shards[1], "c", 1);
        publish(&shards[1], "$SYS/a", 7);

        let mut sums: Vec<_> = metrics
            .iter()
            .map(|one| TopicCount::new(&one.name))
            .collect();
        for shard in &shards {
            shard.add_to(&mut sums);
        }
        let sums = sums.iter().map(|sum| (&*sum.name, sum.messages, sum.bytes));
        assert!(sums.eq([("a", 2, 15), ("all", 3, 16), ("b", 0, 0)]));
    }
}
