//! Addresses from which users have logged in, for a bounded number of both (abuse C16).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::clients::address::AddressKey;
use crate::clients::failed_logins::Attempts;
use crate::runtime::bounded_table::{BoundedTable, Remembered};

/// How long an address is known for a user name once nobody with that name is connected from there.
const KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);
/// So many addresses of each user stay known once those of all are too many.
const KNOWN_WHEN_FULL: usize = 64;

/// An address and a user name.
pub(super) type Pair = (Option<AddressKey>, u64);

/// Addresses from which users have logged in.
#[derive(Default)]
pub(super) struct KnownLogins(BoundedTable<Pair, KnownLogin>);

impl KnownLogins {
    /// Attempts since the user has logged in from the address; `None` if that is not known.
    pub(super) fn get(&self, pair: Pair, now: Instant) -> Option<&Attempts> {
        let known = self.0.get(&pair).filter(|known| known.is_known(now))?;
        Some(&known.attempts)
    }

    pub(super) fn get_mut(&mut self, pair: Pair, now: Instant) -> Option<&mut Attempts> {
        let known = self.0.get_mut(&pair).filter(|known| known.is_known(now))?;
        Some(&mut known.attempts)
    }

    /// The user logs in from the address, or leaves.
    pub(super) fn note(&mut self, pair: Pair, now: Instant) {
        if self.0.is_full_for(&pair) {
            keep_few_of_each_user(&mut self.0);
        }
        self.0.entry(pair, now).until = Some(now + KNOWN_FOR);
    }
}

/// Forgets addresses of users who have many of them: else one account, used from many addresses, would make the broker
/// forget those of others.
fn keep_few_of_each_user(known: &mut BoundedTable<Pair, KnownLogin>) {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    known.retain(|(_, user)| {
        let count = counts.entry(*user).or_default();
        *count += 1;
        *count <= KNOWN_WHEN_FULL
    });
}

/// A user who has logged in from an address.
#[derive(Default)]
struct KnownLogin {
    until: Option<Instant>,
    /// Those that failed since.
    attempts: Attempts,
}

impl KnownLogin {
    fn is_known(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Remembered for KnownLogin {
    fn is_in_use(&self) -> bool {
        false
    }

    fn is_as_new(&self, now: Instant) -> bool {
        !self.is_known(now) && self.attempts.is_as_new(now)
    }
}
