//! Compaction: moves live messages of old segments into the checkpoint.
//!
//! A row of the table `body` is: CRC32C of the message number and of the bytes that follow; LSN of its record: `u64`;
//! flags of its record: byte; its body: rest. The checksum is verified at each read and by scrubbing.

use crc32c::{crc32c, crc32c_append};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use crate::error::{Damage, StoreError};
use crate::files::Files;
use crate::index::Index;
use crate::index::messages::{self, MessageRow, page_of};
use crate::index::tables;
use crate::index::tables::{
    BODY, FILE, MESSAGE, SEGMENT, Tables, begin_change, checkpoint, put_moved, wrong,
};
use crate::record::Record;
use crate::wal::frame;
use crate::wal::scan::ScannedGroups;
use crate::wal::segment::{self, HEADER, SegmentHeader};

impl Index {
    /// Records that live messages of segments up to this one are in the checkpoint.
    pub(crate) fn moved(&mut self, segment: u64) {
        self.moved = self.moved.max(segment);
        let rest = self.live.split_off(&(segment + 1));
        let emptied = std::mem::replace(&mut self.live, rest);
        self.moved_bytes += emptied.values().sum::<u64>();
        self.reading = None;
    }

    /// Counts the bytes of a message that has become live, or is no longer.
    pub(crate) fn count_live(&mut self, row: &MessageRow, is_live: bool) {
        let place = row.place();
        let live = if place.segment <= self.moved {
            &mut self.moved_bytes
        } else {
            self.live.entry(place.segment).or_default()
        };
        *live = if is_live {
            live.saturating_add(place.bytes)
        } else {
            live.saturating_sub(place.bytes)
        };
    }

    /// The last segment that the checkpoint refers to.
    pub(crate) fn last_segment(&self) -> Option<u64> {
        let live = self.live().keys().next_back().copied();
        live.max(Some(self.moved_through()))
    }

    pub(crate) fn moved_through(&self) -> u64 {
        self.moved
    }
}

/// Moves the live messages of a full segment into the checkpoint, which must have all records of the segment. No
/// older segment may have live messages.
pub(crate) fn move_segment(
    database: &Database,
    files: &dyn Files,
    number: u64,
) -> Result<(), StoreError> {
    let bytes = segment::content(files, number)?;
    let header = SegmentHeader::parse(&segment::name(number), &bytes)?;
    let seed = header.map_or(0, |header| header.seed());
    let first_lsn = header.map_or(0, |header| header.first_lsn);
    let groups = ScannedGroups::new(&bytes, seed, HEADER, first_lsn);
    let frames = groups.flat_map(|group| group.records());
    move_frames(
        database,
        number,
        frames.map(|(offset, frame)| (offset as u64, frame)),
    )
}

/// Moves the live messages among `frames` into the checkpoint; afterwards the segment has no live messages.
pub(crate) fn move_frames<'f>(
    database: &Database,
    number: u64,
    frames: impl Iterator<Item = (u64, frame::LogFrame<'f>)>,
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
                encode(
                    message.message,
                    frame.lsn,
                    frame.flags,
                    frame.body,
                    &mut bytes,
                );
                let moved = bodies.insert(message.message, &bytes[..]);
                moved.map_err(checkpoint)?;
            }
        }
        segments.remove(number).map_err(checkpoint)?;
    }
    put_moved(&transaction, number)?;
    transaction.commit().map_err(checkpoint)
}

/// Rows that are read in one transaction: a long transaction makes the checkpoint keep old pages.
const TOGETHER: usize = 1_024;
/// Bytes of checksum and LSN.
const HEAD: usize = 12;

/// Encodes a row of the table `body`.
pub(crate) fn encode(message: u64, lsn: u64, flags: u8, body: &[u8], row: &mut Vec<u8>) {
    row.clear();
    row.extend_from_slice(&[0; 4]);
    row.extend_from_slice(&lsn.to_le_bytes());
    row.push(flags);
    row.extend_from_slice(body);
    let crc = checksum(message, &row[4..]);
    row[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Verifies a row and returns its flags and body.
pub(crate) fn decode(message: u64, row: &[u8]) -> Result<(u8, &[u8]), Damage> {
    let parts = row.split_first_chunk().zip(row.get(HEAD..));
    let whole = parts.and_then(|((crc, rest), content)| {
        let is_whole = checksum(message, rest) == u32::from_le_bytes(*crc);
        content.split_first().filter(|_| is_whole)
    });
    let (flags, body) = whole.ok_or_else(|| {
        let lsn = row.get(4..HEAD).and_then(|lsn| lsn.try_into().ok());
        let lsn = lsn.map_or(0, u64::from_le_bytes);
        Damage {
            file: FILE.into(),
            offset: message,
            is_whole: false,
            first_lsn: lsn,
            last_lsn: lsn,
            reason: "the checksum of a message in it is wrong",
            concerns: Vec::new(),
        }
    })?;
    Ok((*flags, body))
}

fn checksum(message: u64, rest: &[u8]) -> u32 {
    crc32c_append(crc32c(&message.to_le_bytes()), rest)
}

/// Verifies the checksums of all messages in the checkpoint, until `goes_on` returns false; returns the number of
/// verified messages.
///
/// # Errors
///
/// The first damage, and errors of the checkpoint.
pub(crate) fn check(
    database: &Database,
    mut goes_on: impl FnMut() -> bool,
) -> Result<u64, StoreError> {
    let (mut from, mut checked) = (0, 0);
    while goes_on() {
        let transaction = database.begin_read().map_err(checkpoint)?;
        let Some(table) = tables::opened(&transaction, BODY)? else {
            break;
        };
        let mut last = None;
        for row in table.range(from..).map_err(checkpoint)?.take(TOGETHER) {
            let (message, bytes) = row.map_err(checkpoint)?;
            decode(message.value(), bytes.value())?;
            last = Some(message.value());
            checked += 1;
        }
        match last.and_then(|last| last.checked_add(1)) {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(checked)
}

/// Removes the messages whose checksums are wrong. Nothing may refer to them.
pub(crate) fn drop_unreadable(database: &Database) -> Result<(), StoreError> {
    let transaction = begin_change(database)?;
    {
        let mut table = transaction.open_table(BODY).map_err(checkpoint)?;
        let is_whole = |message: u64, row: &[u8]| decode(message, row).is_ok();
        table.retain(is_whole).map_err(checkpoint)?;
    }
    transaction.commit().map_err(checkpoint)
}

/// Bytes of messages of segments up to `moved`, as they were in the log. The sum is not stored: opening reads every
/// page anyway.
pub(crate) fn count(tables: &Tables, moved: u64) -> Result<u64, StoreError> {
    let mut bytes = 0;
    let Some(table) = tables.table(MESSAGE)?.filter(|_| moved > 0) else {
        return Ok(bytes);
    };
    for row in table.iter().map_err(checkpoint)? {
        let (page, rows) = row.map_err(checkpoint)?;
        let rows = messages::decode_page(page.value(), rows.value()).map_err(wrong)?;
        let places = rows.iter().map(|(_, row)| row.place());
        let places = places.filter(|place| place.segment <= moved);
        bytes += places.map(|place| place.bytes).sum::<u64>();
    }
    Ok(bytes)
}

/// Adds checksums to the rows of format 2.
pub(crate) fn upgrade(transaction: &redb::WriteTransaction) -> Result<(), StoreError> {
    let mut table = transaction.open_table(BODY).map_err(checkpoint)?;
    let (mut from, mut row) = (0, Vec::new());
    let mut left = table.len().map_err(checkpoint)?;
    while left > 0 {
        let mut old = Vec::new();
        for found in table.range(from..).map_err(checkpoint)?.take(TOGETHER) {
            let (message, bytes) = found.map_err(checkpoint)?;
            old.push((message.value(), bytes.value().to_vec()));
        }
        for (message, bytes) in &old {
            let (flags, body) = bytes
                .split_first()
                .ok_or_else(|| checkpoint("an empty row"))?;
            // Format 2 did not store the LSN.
            encode(*message, 0, *flags, body, &mut row);
            table.insert(*message, &row[..]).map_err(checkpoint)?;
            from = message.saturating_add(1);
        }
        left = left.saturating_sub(old.len() as u64);
        if old.is_empty() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_of_a_row_may_differ_and_it_belongs_to_one_message() {
        let mut row = Vec::new();
        encode(7, 99, 5, b"body", &mut row);

        assert_eq!(decode(7, &row), Ok((5, &b"body"[..])));
        assert_eq!(decode(7, &row).map(|_| ()), Ok(()));
        assert_eq!(decode(8, &row).unwrap_err().offset, 8);
        for bit in 0..row.len() * 8 {
            let mut rotten = row.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(7, &rotten).is_err(), "bit {bit}");
        }
        for bytes in 0..row.len() {
            assert!(decode(7, &row[..bytes]).is_err(), "{bytes} bytes");
        }
        *row.last_mut().unwrap() ^= 1;
        let damage = decode(7, &row).unwrap_err();
        assert_eq!((damage.offset, damage.first_lsn), (7, 99));
    }
}
