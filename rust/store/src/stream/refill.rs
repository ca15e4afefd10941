//! Rebuilds the tail of a stream from the log.

use std::sync::Arc;

use crate::error::StoreError;
use crate::files::Files;
use crate::index::Index;
use crate::record::{MessageRecord, Record};
use crate::stream::streams::Streams;
use crate::wal::frame::LogFrame;
use crate::wal::salvage;
use crate::wal::scan::ScannedGroups;
use crate::wal::segment::{self, HEADER, SegmentHeader, StoreId};

/// Iterates over the records of a segment.
pub(super) type FindFrames =
    for<'s> fn(&'s [u8], &SegmentHeader) -> Box<dyn Iterator<Item = LogFrame<'s>> + 's>;

/// Records of an intact segment.
pub(super) fn whole<'s>(
    segment: &'s [u8],
    header: &SegmentHeader,
) -> Box<dyn Iterator<Item = LogFrame<'s>> + 's> {
    let groups = ScannedGroups::new(segment, header.seed(), HEADER, header.first_lsn);
    Box::new(groups.flat_map(|group| group.records().map(|(_, frame)| frame)))
}

/// Readable records of a damaged segment.
pub(super) fn salvaged<'s>(
    segment: &'s [u8],
    header: &SegmentHeader,
) -> Box<dyn Iterator<Item = LogFrame<'s>> + 's> {
    let saved = salvage::frames(segment, header);
    Box::new(saved.into_iter().map(|saved| saved.frame))
}

/// Loads unsealed rows into memory.
pub(super) fn refill(
    files: &Arc<dyn Files>,
    index: &mut Index,
    streams: &Streams,
    find_frames: FindFrames,
) -> Result<(), StoreError> {
    let ids: Vec<u32> = streams
        .list
        .iter()
        .map(|stream| stream.identity.id)
        .collect();
    // Rows of a stream without a folder will never be sealed.
    index.streams.forget_rows(|stream| ids.contains(&stream));
    let Some(first) = index.streams.pinned() else {
        return Ok(());
    };
    let mut touched = Vec::new();
    let numbers = segment::numbers(&**files)?;
    for &number in &numbers {
        if number >= first {
            let add = &mut |message: &MessageRecord<'_>| streams.add(message, &mut touched);
            let number = (number, numbers.last() != Some(&number));
            read_segment(&**files, number, index.store(), find_frames, add)?;
        }
    }
    // All records that opening reads are safe: they were safe before, or opening wrote them again.
    streams.mark(&mut touched, 0);
    Ok(())
}

/// Calls `add` with every message of a segment that is a row.
fn read_segment(
    files: &dyn Files,
    number: (u64, bool),
    store: StoreId,
    find_frames: FindFrames,
    add: &mut dyn FnMut(&MessageRecord<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let bytes = segment::content(files, number.0)?;
    let header = salvage::header_of(files, store, number)?;
    for frame in find_frames(&bytes, &header) {
        if crate::record::is_streamed(frame.kind, frame.flags)
            && let Ok(Record::Message(message)) =
                Record::decode(frame.kind, frame.flags, frame.body)
        {
            add(&message)?;
        }
    }
    Ok(())
}
