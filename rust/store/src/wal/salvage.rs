//! Records of a damaged segment that can still be read.

use crate::error::StoreError;
use crate::files::Files;
use crate::wal::frame::{self, LogFrame};
use crate::wal::identity::read_header;
use crate::wal::scan::{ScannedGroup, ScannedGroups};
use crate::wal::segment::{HEADER, SegmentHeader, StoreId};

/// The header of a segment, or what is known without it.
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

/// A frame that can be read, wherever it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved<'s> {
    pub(crate) offset: usize,
    pub(crate) frame: LogFrame<'s>,
    pub(crate) ends_group: bool,
}

/// Every record of a segment whose checksum is right, in the order of LSNs, without those of a
/// group that was never promised: torn ones at the end of the log.
pub(crate) fn frames<'s>(bytes: &'s [u8], header: &SegmentHeader) -> Vec<Saved<'s>> {
    let (seed, limit) = (header.seed(), promised(bytes, header));
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
            // A marker, or something broken.
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

/// The last LSN of a segment that was promised, as far as anything in it tells.
pub(crate) fn promised(bytes: &[u8], header: &SegmentHeader) -> u64 {
    if header.is_followed {
        return u64::MAX;
    }
    let (mut at, mut promised) = (HEADER, 0);
    while let Some((group, end)) = next_group(bytes, header.seed(), at) {
        promised = promised.max(group.last_lsn).max(group.durable_lsn);
        at = end;
    }
    promised
}

/// The first whole group at `from` or behind it, and where it ends.
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
