//! What every payload format has in common: values, objects and arrays, not yet converted.

use std::borrow::Cow;

/// A value of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Value<'a, N> {
    /// The document has no such key.
    #[default]
    Missing,
    Null,
    Boolean(bool),
    /// A number as text, by the grammar of JSON; whether it has neither fraction nor exponent.
    Number(&'a str, bool),
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Text(Cow<'a, str>),
    Blob(Cow<'a, [u8]>),
    /// Unix microseconds.
    Instant(i64),
    Object(N),
    Array(N),
}

/// Bytes are no document of their format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Malformed;

/// An object or array of a document, whose parts are found by walking through its bytes.
pub(crate) trait Node<'a>: Copy {
    /// Puts the value of each known key into its slot; of keys that repeat, the last counts.
    fn fields(self, keys: &Keys, slots: &mut [Value<'a, Self>]) -> Result<(), Malformed>;

    /// Hands over the items in their order.
    fn items(self, take: &mut dyn FnMut(Value<'a, Self>)) -> Result<(), Malformed>;

    /// Returns the object or array as text, if the format is text.
    fn as_text(self) -> Option<&'a str>;
}

/// The keys of an object that a schema knows.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Vec<Box<str>>);

impl Keys {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self(names.map(Box::from).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the place of a key. `likely` is looked at first: most documents name their keys in the same order.
    pub(crate) fn find(&self, key: &str, likely: usize) -> Option<usize> {
        if self.0.get(likely).is_some_and(|name| **name == *key) {
            return Some(likely);
        }
        self.0.iter().position(|name| **name == *key)
    }
}
