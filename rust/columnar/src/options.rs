//! Options of a reader: columns, filters, decoding, batch size.

use arrow_schema::{Field, SchemaRef};
use mqttcore_topics::TopicFilter;

use super::columns::OutputColumns;
use super::wanted::ANY_TOPIC;
use super::{ColumnarError, Decoder};

/// The rows and columns that a reader returns, and the size of batches.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Only rows whose topic the filter matches. As in MQTT, `#` does not match topics that begin with `$`.
    pub filter: Option<TopicFilter>,
    /// Only rows at or after this time, in Unix microseconds.
    pub start_us: Option<i64>,
    /// Only rows before this time, in Unix microseconds.
    pub end_us: Option<i64>,
    /// Typed columns of the stream, which follow those of every row.
    pub typed: Vec<Field>,
    /// Decodes typed columns that an older file lacks; without it they are null.
    pub late: Option<Decoder>,
    /// Decodes the payloads into further columns.
    pub decoder: Option<Decoder>,
    /// The output columns, in this order; all columns if `None`.
    pub columns: Option<Vec<String>>,
    /// Maximum number of rows in a batch.
    pub batch_rows: usize,
    /// Maximum number of bytes in a batch; a single row may exceed it.
    pub batch_bytes: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            filter: None,
            start_us: None,
            end_us: None,
            typed: Vec::new(),
            late: None,
            decoder: None,
            columns: None,
            batch_rows: 16 * 1024,
            batch_bytes: 16 << 20,
        }
    }
}

impl ReadOptions {
    /// Parses a filter for reading a stream, of any length.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] if the filter is not valid.
    pub fn parse_filter(text: &str) -> Result<TopicFilter, ColumnarError> {
        TopicFilter::parse(text, &ANY_TOPIC).map_err(|error| ColumnarError::Option {
            option: "filter",
            problem: format!("{text:?}: {error}"),
        })
    }

    /// Returns the columns of every batch.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] names a column that does not exist or is selected twice.
    pub fn schema(&self) -> Result<SchemaRef, ColumnarError> {
        Ok(OutputColumns::of(self)?.schema().clone())
    }
}
