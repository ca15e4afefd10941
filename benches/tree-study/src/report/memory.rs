//! What the directory holds beyond its subscriptions: behind a reader that stalls, and after everybody left.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_topics::SubscriptionFilter;

use super::clock::count;
use super::heap::{bytes_in_use, growth, settle};
use super::options::Options;
use super::progress::Progress;
use crate::contenders::client;
use crate::contenders::ours::Ours;
use crate::workload::Workload;

/// Between two looks at what is held.
const TICK: Duration = Duration::from_millis(2);

/// What was found.
#[derive(Debug, Default)]
pub struct Memory {
    /// Subscriptions in the directory.
    pub size: usize,
    /// The most bytes that waited for a stalled reader, by the directory's own count.
    pub garbage: usize,
    /// By how much the heap grew meanwhile.
    pub garbage_heap: f64,
    /// Commits of the writer meanwhile.
    pub commits: u64,
    /// Blocks and bytes of the tree after everybody left, less those of one that was never used.
    pub left: (usize, usize),
    /// Bytes of heap that stay for the next subscribers after everybody left.
    pub pools: f64,
    /// By how much a second turn of coming and leaving grew that.
    pub second_turn: f64,
    /// Bytes of heap more than at the start, after the directory is gone.
    pub after_drop: f64,
}

impl Memory {
    /// Measures with the largest size up to 100,000.
    #[must_use]
    pub fn measure(options: &Options, progress: &Progress) -> Self {
        let fits = options
            .sizes
            .iter()
            .copied()
            .filter(|&size| size <= 100_000);
        let size = fits.max().unwrap_or(100_000);
        let mut memory = Self {
            size,
            ..Self::default()
        };
        progress.say("memory: everybody comes and leaves");
        memory.come_and_leave();
        progress.say("memory: a reader stalls");
        memory.stall(4 * options.span);
        memory
    }

    fn come_and_leave(&mut self) {
        let kinds = [
            Workload::telemetry,
            Workload::deep,
            Workload::exact,
            Workload::fan_out,
        ];
        let filters: Vec<SubscriptionFilter> = kinds
            .iter()
            .flat_map(|make| make(self.size / 4, 0).filters)
            .collect();
        let empty = Ours::new().directory().stats();
        turn(&Ours::load(&filters), &filters);
        settle();
        let (after_drop, ()) = growth(|| {
            let (pools, ours) = growth(|| {
                let ours = Ours::load(&filters);
                turn(&ours, &filters);
                ours
            });
            self.pools = pools;
            let stats = ours.directory().stats();
            self.left = (stats.nodes - empty.nodes, stats.bytes - empty.bytes);
            (self.second_turn, ()) = growth(|| {
                for (number, filter) in filters.iter().enumerate() {
                    ours.subscribe(filter, client(number), 1);
                }
                turn(&ours, &filters);
            });
            drop(ours);
            settle();
        });
        self.after_drop = after_drop;
    }

    fn stall(&mut self, span: Duration) {
        let workload = Workload::telemetry(self.size, 0);
        let ours = Ours::load(&workload.filters);
        ours.collect_garbage();
        let (is_over, before) = (AtomicBool::new(false), ours.directory().stats());
        let heap_before = bytes_in_use();
        let mut heap_peak = 0;
        let stalled = ours.directory().snapshot();
        thread::scope(|scope| {
            scope.spawn(|| {
                let filters = workload.filters.iter().enumerate().cycle();
                for (number, filter) in filters {
                    ours.unsubscribe(filter, client(number));
                    ours.subscribe(filter, client(number), 1);
                    // ORDERING: Relaxed: only asked to stop.
                    if is_over.load(Relaxed) {
                        return;
                    }
                }
            });
            let end = Instant::now() + span;
            while Instant::now() < end {
                thread::sleep(TICK);
                self.garbage = self.garbage.max(ours.directory().stats().retired_bytes);
                heap_peak = heap_peak.max(bytes_in_use().unwrap_or(0));
            }
            is_over.store(true, Relaxed); // ORDERING: only asks to stop.
            self.commits = ours.directory().stats().version - before.version;
            drop(stalled);
        });
        self.garbage_heap = count(heap_peak.saturating_sub(heap_before.unwrap_or(heap_peak)));
    }
}

/// Everybody leaves, and what was replaced is freed.
fn turn(ours: &Ours, filters: &[SubscriptionFilter]) {
    for (number, filter) in filters.iter().enumerate() {
        ours.unsubscribe(filter, client(number));
    }
    ours.collect_garbage();
    settle();
}
