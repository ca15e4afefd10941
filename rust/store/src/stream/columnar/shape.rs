//! From rows as they are stored to rows as they are handed out: the same for files and for the tail.

use std::collections::VecDeque;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;

use super::columns::Columns;
use super::cut::rows_within;
use super::wanted::Wanted;
use super::{ColumnarError, Decoder, ReadOptions};

/// Filters rows, decodes their payloads, brings their columns into order, and cuts batches to size.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    wanted: Wanted,
    decoder: Option<Decoder>,
    columns: Columns,
    batch_rows: usize,
    batch_bytes: usize,
}

impl Shape {
    pub(crate) fn of(options: &ReadOptions) -> Result<Self, ColumnarError> {
        Ok(Self {
            wanted: Wanted::of(options),
            decoder: options.decoder.clone(),
            columns: Columns::of(options)?,
            batch_rows: options.batch_rows.max(1),
            batch_bytes: options.batch_bytes,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.columns.schema()
    }

    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns where in a file the columns stand that are to be read.
    pub(crate) fn places(&self, file: &Path, found: &Schema) -> Result<Vec<usize>, ColumnarError> {
        self.columns.places(file, found, self.decoder.as_ref())
    }

    /// Appends what a batch becomes to `ready`. Rows of a file are filtered while they are read.
    pub(crate) fn apply(
        &mut self,
        batch: RecordBatch,
        is_filtered: bool,
        ready: &mut VecDeque<RecordBatch>,
    ) -> Result<(), ColumnarError> {
        let batch = if is_filtered || self.wanted.is_everything() {
            batch
        } else {
            filter_record_batch(&batch, &self.wanted.mask(&batch)?)?
        };
        let batch = match &self.decoder {
            Some(decoder) => decoder.decode(&batch)?,
            None => batch,
        };
        let mut rest = self.columns.arrange(&batch)?;
        while rest.num_rows() > 0 {
            let rows = rows_within(&rest, self.batch_bytes).min(self.batch_rows);
            ready.push_back(rest.slice(0, rows));
            rest = rest.slice(rows, rest.num_rows() - rows);
        }
        Ok(())
    }
}
