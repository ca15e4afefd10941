//! Figures of the broker: counters of all shards together, and the durabilities in force.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::measures::{HookCalls, Tally};
use crate::durability::audit::AuditLog;
use crate::routing::retain;
use crate::runtime::metrics::{self, Refusals, Stats};
use crate::runtime::tallies::{self, Tallies};
use crate::runtime::topic_counters::TopicCount;
use crate::shard::EngineState;

/// Sums the counters of all shards.
pub(crate) fn stats(engine: &Arc<EngineState>) -> Stats {
    let mut stats = Stats::default();
    for metrics in &engine.metrics {
        stats.add(metrics);
        stats.bytes_received += metrics.tallies.bytes_received.sum();
        stats.bytes_sent += metrics.tallies.bytes_sent.sum();
        stats.packets_received += metrics.tallies.packets_received.sum();
        stats.packets_sent += metrics.tallies.packets_sent.sum();
        stats.messages_received += metrics.tallies.messages_received.sum();
        stats.messages_sent += metrics.tallies.messages_sent.sum();
        stats.clients_connected += metrics.clients_sum();
    }
    stats.sessions_to_come = engine.loading.remaining().unwrap_or(1);
    let directory = engine.directory.stats();
    stats.subscriptions = directory.subscriptions as u64;
    stats.shared_subscriptions = directory.shared_subscriptions as u64;
    stats.wildcard_subscriptions = directory.wildcard_subscriptions as u64;
    stats.directory_nodes = directory.nodes as u64;
    stats.directory_retired_bytes = directory.retired_bytes as u64;
    stats.directory_garbage_waits = directory.garbage_waits;
    let audit = engine.audit.as_ref();
    (stats.audit_entries, stats.audit_lost) = audit.map_or((0, 0), AuditLog::counts);
    stats.retained_messages = retain::count(engine) as u64;
    stats.retained_bytes = engine.retained.weight() as u64;
    stats.uptime_s = engine.started.elapsed().as_secs();
    let (budget, used) = (engine.memory.budget(), engine.memory.used());
    stats.memory_budget_bytes = budget as u64;
    stats.memory_used_bytes = used.sum() as u64;
    stats.memory_messages_bytes = used.messages as u64;
    stats.memory_sessions_bytes = used.sessions as u64;
    stats.memory_pending_bytes = used.pending as u64;
    stats.memory_tables_bytes = used.tables as u64;
    stats.memory_passwords_bytes = used.passwords as u64;
    stats
}

/// The name that stands for no listener.
const NO_LISTENER: &str = "(none)";

/// The refusals by bound listener, with its name at the start; the last ones came through no listener.
pub(crate) fn refusals(engine: &EngineState) -> Vec<(Arc<str>, Refusals)> {
    let of = |listener| metrics::refusals(&engine.metrics, listener);
    let listeners = engine.listeners.iter().enumerate();
    let bound = listeners.map(|(index, name)| (Arc::clone(name), of(Some(index))));
    bound.chain([(NO_LISTENER.into(), of(None))]).collect()
}

/// Connected clients of each bound listener, with its name at the start, by protocol version.
pub(crate) fn clients(engine: &EngineState) -> Vec<(Arc<str>, Tally)> {
    let of = |listener| {
        let shards = engine.metrics.iter().map(|shard| shard.clients(listener));
        tallies::versions(&shards.collect::<Vec<_>>())
    };
    let listeners = engine.listeners.iter().zip(0..);
    listeners
        .map(|(name, listener)| (Arc::clone(name), of(listener)))
        .collect()
}

/// Accepted connections, and the refusals that have occurred, of each listener, as `listeners/NAME/FIGURE`.
pub(crate) fn refusals_by_name(engine: &EngineState) -> impl Iterator<Item = (String, u64)> {
    refusals(engine).into_iter().flat_map(|(name, refusals)| {
        let name: String = name.chars().map(in_topic_level).collect();
        let figures = refusals.figures().into_iter();
        let occurred = figures.filter(|figure| figure.value > 0);
        occurred.map(move |figure| (format!("listeners/{name}/{}", figure.name), figure.value))
    })
}

/// The character of a listener's name in a topic level.
fn in_topic_level(character: char) -> char {
    match character {
        '/' | '+' | '#' => '_',
        character if character.is_control() => '_',
        character => character,
    }
}

/// All figures by name: those of the engine, of its listeners and extensions, and of the store, which begin with `store_`.
pub(crate) fn all(engine: &Arc<EngineState>) -> Vec<(String, u64)> {
    let extensions = engine.figures.iter().flat_map(|figures| figures.figures());
    let figures = stats(engine).figures().into_iter().chain(extensions);
    let figures = figures.map(|figure| (figure.name.to_owned(), figure.value));
    let store = engine.log.iter().flat_map(|log| log.figures());
    let store = store.map(|(name, value)| (format!("store_{name}"), value));
    let refusals = refusals_by_name(engine);
    figures.chain(refusals).chain(store).collect()
}

/// Counts by packet type, transport, QoS and reason, of all shards.
pub(crate) fn tallies(engine: &EngineState) -> Tallies {
    let shards = engine.metrics.iter().map(|metrics| &metrics.tallies);
    let sums = Tallies::sum(&shards.collect::<Vec<_>>(), metrics::drops(&engine.metrics));
    let syncs = engine.log.as_ref().map(|log| log.syncs());
    Tallies { syncs, ..sums }
}

/// Messages received on the topics of each metric of the configuration.
pub(crate) fn topic_counts(engine: &EngineState) -> Vec<TopicCount> {
    let mut sums: Vec<_> = engine.topic_metrics.iter().map(TopicCount::new).collect();
    for metrics in &engine.metrics {
        metrics.topics.add_to(&mut sums);
    }
    sums
}

/// The calls of each hook of the plugins in force.
pub(crate) fn hook_calls(engine: &EngineState) -> Vec<HookCalls> {
    let plugins = engine.plugins().clone();
    plugins.map_or_else(Vec::new, |plugins| plugins.calls())
}

/// Counts the memory that belongs to no shard against the budget.
pub(crate) fn measure_memory(engine: &EngineState) {
    let plugins = engine.plugins().clone();
    let budget = engine.memory.budget();
    let passwords = plugins.map_or(0, |plugins| plugins.password_bytes(budget));
    engine.memory.set_measured(table_bytes(engine), passwords);
}

/// Bytes of subscriptions, retained topics, traces, watches, the store, and extensions.
fn table_bytes(engine: &EngineState) -> usize {
    let extensions = engine.figures.iter().map(|figures| figures.memory_bytes());
    let store = engine.log.as_ref().map_or(0, |log| log.memory_bytes());
    let directory = engine.directory.stats();
    let retained = engine.retained.len() * RETAINED_TOPIC_BYTES;
    let traces = engine.traces.memory_bytes();
    // ORDERING: a figure.
    let watches = engine.watched_bytes.load(Ordering::Relaxed);
    let tables = directory.bytes + directory.retired_bytes + retained + traces + watches;
    tables + extensions.sum::<usize>() + usize::try_from(store).unwrap_or(usize::MAX)
}

/// Bytes of the tree for a retained topic, without the message.
const RETAINED_TOPIC_BYTES: usize = 192;
