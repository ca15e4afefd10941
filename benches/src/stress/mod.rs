//! `make stress`: churn on one directory by several threads, with every acknowledgement checked.
//!
//! A cycle is one of four: a private filter, a filter that all threads share with permanent subscribers, a batch of
//! overlapping filters with a shared group, or a session that joins, subscribes and leaves. Each subscribes, matches,
//! takes back what it subscribed to, and now and then matches again. Beside the writers one thread reads only, and
//! looks for permanent subscriptions.
//!
//! Three things are counted: *lost*, a subscription that had returned and a match did not see; *wrong*, a delivery to
//! somebody who had no such subscription, or a second one; *leaked*, what is left when everything was removed: nodes,
//! counts, retired bytes, and heap blocks.

mod ground;
pub mod heap;
mod worker;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_topics::{Directory, Strategy};

use ground::{Ground, MOST_FLEET};
use worker::{Worker, read_along};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Cycles of all threads together.
    pub cycles: u64,
    /// Writing threads.
    pub threads: u64,
    /// A fault to put in, to see that it is counted.
    pub sabotage: Option<Sabotage>,
    /// How often to call back with the progress.
    pub every: Duration,
}

/// A fault that stands for one of the directory: once in so many cycles.
#[derive(Clone, Copy, Debug)]
pub struct Sabotage {
    /// Which fault.
    pub fault: Fault,
    /// Cycles from one to the next.
    pub one_in: u64,
}

/// What a broken directory could do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Forgets a subscription that it acknowledged.
    Lose,
    /// Delivers to a stranger.
    Misdeliver,
    /// Never lets go of what was removed.
    Leak,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// Cycles that ran.
    pub cycles: u64,
    /// Matches that were checked.
    pub matches: u64,
    /// Acknowledged subscriptions that a match did not see.
    pub lost: u64,
    /// Deliveries to somebody without a subscription, or twice.
    pub wrong: u64,
    /// What is left after everything was removed.
    pub leaked: u64,
}

impl Verdict {
    /// Whether nothing was lost, wrong or leaked.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        (self.lost, self.wrong, self.leaked) == (0, 0, 0)
    }

    fn add(&mut self, other: Self) {
        self.cycles += other.cycles;
        self.matches += other.matches;
        self.lost += other.lost;
        self.wrong += other.wrong;
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            lost,
            wrong,
            leaked,
            ..
        } = self;
        write!(formatter, "{lost} lost, {wrong} wrong, {leaked} leaked")
    }
}

/// Runs the plan; calls `progress` with the cycles so far, the seconds, and the retries so far.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(u64, f64, u64)) -> Verdict {
    // What the runtime keeps for itself is there before the heap is looked at.
    churn(
        &Plan {
            cycles: 4_096,
            sabotage: None,
            ..*plan
        },
        &mut |_, _, _| (),
    );
    settle(|| true);
    let before = held();
    let mut verdict = churn(plan, progress);
    let is_back = || held() <= before;
    settle(is_back);
    verdict.leaked += u64::try_from(held() - before).unwrap_or(0);
    verdict
}

/// Blocks that the allocator handed out, and bytes that the directory took from chunks of its own: all that can leak.
fn held() -> i64 {
    heap::blocks() + i64::try_from(Directory::heap_bytes()).unwrap_or(i64::MAX)
}

/// One directory from its making to its end.
fn churn(plan: &Plan, progress: &mut dyn FnMut(u64, f64, u64)) -> Verdict {
    let directory = Directory::new(0x5EED, Strategy::RoundRobin);
    let ground = Ground::lay(&directory, (plan.cycles / 10).clamp(100, MOST_FLEET));
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Barrier::new(usize::try_from(plan.threads).unwrap_or(1) + 1);
    let mut verdict = Verdict::default();
    thread::scope(|scope| {
        let (directory, ground, done, is_over, start) =
            (&directory, &ground, &done, &is_over, &start);
        let workers: Vec<_> = (0..plan.threads)
            .map(|number| {
                let cycles = share(plan.cycles, plan.threads, number);
                let mut worker = Worker::new(directory, ground, number, plan.sabotage);
                scope.spawn(move || {
                    start.wait();
                    worker.run(cycles, done)
                })
            })
            .collect();
        let reader = scope.spawn(move || read_along(directory, ground, is_over));
        start.wait();
        let (clock, total) = (Instant::now(), plan.cycles);
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::park_timeout(
                plan.every
                    .min(Duration::from_millis(50))
                    .max(Duration::from_millis(1)),
            );
            let cycles = done.load(Ordering::Relaxed);
            progress(
                cycles.min(total),
                clock.elapsed().as_secs_f64(),
                directory.stats().lost_races,
            );
        }
        is_over.store(true, Ordering::Relaxed);
        for thread in workers.into_iter().chain([reader]) {
            // INVARIANT: a thread that panicked is a failed run, and says so itself.
            verdict.add(thread.join().expect("a thread of the stress run ends"));
        }
    });
    ground.clear(&directory);
    verdict.leaked += left_behind(&directory);
    verdict
}

fn share(cycles: u64, threads: u64, number: u64) -> u64 {
    cycles / threads + u64::from(number < cycles % threads)
}

/// Everything that a directory without subscribers still holds.
fn left_behind(directory: &Directory) -> u64 {
    settle(|| directory.stats().retired_bytes == 0);
    let stats = directory.stats();
    let counts = [
        stats.filters,
        stats.subscriptions,
        stats.shared_groups,
        stats.nodes,
        stats.bytes,
        stats.subscribers,
        stats.removed_subscriptions,
        stats.retired_bytes,
    ];
    let broken = u64::from(directory.audit().is_err());
    counts.iter().map(|count| *count as u64).sum::<u64>() + broken
}

/// Drives the epoch until `is_settled`, or for as long as a leak would not go away.
fn settle(is_settled: impl Fn() -> bool) {
    for _ in 0..1_000 {
        crossbeam_epoch::pin().flush();
        Directory::trim();
        if is_settled() {
            return;
        }
    }
}
