//! Iterates over the complete groups of a segment.

use crc32c::crc32c_append;

use crate::wal::frame::{self, LogFrame};

/// A group of records with its commit marker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedGroup<'a> {
    /// Offset of the group in the segment.
    pub(crate) offset: usize,
    /// The frames of the group, without the marker.
    pub(crate) frames: &'a [u8],
    pub(crate) records: u32,
    /// LSN of the last record.
    pub(crate) last_lsn: u64,
    /// The durable LSN in its marker.
    pub(crate) durable_lsn: u64,
}

impl<'a> ScannedGroup<'a> {
    /// The records, with their offsets in the segment.
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

    /// Bytes of the group, with its marker.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.len() + frame::MARKER
    }
}

/// Unwritten bytes of a segment.
const ZEROS: [u8; 4_096] = [0; 4_096];

/// Iterator over the complete groups of a segment.
#[derive(Debug)]
pub(crate) struct ScannedGroups<'a> {
    segment: &'a [u8],
    seed: u32,
    /// End of the last complete group.
    pub(crate) end: usize,
    /// The LSN of the next record.
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

    /// Whether all bytes after the last complete group are zero.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirt() == 0
    }

    /// Number of bytes after the last complete group, up to the last one that is not zero.
    pub(crate) fn dirt(&self) -> usize {
        let rest = &self.segment[self.end..];
        // Almost all of it is zero: whole blocks are compared.
        let mut blocks = rest.rchunks(ZEROS.len()).enumerate();
        let dirty = blocks.find(|(_, block)| **block != ZEROS[..block.len()]);
        dirty.map_or(0, |(zero_blocks, block)| {
            let zeros = block.iter().rev().take_while(|byte| **byte == 0).count();
            rest.len() - zero_blocks * ZEROS.len() - zeros
        })
    }

    /// The highest durable LSN of the markers after the last complete group, and the highest LSN
    /// of all frames there.
    ///
    /// Examines every offset, since the starts of frames are unknown.
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

/// Bytes after the last complete group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TailEvidence {
    pub(crate) durable_lsn: u64,
    pub(crate) last_lsn: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_that_is_not_zero_is_found_wherever_it_is() {
        let size = 3 * ZEROS.len() + 100;
        for end in [0, 1, 99, 100, 101, ZEROS.len(), ZEROS.len() + 101, size] {
            let mut segment = vec![0; 7 + size];
            if end > 0 {
                segment[7 + end - 1] = 1;
            }

            let scanned = ScannedGroups::new(&segment, 0, 7, 1);

            assert_eq!((scanned.dirt(), scanned.is_clean()), (end, end == 0));
        }
    }
}
