//! `$SYS/broker/...`: figures of the broker and of its services, as retained messages.
//!
//! Names, payloads, QoS 2, RETAIN and the times of publishing are those of Mosquitto 2.x
//! (`tests/operations/sys_topics.py`).

use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Publishes now and at every interval of the configuration, which begin at multiples of it on the wall clock, until the
/// broker stops.
pub(crate) async fn publish_regularly(shard: Rc<Shard>) {
    let mut known = SysTopics::default();
    loop {
        let interval = shard.config().sys_interval;
        let Some(interval) = interval else {
            // A reload may switch it on.
            tokio::time::sleep(OFF).await;
            continue;
        };
        shard.refresh_now();
        contained(&shard, "$SYS", || publish(&shard, &mut known));
        shard.flush_mailboxes();
        let time = (shard.config().system_time)();
        tokio::time::sleep(until_multiple_of(interval, time)).await;
    }
}

/// Interval in which a broker that publishes nothing checks whether that has changed.
const OFF: Duration = Duration::from_secs(1);

/// The time from `now` to the next multiple of `interval`.
fn until_multiple_of(interval: Duration, now: SystemTime) -> Duration {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let passed = since.as_nanos() % interval.as_nanos().max(1);
    interval.saturating_sub(Duration::from_nanos(u64::try_from(passed).unwrap_or(0)))
}

/// State that one interval leaves for the next.
#[derive(Default)]
struct SysTopics {
    averages: LoadAverages<9>,
    /// The most sessions that an interval has seen.
    most_sessions: u64,
    /// The most memory in use that an interval has seen, in bytes.
    most_memory: u64,
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

/// Publishes the changes from one interval to the next, under the names of Mosquitto.
fn publish_load(shard: &Rc<Shard>, stats: &Stats, known: &mut SysTopics) {
    let tallies = figures::tallies(&shard.engine);
    let connects = tallies
        .packets_received
        .iter()
        .find(|(name, _)| *name == "connect");
    let connects = connects.map_or(0, |(_, count)| *count);
    let loads = loads(stats, connects);
    let counts = loads.map(|(_, count)| count);
    known.averages.update(shard.now(), counts);
    for ((name, _), averages) in loads.iter().zip(known.averages.texts()) {
        for (period, text) in averages {
            publish_figure(shard, &format!("load/{name}/{period}"), &text);
        }
    }
    known.most_sessions = known.most_sessions.max(stats.sessions);
    let most = known.most_sessions.to_string();
    publish_figure(shard, "clients/maximum", &most);
    known.most_memory = known.most_memory.max(stats.memory_used_bytes);
    let most = known.most_memory.to_string();
    publish_figure(shard, "heap/maximum", &most);
}

fn publish(shard: &Rc<Shard>, known: &mut SysTopics) {
    let stats = figures::stats(&shard.engine);
    let version = concat!("mqttcore ", env!("CARGO_PKG_VERSION"));
    publish_figure(shard, "version", version);
    let guarantees = shard.engine.guarantees();
    publish_figure(shard, "durability", &guarantees);
    let uptime = format!("{} seconds", stats.uptime_s);
    publish_figure(shard, "uptime", &uptime);
    publish_load(shard, &stats, known);
    for (topic, value) in topics(&stats) {
        publish_figure(shard, topic, &value.to_string());
    }
    for (topic, value) in figures::refusals_by_name(&shard.engine) {
        publish_figure(shard, &topic, &value.to_string());
    }
    let figures = shard.engine.log.iter().flat_map(|log| log.figures());
    for (name, value) in figures {
        publish_figure(shard, &format!("store/{name}"), &value.to_string());
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
fn topics(stats: &Stats) -> [(&'static str, u64); 63] {
    let dropped = dropped(stats);
    let inactive = stats.sessions.saturating_sub(stats.clients_connected);
    let stored = stats.retained_messages + stats.session_messages;
    [
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
        ("publish/bytes/received", stats.payload_bytes_received),
        ("publish/bytes/sent", stats.payload_bytes_sent),
        ("messages/stored", stored),
        ("store/messages/count", stored),
        ("store/messages/bytes", stats.memory_messages_bytes),
        ("packet/out/count", stats.waiting_packets),
        ("packet/out/bytes", stats.waiting_bytes),
        ("heap/current", stats.memory_used_bytes),
        ("queues/nearly_full", stats.queues_nearly_full),
        ("queues/dropped", stats.dropped_acknowledged),
        ("queues/refused", stats.refused_queue_full),
        ("memory/bytes/budget", stats.memory_budget_bytes),
        ("memory/bytes/used", stats.memory_used_bytes),
        ("memory/bytes/messages", stats.memory_messages_bytes),
        ("memory/bytes/sessions", stats.memory_sessions_bytes),
        ("memory/bytes/pending", stats.memory_pending_bytes),
        ("memory/bytes/tables", stats.memory_tables_bytes),
        ("memory/bytes/passwords", stats.memory_passwords_bytes),
        ("memory/refused/publishes", stats.refused_memory),
        ("memory/refused/sessions", stats.refused_memory_sessions),
        ("memory/refused/retained", stats.refused_memory_retained),
        ("memory/refused/packets", stats.refused_memory_packets),
        ("memory/dropped", stats.dropped_memory),
        ("memory/slowed", stats.slowed_memory),
        ("bytes/received", stats.bytes_received),
        ("bytes/sent", stats.bytes_sent),
        ("subscriptions/count", stats.subscriptions),
        ("shared_subscriptions/count", stats.shared_subscriptions),
        ("directory/nodes", stats.directory_nodes),
        ("directory/bytes/retired", stats.directory_retired_bytes),
        ("directory/waits", stats.directory_garbage_waits),
        ("retained messages/count", stats.retained_messages),
        (
            "retained messages/refused/user",
            stats.refused_user_retained,
        ),
        ("connections/accepted", stats.connections_accepted),
        ("connections/socket/count", stats.connections_accepted),
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
        ("clients/wills_delayed", stats.wills_delayed),
        ("logins/failed", stats.logins_failed),
        ("connections/violations", stats.violations),
        ("store/segments/scrubbed", stats.store_scrubbed),
        ("store/segments/damaged", stats.store_damaged),
        ("panics", stats.panics),
    ]
}

/// Publishes below `$SYS/broker/`, unless the topic has this text already.
fn publish_figure(shard: &Rc<Shard>, topic: &str, text: &str) {
    publish_to(shard, &format!("$SYS/broker/{topic}"), text);
}

/// Publishes the text, if the retained message of the topic differs, also if another publisher has replaced or
/// cleared it.
fn publish_to(shard: &Rc<Shard>, topic: &str, text: &str) {
    // INVARIANT: the names of this module and of services are topic names.
    let topic = TopicName::parse(topic, &TopicLimits::WIDEST).expect("a $SYS topic is valid");
    let text = text.as_bytes();
    let is_known = match shard.engine.retained.get(topic) {
        Some(kept) => kept.is_own && kept.message.payload() == text,
        None => text.is_empty(),
    };
    if !is_known {
        publish_message(shard, topic, text);
    }
}

fn publish_message(shard: &Rc<Shard>, topic: TopicName<'_>, text: &[u8]) {
    let now = shard.now();
    let of = |qos| Message::copied(now, topic, Properties::EMPTY, text, qos, true);
    let mut message = of(QoS::ExactlyOnce);
    // It is not stored: a new broker has values of its own.
    retain::set_own(&shard.engine, topic, &message);
    if shard.engine.loading.remaining() != Some(0) {
        // Sessions that are not loaded yet do not receive it.
        message = of(QoS::AtMostOnce);
    }
    router::publish_accepted(shard, Publication::new(None, topic, &message, None));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_begin_at_multiples_on_the_wall_clock() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let ten = Duration::from_secs(10);

        assert_eq!(
            until_multiple_of(ten, at(1_000_003_500)),
            Duration::from_millis(6_500)
        );
        assert_eq!(until_multiple_of(ten, at(1_000_000_000)), ten);
        assert_eq!(until_multiple_of(Duration::ZERO, at(7)), Duration::ZERO);
    }
}
