//! Seeded subscriptions and topics: the same on every machine, at every size.

use mqttcore_topics::{SubscriptionFilter, TopicLimits};

/// Topics a workload publishes to; more than any cache of results would hold.
const TOPICS: usize = 1 << 16;

/// What a deep tree has below one building.
const FLOORS: u64 = 8;
const ROOMS: u64 = 16;
const SENSORS: u64 = 16;

/// Filters, each of a subscriber of its own, and topics in the order in which they are published to.
pub struct Workload {
    /// The name of the workload and its number of filters.
    pub name: String,
    /// What is subscribed to.
    pub filters: Vec<SubscriptionFilter>,
    /// What is published to.
    pub topics: Vec<String>,
}

impl Workload {
    fn new(name: &str, filters: Vec<String>, topics: Vec<String>) -> Self {
        let limits = TopicLimits::default();
        let parse = |text: String| {
            // INVARIANT: wildcards fill their level in every pattern of this file.
            SubscriptionFilter::parse(&text, &limits).expect("generated filters are valid")
        };
        Self {
            name: format!("{name}/{}", filters.len()),
            filters: filters.into_iter().map(parse).collect(),
            topics,
        }
    }

    /// `devices/{12 hex}/+`: every topic has one subscriber, on a level as wide as the fleet.
    #[must_use]
    pub fn telemetry(filters: usize) -> Self {
        let devices = ids(filters);
        let mut random = Random::new(2);
        let topics = (0..TOPICS).map(|_| format!("devices/{}/status", random.pick(&devices)));
        let topics = topics.collect();
        Self::new(
            "telemetry",
            devices
                .iter()
                .map(|device| format!("devices/{device}/+"))
                .collect(),
            topics,
        )
    }

    /// `site/{12 hex}/state`: every topic has one subscriber, and no filter has a wildcard.
    #[must_use]
    pub fn exact(filters: usize) -> Self {
        let sites = ids(filters);
        let mut random = Random::new(3);
        let topics = (0..TOPICS)
            .map(|_| format!("site/{}/state", random.pick(&sites)))
            .collect();
        let filters = sites
            .iter()
            .map(|site| format!("site/{site}/state"))
            .collect();
        Self::new("exact", filters, topics)
    }

    /// `building/B/floor/F/room/R/sensor/S`: half of the filters exact, half with one of floor, room and sensor
    /// as `+`, or `#` below the room. A topic has about 7 subscribers.
    #[must_use]
    pub fn deep(filters: usize) -> Self {
        let mut random = Random::new(4);
        let buildings = (filters as u64 / (FLOORS * ROOMS * SENSORS)).max(1);
        let filters = (0..filters).map(|number| deep_filter(number, buildings, &mut random));
        let filters = filters.collect();
        let topics = (0..TOPICS)
            .map(|_| deep_topic(buildings, &mut random))
            .collect();
        Self::new("deep", filters, topics)
    }

    /// All subscribers on `alerts/+/critical`: every message goes to each of them.
    #[must_use]
    pub fn fan_out(subscribers: usize) -> Self {
        let topics = (0..16)
            .map(|area| format!("alerts/{area}/critical"))
            .collect();
        Self::new(
            "fan_out",
            vec!["alerts/+/critical".to_owned(); subscribers],
            topics,
        )
    }
}

fn deep_topic(buildings: u64, random: &mut Random) -> String {
    let [building, floor, room, sensor] =
        [buildings, FLOORS, ROOMS, SENSORS].map(|count| random.below(count));
    format!("building/{building}/floor/{floor}/room/{room}/sensor/{sensor}")
}

fn deep_filter(number: usize, buildings: u64, random: &mut Random) -> String {
    let [building, floor, room, sensor] =
        [buildings, FLOORS, ROOMS, SENSORS].map(|count| random.below(count));
    match number % 8 {
        0..4 => format!("building/{building}/floor/{floor}/room/{room}/sensor/{sensor}"),
        4 => format!("building/{building}/floor/+/room/{room}/sensor/{sensor}"),
        5 => format!("building/{building}/floor/{floor}/room/+/sensor/{sensor}"),
        6 => format!("building/{building}/floor/{floor}/room/{room}/sensor/+"),
        _ => format!("building/{building}/floor/{floor}/room/{room}/#"),
    }
}

/// Different names of 12 hexadecimal digits, in random order.
fn ids(count: usize) -> Vec<String> {
    let mut random = Random::new(1);
    let mut ids: Vec<u64> = (0..=count + count / 64)
        .map(|_| random.next() >> 16)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    for last in (1..ids.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(0);
        ids.swap(last, other);
    }
    ids.truncate(count);
    ids.into_iter().map(|id| format!("{id:012x}")).collect()
}

/// A sequence that looks random and is the same every time (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Begins the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next word.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns one of `items`, which are not none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        &items[index]
    }
}
