//! Checks that the files of a log are complete and belong together: compares them with their
//! headers and with the checkpoint.

use crate::error::{Damage, StoreError};
use crate::files::{Files, read_full, write_all};
use crate::wal::frame;
use crate::wal::open::{BROKEN_HEADER, LogExpectation};
use crate::wal::scan::ScannedGroups;
use crate::wal::segment::{self, START, SegmentHeader, StoreId};

/// The metadata of a checkpoint.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Meta {
    pub(crate) store: StoreId,
    /// LSN of the last record that the checkpoint contains.
    pub(crate) applied_lsn: u64,
    /// Message and session numbers up to this one are in use or were used.
    pub(crate) next_number: u64,
    /// Live messages of segments up to this one are in the table `body`.
    pub(crate) moved: u64,
}

/// Returns the headers of all segments in order, and a sentence for each header that was rebuilt;
/// no header if there is no log. On success no segment is missing, truncated or from another
/// store.
///
/// # Errors
///
/// [`StoreError::Damaged`] names the first file that contradicts the others.
pub(super) fn headers(
    files: &dyn Files,
    known: &LogExpectation,
) -> Result<(Vec<SegmentHeader>, Vec<String>), StoreError> {
    let mut numbers = segment::numbers(files)?;
    drop_incomplete(files, known, &mut numbers)?;
    let store = store_of(files, &numbers)?.or(known.knows_store.then_some(known.store));
    let (mut headers, mut rebuilt) = (Vec::with_capacity(numbers.len()), Vec::new());
    for &number in &numbers {
        let found = read_header(files, number)?;
        let header = if let Some(header) = found {
            header
        } else {
            let is_followed = numbers.last() != Some(&number);
            rebuilt.push(format!(
                "the header of {} was damaged and was rewritten",
                segment::name(number)
            ));
            rebuild(files, known, store, (number, is_followed))?
        };
        check(known, headers.last(), &header, number)?;
        check_length(files, &header)?;
        headers.push(header);
    }
    check_ends(files, known, &headers)?;
    Ok((headers, rebuilt))
}

/// Checks that a segment belongs to the store and follows the segment before it.
fn check(
    known: &LogExpectation,
    before: Option<&SegmentHeader>,
    header: &SegmentHeader,
    number: u64,
) -> Result<(), StoreError> {
    let first_lsn = before.map_or(0, |before| before.first_lsn);
    let damage = |reason| {
        let damage = Damage::whole(&segment::name(number), reason);
        Err(damage.of(first_lsn, first_lsn).into())
    };
    if header.number != number {
        return damage("the file has another segment's name");
    }
    if before.is_some_and(|before| before.number + 1 != number) {
        return damage("the segment before it is missing");
    }
    let expected = match before {
        Some(before) => Some(before.store),
        None => known.knows_store.then_some(known.store),
    };
    if expected.is_some_and(|store| store != header.store) {
        return damage("it belongs to another store");
    }
    Ok(())
}

/// Checks that a segment has the size in its header.
fn check_length(files: &dyn Files, header: &SegmentHeader) -> Result<(), StoreError> {
    let name = segment::name(header.number);
    let bytes = files.open(&name).and_then(|file| file.bytes());
    let bytes = bytes.map_err(|error| StoreError::io("open", &name, error))?;
    if bytes < header.bytes {
        let (first_lsn, damage) = (end_of(files, header)?, Damage::whole(&name, CUT));
        return Err(damage.of(first_lsn, 0).into());
    }
    Ok(())
}

/// Checks that there is no gap between checkpoint and log, and that the last segment exists.
fn check_ends(
    files: &dyn Files,
    known: &LogExpectation,
    headers: &[SegmentHeader],
) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (headers.first(), headers.last()) else {
        if known.has_checkpoint || known.applied_lsn > 0 {
            let damage = Damage::whole(&segment::name(1), "the log is missing");
            return Err(damage.of(1, known.applied_lsn).into());
        }
        return Ok(());
    };
    if first.first_lsn > known.applied_lsn + 1 {
        let missing = segment::name(first.number.saturating_sub(1));
        let damage = Damage::whole(&missing, MISSING);
        return Err(damage.of(known.applied_lsn + 1, first.first_lsn - 1).into());
    }
    if last.is_followed {
        let first_lsn = end_of(files, last)?;
        let damage = Damage::whole(&segment::name(last.number + 1), MISSING);
        return Err(damage.of(first_lsn, known.applied_lsn).into());
    }
    Ok(())
}

const MISSING: &str = "it is missing";
pub(super) const CUT: &str = "it is shorter than when it was created";
pub(super) const EMPTIED: &str = "it is empty, but records were written to it";

/// The LSN after the last readable record of a segment.
fn end_of(files: &dyn Files, header: &SegmentHeader) -> Result<u64, StoreError> {
    let bytes = segment::content(files, header.number)?;
    let mut groups = ScannedGroups::new(&bytes, header.seed(), segment::HEADER, header.first_lsn);
    groups.by_ref().for_each(drop);
    Ok(groups.next_lsn)
}

/// Ignores a last segment whose creation was interrupted by a crash: it has no records.
fn drop_incomplete(
    files: &dyn Files,
    known: &LogExpectation,
    numbers: &mut Vec<u64>,
) -> Result<(), StoreError> {
    let Some((&last, older)) = numbers.split_last() else {
        return Ok(());
    };
    let name = segment::name(last);
    let bytes = segment::content(files, last)?;
    let header = SegmentHeader::parse(&name, &bytes)?;
    if header.is_some_and(|header| header.bytes <= bytes.len() as u64)
        || holds_frames(files, known, numbers, &bytes)?
    {
        return Ok(());
    }
    let before = older.last().map(|&before| read_header(files, before));
    let before = before.transpose()?.flatten();
    if was_born(known, older, before.as_ref()) {
        // One that has its header is told apart by its size.
        return header.map(|_| ()).ok_or_else(|| {
            let end = before.map_or(Ok(known.applied_lsn + 1), |before| end_of(files, &before));
            end.map_or_else(
                |error| error,
                |end| Damage::whole(&name, EMPTIED).of(end, 0).into(),
            )
        });
    }
    numbers.pop();
    if known.is_read_only {
        return Ok(());
    }
    files
        .remove(&name)
        .map_err(|error| StoreError::io("remove", &name, error))?;
    files
        .sync_names()
        .map_err(|error| StoreError::io("sync the folder", ".", error))
}

/// Whether the segment after `older` was certainly created completely, with header and size.
fn was_born(known: &LogExpectation, older: &[u64], before: Option<&SegmentHeader>) -> bool {
    if older.is_empty() {
        known.has_checkpoint || known.applied_lsn > 0
    } else {
        before.is_some_and(|before| before.is_followed)
    }
}

/// Whether a segment without a header contains frames: if so, the header is damaged.
fn holds_frames(
    files: &dyn Files,
    known: &LogExpectation,
    numbers: &[u64],
    bytes: &[u8],
) -> Result<bool, StoreError> {
    let store = store_of(files, numbers)?.or(known.knows_store.then_some(known.store));
    let number = numbers.last().copied().unwrap_or_default();
    let Some(store) = store else {
        // The store is unknown, so only an empty file is certainly without records.
        let start = segment::HEADER;
        return Ok(bytes.iter().skip(start).any(|&byte| byte != 0));
    };
    let seed = segment::seed(&store, number);
    let mut places = segment::HEADER..bytes.len();
    Ok(places.any(|at| bytes[at] != 0 && frame::parse(&bytes[at..], seed).is_some()))
}

/// Rebuilds the header of a segment from its name, the store's identifier and its first frame,
/// whose checksum covers all three.
fn rebuild(
    files: &dyn Files,
    known: &LogExpectation,
    store: Option<StoreId>,
    (number, is_followed): (u64, bool),
) -> Result<SegmentHeader, StoreError> {
    let name = segment::name(number);
    let bytes = segment::content(files, number)?;
    let first = store.and_then(|store| {
        let behind = bytes.get(segment::HEADER..)?;
        let frame = frame::parse(behind, segment::seed(&store, number))?;
        // A marker has the LSN of the record before it.
        let first_lsn = frame.lsn + u64::from(frame.commit().is_some());
        (1..=segment::REACHED_MAX)
            .contains(&first_lsn)
            .then_some((store, first_lsn))
    });
    let Some((store, first_lsn)) = first else {
        let damage = Damage::whole(&name, BROKEN_HEADER);
        return Err(damage.of(known.applied_lsn + 1, 0).into());
    };
    let header = SegmentHeader {
        store,
        number,
        first_lsn,
        bytes: (bytes.len() as u64).max(START),
        is_followed,
    };
    if !known.is_read_only {
        let file = files.open(&name);
        let put = file
            .and_then(|file| write_all(&*file, &header.to_bytes(), 0).and_then(|()| file.sync()));
        put.map_err(|error| StoreError::io("change the header of", &name, error))?;
    }
    Ok(header)
}

/// The first LSN of the log; `None` without a log. If the first segment has number 1 and a
/// damaged header, it began with LSN 1.
pub(crate) fn first_lsn(files: &dyn Files) -> Result<Option<u64>, StoreError> {
    let Some(&first) = segment::numbers(files)?.first() else {
        return Ok(None);
    };
    let header = read_header(files, first)?.map(|header| header.first_lsn);
    Ok(header.or((first == 1).then_some(1)))
}

/// The identifier of the log's store, from the first readable header.
pub(crate) fn store_of(files: &dyn Files, numbers: &[u64]) -> Result<Option<StoreId>, StoreError> {
    for number in numbers {
        if let Some(header) = read_header(files, *number)? {
            return Ok(Some(header.store));
        }
    }
    Ok(None)
}

/// The identifier of the log's store, if there is a log.
pub(crate) fn peek(files: &dyn Files) -> Result<Option<StoreId>, StoreError> {
    store_of(files, &segment::numbers(files)?)
}

pub(crate) fn read_header(
    files: &dyn Files,
    number: u64,
) -> Result<Option<SegmentHeader>, StoreError> {
    let name = segment::name(number);
    let file = files
        .open(&name)
        .map_err(|error| StoreError::io("open", &name, error))?;
    let mut bytes = [0; segment::HEADER];
    let read = read_full(&*file, &mut bytes, 0);
    let read = read.map_err(|error| StoreError::io("read", &name, error))?;
    SegmentHeader::parse(&name, &bytes[..read])
}
