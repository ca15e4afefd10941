//! Splits batches at limits of rows and bytes.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

/// Returns the number of first rows of `batch` that have at most `limit` bytes of texts and blobs; at least one.
pub(crate) fn rows_within(batch: &RecordBatch, limit: usize) -> usize {
    let ends: Vec<&[i32]> = batch
        .columns()
        .iter()
        .filter_map(|column| offsets(column))
        .collect();
    let bytes = |rows: usize| -> usize {
        let bytes = ends
            .iter()
            .map(|ends| ends[rows].abs_diff(ends[0]) as usize);
        bytes.sum()
    };
    let rows = batch.num_rows();
    if rows == 0 || bytes(rows) <= limit {
        return rows;
    }
    let (mut fits, mut above) = (0, rows);
    while above - fits > 1 {
        let middle = fits.midpoint(above);
        if bytes(middle) <= limit {
            fits = middle;
        } else {
            above = middle;
        }
    }
    fits.max(1)
}

/// Returns how many bytes of texts and blobs a batch has.
pub(crate) fn text_bytes(batch: &RecordBatch) -> usize {
    let ends = batch.columns().iter().filter_map(|column| offsets(column));
    let bytes = ends.map(|ends| ends[ends.len() - 1].abs_diff(ends[0]) as usize);
    bytes.sum()
}

fn offsets(column: &dyn Array) -> Option<&[i32]> {
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value_offsets()),
        DataType::Binary => Some(column.as_binary::<i32>().value_offsets()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, RowBuilder};

    fn batch(payloads: &[usize]) -> RecordBatch {
        let mut builder = RowBuilder::new(0);
        for len in payloads {
            let payload = vec![b'x'; *len];
            let row = Row {
                payload: &payload,
                ..Row::default()
            };
            builder.push(&row).expect("a small row");
        }
        builder.finish()
    }

    #[test]
    fn a_batch_ends_before_the_row_that_is_too_much() {
        let batch = batch(&[10, 10, 10, 100, 1]);

        assert_eq!(rows_within(&batch, 1_000), 5);
        assert_eq!(rows_within(&batch, 131), 5);
        assert_eq!(rows_within(&batch, 130), 4);
        assert_eq!(rows_within(&batch, 129), 3);
        assert_eq!(rows_within(&batch.slice(1, 4), 20), 2);
    }

    #[test]
    fn a_row_that_is_too_large_alone_is_a_batch() {
        let batch = batch(&[100, 1]);

        assert_eq!(rows_within(&batch, 50), 1);
        assert_eq!(rows_within(&batch.slice(0, 0), 50), 0);
    }
}
