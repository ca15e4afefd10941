//! Why rows are not published.

use std::io;

/// A stage or a commit is refused, or cannot be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SinkError {
    #[error("{0:?} is no name: 1 to 64 letters, digits, - and _")]
    Name(String),
    #[error("replacing {text:?}: {problem}")]
    Filter { text: String, problem: String },
    #[error("batch {0} was committed before, and a later one after it")]
    Late(u64),
    #[error("there is no stage {0:?}, or it is named twice")]
    Stage(String),
    #[error("row {row}: {problem}")]
    Row { row: u64, problem: String },
    #[error("the rows: {0}")]
    Rows(String),
    #[error("the disk is nearly full")]
    Full,
    #[error("the broker stops")]
    Stopped,
    #[error("{0}")]
    Io(#[from] io::Error),
}
