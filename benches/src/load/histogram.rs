//! Latencies in buckets of equal relative width: recording allocates nothing.

/// Buckets for each power of two: values are off by 1/32 at most.
const SUB_BUCKETS: u64 = 32;
const SUB_BITS: u32 = SUB_BUCKETS.ilog2();
/// One row of 32 for the values below 32, and one for each power of two from there.
const BUCKETS: usize = 60 * 32;

/// Counts of values from 0 to `u64::MAX`, within 3 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// The smallest bucket bound that `share` (0 to 1) of the values do not exceed; 0 when empty.
    pub fn quantile(&self, share: f64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank is a small positive count"
        )]
        let rank = ((self.total as f64) * share).ceil() as u64;
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return upper_bound(place);
            }
        }
        0
    }
}

fn bucket(value: u64) -> usize {
    let place = if value < SUB_BUCKETS {
        value
    } else {
        let shift = value.ilog2() - SUB_BITS;
        u64::from(shift + 1) * SUB_BUCKETS + (value >> shift) - SUB_BUCKETS
    };
    usize::try_from(place).unwrap_or(BUCKETS - 1)
}

fn upper_bound(place: usize) -> u64 {
    let place = place as u64;
    if place < SUB_BUCKETS {
        return place;
    }
    let shift = place / SUB_BUCKETS - 1;
    let low = (place % SUB_BUCKETS + SUB_BUCKETS) << shift;
    low + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_within_a_thirty_second() {
        for value in [0, 1, 31, 32, 33, 63, 64, 1_000, 123_456_789, u64::MAX] {
            let bound = upper_bound(bucket(value));

            assert!(bound >= value, "{value} above its bucket {bound}");
            assert!(bound - value <= value / 32 + 1, "{value} far from {bound}");
        }
    }

    #[test]
    fn quantiles_of_a_thousand_values() {
        let mut histogram = Histogram::default();
        for value in 1..=1_000 {
            histogram.record(value);
        }

        assert!((500..=516).contains(&histogram.quantile(0.5)));
        assert!((990..=1_023).contains(&histogram.quantile(0.99)));
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile(0.99), 0);
    }
}
