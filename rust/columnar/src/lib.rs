//! Converts rows of a stream to Arrow batches and Parquet files, and reads them.
//!
//! [`RowBuilder`] builds a [`RecordBatch`](arrow_array::RecordBatch) from [`Row`]s, [`write_parquet`] writes batches to
//! a file, and [`PartitionReader`] returns exactly the rows of a range, or an error that names the missing ones.
//! [`row_schema`] defines the columns, which are the same in memory, in files and in Spark.
//!
//! The crate starts no thread, and keeps a file open only while it reads it, so that it works in a forked process.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod births;
mod columns;
mod cut;
mod decode;
mod error;
mod file;
mod ipc;
mod meta;
mod options;
mod part;
mod pruning;
mod reader;
mod row;
mod schema;
mod shape;
mod tail;
mod topics;
mod wanted;
mod write;

pub use births::telling;
pub use decode::{CORRUPT, Decoder, Format, MetricAliases, OnError, parse_payload_schema};
pub use error::ColumnarError;
pub use file::contained;
pub use ipc::read_ipc;
pub use meta::{FileMeta, Origin};
pub use options::ReadOptions;
pub use part::FilePart;
pub use pruning::may_have_births;
pub use reader::PartitionReader;
pub use row::{MAX_ROW_BYTES, Row, RowBuilder};
pub use schema::row_schema;
pub use tail::TailReader;
pub use write::write_parquet;
