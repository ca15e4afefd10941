//! Rates of messages and bytes: the figures of the last minute, one sample a second.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use utoipa::ToSchema;

/// Interval of samples.
pub(crate) const SAMPLED_EVERY: Duration = Duration::from_secs(1);
/// Samples of a minute, both ends included.
const SAMPLES: usize = 61;
/// The sum of the counters `dropped_...`, and the figures that have rates.
const RATED: usize = 5;

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(super) struct Samples(Mutex<VecDeque<Sample>>);

type Sample = (Instant, [u64; RATED]);

/// Rates of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(super) struct Rates {
    /// PUBLISH packets received.
    received: Rate,
    /// PUBLISH packets sent.
    sent: Rate,
    /// Messages that did not reach a receiver.
    dropped: Rate,
    bytes_in: Rate,
    bytes_out: Rate,
}

/// A rate per second, over the last 1, 10 and 60 s; over a shorter time if the broker runs for less.
#[expect(clippy::struct_field_names, reason = "each is a field of the answer")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(super) struct Rate {
    over_1_s: f64,
    over_10_s: f64,
    over_60_s: f64,
}

impl Samples {
    /// Adds a sample.
    pub(super) fn add(&self, now: Instant, figures: &HashMap<String, u64>) {
        let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
        let dropped = figures.iter();
        let dropped = dropped.filter(|(name, _)| name.starts_with("dropped_"));
        let sample = [
            figure("messages_received"),
            figure("messages_sent"),
            dropped.map(|(_, count)| count).sum(),
            figure("bytes_received"),
            figure("bytes_sent"),
        ];
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back((now, sample));
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
    }

    /// The rates up to the latest sample; 0 before the second one.
    pub(super) fn rates(&self) -> Rates {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = |figure: usize| Rate {
            over_1_s: per_second(&samples, figure, 1),
            over_10_s: per_second(&samples, figure, 10),
            over_60_s: per_second(&samples, figure, 60),
        };
        Rates {
            received: rate(0),
            sent: rate(1),
            dropped: rate(2),
            bytes_in: rate(3),
            bytes_out: rate(4),
        }
    }
}

/// The growth of a figure over the last `steps` samples.
#[expect(clippy::cast_precision_loss, reason = "figures are far below 2^53")]
fn per_second(samples: &VecDeque<Sample>, figure: usize, steps: usize) -> f64 {
    let last = samples.len().saturating_sub(1);
    let (Some(new), Some(old)) = (samples.get(last), samples.get(last.saturating_sub(steps)))
    else {
        return 0.0;
    };
    let seconds = new.0.saturating_duration_since(old.0).as_secs_f64();
    let growth = new.1[figure].saturating_sub(old.1[figure]) as f64;
    if seconds > 0.0 { growth / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_1_10_and_60_seconds() {
        let (samples, start) = (Samples::default(), Instant::now());
        assert_eq!(samples.rates(), Rates::default());

        // 10 messages a second for 100 s, then 20 in the last second.
        for second in 0..=100 {
            let count = 10 * second + if second == 100 { 10 } else { 0 };
            let figures = [
                ("messages_received".to_owned(), count),
                ("dropped_offline".to_owned(), count),
                ("dropped_memory".to_owned(), count),
            ];
            let now = start + Duration::from_secs(second);
            samples.add(now, &figures.into_iter().collect());
        }

        let rates = samples.rates();
        let near = |rate: f64, wanted: f64| assert!((rate - wanted).abs() < 1e-9, "{rate}");
        near(rates.received.over_1_s, 20.0);
        near(rates.received.over_10_s, 11.0);
        near(rates.received.over_60_s, 610.0 / 60.0);
        near(rates.dropped.over_1_s, 40.0);
        near(rates.sent.over_60_s, 0.0);
    }
}
