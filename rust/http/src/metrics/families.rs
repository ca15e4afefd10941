//! The metric families: name, kind, help and where the values come from.
//!
//! Label sets are closed: none grows with clients or topics. Those of hooks are the hooks of the configured plugins, and
//! those of topics are the names in the configuration.
//! `python -m tests.reference` reads this table.

use std::collections::BTreeMap;
use std::sync::Arc;

use mqttcore_broker::{HookCalls, Tally, TopicCount};

use super::{Scrape, float};

/// A metric family.
pub(super) struct Family {
    /// Without the suffix `_total`, which the encoder adds to counters.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) values: Values,
}

pub(super) enum Kind {
    Counter,
    Gauge,
    /// An OpenMetrics info metric: its information is in the labels.
    Info,
    /// Durations by size.
    Histogram,
}

/// The values of a family. If the broker lacks their figures, the scrape lacks the family.
pub(super) enum Values {
    /// The figure of this name.
    One(&'static str),
    /// One value, which may be absent.
    Maybe(fn(&Scrape) -> Option<f64>),
    /// One figure for each value of a label.
    By(&'static str, &'static [Part]),
    /// One figure for each listener and each value of a label: refusals of that listener.
    ByListener(&'static str, &'static [Part]),
    /// The figure of this name for each listener.
    OneByListener(&'static str),
    /// One figure for each value of a label and each QoS: dropped messages.
    DropsByQos(&'static str, &'static [Part]),
    /// One figure for each listener and each action of a limit.
    LimitsByListener(&'static [LimitAction]),
    /// One value for each combination of values of these labels, both from the scrape.
    Each(&'static [&'static str], fn(&Scrape) -> Labelled),
    /// The durations for each combination of values of these labels.
    Durations(
        &'static [&'static str],
        fn(&Scrape) -> LabelledDurations<'_>,
    ),
}

/// Metric values with the values of their labels.
pub(super) type Labelled = Vec<(Vec<Arc<str>>, f64)>;

/// Histograms with the values of their labels.
pub(super) type LabelledDurations<'a> = Vec<(Vec<Arc<str>>, &'a mqttcore_broker::Histogram)>;

/// One metric value of a family with a label.
pub(super) struct Part {
    /// The value of the label.
    pub(super) text: &'static str,
    pub(super) figure: &'static str,
    /// Gauges to subtract from the figure. Not for counters: figures change between two reads, and a counter must not
    /// decrease.
    pub(super) less: &'static [&'static str],
}

use Kind::{Counter, Gauge, Histogram, Info};
use Values::{
    By, ByListener, DropsByQos, Durations, Each, LimitsByListener, Maybe, One, OneByListener,
};

/// What a limit did, and its figure.
pub(super) struct LimitAction {
    pub(super) limit: &'static str,
    pub(super) action: &'static str,
    pub(super) figure: &'static str,
}

const fn family(name: &'static str, kind: Kind, help: &'static str, values: Values) -> Family {
    Family {
        name,
        kind,
        help,
        values,
    }
}

const fn limit(limit: &'static str, action: &'static str, figure: &'static str) -> LimitAction {
    LimitAction {
        limit,
        action,
        figure,
    }
}

const fn part(text: &'static str, figure: &'static str) -> Part {
    less(text, figure, &[])
}

const fn less(text: &'static str, figure: &'static str, less: &'static [&'static str]) -> Part {
    Part { text, figure, less }
}

#[rustfmt::skip]
pub(super) const FAMILIES: &[Family] = &[
    family("mqttcore_build", Info, "Version, commit of a wheel (else empty) and optional parts of the build; only for callers with the token or a key, or on the Unix socket.",
        Each(&["version", "commit", "features"], |s| s.build.iter().map(|build| (build.to_vec(), 1.0)).collect())),
    family("mqttcore_start_time_seconds", Gauge, "Unix time at which the broker started.", Maybe(|s| Some(s.started_unix_s))),

    family("mqttcore_connections", Gauge, "Current connections, by the protocol version of the client; `none`: without CONNACK.",
        Each(&["listener", "version"], connections)),
    family("mqttcore_connections_accepted", Counter, "Accepted sockets.", OneByListener("connections_accepted")),
    family("mqttcore_connections_refused", Counter, "Sockets closed before CONNECT, by the limit that was reached.", ByListener("reason", &[
        part("connections", "connections_refused_full"),
        part("listener_connections", "connections_refused_listener"),
        part("listener_rate", "connections_refused_listener_rate"),
        part("address_connections", "connections_refused_address"),
        part("address_pending", "connections_refused_address_pending"),
        part("address_rate", "connections_refused_address_rate"),
        part("banned", "connections_refused_banned"),
        part("paused", "connections_refused_paused"),
        part("descriptors", "connections_refused_descriptors"),
    ])),
    family("mqttcore_certificate_not_after_seconds", Gauge, "Unix time at which the first certificate of a listener expires; `http` is the one of `[http.tls]`.",
        Each(&["listener"], |s| s.certificates.clone())),
    family("mqttcore_connects", Counter, "CONNECT packets, by the reason code of CONNACK.",
        Each(&["result"], |s| by_name(&s.tallies.connects, &[]))),
    family("mqttcore_connects_unanswered", Counter, "Connections that ended without a CONNACK.", OneByListener("connects_unanswered")),
    family("mqttcore_connects_limited", Counter, "CONNECT packets refused because of a limit or a ban, not because of the login.", ByListener("reason", &[
        part("protocol", "connects_refused_protocol"),
        part("protocol_version", "connects_refused_protocol_version"),
        part("banned", "connects_refused_banned"),
        part("failed_logins", "connects_refused_failed_logins"),
        part("session_share", "connects_refused_user_sessions"),
        part("sessions", "connects_refused_sessions"),
        part("disk", "connects_refused_disk"),
        part("takeover", "connects_refused_takeover"),
        part("other", "connects_refused_other"),
    ])),
    family("mqttcore_connects_denied", Counter, "CONNECT packets refused by a plugin, or because nobody admits the client.", OneByListener("connects_refused_login")),
    family("mqttcore_logins_failed", Counter, "Failed logins: unknown user name, or wrong password.", OneByListener("logins_failed")),
    family("mqttcore_flapping_bans", Counter, "Bans of client identifiers, each for one user, because clients connected too often.", One("flapping_bans")),
    family("mqttcore_bans", Gauge, "Bans in force, by those who made them.", Each(&["by"], |s| by_name(&s.bans, &[]))),
    family("mqttcore_list_part_seconds", Histogram, "Time that a shard spends without interruption on a part of a list of clients.", Durations(&[], |s| vec![(Vec::new(), &s.tallies.list_parts)])),
    family("mqttcore_deliver_seconds", Histogram, "Time from the read of a PUBLISH until a delivery was written, by the QoS of the delivery; a sample.",
        Durations(&["qos"], |s| s.tallies.deliveries.iter().map(|(qos, times)| (vec![(*qos).into()], times)).collect())),
    family("mqttcore_login_seconds", Histogram, "Time from CONNECT to the decision about the login, including plugins.", Durations(&[], |s| vec![(Vec::new(), &s.tallies.logins)])),
    family("mqttcore_wills_delayed", Counter, "Wills that were published later because too many were due at once.", One("wills_delayed")),
    family("mqttcore_takeovers", Counter, "Connections that another connection with the same client identifier took over.", One("takeovers")),
    family("mqttcore_disconnects", Counter, "Ended connections of clients, by the side that ended them and the reason code of DISCONNECT.", Each(&["by", "reason"], |s| {
        let lost = vec![(vec!["network".into(), "Connection lost".into()], s.figure("connections_lost").unwrap_or_default())];
        let closed = by_name(&s.tallies.closed, &["broker"]);
        let left = by_name(&s.tallies.left, &["client"]);
        [lost, closed, left].into_iter().flatten().collect()
    })),
    family("mqttcore_violations", Counter, "Connections closed because of malformed or unexpected packets.", OneByListener("violations")),
    family("mqttcore_limit", Counter, "Times that a limit acted on a client. Refused connections, CONNECT packets and messages have families of their own.", LimitsByListener(&[
        limit("messages", "held_back", "held_back_messages"),
        limit("bytes", "held_back", "held_back_bytes"),
        limit("control_packets", "held_back", "held_back_control_packets"),
        limit("control_packets", "disconnected", "refused_rate"),
        limit("retained_bytes", "held_back", "held_back_retained_bytes"),
        limit("subscriptions", "refused", "refused_subscriptions"),
        limit("memory", "held_back", "slowed_memory"),
        limit("memory", "disconnected", "refused_memory_packets"),
        limit("memory", "session_refused", "refused_memory_sessions"),
    ])),
    family("mqttcore_keep_alive_timeouts", Counter, "Connections closed because the client sent nothing for too long.", One("keep_alive_timeouts")),
    family("mqttcore_stalled", Counter, "Connections closed because the client accepted no bytes for too long.", One("stalled")),

    family("mqttcore_sessions", Gauge, "Current sessions: with a connection, without one, and not loaded yet after a start.", By("state", &[
        part("online", "clients_connected"),
        less("away", "sessions", &["clients_connected"]),
        part("loading", "sessions_to_come"),
    ])),
    family("mqttcore_sessions_ended", Counter, "Sessions that have ended: by expiry, with their connection, by a new one that does not resume them, by an operator.", By("why", &[
        part("expired", "sessions_expired"),
        part("disconnected", "sessions_ended_disconnected"),
        part("replaced", "sessions_ended_replaced"),
        part("operator", "sessions_ended_operator"),
    ])),
    family("mqttcore_subscriptions", Gauge, "Current subscriptions, including shared ones.", One("subscriptions")),
    family("mqttcore_shared_subscriptions", Gauge, "Current shared subscriptions.", One("shared_subscriptions")),
    family("mqttcore_wildcard_subscriptions", Gauge, "Current subscriptions with wildcards, including shared ones.", One("wildcard_subscriptions")),
    family("mqttcore_directory_nodes", Gauge, "Blocks of the subscription directory.", One("directory_nodes")),
    family("mqttcore_directory_retired_bytes", Gauge, "Bytes of the directory that wait for readers before they are freed.", One("directory_retired_bytes")),
    family("mqttcore_directory_waits", Counter, "Changes of the directory that waited for readers.", One("directory_garbage_waits")),

    family("mqttcore_topic_messages", Counter, "Received PUBLISH packets on the topics of `[[metrics.topics]]`, by its `name`; also refused ones.",
        Each(&["name"], |s| by_topic(s, |count| count.messages))),
    family("mqttcore_topic_bytes", Counter, "Payload bytes of received PUBLISH packets on the topics of `[[metrics.topics]]`, by its `name`.",
        Each(&["name"], |s| by_topic(s, |count| count.bytes))),
    family("mqttcore_packets", Counter, "MQTT packets.", Each(&["direction", "type"], |s| {
        let received = by_name(&s.tallies.packets_received, &["in"]);
        received.into_iter().chain(by_name(&s.tallies.packets_sent, &["out"])).collect()
    })),
    family("mqttcore_bytes", Counter, "Bytes on the wire, with TLS and WebSocket, by transport: `tcp` is without TLS, also Unix sockets; `websocket` is with TLS or without.", Each(&["direction", "transport"], |s| {
        let received = by_name(&s.tallies.bytes_received, &["in"]);
        received.into_iter().chain(by_name(&s.tallies.bytes_sent, &["out"])).collect()
    })),
    family("mqttcore_messages", Counter, "PUBLISH packets, including retained messages and repeats.", Each(&["direction", "qos"], |s| {
        let received = by_name(&s.tallies.messages_received, &["in"]);
        received.into_iter().chain(by_name(&s.tallies.messages_sent, &["out"])).collect()
    })),
    family("mqttcore_payload_bytes", Counter, "Bytes of payloads of PUBLISH packets.", By("direction", &[
        part("in", "payload_bytes_received"), part("out", "payload_bytes_sent")])),
    family("mqttcore_queue_messages", Gauge, "Messages in the queues of sessions; a message for several sessions counts for each.", One("queued_messages")),
    family("mqttcore_queue_bytes", Gauge, "Bytes of the messages in the queues of sessions, in memory and on the disk.", One("queued_bytes")),
    family("mqttcore_inflight", Gauge, "QoS 1 and 2 messages to clients that are not acknowledged (`out`), QoS 2 messages of clients that are not released (`in`).", By("direction", &[
        part("in", "in_flight_in"), part("out", "in_flight_out")])),
    family("mqttcore_waiting_packets", Gauge, "Packets that wait to be sent.", One("waiting_packets")),
    family("mqttcore_waiting_bytes", Gauge, "Bytes of packets that wait to be sent.", One("waiting_bytes")),
    family("mqttcore_matches_cached", Counter, "PUBLISH packets whose subscribers were in the cache of the shard.", One("matches_cached")),
    family("mqttcore_shared_handed_on", Counter, "Messages of shared subscriptions that went to another member.", One("shared_handed_on")),
    family("mqttcore_messages_dropped", Counter, "Messages that a subscriber did not get, by reason and by the QoS of the delivery; `unknown` are those of a session that ended.",
        DropsByQos("reason", &[
        part("backlog", "dropped_qos0_backlog"),
        part("queue_full", "dropped_queue_full"),
        part("expired", "dropped_expired"),
        part("too_large", "dropped_too_large"),
        part("offline", "dropped_offline"),
        part("denied", "dropped_denied"),
        part("session_ended", "dropped_session_ended"),
        part("memory", "dropped_memory"),
        part("will_denied", "dropped_will"),
        part("hook", "dropped_hook"),
        part("stream_overload", "dropped_stream_overload"),
    ])),
    family("mqttcore_messages_dropped_acknowledged", Counter, "Acknowledged messages that were dropped because the queue of a kept session was full.", One("dropped_acknowledged")),
    family("mqttcore_messages_rejected", Counter, "Publishes that the broker refused.", ByListener("reason", &[
        part("disk", "refused_no_room"),
        part("queue_full", "refused_queue_full"),
        part("too_many_filters", "refused_too_many_filters"),
        part("memory", "refused_memory"),
    ])),
    family("mqttcore_denied", Counter, "PUBLISH and SUBSCRIBE requests denied by permissions.", OneByListener("denied")),
    family("mqttcore_queues_nearly_full", Gauge, "Sessions whose queue is more than 80 % full.", One("queues_nearly_full")),
    family("mqttcore_retained", Gauge, "Retained messages, without those of the broker; memory of all retained messages.", By("what", &[
        part("messages", "retained_messages"), part("bytes", "retained_bytes")])),
    family("mqttcore_retained_refused", Counter, "Messages that were delivered but not retained.", ByListener("reason", &[
        part("limit", "dropped_retained_full"), part("share", "refused_user_retained"), part("memory", "refused_memory_retained")])),
    family("mqttcore_retained_withheld", Counter, "Retained messages withheld from a new subscription because their publisher has lost the permission.", One("retained_withheld")),

    family("mqttcore_memory_budget_bytes", Gauge, "Memory that the broker may use.", One("memory_budget_bytes")),
    family("mqttcore_memory_used_bytes", Gauge, "Used memory of the budget.", By("owner", &[
        part("messages", "memory_messages_bytes"),
        part("sessions", "memory_sessions_bytes"),
        part("pending", "memory_pending_bytes"),
        part("tables", "memory_tables_bytes"),
        part("passwords", "memory_passwords_bytes"),
    ])),

    family("mqttcore_shard_turn_age_seconds", Gauge, "Time since each shard last ran its timers; below 0.2 unless it is stuck.",
        Each(&["shard"], |s| s.health.turns.iter().enumerate().map(|(shard, age)| (vec![shard.to_string().into()], age.as_secs_f64())).collect())),
    family("mqttcore_mailbox_messages", Gauge, "Messages and requests of other shards that wait for each shard. While one shard has sent 8,192 or more of them, it reads none of its clients.",
        Each(&["shard"], |s| s.mailboxes.iter().enumerate().map(|(shard, count)| (vec![shard.to_string().into()], float(*count as u64))).collect())),
    family("mqttcore_panics", Counter, "Panics of tasks; each ended only one connection.", One("panics")),

    family("mqttcore_store_log_bytes", Gauge, "Bytes of the log.", One("store_log_bytes")),
    family("mqttcore_store_live_bytes", Gauge, "Bytes of the log that are still needed.", One("store_live_bytes")),
    family("mqttcore_store_segments", Gauge, "Segments of the log.", One("store_segments")),
    family("mqttcore_store_records", Counter, "Written records.", One("store_records")),
    family("mqttcore_store_groups", Counter, "Groups of records, each written at once. Records divided by groups: how many share a write.", One("store_groups")),
    family("mqttcore_store_written_bytes", Counter, "Bytes written to the log.", One("store_written_bytes")),
    family("mqttcore_store_records_not_synced", Gauge, "Records that no sync covers yet.", One("store_records_not_synced")),
    family("mqttcore_store_waiting_bytes", Gauge, "Bytes that wait to be written.", One("store_waiting_bytes")),
    family("mqttcore_store_syncs", Counter, "Syncs of the log.", One("store_syncs")),
    family("mqttcore_store_sync_seconds", Histogram, "Duration of syncs of the log.",
        Durations(&[], |s| s.tallies.syncs.iter().map(|times| (Vec::new(), times)).collect())),
    family("mqttcore_store_queues_ratio", Gauge, "Stored messages in relation to their limit on the disk.", Maybe(|s| s.figure("store_queues_percent").map(|percent| percent / 100.0))),
    family("mqttcore_store_pending_rows", Gauge, "Rows of the index that wait for the next checkpoint.", One("store_pending_rows")),
    family("mqttcore_store_checkpoints", Counter, "Written checkpoints.", One("store_checkpoints")),
    family("mqttcore_store_checkpoint_age_seconds", Gauge, "Age of the last checkpoint.", One("store_checkpoint_age_s")),
    family("mqttcore_store_pressure", Gauge, "Space on the disk: 0 enough, 1 little, 2 none.", One("store_pressure")),
    family("mqttcore_store_segments_scrubbed", Counter, "Scrubbed segments.", One("store_scrubbed")),
    family("mqttcore_store_segments_damaged", Counter, "Segments that scrubbing found damaged.", One("store_damaged")),

    family("mqttcore_stream_rows", Gauge, "Rows of all streams that can be read.", One("stream_rows")),
    family("mqttcore_stream_unsealed_rows", Gauge, "Rows of all streams that are in no file yet.", One("stream_rows_unsealed")),
    family("mqttcore_stream_tail_bytes", Gauge, "Bytes of rows in memory.", One("stream_tail_bytes")),
    family("mqttcore_stream_rows_refused", Counter, "Messages that did not become rows because they were too large.", One("stream_rows_refused")),
    family("mqttcore_stream_tier_uploaded_bytes", Counter, "Bytes of sealed files that were uploaded to object storage.", One("stream_tier_uploaded_bytes")),
    family("mqttcore_stream_tier_waiting_files", Gauge, "Sealed files that are not in object storage yet, of streams that have it.", One("stream_tier_waiting_files")),
    family("mqttcore_stream_tier_failing", Gauge, "Streams whose files do not move to object storage now.", One("stream_tier_failing")),
    family("mqttcore_stream_hold_lag_rows", Gauge, "Rows that consumers of streams have still to read; at most 100 consumers, those with the most. Only for callers with the token or a key, or on the Unix socket.",
        Each(&["stream", "consumer"], |s| s.consumer_lags.clone())),
    family("mqttcore_query_lag_seconds", Gauge, "Age of the newest message that each Spark query had read, in its last report. Only for callers with the token or a key, or on the Unix socket.",
        Each(&["query"], |s| s.query_lags.clone())),
    family("mqttcore_kafka_waiting_bytes", Gauge, "Bytes that wait for Kafka.", One("kafka_waiting_bytes")),
    family("mqttcore_kafka_records", Counter, "Records for Kafka, by outcome.", By("result", &[
        part("taken", "kafka_records"), part("lost", "kafka_lost")])),

    family("mqttcore_hook_calls", Counter, "Calls of plugin hooks, by result; shut_out: refused without a call, because the hook keeps failing.",
        Each(&["plugin", "hook", "result"], |s| s.hooks.iter().flat_map(results).collect())),
    family("mqttcore_hook_calls_in_flight", Gauge, "Calls of plugin hooks that have not returned.",
        Each(&["plugin", "hook"], |s| of_hooks(s, |hook| hook.in_flight))),
    family("mqttcore_hook_cache_hits", Counter, "Logins that the cache of a plugin hook decided without a call.",
        Each(&["plugin", "hook"], |s| of_hooks(s, |hook| hook.cache_hits))),
    family("mqttcore_hook_run_seconds", Histogram, "Duration of returned calls of plugin hooks.",
        Durations(&["plugin", "hook"], |s| s.hooks.iter().map(|hook| (names(hook), &hook.run)).collect())),
    family("mqttcore_hook_wait_seconds", Histogram, "Time that questions waited for plugin hooks: queue and interpreter.",
        Durations(&["plugin", "hook"], |s| s.hooks.iter().map(|hook| (names(hook), &hook.wait)).collect())),
    family("mqttcore_hook_queue", Gauge, "Questions that wait for the hooks of a plugin; a queue has at most 1,024.",
        Each(&["plugin"], |s| waiting(&s.hooks))),
    family("mqttcore_hook_paused", Gauge, "1 while a plugin hook is not called because it keeps failing or blocks threads; its questions are refused.",
        Each(&["plugin", "hook"], |s| of_hooks(s, |hook| u64::from(hook.is_paused)))),

    family("mqttcore_audit_entries", Counter, "Changes by operators, written to the audit log or lost.", By("result", &[
        part("written", "audit_entries"), part("lost", "audit_lost")])),
    family("mqttcore_http_requests", Counter, "HTTP requests, by outcome.", By("result", &[
        part("answered", "http_answered"), part("refused", "http_refused")])),
    family("mqttcore_http_seconds", Histogram, "Time from the head of an HTTP request to the head of its answer, by group of routes.",
        Durations(&["route"], |s| s.requests.iter().map(|(route, times)| (vec![(*route).into()], times)).collect())),
    family("mqttcore_http_responses", Counter, "Answers to HTTP requests, by group of routes, method and status; only combinations that there were.",
        Each(&["route", "method", "code"], |s| s.answers.clone())),
    family("mqttcore_http_connections_refused", Counter, "HTTP connections beyond a limit.", By("reason", &[
        part("connections", "http_connections_refused"), part("address_connections", "http_connections_refused_address")])),

    family("process_cpu_seconds", Counter, "CPU time of the process, in user and kernel mode.", Maybe(|s| s.process.cpu_s)),
    family("process_resident_memory_bytes", Gauge, "Resident memory of the process.", Maybe(|s| s.process.resident_bytes)),
    family("process_virtual_memory_bytes", Gauge, "Address space of the process.", Maybe(|s| s.process.virtual_bytes)),
    family("process_threads", Gauge, "Threads of the process.", Maybe(|s| s.process.threads)),
    family("process_open_fds", Gauge, "Open files of the process; needs Linux 6.2.", Maybe(|s| s.process.open_files)),
    family("process_max_fds", Gauge, "Maximum number of open files of the process.", Maybe(|s| s.process.max_files)),
];

/// Connections of each listener by protocol version; `none` has no CONNACK yet.
fn connections(scrape: &Scrape) -> Labelled {
    let counts = scrape.connections.iter();
    let by_version = |(name, count): &(Arc<str>, u64)| {
        let own = scrape.clients.iter().find(|(listener, _)| listener == name);
        let clients = own.map_or(&[][..], |(_, clients)| clients);
        let known: u64 = clients.iter().map(|(_, count)| count).sum();
        let others = ("none", count.saturating_sub(known));
        let all = clients.iter().copied().chain([others]);
        let labelled =
            |(version, count): (&str, u64)| (vec![Arc::clone(name), version.into()], float(count));
        all.map(labelled).collect::<Vec<_>>()
    };
    counts.flat_map(by_version).collect()
}

/// One figure of each configured metric of topics.
fn by_topic(scrape: &Scrape, figure: fn(&TopicCount) -> u64) -> Labelled {
    let counts = scrape.topics.iter();
    counts
        .map(|count| (vec![Arc::clone(&count.name)], float(figure(count))))
        .collect()
}

/// A value for each name of a tally; `first` are the values of the labels in front of the name.
fn by_name(tally: &Tally, first: &[&str]) -> Labelled {
    let labels = |name: &str| first.iter().copied().chain([name]).map(Arc::from).collect();
    let counts = tally.iter();
    counts
        .map(|(name, count)| (labels(name), float(*count)))
        .collect()
}

/// The labels of a hook.
fn names(hook: &HookCalls) -> Vec<Arc<str>> {
    vec![Arc::clone(&hook.plugin), Arc::clone(&hook.hook)]
}

/// The results of the calls of a hook.
fn results(hook: &HookCalls) -> Labelled {
    let labels = |result: &str| [names(hook), vec![result.into()]].concat();
    let results = hook.results.iter();
    results
        .map(|(result, count)| (labels(result), float(*count)))
        .collect()
}

fn of_hooks(scrape: &Scrape, count: fn(&HookCalls) -> u64) -> Labelled {
    let hooks = scrape.hooks.iter();
    hooks
        .map(|hook| (names(hook), float(count(hook))))
        .collect()
}

/// Questions that wait for the hooks of each plugin.
fn waiting(hooks: &[HookCalls]) -> Labelled {
    let mut plugins = BTreeMap::new();
    for hook in hooks {
        *plugins.entry(&hook.plugin).or_default() += hook.waiting;
    }
    let plugins = plugins.into_iter();
    plugins
        .map(|(plugin, count)| (vec![Arc::clone(plugin)], float(count)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mqttcore_broker::Stats;

    use super::*;

    /// Figures without a family: sums whose parts have families, the uptime (the start time has one), and figures of a
    /// tally.
    const NOT_SHOWN: [&str; 12] = [
        "bytes_received",
        "bytes_sent",
        "session_messages",
        "connections_refused",
        "connects_refused",
        "connections_lost",
        "messages_received",
        "messages_sent",
        "packets_received",
        "packets_sent",
        "memory_used_bytes",
        "uptime_s",
    ];

    /// The figures that families contain, and how often.
    fn shown() -> BTreeMap<&'static str, usize> {
        let mut shown = BTreeMap::new();
        for family in FAMILIES {
            let names = match family.values {
                One(name) | OneByListener(name) => vec![name],
                By(_, parts) | ByListener(_, parts) | DropsByQos(_, parts) => {
                    parts.iter().map(|part| part.figure).collect()
                }
                LimitsByListener(actions) => actions.iter().map(|action| action.figure).collect(),
                Maybe(_) | Each(..) | Durations(..) => Vec::new(),
            };
            for name in names {
                *shown.entry(name).or_default() += 1;
            }
        }
        shown
    }

    #[test]
    fn every_figure_of_the_engine_is_shown_once() {
        let shown = shown();
        let figures = Stats::default().figures().into_iter();
        let figures: BTreeSet<_> = figures.map(|figure| figure.name).collect();

        for name in &figures {
            let expected = usize::from(!NOT_SHOWN.contains(name));
            assert_eq!(
                shown.get(name).copied().unwrap_or_default(),
                expected,
                "{name}"
            );
        }
        for name in shown.keys().filter(|name| !figures.contains(**name)) {
            let of_extension = ["store_", "stream_", "kafka_", "http_"];
            assert!(
                of_extension.iter().any(|prefix| name.starts_with(prefix)),
                "{name}"
            );
        }
    }

    #[test]
    fn names_are_those_of_prometheus() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len());
        for family in FAMILIES {
            let name = family.name;
            assert!(
                name.starts_with("mqttcore_") || name.starts_with("process_"),
                "{name}"
            );
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{name}"
            );
            assert!(!name.ends_with("_total"), "{name}");
            assert!(family.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn counters_are_read_and_not_computed() {
        for family in FAMILIES
            .iter()
            .filter(|family| matches!(family.kind, Counter))
        {
            if let By(_, parts) | ByListener(_, parts) | DropsByQos(_, parts) = family.values {
                assert!(
                    parts.iter().all(|part| part.less.is_empty()),
                    "{}",
                    family.name
                );
            }
        }
    }
}
