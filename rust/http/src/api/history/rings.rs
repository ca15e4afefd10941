//! Rows of the past in three resolutions, in bounded memory.

use std::collections::VecDeque;
use std::mem;

use super::metrics::{COUNT, HistoryRow, NOTHING, float, narrow};

/// Length of a step in seconds, and how many are kept: an hour, a day, a week.
pub(super) const RESOLUTIONS: [(u64, usize); 3] = [(1, 3_600), (10, 8_640), (60, 10_080)];

/// Means of the values in each step of one length.
#[derive(Debug)]
pub(super) struct Ring {
    step_s: u64,
    kept: usize,
    /// Rows of steps that are over, oldest first.
    rows: VecDeque<HistoryRow>,
    open: Step,
}

/// The step that is not over.
#[derive(Debug, Default)]
struct Step {
    /// Number of the step since the start.
    number: u64,
    sums: [f64; COUNT],
    counts: [u64; COUNT],
}

impl Step {
    fn at(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Adds values that were the mean of so many seconds.
    fn add(&mut self, row: &HistoryRow, seconds: u64) {
        for (place, value) in row.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            self.sums[place] += f64::from(*value) * float(seconds);
            self.counts[place] += seconds;
        }
    }

    fn mean(&self) -> HistoryRow {
        std::array::from_fn(|place| match self.counts[place] {
            0 => f32::NAN,
            count => narrow(self.sums[place] / float(count)),
        })
    }
}

impl Ring {
    pub(super) fn new((step_s, kept): (u64, usize)) -> Self {
        Self {
            step_s,
            kept,
            rows: VecDeque::new(),
            open: Step::default(),
        }
    }

    pub(super) fn step_s(&self) -> u64 {
        self.step_s
    }

    /// Seconds that it covers when it is full.
    pub(super) fn span_s(&self) -> u64 {
        self.step_s * self.kept as u64
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.len() * size_of::<HistoryRow>()
    }

    /// Adds the values of a second since the start; seconds do not go back.
    pub(super) fn add(&mut self, second: u64, row: &HistoryRow) {
        self.add_mean(second, 1, row);
    }

    /// Adds the mean of so many seconds from `second` on; all of it to the step in which they begin.
    pub(super) fn add_mean(&mut self, second: u64, seconds: u64, row: &HistoryRow) {
        let number = second / self.step_s;
        let passed = number.saturating_sub(self.open.number);
        if passed > 0 {
            let over = mem::replace(&mut self.open, Step::at(number)).mean();
            self.push(over);
            // Steps without any value; more than are kept need not be written.
            let empty = usize::try_from(passed - 1).unwrap_or(usize::MAX);
            for _ in 0..empty.min(self.kept) {
                self.push(NOTHING);
            }
        }
        self.open.add(row, seconds);
    }

    fn push(&mut self, row: HistoryRow) {
        if self.rows.capacity() == 0 {
            // The system gives memory when it is written, so that a young ring has little.
            self.rows.reserve_exact(self.kept);
        }
        if self.rows.len() == self.kept {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }

    /// Rows of the steps that are over, from the step with this number on, with their numbers.
    pub(super) fn over(&self, number: u64) -> impl Iterator<Item = (u64, HistoryRow)> {
        let first = self.open.number - self.rows.len() as u64;
        let rows = (first..).zip(self.rows.iter().copied());
        rows.skip_while(move |(step, _)| *step < number)
    }

    /// The number of the step that is not over.
    pub(super) fn open_step(&self) -> u64 {
        self.open.number
    }

    /// The second since the start at which the first row begins that reaches beyond `second`, and the rows from there
    /// on, the open step at last.
    pub(super) fn since(&self, second: u64) -> (u64, impl Iterator<Item = HistoryRow>) {
        let first = self.open.number - self.rows.len() as u64;
        let begin = (second / self.step_s).clamp(first, self.open.number);
        let skipped = usize::try_from(begin - first).unwrap_or(usize::MAX);
        let rows = self.rows.iter().skip(skipped).copied();
        let open = std::iter::once_with(|| self.open.mean());
        (begin * self.step_s, rows.chain(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose first metric has this value, and no other one.
    fn row(value: f32) -> HistoryRow {
        let mut row = NOTHING;
        row[0] = value;
        row
    }

    /// The values of the first metric since `second`; -1 stands for none.
    fn since(ring: &Ring, second: u64) -> (u64, Vec<f32>) {
        let (begin, rows) = ring.since(second);
        let values = rows.map(|row| if row[0].is_nan() { -1.0 } else { row[0] });
        (begin, values.collect())
    }

    #[test]
    fn a_step_has_the_mean_of_its_seconds() {
        let mut ring = Ring::new((10, 4));
        for second in 0..25_u8 {
            ring.add(second.into(), &row(second.into()));
        }

        assert_eq!(since(&ring, 0), (0, vec![4.5, 14.5, 22.0]));
        assert_eq!(since(&ring, 19), (10, vec![14.5, 22.0]));
        assert_eq!(since(&ring, 1_000), (20, vec![22.0]));
        let over = |number| -> Vec<_> {
            let rows = ring.over(number);
            rows.map(|(step, row)| (step, row[0])).collect()
        };
        assert_eq!(over(0), vec![(0, 4.5), (1, 14.5)]);
        assert_eq!(over(1), vec![(1, 14.5)]);
        assert_eq!(over(2), Vec::new());
    }

    #[test]
    fn the_oldest_steps_are_removed() {
        let mut ring = Ring::new((1, 3));
        for second in 0..6_u8 {
            ring.add(second.into(), &row(second.into()));
        }

        assert_eq!(since(&ring, 0), (2, vec![2.0, 3.0, 4.0, 5.0]));
        assert_eq!(ring.memory_bytes(), 3 * size_of::<HistoryRow>());
    }

    #[test]
    fn steps_without_values_are_empty_and_a_long_pause_costs_no_more_than_a_ring() {
        let mut ring = Ring::new((1, 3));
        ring.add(0, &row(1.0));
        ring.add(3, &row(2.0));
        assert_eq!(since(&ring, 0), (0, vec![1.0, -1.0, -1.0, 2.0]));

        ring.add(u64::MAX, &row(3.0));

        assert_eq!(since(&ring, 0), (u64::MAX - 3, vec![-1.0, -1.0, -1.0, 3.0]));
    }

    #[test]
    fn all_resolutions_together_take_less_than_2_and_a_half_mib() {
        let rows: usize = RESOLUTIONS.iter().map(|(_, kept)| kept).sum();

        assert!(rows * size_of::<HistoryRow>() < 5 << 19);
    }
}
