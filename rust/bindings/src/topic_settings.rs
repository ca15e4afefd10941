//! Rules and metrics of topics: the tables `[[topics]]` and `[[metrics.topics]]`.

use mqttcore_broker::{TopicDurability, TopicMetric, TopicQueuePolicy};
use mqttcore_topics::TopicFilter;
use pyo3::prelude::*;

use crate::grants::{DurabilityWord, FullQueuePolicyWord};
use crate::topics::parse_filter;

#[derive(FromPyObject)]
pub(crate) struct TopicFields {
    filter: String,
    durability: Option<DurabilityWord>,
    queue_policy: Option<FullQueuePolicyWord>,
}

#[derive(FromPyObject)]
pub(crate) struct MetricsFields {
    topics: Vec<TopicMetricFields>,
}

#[derive(FromPyObject)]
struct TopicMetricFields {
    filter: String,
    name: String,
}

/// The durability of messages by topic.
pub(crate) fn durability_by_topic(rules: &[TopicFields]) -> PyResult<Vec<TopicDurability>> {
    topic_rules(rules, topic_durability)
}

/// The queue policies by topic.
pub(crate) fn queue_policies_by_topic(rules: &[TopicFields]) -> PyResult<Vec<TopicQueuePolicy>> {
    topic_rules(rules, topic_queue_policy)
}

/// The metrics of topics.
pub(crate) fn topic_metrics(fields: &MetricsFields) -> PyResult<Vec<TopicMetric>> {
    let read = |metric: &TopicMetricFields| {
        Ok(TopicMetric {
            name: metric.name.as_str().into(),
            filter: parse_filter(&metric.filter)?,
        })
    };
    fields.topics.iter().map(read).collect()
}

/// Parses the filter of each rule; returns the values of the rules for which `said` has one.
fn topic_rules<T>(
    rules: &[TopicFields],
    said: impl Fn(TopicFilter, &TopicFields) -> Option<T>,
) -> PyResult<Vec<T>> {
    let read = |rule: &TopicFields| Ok(said(parse_filter(&rule.filter)?, rule));
    let all: Vec<Option<T>> = rules.iter().map(read).collect::<PyResult<_>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn topic_durability(filter: TopicFilter, rule: &TopicFields) -> Option<TopicDurability> {
    let durability = rule.durability?.0;
    Some(TopicDurability { filter, durability })
}

fn topic_queue_policy(filter: TopicFilter, rule: &TopicFields) -> Option<TopicQueuePolicy> {
    let queue_policy = rule.queue_policy?.0;
    Some(TopicQueuePolicy {
        filter,
        queue_policy,
    })
}
