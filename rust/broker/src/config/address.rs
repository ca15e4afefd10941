//! The two ends of a connection: the address of a listener, and the peer.

use std::fmt;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a listener accepts connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListenAddress {
    /// TCP. Port 0 binds a free port, which [`crate::Broker::addresses`] returns.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

/// A Unix socket: its path and its permissions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnixAddress {
    /// The socket file; its folder must exist.
    pub path: PathBuf,
    /// File permissions; clients need the right to write.
    pub mode: u32,
    /// Group id of the file; `None`: the group of the process.
    pub group: Option<u32>,
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(address) => write!(f, "unix:{}", address.path.display()),
        }
    }
}

/// The client's end of a connection. Without the scope of a link-local address, since every login has one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Peer {
    /// A TCP client.
    Tcp {
        /// Its IP address.
        ip: IpAddr,
        /// Its port.
        port: u16,
    },
    /// A process on this machine that connected to a Unix socket, as the kernel reports it.
    Unix {
        /// User id of the process.
        uid: u32,
    },
}

/// Prefix of the text of a [`Peer::Unix`].
const UID: &str = "uid:";

impl Peer {
    /// The IP address of a TCP client.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp { ip, .. } => Some(*ip),
            Self::Unix { .. } => None,
        }
    }

    /// The user id of the process at the other end of a Unix socket.
    pub fn uid(&self) -> Option<u32> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix { uid } => Some(*uid),
        }
    }

    /// Host and port: IP address and port of a TCP client; for a Unix socket `uid:1000` and 0.
    pub fn host_and_port(&self) -> (String, u16) {
        match self {
            Self::Tcp { ip, port } => (ip.to_string(), *port),
            Self::Unix { .. } => (self.to_string(), 0),
        }
    }

    /// Parses the result of [`Self::host_and_port`].
    ///
    /// # Errors
    ///
    /// [`InvalidPeer`]: the host is neither an IP address nor `uid:` and a number.
    pub fn parse(host: &str, port: u16) -> Result<Self, InvalidPeer> {
        match host.strip_prefix(UID) {
            Some(uid) => Ok(Self::Unix { uid: uid.parse()? }),
            None => Ok(Self::Tcp {
                ip: IpAddr::from_str(host)?,
                port,
            }),
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp {
            ip: address.ip(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { ip, port } => SocketAddr::new(*ip, *port).fmt(f),
            Self::Unix { uid } => write!(f, "{UID}{uid}"),
        }
    }
}

/// The text is not a valid peer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a peer is an IP address and a port, or `uid:` and a number")]
pub struct InvalidPeer;

impl From<AddrParseError> for InvalidPeer {
    fn from(_: AddrParseError) -> Self {
        Self
    }
}

impl From<ParseIntError> for InvalidPeer {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_read_as_it_is_written() {
        for peer in [
            SocketAddr::from(([127, 0, 0, 1], 1883)).into(),
            Peer::Unix { uid: 1000 },
        ] {
            let (host, port) = peer.host_and_port();
            assert_eq!(Peer::parse(&host, port), Ok(peer));
        }
        assert_eq!(Peer::parse("localhost", 1), Err(InvalidPeer));
        assert_eq!(Peer::parse("uid:root", 0), Err(InvalidPeer));
    }

    /// Every login has one.
    #[test]
    fn a_peer_is_20_bytes() {
        assert_eq!(size_of::<Peer>(), 20);
    }
}
