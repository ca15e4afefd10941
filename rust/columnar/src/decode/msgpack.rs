//! Decodes MessagePack without building a tree.

use std::borrow::Cow;

use super::bytes;
use super::value::{DocumentNode, Malformed, SchemaKeys, Value};

/// Maximum nesting depth of arrays and maps.
const MAX_DEPTH: usize = 128;

/// Extension type of timestamps.
const INSTANT: i8 = -1;

/// The bytes of a map or array. Those of the document are validated while they are walked through; this validates
/// nested ones before they are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PackNode<'a>(&'a [u8]);

type PackValue<'a> = Value<'a, PackNode<'a>>;

/// Opens a document; returns [`Value::Missing`] for an empty payload.
pub(crate) fn document(payload: &[u8]) -> Result<PackValue<'_>, Malformed> {
    let mut cursor = PackCursor { rest: payload };
    if payload.is_empty() {
        return Ok(Value::Missing);
    }
    match cursor.head()? {
        Head::Map(_) => Ok(Value::Object(PackNode(payload))),
        Head::Array(_) => Ok(Value::Array(PackNode(payload))),
        Head::Scalar(value) => {
            cursor.end_of_input()?;
            Ok(value)
        }
    }
}

impl<'a> DocumentNode<'a> for PackNode<'a> {
    fn fields(self, keys: &mut SchemaKeys, slots: &mut [PackValue<'a>]) -> Result<(), Malformed> {
        let mut cursor = PackCursor { rest: self.0 };
        let Head::Map(pairs) = cursor.head()? else {
            return Err(Malformed);
        };
        let mut likely = 0;
        for _ in 0..pairs {
            let place = match cursor.value(1)? {
                Value::Text(key) => keys.find(&key, likely),
                Value::Integer(key) => keys.find(&key.to_string(), likely),
                _ => None,
            };
            let value = cursor.value(1)?;
            if let Some(place) = place {
                slots[place] = value;
                likely = place + 1;
            }
        }
        cursor.end_of_input()
    }

    fn items(self, take: &mut dyn FnMut(PackValue<'a>)) -> Result<(), Malformed> {
        let mut cursor = PackCursor { rest: self.0 };
        let Head::Array(items) = cursor.head()? else {
            return Err(Malformed);
        };
        for _ in 0..items {
            take(cursor.value(1)?);
        }
        cursor.end_of_input()
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        None
    }
}

/// The decoded head of a value.
enum Head<'a> {
    /// A map with this many pairs.
    Map(u64),
    /// An array with this many items.
    Array(u64),
    /// A complete scalar.
    Scalar(PackValue<'a>),
}

/// The unread bytes.
struct PackCursor<'a> {
    rest: &'a [u8],
}

impl<'a> PackCursor<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        bytes::take(&mut self.rest, len)
    }

    fn end_of_input(&self) -> Result<(), Malformed> {
        bytes::end(self.rest)
    }

    /// Reads a big-endian number of `len` bytes.
    fn unsigned(&mut self, len: u64) -> Result<u64, Malformed> {
        bytes::take_unsigned(&mut self.rest, len)
    }

    /// Like [`unsigned`](Self::unsigned), in two's complement.
    fn signed(&mut self, len: u32) -> Result<i64, Malformed> {
        let unused = 64 - 8 * len;
        let number = self.unsigned(u64::from(len))?;
        Ok((number << unused).cast_signed() >> unused)
    }

    fn head(&mut self) -> Result<Head<'a>, Malformed> {
        let first = self.take(1)?[0];
        Ok(Head::Scalar(match first {
            0x80..=0x8F => return Ok(Head::Map(u64::from(first & 0x0F))),
            0xDE | 0xDF => return Ok(Head::Map(self.unsigned(2 << (first - 0xDE))?)),
            0x90..=0x9F => return Ok(Head::Array(u64::from(first & 0x0F))),
            0xDC | 0xDD => return Ok(Head::Array(self.unsigned(2 << (first - 0xDC))?)),
            0x00..=0x7F => Value::Integer(i64::from(first)),
            0xE0..=0xFF => Value::Integer(i64::from(first.cast_signed())),
            0xA0..=0xBF => self.text(u64::from(first & 0x1F))?,
            0xC0 => Value::Null,
            0xC1 => return Err(Malformed),
            0xC2 | 0xC3 => Value::Boolean(first == 0xC3),
            0xC4..=0xC6 => {
                let len = self.unsigned(1 << (first - 0xC4))?;
                Value::Blob(self.take(len)?.into())
            }
            0xC7..=0xC9 => {
                let len = self.unsigned(1 << (first - 0xC7))?;
                self.extension(len)?
            }
            0xCA => {
                let bits = u32::try_from(self.unsigned(4)?).map_err(|_| Malformed)?;
                Value::Float(f64::from(f32::from_bits(bits)))
            }
            0xCB => Value::Float(f64::from_bits(self.unsigned(8)?)),
            0xCC..=0xCF => {
                let number = self.unsigned(1 << (first - 0xCC))?;
                i64::try_from(number).map_or(Value::Unsigned(number), Value::Integer)
            }
            0xD0..=0xD3 => Value::Integer(self.signed(1 << (first - 0xD0))?),
            0xD4..=0xD8 => self.extension(1 << (first - 0xD4))?,
            0xD9..=0xDB => {
                let len = self.unsigned(1 << (first - 0xD9))?;
                self.text(len)?
            }
        }))
    }

    fn text(&mut self, len: u64) -> Result<PackValue<'a>, Malformed> {
        let text = str::from_utf8(self.take(len)?).map_err(|_| Malformed)?;
        Ok(Value::Text(text.into()))
    }

    /// Reads an extension: an instant, or opaque bytes.
    fn extension(&mut self, len: u64) -> Result<PackValue<'a>, Malformed> {
        let kind = self.take(1)?[0].cast_signed();
        let bytes = self.take(len)?;
        let mut inner = PackCursor { rest: bytes };
        let (seconds, nanos) = match (kind, len) {
            (INSTANT, 4) => (inner.unsigned(4)?.cast_signed(), 0),
            (INSTANT, 8) => {
                let both = inner.unsigned(8)?;
                ((both & 0x3_FFFF_FFFF).cast_signed(), both >> 34)
            }
            (INSTANT, 12) => {
                let nanos = inner.unsigned(4)?;
                (inner.signed(8)?, nanos)
            }
            _ => return Ok(Value::Blob(bytes.into())),
        };
        let micros = i64::try_from(nanos / 1_000).map_err(|_| Malformed)?;
        let instant = seconds.checked_mul(1_000_000);
        let instant = instant.and_then(|instant| instant.checked_add(micros));
        instant.map(Value::Instant).ok_or(Malformed)
    }

    /// Reads a whole value; the contents of a map or array are validated and skipped.
    fn value(&mut self, depth: usize) -> Result<PackValue<'a>, Malformed> {
        let start = self.rest;
        let (parts, is_map) = match self.head()? {
            Head::Scalar(value) => return Ok(value),
            Head::Map(pairs) => (2 * pairs, true),
            Head::Array(items) => (items, false),
        };
        if depth >= MAX_DEPTH {
            return Err(Malformed);
        }
        for _ in 0..parts {
            self.value(depth + 1)?;
        }
        let node = PackNode(&start[..start.len() - self.rest.len()]);
        Ok(if is_map {
            Value::Object(node)
        } else {
            Value::Array(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(bytes: &[u8]) -> Result<PackValue<'_>, Malformed> {
        document(bytes)
    }

    #[test]
    fn numbers_are_read_in_all_their_widths() {
        for (bytes, expected) in [
            (&[0x7F][..], 127),
            (&[0xFF], -1),
            (&[0xE0], -32),
            (&[0xCC, 0xFF], 255),
            (&[0xCD, 1, 0], 256),
            (&[0xCE, 0xFF, 0xFF, 0xFF, 0xFF], 0xFFFF_FFFF),
            (&[0xD0, 0x80], -128),
            (&[0xD1, 0xFF, 0xFE], -2),
            (&[0xD2, 0x80, 0, 0, 0], i64::from(i32::MIN)),
            (&[0xD3, 0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN),
        ] {
            assert_eq!(scalar(bytes), Ok(Value::Integer(expected)), "{bytes:x?}");
        }
        assert_eq!(
            scalar(&[0xCF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]),
            Ok(Value::Unsigned(u64::MAX))
        );
        assert_eq!(scalar(&[0xCA, 0x3F, 0xC0, 0, 0]), Ok(Value::Float(1.5)));
    }

    #[test]
    fn instants_come_in_three_lengths() {
        let second = [0xD6, 0xFF, 0x65, 0x53, 0xF1, 0];
        assert_eq!(scalar(&second), Ok(Value::Instant(1_700_000_000_000_000)));
        let bits = ((500_000_000_u64 << 34) + 1_700_000_000).to_be_bytes();
        let half = [&[0xD7, 0xFF][..], &bits].concat();
        assert_eq!(scalar(&half), Ok(Value::Instant(1_700_000_000_500_000)));
        let nanos = 500_000_000_u32.to_be_bytes();
        let before = [&[0xC7, 12, 0xFF][..], &nanos, &(-1_i64).to_be_bytes()].concat();
        assert_eq!(scalar(&before), Ok(Value::Instant(-500_000)));
    }

    #[test]
    fn what_ends_early_or_late_or_lies_too_deep_is_none() {
        let mut keys = [Value::Missing];
        let mut names = SchemaKeys::new(["a"].into_iter());
        for bytes in [
            &[0x81, 0xA1, b'a'][..],
            &[0x81, 0xA1, b'a', 1, 2],
            &[0x81, 0xA1, b'a', 0xC1],
            &[0x81, 0xA1, b'a', 0xA1, 0xFF],
            &[0xDF, 0xFF, 0xFF, 0xFF, 0xFF],
            &[&[0x81, 0xA1, b'a'][..], &[0x91; 200], &[1]].concat(),
        ] {
            let Ok(Value::Object(node)) = document(bytes) else {
                panic!("a map: {bytes:x?}");
            };
            assert_eq!(
                node.fields(&mut names, &mut keys),
                Err(Malformed),
                "{bytes:x?}"
            );
        }
        assert_eq!(scalar(&[0xA5, b'a']), Err(Malformed));
    }
}
