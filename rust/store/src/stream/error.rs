//! Errors of reading rows.

use thiserror::Error;

use crate::error::StoreError;
use mqttcore_columnar::ColumnarError;

/// A stream cannot be read or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such stream.
    #[error("there is no stream {0:?}")]
    Unknown(String),
    /// There is no such partition.
    #[error("stream {stream} has {partitions} partitions, no number {partition}")]
    Partition {
        /// The stream.
        stream: String,
        /// What was asked for.
        partition: u16,
        /// How many there are.
        partitions: u16,
    },
    /// The rows are in files: read those.
    #[error(
        "partition {partition} of stream {stream}: offsets {from} to {to} (exclusive) are sealed"
    )]
    Sealed {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The first of them.
        from: u64,
        /// Behind the last of them.
        to: u64,
    },
    /// The rows do not exist yet.
    #[error("partition {partition} of stream {stream} ends at {end}: there is no offset {to} yet")]
    Beyond {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// Where it ends.
        end: u64,
        /// Behind the last that was asked for.
        to: u64,
    },
    /// The rows were given up because of their age or size.
    #[error(
        "partition {partition} of stream {stream} begins at {earliest}: \
         offsets {from} to {to} (exclusive) are deleted"
    )]
    Gone {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The first of them.
        from: u64,
        /// Behind the last of them.
        to: u64,
        /// The first that is left.
        earliest: u64,
    },
    /// The rows were lost, by damage that was repaired.
    #[error(
        "partition {partition} of stream {stream}: offsets {from} to {to} (exclusive) are missing"
    )]
    Missing {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The first of them.
        from: u64,
        /// Behind the last of them.
        to: u64,
    },
    /// A range that ends before it begins, or as many offsets as there are no partitions.
    #[error("stream {stream}: {problem}")]
    Argument {
        /// The stream.
        stream: String,
        /// What is wrong.
        problem: String,
    },
    /// Rows cannot be written or read.
    #[error("stream {stream}: {error}")]
    Rows {
        /// The stream.
        stream: String,
        /// What is wrong.
        error: ColumnarError,
    },
    /// The store cannot do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
