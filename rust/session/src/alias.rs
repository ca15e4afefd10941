//! Topic aliases of one connection, in both directions [MQTT-3.3.2-7].

use std::mem;
use std::num::NonZeroU16;

use mqttcore_codec::ReasonCode;
use mqttcore_topics::{TopicName, TopicNameBuf};

use crate::violation::Violation;

/// Topic aliases that the client has set.
#[derive(Debug, Default)]
pub(crate) struct IncomingAliases {
    /// Index 0 is alias 1. The length is the highest alias in use.
    topics: Vec<Option<TopicNameBuf>>,
}

impl IncomingAliases {
    /// Stores `topic` under `alias`, replacing an earlier topic.
    pub(crate) fn set(
        &mut self,
        alias: NonZeroU16,
        topic: TopicName<'_>,
        maximum: u16,
    ) -> Result<(), Violation> {
        let index = index(alias, maximum)?;
        if self.topics.len() <= index {
            self.topics.reserve_exact(index + 1 - self.topics.len());
            self.topics.resize(index + 1, None);
        }
        match &mut self.topics[index] {
            Some(known) if known.as_name() == topic => {}
            slot => *slot = Some(topic.into()),
        }
        Ok(())
    }

    /// Returns the topic that `alias` stands for.
    pub(crate) fn resolve(
        &self,
        alias: NonZeroU16,
        maximum: u16,
    ) -> Result<TopicNameBuf, Violation> {
        let topic = self.topics.get(index(alias, maximum)?);
        topic.and_then(Option::clone).ok_or(Violation::protocol(
            ReasonCode::PROTOCOL_ERROR,
            "MQTT5 3.3.2.3.4",
            "topic alias was never set on this connection",
        ))
    }
}

fn index(alias: NonZeroU16, maximum: u16) -> Result<usize, Violation> {
    if alias.get() > maximum {
        return Err(Violation::protocol(
            ReasonCode::TOPIC_ALIAS_INVALID,
            "MQTT-3.3.2-9",
            "topic alias is above the maximum",
        ));
    }
    Ok(usize::from(alias.get()) - 1)
}

/// How a PUBLISH to the client uses an alias.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AliasUse {
    /// The packet carries the topic and sets the alias for later packets.
    Set(NonZeroU16),
    /// The packet carries the alias instead of the topic.
    Replace(NonZeroU16),
}

impl AliasUse {
    /// The alias itself.
    pub const fn alias(self) -> NonZeroU16 {
        match self {
            Self::Set(alias) | Self::Replace(alias) => alias,
        }
    }
}

/// Topic aliases that the server sets, up to the client's maximum [MQTT-3.3.2-11].
///
/// Aliases are assigned in the order in which topics first appear, and are never reassigned. From a topic's
/// second message on, packets carry the alias instead of the topic, as clients that offer aliases expect. Such packets
/// cannot share encoded bytes with those of other recipients.
#[derive(Debug)]
pub(crate) struct OutgoingAliases {
    maximum: u16,
    set: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    fingerprint: u64,
    topic: Box<str>,
    /// Whether a packet with the topic has set the alias.
    is_set: bool,
}

impl OutgoingAliases {
    pub(crate) fn new(maximum: u16) -> Self {
        Self {
            maximum,
            set: Vec::new(),
        }
    }

    /// Chooses the alias for the next packet on the wire. After `Set` the caller must send the packet.
    pub(crate) fn choose(&mut self, topic: &str) -> Option<AliasUse> {
        let print = fingerprint(topic);
        let is_known = |known: &Known| known.fingerprint == print && *known.topic == *topic;
        if let Some(index) = self.set.iter().position(is_known) {
            return self.use_alias(index);
        }
        if self.set.len() >= usize::from(self.maximum) {
            return None;
        }
        self.set.push(Known {
            fingerprint: print,
            topic: topic.into(),
            is_set: false,
        });
        self.use_alias(self.set.len() - 1)
    }

    fn use_alias(&mut self, index: usize) -> Option<AliasUse> {
        let alias = u16::try_from(index + 1).ok().and_then(NonZeroU16::new)?;
        let was_set = mem::replace(&mut self.set[index].is_set, true);
        Some(if was_set {
            AliasUse::Replace(alias)
        } else {
            AliasUse::Set(alias)
        })
    }
}

/// Length and last 8 bytes of a topic: a quick test that tells most topics apart.
fn fingerprint(topic: &str) -> u64 {
    let tail = topic
        .as_bytes()
        .last_chunk()
        .map_or(0, |tail| u64::from_le_bytes(*tail));
    tail ^ (topic.len() as u64) << 48
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::TopicLimits;

    use super::*;

    fn name(text: &str) -> TopicName<'_> {
        TopicName::parse(text, &TopicLimits::default()).unwrap()
    }

    fn number(value: u16) -> NonZeroU16 {
        NonZeroU16::new(value).unwrap()
    }

    #[test]
    fn a_topic_however_short_is_replaced_by_its_alias_from_its_second_message_on() {
        let mut aliases = OutgoingAliases::new(2);

        for (topic, alias) in [("a", number(1)), ("b", number(2))] {
            assert_eq!(aliases.choose(topic), Some(AliasUse::Set(alias)));
            assert_eq!(aliases.choose(topic), Some(AliasUse::Replace(alias)));
            assert_eq!(aliases.choose(topic), Some(AliasUse::Replace(alias)));
        }
    }

    #[test]
    fn topics_of_the_same_length_and_end_have_aliases_of_their_own() {
        let mut aliases = OutgoingAliases::new(2);

        let first = aliases.choose("plant/1/temperature");
        let second = aliases.choose("plant/2/temperature");

        assert_eq!(first, Some(AliasUse::Set(number(1))));
        assert_eq!(second, Some(AliasUse::Set(number(2))));
    }

    #[test]
    fn mqtt_3_3_2_11_no_alias_above_the_clients_maximum() {
        let mut aliases = OutgoingAliases::new(1);
        aliases.choose("a");

        assert_eq!(aliases.choose("b"), None);
        assert_eq!(aliases.choose("b"), None);
    }

    #[test]
    fn mqtt_3_3_2_12_every_alias_up_to_the_maximum_is_accepted() {
        let mut aliases = IncomingAliases::default();

        for value in 1..=10 {
            aliases.set(number(value), name("t"), 10).unwrap();
        }

        assert_eq!(
            aliases.resolve(number(10), 10).unwrap().as_name(),
            name("t")
        );
        assert_eq!(
            aliases.set(number(11), name("t"), 10).unwrap_err().reason,
            ReasonCode::TOPIC_ALIAS_INVALID
        );
    }

    #[test]
    fn an_alias_that_was_never_set_is_a_protocol_error() {
        let aliases = IncomingAliases::default();

        let violation = aliases.resolve(number(1), 10).unwrap_err();

        assert_eq!(violation.reason, ReasonCode::PROTOCOL_ERROR);
    }

    #[test]
    fn the_table_of_the_client_is_as_long_as_its_highest_alias() {
        let mut aliases = IncomingAliases::default();

        aliases.set(number(1), name("t"), 10).unwrap();
        aliases.set(number(10), name("t"), 10).unwrap();

        assert_eq!(aliases.topics.capacity(), 10);
    }

    #[test]
    fn an_alias_that_is_set_to_its_topic_again_shares_the_same_text() {
        let mut aliases = IncomingAliases::default();
        aliases.set(number(1), name("t"), 10).unwrap();
        let first = aliases.resolve(number(1), 10).unwrap();

        aliases.set(number(1), name("t"), 10).unwrap();

        let again = aliases.resolve(number(1), 10).unwrap();
        let text = |topic: &TopicNameBuf| topic.as_name().as_str().as_ptr();
        assert_eq!(text(&first), text(&again));
    }
}
