//! Limits of one address: an IPv4 address, or all IPv6 addresses with the same first 64 bits.

use std::net::IpAddr;
use std::time::Duration;

use crate::config::network::Network;

/// Limits of one address in the tables that all clients share. 0 means no limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressLimits {
    /// Addresses without these limits, rates of clients and bans for flapping. Peers of Unix sockets have none of them, either.
    pub exempt: Vec<Network>,
    /// Connections in any state. At most three quarters of `Config::connections`.
    pub connections: usize,
    /// Connections without CONNACK. At most three quarters of `Config::pending_connections`.
    pub pending_connections: usize,
    /// Connections a second; the connections of five seconds may come at once.
    pub connects_per_second: u32,
}

/// How many logins of one address, or with one user name, may fail before further logins are refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FailedLoginLimits {
    /// Failed logins a minute; 0 means no limit.
    pub per_minute: u32,
    /// Length of the first pause, in which logins are refused; each further pause is twice as long, up to a day.
    pub pause: Duration,
}

impl Default for FailedLoginLimits {
    fn default() -> Self {
        Self {
            per_minute: 10,
            pause: Duration::from_secs(300),
        }
    }
}

/// How often clients with one identifier and one user name may connect. Exempt addresses are not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlappingLimits {
    /// Connections a minute; 0 means no limit.
    pub connects_per_minute: u32,
    /// How long the two together are banned if they connect more often.
    pub ban: Duration,
}

impl Default for FlappingLimits {
    fn default() -> Self {
        Self {
            connects_per_minute: 15,
            ban: Duration::from_secs(300),
        }
    }
}

impl Default for AddressLimits {
    fn default() -> Self {
        let loopback = ["127.0.0.0/8", "::1"].iter();
        Self {
            // INVARIANT: both texts are networks.
            exempt: loopback
                .map(|text| text.parse().expect("a network"))
                .collect(),
            connections: 10_000,
            pending_connections: 256,
            connects_per_second: 20,
        }
    }
}

impl AddressLimits {
    /// Whether the limits apply to `peer`; they never apply to `None`, a Unix socket.
    pub(crate) fn apply_to(&self, peer: Option<IpAddr>) -> bool {
        let is_exempt = |peer| self.exempt.iter().any(|network| network.contains(peer));
        peer.is_some_and(|peer| !is_exempt(peer))
    }
}

/// Maximum share of one address in a table of `places` with the configured `limit`: a quarter is left for others.
pub(crate) fn share_of(places: usize, limit: usize) -> usize {
    match limit {
        0 => usize::MAX,
        _ => limit.min(places - places.div_ceil(4)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_table_is_left_for_others() {
        for (places, limit, share) in [
            (100, 10, 10),
            (100, 100, 75),
            (10, 10, 7),
            (1, 10, 1),
            (100, 0, usize::MAX),
        ] {
            assert_eq!(share_of(places, limit), share, "{limit} of {places}");
        }
    }

    #[test]
    fn loopback_is_exempt_by_default() {
        let limits = AddressLimits::default();

        for (peer, is_limited) in [
            ("127.0.0.2", false),
            ("::1", false),
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("uid:0", false),
        ] {
            assert_eq!(limits.apply_to(peer.parse().ok()), is_limited, "{peer}");
        }
    }
}
