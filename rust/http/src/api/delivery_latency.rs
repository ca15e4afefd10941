//! Percentiles of measured deliveries, as figures: of those since the sample before.

use std::collections::HashMap;

use mqttcore_broker::Histogram;

use super::plugins::limit_of;

/// The figures and their hundredths.
const FIGURES: [(&str, u64); 2] = [("deliver_p50_us", 50), ("deliver_p99_us", 99)];

/// The deliveries up to the last sample.
#[derive(Debug, Default)]
pub(super) struct DeliveryLatency {
    /// Numbers of deliveries by bucket.
    before: Vec<u64>,
}

impl DeliveryLatency {
    /// Adds to `figures` the durations that half, and 99 of 100, deliveries did not exceed since the last call; 0 if none was
    /// measured. `deliveries` are the histograms since the start, by QoS. A duration beyond the longest limit counts as that.
    pub(super) fn add(
        &mut self,
        deliveries: &[(&'static str, Histogram)],
        figures: &mut HashMap<String, u64>,
    ) {
        let mut sum: Vec<(u64, u64)> = Vec::new();
        for (_, times) in deliveries {
            sum.resize(sum.len().max(times.buckets.len()), (0, 0));
            for (all, (limit, count)) in sum.iter_mut().zip(&times.buckets) {
                *all = (*limit, all.1 + count);
            }
        }
        let now: Vec<u64> = sum.iter().map(|(_, count)| *count).collect();
        for (place, (_, count)) in sum.iter_mut().enumerate() {
            *count -= (*count).min(self.before.get(place).copied().unwrap_or_default());
        }
        self.before = now;
        let count: u64 = sum.iter().map(|(_, count)| count).sum();
        let longest = sum.iter().rev().map(|(limit, _)| *limit);
        let longest = longest.clone().find(|limit| *limit < u64::MAX);
        let growth = Histogram::new(0, sum);
        for (name, hundredths) in FIGURES {
            let limit = limit_of(&growth, count, hundredths).or(longest);
            let value = if count == 0 { None } else { limit };
            figures.insert(name.to_owned(), value.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(counts: [u64; 4]) -> Histogram {
        let limits = [10, 100, 1_000, u64::MAX];
        Histogram::new(0, limits.into_iter().zip(counts).collect())
    }

    #[test]
    fn percentiles_are_of_the_deliveries_since_the_last_sample() {
        let mut latency = DeliveryLatency::default();
        let mut sample = |counts: [[u64; 4]; 2]| {
            let mut figures = HashMap::new();
            let [qos_0, qos_1] = counts.map(times);
            latency.add(&[("0", qos_0), ("1", qos_1)], &mut figures);
            FIGURES.map(|(name, _)| figures[name])
        };

        assert_eq!(sample([[0; 4]; 2]), [0, 0]);
        assert_eq!(sample([[60, 38, 0, 0], [0, 0, 2, 0]]), [10, 1_000]);
        assert_eq!(sample([[60, 38, 0, 0], [0, 0, 2, 0]]), [0, 0]);
        assert_eq!(sample([[60, 40, 0, 0], [0, 0, 2, 0]]), [100, 100]);
        assert_eq!(sample([[60, 40, 0, 0], [0, 0, 2, 3]]), [1_000, 1_000]);
    }
}
