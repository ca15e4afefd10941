//! Stages: files of rows. Each row is checked when it is written, and a stage counts only when all rows are on disk.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow_buffer::Buffer;
use arrow_ipc::reader::{StreamDecoder, StreamReader};
use mqttcore_publisher::MessageColumns;

use super::held_bytes::HeldBytes;
use super::message::message;
use super::{Sink, SinkError, StageId, remove};

/// Maximum size of an Arrow record batch in bytes.
const BATCH_BYTES: usize = 64 << 20;

/// A stage that is being written. Dropping it before [`end`](Self::end) removes it.
pub struct Staging {
    sink: Arc<Sink>,
    id: StageId,
    temporary: PathBuf,
    file: Option<File>,
    decoder: StreamDecoder,
    rows: u64,
    /// Bytes received since the last complete record batch.
    pending: HeldBytes,
}

impl Staging {
    pub(super) fn begin(sink: Arc<Sink>, id: StageId) -> Result<Self, SinkError> {
        let temporary = sink.folder.join(format!("_{}", id.file()));
        let file = File::create(&temporary)?;
        let pending = sink.held.part();
        date(&file, &sink);
        Ok(Self {
            sink,
            id,
            temporary,
            file: Some(file),
            decoder: StreamDecoder::new(),
            rows: 0,
            pending,
        })
    }

    /// Appends the next bytes of an Arrow IPC stream. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The bytes are not rows, a row is not a valid message, or the file cannot be written.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.pending.set(self.pending.bytes() + bytes.len());
        if self.pending.bytes() > BATCH_BYTES {
            let text = format!("a batch is larger than {BATCH_BYTES} bytes: send smaller ones");
            return Err(SinkError::Rows(text));
        }
        let mut buffer = Buffer::from(bytes);
        while !buffer.is_empty() {
            let decoded = self.decoder.decode(&mut buffer);
            let decoded = decoded.map_err(|error| SinkError::Rows(error.to_string()))?;
            let Some(batch) = decoded else { continue };
            let columns = MessageColumns::of(&batch);
            let columns = columns.map_err(|error| SinkError::Rows(error.to_string()))?;
            let now = Instant::now();
            for row in 0..columns.rows() {
                let checked = message(&columns, row, &self.sink.limits, now);
                checked.map_err(|problem| SinkError::Row {
                    row: self.rows,
                    problem,
                })?;
                self.rows += 1;
            }
            self.pending.set(buffer.len());
        }
        // INVARIANT: only `end` takes the file, and it consumes the stage.
        let file = self.file.as_mut().expect("a file");
        file.write_all(bytes)?;
        date(file, &self.sink);
        Ok(())
    }

    /// Syncs the stage to disk; returns its number of rows. Blocks.
    ///
    /// # Errors
    ///
    /// The stream is incomplete, or the file cannot be written.
    pub fn end(mut self) -> Result<u64, SinkError> {
        let ended = self.decoder.finish();
        ended.map_err(|error| SinkError::Rows(error.to_string()))?;
        if self.decoder.schema().is_none() {
            return Err(SinkError::Rows("the schema is missing".into()));
        }
        // INVARIANT: as above.
        let file = self.file.take().expect("a file");
        file.sync_all()?;
        let folder = &self.sink.folder;
        std::fs::rename(&self.temporary, folder.join(self.id.file()))?;
        File::open(folder)?.sync_all()?;
        Ok(self.rows)
    }
}

/// Dates `file` by kept time: the system's clock may jump before the file expires.
fn date(file: &File, sink: &Sink) {
    // If the file system does not store it, the file keeps the time of the system's clock.
    let _ = file.set_modified(sink.kept_time());
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A finished stage has its final name; files that stay are removed later.
        let _ = remove(&self.temporary);
    }
}

/// Reads the batches of `files` one after the other, until `visit` returns false.
pub(super) fn for_each_batch(
    files: &[PathBuf],
    mut held: HeldBytes,
    mut visit: impl FnMut(&MessageColumns) -> Result<bool, SinkError>,
) -> Result<(), SinkError> {
    for file in files {
        let reader = StreamReader::try_new(BufReader::new(File::open(file)?), None);
        for batch in reader.map_err(unreadable)? {
            let batch = batch.map_err(unreadable)?;
            held.set_batch(&batch);
            if !visit(&MessageColumns::of(&batch).map_err(unreadable)?)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

pub(super) fn unreadable(error: impl Display) -> SinkError {
    SinkError::Rows(format!("a stage cannot be read: {error}"))
}
