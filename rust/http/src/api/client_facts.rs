//! Parts of the description of a client: transport, TLS, will, and counts of recent events.

use std::collections::BTreeMap;

use mqttcore_broker::{ClientSummary, EventCounts, Peer, TlsParameters, WillSummary};
use serde::Serialize;
use utoipa::ToSchema;

use super::page::ago_ms;

/// Counts of the recent events of a client, as `GET /explain/delivery` has them: old ones are forgotten.
#[derive(Serialize, ToSchema)]
pub(super) struct RecentCounts {
    /// Messages that were dropped for it, by reason; without QoS 0 messages that came while it was not connected.
    dropped: BTreeMap<&'static str, u64>,
    /// How often another connection took its session over.
    takeovers: u64,
    /// When its session was created, in Unix milliseconds; null: before the start of the broker, or it is forgotten.
    session_created_ms: Option<u64>,
}

impl From<EventCounts> for RecentCounts {
    fn from(counts: EventCounts) -> Self {
        Self {
            dropped: counts.dropped,
            takeovers: counts.takeovers,
            session_created_ms: counts.session_age.map(ago_ms),
        }
    }
}

/// The TLS of a connection.
#[derive(Serialize, ToSchema)]
pub(super) struct Tls {
    /// `1.2` or `1.3`.
    version: &'static str,
    /// The registered name of the cipher suite.
    cipher: String,
}

impl From<TlsParameters> for Tls {
    fn from(tls: TlsParameters) -> Self {
        Self {
            version: tls.version,
            cipher: tls.cipher,
        }
    }
}

/// A message that is published if the connection ends without a DISCONNECT that removes it.
#[derive(Serialize, ToSchema)]
pub(super) struct Will {
    topic: String,
    qos: u8,
    retain: bool,
    /// The Will Delay Interval in seconds.
    delay_s: u32,
}

impl From<WillSummary> for Will {
    fn from(will: WillSummary) -> Self {
        Self {
            topic: will.topic.to_string(),
            qos: will.qos as u8,
            retain: will.retain,
            delay_s: will.delay_s,
        }
    }
}

/// The transport of the connection of a client; `None`: it is not connected.
pub(super) fn transport(client: &ClientSummary) -> Option<&'static str> {
    Some(match (client.peer, client.channel?.is_websocket()) {
        (_, true) => "websocket",
        (Some(Peer::Unix { .. }), false) => "unix",
        _ => "tcp",
    })
}
