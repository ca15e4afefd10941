//! Counters of the calls of each hook: Python counts, and a scrape of metrics reads them without Python.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mqttcore_broker::{AtomicHistogram, HookCalls};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Outcomes of a call.
const RESULTS: [&str; 6] = [
    "allowed",
    "denied",
    "passed",
    "failed",
    "timed_out",
    "shut_out",
];

/// A result: its place in [`RESULTS`].
#[derive(Clone, Copy, Debug)]
pub(super) enum CallResult {
    Allowed = 0,
    Denied = 1,
    Passed = 2,
    ShutOut = 5,
}

/// A counter that any thread may change.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, count: u64) {
        // ORDERING: a figure.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        // ORDERING: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one hook.
#[derive(Debug, Default)]
pub(super) struct HookCounters {
    plugin: Arc<str>,
    hook: Arc<str>,
    /// The queue of its questions, if it has one.
    pub(super) worker: Option<usize>,
    begun: Count,
    in_flight: AtomicU64,
    results: [Count; RESULTS.len()],
    cache_hits: Count,
    run: AtomicHistogram,
    wait: AtomicHistogram,
    /// Time in which calls waited for their client, which is not in the sum of `run`: subtracted when they end.
    rested_ns: AtomicU64,
    /// The breaker of the hook is not closed.
    is_paused: AtomicBool,
}

impl HookCounters {
    /// Counts a call that begins.
    pub(super) fn begin(&self) {
        self.begun.add(1);
    }

    /// Counts what became of a call, or of a question without one.
    pub(super) fn count(&self, result: CallResult) {
        self.results[result as usize].add(1);
    }

    /// Ends the calls of a question, which took so long together.
    fn leave(&self, spent_ns: u64, calls: u64) {
        let mut rested = 0;
        let subtract = |debt: u64| {
            rested = debt.min(spent_ns);
            Some(debt - rested)
        };
        // ORDERING: figures. No thread waits for them.
        let order = Ordering::Relaxed;
        let _ = self.rested_ns.fetch_update(order, order, subtract);
        let each = Duration::from_nanos(spent_ns.checked_div(calls).unwrap_or(0));
        let spent = Duration::from_nanos(spent_ns - rested);
        self.run.add_several(each, calls, spent);
        // ORDERING: a thread that sees the end sees the time of the call.
        self.in_flight.fetch_sub(1, Ordering::Release);
    }

    /// The figures of the hook; `waiting` questions are in its queue.
    pub(super) fn read(&self, waiting: u64) -> HookCalls {
        let results = RESULTS.iter().zip(&self.results);
        HookCalls {
            plugin: Arc::clone(&self.plugin),
            hook: Arc::clone(&self.hook),
            results: results
                .map(|(name, count)| (*name, count.value()))
                .collect(),
            in_flight: self.in_flight.load(Ordering::Acquire),
            cache_hits: self.cache_hits.value(),
            run: self.run.read(),
            wait: self.wait.read(),
            waiting,
            // ORDERING: a figure.
            is_paused: self.is_paused.load(Ordering::Relaxed),
        }
    }
}

/// The counters of one hook, for `mqttcore.plugin.stats`.
#[pyclass(name = "HookCounters", module = "mqttcore._core", frozen)]
pub(crate) struct PyHookCounters(pub(super) Arc<HookCounters>);

#[pymethods]
impl PyHookCounters {
    /// ``worker``: the number of its queue; None: nobody asks it.
    #[new]
    #[pyo3(signature = (plugin, hook, /, *, worker = None))]
    fn new(plugin: &str, hook: &str, worker: Option<usize>) -> Self {
        Self(Arc::new(HookCounters {
            plugin: plugin.into(),
            hook: hook.into(),
            worker,
            ..HookCounters::default()
        }))
    }

    /// Records that a call begins.
    fn begin(&self) {
        self.0.begin();
    }

    /// Records that calls of a question are running, for which it waited so many seconds; None: nobody waited.
    #[pyo3(signature = (waited, /))]
    fn enter(&self, waited: Option<f64>) {
        // ORDERING: as in `leave`.
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        if let Some(waited) = waited.map(nanoseconds) {
            self.0.wait.add(Duration::from_nanos(waited));
        }
    }

    /// Records that ``calls`` of a question ended, which took so many seconds together.
    #[pyo3(signature = (spent, calls, /))]
    fn leave(&self, spent: f64, calls: u64) {
        self.0.leave(nanoseconds(spent), calls);
    }

    /// Records that a running call waited so many seconds for its client.
    #[pyo3(signature = (seconds, /))]
    fn rest(&self, seconds: f64) {
        // ORDERING: a figure.
        let order = Ordering::Relaxed;
        self.0.rested_ns.fetch_add(nanoseconds(seconds), order);
    }

    /// Records whether the hook is paused by its breaker.
    #[pyo3(signature = (is_paused, /))]
    fn set_paused(&self, is_paused: bool) {
        // ORDERING: a figure.
        self.0.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Records an answer from the cache.
    fn recall(&self) {
        self.0.cache_hits.add(1);
    }

    /// Records what became of a call, or of a question without one.
    #[pyo3(signature = (result, /))]
    fn count(&self, result: &str) -> PyResult<()> {
        let place = RESULTS.iter().position(|name| *name == result);
        let place = place.ok_or_else(|| PyValueError::new_err("no such result"))?;
        self.0.results[place].add(1);
        Ok(())
    }

    /// Calls that began.
    #[getter]
    fn calls(&self) -> u64 {
        self.0.begun.value()
    }

    /// Calls, or turns of them, that have not come back.
    #[getter]
    fn in_flight(&self) -> u64 {
        // ORDERING: as in `leave`.
        self.0.in_flight.load(Ordering::Acquire)
    }

    /// Questions that the cache answered.
    #[getter]
    fn cache_hits(&self) -> u64 {
        self.0.cache_hits.value()
    }

    /// Each result and its number.
    #[getter]
    fn results(&self) -> Vec<(&'static str, u64)> {
        let results = RESULTS.into_iter().zip(&self.0.results);
        results.map(|(name, count)| (name, count.value())).collect()
    }

    /// Upper limits in seconds, the last one infinite, and the calls up to each.
    #[getter]
    fn run_times(&self) -> Vec<(f64, u64)> {
        let buckets = self.0.run.read().buckets.into_iter();
        buckets
            .map(|(limit, count)| (limit_s(limit), count))
            .collect()
    }

    /// Seconds of all calls that came back, without waits for clients.
    #[getter]
    fn run_s(&self) -> f64 {
        self.0.run.sum().as_secs_f64()
    }

    /// Seconds between questions and their calls.
    #[getter]
    fn wait_s(&self) -> f64 {
        self.0.wait.sum().as_secs_f64()
    }
}

fn limit_s(limit_us: u64) -> f64 {
    match limit_us {
        u64::MAX => f64::INFINITY,
        _ => Duration::from_micros(limit_us).as_secs_f64(),
    }
}

/// 0 if the clock went back.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and makes 0 of negative numbers"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
