//! Messages as rows: streams in the broker's store and in Kafka, the sink that publishes rows as messages, and status
//! reports of queries.
//!
//! [`RowStreams`] implements the engine's [`RowLog`](mqttcore_broker::RowLog). The HTTP routes are in `mqttcore-http`.
#![cfg_attr(not(feature = "kafka"), forbid(unsafe_code))]
#![cfg_attr(feature = "kafka", deny(unsafe_code))]
#![warn(missing_docs)]

mod filters;
pub mod kafka;
mod reports;
mod row_streams;
mod sink;

pub use filters::InvalidStreamFilter;
pub use mqttcore_store::stream::{
    Definition as Stream, PartitionKey as StreamKey, ProtobufMessage, TierOptions,
};
pub use reports::{QueryReports, ReportError};
pub use row_streams::{RowStreams, Rows, StreamsConfig};
pub use sink::{QueryName, Sink, SinkError, StageId, Staging};
