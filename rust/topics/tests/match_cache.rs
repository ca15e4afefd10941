//! The cache of a worker's results answers as the directory does, and stands aside where it is of no use.

mod oracle;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, MatchCache, Options, Strategy, SubscriberId, Visitor,
};
use oracle::{filter, name};

const OPTIONS: Options = Options::at(QoS::AtLeastOnce);

#[derive(Debug, Default, Eq, PartialEq)]
struct Seen(Vec<(u64, u8, bool, Vec<u32>)>);

impl Visitor for Seen {
    fn plain(&mut self, found: Match<'_>) {
        let ids = found.ids.iter().map(|id| id.get()).collect();
        let qos = u8::from(found.qos);
        self.0
            .push((found.handle, qos, found.retain_as_published, ids));
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.plain(candidate);
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

fn subscribe(directory: &Directory, id: SubscriberId, text: &str, options: Options) {
    let filter = &filter(text);
    directory.commit(id, &[Change::Subscribe { filter, options }]);
}

fn cached(
    directory: &Directory,
    cache: &mut MatchCache,
    topic: &str,
    from: Option<SubscriberId>,
) -> Seen {
    let mut seen = Seen::default();
    directory.match_cached(cache, name(topic), from, 0, &mut seen);
    seen.0.sort();
    seen
}

fn uncached(directory: &Directory, topic: &str, from: Option<SubscriberId>) -> Seen {
    let mut seen = Seen::default();
    directory
        .snapshot()
        .match_one(name(topic), from, 0, &mut seen);
    seen.0.sort();
    seen
}

/// A cache that saw one topic for a window of matches, and so takes part.
fn warm(directory: &Directory) -> MatchCache {
    let mut cache = MatchCache::new();
    for _ in 0..=256 {
        cached(directory, &mut cache, "warm", None);
    }
    assert!(is_kept(directory, &mut cache, "warm"));
    cache
}

/// Whether the cache answers by itself.
fn is_kept(directory: &Directory, cache: &mut MatchCache, topic: &str) -> bool {
    directory.match_cached(cache, name(topic), None, 0, &mut Seen::default())
}

#[test]
fn a_result_is_kept_until_somebody_subscribes_unsubscribes_or_leaves() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let mut cache = warm(&directory);
    let (id, other) = (directory.join(1), directory.join(2));
    let changes: [&dyn Fn(); 4] = [
        &|| subscribe(&directory, id, "t", OPTIONS),
        &|| subscribe(&directory, other, "elsewhere", OPTIONS),
        &|| {
            let filter = &filter("t");
            directory.commit(id, &[Change::Unsubscribe { filter }]);
        },
        &|| directory.leave(other),
    ];

    for change in changes {
        change();

        assert!(!is_kept(&directory, &mut cache, "t"));
        assert!(is_kept(&directory, &mut cache, "t"));
    }
}

#[test]
fn several_topics_are_answered_in_order_kept_or_not() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let mut cache = warm(&directory);
    for handle in 0..3 {
        subscribe(
            &directory,
            directory.join(handle),
            &format!("t/{handle}"),
            OPTIONS,
        );
    }
    is_kept(&directory, &mut cache, "t/1");
    let topics = ["t/2", "t/1", "t/0", "none"].map(name);

    let mut seen = Seen::default();
    let hits = directory.match_many_cached(&mut cache, &topics, None, 0, &mut seen);

    assert_eq!(hits, 1);
    let handles: Vec<_> = seen.0.iter().map(|row| row.0).collect();
    assert_eq!(handles, [2, 1, 0]);
}

#[test]
fn a_cached_result_is_that_of_the_directory_through_every_change() {
    const FILTERS: [&str; 7] = ["a/b", "a/+", "+/b", "#", "a/#", "c", "+/+/+"];
    const TOPICS: [&str; 4] = ["a/b", "a/c", "c", "a/b/c"];
    let directory = Directory::new(1, Strategy::Random);
    let mut cache = MatchCache::new();
    let mut ids: Vec<_> = (0..8).map(|handle| directory.join(handle)).collect();
    let mut state = 3_u64;
    for round in 0..20_000_u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let draw = usize::try_from(state >> 36).unwrap();
        let (index, text) = (draw % 8, FILTERS[draw / 8 % 7]);
        // Quiet and busy times, so that the cache takes part and is emptied too.
        if draw / 56 % 40 < 2 {
            let options = Options {
                qos: if draw % 3 == 0 {
                    QoS::ExactlyOnce
                } else {
                    QoS::AtMostOnce
                },
                no_local: draw % 17 == 0,
                retain_as_published: draw % 5 == 0,
                id: std::num::NonZeroU32::new(u32::try_from(draw % 4).unwrap()),
            };
            match draw / 10_000 % 6 {
                0..3 => subscribe(&directory, ids[index], text, options),
                3..5 => {
                    let filter = &filter(text);
                    directory.commit(ids[index], &[Change::Unsubscribe { filter }]);
                }
                _ => {
                    directory.leave(ids[index]);
                    directory.clean(draw % 3);
                    ids[index] = directory.join(100 + round);
                }
            }
        }
        let (topic, from) = (TOPICS[draw / 7 % 4], (draw % 2 == 0).then_some(ids[index]));
        let (fast, slow) = (
            cached(&directory, &mut cache, topic, from),
            uncached(&directory, topic, from),
        );
        assert_eq!(fast, slow, "{topic} in round {round}");
    }
}

#[test]
fn a_removed_subscriber_gets_nothing_from_a_cached_result() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let mut cache = warm(&directory);
    let (stays, leaves) = (directory.join(1), directory.join(2));
    subscribe(&directory, stays, "t", OPTIONS);
    subscribe(&directory, leaves, "t", OPTIONS);
    assert_eq!(cached(&directory, &mut cache, "t", None).0.len(), 2);

    // A tombstone is no commit: the entry is still good.
    directory.leave(leaves);

    let seen = cached(&directory, &mut cache, "t", None).0;
    assert_eq!(seen.iter().map(|row| row.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn members_of_a_group_take_turns_beside_a_cache() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let mut cache = warm(&directory);
    for handle in 0..3 {
        subscribe(&directory, directory.join(handle), "$share/g/t", OPTIONS);
    }

    let turns: Vec<_> = (0..6)
        .map(|_| cached(&directory, &mut cache, "t", None).0[0].0)
        .collect();

    let mut first: Vec<_> = turns[..3].to_vec();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
    assert_eq!(turns[..3], turns[3..]);
}

#[test]
fn no_local_holds_beside_a_cache() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let mut cache = warm(&directory);
    let id = directory.join(1);
    subscribe(
        &directory,
        id,
        "t",
        Options {
            no_local: true,
            ..OPTIONS
        },
    );

    for _ in 0..3 {
        assert_eq!(cached(&directory, &mut cache, "t", None).0.len(), 1);
        assert_eq!(cached(&directory, &mut cache, "t", Some(id)).0.len(), 0);
    }
}

#[test]
fn a_cache_may_move_from_one_directory_to_another() {
    let (one, two) = (
        Directory::new(1, Strategy::RoundRobin),
        Directory::new(1, Strategy::RoundRobin),
    );
    let mut cache = warm(&one);
    subscribe(&one, one.join(1), "t", OPTIONS);
    subscribe(&two, two.join(2), "t", OPTIONS);

    for _ in 0..3 {
        assert_eq!(cached(&one, &mut cache, "t", None).0[0].0, 1);
        assert_eq!(cached(&two, &mut cache, "t", None).0[0].0, 2);
    }
}

#[test]
fn a_cache_without_hits_stands_aside_and_tries_again() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let mut cache = MatchCache::new();
    let id = directory.join(1);
    for round in 0..300 {
        subscribe(&directory, id, &format!("churn/{round}"), OPTIONS);
        cached(&directory, &mut cache, "churn/1", None);
    }
    let mut is_hit = || {
        let mut seen = Seen::default();
        directory.match_cached(&mut cache, name("churn/1"), None, 0, &mut seen)
    };
    assert_eq!([is_hit(), is_hit()], [false; 2]);

    let hits = (0..20_000).filter(|_| is_hit()).count();

    assert!(hits > 0 && is_hit());
}

/// The results of several topics, an answer each.
#[derive(Default)]
struct Answers(Vec<Seen>);

impl Visitor for Answers {
    fn topic(&mut self, index: usize) {
        assert_eq!(index, self.0.len());
        self.0.push(Seen::default());
    }

    fn plain(&mut self, found: Match<'_>) {
        self.0.last_mut().expect("a topic").plain(found);
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.plain(candidate);
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

/// A directory so large that topics are searched for together.
/// Whatever their hashes are: a cache that has no memory yet tells two topics apart.
#[test]
fn two_topics_by_turns_are_cached() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let subscriber = directory.join(1);
    subscribe(&directory, subscriber, "#", OPTIONS);

    for number in 0..500 {
        let other = format!("b/{number}");
        let mut cache = MatchCache::new();
        for _ in 0..200 {
            cached(&directory, &mut cache, "a", None);
            cached(&directory, &mut cache, &other, None);
        }
        assert!(is_kept(&directory, &mut cache, "a"), "beside {other}");
    }
}

fn large() -> Directory {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let id = directory.join(1);
    let filters: Vec<_> = (0..30_000)
        .map(|number| filter(&format!("site/{number}/+")))
        .collect();
    let subscribe = |filter| Change::Subscribe {
        filter,
        options: OPTIONS,
    };
    directory.commit(id, &filters.iter().map(subscribe).collect::<Vec<_>>());
    directory
}

#[test]
fn the_cache_is_asked_first_in_a_large_directory_too() {
    let directory = large();
    let mut cache = warm(&directory);
    let topics: Vec<_> = (0..16).map(|number| format!("site/{number}/a")).collect();
    let topics: Vec<_> = topics.iter().map(|topic| name(topic)).collect();
    let mut ask = || {
        let mut answers = Answers::default();
        let hits = directory.match_many_cached(&mut cache, &topics, None, 0, &mut answers);
        assert!(answers.0.iter().all(|seen| seen.0.len() == 1));
        hits
    };

    // A topic may be in the way of another one.
    assert!(ask() <= 1);
    assert!(ask() >= 14);
}

#[test]
fn many_are_answered_as_one_by_one_whether_they_are_cached_repeated_or_neither() {
    let directory = large();
    let (all, member) = (directory.join(2), directory.join(3));
    subscribe(&directory, all, "site/7/#", OPTIONS);
    subscribe(&directory, member, "$share/g/site/8/a", OPTIONS);
    let mut cache = warm(&directory);
    let mut state = 3_u64;
    for round in 0..2_000 {
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 36).unwrap()
        };
        let texts: Vec<String> = (0..draw() % 40)
            .flat_map(|_| {
                let text = format!("site/{}/a", draw() % [12, 2_000][round % 2]);
                vec![text; draw() % 4]
            })
            .collect();
        let topics: Vec<_> = texts.iter().map(|text| name(text)).collect();

        let mut answers = Answers::default();
        directory.match_many_cached(&mut cache, &topics, None, 0, &mut answers);

        assert_eq!(answers.0.len(), topics.len());
        for (text, mut seen) in texts.iter().zip(answers.0) {
            seen.0.sort();
            assert_eq!(
                seen,
                uncached(&directory, text, None),
                "{text} in round {round}"
            );
        }
    }
}
