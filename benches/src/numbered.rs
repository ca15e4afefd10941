//! The subscription directory with plain subscriptions of clients that are numbers.

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, MatchCache, Options, Strategy, SubscriberId, SubscriptionFilter,
    TopicName, Visitor,
};

/// See the [module](self). One batch a subscription; handles are the numbers of clients.
pub struct NumberedDirectory {
    directory: Directory,
    ids: Vec<SubscriberId>,
}

impl NumberedDirectory {
    /// Makes an empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            directory: Directory::new(0x5EED, Strategy::RoundRobin),
            ids: Vec::new(),
        }
    }

    /// Makes a directory in which client number `n` has subscribed to filter number `n`.
    #[must_use]
    pub fn load(filters: &[SubscriptionFilter]) -> Self {
        let mut made = Self::new();
        made.admit(client(filters.len()));
        for (number, filter) in filters.iter().enumerate() {
            made.subscribe(filter, client(number), 1);
        }
        made
    }

    /// Makes clients up to `clients`, which then may subscribe.
    pub fn admit(&mut self, clients: u32) {
        let known = client(self.ids.len());
        let newcomers = (known..clients).map(|client| self.directory.join(client.into()));
        self.ids.extend(newcomers);
    }

    /// What it stands for.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The subscriber that stands for a client.
    pub fn id(&self, client: u32) -> SubscriberId {
        self.ids[client as usize]
    }

    /// Adds a subscription or replaces its QoS; answers whether it is new.
    pub fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let qos = match qos {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        let options = Options::at(qos);
        let change = Change::Subscribe { filter, options };
        !self.directory.commit(self.id(client), &[change])[0].existed
    }

    /// Removes a subscription; answers whether it was there.
    pub fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let change = Change::Unsubscribe { filter };
        self.directory.commit(self.id(client), &[change])[0].existed
    }

    /// Hands the client and the QoS of every match to `visit`.
    #[inline]
    pub fn for_each_match(&self, topic: TopicName<'_>, visit: impl FnMut(u32, u8)) {
        self.directory
            .snapshot()
            .match_one(topic, None, 0, &mut Visit(visit));
    }

    /// Hands the client and the QoS of every match of several topics to `visit`, in one go.
    pub fn for_each_match_of(&self, topics: &[TopicName<'_>], visit: impl FnMut(u32, u8)) {
        self.directory
            .snapshot()
            .match_many(topics, None, 0, &mut Visit(visit));
    }

    /// Hands the client and the QoS of every match to `visit`, by way of a worker's cache.
    #[inline]
    pub fn for_each_cached(
        &self,
        cache: &mut MatchCache,
        topic: TopicName<'_>,
        visit: impl FnMut(u32, u8),
    ) {
        self.directory
            .match_cached(cache, topic, None, 0, &mut Visit(visit));
    }

    /// Frees what was replaced and waits for nobody any more.
    pub fn collect_garbage(&self) {
        // A commit of nothing pins, and a pin now and then moves the epoch on and frees what its grace period held.
        let Some(&client) = self.ids.first() else {
            return;
        };
        for _ in 0..1 << 16 {
            self.directory.commit(client, &[]);
            if self.directory.stats().retired_bytes == 0 {
                break;
            }
        }
        Directory::trim();
    }
}

impl Default for NumberedDirectory {
    fn default() -> Self {
        Self::new()
    }
}

/// The client that owns filter number `number` of a workload.
///
/// # Panics
///
/// At 2^32, which no bench reaches.
pub fn client(number: usize) -> u32 {
    // INVARIANT: workloads have at most some million filters.
    u32::try_from(number).expect("a workload has less than 2^32 filters")
}

struct Visit<F>(F);

impl<F: FnMut(u32, u8)> Visitor for Visit<F> {
    #[inline]
    fn plain(&mut self, found: Match<'_>) {
        // INVARIANT: handles come from `admit`, which counts in `u32`.
        (self.0)(
            u32::try_from(found.handle).unwrap_or(u32::MAX),
            found.qos as u8,
        );
    }

    fn shared(&mut self, _: Match<'_>) -> bool {
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}
