//! Figures about a running store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of the log since it was opened, and where it stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogStats {
    /// Groups written.
    pub groups: u64,
    /// Batches written.
    pub batches: u64,
    /// Batches refused for lack of room.
    pub refused_batches: u64,
    /// Records written.
    pub records: u64,
    /// Bytes written, headers of segments excluded.
    pub bytes: u64,
    /// Syncs and how long they took.
    pub syncs: Durations,
    /// The last record's number.
    pub last_lsn: u64,
    /// Everything up to here is safe.
    pub durable_lsn: u64,
    /// Bytes that wait in the line.
    pub waiting_bytes: u64,
    /// Segment files.
    pub segments: u64,
    /// Their size.
    pub log_bytes: u64,
}

/// How many checkpoints were written, and when the last one was.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    began: Instant,
    count: AtomicU64,
    last_ms: AtomicU64,
}

impl Checkpoints {
    /// None so far.
    pub(crate) fn begin() -> Self {
        Self {
            began: Instant::now(),
            count: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        }
    }

    /// One more.
    pub(crate) fn add(&self) {
        // ORDERING: two figures that order nothing.
        self.last_ms.store(self.elapsed_ms(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        // ORDERING: as in `add`.
        self.count.load(Ordering::Relaxed)
    }

    /// Since the last one, or since the beginning.
    pub(crate) fn age(&self) -> Duration {
        // ORDERING: as in `add`.
        let last_ms = self.last_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.elapsed_ms().saturating_sub(last_ms))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// How long something took, in steps of a quarter of a power of two of microseconds.
#[derive(Clone, Debug)]
pub struct Durations {
    counts: [u64; STEPS],
    count: u64,
}

const STEPS: usize = 128;

impl Default for Durations {
    fn default() -> Self {
        Self {
            counts: [0; STEPS],
            count: 0,
        }
    }
}

impl Durations {
    pub(crate) fn add(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[step(micros)] += 1;
        self.count += 1;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The duration that `share` (0 to 1) of all did not exceed, up to a quarter too high; zero
    /// if there were none.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank, rounded"
    )]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Duration::from_micros(limit(step));
            }
        }
        Duration::ZERO
    }
}

/// Four steps for each power of two.
fn step(micros: u64) -> usize {
    let exponent = u64::from(micros.max(4).ilog2());
    let quarter = (micros.max(4) >> (exponent - 2)) & 3;
    usize::try_from((exponent - 2) * 4 + quarter).map_or(STEPS - 1, |step| step.min(STEPS - 1))
}

fn limit(step: usize) -> u64 {
    let (power, quarter) = (step / 4, step as u64 % 4);
    ((5 + quarter) << power) - 1
}

/// What a stream holds, over all partitions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Identifier of the store and a counter, as readers carry it.
    pub epoch: String,
    /// How many partitions it has.
    pub partitions: u16,
    /// Rows that may be read.
    pub rows: u64,
    /// Those of them that are in the log alone.
    pub unsealed_rows: u64,
    /// Files with the others.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}
