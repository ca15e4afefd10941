//! A hierarchical timer wheel: one deadline for each key, ticks of 100 ms, never early.
//!
//! A key is armed at most once. Arming it for a later deadline does nothing: the key fires at the earlier one, and its
//! handler arms it again. So extending a Keep Alive timeout with every packet costs nothing.

use std::time::{Duration, Instant};

/// Length of one tick; a deadline fires at most this long (and one scheduler turn) late.
pub(crate) const TICK: Duration = Duration::from_millis(100);

const LEVELS: usize = 4;
const SLOT_BITS: usize = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Later deadlines are stored at the horizon (19 days), and armed again when they fire.
const HORIZON: u64 = 1 << (SLOT_BITS * LEVELS);
const UNARMED: u32 = u32::MAX;
/// Number of stale entries below which no sweep starts.
const STALE: usize = 1_024;

/// Deadlines of the clients of one shard, by their slot number.
pub(crate) struct Wheel {
    start: Instant,
    /// The last tick whose deadlines have fired.
    tick: u64,
    slots: Vec<Vec<Entry>>,
    /// The tick that each key is armed for; entries with another tick are stale. Ticks have 32 bits, since each client
    /// has some of them: 13 years.
    armed: Vec<u32>,
    /// Entries in all slots, including stale ones.
    entries: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    key: u32,
    due: u32,
}

impl Wheel {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            tick: 0,
            slots: vec![Vec::new(); LEVELS * SLOTS],
            armed: Vec::new(),
            entries: 0,
        }
    }

    /// Arms `key` for `at`; if it is armed for an earlier time, that stays.
    pub(crate) fn arm(&mut self, key: u32, at: Instant) {
        let index = key as usize;
        if index >= self.armed.len() {
            self.armed.resize(index + 1, UNARMED);
        }
        let due = self.tick_at_or_after(at).max(self.tick + 1);
        let due = u32::try_from(due).unwrap_or(UNARMED - 1);
        if self.armed[index] <= due {
            return;
        }
        self.armed[index] = due;
        self.entries += 1;
        self.insert(Entry { key, due });
        if self.entries > 4 * self.armed.len() + STALE {
            self.sweep();
        }
    }

    /// Removes the entries of keys that were cancelled or armed for another time. Otherwise a client that connects and
    /// disconnects would leave one entry each time, for the length of its Keep Alive.
    fn sweep(&mut self) {
        let armed = &self.armed;
        for slot in &mut self.slots {
            slot.retain(|entry| armed[entry.key as usize] == entry.due);
            slot.sort_unstable_by_key(|entry| entry.key);
            slot.dedup_by_key(|entry| entry.key);
            slot.shrink_to_fit();
        }
        self.entries = self.slots.iter().map(Vec::len).sum();
    }

    /// Disarms `key`.
    pub(crate) fn cancel(&mut self, key: u32) {
        if let Some(armed) = self.armed.get_mut(key as usize) {
            *armed = UNARMED;
        }
    }

    /// Appends every key whose deadline is at or before `now` to `fired`, and disarms it.
    pub(crate) fn advance(&mut self, now: Instant, fired: &mut Vec<u32>) {
        let target = ticks(now.saturating_duration_since(self.start));
        while self.tick < target {
            self.tick += 1;
            self.cascade();
            let mut slot = std::mem::take(&mut self.slots[slot_index(0, self.tick)]);
            self.entries -= slot.len();
            for entry in slot.drain(..) {
                if self.armed[entry.key as usize] == entry.due {
                    self.armed[entry.key as usize] = UNARMED;
                    fired.push(entry.key);
                }
            }
            self.slots[slot_index(0, self.tick)] = slot;
        }
    }

    /// When the next tick is due.
    pub(crate) fn next_tick(&self) -> Instant {
        self.start + TICK * u32::try_from(self.tick + 1).unwrap_or(u32::MAX)
    }

    fn tick_at_or_after(&self, at: Instant) -> u64 {
        let after_start = at.saturating_duration_since(self.start);
        ticks(after_start + TICK.saturating_sub(Duration::from_nanos(1)))
    }

    /// Moves the deadlines of every level whose turn has come one level down.
    fn cascade(&mut self) {
        for level in 1..LEVELS {
            let shift = SLOT_BITS * level;
            if !self.tick.is_multiple_of(1 << shift) {
                return;
            }
            let entries = std::mem::take(&mut self.slots[slot_index(level, self.tick)]);
            for entry in entries {
                if self.armed[entry.key as usize] == entry.due {
                    self.insert(entry);
                } else {
                    self.entries -= 1;
                }
            }
        }
    }

    fn insert(&mut self, entry: Entry) {
        let due = u64::from(entry.due);
        let ahead = due.saturating_sub(self.tick);
        let place = if ahead >= HORIZON {
            self.tick + HORIZON - 1
        } else {
            due
        };
        let mut level = 0;
        while level + 1 < LEVELS && ahead >= 1 << (SLOT_BITS * (level + 1)) {
            level += 1;
        }
        self.slots[slot_index(level, place)].push(entry);
    }
}

fn slot_index(level: usize, tick: u64) -> usize {
    let slot = (tick >> (SLOT_BITS * level)) & (SLOTS as u64 - 1);
    level * SLOTS + usize::try_from(slot).unwrap_or(0)
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos() / TICK.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(wheel: &mut Wheel, at: Instant) -> Vec<u32> {
        let mut keys = Vec::new();
        wheel.advance(at, &mut keys);
        keys
    }

    /// Deadlines over every level fire on time: never early, at most one tick late.
    #[test]
    fn no_deadline_fires_early_or_more_than_a_tick_late() {
        let start = Instant::now();
        for ms in [
            1, 99, 100, 101, 6_399, 6_400, 6_401, 12_345, 409_600, 500_001, 30_000_000,
        ] {
            let mut wheel = Wheel::new(start);
            wheel.advance(start + Duration::from_millis(37), &mut Vec::new());
            let due = start + Duration::from_millis(ms);
            wheel.arm(7, due);
            let before = start + Duration::from_millis(ms - 1);

            assert!(fired(&mut wheel, before).is_empty(), "{ms} ms fired early");
            assert_eq!(fired(&mut wheel, due + TICK), [7], "{ms} ms fired late");
        }
    }

    #[test]
    fn a_later_deadline_does_not_replace_an_earlier_one() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.arm(1, start + Duration::from_secs(1));
        wheel.arm(1, start + Duration::from_secs(9));

        assert_eq!(fired(&mut wheel, start + Duration::from_secs(2)), [1]);
        assert!(fired(&mut wheel, start + Duration::from_secs(20)).is_empty());
    }

    #[test]
    fn an_earlier_deadline_replaces_a_later_one() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.arm(1, start + Duration::from_secs(900));
        wheel.arm(1, start + Duration::from_secs(1));

        assert_eq!(fired(&mut wheel, start + Duration::from_secs(2)), [1]);
        assert!(fired(&mut wheel, start + Duration::from_secs(1000)).is_empty());
    }

    #[test]
    fn a_cancelled_key_stays_silent() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.arm(3, start + Duration::from_secs(1));
        wheel.cancel(3);

        assert!(fired(&mut wheel, start + Duration::from_secs(5)).is_empty());
    }

    /// Sessions that outlive their connections are armed late, then early, then late again.
    #[test]
    fn deadlines_that_were_replaced_do_not_pile_up() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        for round in 0..100_000 {
            let now = start + TICK * round;
            wheel.advance(now, &mut Vec::new());
            wheel.arm(3, now + Duration::from_secs(5_400));
            wheel.cancel(3);
            wheel.arm(4, now + Duration::from_secs(604_800));
            wheel.arm(4, now + TICK * 2);
        }

        let entries: usize = wheel.slots.iter().map(Vec::len).sum();
        assert!(entries < 10_000, "{entries} entries for two keys");
    }

    #[test]
    fn a_deadline_beyond_the_horizon_fires_when_it_is_due() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let beyond = u32::try_from(HORIZON).unwrap() + 1_000;
        let due = start + TICK * beyond;
        wheel.arm(3, due);

        assert!(fired(&mut wheel, start + TICK * (beyond - 1)).is_empty());
        assert_eq!(fired(&mut wheel, due + TICK), [3]);
    }

    /// Compares with the simplest model: a list that is searched at every step.
    #[test]
    fn random_arms_and_cancels_agree_with_a_list() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let mut list: Vec<Option<Instant>> = vec![None; 50];
        let (mut now, mut random) = (start, 0x9E37_79B9_u64);
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = (random % 50) as u32;
            let at = now + Duration::from_millis(random >> 8 & 0x3_FFFF);
            match random >> 40 & 7 {
                0 => {
                    wheel.cancel(key);
                    list[key as usize] = None;
                }
                1..=3 => {
                    wheel.arm(key, at);
                    let armed = &mut list[key as usize];
                    *armed = Some(armed.map_or(at, |old| old.min(at)));
                }
                _ => {
                    now += Duration::from_millis(random >> 50 & 0x1FF);
                    for key in fired(&mut wheel, now) {
                        let due = list[key as usize].take().expect("fired but never armed");
                        assert!(due <= now);
                    }
                    let late = list.iter().flatten().filter(|due| **due + TICK <= now);
                    assert_eq!(late.count(), 0);
                }
            }
        }
    }
}
