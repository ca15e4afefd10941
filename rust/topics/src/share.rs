//! Subscription filters: a topic filter, alone or shared by a named group.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{TopicError, TopicFilter, TopicLimits};

const PREFIX: &str = "$share/";

/// The name of a shared group. Not empty; no `/`, `+` or `#` [MQTT-4.8.2-2].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ShareName<'a>(&'a str);

impl<'a> ShareName<'a> {
    /// Returns the name as text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// The filter of a SUBSCRIBE: `filter`, or `$share/name/filter`.
///
/// Two shared subscriptions belong to the same group if their names *and* filters are equal.
#[derive(Clone)]
pub struct SubscriptionFilter(TopicFilter);

impl SubscriptionFilter {
    /// Parses and checks `text`. `$SHARE/...` and a lone `$share` are ordinary filters.
    ///
    /// # Errors
    ///
    /// [`TopicError::EmptyShareName`] [MQTT-4.8.2-1], [`TopicError::WildcardInShareName`] and
    /// [`TopicError::ShareWithoutFilter`] [MQTT-4.8.2-2]; the errors of [`TopicFilter::parse`].
    pub fn parse(text: &str, limits: &TopicLimits) -> Result<Self, TopicError> {
        let Some(shared) = text.strip_prefix(PREFIX) else {
            return TopicFilter::parse(text, limits).map(Self);
        };
        if text.len() > limits.bytes {
            return Err(TopicError::TooLong);
        }
        let (name, filter) = shared.split_once('/').unwrap_or((shared, ""));
        if name.is_empty() {
            return Err(TopicError::EmptyShareName);
        }
        if limits.check(name)? {
            return Err(TopicError::WildcardInShareName);
        }
        if filter.is_empty() {
            return Err(TopicError::ShareWithoutFilter);
        }
        let start = u16::try_from(text.len() - filter.len()).map_err(|_| TopicError::TooLong)?;
        TopicFilter::parse_from(text, start, limits).map(Self)
    }

    /// Returns the whole text, `$share/name/` included.
    pub fn as_str(&self) -> &str {
        self.0.whole_text()
    }

    /// Returns the name of the group, if the subscription is shared.
    pub fn share(&self) -> Option<ShareName<'_>> {
        let name_end = self.0.start().checked_sub(1)?;
        Some(ShareName(&self.0.whole_text()[PREFIX.len()..name_end]))
    }

    /// Whether the subscription is shared.
    pub fn is_shared(&self) -> bool {
        self.0.start() > 0
    }

    /// Returns the topic filter that messages are matched with.
    pub fn filter(&self) -> &TopicFilter {
        &self.0
    }
}

impl From<TopicFilter> for SubscriptionFilter {
    /// Subscribes to the filter alone, without a group.
    fn from(filter: TopicFilter) -> Self {
        Self(filter.into_unshared())
    }
}

impl PartialEq for SubscriptionFilter {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str() && self.is_shared() == other.is_shared()
    }
}

impl Eq for SubscriptionFilter {}

impl Ord for SubscriptionFilter {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |filter: &Self| filter.is_shared();
        self.as_str()
            .cmp(other.as_str())
            .then(key(self).cmp(&key(other)))
    }
}

impl PartialOrd for SubscriptionFilter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for SubscriptionFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for SubscriptionFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SubscriptionFilter({:?})", self.as_str())
    }
}

impl fmt::Display for SubscriptionFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
