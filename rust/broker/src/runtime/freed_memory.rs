//! Decides when freed memory is returned to the system. The allocator keeps freed memory for the thread that used it,
//! so each shard could otherwise keep its largest amount for ever (ADR 0038).

use std::time::{Duration, Instant};

/// Memory is returned at once if memory in use has fallen by this part of the budget ...
const PART: usize = 16;
/// ... or by as much as this.
const LARGE_BYTES: usize = 64 << 20;
/// Returning memory blocks allocations. If it takes longer than this, twice the fall is needed from then on ...
const SLOW: Duration = Duration::from_millis(20);
/// ... up to this part of the budget.
const LARGEST_PART: usize = 4;
const FACTOR_MAX: usize = 1 << 16;
/// Smaller amounts are not returned, since they are soon needed again.
const SMALL_BYTES: usize = 1 << 20;
/// If memory in use has stayed lower for this long, smaller amounts are returned, too.
const QUIET: Duration = Duration::from_secs(5);

/// Tracks how far memory in use has fallen.
#[derive(Debug)]
pub(crate) struct FreedMemory {
    /// Maximum in use since memory was last returned.
    most: usize,
    /// Maximum in use since `since`.
    recent_most: usize,
    since: Instant,
    /// Factor for the fall that is needed.
    factor: usize,
}

impl FreedMemory {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            most: 0,
            recent_most: 0,
            since: now,
            factor: 1,
        }
    }

    /// Whether to return freed memory now that `used` bytes of `budget` are in use.
    pub(crate) fn is_due(&mut self, now: Instant, used: usize, budget: usize) -> bool {
        self.most = self.most.max(used);
        self.recent_most = self.recent_most.max(used);
        let is_quiet = now.duration_since(self.since) >= QUIET;
        let largest = (budget / LARGEST_PART).max(SMALL_BYTES);
        let needed = |fall: usize| fall.saturating_mul(self.factor).min(largest);
        let step = needed((budget / PART).clamp(SMALL_BYTES, LARGE_BYTES));
        let small_step = needed(SMALL_BYTES);
        let is_due =
            self.most - used >= step || is_quiet && self.most - self.recent_most >= small_step;
        if is_due {
            self.most = used;
        }
        if is_due || is_quiet {
            (self.recent_most, self.since) = (used, now);
        }
        is_due
    }

    /// Records how long returning memory took.
    pub(crate) fn took(&mut self, time: Duration) {
        self.factor = if time > SLOW {
            (self.factor * 2).min(FACTOR_MAX)
        } else {
            (self.factor / 2).max(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const BUDGET: usize = 160 * MIB;

    #[test]
    fn a_fall_by_a_sixteenth_of_the_budget_is_due_at_once() {
        let now = Instant::now();
        let mut freed = FreedMemory::new(now);

        assert!(!freed.is_due(now, 100 * MIB, BUDGET));
        assert!(!freed.is_due(now, 91 * MIB, BUDGET));
        assert!(freed.is_due(now, 90 * MIB, BUDGET));
        assert!(!freed.is_due(now, 81 * MIB, BUDGET), "it was given back");
        assert!(freed.is_due(now, 80 * MIB, BUDGET));
    }

    #[test]
    fn of_a_large_budget_a_fall_by_64_mib_is_enough() {
        let now = Instant::now();
        let mut freed = FreedMemory::new(now);

        assert!(!freed.is_due(now, 1_000 * MIB, 16_000 * MIB));
        assert!(!freed.is_due(now, 937 * MIB, 16_000 * MIB));
        assert!(freed.is_due(now, 936 * MIB, 16_000 * MIB));
    }

    #[test]
    fn after_a_slow_call_twice_the_fall_is_needed_up_to_a_quarter_of_the_budget() {
        let now = Instant::now();
        let mut freed = FreedMemory::new(now);
        let mut fall_needed = |took| {
            let mut used = 100 * MIB;
            while !freed.is_due(now, used, BUDGET) {
                used -= MIB;
            }
            freed.took(took);
            100 - used / MIB
        };
        let slow = SLOW + Duration::from_millis(1);

        let needed = [slow, slow, slow, SLOW, SLOW, SLOW, SLOW].map(&mut fall_needed);
        assert_eq!(needed, [10, 20, 40, 40, 40, 20, 10]);
    }

    #[test]
    fn after_a_slow_call_more_than_a_mebibyte_has_to_be_free_for_long() {
        let start = Instant::now();
        let mut freed = FreedMemory::new(start);
        freed.took(SLOW * 2);
        freed.took(SLOW * 2);
        let mut is_due = |after, used| freed.is_due(start + after, used, BUDGET);

        assert!(!is_due(Duration::ZERO, 5 * MIB));
        assert!(!is_due(QUIET, 2 * MIB), "there was more until now");
        assert!(!is_due(QUIET * 2, 2 * MIB), "it is 3 MiB");
        assert!(!is_due(QUIET * 3, MIB), "there was more until now");
        assert!(is_due(QUIET * 4, MIB), "it is 4 MiB");
    }

    #[test]
    fn a_smaller_fall_is_due_when_it_lasts() {
        let start = Instant::now();
        let mut freed = FreedMemory::new(start);
        let mut is_due = |after, used| freed.is_due(start + after, used, BUDGET);

        assert!(!is_due(Duration::ZERO, 5 * MIB));
        assert!(!is_due(QUIET, 2 * MIB), "there was more until now");
        assert!(!is_due(QUIET * 3 / 2, 3 * MIB));
        assert!(is_due(QUIET * 2, 2 * MIB));
        assert!(!is_due(QUIET * 3, 2 * MIB), "it was given back");
    }

    #[test]
    fn use_that_comes_and_goes_keeps_its_memory() {
        let start = Instant::now();
        let mut freed = FreedMemory::new(start);

        for step in 0..100_u32 {
            let used = if step % 2 == 0 { 9 * MIB } else { MIB };
            assert!(!freed.is_due(start + QUIET / 3 * step, used, BUDGET));
        }
    }
}
