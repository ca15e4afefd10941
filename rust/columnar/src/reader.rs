//! Reads exactly the rows of a range from Parquet files.

use std::collections::VecDeque;
use std::ops::Range;
use std::vec;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::file::{FileRows, ParquetFile, RowGroup, contained, count};
use super::part::{OffsetSpan, cover};
use super::shape::BatchShaper;
use super::wanted::RowPredicate;
use super::{ColumnarError, FilePart, ReadOptions};

/// Iterates over the rows `from..to` of a partition in batches.
///
/// It returns either all rows, or an error that names the missing ones; nothing follows an error. Files are opened one
/// after the other, when they are needed.
pub struct PartitionReader {
    partition: i32,
    options: ReadOptions,
    shape: BatchShaper,
    spans: vec::IntoIter<OffsetSpan>,
    file: Option<OpenFile>,
    ready: VecDeque<RecordBatch>,
}

/// An open file, and its remaining row groups.
struct OpenFile {
    file: ParquetFile,
    groups: vec::IntoIter<RowGroup>,
    reader: Option<GroupReader>,
}

struct GroupReader {
    rows: FileRows,
    /// Number of remaining rows, before any filter.
    left: usize,
}

impl PartitionReader {
    /// Selects files of `parts`, which the index names for `partition`. Opens no file.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Missing`] names the first offsets that are in no file; [`ColumnarError::Option`] names an
    /// option that is not valid.
    pub fn new(
        parts: &[FilePart],
        partition: i32,
        range: Range<i64>,
        options: ReadOptions,
    ) -> Result<Self, ColumnarError> {
        Ok(Self {
            partition,
            shape: BatchShaper::of(&options)?,
            spans: cover(parts, partition, range.start, range.end)?.into_iter(),
            options,
            file: None,
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
            if let Some(open) = &mut self.file {
                match open.poll(&self.shape.pushed(), &self.options)? {
                    Some(batch) => self.shape.apply(batch, true, &mut self.ready)?,
                    None => self.file = None,
                }
                continue;
            }
            let Some(span) = self.spans.next() else {
                return Ok(None);
            };
            self.file = Some(OpenFile::open(span, self.partition, &mut self.shape)?);
        }
    }
}

impl Iterator for PartitionReader {
    type Item = Result<RecordBatch, ColumnarError>;

    fn next(&mut self) -> Option<Self::Item> {
        let polled = self.poll();
        if polled.is_err() {
            self.spans = Vec::new().into_iter();
            self.file = None;
        }
        polled.transpose()
    }
}

impl OpenFile {
    fn open(
        span: OffsetSpan,
        partition: i32,
        shape: &mut BatchShaper,
    ) -> Result<Self, ColumnarError> {
        let file = ParquetFile::open(span.part, partition, shape)?;
        if shape.has_memory() {
            file.begin(shape, span.from)?;
        }
        let groups = file.groups().into_iter().enumerate();
        let groups = groups.filter_map(|(index, all)| {
            let wanted = all.start.max(span.from)..all.end.min(span.to);
            (!wanted.is_empty()).then_some(RowGroup { index, all, wanted })
        });
        Ok(Self {
            groups: groups.collect::<Vec<_>>().into_iter(),
            file,
            reader: None,
        })
    }

    fn poll(
        &mut self,
        wanted: &RowPredicate,
        options: &ReadOptions,
    ) -> Result<Option<RecordBatch>, ColumnarError> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(batch) = reader.poll(&self.file)? {
                    return Ok(Some(batch));
                }
                self.reader = None;
            }
            let Some(group) = self.groups.next() else {
                return Ok(None);
            };
            let rows = self.file.read(&group, wanted, options)?;
            let left = count(&group.wanted);
            self.reader = rows.map(|rows| GroupReader { rows, left });
        }
    }
}

impl GroupReader {
    fn poll(&mut self, file: &ParquetFile) -> Result<Option<RecordBatch>, ColumnarError> {
        let batch = contained(file.path(), || self.rows.batches.next().transpose())?;
        let read = self.rows.read(batch.as_ref());
        let left = self.left.checked_sub(read);
        self.left = left.ok_or_else(|| {
            ColumnarError::unreadable(file.path(), "more rows than its footer says")
        })?;
        if batch.is_none() && self.left > 0 {
            let problem = format!("{} rows fewer than its footer says", self.left);
            return Err(ColumnarError::unreadable(file.path(), &problem));
        }
        Ok(batch)
    }
}
