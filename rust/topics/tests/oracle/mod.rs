//! The directory as its definition: a list of subscriptions that every question scans.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several tests; helpers are tests"
)]

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Match, Options, SubscriberId, SubscriptionFilter, TopicLimits, TopicName, Visitor,
};

pub(crate) fn name(text: &str) -> TopicName<'_> {
    TopicName::parse(text, &TopicLimits::default()).unwrap()
}

pub(crate) fn filter(text: &str) -> SubscriptionFilter {
    SubscriptionFilter::parse(text, &TopicLimits::default()).unwrap()
}

/// A match that outlives the visit, with its identifiers in order.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Seen {
    pub(crate) handle: u64,
    pub(crate) subscriber: u32,
    pub(crate) qos: QoS,
    pub(crate) retain_as_published: bool,
    pub(crate) ids: Vec<NonZeroU32>,
}

impl From<Match<'_>> for Seen {
    fn from(found: Match<'_>) -> Self {
        let mut ids = found.ids.to_vec();
        ids.sort_unstable();
        Self {
            handle: found.handle,
            subscriber: found.subscriber.get(),
            qos: found.qos,
            retain_as_published: found.retain_as_published,
            ids,
        }
    }
}

/// What a message met: plain receivers, and the candidates of each group in the order they were asked.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Receivers {
    pub(crate) plain: Vec<Seen>,
    pub(crate) groups: Vec<Vec<Seen>>,
    pub(crate) offline: Vec<Seen>,
    /// The groups whose members were to be asked.
    pub(crate) named: BTreeSet<SubscriptionFilter>,
    asked: Vec<Seen>,
    accepts: bool,
}

impl Receivers {
    /// Members of groups take the first message they are offered.
    pub(crate) fn that_accept() -> Self {
        Self {
            accepts: true,
            ..Self::default()
        }
    }

    /// Forgets the orders that nothing guarantees.
    pub(crate) fn sorted(mut self) -> Self {
        self.plain.sort();
        self.groups.iter_mut().for_each(|group| group.sort());
        self.groups.sort();
        self.offline.clear();
        self.named.clear();
        self
    }
}

impl Receivers {
    /// Whether these, of a message that nobody took, are what the definition says: all plain receivers, and of each
    /// group every member once, or as many as one message is offered to.
    pub(crate) fn agree_with(&self, definition: &Self) -> bool {
        const MOST_ASKED: usize = 32;
        let of_group = |asked: &[Seen]| {
            let has_asked = |members: &&Vec<Seen>| asked.iter().all(|one| members.contains(one));
            let members = definition.groups.iter().find(has_asked);
            members.is_some_and(|members| {
                let are_distinct = asked.iter().collect::<BTreeSet<_>>().len() == asked.len();
                are_distinct && asked.len() >= members.len().min(MOST_ASKED)
            })
        };
        self.plain == definition.plain
            && self.groups.len() == definition.groups.len()
            && self.groups.iter().all(|asked| of_group(asked))
    }
}

impl Visitor for Receivers {
    fn plain(&mut self, found: Match<'_>) {
        self.plain.push(found.into());
    }

    fn group(&mut self, group: &SubscriptionFilter) {
        assert!(self.named.insert(group.clone()), "{group} is named twice");
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.asked.push(candidate.into());
        if self.accepts {
            self.groups.push(std::mem::take(&mut self.asked));
        }
        self.accepts
    }

    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        let candidate = candidate.into();
        if self.asked.last() != Some(&candidate) {
            self.asked.push(candidate);
        }
        u8::from(self.accepts)
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        assert_eq!(self.asked.first(), Some(&first_choice.into()));
        self.offline.push(first_choice.into());
        self.groups.push(std::mem::take(&mut self.asked));
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: SubscriberId,
    pub(crate) handle: u64,
    pub(crate) filter: SubscriptionFilter,
    pub(crate) options: Options,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) rows: Vec<Row>,
}

impl Oracle {
    /// Answers whether the subscription existed, and whether the filter had no subscription before.
    pub(crate) fn subscribe(&mut self, row: Row) -> (bool, bool) {
        let is_first = !self.has_filter(&row.filter);
        let existed = self.remove(row.id, &row.filter);
        self.rows.push(row);
        (existed, is_first)
    }

    /// Answers whether the subscription existed, and whether the filter has no subscription now but had one.
    pub(crate) fn unsubscribe(
        &mut self,
        id: SubscriberId,
        filter: &SubscriptionFilter,
    ) -> (bool, bool) {
        let existed = self.remove(id, filter);
        (existed, existed && !self.has_filter(filter))
    }

    fn remove(&mut self, id: SubscriberId, filter: &SubscriptionFilter) -> bool {
        let before = self.rows.len();
        self.rows
            .retain(|row| row.id != id || row.filter != *filter);
        self.rows.len() < before
    }

    fn has_filter(&self, filter: &SubscriptionFilter) -> bool {
        self.rows
            .iter()
            .any(|row| row.filter.filter() == filter.filter())
    }

    /// The groups that a topic goes to.
    pub(crate) fn groups(&self, topic: &str) -> BTreeSet<SubscriptionFilter> {
        let filters = self.rows.iter().map(|row| &row.filter);
        let is_group = |filter: &&SubscriptionFilter| {
            filter.is_shared() && filter.filter().matches(name(topic))
        };
        filters.filter(is_group).cloned().collect()
    }

    /// What the members of a group get of a message that none of them published.
    pub(crate) fn members(&self, group: &SubscriptionFilter) -> Vec<Seen> {
        let members = self.rows.iter().filter(|row| row.filter == *group);
        let mut seen: Vec<_> = members
            .filter_map(|row| merged(std::iter::once(row)))
            .collect();
        seen.sort();
        seen
    }

    pub(crate) fn matches(&self, topic: &str, publisher: Option<SubscriberId>) -> Receivers {
        let fits = |row: &&Row| {
            row.filter.filter().matches(name(topic))
                && !(row.options.no_local && publisher == Some(row.id))
        };
        let matching: Vec<&Row> = self.rows.iter().filter(fits).collect();
        let mut receivers = Receivers::default();
        let mut ids: Vec<SubscriberId> = matching.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let of = |row: &&&Row| row.id == id && !row.filter.is_shared();
            receivers
                .plain
                .extend(merged(matching.iter().filter(of).copied()));
        }
        let mut groups: Vec<&SubscriptionFilter> = matching
            .iter()
            .map(|row| &row.filter)
            .filter(|filter| filter.is_shared())
            .collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let members = matching.iter().filter(|row| row.filter == *group);
            receivers.groups.push(
                members
                    .filter_map(|row| merged(std::iter::once(*row)))
                    .collect(),
            );
        }
        receivers.sorted()
    }
}

fn merged<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Seen> {
    let rows: Vec<&Row> = rows.collect();
    let mut ids: Vec<NonZeroU32> = rows.iter().filter_map(|row| row.options.id).collect();
    ids.sort_unstable();
    Some(Seen {
        handle: rows.first()?.handle,
        subscriber: rows[0].id.get(),
        qos: rows.iter().map(|row| row.options.qos).max()?,
        retain_as_published: rows.iter().any(|row| row.options.retain_as_published),
        ids,
    })
}
