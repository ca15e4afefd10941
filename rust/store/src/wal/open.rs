//! Opens a log: reads all complete groups, cuts a torn tail, and refuses a damaged log.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Damage, StoreError};
use crate::files::{File, Files, write_all};
use crate::record::Record;
use crate::wal::frame::LogFrame;
use crate::wal::identity;
use crate::wal::identity::Meta;
use crate::wal::numbering::Numbering;
use crate::wal::scan::{ScannedGroup, ScannedGroups};
use crate::wal::segment::{self, SegmentHeader, StoreId};
use crate::wal::writer::{FullSegment, OpenSegment, SegmentWriter};

pub(super) const BROKEN_HEADER: &str = "the header is damaged";

/// Position of a record in the log.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LogPosition {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the frame.
    pub offset: u64,
    /// Bytes of the frame.
    pub bytes: u64,
}

/// A record that was read back, with its LSN and position.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// The LSN.
    pub lsn: u64,
    /// Position of the frame.
    pub place: LogPosition,
    /// The record.
    pub record: Record<'a>,
    /// Whether this is the last record of its group.
    pub ends_group: bool,
}

/// Is called with each record of a log, in order.
pub type RecordVisitor<'v> = dyn FnMut(Logged<'_>) -> Result<(), StoreError> + 'v;

/// The result of opening a log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recovery {
    /// Records that were visited.
    pub records: u64,
    /// Bytes of segments that were read.
    pub scanned_bytes: u64,
    /// LSN of the last record; 0 in an empty log.
    pub last_lsn: u64,
    /// The torn tail that was cut off, if there was one.
    pub torn: Option<TornTail>,
    /// Records at the end of the log that were written again, since they may not have been
    /// synced.
    pub renewed: u64,
    /// A sentence for each damaged part that was rebuilt without loss.
    pub rebuilt: Vec<String>,
}

/// A torn tail that was cut off. None of its records had been acknowledged as durable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TornTail {
    /// The segment.
    pub file: String,
    /// Offset of the cut.
    pub offset: u64,
    /// Bytes that were cut off.
    pub bytes: u64,
}

/// The state that a log must have, known before it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogExpectation {
    /// Identifier for a new log; an existing log must have it, unless it is unknown.
    pub(crate) store: StoreId,
    /// Whether `store` comes from a checkpoint or a log.
    pub(crate) knows_store: bool,
    /// Whether a checkpoint names the store; then the log has at least one segment.
    pub(crate) has_checkpoint: bool,
    /// Last LSN of the checkpoint: records up to it are not visited.
    pub(crate) applied_lsn: u64,
    /// Size of new segments.
    pub(crate) segment_bytes: u64,
    /// Changes nothing on the disk, and visits records of the checkpoint, too. The writer must
    /// not be used.
    pub(crate) is_read_only: bool,
}

impl LogExpectation {
    /// No checkpoint and no log are known.
    pub(crate) fn begin(segment_bytes: u64) -> Self {
        Self {
            store: segment::new_store(),
            knows_store: false,
            has_checkpoint: false,
            applied_lsn: 0,
            segment_bytes,
            is_read_only: false,
        }
    }

    /// Sets the state of the checkpoint and of the headers of the log.
    pub(crate) fn meet(&mut self, checkpoint: Option<Meta>, log: Option<StoreId>) {
        if let Some(store) = checkpoint.map(|meta| meta.store).or(log) {
            (self.store, self.knows_store) = (store, true);
        }
        self.has_checkpoint = checkpoint.is_some();
        self.applied_lsn = checkpoint.map_or(0, |meta| meta.applied_lsn);
    }
}

/// Opens the log in `files`, or creates one.
pub(crate) fn open(
    files: &Arc<dyn Files>,
    known: &LogExpectation,
    visit: &mut RecordVisitor<'_>,
) -> Result<(SegmentWriter, Recovery), StoreError> {
    let (headers, rebuilt) = identity::headers(&**files, known)?;
    if headers.is_empty() {
        if known.is_read_only {
            return Err(StoreError::Missing);
        }
        let writer = SegmentWriter::begin(Arc::clone(files), known.store, known.segment_bytes)?;
        return Ok((writer, Recovery::default()));
    }
    let mut reading = Reading::new(&**files, known, visit);
    let (current, durable_lsn) = reading.segments(&headers)?;
    let (older, next_lsn, mut recovery) = (reading.older, reading.next_lsn, reading.recovery);
    (recovery.rebuilt, recovery.last_lsn) = (rebuilt, next_lsn - 1);
    let mut writer = SegmentWriter {
        files: Arc::clone(files),
        store: current.header.store,
        segment_bytes: known.segment_bytes,
        older,
        current,
        next_lsn,
        numbering: Numbering::default(),
        durable_lsn,
        is_dirty: false,
    };
    if recovery.renewed > 0 && !known.is_read_only {
        writer.durable_lsn = next_lsn - 1;
        writer.testify()?;
    }
    Ok((writer, recovery))
}

/// Reads a full segment and compares every checksum.
pub(crate) fn check_segment(
    files: &dyn Files,
    number: u64,
    last_lsn: u64,
) -> Result<(), StoreError> {
    let name = segment::name(number);
    let failed = |error| StoreError::io("open", &name, error);
    let file = files.open(&name).map_err(failed)?;
    let mut bytes = Vec::new();
    segment::read(&*file, &name, &mut bytes)?;
    let header = SegmentHeader::parse(&name, &bytes)?.ok_or_else(|| Damage {
        last_lsn,
        ..Damage::whole(&name, BROKEN_HEADER)
    })?;
    let mut groups = ScannedGroups::new(&bytes, header.seed(), segment::HEADER, header.first_lsn);
    groups.by_ref().for_each(drop);
    if groups.next_lsn != last_lsn + 1 || !groups.is_clean() {
        return Err(damage(&name, &groups, last_lsn).into());
    }
    Ok(())
}

/// Offset of the first group that may not be synced. Each group is given by its offset, last LSN
/// and number of records.
fn first_unsure(groups: &[(usize, u64, u32)], durable_lsn: u64) -> Option<usize> {
    // No later LSN covers a marker without records, and the following groups depend on it.
    let is_sure = |group: &(usize, u64, u32)| group.2 > 0 && group.1 <= durable_lsn;
    let first = groups.iter().rposition(is_sure).map_or(0, |last| last + 1);
    groups.get(first).map(|group| group.0)
}

/// State of opening a log.
struct Reading<'a, 'v> {
    files: &'a dyn Files,
    known: &'a LogExpectation,
    visit: &'a mut RecordVisitor<'v>,
    buffer: Vec<u8>,
    recovery: Recovery,
    older: VecDeque<FullSegment>,
    next_lsn: u64,
}

impl<'a, 'v> Reading<'a, 'v> {
    fn new(
        files: &'a dyn Files,
        known: &'a LogExpectation,
        visit: &'a mut RecordVisitor<'v>,
    ) -> Self {
        Self {
            files,
            known,
            visit,
            buffer: Vec::new(),
            recovery: Recovery::default(),
            older: VecDeque::new(),
            next_lsn: 0,
        }
    }

    /// Reads all segments; returns the last one and the durable LSN.
    fn segments(&mut self, headers: &[SegmentHeader]) -> Result<(OpenSegment, u64), StoreError> {
        // INVARIANT: the caller has a segment.
        let (last, older) = headers.split_last().expect("a log has a segment");
        for (place, header) in older.iter().enumerate() {
            let after = headers[place + 1];
            let name = segment::name(header.number);
            let failed = |error| StoreError::io("open", &name, error);
            let file = self.files.open(&name).map_err(failed)?;
            let is_applied = after.first_lsn <= self.known.applied_lsn + 1;
            if is_applied && !self.known.is_read_only {
                self.next_lsn = after.first_lsn;
            } else {
                self.older_segment(&*file, header, after.first_lsn)?;
            }
            self.older.push_back(FullSegment {
                number: header.number,
                last_lsn: after.first_lsn - 1,
                bytes: file.bytes().map_err(failed)?,
            });
        }
        self.last_segment(last)
    }

    /// Reads a segment that has a successor: it was synced completely before the successor was
    /// created.
    fn older_segment(
        &mut self,
        file: &dyn File,
        header: &SegmentHeader,
        end_lsn: u64,
    ) -> Result<(), StoreError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let name = segment::name(header.number);
        segment::read(file, &name, &mut buffer)?;
        self.recovery.scanned_bytes += buffer.len() as u64;
        let mut groups =
            ScannedGroups::new(&buffer, header.seed(), segment::HEADER, header.first_lsn);
        for group in groups.by_ref() {
            self.visit_group(header, &group)?;
        }
        self.next_lsn = groups.next_lsn;
        if groups.next_lsn != end_lsn || !groups.is_clean() {
            return Err(damage(&name, &groups, end_lsn - 1).into());
        }
        self.buffer = buffer;
        Ok(())
    }

    fn last_segment(&mut self, header: &SegmentHeader) -> Result<(OpenSegment, u64), StoreError> {
        let name = segment::name(header.number);
        let file = self.files.open(&name);
        let file = file.map_err(|error| StoreError::io("open", &name, error))?;
        let mut buffer = std::mem::take(&mut self.buffer);
        segment::read(&*file, &name, &mut buffer)?;
        self.recovery.scanned_bytes += buffer.len() as u64;
        let mut groups =
            ScannedGroups::new(&buffer, header.seed(), segment::HEADER, header.first_lsn);
        // Older segments were synced before this one was created.
        let mut durable_lsn = self.known.applied_lsn.max(header.first_lsn - 1);
        let mut ends = Vec::new();
        for group in groups.by_ref() {
            durable_lsn = durable_lsn.max(group.durable_lsn);
            ends.push((group.offset, group.last_lsn, group.records));
            self.visit_group(header, &group)?;
        }
        self.next_lsn = groups.next_lsn;
        let evidence = groups.evidence();
        let proven = evidence.durable_lsn.max(self.known.applied_lsn);
        if proven >= groups.next_lsn {
            return Err(damage(&name, &groups, proven.max(evidence.last_lsn)).into());
        }
        let (end, bytes) = (groups.end, buffer.len() as u64);
        let unsure = first_unsure(&ends, durable_lsn).unwrap_or(end);
        self.recovery.renewed = groups.next_lsn - 1 - durable_lsn;
        let header = SegmentHeader { bytes, ..*header };
        self.settle(&*file, &header, &groups, &buffer[unsure..end])?;
        let end = end as u64;
        self.buffer = buffer;
        Ok((
            OpenSegment {
                header,
                file,
                bytes,
                end,
            },
            durable_lsn,
        ))
    }

    /// Makes the tail durable. Groups that may be in the page cache only are written again and
    /// synced, since a second sync after a failed one would not write them. The torn tail is
    /// overwritten with zeros, so that its frames cannot be read later behind a new group; so is
    /// the rest of the segment, since the sync of an earlier overwrite may have failed.
    fn settle(
        &mut self,
        file: &dyn File,
        header: &SegmentHeader,
        groups: &ScannedGroups<'_>,
        unsure: &[u8],
    ) -> Result<(), StoreError> {
        let name = segment::name(header.number);
        let (end, dirt) = (groups.end as u64, groups.dirt() as u64);
        let bytes = groups.bytes() as u64;
        if dirt > 0 {
            let file = name.clone();
            self.recovery.torn = Some(TornTail {
                file,
                offset: end,
                bytes: dirt,
            });
        }
        if self.known.is_read_only {
            return Ok(());
        }
        write_all(file, &header.to_bytes(), 0)
            .and_then(|()| write_all(file, unsure, end - unsure.len() as u64))
            .and_then(|()| file.zero(end, bytes - end))
            .and_then(|()| file.sync())
            .and_then(|()| self.files.sync_names())
            .map_err(|error| StoreError::io("rewrite the tail of", &name, error))
    }

    fn visit_group(
        &mut self,
        header: &SegmentHeader,
        group: &ScannedGroup<'_>,
    ) -> Result<(), StoreError> {
        for (offset, frame) in group.records() {
            if frame.lsn > self.known.applied_lsn || self.known.is_read_only {
                self.recovery.records += 1;
                let place = LogPosition {
                    segment: header.number,
                    offset: offset as u64,
                    bytes: frame.bytes() as u64,
                };
                let ends_group = frame.lsn == group.last_lsn;
                (self.visit)(read_record(place, &frame, ends_group)?)?;
            }
        }
        Ok(())
    }
}

/// Decodes a record whose checksum was verified.
pub(crate) fn read_record<'a>(
    place: LogPosition,
    frame: &LogFrame<'a>,
    ends_group: bool,
) -> Result<Logged<'a>, StoreError> {
    let record = Record::decode(frame.kind, frame.flags, frame.body);
    let record = record.map_err(|problem| StoreError::UnknownRecord {
        file: segment::name(place.segment),
        offset: place.offset,
        lsn: frame.lsn,
        problem,
    })?;
    Ok(Logged {
        lsn: frame.lsn,
        place,
        record,
        ends_group,
    })
}

fn damage(name: &str, groups: &ScannedGroups<'_>, last_lsn: u64) -> Damage {
    Damage {
        file: name.to_owned(),
        offset: groups.end as u64,
        first_lsn: groups.next_lsn,
        last_lsn: last_lsn.max(groups.next_lsn),
        reason: "committed records cannot be read",
        ..Damage::default()
    }
}
