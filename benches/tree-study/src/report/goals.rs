//! The goal table: what is asked, against whom, and what came of it.

use super::clock::count;
use super::compared::{EMQX, NATS, RWLOCK, caches, many, matching, one, writes};
use super::grid::{Cell, Grid, Kind, median, ratio};
use super::memory::Memory;
use super::threads::Threads;

const MIB: usize = 1 << 20;

pub(super) const SMALL: usize = 10_000;
pub(super) const MIDDLE: usize = 100_000;
pub(super) const LARGE: usize = 1_000_000;
pub(super) const PLAIN: &[Kind] = &[Kind::Telemetry, Kind::Deep, Kind::Exact];
pub(super) const SIZES: &[usize] = &[SMALL, MIDDLE, LARGE];

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    NotMet,
    /// The sizes that it speaks of were not asked for.
    NotMeasured,
}

impl Verdict {
    /// The last column.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotMeasured => "not measured",
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Goal {
    /// What is asked.
    pub goal: &'static str,
    /// Whom it is compared with.
    pub against: &'static str,
    /// What must come of it.
    pub target: String,
    /// What did.
    pub measured: String,
    /// Whether that is enough.
    pub verdict: Verdict,
}

/// All rows, in the order of the design.
#[must_use]
pub fn goals(grid: &Grid, threads: &Threads, memory: &Memory) -> Vec<Goal> {
    let mut rows: Vec<_> = matching().iter().map(|row| row.judge(grid)).collect();
    rows.extend(absolute_matches(grid));
    rows.extend(caches().iter().map(|row| row.judge(grid)));
    rows.extend(writes().iter().map(|row| row.judge(grid)));
    rows.extend(absolute_writes(grid));
    rows.extend(of_threads(threads));
    rows.extend(bytes(grid));
    rows.extend(of_memory(memory));
    rows
}

/// What comes of a goal that holds, or not, or was not measured.
pub(super) fn verdict(holds: Option<bool>) -> Verdict {
    match holds {
        Some(true) => Verdict::Met,
        Some(false) => Verdict::NotMet,
        None => Verdict::NotMeasured,
    }
}

/// A figure that must not be above a limit; `None` when it was not measured.
fn at_most(goal: &'static str, unit: &str, most: f64, figure: Option<f64>) -> Goal {
    Goal {
        goal,
        against: "-",
        target: format!("<= {most} {unit}"),
        measured: figure.map_or_else(String::new, |figure| format!("{} {unit}", short(figure))),
        verdict: verdict(figure.map(|figure| figure <= most)),
    }
}

fn short(figure: f64) -> String {
    if figure < 100.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.0}")
    }
}

fn absolute_matches(grid: &Grid) -> Vec<Goal> {
    let large = |kind, figure: fn(&Cell) -> &[f64]| {
        grid.group(kind, LARGE)
            .map(|group| median(figure(group.ours())))
    };
    vec![
        at_most(
            "1M, one at a time, telemetry",
            "ns",
            550.0,
            large(Kind::Telemetry, one),
        ),
        at_most(
            "1M, 16 in flight, telemetry",
            "ns",
            150.0,
            large(Kind::Telemetry, many),
        ),
        at_most(
            "1M, 16 in flight, deep",
            "ns",
            1200.0,
            large(Kind::Deep, many),
        ),
    ]
}

fn absolute_writes(grid: &Grid) -> Vec<Goal> {
    let group = grid.group(Kind::Telemetry, LARGE);
    let write = group.map(|group| median(&group.ours().write));
    let load = group.map(|group| group.ours().footprint.load / 1e3);
    vec![
        at_most("1M, write of a new filter, telemetry", "ns", 600.0, write),
        at_most(
            "1M subscriptions loaded one by one, telemetry",
            "s",
            1.5,
            load,
        ),
    ]
}

fn of_threads(threads: &Threads) -> Vec<Goal> {
    let row = |goal, target: &str, measured, holds| Goal {
        goal,
        against: "-",
        target: target.to_owned(),
        measured,
        verdict: verdict(Some(holds)),
    };
    let (beside, beside_other) = (
        ratio(&threads.beside, &threads.alone),
        ratio(&threads.beside_other, &threads.alone),
    );
    let beside_batches = ratio(&threads.batches.1, &threads.batches.0);
    let p999 = median(&threads.p999);
    let gain = threads.readers_gain();
    let (one, two) = (median(&threads.one_writer), median(&threads.two_writers));
    let writers = format!(
        "{:.1} %, {} lost; {one:.0} ns alone, {two:.0} ns each of two",
        threads.retries * 100.0,
        threads.lost_writes
    );
    let (ours, ctrie) = (threads.ours, threads.ctrie);
    let lost = format!(
        "{} in {} cycles of {} threads; CTrie port {} in {}",
        ours.lost, ours.cycles, ours.threads, ctrie.lost, ctrie.cycles
    );
    vec![
        row(
            "two writers: retries, lost operations",
            "<= 25 %, 0",
            writers,
            threads.retries <= 0.25 && threads.lost_writes == 0,
        ),
        row(
            "readers, 1 to 2 threads",
            ">= 1.9x",
            format!("{gain:.2}x"),
            gain >= 1.9,
        ),
        row(
            "reader beside a full-speed writer",
            "<= 1.3x alone",
            format!(
                "{beside:.2}x; {beside_other:.2}x beside a writer of another directory; 16 in flight {beside_batches:.2}x"
            ),
            beside <= 1.3,
        ),
        row(
            "one match beside a full-speed writer, p99.9",
            "<= 5 us",
            format!("{:.2} us", p999 / 1e3),
            p999 <= 5e3,
        ),
        Goal {
            against: "Moquette",
            ..row(
                "lost acknowledged subscriptions",
                "0 (10^8 cycles: make stress)",
                lost,
                ours.lost == 0 && ours.cycles > 0,
            )
        },
    ]
}

fn bytes(grid: &Grid) -> Vec<Goal> {
    let ratio = |against, names: &[&str], most: f64| {
        let groups = PLAIN
            .iter()
            .flat_map(|kind| SIZES.iter().filter_map(|&size| grid.group(*kind, size)));
        let ratios = groups.filter_map(|group| {
            let ours = group.ours().footprint.bytes;
            let theirs = names.iter().filter_map(|name| group.peer(name));
            theirs
                .map(|peer| ours / peer.footprint.bytes)
                .max_by(f64::total_cmp)
        });
        let ratios: Vec<_> = ratios.collect();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let shown = ratios
            .iter()
            .map(|ratio| format!("{ratio:.2}x"))
            .collect::<Vec<_>>();
        Goal {
            goal: "bytes a subscription, telemetry, deep, exact",
            against,
            target: format!("<= {most}x"),
            measured: shown.join(", "),
            verdict: verdict((ratios.len() == PLAIN.len() * SIZES.len()).then_some(worst <= most)),
        }
    };
    let absolute = |goal, kind, sizes: &[usize], most| {
        let groups = sizes.iter().filter_map(|&size| grid.group(kind, size));
        let worst = groups
            .map(|group| group.ours().footprint.bytes)
            .max_by(f64::total_cmp);
        at_most(goal, "B", most, worst)
    };
    vec![
        ratio("RwLock trie", RWLOCK, 0.2),
        ratio("NATS port", NATS, 0.25),
        ratio("EMQX port", EMQX, 0.65),
        absolute(
            "bytes a subscription, telemetry",
            Kind::Telemetry,
            SIZES,
            80.0,
        ),
        absolute("bytes a subscription, deep", Kind::Deep, SIZES, 100.0),
        absolute("bytes a subscription, exact", Kind::Exact, SIZES, 96.0),
        absolute(
            "bytes a subscription, fan-out of 100k",
            Kind::FanOut,
            &[MIDDLE],
            16.0,
        ),
    ]
}

fn of_memory(memory: &Memory) -> Vec<Goal> {
    let (left_nodes, left_bytes) = memory.left;
    let is_clean = left_nodes == 0
        && left_bytes == 0
        && memory.second_turn <= 65_536.0
        && memory.after_drop <= 65_536.0;
    let mib = |bytes: f64| bytes / count(MIB);
    vec![
        Goal {
            goal: "memory after removing everything",
            against: "-",
            target: "start + pools".to_owned(),
            measured: format!(
                "{left_nodes} blocks left; seats of clients {:.0} KiB, a second turn adds {:.0} B; after drop {:.0} B",
                memory.pools / 1024.0,
                memory.second_turn,
                memory.after_drop
            ),
            verdict: verdict(Some(is_clean)),
        },
        Goal {
            goal: "garbage behind a stalled reader",
            against: "-",
            target: "<= 64 MiB".to_owned(),
            measured: format!(
                "{:.1} MiB counted, heap {:.1} MiB more, after {} commits",
                mib(count(memory.garbage)),
                mib(memory.garbage_heap),
                memory.commits
            ),
            verdict: verdict(Some(memory.garbage <= 64 * MIB)),
        },
    ]
}
