//! Records on their way to the log.

use crate::record::Record;
use crate::wal::frame;

/// Records that are written together: after a crash all of them are there, or none.
///
/// Reuse it: [`crate::Store::append`] empties it and leaves its memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u32,
}

impl Batch {
    /// Adds a record behind the others.
    pub fn push(&mut self, record: &Record<'_>) {
        let start = frame::begin(record.kind(), record.flags(), &mut self.bytes);
        record.encode_body(&mut self.bytes);
        frame::finish(&mut self.bytes, start);
        self.records += 1;
    }

    /// Forgets all records, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
    }

    /// How many records there are.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes that it takes in the log.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}
