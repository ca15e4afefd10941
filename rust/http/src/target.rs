//! Parses path and query of a request.

use std::borrow::Cow;

use super::answer::HttpError;

/// The path and query of a request, decoded.
pub(super) struct RequestTarget<'a> {
    /// The segments of the path.
    pub(super) steps: Vec<Cow<'a, str>>,
    query: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> RequestTarget<'a> {
    /// `None` if the target is not percent-encoded UTF-8, or a key repeats.
    pub(super) fn parse(path: &'a str, query: Option<&'a str>) -> Option<Self> {
        let steps = path.strip_prefix('/')?.split('/').map(decoded);
        let pairs = query.unwrap_or_default().split('&');
        let mut query: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decoded(key)?, decoded(value)?);
            if query.iter().any(|(other, _)| *other == key) {
                return None;
            }
            query.push((key, value));
        }
        Some(Self {
            steps: steps.collect::<Option<_>>()?,
            query,
        })
    }

    /// Removes `key` from the query; returns its value.
    pub(super) fn take(&mut self, key: &str) -> Option<Cow<'a, str>> {
        let at = self.query.iter().position(|(name, _)| name == key)?;
        Some(self.query.swap_remove(at).1)
    }

    /// The keys and values that were not taken.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|(key, value)| (&**key, &**value))
    }

    /// A query parameter that was not taken.
    pub(super) fn left_over(&self) -> Option<&str> {
        self.query.first().map(|(key, _)| &**key)
    }
}

fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            digit(rest.next()?)? << 4 | digit(rest.next()?)?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn digit(byte: u8) -> Option<u8> {
    // INVARIANT: a hexadecimal digit is below 16.
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Takes a required number from the query.
pub(super) fn number<T: std::str::FromStr>(
    target: &mut RequestTarget<'_>,
    key: &str,
) -> Result<T, HttpError> {
    let text = target.take(key);
    let text = text.ok_or_else(|| HttpError::bad(format!("{key} is missing")))?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    number.ok_or_else(|| HttpError::bad(format!("{key} is not a valid number: {text:?}")))
}

/// Refuses a query with parameters that were not taken.
pub(super) fn finish(target: &RequestTarget<'_>) -> Result<(), HttpError> {
    match target.left_over() {
        None => Ok(()),
        Some(key) => Err(HttpError::bad(format!("unknown query parameter: {key:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_values_are_decoded() {
        let mut target = RequestTarget::parse("/v1/a%2fb", Some("from=3&name=x%20y&flag")).unwrap();

        assert_eq!(target.steps, ["v1", "a/b"]);
        assert_eq!(target.take("from").as_deref(), Some("3"));
        assert_eq!(target.take("from"), None);
        assert_eq!(target.take("name").as_deref(), Some("x y"));
        assert_eq!(target.left_over(), Some("flag"));
    }

    #[test]
    fn what_is_not_encoded_well_is_no_target() {
        for (path, query) in [
            ("/a%", None),
            ("/a%2", None),
            ("/a%zz", None),
            ("/%ff", None),
            ("*", None),
            ("/", Some("a=%")),
            ("/", Some("a=1&a=2")),
        ] {
            assert!(
                RequestTarget::parse(path, query).is_none(),
                "{path} {query:?}"
            );
        }
    }
}
