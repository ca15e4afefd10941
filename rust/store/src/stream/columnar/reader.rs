//! Exactly the rows of a range, out of Parquet files.

use std::collections::VecDeque;
use std::ops::Range;
use std::vec;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::columns::Columns;
use super::cut::rows_within;
use super::file::{SealedFile, count};
use super::part::{Span, cover};
use super::{ColumnarError, Part, ReadOptions};

/// The rows `from..to` of a partition, batch after batch.
///
/// Either all of them come, or an error that says which do not; behind an error nothing follows. Files are opened one after
/// the other, when their turn comes.
pub struct PartitionReader {
    partition: i32,
    options: ReadOptions,
    columns: Columns,
    spans: vec::IntoIter<Span>,
    file: Option<OpenFile>,
    ready: VecDeque<RecordBatch>,
}

/// A file, and what is still to be read of it.
struct OpenFile {
    file: SealedFile,
    groups: vec::IntoIter<Group>,
    reader: Option<GroupReader>,
}

/// A row group, and the offsets that are wanted of it.
struct Group {
    index: usize,
    all: Range<i64>,
    wanted: Range<i64>,
}

struct GroupReader {
    batches: ParquetRecordBatchReader,
    /// Offsets that are still to come.
    left: Range<i64>,
}

impl PartitionReader {
    /// Plans the way through `parts`, the files that the index names for `partition`. No file is opened yet.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Missing`] names the first offsets that are in no file; [`ColumnarError::Option`] says which option
    /// is wrong.
    pub fn new(
        parts: &[Part],
        partition: i32,
        range: Range<i64>,
        options: ReadOptions,
    ) -> Result<Self, ColumnarError> {
        Ok(Self {
            partition,
            columns: Columns::of(&options)?,
            spans: cover(parts, partition, range.start, range.end)?.into_iter(),
            options,
            file: None,
            ready: VecDeque::new(),
        })
    }

    /// Returns the columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        self.columns.schema()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, ColumnarError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            if let Some(open) = &mut self.file {
                match open.poll(&self.options)? {
                    Some(batch) => self.take(&batch)?,
                    None => self.file = None,
                }
                continue;
            }
            let Some(span) = self.spans.next() else {
                return Ok(None);
            };
            self.file = Some(OpenFile::open(span, self.partition, &self.columns)?);
        }
    }

    /// Cuts a batch to its size.
    fn take(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        let mut rest = self.columns.arrange(batch)?;
        while rest.num_rows() > 0 {
            let rows = rows_within(&rest, self.options.batch_bytes);
            self.ready.push_back(rest.slice(0, rows));
            rest = rest.slice(rows, rest.num_rows() - rows);
        }
        Ok(())
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
    fn open(span: Span, partition: i32, columns: &Columns) -> Result<Self, ColumnarError> {
        let file = SealedFile::open(span.part, partition, columns)?;
        let groups = file.groups().into_iter().enumerate();
        let groups = groups.filter_map(|(index, all)| {
            let wanted = all.start.max(span.from)..all.end.min(span.to);
            (!wanted.is_empty()).then_some(Group { index, all, wanted })
        });
        Ok(Self {
            groups: groups.collect::<Vec<_>>().into_iter(),
            file,
            reader: None,
        })
    }

    fn poll(&mut self, options: &ReadOptions) -> Result<Option<RecordBatch>, ColumnarError> {
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
            let batches = self
                .file
                .read(group.index, &group.all, &group.wanted, options)?;
            let left = group.wanted;
            self.reader = Some(GroupReader { batches, left });
        }
    }
}

impl GroupReader {
    fn poll(&mut self, file: &SealedFile) -> Result<Option<RecordBatch>, ColumnarError> {
        let Some(batch) = self.batches.next() else {
            let Range { start, end } = self.left;
            let problem = format!("offsets {start} to {end} (exclusive) are not in it");
            if self.left.is_empty() {
                return Ok(None);
            }
            return Err(ColumnarError::unreadable(file.path(), &problem));
        };
        let batch = batch.map_err(|error| ColumnarError::unreadable(file.path(), &error))?;
        if batch.num_rows() > count(&self.left) {
            return Err(ColumnarError::unreadable(
                file.path(),
                "more rows than its footer says",
            ));
        }
        // INVARIANT: not more than what is left, which an i64 counts.
        self.left.start += i64::try_from(batch.num_rows()).expect("fits what is left");
        Ok(Some(batch))
    }
}
