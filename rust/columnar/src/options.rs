//! Options of a reader: columns, filters, decoding, batch size.

use arrow_schema::{Field, SchemaRef};
use mqttcore_topics::TopicFilter;

use super::columns::OutputColumns;
use super::wanted::ANY_TOPIC;
use super::{ColumnarError, Decoder};

/// Which rows and columns a reader hands out, and in how large batches.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Only rows whose topic this matches, by the rules of MQTT: `#` leaves topics out that begin with `$`.
    pub filter: Option<TopicFilter>,
    /// Only rows at or after this time, in Unix microseconds.
    pub start_us: Option<i64>,
    /// Only rows before this time, in Unix microseconds.
    pub end_us: Option<i64>,
    /// Typed columns of the stream, which follow those of every row.
    pub typed: Vec<Field>,
    /// Decodes those that a file lacks, which is older than they are; without it they are null there.
    pub late: Option<Decoder>,
    /// Decodes the payloads into further columns.
    pub decoder: Option<Decoder>,
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
    /// Parses a filter of any length that a stream may be asked with.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] says what is wrong with it.
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
    /// [`ColumnarError::Option`] names a column that there is not, or that is named twice.
    pub fn schema(&self) -> Result<SchemaRef, ColumnarError> {
        Ok(OutputColumns::of(self)?.schema().clone())
    }
}
