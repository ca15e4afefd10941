//! The work of a publish: in the builds of these tests, every visited block and word is counted.
//!
//! A match visits the nodes whose filters match a beginning of the topic, and the payloads that match. Other filters
//! only add depth to the maps between them. Filters with `+` that match a beginning and differ later are visited,
//! too; above a limit the topic is refused.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

use mqttcore_codec::QoS;

use super::walk::{LEVELS_FOR_SURE, MOST_STEPS};
use super::{Change, Directory, MatchCache};
use crate::tree::word::views;
use crate::{
    Match, Options, Search, Strategy, SubscriberId, SubscriptionFilter, TopicLimits, TopicName,
    Visitor,
};

#[derive(Default)]
struct Count(usize, Vec<Search>);

impl Visitor for Count {
    fn searched(&mut self, search: Search) {
        self.1.push(search);
    }

    fn plain(&mut self, _: Match<'_>) {
        self.0 += 1;
    }

    fn shared(&mut self, _: Match<'_>) -> bool {
        self.0 += 1;
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

fn directory() -> (Directory, SubscriberId) {
    let directory = Directory::new(3, Strategy::RoundRobin);
    let id = directory.join(1);
    (directory, id)
}

fn subscribe(directory: &Directory, id: SubscriberId, text: &str) {
    let options = Options::at(QoS::AtMostOnce);
    let filter = SubscriptionFilter::parse(text, &TopicLimits::default());
    directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter.unwrap(),
            options,
        }],
    );
}

/// Publishes; returns the number of visited words and of deliveries.
fn publish(directory: &Directory, text: &str) -> (usize, usize) {
    let topic = TopicName::parse(text, &TopicLimits::default());
    let (mut count, before) = (Count::default(), views());
    let snapshot = directory.snapshot();
    snapshot.match_one(topic.unwrap(), None, 0, &mut count);
    let visited = views() - before;
    assert!(visited > 0);
    (visited, count.0)
}

/// Maximum number of words for a level of a topic: its node, and the branches of a map of a million items.
const LEVEL: usize = 8;

#[test]
fn filters_that_cannot_match_cost_a_publish_nothing() {
    let (directory, id) = directory();
    for number in 0..20_000 {
        subscribe(&directory, id, &format!("a/b/{number}"));
        subscribe(&directory, id, &format!("a/b/{number}/+"));
        subscribe(&directory, id, &format!("{number}/+/#"));
    }

    for (topic, levels, matches) in [
        ("a/b/c", 3, 0),
        ("a/b/7", 3, 2),
        ("x", 1, 0),
        ("a/b/7/8", 4, 1),
    ] {
        let (visited, found) = publish(&directory, topic);

        assert!(found >= matches.min(1), "{topic}");
        assert!(
            visited <= LEVEL * (levels + 1 + found),
            "{visited} for {topic}"
        );
    }
}

#[test]
fn a_long_topic_costs_its_levels() {
    let (directory, id) = directory();
    for number in 0..5_000 {
        subscribe(
            &directory,
            id,
            &format!("{}/{number}/+", ["a"; 100].join("/")),
        );
    }
    let topic = ["a"; 128].join("/");

    let (visited, found) = publish(&directory, &topic);

    assert_eq!(found, 0);
    assert!(visited <= LEVEL * 128, "{visited}");
}

/// A topic of `n` levels meets `n` filters that end in `#`, and each is a delivery of its own client.
#[test]
fn deliveries_cost_a_visit_or_two_each() {
    let (directory, _) = directory();
    for client in 0..100 {
        let id = directory.join(client);
        subscribe(
            &directory,
            id,
            &format!(
                "{}/#",
                vec!["a"; 1 + usize::try_from(client).unwrap()].join("/")
            ),
        );
    }

    let (visited, found) = publish(&directory, &["a"; 100].join("/"));

    assert_eq!(found, 100);
    assert!(visited <= LEVEL * (100 + found), "{visited}");
}

/// The worst case of filters: all combinations of a literal or `+` on ten levels, which differ in the last level.
/// Their nodes are visited once each, however many other filters there are.
#[test]
fn branches_of_plus_are_visited_once_each_and_nothing_beside_them() {
    let (directory, id) = directory();
    for choice in 0..1 << 10 {
        let levels: Vec<_> = (0..10)
            .map(|bit| if choice >> bit & 1 == 0 { "a" } else { "+" })
            .collect();
        subscribe(&directory, id, &format!("{}/parts", levels.join("/")));
    }
    let topic = format!("{}/elsewhere", ["a"; 10].join("/"));
    let nodes = directory.stats().nodes;

    let (alone, found) = publish(&directory, &topic);
    for number in 0..5_000 {
        subscribe(&directory, id, &format!("beside/{number}/+"));
    }
    let (beside, _) = publish(&directory, &topic);

    assert_eq!(found, 0);
    assert!(alone <= 4 * nodes, "{alone} visited of {nodes}");
    assert!(beside <= alone + LEVEL, "{beside} after {alone}");
}

/// A directory with all filters of a literal or `+` on each of `levels` levels.
fn all_choices(levels: usize) -> Directory {
    let (directory, id) = directory();
    let choices = (0..1_usize << levels).map(|choice| {
        let level = |bit| if choice >> bit & 1 == 0 { "a" } else { "+" };
        let text = (0..levels).map(level).collect::<Vec<_>>().join("/");
        SubscriptionFilter::parse(&format!("{text}/x"), &TopicLimits::default()).unwrap()
    });
    let filters: Vec<_> = choices.collect();
    for filters in filters.chunks(256) {
        let options = Options::at(QoS::AtMostOnce);
        let subscribe = |filter| Change::Subscribe { filter, options };
        directory.commit(id, &filters.iter().map(subscribe).collect::<Vec<_>>());
    }
    directory
}

/// A way to match a topic.
type Way<'a> = Box<dyn FnMut(&mut Count) + 'a>;

/// For each way to match a topic: the reported cost of its search, and the visited words.
fn searches(directory: &Directory, text: &str) -> Vec<(Search, usize)> {
    let limits = TopicLimits::default();
    let topic = TopicName::parse(text, &limits).unwrap();
    let mut cache = MatchCache::new();
    let mut ways: [Way<'_>; 3] = [
        Box::new(|count| directory.snapshot().match_one(topic, None, 0, count)),
        Box::new(|count| {
            directory
                .snapshot()
                .match_interleaved(&[topic], None, 0, count);
        }),
        Box::new(|count| {
            directory.match_cached(&mut cache, topic, None, 0, count);
        }),
    ];
    let searched = ways.iter_mut().map(|way| {
        let (mut count, before) = (Count::default(), views());
        way(&mut count);
        let [search] = count.1[..] else {
            panic!("told of {} searches", count.1.len());
        };
        assert_eq!(count.0, 0);
        (search, views() - before)
    });
    searched.collect()
}

#[test]
fn a_topic_that_leads_to_too_many_nodes_is_given_up() {
    let directory = all_choices(14);
    let topic = ["a"; 15].join("/");

    for (search, visited) in searches(&directory, &topic) {
        assert!(!search.is_complete);
        assert!(search.steps <= 2 * MOST_STEPS, "{search:?}");
        assert!(visited <= LEVEL * MOST_STEPS, "{visited}");
    }
    let limits = TopicLimits::default();
    let can_match = |text: &str| {
        let topic = TopicName::parse(text, &limits).unwrap();
        directory.snapshot().can_match(topic)
    };
    assert!(!can_match(&topic));
    assert!(can_match(&["b"; 15].join("/")));
}

#[test]
fn a_topic_of_few_levels_is_never_given_up() {
    let directory = all_choices(LEVELS_FOR_SURE - 1);

    for (search, _) in searches(&directory, &["a"; LEVELS_FOR_SURE].join("/")) {
        assert!(search.is_complete);
        assert!(
            search.steps >= 1 << (LEVELS_FOR_SURE - 2),
            "each node counts: {search:?}"
        );
    }
}

/// Filters that share few levels lead to few nodes, with runs of `+` between them.
#[test]
fn levels_that_are_passed_between_nodes_count_too() {
    let (directory, id) = directory();
    for number in 0..1_000_usize {
        let is_wild = |bit: usize| number & (1 << (bit % 10)) != 0;
        let level = |bit| if is_wild(bit) { "+" } else { "a" };
        let levels: Vec<_> = (0..127).map(level).collect();
        subscribe(&directory, id, &format!("{}/x", levels.join("/")));
    }

    for (search, _) in searches(&directory, &["a"; 128].join("/")) {
        assert!(!search.is_complete, "{search:?}");
    }
}

/// A message that a member refuses costs the path to its group and the members that are asked, whatever else matches.
#[test]
fn an_offer_to_the_next_member_costs_the_same_beside_any_number_of_filters_that_match() {
    const LEVELS: usize = 10;
    let text = format!("$share/g/{}x", "+/a/".repeat(LEVELS / 2));
    let group = SubscriptionFilter::parse(&text, &TopicLimits::default()).unwrap();
    let offer = |directory: Directory| {
        let members = [1, 2].map(|handle| directory.join(handle));
        for member in members {
            subscribe(&directory, member, &text);
        }
        let (mut count, before) = (Count::default(), views());
        let snapshot = directory.snapshot();
        snapshot.offer_again(&group, &members[..1], &mut count);
        assert_eq!(count.0, 1);
        (views() - before, count.1[0].steps)
    };

    let (alone, steps) = offer(directory().0);
    let (beside, steps_beside) = offer(all_choices(LEVELS));

    assert!(beside <= alone + LEVEL * LEVELS, "{beside} and {alone}");
    assert_eq!(steps, steps_beside);
    assert!(steps > LEVELS, "{steps}");
}

/// Absent members of a group cost a message the same, whether they are two or thousands.
#[test]
fn a_group_in_which_nobody_takes_a_message_costs_the_same_with_any_number_of_members() {
    /// Rates each member with this number, and counts the rated members.
    struct Away {
        standby: u8,
        may_keep: bool,
        rated: usize,
        told: usize,
    }

    impl Visitor for Away {
        fn plain(&mut self, _: Match<'_>) {}

        fn shared(&mut self, _: Match<'_>) -> bool {
            false
        }

        fn standby(&mut self, _: Match<'_>) -> u8 {
            self.rated += 1;
            self.standby
        }

        fn away_may_keep(&self) -> bool {
            self.may_keep
        }

        fn shared_offline(&mut self, _: Match<'_>) {
            self.told += 1;
        }
    }

    let visited = |members: u64, standby, may_keep| {
        let (directory, _) = directory();
        for handle in 0..members {
            let id = directory.join(handle);
            directory.set_available(id, false);
            subscribe(&directory, id, "$share/g/t");
        }
        let limits = TopicLimits::default();
        let (topic, before) = (TopicName::parse("t", &limits).unwrap(), views());
        let (rated, told) = (0, 0);
        let mut away = Away {
            standby,
            may_keep,
            rated,
            told,
        };
        directory.snapshot().match_one(topic, None, 0, &mut away);
        assert_eq!(away.told, 1);
        (views() - before, away.rated)
    };

    // All refuse, the first one keeps it, none may keep it.
    for (standby, may_keep, rated) in [(0, true, 32), (1, true, 1), (0, false, 1)] {
        let (few, many) = (
            visited(64, standby, may_keep),
            visited(5_000, standby, may_keep),
        );
        assert_eq!((few.1, many.1), (rated, rated));
        assert!(many.0 <= few.0 + few.0 / 2, "{many:?} and {few:?}");
    }
}
