//! Saving what can be read of a damaged log.

use redb::Database;

use crate::error::StoreError;
use crate::files::Files;
use crate::index::{Index, bodies};
use crate::journal::frame;
use crate::journal::open::{Logged, Place, read_record};
use crate::journal::scan::{Group, Groups};
use crate::journal::segment::{self, HEADER, Header, StoreId};

/// Applies every whole group of a segment that the index does not have yet, wherever it is;
/// returns how many records those were, and adds to `lost` the LSNs between them.
pub(crate) fn segment(
    files: &dyn Files,
    store: StoreId,
    number: u64,
    index: &mut Index,
    lost: &mut Vec<(u64, u64)>,
) -> Result<u64, StoreError> {
    let bytes = read(files, number)?;
    let seed = Header {
        store,
        number,
        first_lsn: 0,
    }
    .seed();
    let (mut at, mut saved) = (HEADER, 0);
    while let Some((group, end)) = next_group(&bytes, seed, at) {
        at = end;
        if group.last_lsn <= index.applied_lsn {
            continue;
        }
        for (offset, frame) in group.records() {
            if frame.lsn <= index.applied_lsn {
                continue;
            }
            if frame.lsn > index.applied_lsn + 1 {
                lost.push((index.applied_lsn + 1, frame.lsn - 1));
            }
            let place = Place {
                segment: number,
                offset: offset as u64,
                bytes: frame.bytes() as u64,
            };
            let ends_group = frame.lsn == group.last_lsn;
            let logged: Logged<'_> = read_record(place, &frame, ends_group)?;
            index.apply(&logged)?;
            saved += 1;
        }
    }
    Ok(saved)
}

/// Moves every message of a segment that is wanted into the checkpoint.
pub(crate) fn keep_messages(
    files: &dyn Files,
    store: StoreId,
    number: u64,
    database: &Database,
) -> Result<(), StoreError> {
    let bytes = read(files, number)?;
    let seed = Header {
        store,
        number,
        first_lsn: 0,
    }
    .seed();
    let mut at = HEADER;
    let mut frames = Vec::new();
    while at < bytes.len() {
        // A message is as good as its own checksum, whatever became of its group.
        match frame::parse(&bytes[at..], seed) {
            Some(frame) => {
                frames.push((at as u64, frame));
                at += frame.bytes();
            }
            None => at += 1,
        }
    }
    bodies::move_frames(database, number, frames.into_iter())
}

/// Every whole group of a segment, wherever it is.
#[cfg(feature = "columnar")]
pub(crate) fn groups<'s>(
    bytes: &'s [u8],
    header: &Header,
) -> Box<dyn Iterator<Item = Group<'s>> + 's> {
    let (seed, mut at) = (header.seed(), HEADER);
    Box::new(std::iter::from_fn(move || {
        let (group, end) = next_group(bytes, seed, at)?;
        at = end;
        Some(group)
    }))
}

fn read(files: &dyn Files, number: u64) -> Result<Vec<u8>, StoreError> {
    let name = segment::name(number);
    let file = files.open(&name);
    let file = file.map_err(|error| StoreError::io("open", &name, error))?;
    let mut bytes = Vec::new();
    segment::read(&*file, &name, &mut bytes)?;
    Ok(bytes)
}

/// The first whole group at `from` or behind it, and where it ends.
fn next_group(bytes: &[u8], seed: u32, from: usize) -> Option<(Group<'_>, usize)> {
    (from..bytes.len()).find_map(|at| {
        let first = frame::parse(&bytes[at..], seed)?;
        // A marker alone is a group without records.
        let first_lsn = if first.commit().is_some() {
            first.lsn + 1
        } else {
            first.lsn
        };
        let mut groups = Groups::new(bytes, seed, at, first_lsn);
        let group = groups.next()?;
        Some((group, groups.end))
    })
}
