//! Decodes and filters the rows of a batch, and names rows that do not fit.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter_record_batch;

use crate::ColumnarError;
use crate::schema::{OFFSET, PARTITION, RETAIN};

/// Decodes each row; returns which rows fit.
pub(super) fn rows(
    payloads: &BinaryArray,
    mut decode: impl FnMut(usize, &[u8]) -> bool,
) -> BooleanBuffer {
    BooleanBuffer::collect_bool(payloads.len(), |row| decode(row, payloads.value(row)))
}

/// Returns the rows of the mask, or all rows without a mask.
pub(crate) fn filtered(
    batch: RecordBatch,
    wanted: Option<&BooleanArray>,
) -> Result<RecordBatch, ColumnarError> {
    match wanted {
        Some(wanted) => Ok(filter_record_batch(&batch, wanted)?),
        None => Ok(batch),
    }
}

/// Whether a row is a retained message; false if the batch lacks the column.
pub(super) fn is_retained(batch: &RecordBatch, row: usize) -> bool {
    let retained = batch.column_by_name(RETAIN);
    let retained = retained.and_then(|column| column.as_boolean_opt());
    retained.is_some_and(|retained| retained.is_valid(row) && retained.value(row))
}

/// The payloads of the rows that do not fit.
pub(super) fn corrupt(payloads: &BinaryArray, fits: &BooleanBuffer) -> ArrayRef {
    let mut corrupt = BinaryBuilder::new();
    for (payload, fits) in payloads.iter().zip(fits) {
        corrupt.append_option(payload.filter(|_| !fits));
    }
    Arc::new(corrupt.finish())
}

pub(super) fn undecodable(batch: &RecordBatch, row: usize) -> ColumnarError {
    let partition = batch.column_by_name(PARTITION);
    let partition = partition.and_then(|column| column.as_primitive_opt::<Int32Type>());
    let offset = batch.column_by_name(OFFSET);
    let offset = offset.and_then(|column| column.as_primitive_opt::<Int64Type>());
    match (partition, offset) {
        (Some(partition), Some(offset)) => ColumnarError::Undecodable {
            partition: partition.value(row),
            offset: offset.value(row),
        },
        _ => ColumnarError::column(OFFSET, "is missing"),
    }
}
