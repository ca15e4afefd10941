//! Errors of a store, and descriptions of damage.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::wire::BodyError;
use mqttcore_panics::Panicked;

/// A store cannot be opened or read, or has stopped.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system failed.
    #[error("{doing} {file}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file in the folder.
        file: String,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// Another running broker has the folder.
    #[error("the folder belongs to another running broker (it holds the lock)")]
    Locked,
    /// There is no log and no checkpoint in the folder.
    #[error("there is no store in this folder")]
    Missing,
    /// A newer version wrote the folder.
    #[error("{file} has format {found}; this version reads formats up to {known}")]
    NewerFormat {
        /// The file.
        file: String,
        /// The file's format version.
        found: u32,
        /// The newest format version that is supported.
        known: u32,
    },
    /// The log has a record that this version does not support: a newer version wrote it.
    #[error("{file} at {offset}: LSN {lsn}: {problem}")]
    UnknownRecord {
        /// The segment.
        file: String,
        /// Offset in the segment.
        offset: u64,
        /// LSN of the record.
        lsn: u64,
        /// Why the record cannot be decoded.
        problem: BodyError,
    },
    /// Durable data is damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The checkpoint cannot be read or written.
    #[error("checkpoint: {0}")]
    Checkpoint(Arc<str>),
    /// A stream cannot be opened, or its rows cannot be stored.
    #[error("stream {stream}: {problem}")]
    Stream {
        /// Name of the stream.
        stream: String,
        /// The fault.
        problem: Arc<str>,
    },
    /// The disk is full.
    #[error("no room on the disk")]
    NoSpace,
    /// A thread of the store panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// The store has stopped after an error.
    #[error("the store has stopped: {0}")]
    Stopped(Arc<str>),
}

/// Place and extent of damage in the log or the checkpoint.
#[derive(Clone, Debug, Default, Eq, Error, PartialEq)]
#[error("{file} is damaged{} ({reason}){}{}", At(self), Affected(self), Dependents(.concerns))]
pub struct Damage {
    /// The segment, or the checkpoint.
    pub file: String,
    /// Offset of the damage in a segment; in the checkpoint, the number of the message.
    pub offset: u64,
    /// Whether the whole file is affected: missing, truncated, or not readable. `offset` has no
    /// meaning then.
    pub is_whole: bool,
    /// LSN of the first affected record; 0 if there is none.
    pub first_lsn: u64,
    /// LSN of the last affected record that is known; 0 if none is known.
    pub last_lsn: u64,
    /// The fault.
    pub reason: &'static str,
    /// Clients for which a damaged message is queued, and topics that retain it, as far as they
    /// were searched.
    pub concerns: Vec<String>,
}

impl Damage {
    /// Damage of a whole file.
    pub(crate) fn whole(file: &str, reason: &'static str) -> Self {
        Self {
            file: file.to_owned(),
            reason,
            is_whole: true,
            ..Self::default()
        }
    }

    /// Sets the affected records: `first_lsn` to `last_lsn`.
    pub(crate) fn of(self, first_lsn: u64, last_lsn: u64) -> Self {
        Self {
            first_lsn,
            last_lsn,
            ..self
        }
    }
}

struct At<'a>(&'a Damage);

impl fmt::Display for At<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Damage { is_whole: true, .. } => Ok(()),
            Damage { offset, .. } => write!(formatter, " at {offset}"),
        }
    }
}

struct Affected<'a>(&'a Damage);

impl fmt::Display for Affected<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Damage { first_lsn: 0, .. } => Ok(()),
            Damage {
                first_lsn,
                last_lsn,
                ..
            } if last_lsn >= first_lsn => {
                write!(
                    formatter,
                    ": LSN {first_lsn} to {last_lsn} cannot be trusted"
                )
            }
            Damage { first_lsn, .. } => {
                write!(
                    formatter,
                    ": LSN {first_lsn} and the records after it are missing"
                )
            }
        }
    }
}

struct Dependents<'a>(&'a [String]);

impl fmt::Display for Dependents<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.iter();
        names.try_for_each(|name| write!(formatter, "; it is needed by {name}"))
    }
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, file: &str, source: io::Error) -> Self {
        Self::Io {
            doing,
            file: file.to_owned(),
            source: Arc::new(source),
        }
    }
}
