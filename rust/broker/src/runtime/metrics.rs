//! Counters of one shard: written by its thread only, read by all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::tallies::TallyCounters;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the shard's own thread may call this.
    pub(crate) fn add(&self, count: u64) {
        // ORDERING: one writer; readers need only a recent value.
        self.0
            .store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Subtracts `count`. Only the shard's own thread may call this.
    pub(crate) fn sub(&self, count: u64) {
        // ORDERING: as in `add`.
        let value = self.0.load(Ordering::Relaxed).saturating_sub(count);
        self.0.store(value, Ordering::Relaxed);
    }

    /// Replaces the value. Only the shard's own thread may call this.
    pub(crate) fn set(&self, value: u64) {
        // ORDERING: as in `add`.
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        // ORDERING: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that the broker reports in `Broker::figures`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// Its name: a key of `stats()` in Python.
    pub name: &'static str,
    /// What it counts, in a sentence.
    pub meaning: &'static str,
    /// Its value now.
    pub value: u64,
}

impl Figure {
    /// Creates a figure.
    pub const fn new(name: &'static str, meaning: &'static str, value: u64) -> Self {
        Self {
            name,
            meaning,
            value,
        }
    }
}

/// Reports the figures of an extension of the broker.
pub trait Figures: Send + Sync {
    /// The figures, always the same ones; their names must differ from those of [`Stats`].
    fn figures(&self) -> Vec<Figure>;

    /// Bytes of memory that the extension holds for messages: part of the broker's budget. Called ten times a second.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Topics below `$SYS/` and their values that are due now. An empty value clears the topic.
    fn sys_topics(&self, stats: &Stats) -> Vec<(String, String)>;
}

macro_rules! counters {
    (
        of_shards: $($(#[doc = $doc:literal])+ $name:ident,)+
        of_broker: $($(#[doc = $broker_doc:literal])+ $of_broker:ident,)+
    ) => {
        /// One shard's counters, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Metrics {
            $($(#[doc = $doc])+ pub(crate) $name: Counter,)+
            /// Counters by packet type and by reason.
            pub(crate) tallies: TallyCounters,
        }

        /// Counters and gauges of the broker: the sums over all shards.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $($(#[doc = $broker_doc])+ pub $of_broker: u64,)+
        }

        impl Stats {
            /// Adds one shard's counters.
            pub(crate) fn add(&mut self, metrics: &Metrics) {
                $(self.$name += metrics.$name.value();)+
            }

            /// Every figure, in declaration order.
            pub fn figures(&self) -> Vec<Figure> {
                vec![
                    $(Figure::new(stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)+
                    $(Figure::new(stringify!($of_broker), concat!($($broker_doc),+).trim_ascii(), self.$of_broker),)+
                ]
            }
        }
    };
}

counters! {
    of_shards:

    /// Sockets accepted.
    connections_accepted,
    /// Sockets refused because of a limit.
    connections_refused,
    /// Those of them that found the broker full: connections, or connections without CONNACK.
    connections_refused_full,
    /// Those of them whose listener had too many connections.
    connections_refused_listener,
    /// Those of them whose listener had too many connections a second.
    connections_refused_listener_rate,
    /// Those of them whose address had too many connections.
    connections_refused_address,
    /// Those of them whose address had too many connections without CONNACK.
    connections_refused_address_pending,
    /// Those of them whose address had too many connections a second.
    connections_refused_address_rate,
    /// Sessions held now, connected or not.
    sessions,
    /// Sessions that ended by expiry.
    sessions_expired,
    /// Connections taken over by another one with the same client identifier.
    takeovers,
    /// Connections closed before CONNACK, without one.
    connects_unanswered,
    /// Connections of clients that ended without DISCONNECT: the client closed, or the network failed.
    connections_lost,
    /// CONNECT packets refused.
    connects_refused,
    /// Those of them that asked for a protocol version that is unknown or that the listener does not
    /// accept.
    connects_refused_protocol_version,
    /// Sockets refused because their address is banned.
    connections_refused_banned,
    /// Sockets refused because their listener is paused.
    connections_refused_paused,
    /// CONNECT packets refused because the client is banned.
    connects_refused_banned,
    /// Client identifiers that were banned because their clients connected too often.
    flapping_bans,
    /// CONNECT packets refused because their user, or their address if they have no user name, has too many sessions.
    connects_refused_user_sessions,
    /// Logins that failed: a plugin knew no such user, or another password.
    logins_failed,
    /// CONNECT packets refused because too many logins of their address, or with their user name, had failed.
    connects_refused_failed_logins,
    /// Bytes received.
    bytes_received,
    /// Bytes sent.
    bytes_sent,
    /// Bytes of payloads received.
    payload_bytes_received,
    /// Bytes of payloads sent, those of retained messages and repeats among them.
    payload_bytes_sent,
    /// Messages that sessions have queued or in flight now; a message for several sessions counts for each.
    session_messages,
    /// Packets now that wait for their connection to take them.
    waiting_packets,
    /// Their bytes.
    waiting_bytes,
    /// PUBLISH packets whose receivers a shard still knew from an earlier one.
    matches_cached,
    /// Messages of shared subscriptions that a member could not take and another one was given.
    shared_handed_on,
    /// Publishes and subscribes refused by permissions.
    denied,
    /// Connections closed because of malformed or unexpected packets.
    violations,
    /// Connections closed because the client was silent for too long.
    keep_alive_timeouts,
    /// Connections closed because the client took no bytes for too long.
    stalled,
    /// Connection tasks that panicked; their connection was closed, nothing else.
    panics,
    /// QoS 0 messages dropped because the client was slow.
    dropped_qos0_backlog,
    /// Messages dropped because a session's queue was full.
    dropped_queue_full,
    /// Messages that were acknowledged to their publisher, dropped because the queue of a kept session was full.
    dropped_acknowledged,
    /// Sessions whose queue takes more than 80 % of its limit now.
    queues_nearly_full,
    /// Messages dropped because they expired before they could be sent.
    dropped_expired,
    /// Messages dropped because the client takes no packet that large.
    dropped_too_large,
    /// QoS 0 messages dropped because the session has no connection.
    dropped_offline,
    /// Messages dropped because the receiver may not see the topic.
    dropped_denied,
    /// QoS 1 and 2 publishes refused because the disk is nearly full, or Kafka does not take them.
    refused_no_room,
    /// QoS 1 and 2 publishes refused because the queue of a kept session is full, or left unacknowledged after a wait.
    refused_queue_full,
    /// Publishes refused because more filters with wildcards agree with parts of their topic than a match may visit.
    refused_too_many_filters,
    /// QoS 1 and 2 publishes refused because memory is short, and they would have waited for a subscriber.
    refused_memory,
    /// Sessions refused because memory is short, and they would have been kept, or their will is larger than 1 KiB.
    refused_memory_sessions,
    /// Retained messages refused because memory is short.
    refused_memory_retained,
    /// Clients disconnected because memory is short, and they sent a packet of more than 64 KiB.
    refused_memory_packets,
    /// QoS 0 messages dropped because memory is short, and the client did not take them at once.
    dropped_memory,
    /// Times that a client was read slowly because memory is short, and its messages took most of it.
    slowed_memory,
    /// Old segments of the store that were read again.
    store_scrubbed,
    /// Those of them that were damaged.
    store_damaged,
    /// Retained messages refused because the store is full.
    dropped_retained_full,
    /// Retained messages refused because their user, or their address if they have no user name, has too many.
    refused_user_retained,
    /// Retained messages withheld from a new subscription: their publisher may not publish them any more.
    retained_withheld,
    /// Wills that were published later, because too many were due at once (`wills_per_second`).
    wills_delayed,
    /// Wills that were not published because their client may not.
    dropped_will,
    /// QoS 0 messages that became no row because the disk was busy or nearly full, or Kafka behind.
    dropped_stream_overload,
    /// QoS 1 and 2 messages that waited for a session, or were under way to it, when it ended; and those of shared
    /// subscriptions that came too late for it and that no other member could take.
    dropped_session_ended,

    of_broker:

    /// Clients connected now.
    clients_connected,
    /// PUBLISH packets received.
    messages_received,
    /// PUBLISH packets sent, retained ones and repeats among them.
    messages_sent,
    /// Packets received.
    packets_received,
    /// Packets sent.
    packets_sent,
    /// Sessions that were kept and are still being read, after a start; 1 while nobody knows
    /// how many.
    sessions_to_come,
    /// Subscriptions held, shared ones among them.
    subscriptions,
    /// Shared subscriptions held.
    shared_subscriptions,
    /// Blocks of the subscription directory.
    directory_nodes,
    /// Bytes that it replaced and that wait for readers.
    directory_retired_bytes,
    /// Changes that gave way to readers because too many of these waited.
    directory_garbage_waits,
    /// Messages retained, without the broker's own below `$SYS`.
    retained_messages,
    /// Entries written to the audit log.
    audit_entries,
    /// Entries of the audit log that could not be written.
    audit_lost,
    /// Whole seconds since the broker started.
    uptime_s,
    /// Bytes of memory that the broker may use: `memory_bytes`.
    memory_budget_bytes,
    /// Bytes that are used of it.
    memory_used_bytes,
    /// Those of messages: queued, in flight, retained, being written.
    memory_messages_bytes,
    /// Those of sessions and connections.
    memory_sessions_bytes,
    /// Those of connections whose client is not let in yet.
    memory_pending_bytes,
    /// Those of subscriptions, streams and the store.
    memory_tables_bytes,
}
