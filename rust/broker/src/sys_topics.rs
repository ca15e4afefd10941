//! `$SYS/broker/...`: figures of the broker, as retained messages, and what its services publish beside them.

use std::rc::Rc;
use std::time::Duration;

use mqttcore_codec::{Properties, QoS};
use mqttcore_session::Message;
use mqttcore_topics::{TopicLimits, TopicName};

use crate::figures;
use crate::routing::publication::Publication;
use crate::routing::{retain, router};
use crate::runtime::load_averages::LoadAverages;
use crate::runtime::metrics::Stats;
use crate::shard::Shard;
use crate::shard::guard::contained;

/// Publishes now and at every interval of the configuration, until the broker stops.
pub(crate) async fn publish_regularly(shard: Rc<Shard>) {
    let mut load = Load::default();
    loop {
        let interval = shard.config().sys_interval;
        let Some(interval) = interval else {
            // A reload may switch it on.
            tokio::time::sleep(OFF).await;
            continue;
        };
        shard.refresh_now();
        contained(&shard, "$SYS", || publish(&shard, &mut load));
        shard.flush_mailboxes();
        tokio::time::sleep(interval).await;
    }
}

/// How often a broker that publishes nothing looks whether that has changed.
const OFF: Duration = Duration::from_secs(1);

/// Figures that are computed from one interval to the next.
#[derive(Default)]
struct Load {
    averages: LoadAverages<9>,
    /// The most sessions that an interval has seen.
    most_sessions: u64,
}

/// The counters whose averages are published, with their topics below `load/`.
fn loads(stats: &Stats, connects: u64) -> [(&'static str, u64); 9] {
    [
        ("messages/received", stats.packets_received),
        ("messages/sent", stats.packets_sent),
        ("publish/dropped", dropped(stats)),
        ("publish/received", stats.messages_received),
        ("publish/sent", stats.messages_sent),
        ("bytes/received", stats.bytes_received),
        ("bytes/sent", stats.bytes_sent),
        ("sockets", stats.connections_accepted),
        ("connections", connects),
    ]
}

/// Publishes what changes from one interval to the next, under the names of Mosquitto.
fn publish_load(shard: &Rc<Shard>, stats: &Stats, load: &mut Load) {
    let tallies = figures::tallies(&shard.engine);
    let connects = tallies
        .packets_received
        .iter()
        .find(|(name, _)| *name == "connect");
    let connects = connects.map_or(0, |(_, count)| *count);
    let loads = loads(stats, connects);
    let counts = loads.map(|(_, count)| count);
    load.averages.update(shard.now(), counts);
    for ((name, _), averages) in loads.iter().zip(load.averages.texts()) {
        for (period, text) in averages {
            publish_text(shard, &format!("load/{name}/{period}"), &text);
        }
    }
    load.most_sessions = load.most_sessions.max(stats.sessions);
    publish_text(shard, "clients/maximum", &load.most_sessions.to_string());
    let sockets: usize = shard.engine.connections.by_listener().iter().sum();
    publish_text(shard, "connections/socket/count", &sockets.to_string());
}

fn publish(shard: &Rc<Shard>, load: &mut Load) {
    let stats = figures::stats(&shard.engine);
    publish_load(shard, &stats, load);
    publish_text(
        shard,
        "version",
        concat!("mqttcore ", env!("CARGO_PKG_VERSION")),
    );
    let promises = figures::promises_in_force(shard);
    publish_text(shard, "promise", &promises);
    for (topic, value) in topics(&stats) {
        publish_text(shard, topic, &value.to_string());
    }
    let figures = shard.engine.log.iter().flat_map(|log| log.figures());
    for (name, value) in figures {
        publish_text(shard, &format!("store/{name}"), &value.to_string());
    }
    for figures in &shard.engine.figures {
        for (topic, value) in figures.sys_topics(&stats) {
            publish_to(shard, &format!("$SYS/{topic}"), &value);
        }
    }
}

/// Messages that a subscriber did not get.
fn dropped(stats: &Stats) -> u64 {
    stats.dropped_qos0_backlog
        + stats.dropped_queue_full
        + stats.dropped_expired
        + stats.dropped_too_large
        + stats.dropped_denied
        + stats.dropped_session_ended
        + stats.dropped_memory
}

/// The names that other brokers use too, so that existing dashboards find them. Longer than other functions: a table.
fn topics(stats: &Stats) -> [(&'static str, u64); 52] {
    let dropped = dropped(stats);
    let inactive = stats.sessions.saturating_sub(stats.clients_connected);
    [
        ("uptime", stats.uptime_s),
        ("clients/connected", stats.clients_connected),
        ("clients/total", stats.sessions),
        ("clients/disconnected", inactive),
        ("clients/active", stats.clients_connected),
        ("clients/inactive", inactive),
        ("clients/to_come", stats.sessions_to_come),
        ("clients/expired", stats.sessions_expired),
        ("messages/received", stats.packets_received),
        ("messages/sent", stats.packets_sent),
        ("publish/messages/received", stats.messages_received),
        ("publish/messages/sent", stats.messages_sent),
        ("publish/messages/dropped", dropped),
        ("queues/nearly_full", stats.queues_nearly_full),
        ("queues/dropped", stats.dropped_acknowledged),
        ("queues/refused", stats.refused_queue_full),
        ("memory/bytes/budget", stats.memory_budget_bytes),
        ("memory/bytes/used", stats.memory_used_bytes),
        ("memory/bytes/messages", stats.memory_messages_bytes),
        ("memory/bytes/sessions", stats.memory_sessions_bytes),
        ("memory/bytes/pending", stats.memory_pending_bytes),
        ("memory/bytes/tables", stats.memory_tables_bytes),
        ("memory/refused/publishes", stats.refused_memory),
        ("memory/refused/sessions", stats.refused_memory_sessions),
        ("memory/refused/retained", stats.refused_memory_retained),
        ("memory/refused/packets", stats.refused_memory_packets),
        ("memory/dropped", stats.dropped_memory),
        ("memory/slowed", stats.slowed_memory),
        ("bytes/received", stats.bytes_received),
        ("bytes/sent", stats.bytes_sent),
        ("subscriptions/count", stats.subscriptions),
        ("directory/nodes", stats.directory_nodes),
        ("directory/bytes/retired", stats.directory_retired_bytes),
        ("directory/waits", stats.directory_garbage_waits),
        ("retained messages/count", stats.retained_messages),
        (
            "retained messages/refused/user",
            stats.refused_user_retained,
        ),
        ("connections/accepted", stats.connections_accepted),
        (
            "connections/refused",
            stats.connections_refused + stats.connects_refused,
        ),
        (
            "connections/refused/listener",
            stats.connections_refused_listener,
        ),
        (
            "connections/refused/listener_rate",
            stats.connections_refused_listener_rate,
        ),
        (
            "connections/refused/address",
            stats.connections_refused_address,
        ),
        (
            "connections/refused/address_pending",
            stats.connections_refused_address_pending,
        ),
        (
            "connections/refused/address_rate",
            stats.connections_refused_address_rate,
        ),
        (
            "connections/refused/failed_logins",
            stats.connects_refused_failed_logins,
        ),
        (
            "connections/refused/user_sessions",
            stats.connects_refused_user_sessions,
        ),
        (
            "connections/refused/banned",
            stats.connections_refused_banned + stats.connects_refused_banned,
        ),
        ("clients/flapping_bans", stats.flapping_bans),
        ("logins/failed", stats.logins_failed),
        ("connections/violations", stats.violations),
        ("store/segments/scrubbed", stats.store_scrubbed),
        ("store/segments/damaged", stats.store_damaged),
        ("panics", stats.panics),
    ]
}

fn publish_text(shard: &Rc<Shard>, topic: &str, text: &str) {
    publish_to(shard, &format!("$SYS/broker/{topic}"), text);
}

fn publish_to(shard: &Rc<Shard>, topic: &str, text: &str) {
    // INVARIANT: the names of this module and of services are topic names.
    let topic = TopicName::parse(topic, &TopicLimits::WIDEST).expect("a $SYS topic is valid");
    let (text, now) = (text.as_bytes(), shard.now());
    let message = Message::copied(now, topic, Properties::EMPTY, text, QoS::AtMostOnce, true);
    // No store has it: a new broker has values of its own.
    retain::set_own(&shard.engine, topic, &message);
    router::publish_promised(shard, Publication::new(None, topic, &message, None));
}
