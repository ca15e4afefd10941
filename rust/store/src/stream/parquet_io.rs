//! Reads and writes Parquet through the files of the store.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::files::{File, read_full, write_all};

/// Size of the write buffer in bytes.
const BUFFER: usize = 1 << 20;

/// Writes a file sequentially.
pub(super) struct FileWriter {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
    /// The kind of the file system's error; the Parquet writer passes on only its text.
    failure: Option<io::ErrorKind>,
}

impl FileWriter {
    pub(super) fn new(file: Arc<dyn File>) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            written: 0,
            failure: None,
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        let written = write_all(&*self.file, &self.buffer, self.written);
        self.failure = written.as_ref().err().map(io::Error::kind);
        written?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Converts an error of the Parquet writer, with the kind of the file system's error behind it.
    pub(super) fn explain(&self, error: &impl ToString) -> io::Error {
        let kind = self.failure.unwrap_or(io::ErrorKind::Other);
        io::Error::new(kind, error.to_string())
    }

    /// Writes and syncs the rest; returns the size of the file.
    pub(super) fn finish(&mut self) -> io::Result<u64> {
        self.drain()?;
        self.file.sync()?;
        Ok(self.written)
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER {
            self.drain()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a file at any offset.
#[derive(Clone, Debug)]
pub(super) struct FileReader {
    file: Arc<dyn File>,
    bytes: u64,
}

impl FileReader {
    pub(super) fn new(file: Arc<dyn File>) -> io::Result<Self> {
        let bytes = file.bytes()?;
        Ok(Self { file, bytes })
    }
}

impl Length for FileReader {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for FileReader {
    type T = From;

    fn get_read(&self, start: u64) -> Result<From, ParquetError> {
        let file = Arc::clone(&self.file);
        Ok(From { file, at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.saturating_add(length as u64) > self.bytes {
            return Err(ParquetError::EOF("the file is too short".into()));
        }
        let mut bytes = vec![0; length];
        let read = read_full(&*self.file, &mut bytes, start)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
}

/// Reads a file sequentially from an offset.
#[derive(Debug)]
pub(super) struct From {
    file: Arc<dyn File>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
