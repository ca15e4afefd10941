//! Errors of the sink.

use std::io;

use mqttcore_broker::BrokerStopped;

/// A stage, commit or abort failed.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A name of a query or a stage is not valid.
    #[error("invalid name {0:?}: 1 to 64 letters, digits, - and _ are allowed")]
    Name(String),
    /// The filter of the retained messages to replace is not a valid topic filter.
    #[error("cannot replace retained messages of {text:?}: {problem}")]
    Filter {
        /// The invalid text.
        text: String,
        /// The reason.
        problem: String,
    },
    /// The batch is older than the last committed batch of the query.
    #[error("batch {0} is older than the last committed batch")]
    Late(u64),
    /// A stage is missing or named twice.
    #[error("stage {0:?} does not exist, or is named twice")]
    Stage(String),
    /// A row is not a message.
    #[error("row {row}: {problem}")]
    Row {
        /// Index of the row in the stage, from 0.
        row: u64,
        /// The reason.
        problem: String,
    },
    /// The bytes are not an Arrow IPC stream of rows.
    #[error("cannot read the rows: {0}")]
    Rows(String),
    /// The disk is nearly full.
    #[error("the disk is nearly full")]
    Full,
    /// The broker stops before the operation is complete.
    #[error("the broker is stopping")]
    Stopped,
    /// A stage's file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<BrokerStopped> for SinkError {
    fn from(_: BrokerStopped) -> Self {
        Self::Stopped
    }
}
