//! Checked MQTT text over shared bytes.

use std::fmt;
use std::ops::Deref;

use thiserror::Error;

/// A UTF-8 string that MQTT can carry: at most 65,535 bytes, no U+0000, no surrogates.
///
/// Copied by reference; U+FEFF is kept as data [MQTT-1.5.4-3].
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Text<'a>(&'a str);

/// Why bytes are not MQTT text.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TextError {
    /// Not UTF-8: overlong, cut, a surrogate, or beyond U+10FFFF.
    #[error("[MQTT-1.5.4-1] text is not well-formed UTF-8")]
    InvalidUtf8,
    /// The text contains U+0000.
    #[error("[MQTT-1.5.4-2] text contains U+0000")]
    NullCharacter,
    /// More than 65,535 bytes.
    #[error("[MQTT-4.7.3-3] text is longer than 65,535 bytes")]
    TooLong,
}

impl<'a> Text<'a> {
    /// The empty text.
    pub const EMPTY: Self = Self("");

    /// Checks `text`.
    ///
    /// # Errors
    ///
    /// [`TextError::TooLong`] above 65,535 bytes, [`TextError::NullCharacter`] for U+0000.
    pub fn new(text: &'a str) -> Result<Self, TextError> {
        if text.len() > usize::from(u16::MAX) {
            return Err(TextError::TooLong);
        }
        if has_null(text.as_bytes()) {
            return Err(TextError::NullCharacter);
        }
        Ok(Self(text))
    }

    /// Checks bytes from the wire.
    ///
    /// # Errors
    ///
    /// [`TextError::InvalidUtf8`], and the errors of [`Text::new`].
    ///
    /// Source: MQTT 5.0 section 1.5.4, [MQTT-1.5.4-1], [MQTT-1.5.4-2].
    #[inline]
    pub fn from_utf8(bytes: &'a [u8]) -> Result<Self, TextError> {
        if bytes.len() > usize::from(u16::MAX) {
            return Err(TextError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TextError::InvalidUtf8)?;
        if has_null(bytes) {
            return Err(TextError::NullCharacter);
        }
        Ok(Self(text))
    }

    /// The text; borrows from the source bytes.
    #[inline]
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether the text contains a control character or a non-character; a receiver may refuse both.
    ///
    /// U+0001 to U+001F, U+007F to U+009F, U+FDD0 to U+FDEF, and the last two code points of
    /// each plane. Source: MQTT 5.0 section 1.5.4.
    #[must_use]
    pub fn has_control_or_non_character(self) -> bool {
        self.0.chars().any(|character| {
            let code = u32::from(character);
            character.is_control() || (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
        })
    }
}

/// Whether a byte is 0. Of a longer text 16 bytes are checked at once; the last 16 may overlap those before.
#[inline]
fn has_null(bytes: &[u8]) -> bool {
    fn is_in(bytes: &[u8]) -> bool {
        // Without an early return, so that an array compiles to vector instructions.
        bytes
            .iter()
            .fold(0, |nulls, &byte| nulls | u8::from(byte == 0))
            != 0
    }
    if let Some(last) = bytes.last_chunk::<16>() {
        let (chunks, _) = bytes.as_chunks::<16>();
        return chunks.iter().any(|chunk| is_in(chunk)) || is_in(last);
    }
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => is_in(first) || is_in(last),
        _ => is_in(bytes),
    }
}

impl Deref for Text<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.0
    }
}

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for Text<'a> {
    type Error = TextError;

    fn try_from(text: &'a str) -> Result<Self, TextError> {
        Self::new(text)
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_no_length_prefix_can_hold_is_refused() {
        let text = "x".repeat(65_536);

        assert_eq!(Text::new(&text), Err(TextError::TooLong));
        assert_eq!(Text::from_utf8(text.as_bytes()), Err(TextError::TooLong));
    }

    #[test]
    fn a_null_character_is_found_at_each_place_of_each_length() {
        for len in 0..70 {
            let mut bytes = vec![b'a'; len];
            assert!(Text::from_utf8(&bytes).is_ok(), "{len}");
            for place in 0..len {
                bytes[place] = 0;
                assert_eq!(
                    Text::from_utf8(&bytes),
                    Err(TextError::NullCharacter),
                    "{place} of {len}"
                );
                bytes[place] = b'a';
            }
        }
    }

    #[test]
    fn control_and_non_characters_are_found_among_others() {
        for text in [
            "\u{1}",
            "a\u{7f}",
            "\u{9f}",
            "\u{fdd0}",
            "\u{fffe}",
            "\u{1ffff}",
        ] {
            assert!(Text(text).has_control_or_non_character(), "{text:?}");
        }
        for text in ["", "a b", "\u{feff}", "\u{a0}", "\u{fdf0}", "温度"] {
            assert!(!Text(text).has_control_or_non_character(), "{text:?}");
        }
    }
    #[test]
    fn text_converts_compares_and_prints_as_its_string() {
        let text = Text::try_from("a\"b").unwrap();

        assert_eq!(text.as_ref(), "a\"b");
        assert!(text == *"a\"b" && text != *"a");
        assert!(text == "a\"b" && text != "a");
        assert_eq!(format!("{text} {text:?}"), r#"a"b "a\"b""#);
        assert_eq!(Text::try_from("\0"), Err(TextError::NullCharacter));
    }
}
