//! Failed logins by address and by user name, and how long more of them are refused (abuse C16).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clients::address::AddressKey;
use crate::config::FailedLoginLimits;
use crate::runtime::bounded_table::{BoundedTable, Remembered};
use crate::runtime::token_bucket::{Rate, TokenBucket};

/// The time in which failed logins are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// A pause doubles each time, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3_600);
/// How long an address is known for a user name after a login from there.
const KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Who logs in, as far as failures count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginSource {
    pub(crate) address: AddressKey,
    /// A hash of the user name, if there is one.
    pub(crate) user: Option<u64>,
}

/// Failed logins of all shards.
///
/// A user name that was guessed too often is refused from every address but those from which its user has logged in
/// before: else a guesser would lock the user out. A success forgives nothing: a guesser may have an account of his own.
#[derive(Default)]
pub(crate) struct FailedLogins(Mutex<Failures>);

#[derive(Default)]
struct Failures {
    addresses: BoundedTable<AddressKey, Attempts>,
    users: BoundedTable<u64, Attempts>,
    /// Addresses from which a user has logged in.
    known: BoundedTable<(AddressKey, u64), KnownUntil>,
}

impl FailedLogins {
    /// Whether logins from `source` are refused now.
    pub(crate) fn is_paused(&self, source: LoginSource, now: Instant) -> bool {
        let failures = self.failures();
        if failures
            .addresses
            .get(&source.address)
            .is_some_and(|attempts| attempts.is_paused(now))
        {
            return true;
        }
        source.user.is_some_and(|user| {
            let attempts = failures.users.get(&user);
            let known = failures.known.get(&(source.address, user));
            attempts.is_some_and(|attempts| attempts.is_paused(now))
                && known.is_none_or(|known| known.is_as_new(now))
        })
    }

    /// Counts a failed login; returns for how long more of them are refused if this was one too many.
    pub(crate) fn count(
        &self,
        source: LoginSource,
        limits: FailedLoginLimits,
        now: Instant,
    ) -> Option<Duration> {
        if limits.per_minute == 0 {
            return None;
        }
        let mut failures = self.failures();
        let address = failures.addresses.entry(source.address, now);
        let paused = address.count(limits, now);
        let user = source.user.map(|user| failures.users.entry(user, now));
        paused.max(user.and_then(|attempts| attempts.count(limits, now)))
    }

    /// Notes a login from `source`.
    pub(crate) fn succeed(&self, source: LoginSource, now: Instant) {
        if let Some(user) = source.user {
            let mut failures = self.failures();
            failures.known.entry((source.address, user), now).0 = Some(now + KNOWN_FOR);
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failed logins of one address or user name.
#[derive(Default)]
struct Attempts {
    failed: TokenBucket,
    paused_until: Option<Instant>,
    /// The pause that ends then; the next one takes twice as long, unless all is quiet for as long as it took.
    pause: Duration,
}

impl Attempts {
    fn count(&mut self, limits: FailedLoginLimits, now: Instant) -> Option<Duration> {
        let rate = Rate::per(limits.per_minute, WINDOW);
        self.failed.spend(rate, now);
        if self.is_paused(now) || self.failed.has_token(rate, now) {
            return None;
        }
        self.pause = if self.is_forgiven(now) {
            limits.pause
        } else {
            (self.pause * 2).min(LONGEST_PAUSE.max(limits.pause))
        };
        self.paused_until = Some(now + self.pause);
        // After the pause there are as many attempts as at first.
        self.failed = TokenBucket::default();
        Some(self.pause)
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    fn is_forgiven(&self, now: Instant) -> bool {
        self.paused_until
            .is_none_or(|until| until + self.pause <= now)
    }
}

impl Remembered for Attempts {
    fn is_in_use(&self) -> bool {
        false
    }

    fn is_as_new(&self, now: Instant) -> bool {
        self.is_forgiven(now) && self.failed.is_full(now)
    }
}

#[derive(Default)]
struct KnownUntil(Option<Instant>);

impl Remembered for KnownUntil {
    fn is_in_use(&self) -> bool {
        false
    }

    fn is_as_new(&self, now: Instant) -> bool {
        self.0.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FailedLoginLimits = FailedLoginLimits {
        per_minute: 10,
        pause: Duration::from_secs(300),
    };
    const JOE: u64 = 1;

    fn source(address: &str, user: u64) -> LoginSource {
        LoginSource {
            address: AddressKey::of(address.parse().unwrap()),
            user: Some(user),
        }
    }

    /// Fails until a pause begins; how often, and how long the pause is.
    fn guess(logins: &FailedLogins, source: LoginSource, now: Instant) -> (usize, Duration) {
        for number in 1.. {
            if let Some(pause) = logins.count(source, LIMITS, now) {
                return (number, pause);
            }
        }
        unreachable!()
    }

    #[test]
    fn c16_ten_failures_of_an_address_pause_it_whatever_the_user_names() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        for user in 0..9 {
            assert_eq!(logins.count(source("192.0.2.1", user), LIMITS, now), None);
        }

        let pause = logins.count(source("192.0.2.1", 9), LIMITS, now);

        assert_eq!(pause, Some(LIMITS.pause));
        assert!(logins.is_paused(source("192.0.2.1", 77), now));
        assert!(!logins.is_paused(source("192.0.2.2", 77), now));
        let over = now + LIMITS.pause;
        assert!(!logins.is_paused(source("192.0.2.1", 77), over));
    }

    #[test]
    fn c16_ten_failures_of_a_user_name_pause_it_whatever_the_addresses() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        for host in 1..=9 {
            logins.count(source(&format!("192.0.2.{host}"), JOE), LIMITS, now);
        }
        assert!(!logins.is_paused(source("192.0.2.77", JOE), now));

        logins.count(source("192.0.2.10", JOE), LIMITS, now);

        assert!(logins.is_paused(source("192.0.2.77", JOE), now));
        assert!(!logins.is_paused(source("192.0.2.77", JOE + 1), now));
    }

    #[test]
    fn c16_an_address_that_a_user_has_logged_in_from_is_not_locked_out_by_guesses_of_others() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        logins.succeed(source("192.0.2.1", JOE), now);

        guess(&logins, source("192.0.2.9", JOE), now);

        assert!(!logins.is_paused(source("192.0.2.1", JOE), now));
        assert!(logins.is_paused(source("192.0.2.2", JOE), now));
    }

    #[test]
    fn c16_a_success_with_an_account_of_his_own_gives_a_guesser_nothing() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        let mut failed = 0;
        while !logins.is_paused(source("192.0.2.1", JOE), now) {
            logins.succeed(source("192.0.2.1", 66), now);
            logins.count(source("192.0.2.1", JOE), LIMITS, now);
            failed += 1;
        }

        assert_eq!(failed, 10);
        assert!(logins.is_paused(source("192.0.2.1", 66), now));
    }

    #[test]
    fn pauses_double_up_to_a_day_and_a_quiet_time_as_long_forgives() {
        let logins = FailedLogins::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..11 {
            let (failed, pause) = guess(&logins, source("192.0.2.1", JOE), now);
            assert_eq!(failed, 10);
            pauses.push(pause.as_secs());
            now += pause;
        }

        assert_eq!(
            pauses,
            [
                300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 86_400, 86_400
            ]
        );
        now += LONGEST_PAUSE;
        let (_, pause) = guess(&logins, source("192.0.2.1", JOE), now);
        assert_eq!(pause, LIMITS.pause);
    }

    #[test]
    fn failures_that_are_seldom_pause_nothing() {
        let logins = FailedLogins::default();
        let start = Instant::now();

        for number in 0..1_000 {
            let now = start + Duration::from_secs(7 * number);
            assert_eq!(logins.count(source("192.0.2.1", JOE), LIMITS, now), None);
        }
    }
}
