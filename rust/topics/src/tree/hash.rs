//! The keyed hash of levels, filters and share names. It has a key because clients choose topics.

/// Hashes texts by folded multiplication, with secrets from the seed.
///
/// It has its own cache line: every match reads it, and commits write to neighbouring fields.
#[repr(align(64))]
pub(crate) struct Hasher {
    secrets: [u64; 3],
    mask: u64,
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self::masked(seed, u64::MAX)
    }

    /// Keeps only the bits in `mask`, so that tests get collisions.
    pub(crate) fn masked(seed: u64, mask: u64) -> Self {
        let mut state = seed;
        let secrets = std::array::from_fn(|_| split_mix(&mut state));
        Self { secrets, mask }
    }

    #[inline]
    pub(crate) fn hash(&self, text: &[u8]) -> u64 {
        let [first, second, third] = self.secrets;
        let mut state = first;
        let mut rest = text;
        while let Some((chunk, behind)) = rest.split_first_chunk::<16>() {
            if behind.is_empty() {
                break;
            }
            let (low, high) = halves(chunk);
            state = folded(low ^ state, high ^ second);
            rest = behind;
        }
        let (low, high) = last_16(rest);
        // The same words may be read of texts of different length. How two lengths differ here is as secret as the
        // words themselves, so one multiplication is enough.
        let length = third.wrapping_mul(2 * text.len() as u64 + 1);
        folded(low ^ state, high ^ second ^ length) & self.mask
    }

    /// A word that depends on `word` and the seed.
    pub(crate) fn scramble(&self, word: u64) -> u64 {
        folded(word ^ self.secrets[0], self.secrets[1])
    }
}

/// The part of a hash that blocks store: most mismatches need no comparison of texts.
pub(crate) const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn halves(chunk: &[u8; 16]) -> (u64, u64) {
    let all = u128::from_le_bytes(*chunk);
    split(all)
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
const fn split(all: u128) -> (u64, u64) {
    (all as u64, (all >> 64) as u64)
}

/// Reads 0 to 16 bytes into two words without a loop; the length is hashed separately.
fn last_16(text: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        return (
            u32::from_le_bytes(*first).into(),
            u32::from_le_bytes(*last).into(),
        );
    }
    let Some((&first, &last)) = text.first().zip(text.last()) else {
        return (0, 0);
    };
    (
        u64::from(first) | u64::from(text[text.len() / 2]) << 8,
        last.into(),
    )
}

fn folded(left: u64, right: u64) -> u64 {
    let (low, high) = split(u128::from(left) * u128::from(right));
    low ^ high
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn texts_that_differ_in_one_byte_or_in_length_hash_apart() {
        let hasher = Hasher::new(7);
        let mut seen = HashSet::new();
        for len in 0..70 {
            let text = vec![b'a'; len];
            assert!(seen.insert(hasher.hash(&text)));
            for index in 0..len {
                let mut other = text.clone();
                other[index] = b'b';
                assert!(seen.insert(hasher.hash(&other)), "{len} {index}");
            }
        }
    }

    #[test]
    fn the_seed_decides_the_hash() {
        assert_ne!(Hasher::new(1).hash(b"a/b"), Hasher::new(2).hash(b"a/b"));
        assert_eq!(Hasher::new(1).hash(b"a/b"), Hasher::new(1).hash(b"a/b"));
    }
}
