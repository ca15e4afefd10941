//! Errors of reading rows.

use thiserror::Error;

use crate::error::StoreError;
use mqttcore_columnar::ColumnarError;

/// Errors of reading or changing a stream.
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
        /// The requested partition.
        partition: u16,
        /// The number of partitions.
        partitions: u16,
    },
    /// The rows are in files, to be read there.
    #[error(
        "partition {partition} of stream {stream}: offsets {from} to {to} (exclusive) are sealed"
    )]
    Sealed {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The first sealed offset of the request.
        from: u64,
        /// The offset after the last of them.
        to: u64,
    },
    /// The rows do not exist yet.
    #[error("partition {partition} of stream {stream} ends at {end}: there is no offset {to} yet")]
    Beyond {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The end of the partition.
        end: u64,
        /// The end of the requested range.
        to: u64,
    },
    /// Retention removed the rows.
    #[error(
        "partition {partition} of stream {stream} begins at {earliest}: \
         offsets {from} to {to} (exclusive) are deleted"
    )]
    Gone {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The first removed offset of the request.
        from: u64,
        /// The offset after the last of them.
        to: u64,
        /// The earliest offset that is left.
        earliest: u64,
    },
    /// The rows were lost in damage that was repaired.
    #[error(
        "partition {partition} of stream {stream}: offsets {from} to {to} (exclusive) are missing"
    )]
    Missing {
        /// The stream.
        stream: String,
        /// The partition.
        partition: u16,
        /// The first missing offset.
        from: u64,
        /// The offset after the last of them.
        to: u64,
    },
    /// A file is in object storage only, and the stream has none any more.
    #[error(
        "{file} of stream {stream} is in object storage only, in {url}, and the stream has no [streams.tier] any more: \
         configure it again in the broker, or read the object there by the name that sealed.json has"
    )]
    Remote {
        /// The stream.
        stream: String,
        /// The file.
        file: String,
        /// The URL of the folder of the objects.
        url: String,
    },
    /// Invalid arguments: a range that ends before it begins, or a wrong number of offsets.
    #[error("stream {stream}: {problem}")]
    Argument {
        /// The stream.
        stream: String,
        /// The fault.
        problem: String,
    },
    /// The owner has too many consumers in the stream.
    #[error("stream {stream}: at most {most} consumers of one key may hold rows")]
    Consumers {
        /// The stream.
        stream: String,
        /// The maximum.
        most: usize,
    },
    /// Rows cannot be encoded or decoded.
    #[error("stream {stream}: {error}")]
    Rows {
        /// The stream.
        stream: String,
        /// The cause.
        error: ColumnarError,
    },
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}
