//! Reading a segment: group after group, up to the first that is not whole.

use crc32c::crc32c_append;

use crate::wal::frame::{self, LogFrame};

/// A group of records with its commit marker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedGroup<'a> {
    /// Where it begins in the segment.
    pub(crate) offset: usize,
    /// Its frames, the marker excluded.
    pub(crate) frames: &'a [u8],
    pub(crate) records: u32,
    /// LSN of its last record.
    pub(crate) last_lsn: u64,
    /// What was safe when it was written.
    pub(crate) durable_lsn: u64,
}

impl<'a> ScannedGroup<'a> {
    /// Its records, and where each begins in the segment.
    pub(crate) fn records(&self) -> impl Iterator<Item = (usize, LogFrame<'a>)> + use<'a> {
        let (frames, offset) = (self.frames, self.offset);
        let mut at = 0;
        std::iter::from_fn(move || {
            let frame = frame::split(&frames[at..])?;
            let place = offset + at;
            at += frame.bytes();
            Some((place, frame))
        })
    }

    /// Bytes that it takes, its marker included.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.len() + frame::MARKER
    }
}

/// Walks over the groups of a segment.
#[derive(Debug)]
pub(crate) struct ScannedGroups<'a> {
    segment: &'a [u8],
    seed: u32,
    /// Behind the last whole group.
    pub(crate) end: usize,
    /// The LSN that the next record must have.
    pub(crate) next_lsn: u64,
}

impl<'a> ScannedGroups<'a> {
    pub(crate) fn new(segment: &'a [u8], seed: u32, start: usize, next_lsn: u64) -> Self {
        Self {
            segment,
            seed,
            end: start.min(segment.len()),
            next_lsn,
        }
    }

    /// Bytes of the segment.
    pub(crate) fn bytes(&self) -> usize {
        self.segment.len()
    }

    /// Whether nothing was ever written behind the last whole group.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirt() == 0
    }

    /// How many bytes behind the last whole group have been written.
    pub(crate) fn dirt(&self) -> usize {
        let rest = &self.segment[self.end..];
        rest.iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1)
    }

    /// The highest LSN that some marker behind the last whole group calls durable, and the
    /// highest LSN that is there at all.
    ///
    /// Looks at every byte, since nobody knows where frames begin.
    pub(crate) fn evidence(&self) -> TailEvidence {
        let mut evidence = TailEvidence::default();
        let dirty = &self.segment[self.end..self.end + self.dirt()];
        // A length has a byte that is not zero, and an LSN is at most so far away.
        let furthest = self
            .next_lsn
            .saturating_add((dirty.len() / frame::HEADER) as u64 + 1);
        for at in 0..dirty.len() {
            let place = &self.segment[self.end + at..];
            let is_likely = frame::claimed_lsn(place)
                .is_some_and(|lsn| lsn < furthest && lsn + 1 >= self.next_lsn);
            if !is_likely {
                continue;
            }
            if let Some(frame) = frame::parse(place, self.seed) {
                evidence.last_lsn = evidence.last_lsn.max(frame.lsn);
                let durable = frame.commit().map_or(0, |commit| commit.durable_lsn);
                evidence.durable_lsn = evidence.durable_lsn.max(durable);
            }
        }
        evidence
    }

    fn group(&self) -> Option<ScannedGroup<'a>> {
        let (mut at, mut records, mut chain) = (self.end, 0_u32, 0);
        loop {
            let frame = frame::parse(&self.segment[at..], self.seed)?;
            let next = self.next_lsn + u64::from(records);
            if let Some(commit) = frame.commit() {
                let is_whole =
                    commit.records == records && commit.chain == chain && frame.lsn + 1 == next;
                return is_whole.then(|| ScannedGroup {
                    offset: self.end,
                    frames: &self.segment[self.end..at],
                    records,
                    last_lsn: frame.lsn,
                    durable_lsn: commit.durable_lsn,
                });
            }
            if frame.lsn != next {
                return None;
            }
            chain = crc32c_append(chain, &frame.crc.to_le_bytes());
            records = records.checked_add(1)?;
            at += frame.bytes();
        }
    }
}

impl<'a> Iterator for ScannedGroups<'a> {
    type Item = ScannedGroup<'a>;

    fn next(&mut self) -> Option<ScannedGroup<'a>> {
        let group = self.group()?;
        self.end += group.bytes();
        self.next_lsn += u64::from(group.records);
        Some(group)
    }
}

/// What can be found behind the last whole group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TailEvidence {
    pub(crate) durable_lsn: u64,
    pub(crate) last_lsn: u64,
}
