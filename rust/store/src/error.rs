//! Why a store cannot be opened, or does not go on.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::threads::Panicked;
use crate::wire::BodyError;

/// A store cannot be opened or read, or has stopped.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system failed.
    #[error("{doing} {file}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file of the folder.
        file: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Another running broker has the folder.
    #[error("the folder belongs to another running broker (it holds the lock)")]
    Locked,
    /// There is no log and no checkpoint in the folder.
    #[error("there is no store in this folder")]
    Missing,
    /// A newer version wrote the folder.
    #[error("{file} has format {found}; this version knows formats up to {known}")]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// The log holds something that this version does not know: a newer one wrote it.
    #[error("{file} at {offset}: LSN {lsn}: {problem}")]
    UnknownRecord {
        /// The segment.
        file: String,
        /// Where in it.
        offset: u64,
        /// Number of the record.
        lsn: u64,
        /// What is not understood.
        problem: BodyError,
    },
    /// Something that was safe is not what it was.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The checkpoint cannot be read or written.
    #[error("checkpoint: {0}")]
    Checkpoint(Arc<str>),
    /// A stream cannot be opened, or its rows cannot be kept.
    #[error("stream {stream}: {problem}")]
    Stream {
        /// Its name.
        stream: String,
        /// What is wrong.
        problem: Arc<str>,
    },
    /// There is no room on the disk.
    #[error("no room on the disk")]
    NoSpace,
    /// A thread of the store panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// The store has stopped after an error and takes nothing any more.
    #[error("the store has stopped: {0}")]
    Stopped(Arc<str>),
}

/// Where and how much of the log or the checkpoint is damaged.
#[derive(Clone, Debug, Default, Eq, Error, PartialEq)]
#[error(
    "{file} is damaged at {offset} ({reason}): LSN {first_lsn} to {last_lsn} cannot be trusted{}",
    Wanted(.concerns)
)]
pub struct Damage {
    /// The segment, or the checkpoint.
    pub file: String,
    /// The first byte of a segment that is not as it was written; the number of a message in the
    /// checkpoint.
    pub offset: u64,
    /// The first record that is affected.
    pub first_lsn: u64,
    /// The last one that is known to have been there.
    pub last_lsn: u64,
    /// What is wrong.
    pub reason: &'static str,
    /// Clients that a damaged message waits for, and topics that retain it, as far as somebody has
    /// looked.
    pub concerns: Vec<String>,
}

struct Wanted<'a>(&'a [String]);

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.iter();
        names.try_for_each(|name| write!(formatter, "; it is wanted by {name}"))
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
