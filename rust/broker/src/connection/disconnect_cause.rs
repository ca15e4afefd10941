//! Causes of disconnects: counters, log lines, the cause for the session and the reason for the client.

use std::fmt;

use mqttcore_codec::{DecodeError, ReasonCode};
use mqttcore_session::{Cause, Violation};

use crate::clients::client::Client;
use crate::clients::link::{Closing, Link};
use crate::runtime::log::{Escaped, LogCategory};
use crate::runtime::metrics::Metrics;
use crate::shard::Shard;
use crate::transport::socket::FramingError;

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
    /// Counts and logs the disconnect. Those by the client or the network have a class of their own in the log.
    pub(crate) fn report(&self, shard: &Shard, client: &Client, link: &Link) {
        self.count(shard.metrics(), Some(usize::from(link.listener)));
        let Some(reason) = self.reason() else {
            let (code, why) = self.explanation();
            shard.log.warn(LogCategory::Left, shard.now(), || {
                let (id, peer) = (Escaped(&client.id), link.peer());
                let text = format!("client {id} at {peer} disconnected: {why}");
                client.log_entry("disconnected", text).with_reason(code)
            });
            return;
        };
        shard.trace_event(client, None, Some(reason), || {
            let text = format!("the broker disconnects it: {self}");
            text.trim_end_matches(": ").to_owned()
        });
        shard.log.warn(self.category(), shard.now(), || {
            let (id, peer) = (Escaped(&client.id), link.peer());
            let (code, name) = (reason.value(), reason.name());
            let text = format!("client {id} at {peer} disconnected: 0x{code:02X} {name}: {self}");
            let text = text.trim_end_matches(": ").to_owned();
            client
                .log_entry("disconnected", text)
                .with_reason(Some(reason))
        });
    }

    /// The cause for the session, and the reason for the client.
    pub(crate) fn classify(&self) -> (Cause, Option<DisconnectReason>) {
        match self {
            Self::Lost => (Cause::ConnectionLost, None),
            Self::Left(cause) => (*cause, None),
            Self::Closed(closing) => {
                let text = reason_text(*closing);
                (closing.cause, Some((closing.reason, text.into())))
            }
            Self::Refused { reason, text } => {
                (Cause::Administrative, Some((*reason, text.clone())))
            }
            Self::Malformed(error) => {
                let text = error.to_string();
                (Cause::Violation, Some((error.reason_code(), text.into())))
            }
            Self::Unframed(_) => (Cause::Violation, None),
            Self::Violation(violation) => {
                let text = violation.what;
                (Cause::Violation, Some((violation.reason, text.into())))
            }
        }
    }

    /// Reason code and reason in words, for explanations.
    pub(crate) fn explanation(&self) -> (Option<ReasonCode>, &'static str) {
        let why = match self {
            Self::Lost => "the connection was lost, or closed without DISCONNECT",
            Self::Left(Cause::ClientDisconnectWithWill) => {
                let why = "the client sent DISCONNECT with its will";
                return (Some(ReasonCode::DISCONNECT_WITH_WILL), why);
            }
            Self::Left(_) => {
                let why = "the client sent DISCONNECT";
                return (Some(ReasonCode::NORMAL_DISCONNECTION), why);
            }
            Self::Closed(closing) => reason_text(*closing),
            Self::Refused { .. } => "a plugin or a limit ends the connection",
            Self::Malformed(_) => "a packet of the client is malformed",
            Self::Unframed(_) => "the WebSocket frames of the client are not valid",
            Self::Violation(violation) => violation.what,
        };
        (self.reason(), why)
    }

    /// Counts the disconnect by side and reason.
    fn count(&self, metrics: &Metrics, listener: Option<usize>) {
        let (tallies, refusals) = (&metrics.tallies, metrics.refusals(listener));
        match self {
            Self::Lost => metrics.connections_lost.add(1),
            Self::Left(Cause::ClientDisconnectWithWill) => {
                tallies.left.count(ReasonCode::DISCONNECT_WITH_WILL);
            }
            Self::Left(_) => tallies.left.count(ReasonCode::NORMAL_DISCONNECTION),
            Self::Malformed(_) | Self::Unframed(_) | Self::Violation(_) => {
                refusals.violations.add(1);
            }
            Self::Closed(_) | Self::Refused { .. } => {}
        }
        if let Some(reason) = self.reason() {
            if reason == ReasonCode::MESSAGE_RATE_TOO_HIGH {
                refusals.refused_rate.add(1);
            }
            tallies.closed.count(reason);
        }
    }

    /// The reason code of the broker; `None` if the client or the network has ended the connection.
    fn reason(&self) -> Option<ReasonCode> {
        match self {
            Self::Lost | Self::Left(_) => None,
            Self::Closed(closing) => Some(closing.reason),
            Self::Refused { reason, .. } => Some(*reason),
            Self::Malformed(error) => Some(error.reason_code()),
            Self::Unframed(_) => Some(ReasonCode::MALFORMED_PACKET),
            Self::Violation(violation) => Some(violation.reason),
        }
    }

    fn category(&self) -> LogCategory {
        match self {
            Self::Closed(closing) if *closing == Closing::STALLED => LogCategory::Stalled,
            Self::Lost | Self::Left(_) | Self::Closed(_) => LogCategory::Disconnected,
            Self::Violation(violation) if violation.reason == ReasonCode::MESSAGE_RATE_TOO_HIGH => {
                LogCategory::Rate
            }
            Self::Refused { .. } => LogCategory::Refused,
            Self::Malformed(_) | Self::Unframed(_) | Self::Violation(_) => LogCategory::Violation,
        }
    }
}

/// The cause as text for the log.
impl fmt::Display for DisconnectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost | Self::Left(_) => Ok(()),
            Self::Closed(closing) => f.write_str(reason_text(*closing)),
            Self::Refused { text, .. } => write!(f, "{}", Escaped(text)),
            Self::Malformed(error) => write!(f, "{error}"),
            Self::Unframed(error) => write!(f, "{error}"),
            Self::Violation(violation) => write!(f, "{violation}"),
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
        _ if closing == Closing::STALLED => "the client does not read what the broker sends",
        ReasonCode::QUOTA_EXCEEDED => "the queue of the session is full",
        ReasonCode::SERVER_BUSY => "Kafka did not accept a message",
        _ => "",
    }
}
