//! The topic filters of streams.

use mqttcore_topics::{SubscriptionFilter, TopicError, TopicLimits};

/// A stream's filter is not a valid topic filter.
#[derive(Debug, thiserror::Error)]
#[error("stream {name}: {filter:?}: {error}")]
pub struct InvalidStreamFilter {
    /// The stream's name.
    pub name: String,
    /// The configured text.
    pub filter: String,
    /// The reason.
    pub error: TopicError,
}

/// The filters of a stream.
///
/// # Errors
///
/// One that is not valid.
pub(crate) fn parse(
    name: &str,
    filters: &[String],
) -> Result<Vec<SubscriptionFilter>, InvalidStreamFilter> {
    let parse = |filter: &String| {
        let parsed = SubscriptionFilter::parse(filter, &TopicLimits::WIDEST);
        parsed.map_err(|error| InvalidStreamFilter {
            name: name.to_owned(),
            filter: filter.clone(),
            error,
        })
    };
    filters.iter().map(parse).collect()
}
