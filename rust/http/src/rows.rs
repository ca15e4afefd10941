//! Streams rows to an HTTP client as Arrow IPC, one record batch at a time.

use std::mem;
use std::vec;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use hyper::body::Bytes;
use mqttcore_columnar::row_schema;

use super::answer::{BodyStream, ResponseAborted};

/// An Arrow IPC stream as a body: the schema, batches that share memory with the tail, the end-of-stream marker.
pub(super) struct RowsBody {
    writer: StreamWriter<Vec<u8>>,
    batches: vec::IntoIter<RecordBatch>,
    is_over: bool,
}

impl RowsBody {
    pub(super) fn new(batches: Vec<RecordBatch>) -> Result<Self, ArrowError> {
        // The metadata of the schema also holds the Sparkplug aliases that these rows need.
        let schema = batches.first().map_or_else(row_schema, RecordBatch::schema);
        Ok(Self {
            writer: StreamWriter::try_new(Vec::new(), &schema)?,
            batches: batches.into_iter(),
            is_over: false,
        })
    }

    /// Encodes the next batch, or the end-of-stream marker.
    fn advance(&mut self) -> Result<(), ArrowError> {
        if let Some(batch) = self.batches.next() {
            return self.writer.write(&batch);
        }
        self.is_over = true;
        self.writer.finish()
    }
}

impl BodyStream for RowsBody {
    fn next(&mut self) -> Option<Result<Bytes, ResponseAborted>> {
        if self.is_over {
            return None;
        }
        let advanced = self.advance();
        let piece = Bytes::from(mem::take(self.writer.get_mut()));
        Some(advanced.map(|()| piece).map_err(Into::into))
    }
}
