//! Options of the endpoint.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mqttcore_tls::TlsSettings;

/// Options of the endpoint: TCP address, keys and limits. Unix sockets in the data folder need no option.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// Serves health and metrics even if the broker has no streams.
    pub is_enabled: bool,
    /// Serves the page for operators.
    pub page: bool,
    /// Users may log in to the API through the plugins that authenticate MQTT clients.
    pub login: bool,
    /// Names that `Host` may have where an address or `localhost` is needed.
    pub hosts: Vec<String>,
    /// Optional parts of the build, for `mqttcore_build_info`.
    pub features: Vec<&'static str>,
    /// The TCP address, if there is one.
    pub tcp: Option<HttpListener>,
    /// File with the API keys; it need not exist yet.
    pub keys_file: Option<PathBuf>,
    /// Limits of connections, requests and responses.
    pub limits: HttpLimits,
}

/// Access to metrics over TCP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MetricsAccess {
    /// Clients with the access token.
    #[default]
    Token,
    /// Everybody.
    Open,
    /// Nobody.
    Off,
}

/// A TCP address of the endpoint.
#[derive(Clone, Eq, PartialEq)]
pub struct HttpListener {
    /// The address; port 0 selects a free port.
    pub address: SocketAddr,
    /// The access token; without one, only health is served, and metrics if they are open.
    pub token: Option<String>,
    /// Access to metrics.
    pub metrics: MetricsAccess,
    /// TLS settings; `None` for plain TCP.
    pub tls: Option<TlsSettings>,
}

/// Limits of connections, requests and responses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpLimits {
    /// Maximum number of connections of each socket.
    pub connections: usize,
    /// Maximum number of connections of one address at a TCP socket: an IPv4 address, or an IPv6 network of 64 bits.
    pub address_connections: usize,
    /// Maximum size of request line and headers in bytes.
    pub header_bytes: usize,
    /// Maximum size in bytes of a body that is read into memory.
    pub body_bytes: usize,
    /// Timeout for the headers of a request, from the moment at which the endpoint is ready to read it.
    pub header_deadline: Duration,
    /// Timeout for each chunk of a request body.
    pub body_deadline: Duration,
    /// Timeout for the peer to read each chunk of a response.
    pub stall_deadline: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            // Leaves a quarter of the connections to other addresses.
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
