//! Counts and durations as reports have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// Upper limits of the buckets of an [`AtomicHistogram`] in microseconds; the last bucket has no limit.
const LIMITS_US: [u64; 10] = [
    10,
    100,
    1_000,
    5_000,
    25_000,
    100_000,
    500_000,
    2_500_000,
    10_000_000,
    u64::MAX,
];

/// Durations by size, which any thread may add: those of plugin hooks and of HTTP requests.
#[derive(Debug, Default)]
pub struct AtomicHistogram {
    counts: [AtomicU64; LIMITS_US.len()],
    sum_ns: AtomicU64,
}

impl AtomicHistogram {
    /// Adds a duration.
    pub fn add(&self, duration: Duration) {
        self.add_several(duration, 1, duration);
    }

    /// Adds `count` durations of `each`, and `sum` to the sum of all.
    pub fn add_several(&self, each: Duration, count: u64, sum: Duration) {
        let bucket = LIMITS_US.partition_point(|us| Duration::from_micros(*us) < each);
        // ORDERING: readers want some recent value.
        self.counts[bucket.min(LIMITS_US.len() - 1)].fetch_add(count, Ordering::Relaxed);
        let sum_ns = u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(sum_ns, Ordering::Relaxed);
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        // ORDERING: as above.
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed))
    }

    /// The durations of now.
    pub fn read(&self) -> Histogram {
        // ORDERING: as above.
        let counts = self
            .counts
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed));
        let sum_us = u64::try_from(self.sum().as_micros()).unwrap_or(u64::MAX);
        Histogram::new(sum_us, LIMITS_US.into_iter().zip(counts).collect())
    }
}

/// Whether `name` is that of a plugin, or of its module; `plugin` is its class with the module.
pub fn is_plugin_named(plugin: &str, name: &str) -> bool {
    let module = plugin.rsplit_once('.').map(|(module, _)| module);
    plugin == name || module == Some(name)
}

/// Whether a hook, with the name of its plugin in front, is of the plugin that [`is_plugin_named`] has.
pub(crate) fn is_hook_of(hook: &str, name: &str) -> bool {
    hook.rsplit_once('.')
        .is_some_and(|(plugin, _)| is_plugin_named(plugin, name))
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
    /// It is not called, because it keeps failing or blocks threads; questions are refused.
    pub is_paused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_limit_it_does_not_exceed() {
        let histogram = AtomicHistogram::default();
        histogram.add(Duration::from_micros(10));
        histogram.add(Duration::from_nanos(10_001));
        histogram.add(Duration::MAX);
        histogram.add_several(Duration::from_millis(1), 3, Duration::from_millis(2));

        let counts: Vec<_> = histogram
            .read()
            .buckets
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counts, [(10, 1), (100, 1), (1_000, 3), (u64::MAX, 1)]);
    }

    #[test]
    fn the_sum_of_durations_is_in_microseconds() {
        let histogram = AtomicHistogram::default();
        histogram.add(Duration::from_nanos(1_600));
        histogram.add_several(Duration::from_micros(1), 2, Duration::from_nanos(1_500));

        assert_eq!(histogram.sum(), Duration::from_nanos(3_100));
        assert_eq!(histogram.read().sum_us, 3);
    }

    #[test]
    fn a_plugin_has_its_own_name_and_that_of_its_module() {
        let plugin = "mqttcore.auth.users.Users";

        for name in [plugin, "mqttcore.auth.users"] {
            assert!(is_plugin_named(plugin, name), "{name}");
            assert!(is_hook_of("mqttcore.auth.users.Users.login", name));
        }
        for name in ["", "Users", "mqttcore.auth", "mqttcore.auth.users.Users#2"] {
            assert!(!is_plugin_named(plugin, name), "{name}");
            assert!(!is_hook_of("mqttcore.auth.users.Users.login", name));
        }
        assert!(!is_plugin_named("alone", ""), "a class without a module");
        assert!(!is_hook_of("listener main", "listener main"));
    }
}
