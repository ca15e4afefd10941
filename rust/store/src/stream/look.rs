//! Describes and verifies the streams of a store without opening it.

use std::sync::Arc;

use crate::backup::STREAMS;
use crate::error::StoreError;
use crate::files::{Files, FolderAccess};
use crate::index::Index;
use crate::stats::StreamInfo;
use crate::stream::file_index;
use crate::stream::history::{self, Expected, History};
use crate::stream::identity::wrong;
use crate::stream::manifest::{self, STREAM, StreamIdentity};

/// Describes every stream in the folder; with `is_verified`, also reads all rows in files.
///
/// # Errors
///
/// [`StoreError::Stream`] if rows are missing or differ from the index.
pub(crate) fn describe(
    files: &Arc<dyn Files>,
    index: &Index,
    is_verified: bool,
) -> Result<Vec<StreamInfo>, StoreError> {
    let failed = |error| StoreError::io("open", STREAMS, error);
    if !files
        .list()
        .map_err(failed)?
        .iter()
        .any(|name| name == STREAMS)
    {
        return Ok(Vec::new());
    }
    let root = files.folder(STREAMS, FolderAccess::Owner).map_err(failed)?;
    let mut told = Vec::new();
    for name in root.list().map_err(failed)? {
        // The endpoint's socket has a dot in its name; streams have none.
        if name.contains('.') {
            continue;
        }
        let folder = root.folder(&name, FolderAccess::Owner).map_err(failed)?;
        if let Some(identity) = manifest::read::<StreamIdentity>(&*folder, STREAM)? {
            told.push(describe_one(&*folder, &identity, index, is_verified)?);
        }
    }
    Ok(told)
}

fn describe_one(
    folder: &dyn Files,
    identity: &StreamIdentity,
    index: &Index,
    is_verified: bool,
) -> Result<StreamInfo, StoreError> {
    let mut info = StreamInfo {
        name: identity.name.clone(),
        epoch: format!("{}:{}", identity.store, identity.epoch),
        partitions: identity.partitions,
        ..StreamInfo::default()
    };
    let data = folder.folder("data", FolderAccess::Owner);
    let data = data.map_err(|error| StoreError::io("open", "data", error))?;
    let (sealed, _) = file_index::read(folder)?;
    let names = history::look(&*data)?;
    for partition in 0..identity.partitions {
        let place = usize::from(partition);
        let key = (identity.id, partition);
        let expected = Expected {
            stream: &identity.name,
            partition,
            sealed: index.streams.sealed(key),
            is_read_only: true,
            // The configuration is not known: the next start may have it.
            has_tier: true,
        };
        let names = names.get(&partition).map_or(&[][..], Vec::as_slice);
        let known = sealed.partitions.get(place).map_or(&[][..], Vec::as_slice);
        let earliest = sealed.earliest.get(place).copied().unwrap_or_default();
        let history = History::open(Arc::clone(&data), names, known, earliest, &expected)?;
        if is_verified {
            verify(identity, partition, &history, expected.sealed)?;
        }
        let end = index.streams.numbering.next(key).max(history.end_offset());
        info.add(&history, expected.sealed, end);
    }
    Ok(info)
}

impl StreamInfo {
    /// Adds a partition with rows that are sealed up to `sealed` and end at `end`.
    fn add(&mut self, history: &History, sealed: u64, end: u64) {
        let sealed_end = sealed.max(history.end_offset());
        self.rows += end.saturating_sub(history.earliest);
        self.unsealed_rows += end.saturating_sub(sealed_end);
        self.files += history.files.len() as u64;
        self.bytes += history.files.iter().map(|file| file.bytes).sum::<u64>();
        let remote = history.files.iter().filter(|file| file.is_remote);
        self.remote_files += remote.count() as u64;
    }
}

/// Checks that files have exactly the rows from the earliest offset to the last sealed one.
fn verify(
    identity: &StreamIdentity,
    partition: u16,
    history: &History,
    sealed: u64,
) -> Result<(), StoreError> {
    let fault =
        |problem: String| wrong(&identity.name, &format!("partition {partition}: {problem}"));
    let mut next = history.earliest;
    for file in history
        .files
        .iter()
        .filter(|file| file.last >= history.earliest)
    {
        if file.base > next {
            let base = file.base;
            return Err(fault(format!(
                "offsets {next} to {base} (exclusive) are missing"
            )));
        }
        let wanted = file.base..file.last + 1;
        // Object storage is not asked.
        if !file.is_remote && !history.offsets(file)?.into_iter().eq(wanted) {
            return Err(fault(format!(
                "{} does not hold the rows of its name",
                file.file
            )));
        }
        next = file.last + 1;
    }
    if next < sealed {
        return Err(fault(format!(
            "offsets {next} to {sealed} (exclusive) are missing"
        )));
    }
    Ok(())
}
