//! Figures of a running store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of the log since it was opened, and its positions.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogStats {
    /// Groups written.
    pub groups: u64,
    /// Batches written.
    pub batches: u64,
    /// Batches that were refused because the disk was full.
    pub refused_batches: u64,
    /// Records written.
    pub records: u64,
    /// Bytes written, headers of segments excluded.
    pub bytes: u64,
    /// Syncs and how long they took.
    pub syncs: Durations,
    /// LSN of the last record.
    pub last_lsn: u64,
    /// The last synced LSN.
    pub durable_lsn: u64,
    /// Bytes in the log queue.
    pub waiting_bytes: u64,
    /// Bytes of memory that its groups take: queued, being written or applied, or empty.
    pub memory_bytes: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes of the segment files.
    pub log_bytes: u64,
}

/// Number of checkpoints, and time of the last one.
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

    /// Time since the last checkpoint, or since the start.
    pub(crate) fn age(&self) -> Duration {
        // ORDERING: as in `add`.
        let last_ms = self.last_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.elapsed_ms().saturating_sub(last_ms))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Histogram of durations in microseconds, with four buckets for each power of two.
#[derive(Clone, Debug)]
pub struct Durations {
    counts: [u64; STEPS],
    count: u64,
    sum: Duration,
}

const STEPS: usize = 128;

impl Default for Durations {
    fn default() -> Self {
        Self {
            counts: [0; STEPS],
            count: 0,
            sum: Duration::ZERO,
        }
    }
}

impl Durations {
    pub(crate) fn add(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[step(micros)] += 1;
        self.count += 1;
        self.sum += duration;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// For each power of two, the upper limit in microseconds and the durations up to it that are above the limit before.
    pub fn by_power(&self) -> impl Iterator<Item = (u64, u64)> {
        let powers = self.counts.chunks_exact(4).enumerate();
        powers.map(|(power, counts)| (8 << power, counts.iter().sum()))
    }

    /// The quantile `share` (0 to 1), up to a quarter too high; zero without durations.
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

/// The bucket of a duration.
fn step(micros: u64) -> usize {
    let exponent = u64::from(micros.max(4).ilog2());
    let quarter = (micros.max(4) >> (exponent - 2)) & 3;
    usize::try_from((exponent - 2) * 4 + quarter).map_or(STEPS - 1, |step| step.min(STEPS - 1))
}

fn limit(step: usize) -> u64 {
    let (power, quarter) = (step / 4, step as u64 % 4);
    ((5 + quarter) << power) - 1
}

/// Figures of a stream, over all partitions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Identifier of the store and a counter, as readers get it.
    pub epoch: String,
    /// Number of partitions.
    pub partitions: u16,
    /// Rows that can be read.
    pub rows: u64,
    /// Rows that are in no sealed file yet.
    pub unsealed_rows: u64,
    /// Sealed files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Files that are in object storage only; their rows are not verified.
    pub remote_files: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_below_the_next_power_of_two() {
        let mut durations = Durations::default();
        for micros in [0, 7, 8, 1_000, 1_023, 1_024] {
            durations.add(Duration::from_micros(micros));
        }
        durations.add(Duration::from_secs(1 << 40));

        let counts: Vec<_> = durations
            .by_power()
            .filter(|(_, count)| *count > 0)
            .collect();
        let last = (8 << (STEPS / 4 - 1), 1);
        assert_eq!(counts, [(8, 2), (16, 1), (1_024, 2), (2_048, 1), last]);
        assert_eq!(
            durations.sum(),
            Duration::from_micros(3_062) + Duration::from_secs(1 << 40)
        );
    }
}
