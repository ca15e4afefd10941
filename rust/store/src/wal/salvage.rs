//! Salvage: finds the readable records of a damaged segment.

use crate::error::StoreError;
use crate::files::Files;
use crate::wal::frame::{self, LogFrame};
use crate::wal::identity::read_header;
use crate::wal::scan::{ScannedGroup, ScannedGroups};
use crate::wal::segment::{HEADER, SegmentHeader, StoreId};

/// The header of a segment; a default one if it cannot be read.
pub(crate) fn header_of(
    files: &dyn Files,
    store: StoreId,
    (number, is_followed): (u64, bool),
) -> Result<SegmentHeader, StoreError> {
    let header = read_header(files, number)?.unwrap_or(SegmentHeader {
        store,
        number,
        ..SegmentHeader::default()
    });
    Ok(SegmentHeader {
        is_followed,
        ..header
    })
}

/// A readable frame, anywhere in the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved<'s> {
    pub(crate) offset: usize,
    pub(crate) frame: LogFrame<'s>,
    pub(crate) ends_group: bool,
}

/// All records of a segment whose checksums are correct, in LSN order, without torn groups at the
/// end of the log, which were never acknowledged.
pub(crate) fn frames<'s>(bytes: &'s [u8], header: &SegmentHeader) -> Vec<Saved<'s>> {
    let (seed, limit) = (header.seed(), last_durable_lsn(bytes, header));
    let mut saved: Vec<Saved<'s>> = Vec::new();
    let mut at = HEADER;
    while at < bytes.len() {
        let frame = frame::parse(&bytes[at..], seed);
        at += frame.map_or(1, |frame| frame.bytes());
        let last = saved.last_mut();
        let last_lsn = last.as_ref().map_or(0, |last| last.frame.lsn);
        match frame.filter(|frame| frame.commit().is_none()) {
            Some(frame) if frame.lsn <= limit && frame.lsn > last_lsn => saved.push(Saved {
                offset: at - frame.bytes(),
                frame,
                ends_group: false,
            }),
            Some(_) => {}
            // A marker, or a damaged frame.
            None => {
                if let Some(last) = last {
                    last.ends_group = true;
                }
            }
        }
    }
    if let Some(last) = saved.last_mut() {
        last.ends_group = true;
    }
    saved
}

/// The last durable LSN of a segment, as far as its readable markers tell.
pub(crate) fn last_durable_lsn(bytes: &[u8], header: &SegmentHeader) -> u64 {
    if header.is_followed {
        return u64::MAX;
    }
    let (mut at, mut last_durable_lsn) = (HEADER, 0);
    while let Some((group, end)) = next_group(bytes, header.seed(), at) {
        last_durable_lsn = last_durable_lsn.max(group.last_lsn).max(group.durable_lsn);
        at = end;
    }
    last_durable_lsn
}

/// The first complete group at or after `from`, and its end.
fn next_group(bytes: &[u8], seed: u32, from: usize) -> Option<(ScannedGroup<'_>, usize)> {
    (from..bytes.len()).find_map(|at| {
        let first = frame::parse(&bytes[at..], seed)?;
        // A marker alone is a group without records.
        let first_lsn = if first.commit().is_some() {
            first.lsn + 1
        } else {
            first.lsn
        };
        let mut groups = ScannedGroups::new(bytes, seed, at, first_lsn);
        let group = groups.next()?;
        Some((group, groups.end))
    })
}
