//! Addresses from which users have logged in; the number of entries is bounded (abuse C16).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::clients::failed_logins::Attempts;
use crate::runtime::bounded_table::{BoundedTable, Remembered};
use crate::transport::address::AddressKey;

/// How long an address stays known for a user name after its last client has disconnected.
const KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How many addresses of each user are kept once the table is full.
const KNOWN_WHEN_FULL: usize = 64;

/// An address and a user name.
pub(super) type Pair = (Option<AddressKey>, u64);

/// Addresses from which users have logged in.
#[derive(Default)]
pub(super) struct KnownLogins(BoundedTable<Pair, UserAtAddress>);

impl KnownLogins {
    /// Failed attempts since the user logged in from the address; `None` if the pair is not known.
    pub(super) fn get(&self, pair: Pair, now: Instant) -> Option<&Attempts> {
        let known = self.0.get(&pair).filter(|known| known.is_known(now))?;
        Some(&known.attempts)
    }

    pub(super) fn get_mut(&mut self, pair: Pair, now: Instant) -> Option<&mut Attempts> {
        let known = self.0.get_mut(&pair).filter(|known| known.is_known(now))?;
        Some(&mut known.attempts)
    }

    /// Records that the user logs in from the address, or disconnects.
    pub(super) fn remember(&mut self, pair: Pair, now: Instant) {
        if self.0.is_full_for(&pair) {
            keep_few_of_each_user(&mut self.0);
            // Also if that made room: afterwards many new pairs fit, so that both walks over the table are rare.
            self.0.sweep(now);
        }
        self.0.entry(pair, now).until = Some(now + KNOWN_FOR);
    }
}

/// Removes addresses of users who have many. Otherwise one account, used from many addresses, could push out those of
/// others.
fn keep_few_of_each_user(known: &mut BoundedTable<Pair, UserAtAddress>) {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    known.retain(|(_, user)| {
        let count = counts.entry(*user).or_default();
        *count += 1;
        *count <= KNOWN_WHEN_FULL
    });
}

/// A user and an address from which the user has logged in.
#[derive(Default)]
struct UserAtAddress {
    until: Option<Instant>,
    /// Failed attempts since then.
    attempts: Attempts,
}

impl UserAtAddress {
    fn is_known(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Remembered for UserAtAddress {
    fn is_in_use(&self) -> bool {
        false
    }

    fn is_as_new(&self, now: Instant) -> bool {
        !self.is_known(now) && self.attempts.is_as_new(now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A walk over the table holds a lock that all shards share.
    #[test]
    fn c16_new_addresses_of_one_account_do_not_each_walk_a_full_table() {
        let (mut known, now) = (KnownLogins::default(), Instant::now());
        let mut walks = 0;
        let account = u64::MAX;
        let many = KNOWN_WHEN_FULL as u64 + 1;
        for number in 0..40_000_u32 {
            let user = u64::from(number);
            let user = if user < 32_768 - many { user } else { account };
            let pair = (
                Some(AddressKey::of(IpAddr::from(number.to_be_bytes()))),
                user,
            );
            walks += usize::from(known.0.is_full_for(&pair));
            known.remember(pair, now);
        }

        assert_eq!(walks, 1);
    }
}
