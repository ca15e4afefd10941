//! Options of the endpoint.

use std::net::SocketAddr;
use std::time::Duration;

use mqttcore_tls::TlsSettings;

/// Where rows can be read, beside the Unix socket in the folder of the data, and by whom.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// Where rows can be read over TCP.
    pub tcp: Option<HttpListener>,
    /// What a peer may use.
    pub limits: HttpLimits,
}

/// A TCP address of the endpoint that serves streams.
#[derive(Clone, Eq, PartialEq)]
pub struct HttpListener {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// The access token that requests send.
    pub token: String,
    /// Certificates and what is asked of clients; `None`: nothing is encrypted.
    pub tls: Option<TlsSettings>,
}

/// What a peer of the streams' endpoint may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpLimits {
    /// Connections at once, a socket.
    pub connections: usize,
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
        write!(f, "HttpListener({}, a token)", self.address)
    }
}
