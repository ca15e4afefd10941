//! What limits count as one address.

use std::net::IpAddr;
use std::num::NonZeroU64;

/// What limits count as one address: an IPv4 address, or the first 64 bits of an IPv6 address, which is what one client
/// is given.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AddressKey(NonZeroU64);

impl AddressKey {
    /// The numbers of IPv4 are those of `::/32`, which no client has.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        let bits = match address.to_canonical() {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            // The upper half of the bits fits.
            IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 64).unwrap_or(u64::MAX),
        };
        Self(NonZeroU64::MIN.saturating_add(bits))
    }
}
