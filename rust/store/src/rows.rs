//! The rows of streams that a message becomes: a list of fixed width, since the log assigns the offsets.

use std::fmt;

use crate::wire::{BodyError, RecordReader, put_u16, put_u32, put_u64};

/// A message as a row of streams.
///
/// | bytes | field |
/// | --- | --- |
/// | 0 | bit 0: DUP |
/// | 1-2 | how many rows |
/// | 3-10 | unix microseconds |
/// | 11.. | a row: stream `u32`, partition `u16`, offset `u64` |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Streamed<'a> {
    /// DUP as published.
    pub dup: bool,
    /// Unix microseconds at which it came. The log moves it forward to that of the row written
    /// before it: time never runs backwards.
    pub at_us: u64,
    /// Which rows it is.
    pub rows: RowRefs<'a>,
}

/// One row of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RowRef {
    /// Number of the stream.
    pub stream: u32,
    /// Its partition.
    pub partition: u16,
    /// Its offset there, assigned by the log.
    pub offset: u64,
}

/// A list of rows, encoded.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct RowRefs<'a>(&'a [u8]);

/// A list of rows in the making; reuse it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RowRefsBuf(Vec<u8>);

const DUP: u8 = 1;
const HEAD: usize = 11;
const ROW: usize = 14;

impl RowRefsBuf {
    /// Adds a row whose offset the log will give.
    pub fn push(&mut self, stream: u32, partition: u16) {
        put_u32(stream, &mut self.0);
        put_u16(partition, &mut self.0);
        put_u64(0, &mut self.0);
    }

    /// Forgets all of them, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / ROW
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The list.
    pub fn as_rows(&self) -> RowRefs<'_> {
        RowRefs(&self.0)
    }
}

impl<'a> RowRefs<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / ROW
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = RowRef> + use<'a> {
        self.0.chunks_exact(ROW).map(row)
    }
}

impl fmt::Debug for RowRefs<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Streamed<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.dup { DUP } else { 0 });
        // A list that long would be cut at its end.
        let count = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        put_u16(count, out);
        put_u64(self.at_us, out);
        out.extend_from_slice(&self.rows.0[..usize::from(count) * ROW]);
    }

    pub(crate) fn decode(from: &mut RecordReader<'a>) -> Result<Self, BodyError> {
        let flags = from.byte()?;
        if flags & !DUP != 0 {
            return Err(BodyError::Flags);
        }
        let count = usize::from(from.u16()?);
        Ok(Self {
            dup: flags & DUP != 0,
            at_us: from.u64()?,
            rows: RowRefs(from.take(count * ROW)?),
        })
    }
}

/// The same list in a body that it stands at the front of, to be filled in.
pub(crate) struct RowSlots<'a> {
    at_us: &'a mut [u8; 8],
    rows: &'a mut [u8],
}

impl<'a> RowSlots<'a> {
    /// Of bytes that [`Streamed::encode`] wrote.
    pub(crate) fn of(body: &'a mut [u8]) -> Option<Self> {
        let (head, rows) = body.split_first_chunk_mut::<HEAD>()?;
        let count = usize::from(u16::from_le_bytes([head[1], head[2]]));
        Some(Self {
            at_us: head.last_chunk_mut()?,
            rows: rows.get_mut(..count * ROW)?,
        })
    }

    pub(crate) fn at_us(&self) -> u64 {
        u64::from_le_bytes(*self.at_us)
    }

    pub(crate) fn set_at_us(&mut self, at_us: u64) {
        *self.at_us = at_us.to_le_bytes();
    }

    /// Gives each row the offset that `give` says.
    pub(crate) fn fill(&mut self, mut give: impl FnMut(u32, u16) -> u64) {
        for bytes in self.rows.chunks_exact_mut(ROW) {
            let RowRef {
                stream, partition, ..
            } = row(bytes);
            bytes[6..].copy_from_slice(&give(stream, partition).to_le_bytes());
        }
    }
}

fn row(bytes: &[u8]) -> RowRef {
    let (mut stream, mut partition, mut offset) = ([0; 4], [0; 2], [0; 8]);
    stream.copy_from_slice(&bytes[..4]);
    partition.copy_from_slice(&bytes[4..6]);
    offset.copy_from_slice(&bytes[6..ROW]);
    RowRef {
        stream: u32::from_le_bytes(stream),
        partition: u16::from_le_bytes(partition),
        offset: u64::from_le_bytes(offset),
    }
}
