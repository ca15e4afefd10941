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
pub(crate) trait DocumentNode<'a>: Copy {
    /// Puts the value of each known key into its slot; of keys that repeat, the last counts.
    fn fields(self, keys: &mut SchemaKeys, slots: &mut [Value<'a, Self>]) -> Result<(), Malformed>;

    /// Hands over the items in their order.
    fn items(self, take: &mut dyn FnMut(Value<'a, Self>)) -> Result<(), Malformed>;

    /// Returns the object or array as text, if the format is text.
    fn as_text(self) -> Option<&'a str>;
}

/// The keys of an object that a schema knows, and how the document before wrote those that it had.
#[derive(Clone, Debug)]
pub(crate) struct SchemaKeys {
    names: Vec<Box<str>>,
    written: Vec<Written>,
}

/// A key and what belongs to it, byte by byte.
#[derive(Clone, Debug)]
struct Written {
    text: Vec<u8>,
    /// Where the schema has it.
    place: Option<usize>,
}

/// Keys of a document that are remembered, and how long they may be.
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

    /// Looks whether `text` begins with what was [learnt](Self::learn) as key `number`: how long that is, and its place.
    /// Documents of one publisher mostly differ in their values alone.
    pub(crate) fn known(&self, number: usize, text: &[u8]) -> Option<(usize, Option<usize>)> {
        let written = self.written.get(number)?;
        text.starts_with(&written.text)
            .then_some((written.text.len(), written.place))
    }

    /// Remembers how key `number` of a document is written. Nothing else may begin with `text`.
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

    /// Returns the place of a key. `likely` is looked at first: most documents name their keys in the same order.
    pub(crate) fn find(&self, key: &str, likely: usize) -> Option<usize> {
        if self.names.get(likely).is_some_and(|name| **name == *key) {
            return Some(likely);
        }
        self.names.iter().position(|name| **name == *key)
    }
}
