//! Seeded subscriptions and topics: the same on every machine, at every size.

use mqttcore_topics::{SubscriptionFilter, TopicLimits, TopicName};

/// Topics a workload publishes to; more than any cache of results would hold.
const TOPICS: usize = 1 << 18;

/// What a deep tree has below one building.
const FLOORS: usize = 8;
const ROOMS: usize = 16;
const SENSORS: usize = 2;

/// The workloads that benches and the report share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One wide level and a `+` behind.
    Telemetry,
    /// Eight levels, wildcards at mixed ones, several matches a topic.
    Deep,
    /// No wildcard.
    Exact,
    /// Everybody on one filter.
    FanOut,
}

impl Kind {
    /// All workloads, in the order of the report.
    pub const ALL: [Self; 4] = [Self::Telemetry, Self::Deep, Self::Exact, Self::FanOut];

    /// What the report calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Deep => "deep",
            Self::Exact => "exact",
            Self::FanOut => "fan-out",
        }
    }

    /// Generates it, with filters of the same kind that nobody subscribed to yet.
    #[must_use]
    pub fn workload(self, filters: usize, fresh: usize) -> Workload {
        match self {
            Self::Telemetry => Workload::telemetry(filters, fresh),
            Self::Deep => Workload::deep(filters, fresh),
            Self::Exact => Workload::exact(filters, fresh),
            Self::FanOut => Workload::fan_out(filters, fresh),
        }
    }
}

/// Filters, each of a subscriber of its own, and topics in the order in which they are published to.
pub struct Workload {
    /// The name of the workload and its number of filters.
    pub name: String,
    /// What is subscribed to.
    pub filters: Vec<SubscriptionFilter>,
    /// Filters of the same kind that nobody subscribed to yet, beside those of fan-out, which is one filter.
    pub fresh: Vec<SubscriptionFilter>,
    /// What is published to.
    pub topics: Vec<String>,
}

impl Workload {
    /// The texts behind the first `filters` are fresh.
    fn new(name: &str, filters: usize, texts: Vec<String>, topics: Vec<String>) -> Self {
        let limits = TopicLimits::default();
        let parse = |text: String| {
            // INVARIANT: wildcards fill their level in every pattern of this file.
            SubscriptionFilter::parse(&text, &limits).expect("generated filters are valid")
        };
        let mut subscribed: Vec<_> = texts.into_iter().map(parse).collect();
        let fresh = subscribed.split_off(filters);
        Self {
            name: format!("{name}/{filters}"),
            filters: subscribed,
            fresh,
            topics,
        }
    }

    /// `devices/{12 hex}/+`: every topic has one subscriber, on a level as wide as the fleet.
    #[must_use]
    pub fn telemetry(filters: usize, fresh: usize) -> Self {
        let devices = ids(filters + fresh);
        let mut random = Random::new(2);
        let subscribed = &devices[..filters];
        let topics = (0..TOPICS).map(|_| format!("devices/{}/status", random.pick(subscribed)));
        let topics = topics.collect();
        let texts = devices.iter().map(|device| format!("devices/{device}/+"));
        Self::new("telemetry", filters, texts.collect(), topics)
    }

    /// `site/{12 hex}/state`: every topic has one subscriber, and no filter has a wildcard.
    #[must_use]
    pub fn exact(filters: usize, fresh: usize) -> Self {
        let sites = ids(filters + fresh);
        let mut random = Random::new(3);
        let subscribed = &sites[..filters];
        let topics = (0..TOPICS).map(|_| format!("site/{}/state", random.pick(subscribed)));
        let topics = topics.collect();
        let texts = sites.iter().map(|site| format!("site/{site}/state"));
        Self::new("exact", filters, texts.collect(), topics)
    }

    /// `building/B/floor/F/room/R/sensor/S`: half of the filters exact, one a sensor; half with `+` or `#` at mixed
    /// levels. A topic is one of these sensors and has about 7.2 subscribers. Fresh filters
    /// are of sensors that are new in their room.
    #[must_use]
    pub fn deep(filters: usize, fresh: usize) -> Self {
        let mut random = Random::new(4);
        let mut sensors: Vec<_> = (0..filters.div_ceil(2)).collect();
        random.shuffle(&mut sensors);
        let mut texts = Vec::with_capacity(filters + fresh);
        for number in 0..filters {
            let sensor = if number % 2 == 0 {
                sensors[number / 2]
            } else {
                *random.pick(&sensors)
            };
            texts.push(deep_filter(number % 32, place(sensor)));
        }
        for number in 0..fresh {
            let [building, floor, room, _] = place(*random.pick(&sensors));
            texts.push(deep_filter(
                number % 24,
                [building, floor, room, SENSORS + number],
            ));
        }
        let topic = |_| deep_filter(0, place(*random.pick(&sensors)));
        let topics = (0..TOPICS).map(topic).collect();
        Self::new("deep", filters, texts, topics)
    }

    /// All subscribers on `alerts/+/critical`: every message goes to each of them.
    #[must_use]
    pub fn fan_out(subscribers: usize, fresh: usize) -> Self {
        let topics = (0..16)
            .map(|area| format!("alerts/{area}/critical"))
            .collect();
        let texts = vec!["alerts/+/critical".to_owned(); subscribers + fresh];
        Self::new("fan_out", subscribers, texts, topics)
    }
}

/// Building, floor, room and sensor of a sensor counted through.
fn place(sensor: usize) -> [usize; 4] {
    let (room, sensor) = (sensor / SENSORS, sensor % SENSORS);
    let (floor, room) = (room / ROOMS, room % ROOMS);
    [floor / FLOORS, floor % FLOORS, room, sensor]
}

/// Even kinds are exact; of the odd ones below 32, three are about one sensor, seven about two, six about a floor
/// or more.
fn deep_filter(kind: usize, [building, floor, room, sensor]: [usize; 4]) -> String {
    match kind {
        _ if kind.is_multiple_of(2) => {
            format!("building/{building}/floor/{floor}/room/{room}/sensor/{sensor}")
        }
        1 => format!("building/{building}/floor/{floor}/room/{room}/+/{sensor}"),
        3 | 5 => format!("building/{building}/floor/{floor}/room/{room}/sensor/{sensor}/#"),
        7 | 9 => format!("building/{building}/floor/+/room/{room}/sensor/{sensor}"),
        11 | 13 | 15 | 17 => {
            format!("building/{building}/floor/{floor}/room/+/sensor/{sensor}")
        }
        19 | 21 | 23 => format!("building/{building}/floor/{floor}/room/{room}/sensor/+"),
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
    random.shuffle(&mut ids);
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

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            items.swap(last, other);
        }
    }

    /// Returns one of `items`, which are not none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        &items[index]
    }
}

/// The texts as topics.
///
/// # Panics
///
/// With texts that are no topics.
#[must_use]
pub fn names(topics: &[String]) -> Vec<TopicName<'_>> {
    let limits = TopicLimits::default();
    // INVARIANT: workloads generate topics.
    let name = |text| TopicName::parse(text, &limits).expect("generated topics are valid");
    topics.iter().map(|text| name(text)).collect()
}
