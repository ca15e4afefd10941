//! `GET /history`: the figures of the last hour, day and week, in memory.

mod metrics;
mod rings;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Json;
use axum::extract::State as Shared;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::page::{unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiQuery, with_near};
use metrics::{METRICS, Reading, Row};
use rings::{RESOLUTIONS, Ring};

/// Maximum seconds without a sample that the next sample fills; longer pauses have no values.
const BRIDGED_S: u64 = 5;
/// Seconds before now, if a request does not say since when.
const DEFAULT_FROM: i64 = -3_600;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(history))
}

/// The figures of the last hour, day and week.
#[derive(Debug, Default)]
pub(super) struct FigureHistory {
    recorded: Mutex<Option<Recorded>>,
    /// Bytes of all values; a shard reads it, which must not wait for an answer that is being written.
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct Recorded {
    /// The time of the first sample: second 0 of the rings.
    start: Instant,
    last: Reading,
    /// The second after the last one that has a row.
    next: u64,
    rings: [Ring; RESOLUTIONS.len()],
}

impl FigureHistory {
    /// Adds a sample.
    pub(super) fn add(&self, now: Instant, figures: &HashMap<String, u64>) {
        let reading = Reading::new(now, figures);
        let mut recorded = self.recorded();
        match &mut *recorded {
            Some(recorded) => recorded.add(now, reading),
            None => *recorded = Some(Recorded::new(now, reading)),
        }
        let rings = recorded.iter().flat_map(|recorded| &recorded.rings);
        // ORDERING: a figure.
        self.bytes
            .store(rings.map(Ring::memory_bytes).sum(), Ordering::Relaxed);
    }

    /// Bytes of the values.
    pub(super) fn memory_bytes(&self) -> usize {
        // ORDERING: a figure.
        self.bytes.load(Ordering::Relaxed)
    }

    fn recorded(&self) -> MutexGuard<'_, Option<Recorded>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    fn new(start: Instant, last: Reading) -> Self {
        let mut rings = RESOLUTIONS.map(Ring::new);
        let row = last.row(None);
        for ring in &mut rings {
            ring.add(0, &row);
        }
        Self {
            start,
            last,
            next: 1,
            rings,
        }
    }

    /// Adds new values for all seconds since the last ones, unless these are too many.
    fn add(&mut self, now: Instant, reading: Reading) {
        let second = now.saturating_duration_since(self.start).as_secs();
        let row = reading.row(Some(&self.last));
        let first = match (second + 1).saturating_sub(self.next) {
            0..=BRIDGED_S => self.next,
            _ => second,
        };
        for second in first..=second {
            for ring in &mut self.rings {
                ring.add(second, &row);
            }
        }
        self.last = reading;
        self.next = self.next.max(second + 1);
    }

    fn ring_of(&self, step_s: u64) -> Option<&Ring> {
        self.rings.iter().find(|ring| ring.step_s() == step_s)
    }

    /// The finest ring that reaches back so many seconds.
    fn ring_for(&self, back_s: u64) -> &Ring {
        let last = &self.rings[RESOLUTIONS.len() - 1];
        let mut rings = self.rings.iter();
        rings.find(|ring| ring.span_s() >= back_s).unwrap_or(last)
    }
}

/// The query of `GET /history`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Names of metrics, separated by commas. Default: all.
    metric: Option<String>,
    /// The begin: Unix time in seconds, or, if it is negative, seconds before now. Default: an hour ago.
    from: Option<i64>,
    /// Length of a step in seconds: 1 for the last hour, 10 for the last day, 60 for the last week. Default: the shortest one that
    /// reaches back to `from`.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 60)]
    step: Option<u64>,
}

/// Values of the past.
#[derive(Serialize, ToSchema)]
struct Values {
    /// Length of a step in seconds.
    step_s: u64,
    /// Begin of the first step, in Unix milliseconds. It is later than `from` if that is not kept any more.
    from_ms: u64,
    /// Time of the answer, in Unix milliseconds.
    as_of_ms: u64,
    /// The values of each metric, one a step, the oldest first; the last step is not over. Counters are means per
    /// second, others means. Null: the broker did not run, or has no such figure.
    metrics: BTreeMap<&'static str, Vec<Option<f32>>>,
}

/// Returns figures of the last hour, day or week.
#[utoipa::path(get, path = "/api/v1/history", tag = "broker", security(("key" = ["view"])), params(HistoryQuery),
    responses((status = 200, body = Values)))]
async fn history(
    Shared(state): Shared<ApiState>,
    ApiQuery(query): ApiQuery<HistoryQuery>,
) -> Result<Json<Values>, Problem> {
    let places = places(query.metric.as_deref())?;
    let (now, now_ms) = (Instant::now(), unix_ms());
    let back_s = seconds_back(query.from.unwrap_or(DEFAULT_FROM), now_ms / 1_000);
    let recorded = state.history.recorded();
    let recorded = recorded.as_ref().ok_or_else(|| {
        let text = "there are no figures yet";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text).retry_after(1)
    })?;
    let ring = match query.step {
        None => recorded.ring_for(back_s),
        Some(step_s) => recorded.ring_of(step_s).ok_or_else(|| {
            Problem::bad("step is not 1, 10 or 60").hint("without it, from decides")
        })?,
    };
    let since_start = now.saturating_duration_since(recorded.start);
    let (begin_s, rows) = ring.since(since_start.as_secs().saturating_sub(back_s));
    let begun_ms = now_ms.saturating_sub(whole_ms(since_start));
    Ok(Json(Values {
        step_s: ring.step_s(),
        from_ms: begun_ms + begin_s * 1_000,
        as_of_ms: now_ms,
        metrics: columns(&places, rows),
    }))
}

/// Seconds from the begin of a question to now.
fn seconds_back(from: i64, now_s: u64) -> u64 {
    match u64::try_from(from) {
        Ok(from) => now_s.saturating_sub(from),
        Err(_) => from.unsigned_abs(),
    }
}

/// The places of metrics in a row.
///
/// # Errors
///
/// A name is not known.
fn places(names: Option<&str>) -> Result<Vec<usize>, Problem> {
    let Some(names) = names else {
        return Ok((0..METRICS.len()).collect());
    };
    let place = |name: &str| {
        let found = METRICS.iter().position(|metric| metric.name == name);
        found.ok_or_else(|| {
            let known = METRICS.each_ref().map(|metric| metric.name);
            with_near(
                Problem::bad(format!("unknown metric: {name:?}")),
                name,
                &known,
            )
        })
    };
    names.split(',').map(place).collect()
}

fn columns(
    places: &[usize],
    rows: impl Iterator<Item = Row>,
) -> BTreeMap<&'static str, Vec<Option<f32>>> {
    let mut columns: BTreeMap<_, _> = places.iter().map(|place| (*place, Vec::new())).collect();
    for row in rows {
        for (place, column) in &mut columns {
            column.push((!row[*place].is_nan()).then_some(row[*place]));
        }
    }
    let named = columns.into_iter();
    named
        .map(|(place, column)| (METRICS[place].name, column))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 10 messages a second, one sample after each of `pauses_ms`.
    fn recorded(pauses_ms: &[u64]) -> Recorded {
        let (history, start) = (FigureHistory::default(), Instant::now());
        let mut ms = 0;
        for pause in [&[0], pauses_ms].concat() {
            ms += pause;
            let figures = [
                ("messages_received".to_owned(), ms / 100),
                ("sessions".to_owned(), 7),
                ("dropped_offline".to_owned(), ms / 500),
                ("dropped_memory".to_owned(), ms / 500),
            ];
            history.add(
                start + Duration::from_millis(ms),
                &figures.into_iter().collect(),
            );
        }
        let recorded = history.recorded.into_inner().expect("no panic");
        recorded.expect("a sample")
    }

    fn of(recorded: &Recorded, name: &str) -> Vec<Option<f32>> {
        let places = places(Some(name)).expect("known");
        let (_, rows) = recorded.rings[0].since(0);
        columns(&places, rows).remove(name).expect("asked for")
    }

    #[test]
    fn counters_are_rates_and_others_are_values() {
        let recorded = recorded(&[1_000, 1_000]);

        assert_eq!(
            of(&recorded, "messages_received"),
            [None, Some(10.0), Some(10.0)]
        );
        assert_eq!(of(&recorded, "dropped"), [None, Some(4.0), Some(4.0)]);
        assert_eq!(of(&recorded, "sessions"), [Some(7.0); 3]);
        assert_eq!(of(&recorded, "store_log_bytes"), [None; 3]);
    }

    #[test]
    fn a_late_sample_stands_for_the_seconds_before_it_but_not_for_a_long_pause() {
        let late = recorded(&[2_000, 1_000]);
        assert_eq!(of(&late, "sessions"), [Some(7.0); 4]);
        assert_eq!(of(&late, "messages_received")[1..], [Some(10.0); 3]);

        let paused = recorded(&[1_000, 10_000]);
        let sessions = of(&paused, "sessions");
        assert_eq!(sessions.len(), 12);
        assert_eq!(sessions[..2], [Some(7.0); 2]);
        assert_eq!(sessions[2..11], [None; 9]);
        assert_eq!(sessions[11], Some(7.0));
    }

    #[test]
    fn two_samples_in_a_second_are_one_value() {
        let recorded = recorded(&[600, 600, 600, 600]);

        assert_eq!(of(&recorded, "sessions"), [Some(7.0); 3]);
    }

    #[test]
    fn the_finest_resolution_that_reaches_back_is_chosen() {
        let recorded = recorded(&[]);
        for (back_s, step_s) in [
            (0, 1),
            (3_600, 1),
            (3_601, 10),
            (86_401, 60),
            (u64::MAX, 60),
        ] {
            assert_eq!(recorded.ring_for(back_s).step_s(), step_s, "{back_s}");
        }
        assert_eq!(seconds_back(-60, 1_000), 60);
        assert_eq!(seconds_back(940, 1_000), 60);
        assert_eq!(seconds_back(2_000, 1_000), 0);
        assert_eq!(seconds_back(i64::MIN, 1_000), 1 << 63);
    }
}
