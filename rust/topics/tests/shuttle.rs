//! C1 to C9 on schedules that shuttle draws: random ones, and ones that find a fault which needs few preemptions (PCT).
//!
//! `make shuttle` runs them. Threads change at every atomic, lock and pointer of `sync.rs`, and nowhere else: the
//! epochs are those of `sync/grace.rs`, which free at the first moment that the contract allows, and memory orders are
//! all taken as `SeqCst` (loom is for these). A failing schedule is printed, and `shuttle::replay` repeats it.
//!
//! Tried by hand, and refused by these tests: a writer that replaces whatever version is there now, a batch that is
//! published change by change, a number that is given back at once, and a tombstone that is not set.
#![cfg(shuttle)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

mod history;
mod oracle;

use std::sync::Arc;

use history::{Clock, History, read, write};
use mqttcore_codec::QoS;
use mqttcore_topics::{Change, Directory, Match, Options, RetainedStore, Strategy, Visitor};
use oracle::{filter, name};
use shuttle::thread;

const CLIENTS: usize = 3;

/// Schedules of each kind; `SCHEDULES` in the environment says how many.
fn explore(test: impl Fn() + Copy + Send + Sync + 'static) {
    let schedules = std::env::var("SCHEDULES").map_or(300, |text| text.parse().unwrap());
    shuttle::check_random(test, schedules);
    shuttle::check_pct(test, schedules, 3);
}

fn history_of(leaves: bool) {
    let shared = Arc::new((Directory::new(5, Strategy::RoundRobin), Clock::default()));
    let writers: Vec<_> = (0..CLIENTS as u64)
        .map(|client| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared.0, &shared.1, client, 6, leaves))
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                (0..6)
                    .map(|_| read(&shared.0, &shared.1, CLIENTS))
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let mut history = History {
        has_leaving: leaves,
        ..History::default()
    };
    history.writes = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .collect();
    for reader in readers {
        history.reads.extend(reader.join().unwrap());
    }
    history.reads.push(read(&shared.0, &shared.1, CLIENTS));

    history.check().unwrap();
    shared.0.audit().unwrap();
    assert_eq!(shared.0.stats().retired_bytes, 0);
}

#[test]
fn c1_c2_c6_a_history_of_batches_has_one_order() {
    explore(|| history_of(false));
}

#[test]
fn c1_c8_a_history_with_leaving_has_an_order_for_each_subscriber() {
    explore(|| history_of(true));
}

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

/// C7: while a match is under way, no number in its version comes to mean another subscriber.
#[test]
fn c7_a_number_never_means_two_subscribers_in_one_match() {
    explore(|| {
        let directory = Arc::new(Directory::new(1, Strategy::RoundRobin));
        let join = |directory: &Directory, handle: u64| {
            let id = directory.join(handle);
            let filter = filter(["even/#", "odd/#"][usize::from(handle % 2 == 1)]);
            let options = Options::at(QoS::AtMostOnce);
            directory.commit(
                id,
                &[Change::Subscribe {
                    filter: &filter,
                    options,
                }],
            );
            id
        };
        let mut id = join(&directory, 1);
        let writer = {
            let directory = Arc::clone(&directory);
            thread::spawn(move || {
                for handle in 2..=4 {
                    directory.leave(id);
                    directory.clean(1);
                    id = join(&directory, handle);
                }
                directory.leave(id);
                directory.clean(1);
            })
        };
        for _ in 0..3 {
            let snapshot = directory.snapshot();
            for (parity, topic) in ["even", "odd"].into_iter().enumerate() {
                let mut handles = Handles::default();
                snapshot.match_one(name(topic), None, 0, &mut handles);
                assert!(handles.0.iter().all(|handle| *handle % 2 == parity as u64));
            }
        }
        writer.join().unwrap();
        let stats = directory.stats();
        assert_eq!(
            (stats.subscriptions, stats.nodes, stats.retired_bytes),
            (0, 0, 0)
        );
    });
}

/// C9: a value that is replaced is never missing; one that comes and goes is counted right.
#[test]
fn c9_a_retained_value_is_never_missing_while_it_is_replaced() {
    explore(|| {
        let retained = Arc::new(RetainedStore::<u64>::new(1));
        retained.set(name("stays"), 0);
        let writers: Vec<_> = (1..=2)
            .map(|writer| {
                let retained = Arc::clone(&retained);
                thread::spawn(move || {
                    for _ in 0..2 {
                        retained.set(name("stays"), writer);
                        retained.set(name("comes/goes"), writer);
                        retained.remove(name("comes/goes"));
                    }
                })
            })
            .collect();
        for _ in 0..4 {
            assert!(retained.get(name("stays")).is_some());
            assert!(
                retained
                    .get(name("comes/goes"))
                    .is_none_or(|value| value > 0)
            );
        }
        for writer in writers {
            writer.join().unwrap();
        }
        retained.remove(name("comes/goes"));
        assert_eq!(retained.len(), 1);
        retained.audit().unwrap();
    });
}
