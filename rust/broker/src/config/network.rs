//! IP networks: an address and the length of its prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An IP network such as `10.0.0.0/8`, `2001:db8::/32`, or a single address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Network {
    /// Bits after the prefix are 0.
    address: IpAddr,
    prefix: u8,
}

/// A text is not an IP network.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an IP address or network such as 10.0.0.0/8")]
pub struct InvalidNetwork;

impl Network {
    /// The network of `address` with a prefix of `prefix` bits; `None` if an address has fewer bits.
    ///
    /// An IPv4 address that is written as IPv6 (`::ffff:10.0.0.1`) counts as IPv4.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let canonical = address.to_canonical();
        let prefix = match (address, canonical) {
            (IpAddr::V6(_), IpAddr::V4(_)) => prefix.checked_sub(96)?,
            _ => prefix,
        };
        let bits = bits_of(canonical);
        (prefix <= bits).then(|| Self {
            address: masked(canonical, prefix),
            prefix,
        })
    }

    /// Whether `address` is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        bits_of(address) == bits_of(self.address) && masked(address, self.prefix) == self.address
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, prefix) = text.split_once('/').unzip();
        let address: IpAddr = address
            .unwrap_or(text)
            .parse()
            .map_err(|_| InvalidNetwork)?;
        let prefix = match prefix {
            None => bits_of(address),
            Some(prefix) => prefix.parse().map_err(|_| InvalidNetwork)?,
        };
        Self::new(address, prefix).ok_or(InvalidNetwork)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix < bits_of(self.address) {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let free = u32::from(bits_of(address) - prefix);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(free).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(free).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        for (network, address, is_in) in [
            ("127.0.0.0/8", "127.255.0.1", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::1", "::1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("10.0.0.0/8", "::ffff:10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
        ] {
            let parsed: Network = network.parse().unwrap();

            assert_eq!(
                parsed.contains(address.parse().unwrap()),
                is_in,
                "{address} in {network}"
            );
        }
    }

    #[test]
    fn a_network_is_written_without_the_bits_behind_its_prefix() {
        for (text, written) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("2001:db8::1/64", "2001:db8::/64"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn other_texts_are_no_networks() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "host",
            "10.0.0/8",
            "10.0.0.0/-1",
        ] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text}");
        }
    }
}
