//! A token bucket: how many messages a second are read from one client (abuse D21).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::runtime::token_bucket::{Rate, TokenBucket};

/// The allowance of one client. It may spend one second's worth at once.
pub(crate) struct Throttle {
    rate: Rate,
    bucket: TokenBucket,
    now: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

const BURST: Duration = Duration::from_secs(1);

impl Throttle {
    /// At most `rate` messages a second; 0 counts as 1.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            rate: Rate::new(rate, BURST),
            bucket: TokenBucket::default(),
            now: None,
            sleep: None,
        }
    }

    /// Takes one message off the allowance.
    pub(crate) fn spend(&mut self, now: Instant) {
        self.bucket.spend(self.rate, now);
        self.now = Some(now);
    }

    /// Whether the client has to wait before its next message.
    pub(crate) fn is_spent(&self) -> bool {
        self.now
            .is_some_and(|now| !self.bucket.has_token(self.rate, now))
    }

    /// When the allowance has one message; `None` if nothing was spent yet.
    fn ready_at(&self) -> Option<Instant> {
        self.bucket.ready_at(self.rate)
    }

    /// Pending until there is an allowance again.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_spent() {
            return Poll::Ready(());
        }
        let Some(ready_at) = self.ready_at() else {
            return Poll::Ready(());
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ready_at.into())));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        self.now = Some(ready_at);
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seconds_worth_may_come_at_once_and_no_more() {
        let now = Instant::now();
        for rate in [1, 3, 10, 1_000] {
            let mut throttle = Throttle::new(rate);
            let mut passed = 0;
            while !throttle.is_spent() {
                throttle.spend(now);
                passed += 1;
            }

            assert_eq!(passed, rate);
        }
    }

    #[test]
    fn a_spent_allowance_has_one_message_when_its_part_of_a_second_is_over() {
        let now = Instant::now();
        let mut throttle = Throttle::new(10);
        (0..10).for_each(|_| throttle.spend(now));

        assert_eq!(throttle.ready_at(), Some(now + Duration::from_millis(100)));
    }

    #[test]
    fn the_allowance_grows_with_time() {
        let now = Instant::now();
        let mut throttle = Throttle::new(10);
        (0..10).for_each(|_| throttle.spend(now));

        assert!(throttle.is_spent());
        throttle.spend(now + Duration::from_secs(2));
        assert!(!throttle.is_spent());
    }
}
