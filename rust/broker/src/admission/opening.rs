//! Layers below the packets of a new connection: PROXY header, TLS, WebSocket request.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_tls::ClientCertificate;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::admission::rejection::{RejectReason, reject_connection};
use crate::admission::{proxy, tls};
use crate::clients::connections::ConnectionSlot;
use crate::config::Peer;
use crate::config::listener_policy::ListenerPolicy;
use crate::connection::proxy_header::{ProxiedCertificate, ProxyHeader};
use crate::shard::Shard;
use crate::transport::Transport;
use crate::transport::socket::Socket;
use crate::transport::websocket::{self, Framing, WebSocket};

/// A connection after PROXY header, TLS handshake and WebSocket upgrade.
pub(crate) struct Connected {
    pub(crate) peer: Peer,
    pub(crate) proxied: Option<ProxiedCertificate>,
    pub(crate) transport: Transport,
}

/// Reads the PROXY header and opens TLS and WebSocket; `None` if the client behind a proxy is above a limit of its
/// address.
///
/// Longer than other functions: the layers of a connection, in their order.
pub(crate) async fn connected(
    shard: &Rc<Shard>,
    mut tcp: TcpStream,
    peer: Peer,
    policy: &ListenerPolicy,
    slot: &mut ConnectionSlot,
    deadline: Instant,
) -> Option<(Connected, Result<Opened, RejectReason>)> {
    let proxied = if policy.proxies.is_empty() {
        Ok(ProxyHeader::default())
    } else {
        // Boxed, so that other handshakes do not need its space.
        Box::pin(proxy::accept(shard, &mut tcp, peer, policy, deadline)).await
    };
    let proxied = match proxied {
        Ok(proxied) => proxied,
        Err(refusal) => {
            let connected = Connected {
                peer,
                proxied: None,
                transport: Transport::Stream(Socket::Plain(tcp)),
            };
            return Some((connected, Err(refusal)));
        }
    };
    let peer = proxied.source.map_or(peer, Peer::from);
    if let Some(source) = proxied.source {
        let now = shard.refresh_now();
        if let Err(limit) = slot.assign(source.ip(), &shard.config(), now) {
            let listener = (usize::from(slot.listener()), policy.name.as_str());
            reject_connection(shard, limit, peer, listener);
            return None;
        }
    }
    let (transport, opened) = open(shard, tcp, policy, deadline).await;
    let connected = Connected {
        peer,
        proxied: proxied.certificate,
        transport,
    };
    Some((connected, opened))
}

/// Result of opening TLS and WebSocket.
pub(crate) struct Opened {
    /// The client's certificate, verified.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// The first bytes of packets.
    pub(crate) bytes: Vec<u8>,
}

/// Opens TLS and WebSocket as the listener has them, and returns the first bytes of packets.
async fn open(
    shard: &Shard,
    tcp: TcpStream,
    policy: &ListenerPolicy,
    deadline: Instant,
) -> (Transport, Result<Opened, RejectReason>) {
    let (mut stream, certificate) = match &policy.tls {
        None => (Socket::Plain(tcp), Ok(None)),
        // Boxed, so that other handshakes do not need its space.
        Some(server) => Box::pin(tls::accept(shard, tcp, (server, policy), deadline)).await,
    };
    let certificate = match certificate {
        Ok(certificate) => certificate,
        Err(refusal) => return (Transport::Stream(stream), Err(refusal)),
    };
    let opened = |bytes| Opened { certificate, bytes };
    let Some(rules) = &policy.websocket else {
        return (Transport::Stream(stream), Ok(opened(Vec::new())));
    };
    match websocket::accept(&mut stream, rules, deadline, shard.metrics()).await {
        Ok(mut bytes) => {
            let mut framing = Framing::default();
            let kept = framing.decode(&mut bytes);
            bytes.truncate(kept);
            let socket = WebSocket::new(stream, framing);
            (Transport::WebSocket(Box::new(socket)), Ok(opened(bytes)))
        }
        Err(refused) => {
            let refusal = RejectReason::Upgrade(refused);
            (Transport::Stream(stream), Err(refusal))
        }
    }
}
