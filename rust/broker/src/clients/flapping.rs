//! Flapping: clients that reconnect too often with one identifier and one user name, and users who take over one
//! identifier from each other too often (abuse C25).

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::config::FlappingLimits;
use crate::runtime::bounded_table::{BoundedTable, Remembered};
use crate::runtime::token_bucket::{Rate, TokenBucket};

const WINDOW: Duration = Duration::from_secs(60);

/// Connection counts of the clients of one shard, by hashes of client identifier and user name: nobody spends the
/// connections of another user. Takeovers between users are counted by client identifier.
#[derive(Default)]
pub(crate) struct Flapping {
    seed: RandomState,
    counts: BoundedTable<u64, Connects>,
    takeovers: BoundedTable<u64, Connects>,
}

/// A client identifier and a user name; `None`: without one.
pub(crate) type ClientOfUser<'a> = (&'a str, Option<&'a str>);

#[derive(Default)]
struct Connects(TokenBucket);

impl Flapping {
    /// Counts a connection of the client; returns whether it is one too many.
    pub(crate) fn is_flapping(
        &mut self,
        client: ClientOfUser<'_>,
        limits: FlappingLimits,
        now: Instant,
    ) -> bool {
        let Some(rate) = rate(limits) else {
            return false;
        };
        let Connects(bucket) = self.counts.entry(self.seed.hash_one(client), now);
        if bucket.take(Some(rate), now) {
            return false;
        }
        // After its ban, the count starts again.
        *bucket = TokenBucket::default();
        true
    }

    /// Counts a takeover of a client identifier from another user; returns whether it is one too many.
    pub(crate) fn is_taken_too_often(
        &mut self,
        client_id: &str,
        limits: FlappingLimits,
        now: Instant,
    ) -> bool {
        let Connects(bucket) = self.takeovers.entry(self.seed.hash_one(client_id), now);
        !bucket.take(rate(limits), now)
    }

    /// Uncounts the last connection of a client that another user takes over: it did not end it itself.
    pub(crate) fn uncount(
        &mut self,
        client: ClientOfUser<'_>,
        limits: FlappingLimits,
        now: Instant,
    ) {
        let counted = self.counts.get_mut(&self.seed.hash_one(client));
        if let (Some(Connects(bucket)), Some(rate)) = (counted, rate(limits)) {
            bucket.give_back(rate, now);
        }
    }
}

fn rate(limits: FlappingLimits) -> Option<Rate> {
    Rate::per(limits.connects_per_minute, WINDOW)
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
    use super::*;

    #[test]
    fn c25_the_sixteenth_connection_within_a_minute_is_one_too_many() {
        let (mut flapping, now) = (Flapping::default(), Instant::now());
        let limits = FlappingLimits::default();
        let eve = ("1", Some("eve"));

        let connects = (0..16).map(|_| flapping.is_flapping(eve, limits, now));

        let connects: Vec<bool> = connects.collect();
        assert_eq!(
            connects.iter().filter(|is_flapping| **is_flapping).count(),
            1
        );
        assert!(connects[15]);
        for other in [("1", Some("ann")), ("1", None), ("2", Some("eve"))] {
            assert!(!flapping.is_flapping(other, limits, now));
        }
    }

    #[test]
    fn a_client_that_connects_every_five_seconds_is_let_in() {
        let (mut flapping, start) = (Flapping::default(), Instant::now());

        for number in 0..1_000 {
            let now = start + Duration::from_secs(5 * number);
            assert!(!flapping.is_flapping(("1", None), FlappingLimits::default(), now));
        }
    }

    #[test]
    fn c25_connections_that_other_users_take_over_do_not_count_and_are_limited_by_identifier() {
        let (mut flapping, now) = (Flapping::default(), Instant::now());
        let (ann, limits) = (("1", Some("ann")), FlappingLimits::default());

        for number in 0..100 {
            assert!(!flapping.is_flapping(ann, limits, now));
            assert_eq!(flapping.is_taken_too_often("1", limits, now), number >= 15);
            flapping.uncount(ann, limits, now);
        }

        assert!(!flapping.is_taken_too_often("2", limits, now));
    }

    #[test]
    fn c25_uncounted_connections_are_no_credit() {
        let (mut flapping, now) = (Flapping::default(), Instant::now());
        let (ann, limits) = (("1", None), FlappingLimits::default());
        assert!(!flapping.is_flapping(ann, limits, now));
        for _ in 0..100 {
            flapping.uncount(ann, limits, now);
        }

        let connects = (0..16).map(|_| flapping.is_flapping(ann, limits, now));

        assert_eq!(connects.filter(|is_flapping| *is_flapping).count(), 1);
    }
}
