//! Failed logins by address and by user name: counts them and pauses logins after too many (abuse C16).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clients::known_logins::{KnownLogins, Pair};
use crate::config::FailedLoginLimits;
use crate::runtime::bounded_table::{BoundedTable, Remembered};
use crate::runtime::token_bucket::{Rate, TokenBucket};
use crate::transport::address::AddressKey;

/// The time in which failed logins are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum pause; each pause is twice as long as the one before.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3_600);
/// The address and user name of a login.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginSource {
    /// `None`: a Unix socket.
    pub(crate) address: Option<AddressKey>,
    /// The address is exempt from limits: many clients may share it.
    pub(crate) is_exempt: bool,
    /// A hash of the user name, if there is one.
    pub(crate) user: Option<u64>,
}

impl LoginSource {
    fn limited_address(self) -> Option<AddressKey> {
        self.address.filter(|_| !self.is_exempt)
    }

    fn pair(self) -> Option<Pair> {
        self.user.map(|user| (self.address, user))
    }
}

/// Which logins are paused.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Paused {
    /// Logins from the address.
    Address,
    /// Logins with the user name.
    User,
    /// Logins from the address with the user name.
    Pair,
}

/// A pause that has begun.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Pause {
    pub(crate) time: Duration,
    pub(crate) of: Paused,
}

/// Failed logins of all shards.
///
/// After too many failures, a user name is refused from every address, except from addresses where its user has logged
/// in before: otherwise an attacker could lock the user out. Such a pair of address and user name has a count of its
/// own, so that one device with an old password does not lock out other devices at its address. A successful login does
/// not reset the counts: an attacker may have an account, too.
#[derive(Default)]
pub(crate) struct FailedLogins(Mutex<Failures>);

#[derive(Default)]
struct Failures {
    addresses: BoundedTable<AddressKey, Attempts>,
    users: BoundedTable<u64, Attempts>,
    /// Addresses from which each user has logged in.
    known: KnownLogins,
}

impl FailedLogins {
    /// Whether logins from `source` are paused now.
    pub(crate) fn is_paused(&self, source: LoginSource, now: Instant) -> bool {
        let failures = self.failures();
        let known = source.pair().and_then(|pair| failures.known.get(pair, now));
        if let Some(attempts) = known {
            return attempts.is_paused(now);
        }
        let address = source.limited_address();
        let attempts = [
            address.and_then(|address| failures.addresses.get(&address)),
            source.user.and_then(|user| failures.users.get(&user)),
        ];
        let mut attempts = attempts.into_iter().flatten();
        attempts.any(|attempts| attempts.is_paused(now))
    }

    /// Counts a failed login. If this was one too many, returns the pause.
    pub(crate) fn count(
        &self,
        source: LoginSource,
        limits: FailedLoginLimits,
        now: Instant,
    ) -> Option<Pause> {
        if limits.per_minute == 0 {
            return None;
        }
        let count = |attempts: &mut Attempts, of| {
            let time = attempts.count(limits, now)?;
            Some(Pause { time, of })
        };
        let mut failures = self.failures();
        let known = source
            .pair()
            .and_then(|pair| failures.known.get_mut(pair, now));
        if let Some(attempts) = known {
            return count(attempts, Paused::Pair);
        }
        let address = source.limited_address().and_then(|address| {
            let attempts = failures.addresses.entry(address, now);
            count(attempts, Paused::Address)
        });
        let user = source.user.and_then(|user| {
            let attempts = failures.users.entry(user, now);
            count(attempts, Paused::User)
        });
        address.max(user)
    }

    /// Records that a client from `source` has logged in or disconnected.
    pub(crate) fn succeed(&self, source: LoginSource, now: Instant) {
        if let Some(pair) = source.pair() {
            self.failures().known.remember(pair, now);
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failed logins of one address, user name or pair of both.
#[derive(Default)]
pub(super) struct Attempts {
    failed: TokenBucket,
    paused_until: Option<Instant>,
    /// The pause that ends then. The next one is twice as long, unless the source is quiet for as long as this one
    /// took.
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
        // After the pause all attempts are allowed again.
        self.failed = TokenBucket::default();
        Some(self.pause)
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
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
            address: Some(AddressKey::of(address.parse().unwrap())),
            is_exempt: false,
            user: Some(user),
        }
    }

    fn exempt(address: &str, user: u64) -> LoginSource {
        LoginSource {
            is_exempt: true,
            ..source(address, user)
        }
    }

    /// Fails until a pause begins; returns the number of attempts and the pause.
    fn guess(logins: &FailedLogins, source: LoginSource, now: Instant) -> (usize, Duration) {
        for number in 1.. {
            if let Some(pause) = logins.count(source, LIMITS, now) {
                return (number, pause.time);
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

        let (time, of) = (LIMITS.pause, Paused::Address);
        assert_eq!(pause, Some(Pause { time, of }));
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
    }

    #[test]
    fn c16_a_device_with_an_old_password_does_not_lock_out_those_that_share_its_address() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        let (old, other) = (source("192.0.2.1", JOE), source("192.0.2.1", JOE + 1));
        logins.succeed(old, now);

        let (failed, _) = guess(&logins, old, now);

        assert_eq!(failed, 10);
        assert!(
            logins.is_paused(old, now),
            "ten guesses, also at a known address"
        );
        assert!(!logins.is_paused(other, now));
        assert!(!logins.is_paused(source("192.0.2.2", JOE), now));
    }

    #[test]
    fn c16_guesses_of_strangers_do_not_lock_out_a_known_user_at_their_address() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        logins.succeed(source("192.0.2.1", JOE), now);

        guess(&logins, source("192.0.2.1", 66), now);

        assert!(logins.is_paused(source("192.0.2.1", 77), now));
        assert!(!logins.is_paused(source("192.0.2.1", JOE), now));
    }

    #[test]
    fn c16_one_account_at_many_addresses_does_not_make_those_of_others_unknown() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        let homes: Vec<_> = (0..100)
            .map(|host| source(&format!("192.0.2.{host}"), host))
            .collect();
        for home in &homes {
            logins.succeed(*home, now);
        }

        for network in 0..200_000 {
            let (high, low) = (network >> 16, network & 0xFFFF);
            logins.succeed(source(&format!("2001:db8:{high:x}:{low:x}::1"), 1_000), now);
        }

        for home in homes {
            let user = home.user.unwrap();
            guess(&logins, source("198.51.100.9", user), now);
            assert!(!logins.is_paused(home, now), "user {user}");
        }
    }

    #[test]
    fn an_address_is_known_for_seven_days_after_the_end_of_the_last_connection() {
        let (logins, start) = (FailedLogins::default(), Instant::now());
        let days = |count: u64| start + Duration::from_secs(count * 24 * 3_600);
        let device = source("192.0.2.1", JOE);
        logins.succeed(device, start);
        logins.succeed(device, days(8));

        for (now, is_stranger) in [(days(8), false), (days(14), false), (days(15), true)] {
            guess(&logins, source("192.0.2.9", JOE), now);
            assert_eq!(logins.is_paused(device, now), is_stranger);
        }
    }

    #[test]
    fn c16_an_exempt_address_is_paused_by_user_name_only() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        let (failed, _) = guess(&logins, exempt("127.0.0.1", JOE), now);

        assert_eq!(failed, 10);
        assert!(logins.is_paused(exempt("127.0.0.1", JOE), now));
        assert!(!logins.is_paused(exempt("127.0.0.1", JOE + 1), now));
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
