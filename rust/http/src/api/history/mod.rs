//! `GET /history`: the figures of the last hour, day and week, in memory; with a data folder, also over a restart.

mod files;
mod metrics;
mod rings;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Json;
use axum::extract::State as Shared;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::tasks::blocking;

use super::ApiState;
use super::page::{unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiQuery, with_near};
use files::{HistoryFiles, STEP_S, SavedRow};
use metrics::{HistoryRow, METRICS, Reading};
use rings::{RESOLUTIONS, Ring};

/// Maximum seconds without a sample that the next sample fills; longer pauses have no values.
const BRIDGED_S: u64 = 5;
/// Steps of [`STEP_S`] that are saved together.
const SAVED_TOGETHER: u64 = 6;
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
    /// Where rows are saved; none without a data folder.
    files: Option<Arc<HistoryFiles>>,
}

#[derive(Debug)]
struct Recorded {
    /// The time of the first sample of this broker, or of the end of reading older rows.
    start: Instant,
    /// The second of the rings at `start`: how far older rows reach back.
    before_s: u64,
    /// The clock's second at the begin of the rings, once rows were saved.
    begin_s: Option<u64>,
    last: Option<Reading>,
    /// The second after the last one that has a row.
    next: u64,
    /// The first step of [`STEP_S`] that is not saved.
    unsaved: u64,
    rings: [Ring; RESOLUTIONS.len()],
}

impl FigureHistory {
    /// A history that is kept below the data folder, if there is one.
    pub(super) fn new(data: Option<&Path>) -> Self {
        Self {
            files: data.map(|data| Arc::new(HistoryFiles::new(data))),
            ..Self::default()
        }
    }

    /// Reads what earlier brokers have saved, before the first sample.
    ///
    /// # Errors
    ///
    /// A file cannot be read: the history begins now.
    pub(super) async fn restore(&self) -> io::Result<()> {
        let Some(files) = self.files.clone() else {
            return Ok(());
        };
        let restore = move || {
            let now_s = unix_ms() / 1_000;
            let rows = files.load(now_s)?;
            Ok::<_, io::Error>(Recorded::restored(Instant::now(), now_s, &rows))
        };
        let restored = blocking(restore).await;
        *self.recorded() = restored.map_err(io::Error::other)??;
        Ok(())
    }

    /// Saves rows if there are many, on a thread for blocking calls. `failed` is told about the first error of several.
    pub(super) fn save(&self, failed: impl FnOnce(io::Error) + Send + 'static) {
        if let Some((files, rows)) = self.unsaved(SAVED_TOGETHER) {
            blocking(move || files.append(&rows).map(failed));
        }
    }

    /// Saves all rows of steps that are over, at the end.
    pub(super) fn save_rest(&self) {
        if let Some((files, rows)) = self.unsaved(1) {
            files.append(&rows);
        }
    }

    /// The rows to save if at least so many steps are over; their files have no other writer then.
    fn unsaved(&self, steps: u64) -> Option<(Arc<HistoryFiles>, Vec<SavedRow>)> {
        let files = self.files.as_ref()?;
        let mut recorded = self.recorded();
        let recorded = recorded.as_mut()?;
        if recorded.unsaved_steps() < steps || !files.begin() {
            return None;
        }
        let rows = recorded.take_unsaved(Instant::now(), unix_ms() / 1_000);
        Some((Arc::clone(files), rows))
    }

    /// Adds a sample.
    pub(super) fn add(&self, now: Instant, figures: &HashMap<String, u64>) {
        let reading = Reading::new(now, figures);
        let mut recorded = self.recorded();
        recorded
            .get_or_insert_with(|| Recorded::new(now, 0))
            .add(now, reading);
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
    fn new(start: Instant, before_s: u64) -> Self {
        Self {
            start,
            before_s,
            begin_s: None,
            last: None,
            next: before_s,
            unsaved: 0,
            rings: RESOLUTIONS.map(Ring::new),
        }
    }

    /// A history with the rows of earlier brokers, the oldest first; none without rows.
    fn restored(now: Instant, now_s: u64, rows: &[SavedRow]) -> Option<Self> {
        let (begin_s, _) = rows.first()?;
        let before_s = now_s.saturating_sub(*begin_s);
        let mut recorded = Self::new(now, before_s);
        for (time_s, row) in rows {
            let begin = time_s - begin_s;
            for ring in &mut recorded.rings {
                if begin + ring.span_s() < before_s {
                    continue;
                }
                if ring.step_s() < STEP_S {
                    (begin..begin + STEP_S).for_each(|second| ring.add(second, row));
                } else {
                    ring.add_mean(begin, STEP_S, row);
                }
            }
            recorded.unsaved = begin / STEP_S + 1;
        }
        Some(recorded)
    }

    /// The second of the rings.
    fn second(&self, now: Instant) -> u64 {
        self.before_s + now.saturating_duration_since(self.start).as_secs()
    }

    fn saved_ring(&self) -> Option<&Ring> {
        self.ring_of(STEP_S)
    }

    /// The number of steps that are over and not saved.
    fn unsaved_steps(&self) -> u64 {
        let open = self.saved_ring().map_or(0, Ring::open_step);
        open.saturating_sub(self.unsaved)
    }

    /// The clock's second at the begin of the rings. Both clocks are read in whole seconds, so that their difference may
    /// be one less than before: rows would then be less than a step apart. It changes only if the clock was set.
    fn begin_s(&mut self, now: Instant, now_s: u64) -> u64 {
        let begin_s = now_s.saturating_sub(self.second(now));
        let before = self.begin_s.filter(|before| begin_s.abs_diff(*before) <= 1);
        *self.begin_s.insert(before.unwrap_or(begin_s))
    }

    /// The rows of steps that are over and not saved, without those that have no value.
    fn take_unsaved(&mut self, now: Instant, now_s: u64) -> Vec<SavedRow> {
        let begin_s = self.begin_s(now, now_s);
        let Some(ring) = self.saved_ring() else {
            return Vec::new();
        };
        let rows = ring.over(self.unsaved);
        let rows = rows.filter(|(_, row)| row.iter().any(|value| !value.is_nan()));
        let rows = rows
            .map(|(step, row)| (begin_s + step * STEP_S, row))
            .collect();
        self.unsaved = ring.open_step();
        rows
    }

    /// Adds new values for all seconds since the last ones, unless these are too many.
    fn add(&mut self, now: Instant, reading: Reading) {
        let second = self.second(now);
        let row = reading.row(self.last.as_ref());
        let first = match (second + 1).saturating_sub(self.next) {
            0..=BRIDGED_S => self.next,
            _ => second,
        };
        for second in first..=second {
            for ring in &mut self.rings {
                ring.add(second, &row);
            }
        }
        self.last = Some(reading);
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
    let (begin_s, rows) = ring.since(recorded.second(now).saturating_sub(back_s));
    let since_start = now.saturating_duration_since(recorded.start);
    let begun_ms = now_ms.saturating_sub(recorded.before_s * 1_000 + whole_ms(since_start));
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
    rows: impl Iterator<Item = HistoryRow>,
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
                ("deliver_p50_us".to_owned(), ms / 2_000 * 50),
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
        assert_eq!(
            of(&recorded, "dropped_offline"),
            [None, Some(2.0), Some(2.0)]
        );
        assert_eq!(of(&recorded, "deliver_p50_us"), [None, None, Some(50.0)]);
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

    /// Samples with so many sessions, one a second, from second `from` behind `start` on.
    fn add(history: &FigureHistory, start: Instant, from: u64, sessions: &[u64]) {
        for (second, count) in (from..).zip(sessions) {
            let figures = [("sessions".to_owned(), *count)];
            let now = start + Duration::from_secs(second);
            history.add(now, &figures.into_iter().collect());
        }
    }

    #[test]
    fn a_later_broker_goes_on_with_what_was_saved() {
        let folder = std::env::temp_dir().join(format!("mqttcore_kept_{}", std::process::id()));
        let (first, start) = (FigureHistory::new(Some(&folder)), Instant::now());
        add(&first, start, 0, &[[4; 10], [6; 10]].concat());
        first.save_rest();
        add(&first, start, 20, &[8; 15]);
        first.save_rest();
        // Rows have the times of samples, which are in the future of this test.
        let future_s = unix_ms() / 1_000 + 50;
        let rows = HistoryFiles::new(&folder).load(future_s).expect("read");
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(rows.len(), 3, "the step that was not over is lost");
        let now_s = rows[0].0 + 50;

        let later = FigureHistory::default();
        *later.recorded() = Recorded::restored(start, now_s, &rows);
        add(&later, start, 0, &[1, 1]);

        let recorded = later.recorded();
        let recorded = recorded.as_ref().expect("rows");
        let before = usize::try_from(recorded.before_s).expect("seconds");
        assert_eq!(before, 50);
        let [seconds, steps, minutes] = recorded.rings.each_ref().map(|ring| {
            let (begin, rows) = ring.since(0);
            let rows: Vec<_> = rows.map(|row| row[14]).collect();
            assert_eq!(begin, 0);
            rows
        });
        assert_eq!(METRICS[14].name, "sessions");
        assert_eq!(seconds.len(), before + 2);
        assert_eq!(seconds[..30], [[4.0; 10], [6.0; 10], [8.0; 10]].concat());
        assert!(seconds[30..before].iter().all(|value| value.is_nan()));
        assert_eq!(seconds[before..], [1.0, 1.0]);
        assert_eq!(steps[..3], [4.0, 6.0, 8.0]);
        assert_eq!(minutes, [(180.0 + 2.0) / 32.0]);
        assert_eq!(recorded.unsaved, 3);
    }

    #[test]
    fn rows_are_saved_once_and_a_minute_of_them_together() {
        let folder = std::env::temp_dir().join(format!("mqttcore_saved_{}", std::process::id()));
        let (history, start) = (FigureHistory::new(Some(&folder)), Instant::now());
        let saved = |steps| {
            let (files, rows) = history.unsaved(steps)?;
            assert!(history.unsaved(1).is_none(), "one writer");
            assert!(files.append(&rows).is_none());
            Some(rows.len())
        };

        add(&history, start, 0, &[7; 60]);
        assert_eq!(saved(SAVED_TOGETHER), None);
        add(&history, start, 60, &[7]);
        assert_eq!(saved(SAVED_TOGETHER), Some(6));
        assert_eq!(saved(1), None);
        add(&history, start, 61, &[7; 20]);
        assert_eq!(saved(SAVED_TOGETHER), None);
        assert_eq!(saved(1), Some(2));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn rows_are_whole_steps_apart_unless_the_clock_is_set() {
        let mut recorded = recorded(&[]);
        let start = recorded.start;
        assert_eq!(recorded.begin_s(start, 1_000), 1_000);
        let later = start + Duration::from_millis(60_900);
        assert_eq!(recorded.begin_s(later, 1_061), 1_000);
        assert_eq!(recorded.begin_s(later, 1_059), 1_000);
        assert_eq!(recorded.begin_s(later, 1_360), 1_300);
        assert_eq!(recorded.begin_s(later, 1_361), 1_300);
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
