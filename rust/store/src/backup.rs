//! Copying a store, whether it is running or not.
//!
//! Of a running one, three things are taken in one moment: a snapshot of the checkpoint, the full
//! segments, which nobody writes to any more, and the end of the one that is written to. Then the
//! store goes on, while the copy is made of them.

use std::io;
use std::sync::Arc;

use redb::ReadTransaction;

use crate::error::StoreError;
use crate::files::{Access, File, Files, read_full, write_all};
use crate::index::tables;
use crate::journal::segment;

/// A segment that is to be copied; open, since the store may let go of it meanwhile.
pub(crate) struct Held {
    name: String,
    file: Arc<dyn File>,
    /// Where its content ends for the copy.
    end: u64,
}

/// Shares with `to` what is full of the log up to byte `end` of segment `current`; returns what
/// has to be copied.
pub(crate) fn hold(
    files: &dyn Files,
    to: &dyn Files,
    current: u64,
    end: u64,
) -> Result<Vec<Held>, StoreError> {
    let mut held = Vec::new();
    for number in segment::numbers(files)? {
        let name = segment::name(number);
        if number > current || number < current && files.share(&name, to).is_ok() {
            continue;
        }
        match files.open(&name) {
            // A segment that nobody needs any more went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            file => held.push(Held {
                file: file.map_err(|error| StoreError::io("open", &name, error))?,
                end: if number == current { end } else { u64::MAX },
                name,
            }),
        }
    }
    Ok(held)
}

/// Copies what was held, and the checkpoint as `snapshot` has it; returns the bytes of the copy.
pub(crate) fn copy(
    segments: Vec<Held>,
    snapshot: &ReadTransaction,
    to: &dyn Files,
) -> Result<u64, StoreError> {
    for held in segments {
        let copied = copy_file(&*held.file, to, &held.name, held.end);
        copied.map_err(|error| StoreError::io("copy", &held.name, error))?;
    }
    tables::copy(snapshot, to)?;
    let failed = |error| StoreError::io("sync the names of", "the copy", error);
    to.sync_names().map_err(failed)?;
    let mut bytes = 0;
    for name in to.list().map_err(failed)? {
        bytes += to
            .open(&name)
            .and_then(|file| file.bytes())
            .map_err(failed)?;
    }
    Ok(bytes)
}

/// The folder of all streams.
pub(crate) const STREAMS: &str = "streams";

/// Its presence says that the store is a copy, or was mended: offsets that somebody knows may
/// stand for other rows.
pub(crate) const RESTORED: &str = "restored";

/// Shares the streams with `to`, and marks the copy as one; returns the bytes. Nobody writes or
/// removes files of streams meanwhile.
pub(crate) fn streams(files: &dyn Files, to: &dyn Files) -> Result<u64, StoreError> {
    let failed = |error| StoreError::io("copy", STREAMS, error);
    if !files
        .list()
        .map_err(failed)?
        .iter()
        .any(|name| name == STREAMS)
    {
        return Ok(0);
    }
    mark_restored(to).map_err(failed)?;
    let folder =
        |parent: &dyn Files, name: &str, access| parent.folder(name, access).map_err(failed);
    let (passage, group) = (Access::Passage(None), Access::Group(None));
    let (from, to) = (
        folder(files, STREAMS, passage)?,
        folder(to, STREAMS, passage)?,
    );
    let mut bytes = 0;
    for name in from.list().map_err(failed)? {
        // The socket of the endpoint has a dot, streams have none.
        if !name.contains('.') {
            let (from, to) = (
                folder(&*from, &name, passage)?,
                folder(&*to, &name, passage)?,
            );
            bytes += share(&*from, &*to, ".json").map_err(failed)?;
            let (from, to) = (folder(&*from, "data", group)?, folder(&*to, "data", group)?);
            bytes += share(&*from, &*to, ".parquet").map_err(failed)?;
        }
    }
    Ok(bytes)
}

/// Says that the store in `files` is a copy, or was mended.
pub(crate) fn mark_restored(files: &dyn Files) -> io::Result<()> {
    match files.create(RESTORED, 0) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?.sync()?,
    }
    files.sync_names()
}

/// Shares files that are whole, or copies them where they cannot be shared.
fn share(from: &dyn Files, to: &dyn Files, ending: &str) -> io::Result<u64> {
    let mut bytes = 0;
    for name in from.list()? {
        if name.starts_with('_') || !name.ends_with(ending) {
            continue;
        }
        let source = from.open(&name)?;
        bytes += source.bytes()?;
        if from.share(&name, to).is_err() {
            copy_file(&*source, to, &name, u64::MAX)?;
        }
    }
    to.sync_names()?;
    Ok(bytes)
}

/// Copies a file up to `end`, and zeros from there on.
pub(crate) fn copy_file(
    source: &dyn File,
    to: &dyn Files,
    name: &str,
    end: u64,
) -> io::Result<u64> {
    const STEP: u64 = 1 << 20;
    let bytes = source.bytes()?;
    let target = to.create(name, bytes)?;
    let mut buffer = Vec::new();
    let mut offset = 0;
    while offset < bytes.min(end) {
        let step = STEP.min(bytes.min(end) - offset);
        buffer.resize(usize::try_from(step).unwrap_or(usize::MAX), 0);
        let read = read_full(source, &mut buffer, offset)?;
        if read == 0 {
            break;
        }
        write_all(&*target, &buffer[..read], offset)?;
        offset += read as u64;
    }
    target.sync()?;
    Ok(bytes)
}
