//! Reads exactly the rows of a range from batches of the tail.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::vec;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;

use super::births::ALIASES;
use super::schema::{OFFSET, PARTITION};
use super::shape::BatchShaper;
use super::{ColumnarError, ReadOptions};

/// Iterates over the rows `from..to` of a partition in batches of the tail, as
/// [`PartitionReader`](super::PartitionReader) does for files.
pub struct TailReader {
    partition: i32,
    /// The remaining offsets.
    left: Range<i64>,
    shape: BatchShaper,
    batches: vec::IntoIter<RecordBatch>,
    ready: VecDeque<RecordBatch>,
}

impl TailReader {
    /// Reads `range` of `partition` from `batches`, which contain exactly these rows, in order.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] names an option that is not valid.
    pub fn new(
        batches: Vec<RecordBatch>,
        partition: i32,
        range: Range<i64>,
        options: &ReadOptions,
    ) -> Result<Self, ColumnarError> {
        let mut shape = BatchShaper::of(options)?;
        let schema = batches.first().map(RecordBatch::schema);
        if let Some(text) = schema
            .as_ref()
            .and_then(|schema| schema.metadata.get(ALIASES))
        {
            shape.begin(Path::new("the tail"), text)?;
        }
        Ok(Self {
            partition,
            left: range,
            shape,
            batches: batches.into_iter(),
            ready: VecDeque::new(),
        })
    }

    /// Returns the columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        self.shape.schema()
    }

    /// Returns the Sparkplug B aliases that are known so far, if payloads of that format are decoded.
    pub fn aliases(&self) -> Option<String> {
        self.shape.aliases()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, ColumnarError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            let Some(batch) = self.batches.next() else {
                return self.end();
            };
            self.advance(&batch)?;
            self.shape.apply(batch, false, &mut self.ready)?;
        }
    }

    fn end(&self) -> Result<Option<RecordBatch>, ColumnarError> {
        let Range { start, end } = self.left;
        if start < end {
            let (partition, from, to) = (self.partition, start, end);
            return Err(ColumnarError::Missing {
                partition,
                from,
                to,
            });
        }
        Ok(None)
    }

    /// Checks that a batch continues at the end of the previous one.
    fn advance(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        let partition = self.partition;
        let not_dense = |problem| ColumnarError::NotDense { partition, problem };
        let offsets = batch.column_by_name(OFFSET);
        let offsets = offsets.and_then(|offsets| offsets.as_primitive_opt::<Int64Type>());
        let partitions = batch.column_by_name(PARTITION);
        let partitions = partitions.and_then(|column| column.as_primitive_opt::<Int32Type>());
        let (Some(offsets), Some(partitions)) = (offsets, partitions) else {
            return Err(ColumnarError::column(OFFSET, "is missing"));
        };
        if offsets.null_count() + partitions.null_count() > 0 {
            return Err(not_dense("a row without an offset".to_owned()));
        }
        if let Some(other) = partitions
            .values()
            .iter()
            .find(|other| **other != partition)
        {
            return Err(not_dense(format!("a row of partition {other}")));
        }
        for &offset in offsets.values() {
            if self.left.is_empty() {
                return Err(not_dense(format!(
                    "offset {offset} is beyond the end of the range"
                )));
            }
            if offset != self.left.start {
                let expected = self.left.start;
                return Err(not_dense(format!(
                    "found offset {offset}, expected {expected}"
                )));
            }
            self.left.start += 1;
        }
        Ok(())
    }
}

impl Iterator for TailReader {
    type Item = Result<RecordBatch, ColumnarError>;

    fn next(&mut self) -> Option<Self::Item> {
        let polled = self.poll();
        if polled.is_err() {
            self.batches = Vec::new().into_iter();
            self.left = 0..0;
        }
        polled.transpose()
    }
}
