//! What a reader hands out.

use arrow_schema::{Field, SchemaRef};

use super::ColumnarError;
use super::columns::Columns;

/// Which rows and columns a reader hands out, and in how large batches.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Typed columns of the stream, which follow those of every row; a file without one has nulls in it.
    pub typed: Vec<Field>,
    /// The columns to hand out, in this order; all of them if `None`.
    pub columns: Option<Vec<String>>,
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// Bytes of a batch at most, a single row excepted.
    pub batch_bytes: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            typed: Vec::new(),
            columns: None,
            batch_rows: 16 * 1024,
            batch_bytes: 16 << 20,
        }
    }
}

impl ReadOptions {
    /// Returns the columns of every batch.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] names a column that there is not, or that is named twice.
    pub fn schema(&self) -> Result<SchemaRef, ColumnarError> {
        Ok(Columns::of(self)?.schema().clone())
    }
}
