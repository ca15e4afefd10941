//! The document model of all payload formats: values, objects and arrays before conversion.

use std::borrow::Cow;

/// A value of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Value<'a, N> {
    /// The document has no such key.
    #[default]
    Missing,
    Null,
    Boolean(bool),
    /// A number as JSON text; true if it has neither fraction nor exponent.
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

/// The bytes are not a valid document of the format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Malformed;

/// An object or array of a document; its parts are found by walking through the bytes.
pub(crate) trait DocumentNode<'a>: Copy {
    /// Stores the value of each known key in its slot; if a key repeats, the last value counts.
    fn fields(self, keys: &mut SchemaKeys, slots: &mut [Value<'a, Self>]) -> Result<(), Malformed>;

    /// Calls `take` with each item, in order.
    fn items(self, take: &mut dyn FnMut(Value<'a, Self>)) -> Result<(), Malformed>;

    /// Returns the object or array as text, if the format has one for it.
    fn as_text(self) -> Option<Cow<'a, str>>;
}

/// The keys of a schema, and the encoded keys of the previous document.
#[derive(Clone, Debug)]
pub(crate) struct SchemaKeys {
    names: Vec<Box<str>>,
    written: Vec<Written>,
}

/// The exact bytes of a key in the previous document, with punctuation.
#[derive(Clone, Debug)]
struct Written {
    text: Vec<u8>,
    /// The key's index in the schema; `None` if the schema lacks it.
    place: Option<usize>,
}

/// Maximum number of remembered keys, and maximum length of each in bytes.
const REMEMBERED: usize = 64;

impl SchemaKeys {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            names: names.map(Box::from).collect(),
            written: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// If `text` begins with the bytes [learnt](Self::learn) for key `number`, returns their length and the key's
    /// index. Documents of one publisher mostly differ only in their values.
    pub(crate) fn known(&self, number: usize, text: &[u8]) -> Option<(usize, Option<usize>)> {
        let written = self.written.get(number)?;
        text.starts_with(&written.text)
            .then_some((written.text.len(), written.place))
    }

    /// Remembers the bytes of key `number` of a document. No other key may begin with `text`.
    pub(crate) fn learn(&mut self, number: usize, text: &[u8], place: Option<usize>) {
        if number >= REMEMBERED || text.len() > REMEMBERED {
            return;
        }
        if number == self.written.len() {
            let text = Vec::new();
            self.written.push(Written { text, place });
        }
        if let Some(written) = self.written.get_mut(number) {
            written.text.clear();
            written.text.extend_from_slice(text);
            written.place = place;
        }
    }

    /// Returns the index of a key. Tries `likely` first: most documents have their keys in the same order.
    pub(crate) fn find(&self, key: &str, likely: usize) -> Option<usize> {
        if self.names.get(likely).is_some_and(|name| **name == *key) {
            return Some(likely);
        }
        self.names.iter().position(|name| **name == *key)
    }
}
