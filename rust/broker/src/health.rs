//! Health of the broker: whether its shards run, whether its store works, and whether clients may connect.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqttcore_store::Pressure;

use crate::figures;
use crate::runtime::memory::MemoryLevel;
use crate::shard::EngineState;

/// A shard that has not run for this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The state of a broker for external monitoring.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a condition of its own"
)]
pub struct Health {
    /// How long ago each shard had its last turn; a running shard turns each 100 ms.
    pub turns: Vec<Duration>,
    /// The shards that have not run for 10 s. None while the broker stops.
    pub stuck: Vec<usize>,
    /// The store or a thread of the broker has failed: the broker disconnects its clients and stops.
    pub has_failed: bool,
    /// The broker accepts connections on all listeners that are not paused.
    pub is_listening: bool,
    /// An operator has paused a listener.
    pub is_paused: bool,
    /// Sessions that are still being loaded after a start; `None` while their number is unknown.
    pub sessions_to_come: Option<u64>,
    /// Space on the disk of the store.
    pub pressure: Pressure,
    /// The budget of memory is used up: new kept sessions are refused.
    pub is_memory_full: bool,
    /// The external log of streams takes records.
    pub has_room_for_rows: bool,
    /// Reports of degraded plugins, and hooks that are not called: the name of the hook and a text.
    pub degraded_plugins: Vec<String>,
}

/// The health of the broker at `now`.
pub(crate) fn health(engine: &EngineState, now: Instant) -> Health {
    let turns = engine.last_turns.ages(now);
    let is_stopping = engine.is_stopping();
    let late = turns.iter().map(|age| *age >= STUCK_AFTER && !is_stopping);
    let stuck = late.enumerate().filter(|(_, is_late)| *is_late);
    let log = engine.log.as_ref();
    Health {
        stuck: stuck.map(|(shard, _)| shard).collect(),
        has_failed: engine.failing.has_failed(),
        // ORDERING: a figure; nothing else is read because of it.
        is_listening: engine.is_listening.load(Ordering::Relaxed) && !is_stopping,
        is_paused: engine
            .paused
            .iter()
            .any(|paused| paused.load(Ordering::Relaxed)),
        sessions_to_come: engine.loading.remaining(),
        pressure: log.map_or(Pressure::None, |log| log.store.pressure()),
        is_memory_full: engine.memory.level() == MemoryLevel::Full,
        has_room_for_rows: engine.rows.as_ref().is_none_or(|rows| rows.has_room()),
        degraded_plugins: degraded_plugins(engine),
        turns,
    }
}

/// The reports of plugins, and the hooks that are not called now.
fn degraded_plugins(engine: &EngineState) -> Vec<String> {
    let calls = figures::hook_calls(engine).into_iter();
    let paused = calls.filter(|hook| hook.is_paused).map(|hook| {
        let (plugin, hook) = (hook.plugin, hook.hook);
        format!(
            "{plugin}.{hook}: not called, because it keeps failing or blocks threads; its questions are refused"
        )
    });
    let mut all = engine.degraded_plugins().clone();
    all.extend(paused);
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::hooks::{
        AuthorizeDecision, AuthorizeRequest, HookInterests, Hooks, LogLine, Login, LoginDecision,
        Reply,
    };
    use crate::config::measures::HookCalls;
    use crate::config::plugin_event::PluginEvent;
    use crate::shard::EngineParts;

    #[test]
    fn a_shard_that_has_not_turned_for_10_s_is_stuck() {
        let engine = EngineState::new(&Arc::default(), 2, 1, EngineParts::default());
        let later = engine.started + STUCK_AFTER;

        assert_eq!(health(&engine, later).stuck, [0, 1]);

        engine
            .last_turns
            .record(0, engine.started + Duration::from_secs(1));
        assert_eq!(health(&engine, later).stuck, [1]);
    }

    #[test]
    fn a_used_up_budget_of_memory_is_seen() {
        let engine = EngineState::new(&Arc::default(), 1, 1, EngineParts::default());
        assert!(!health(&engine, engine.started).is_memory_full);

        engine.memory.set_budget(0);
        engine.memory.judge();

        assert!(health(&engine, engine.started).is_memory_full);
    }

    #[test]
    fn a_shard_of_a_broker_that_stops_is_not_stuck() {
        let engine = EngineState::new(&Arc::default(), 1, 1, EngineParts::default());
        engine.is_listening.store(true, Ordering::Relaxed);
        assert!(health(&engine, engine.started).is_listening);

        engine.stopping.store(true, Ordering::Release);

        let health = health(&engine, engine.started + STUCK_AFTER);
        assert!(health.stuck.is_empty());
        assert!(!health.is_listening);
    }

    #[test]
    fn a_hook_that_is_not_called_is_degraded() {
        struct Paused;
        impl Hooks for Paused {
            fn interests(&self) -> HookInterests {
                HookInterests::default()
            }

            fn authenticate(&self, _: Arc<Login>, _: Reply<LoginDecision>) {}

            fn authorize(&self, _: AuthorizeRequest, _: Reply<AuthorizeDecision>) {}

            fn event(&self, _: PluginEvent) {}

            fn log(&self, _: LogLine) {}

            fn calls(&self) -> Vec<HookCalls> {
                let call = |hook: &str, is_paused| HookCalls {
                    plugin: "Doors".into(),
                    hook: hook.into(),
                    is_paused,
                    ..HookCalls::default()
                };
                vec![call("connect", false), call("check", true)]
            }
        }
        let engine = EngineState::new(&Arc::default(), 1, 1, EngineParts::default());
        *engine.degraded_plugins() = vec!["Doors.health: no database".into()];
        *engine.plugins() = Some(Arc::new(Paused));

        let found = health(&engine, engine.started).degraded_plugins;

        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "Doors.health: no database");
        assert!(
            found[1].starts_with("Doors.check: not called"),
            "{}",
            found[1]
        );
    }
}
