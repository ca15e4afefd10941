//! Topic levels as bytes: the separator, one step, and a filter against a topic.

/// The byte between two levels.
pub(crate) const SEPARATOR: u8 = b'/';

/// Splits the first level off; the rest is `None` behind the last level.
pub(crate) fn split_level(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == SEPARATOR) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

/// Whether `filter` matches `topic`, both from the same level on. The `$` rule is the caller's.
///
/// `#` takes its parent level too: `a/#` matches `a`, and `+/#` matches every one-level topic.
pub(crate) fn is_match(mut filter: &[u8], mut topic: &[u8]) -> bool {
    loop {
        if filter == b"#" {
            return true;
        }
        let (level, filter_rest) = split_level(filter);
        let topic_rest = if level == b"+" {
            split_level(topic).1
        } else {
            let Some(behind) = topic.strip_prefix(level) else {
                return false;
            };
            match behind.split_first() {
                None => None,
                Some((&SEPARATOR, rest)) => Some(rest),
                Some(_) => return false,
            }
        };
        match (filter_rest, topic_rest) {
            (Some(next_filter), Some(next_topic)) => (filter, topic) = (next_filter, next_topic),
            (None, None) => return true,
            (Some(next_filter), None) => return next_filter == b"#",
            (None, Some(_)) => return false,
        }
    }
}
