//! Durations of HTTP requests and counts of their answers, by group of routes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::{Method, StatusCode};
use mqttcore_broker::{AtomicHistogram, Histogram};

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

    fn name(self) -> &'static str {
        GROUPS[self as usize].1
    }
}

/// Durations of requests, from their head to the head of the answer.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes([AtomicHistogram; GROUPS.len()]);

impl RequestTimes {
    /// Counts a request.
    pub(crate) fn count(&self, group: RouteGroup, duration: Duration) {
        self.0[group as usize].add(duration);
    }

    /// A histogram of each group, by name.
    pub(crate) fn histograms(&self) -> Vec<(&'static str, Histogram)> {
        let groups = GROUPS.iter().zip(&self.0);
        groups
            .map(|((_, name), durations)| (*name, durations.read()))
            .collect()
    }
}

/// Group of routes, method and status of an answer.
type AnswerKind = (&'static str, &'static str, StatusCode);

/// Number of answers of each kind. The endpoint chooses all three, so that no caller can add kinds without end.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounts(Mutex<BTreeMap<AnswerKind, u64>>);

impl AnswerCounts {
    /// Counts an answer to a request with a method that [`method_name`] has named.
    pub(crate) fn count(&self, group: RouteGroup, method: &'static str, status: StatusCode) {
        *self
            .lock()
            .entry((group.name(), method, status))
            .or_default() += 1;
    }

    /// The kinds that there were, with their numbers.
    pub(crate) fn all(&self) -> Vec<(AnswerKind, u64)> {
        let counts = self.lock();
        counts.iter().map(|(kind, count)| (*kind, *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AnswerKind, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A method in metrics: one that some route has, or `other`.
pub(crate) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
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
    fn durations_are_counted_in_their_group() {
        let times = RequestTimes::default();
        times.count(RouteGroup::Api, Duration::from_millis(2));

        let counted = times.histograms().into_iter();
        let counted = counted.filter(|(_, histogram)| histogram.sum_us > 0);
        let counted: Vec<_> = counted
            .map(|(name, histogram)| (name, histogram.sum_us))
            .collect();
        assert_eq!(counted, [("api", 2_000)]);
    }

    #[test]
    fn answers_are_counted_by_group_method_and_status() {
        let counts = AnswerCounts::default();
        let brew = Method::from_bytes(b"BREW").expect("a method");
        for (group, method, status) in [
            (RouteGroup::Api, &Method::GET, StatusCode::OK),
            (RouteGroup::Api, &Method::GET, StatusCode::OK),
            (RouteGroup::Api, &Method::DELETE, StatusCode::NOT_FOUND),
            (RouteGroup::Unknown, &brew, StatusCode::NOT_FOUND),
        ] {
            counts.count(group, method_name(method), status);
        }

        let expected = [
            (("api", "DELETE", StatusCode::NOT_FOUND), 1),
            (("api", "GET", StatusCode::OK), 2),
            (("unknown", "other", StatusCode::NOT_FOUND), 1),
        ];
        assert_eq!(counts.all(), expected);
    }

    #[test]
    fn groups_are_in_the_order_of_their_variants() {
        for (index, (group, _)) in GROUPS.iter().enumerate() {
            assert_eq!(*group as usize, index);
        }
    }
}
