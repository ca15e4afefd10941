//! The ranges of keys of a table that are in unreadable pages.

use std::ops::{Bound, RangeBounds};

/// Ranges of keys in which rows are missing: each lies between two rows that were read.
#[derive(Debug)]
pub(super) struct Gaps<K> {
    ranges: Vec<(Bound<K>, Bound<K>)>,
    last: Bound<K>,
    is_open: bool,
}

impl<K> Default for Gaps<K> {
    fn default() -> Self {
        Self {
            ranges: Vec::new(),
            last: Bound::Unbounded,
            is_open: false,
        }
    }
}

impl<K: Copy + Ord> Gaps<K> {
    /// Records the next row by its key, or missing rows with `None`.
    pub(super) fn pass(&mut self, key: Option<K>) {
        match key {
            None => self.is_open = true,
            Some(key) => {
                self.close(Bound::Excluded(key));
                self.last = Bound::Excluded(key);
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.close(Bound::Unbounded);
    }

    fn close(&mut self, end: Bound<K>) {
        if std::mem::take(&mut self.is_open) {
            self.ranges.push((self.last, end));
        }
    }

    pub(super) fn contain(&self, key: &K) -> bool {
        let behind = self.ranges.partition_point(|(_, end)| match end {
            Bound::Excluded(end) => end <= key,
            _ => false,
        });
        let range = self.ranges.get(behind);
        range.is_some_and(|range| range.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_reaches_from_the_row_before_it_to_the_row_behind_it() {
        let mut gaps = Gaps::default();
        for row in [None, Some(3), Some(4), None, None, Some(9), None] {
            gaps.pass(row);
        }
        gaps.end();

        let missing: Vec<_> = (0..12).filter(|key| gaps.contain(key)).collect();

        assert_eq!(missing, [0, 1, 2, 5, 6, 7, 8, 10, 11]);
    }
}
