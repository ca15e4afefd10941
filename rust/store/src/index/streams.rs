//! Streams in the index: numbers, epochs, end offsets and sealed offsets of partitions, and the
//! segments with unsealed rows.

use std::collections::BTreeMap;

use crate::record::Streamed;
use crate::wal::numbering::{Numbering, PartitionId};
use crate::wal::segment::NUMBER_REACHED_MAX;
use crate::wire::{BodyError, RecordReader, put_text, put_u16, put_u32, put_u64, put_varint};

/// A stream that the log knows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct KnownStream {
    pub(crate) name: String,
    pub(crate) epoch: u64,
}

/// State of streams that must outlive the segments in which it was recorded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct StreamTable {
    pub(crate) numbering: Numbering,
    streams: BTreeMap<u32, KnownStream>,
    /// The first unsealed offset of each partition.
    sealed: BTreeMap<PartitionId, u64>,
    /// The last offset of each partition in each segment that has unsealed rows.
    segments: BTreeMap<u64, BTreeMap<PartitionId, u64>>,
}

impl StreamTable {
    pub(crate) fn name(&mut self, stream: u32, epoch: u64, name: &str) {
        let name = name.to_owned();
        self.streams.insert(stream, KnownStream { name, epoch });
    }

    pub(crate) fn add(&mut self, streamed: &Streamed<'_>, segment: u64) {
        self.numbering.observe_rows(streamed);
        let rows = self.segments.entry(segment).or_default();
        rows.extend(streamed.rows.iter().map(|row| (row.into(), row.offset)));
    }

    /// Records that rows of `key` below `end` are in files.
    pub(crate) fn seal(&mut self, key: PartitionId, end: u64) {
        self.numbering.reach(key, end);
        let sealed = self.sealed.entry(key).or_default();
        *sealed = end.max(*sealed);
        let sealed = &self.sealed;
        self.segments.retain(|_, rows| {
            rows.retain(|key, last| sealed.get(key).is_none_or(|end| *last >= *end));
            !rows.is_empty()
        });
    }

    /// Names of all streams.
    #[cfg(not(feature = "columnar"))]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.streams.values().map(|known| &*known.name)
    }

    /// Number and state of the newest stream with this name.
    #[cfg(feature = "columnar")]
    pub(crate) fn find(&self, name: &str) -> Option<(u32, &KnownStream)> {
        let named = self.streams.iter().rev();
        let mut named = named.filter(|(_, known)| known.name == name);
        named.next().map(|(stream, known)| (*stream, known))
    }

    /// A number that no stream has had.
    #[cfg(feature = "columnar")]
    pub(crate) fn next_stream(&self) -> u32 {
        let named = self.streams.keys().next_back().copied();
        let counted = self.numbering.ends().map(|((stream, _), _)| stream).last();
        named.max(counted).map_or(1, |last| last.saturating_add(1))
    }

    /// The first unsealed offset of `key`.
    pub(crate) fn sealed(&self, key: PartitionId) -> u64 {
        self.sealed.get(&key).copied().unwrap_or_default()
    }

    /// The oldest segment with unsealed rows.
    pub(crate) fn pinned(&self) -> Option<u64> {
        self.segments.keys().next().copied()
    }

    /// Drops unsealed rows of other streams than the wanted ones, so that they pin no segment.
    #[cfg(feature = "columnar")]
    pub(crate) fn forget_rows(&mut self, is_wanted: impl Fn(u32) -> bool) {
        self.segments.retain(|_, rows| {
            rows.retain(|(stream, _), _| is_wanted(*stream));
            !rows.is_empty()
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Encodes: last time: `u64`; then, each with a count: streams (number: `u32`, epoch: `u64`, name: text);
    /// partitions (key, end: `u64`, sealed: `u64`); segments (number: varint, a count, (key, last offset: `u64`)). A
    /// key is stream: `u32`, partition: `u16`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(self.numbering.last_us(), out);
        put_varint(self.streams.len() as u64, out);
        for (stream, known) in &self.streams {
            put_u32(*stream, out);
            put_u64(known.epoch, out);
            put_text(&known.name, out);
        }
        put_varint(self.numbering.ends().count() as u64, out);
        for (key, end) in self.numbering.ends() {
            put_key(key, out);
            put_u64(end, out);
            put_u64(self.sealed(key), out);
        }
        put_varint(self.segments.len() as u64, out);
        for (segment, rows) in &self.segments {
            put_varint(*segment, out);
            put_varint(rows.len() as u64, out);
            for (key, last) in rows {
                put_key(*key, out);
                put_u64(*last, out);
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        let mut reader = RecordReader(bytes);
        let from = &mut reader;
        let mut table = Self::default();
        table.numbering.pass(from.u64()?);
        for _ in 0..from.length()? {
            let (stream, epoch) = (from.u32()?, from.u64()?);
            table.name(stream, epoch, from.text()?);
        }
        for _ in 0..from.length()? {
            let (key, end, sealed) = (read_key(from)?, from.u64()?, from.u64()?);
            table.numbering.reach(key, end);
            table.sealed.insert(key, sealed);
        }
        for _ in 0..from.length()? {
            let segment = from.varint()?;
            if segment > NUMBER_REACHED_MAX {
                return Err(BodyError::Number);
            }
            let mut rows = BTreeMap::new();
            for _ in 0..from.length()? {
                rows.insert(read_key(from)?, from.u64()?);
            }
            table.segments.insert(segment, rows);
        }
        reader.end()?;
        Ok(table)
    }
}

fn put_key((stream, partition): PartitionId, out: &mut Vec<u8>) {
    put_u32(stream, out);
    put_u16(partition, out);
}

fn read_key(from: &mut RecordReader<'_>) -> Result<PartitionId, BodyError> {
    Ok((from.u32()?, from.u16()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RowRefsBuf;

    fn table() -> StreamTable {
        let mut table = StreamTable::default();
        table.name(3, 7, "plant");
        for segment in [4, 5] {
            let mut rows = RowRefsBuf::default();
            rows.push(3, 1);
            rows.push(3, 2);
            let mut body = Vec::new();
            let at_us = 10 * segment;
            let rows = rows.as_rows();
            Streamed {
                at_us,
                rows,
                ..Streamed::default()
            }
            .encode(&mut body);
            let mut slots = crate::rows::RowSlots::of(&mut body).unwrap();
            slots.fill(|_, partition| segment - 4 + u64::from(partition));
            table.add(
                &Streamed::decode(&mut RecordReader(&body)).unwrap(),
                segment,
            );
        }
        table
    }

    #[test]
    fn a_table_comes_back_from_the_checkpoint() {
        let mut table = table();
        table.seal((3, 1), 2);
        table.seal((3, 2), 0);
        let mut bytes = Vec::new();
        table.encode(&mut bytes);

        assert_eq!(StreamTable::decode(&bytes), Ok(table));
    }

    #[test]
    fn a_segment_is_pinned_until_the_rows_of_every_partition_in_it_are_sealed() {
        let mut table = table();
        assert_eq!(table.pinned(), Some(4));

        table.seal((3, 1), 3);
        assert_eq!(table.pinned(), Some(4));
        table.seal((3, 2), 3);
        assert_eq!(table.pinned(), Some(5));
        table.seal((3, 2), 4);
        assert_eq!(table.pinned(), None);
    }

    #[cfg(feature = "columnar")]
    #[test]
    fn a_number_is_never_given_to_a_second_stream() {
        let mut table = table();
        assert_eq!(table.next_stream(), 4);
        table.seal((9, 0), 1);
        assert_eq!(table.next_stream(), 10);
    }
}
