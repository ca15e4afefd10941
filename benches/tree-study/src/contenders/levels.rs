//! Steps through the levels of a topic.

const SEPARATOR: u8 = b'/';
const LANES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = LANES << 7;

/// The levels of `text`; an empty level is a level.
pub(super) struct Levels<'t>(Option<&'t [u8]>);

pub(super) fn levels(text: &str) -> Levels<'_> {
    Levels(Some(text.as_bytes()))
}

impl<'t> Iterator for Levels<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        let (level, rest) = split_level(self.0?);
        self.0 = rest;
        Some(level)
    }
}

/// Splits the first level off; there is no rest behind the last one.
#[inline]
pub(super) fn split_level(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = separator(text);
    (&text[..end], text.get(end + 1..))
}

/// Finds the first separator eight bytes at a time, or the end.
#[inline]
fn separator(text: &[u8]) -> usize {
    let mut start = 0;
    while let Some(lane) = text.get(start..).and_then(<[u8]>::first_chunk) {
        let differences = u64::from_le_bytes(*lane) ^ (LANES * u64::from(SEPARATOR));
        let hits = differences.wrapping_sub(LANES) & !differences & TOPS;
        if hits != 0 {
            return start + hits.trailing_zeros() as usize / 8;
        }
        start += 8;
    }
    let tail = &text[start..];
    start
        + tail
            .iter()
            .position(|&byte| byte == SEPARATOR)
            .unwrap_or(tail.len())
}

/// Whether `filter` matches `topic`, level by level.
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    let is_wild = filter.starts_with(['+', '#']);
    if is_wild && topic.starts_with('$') {
        return false;
    }
    let (mut filter, mut topic) = (Some(filter.as_bytes()), Some(topic.as_bytes()));
    loop {
        let Some((word, filter_rest)) = filter.map(split_level) else {
            return topic.is_none();
        };
        if word == b"#" {
            return true;
        }
        let Some((level, topic_rest)) = topic.map(split_level) else {
            return false;
        };
        if word != level && word != b"+" {
            return false;
        }
        (filter, topic) = (filter_rest, topic_rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_lies_between_separators() {
        for text in [
            "a",
            "",
            "/",
            "a/",
            "/a//bc",
            "building/7/floor/of-the-year/room",
        ] {
            let expected: Vec<_> = text.split('/').map(str::as_bytes).collect();
            assert_eq!(levels(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
