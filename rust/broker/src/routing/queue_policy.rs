//! `queue_policy = "refuse"`: refuses a publish for a kept session whose queue is full, or delays a 3.x publisher.
//!
//! A **message** has the policy of the first rule that matches its topic, whoever publishes it; otherwise that of its
//! publisher's grant, of the publisher's listener, or of the broker. The policy applies to deliveries that are
//! stored, since an acknowledgement covers no others.
//!
//! A 5.0 publisher gets 0x97, and the other subscribers get the message. MQTT 3.x has no such answer: the publisher
//! waits, with its message, until there is room, and is disconnected without an acknowledgement after
//! [`Config::queue_deadline`]. Then no subscriber gets the message, since the publisher will send it again.

use mqttcore_codec::QoS;
use mqttcore_topics::TopicName;

use crate::config::Config;
use crate::config::queue_policy::FullQueuePolicy;
use crate::routing::publication::Publication;
use crate::shard::Shard;

impl Config {
    /// Whether a full queue may refuse a message of the broker itself.
    pub(crate) fn may_refuse_when_full(&self) -> bool {
        let mut rules = self.topic_queue_policies.iter();
        self.queue_policy == FullQueuePolicy::Refuse
            || rules.any(|rule| rule.queue_policy == FullQueuePolicy::Refuse)
    }

    /// The policy of a message on `topic`, of a publisher whose grant or listener says `publisher`.
    fn queue_policy_on(
        &self,
        topic: TopicName<'_>,
        publisher: Option<FullQueuePolicy>,
    ) -> FullQueuePolicy {
        let mut rules = self.topic_queue_policies.iter();
        let rule = rules.find(|rule| rule.filter.matches(topic));
        let said = rule.map(|rule| rule.queue_policy).or(publisher);
        said.unwrap_or(self.queue_policy)
    }
}

/// Whether a message may not be dropped where it would be kept.
pub(crate) fn is_refused_when_full(shard: &Shard, publication: &Publication<'_>) -> bool {
    let said = || {
        publication
            .publisher
            .and_then(|client| client.queue_policy())
    };
    !publication.is_accepted
        && publication.message.qos() > QoS::AtMostOnce
        && shard.config().queue_policy_on(publication.topic, said()) == FullQueuePolicy::Refuse
}

/// The same, and there is a session whose queue is full.
pub(crate) fn may_be_refused(shard: &Shard, publication: &Publication<'_>) -> bool {
    shard.engine.durable.has_full() && is_refused_when_full(shard, publication)
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::{TopicFilter, TopicLimits};

    use super::*;
    use crate::config::queue_policy::TopicQueuePolicy;

    fn topic(text: &str) -> TopicName<'_> {
        TopicName::parse(text, &TopicLimits::default()).unwrap()
    }

    fn rule(filter: &str, queue_policy: FullQueuePolicy) -> TopicQueuePolicy {
        TopicQueuePolicy {
            filter: TopicFilter::parse(filter, &TopicLimits::default()).unwrap(),
            queue_policy,
        }
    }

    #[test]
    fn a_rule_of_a_topic_is_heard_before_its_publisher_and_that_before_the_broker() {
        use FullQueuePolicy::{Drop, Refuse};
        let config = Config {
            queue_policy: Refuse,
            topic_queue_policies: vec![rule("a/b", Refuse), rule("a/#", Drop)],
            ..Config::default()
        };

        assert_eq!(config.queue_policy_on(topic("a/b"), Some(Drop)), Refuse);
        assert_eq!(config.queue_policy_on(topic("a/c"), Some(Refuse)), Drop);
        assert_eq!(config.queue_policy_on(topic("b"), Some(Drop)), Drop);
        assert_eq!(config.queue_policy_on(topic("b"), None), Refuse);
        assert_eq!(Config::default().queue_policy_on(topic("b"), None), Drop);
    }
}
