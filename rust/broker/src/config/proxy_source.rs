//! Trusted proxies of a listener: networks, or users of this machine.

use std::num::ParseIntError;
use std::str::FromStr;

use crate::config::{InvalidNetwork, Network, Peer};

/// Peers that are proxies and send PROXY headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxySource {
    /// TCP peers in this network.
    Network(Network),
    /// Processes of this user at the other end of a Unix socket.
    Uid(u32),
}

impl ProxySource {
    /// Whether `peer` is one of these proxies.
    pub(crate) fn covers(&self, peer: Peer) -> bool {
        match self {
            Self::Network(network) => peer.ip().is_some_and(|ip| network.contains(ip)),
            Self::Uid(uid) => peer.uid() == Some(*uid),
        }
    }
}

impl From<Network> for ProxySource {
    fn from(network: Network) -> Self {
        Self::Network(network)
    }
}

impl FromStr for ProxySource {
    type Err = InvalidProxySource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("uid:") {
            Some(uid) => Ok(Self::Uid(uid.parse()?)),
            None => Ok(Self::Network(text.parse()?)),
        }
    }
}

/// The text is neither a network nor a user id.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a proxy is an IP address, a network, or `uid:` and the number of a user")]
pub struct InvalidProxySource;

impl From<InvalidNetwork> for InvalidProxySource {
    fn from(_: InvalidNetwork) -> Self {
        Self
    }
}

impl From<ParseIntError> for InvalidProxySource {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_network_or_a_user() {
        let tcp = Peer::parse("10.1.2.3", 1).unwrap();
        let unix = Peer::Unix { uid: 33 };
        let network: ProxySource = "10.0.0.0/8".parse().unwrap();
        let user: ProxySource = "uid:33".parse().unwrap();

        assert!(network.covers(tcp) && !network.covers(unix));
        assert!(user.covers(unix) && !user.covers(tcp));
        assert!(!user.covers(Peer::Unix { uid: 0 }));
        assert_eq!("uid:root".parse::<ProxySource>(), Err(InvalidProxySource));
    }
}
