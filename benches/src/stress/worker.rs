//! One writing thread of a run, and the one that reads along.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use mqttcore_topics::{
    Change, Directory, Match, MatchCache, SubscriberId, SubscriptionFilter, TopicLimits, TopicName,
    Visitor,
};

use super::ground::{
    FIRST_SESSION, FIRST_WRITER, Ground, HOT_FILTER, HOT_TOPIC, filter, subscribe,
};
use super::{Fault, Sabotage, Verdict};
use crate::workload::Random;

/// Private filters of a writer.
const PRIVATE: usize = 1_024;

/// Cycles between two reports to the others.
const REPORT: u64 = 1_024;

/// Who gets a message, plain and by shared groups.
#[derive(Default)]
struct Receivers {
    plain: Vec<u64>,
    shared: Vec<u64>,
}

impl Visitor for Receivers {
    fn plain(&mut self, found: Match<'_>) {
        self.plain.push(found.handle);
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.shared.push(candidate.handle);
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

impl Receivers {
    /// As [`of`](Self::of), by way of a cache of results: what was acknowledged is seen by it just as well.
    fn cached<'r>(
        &'r mut self,
        directory: &Directory,
        cache: &mut MatchCache,
        topic: TopicName<'_>,
    ) -> &'r Self {
        self.plain.clear();
        self.shared.clear();
        directory.match_cached(cache, topic, None, 0, self);
        self
    }

    fn of<'r>(&'r mut self, directory: &Directory, topic: TopicName<'_>) -> &'r Self {
        self.plain.clear();
        self.shared.clear();
        directory.snapshot().match_one(topic, None, 0, self);
        self
    }
}

fn name(text: &str) -> TopicName<'_> {
    // INVARIANT: the run makes valid topics only.
    TopicName::parse(text, &TopicLimits::default()).expect("a topic of the run is valid")
}

/// A writer.
pub(super) struct Worker<'r> {
    directory: &'r Directory,
    ground: &'r Ground,
    number: u64,
    id: SubscriberId,
    handle: u64,
    sessions: u64,
    random: Random,
    private: Vec<(SubscriptionFilter, String)>,
    hot: SubscriptionFilter,
    batch: [SubscriptionFilter; 4],
    batch_topic: String,
    receivers: Receivers,
    cache: MatchCache,
    verdict: Verdict,
    sabotage: Option<Sabotage>,
}

impl<'r> Worker<'r> {
    pub(super) fn new(
        directory: &'r Directory,
        ground: &'r Ground,
        number: u64,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let private = (0..PRIVATE).map(|index| {
            let device =
                (number * 0x1_0001 + index as u64).wrapping_mul(0xD134_2543_DE82_EF95) >> 16;
            (
                filter(&format!("devices/{device:012x}.{number}/+")),
                format!("devices/{device:012x}.{number}/state"),
            )
        });
        let batch_topic = format!("batch/{number}/a");
        let batch = [
            batch_topic.clone(),
            format!("batch/{number}/+"),
            format!("batch/{number}/#"),
            format!("$share/g/batch/{number}/a"),
        ];
        Self {
            directory,
            ground,
            number,
            id: directory.join(FIRST_WRITER + number),
            handle: FIRST_WRITER + number,
            sessions: 0,
            random: Random::new(number),
            private: private.collect(),
            hot: filter(HOT_FILTER),
            batch: batch.map(|text| filter(&text)),
            batch_topic,
            receivers: Receivers::default(),
            cache: MatchCache::new(),
            verdict: Verdict::default(),
            sabotage,
        }
    }

    pub(super) fn run(&mut self, cycles: u64, done: &AtomicU64) -> Verdict {
        for cycle in 0..cycles {
            match self.random.below(32) {
                0..=18 => self.private_cycle(),
                19..=26 => self.hot_cycle(),
                27..=29 => self.batch_cycle(),
                30 => self.session_cycle(),
                _ => self.look_at_the_fleet(),
            }
            self.verdict.cycles += 1;
            if (cycle + 1) % REPORT == 0 {
                done.fetch_add(REPORT, Ordering::Relaxed); // ORDERING: a count for people.
            }
        }
        self.directory.leave(self.id);
        while self.directory.clean(64) > 0 {}
        self.verdict
    }

    /// A filter of this thread alone.
    fn private_cycle(&mut self) {
        let index = usize::try_from(self.random.below(PRIVATE as u64)).unwrap_or(0);
        let directory = self.directory;
        let (filter, topic) = &self.private[index];
        directory.commit(self.id, &[subscribe(filter)]);
        self.sabotage(filter);
        let (filter, topic) = (filter, name(topic));
        let seen = &self.receivers.of(directory, topic).plain;
        self.verdict.lost += u64::from(!seen.contains(&self.handle));
        self.verdict.wrong += seen.len().saturating_sub(1) as u64;
        directory.commit(self.id, &[Change::Unsubscribe { filter }]);
        self.verdict.matches += 1;
        if self.verdict.cycles.is_multiple_of(4) {
            let seen = &self.receivers.of(directory, topic).plain;
            self.verdict.wrong += seen.len() as u64;
            self.verdict.matches += 1;
        }
    }

    /// The filter that all writers fight for, with subscribers that stay.
    fn hot_cycle(&mut self) {
        let (directory, own) = (self.directory, self.handle);
        directory.commit(self.id, &[subscribe(&self.hot)]);
        self.sabotage(&self.hot);
        // Twice by way of the cache now and then, so that the second time may be a hit.
        for by_cache in [false, true, true] {
            if by_cache && !self.verdict.cycles.is_multiple_of(8) {
                continue;
            }
            let seen = &self.look_at_hot(by_cache).plain;
            let (lost, wrong) = Ground::count_hot(seen);
            let is_missing = !seen.contains(&own);
            self.verdict.lost += lost + u64::from(is_missing);
            self.verdict.wrong += wrong;
        }
        directory.commit(self.id, &[Change::Unsubscribe { filter: &self.hot }]);
        if self.verdict.cycles.is_multiple_of(4) {
            let seen = self.look_at_hot(self.verdict.cycles.is_multiple_of(8));
            let is_there = seen.plain.contains(&own);
            self.verdict.wrong += u64::from(is_there);
        }
    }

    fn look_at_hot(&mut self, by_cache: bool) -> &Receivers {
        self.verdict.matches += 1;
        let topic = name(HOT_TOPIC);
        if by_cache {
            self.receivers
                .cached(self.directory, &mut self.cache, topic)
        } else {
            self.receivers.of(self.directory, topic)
        }
    }

    /// Overlapping filters and a group in one commit: one plain delivery and one of the group, then none.
    fn batch_cycle(&mut self) {
        let directory = self.directory;
        directory.commit(self.id, &self.batch.each_ref().map(subscribe));
        self.sabotage(&self.batch[3]);
        let seen = self.receivers.of(directory, name(&self.batch_topic));
        for list in [&seen.plain, &seen.shared] {
            self.verdict.lost += u64::from(!list.contains(&self.handle));
            self.verdict.wrong += list.len().saturating_sub(1) as u64;
        }
        let removal = self
            .batch
            .each_ref()
            .map(|filter| Change::Unsubscribe { filter });
        directory.commit(self.id, &removal);
        let seen = self.receivers.of(directory, name(&self.batch_topic));
        self.verdict.wrong += (seen.plain.len() + seen.shared.len()) as u64;
        self.verdict.matches += 2;
    }

    /// A session that comes, subscribes, and goes: nothing is delivered to it afterwards.
    fn session_cycle(&mut self) {
        self.sessions += 1;
        let directory = self.directory;
        let handle = FIRST_SESSION + (self.number << 40) + self.sessions;
        let index = usize::try_from(self.random.below(PRIVATE as u64)).unwrap_or(0);
        let (filter, topic) = &self.private[index];
        let id = directory.join(handle);
        directory.commit(id, &[subscribe(filter), subscribe(&self.batch[1])]);
        for topic in [topic, &self.batch_topic] {
            let seen = &self.receivers.of(directory, name(topic)).plain;
            self.verdict.lost += u64::from(!seen.contains(&handle));
            self.verdict.wrong += seen.len().saturating_sub(1) as u64;
        }
        if self.is_due(Fault::Leak) {
            return;
        }
        directory.leave(id);
        let seen = &self.receivers.of(directory, name(topic)).plain;
        self.verdict.wrong += seen.len() as u64;
        self.verdict.matches += 3;
        directory.clean(8);
    }

    /// One permanent subscription: there, and alone.
    fn look_at_the_fleet(&mut self) {
        let number = self.random.below(self.ground.topics.len() as u64);
        let topic = &self.ground.topics[usize::try_from(number).unwrap_or(0)];
        let seen = &self.receivers.of(self.directory, name(topic)).plain;
        self.verdict.lost += u64::from(!seen.contains(&number));
        self.verdict.wrong += seen.len().saturating_sub(1) as u64;
        self.verdict.matches += 1;
    }

    fn is_due(&self, fault: Fault) -> bool {
        self.sabotage.is_some_and(|sabotage| {
            sabotage.fault == fault && self.verdict.cycles.is_multiple_of(sabotage.one_in)
        })
    }

    /// Does what a broken directory would do after an acknowledgement.
    fn sabotage(&self, filter: &SubscriptionFilter) {
        if self.is_due(Fault::Lose) {
            self.directory
                .commit(self.id, &[Change::Unsubscribe { filter }]);
        }
        if self.is_due(Fault::Misdeliver) {
            let stranger = self.directory.join(0);
            self.directory.commit(stranger, &[subscribe(filter)]);
        }
    }
}

/// Looks for permanent subscriptions until the writers are through.
pub(super) fn read_along(directory: &Directory, ground: &Ground, is_over: &AtomicBool) -> Verdict {
    let (mut verdict, mut receivers) = (Verdict::default(), Receivers::default());
    let mut random = Random::new(u64::MAX);
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..256 {
            let number = random.below(ground.topics.len() as u64);
            let topic = &ground.topics[usize::try_from(number).unwrap_or(0)];
            let seen = &receivers.of(directory, name(topic)).plain;
            verdict.lost += u64::from(!seen.contains(&number));
            verdict.wrong += seen.len().saturating_sub(1) as u64;
        }
        let (lost, wrong) = Ground::count_hot(&receivers.of(directory, name(HOT_TOPIC)).plain);
        verdict.lost += lost;
        verdict.wrong += wrong;
        verdict.matches += 257;
        // It reads a part of the time, so that the writers have the cores.
        thread::sleep(Duration::from_millis(1));
    }
    verdict
}
