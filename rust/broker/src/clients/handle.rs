//! Handles of subscribers: shard and slot of a session, or number of a stream.

/// The place of a session in 64 bits, as stored in the directory. From the top: the shard (8 bits), the generation
/// (24), which differs between sessions that had the same slot, and the slot (32).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Handle(u64);

pub(crate) const GENERATION_BITS: u32 = 24;

/// Shard number of streams, which no shard has; the slot is then the stream's number.
const STORED: u8 = 255;
const EXTERNAL: u8 = 254;

impl Handle {
    pub(crate) const fn new(shard: u8, generation: u32, slot: u32) -> Self {
        let generation = generation as u64 & ((1 << GENERATION_BITS) - 1);
        Self((shard as u64) << (GENERATION_BITS + 32) | generation << 32 | slot as u64)
    }

    /// The handle of a stream.
    pub(crate) const fn of_row_stream(stream: RowStream) -> Self {
        match stream {
            RowStream::Stored(number) => Self::new(STORED, 0, number),
            RowStream::External(number) => Self::new(EXTERNAL, 0, number),
        }
    }

    /// The stream of this handle, if it is one.
    pub(crate) fn row_stream(self) -> Option<RowStream> {
        match u8::try_from(self.shard()) {
            Ok(STORED) => Some(RowStream::Stored(self.slot())),
            Ok(EXTERNAL) => Some(RowStream::External(self.slot())),
            _ => None,
        }
    }

    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn shard(self) -> usize {
        (self.0 >> (GENERATION_BITS + 32)) as usize
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << GENERATION_BITS) - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(crate) const fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// A stream: where its rows are stored, and its number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RowStream {
    /// Its rows are in the broker's own store.
    Stored(u32),
    /// Its rows are in another log.
    External(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_found_again_in_its_handle_and_a_session_is_none() {
        for stream in [RowStream::Stored(0), RowStream::External(7)] {
            assert_eq!(Handle::of_row_stream(stream).row_stream(), Some(stream));
        }
        assert_eq!(Handle::new(63, 0, 7).row_stream(), None);
    }

    #[test]
    fn a_handle_is_found_again_in_its_word() {
        for (shard, generation, slot) in [(0, 0, 0), (63, 0xFF_FFFF, u32::MAX), (7, 99, 12)] {
            let handle = Handle::of_word(Handle::new(shard, generation, slot).word());

            let parts = (handle.shard(), handle.generation(), handle.slot());
            assert_eq!(parts, (usize::from(shard), generation, slot));
        }
    }
}
