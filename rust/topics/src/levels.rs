//! Topic levels as bytes: splitting, and matching a filter with a topic.

/// The byte between two levels.
pub(crate) const SEPARATOR: u8 = b'/';

/// Number of bytes that are compared at once.
const STRIDE: usize = 8;

/// Byte patterns repeated over a stride.
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

/// Splits off the first level; the rest is `None` after the last level.
#[inline]
pub(crate) fn split_level(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (level, rest) = text.split_at(level_len(text));
    (level, rest.get(1..))
}

/// The levels of a text.
pub(crate) fn levels(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let (level, below) = split_level(rest?);
        rest = below;
        Some(level)
    })
}

/// Whether `filter` matches `topic`; both begin at the same level. The caller applies the rule for `$`.
///
/// `#` also matches its parent level: `a/#` matches `a`, and `+/#` matches every topic of one level.
#[inline]
pub(crate) fn is_match(filter: &[u8], topic: &[u8]) -> bool {
    is_match_counted(filter, topic, &mut 0)
}

/// Like [`is_match`]; adds the number of `+` that it passed to `passed`.
#[inline]
pub(crate) fn is_match_counted(mut filter: &[u8], mut topic: &[u8], passed: &mut usize) -> bool {
    loop {
        let same = common_len(filter, topic);
        (filter, topic) = (&filter[same..], &topic[same..]);
        // Topics have no wildcards, so a wildcard is always where the common part ends.
        match filter.first() {
            None => return topic.is_empty(),
            Some(b'+') => {
                *passed += 1;
                (filter, topic) = (&filter[1..], &topic[level_len(topic)..]);
            }
            Some(b'#') => return true,
            Some(_) => return topic.is_empty() && filter == b"/#",
        }
    }
}

/// Returns the length of the front of `topic` that matches `run`, whole levels that may include `+`; `None` if it
/// does not match. Adds the number of `+` to `passed`.
#[inline]
pub(crate) fn taken_by(run: &[u8], topic: &[u8], passed: &mut usize) -> Option<usize> {
    let (mut run, mut rest) = (run, topic);
    loop {
        let same = common_len(run, rest);
        (run, rest) = (&run[same..], &rest[same..]);
        match run.first() {
            None => {
                let ends = rest.first().is_none_or(|byte| *byte == SEPARATOR);
                return ends.then(|| topic.len() - rest.len());
            }
            Some(b'+') => {
                *passed += 1;
                (run, rest) = (&run[1..], &rest[level_len(rest)..]);
            }
            Some(_) => return None,
        }
    }
}

/// Returns the length of the common front of two texts, in whole levels.
pub(crate) fn shared_levels(one: &[u8], two: &[u8]) -> usize {
    let mut shared = 0;
    let (mut one, mut two) = (Some(one), Some(two));
    while let (Some(mine), Some(yours)) = (one, two) {
        let ((level, behind), (other, below)) = (split_level(mine), split_level(yours));
        if level != other {
            break;
        }
        shared += level.len() + 1;
        (one, two) = (behind, below);
    }
    shared.saturating_sub(1)
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
    // The rest is shorter than a stride: the last stride of both texts holds it, after bytes that are equal.
    if let (Some(one_last), Some(two_last)) =
        (one.last_chunk::<STRIDE>(), two.last_chunk::<STRIDE>())
    {
        let differ = u64::from_le_bytes(*one_last) ^ u64::from_le_bytes(*two_last);
        // Eight zero bytes have 64 zeros.
        return len - STRIDE + (differ.trailing_zeros() / 8) as usize;
    }
    // The same for four bytes or more, with two steps of four.
    if let (Some(one_first), Some(two_first), Some(one_last), Some(two_last)) = (
        one.first_chunk(),
        two.first_chunk(),
        one.last_chunk(),
        two.last_chunk(),
    ) {
        let differ = u32::from_le_bytes(*one_first) ^ u32::from_le_bytes(*two_first);
        if differ != 0 {
            return (differ.trailing_zeros() / 8) as usize;
        }
        let differ = u32::from_le_bytes(*one_last) ^ u32::from_le_bytes(*two_last);
        // Four zero bytes have 32 zeros.
        return len - 4 + (differ.trailing_zeros() / 8) as usize;
    }
    let mut equal = 0;
    while equal < len && one[equal] == two[equal] {
        equal += 1;
    }
    equal
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
    fn a_run_takes_whole_levels_and_a_plus_takes_any() {
        for (run, topic, taken) in [
            ("a", "a", Some(1)),
            ("a", "a/b", Some(1)),
            ("a/b", "a/b/c", Some(3)),
            ("a", "ab", None),
            ("ab", "a", None),
            ("a/b", "a", None),
            ("", "/a", Some(0)),
            ("", "", Some(0)),
            ("+", "long/b", Some(4)),
            ("+/b", "long/b", Some(6)),
            ("+/b", "/b/c", Some(2)),
            ("a/+", "a", None),
            ("a/+", "a/", Some(2)),
            ("+/b", "a/bc", None),
        ] {
            let found = taken_by(run.as_bytes(), topic.as_bytes(), &mut 0);
            assert_eq!(found, taken, "{run} of {topic}");
        }
    }

    #[test]
    fn shared_levels_are_whole() {
        for (one, two, shared) in [
            ("a/b", "a/c", "a"),
            ("a/b/c", "a/b/d", "a/b"),
            ("a/b", "a/b/c", "a/b"),
            ("a/bc", "a/bd", "a"),
            ("a", "b", ""),
            ("+/a", "+/b", "+"),
        ] {
            let len = shared_levels(one.as_bytes(), two.as_bytes());
            assert_eq!(&one[..len], shared, "{one} {two}");
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
