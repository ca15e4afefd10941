//! QoS 2 packet identifiers that the client has not released.

use std::mem;

use mqttcore_codec::PacketId;

/// A set of packet identifiers: a short list, then a bitmap.
///
/// Receive Maximum limits a v5 client; a 3.x client may have all 65,535 identifiers open, which costs 8 KiB
/// (abuse D08).
#[derive(Debug)]
pub(crate) enum ReceivedIds {
    Few(Vec<PacketId>),
    Many { bits: Box<[u64]>, count: u32 },
}

/// A list of this length is converted to a bitmap.
const FEW: usize = 128;
const WORD: usize = 64;
const WORDS: usize = 65_536 / WORD;

impl Default for ReceivedIds {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl ReceivedIds {
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few(ids) => ids.capacity() * size_of::<PacketId>(),
            Self::Many { bits, .. } => size_of_val(&**bits),
        }
    }

    pub(crate) fn contains(&self, id: PacketId) -> bool {
        match self {
            Self::Few(ids) => ids.contains(&id),
            Self::Many { bits, .. } => {
                let (word, bit) = place(id);
                bits[word] & bit != 0
            }
        }
    }

    /// Adds `id`; returns whether it was new.
    pub(crate) fn insert(&mut self, id: PacketId) -> bool {
        if self.contains(id) {
            return false;
        }
        match self {
            Self::Few(ids) if ids.len() < FEW => ids.push(id),
            Self::Few(ids) => {
                let ids = mem::take(ids);
                *self = Self::Many {
                    bits: vec![0; WORDS].into(),
                    count: 0,
                };
                for old in ids {
                    self.insert(old);
                }
                self.insert(id);
            }
            Self::Many { bits, count } => {
                let (word, bit) = place(id);
                bits[word] |= bit;
                *count += 1;
            }
        }
        true
    }

    /// Removes `id`; returns whether it was in the set.
    pub(crate) fn remove(&mut self, id: PacketId) -> bool {
        match self {
            Self::Few(ids) => {
                let found = ids.iter().position(|&held| held == id);
                if let Some(index) = found {
                    ids.swap_remove(index);
                }
                found.is_some()
            }
            Self::Many { bits, count } => {
                let (word, bit) = place(id);
                let was_there = bits[word] & bit != 0;
                bits[word] &= !bit;
                *count -= u32::from(was_there);
                if *count == 0 {
                    *self = Self::default();
                }
                was_there
            }
        }
    }

    /// All identifiers in the set.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PacketId> {
        let all = (1..=u16::MAX).filter_map(PacketId::new);
        let (few, many) = match self {
            Self::Few(ids) => (ids.iter().copied(), None),
            Self::Many { .. } => (
                [].iter().copied(),
                Some(all.filter(|id| self.contains(*id))),
            ),
        };
        few.chain(many.into_iter().flatten())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(ids) => ids.len(),
            Self::Many { count, .. } => *count as usize,
        }
    }
}

/// The word index and the bit of `id`; `WORDS` words cover every identifier.
fn place(id: PacketId) -> (usize, u64) {
    let id = usize::from(id.get());
    (id / WORD, 1 << (id % WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).unwrap()
    }

    #[test]
    fn every_id_fits_in_8_kib() {
        let mut ids = ReceivedIds::default();

        assert!((1..=u16::MAX).all(|value| ids.insert(id(value))));

        let is_8_kib = |ids: &ReceivedIds| match ids {
            ReceivedIds::Few(_) => false,
            ReceivedIds::Many { bits, .. } => size_of_val(&**bits) == 8_192,
        };
        assert!(is_8_kib(&ids) && ids.len() == 65_535);
        assert!(!ids.insert(id(7)));
        assert!((1..=u16::MAX).all(|value| ids.remove(id(value))));
        assert!(matches!(ids, ReceivedIds::Few(few) if few.capacity() == 0));
    }

    #[test]
    fn a_list_becomes_bits_when_it_is_full() {
        let mut ids = ReceivedIds::default();

        assert!((1..=128).all(|value| ids.insert(id(value))));
        assert!(matches!(ids, ReceivedIds::Few(_)));
        ids.insert(id(129));

        assert!(matches!(ids, ReceivedIds::Many { count: 129, .. }));
    }

    #[test]
    fn an_id_among_many_is_removed_alone_and_once() {
        let mut ids = ReceivedIds::default();
        assert!((1..=200).all(|value| ids.insert(id(value))));

        assert!(ids.remove(id(66)));
        assert!(!ids.remove(id(66)) && !ids.remove(id(201)));

        assert!(!ids.contains(id(66)));
        let left = (1..=200).filter(|value| *value != 66);
        assert!(ids.iter().eq(left.map(id)));
        assert_eq!(ids.len(), 199);
    }

    #[test]
    fn an_id_is_found_until_it_is_removed() {
        let mut ids = ReceivedIds::default();
        ids.insert(id(65_535));

        assert!(ids.contains(id(65_535)));
        assert!(ids.remove(id(65_535)));
        assert!(!ids.remove(id(65_535)));
        assert!(!ids.contains(id(65_535)));
    }
}
