//! Errors of questions.

use crate::operations::asking::AskError;
use crate::service::BrokerStopped;

/// Why there is no explanation.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// A shard was not asked, or did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// No session has this client identifier.
    #[error("no client {0:?} has a session")]
    NoClient(String),
    /// The payload of the question is larger than [`EXPLAINED_BYTES_MAX`].
    #[error("a payload of {0} bytes is too large for a question; at most {EXPLAINED_BYTES_MAX}")]
    TooLarge(usize),
}

impl From<BrokerStopped> for ExplainError {
    fn from(stopped: BrokerStopped) -> Self {
        Self::Ask(stopped.into())
    }
}

/// Largest payload of a message that is asked about, in bytes: the question allocates it.
pub const EXPLAINED_BYTES_MAX: usize = 1 << 20;
