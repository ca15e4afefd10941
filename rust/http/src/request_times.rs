//! Durations of HTTP requests, by group of routes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mqttcore_broker::Histogram;

use super::api;
use super::health::Probe;
use super::page;

/// Routes whose requests are counted together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RouteGroup {
    Health,
    Metrics,
    Api,
    Page,
    Streams,
    /// Paths that do not exist.
    Unknown,
}

/// The groups and their names in metrics.
const GROUPS: [(RouteGroup, &str); 6] = [
    (RouteGroup::Health, "health"),
    (RouteGroup::Metrics, "metrics"),
    (RouteGroup::Api, "api"),
    (RouteGroup::Page, "page"),
    (RouteGroup::Streams, "streams"),
    (RouteGroup::Unknown, "unknown"),
];

impl RouteGroup {
    /// The group of a path.
    pub(crate) fn of(path: &str) -> Self {
        if Probe::of(path).is_some() {
            Self::Health
        } else if path == "/metrics" {
            Self::Metrics
        } else if path.starts_with(api::PREFIX) {
            Self::Api
        } else if path.starts_with("/v1/") {
            Self::Streams
        } else if path == "/" || path.starts_with(page::PREFIX) {
            Self::Page
        } else {
            Self::Unknown
        }
    }
}

/// Upper limits of the buckets in microseconds; the last bucket has no limit.
const LIMITS_US: [u64; 8] = [
    1_000,
    5_000,
    20_000,
    100_000,
    500_000,
    2_000_000,
    10_000_000,
    u64::MAX,
];

/// Durations of the requests of one group.
#[derive(Debug, Default)]
struct Durations {
    buckets: [AtomicU64; LIMITS_US.len()],
    sum_us: AtomicU64,
}

/// Durations of requests, from their head to the head of the answer.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes([Durations; GROUPS.len()]);

impl RequestTimes {
    /// Counts a request.
    pub(crate) fn count(&self, group: RouteGroup, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let durations = &self.0[group as usize];
        let bucket = LIMITS_US.partition_point(|limit| *limit < us);
        // ORDERING: readers want some recent value.
        durations.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        durations.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// A histogram of each group, by name.
    pub(crate) fn histograms(&self) -> Vec<(&'static str, Histogram)> {
        // ORDERING: as above.
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let groups = GROUPS.iter().zip(&self.0);
        groups
            .map(|((_, name), durations)| {
                let counts = durations.buckets.iter().map(value);
                let buckets = LIMITS_US.into_iter().zip(counts).collect();
                (*name, Histogram::new(value(&durations.sum_us), buckets))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_a_group() {
        for (path, group) in [
            ("/livez", RouteGroup::Health),
            ("/readyz", RouteGroup::Health),
            ("/metrics", RouteGroup::Metrics),
            ("/api/v1/clients", RouteGroup::Api),
            ("/api/", RouteGroup::Api),
            ("/", RouteGroup::Page),
            ("/v1/streams/plant/rows", RouteGroup::Streams),
            ("/page/0000000000000000/app.js", RouteGroup::Page),
            ("/metrics/", RouteGroup::Unknown),
            ("/wp-login.php", RouteGroup::Unknown),
        ] {
            assert_eq!(RouteGroup::of(path), group, "{path}");
        }
    }

    #[test]
    fn durations_are_counted_in_the_bucket_of_their_group() {
        let times = RequestTimes::default();
        for ms in [1, 2, 20_000] {
            times.count(RouteGroup::Api, Duration::from_millis(ms));
        }

        for ((group, name), (found, histogram)) in GROUPS.iter().zip(times.histograms()) {
            let counts: Vec<_> = histogram.buckets.iter().map(|(_, count)| *count).collect();
            let (expected, sum_us) = match group {
                RouteGroup::Api => ([1, 1, 0, 0, 0, 0, 0, 1], 20_003_000),
                _ => ([0; 8], 0),
            };
            assert_eq!((found, counts), (*name, expected.to_vec()));
            assert_eq!(histogram.sum_us, sum_us);
        }
    }

    #[test]
    fn groups_are_in_the_order_of_their_variants() {
        for (index, (group, _)) in GROUPS.iter().enumerate() {
            assert_eq!(*group as usize, index);
        }
    }
}
