//! Flapping: clients that reconnect too often with one identifier and one user name (abuse C25).

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::config::FlappingLimits;
use crate::config::hooks::Login;
use crate::runtime::bounded_table::{BoundedTable, Remembered};
use crate::runtime::token_bucket::{Rate, TokenBucket};

const WINDOW: Duration = Duration::from_secs(60);

/// Connection counts of the clients of one shard, by hashes of client identifier and user name: nobody spends the
/// connections of another user.
#[derive(Default)]
pub(crate) struct Flapping {
    seed: RandomState,
    counts: BoundedTable<u64, Connects>,
}

#[derive(Default)]
struct Connects(TokenBucket);

impl Flapping {
    /// Counts a connection of the client; returns whether it is one too many.
    pub(crate) fn is_flapping(
        &mut self,
        login: &Login,
        limits: FlappingLimits,
        now: Instant,
    ) -> bool {
        let Some(rate) = Rate::per(limits.connects_per_minute, WINDOW) else {
            return false;
        };
        let client = self.seed.hash_one((&login.client_id, &login.username));
        let Connects(bucket) = self.counts.entry(client, now);
        if bucket.take(Some(rate), now) {
            return false;
        }
        // After its ban, the count starts again.
        *bucket = TokenBucket::default();
        true
    }
}

impl Remembered for Connects {
    fn is_in_use(&self) -> bool {
        false
    }

    fn is_as_new(&self, now: Instant) -> bool {
        self.0.is_full(now)
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_codec::ProtocolVersion;

    use super::*;

    fn login(id: &str, username: Option<&str>) -> Login {
        Login::restored(id.into(), ProtocolVersion::V5, username.map(Into::into), 0)
    }

    #[test]
    fn c25_the_sixteenth_connection_within_a_minute_is_one_too_many() {
        let (mut flapping, now) = (Flapping::default(), Instant::now());
        let limits = FlappingLimits::default();
        let eve = login("1", Some("eve"));

        let connects = (0..16).map(|_| flapping.is_flapping(&eve, limits, now));

        let connects: Vec<bool> = connects.collect();
        assert_eq!(
            connects.iter().filter(|is_flapping| **is_flapping).count(),
            1
        );
        assert!(connects[15]);
        for other in [("1", Some("ann")), ("1", None), ("2", Some("eve"))] {
            assert!(!flapping.is_flapping(&login(other.0, other.1), limits, now));
        }
    }

    #[test]
    fn a_client_that_connects_every_five_seconds_is_let_in() {
        let (mut flapping, start) = (Flapping::default(), Instant::now());
        let slow = login("1", None);

        for number in 0..1_000 {
            let now = start + Duration::from_secs(5 * number);
            assert!(!flapping.is_flapping(&slow, FlappingLimits::default(), now));
        }
    }
}
