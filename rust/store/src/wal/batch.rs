//! Batches: encoded records that are appended to the log together.

use crate::record::Record;
use crate::wal::frame;

/// Records that are written together: after a crash, all of them are in the log or none.
///
/// Reuse it: [`crate::Store::append`] empties it and leaves its memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u32,
}

impl Batch {
    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) {
        let start = frame::begin(record.kind(), record.flags(), &mut self.bytes);
        record.encode_body(&mut self.bytes);
        frame::finish(&mut self.bytes, start);
        self.records += 1;
    }

    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
    }

    /// Number of records.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Whether the batch has no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes of the batch in the log.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}
