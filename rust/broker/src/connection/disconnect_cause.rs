//! Causes of disconnects: counters, log lines, the cause for the session and the reason for the client.

use std::fmt;

use mqttcore_codec::{DecodeError, ReasonCode};
use mqttcore_session::{Cause, Violation};

use crate::clients::client::Client;
use crate::clients::link::{Closing, Link};
use crate::connection::socket::FramingError;
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::Shard;

/// Why a connection ends.
pub(crate) enum DisconnectCause {
    /// The client closed, or the socket failed.
    Lost,
    /// The client sent DISCONNECT.
    Left(Cause),
    /// The bytes are not a valid packet.
    Malformed(DecodeError),
    /// A packet violates the protocol.
    Violation(Violation),
    /// The bytes are not valid WebSocket frames.
    Unframed(FramingError),
    /// A plugin or a limit ends the connection.
    Refused {
        /// Reason code of the DISCONNECT.
        reason: ReasonCode,
        /// Reason string; may be empty.
        text: Box<str>,
    },
    /// Code outside of the connection's task closes it.
    Closed(Closing),
}

/// Reason code and reason string of a DISCONNECT; an empty string is left out.
pub(crate) type DisconnectReason = (ReasonCode, Box<str>);

impl DisconnectCause {
    /// Counts and logs the disconnect; returns the cause for the session and the reason for the client.
    pub(crate) fn report_and_classify(
        &self,
        shard: &Shard,
        client: &Client,
        link: &Link,
    ) -> (Cause, Option<DisconnectReason>) {
        self.count(shard);
        match self {
            Self::Lost => (Cause::ConnectionLost, None),
            Self::Left(cause) => (*cause, None),
            Self::Closed(closing) => {
                let text = reason_text(*closing);
                let is_logged = closing.cause == Cause::ConnectionLost
                    && closing.reason == ReasonCode::QUOTA_EXCEEDED;
                if !is_logged {
                    let class = LogCategory::Disconnected;
                    report(shard, class, client, link, closing.reason, &text);
                }
                (closing.cause, Some((closing.reason, text.into())))
            }
            Self::Refused { reason, text } => {
                let class = LogCategory::Refused;
                report(shard, class, client, link, *reason, &Escaped(text));
                (Cause::Administrative, Some((*reason, text.clone())))
            }
            Self::Malformed(error) => {
                report_violation(shard, client, link, error.reason_code(), error);
                let text = error.to_string();
                (Cause::Violation, Some((error.reason_code(), text.into())))
            }
            Self::Unframed(fault) => {
                let reason = ReasonCode::MALFORMED_PACKET;
                report_violation(shard, client, link, reason, fault);
                (Cause::Violation, None)
            }
            Self::Violation(violation) => {
                report_violation(shard, client, link, violation.reason, violation);
                let text = violation.what;
                (Cause::Violation, Some((violation.reason, text.into())))
            }
        }
    }

    /// Counts the disconnect by side and reason.
    fn count(&self, shard: &Shard) {
        let metrics = shard.metrics();
        let closed = |reason| metrics.tallies.closed.count(reason);
        match self {
            Self::Lost => metrics.connections_lost.add(1),
            Self::Left(Cause::ClientDisconnectWithWill) => {
                metrics.tallies.left.count(ReasonCode::DISCONNECT_WITH_WILL);
            }
            Self::Left(_) => metrics.tallies.left.count(ReasonCode::NORMAL_DISCONNECTION),
            Self::Closed(closing) => closed(closing.reason),
            Self::Refused { reason, .. } => closed(*reason),
            Self::Malformed(error) => closed(error.reason_code()),
            Self::Unframed(_) => closed(ReasonCode::MALFORMED_PACKET),
            Self::Violation(violation) => closed(violation.reason),
        }
    }
}

/// The reason string for a connection that the broker closes.
pub(crate) fn reason_text(closing: Closing) -> &'static str {
    match closing.reason {
        ReasonCode::SESSION_TAKEN_OVER => "another connection took the session over",
        ReasonCode::KEEP_ALIVE_TIMEOUT => "no packet within 1.5 times the Keep Alive",
        ReasonCode::MAXIMUM_CONNECT_TIME => "the client's permissions have expired",
        ReasonCode::SERVER_SHUTTING_DOWN => "the broker is stopping",
        ReasonCode::QUOTA_EXCEEDED if closing.cause == Cause::ConnectionLost => {
            "the client does not read what the broker sends"
        }
        ReasonCode::QUOTA_EXCEEDED => "the queue of the session is full",
        ReasonCode::SERVER_BUSY => "Kafka did not accept a message",
        _ => "",
    }
}

fn report_violation(
    shard: &Shard,
    client: &Client,
    link: &Link,
    reason: ReasonCode,
    what: &dyn fmt::Display,
) {
    shard.metrics().violations.add(1);
    report(shard, LogCategory::Violation, client, link, reason, what);
}

/// Logs the disconnect: reason code, its name, and what happened.
fn report(
    shard: &Shard,
    class: LogCategory,
    client: &Client,
    link: &Link,
    reason: ReasonCode,
    what: &dyn fmt::Display,
) {
    shard.log.warn(class, shard.now(), || {
        let (id, peer) = (Escaped(&client.id), link.peer);
        let (code, name) = (reason.value(), reason.name());
        let text = format!("client {id} at {peer} disconnected: 0x{code:02X} {name}: {what}");
        let text = text.trim_end_matches(": ").to_owned();
        client
            .log_entry("disconnected", text)
            .with_reason(Some(reason))
    });
}
