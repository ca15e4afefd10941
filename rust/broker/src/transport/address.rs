//! The unit that address limits count by, and a test for HTTP hosts that are IP addresses.

use std::net::IpAddr;
use std::num::NonZeroU64;

use tungstenite::http::uri::Authority;

/// The unit that address limits count by: an IPv4 address, or the first 64 bits of an IPv6 address, since one client
/// usually has such a network.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AddressKey(NonZeroU64);

impl AddressKey {
    /// IPv4 addresses use the numbers of `::/32`, which no client has.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        let bits = match address.to_canonical() {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            // The upper 64 bits fit.
            IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 64).unwrap_or(u64::MAX),
        };
        Self(NonZeroU64::MIN.saturating_add(bits))
    }
}

/// Whether the host of `authority` (`HOST` or `HOST:PORT`) is an IP address or `localhost`. The owner of any other name
/// can make it resolve to this machine, so that a browser treats a page of that owner as one of the broker
/// (DNS rebinding, abuse I09).
#[must_use]
pub fn names_an_address(authority: &str) -> bool {
    authority.parse::<Authority>().is_ok_and(|authority| {
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
    })
}
