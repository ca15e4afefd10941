//! Token buckets, for rate limits.

use std::time::{Duration, Instant};

/// Tokens a second, and how many seconds' worth a bucket holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    per_token: Duration,
    burst: Duration,
}

impl Rate {
    /// Returns `None`, which means no limit, for 0 tokens a second.
    pub(crate) fn new(per_second: u32, burst: Duration) -> Option<Self> {
        let per_token = Duration::from_secs(1).checked_div(per_second)?;
        Some(Self { per_token, burst })
    }

    /// A rate of `tokens` in `time`, which may be spent at once. Returns `None`, which means no limit, for 0 tokens.
    pub(crate) fn per(tokens: u32, time: Duration) -> Option<Self> {
        let per_token = time.checked_div(tokens)?;
        let burst = time;
        Some(Self { per_token, burst })
    }
}

/// A token bucket; a new one is full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenBucket {
    /// The time up to which tokens are spent.
    spent_until: Option<Instant>,
}

impl TokenBucket {
    /// Takes a token; returns false if none is available. Without a limit it returns true.
    pub(crate) fn take(&mut self, rate: Option<Rate>, now: Instant) -> bool {
        let has_token = self.has_token(rate, now);
        if has_token {
            self.spend(rate, now);
        }
        has_token
    }

    /// Takes a token, even if none is available.
    pub(crate) fn spend(&mut self, rate: Option<Rate>, now: Instant) {
        if let Some(rate) = rate {
            self.spend_many(rate, 1, now);
        }
    }

    /// Takes `count` tokens, even if fewer are available.
    fn spend_many(&mut self, rate: Rate, count: u32, now: Instant) {
        let spent = self.spent_until.map_or(now, |until| until.max(now));
        self.spent_until = Some(spent + rate.per_token * count);
    }

    /// Gives back a token that was taken.
    pub(crate) fn give_back(&mut self, rate: Rate, now: Instant) {
        let spent = self
            .spent_until
            .and_then(|until| until.checked_sub(rate.per_token));
        self.spent_until = spent.filter(|until| *until > now);
    }

    /// When a token is available; `None` if none was spent yet.
    pub(crate) fn ready_at(&self, rate: Rate) -> Option<Instant> {
        (self.spent_until? + rate.per_token).checked_sub(rate.burst)
    }

    /// Whether a token is available, or there is no limit.
    pub(crate) fn has_token(&self, rate: Option<Rate>, now: Instant) -> bool {
        let ready_at = rate.and_then(|rate| self.ready_at(rate));
        ready_at.is_none_or(|ready_at| ready_at <= now)
    }

    /// Whether all spent tokens have come back.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.spent_until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_its_burst_may_be_spent_at_once_and_no_more() {
        let now = Instant::now();
        let rate = Rate::new(20, Duration::from_secs(5));
        let mut bucket = TokenBucket::default();
        let mut spent = 0;
        while bucket.take(rate, now) {
            spent += 1;
        }

        assert_eq!(spent, 100);
        assert!(!bucket.is_full(now + Duration::from_millis(4_999)));
        assert!(bucket.is_full(now + Duration::from_secs(5)));
        assert!(bucket.has_token(rate, now + Duration::from_millis(50)));
    }

    #[test]
    fn no_tokens_a_second_are_no_limit() {
        let now = Instant::now();
        let mut bucket = TokenBucket::default();
        for rate in [
            Rate::new(0, Duration::from_secs(5)),
            Rate::per(0, Duration::from_secs(60)),
        ] {
            assert!((0..1_000).all(|_| bucket.take(rate, now)));
        }
        assert!(bucket.is_full(now));
    }
}
