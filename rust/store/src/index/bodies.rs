//! Emptying old segments: the content of messages that are wanted moves into the checkpoint.

use redb::{Database, ReadableTable};

use crate::error::StoreError;
use crate::files::Files;
use crate::index::Index;
use crate::index::messages::{self, page_of};
use crate::index::tables::{BODY, MESSAGE, SEGMENT, begin_change, checkpoint, put_moved, wrong};
use crate::journal::frame;
use crate::journal::scan::Groups;
use crate::journal::segment::{self, HEADER, Header};
use crate::record::Record;

impl Index {
    /// What is wanted of segments up to this one is in the checkpoint.
    pub(crate) fn moved(&mut self, segment: u64) {
        self.moved = self.moved.max(segment);
        self.live.retain(|number, _| *number > segment);
        self.reading = None;
    }

    pub(crate) fn moved_through(&self) -> u64 {
        self.moved
    }
}

/// Moves what the checkpoint wants of a full segment into it, once it has all of the segment's
/// records; no older segment may have anything that is wanted.
pub(crate) fn move_segment(
    database: &Database,
    files: &dyn Files,
    number: u64,
) -> Result<(), StoreError> {
    let name = segment::name(number);
    let file = files.open(&name);
    let file = file.map_err(|error| StoreError::io("open", &name, error))?;
    let mut bytes = Vec::new();
    segment::read(&*file, &name, &mut bytes)?;
    let header = Header::parse(&name, &bytes)?;
    let seed = header.map_or(0, |header| header.seed());
    let first_lsn = header.map_or(0, |header| header.first_lsn);
    let groups = Groups::new(&bytes, seed, HEADER, first_lsn);
    let frames = groups.flat_map(|group| group.records());
    move_frames(
        database,
        number,
        frames.map(|(offset, frame)| (offset as u64, frame)),
    )
}

/// Moves those of `frames`, at their offsets, that are wanted messages into the checkpoint;
/// nothing in the segment is wanted then.
pub(crate) fn move_frames<'f>(
    database: &Database,
    number: u64,
    frames: impl Iterator<Item = (u64, frame::Frame<'f>)>,
) -> Result<(), StoreError> {
    let transaction = begin_change(database)?;
    {
        let pages = transaction.open_table(MESSAGE).map_err(checkpoint)?;
        let mut bodies = transaction.open_table(BODY).map_err(checkpoint)?;
        let mut segments = transaction.open_table(SEGMENT).map_err(checkpoint)?;
        let mut bytes = Vec::new();
        for (offset, frame) in frames {
            let record = Record::decode(frame.kind, frame.flags, frame.body);
            let Ok(Record::Message(message)) = record else {
                continue;
            };
            let page = pages.get(page_of(message.message)).map_err(checkpoint)?;
            let Some(page) = page else { continue };
            let row = messages::find(page.value(), message.message).map_err(wrong)?;
            let place = row.map(|row| row.place());
            if place.is_some_and(|place| place.segment == number && place.offset == offset) {
                bytes.clear();
                bytes.push(frame.flags);
                bytes.extend_from_slice(frame.body);
                let moved = bodies.insert(message.message, &bytes[..]);
                moved.map_err(checkpoint)?;
            }
        }
        segments.remove(number).map_err(checkpoint)?;
    }
    put_moved(&transaction, number)?;
    transaction.commit().map_err(checkpoint)
}
