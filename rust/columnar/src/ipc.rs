//! Encodes and decodes batches as Arrow IPC streams, the format of the tail.

use std::io::Read;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;

use super::ColumnarError;

/// Reads all batches of an Arrow IPC stream.
///
/// # Errors
///
/// [`ColumnarError::Arrow`] for bytes that are no such stream, or that end before it does.
pub fn read_ipc(bytes: impl Read) -> Result<Vec<RecordBatch>, ColumnarError> {
    let batches = StreamReader::try_new(bytes, None)?;
    batches.map(|batch| Ok(batch?)).collect()
}
