//! Topic names: what a message is published to.

use std::fmt;

use crate::{TopicError, TopicLimits};

/// A checked topic name: not empty, no wildcard, within the limits. Borrowed from the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicName<'a>(&'a str);

impl<'a> TopicName<'a> {
    /// Checks `text` once; nobody asks again.
    ///
    /// # Errors
    ///
    /// [`TopicError::WildcardInName`] [MQTT-4.7.0-1] for `+` or `#`; [`TopicError::Empty`],
    /// [`TopicError::NullCharacter`], [`TopicError::TooLong`], [`TopicError::TooManyLevels`] and
    /// [`TopicError::ControlCharacter`] as `limits` say.
    pub fn parse(text: &'a str, limits: &TopicLimits) -> Result<Self, TopicError> {
        if limits.check(text)? {
            return Err(TopicError::WildcardInName);
        }
        Ok(Self(text))
    }

    /// Returns the text, byte for byte as published [MQTT-4.7.3-4].
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the levels between the separators; an empty level is a level.
    pub fn levels(self) -> impl Iterator<Item = &'a str> {
        self.0.split('/')
    }

    /// Whether the first character is `$`: out of reach of a leading wildcard [MQTT-4.7.2-1].
    pub fn is_dollar(self) -> bool {
        self.0.starts_with('$')
    }
}

impl fmt::Display for TopicName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}
