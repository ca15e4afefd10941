//! Connection limits of a socket, and eviction: shares its places among client addresses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mqttcore_broker::AddressKey;
use tokio::sync::Notify;

/// Time for which a new connection cannot be evicted, so that it can send its token.
const PROTECTED_FOR: Duration = Duration::from_secs(1);
/// If an address has more places than this, none of them is protected.
const PROTECTED_MAX: usize = 8;

/// A connection gets no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NoPlace {
    /// All places are taken, and none can be evicted for this connection.
    Full,
    /// The address has reached its limit.
    Address,
}

/// The places of one socket.
pub(super) struct Places {
    most: usize,
    most_of_address: usize,
    last: u64,
    /// The places in use, the oldest first.
    taken: BTreeMap<u64, Taken>,
}

/// One connection.
struct Taken {
    /// `None` for a Unix socket.
    peer: Option<IpAddr>,
    has_token: bool,
    protected_until: Instant,
    end: Rc<Notify>,
}

impl Taken {
    /// The unit by which addresses are counted.
    fn key(&self) -> Option<AddressKey> {
        self.peer.map(AddressKey::of)
    }
}

/// The place of a new connection.
pub(super) struct ConnectionPlace {
    pub(super) number: u64,
    /// Notified if the connection is evicted and has to end.
    pub(super) end: Rc<Notify>,
    /// The address of the connection that was evicted for this one.
    pub(super) displaced: Option<IpAddr>,
}

impl Places {
    pub(super) fn new(most: usize, most_of_address: usize) -> Self {
        Self {
            most,
            most_of_address,
            last: 0,
            taken: BTreeMap::new(),
        }
    }

    /// Takes a place for a connection of `peer`; `None` for a Unix socket, whose peers count as one address without
    /// limit.
    ///
    /// If all places are taken, a connection is evicted: the oldest one of the address with the most places.
    /// Connections that have sent a token or are protected are not evicted. The other address must have at least two
    /// places more than that of `peer`, or `peer` must have none. So addresses without a token can keep another address
    /// out only if they renew all places each second and none of them has more than eight.
    ///
    /// # Errors
    ///
    /// There is no place for it.
    pub(super) fn take(
        &mut self,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<ConnectionPlace, NoPlace> {
        let own = self.of(peer);
        if peer.is_some() && own >= self.most_of_address {
            return Err(NoPlace::Address);
        }
        let mut displaced = None;
        if self.taken.len() >= self.most {
            let number = self.displaceable(own, now).ok_or(NoPlace::Full)?;
            let loser = self.taken.remove(&number).ok_or(NoPlace::Full)?;
            loser.end.notify_one();
            displaced = loser.peer;
        }
        self.last += 1;
        let end = Rc::new(Notify::new());
        let taken = Taken {
            peer,
            has_token: false,
            protected_until: now + PROTECTED_FOR,
            end: Rc::clone(&end),
        };
        self.taken.insert(self.last, taken);
        Ok(ConnectionPlace {
            number: self.last,
            end,
            displaced,
        })
    }

    /// Protects a place for good: its connection has sent a valid token or key.
    pub(super) fn keep(&mut self, number: u64) {
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.has_token = true;
        }
    }

    /// Releases a place, unless its connection was evicted.
    pub(super) fn give_back(&mut self, number: u64) {
        self.taken.remove(&number);
    }

    /// The place to evict: the oldest unprotected one of the address with the most places. `None` if no place can be
    /// evicted, or if `own` is not 0 and the address has at most `own + 1` places.
    fn displaceable(&self, own: usize, now: Instant) -> Option<u64> {
        let mut counts: HashMap<Option<AddressKey>, usize> = HashMap::new();
        for taken in self.taken.values() {
            *counts.entry(taken.key()).or_default() += 1;
        }
        let without_token = self.taken.iter().filter(|(_, taken)| !taken.has_token);
        let counted = without_token.map(|(number, taken)| (counts[&taken.key()], number, taken));
        let free = counted
            .filter(|(count, _, taken)| *count > PROTECTED_MAX || taken.protected_until <= now);
        let (count, Reverse(number)) = free
            .map(|(count, number, _)| (count, Reverse(*number)))
            .max()?;
        (own == 0 || count > own + 1).then_some(number)
    }

    fn of(&self, peer: Option<IpAddr>) -> usize {
        let key = peer.map(AddressKey::of);
        let taken = self.taken.values();
        taken.filter(|taken| taken.key() == key).count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// A fixed start time plus `second`.
    fn at(second: u64) -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(second)
    }

    fn address(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    /// 128 places, all taken, shared by the addresses 1 to `addresses`.
    fn full(addresses: u8) -> Places {
        let mut places = Places::new(128, 96);
        for _ in 0..128 {
            for number in 1..=addresses {
                let _ = places.take(Some(address(number)), at(0));
            }
        }
        assert_eq!(places.taken.len(), 128);
        places
    }

    #[test]
    fn an_address_has_its_share_and_no_more() {
        let mut places = Places::new(128, 96);

        let got = (0..128)
            .filter(|_| places.take(Some(address(1)), at(1)).is_ok())
            .count();

        assert_eq!(got, 96);
        assert_eq!(
            places.take(Some(address(1)), at(1)).err(),
            Some(NoPlace::Address)
        );
    }

    #[test]
    fn those_that_hold_all_places_lose_some_to_a_newcomer() {
        for holders in [2, 3, 20] {
            let mut places = full(holders);

            let place = places.take(Some(address(99)), at(1)).expect("a place");

            assert!(place.displaced.is_some());
            assert_eq!(places.taken.len(), 128);
            assert_eq!(places.of(Some(address(99))), 1);
        }
    }

    #[test]
    fn two_addresses_that_want_all_get_half_each() {
        let mut places = full(2);

        for second in 0..128 {
            let _ = places.take(Some(address(2)), at(second));
        }

        assert_eq!(
            (places.of(Some(address(1))), places.of(Some(address(2)))),
            (64, 64)
        );
        assert_eq!(
            places.take(Some(address(1)), at(200)).err(),
            Some(NoPlace::Full)
        );
    }

    #[test]
    fn addresses_with_a_place_each_lose_the_oldest_to_an_address_without_one() {
        let mut places = full(128);
        let early = places.take(Some(address(200)), at(0));
        assert_eq!(early.err(), Some(NoPlace::Full));
        assert_eq!(places.of(Some(address(77))), 1);

        let place = places.take(Some(address(200)), at(1)).expect("a place");

        assert!(place.displaced.is_some());
        assert_eq!(places.taken.len(), 128);
        let second = places.take(Some(address(200)), at(1));
        assert_eq!(second.err(), Some(NoPlace::Full), "one, not all");
    }

    #[test]
    fn a_new_connection_is_protected_for_a_second() {
        let mut places = full(16);

        assert_eq!(
            places.take(Some(address(17)), at(0)).err(),
            Some(NoPlace::Full)
        );

        for number in 17..=144 {
            assert!(places.take(Some(address(number)), at(1)).is_ok());
        }
        assert_eq!(
            places.take(Some(address(145)), at(1)).err(),
            Some(NoPlace::Full)
        );
        assert!(places.take(Some(address(145)), at(2)).is_ok());
    }

    #[test]
    fn an_address_with_many_places_is_not_protected_by_renewing_them() {
        let mut places = full(14);

        assert!(places.take(Some(address(99)), at(0)).is_ok());
    }

    #[test]
    fn the_oldest_connection_goes_and_hears_of_it() {
        let mut places = Places::new(3, 3);
        let ends: Vec<ConnectionPlace> = (0..3)
            .filter_map(|_| places.take(Some(address(1)), at(0)).ok())
            .collect();

        let place = places.take(Some(address(2)), at(1)).expect("a place");

        assert_eq!(place.displaced, Some(address(1)));
        assert!(!places.taken.contains_key(&ends[0].number));
        assert!(places.taken.contains_key(&ends[1].number));
    }

    #[test]
    fn those_with_the_token_keep_their_places() {
        let mut places = full(2);
        let numbers: Vec<u64> = places.taken.keys().copied().collect();
        for number in &numbers {
            places.keep(*number);
        }

        assert_eq!(
            places.take(Some(address(3)), at(1)).err(),
            Some(NoPlace::Full)
        );

        places.give_back(numbers[0]);
        assert!(places.take(Some(address(3)), at(1)).is_ok());
    }

    #[test]
    fn peers_of_a_unix_socket_share_all_places() {
        let mut places = Places::new(4, 1);

        let taken: Vec<bool> = (0..5).map(|_| places.take(None, at(1)).is_ok()).collect();

        assert_eq!(taken, [true, true, true, true, false]);
    }
}
