//! `GET /livez`, `/healthz` and `/readyz`: health of the broker for supervisors and load balancers.
//!
//! No authentication is required; responses do not contain the version.

use hyper::StatusCode;
use mqttcore_broker::{Health, Pressure};
use serde_json::{Value, json};

use super::answer::{HttpResponse, json};

/// A kind of health probe.
#[derive(Clone, Copy, Debug)]
pub(super) enum Probe {
    /// The process makes progress; otherwise a supervisor should restart it.
    Live,
    /// The broker also has no failure.
    Healthy,
    /// The broker accepts clients; otherwise a load balancer should send them elsewhere.
    Ready,
}

/// One condition of a probe.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    is_ok: bool,
    /// The probe succeeds even if this check fails.
    is_bearable: bool,
    /// The problem, as text; `None` if there is none.
    pub(super) detail: Option<String>,
    /// A remedy for operators.
    pub(super) fix: &'static str,
}

/// The failed checks whose cause an operator can remove.
pub(super) fn failed(health: &Health) -> impl Iterator<Item = Check> {
    let checks = [shards, store, listeners, disk, memory, rows, plugins];
    let checks = checks.map(|check| check(health));
    checks.into_iter().filter(|check| !check.is_ok)
}

impl Probe {
    /// The probe of a path.
    pub(super) fn of(path: &str) -> Option<Self> {
        match path {
            "/livez" => Some(Self::Live),
            "/healthz" => Some(Self::Healthy),
            "/readyz" => Some(Self::Ready),
            _ => None,
        }
    }

    /// Responds with 200 if each check passes or is bearable, else with 503; the body lists the checks. `health` is
    /// `None` once the broker has stopped.
    pub(super) fn answer(self, health: Option<&Health>) -> HttpResponse {
        let checks = health.map_or_else(Vec::new, |health| self.checks(health));
        let is_ok = health.is_some() && checks.iter().all(|check| check.is_ok || check.is_bearable);
        let status = self.status(is_ok, &checks);
        let checks = checks.into_iter().map(Value::from).collect::<Vec<_>>();
        let mut answer = json(&json!({"status": status, "checks": checks}));
        if !is_ok {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        answer
    }

    /// The overall status as one word.
    fn status(self, is_ok: bool, checks: &[Check]) -> &'static str {
        match (self, is_ok) {
            (_, true) if checks.iter().any(|check| !check.is_ok) => "degraded",
            (Self::Live, true) => "alive",
            (Self::Healthy, true) => "healthy",
            (Self::Ready, true) => "ready",
            (Self::Live, false) => "stuck",
            (Self::Healthy, false) => "failed",
            (Self::Ready, false) => "not ready",
        }
    }

    fn checks(self, health: &Health) -> Vec<Check> {
        match self {
            Self::Live => vec![shards(health)],
            Self::Healthy => vec![shards(health), store(health)],
            Self::Ready => vec![
                shards(health),
                store(health),
                listeners(health),
                sessions(health),
                disk(health),
                memory(health),
                rows(health),
                plugins(health),
            ],
        }
    }
}

fn shards(health: &Health) -> Check {
    let fix = "see the log; report it with a stack of the process";
    Check::new("shards", fix, health.stuck.is_empty(), || {
        let stuck = health.stuck.iter().map(|shard| {
            let age = health.turns.get(*shard).copied().unwrap_or_default();
            format!("shard {shard} has not run for {} s", age.as_secs())
        });
        stuck.collect::<Vec<_>>().join("; ")
    })
}

fn store(health: &Health) -> Check {
    let fix = "see the log, then restart the broker";
    Check::new("broker", fix, !health.has_failed, || {
        "the store or a thread of the broker has failed; the log says why".into()
    })
}

fn rows(health: &Health) -> Check {
    let fix = "see the log for the error of Kafka";
    Check::new("rows", fix, health.has_room_for_rows, || {
        "Kafka does not accept records".into()
    })
}

/// Bearable while the disk is nearly full: resumed sessions, sessions that are not kept and QoS 0 still work.
fn disk(health: &Health) -> Check {
    let detail = match health.pressure {
        Pressure::Hard => "the disk of the data folder is full",
        _ => {
            "the disk of the data folder is nearly full: new kept sessions and stored publishes are refused"
        }
    };
    let fix = "make room on the disk of the data folder";
    let is_ok = health.pressure == Pressure::None;
    Check {
        is_bearable: health.pressure == Pressure::Soft,
        ..Check::new("disk", fix, is_ok, || detail.into())
    }
}

fn memory(health: &Health) -> Check {
    let fix = "raise limits.memory_bytes, or disconnect the largest clients";
    Check {
        is_bearable: true,
        ..Check::new("memory", fix, !health.is_memory_full, || {
            "the memory budget is used up: new kept sessions, and messages that would be queued, are refused".into()
        })
    }
}

fn listeners(health: &Health) -> Check {
    let is_ok = health.is_listening && !health.is_paused;
    let fix = "resume the listener, or wait until the broker has started";
    Check::new("listeners", fix, is_ok, || {
        let detail = if health.is_listening {
            "an operator has paused a listener"
        } else {
            "the listeners do not accept connections"
        };
        detail.into()
    })
}

/// Bearable: requests that need the plugin are refused, and other clients are served.
fn plugins(health: &Health) -> Check {
    let degraded = &health.degraded_plugins;
    let fix = "see the log, and what the plugin needs, such as its database";
    Check {
        is_bearable: true,
        ..Check::new("plugins", fix, degraded.is_empty(), || degraded.join("; "))
    }
}

fn sessions(health: &Health) -> Check {
    Check::new(
        "sessions",
        "wait until the sessions are loaded",
        health.sessions_to_come == Some(0),
        || match health.sessions_to_come {
            Some(count) => format!("{count} sessions are still being loaded"),
            None => "the sessions are still being counted".into(),
        },
    )
}

impl Check {
    fn new(
        name: &'static str,
        fix: &'static str,
        is_ok: bool,
        detail: impl FnOnce() -> String,
    ) -> Self {
        Self {
            name,
            fix,
            is_ok,
            is_bearable: false,
            detail: (!is_ok).then(detail),
        }
    }
}

impl From<Check> for Value {
    fn from(check: Check) -> Self {
        match check.detail {
            None => json!({"name": check.name, "ok": check.is_ok}),
            Some(detail) => json!({"name": check.name, "ok": check.is_ok, "detail": detail}),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Health of a broker with two shards that has started.
    fn well() -> Health {
        let mut health = Health::default();
        health.turns = vec![Duration::ZERO, Duration::ZERO];
        health.is_listening = true;
        health.has_room_for_rows = true;
        health.sessions_to_come = Some(0);
        health
    }

    /// The names and details of the failed checks.
    fn failing(probe: Probe, health: &Health) -> Vec<(&'static str, String)> {
        let checks = probe.checks(health).into_iter();
        checks
            .filter(|check| !check.is_ok)
            .map(|check| (check.name, check.detail.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_broker_that_works_passes_all_probes() {
        for probe in [Probe::Live, Probe::Healthy, Probe::Ready] {
            assert_eq!(probe.answer(Some(&well())).status(), StatusCode::OK);
        }
        assert_eq!(failed(&well()).count(), 0);
    }

    #[test]
    fn a_stuck_shard_is_named() {
        let mut health = well();
        health.turns[1] = Duration::from_secs(12);
        health.stuck = vec![1];

        for probe in [Probe::Live, Probe::Healthy, Probe::Ready] {
            let found = failing(probe, &health);
            assert_eq!(
                found,
                [("shards", "shard 1 has not run for 12 s".to_owned())]
            );
            let status = probe.answer(Some(&health)).status();
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    #[test]
    fn a_failed_broker_is_alive_and_not_healthy() {
        let mut health = well();
        health.has_failed = true;

        assert!(failing(Probe::Live, &health).is_empty());
        assert_eq!(failing(Probe::Healthy, &health)[0].0, "broker");
        assert_eq!(failing(Probe::Ready, &health)[0].0, "broker");
    }

    #[test]
    fn each_failed_check_says_what_to_do() {
        let mut health = well();
        health.stuck = vec![0];
        health.has_failed = true;
        health.pressure = Pressure::Soft;
        health.is_memory_full = true;
        health.has_room_for_rows = false;
        health.is_paused = true;
        health.degraded_plugins = vec!["Doors.check: no database".into()];
        health.sessions_to_come = Some(1);

        let found: Vec<_> = failed(&health).collect();

        let names: Vec<_> = found.iter().map(|check| check.name).collect();
        let all = [
            "shards",
            "broker",
            "listeners",
            "disk",
            "memory",
            "rows",
            "plugins",
        ];
        assert_eq!(names, all);
        assert!(
            found
                .iter()
                .all(|check| check.detail.is_some() && !check.fix.is_empty())
        );
    }

    #[test]
    fn clients_should_not_come_before_all_is_there() {
        for (change, name) in [
            (
                (|health| health.is_listening = false) as fn(&mut Health),
                "listeners",
            ),
            (|health| health.sessions_to_come = None, "sessions"),
            (|health| health.sessions_to_come = Some(7), "sessions"),
            (|health| health.pressure = Pressure::Hard, "disk"),
            (|health| health.has_room_for_rows = false, "rows"),
        ] {
            let mut health = well();
            change(&mut health);

            assert!(failing(Probe::Healthy, &health).is_empty(), "{name}");
            let found = failing(Probe::Ready, &health);
            assert_eq!(
                found.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
                [name]
            );
            assert!(!found[0].1.is_empty());
        }
    }

    /// New kept sessions are refused, others are not.
    #[test]
    fn with_little_space_or_memory_clients_may_come_and_the_answer_says_degraded() {
        for (change, name) in [
            (
                (|health| health.pressure = Pressure::Soft) as fn(&mut Health),
                "disk",
            ),
            (|health| health.is_memory_full = true, "memory"),
        ] {
            let mut health = well();
            change(&mut health);

            let checks = Probe::Ready.checks(&health);
            assert_eq!(Probe::Ready.status(true, &checks), "degraded");
            assert_eq!(Probe::Ready.answer(Some(&health)).status(), StatusCode::OK);
            assert!(failing(Probe::Healthy, &health).is_empty());
            let found = failing(Probe::Ready, &health);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].0, name);
            assert!(found[0].1.contains("new kept sessions"));

            health.is_listening = false;
            let status = Probe::Ready.answer(Some(&health)).status();
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    #[test]
    fn a_degraded_plugin_is_named_and_clients_may_come() {
        let mut health = well();
        health.degraded_plugins = vec!["Doors.check: no database".into()];

        let checks = Probe::Ready.checks(&health);

        assert_eq!(Probe::Ready.status(true, &checks), "degraded");
        assert_eq!(Probe::Ready.answer(Some(&health)).status(), StatusCode::OK);
        assert!(failing(Probe::Healthy, &health).is_empty());
        let found = failing(Probe::Ready, &health);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("no database"));
    }

    #[test]
    fn a_broker_that_has_ended_passes_no_probe() {
        let answer = Probe::Live.answer(None);

        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
