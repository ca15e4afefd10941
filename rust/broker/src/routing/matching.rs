//! Matching: searches the directory, and chooses members of shared groups.

use mqttcore_codec::QoS;
use mqttcore_topics::{Match, Search, SubscriptionFilter, TopicName, Visitor};
use smallvec::SmallVec;

use crate::clients::target::{GroupDelivery, Target};
use crate::routing::group::AvailabilityCheck;
use crate::routing::publication::{Publication, Unroutable};
use crate::shard::Shard;

/// Maximum number of messages of one client, from one read, that are matched together.
pub(crate) const MESSAGE_BATCH: usize = 16;

/// The purpose of a search for targets.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Purpose {
    /// The targets get the message: shared groups advance to their next member.
    Delivery,
    /// Only a question for the targets.
    Question,
}

/// Where the targets of each message of a batch start.
type Starts = SmallVec<[usize; MESSAGE_BATCH]>;

struct Collector<'a> {
    shard: &'a Shard,
    publications: &'a [Publication<'a>],
    purpose: Purpose,
    judge: AvailabilityCheck<'a>,
    retain: bool,
    targets: &'a mut Vec<Target>,
    /// The group whose members are asked.
    group: Option<SubscriptionFilter>,
    starts: &'a mut Starts,
    /// Steps of the searches, and offers to members of groups.
    steps: usize,
    /// Messages whose search was given up, a bit each.
    given_up: u32,
}

impl<'a> Collector<'a> {
    fn new(
        shard: &'a Shard,
        publications: &'a [Publication<'a>],
        purpose: Purpose,
        (targets, starts): (&'a mut Vec<Target>, &'a mut Starts),
    ) -> Self {
        Self {
            shard,
            publications,
            purpose,
            judge: AvailabilityCheck::new(shard, QoS::AtMostOnce),
            retain: false,
            targets,
            group: None,
            starts,
            steps: 0,
            given_up: 0,
        }
    }

    fn choose(&mut self, member: &Match<'_>) {
        let mut target = Target::of(member, self.retain);
        let member = member.subscriber;
        let group = self.group.take();
        target.choice = group.map(|group| GroupDelivery::First { group, member });
        self.targets.push(target);
    }
}

/// Steps that a member counts for that is away: its session is seldom in a cache of the processor.
const AWAY_STEPS: usize = 32;

impl Visitor for Collector<'_> {
    fn searched(&mut self, search: Search) {
        self.steps += search.steps;
        if !search.is_complete {
            self.given_up |= 1 << self.starts.len().saturating_sub(1);
        }
    }

    fn advances_cursor(&self) -> bool {
        self.purpose == Purpose::Delivery
    }

    fn plain(&mut self, matched: Match<'_>) {
        self.targets.push(Target::of(&matched, self.retain));
    }

    fn group(&mut self, group: &SubscriptionFilter) {
        self.group = Some(group.clone());
    }

    fn probed(&mut self, places: usize) {
        self.steps += places;
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.steps += 1;
        let takes = self.judge.takes(&candidate);
        if takes {
            self.choose(&candidate);
        }
        takes
    }

    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        self.steps += 1;
        self.judge.standby(&candidate)
    }

    fn away_may_keep(&self) -> bool {
        self.judge.away_may_keep()
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        self.steps += AWAY_STEPS;
        if self.judge.standby(&first_choice) == 0 {
            // No member would take the message: the first choice drops it.
            self.group = None;
        }
        self.choose(&first_choice);
    }

    fn topic(&mut self, index: usize) {
        self.starts.push(self.targets.len());
        if let Some(publication) = self.publications.get(index) {
            self.judge = AvailabilityCheck::new(self.shard, publication.message.qos());
            self.retain = publication.message.retain();
        }
    }
}

/// Collects the targets of each of `publications`, which are of one publisher, in `targets`, which is empty.
pub(super) fn search(
    shard: &Shard,
    publications: &mut [Publication<'_>],
    purpose: Purpose,
    targets: &mut Vec<Target>,
) {
    debug_assert!(
        publications
            .iter()
            .all(|publication| publication.message.qos() == QoS::AtMostOnce)
            || shard.engine.is_stopping()
            || shard.engine.loading.remaining() == Some(0),
        "whoever may get it is there"
    );
    let mut starts = Starts::new();
    let given_up = match_all(shard, publications, purpose, (targets, &mut starts));
    let ends = starts.iter().skip(1).copied().chain([targets.len()]);
    let found = starts.iter().zip(ends).enumerate();
    for (publication, (index, (start, end))) in publications.iter_mut().zip(found) {
        let routed = &mut publication.routed;
        routed.found = end - start;
        let is_given_up = given_up & 1 << index != 0;
        routed.refused = is_given_up.then_some(Unroutable::TooManyFilters);
    }
}

/// Collects the targets of each message, and returns a bit for each whose search was given up.
fn match_all(
    shard: &Shard,
    publications: &[Publication<'_>],
    purpose: Purpose,
    collected: (&mut Vec<Target>, &mut Starts),
) -> u32 {
    let mut collector = Collector::new(shard, publications, purpose, collected);
    let cache = &mut shard.results.borrow_mut();
    let (directory, random) = (&shard.engine.directory, shard.random());
    let publisher = |publication: &Publication<'_>| Some(publication.publisher?.subscriber);
    let cached = match publications {
        [one] => {
            let publisher = publisher(one);
            let visitor = &mut collector;
            visitor.topic(0);
            u64::from(directory.match_cached(cache, one.topic, publisher, random, visitor))
        }
        many => {
            let topics = many.iter().map(|publication| publication.topic);
            let topics: SmallVec<[TopicName<'_>; MESSAGE_BATCH]> = topics.collect();
            let publisher = many.first().and_then(publisher);
            let visitor = &mut collector;
            directory.match_many_cached(cache, &topics, publisher, random, visitor) as u64
        }
    };
    let Collector {
        steps, given_up, ..
    } = collector;
    shard.metrics().matches_cached.add(cached);
    shard.count_steps(steps);
    given_up
}
