//! Topic levels as bytes: the separator, one step, and a filter against a topic.

/// The byte between two levels.
pub(crate) const SEPARATOR: u8 = b'/';

/// Bytes that are compared at once.
const STRIDE: usize = 8;

/// Patterns that fill a stride.
const ONES: u64 = u64::from_le_bytes([1; STRIDE]);
const SEPARATORS: u64 = u64::from_le_bytes([SEPARATOR; STRIDE]);
const TOPS: u64 = u64::from_le_bytes([0x80; STRIDE]);

/// Returns the length of the first level.
#[inline]
pub(crate) fn level_len(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((stride, behind)) = rest.split_first_chunk::<STRIDE>() {
        let other = u64::from_le_bytes(*stride) ^ SEPARATORS;
        // The lowest top bit that is set belongs to the first zero byte of `other`.
        let zeros = other.wrapping_sub(ONES) & !other & TOPS;
        if zeros != 0 {
            return text.len() - rest.len() + (zeros.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    let len = rest.iter().position(|&byte| byte == SEPARATOR);
    text.len() - rest.len() + len.unwrap_or(rest.len())
}

/// Splits the first level off; the rest is `None` behind the last level.
#[inline]
pub(crate) fn split_level(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (level, rest) = text.split_at(level_len(text));
    (level, rest.get(1..))
}

/// Whether `filter` matches `topic`, both from the same level on. The `$` rule is the caller's.
///
/// `#` takes its parent level too: `a/#` matches `a`, and `+/#` matches every one-level topic.
#[inline]
pub(crate) fn is_match(mut filter: &[u8], mut topic: &[u8]) -> bool {
    loop {
        let same = common_len(filter, topic);
        (filter, topic) = (&filter[same..], &topic[same..]);
        // Topics have no wildcards, so a wildcard is always where the common part ends.
        match filter.first() {
            None => return topic.is_empty(),
            Some(b'+') => (filter, topic) = (&filter[1..], &topic[level_len(topic)..]),
            Some(b'#') => return true,
            Some(_) => return topic.is_empty() && filter == b"/#",
        }
    }
}

/// Returns how many bytes at the front are equal.
#[inline]
fn common_len(one: &[u8], two: &[u8]) -> usize {
    let len = one.len().min(two.len());
    let (one, two) = (&one[..len], &two[..len]);
    let (mut one_rest, mut two_rest) = (one, two);
    while let (Some((one_stride, one_behind)), Some((two_stride, two_behind))) = (
        one_rest.split_first_chunk::<STRIDE>(),
        two_rest.split_first_chunk::<STRIDE>(),
    ) {
        let differ = u64::from_le_bytes(*one_stride) ^ u64::from_le_bytes(*two_stride);
        if differ != 0 {
            return len - one_rest.len() + (differ.trailing_zeros() / 8) as usize;
        }
        (one_rest, two_rest) = (one_behind, two_behind);
    }
    // What is left is shorter than a stride: the last stride of both holds it, behind bytes that are equal.
    if let (Some(one_last), Some(two_last)) =
        (one.last_chunk::<STRIDE>(), two.last_chunk::<STRIDE>())
    {
        let differ = u64::from_le_bytes(*one_last) ^ u64::from_le_bytes(*two_last);
        let equal = if differ == 0 {
            STRIDE
        } else {
            (differ.trailing_zeros() / 8) as usize
        };
        return len - STRIDE + equal;
    }
    let equal = one.iter().zip(two).take_while(|(one, two)| one == two);
    equal.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_ends_at_the_first_separator_wherever_it_is() {
        for len in 0..40 {
            let mut text = vec![b'.'; len];
            assert_eq!(level_len(&text), len);
            text.extend_from_slice(b"/a/b");
            assert_eq!(level_len(&text), len);
            assert_eq!(split_level(&text), (&text[..len], Some(&b"a/b"[..])));
        }
        assert_eq!(split_level(b"a/"), (&b"a"[..], Some(&b""[..])));
    }

    #[test]
    fn neighbours_of_the_separator_are_no_separators() {
        for byte in (0..=u8::MAX).filter(|byte| *byte != SEPARATOR) {
            assert_eq!(level_len(&[byte; 19]), 19);
            assert_eq!(
                level_len(&[byte, byte, byte, SEPARATOR, byte, byte, byte, byte, byte]),
                3
            );
        }
    }

    #[test]
    fn the_common_part_ends_at_the_first_difference() {
        for len in 0..30 {
            for at in 0..len {
                let (one, mut two) = (vec![b'a'; len], vec![b'a'; len + 3]);
                assert_eq!(common_len(&one, &two), len);
                two[at] = b'b';
                assert_eq!(common_len(&one, &two), at);
            }
        }
    }
}
