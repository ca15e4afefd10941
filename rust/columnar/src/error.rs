//! Errors of building, writing and reading rows.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use thiserror::Error;

/// Rows cannot be built, written or read.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ColumnarError {
    /// A row is larger than any batch may be.
    #[error("a row of {bytes} bytes is larger than {limit}")]
    RowTooLarge {
        /// Size of the row in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// A row does not fit into the current batch: finish the batch and push the row again.
    #[error("the batch has no room for a row of {bytes} bytes")]
    BatchFull {
        /// Bytes of the row.
        bytes: usize,
    },
    /// The batches cannot be written to a file, which holds the rows of one partition, dense and in order.
    #[error("partition {partition}: {problem}")]
    NotDense {
        /// The partition.
        partition: i32,
        /// A description, with the offset.
        problem: String,
    },
    /// The batches have other columns than a stream.
    #[error("column {column}: {problem}")]
    Column {
        /// Its name.
        column: String,
        /// A description of the error.
        problem: String,
    },
    /// The file system failed.
    #[error("{}: {source}", .file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// A file is not a Parquet file, or is damaged.
    #[error("{} cannot be read: {problem}", .file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// A description of the error.
        problem: String,
    },
    /// A file is not the one that the index describes.
    #[error("{} does not match the index: {problem}", .file.display())]
    OtherFile {
        /// Which file.
        file: PathBuf,
        /// The difference.
        problem: String,
    },
    /// Rows of the range are in no file.
    #[error("partition {partition}: offsets {from} to {to} (exclusive) are missing")]
    Missing {
        /// The partition.
        partition: i32,
        /// The first offset that is missing.
        from: i64,
        /// The next offset that exists, or the end of the range.
        to: i64,
    },
    /// A payload does not fit its schema, with [`OnError::Fail`](crate::OnError::Fail).
    #[error("partition {partition}: the payload at offset {offset} does not fit the schema")]
    Undecodable {
        /// The partition.
        partition: i32,
        /// The offset of the row.
        offset: i64,
    },
    /// The value of an option is not valid.
    #[error("option {option}: {problem}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// A description of the error.
        problem: String,
    },
    /// An error of Arrow or Parquet that is not about a file.
    #[error("{0}")]
    Arrow(String),
}

impl ColumnarError {
    /// An I/O error on `file`.
    pub fn io(file: &Path, source: io::Error) -> Self {
        Self::Io {
            file: file.to_owned(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn unreadable(file: &Path, problem: &(impl ToString + ?Sized)) -> Self {
        Self::Unreadable {
            file: file.to_owned(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn other_file(file: &Path, problem: String) -> Self {
        Self::OtherFile {
            file: file.to_owned(),
            problem,
        }
    }

    pub(crate) fn column(column: &str, problem: &(impl ToString + ?Sized)) -> Self {
        Self::Column {
            column: column.to_owned(),
            problem: problem.to_string(),
        }
    }
}

impl From<ArrowError> for ColumnarError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error.to_string())
    }
}

impl From<ParquetError> for ColumnarError {
    fn from(error: ParquetError) -> Self {
        Self::Arrow(error.to_string())
    }
}
