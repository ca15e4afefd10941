//! The tail of a partition: rows that are in memory and in the log, not in a file.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_select::concat::concat_batches;

use mqttcore_columnar::{ColumnarError, Row, RowBuilder};

/// A batch is closed at this number of rows or bytes.
const BATCH_ROWS: usize = 8 * 1_024;
const BATCH_BYTES: usize = 16 << 20;

/// Rows with ascending offsets; the last ones may not be safe yet.
#[derive(Debug)]
pub(super) struct Tail {
    /// The first offset that is not in a file.
    start: u64,
    frozen: VecDeque<ClosedBatch>,
    builder: RowBuilder,
    /// Offset of the first row in `builder`.
    building: u64,
    /// The offset after the last row.
    end: u64,
    /// The offset after the last safe row.
    visible: u64,
    /// LSN of each group that is not safe yet, and the offset after its last row.
    marks: VecDeque<(u64, u64)>,
    bytes: usize,
    /// Time of the oldest row.
    oldest_us: Option<u64>,
}

/// A closed batch.
#[derive(Clone, Debug)]
pub(super) struct ClosedBatch {
    pub(super) base: u64,
    pub(super) batch: RecordBatch,
    bytes: usize,
}

impl ClosedBatch {
    pub(super) fn end_offset(&self) -> u64 {
        self.base + self.batch.num_rows() as u64
    }

    fn slice(&self, range: &Range<u64>) -> Option<RecordBatch> {
        let (from, to) = (range.start.max(self.base), range.end.min(self.end_offset()));
        let (skip, rows) = (from.checked_sub(self.base)?, to.checked_sub(from)?);
        let is_whole = rows == self.batch.num_rows() as u64;
        (rows > 0).then(|| {
            if is_whole {
                self.batch.clone()
            } else {
                self.batch.slice(index(skip), index(rows))
            }
        })
    }

    /// Number of rows that are older than `at_us`; times never decrease.
    fn older_than(&self, at_us: i64) -> u64 {
        let times = self.batch.column_by_name("timestamp");
        let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
        times.map_or(0, |times| {
            times.values().partition_point(|time| *time < at_us) as u64
        })
    }
}

impl Tail {
    /// Creates the tail of a partition with rows below `start` in files.
    pub(super) fn new(partition: u16, start: u64) -> Self {
        Self {
            start,
            frozen: VecDeque::new(),
            builder: RowBuilder::new(i32::from(partition)),
            building: start,
            end: start,
            visible: start,
            marks: VecDeque::new(),
            bytes: 0,
            oldest_us: None,
        }
    }

    /// Appends a row; a row that is already here or in a file is ignored.
    pub(super) fn push(&mut self, offset: u64, row: &Row<'_>) -> Result<(), ColumnarError> {
        if offset < self.end {
            return Ok(());
        }
        if offset > self.end {
            // The rows between are lost; readers get an error for them.
            self.freeze();
            (self.building, self.end) = (offset, offset);
        }
        if let Err(ColumnarError::BatchFull { .. }) = self.builder.push(row) {
            self.freeze();
            self.builder.push(row)?;
        }
        self.bytes += row.bytes();
        self.end += 1;
        self.oldest_us
            .get_or_insert(row.timestamp_us.cast_unsigned());
        if self.builder.rows() >= BATCH_ROWS || self.builder.bytes() >= BATCH_BYTES {
            self.freeze();
        }
        Ok(())
    }

    /// All rows so far are safe once the log is safe up to `lsn`.
    pub(super) fn mark(&mut self, lsn: u64) {
        self.marks.push_back((lsn, self.end));
    }

    /// Makes rows visible, now that the log is safe up to `safe_lsn`.
    pub(super) fn mark_safe(&mut self, safe_lsn: u64) {
        while let Some((lsn, end)) = self.marks.front()
            && *lsn <= safe_lsn
        {
            self.visible = *end;
            self.marks.pop_front();
        }
    }

    /// The first offset that is not in a file.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The offset after the last safe row.
    pub(super) fn visible(&self) -> u64 {
        self.visible
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Time of the oldest row.
    pub(super) fn oldest_us(&self) -> Option<u64> {
        self.oldest_us
    }

    /// Batches with exactly the rows of `range`.
    ///
    /// # Errors
    ///
    /// The first missing offsets of `range`.
    pub(super) fn read(&mut self, range: Range<u64>) -> Result<Vec<RecordBatch>, Range<u64>> {
        if range.end > self.building {
            self.freeze();
        }
        let (mut batches, mut next) = (Vec::new(), range.start);
        let begin = self
            .frozen
            .partition_point(|frozen| frozen.end_offset() <= next);
        for frozen in self.frozen.range(begin..) {
            if next >= range.end {
                break;
            }
            if frozen.base > next {
                return Err(next..frozen.base.min(range.end));
            }
            batches.extend(frozen.slice(&(next..range.end)));
            next = frozen.end_offset();
        }
        if next < range.end {
            return Err(next..range.end);
        }
        Ok(batches)
    }

    /// Safe rows that are not in a file, as runs without gaps of about `run_bytes` each.
    pub(super) fn runs(&mut self, run_bytes: usize) -> Vec<Vec<ClosedBatch>> {
        self.freeze();
        let (mut runs, mut bytes): (Vec<Vec<ClosedBatch>>, usize) = (Vec::new(), 0);
        let range = self.start..self.visible;
        for frozen in &self.frozen {
            let Some(batch) = frozen.slice(&range) else {
                continue;
            };
            let base = frozen.base.max(range.start);
            let piece = ClosedBatch {
                base,
                batch,
                bytes: frozen.bytes,
            };
            let follows =
                |run: &Vec<ClosedBatch>| run.last().is_some_and(|last| last.end_offset() == base);
            if bytes < run_bytes && runs.last().is_some_and(follows) {
                // INVARIANT: `follows` has found a last run.
                runs.last_mut().expect("a run").push(piece);
            } else {
                runs.push(vec![piece]);
                bytes = 0;
            }
            bytes += frozen.bytes;
        }
        runs
    }

    /// Removes the rows below `end`, which are in files; returns the number of freed bytes.
    pub(super) fn seal(&mut self, end: u64) -> usize {
        if self.building < end {
            self.freeze();
        }
        let before = self.bytes;
        self.start = self.start.max(end);
        while let Some(oldest) = self.frozen.front_mut()
            && oldest.base < end
        {
            if oldest.end_offset() <= end {
                self.bytes -= oldest.bytes;
                self.frozen.pop_front();
                continue;
            }
            let rows = oldest.batch.num_rows();
            let batch = oldest.slice(&(end..u64::MAX));
            // INVARIANT: this batch ends after `end`.
            oldest.batch = batch.expect("rows behind the end");
            let left = oldest.bytes / rows * oldest.batch.num_rows();
            self.bytes -= oldest.bytes - left;
            (oldest.base, oldest.bytes) = (end, left);
        }
        self.end = self.end.max(end);
        self.building = self.building.max(end);
        self.visible = self.visible.max(end);
        let first = self.frozen.front().map(|frozen| &frozen.batch);
        self.oldest_us = first.and_then(first_time);
        before - self.bytes
    }

    /// The first offset with a time of at least `at_us`, if it is in the tail and safe.
    pub(super) fn at(&mut self, at_us: i64) -> Option<u64> {
        self.freeze();
        let found = self.frozen.iter().find_map(|frozen| {
            let older = frozen.older_than(at_us);
            (older < frozen.batch.num_rows() as u64).then(|| frozen.base + older)
        });
        found.filter(|offset| *offset < self.visible)
    }

    /// Closes the open batch and merges small ones. A row is copied about as often as the size of its batch doubles.
    fn freeze(&mut self) {
        if self.builder.rows() == 0 {
            return;
        }
        let (base, bytes) = (self.building, self.builder.bytes());
        let batch = self.builder.finish();
        self.building = self.end;
        self.frozen.push_back(ClosedBatch { base, batch, bytes });
        while let [.., before, last] = &*self.frozen.make_contiguous()
            && before.end_offset() == last.base
            && before.batch.num_rows() <= 2 * last.batch.num_rows()
            && before.batch.num_rows() + last.batch.num_rows() <= BATCH_ROWS
            && before.bytes + last.bytes <= BATCH_BYTES
        {
            let schema = before.batch.schema();
            let Ok(batch) = concat_batches(&schema, [&before.batch, &last.batch]) else {
                break;
            };
            let (base, bytes) = (before.base, before.bytes + last.bytes);
            self.frozen.truncate(self.frozen.len() - 2);
            self.frozen.push_back(ClosedBatch { base, batch, bytes });
        }
    }
}

fn first_time(batch: &RecordBatch) -> Option<u64> {
    let times = batch.column_by_name("timestamp")?;
    let times = times.as_primitive_opt::<TimestampMicrosecondType>()?;
    times.values().first().map(|time| time.cast_unsigned())
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(tail: &mut Tail, offsets: Range<u64>) {
        for offset in offsets {
            let timestamp_us = i64::try_from(offset / 2 * 10).unwrap();
            let payload = offset.to_le_bytes();
            let offset_column = i64::try_from(offset).unwrap();
            let row = Row {
                offset: offset_column,
                timestamp_us,
                payload: &payload,
                ..Row::default()
            };
            tail.push(offset, &row).unwrap();
        }
    }

    fn offsets(batches: &[RecordBatch]) -> Vec<i64> {
        let column = |batch: &RecordBatch| {
            let offsets = batch.column_by_name("offset").unwrap();
            offsets
                .as_primitive::<arrow_array::types::Int64Type>()
                .values()
                .to_vec()
        };
        batches.iter().flat_map(column).collect()
    }

    #[test]
    fn rule_5_a_range_yields_exactly_its_rows_wherever_batches_begin() {
        let mut tail = Tail::new(3, 100);
        for end in [101, 103, 110, 111, 150] {
            let from = tail.end;
            push(&mut tail, from..end);
            assert!(tail.read(100..end).is_ok());
        }

        for from in 100..150_u64 {
            for to in from..150 {
                let read = offsets(&tail.read(from..to).unwrap());
                assert_eq!(
                    read,
                    (from.cast_signed()..to.cast_signed()).collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    fn rule_5_rows_that_are_lost_are_named() {
        let mut tail = Tail::new(0, 0);
        push(&mut tail, 0..4);
        push(&mut tail, 7..9);

        assert_eq!(offsets(&tail.read(1..4).unwrap()), [1, 2, 3]);
        assert_eq!(tail.read(2..9), Err(4..7));
        assert_eq!(tail.read(5..6), Err(5..6));
        tail.mark(1);
        tail.mark_safe(1);
        let runs = tail.runs(usize::MAX);
        let ends: Vec<_> = runs
            .iter()
            .map(|run| (run[0].base, run[0].end_offset()))
            .collect();
        assert_eq!(ends, [(0, 4), (7, 9)]);
    }

    #[test]
    fn a_row_is_visible_once_the_log_is_safe_and_not_before() {
        let mut tail = Tail::new(0, 0);
        push(&mut tail, 0..2);
        tail.mark(10);
        push(&mut tail, 2..5);
        tail.mark(20);

        tail.mark_safe(9);
        assert_eq!(tail.visible(), 0);
        tail.mark_safe(19);
        assert_eq!(tail.visible(), 2);
        assert_eq!(tail.runs(usize::MAX)[0].last().unwrap().end_offset(), 2);
        tail.mark_safe(20);
        assert_eq!(tail.visible(), 5);
    }

    #[test]
    fn what_is_sealed_leaves_the_memory_and_nothing_else() {
        let mut tail = Tail::new(0, 0);
        push(&mut tail, 0..20_000);
        tail.mark(1);
        tail.mark_safe(1);
        let before = tail.bytes();

        let freed = tail.seal(10_000);

        assert!(
            freed * 3 > before && freed * 2 < before + 10_000,
            "{freed} of {before}"
        );
        assert_eq!((tail.start(), tail.bytes()), (10_000, before - freed));
        assert!(tail.read(9_999..10_001).is_err());
        assert_eq!(
            offsets(&tail.read(10_000..10_002).unwrap()),
            [10_000, 10_001]
        );
        tail.seal(20_000);
        assert_eq!((tail.bytes(), tail.oldest_us()), (0, None));
        push(&mut tail, 19_990..20_001);
        assert_eq!(offsets(&tail.read(20_000..20_001).unwrap()), [20_000]);
    }

    #[test]
    fn many_small_reads_leave_few_batches() {
        let mut tail = Tail::new(0, 0);
        for offset in 0..3_000 {
            push(&mut tail, offset..offset + 1);
            tail.read(offset..offset + 1).unwrap();
        }

        assert!(tail.frozen.len() < 16, "{} batches", tail.frozen.len());
        assert_eq!(offsets(&tail.read(0..3_000).unwrap()).len(), 3_000);
    }

    /// Rule 12: later rows begin another one.
    #[test]
    fn rule_12_a_row_above_16_mb_closes_its_batch() {
        let mut tail = Tail::new(0, 0);
        push(&mut tail, 0..2);
        let payload = vec![0; BATCH_BYTES];
        let large = Row {
            payload: &payload,
            ..Row::default()
        };

        tail.push(2, &large).unwrap();
        push(&mut tail, 3..5);

        let read = tail.read(0..5).unwrap();
        let rows: Vec<_> = read.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [3, 2]);
    }

    #[test]
    fn a_time_leads_to_the_first_row_at_or_behind_it() {
        let mut tail = Tail::new(0, 10);
        push(&mut tail, 10..30);
        tail.mark(1);
        tail.mark_safe(1);

        assert_eq!(tail.at(0), Some(10));
        assert_eq!(tail.at(60), Some(12));
        assert_eq!(tail.at(61), Some(14));
        assert_eq!(tail.at(1_000), None);
    }
}
