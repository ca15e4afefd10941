//! Counts and durations as reports have them.

use std::sync::Arc;

/// Names and counts.
pub type Tally = Vec<(&'static str, u64)>;

/// Durations by size.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// Sum of all durations in microseconds.
    pub sum_us: u64,
    /// Upper limits of the buckets in microseconds, and how many durations are in each; the last limit is `u64::MAX`.
    pub buckets: Vec<(u64, u64)>,
}

impl Histogram {
    /// A histogram; `buckets` as in the field.
    pub fn new(sum_us: u64, buckets: Vec<(u64, u64)>) -> Self {
        Self { sum_us, buckets }
    }
}

/// The calls of one hook of a plugin.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HookCalls {
    /// The name of the plugin; from the second one of a name on, with a number.
    pub plugin: Arc<str>,
    /// The name of the hook, which is unique within the plugin.
    pub hook: Arc<str>,
    /// Results of calls, and of questions that were refused without a call.
    pub results: Tally,
    /// Calls that have not returned yet.
    pub in_flight: u64,
    /// Questions that a cache answered.
    pub cache_hits: u64,
    /// Durations of calls that came back.
    pub run: Histogram,
    /// Times from the question to its call.
    pub wait: Histogram,
    /// Questions that wait in its queue. Of several hooks that share a queue, the first one has them.
    pub waiting: u64,
}
