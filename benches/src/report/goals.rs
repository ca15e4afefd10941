//! The goal table: what is asked, against whom, and what came of it.

use std::fmt::Write;

use super::clock::count;
use super::grid::{Cell, Grid, Group, Kind, median, ratio};
use super::memory::Memory;
use super::threads::Threads;

const MIB: usize = 1 << 20;

/// Names of contenders, as the grid has them.
const RWLOCK: &[&str] = &["RwLock trie"];
const NATS: &[&str] = &["NATS"];
const NATS_CACHED: &[&str] = &["NATS, cached"];
const EMQX: &[&str] = &["EMQX"];
const MOQUETTE: &[&str] = &["Moquette CTrie"];
const HAMT: &[&str] = &["imbl HAMT", "rpds HAMT"];

const SMALL: usize = 10_000;
const MIDDLE: usize = 100_000;
const LARGE: usize = 1_000_000;
const PLAIN: &[Kind] = &[Kind::Telemetry, Kind::Deep, Kind::Exact];
const SIZES: &[usize] = &[SMALL, MIDDLE, LARGE];

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

/// A comparison of one kind of figure over workloads, sizes and contenders.
struct Compared {
    goal: &'static str,
    against: &'static str,
    names: &'static [&'static str],
    kinds: &'static [Kind],
    sizes: &'static [usize],
    ours: fn(&Cell) -> &[f64],
    theirs: fn(&Cell) -> &[f64],
    bound: Bound,
}

/// What a ratio must keep to.
#[derive(Clone, Copy)]
enum Bound {
    /// Ours is at most this many times theirs.
    AtMost(f64),
    /// Theirs is at least this many times ours.
    TimesFaster(f64),
}

fn one(cell: &Cell) -> &[f64] {
    &cell.one
}

fn many(cell: &Cell) -> &[f64] {
    &cell.many
}

fn hot(cell: &Cell) -> &[f64] {
    &cell.hot
}

fn write(cell: &Cell) -> &[f64] {
    &cell.write
}

fn churn(cell: &Cell) -> &[f64] {
    &cell.churn
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

fn matching() -> Vec<Compared> {
    let row = |against, names, kinds, sizes, bound| Compared {
        goal: "match, one at a time",
        against,
        names,
        kinds,
        sizes,
        ours: one,
        theirs: one,
        bound: Bound::AtMost(bound),
    };
    let many = |against, names| Compared {
        goal: "match, 16 in flight, 1M",
        ours: many,
        ..row(against, names, PLAIN, &[LARGE], 0.25)
    };
    vec![
        row("RwLock trie", RWLOCK, PLAIN, SIZES, 0.75),
        row("RwLock trie, 100k", RWLOCK, PLAIN, &[MIDDLE], 0.5),
        row("NATS port without caches", NATS, PLAIN, SIZES, 0.9),
        row(
            "NATS port without caches, deep",
            NATS,
            &[Kind::Deep],
            SIZES,
            0.6,
        ),
        row("Moquette port (CTrie)", MOQUETTE, PLAIN, SIZES, 0.12),
        row("EMQX port", EMQX, PLAIN, SIZES, 0.6),
        many("RwLock trie", RWLOCK),
        many("NATS port", NATS),
    ]
}

fn caches() -> Vec<Compared> {
    let row = |goal, kinds, sizes, figure, bound| Compared {
        goal,
        against: "NATS port with caches",
        names: NATS_CACHED,
        kinds,
        sizes,
        ours: figure,
        theirs: figure,
        bound,
    };
    vec![
        row(
            "hot topics, quiet tree",
            PLAIN,
            SIZES,
            hot,
            Bound::AtMost(1.5),
        ),
        row(
            "churn does not collapse a cache: write, telemetry",
            &[Kind::Telemetry],
            SIZES,
            write,
            Bound::TimesFaster(20.0),
        ),
    ]
}

fn writes() -> Vec<Compared> {
    let row = |goal, against, names, kinds, sizes, bound| Compared {
        goal,
        against,
        names,
        kinds,
        sizes,
        ours: write,
        theirs: write,
        bound,
    };
    let new = |against, names, kinds, sizes, bound| {
        row(
            "write of a new filter",
            against,
            names,
            kinds,
            sizes,
            Bound::AtMost(bound),
        )
    };
    let wide = |size, bound| {
        let kinds = &[Kind::Telemetry];
        row(
            "write, wide level",
            "Moquette port (CTrie)",
            MOQUETTE,
            kinds,
            size,
            Bound::TimesFaster(bound),
        )
    };
    let popular = |against, names, size, bound| Compared {
        ours: churn,
        theirs: churn,
        ..row(
            "change in a filter of many",
            against,
            names,
            &[Kind::FanOut],
            size,
            Bound::TimesFaster(bound),
        )
    };
    vec![
        new("RwLock trie", RWLOCK, PLAIN, SIZES, 1.8),
        new(
            "RwLock trie, deep from 100k on",
            RWLOCK,
            &[Kind::Deep],
            &[MIDDLE, LARGE],
            1.0,
        ),
        new("imbl and rpds, the quicker", HAMT, PLAIN, SIZES, 0.25),
        wide(&[SMALL], 25.0),
        wide(&[MIDDLE], 150.0),
        wide(&[LARGE], 800.0),
        popular("NATS port, 10k subscribers", NATS, &[SMALL], 8.0),
        popular(
            "Moquette port (CTrie), 10k subscribers",
            MOQUETTE,
            &[SMALL],
            8.0,
        ),
        popular("NATS port, 100k subscribers", NATS, &[MIDDLE], 50.0),
        popular(
            "Moquette port (CTrie), 100k subscribers",
            MOQUETTE,
            &[MIDDLE],
            50.0,
        ),
    ]
}

impl Compared {
    /// The ratio of ours to the quickest of them in one group.
    fn in_group(&self, group: &Group) -> Option<f64> {
        let ours = (self.ours)(group.ours());
        let ratio_to = |name: &&str| {
            group
                .peer(name)
                .map(|peer| ratio(ours, (self.theirs)(peer)))
        };
        self.names
            .iter()
            .filter_map(ratio_to)
            .max_by(f64::total_cmp)
    }

    /// Judges the worst of all groups, and shows all.
    fn judge(&self, grid: &Grid) -> Goal {
        let (mut worst, mut shown) = (f64::NEG_INFINITY, String::new());
        for kind in self.kinds {
            let groups = self
                .sizes
                .iter()
                .filter_map(|&size| grid.group(*kind, size));
            let ratios: Vec<_> = groups.filter_map(|group| self.in_group(group)).collect();
            if let Some(part) = self.bound.show_all(kind.name(), &ratios) {
                shown.push_str(if shown.is_empty() { "" } else { "; " });
                shown.push_str(&part);
            }
            worst = ratios.into_iter().fold(worst, f64::max);
        }
        let is_complete = self
            .sizes
            .iter()
            .all(|&size| grid.group(self.kinds[0], size).is_some());
        Goal {
            goal: self.goal,
            against: self.against,
            target: self.bound.target(),
            measured: shown,
            verdict: verdict(is_complete.then(|| self.bound.holds(worst))),
        }
    }
}

fn verdict(holds: Option<bool>) -> Verdict {
    match holds {
        Some(true) => Verdict::Met,
        Some(false) => Verdict::NotMet,
        None => Verdict::NotMeasured,
    }
}

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::TimesFaster(least) => ratio <= 1.0 / least,
        }
    }

    fn target(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most}x"),
            Self::TimesFaster(least) => format!(">= {least}x faster"),
        }
    }

    /// The figures of one workload, by rising size.
    fn show_all(self, name: &str, ratios: &[f64]) -> Option<String> {
        let mut text = name.to_owned();
        for (place, ratio) in ratios.iter().enumerate() {
            let separator = if place == 0 { " " } else { ", " };
            // Writing to a text cannot fail.
            let _ = match self {
                Self::AtMost(_) => write!(text, "{separator}{ratio:.2}x"),
                Self::TimesFaster(_) => write!(text, "{separator}{:.0}x", 1.0 / ratio),
            };
        }
        (!ratios.is_empty()).then_some(text)
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
    let (beside, p999) = (
        ratio(&threads.beside, &threads.alone),
        median(&threads.p999),
    );
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
            format!("{beside:.2}x"),
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
                "0",
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
