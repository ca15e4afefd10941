//! Names of streams: the one rule for stores, configuration and URLs.

/// Whether `name` can be the name of a stream: it is valid as a folder and as a part of a URL on every platform.
pub fn is_stream_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = name.bytes();
    name.len() <= BYTES_MAX
        && bytes.next().is_some_and(is_plain)
        && bytes.all(|byte| is_plain(byte) || matches!(byte, b'_' | b'-'))
}

const BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_character_that_a_path_or_a_url_could_read_otherwise() {
        let longest = "a".repeat(BYTES_MAX);
        for name in ["a", "7", "plant", "plant-7_b", "0-", &longest] {
            assert!(is_stream_name(name), "{name}");
        }
        let too_long = "a".repeat(BYTES_MAX + 1);
        for name in [
            "", "_a", "-a", "A", "a/b", "a.b", "a b", "..", "ä", "a\n", "a%2f", &too_long,
        ] {
            assert!(!is_stream_name(name), "{name}");
        }
    }
}
