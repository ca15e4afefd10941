//! C1 and C2 on real threads: histories of several writers and readers have an order that explains them.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions, too, are tests"
)]

mod history;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use history::{Clock, History, Read, State, Write, read, write};
use mqttcore_topics::{Directory, Strategy};

/// Miri takes a thousand times as long, and needs less to see a race.
const ROUNDS: u64 = if cfg!(miri) { 12 } else { 3_000 };

const CLIENTS: usize = 3;

/// Three clients write, two threads read as long as they do.
fn recorded(leaves: bool) -> History {
    let (directory, clock) = (Directory::new(5, Strategy::RoundRobin), Clock::default());
    let running = AtomicUsize::new(CLIENTS);
    let mut history = History {
        has_leaving: leaves,
        ..History::default()
    };
    thread::scope(|scope| {
        let (directory, clock, running) = (&directory, &clock, &running);
        let writers: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                scope.spawn(move || {
                    let writes = write(directory, clock, client, ROUNDS, leaves);
                    running.fetch_sub(1, Ordering::SeqCst);
                    writes
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut reads = Vec::new();
                    while running.load(Ordering::SeqCst) > 0 {
                        reads.push(read(directory, clock, CLIENTS));
                    }
                    reads
                })
            })
            .collect();
        history.writes = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        for reader in readers {
            history.reads.extend(reader.join().unwrap());
        }
    });
    history.reads.push(read(&directory, &clock, CLIENTS));
    directory.audit().unwrap();
    history
}

/// C1, C2: batches of several subscribers are seen whole, in one order, and at once when they have returned.
#[test]
fn c1_c2_a_history_of_batches_has_one_order() {
    let history = recorded(false);

    history.check().unwrap();

    assert!(history.reads.len() > CLIENTS);
}

/// C1, C8: as above with subscribers that leave, are cleaned, and join again under numbers of others.
#[test]
fn c1_c8_a_history_with_leaving_has_an_order_for_each_subscriber() {
    recorded(true).check().unwrap();
}

/// A recorded history is refused when one read of it is changed.
#[test]
fn a_recorded_history_with_one_wrong_read_is_refused() {
    let history = recorded(false);
    let changed = |change: &dyn Fn(&mut State)| {
        let mut history = history.clone();
        // The last read came after everything else, so it has one answer.
        change(&mut history.reads.last_mut().unwrap().seen[0]);
        history.check()
    };

    let (last, held) = history
        .reads
        .last()
        .map(|read| (read, &read.seen[0]))
        .unwrap();
    let before_last = &history.writes[0][history.writes[0].len() - 2].state;
    assert!(changed(&|_| ()).is_ok(), "{last:?}");
    assert!(
        changed(&|seen| {
            seen.insert(7_777_777);
        })
        .is_err(),
        "a subscription from nowhere"
    );
    if let Some(first) = held.first() {
        assert!(
            changed(&|seen| {
                seen.remove(first);
            })
            .is_err(),
            "a lost subscription"
        );
    }
    if before_last != held {
        assert!(
            changed(&|seen| seen.clone_from(before_last)).is_err(),
            "an old state"
        );
    }
}

fn batch(start: u64, end: u64, state: &[u32]) -> Write {
    Write {
        start,
        end,
        state: state.iter().copied().collect(),
    }
}

fn saw(start: u64, end: u64, seen: &[&[u32]]) -> Read {
    Read {
        start,
        end,
        seen: seen
            .iter()
            .map(|ids| ids.iter().copied().collect())
            .collect(),
    }
}

fn verdict(writes: &[&[Write]], reads: &[Read]) -> Result<(), String> {
    let history = History {
        writes: writes.iter().map(|writes| writes.to_vec()).collect(),
        reads: reads.to_vec(),
        has_leaving: false,
    };
    history.check()
}

/// C1: what returned is seen, what was taken back and returned is not, what is under way may be either.
#[test]
fn the_checker_refuses_a_read_outside_of_its_time() {
    let writes: &[&[Write]] = &[&[batch(10, 20, &[1]), batch(30, 40, &[])]];

    assert!(verdict(writes, &[saw(21, 22, &[&[1]])]).is_ok());
    assert!(verdict(writes, &[saw(15, 16, &[&[1]]), saw(17, 18, &[&[1]])]).is_ok());
    assert!(verdict(writes, &[saw(15, 16, &[&[]]), saw(35, 36, &[&[]])]).is_ok());
    assert!(verdict(writes, &[saw(21, 22, &[&[]])]).is_err(), "lost");
    assert!(
        verdict(writes, &[saw(1, 2, &[&[1]])]).is_err(),
        "before it was asked for"
    );
    assert!(
        verdict(writes, &[saw(41, 42, &[&[1]])]).is_err(),
        "after it was taken back"
    );
}

/// C1: once a read has seen a batch, no later read misses it, though the batch is still under way.
#[test]
fn the_checker_refuses_reads_that_go_back() {
    let writes: &[&[Write]] = &[&[batch(10, 20, &[1])]];

    assert!(verdict(writes, &[saw(11, 12, &[&[]]), saw(13, 14, &[&[1]])]).is_ok());
    assert!(
        verdict(writes, &[saw(11, 14, &[&[1]]), saw(12, 13, &[&[]])]).is_ok(),
        "side by side"
    );
    assert!(verdict(writes, &[saw(11, 12, &[&[1]]), saw(13, 14, &[&[]])]).is_err());
}

/// C2: half a batch is no state.
#[test]
fn the_checker_refuses_half_a_batch() {
    let writes: &[&[Write]] = &[&[batch(10, 20, &[1, 2])]];

    assert!(verdict(writes, &[saw(15, 16, &[&[1, 2]])]).is_ok());
    assert!(verdict(writes, &[saw(15, 16, &[&[1]])]).is_err());
}

/// One order of versions: no batch without those that had returned before it, and no two orders for two readers.
#[test]
fn the_checker_refuses_two_orders_of_versions() {
    let one_after_the_other: &[&[Write]] = &[&[batch(10, 20, &[1])], &[batch(30, 40, &[2])]];
    let side_by_side: &[&[Write]] = &[&[batch(10, 40, &[1])], &[batch(10, 40, &[2])]];
    let (only_one, only_two) = (saw(11, 39, &[&[1], &[]]), saw(11, 39, &[&[], &[2]]));

    assert!(verdict(one_after_the_other, &[saw(15, 50, &[&[1], &[]])]).is_ok());
    assert!(verdict(one_after_the_other, &[saw(15, 50, &[&[], &[2]])]).is_err());
    assert!(verdict(side_by_side, std::slice::from_ref(&only_one)).is_ok());
    assert!(verdict(side_by_side, std::slice::from_ref(&only_two)).is_ok());
    assert!(verdict(side_by_side, &[only_one, only_two]).is_err());
}
