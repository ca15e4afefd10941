//! Facts about one client: its will, and counts of its recent events (ADR 0127).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_codec::QoS;
use mqttcore_session::WillMessage;

use crate::clients::client::Client;
use crate::config::plugin_event::EventKind;
use crate::shard::{RecentKind, Shard};

/// The will of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WillSummary {
    /// The topic, with the mount point of the client in front.
    pub topic: Arc<str>,
    /// The QoS.
    pub qos: QoS,
    /// Whether it will be retained.
    pub retain: bool,
    /// The Will Delay Interval in seconds.
    pub delay_s: u32,
}

impl From<&WillMessage> for WillSummary {
    fn from(will: &WillMessage) -> Self {
        Self {
            topic: will.message.topic().into(),
            qos: will.message.qos(),
            retain: will.message.retain(),
            delay_s: will.delay_s,
        }
    }
}

/// Counts of recent events of a client: those that the broker remembers.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventCounts {
    /// Messages that were dropped for it, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// How often another connection took its session over.
    pub takeovers: u64,
    /// Time since its session was created; `None`: that was before the start, or is forgotten.
    pub session_age: Option<Duration>,
}

impl EventCounts {
    pub(super) fn of(shard: &Shard, client: &Client) -> Self {
        let mut counts = Self::default();
        let events = shard.recent_events();
        let own = events.newest_first();
        for event in own.filter(|event| *event.client_id == client.id) {
            match event.kind {
                RecentKind::Client(EventKind::Dropped) => {
                    let why = event.why.unwrap_or("no reason known");
                    *counts.dropped.entry(why).or_default() += event.count;
                }
                RecentKind::Client(EventKind::SessionTakenOver) => counts.takeovers += event.count,
                RecentKind::Client(EventKind::SessionCreated) if counts.session_age.is_none() => {
                    counts.session_age = Some(shard.now().duration_since(event.last));
                }
                _ => {}
            }
        }
        counts
    }
}
