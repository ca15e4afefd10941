//! The metrics of the history: their names, and the figures that they are made of.

use std::collections::HashMap;
use std::time::Instant;

/// A metric of the history.
#[derive(Debug)]
pub(super) struct Metric {
    /// Its name: that of the figure, if it is made of one.
    pub(super) name: &'static str,
    source: MetricSource,
}

#[derive(Clone, Copy, Debug)]
enum MetricSource {
    /// The figure itself.
    Value,
    /// The figure itself; 0 stands for none.
    Measured,
    /// Growth of the figure, per second.
    Rate,
    /// Growth of the sum of all figures whose names begin with this, per second.
    RateOfAll(&'static str),
}

use MetricSource::{Measured, Rate, RateOfAll, Value};

const fn metric(name: &'static str, source: MetricSource) -> Metric {
    Metric { name, source }
}

/// Number of metrics. Types have this number, not `METRICS.len()`, for which the compiler would have to type-check
/// this crate first (E0391).
pub(super) const COUNT: usize = 28;

/// All metrics, in the order of their values in a [`HistoryRow`].
pub(super) const METRICS: [Metric; COUNT] = [
    metric("messages_received", Rate),
    metric("messages_sent", Rate),
    metric("bytes_received", Rate),
    metric("bytes_sent", Rate),
    metric("packets_received", Rate),
    metric("packets_sent", Rate),
    metric("dropped", RateOfAll("dropped_")),
    metric("refused", RateOfAll("refused_")),
    metric("denied", Rate),
    metric("connections_accepted", Rate),
    metric("connections_refused", Rate),
    metric("connects_refused", Rate),
    metric("logins_failed", Rate),
    metric("clients_connected", Value),
    metric("sessions", Value),
    metric("subscriptions", Value),
    metric("retained_messages", Value),
    metric("session_messages", Value),
    metric("memory_used_bytes", Value),
    metric("store_log_bytes", Value),
    metric("store_sync_p99_us", Value),
    metric("stream_rows_unsealed", Value),
    metric("dropped_queue_full", Rate),
    metric("dropped_qos0_backlog", Rate),
    metric("dropped_offline", Rate),
    metric("dropped_expired", Rate),
    metric("deliver_p50_us", Measured),
    metric("deliver_p99_us", Measured),
];

/// A value for each metric. NaN: there is none.
pub(super) type HistoryRow = [f32; COUNT];

/// A row without values.
pub(super) const NOTHING: HistoryRow = [f32::NAN; COUNT];

/// The figures at one time from which the metrics are computed.
#[derive(Debug)]
pub(super) struct Reading {
    at: Instant,
    figures: [Option<u64>; COUNT],
}

impl Reading {
    pub(super) fn new(at: Instant, figures: &HashMap<String, u64>) -> Self {
        let of_all = |prefix: &str| {
            let found = figures.iter().filter(|(name, _)| name.starts_with(prefix));
            found.map(|(_, value)| value).sum()
        };
        Self {
            at,
            figures: METRICS.each_ref().map(|metric| match metric.source {
                Value | Rate => figures.get(metric.name).copied(),
                Measured => figures.get(metric.name).copied().filter(|us| *us > 0),
                RateOfAll(prefix) => Some(of_all(prefix)),
            }),
        }
    }

    /// The values now; those of rates are means since the reading `before`.
    pub(super) fn row(&self, before: Option<&Self>) -> HistoryRow {
        std::array::from_fn(|place| {
            let value = match METRICS[place].source {
                Value | Measured => self.figures[place].map(float),
                Rate | RateOfAll(_) => before.and_then(|before| self.rate(before, place)),
            };
            value.map_or(f32::NAN, narrow)
        })
    }

    fn rate(&self, before: &Self, place: usize) -> Option<f64> {
        let growth = self.figures[place]?.saturating_sub(before.figures[place]?);
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        (seconds > 0.0).then(|| float(growth) / seconds)
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures are far below 2^53")]
pub(super) fn float(figure: u64) -> f64 {
    figure as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a chart needs seven digits at most"
)]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}
