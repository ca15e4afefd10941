//! TLS handshakes of accepted sockets. A shard does one step of one handshake at a time; its other tasks run between two
//! steps.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_tls::{
    ClientCertificate, IdentityError, Refreshed, TlsConfig, TlsError, TlsServer, WATCH_EVERY,
};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use crate::admission::rejection::{RejectReason, foreign_protocol};
use crate::config::hooks::{LogLevel, LogLine};
use crate::config::listener_policy::ListenerPolicy;
use crate::runtime::log::LogCategory;
use crate::runtime::tallies::TransportKind;
use crate::shard::Shard;
use crate::transport::socket::{ReadEnd, Socket, receive_raw};
use crate::transport::tls::TlsStream;

/// Maximum bytes of a client's handshake; a chain of certificates has some thousands.
const HANDSHAKE_BYTES: usize = 32 * 1024;

/// Performs the TLS handshake on `tcp`.
///
/// The socket is returned even after an error, since an alert may still have to be written.
pub(crate) async fn accept(
    shard: &Shard,
    mut tcp: TcpStream,
    (server, policy): (&TlsServer, &ListenerPolicy),
    deadline: Instant,
) -> (Socket, Result<Option<Arc<ClientCertificate>>, RejectReason>) {
    // No TLS session is allocated for a client that sends nothing.
    let first = timeout_at(deadline, receive_first(shard, &mut tcp, policy)).await;
    let first = match first.unwrap_or_else(|_| Err(late())) {
        Ok(first) => first,
        Err(refusal) => return (Socket::Plain(tcp), Err(refusal)),
    };
    let config = server.config();
    let mut stream = match TlsStream::new(tcp, config.server()) {
        Ok(stream) => stream,
        Err((tcp, error)) => {
            let refusal = RejectReason::Tls(error.to_string());
            return (Socket::Plain(tcp), Err(refusal));
        }
    };
    let done = timeout_at(deadline, shake_hands(shard, &mut stream, &config, first)).await;
    let outcome = done.unwrap_or_else(|_| Err(late())).and_then(|()| {
        let certificate = stream.peer_certificate().map(|der| identity(der));
        let certificate = certificate.transpose();
        certificate.map_err(|error| RejectReason::Tls(error.to_string()))
    });
    (Socket::Tls(Box::new(stream)), outcome)
}

fn late() -> RejectReason {
    RejectReason::Silent("TLS handshake not finished before the deadline")
}

/// The first bytes of a client, if they may be TLS.
async fn receive_first(
    shard: &Shard,
    tcp: &mut TcpStream,
    policy: &ListenerPolicy,
) -> Result<Vec<u8>, RejectReason> {
    let first = receive(shard, tcp).await?;
    if first.first() == Some(&HANDSHAKE_RECORD) {
        return Ok(first);
    }
    let hint = foreign_protocol(&first, policy).unwrap_or("not TLS, on a listener with TLS");
    Err(RejectReason::Silent(hint))
}

async fn receive(shard: &Shard, tcp: &mut TcpStream) -> Result<Vec<u8>, RejectReason> {
    let mut bytes = Vec::new();
    let received = receive_raw(tcp, &mut bytes).await;
    let len = received
        .map_err(|_: ReadEnd| RejectReason::Silent("closed before the end of the TLS handshake"))?;
    let tallies = &shard.metrics().tallies;
    tallies.bytes_received.add(TransportKind::Tls, len);
    Ok(bytes)
}

async fn shake_hands(
    shard: &Shard,
    stream: &mut TlsStream,
    config: &TlsConfig,
    first: Vec<u8>,
) -> Result<(), RejectReason> {
    let (mut records, mut received) = (first, 0);
    loop {
        received += records.len();
        if received > HANDSHAKE_BYTES {
            return Err(RejectReason::Silent(
                "the TLS handshake is longer than 32 KiB",
            ));
        }
        step(shard, stream, config, &records).await?;
        flush(shard, stream).await?;
        if !stream.is_handshaking() {
            return Ok(());
        }
        records = receive(shard, stream.tcp_mut()).await?;
    }
}

/// Processes records of the handshake once no other handshake of the shard is processing.
async fn step(
    shard: &Shard,
    stream: &mut TlsStream,
    config: &TlsConfig,
    records: &[u8],
) -> Result<(), RejectReason> {
    let step = || {
        let done = stream.handshake(records, config);
        // A step that produced a reply or ended the handshake has signed or verified something.
        (done, stream.has_output() || !stream.is_handshaking())
    };
    let (done, _) = shard.handshakes.take(step, |(_, was_long)| *was_long).await;
    done.map_err(|error| RejectReason::Tls(error.to_string()))
}

async fn flush(shard: &Shard, stream: &mut TlsStream) -> Result<(), RejectReason> {
    let sent = std::future::poll_fn(|cx| stream.poll_flush(cx)).await;
    let sent = sent.map_err(|_| RejectReason::Silent("closed during the TLS handshake"))?;
    let tallies = &shard.metrics().tallies;
    tallies.bytes_sent.add(TransportKind::Tls, sent);
    Ok(())
}

/// The identity in a verified certificate.
fn identity(der: &[u8]) -> Result<Arc<ClientCertificate>, IdentityError> {
    ClientCertificate::parse(der).map(Arc::new)
}

/// Checks the certificate files of all listeners until the broker stops, reloads changed ones, and warns once a day about
/// certificates that expire soon.
pub(crate) async fn watch_files(shard: Rc<Shard>) {
    loop {
        sleep(WATCH_EVERY).await;
        for policy in shard.listener_policies().iter() {
            let Some(server) = policy.tls.clone() else {
                continue;
            };
            // Reading files blocks.
            let read = spawn_blocking(move || server.refresh()).await;
            let Ok(Some(outcome)) = read else { continue };
            report(&shard, &policy.name, outcome);
        }
    }
}

/// Logs the outcome of a check of certificate files. There are few lines, none of which another may displace.
fn report(shard: &Shard, listener: &str, outcome: Result<Refreshed, TlsError>) {
    match outcome {
        Ok(refreshed) => {
            if refreshed.is_reloaded {
                shard
                    .log
                    .say(format!("listener {listener}: certificates reloaded"));
            }
            for line in refreshed.warnings {
                let text = format!("listener {listener}: {line}");
                shard
                    .log
                    .write(LogLine::new(LogLevel::Warning, "tls", text));
            }
        }
        Err(error) => shard.log.warn(LogCategory::Tls, shard.refresh_now(), || {
            format!("listener {listener}: {error}; the previous certificates stay in use")
        }),
    }
}

/// The first byte of a TLS connection.
const HANDSHAKE_RECORD: u8 = 0x16;
