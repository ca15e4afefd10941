//! Durability: what a session or message survives before it is acknowledged.
//!
//! * A **client** has the durability of its grant; without one, that of its listener, then that of the
//!   broker. It applies to its session and to its publishes.
//! * A **message** has the durability of the first rule that matches its topic, whoever publishes it;
//!   without such a rule, that of its publisher.
//!
//! QoS and receivers do not matter. Without a store everything is [`Durability::Memory`].

use mqttcore_store::Durability;
use mqttcore_topics::{TopicFilter, TopicName};

use crate::config::Config;

/// A rule of the configuration: durability of messages by topic.
#[derive(Clone, Debug)]
pub struct TopicDurability {
    /// The topics.
    pub filter: TopicFilter,
    /// Their durability.
    pub durability: Durability,
}

impl Config {
    /// The default durability.
    pub(crate) fn durability(&self) -> Durability {
        self.data
            .as_ref()
            .map_or(Durability::Memory, |data| data.durability)
    }

    /// The durability of a client with this grant and listener.
    pub(crate) fn client_durability(
        &self,
        grant: Option<Durability>,
        listener: Option<Durability>,
    ) -> Durability {
        let said = grant.or(listener).filter(|_| self.data.is_some());
        said.unwrap_or_else(|| self.durability())
    }

    /// The durability of a message on `topic` from a publisher with durability `publisher`.
    pub(crate) fn durability_on(&self, topic: TopicName<'_>, publisher: Durability) -> Durability {
        if self.data.is_none() {
            return Durability::Memory;
        }
        let mut rules = self.topic_durability.iter();
        let rule = rules.find(|rule| rule.filter.matches(topic));
        rule.map_or(publisher, |rule| rule.durability)
    }

    /// Whether a client of this durability may have data to store.
    pub(crate) fn may_keep(&self, client: Durability) -> bool {
        client > Durability::Memory || !self.topic_durability.is_empty()
    }

    /// The configured durability as one line for people: `fsync; os at door-2; memory on telemetry/#`.
    pub(crate) fn durability_text(&self) -> String {
        let base = name(self.durability()).to_owned();
        if self.data.is_none() {
            return base;
        }
        let listeners = self.listeners.iter().filter_map(|listener| {
            let level = name(listener.durability?);
            Some(format!("{level} at {}", listener.name))
        });
        let rules = self.topic_durability.iter();
        let topics =
            rules.map(|rule| format!("{} on {}", name(rule.durability), rule.filter.as_str()));
        let all: Vec<String> = [base].into_iter().chain(listeners).chain(topics).collect();
        all.join("; ")
    }
}

/// The level as the configuration names it.
pub(crate) fn name(level: Durability) -> &'static str {
    match level {
        Durability::Memory => "memory",
        Durability::Os => "os",
        Durability::Fsync => "fsync",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use mqttcore_topics::TopicLimits;

    use super::*;
    use crate::config::{Data, Listener};

    fn topic(text: &str) -> TopicName<'_> {
        TopicName::parse(text, &TopicLimits::default()).unwrap()
    }

    fn rule(filter: &str, durability: Durability) -> TopicDurability {
        TopicDurability {
            filter: TopicFilter::parse(filter, &TopicLimits::default()).unwrap(),
            durability,
        }
    }

    fn config(durability: Durability) -> Config {
        Config {
            data: Some(Data {
                folder: PathBuf::new(),
                durability,
            }),
            ..Config::default()
        }
    }

    #[test]
    fn a_grant_is_heard_before_a_listener_and_that_before_the_broker() {
        let config = config(Durability::Fsync);

        assert_eq!(config.client_durability(None, None), Durability::Fsync);
        assert_eq!(
            config.client_durability(None, Some(Durability::Os)),
            Durability::Os
        );
        assert_eq!(
            config.client_durability(Some(Durability::Memory), Some(Durability::Os)),
            Durability::Memory
        );
        assert_eq!(
            config.client_durability(Some(Durability::Fsync), Some(Durability::Os)),
            Durability::Fsync
        );
    }

    #[test]
    fn the_first_rule_of_a_topic_is_heard_before_its_publisher() {
        let config = Config {
            topic_durability: vec![
                rule("a/b", Durability::Fsync),
                rule("a/#", Durability::Memory),
            ],
            ..config(Durability::Os)
        };

        assert_eq!(
            config.durability_on(topic("a/b"), Durability::Os),
            Durability::Fsync
        );
        assert_eq!(
            config.durability_on(topic("a/c"), Durability::Fsync),
            Durability::Memory
        );
        assert_eq!(
            config.durability_on(topic("b"), Durability::Fsync),
            Durability::Fsync
        );
    }

    #[test]
    fn without_a_store_everything_lives_in_memory() {
        let config = Config {
            topic_durability: vec![rule("#", Durability::Fsync)],
            ..Config::default()
        };

        assert_eq!(
            config.client_durability(Some(Durability::Fsync), None),
            Durability::Memory
        );
        assert_eq!(
            config.durability_on(topic("a"), Durability::Fsync),
            Durability::Memory
        );
        assert_eq!(config.durability_text(), "memory");
    }

    #[test]
    fn what_is_in_force_is_said_in_one_line() {
        let listener = Listener {
            durability: Some(Durability::Os),
            ..Listener::new("door-2", ([127, 0, 0, 1], 0).into())
        };
        let config = Config {
            listeners: vec![listener],
            topic_durability: vec![rule("telemetry/#", Durability::Memory)],
            ..config(Durability::Fsync)
        };

        assert_eq!(
            config.durability_text(),
            "fsync; os at door-2; memory on telemetry/#"
        );
    }
}
