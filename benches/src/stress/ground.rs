//! What stays for the whole run: a population of a fleet, and permanent subscribers beside the churn.

use mqttcore_codec::QoS;
use mqttcore_topics::{Change, Directory, Options, SubscriberId, SubscriptionFilter, TopicLimits};

/// Most subscribers of the population, one filter each.
pub(super) const MOST_FLEET: u64 = 20_000;

/// Permanent subscribers of the filter that all writers churn.
const WATCHERS: u64 = 8;

/// Handles of watchers; those of the fleet are below.
pub(super) const FIRST_WATCHER: u64 = 1 << 32;

/// Handles of writers.
pub(super) const FIRST_WRITER: u64 = 2 << 32;

/// Handles of sessions that come and go.
pub(super) const FIRST_SESSION: u64 = 3 << 32;

/// What all churn: half permanent, half not.
pub(super) const HOT_FILTER: &str = "alerts/+/critical";
pub(super) const HOT_TOPIC: &str = "alerts/7/critical";

pub(super) const AT_ONE: Options = Options::at(QoS::AtLeastOnce);

/// The permanent part of a run.
pub(super) struct Ground {
    /// The topic of each subscriber of the fleet, whose handle is the index.
    pub(super) topics: Vec<String>,
    everybody: Vec<SubscriberId>,
}

/// Parses a text that the run made.
pub(super) fn filter(text: &str) -> SubscriptionFilter {
    // INVARIANT: the run makes valid filters only.
    SubscriptionFilter::parse(text, &TopicLimits::default()).expect("a filter of the run is valid")
}

pub(super) fn subscribe(filter: &SubscriptionFilter) -> Change<'_> {
    Change::Subscribe {
        filter,
        options: AT_ONE,
    }
}

impl Ground {
    pub(super) fn lay(directory: &Directory, fleet: u64) -> Self {
        let mut ground = Self {
            topics: Vec::new(),
            everybody: Vec::new(),
        };
        for number in 0..fleet {
            let device = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
            ground.add(directory, number, &format!("devices/{device:012x}/+"));
            ground.topics.push(format!("devices/{device:012x}/state"));
        }
        for watcher in 0..WATCHERS {
            ground.add(directory, FIRST_WATCHER + watcher, HOT_FILTER);
        }
        ground
    }

    fn add(&mut self, directory: &Directory, handle: u64, text: &str) {
        let id = directory.join(handle);
        directory.commit(id, &[subscribe(&filter(text))]);
        self.everybody.push(id);
    }

    /// Whether these receivers of the hot topic are the watchers, each once, and nobody but watchers and writers.
    pub(super) fn count_hot(receivers: &[u64]) -> (u64, u64) {
        let watchers = receivers
            .iter()
            .filter(|handle| is_watcher(**handle))
            .count() as u64;
        let strangers = receivers
            .iter()
            .filter(|handle| !is_watcher(**handle) && !is_writer(**handle))
            .count();
        let mut sorted = receivers.to_vec();
        sorted.sort_unstable();
        let twice = sorted.windows(2).filter(|pair| pair[0] == pair[1]).count();
        (
            WATCHERS.saturating_sub(watchers),
            (strangers + twice) as u64,
        )
    }

    /// Removes everybody: half by hand, half by leaving.
    pub(super) fn clear(&self, directory: &Directory) {
        for id in &self.everybody {
            directory.leave(*id);
        }
        while directory.clean(1_000) > 0 {}
    }
}

fn is_watcher(handle: u64) -> bool {
    (FIRST_WATCHER..FIRST_WRITER).contains(&handle)
}

fn is_writer(handle: u64) -> bool {
    (FIRST_WRITER..FIRST_SESSION).contains(&handle)
}
