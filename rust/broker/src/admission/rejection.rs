//! Rejected connections: counters, log lines, plugin events and the reply to the client.

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use mqttcore_codec::{DecodeError, Packet, ReasonCode, encode};
use mqttcore_session::{ConnAckFormat, Details, Violation};

use crate::admission::denial_cause::DenialCause;
use crate::clients::connections::{ConnectionLimit, ConnectionSlot};
use crate::clients::traces::TraceDirection;
use crate::config::Peer;
use crate::config::hooks::{LogSubject, Login};
use crate::config::listener_policy::ListenerPolicy;
use crate::config::plugin_event::{EventKind, PluginEvent};
use crate::connection::linger::linger;
use crate::connection::proxy_header::{InvalidProxyHeader, ProxyHeader};
use crate::runtime::log::{Escaped, LogCategory, LogEntry};
use crate::runtime::metrics::RefusalCounters;
use crate::shard::Shard;
use crate::shard::guard::{CONNECTION, guarded};
use crate::transport::MovingTransport;
use crate::transport::socket::FramingError;
use crate::transport::websocket;

/// Why a connection is rejected.
pub(crate) enum RejectReason {
    /// The socket ended, or the deadline passed: no reply is possible or allowed.
    Silent(&'static str),
    /// The bytes are not a packet; with the reply, which may be empty.
    Malformed(DecodeError, Vec<u8>),
    /// The bytes are not a valid WebSocket request; with the HTTP response.
    Upgrade(websocket::Refused),
    /// The bytes are not valid WebSocket frames.
    Unframed(FramingError),
    /// The PROXY header is invalid, or its proxy is not trusted.
    Proxy(InvalidProxyHeader),
    /// The TLS handshake failed, or the client's certificate has no identity.
    Tls(String),
    /// A packet violates the protocol.
    Violation(ConnAckFormat, Violation),
    /// CONNECT is valid, but the client is not admitted.
    Denied(Box<RejectedClient>),
}

impl RejectReason {
    /// The category of the log line: each counter has its own, so that a flood of one does not hide the others.
    fn category(&self) -> LogCategory {
        match self {
            Self::Denied(denied) => denied.cause.category(),
            Self::Silent(_) => LogCategory::Unanswered,
            _ if self.is_about_version() => LogCategory::ProtocolVersion,
            _ => LogCategory::Protocol,
        }
    }

    /// Counts the rejection, and why.
    fn count(&self, refusals: &RefusalCounters) {
        refusals.connects_refused.add(1);
        if self.reason().is_none() {
            refusals.connects_unanswered.add(1);
        }
        match self {
            Self::Denied(denied) => denied.cause.counter(refusals).add(1),
            _ if self.is_about_version() => refusals.connects_refused_protocol_version.add(1),
            // It has sent nothing wrong; it counts as unanswered.
            Self::Silent(_) => {}
            _ => refusals.connects_refused_protocol.add(1),
        }
    }

    /// The reason code of CONNACK; `None` if the connection is closed without CONNACK.
    fn reason(&self) -> Option<ReasonCode> {
        match self {
            Self::Malformed(error, answer) => (!answer.is_empty()).then(|| error.reason_code()),
            Self::Violation(_, violation) => Some(violation.reason),
            Self::Denied(denied) => Some(denied.reason),
            _ => None,
        }
    }

    /// The reason, for the log.
    fn text(&self) -> String {
        match self {
            Self::Silent(why) => (*why).to_owned(),
            Self::Malformed(error, _) => error.to_string(),
            Self::Upgrade(refused) => refused.why.to_owned(),
            Self::Unframed(fault) => fault.to_string(),
            Self::Proxy(error) => error.to_string(),
            Self::Tls(error) => format!("TLS: {error}"),
            Self::Violation(_, violation) => violation.to_string(),
            Self::Denied(denied) => reason_text(denied),
        }
    }

    /// The last bytes for the client.
    fn reply(&self) -> Vec<u8> {
        let mut reply = Vec::new();
        match self {
            Self::Silent(_) | Self::Unframed(_) | Self::Proxy(_) | Self::Tls(_) => {}
            Self::Malformed(_, bytes) => reply.extend_from_slice(bytes),
            Self::Upgrade(refused) => reply.extend_from_slice(&refused.answer),
            Self::Violation(to, violation) => {
                to.refuse(
                    violation.reason,
                    Details::reason(violation.what),
                    &mut reply,
                );
            }
            Self::Denied(denied) => {
                let text = denied.text.as_deref();
                let details = text.map_or_else(Details::none, Details::reason);
                let server = denied.server.as_deref();
                let (to, reason) = (denied.to, denied.reason);
                to.redirect(reason, server, details, &mut reply);
            }
        }
        reply
    }

    /// Whether the protocol version of CONNECT is the reason.
    fn is_about_version(&self) -> bool {
        match self {
            Self::Malformed(error, _) => matches!(error, DecodeError::ProtocolLevel { .. }),
            Self::Violation(_, violation) => {
                violation.reason == ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
            }
            _ => false,
        }
    }
}

/// A rejected client, with the reason.
pub(crate) struct RejectedClient {
    pub(crate) login: Arc<Login>,
    pub(crate) to: ConnAckFormat,
    pub(crate) reason: ReasonCode,
    /// Reason string for the client, and for the log.
    pub(crate) text: Option<String>,
    /// For the log alone.
    pub(crate) fault: Option<String>,
    /// Server Reference: the server that the client is to use.
    pub(crate) server: Option<String>,
    pub(crate) cause: DenialCause,
}

impl RejectedClient {
    /// A rejection without a reason string.
    pub(crate) fn new(login: &Arc<Login>, to: ConnAckFormat, reason: ReasonCode) -> Self {
        Self {
            login: Arc::clone(login),
            to,
            reason,
            text: None,
            fault: None,
            server: None,
            cause: DenialCause::Login,
        }
    }

    pub(crate) fn because(self, cause: DenialCause) -> Self {
        Self { cause, ..self }
    }

    pub(crate) fn with_reason_string(self, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..self
        }
    }
}

impl From<RejectedClient> for RejectReason {
    fn from(denied: RejectedClient) -> Self {
        Self::Denied(Box::new(denied))
    }
}

/// The rejection of a banned client; `None` if it is not banned.
pub(crate) fn reject_banned(
    shard: &Shard,
    login: &Arc<Login>,
    to: ConnAckFormat,
) -> Option<RejectedClient> {
    let is_banned = shard.engine.bans.covers(login, shard.refresh_now());
    is_banned
        .then(|| RejectedClient::new(login, to, ReasonCode::BANNED).because(DenialCause::Banned))
}

/// Counts and logs a rejection and notifies the plugins; returns the last bytes for the client.
pub(crate) fn reject(
    shard: &Rc<Shard>,
    peer: Peer,
    (index, listener): (usize, &str),
    rejection: &RejectReason,
) -> Vec<u8> {
    let now = shard.refresh_now();
    if let RejectReason::Denied(denied) = rejection {
        notify_denied(shard, denied);
    }
    let metrics = shard.metrics();
    rejection.count(metrics.refusals(Some(index)));
    if let Some(reason) = rejection.reason() {
        metrics.tallies.connects.count(reason);
    }
    shard.log.warn(rejection.category(), now, || {
        let why = rejection.text();
        let text = format!("listener {listener}: {peer} refused: {why}");
        let subject = match rejection {
            RejectReason::Denied(denied) => LogSubject::of_login(&denied.login),
            _ => LogSubject::of_peer(peer, listener),
        };
        LogEntry::new("refused", text, subject).with_reason(rejection.reason())
    });
    let reply = rejection.reply();
    let text = || format!("refused: {}", rejection.text());
    match rejection {
        RejectReason::Denied(denied) => {
            shard.trace_login(&denied.login, TraceDirection::Out, &reply);
        }
        _ => shard.trace_rejection(peer, text),
    }
    reply
}

/// Counts and logs a connection above a limit; it gets no reply.
///
/// Longer than other functions: one match.
pub(crate) fn reject_connection(
    shard: &Shard,
    limit: ConnectionLimit,
    peer: Peer,
    (index, listener): (usize, &str),
) {
    let refusals = shard.metrics().refusals(Some(index));
    let (counter, category, why) = match limit {
        ConnectionLimit::Full => (
            &refusals.connections_refused_full,
            LogCategory::Connections,
            "too many connections",
        ),
        ConnectionLimit::ListenerConnections => (
            &refusals.connections_refused_listener,
            LogCategory::ListenerConnections,
            "the listener has too many connections",
        ),
        ConnectionLimit::ListenerRate => (
            &refusals.connections_refused_listener_rate,
            LogCategory::ListenerRate,
            "too many connections a second",
        ),
        ConnectionLimit::AddressConnections => (
            &refusals.connections_refused_address,
            LogCategory::AddressConnections,
            "its address has too many connections",
        ),
        ConnectionLimit::AddressPending => (
            &refusals.connections_refused_address_pending,
            LogCategory::AddressPending,
            "its address has too many connections without CONNACK",
        ),
        ConnectionLimit::AddressRate => (
            &refusals.connections_refused_address_rate,
            LogCategory::AddressRate,
            "its address has too many connections a second",
        ),
    };
    refusals.connections_refused.add(1);
    counter.add(1);
    shard.log.warn(category, shard.refresh_now(), || {
        let text = format!("listener {listener}: {peer} refused: {why}");
        LogEntry::new("refused", text, LogSubject::of_peer(peer, listener))
    });
}

fn reason_text(denied: &RejectedClient) -> String {
    let id = Escaped(&denied.login.client_id);
    let mut words = format!("client {id}: {}", denied.reason.name());
    for more in [&denied.text, &denied.fault].into_iter().flatten() {
        // Writing to a string does not fail.
        let _ = write!(words, ": {}", Escaped(more));
    }
    words
}

/// A hint if the first bytes of a connection belong to another protocol (abuse A15).
pub(crate) fn foreign_protocol(bytes: &[u8], policy: &ListenerPolicy) -> Option<&'static str> {
    let is_connect = |level: &[u8]| {
        bytes.first() == Some(&0x10) && bytes.windows(level.len()).any(|window| window == level)
    };
    let begins = |words: &[&str]| words.iter().any(|word| bytes.starts_with(word.as_bytes()));
    if bytes.starts_with(&[0x16, 0x03]) {
        Some(
            "TLS on a listener without TLS: connect without it, or give the listener a certificate",
        )
    } else if is_connect(b"\0\x04MQTT") || is_connect(b"\0\x06MQIsdp") {
        Some("MQTT without TLS on a listener with TLS: connect with TLS")
    } else if begins(&["GET ", "HEAD ", "POST ", "PUT ", "OPTIONS ", "CONNECT "]) {
        Some(
            "HTTP on a listener that is not for it: WebSocket clients need one with transport = \"websocket\"",
        )
    } else if begins(&["SSH-"]) {
        Some("SSH on a listener for MQTT")
    } else if !ProxyHeader::begins(bytes) {
        None
    } else if policy.proxies.is_empty() {
        Some(
            "a PROXY header on a listener that does not take any: list the proxy in its proxy_from",
        )
    } else {
        Some("a PROXY header behind a PROXY header: only one of two proxies in a row may send it")
    }
}

/// The rejection of a malformed CONNECT, with a CONNACK where the specification allows one.
pub(crate) fn broken_connect(
    bytes: &[u8],
    error: DecodeError,
    policy: &ListenerPolicy,
) -> RejectReason {
    if let Some(hint) = foreign_protocol(bytes, policy)
        && bytes.first() != Some(&0x10)
    {
        return RejectReason::Silent(hint);
    }
    let mut reply = Vec::new();
    if let Some((version, connack)) = mqttcore_codec::connack_for_error(bytes, error) {
        let encoded = encode(&Packet::ConnAck(connack), version, &mut reply);
        debug_assert!(encoded.is_ok(), "a bare CONNACK encodes");
    }
    RejectReason::Malformed(error, reply)
}

fn notify_denied(shard: &Rc<Shard>, denied: &RejectedClient) {
    if shard.interests().wants(EventKind::AuthFailed) {
        shard.notify_plugins(PluginEvent {
            kind: EventKind::AuthFailed,
            client_id: Arc::clone(&denied.login.client_id),
            username: denied.login.username.clone(),
            peer: Some(denied.login.peer),
            topic: None,
            reason: Some(denied.reason),
            at: SystemTime::now(),
        });
    }
}

/// Rejects an authenticated client that may not have the session.
pub(crate) fn reject_on_shard(
    shard: &Rc<Shard>,
    (transport, slot): (MovingTransport, ConnectionSlot),
    denied: RejectedClient,
) {
    let (peer, listener) = (denied.login.peer, Arc::clone(&denied.login.listener));
    let listener = (usize::from(slot.listener()), listener.as_str());
    let reply = reject(shard, peer, listener, &denied.into());
    let own = Rc::clone(shard);
    let task = async move {
        if let Ok(transport) = transport.arrive() {
            linger(&own, transport, reply).await;
        }
    };
    let task = guarded(Rc::clone(shard), CONNECTION, task, |_| {});
    tokio::task::spawn_local(async move {
        task.await;
        drop(slot);
    });
}
