//! Messages as rows: batches of rows that become messages, and reports of the queries that read rows.
//!
//! The crate stands above the engine and speaks no network protocol: `mqttcore-http` does.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod reports;
mod sink;

pub use reports::{ReportError, Reports};
pub use sink::{Sink, SinkError, StageId, Staging};
