//! A TCP stream, or TLS on one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use mqttcore_tls::rustls::client::Resumption;
use mqttcore_tls::rustls::crypto::ring;
use mqttcore_tls::rustls::pki_types::pem::PemObject;
use mqttcore_tls::rustls::pki_types::{CertificateDer, ServerName};
use mqttcore_tls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use mqttcore_tls::rustls::{DEFAULT_VERSIONS, Stream as BlockingTls};

/// The host name that the broker's certificate is for.
const HOST: &str = "localhost";

/// A stream that blocks, until a [`Connection`](super::connection::Connection) takes it over.
#[derive(Debug)]
pub struct Stream {
    pub(super) tcp: TcpStream,
    pub(super) tls: Option<Box<ClientConnection>>,
}

/// What clients of TLS share: they believe one CA, and every connection makes a full handshake.
///
/// # Errors
///
/// When the file cannot be read, or has no certificate.
pub fn client_config(ca: &Path) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(io::Error::other)? {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(DEFAULT_VERSIONS)
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// TLS of one client, before its handshake.
///
/// # Errors
///
/// When rustls refuses the configuration.
pub(super) fn client(config: &Arc<ClientConfig>) -> io::Result<Box<ClientConnection>> {
    // INVARIANT: it is a DNS name.
    let host = ServerName::try_from(HOST).expect("a host name");
    let tls = ClientConnection::new(Arc::clone(config), host);
    let mut tls = tls.map_err(io::Error::other)?;
    // The load limits the messages in flight, and so the queued ones.
    tls.set_buffer_limit(None);
    Ok(Box::new(tls))
}

impl Stream {
    /// Puts TLS on `tcp` if there is a `config`; the first write makes the handshake.
    ///
    /// # Errors
    ///
    /// When rustls refuses the configuration.
    pub fn new(tcp: TcpStream, config: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        let tls = config.map(client).transpose()?;
        Ok(Self { tcp, tls })
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.read(bytes),
            Some(tls) => BlockingTls::new(&mut **tls, &mut self.tcp).read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.write(bytes),
            Some(tls) => BlockingTls::new(&mut **tls, &mut self.tcp).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => self.tcp.flush(),
            Some(tls) => BlockingTls::new(&mut **tls, &mut self.tcp).flush(),
        }
    }
}
