//! PROXY headers in front of connections: which peers may send them, and reading one.

use std::io;

use mqttcore_session::{SecretBuffer, wipe};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::admission::rejection::RejectReason;
use crate::config::Peer;
use crate::config::listener_policy::ListenerPolicy;
use crate::connection::proxy_header::{InvalidProxyHeader, ProxyHeader};
use crate::runtime::tallies::TransportKind;
use crate::shard::Shard;

/// Reads the PROXY header, for a listener behind proxies. Bytes after it stay in the socket.
///
/// # Errors
///
/// The peer is not in the list of proxies, or its header is invalid or late.
pub(crate) async fn accept(
    shard: &Shard,
    tcp: &mut TcpStream,
    peer: Peer,
    policy: &ListenerPolicy,
    deadline: Instant,
) -> Result<ProxyHeader, RejectReason> {
    if !policy.is_proxy(peer) {
        return Err(RejectReason::Silent(
            "the peer is not in proxy_from of the listener",
        ));
    }
    let header = timeout_at(deadline, receive(shard, tcp)).await;
    let header = header.unwrap_or(Err(RejectReason::Silent(
        "no PROXY header before the deadline",
    )))?;
    let expected = policy.alpn().as_bytes();
    let alpn = header.alpn.as_deref();
    if alpn.is_some_and(|alpn| alpn != expected) {
        let what = "the client has negotiated another protocol by ALPN";
        return Err(RejectReason::Proxy(InvalidProxyHeader(what)));
    }
    Ok(header)
}

/// Reads the header and no later byte.
async fn receive(shard: &Shard, tcp: &mut TcpStream) -> Result<ProxyHeader, RejectReason> {
    let closed = |_| RejectReason::Silent("closed before the end of the PROXY header");
    // What follows the header may be a CONNECT with a password.
    let (mut bytes, mut chunk) = (SecretBuffer::default(), [0; 512]);
    loop {
        let before = bytes.len();
        let peeked = tcp.peek(&mut chunk).await.map_err(closed)?;
        if peeked == 0 {
            return Err(closed(io::ErrorKind::UnexpectedEof.into()));
        }
        bytes.extend_from_slice(chunk.get(..peeked).unwrap_or_default());
        wipe(&mut chunk);
        let parsed = ProxyHeader::parse(&bytes).map_err(RejectReason::Proxy)?;
        let len = parsed.as_ref().map_or(bytes.len(), |(_, len)| *len);
        discard(tcp, len - before).await.map_err(closed)?;
        let tallies = &shard.metrics().tallies;
        tallies.bytes_received.add(TransportKind::Tcp, len - before);
        if let Some((header, _)) = parsed {
            return Ok(header);
        }
    }
}

/// Discards bytes that are in the socket.
async fn discard(tcp: &mut TcpStream, mut left: usize) -> io::Result<()> {
    let mut chunk = [0; 512];
    while left > 0 {
        tcp.readable().await?;
        match tcp.try_read(&mut chunk[..left.min(512)]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => left -= len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
