//! What the broker says of itself: counters of all shards together, and the acknowledgement levels in force.

use std::sync::Arc;

use crate::routing::retain;
use crate::runtime::metrics::Stats;
use crate::shard::{EngineState, Shard};

/// Sums the counters of all shards.
pub(crate) fn stats(world: &Arc<EngineState>) -> Stats {
    let mut stats = Stats::default();
    for metrics in &world.metrics {
        stats.add(metrics);
    }
    stats.sessions_to_come = world.loading.to_come().unwrap_or(1);
    let directory = world.directory.stats();
    stats.subscriptions = directory.subscriptions as u64;
    stats.directory_nodes = directory.nodes as u64;
    stats.directory_retired_bytes = directory.retired_bytes as u64;
    stats.directory_garbage_waits = directory.garbage_waits;
    stats.retained_messages = retain::count(world) as u64;
    stats.uptime_s = world.started.elapsed().as_secs();
    for figures in &world.figures {
        figures.add_figures(&mut stats);
    }
    stats
}

/// What is in force on `shard`, what an external log promises included.
pub(crate) fn promises_in_force(shard: &Shard) -> String {
    let external = shard.world.rows.iter().flat_map(|rows| rows.promises());
    let all = [shard.config().promises()].into_iter().chain(external);
    all.collect::<Vec<_>>().join("; ")
}
