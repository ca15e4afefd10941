//! Faults that other brokers had, each as a test that this directory has to pass.
//!
//! Names of brokers say where a fault was seen, in a release of then; none of their code is here.
mod oracle;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, ChangeOutcome, Directory, Match, MatchCache, Options, RetainedStore, Strategy,
    SubscriberId, TopicFilter, TopicLimits, Visitor,
};
use oracle::{Receivers, filter, name};

/// Miri takes a thousand times as long, and needs less to see a race.
const fn rounds(count: u64) -> u64 {
    if cfg!(miri) { count / 200 } else { count }
}

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with the bytes that this thread ever asked for.
struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

fn directory() -> Directory {
    Directory::new(11, Strategy::RoundRobin)
}

fn subscribe(directory: &Directory, id: SubscriberId, text: &str) -> ChangeOutcome {
    let (filter, options) = (filter(text), Options::at(QoS::AtLeastOnce));
    directory.commit(
        id,
        &[Change::Subscribe {
            filter: &filter,
            options,
        }],
    )[0]
}

fn unsubscribe(directory: &Directory, id: SubscriberId, text: &str) -> ChangeOutcome {
    let filter = filter(text);
    directory.commit(id, &[Change::Unsubscribe { filter: &filter }])[0]
}

fn plain(directory: &Directory, topic: &str) -> Vec<u64> {
    let mut receivers = Receivers::default();
    directory
        .snapshot()
        .match_one(name(topic), None, 0, &mut receivers);
    receivers.plain.iter().map(|seen| seen.handle).collect()
}

/// Runs each closure on a thread of its own, all from one moment on.
fn together<const N: usize>(work: [&(dyn Fn() + Sync); N]) {
    let start = Barrier::new(N);
    thread::scope(|scope| {
        for work in work {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work();
            });
        }
    });
}

/// Moquette: a removed node was made live again behind the unlinking of its parent, and what was acknowledged there
/// could not be reached any more; one subscription in a thousand was lost by two threads on one to four filters.
#[test]
fn moquette_an_acknowledged_subscription_is_reachable_while_others_leave_its_node() {
    for filters in [&["a/b"][..], &["a/b/c", "a/b", "a/+", "a/b/c/d"]] {
        let directory = directory();
        let churn = |client: u64| {
            let id = directory.join(client);
            for round in 0..rounds(8_000) {
                let text = filters[usize::try_from(round).unwrap() % filters.len()];
                let topic = text.replace('+', "b");
                subscribe(&directory, id, text);
                assert!(plain(&directory, &topic).contains(&client));
                unsubscribe(&directory, id, text);
            }
        };

        together([&|| churn(1), &|| churn(2)]);

        assert_eq!(directory.stats().nodes, 0);
    }
}

/// Moquette: the directory caught an internal exception of its own, logged it, and dropped the subscription.
#[test]
fn moquette_every_outcome_of_a_race_is_told_to_the_subscriber() {
    let directory = directory();
    let acknowledged = AtomicUsize::new(0);
    let churn = |client: u64| {
        let id = directory.join(client);
        for round in 0..rounds(4_000) {
            let text = format!("t/{}/{}", round % 3, client * 10_000 + round);
            let first = subscribe(&directory, id, &text);
            let second = subscribe(&directory, id, "t/#");
            assert!(!first.existed && first.first_or_last);
            assert_eq!(second.existed, round > 0);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    };

    together([&|| churn(1), &|| churn(2), &|| churn(3)]);

    assert_eq!(
        directory.stats().subscriptions,
        acknowledged.into_inner() + 3
    );
    assert_eq!(directory.audit().err(), None);
}

/// Moquette: the second of two concurrent removers read behind the end of a list that the first had shortened.
#[test]
fn moquette_two_threads_remove_from_one_set() {
    let directory = directory();
    for round in 0..rounds(800) {
        let ids: Vec<_> = (0..6).map(|client| directory.join(client)).collect();
        for id in &ids {
            subscribe(&directory, *id, "one/filter");
        }
        let remove = |from: usize| {
            for id in &ids[from..from + 3] {
                assert!(
                    unsubscribe(&directory, *id, "one/filter").existed,
                    "{round}"
                );
            }
        };

        together([&|| remove(0), &|| remove(3)]);

        assert_eq!(directory.stats().filters, 0);
        for id in ids {
            directory.leave(id);
        }
    }
}

/// Moquette: the test for "only this client is here" did not look at shared subscriptions, so the last plain
/// unsubscribe took the shared subscriptions of other clients with it.
#[test]
fn moquette_the_last_plain_unsubscribe_leaves_shared_subscriptions_of_others() {
    let directory = directory();
    let (one, two) = (directory.join(1), directory.join(2));
    subscribe(&directory, one, "a/b");
    subscribe(&directory, two, "$share/g/a/b");

    let outcome = unsubscribe(&directory, one, "a/b");

    assert!(outcome.existed && !outcome.first_or_last);
    let mut receivers = Receivers::that_accept();
    directory
        .snapshot()
        .match_one(name("a/b"), None, 0, &mut receivers);
    assert_eq!(receivers.plain, []);
    assert_eq!(receivers.groups[0][0].handle, 2);
}

/// Moquette: the lists of shared groups were copied shallowly, and changed in place under readers.
#[test]
fn moquette_a_reader_keeps_the_group_that_its_version_has() {
    let directory = directory();
    let ids: Vec<_> = (0..5).map(|client| directory.join(client)).collect();
    for id in &ids[..3] {
        subscribe(&directory, *id, "$share/g/a");
    }
    let members = |receivers: Receivers| {
        receivers
            .groups
            .concat()
            .iter()
            .map(|seen| seen.handle)
            .collect::<Vec<_>>()
    };
    let before = directory.snapshot();
    thread::scope(|scope| {
        // On another thread, as this one holds a pin.
        let writer = scope.spawn(|| {
            unsubscribe(&directory, ids[0], "$share/g/a");
            subscribe(&directory, ids[3], "$share/g/a");
            subscribe(&directory, ids[4], "$share/h/a");
        });
        writer.join().unwrap();
    });

    let (mut old, mut new) = (Receivers::default(), Receivers::default());
    before.match_one(name("a"), None, 0, &mut old);
    directory.snapshot().match_one(name("a"), None, 0, &mut new);

    let (mut old, mut new) = (members(old), members(new));
    old.sort_unstable();
    new.sort_unstable();
    assert_eq!((old, new), (vec![0, 1, 2], vec![1, 2, 3, 4]));
}

/// Moquette: inner nodes were never removed, and tombs piled up to seven million until the processor did nothing else.
#[test]
fn moquette_what_is_unsubscribed_leaves_no_node() {
    let directory = directory();
    let stays = directory.join(0);
    subscribe(&directory, stays, "a/+/c");
    let before = directory.stats();
    let id = directory.join(1);
    let texts = (0..rounds(4_000)).map(|round| format!("a/{}/{}/{round}/+", round % 7, round % 31));
    for text in texts.clone() {
        subscribe(&directory, id, &text);
    }
    for text in texts {
        unsubscribe(&directory, id, &text);
    }

    let after = directory.stats();

    assert_eq!((after.nodes, after.bytes), (before.nodes, before.bytes));
}

/// A CTrie (and BifroMQ): a branch was contracted into a copy of an older state, and a parent was unlinked without
/// being marked, so that what was inserted into it meanwhile was lost.
#[test]
fn bifromq_an_insertion_below_a_branch_that_shrinks_is_kept() {
    let directory = directory();
    let grow = || {
        let id = directory.join(1);
        for round in 0..rounds(6_000) {
            subscribe(&directory, id, &format!("a/b/c/{round}"));
        }
    };
    let shrink = || {
        let id = directory.join(2);
        for round in 0..rounds(6_000) {
            let text = ["a/b/+", "a/b/c/+/x", "a/b", "a/#"][usize::try_from(round).unwrap() % 4];
            subscribe(&directory, id, text);
            unsubscribe(&directory, id, text);
        }
    };

    together([&grow, &shrink]);

    for round in 0..rounds(6_000) {
        assert_eq!(plain(&directory, &format!("a/b/c/{round}")), [1]);
    }
    assert_eq!(directory.audit().err(), None);
}

/// VerneMQ: when a filter got many subscribers its entry was deleted and then written in another form; a match in
/// between saw nobody.
#[test]
fn vernemq_a_set_that_changes_its_form_is_never_seen_empty() {
    const STAY: u64 = 250;
    let directory = directory();
    for client in 0..STAY {
        let id = directory.join(client);
        subscribe(&directory, id, "alerts/+");
    }
    let running = AtomicUsize::new(1);
    let cross = || {
        let ids: Vec<_> = (0..12)
            .map(|client| directory.join(STAY + client))
            .collect();
        for _ in 0..rounds(400).max(1) {
            for id in &ids {
                subscribe(&directory, *id, "alerts/+");
            }
            for id in &ids {
                unsubscribe(&directory, *id, "alerts/+");
            }
        }
        running.store(0, Ordering::SeqCst);
    };
    let watch = || {
        while running.load(Ordering::SeqCst) > 0 {
            let seen = plain(&directory, "alerts/1")
                .iter()
                .filter(|handle| **handle < STAY)
                .count();
            assert_eq!(seen as u64, STAY);
        }
    };

    together([&cross, &watch]);
}

/// rmqtt: "is it empty" and "then remove it" were two steps; a subscribe between them was removed too.
#[test]
fn rmqtt_a_subscribe_beside_the_last_unsubscribe_is_kept() {
    let directory = directory();
    for _ in 0..rounds(2_000) {
        let (one, two) = (directory.join(1), directory.join(2));
        subscribe(&directory, one, "only/filter");

        together([
            &|| assert!(unsubscribe(&directory, one, "only/filter").existed),
            &|| assert!(!subscribe(&directory, two, "only/filter").existed),
        ]);

        assert_eq!(plain(&directory, "only/filter"), [2]);
        directory.leave(one);
        directory.leave(two);
        directory.clean(9);
    }
}

/// HiveMQ CE: UNSUBSCRIBE of a filter that does not exist and is longer than one that does removed the shorter one.
#[test]
fn hivemq_unsubscribe_of_an_absent_longer_filter_changes_nothing() {
    let directory = directory();
    let id = directory.join(1);
    subscribe(&directory, id, "a/b/#");
    subscribe(&directory, id, "a");
    let (before, version) = (directory.audit().unwrap(), directory.stats().version);

    for absent in [
        "a/b/c/#",
        "a/b/c",
        "a/b",
        "a/b/+",
        "a/#",
        "a/b/#/",
        "$share/g/a/b/#",
    ] {
        let Ok(_) = TopicFilter::parse(absent, &TopicLimits::default()) else {
            continue;
        };
        assert_eq!(
            unsubscribe(&directory, id, absent),
            ChangeOutcome::default(),
            "{absent}"
        );
    }

    assert_eq!(directory.audit().unwrap(), before);
    assert_eq!(directory.stats().version, version);
}

/// mochi: `+/#` did not match a topic of one level, as `#` takes its parent level too.
#[test]
fn mochi_a_plus_and_a_hash_match_one_level() {
    let directory = directory();
    let id = directory.join(1);
    subscribe(&directory, id, "+/#");

    assert_eq!(plain(&directory, "a"), [1]);
    assert_eq!(plain(&directory, "a/b/c"), [1]);
    assert_eq!(plain(&directory, "/"), [1]);
    assert_eq!(plain(&directory, "$a"), [0; 0]);
}

/// Mosquitto, VerneMQ and RabbitMQ up to 4.2: each subscribe searched all subscribers of its filter, so many on one
/// filter took time that grew with their square.
#[test]
#[cfg_attr(miri, ignore = "about amounts, not about memory")]
fn mosquitto_a_subscribe_costs_the_same_in_a_set_of_any_size() {
    let directory = directory();
    // What was replaced earlier is freed first, as soon as other tests let go of it: it would be given back while
    // the copies are counted.
    let settle = || {
        while directory.stats().retired_bytes > 0 {
            crossbeam_epoch::pin().flush();
            Directory::trim();
            thread::yield_now();
        }
    };
    let cost = |commits: u64| {
        settle();
        // What is replaced waits for this pin, so its bytes are the copies that the commits made.
        let pin = directory.snapshot();
        let before = directory.stats().retired_bytes;
        for client in 0..commits {
            let id = directory.join(client);
            subscribe(&directory, id, "alerts/+/critical");
        }
        let after = directory.stats().retired_bytes;
        drop(pin);
        (after - before) as u64 / commits
    };
    let grow = |by: u64| {
        for client in 0..by {
            let id = directory.join(client);
            subscribe(&directory, id, "alerts/+/critical");
        }
    };

    grow(2_000);
    let small = cost(500);
    grow(60_000);
    let large = cost(500);

    assert!(
        large < 3 * small,
        "{small} bytes a commit at 2,000 subscribers, {large} at 60,000"
    );
}

/// NATS: a cache of results made writes 20 times slower, and collapsed when subscriptions came and went.
#[test]
fn nats_a_cache_of_results_is_true_under_churn_and_costs_writers_nothing() {
    let directory = directory();
    let (stays, comes) = (directory.join(1), directory.join(2));
    subscribe(&directory, stays, "hot/+");
    let mut cache = MatchCache::new();
    let mut cached = |topic: &str| {
        let mut receivers = Receivers::default();
        let is_hit = directory.match_cached(&mut cache, name(topic), None, 0, &mut receivers);
        (receivers.plain.len(), is_hit)
    };

    for _ in 0..rounds(100_000).min(400) {
        subscribe(&directory, comes, "hot/#");
        assert_eq!(cached("hot/x").0, 2);
        unsubscribe(&directory, comes, "hot/#");
        assert_eq!(cached("hot/x").0, 1);
    }

    if !cfg!(miri) {
        let hits = [cached("hot/x").1, cached("hot/x").1];
        assert_eq!(hits, [false; 2], "a cache without hits stands aside");
    }
}

/// Takes no memory for what it sees.
struct Count(usize);

impl Visitor for Count {
    fn plain(&mut self, _: Match<'_>) {
        self.0 += 1;
    }

    fn shared(&mut self, _: Match<'_>) -> bool {
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

/// rumqttd: each topic that was ever published stayed in a cache without bound.
#[test]
fn rumqttd_matching_ever_new_topics_takes_no_memory() {
    let directory = directory();
    let id = directory.join(1);
    subscribe(&directory, id, "t/+");
    let (mut cache, mut seen) = (MatchCache::new(), Count(0));
    let mut publish = |topic: &String| {
        directory.match_cached(&mut cache, name(topic), None, 0, &mut seen);
        directory
            .snapshot()
            .match_one(name(topic), None, 0, &mut seen);
    };
    publish(&"t/first".to_owned());

    // The epochs may run what other tests of this program left behind, but not in every round.
    let growths = (0..400).map(|round| {
        let topics: Vec<String> = (0..256).map(|topic| format!("t/{round}.{topic}")).collect();
        let before = ALLOCATED.get();
        topics.iter().for_each(&mut publish);
        ALLOCATED.get() - before
    });

    assert!(growths.into_iter().any(|growth| growth == 0));
}

/// Moquette, HiveMQ, EMQX: a topic with very many levels overflowed the stack of a recursive walk.
#[test]
fn emqx_a_thousand_levels_need_no_stack() {
    let limits = TopicLimits {
        levels: 1_024,
        ..TopicLimits::default()
    };
    let text = vec!["a"; 1_000].join("/");
    let small = thread::Builder::new().stack_size(96 << 10);
    let work = move || {
        let directory = directory();
        let id = directory.join(1);
        for text in [
            format!("{text}/+"),
            format!("{text}/b/+"),
            format!("{text}/#"),
        ] {
            let filter = mqttcore_topics::SubscriptionFilter::parse(&text, &limits).unwrap();
            let options = Options::at(QoS::AtMostOnce);
            directory.commit(
                id,
                &[Change::Subscribe {
                    filter: &filter,
                    options,
                }],
            );
        }
        let topic = format!("{text}/b");
        let topic = mqttcore_topics::TopicName::parse(&topic, &limits).unwrap();
        let mut receivers = Receivers::default();
        directory
            .snapshot()
            .match_one(topic, None, 0, &mut receivers);
        receivers.plain.len()
    };

    assert_eq!(small.spawn(work).unwrap().join().unwrap(), 1);
}

/// EMQX up to 4.3, RabbitMQ, Mosquitto: a wildcard subscription looked at every retained message there was.
#[test]
fn rabbitmq_a_retained_lookup_looks_at_what_can_match_only() {
    let retained: RetainedStore<u64> = RetainedStore::new(3);
    for number in 0..rounds(20_000) {
        let topic = format!("other/{}/{number}", number % 10);
        retained.set(name(&topic), number);
    }
    retained.set(name("rooms/1/light"), 7);
    retained.set(name("rooms/2/light"), 8);
    let filter = TopicFilter::parse("rooms/+/light", &TopicLimits::default()).unwrap();

    let mut seen = Vec::new();
    let rest = retained.walk(&filter, None, 12, &mut |_, value| seen.push(*value));

    seen.sort_unstable();
    assert_eq!(seen, [7, 8]);
    assert!(rest.is_none(), "twelve nodes are enough");
}
