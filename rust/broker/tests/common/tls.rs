//! Certificates of a test's own, and clients that speak TLS; for the tests of this crate alone.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqttcore_broker::Config;
use mqttcore_broker::tls::rustls::crypto::ring;
use mqttcore_broker::tls::rustls::pki_types::pem::PemObject;
use mqttcore_broker::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use mqttcore_broker::tls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use mqttcore_broker::tls::{ClientCertificates, TlsSettings};
use mqttcore_tls::{MadeFiles, make_files};

use crate::common::{DEADLINE, config};

/// A folder with a CA and certificates, which goes with the test.
pub struct Files {
    pub made: MadeFiles,
    folder: PathBuf,
}

impl Files {
    /// For a server named localhost, and a client named `client`.
    pub fn new(client: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mqttcore-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = make_files(&folder, &hosts, client).expect("the files are written");
        Self { made, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What a listener says that presents the server's certificate.
    pub fn settings(&self) -> TlsSettings {
        TlsSettings::new(&self.made.server, &self.made.server_key)
    }

    /// The same, and clients need certificates.
    pub fn mutual(&self) -> TlsSettings {
        TlsSettings {
            client_certificates: ClientCertificates::Required,
            client_ca: Some(self.made.ca.clone()),
            ..self.settings()
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The listener of every test, with TLS.
pub fn tls_config(settings: TlsSettings) -> Config {
    let mut config = config();
    config.listeners[0].tls = Some(settings);
    config
}

/// How a client of TLS is set up.
pub struct Dial<'a> {
    pub ca: &'a Path,
    pub versions: &'a [&'static SupportedProtocolVersion],
    /// Certificate and key.
    pub own: Option<(&'a Path, &'a Path)>,
    pub host: &'static str,
    pub alpn: &'static [&'static str],
}

/// A client's end, over TLS.
pub type TlsSocket = StreamOwned<ClientConnection, TcpStream>;

impl<'a> Dial<'a> {
    pub fn new(ca: &'a Path) -> Self {
        Self {
            ca,
            versions: mqttcore_broker::tls::rustls::ALL_VERSIONS,
            own: None,
            host: "localhost",
            alpn: &[],
        }
    }

    pub fn with(files: &'a Files) -> Self {
        Self {
            own: Some((&files.made.client, &files.made.client_key)),
            ..Self::new(&files.made.ca)
        }
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for root in certificates(self.ca) {
            roots.add(root).expect("a CA");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(self.versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match self.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                builder
                    .with_client_auth_cert(certificates(certificate), key)
                    .expect("a pair")
            }
        };
        config.alpn_protocols = self
            .alpn
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Arc::new(config)
    }

    /// Does the whole handshake.
    pub fn open(&self, address: SocketAddr) -> io::Result<TlsSocket> {
        open(self.config(), self.host, address)
    }

    /// Sends CONNECT; the connection once it has its CONNACK.
    pub fn connect(&self, address: SocketAddr, client_id: &str) -> io::Result<TlsSocket> {
        let mut socket = self.open(address)?;
        socket.write_all(&connect_packet(client_id))?;
        let mut connack = [0; 4];
        socket.read_exact(&mut connack)?;
        assert_eq!(connack, *b"\x20\x02\x00\x00", "{client_id}");
        Ok(socket)
    }
}

pub fn open(
    config: Arc<ClientConfig>,
    host: &'static str,
    address: SocketAddr,
) -> io::Result<TlsSocket> {
    let tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(DEADLINE))?;
    tcp.set_write_timeout(Some(DEADLINE))?;
    tcp.set_nodelay(true)?;
    let host = ServerName::try_from(host).expect("a name");
    let session = ClientConnection::new(config, host).map_err(io::Error::other)?;
    let mut socket = StreamOwned::new(session, tcp);
    while socket.conn.is_handshaking() {
        socket.conn.complete_io(&mut socket.sock)?;
    }
    Ok(socket)
}

/// CONNECT of 3.1.1, clean session, no keep alive.
pub fn connect_packet(client_id: &str) -> Vec<u8> {
    let len = u8::try_from(client_id.len()).expect("short");
    let mut packet = vec![0x10, 12 + len];
    packet.extend_from_slice(b"\x00\x04MQTT\x04\x02\x00\x00\x00");
    packet.push(len);
    packet.extend_from_slice(client_id.as_bytes());
    packet
}

pub fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_file_iter(path).expect("a file");
    all.map(|one| one.expect("a certificate")).collect()
}
