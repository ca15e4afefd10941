//! Packet identifiers in runs, since acknowledgements are nearly always in order.

use std::fmt;

use crate::wire::{BodyError, RecordReader, put_u16, put_varint};

/// Packet identifiers, encoded as runs.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct PacketIdRuns<'a>(&'a [u8]);

/// Packet identifiers in the making; reuse it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PacketIdRunsBuf {
    bytes: Vec<u8>,
    /// The run that may still grow: its first identifier and its length.
    open: Option<(u16, u16)>,
}

impl PacketIdRunsBuf {
    /// Adds an identifier.
    pub fn push(&mut self, packet_id: u16) {
        if let Some((first, length)) = &mut self.open
            && first.checked_add(*length) == Some(packet_id)
        {
            *length += 1;
            return;
        }
        self.close();
        self.open = Some((packet_id, 1));
    }

    /// Forgets all of them, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.open = None;
    }

    /// The identifiers so far.
    pub fn as_packet_ids(&mut self) -> PacketIdRuns<'_> {
        self.close();
        PacketIdRuns(&self.bytes)
    }

    fn close(&mut self) {
        if let Some((first, length)) = self.open.take() {
            put_u16(first, &mut self.bytes);
            put_varint(u64::from(length), &mut self.bytes);
        }
    }
}

impl<'a> PacketIdRuns<'a> {
    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + 'a {
        let mut reader = RecordReader(self.0);
        let runs = std::iter::from_fn(move || {
            // INVARIANT: the bytes were checked by `decode`, or written by `push`.
            (!reader.0.is_empty()).then(|| run(&mut reader).expect("checked runs"))
        });
        runs.flat_map(|(first, length)| first..=first + (length - 1))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    pub(crate) fn decode(from: &mut RecordReader<'a>) -> Result<Self, BodyError> {
        let bytes = from.rest();
        let mut reader = RecordReader(bytes);
        while !reader.0.is_empty() {
            run(&mut reader)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for PacketIdRuns<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

/// A run within the identifiers that there are.
fn run(from: &mut RecordReader<'_>) -> Result<(u16, u16), BodyError> {
    let first = from.u16()?;
    let length = u16::try_from(from.varint()?).map_err(|_| BodyError::Number)?;
    let is_run = length > 0 && first.checked_add(length - 1).is_some();
    if is_run {
        Ok((first, length))
    } else {
        Err(BodyError::Number)
    }
}
