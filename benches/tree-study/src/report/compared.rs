//! Rows that compare one kind of figure over workloads, sizes and contenders.

use std::fmt::Write;

use super::goals::{Goal, LARGE, MIDDLE, PLAIN, SIZES, SMALL, verdict};
use super::grid::{Cell, Grid, Group, Kind, ratio};

/// Names of contenders, as the grid has them.
pub(super) const RWLOCK: &[&str] = &["RwLock trie"];
pub(super) const NATS: &[&str] = &["NATS"];
const NATS_CACHED: &[&str] = &["NATS, cached"];
pub(super) const EMQX: &[&str] = &["EMQX"];
const MOQUETTE: &[&str] = &["Moquette CTrie"];
const HAMT: &[&str] = &["imbl HAMT", "rpds HAMT"];

/// A comparison of one kind of figure over workloads, sizes and contenders.
pub(super) struct Compared {
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

pub(super) fn one(cell: &Cell) -> &[f64] {
    &cell.one
}

pub(super) fn many(cell: &Cell) -> &[f64] {
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

/// Matches, one at a time and in flight.
pub(super) fn matching() -> Vec<Compared> {
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

/// What a cache of results is for, and what it suffers from.
pub(super) fn caches() -> Vec<Compared> {
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

/// Writes by one thread.
pub(super) fn writes() -> Vec<Compared> {
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
    pub(super) fn judge(&self, grid: &Grid) -> Goal {
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
