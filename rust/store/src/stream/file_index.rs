//! The file index of a stream: the snapshot `sealed.json`, and `sealed.log` with the files that were sealed since.
//!
//! A seal appends its files to `sealed.log`. The snapshot is written again when the log has a certain fraction of the
//! files, so the cost of a seal does not grow with their number. Before a file is removed, a snapshot without it is
//! written: a reader that uses only `sealed.json` finds all files that it names.
//!
//! Each line of the log has the number of its snapshot; lines of other snapshots are ignored. So the write of a
//! snapshot and the removal of the log need not be atomic.

use std::io;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::backup::SEALED_LOG;
use crate::error::StoreError;
use crate::files::{File, Files, write_all};
use crate::stream::manifest::{self, SEALED, Sealed, SealedFile, full_or, remove_if_there};
use crate::stream::streams::lock;

/// A snapshot is written when the log has one of so many files of the stream.
const LOGGED_PART: usize = 64;

/// A line of [`SEALED_LOG`].
#[derive(Deserialize, Serialize)]
struct Line {
    /// [`Sealed::snapshot`] of the snapshot before it.
    snapshot: u64,
    partition: u16,
    #[serde(flatten)]
    file: SealedFile,
}

/// Writes the file index of a stream.
#[derive(Debug)]
pub(super) struct FileIndex {
    folder: Arc<dyn Files>,
    written: Mutex<Written>,
}

/// The entries of the index.
#[derive(Debug, Default)]
struct Written {
    snapshot: u64,
    /// Number of files of each partition.
    files: Vec<usize>,
    /// How many of them are in the log.
    logged: usize,
    /// The log of this snapshot and its size in bytes, if it has one.
    log: Option<(Arc<dyn File>, u64)>,
    /// Whether the last write failed: the disk may have other files or another snapshot than this.
    is_unknown: bool,
}

impl FileIndex {
    /// An index in `folder`, which has `sealed` in its snapshot and nothing in its log.
    pub(super) fn new(folder: Arc<dyn Files>, sealed: &Sealed) -> Self {
        Self {
            folder,
            written: Mutex::new(Written::of(sealed)),
        }
    }

    /// Writes a snapshot.
    pub(super) fn write(&self, sealed: Sealed) -> Result<(), StoreError> {
        self.write_snapshot(&mut lock(&self.written), sealed)
    }

    /// Writes the files that `sealed` has in addition to the index; nothing else may have changed.
    pub(super) fn add(&self, sealed: Sealed) -> Result<(), StoreError> {
        let mut written = lock(&self.written);
        let fresh = written.fresh(&sealed);
        let files: usize = sealed.partitions.iter().map(Vec::len).sum();
        let logged = written.logged + fresh.len();
        if written.is_unknown || logged * LOGGED_PART >= files {
            return self.write_snapshot(&mut written, sealed);
        }
        written.is_unknown = true;
        let appended = self.append(&mut written.log, &fresh);
        appended.map_err(|error| full_or(error, SEALED_LOG))?;
        written.is_unknown = false;
        written.logged = logged;
        written.files = sealed.partitions.iter().map(Vec::len).collect();
        Ok(())
    }

    /// Changes with each write.
    pub(super) fn stamp(&self) -> (u64, usize) {
        let written = lock(&self.written);
        (written.snapshot, written.logged)
    }

    /// Writes a snapshot if there is a log.
    pub(super) fn settle(&self, sealed: impl FnOnce() -> Sealed) -> Result<(), StoreError> {
        let mut written = lock(&self.written);
        if written.log.is_none() && !written.is_unknown {
            return Ok(());
        }
        self.write_snapshot(&mut written, sealed())
    }

    fn write_snapshot(&self, written: &mut Written, mut sealed: Sealed) -> Result<(), StoreError> {
        sealed.snapshot = written.snapshot + 1;
        written.is_unknown = true;
        manifest::write(&*self.folder, SEALED, &sealed)?;
        *written = Written::of(&sealed);
        // Its lines do not count any more.
        let removed = remove_if_there(&*self.folder, SEALED_LOG);
        removed.map_err(|error| StoreError::io("remove", SEALED_LOG, error))
    }

    /// Appends lines; they are safe when this returns.
    fn append(&self, log: &mut Option<(Arc<dyn File>, u64)>, fresh: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in fresh {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let is_new = log.is_none();
        if is_new {
            remove_if_there(&*self.folder, SEALED_LOG)?;
        }
        let (file, bytes) = match log.take() {
            Some(known) => known,
            None => (self.folder.create(SEALED_LOG, 0)?, 0),
        };
        write_all(&*file, &text, bytes)?;
        file.sync()?;
        if is_new {
            self.folder.sync_names()?;
        }
        *log = Some((file, bytes + text.len() as u64));
        Ok(())
    }
}

impl Written {
    fn of(sealed: &Sealed) -> Self {
        Self {
            snapshot: sealed.snapshot,
            files: sealed.partitions.iter().map(Vec::len).collect(),
            ..Self::default()
        }
    }

    /// The files of `sealed` that the index does not have.
    fn fresh(&self, sealed: &Sealed) -> Vec<Line> {
        let mut fresh = Vec::new();
        for (partition, files) in (0..).zip(&sealed.partitions) {
            let known = self.files.get(usize::from(partition)).copied().unwrap_or(0);
            fresh.extend(files.iter().skip(known).map(|file| Line {
                snapshot: self.snapshot,
                partition,
                file: file.clone(),
            }));
        }
        fresh
    }
}

/// Reads the index; also whether there is a log.
pub(super) fn read(folder: &dyn Files) -> Result<(Sealed, bool), StoreError> {
    let mut sealed: Sealed = manifest::read(folder, SEALED)?.unwrap_or_default();
    let Some(text) = manifest::content(folder, SEALED_LOG)? else {
        return Ok((sealed, false));
    };
    for line in lines(&text) {
        let files = sealed.partitions.get_mut(usize::from(line.partition));
        if let Some(files) = files.filter(|_| line.snapshot == sealed.snapshot) {
            files.push(line.file);
        }
    }
    Ok((sealed, true))
}

/// The complete lines; a crash may have left a part of the last ones.
fn lines(text: &[u8]) -> impl Iterator<Item = Line> {
    let whole = text.split_inclusive(|byte| *byte == b'\n');
    whole.map_while(|line| serde_json::from_slice(line.strip_suffix(b"\n")?).ok())
}
