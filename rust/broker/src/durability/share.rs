//! The limit on the messages that are kept for all sessions together.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::durability::events::StoreEvents;
use crate::runtime::log::LogCategory;

/// Percent of the limit from which all queues together are nearly full, and below which they are not any more ...
const HIGH: (u64, u64) = (80, 70);
/// ... and full.
const FULL: (u64, u64) = (100, 95);

/// How much of the disk messages of all kept sessions may take, and take.
pub(crate) struct QueueShare {
    /// The limit where the configuration has none.
    default_bytes: u64,
    limit_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    state: AtomicU8,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ShareState {
    HasRoom,
    High,
    Full,
}

impl QueueShare {
    /// The limit of the configuration; if it is 0, half of the free disk plus the bytes that are stored already.
    pub(crate) fn new(limit_bytes: u64, kept_bytes: u64, free_bytes: u64) -> Self {
        let share = Self {
            default_bytes: kept_bytes.saturating_add(free_bytes / 2),
            limit_bytes: AtomicU64::default(),
            kept_bytes: kept_bytes.into(),
            state: (ShareState::HasRoom as u8).into(),
        };
        share.set_limit(limit_bytes);
        share
    }

    fn set_limit(&self, bytes: u64) {
        let bytes = if bytes == 0 {
            self.default_bytes
        } else {
            bytes
        };
        // ORDERING: figures, here and below; nothing else is read because of them.
        self.limit_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Acquire)
    }

    /// How much of the limit is taken.
    pub(crate) fn percent(&self) -> u64 {
        self.percent_of(self.kept_bytes())
    }

    fn percent_of(&self, kept_bytes: u64) -> u64 {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        kept_bytes.saturating_mul(100) / limit
    }

    /// Updates the state for the bytes that are stored now; returns the old and the new state.
    fn go_on(&self, kept_bytes: u64) -> (ShareState, ShareState) {
        let before = match self.state.load(Ordering::Relaxed) {
            0 => ShareState::HasRoom,
            1 => ShareState::High,
            _ => ShareState::Full,
        };
        let now = before.next(self.percent_of(kept_bytes));
        self.state.store(now as u8, Ordering::Relaxed);
        (before, now)
    }
}

impl ShareState {
    fn next(self, percent: u64) -> Self {
        let is = |state: Self, (from, until): (u64, u64)| {
            percent >= if self >= state { until } else { from }
        };
        if is(Self::Full, FULL) {
            Self::Full
        } else if is(Self::High, HIGH) {
            Self::High
        } else {
            Self::HasRoom
        }
    }
}

/// Messages of `kept_bytes` are kept now: sessions and publishers see whether that is the limit.
pub(crate) fn watch(events: &dyn StoreEvents, share: &QueueShare, kept_bytes: u64) {
    let (before, now) = share.go_on(kept_bytes);
    events.set_all_full(now == ShareState::Full);
    // ORDERING: whoever reads a figure finds the queues as full as it says.
    share.kept_bytes.store(kept_bytes, Ordering::Release);
    if now > before {
        let percent = share.percent_of(kept_bytes);
        let limit = share.limit_bytes.load(Ordering::Relaxed);
        events.warn(
            LogCategory::Queue,
            format!(
                "queued messages of all sessions use {percent} % of limits.queues_disk_bytes: {kept_bytes} of {limit} bytes; at the limit messages are dropped, or refused if queue_policy says so"
            ),
        );
    }
}

/// The configuration was loaded again.
pub(crate) fn reload(events: &dyn StoreEvents, share: &QueueShare, limit_bytes: u64) {
    share.set_limit(limit_bytes);
    watch(events, share, share.kept_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_half_of_what_is_free_beside_what_is_kept() {
        let share = |limit, kept, free| QueueShare::new(limit, kept, free).percent();

        assert_eq!(share(0, 0, 1_000), 0);
        assert_eq!(share(0, 500, 1_000), 50);
        assert_eq!(share(0, 500, 0), 100);
        assert_eq!(share(1_000, 500, 0), 50);
        assert_eq!(share(0, 0, 0), 0);
    }

    #[test]
    fn what_is_full_stays_so_until_there_is_some_room() {
        let share = QueueShare::new(1_000, 0, 0);
        let states = [790, 800, 700, 699, 1_000, 950, 949, 699];

        assert_eq!(
            states.map(|kept| share.go_on(kept).1),
            [
                ShareState::HasRoom,
                ShareState::High,
                ShareState::High,
                ShareState::HasRoom,
                ShareState::Full,
                ShareState::Full,
                ShareState::High,
                ShareState::HasRoom,
            ]
        );
    }
}
