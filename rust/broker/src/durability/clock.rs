//! Kept time: absolute times in the store that do not depend on steps of the system's clock (ADR 0022).
//!
//! While the broker runs, kept time follows the monotonic clock. While it is down, only the system's clock tells the
//! length of the pause: a pause counts up to a limit, and a step backwards counts as zero.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mqttcore_store::record::Record;
use mqttcore_store::{Batch, Store, StoreError};

/// Under which key the store has both clocks.
const NOTE: &str = "clock";
/// A pause up to this length always counts in full.
const BELIEVED: Duration = Duration::from_secs(3_600);
/// A step backwards up to this is not worth a warning: clocks are set by seconds.
const SLACK_MS: u64 = 60_000;

/// Kept time in this run of the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct KeptClock {
    began: Instant,
    /// Kept time at `began`, in unix milliseconds.
    began_ms: u64,
    /// The longest pause that was counted, in milliseconds.
    longest_pause_ms: u64,
}

/// The clocks as the last broker noted them, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct ClockRecord {
    /// Kept time.
    kept: u64,
    /// The system's clock at that time.
    system: u64,
    longest_pause: u64,
}

impl KeptClock {
    /// Kept time that begins now, by the system's clock.
    pub(crate) fn begin(system: SystemTime, now: Instant) -> Self {
        Self {
            began: now,
            began_ms: unix_ms(system),
            longest_pause_ms: 0,
        }
    }

    /// Kept time of a broker over `store`, and a warning if a pause is not counted in full.
    ///
    /// With `accepts`, the pause that the system's clock shows is counted in full.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(crate) fn resume(
        store: &dyn Store,
        system: SystemTime,
        now: Instant,
        accepts: bool,
    ) -> Result<(Self, Option<String>), StoreError> {
        let mut noted = None;
        store.notes(&mut |key, value| {
            if key == NOTE {
                noted = ClockRecord::decode(value);
            }
        })?;
        let begun = Self::begin(system, now);
        Ok(match noted {
            Some(noted) if !accepts => begun.behind(noted),
            // The store is new, or an earlier version without this note wrote it.
            _ => (begun, None),
        })
    }

    /// This clock as the continuation of the last broker's.
    fn behind(self, noted: ClockRecord) -> (Self, Option<String>) {
        let bound = millis(BELIEVED).max(noted.longest_pause.saturating_mul(2));
        let pause = self.began_ms.checked_sub(noted.system);
        let counted = pause.unwrap_or(0).min(bound);
        let is_believed = pause == Some(counted);
        let clock = Self {
            began_ms: noted.kept.saturating_add(counted),
            longest_pause_ms: noted
                .longest_pause
                .max(if is_believed { counted } else { 0 }),
            ..self
        };
        let back_ms = noted.system.saturating_sub(self.began_ms);
        let warning = match pause {
            Some(pause) if !is_believed => Some(format!(
                "the system clock advanced by {} s while the broker was down, which is implausible: {} s are counted for expiry and for the age of streams; if the clock is right, start once with --accept-clock",
                pause / 1_000,
                counted / 1_000
            )),
            None if back_ms > SLACK_MS => Some(format!(
                "the system clock went back by {} s while the broker was down: no time is counted for expiry and for the age of streams; if the clock is right, start once with --accept-clock",
                back_ms / 1_000
            )),
            _ => None,
        };
        (clock, warning)
    }

    /// A moment in unix milliseconds.
    pub(crate) fn unix_ms(self, at: Instant) -> u64 {
        let ahead = millis(at.saturating_duration_since(self.began));
        let behind = millis(self.began.saturating_duration_since(at));
        self.began_ms.saturating_add(ahead).saturating_sub(behind)
    }

    /// A moment in unix milliseconds on the monotonic clock; one that this clock does not reach
    /// back to is the beginning of this run.
    pub(crate) fn instant(self, at_ms: u64) -> Instant {
        let ahead = Duration::from_millis(at_ms.saturating_sub(self.began_ms));
        let behind = Duration::from_millis(self.began_ms.saturating_sub(at_ms));
        let at = self.began.checked_sub(behind).unwrap_or(self.began);
        at.checked_add(ahead).unwrap_or(at)
    }

    /// Adds a note of both clocks to `batch`, for the next run.
    pub(crate) fn write_note(self, system: SystemTime, now: Instant, batch: &mut Batch) {
        let noted = ClockRecord {
            kept: self.unix_ms(now),
            system: unix_ms(system),
            longest_pause: self.longest_pause_ms,
        };
        let (key, value) = (NOTE, &noted.encode()[..]);
        batch.push(&Record::Note { key, value });
    }
}

/// The system's time, in unix microseconds.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

impl ClockRecord {
    fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.kept.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.system.to_le_bytes());
        bytes[16..].copy_from_slice(&self.longest_pause.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            kept: number(0)?,
            system: number(8)?,
            longest_pause: number(16)?,
        })
    }
}

/// The system's clock in Unix milliseconds; 0 before 1970.
fn unix_ms(system: SystemTime) -> u64 {
    system.duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const YEARS_MS: u64 = 20 * 365 * 24 * HOUR_MS;

    fn clock(system_ms: u64) -> KeptClock {
        KeptClock::begin(
            UNIX_EPOCH + Duration::from_millis(system_ms),
            Instant::now(),
        )
    }

    fn noted(longest_pause: u64) -> ClockRecord {
        ClockRecord {
            kept: 1_000_000,
            system: YEARS_MS,
            longest_pause,
        }
    }

    /// Columns: time of the system clock, longest pause before, time that is counted, warning.
    #[test]
    fn a_pause_is_believed_up_to_a_bound() {
        let table = [
            ("none", YEARS_MS, 0, 0, false),
            ("a minute", YEARS_MS + 60_000, 0, 60_000, false),
            ("an hour", YEARS_MS + HOUR_MS, 0, HOUR_MS, false),
            ("two hours", YEARS_MS + 2 * HOUR_MS, 0, HOUR_MS, true),
            (
                "as before",
                YEARS_MS + 9 * HOUR_MS,
                5 * HOUR_MS,
                9 * HOUR_MS,
                false,
            ),
            (
                "twice",
                YEARS_MS + 11 * HOUR_MS,
                5 * HOUR_MS,
                10 * HOUR_MS,
                true,
            ),
            ("twenty years", 2 * YEARS_MS, 0, HOUR_MS, true),
            ("back a little", YEARS_MS - 2_000, 0, 0, false),
            ("back", 0, 0, 0, true),
        ];
        for (name, system_ms, longest_ms, counted, warns) in table {
            let (clock, warning) = clock(system_ms).behind(noted(longest_ms));

            assert_eq!(clock.began_ms, 1_000_000 + counted, "{name}");
            assert_eq!(warning.is_some(), warns, "{name}");
            let longest = if warns {
                longest_ms
            } else {
                longest_ms.max(counted)
            };
            assert_eq!(clock.longest_pause_ms, longest, "{name}");
        }
    }

    #[test]
    fn kept_time_goes_on_with_the_monotonic_clock() {
        let clock = clock(HOUR_MS);
        let later = clock.began + Duration::from_secs(5);

        assert_eq!(clock.unix_ms(later), HOUR_MS + 5_000);
        assert_eq!(clock.instant(HOUR_MS + 5_000), later);
        assert_eq!(clock.unix_ms(clock.instant(HOUR_MS - 7)), HOUR_MS - 7);
    }

    #[test]
    fn what_is_noted_is_read_again() {
        assert_eq!(ClockRecord::decode(&noted(7).encode()), Some(noted(7)));
        assert_eq!(ClockRecord::decode(b"short"), None);
    }
}
