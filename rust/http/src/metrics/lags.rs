//! Lags of readers of streams: consumers with holds, and Spark queries.

use std::cmp::Reverse;
use std::time::Instant;

use mqttcore_streams::{QueryReports, Rows};
use serde_json::Value;

use super::families::Labelled;
use super::float;

/// Maximum number of consumers in a scrape: those with the longest lags.
const CONSUMERS: usize = 100;

/// The rows that each consumer has still to read, by stream and consumer; without streams whose holds are being written.
pub(super) fn of_consumers(rows: &Rows) -> Labelled {
    let mut lags = rows.streams.hold_lags();
    lags.sort_by_key(|lag| Reverse(lag.rows));
    lags.truncate(CONSUMERS);
    let labelled = lags.into_iter();
    labelled
        .map(|lag| {
            (
                vec![lag.stream.into(), lag.consumer.into()],
                float(lag.rows),
            )
        })
        .collect()
}

/// The age of the newest message that each query had read, by query, as its last report has it.
pub(super) fn of_queries(reports: &QueryReports) -> Labelled {
    let newest = reports.newest(Instant::now()).into_iter();
    let lags = newest.filter_map(|(query, text, _)| {
        let report: Value = serde_json::from_str(&text).ok()?;
        Some((vec![query.into()], report.get("lag_s")?.as_f64()?))
    });
    lags.collect()
}
