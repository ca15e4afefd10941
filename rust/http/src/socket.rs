//! Sockets of the endpoint: bind and accept.

use std::fs;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{UnixAddress, bind as bind_tcp, bind_unix, is_one_sockets_fault};
use mqttcore_tls::{Loaded, TlsConfig, TlsServer};
use rustix::process::geteuid;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access::SocketAccess;
use crate::connection::HttpConnections;
use crate::{BindError, HttpListener};

/// Pause of the acceptor if the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
pub(super) enum HttpSocket {
    Unix(StdUnixListener),
    Tcp(std::net::TcpListener, SocketAccess, Option<Arc<TlsServer>>),
}

/// Binds the Unix sockets, replacing old ones, and the address of `tcp`; appends warnings about certificates.
///
/// # Errors
///
/// The path or address that cannot be bound, and the error of the system.
pub(super) fn bind(
    paths: &[PathBuf],
    tcp: Option<&HttpListener>,
    warnings: &mut Vec<String>,
) -> Result<Vec<HttpSocket>, BindError> {
    let mut sockets = Vec::new();
    for path in paths {
        let unix = bind_own(path).map_err(|error| BindError::at(path, error))?;
        sockets.push(HttpSocket::Unix(unix));
    }
    if let Some(tcp) = tcp {
        let socket = bind_tcp(tcp.address).map_err(|error| BindError {
            place: tcp.address.to_string(),
            error,
        })?;
        let (server, lines) = load_tls(tcp)?
            .map(|loaded| (Arc::new(loaded.server), loaded.warnings))
            .unzip();
        warnings.extend(lines.unwrap_or_default());
        let access = SocketAccess::Token {
            token: tcp.token.as_deref().map(Arc::from),
            metrics: tcp.metrics,
            is_tls: tcp.tls.is_some(),
        };
        sockets.push(HttpSocket::Tcp(socket, access, server));
    }
    Ok(sockets)
}

/// Loads the certificate files of `tcp`; `None` without TLS.
///
/// # Errors
///
/// The address, and why the files cannot be used.
pub(super) fn load_tls(tcp: &HttpListener) -> Result<Option<Loaded>, BindError> {
    let tls = tcp.tls.clone();
    let loaded = tls.map(|tls| TlsServer::load(tls, &["http/1.1"]));
    loaded.transpose().map_err(|error| BindError {
        place: tcp.address.to_string(),
        error: io::Error::other(error),
    })
}

/// Binds a Unix socket at `path` and removes an old file there: this process has locked the data folder.
fn bind_own(path: &Path) -> io::Result<StdUnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    bind_unix(&UnixAddress {
        path: path.to_owned(),
        mode: 0o600,
        group: None,
    })
}

impl HttpSocket {
    /// The address of a TCP socket; `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(socket, ..) => socket.local_addr().ok(),
        }
    }

    /// The TLS configuration, if the socket has one.
    pub(super) fn tls(&self) -> Option<Arc<TlsServer>> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(_, _, tls) => tls.clone(),
        }
    }

    /// Registers the socket with the tokio runtime of this thread.
    pub(super) fn open(self) -> io::Result<HttpAcceptor> {
        Ok(match self {
            Self::Unix(socket) => HttpAcceptor::Unix(UnixListener::from_std(socket)?),
            Self::Tcp(socket, access, tls) => {
                HttpAcceptor::Tcp(TcpListener::from_std(socket)?, access, tls)
            }
        })
    }
}

/// A socket that is registered with the runtime.
pub(super) enum HttpAcceptor {
    Unix(UnixListener),
    Tcp(TcpListener, SocketAccess, Option<Arc<TlsServer>>),
}

impl HttpAcceptor {
    /// Accepts until the endpoint stops.
    pub(super) async fn accept(self, connections: Rc<HttpConnections>) {
        loop {
            match connections
                .unless_stopped(self.accept_one(&connections))
                .await
            {
                None => return,
                Some(Err(error)) if !is_one_sockets_fault(&error) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Some(_) => {}
            }
        }
    }

    async fn accept_one(&self, connections: &Rc<HttpConnections>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                let peer = stream.peer_cred().map(|peer| peer.uid());
                if is_trusted(peer, geteuid().as_raw()) {
                    connections.serve(ready(Ok(stream)), None, SocketAccess::Known);
                }
            }
            Self::Tcp(socket, access, tls) => {
                let (stream, peer) = socket.accept().await?;
                let peer = Some(peer.ip());
                stream.set_nodelay(true)?;
                let access = access.clone();
                match tls {
                    None => connections.serve(ready(Ok(stream)), peer, access),
                    Some(server) => {
                        connections.serve(open_tls(server.config(), stream), peer, access);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Does the TLS handshake; the certificate of a resumed session is verified again.
async fn open_tls(config: TlsConfig, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let stream = TlsAcceptor::from(config.server()).accept(stream).await?;
    let (_, session) = stream.get_ref();
    config.verify_resumed(session).map_err(io::Error::other)?;
    Ok(stream)
}

/// Whether the peer's process belongs to root or to the broker's user, and so can read the data folder anyway. If the
/// system does not report the user, the peer is not trusted.
fn is_trusted(peer: io::Result<u32>, own: u32) -> bool {
    peer.is_ok_and(|user| user == 0 || user == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_brokers_own_user_and_root_come_in_through_the_unix_socket() {
        assert!(is_trusted(Ok(1_000), 1_000));
        assert!(is_trusted(Ok(0), 1_000));
        assert!(!is_trusted(Ok(1_001), 1_000));
        assert!(!is_trusted(Ok(1_000), 0));
        assert!(!is_trusted(Err(io::ErrorKind::Unsupported.into()), 1_000));
    }
}
