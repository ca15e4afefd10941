//! Our directory, behind the face of a contender.

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, MatchCache, Options, Strategy, SubscriberId, SubscriptionFilter,
    TopicName, Visitor,
};

use super::Contender;

/// See the [module](self). One batch a subscription; handles are the numbers of clients.
pub struct Ours {
    directory: Directory,
    ids: Vec<SubscriberId>,
}

impl Ours {
    /// What it stands for.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The subscriber that stands for a client.
    pub fn id(&self, client: u32) -> SubscriberId {
        self.ids[client as usize]
    }

    /// Hands the client and the QoS of every match of several topics to `visit`, in one go.
    pub fn for_each_match_of(&self, topics: &[TopicName<'_>], visit: impl FnMut(u32, u8)) {
        self.directory
            .snapshot()
            .match_many(topics, None, 0, &mut Visit(visit));
    }
}

impl Ours {
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

impl Contender for Ours {
    const NAME: &'static str = "mqttcore";
    type Reader = ();

    fn new() -> Self {
        Self {
            directory: Directory::new(0x5EED, Strategy::RoundRobin),
            ids: Vec::new(),
        }
    }

    fn admit(&mut self, clients: u32) {
        let known = super::client(self.ids.len());
        let newcomers = (known..clients).map(|client| self.directory.join(client.into()));
        self.ids.extend(newcomers);
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let qos = match qos {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        let options = Options::at(qos);
        let change = Change::Subscribe { filter, options };
        !self.directory.commit(self.id(client), &[change])[0].existed
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let change = Change::Unsubscribe { filter };
        self.directory.commit(self.id(client), &[change])[0].existed
    }

    #[inline]
    fn for_each_match(&self, (): &mut (), topic: TopicName<'_>, visit: impl FnMut(u32, u8)) {
        self.directory
            .snapshot()
            .match_one(topic, None, 0, &mut Visit(visit));
    }

    fn collect_garbage(&self) {
        // A commit of nothing pins, and a pin now and then moves the epoch on and frees what waits.
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
