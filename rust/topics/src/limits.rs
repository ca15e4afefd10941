//! Limits of topic names and filters, and the check of their text.

use crate::TopicError;

/// The largest limit of levels, whatever the configuration says.
pub const MAX_LEVELS: usize = 1024;

/// Maximum length of a string in MQTT.
pub const MAX_BYTES: usize = 65_535;

/// Limits of topic names and filters of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TopicLimits {
    /// Maximum bytes of the whole text in UTF-8, including `$share/name/`; at most [`MAX_BYTES`].
    pub bytes: usize,
    /// Maximum number of levels, including empty ones; at most [`MAX_LEVELS`].
    pub levels: usize,
    /// Refuses U+0001 to U+001F, U+007F to U+009F and the Unicode non-characters.
    pub refuse_control_characters: bool,
}

impl Default for TopicLimits {
    fn default() -> Self {
        Self {
            bytes: 4096,
            levels: 128,
            refuse_control_characters: true,
        }
    }
}

impl TopicLimits {
    /// The largest limits that a configuration can set, for rules of operators and plugins.
    pub const WIDEST: Self = Self {
        bytes: MAX_BYTES,
        levels: MAX_LEVELS,
        refuse_control_characters: true,
    };

    /// For names and filters that were checked with the limits of a listener: only their form is checked, since the
    /// default limits may be lower.
    pub const AS_IT_CAME: Self = Self {
        refuse_control_characters: false,
        ..Self::WIDEST
    };

    /// Checks the rules for both names and filters; returns whether the text contains `+` or `#`.
    pub(crate) fn check(&self, text: &str) -> Result<bool, TopicError> {
        if text.is_empty() {
            return Err(TopicError::Empty);
        }
        if text.len() > self.bytes.min(MAX_BYTES) {
            return Err(TopicError::TooLong);
        }
        if is_plain(text.as_bytes()) {
            return self.check_levels(text).map(|()| false);
        }
        if text.contains('\0') {
            return Err(TopicError::NullCharacter);
        }
        if self.refuse_control_characters && text.chars().any(is_refused) {
            return Err(TopicError::ControlCharacter);
        }
        self.check_levels(text)?;
        Ok(text.contains(['+', '#']))
    }

    #[inline]
    fn check_levels(&self, text: &str) -> Result<(), TopicError> {
        if text.len() < self.levels.min(MAX_LEVELS) {
            return Ok(());
        }
        let separators = text.bytes().filter(|&byte| byte == b'/').count();
        if separators >= self.levels.min(MAX_LEVELS) {
            return Err(TopicError::TooManyLevels);
        }
        Ok(())
    }
}

/// Whether all bytes are plain. In a longer text 16 bytes are checked at once; the last 16 may overlap the previous
/// ones.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk::<16>() {
        let (chunks, _) = bytes.as_chunks::<16>();
        return chunks.iter().all(|chunk| are_plain(chunk)) && are_plain(last);
    }
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => are_plain(first) && are_plain(last),
        _ => are_plain(bytes),
    }
}

/// The same, without early exit, so that an array compiles to vector instructions.
#[inline]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch a byte would keep the loop scalar"
)]
fn are_plain(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |suspect, &byte| {
        suspect
            | (byte < 0x20)
            | (byte == b'+')
            | (byte == b'#')
            | (byte == 0x7F)
            | (byte == 0xC2)
            | (byte >= 0xEF)
    })
}

/// U+0080 to U+009F start with byte C2, the non-characters with byte EF or above.
fn is_refused(character: char) -> bool {
    let code = u32::from(character);
    character.is_control() || (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_not_plain_is_found_at_each_place_of_each_length() {
        for len in 0..70 {
            let mut bytes = vec![b'a'; len];
            assert!(is_plain(&bytes), "{len}");
            for place in 0..len {
                for byte in [0, 0x1F, b'+', b'#', 0x7F, 0xC2, 0xEF, 0xFF] {
                    bytes[place] = byte;
                    assert!(!is_plain(&bytes), "{byte} at {place} of {len}");
                }
                bytes[place] = b'/';
            }
        }
    }

    #[test]
    fn levels_are_counted_however_few_may_be() {
        for levels in 1..20 {
            let limits = TopicLimits {
                levels,
                ..TopicLimits::default()
            };
            let within = vec!["a"; levels].join("/");
            let empty_levels = "/".repeat(levels);

            assert_eq!(limits.check(&within), Ok(false));
            assert_eq!(
                limits.check(&format!("{within}/")),
                Err(TopicError::TooManyLevels)
            );
            assert_eq!(limits.check(&empty_levels), Err(TopicError::TooManyLevels));
        }
    }
}
