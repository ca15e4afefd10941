//! Why a store cannot be opened, or does not go on.

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
    #[error("{file} has format {found}; this version reads formats up to {known}")]
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
#[error("{file} is damaged{} ({reason}){}{}", At(self), Affected(self), Wanted(.concerns))]
pub struct Damage {
    /// The segment, or the checkpoint.
    pub file: String,
    /// The first byte of a segment that is not as it was written; the number of a message in the
    /// checkpoint.
    pub offset: u64,
    /// The whole file is meant: it is missing, cut, or cannot be opened. `offset` says nothing.
    pub is_whole: bool,
    /// The first record that is affected; 0 if none is.
    pub first_lsn: u64,
    /// The last one that is known to have been there; 0 if none is known.
    pub last_lsn: u64,
    /// What is wrong.
    pub reason: &'static str,
    /// Clients that a damaged message waits for, and topics that retain it, as far as somebody has
    /// looked.
    pub concerns: Vec<String>,
}

impl Damage {
    /// All of a file.
    pub(crate) fn whole(file: &str, reason: &'static str) -> Self {
        Self {
            file: file.to_owned(),
            reason,
            is_whole: true,
            ..Self::default()
        }
    }

    /// Records from `first_lsn` to `last_lsn` are affected.
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

struct Wanted<'a>(&'a [String]);

impl fmt::Display for Wanted<'_> {
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
