//! Averages of rates over 1, 5 and 15 minutes, as Mosquitto computes them for `$SYS/broker/load/...`.

use std::time::{Duration, Instant};

/// The periods and their names.
const PERIODS: [(f64, &str); 3] = [(60.0, "1min"), (300.0, "5min"), (900.0, "15min")];

/// The rates a minute of `N` counters.
#[derive(Debug)]
pub(crate) struct LoadAverages<const N: usize> {
    /// When the counters were last read, and their values.
    last: Option<(Instant, [u64; N])>,
    /// Of each counter: an average for each period.
    averages: [[f64; PERIODS.len()]; N],
}

impl<const N: usize> Default for LoadAverages<N> {
    fn default() -> Self {
        Self {
            last: None,
            averages: [[0.0; PERIODS.len()]; N],
        }
    }
}

impl<const N: usize> LoadAverages<N> {
    /// Reads the counters at `now`. The first call sets the start values; the averages are then 0.
    #[expect(clippy::cast_precision_loss, reason = "an average with two digits")]
    pub(crate) fn update(&mut self, now: Instant, counts: [u64; N]) {
        let Some((then, before)) = self.last.replace((now, counts)) else {
            return;
        };
        let elapsed = now.saturating_duration_since(then);
        if elapsed == Duration::ZERO {
            return;
        }
        let (elapsed, changes) = (elapsed.as_secs_f64(), counts.iter().zip(before));
        for ((count, before), averages) in changes.zip(&mut self.averages) {
            let a_minute = count.saturating_sub(before) as f64 * 60.0 / elapsed;
            for (average, (period, _)) in averages.iter_mut().zip(PERIODS) {
                *average = a_minute + (-elapsed / period).exp() * (*average - a_minute);
            }
        }
    }

    /// The averages of each counter, as text with two digits, and the names of their periods.
    pub(crate) fn texts(&self) -> [[(&'static str, String); PERIODS.len()]; N] {
        let text = |averages: [f64; PERIODS.len()]| {
            std::array::from_fn(|place| (PERIODS[place].1, format!("{:.2}", averages[place])))
        };
        self.averages.map(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of the only counter.
    fn texts(loads: &LoadAverages<1>) -> [String; 3] {
        let [texts] = loads.texts();
        texts.map(|(_, text)| text)
    }

    #[test]
    fn a_rate_is_approached_over_its_period() {
        let start = Instant::now();
        let mut loads = LoadAverages::default();

        loads.update(start, [7]);
        assert_eq!(texts(&loads), ["0.00", "0.00", "0.00"]);

        // 100 in 10 s are 600 a minute; the averages are (1 - exp(-10 / 60)) of it, and so on.
        loads.update(start + Duration::from_secs(10), [107]);
        assert_eq!(texts(&loads), ["92.11", "19.67", "6.63"]);

        // No further events: the averages decay by exp(-10 / 60), and so on.
        loads.update(start + Duration::from_secs(20), [107]);
        assert_eq!(texts(&loads), ["77.97", "19.03", "6.56"]);
    }

    #[test]
    fn no_time_changes_nothing() {
        let start = Instant::now();
        let mut loads = LoadAverages::default();
        loads.update(start, [0]);

        loads.update(start, [5]);

        assert_eq!(texts(&loads), ["0.00", "0.00", "0.00"]);
    }
}
