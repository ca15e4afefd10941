//! A token bucket: how many messages a second are read from one client (abuse D21).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// The allowance of one client. It may spend one second's worth at once.
pub(crate) struct Throttle {
    per_message: Duration,
    /// The time up to which the allowance is spent.
    spent_until: Option<Instant>,
    now: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

const BURST: Duration = Duration::from_secs(1);

impl Throttle {
    /// At most `rate` messages a second; 0 counts as 1.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            per_message: BURST / rate.max(1),
            spent_until: None,
            now: None,
            sleep: None,
        }
    }

    /// Takes one message off the allowance.
    pub(crate) fn spend(&mut self, now: Instant) {
        let spent = self.spent_until.map_or(now, |until| until.max(now));
        self.spent_until = Some(spent + self.per_message);
        self.now = Some(now);
    }

    /// Whether the client has to wait before its next message.
    pub(crate) fn is_spent(&self) -> bool {
        match (self.spent_until, self.now) {
            (Some(until), Some(now)) => until + self.per_message > now + BURST + self.per_message,
            _ => false,
        }
    }

    /// Pending until there is an allowance again.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_spent() {
            return Poll::Ready(());
        }
        let Some(until) = self.spent_until else {
            return Poll::Ready(());
        };
        let ready_at = until.checked_sub(BURST).unwrap_or(until);
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
        let mut throttle = Throttle::new(10);
        let mut passed = 0;
        while !throttle.is_spent() {
            throttle.spend(now);
            passed += 1;
        }

        assert_eq!(passed, 11);
    }

    #[test]
    fn the_allowance_grows_with_time() {
        let now = Instant::now();
        let mut throttle = Throttle::new(10);
        (0..11).for_each(|_| throttle.spend(now));

        assert!(throttle.is_spent());
        throttle.spend(now + Duration::from_secs(2));
        assert!(!throttle.is_spent());
    }
}
