//! A random workload on a disk that loses power, dies, fails and fills up: acknowledged batches are
//! there, nothing is there twice, nothing has changed places, and nothing is unexplained.
//!
//! `MQTTCORE_CYCLES` and `MQTTCORE_SEED` choose how many and which; see `make powercut`.
#![allow(clippy::unwrap_used, reason = "a test fails with it")]
#![allow(clippy::print_stdout, reason = "the line is what the run is for")]

mod model;
mod trial;

use std::env;

use trial::{Trial, Verdict};

fn from_environment(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn no_acknowledged_batch_is_lost() {
    let cycles = from_environment("MQTTCORE_CYCLES", 300);
    let seed = from_environment("MQTTCORE_SEED", 1);

    let mut total = Verdict::default();
    let mut run = 0;
    while total.cycles < cycles {
        let mut trial = Trial::new(seed.wrapping_mul(1_000_003).wrapping_add(run));
        let verdict = trial.run(8.min(cycles - total.cycles));
        if !verdict.is_clean() {
            println!("run {run} of seed {seed}: {}", trial.story.join("\n  "));
        }
        total.add(&verdict);
        run += 1;
    }

    println!("{total}");
    assert!(total.is_clean(), "{total}");
}

/// The oracle is no better than what it finds: a store that forgets, doubles and swaps is caught.
#[test]
fn the_oracle_finds_what_is_wrong() {
    let right = trial::sample();
    let mut lost = right.clone();
    lost.sessions.get_mut(&1).unwrap().queue.remove(0);
    let mut doubled = right.clone();
    doubled.sessions.get_mut(&1).unwrap().queue.push((9, 9, 1));
    let mut swapped = right.clone();
    swapped.sessions.get_mut(&1).unwrap().queue.swap(0, 1);
    let mut forgotten = right.clone();
    forgotten.sessions.clear();
    let mut odd = right.clone();
    odd.retained.insert("never".into(), 1);

    let verdicts = [&right, &lost, &doubled, &swapped, &forgotten, &odd]
        .map(|found| trial::compare(&right, found));

    let counts = verdicts.map(|v| {
        (
            v.lost,
            v.doubled,
            v.reordered,
            v.sessions_lost,
            v.unexplained,
        )
    });
    assert_eq!(counts[0], (0, 0, 0, 0, 0));
    assert_eq!(counts[1], (1, 0, 0, 0, 0));
    assert_eq!(counts[2], (0, 1, 0, 0, 0));
    assert_eq!(counts[3], (0, 0, 1, 0, 0));
    assert_eq!((counts[4].3, counts[5].4), (1, 1));
}
