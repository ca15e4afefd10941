//! Options of the endpoint.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mqttcore_tls::TlsSettings;

/// Where the endpoint listens, beside the Unix sockets in the folder of the data, and who may ask.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// Serves health and metrics, even if the broker has no streams.
    pub is_enabled: bool,
    /// The TCP address, if there is one.
    pub tcp: Option<HttpListener>,
    /// File with the keys of the API; it need not be there yet.
    pub keys_file: Option<PathBuf>,
    /// What a peer may use.
    pub limits: HttpLimits,
}

/// Who may read metrics over TCP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MetricsAccess {
    /// Those with the access token.
    #[default]
    Token,
    /// Whoever reaches the address.
    Open,
    /// Nobody.
    Off,
}

/// A TCP address of the endpoint.
#[derive(Clone, Eq, PartialEq)]
pub struct HttpListener {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// The access token that requests send; `None`: only health, and metrics if they are open, are served.
    pub token: Option<String>,
    /// Who may read metrics.
    pub metrics: MetricsAccess,
    /// Certificates and what is asked of clients; `None`: nothing is encrypted.
    pub tls: Option<TlsSettings>,
}

/// What a peer of the endpoint may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpLimits {
    /// Connections at once, a socket.
    pub connections: usize,
    /// Connections at once of one address at a TCP socket: an IPv4 address, or the first 64 bits of an IPv6 address.
    pub address_connections: usize,
    /// Bytes of a request line and its headers.
    pub header_bytes: usize,
    /// Bytes of a body that is read as a whole.
    pub body_bytes: usize,
    /// From the first moment that a request may come until its headers are there.
    pub header_deadline: Duration,
    /// For each piece of a body to come.
    pub body_deadline: Duration,
    /// For each piece of an answer to be taken.
    pub stall_deadline: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            // A quarter of the connections is left for other addresses.
            address_connections: 96,
            header_bytes: 16 << 10,
            body_bytes: 256 << 10,
            header_deadline: Duration::from_secs(10),
            body_deadline: Duration::from_secs(30),
            stall_deadline: Duration::from_secs(60),
        }
    }
}

impl std::fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpListener({}, {:?})", self.address, self.metrics)
    }
}
