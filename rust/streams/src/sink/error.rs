//! Why rows are not published.

use std::io;

use mqttcore_broker::BrokerStopped;

/// A stage or a commit is refused, or cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A name of a query or a stage is not valid.
    #[error("{0:?} is no name: 1 to 64 letters, digits, - and _")]
    Name(String),
    /// The topics to replace are not given by a topic filter.
    #[error("replacing {text:?}: {problem}")]
    Filter {
        /// What was given as a filter.
        text: String,
        /// Why it is none.
        problem: String,
    },
    /// The batch is older than the last one that was committed.
    #[error("batch {0} was committed before, and a later one after it")]
    Late(u64),
    /// A stage is missing or named twice.
    #[error("there is no stage {0:?}, or it is named twice")]
    Stage(String),
    /// A row is not a message.
    #[error("row {row}: {problem}")]
    Row {
        /// Its place in the stage, from 0.
        row: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The bytes are not rows.
    #[error("the rows: {0}")]
    Rows(String),
    /// There is no room for what has to be kept.
    #[error("the disk is nearly full")]
    Full,
    /// The broker stops before it is done.
    #[error("the broker stops")]
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
