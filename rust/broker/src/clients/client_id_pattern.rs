//! Regular expressions for client identifiers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use regex::{Regex, RegexBuilder};

/// Maximum length of an expression, in bytes.
const TEXT_BYTES: usize = 1_024;
/// Maximum size of a compiled expression, and maximum memory of a search, in bytes.
const COMPILED_BYTES: usize = 1 << 20;

/// A regular expression that matches whole client identifiers, in time linear in their length.
#[derive(Clone, Debug)]
pub struct ClientIdPattern {
    text: Box<str>,
    regex: Regex,
}

/// A text is not a regular expression, or the expression is too large.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a regular expression of client identifiers: {0}")]
pub struct InvalidPattern(String);

impl ClientIdPattern {
    /// Whether the expression matches the whole `client_id`.
    pub fn matches(&self, client_id: &str) -> bool {
        self.regex.is_match(client_id)
    }
}

impl FromStr for ClientIdPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        if text.len() > TEXT_BYTES {
            let why = format!("it has more than {TEXT_BYTES} bytes");
            return Err(InvalidPattern(why));
        }
        let build = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(COMPILED_BYTES)
                .dfa_size_limit(COMPILED_BYTES)
                .build()
                .map_err(|error| InvalidPattern(error.to_string()))
        };
        // The text must be valid without the parentheses added below: "a)|(b" is not.
        build(text)?;
        let regex = build(&format!(r"\A(?:{text})\z"))?;
        Ok(Self {
            text: text.into(),
            regex,
        })
    }
}

impl fmt::Display for ClientIdPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for ClientIdPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ClientIdPattern {}

impl Hash for ClientIdPattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_client_identifiers() {
        let pattern: ClientIdPattern = r"bot-\d+|spy".parse().unwrap();

        for (id, is_matched) in [
            ("bot-17", true),
            ("spy", true),
            ("bot-", false),
            ("my bot-17", false),
            ("bot-17x", false),
            ("spy\n", false),
        ] {
            assert_eq!(pattern.matches(id), is_matched, "{id:?}");
        }
    }

    #[test]
    fn what_is_no_expression_or_too_large_a_one_is_refused() {
        for text in [
            "(",
            "a)|(b",
            "[",
            &"a".repeat(TEXT_BYTES + 1),
            r"(\w{1000}){1000}",
        ] {
            assert!(text.parse::<ClientIdPattern>().is_err(), "{text:.20}");
        }
    }

    /// A backtracking search would not end.
    #[test]
    fn a_hostile_identifier_is_compared_in_linear_time() {
        let pattern: ClientIdPattern = "(a+)+b".parse().unwrap();

        assert!(!pattern.matches(&"a".repeat(65_535)));
    }
}
