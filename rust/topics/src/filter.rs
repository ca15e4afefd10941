//! Topic filters.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::levels::{is_match, split_level};
use crate::limits::MAX_BYTES;
use crate::sync::text::SharedText;
use crate::{TopicError, TopicLimits, TopicName};

/// A checked topic filter. Owned and shared, as large as a pointer: a clone costs one reference count.
#[derive(Clone)]
pub struct TopicFilter(
    /// The whole text; the filter starts after `$share/name/`, or at 0. It is marked if it contains a wildcard.
    SharedText,
);

impl TopicFilter {
    /// Parses and checks `text`.
    ///
    /// # Errors
    ///
    /// [`TopicError::MisplacedMultiLevelWildcard`] [MQTT-4.7.1-1] and
    /// [`TopicError::MisplacedSingleLevelWildcard`] [MQTT-4.7.1-2]; the errors of
    /// [`TopicName::parse`] otherwise, [`TopicError::WildcardInName`] excepted.
    pub fn parse(text: &str, limits: &TopicLimits) -> Result<Self, TopicError> {
        Self::parse_from(text, 0, limits)
    }

    /// Checks the part of `text` from byte `start` on; the limit of bytes applies to the whole text.
    pub(crate) fn parse_from(
        text: &str,
        start: u16,
        limits: &TopicLimits,
    ) -> Result<Self, TopicError> {
        if text.len() > limits.bytes.min(MAX_BYTES) {
            return Err(TopicError::TooLong);
        }
        let filter = &text[usize::from(start)..];
        let has_wildcard = limits.check(filter)?;
        if has_wildcard {
            check_wildcards(filter)?;
        }
        Ok(Self(SharedText::new(text, start, has_wildcard)))
    }

    /// Returns the filter as text, without `$share/name/`.
    pub fn as_str(&self) -> &str {
        &self.0.as_str()[self.0.start()..]
    }

    pub(crate) fn whole_text(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn start(&self) -> usize {
        self.0.start()
    }

    /// Removes `$share/name/`, so that the whole text is the filter.
    pub(crate) fn into_unshared(self) -> Self {
        if self.start() == 0 {
            return self;
        }
        Self(SharedText::new(self.as_str(), 0, self.has_wildcard()))
    }

    /// Whether the filter contains a wildcard.
    pub fn has_wildcard(&self) -> bool {
        self.0.is_marked()
    }

    /// Number of levels from the first `+` on; 0 without one. A search for a topic may visit all of them, whatever the
    /// topic's own levels are; levels before are those of the topic.
    pub fn wildcard_levels(&self) -> usize {
        if !self.has_wildcard() {
            return 0;
        }
        let levels = self.as_str().split('/');
        levels.skip_while(|level| *level != "+").count()
    }

    /// Whether a message published to `topic` goes to this filter.
    ///
    /// A leading wildcard does not reach topics that begin with `$` [MQTT-4.7.2-1].
    pub fn matches(&self, topic: TopicName<'_>) -> bool {
        let filter = self.as_str();
        if !self.has_wildcard() {
            return filter == topic.as_str();
        }
        if starts_wild(filter) {
            if topic.is_dollar() {
                return false;
            }
        } else if filter.as_bytes().first() != topic.as_str().as_bytes().first() {
            // The usual case: nothing but the first byte is read.
            return false;
        }
        is_match(filter.as_bytes(), topic.as_str().as_bytes())
    }

    /// Whether the filter matches every topic that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.as_str(), other.as_str());
        if starts_wild(mine) && theirs.starts_with('$') {
            return false;
        }
        // `#` matches its parent level, too, unless that is not a topic: a topic has a level, and the one empty level
        // of `/#` is not a topic [MQTT-4.7.3-1].
        let theirs = match theirs {
            "#" => "+/#",
            "/#" => "/+/#",
            _ => theirs,
        };
        covers_levels(mine.as_bytes(), theirs.as_bytes())
    }

    /// Whether both filters match a common topic.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.as_str(), other.as_str());
        if (starts_wild(mine) && theirs.starts_with('$'))
            || (starts_wild(theirs) && mine.starts_with('$'))
            // Both match only the empty text, which is not a topic [MQTT-4.7.3-1].
            || matches!((mine, theirs), ("+", "/#") | ("/#", "+"))
        {
            return false;
        }
        overlaps_levels(mine.as_bytes(), theirs.as_bytes())
    }
}

impl From<TopicName<'_>> for TopicFilter {
    /// The filter that matches this topic only; the limits of the name do not matter.
    fn from(topic: TopicName<'_>) -> Self {
        Self(SharedText::new(topic.as_str(), 0, false))
    }
}

impl PartialEq for TopicFilter {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for TopicFilter {}

impl Hash for TopicFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TopicFilter({:?})", self.as_str())
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

fn starts_wild(filter: &str) -> bool {
    filter.starts_with(['+', '#'])
}

fn check_wildcards(filter: &str) -> Result<(), TopicError> {
    let mut rest = Some(filter);
    while let Some(text) = rest {
        let (level, next) = match text.split_once('/') {
            Some((level, next)) => (level, Some(next)),
            None => (text, None),
        };
        if level.contains('#') && (level != "#" || next.is_some()) {
            return Err(TopicError::MisplacedMultiLevelWildcard);
        }
        if level.contains('+') && level != "+" {
            return Err(TopicError::MisplacedSingleLevelWildcard);
        }
        rest = next;
    }
    Ok(())
}

fn covers_levels(mine: &[u8], theirs: &[u8]) -> bool {
    let (mut mine, mut theirs) = (Some(mine), Some(theirs));
    loop {
        let (Some(my_rest), Some(their_rest)) = (mine, theirs) else {
            return mine == theirs || mine == Some(b"#");
        };
        if my_rest == b"#" {
            return true;
        }
        let (my_level, my_next) = split_level(my_rest);
        let (their_level, their_next) = split_level(their_rest);
        let is_covered = their_level != b"#" && (my_level == b"+" || my_level == their_level);
        if !is_covered {
            return false;
        }
        (mine, theirs) = (my_next, their_next);
    }
}

fn overlaps_levels(mine: &[u8], theirs: &[u8]) -> bool {
    let (mut mine, mut theirs) = (Some(mine), Some(theirs));
    loop {
        if mine == Some(b"#") || theirs == Some(b"#") {
            return true;
        }
        let (Some(my_rest), Some(their_rest)) = (mine, theirs) else {
            return mine == theirs;
        };
        let (my_level, my_next) = split_level(my_rest);
        let (their_level, their_next) = split_level(their_rest);
        if my_level != b"+" && their_level != b"+" && my_level != their_level {
            return false;
        }
        (mine, theirs) = (my_next, their_next);
    }
}
