//! Converts stored rows to output rows, for files and tail: filtering, decoding, column selection, splitting.

use std::collections::VecDeque;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::births::ALIASES;
use super::columns::OutputColumns;
use super::cut::rows_within;
use super::decode::filtered;
use super::wanted::RowPredicate;
use super::{ColumnarError, Decoder, MetricAliases, ReadOptions};

/// Filters rows, decodes payloads, selects and orders columns, and splits batches.
#[derive(Clone, Debug)]
pub(crate) struct BatchShaper {
    wanted: RowPredicate,
    decoder: Option<Decoder>,
    /// Template of the decoder for files that lack typed columns.
    late: Option<Decoder>,
    columns: OutputColumns,
    batch_rows: usize,
    batch_bytes: usize,
}

impl BatchShaper {
    pub(crate) fn of(options: &ReadOptions) -> Result<Self, ColumnarError> {
        let columns = OutputColumns::of(options)?;
        let is_wanted = |name: &str| columns.schema().field_with_name(name).is_ok();
        let decoder = options.decoder.clone();
        Ok(Self {
            wanted: RowPredicate::of(options),
            decoder: decoder.and_then(|decoder| decoder.narrowed(is_wanted)),
            late: options.late.clone(),
            columns,
            batch_rows: options.batch_rows.max(1),
            batch_bytes: options.batch_bytes,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.columns.schema()
    }

    /// Returns the predicate that can be pushed down to the file reader.
    pub(crate) fn pushed(&self) -> RowPredicate {
        if self.has_memory() {
            RowPredicate::default()
        } else {
            self.wanted.clone()
        }
    }

    /// Whether decoding depends on rows that are filtered out.
    pub(crate) fn has_memory(&self) -> bool {
        self.decoder.as_ref().is_some_and(Decoder::has_memory)
    }

    /// Gives the decoder the aliases in `text`; `place` is their file, for errors.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::OtherFile`] if `text` is not a valid table of aliases.
    pub(crate) fn begin(&mut self, place: &Path, text: &str) -> Result<(), ColumnarError> {
        let known = MetricAliases::parse(text);
        let known = known.ok_or_else(|| {
            ColumnarError::other_file(place, format!("{ALIASES} is not a valid table of aliases"))
        })?;
        if let Some(decoder) = &mut self.decoder {
            decoder.update_aliases(&known);
        }
        Ok(())
    }

    /// Lets the decoder learn from rows that are not in the output.
    pub(crate) fn follow(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match &mut self.decoder {
            Some(decoder) => decoder.follow(batch),
            None => Ok(()),
        }
    }

    /// Returns the aliases of the decoder, if its format has any.
    pub(crate) fn aliases(&self) -> Option<String> {
        self.decoder
            .as_ref()
            .filter(|decoder| decoder.has_memory())
            .map(Decoder::aliases)
    }

    /// Prepares for a file with these columns: selected columns that it lacks are decoded.
    pub(crate) fn fit(&mut self, found: &Schema) {
        let Some(late) = &self.late else {
            return;
        };
        let wanted = self.columns.schema();
        let is_lacking = |name: &str| {
            wanted.field_with_name(name).is_ok() && found.field_with_name(name).is_err()
        };
        self.decoder = late.only(is_lacking);
    }

    /// Returns the indices of the columns to read from a file.
    pub(crate) fn places(&self, file: &Path, found: &Schema) -> Result<Vec<usize>, ColumnarError> {
        let mut inputs = self
            .decoder
            .as_ref()
            .map(Decoder::inputs)
            .unwrap_or_default();
        if self.has_memory() {
            inputs.extend(self.wanted.columns());
        }
        self.columns.places(file, found, &inputs)
    }

    /// Converts a batch and appends the result to `ready`. `is_pushed`: [`pushed`](Self::pushed) was applied to it.
    pub(crate) fn apply(
        &mut self,
        batch: RecordBatch,
        is_pushed: bool,
        ready: &mut VecDeque<RecordBatch>,
    ) -> Result<(), ColumnarError> {
        let is_tested = is_pushed && !self.has_memory();
        let mask = if is_tested || self.wanted.is_everything() {
            None
        } else {
            Some(self.wanted.mask(&batch)?)
        };
        let batch = match &mut self.decoder {
            Some(decoder) if decoder.has_memory() => {
                decoder.decode_wanted(&batch, mask.as_ref())?
            }
            Some(decoder) => decoder.decode(&filtered(batch, mask.as_ref())?)?,
            None => filtered(batch, mask.as_ref())?,
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
