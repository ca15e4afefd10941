//! Topic names.

use std::fmt;
use std::sync::Arc;

use crate::{TopicError, TopicLimits};

/// A checked topic name: not empty, no wildcard, within the limits. Borrowed from the packet.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicName<'a>(&'a str);

impl<'a> TopicName<'a> {
    /// Parses and checks `text`.
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

    /// Returns the topic name of a text that was checked before.
    pub fn from_checked(text: &'a str) -> Self {
        debug_assert!(Self::parse(text, &TopicLimits::AS_IT_CAME).is_ok());
        Self(text)
    }

    /// Returns the text, byte for byte as published [MQTT-4.7.3-4].
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the levels between the separators; an empty level is a level.
    pub fn levels(self) -> impl Iterator<Item = &'a str> {
        self.0.split('/')
    }

    /// Whether the first character is `$`: a leading wildcard does not match it [MQTT-4.7.2-1].
    pub fn is_dollar(self) -> bool {
        self.0.starts_with('$')
    }
}

impl fmt::Display for TopicName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// A checked topic name that owns its text. A clone costs one reference count.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TopicNameBuf(Arc<str>);

impl TopicNameBuf {
    /// Checks `text` like [`TopicName::parse`].
    ///
    /// # Errors
    ///
    /// Those of [`TopicName::parse`].
    pub fn parse(text: String, limits: &TopicLimits) -> Result<Self, TopicError> {
        TopicName::parse(&text, limits)?;
        Ok(Self(text.into()))
    }

    /// Returns the topic name, as it was checked.
    pub fn as_name(&self) -> TopicName<'_> {
        TopicName(&self.0)
    }
}

impl From<TopicName<'_>> for TopicNameBuf {
    fn from(name: TopicName<'_>) -> Self {
        Self(name.as_str().into())
    }
}
