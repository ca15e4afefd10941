//! Memory shortage: refusals, drops and slow reading, with their counters and log lines (ADR 0033).

use mqttcore_codec::QoS;

use crate::clients::client::Client;
use crate::config::Peer;
use crate::config::hooks::LogSubject;
use crate::runtime::log::{Escaped, LogCategory, LogEntry};
use crate::runtime::memory::MemoryLevel;
use crate::runtime::metrics::Metrics;
use crate::shard::Shard;

/// Bytes that may be queued in memory for a connected client, whatever the durability.
const HELD_ANYWAY: usize = 16 * 1024;

/// An action that is refused or slowed for lack of memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shortage {
    /// A publish of QoS 1 or 2 that would wait for a subscriber.
    Publish,
    /// A session that would outlive its connection.
    Session,
    /// A client with a large will.
    Will,
    /// A retained message of a new topic, or one that is larger than the last.
    Retained,
    /// A packet that is larger than the read buffer.
    Packet,
    /// A QoS 0 message for a client that does not take it at once.
    Delivery,
    /// A large sender, which is read slowly.
    Sender,
}

impl Shortage {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Publish => "memory is short, and the message would wait for a subscriber",
            Self::Session => "memory is short, and the session would be kept",
            Self::Will => "memory is short, and the will is larger than 1 KiB",
            Self::Retained => "memory is short, and the retained message takes more of it",
            Self::Packet => "memory is short, and the packet is larger than 64 KiB",
            Self::Delivery => "memory is short, and the client does not take it at once",
            Self::Sender => "memory is short, and its messages take most of it",
        }
    }

    fn category(self) -> LogCategory {
        match self {
            Self::Publish => LogCategory::MemoryPublish,
            Self::Session | Self::Will => LogCategory::MemorySession,
            Self::Retained => LogCategory::MemoryRetained,
            Self::Packet => LogCategory::MemoryPacket,
            Self::Delivery => LogCategory::MemoryDelivery,
            Self::Sender => LogCategory::MemorySender,
        }
    }
}

/// Logs a refusal for the client `id` at `peer`, at most one line a second for each reason.
pub(crate) fn log(shard: &Shard, shortage: Shortage, id: &str, peer: Peer) {
    shard.log.warn(shortage.category(), shard.now(), || {
        let subject = LogSubject {
            client_id: Some(id.into()),
            peer: Some(peer),
            ..LogSubject::default()
        };
        let who = format!("client {} at {peer}", Escaped(id));
        LogEntry::new("memory_short", text(shortage, &who), subject)
    });
}

/// Counts and logs what is refused to `client`; `None` is the broker itself.
pub(crate) fn report_of(shard: &Shard, shortage: Shortage, client: Option<&Client>) {
    let listener = client.and_then(Client::listener);
    count(shard.metrics(), shortage, listener);
    log_of(shard, shortage, client);
}

/// Counts a shortage for a client of `listener`.
fn count(metrics: &Metrics, shortage: Shortage, listener: Option<usize>) {
    let refusals = metrics.refusals(listener);
    let counter = match shortage {
        Shortage::Publish => &refusals.refused_memory,
        Shortage::Session | Shortage::Will => &refusals.refused_memory_sessions,
        Shortage::Retained => &refusals.refused_memory_retained,
        Shortage::Packet => &refusals.refused_memory_packets,
        Shortage::Delivery => return metrics.dropped_memory.count(QoS::AtMostOnce),
        Shortage::Sender => &refusals.slowed_memory,
    };
    counter.add(1);
}

/// Logs it, without the address of a client that was not here since the start.
pub(super) fn log_of(shard: &Shard, shortage: Shortage, client: Option<&Client>) {
    shard
        .log
        .warn(shortage.category(), shard.now(), || match client {
            None => text(shortage, "the broker").into(),
            Some(client) => client.log_entry("memory_short", text(shortage, &client.named())),
        });
}

fn text(shortage: Shortage, who: &str) -> String {
    format!("{} of {who}: {}", what(shortage), shortage.text())
}

fn what(shortage: Shortage) -> &'static str {
    match shortage {
        Shortage::Publish => "publish refused",
        Shortage::Session | Shortage::Will => "session refused",
        Shortage::Retained => "retained message refused",
        Shortage::Packet => "packet refused",
        Shortage::Delivery => "QoS 0 message dropped",
        Shortage::Sender => "sender slowed down",
    }
}

/// Whether nothing is taken that stays in memory. Before something is refused, the sum is looked at again.
pub(crate) fn is_full(shard: &Shard) -> bool {
    shard.memory_level() == MemoryLevel::Full && shard.engine.memory.judge() == MemoryLevel::Full
}

/// Whether a QoS 0 message for `client` is dropped because it would wait.
pub(crate) fn drops(shard: &Shard, client: &Client) -> bool {
    if shard.memory_level() < MemoryLevel::High {
        return false;
    }
    let link = client.link_ref();
    match &*link {
        Some(link) => link.outbox().is_blocked(),
        None => shard.config().limits.queue_qos0,
    }
}

/// Notes whether `client` holds much memory, for publishers of all shards; returns it.
pub(crate) fn count_held(shard: &Shard, client: &Client) -> bool {
    let holds_much = client.session.borrow().held_bytes() > HELD_ANYWAY;
    let (online, slot) = (&shard.engine.availability, client.handle.slot());
    let mut availability = online.availability(shard.index, slot);
    if availability.holds_much != holds_much {
        availability.holds_much = holds_much;
        online.set(shard.index, slot, availability);
    }
    holds_much
}

/// Whether memory is short, so that each session's share of it matters.
pub(crate) fn is_short(shard: &Shard) -> bool {
    shard.memory_level() >= MemoryLevel::High
}

/// Spills a queue to the store, as far as the store has it, if memory is short.
pub(crate) fn relieve(shard: &Shard, client: &Client) {
    if !is_short(shard) || client.number(&shard.engine).is_none() {
        return;
    }
    let mut session = client.session.borrow_mut();
    if client.is_online() {
        if session.queue_memory_bytes() > HELD_ANYWAY {
            session.spill_behind();
        }
    } else if session.spill() {
        drop(session);
        // Pages of its queue are not needed any more.
        shard.pagings.borrow_mut().stop(client);
        client.weigh(shard);
    }
}
