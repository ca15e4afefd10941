//! The last time that each shard ran its timers, to detect stuck shards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time of each shard's last turn. Only the shard writes its entry; all threads read it.
#[derive(Debug)]
pub(crate) struct LastTurns {
    start: Instant,
    /// Milliseconds since `start`.
    turns: Vec<AtomicU64>,
}

impl LastTurns {
    /// Each shard starts with a turn at `start`.
    pub(crate) fn new(start: Instant, shards: usize) -> Self {
        let turns = (0..shards).map(|_| AtomicU64::new(0)).collect();
        Self { start, turns }
    }

    /// Records a turn of `shard`.
    pub(crate) fn record(&self, shard: usize, now: Instant) {
        // ORDERING: one writer; readers need only a recent value.
        self.turns[shard].store(self.millis(now), Ordering::Relaxed);
    }

    /// Time since the last turn of each shard.
    pub(crate) fn ages(&self, now: Instant) -> Vec<Duration> {
        let now = self.millis(now);
        // ORDERING: as in `record`.
        let turned = self.turns.iter().map(|turn| turn.load(Ordering::Relaxed));
        turned
            .map(|turn| Duration::from_millis(now.saturating_sub(turn)))
            .collect()
    }

    fn millis(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_as_old_as_its_last_turn() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let turns = LastTurns::new(start, 2);

        turns.record(1, after(7));

        assert_eq!(turns.ages(after(9)), [9, 2].map(Duration::from_secs));
        assert_eq!(turns.ages(after(6)), [6, 0].map(Duration::from_secs));
    }
}
