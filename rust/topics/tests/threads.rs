//! Readers and writers on several threads: what one batch does is seen whole, and nothing acknowledged is lost.
//!
//! The runs are bounded by counts, not by time. The sans-IO rule of the crate does not bind its tests: they are the
//! owner of threads here.

mod oracle;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, Options, RetainedStore, Strategy, SubscriberId, SubscriptionFilter,
    TopicFilter, TopicLimits, Visitor,
};
use oracle::{filter, name};

/// Miri takes a thousand times as long, and needs less to see a race.
const fn rounds(count: u64) -> u64 {
    if cfg!(miri) { count / 500 } else { count }
}

const OPTIONS: Options = Options::at(QoS::AtLeastOnce);

/// Keeps the handles of who gets a message.
#[derive(Default)]
struct Handles(Vec<u64>);

impl Visitor for Handles {
    fn plain(&mut self, found: Match<'_>) {
        self.0.push(found.handle);
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.0.push(candidate.handle);
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

fn receivers(directory: &Directory, topic: &str) -> Vec<u64> {
    let mut handles = Handles::default();
    directory
        .snapshot()
        .match_one(name(topic), None, 0, &mut handles);
    handles.0
}

fn subscribe(directory: &Directory, id: SubscriberId, filter: &SubscriptionFilter) {
    directory.commit(
        id,
        &[Change::Subscribe {
            filter,
            options: OPTIONS,
        }],
    );
}

fn unsubscribe(directory: &Directory, id: SubscriberId, filter: &SubscriptionFilter) {
    directory.commit(id, &[Change::Unsubscribe { filter }]);
}

/// Sets the flag when a writer ends, by a panic too, so that readers end as well.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// C2: one subscriber moves between filters that all match one topic; a match meets it by one filter or by all.
#[test]
fn c2_a_batch_is_seen_whole_or_not_at_all() {
    let directory = Directory::new(1, Strategy::RoundRobin);
    let id = directory.join(1);
    let filters: Vec<_> = ["a/b", "a/+", "a/#", "+/b", "#", "$share/g/a/b"]
        .map(filter)
        .to_vec();
    let (running, start) = (AtomicUsize::new(1), Barrier::new(2));

    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&running);
            start.wait();
            for round in 0..rounds(20_000) {
                let changes: Vec<_> = filters
                    .iter()
                    .map(|filter| match round % 2 {
                        0 => Change::Subscribe {
                            filter,
                            options: OPTIONS,
                        },
                        _ => Change::Unsubscribe { filter },
                    })
                    .collect();
                directory.commit(id, &changes);
            }
        });
        start.wait();
        let mut seen = HashSet::new();
        while running.load(Ordering::SeqCst) > 0 {
            let snapshot = directory.snapshot();
            let mut handles = Handles::default();
            snapshot.match_one(name("a/b"), None, 0, &mut handles);
            seen.insert(handles.0.len());
        }
        // One merged delivery and one from the group, or none.
        assert!(seen.is_subset(&HashSet::from([0, 2])), "{seen:?}");
    });

    assert_eq!(directory.stats().version, rounds(20_000));
}

/// C1, C3, C4: each writer sees its own subscriptions at once; those that stay are never missed; nothing is lost.
#[test]
fn c1_no_acknowledged_subscription_is_lost_under_churn() {
    const ROUNDS: u64 = rounds(6_000);
    const CHURNED: [&str; 3] = ["shared/+/x", "shared/t/#", "shared/t/x"];
    let directory = Directory::new(2, Strategy::RoundRobin);
    let permanent = directory.join(u64::MAX);
    subscribe(&directory, permanent, &filter("shared/+/x"));
    let (running, start) = (AtomicUsize::new(3), Barrier::new(4));

    thread::scope(|scope| {
        for writer in 0..3_u64 {
            let (directory, running, start) = (&directory, &running, &start);
            scope.spawn(move || {
                let _done = Done(running);
                let id = directory.join(writer);
                start.wait();
                for round in 0..ROUNDS {
                    let one = round % 7;
                    let churned = filter(CHURNED[usize::try_from(round).unwrap() % CHURNED.len()]);
                    let own = filter(&format!("own/{writer}/{one}/+"));
                    subscribe(directory, id, &churned);
                    subscribe(directory, id, &own);
                    assert!(receivers(directory, "shared/t/x").contains(&writer));
                    assert_eq!(
                        receivers(directory, &format!("own/{writer}/{one}/z")),
                        [writer]
                    );
                    unsubscribe(directory, id, &churned);
                    unsubscribe(directory, id, &own);
                    assert!(!receivers(directory, "shared/t/x").contains(&writer));
                }
                subscribe(directory, id, &filter("end/#"));
            });
        }
        start.wait();
        let mut last_version = 0;
        while running.load(Ordering::SeqCst) > 0 {
            assert!(receivers(&directory, "shared/t/x").contains(&u64::MAX));
            let version = directory.stats().version;
            assert!(version >= last_version);
            last_version = version;
        }
    });

    let mut ends = receivers(&directory, "end");
    ends.sort_unstable();
    assert_eq!(ends, [0, 1, 2]);
    let stats = directory.stats();
    assert_eq!(stats.version, 1 + 3 * (4 * ROUNDS + 1));
    assert_eq!((stats.subscriptions, stats.filters), (4, 2));
    directory.audit().unwrap();
}

/// C3: subscriptions that stay are in every match, whatever comes and goes around them, in every form of set.
#[test]
fn c3_a_permanent_subscription_is_never_missed_under_churn() {
    let directory = Directory::new(6, Strategy::RoundRobin);
    let stay: Vec<_> = ["a/b/c", "a/+/c", "a/#", "+/b/#", "#"].map(filter).to_vec();
    for (handle, filter) in (100..).zip(&stay) {
        let id = directory.join(handle);
        subscribe(&directory, id, filter);
    }
    let running = AtomicUsize::new(2);

    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (directory, stay, running) = (&directory, &stay, &running);
            scope.spawn(move || {
                let _done = Done(running);
                let ids: Vec<_> = (0..20)
                    .map(|own| directory.join(writer * 20 + own))
                    .collect();
                for round in 0..rounds(4_000) {
                    let place = usize::try_from(round).unwrap();
                    let (id, filter) = (ids[place % ids.len()], &stay[place % stay.len()]);
                    subscribe(directory, id, filter);
                    unsubscribe(directory, ids[(place + 7) % ids.len()], filter);
                }
            });
        }
        while running.load(Ordering::SeqCst) > 0 {
            let seen = receivers(&directory, "a/b/c");
            assert!((100..105).all(|handle| seen.contains(&handle)), "{seen:?}");
        }
    });
}

/// C4: each batch that changes something is one version, and a reader never sees an older one again.
#[test]
fn c4_versions_grow_by_one_with_each_change() {
    let directory = Directory::new(7, Strategy::RoundRobin);
    let (running, counted) = (AtomicUsize::new(2), AtomicUsize::new(0));

    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (directory, running, counted) = (&directory, &running, &counted);
            scope.spawn(move || {
                let _done = Done(running);
                let (id, filter) = (directory.join(writer), filter("t/+"));
                for round in 0..rounds(4_000) {
                    let before = directory.stats().version;
                    match round % 4 {
                        0 | 1 => subscribe(directory, id, &filter),
                        _ => unsubscribe(directory, id, &filter),
                    }
                    // The second of two equal steps changes nothing.
                    let changes = round % 2 == 0;
                    counted.fetch_add(usize::from(changes), Ordering::SeqCst);
                    let least = before + u64::from(changes);
                    assert!(directory.stats().version >= least);
                }
            });
        }
        let mut last = 0;
        while running.load(Ordering::SeqCst) > 0 {
            let version = directory.stats().version;
            assert!(version >= last);
            last = version;
        }
    });

    assert_eq!(directory.stats().version, counted.into_inner() as u64);
}

/// C8: once `leave` has returned, no match that begins delivers to the subscriber, cleaned or not.
#[test]
fn c8_nothing_is_delivered_after_leaving() {
    let directory = Directory::new(8, Strategy::RoundRobin);
    let (running, gone) = (AtomicUsize::new(1), AtomicUsize::new(0));

    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&running);
            for handle in 1..=rounds(4_000) {
                let id = directory.join(handle);
                subscribe(&directory, id, &filter("t/#"));
                subscribe(&directory, id, &filter("$share/g/t/+"));
                directory.leave(id);
                gone.store(usize::try_from(handle).unwrap(), Ordering::SeqCst);
                // Some are cleaned late, so that many dead ones stand in one set.
                if handle % 64 == 0 {
                    while directory.clean(10) > 0 {}
                }
            }
        });
        while running.load(Ordering::SeqCst) > 0 {
            let gone = gone.load(Ordering::SeqCst) as u64;
            assert!(
                receivers(&directory, "t/x")
                    .iter()
                    .all(|handle| *handle > gone)
            );
        }
    });
}

/// C7: a subscriber that left gets nothing; its number comes back only when its subscriptions are gone.
#[test]
fn c7_a_number_never_means_two_subscribers_in_one_match() {
    const ROUNDS: u64 = rounds(4_000);
    let directory = Directory::new(3, Strategy::RoundRobin);
    let gone = AtomicUsize::new(0);
    let (running, start) = (AtomicUsize::new(1), Barrier::new(2));

    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&running);
            start.wait();
            for handle in 1..=ROUNDS {
                let id = directory.join(handle);
                // Even and odd handles subscribe to different topics, so a mix-up shows as a wrong parity.
                subscribe(&directory, id, &filter(&format!("parity/{}/#", handle % 2)));
                directory.leave(id);
                gone.store(usize::try_from(handle).unwrap(), Ordering::SeqCst);
                directory.clean(1);
            }
        });
        start.wait();
        while running.load(Ordering::SeqCst) > 0 {
            for parity in 0..2 {
                let gone_before = gone.load(Ordering::SeqCst) as u64;
                for handle in receivers(&directory, &format!("parity/{parity}")) {
                    assert_eq!(handle % 2, parity);
                    assert!(
                        handle > gone_before,
                        "{handle} left before {gone_before} did"
                    );
                }
            }
        }
    });

    let stats = directory.stats();
    assert_eq!(
        (stats.subscribers, stats.subscriptions, stats.nodes),
        (0, 0, 0)
    );
    // Numbers come back when the epoch moves, which tests beside this one hold up now and then.
    let mut seen = HashSet::new();
    let is_reused = (0..1_000_000).any(|_| {
        crossbeam_epoch::pin().flush();
        let id = directory.join(0);
        directory.leave(id);
        !seen.insert(id)
    });
    assert!(is_reused);
}

/// C6: what is retired is freed once pins move on.
#[test]
fn c6_retired_blocks_are_freed_when_pins_move_on() {
    let directory = Directory::new(4, Strategy::RoundRobin);
    let id = directory.join(1);
    let filter = filter("a/+/b");
    {
        let _pinned = directory.snapshot();
        for _ in 0..rounds(1_000) {
            subscribe(&directory, id, &filter);
            unsubscribe(&directory, id, &filter);
        }
        assert!(directory.stats().retired_bytes > 0);
    }

    // Tests beside this one pin too, so the epoch moves at their pace.
    for _ in 0..10_000_000 {
        crossbeam_epoch::pin().flush();
        if directory.stats().retired_bytes == 0 {
            return;
        }
        thread::yield_now();
    }
    panic!("{} bytes are still held", directory.stats().retired_bytes);
}

/// C9: a reader sees the old or the new value, never none, and the counts come out even.
#[test]
fn c9_a_retained_value_is_never_missing_while_it_is_replaced() {
    let retained: RetainedStore<Arc<u64>> =
        RetainedStore::weighing(5, |value| usize::try_from(**value).unwrap());
    let stays = name("stays/here");
    retained.set(stays, Arc::new(1));
    let running = AtomicBool::new(true);
    let rounds = rounds(6_000);
    let value = |round| round % 10;

    thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let retained = &retained;
                scope.spawn(move || {
                    for round in 0..rounds {
                        retained.set(stays, Arc::new(value(round)));
                        // Both writers fight for one topic that comes and goes.
                        retained.set(name("comes/goes"), Arc::new(writer));
                        retained.remove(name("comes/goes"));
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let all = TopicFilter::parse("#", &TopicLimits::default()).unwrap();
            while running.load(Ordering::SeqCst) {
                assert!(retained.get(stays).is_some());
                let mut seen = 0;
                retained.walk(&all, None, 100, &mut |topic, _| {
                    seen += usize::from(topic == stays.as_str());
                });
                assert_eq!(seen, 1);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        running.store(false, Ordering::SeqCst);
        reader.join().unwrap();
    });

    retained.remove(name("comes/goes"));
    let last = usize::try_from(value(rounds - 1)).unwrap();
    assert_eq!((retained.len(), retained.weight()), (1, last));
    retained.audit().unwrap();
}
