//! MQTT 5.0 section 4.8.2: one member of each group gets a message, and the strategy says which.

mod oracle;

use std::collections::{HashMap, HashSet};

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, Options, Strategy, SubscriberId, SubscriptionFilter, TopicLimits,
    TopicName, Visitor,
};
use oracle::{Receivers, filter, name};

/// Records the groups, and the members in the order in which they were asked. A member takes the message unless its
/// handle is in `refused`.
#[derive(Default)]
struct Offers {
    refused: HashSet<u64>,
    groups: Vec<SubscriptionFilter>,
    asked: Vec<u64>,
    taken: Vec<u64>,
    plain: Vec<u64>,
    offline: Vec<u64>,
    probed: usize,
    is_only_asking: bool,
}

impl Visitor for Offers {
    fn advances_cursor(&self) -> bool {
        !self.is_only_asking
    }

    fn plain(&mut self, found: Match<'_>) {
        self.plain.push(found.handle);
    }

    fn group(&mut self, group: &SubscriptionFilter) {
        self.groups.push(group.clone());
    }

    fn probed(&mut self, places: usize) {
        self.probed += places;
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.asked.push(candidate.handle);
        let takes = !self.refused.contains(&candidate.handle);
        self.taken.extend(takes.then_some(candidate.handle));
        takes
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        self.offline.push(first_choice.handle);
    }
}

struct Group {
    directory: Directory,
    ids: Vec<SubscriberId>,
}

/// A group of `members` on `$share/g/t/#`.
fn group(strategy: Strategy, members: u64) -> Group {
    let directory = Directory::new(7, strategy);
    let ids = (0..members)
        .map(|handle| {
            let id = directory.join(handle);
            subscribe(&directory, id, "$share/g/t/#");
            id
        })
        .collect();
    Group { directory, ids }
}

fn subscribe(directory: &Directory, id: SubscriberId, text: &str) {
    let filter = filter(text);
    let options = Options::at(QoS::AtLeastOnce);
    directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter,
            options,
        }],
    );
}

impl Group {
    fn publish(&self, topic: &str, publisher: Option<SubscriberId>, random: u64) -> u64 {
        let mut asked = Offers::default();
        self.directory
            .snapshot()
            .match_one(name(topic), publisher, random, &mut asked);
        assert_eq!(asked.taken.len(), 1);
        asked.taken[0]
    }

    fn publish_refused(&self, refused: &[u64]) -> Offers {
        let mut asked = Offers {
            refused: refused.iter().copied().collect(),
            ..Offers::default()
        };
        self.directory
            .snapshot()
            .match_one(name("t"), None, 0, &mut asked);
        asked
    }
}

#[test]
fn a_round_robin_serves_each_member_in_turn() {
    let group = group(Strategy::RoundRobin, 5);

    let turns: Vec<u64> = (0..10).map(|_| group.publish("t", None, 0)).collect();

    assert_eq!(turns, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn a_question_takes_no_turn_and_does_not_bind_the_member() {
    for strategy in [Strategy::RoundRobin, Strategy::Sticky] {
        let group = group(strategy, 2);
        let first = group.publish("t", None, 0);

        let mut asked = Offers {
            refused: HashSet::from([first]),
            is_only_asking: true,
            ..Offers::default()
        };
        let snapshot = group.directory.snapshot();
        snapshot.match_one(name("t"), None, 0, &mut asked);

        assert_eq!(asked.taken, [1 - first]);
        let next = match strategy {
            Strategy::RoundRobin => 1 - first,
            _ => first,
        };
        assert_eq!(group.publish("t", None, 0), next, "{strategy:?}");
    }
}

#[test]
fn a_round_robin_goes_on_where_it_was_when_a_member_comes() {
    let mut group = group(Strategy::RoundRobin, 2);
    assert_eq!(group.publish("t", None, 0), 0);

    let id = group.directory.join(2);
    subscribe(&group.directory, id, "$share/g/t/#");
    group.ids.push(id);

    assert_eq!(group.publish("t", None, 0), 1);
    assert_eq!(group.publish("t", None, 0), 2);
}

#[test]
fn a_random_choice_is_that_of_the_word_and_reaches_everybody() {
    let group = group(Strategy::Random, 4);

    let chosen: HashSet<u64> = (0..4)
        .map(|part| group.publish("t", None, part << 62))
        .collect();

    assert_eq!(chosen.len(), 4);
    assert_eq!(
        group.publish("t", None, 1 << 62),
        group.publish("t/x", None, 1 << 62)
    );
}

#[test]
fn a_publisher_keeps_its_member_under_client_hash() {
    let group = group(Strategy::ClientHash, 8);
    let publishers: Vec<_> = (0..64)
        .map(|handle| group.directory.join(1000 + handle))
        .collect();

    let mut chosen = HashSet::new();
    for publisher in publishers {
        let first = group.publish("t/1", Some(publisher), 0);
        assert_eq!(group.publish("t/2", Some(publisher), 99), first);
        chosen.insert(first);
    }

    assert!(
        chosen.len() > 4,
        "publishers spread over the members: {chosen:?}"
    );
}

#[test]
fn a_publisher_that_comes_back_keeps_its_member_under_client_hash() {
    let group = group(Strategy::ClientHash, 8);
    let mut members = HashSet::new();
    for key in 0..64 {
        let first = group.directory.join_as(1_000, key);
        let member = group.publish("t", Some(first), 1);
        // Another subscriber takes the number meanwhile, so that the publisher gets another one when it comes back.
        group.directory.leave(first);
        group.directory.join_as(1_001, key + 1_000);
        let again = group.directory.join_as(1_002, key);

        assert_eq!(group.publish("t", Some(again), 2), member);
        members.insert(member);
    }

    assert!(members.len() > 4);
}

#[test]
fn a_topic_keeps_its_member_under_topic_hash() {
    let group = group(Strategy::TopicHash, 8);

    let mut chosen = HashMap::new();
    for round in 0..3 {
        for topic in 0..64 {
            let member = group.publish(&format!("t/{topic}"), None, round);
            assert_eq!(*chosen.entry(topic).or_insert(member), member);
        }
    }

    assert!(chosen.values().collect::<HashSet<_>>().len() > 4);
}

#[test]
fn a_sticky_member_is_kept_until_it_takes_no_message() {
    let group = group(Strategy::Sticky, 4);
    let first = group.publish("t", None, 0);
    assert_eq!(group.publish("t", None, u64::MAX), first);

    let second = group.publish_refused(&[first]).taken[0];

    assert_ne!(second, first);
    assert_eq!(group.publish("t", None, 0), second);
}

#[test]
fn every_member_is_asked_once_and_the_first_choice_gets_what_nobody_takes() {
    for strategy in [
        Strategy::RoundRobin,
        Strategy::Random,
        Strategy::TopicHash,
        Strategy::Sticky,
    ] {
        let group = group(strategy, 6);

        let asked = group.publish_refused(&[0, 1, 2, 3, 4, 5]);

        assert_eq!(asked.asked.iter().collect::<HashSet<_>>().len(), 6);
        assert_eq!(asked.asked.len(), 6);
        assert_eq!(asked.offline, [asked.asked[0]]);
    }
}

#[test]
fn a_member_that_left_is_not_asked() {
    let group = group(Strategy::RoundRobin, 3);
    group.directory.leave(group.ids[1]);

    let asked = group.publish_refused(&[0, 1, 2]);

    let members: HashSet<u64> = asked.asked.into_iter().collect();
    assert_eq!(members, HashSet::from([0, 2]));
}

#[test]
fn a_group_whose_members_all_left_gets_nothing() {
    let group = group(Strategy::RoundRobin, 2);
    group.ids.iter().for_each(|id| group.directory.leave(*id));

    let asked = group.publish_refused(&[]);

    assert!(asked.asked.is_empty() && asked.offline.is_empty());
}

#[test]
fn a_plain_and_a_shared_match_of_one_client_are_two_deliveries() {
    let group = group(Strategy::RoundRobin, 1);
    subscribe(&group.directory, group.ids[0], "t");
    subscribe(&group.directory, group.ids[0], "+");

    let asked = group.publish_refused(&[]);

    assert_eq!((asked.plain, asked.taken), (vec![0], vec![0]));
}

#[test]
fn groups_are_distinct_by_name_and_by_filter() {
    let group = group(Strategy::RoundRobin, 2);
    for text in ["$share/h/t/#", "$share/g/t", "$share/g/+"] {
        subscribe(&group.directory, group.ids[0], text);
    }

    let mut receivers = Receivers::that_accept();
    group
        .directory
        .snapshot()
        .match_one(name("t"), None, 0, &mut receivers);

    assert_eq!(receivers.groups.len(), 4);
    assert_eq!(group.directory.stats().shared_groups, 4);
    assert_eq!(group.directory.stats().filters, 3);
}

#[test]
fn a_group_of_thousands_serves_each_member_in_turn() {
    let group = group(Strategy::RoundRobin, 3_000);

    let turns: HashSet<u64> = (0..3_000).map(|_| group.publish("t", None, 0)).collect();

    assert_eq!(turns.len(), 3_000);
}

#[test]
fn match_many_says_which_topic_comes_and_matches_as_match_one() {
    struct ByTopic {
        current: usize,
        seen: Vec<(usize, u64)>,
    }
    impl Visitor for ByTopic {
        fn topic(&mut self, index: usize) {
            self.current = index;
        }
        fn plain(&mut self, found: Match<'_>) {
            self.seen.push((self.current, found.handle));
        }
        fn shared(&mut self, _: Match<'_>) -> bool {
            false
        }
        fn shared_offline(&mut self, _: Match<'_>) {}
    }
    let directory = Directory::new(7, Strategy::RoundRobin);
    for (handle, text) in ["a/+", "a/#", "b"].into_iter().enumerate() {
        subscribe(&directory, directory.join(handle as u64), text);
    }
    let limits = TopicLimits::default();
    let topics = ["b", "c", "a/x", "a"].map(|text| TopicName::parse(text, &limits).unwrap());

    let mut by_topic = ByTopic {
        current: usize::MAX,
        seen: Vec::new(),
    };
    directory
        .snapshot()
        .match_many(&topics, None, 0, &mut by_topic);

    // Topics come in their order; the subscribers of one topic come in any order.
    assert!(by_topic.seen.is_sorted_by_key(|(topic, _)| *topic));
    by_topic.seen.sort_unstable();
    assert_eq!(by_topic.seen, [(0, 2), (2, 0), (2, 1), (3, 1)]);
}

#[test]
fn when_nobody_takes_a_message_it_goes_to_a_member_that_is_busy_before_one_that_is_away() {
    struct Busy(&'static [u64], Option<u64>);

    impl Visitor for Busy {
        fn plain(&mut self, _: Match<'_>) {}

        fn shared(&mut self, _: Match<'_>) -> bool {
            false
        }

        fn standby(&mut self, candidate: Match<'_>) -> u8 {
            u8::from(self.0.contains(&candidate.handle))
        }

        fn shared_offline(&mut self, first_choice: Match<'_>) {
            self.1 = Some(first_choice.handle);
        }
    }

    let directory = Directory::new(1, Strategy::RoundRobin);
    for handle in 0..4 {
        let filter = &filter("$share/g/t");
        let options = Options::at(QoS::AtMostOnce);
        directory.commit(
            directory.join(handle),
            &[Change::Subscribe { filter, options }],
        );
    }
    let chosen = |busy| {
        let mut visitor = Busy(busy, None);
        let topic = name("t");
        directory.snapshot().match_one(topic, None, 0, &mut visitor);
        visitor.1
    };

    // Each match begins at the next member, the first match at member 0.
    let turns = [chosen(&[2]), chosen(&[0, 3]), chosen(&[]), chosen(&[1])];
    assert_eq!(turns, [Some(2), Some(3), Some(2), Some(1)]);
}

#[test]
fn members_that_are_available_get_everything_as_long_as_there_are_any() {
    for strategy in [
        Strategy::RoundRobin,
        Strategy::Random,
        Strategy::TopicHash,
        Strategy::ClientHash,
        Strategy::Sticky,
    ] {
        let group = group(strategy, 3_000);
        for id in &group.ids {
            group.directory.set_available(*id, false);
        }
        let there: HashSet<u64> = HashSet::from([700, 1_900]);
        for handle in &there {
            let id = group.ids[usize::try_from(*handle).unwrap()];
            group.directory.set_available(id, true);
        }

        let takers: HashSet<u64> = (0..50)
            .map(|number| group.publish(&format!("t/{number}"), None, number << 58))
            .collect();

        assert!(takers.is_subset(&there), "{strategy:?}: {takers:?}");
        let spreads = matches!(strategy, Strategy::RoundRobin | Strategy::Random);
        assert!(!spreads || takers == there, "{strategy:?}: {takers:?}");
    }
}

/// Key of the member that gets the messages of each publisher.
fn dealt(directory: &Directory, publishers: &[SubscriberId]) -> Vec<u64> {
    let deal = |publisher: &SubscriberId| {
        let mut asked = Offers::default();
        let snapshot = directory.snapshot();
        snapshot.match_one(name("t"), Some(*publisher), 0, &mut asked);
        asked.taken[0]
    };
    publishers.iter().map(deal).collect()
}

#[test]
fn a_message_costs_a_group_of_5_000_members_no_more_steps_than_one_of_64() {
    let cost = |members| {
        let group = group(Strategy::ClientHash, members);
        for id in &group.ids[1..] {
            group.directory.set_available(*id, false);
        }
        let asked = group.publish_refused(&[]);
        (asked.probed, asked.asked.len())
    };

    assert_eq!((cost(5_000), cost(64)), ((8, 1), (8, 1)));
}

fn publishers(directory: &Directory) -> Vec<SubscriberId> {
    (0..200)
        .map(|key| directory.join_as(9_999, 1_000_000 + key))
        .collect()
}

/// After a restart, subscribers join in another order and have other numbers; the result is the same.
#[test]
fn a_publisher_has_the_same_member_in_every_directory_of_one_seed() {
    for members in [1, 2, 3, 40, 700_u64] {
        let deal = |order: &[u64], strangers: u64| {
            let directory = Directory::new(11, Strategy::ClientHash);
            for key in 0..strangers {
                directory.join(5_000 + key);
            }
            for key in order {
                subscribe(&directory, directory.join(*key), "$share/g/t");
            }
            dealt(&directory, &publishers(&directory))
        };
        let mut order: Vec<u64> = (0..members).collect();
        let first = deal(&order, 0);

        order.reverse();

        assert_eq!(deal(&order, 37), first, "{members} members");
    }
}

#[test]
fn a_member_that_comes_or_goes_changes_the_member_of_nobody_else() {
    let group = group(Strategy::ClientHash, 40);
    let publishers = publishers(&group.directory);
    let deal = || dealt(&group.directory, &publishers);
    let before = deal();

    let newcomer = group.directory.join(40);
    subscribe(&group.directory, newcomer, "$share/g/t/#");
    let joined = deal();
    group.directory.leave(newcomer);
    let without = deal();
    group.directory.clean(usize::MAX);
    let cleaned = deal();

    for (before, joined) in before.iter().zip(&joined) {
        assert!(joined == before || *joined == 40, "{before} to {joined}");
    }
    assert_eq!((&without, &cleaned), (&before, &before));
    group.directory.audit().expect("it is whole");
}

#[test]
fn the_publishers_of_a_member_that_is_away_are_dealt_to_several_and_come_back() {
    let group = group(Strategy::ClientHash, 5);
    let publishers = publishers(&group.directory);
    let deal = || dealt(&group.directory, &publishers);
    let before = deal();

    group.directory.set_available(group.ids[2], false);

    let without = deal();
    let moved = || {
        before
            .iter()
            .zip(&without)
            .filter(|(before, _)| **before == 2)
    };
    let heirs: HashSet<u64> = moved().map(|(_, heir)| *heir).collect();
    assert_eq!(heirs, HashSet::from([0, 1, 3, 4]));
    let others = || {
        before
            .iter()
            .zip(&without)
            .filter(|(before, _)| **before != 2)
    };
    assert!(others().all(|(before, without)| before == without));
    group.directory.set_available(group.ids[2], true);
    assert_eq!(deal(), before);
}

/// Each choice looks at 8 places, so the busiest of 64 members gets less than twice the average.
#[test]
fn members_get_about_as_much_as_each_other_by_hash() {
    let group = group(Strategy::TopicHash, 64);
    let mut counts = [0_u32; 64];

    for topic in 0..6_400 {
        let member = group.publish(&format!("t/{topic}"), None, 0);
        counts[usize::try_from(member).unwrap()] += 1;
    }

    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(
        counts.iter().all(|count| (10..200).contains(count)),
        "{least:?} {most:?}"
    );
}

#[test]
fn a_topic_keeps_its_member_when_another_goes_away() {
    let group = group(Strategy::TopicHash, 5);
    let member = |topic: usize| group.publish(&format!("t/{topic}"), None, 0);
    let before: Vec<u64> = (0..100).map(member).collect();

    group.directory.set_available(group.ids[2], false);

    for (topic, before) in before.into_iter().enumerate() {
        let now = member(topic);
        assert!(
            now == before || before == 2 && now != 2,
            "{before} to {now}"
        );
    }
}

#[test]
fn a_member_is_available_or_not_in_groups_that_it_joins_later_too() {
    let group = group(Strategy::RoundRobin, 2);
    group.directory.set_available(group.ids[0], false);
    for id in &group.ids {
        subscribe(&group.directory, *id, "$share/h/u");
    }

    assert_eq!([(); 4].map(|()| group.publish("u", None, 0)), [1; 4]);
    group.directory.set_available(group.ids[0], true);
    assert_eq!([(); 2].map(|()| group.publish("u", None, 0)), [0, 1]);
}

#[test]
fn what_nobody_takes_is_offered_to_so_many_members_and_no_more() {
    let group = group(Strategy::RoundRobin, 1_000);
    let everybody: Vec<u64> = (0..1_000).collect();

    let asked = group.publish_refused(&everybody);

    assert_eq!(asked.asked.len(), 32);
    assert_eq!(asked.offline, [asked.asked[0]]);
}

/// Offers a message of the group `text` again.
fn again(group: &Group, text: &str, tried: &[usize], refused: &[u64]) -> Offers {
    let tried: Vec<SubscriberId> = tried.iter().map(|member| group.ids[*member]).collect();
    let mut asked = Offers {
        refused: refused.iter().copied().collect(),
        ..Offers::default()
    };
    let snapshot = group.directory.snapshot();
    snapshot.offer_again(&filter(text), &tried, &mut asked);
    asked
}

#[test]
fn a_message_that_comes_back_is_offered_behind_the_last_one_that_was_tried() {
    let group = group(Strategy::RoundRobin, 5);
    let again = |tried: &[usize], refused: &[u64]| again(&group, "$share/g/t/#", tried, refused);

    assert_eq!(again(&[3], &[]).taken, [4]);
    assert_eq!(again(&[4], &[0]).asked, [0, 1]);
    assert_eq!(
        again(&[4, 1], &[2, 3, 0]).asked,
        [2, 3, 0],
        "who was tried is not asked again"
    );
    assert_eq!(again(&[4, 1], &[2, 3, 0]).offline, [2]);
    assert!(again(&[0, 1, 2, 3, 4], &[]).asked.is_empty());
}

#[test]
fn a_message_that_comes_back_stays_in_its_group() {
    let group = group(Strategy::RoundRobin, 2);
    let other = group.directory.join(9);
    for text in ["$share/h/t/#", "$share/g/+", "$share/g/t", "t"] {
        subscribe(&group.directory, other, text);
    }
    let sent = group.publish_refused(&[]);
    let named: HashSet<&str> = sent.groups.iter().map(SubscriptionFilter::as_str).collect();
    let expected = ["$share/g/t/#", "$share/h/t/#", "$share/g/+", "$share/g/t"];
    assert_eq!(named, HashSet::from(expected));

    for (text, members) in expected.iter().zip([&[0, 1][..], &[9], &[9], &[9]]) {
        let again = again(&group, text, &[], &[0, 1, 9]);

        assert_eq!(
            (&again.asked[..], again.plain.len()),
            (members, 0),
            "{text}"
        );
    }
}

#[test]
fn a_message_that_comes_back_to_a_group_that_is_gone_is_offered_to_nobody() {
    let group = group(Strategy::RoundRobin, 1);
    subscribe(&group.directory, group.ids[0], "$share/h/t/#");
    subscribe(&group.directory, group.ids[0], "t/#");

    for text in ["$share/g/t", "$share/i/t/#", "$share/g/u/#", "t/#"] {
        assert!(again(&group, text, &[], &[]).asked.is_empty(), "{text}");
    }
}
