//! Any history of subscriptions answers every match as the definition does, and leaves a sound tree.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

mod oracle;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, ChangeOutcome, Directory, Options, Strategy as Choice, SubscriberId, SubscriptionFilter,
};
use oracle::{Oracle, Receivers, Row, Seen, filter, name};
use proptest::prelude::*;

const TOPICS: [&str; 22] = [
    "a",
    "b",
    "a/",
    "/a",
    "/",
    "//",
    "a/b",
    "a//b",
    "a/b/c",
    "b/a",
    "a/a/a/a",
    "$x",
    "$x/a",
    "a/$x",
    "$x/",
    "$x/a/b",
    "long level/b",
    "long level/b/long level",
    "b/long level",
    "/b/",
    "c",
    "a/c",
];

/// Hash masks: all bits, few, and none, so that collision lists and deep branches come up.
const MASKS: [u64; 4] = [u64::MAX, 0x0400_0000_0021, 0b11, 0];

#[derive(Clone, Debug)]
enum Step {
    Commit {
        client: usize,
        changes: Vec<(String, Option<Options>)>,
    },
    SetAvailable {
        client: usize,
        is_available: bool,
    },
    Leave {
        client: usize,
    },
    Clean {
        limit: usize,
    },
    Match {
        topic: &'static str,
        publisher: Option<usize>,
    },
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "a", "b", "$x", "+", "+", "#", "long level"])
}

fn filter_text() -> impl Strategy<Value = String> {
    let plain = prop::collection::vec(level(), 1..=4).prop_filter_map("no filter", |levels| {
        let last = levels
            .iter()
            .position(|level| *level == "#")
            .map_or(levels.len(), |at| at + 1);
        let text = levels[..last].join("/");
        (!text.is_empty()).then_some(text)
    });
    let share = prop::sample::select(vec!["", "", "", "$share/g/", "$share/h/"]);
    (share, plain).prop_map(|(share, plain)| format!("{share}{plain}"))
}

fn options() -> impl Strategy<Value = Options> {
    (0_u8..3, any::<bool>(), any::<bool>(), 0_u32..4).prop_map(
        |(qos, no_local, retain_as_published, id)| Options {
            qos: QoS::try_from(qos).unwrap(),
            no_local,
            retain_as_published,
            id: NonZeroU32::new(id),
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0_usize..6;
    let change = (filter_text(), prop::option::weighted(0.7, options()));
    prop_oneof![
        6 => (client.clone(), prop::collection::vec(change, 1..6))
            .prop_map(|(client, changes)| Step::Commit { client, changes }),
        1 => client.clone().prop_map(|client| Step::Leave { client }),
        2 => (client.clone(), any::<bool>())
            .prop_map(|(client, is_available)| Step::SetAvailable { client, is_available }),
        1 => (0_usize..8).prop_map(|limit| Step::Clean { limit }),
        4 => (prop::sample::select(TOPICS.to_vec()), prop::option::of(client))
            .prop_map(|(topic, publisher)| Step::Match { topic, publisher }),
    ]
}

/// A directory beside its oracle.
struct Pair {
    directory: Directory,
    oracle: Oracle,
    /// Subscriptions of those that left and were not cleaned: in the tree, in no match.
    dead: Vec<Row>,
    clients: Vec<(SubscriberId, u64)>,
    /// Who is not available.
    away: BTreeSet<u32>,
    next_handle: u64,
}

impl Pair {
    fn new(mask: u64) -> Self {
        let directory = Directory::with_hash_mask(9, strategy(mask), mask);
        // Some fit beside their subscription, some need all 64 bits.
        let handles = (1 << 63) - 3..(1 << 63) + 3;
        let clients = handles
            .clone()
            .map(|handle| (directory.join(handle), handle))
            .collect();
        Self {
            directory,
            oracle: Oracle::default(),
            dead: Vec::new(),
            clients,
            away: BTreeSet::new(),
            next_handle: handles.end,
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Commit { client, changes } => self.commit(*client, changes),
            Step::Leave { client } => {
                self.leave(*client);
                Ok(())
            }
            Step::SetAvailable {
                client,
                is_available,
            } => {
                let (id, _) = self.clients[*client];
                self.directory.set_available(id, *is_available);
                if *is_available {
                    self.away.remove(&id.get());
                } else {
                    self.away.insert(id.get());
                }
                Ok(())
            }
            Step::Clean { limit } => self.clean(*limit),
            Step::Match { topic, publisher } => self.compare(topic, *publisher),
        }
    }

    fn commit(
        &mut self,
        client: usize,
        changes: &[(String, Option<Options>)],
    ) -> Result<(), TestCaseError> {
        let (id, handle) = self.clients[client];
        let filters: Vec<_> = changes.iter().map(|(text, _)| filter(text)).collect();
        let batch: Vec<_> = filters
            .iter()
            .zip(changes)
            .map(|(filter, (_, options))| match options {
                Some(options) => Change::Subscribe {
                    filter,
                    options: *options,
                },
                None => Change::Unsubscribe { filter },
            })
            .collect();
        let outcomes = self.directory.commit(id, &batch);
        for (change, outcome) in batch.iter().zip(outcomes) {
            let (existed, first_or_last) = match *change {
                Change::Subscribe { filter, options } => {
                    let filter = filter.clone();
                    self.oracle.subscribe(Row {
                        id,
                        handle,
                        filter,
                        options,
                    })
                }
                Change::Unsubscribe { filter } => self.oracle.unsubscribe(id, filter),
            };
            // The dead count as long as they are in the tree, so first and last are exact without them only.
            let first_or_last = if self.dead.is_empty() {
                first_or_last
            } else {
                outcome.first_or_last
            };
            prop_assert_eq!(
                outcome,
                ChangeOutcome {
                    existed,
                    first_or_last
                },
                "{:?}",
                change
            );
        }
        Ok(())
    }

    fn leave(&mut self, client: usize) {
        let (id, _) = self.clients[client];
        self.directory.leave(id);
        self.away.remove(&id.get());
        let (dead, rows) = self.oracle.rows.drain(..).partition(|row| row.id == id);
        self.oracle.rows = rows;
        self.dead.extend::<Vec<Row>>(dead);
        let handle = self.next_handle;
        self.next_handle += 1;
        self.clients[client] = (self.directory.join(handle), handle);
    }

    fn clean(&mut self, limit: usize) -> Result<(), TestCaseError> {
        let left = self.directory.clean(limit);
        let expected = self.dead.len().saturating_sub(limit);
        // Which rows went is the directory's choice; here only their number counts.
        self.dead.truncate(expected);
        prop_assert_eq!(left, expected);
        Ok(())
    }

    fn compare(&self, topic: &str, publisher: Option<usize>) -> Result<(), TestCaseError> {
        let publisher = publisher.map(|client| self.clients[client].0);
        let expected = self.oracle.matches(topic, publisher);
        let snapshot = self.directory.snapshot();

        let mut refused = Receivers::default();
        snapshot.match_one(name(topic), publisher, 5, &mut refused);
        prop_assert_eq!(refused.offline.len(), refused.groups.len());
        let is_available = |seen: &Seen| !self.away.contains(&seen.subscriber);
        for asked in &refused.groups {
            prop_assert!(
                asked.is_sorted_by_key(|seen| !is_available(seen)),
                "the available ones first"
            );
        }
        for group in self.oracle.groups(topic) {
            // Those of which nobody is left but the dead are named as well.
            prop_assert!(refused.named.contains(&group), "{} on {}", group, topic);
        }
        for group in &refused.named {
            self.compare_again(group)?;
        }
        prop_assert_eq!(&refused.sorted(), &expected, "{}", topic);

        let mut in_turn = Receivers::default();
        snapshot.match_interleaved(&[name(topic)], publisher, 5, &mut in_turn);
        prop_assert_eq!(&in_turn.sorted(), &expected, "{} in turn", topic);

        let mut accepted = Receivers::that_accept();
        snapshot.match_one(name(topic), publisher, 5, &mut accepted);
        prop_assert_eq!(accepted.groups.len(), expected.groups.len());
        for taken in &accepted.groups {
            prop_assert_eq!(taken.len(), 1);
            // A client may be in several groups.
            let is_choice_of = |group: &Vec<Seen>| {
                let has_available = group.iter().any(is_available);
                group.contains(&taken[0]) && is_available(&taken[0]) == has_available
            };
            prop_assert!(expected.groups.iter().any(is_choice_of));
        }
        Ok(())
    }

    /// A message that comes back is offered to the group that was named, all others and the topic aside.
    fn compare_again(&self, group: &SubscriptionFilter) -> Result<(), TestCaseError> {
        let members = self.oracle.members(group);
        let mut again = Receivers::default();
        let snapshot = self.directory.snapshot();
        snapshot.offer_again(group, &[], &mut again);
        let asked = again.sorted();
        prop_assert!(asked.plain.is_empty());
        prop_assert_eq!(asked.groups.concat(), members, "{}", group);
        Ok(())
    }

    fn audit(&self) -> Result<String, TestCaseError> {
        let shape = self.directory.audit().map_err(TestCaseError::fail)?;
        let stats = self.directory.stats();
        // Commits drop the dead from what they copy, so not all of these need be left.
        let live = self.oracle.rows.len();
        prop_assert!((live..=live + self.dead.len()).contains(&stats.subscriptions));
        prop_assert_eq!(stats.removed_subscriptions, self.dead.len());
        Ok(shape)
    }
}

/// Groups have a ring where a strategy hashes.
fn strategy(mask: u64) -> Choice {
    if mask == u64::MAX {
        Choice::ClientHash
    } else {
        Choice::RoundRobin
    }
}

fn same_rows_in_another_order(pair: &Pair, mask: u64) -> Directory {
    let directory = Directory::with_hash_mask(9, strategy(mask), mask);
    let handles: BTreeMap<u32, u64> = pair
        .clients
        .iter()
        .map(|(id, handle)| (id.get(), *handle))
        .collect();
    let (highest, _) = handles.last_key_value().unwrap();
    let handle_of = |number| handles.get(&number).copied().unwrap_or(0);
    let ids: Vec<_> = (0..=*highest)
        .map(|number| directory.join(handle_of(number)))
        .collect();
    for row in pair.oracle.rows.iter().rev() {
        let id = ids[row.id.get() as usize];
        directory.commit(
            id,
            &[Change::Subscribe {
                filter: &row.filter,
                options: row.options,
            }],
        );
    }
    for away in &pair.away {
        directory.set_available(ids[*away as usize], false);
    }
    directory
}

proptest! {
    /// B1 to B4, C8, I1 to I8: see `docs/adr/0002-directory-first-shape.md`.
    #[test]
    fn a_history_matches_as_the_definition(
        steps in prop::collection::vec(step(), 1..50),
        mask in prop::sample::select(MASKS.to_vec()),
    ) {
        let mut pair = Pair::new(mask);
        for step in &steps {
            pair.run(step)?;
            pair.audit()?;
        }
        for topic in TOPICS {
            pair.compare(topic, None)?;
        }

        let dead = pair.dead.len();
        pair.clean(dead)?;
        prop_assert_eq!(pair.audit()?, same_rows_in_another_order(&pair, mask).audit().unwrap());

        for row in pair.oracle.rows.split_off(0) {
            let change = Change::Unsubscribe { filter: &row.filter };
            prop_assert!(pair.directory.commit(row.id, &[change])[0].existed);
        }
        prop_assert_eq!(pair.audit()?.replace(['{', '|', '}', ' '], ""), "");
        let stats = pair.directory.stats();
        prop_assert_eq!((stats.filters, stats.shared_groups), (0, 0));
        prop_assert_eq!((stats.shared_subscriptions, stats.wildcard_subscriptions), (0, 0));
        prop_assert_eq!((stats.nodes, stats.bytes), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// I5 for sets that become branches and arrays again: two filters, so that overlaps merge large sets too.
    #[test]
    fn large_sets_match_as_the_definition(
        stride in prop::sample::select(vec![1_usize, 3, 17]),
        history in prop::collection::vec((0_usize..700, 0_u8..3, 0_u8..8), 1500..2500),
    ) {
        let directory = Directory::new(3, Choice::RoundRobin);
        let ids: Vec<_> = (0..700 * stride).map(|n| directory.join(n as u64)).collect();
        let filters = [filter("a/+"), filter("a/#"), filter("$share/g/a/b")];
        let mut oracle = Oracle::default();
        for (client, which, action) in history {
            let (id, filter) = (ids[client * stride], &filters[usize::from(which)]);
            let qos = QoS::try_from(action % 3).unwrap();
            let options = Options { id: NonZeroU32::new(u32::from(which) + 1), ..Options::at(qos) };
            if action == 7 {
                let outcome = directory.commit(id, &[Change::Unsubscribe { filter }])[0];
                prop_assert_eq!(outcome.existed, oracle.unsubscribe(id, filter).0);
            } else {
                let outcome = directory.commit(id, &[Change::Subscribe { filter, options }])[0];
                let row = Row { id, handle: (client * stride) as u64, filter: filter.clone(), options };
                prop_assert_eq!(outcome.existed, oracle.subscribe(row).0);
            }
        }
        let shape = directory.audit().map_err(TestCaseError::fail)?;
        let compare = |oracle: &Oracle| {
            let mut receivers = Receivers::default();
            directory.snapshot().match_one(name("a/b"), None, 0, &mut receivers);
            prop_assert!(receivers.sorted().agree_with(&oracle.matches("a/b", None)));
            Ok(())
        };
        compare(&oracle)?;

        let again = Directory::new(3, Choice::RoundRobin);
        let again_ids: Vec<_> = ids.iter().map(|_| again.join(0)).collect();
        for row in &oracle.rows {
            let id = again_ids[row.id.get() as usize];
            again.commit(id, &[Change::Subscribe { filter: &row.filter, options: row.options }]);
        }
        prop_assert_eq!(shape, again.audit().unwrap());

        while oracle.rows.len() > 200 {
            let row = oracle.rows.swap_remove(oracle.rows.len() / 2);
            directory.commit(row.id, &[Change::Unsubscribe { filter: &row.filter }]);
        }
        directory.audit().map_err(TestCaseError::fail)?;
        compare(&oracle)?;
        for row in oracle.rows {
            directory.commit(row.id, &[Change::Unsubscribe { filter: &row.filter }]);
        }
        prop_assert_eq!(directory.stats().nodes, 0);
    }
}
