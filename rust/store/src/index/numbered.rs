//! Hash maps with numbers of the store as keys. Clients cannot choose these numbers, so the hash needs no secret key
//! against collisions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by session or message number.
pub(crate) type Numbered<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// Heap bytes of a map's slots, computed from its capacity.
pub(crate) fn slot_bytes<T>(map: &Numbered<T>) -> usize {
    map.capacity() * 8 / 7 * (size_of::<(u64, T)>() + 1)
}

/// Spreads consecutive numbers over all bits.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio.
        let spread = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
