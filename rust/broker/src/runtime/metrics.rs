//! Counters of one shard: written by its thread only, read by all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::RateLimitKind;
use crate::config::measures::Tally;
use crate::config::topic_metrics::TopicMetric;
use crate::runtime::tallies::{self, DropCounters, TallyCounters, VersionCounters};
use crate::runtime::topic_counters::TopicCounters;

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
    /// Its meaning, in a sentence.
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

impl Metrics {
    /// Counters of one shard of a broker with so many listeners and these metrics of topics.
    pub(crate) fn new(listeners: usize, topics: &[TopicMetric]) -> Self {
        Self {
            topics: TopicCounters::new(topics),
            listeners: (0..listeners).map(|_| RefusalCounters::default()).collect(),
            clients: (0..listeners).map(|_| VersionCounters::default()).collect(),
            ..Self::default()
        }
    }

    /// The connected clients of the listener with this index.
    pub(crate) fn clients(&self, listener: u16) -> &VersionCounters {
        let own = self.clients.get(usize::from(listener));
        own.unwrap_or(&self.other_clients)
    }

    /// Number of connected clients of all listeners.
    pub(crate) fn clients_sum(&self) -> u64 {
        let all = self.clients.iter().chain([&self.other_clients]);
        all.map(VersionCounters::sum).sum()
    }

    /// The refusals of the listener with this index; `None`: of what came through no listener.
    pub(crate) fn refusals(&self, listener: Option<usize>) -> &RefusalCounters {
        let own = listener.and_then(|index| self.listeners.get(index));
        own.unwrap_or(&self.no_listener)
    }
}

impl RefusalCounters {
    /// The counter of waits because of this rate limit.
    pub(crate) fn held_back(&self, limit: RateLimitKind) -> &Counter {
        match limit {
            RateLimitKind::Messages => &self.held_back_messages,
            RateLimitKind::Bytes => &self.held_back_bytes,
            RateLimitKind::ControlPackets => &self.held_back_control_packets,
            RateLimitKind::RetainedBytes => &self.held_back_retained_bytes,
        }
    }
}

/// The refusals of the listener with this index, summed over all shards; `None`: of what came through no listener.
pub(crate) fn refusals(shards: &[Metrics], listener: Option<usize>) -> Refusals {
    let mut sum = Refusals::default();
    for metrics in shards {
        sum.add(metrics.refusals(listener));
    }
    sum
}

macro_rules! counters {
    (
        of_shards: $($(#[doc = $doc:literal])+ $name:ident,)+
        of_shards_by_qos: $($(#[doc = $drop_doc:literal])+ $dropped:ident,)+
        of_listeners: $($(#[doc = $listener_doc:literal])+ $of_listener:ident,)+
        of_broker: $($(#[doc = $broker_doc:literal])+ $of_broker:ident,)+
    ) => {
        /// One shard's counters, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Metrics {
            $($(#[doc = $doc])+ pub(crate) $name: Counter,)+
            $($(#[doc = $drop_doc])+ pub(crate) $dropped: DropCounters,)+
            /// Counters by packet type and by reason.
            pub(crate) tallies: TallyCounters,
            /// Refusals of each bound listener.
            listeners: Box<[RefusalCounters]>,
            /// Refusals of requests that came through no listener, or of clients that are gone.
            no_listener: RefusalCounters,
            /// Messages received on chosen topics.
            pub(crate) topics: TopicCounters,
            /// Connected clients of each bound listener, by protocol version.
            clients: Box<[VersionCounters]>,
            /// Connected clients of other listeners: none, except in tests.
            other_clients: VersionCounters,
        }

        /// Messages dropped for each reason, by the QoS of the delivery, summed over all shards.
        pub(crate) fn drops(shards: &[Metrics]) -> Vec<(&'static str, Tally)> {
            vec![$((
                stringify!($dropped),
                tallies::drops(&shards.iter().map(|shard| &shard.$dropped).collect::<Vec<_>>()),
            ),)+]
        }

        /// Accepted connections of one listener, and refusals of its connections and clients, on one shard.
        #[derive(Debug, Default)]
        pub(crate) struct RefusalCounters {
            $($(#[doc = $listener_doc])+ pub(crate) $of_listener: Counter,)+
        }

        /// Accepted connections of one listener, and refusals of its connections and clients: the sums over all shards.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct Refusals {
            $($(#[doc = $listener_doc])+ pub $of_listener: u64,)+
        }

        impl Refusals {
            fn add(&mut self, counters: &RefusalCounters) {
                $(self.$of_listener += counters.$of_listener.value();)+
            }

            /// Every figure, in declaration order; [`Stats`] has the sums over all listeners under the same names.
            pub fn figures(&self) -> Vec<Figure> {
                vec![
                    $(Figure::new(stringify!($of_listener), concat!($($listener_doc),+).trim_ascii(), self.$of_listener),)+
                ]
            }
        }

        /// Counters and gauges of the broker: the sums over all shards.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $($(#[doc = $drop_doc])+ pub $dropped: u64,)+
            $($(#[doc = $listener_doc])+ pub $of_listener: u64,)+
            $($(#[doc = $broker_doc])+ pub $of_broker: u64,)+
        }

        impl Stats {
            /// Adds one shard's counters.
            pub(crate) fn add(&mut self, metrics: &Metrics) {
                $(self.$name += metrics.$name.value();)+
                $(self.$dropped += metrics.$dropped.sum();)+
                for refusals in metrics.listeners.iter().chain([&metrics.no_listener]) {
                    $(self.$of_listener += refusals.$of_listener.value();)+
                }
            }

            /// Every figure, in declaration order.
            pub fn figures(&self) -> Vec<Figure> {
                vec![
                    $(Figure::new(stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)+
                    $(Figure::new(stringify!($dropped), concat!($($drop_doc),+).trim_ascii(), self.$dropped),)+
                    $(Figure::new(stringify!($of_listener), concat!($($listener_doc),+).trim_ascii(), self.$of_listener),)+
                    $(Figure::new(stringify!($of_broker), concat!($($broker_doc),+).trim_ascii(), self.$of_broker),)+
                ]
            }
        }
    };
}

counters! {
    of_shards:

    /// Sessions now, with or without a connection.
    sessions,
    /// Sessions that have expired.
    sessions_expired,
    /// Sessions that ended with their connection, since their expiry interval was 0.
    sessions_ended_disconnected,
    /// Sessions that ended because their client connected again with Clean Start, or may not resume them.
    sessions_ended_replaced,
    /// Sessions that operators have ended.
    sessions_ended_operator,
    /// Connections that another connection with the same client identifier took over.
    takeovers,
    /// Connections of clients that ended without DISCONNECT: the client closed the connection, or the network failed.
    connections_lost,
    /// Bans of client identifiers, each for one user, because clients connected too often.
    flapping_bans,
    /// Payload bytes of received PUBLISH packets.
    payload_bytes_received,
    /// Payload bytes of sent PUBLISH packets, including retained messages and repeats.
    payload_bytes_sent,
    /// Queued and in-flight messages of all sessions now; a message for several sessions counts for each.
    session_messages,
    /// Queued messages of all sessions now; a message for several sessions counts for each.
    queued_messages,
    /// Bytes of the queued messages of all sessions now; a message for several sessions counts for each.
    queued_bytes,
    /// QoS 1 and 2 messages now that were sent to clients and are not acknowledged.
    in_flight_out,
    /// QoS 2 messages of clients now that are not released.
    in_flight_in,
    /// Packets that wait for a socket now.
    waiting_packets,
    /// Bytes of the packets that wait for a socket now.
    waiting_bytes,
    /// PUBLISH packets whose subscribers were found in the cache of a shard.
    matches_cached,
    /// Messages of shared subscriptions that went to another member because the first one could not take them.
    shared_handed_on,
    /// Connections closed because the client sent nothing for 1.5 times its Keep Alive.
    keep_alive_timeouts,
    /// Connections closed because the client did not read for too long.
    stalled,
    /// Panics of the tasks of connections; only the connection was closed.
    panics,
    /// Acknowledged messages dropped because the queue of a kept session was full.
    dropped_acknowledged,
    /// Sessions now whose queue is more than 80 % full.
    queues_nearly_full,
    /// Old segments of the store whose checksums were verified.
    store_scrubbed,
    /// Old segments of the store that were found damaged.
    store_damaged,
    /// Retained messages not sent to a new subscription because their publisher may not publish to the topic any more.
    retained_withheld,
    /// Wills published later because more than `wills_per_second` were due at once.
    wills_delayed,

    of_shards_by_qos:

    /// QoS 0 messages dropped because the client read too slowly.
    dropped_qos0_backlog,
    /// Messages dropped because the queue of a session was full.
    dropped_queue_full,
    /// Messages dropped because they expired in a queue.
    dropped_expired,
    /// Messages dropped because they exceed the Maximum Packet Size of the client.
    dropped_too_large,
    /// QoS 0 messages dropped because the session has no connection.
    dropped_offline,
    /// Messages dropped because the subscriber has no permission for the topic.
    dropped_denied,
    /// QoS 0 messages dropped because memory is short and the client did not read them at once.
    dropped_memory,
    /// Wills not published because their client may not publish to the topic, or is banned.
    dropped_will,
    /// Messages that a plugin's hook dropped: of their publisher, a will, or for one subscriber.
    dropped_hook,
    /// QoS 0 messages that did not become rows of a stream because the disk or Kafka was too slow or nearly full.
    dropped_stream_overload,
    /// QoS 1 and 2 messages that were queued or in flight when their session ended, and those of shared subscriptions
    /// that no other member could take.
    dropped_session_ended,

    of_listeners:

    /// Accepted connections.
    connections_accepted,
    /// Connections closed at once because of a limit or a ban.
    connections_refused,
    /// Connections refused because the broker had its maximum of connections, or of connections without CONNACK.
    connections_refused_full,
    /// Connections refused because their listener had its maximum of connections.
    connections_refused_listener,
    /// Connections refused because their listener had its maximum of new connections in this second.
    connections_refused_listener_rate,
    /// Connections refused because their address had its maximum of connections.
    connections_refused_address,
    /// Connections refused because their address had its maximum of connections without CONNACK.
    connections_refused_address_pending,
    /// Connections refused because their address had its maximum of new connections in this second.
    connections_refused_address_rate,
    /// Connections refused because their address is banned.
    connections_refused_banned,
    /// Connections refused because their listener is paused.
    connections_refused_paused,
    /// Connections refused because the process had no free file descriptor.
    connections_refused_descriptors,
    /// Rejected CONNECT packets.
    connects_refused,
    /// Connections rejected because of a malformed CONNECT packet, or a faulty TLS handshake, WebSocket request or PROXY
    /// header.
    connects_refused_protocol,
    /// CONNECT packets rejected because of their protocol version: unknown, or not accepted by the listener.
    connects_refused_protocol_version,
    /// CONNECT packets rejected by a plugin, or because nobody admits the client.
    connects_refused_login,
    /// CONNECT packets rejected because too many logins from their address, or with their user name, had failed.
    connects_refused_failed_logins,
    /// CONNECT packets rejected because the client is banned.
    connects_refused_banned,
    /// CONNECT packets rejected because their user has the maximum of sessions, or their address if they have no user
    /// name.
    connects_refused_user_sessions,
    /// CONNECT packets rejected because the broker has the maximum of sessions that outlive their connection.
    connects_refused_sessions,
    /// Sessions refused because memory is short: they would be kept, or their will has more than 1 KiB.
    refused_memory_sessions,
    /// CONNECT packets rejected because their session would be kept, and the disk is nearly full.
    connects_refused_disk,
    /// CONNECT packets rejected because another client uses their client identifier.
    connects_refused_takeover,
    /// CONNECT packets rejected for another reason: the broker stops, CONNACK is too large, or permissions have changed
    /// meanwhile.
    connects_refused_other,
    /// Connections that ended before CONNACK, without a CONNACK.
    connects_unanswered,
    /// Failed logins: a plugin knows no such user, or another password.
    logins_failed,
    /// Publishes and subscriptions denied by permissions.
    denied,
    /// Connections closed because of malformed packets or violations of the protocol.
    violations,
    /// Clients disconnected because they sent too many control packets or acknowledgements a second.
    refused_rate,
    /// Subscriptions refused because their client has the maximum of them, or their SUBSCRIBE too many filters.
    refused_subscriptions,
    /// QoS 1 and 2 publishes refused because the disk is nearly full, or Kafka does not accept records.
    refused_no_room,
    /// QoS 1 and 2 publishes refused, or left unacknowledged after a wait, because the queue of a kept session is
    /// full.
    refused_queue_full,
    /// Publishes refused because too many filters with wildcards match parts of the topic.
    refused_too_many_filters,
    /// QoS 1 and 2 publishes refused because memory is short and the message would be queued.
    refused_memory,
    /// Clients disconnected because memory is short and they sent a packet of more than 64 KiB.
    refused_memory_packets,
    /// Retained messages refused because there is the maximum number of them.
    dropped_retained_full,
    /// Retained messages refused because their user has the maximum of them, or their address if they have no user
    /// name.
    refused_user_retained,
    /// Retained messages refused because memory is short.
    refused_memory_retained,
    /// Times that a client was read slowly because memory is short and its messages took most of it.
    slowed_memory,
    /// Times that a client was not read for a while because it had sent too many messages a second.
    held_back_messages,
    /// Times that a client was not read for a while because it had sent too many bytes a second.
    held_back_bytes,
    /// Times that a client was not read for a while because it had sent too many control packets a second.
    held_back_control_packets,
    /// Times that retained messages for a client waited because it had got too many bytes of them a second.
    held_back_retained_bytes,

    of_broker:

    /// Connected clients now.
    clients_connected,
    /// Received PUBLISH packets.
    messages_received,
    /// Sent PUBLISH packets, including retained messages and repeats.
    messages_sent,
    /// Received bytes.
    bytes_received,
    /// Sent bytes.
    bytes_sent,
    /// Received packets.
    packets_received,
    /// Sent packets.
    packets_sent,
    /// Kept sessions that are not loaded yet after a start; 1 while their number is unknown.
    sessions_to_come,
    /// Subscriptions now, including shared ones.
    subscriptions,
    /// Shared subscriptions now.
    shared_subscriptions,
    /// Subscriptions with wildcards now, including shared ones.
    wildcard_subscriptions,
    /// Blocks of the subscription directory.
    directory_nodes,
    /// Bytes of the subscription directory that wait for readers before they are freed.
    directory_retired_bytes,
    /// Changes of the subscription directory that waited because too many bytes waited to be freed.
    directory_garbage_waits,
    /// Retained messages now, without those of the broker below `$SYS`.
    retained_messages,
    /// Bytes of memory of the retained messages now, including those of the broker below `$SYS`.
    retained_bytes,
    /// Entries written to the audit log.
    audit_entries,
    /// Entries of the audit log that could not be written.
    audit_lost,
    /// Whole seconds since the broker started.
    uptime_s,
    /// Bytes of memory that the broker may use: `memory_bytes`.
    memory_budget_bytes,
    /// Used bytes of the memory budget.
    memory_used_bytes,
    /// Used bytes of the memory budget for messages: queued, in flight, retained, being written.
    memory_messages_bytes,
    /// Used bytes of the memory budget for sessions and connections.
    memory_sessions_bytes,
    /// Used bytes of the memory budget for connections without CONNACK.
    memory_pending_bytes,
    /// Used bytes of the memory budget for subscriptions, streams and the store.
    memory_tables_bytes,
    /// Used bytes of the memory budget for password hashes: of running ones, and kept for the next ones.
    memory_passwords_bytes,
}
