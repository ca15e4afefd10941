//! Who a message matches: the directory is searched, and members of shared groups are chosen.

use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_topics::{Match, Search, SubscriptionFilter, TopicName, Visitor};
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::clients::target::{GroupDelivery, Target};
use crate::routing::group::AvailabilityCheck;
use crate::routing::publication::Unroutable;
use crate::shard::Shard;

/// Messages of one client that are matched together: what one read brought.
pub(crate) const MESSAGE_BATCH: usize = 16;

pub(super) struct Collector<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) judge: AvailabilityCheck<'a>,
    /// Of each of several messages.
    pub(crate) qos: SmallVec<[QoS; MESSAGE_BATCH]>,
    pub(crate) retain: bool,
    /// The message is on its way, not only asked about.
    pub(crate) takes_turns: bool,
    pub(crate) targets: &'a mut Vec<Target>,
    /// The group whose members are asked.
    pub(crate) group: Option<SubscriptionFilter>,
    /// Where the targets of each of several topics start.
    pub(crate) starts: SmallVec<[usize; MESSAGE_BATCH]>,
    /// What the searches took, and the offers to members of groups.
    pub(crate) steps: usize,
    /// Topics whose search was given up, a bit each.
    pub(crate) given_up: u32,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        shard: &'a Shard,
        retain: bool,
        qos: QoS,
        targets: &'a mut Vec<Target>,
    ) -> Self {
        Self {
            shard,
            judge: AvailabilityCheck::new(shard, qos),
            qos: SmallVec::new(),
            retain,
            takes_turns: true,
            targets,
            group: None,
            starts: SmallVec::new(),
            steps: 0,
            given_up: 0,
        }
    }

    /// Which of several topics is matched; 0 for one alone.
    fn topic_index(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn choose(&mut self, member: &Match<'_>) {
        let mut target = Target::of(member, self.retain);
        let choice = |group| Box::new(GroupDelivery::new(group, member.subscriber));
        target.choice = self.group.take().map(choice);
        self.targets.push(target);
    }
}

impl Visitor for Collector<'_> {
    fn searched(&mut self, search: Search) {
        self.steps += search.steps;
        if !search.is_complete {
            self.given_up |= 1 << self.topic_index();
        }
    }

    fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    fn plain(&mut self, matched: Match<'_>) {
        self.targets.push(Target::of(&matched, self.retain));
    }

    fn group(&mut self, group: &SubscriptionFilter) {
        self.group = Some(group.clone());
        if let Some(qos) = self.qos.get(self.topic_index()) {
            self.judge = AvailabilityCheck::new(self.shard, *qos);
        }
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
        self.judge.standby(&candidate)
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        if self.judge.standby(&first_choice) == 0 {
            // Nobody would take it: it is not handed on from the one whose drop it becomes.
            self.group = None;
        }
        self.choose(&first_choice);
    }

    fn topic(&mut self, _: usize) {
        self.starts.push(self.targets.len());
    }
}

pub(super) fn search(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
    mut collector: Collector<'_>,
) -> Result<(), Unroutable> {
    debug_assert!(
        message.qos() == QoS::AtMostOnce
            || shard.world.is_stopping()
            || shard.world.loading.to_come() == Some(0),
        "whoever may get it is there"
    );
    let was_kept = shard.world.directory.match_cached(
        &mut shard.results.borrow_mut(),
        topic,
        publisher.map(|client| client.subscriber),
        shard.random(),
        &mut collector,
    );
    shard.metrics().matches_cached.add(was_kept.into());
    shard.count_steps(collector.steps);
    if collector.given_up > 0 {
        return Err(Unroutable::TooManyFilters);
    }
    Ok(())
}
