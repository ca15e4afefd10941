//! Connection limits: counts connections in total, by listener and by address, and rejects those above a limit.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::config::address_limits::share_of;
use crate::runtime::bounded_table::{BoundedTable, Remembered};
use crate::runtime::token_bucket::{Rate, TokenBucket};
use crate::transport::address::AddressKey;

/// Burst: connections of this many seconds may come at once.
const BURST: Duration = Duration::from_secs(5);

/// Which connection limit was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionLimit {
    /// The limit of all connections, or of all connections without CONNACK.
    Full,
    /// The connection limit of the listener.
    ListenerConnections,
    /// The connection rate of the listener.
    ListenerRate,
    /// The connection limit of the address.
    AddressConnections,
    /// The limit of connections without CONNACK of the address.
    AddressPending,
    /// The connection rate of the address.
    AddressRate,
}

/// The connections of all shards.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    connections: usize,
    /// Connections without CONNACK.
    pending: usize,
    listeners: Vec<ListenerCounts>,
    addresses: BoundedTable<AddressKey, ConnectionsOfAddress>,
}

/// Connections of one listener.
#[derive(Default)]
struct ListenerCounts {
    connections: usize,
    connects: TokenBucket,
}

/// A listener and its connection limit; 0 means no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerLimit {
    pub(crate) index: usize,
    pub(crate) connections: usize,
}

/// A counted connection; dropping it ends the count.
pub(crate) struct ConnectionSlot {
    all: Arc<Connections>,
    /// `None`: the address is exempt from limits.
    address: Option<AddressKey>,
    listener: u16,
    is_pending: bool,
}

impl Connections {
    /// Counts an accepted connection. `peer` is `None` for a Unix socket, and for a proxy until its header names the
    /// client ([`ConnectionSlot::assign`]).
    ///
    /// # Errors
    ///
    /// The limit that was reached; then nothing is counted.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        listener: ListenerLimit,
        config: &Config,
        now: Instant,
    ) -> Result<ConnectionSlot, ConnectionLimit> {
        let limited = peer.filter(|peer| config.address_limits.apply_to(Some(*peer)));
        let address = limited.map(AddressKey::of);
        self.counts().admit(address, listener, config, now)?;
        Ok(ConnectionSlot {
            all: Arc::clone(self),
            address,
            // INVARIANT: there are few listeners.
            listener: u16::try_from(listener.index).expect("a listener"),
            is_pending: true,
        })
    }

    /// Number of connections of each listener by its index, up to the last listener that has had one.
    pub(crate) fn by_listener(&self) -> Vec<usize> {
        let counts = self.counts();
        let listeners = counts.listeners.iter();
        listeners.map(|listener| listener.connections).collect()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Counts a connection without an address for `peer`, the client that its proxy has named.
    ///
    /// # Errors
    ///
    /// The limit that was reached.
    pub(crate) fn assign(
        &mut self,
        peer: IpAddr,
        config: &Config,
        now: Instant,
    ) -> Result<(), ConnectionLimit> {
        debug_assert!(self.is_pending, "a new connection");
        let mut counts = self.all.counts();
        if let Some(proxy) = self.address.take() {
            // A reload made the peer a proxy after its connection was accepted.
            counts.addresses.change(proxy, now, |share| {
                share.pending -= 1;
                share.connections -= 1;
            });
        }
        if config.address_limits.apply_to(Some(peer)) {
            let key = AddressKey::of(peer);
            counts.take_share(key, usize::from(self.listener), config, now)?;
            self.address = Some(key);
        }
        Ok(())
    }

    /// Index of its listener.
    pub(crate) fn listener(&self) -> u16 {
        self.listener
    }

    /// Ends the pending state: CONNACK was sent, or the connection will be rejected.
    pub(crate) fn end_pending(&mut self) {
        if std::mem::take(&mut self.is_pending) {
            self.all.counts().end_pending(self.address, Instant::now());
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut counts = self.all.counts();
        if self.is_pending {
            counts.end_pending(self.address, now);
        }
        counts.end(self.address, usize::from(self.listener), now);
    }
}

impl Counts {
    fn admit(
        &mut self,
        address: Option<AddressKey>,
        listener: ListenerLimit,
        config: &Config,
        now: Instant,
    ) -> Result<(), ConnectionLimit> {
        if self.connections >= config.connections || self.pending >= config.pending_connections {
            return Err(ConnectionLimit::Full);
        }
        let most = listener.connections;
        if most > 0 && self.listener(listener.index).connections >= most {
            return Err(ConnectionLimit::ListenerConnections);
        }
        if let Some(key) = address {
            self.take_share(key, listener.index, config, now)?;
        }
        self.listener(listener.index).connections += 1;
        self.connections += 1;
        self.pending += 1;
        Ok(())
    }

    /// Counts a connection of an address that is not exempt.
    fn take_share(
        &mut self,
        key: AddressKey,
        listener: usize,
        config: &Config,
        now: Instant,
    ) -> Result<(), ConnectionLimit> {
        let share = self.addresses.entry(key, now);
        share.check(config, now)?;
        // A rejected address spends no token of the listener.
        let connects = &mut listener_of(&mut self.listeners, listener).connects;
        if !connects.take(Rate::new(config.connects_per_second, BURST), now) {
            return Err(ConnectionLimit::ListenerRate);
        }
        share.add(config, now);
        Ok(())
    }

    fn listener(&mut self, index: usize) -> &mut ListenerCounts {
        listener_of(&mut self.listeners, index)
    }

    fn end_pending(&mut self, address: Option<AddressKey>, now: Instant) {
        self.pending -= 1;
        if let Some(key) = address {
            self.addresses.change(key, now, |share| share.pending -= 1);
        }
    }

    fn end(&mut self, address: Option<AddressKey>, listener: usize, now: Instant) {
        self.connections -= 1;
        self.listener(listener).connections -= 1;
        if let Some(key) = address {
            self.addresses
                .change(key, now, |share| share.connections -= 1);
        }
    }
}

fn listener_of(listeners: &mut Vec<ListenerCounts>, index: usize) -> &mut ListenerCounts {
    if listeners.len() <= index {
        listeners.resize_with(index + 1, ListenerCounts::default);
    }
    &mut listeners[index]
}

/// Connections of one address.
#[derive(Default)]
struct ConnectionsOfAddress {
    connections: usize,
    pending: usize,
    connects: TokenBucket,
}

impl ConnectionsOfAddress {
    fn check(&self, config: &Config, now: Instant) -> Result<(), ConnectionLimit> {
        let limits = &config.address_limits;
        let pending = share_of(config.pending_connections, limits.pending_connections);
        if self.connections >= share_of(config.connections, limits.connections) {
            return Err(ConnectionLimit::AddressConnections);
        }
        if self.pending >= pending {
            return Err(ConnectionLimit::AddressPending);
        }
        let rate = Rate::new(limits.connects_per_second, BURST);
        if !self.connects.has_token(rate, now) {
            return Err(ConnectionLimit::AddressRate);
        }
        Ok(())
    }

    fn add(&mut self, config: &Config, now: Instant) {
        let per_second = config.address_limits.connects_per_second;
        self.connections += 1;
        self.pending += 1;
        self.connects.spend(Rate::new(per_second, BURST), now);
    }
}

impl Remembered for ConnectionsOfAddress {
    fn is_in_use(&self) -> bool {
        self.connections > 0
    }

    fn is_as_new(&self, now: Instant) -> bool {
        self.connects.is_full(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AddressLimits;

    const ANY: ListenerLimit = ListenerLimit {
        index: 0,
        connections: 0,
    };

    /// A configuration with the limits of one test and no others.
    fn config(change: impl FnOnce(&mut Config)) -> Config {
        let mut config = Config {
            connects_per_second: 0,
            address_limits: AddressLimits {
                exempt: Vec::new(),
                connections: 0,
                pending_connections: 0,
                connects_per_second: 0,
            },
            ..Config::default()
        };
        change(&mut config);
        config
    }

    struct Acceptor {
        all: Arc<Connections>,
        config: Config,
        now: Instant,
    }

    impl Acceptor {
        fn new(change: impl FnOnce(&mut Config)) -> Self {
            Self {
                all: Arc::default(),
                config: config(change),
                now: Instant::now(),
            }
        }

        fn admit(&self, peer: &str) -> Result<ConnectionSlot, ConnectionLimit> {
            let peer = peer.parse().unwrap();
            self.all.admit(Some(peer), ANY, &self.config, self.now)
        }

        /// Admits connections of `peer` until one is rejected; returns them and the limit.
        fn fill(&self, peer: &str) -> (Vec<ConnectionSlot>, ConnectionLimit) {
            let mut admitted = Vec::new();
            loop {
                match self.admit(peer) {
                    Ok(slot) => admitted.push(slot),
                    Err(limit) => return (admitted, limit),
                }
            }
        }
    }

    #[test]
    fn an_address_has_its_share_of_connections_and_others_have_theirs() {
        let acceptor = Acceptor::new(|config| {
            config.connections = 10;
            config.address_limits.connections = 4;
        });

        let (mut first, limit) = acceptor.fill("192.0.2.1");

        assert_eq!(
            (first.len(), limit),
            (4, ConnectionLimit::AddressConnections)
        );
        assert_eq!(acceptor.fill("192.0.2.2").0.len(), 4);
        first.pop();
        assert!(acceptor.admit("192.0.2.1").is_ok());
    }

    #[test]
    fn the_client_of_a_proxy_has_the_share_of_its_own_address() {
        let acceptor = Acceptor::new(|config| config.address_limits.connections = 1);
        let admit = || {
            let slot = acceptor
                .all
                .admit(None, ANY, &acceptor.config, acceptor.now);
            slot.ok().unwrap()
        };
        let assign = |slot: &mut ConnectionSlot, peer: &str| {
            slot.assign(peer.parse().unwrap(), &acceptor.config, acceptor.now)
        };
        let (mut first, mut second, mut other) = (admit(), admit(), admit());

        assert_eq!(assign(&mut first, "192.0.2.1"), Ok(()));
        assert_eq!(
            assign(&mut second, "192.0.2.1"),
            Err(ConnectionLimit::AddressConnections)
        );
        assert_eq!(assign(&mut other, "192.0.2.2"), Ok(()));
        drop((first, second, other));
        assert_eq!(assign(&mut admit(), "192.0.2.1"), Ok(()));
        assert_eq!(acceptor.all.counts().connections, 0);
    }

    /// A reload may name the proxy while its connection is between two shards.
    #[test]
    fn a_slot_that_changes_its_address_gives_the_old_share_back() {
        let acceptor = Acceptor::new(|config| config.address_limits.connections = 1);
        let mut slot = acceptor.admit("192.0.2.9").ok().unwrap();

        let client = "192.0.2.1".parse().unwrap();
        let assigned = slot.assign(client, &acceptor.config, acceptor.now);

        assert_eq!(assigned, Ok(()));
        let of_proxy = acceptor.admit("192.0.2.9").ok().unwrap();
        drop((slot, of_proxy));
        assert_eq!(acceptor.all.counts().connections, 0);
        assert_eq!(acceptor.fill("192.0.2.1").0.len(), 1);
    }

    #[test]
    fn a_listener_has_no_more_connections_than_it_may_and_others_have_theirs() {
        let acceptor = Acceptor::new(|_| {});
        let limited = ListenerLimit {
            index: 1,
            connections: 2,
        };
        let admit = |listener| {
            let peer = "192.0.2.1".parse().unwrap();
            let (config, now) = (&acceptor.config, acceptor.now);
            acceptor.all.admit(Some(peer), listener, config, now)
        };
        let first = admit(limited).ok().unwrap();
        let _second = admit(limited).ok().unwrap();

        assert_eq!(
            admit(limited).err(),
            Some(ConnectionLimit::ListenerConnections)
        );
        assert!(admit(ANY).is_ok());
        drop(first);
        assert!(admit(limited).is_ok());
    }

    #[test]
    fn c15_no_address_takes_the_last_quarter_of_a_table() {
        let acceptor = Acceptor::new(|config| {
            config.connections = 100;
            config.pending_connections = 8;
            config.address_limits.pending_connections = 1_000;
        });

        let (pending, limit) = acceptor.fill("192.0.2.1");

        assert_eq!((pending.len(), limit), (6, ConnectionLimit::AddressPending));
        let (others, limit) = acceptor.fill("192.0.2.2");
        assert_eq!((others.len(), limit), (2, ConnectionLimit::Full));
    }

    #[test]
    fn a_connection_with_connack_is_not_pending() {
        let acceptor = Acceptor::new(|config| config.address_limits.pending_connections = 1);
        let mut slot = acceptor.admit("192.0.2.1").ok().unwrap();
        assert!(acceptor.admit("192.0.2.1").is_err());

        slot.end_pending();

        assert!(acceptor.admit("192.0.2.1").is_ok());
    }

    #[test]
    fn h06_an_address_that_connects_too_often_takes_nothing_from_the_listener() {
        let mut acceptor = Acceptor::new(|config| {
            config.connects_per_second = 30;
            config.address_limits.connects_per_second = 20;
        });

        let (slots, limit) = acceptor.fill("192.0.2.1");
        assert_eq!((slots.len(), limit), (100, ConnectionLimit::AddressRate));
        drop(slots);
        let (slots, limit) = acceptor.fill("192.0.2.2");
        assert_eq!((slots.len(), limit), (50, ConnectionLimit::ListenerRate));

        acceptor.now += Duration::from_secs(1);
        assert_eq!(acceptor.fill("192.0.2.1").0.len(), 20);
        assert_eq!(acceptor.fill("192.0.2.2").0.len(), 10);
    }

    #[test]
    fn an_ipv6_client_has_64_bits_and_its_neighbour_has_others() {
        let acceptor = Acceptor::new(|config| config.address_limits.connections = 1);

        let _one = acceptor.admit("2001:db8::1").ok().unwrap();

        let refused = acceptor.admit("2001:db8::ffff:1").err();
        assert_eq!(refused, Some(ConnectionLimit::AddressConnections));
        assert!(acceptor.admit("2001:db8:0:1::1").is_ok());
        let _four = acceptor.admit("192.0.2.1").ok().unwrap();
        assert!(acceptor.admit("::ffff:192.0.2.1").is_err());
    }

    #[test]
    fn exempt_addresses_and_unix_sockets_have_the_limits_of_all_only() {
        let acceptor = Acceptor::new(|config| {
            config.connections = 3;
            config.connects_per_second = 1;
            config.address_limits = AddressLimits {
                connections: 1,
                connects_per_second: 1,
                ..AddressLimits::default()
            };
        });

        let (local, limit) = acceptor.fill("127.0.0.1");

        assert_eq!((local.len(), limit), (3, ConnectionLimit::Full));
        drop(local);
        let unix = acceptor
            .all
            .admit(None, ANY, &acceptor.config, acceptor.now);
        assert!(unix.is_ok());
    }

    #[test]
    fn zero_switches_a_limit_off() {
        let acceptor = Acceptor::new(|config| config.connections = 1_000);

        let (slots, limit) = acceptor.fill("192.0.2.1");

        assert_eq!((slots.len(), limit), (1_000, ConnectionLimit::Full));
    }

    #[test]
    fn connections_that_ended_leave_nothing() {
        let acceptor = Acceptor::new(|config| config.connections = 10);
        drop(acceptor.fill("192.0.2.1"));

        let counts = acceptor.all.counts();

        assert_eq!((counts.connections, counts.pending), (0, 0));
        let key = AddressKey::of("192.0.2.1".parse().unwrap());
        assert!(counts.addresses.get(&key).is_none());
    }
}
