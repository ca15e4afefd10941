//! Messages as rows: streams in the broker's store and in Kafka, batches of rows that become messages, and reports of the
//! queries that read rows.
//!
//! [`RowStreams`] is what the engine asks ([`RowLog`](mqttcore_broker::RowLog)). The crate speaks no HTTP: `mqttcore-http`
//! does.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod filters;
pub mod kafka;
mod reports;
mod row_streams;
mod sink;

pub use filters::InvalidStreamFilter;
pub use mqttcore_store::stream::{
    Definition as Stream, PartitionKey as StreamKey, ProtobufMessage,
};
pub use reports::{QueryReports, ReportError};
pub use row_streams::{RowStreams, Rows, StreamsConfig};
pub use sink::{Sink, SinkError, StageId, Staging};
