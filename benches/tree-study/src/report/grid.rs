//! What every contender takes on every workload at every size: contenders take turns, round by round.

use std::time::Duration;

use super::options::Options;
use super::peer::{ALL, Footprint, Peer, writes_at};
use super::progress::Progress;
pub use crate::workload::{Kind, names};

/// Topics that a publisher of hot topics takes turns with.
const HOT: usize = 16;

/// The figures of one contender on one workload at one size; one value a round where there are several.
#[derive(Debug, Default)]
pub struct Cell {
    /// The contender.
    pub peer: &'static str,
    /// What loading it took.
    pub footprint: Footprint,
    /// Nanoseconds a match, one at a time.
    pub one: Vec<f64>,
    /// Nanoseconds a match, 16 at a time.
    pub many: Vec<f64>,
    /// Nanoseconds a match of 16 hot topics, nobody writing; by way of a reader's cache where there is one.
    pub hot: Vec<f64>,
    /// Nanoseconds a subscription with a filter never seen before.
    pub write: Vec<f64>,
    /// Nanoseconds a removal of the same.
    pub remove: Vec<f64>,
    /// Nanoseconds a change when known subscribers leave and come back.
    pub churn: Vec<f64>,
}

/// The cells of one workload at one size.
#[derive(Debug)]
pub struct Group {
    /// The workload.
    pub kind: Kind,
    /// Its subscriptions.
    pub size: usize,
    /// Matches a topic.
    pub receivers: f64,
    /// One a contender, ours first.
    pub cells: Vec<Cell>,
}

/// Everything that was measured of single threads.
#[derive(Debug, Default)]
pub struct Grid(pub Vec<Group>);

impl Grid {
    /// Measures all workloads at all sizes; fan-out up to 100,000 subscribers only.
    #[must_use]
    pub fn measure(options: &Options, progress: &Progress) -> Self {
        let mut groups = Vec::new();
        for &size in &options.sizes {
            for kind in Kind::ALL {
                if kind != Kind::FanOut || size <= 100_000 {
                    groups.push(Group::measure(kind, size, options, progress));
                }
            }
        }
        Self(groups)
    }

    /// Finds the group of a workload and size, if it was measured.
    #[must_use]
    pub fn group(&self, kind: Kind, size: usize) -> Option<&Group> {
        self.0
            .iter()
            .find(|group| (group.kind, group.size) == (kind, size))
    }
}

impl Group {
    fn measure(kind: Kind, size: usize, options: &Options, progress: &Progress) -> Self {
        let rounds = options.rounds;
        let writes = writes_at(size);
        let workload = kind.workload(size, rounds * writes);
        let fresh = &workload.fresh;
        let topics = names(&workload.topics);
        let mut peers: Vec<Box<dyn Peer>> = Vec::new();
        for loader in ALL {
            progress.say(&format!(
                "{} {size}: loading {}",
                kind.name(),
                peers.len() + 1
            ));
            peers.push(loader(&workload, size + fresh.len()));
        }
        let mut cells: Vec<Cell> = peers.iter().map(|peer| Cell::of(&**peer)).collect();
        for round in 0..rounds {
            progress.say(&format!(
                "{} {size}: round {} of {rounds}",
                kind.name(),
                round + 1
            ));
            let start = round * writes;
            for (peer, cell) in peers.iter_mut().zip(&mut cells) {
                cell.one.push(peer.one(&topics, options.slice));
                cell.many.extend(peer.many(&topics, options.slice));
                let filters = &fresh[start..start + writes];
                let (write, remove) = peer.write(filters, size + start, options.slice);
                cell.write.push(write);
                cell.remove.push(remove);
                cell.hot
                    .push(peer.hot(&topics[..HOT.min(topics.len())], options.slice / 2));
                if kind == Kind::FanOut {
                    cell.churn
                        .push(peer.churn(&workload.filters, options.slice));
                }
                peer.collect_garbage();
            }
        }
        let sample = &topics[..topics.len().min(4096)];
        let receivers = peers.first_mut().map_or(0.0, |ours| ours.receivers(sample));
        progress.say(&format!("{} {size}: done", kind.name()));
        Self {
            kind,
            size,
            receivers,
            cells,
        }
    }

    /// Our own figures.
    #[must_use]
    pub fn ours(&self) -> &Cell {
        &self.cells[0]
    }

    /// The figures of a contender.
    #[must_use]
    pub fn peer(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.peer == name)
    }
}

impl Cell {
    fn of(peer: &dyn Peer) -> Self {
        Self {
            peer: peer.name(),
            footprint: peer.loaded(),
            ..Self::default()
        }
    }
}

/// The middle value; NaN of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median over the rounds of ours divided by theirs.
#[must_use]
pub fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<_> = ours
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    median(&ratios)
}

/// The shortest slice that a figure can be taken from.
pub const SHORTEST_SLICE: Duration = Duration::from_millis(2);
