//! Decodes CBOR (RFC 8949) without building a tree.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::bytes;
use super::value::{DocumentNode, Malformed, SchemaKeys, Value};

/// Maximum nesting depth of arrays, maps and tags.
const MAX_DEPTH: usize = 128;

/// The bytes of a map or array. Those of the document are validated while they are walked through; this validates
/// nested ones before they are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CborNode<'a>(&'a [u8]);

/// First bytes of maps and of tagged maps. No JSON document begins with one of these.
pub(crate) const BEGINS: RangeInclusive<u8> = 0xA0..=0xDB;

type CborValue<'a> = Value<'a, CborNode<'a>>;

/// Opens a document; returns [`Value::Missing`] for an empty payload.
pub(crate) fn document(payload: &[u8]) -> Result<CborValue<'_>, Malformed> {
    let mut cursor = CborCursor { rest: payload };
    loop {
        return match cursor.rest.first().map(|byte| byte >> 5) {
            None if payload.is_empty() => Ok(Value::Missing),
            Some(MAP) => Ok(Value::Object(CborNode(cursor.rest))),
            Some(ARRAY) => Ok(Value::Array(CborNode(cursor.rest))),
            Some(TAG) => {
                cursor.head()?;
                continue;
            }
            _ => {
                let value = cursor.value(1)?;
                cursor.end_of_input()?;
                Ok(value)
            }
        };
    }
}

impl<'a> DocumentNode<'a> for CborNode<'a> {
    fn fields(self, keys: &mut SchemaKeys, slots: &mut [CborValue<'a>]) -> Result<(), Malformed> {
        let mut cursor = CborCursor { rest: self.0 };
        let mut items = cursor.open(MAP)?;
        let mut likely = 0;
        while cursor.goes_on(&mut items)? {
            let place = match cursor.value(1)? {
                Value::Text(key) => keys.find(&key, likely),
                Value::Integer(key) => keys.find(&key.to_string(), likely),
                _ => None,
            };
            match place {
                Some(place) => {
                    slots[place] = cursor.value(1)?;
                    likely = place + 1;
                }
                None => cursor.skip(1)?,
            }
        }
        cursor.end_of_input()
    }

    fn items(self, take: &mut dyn FnMut(CborValue<'a>)) -> Result<(), Malformed> {
        let mut cursor = CborCursor { rest: self.0 };
        let mut items = cursor.open(ARRAY)?;
        while cursor.goes_on(&mut items)? {
            take(cursor.value(1)?);
        }
        cursor.end_of_input()
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        None
    }
}

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const INDEFINITE: u8 = 31;
const BREAK: u8 = 0xFF;
/// Tag of an epoch-based date: a number of seconds since 1970.
const EPOCH: u64 = 1;

/// The first byte of an item and the number that follows it.
struct Head {
    major: u8,
    minor: u8,
    number: u64,
}

/// The unread bytes.
struct CborCursor<'a> {
    rest: &'a [u8],
}

impl<'a> CborCursor<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        bytes::take(&mut self.rest, len)
    }

    fn end_of_input(&self) -> Result<(), Malformed> {
        bytes::end(self.rest)
    }

    fn head(&mut self) -> Result<Head, Malformed> {
        let first = self.take(1)?[0];
        let minor = first & 0x1F;
        let number = match minor {
            0..=23 => u64::from(minor),
            24..=27 => bytes::take_unsigned(&mut self.rest, 1 << (minor - 24))?,
            INDEFINITE => 0,
            _ => return Err(Malformed),
        };
        let major = first >> 5;
        if minor == INDEFINITE && matches!(major, UNSIGNED | NEGATIVE | TAG) {
            return Err(Malformed);
        }
        Ok(Head {
            major,
            minor,
            number,
        })
    }

    /// Begins an array or map; returns its number of items or pairs if the length is definite.
    fn open(&mut self, major: u8) -> Result<Option<u64>, Malformed> {
        let head = self.head()?;
        if head.major != major {
            return Err(Malformed);
        }
        Ok((head.minor != INDEFINITE).then_some(head.number))
    }

    /// Whether another item follows.
    fn goes_on(&mut self, items: &mut Option<u64>) -> Result<bool, Malformed> {
        match items {
            Some(0) => Ok(false),
            Some(items) => {
                *items -= 1;
                Ok(true)
            }
            None if self.rest.first() == Some(&BREAK) => {
                self.take(1)?;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn value(&mut self, depth: usize) -> Result<CborValue<'a>, Malformed> {
        let start = self.rest;
        let head = self.head()?;
        Ok(match head.major {
            UNSIGNED => match i64::try_from(head.number) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Unsigned(head.number),
            },
            NEGATIVE => match i64::try_from(head.number) {
                Ok(number) => Value::Integer(-1 - number),
                #[expect(clippy::cast_precision_loss, reason = "no integer column holds it")]
                Err(_) => Value::Float(-1.0 - head.number as f64),
            },
            BYTES => Value::Blob(self.string(&head)?),
            TEXT => Value::Text(match self.string(&head)? {
                Cow::Borrowed(bytes) => str::from_utf8(bytes).map_err(|_| Malformed)?.into(),
                Cow::Owned(bytes) => String::from_utf8(bytes).map_err(|_| Malformed)?.into(),
            }),
            ARRAY | MAP => {
                self.rest = start;
                self.skip(depth)?;
                let node = CborNode(&start[..start.len() - self.rest.len()]);
                if head.major == MAP {
                    Value::Object(node)
                } else {
                    Value::Array(node)
                }
            }
            TAG if depth < MAX_DEPTH => tagged(head.number, self.value(depth + 1)?),
            TAG => return Err(Malformed),
            _ => simple(&head)?,
        })
    }

    /// Reads bytes or text, with definite or indefinite length.
    fn string(&mut self, head: &Head) -> Result<Cow<'a, [u8]>, Malformed> {
        if head.minor != INDEFINITE {
            return Ok(Cow::Borrowed(self.take(head.number)?));
        }
        let mut whole = Vec::new();
        while self.goes_on(&mut None)? {
            let piece = self.head()?;
            if piece.major != head.major || piece.minor == INDEFINITE {
                return Err(Malformed);
            }
            whole.extend_from_slice(self.take(piece.number)?);
        }
        Ok(Cow::Owned(whole))
    }

    /// Skips a value and validates it.
    fn skip(&mut self, depth: usize) -> Result<(), Malformed> {
        let start = self.rest;
        let head = self.head()?;
        let pairs = match head.major {
            ARRAY => 1,
            MAP => 2,
            _ => {
                self.rest = start;
                return self.value(depth).map(|_| ());
            }
        };
        if depth >= MAX_DEPTH {
            return Err(Malformed);
        }
        let mut items = (head.minor != INDEFINITE).then_some(head.number);
        while self.goes_on(&mut items)? {
            for _ in 0..pairs {
                self.skip(depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Converts a number with the tag [`EPOCH`] to an instant; ignores other tags.
fn tagged(tag: u64, value: CborValue<'_>) -> CborValue<'_> {
    match value {
        Value::Integer(seconds) if tag == EPOCH => match seconds.checked_mul(1_000_000) {
            Some(instant) => Value::Instant(instant),
            None => value,
        },
        value => value,
    }
}

fn simple<'a>(head: &Head) -> Result<CborValue<'a>, Malformed> {
    let bits = head.number;
    Ok(match head.minor {
        20 => Value::Boolean(false),
        21 => Value::Boolean(true),
        25 => Value::Float(half(u16::try_from(bits).map_err(|_| Malformed)?)),
        26 => Value::Float(f64::from(f32::from_bits(
            u32::try_from(bits).map_err(|_| Malformed)?,
        ))),
        27 => Value::Float(f64::from_bits(bits)),
        INDEFINITE => return Err(Malformed),
        _ => Value::Null,
    })
}

/// A float of 16 bits (IEEE 754 binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1F), f64::from(bits & 0x3FF));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 8949, appendix A.
    #[test]
    fn scalars_are_those_of_the_standard() {
        for (bytes, expected) in [
            (&[0x00][..], Value::Integer(0)),
            (&[0x17], Value::Integer(23)),
            (&[0x18, 0x64], Value::Integer(100)),
            (&[0x1A, 0, 0x0F, 0x42, 0x40], Value::Integer(1_000_000)),
            (
                &[0x1B, 255, 255, 255, 255, 255, 255, 255, 255],
                Value::Unsigned(u64::MAX),
            ),
            (&[0x20], Value::Integer(-1)),
            (&[0x39, 0x03, 0xE7], Value::Integer(-1000)),
            (&[0xF9, 0x80, 0x00], Value::Float(-0.0)),
            (&[0xF9, 0x3C, 0x00], Value::Float(1.0)),
            (&[0xF9, 0x7B, 0xFF], Value::Float(65504.0)),
            (&[0xF9, 0x00, 0x01], Value::Float(5.960_464_477_539_063e-8)),
            (&[0xF9, 0x04, 0x00], Value::Float(0.000_061_035_156_25)),
            (&[0xF9, 0xC4, 0x00], Value::Float(-4.0)),
            (&[0xF9, 0xFC, 0x00], Value::Float(f64::NEG_INFINITY)),
            (&[0xFA, 0x47, 0xC3, 0x50, 0x00], Value::Float(100_000.0)),
            (
                &[0xFB, 0x3F, 0xF1, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9A],
                Value::Float(1.1),
            ),
            (&[0xF4], Value::Boolean(false)),
            (&[0xF5], Value::Boolean(true)),
            (&[0xF6], Value::Null),
            (&[0xF7], Value::Null),
            (
                &[0xC1, 0x1A, 0x51, 0x4B, 0x67, 0xB0],
                Value::Instant(1_363_896_240_000_000),
            ),
            (
                &[0x44, 1, 2, 3, 4],
                Value::Blob(Cow::Borrowed(&[1, 2, 3, 4])),
            ),
            (&[0x62, 0xC3, 0xBC], Value::Text("ü".into())),
            (
                &[0x5F, 0x42, 1, 2, 0x43, 3, 4, 5, 0xFF],
                Value::Blob(Cow::Borrowed(&[1, 2, 3, 4, 5])),
            ),
            (
                &[0x7F, 0x61, b'a', 0x61, b'b', 0xFF],
                Value::Text("ab".into()),
            ),
        ] {
            // `document` skips a leading tag, `value` interprets it.
            if bytes[0] >> 5 != TAG {
                assert_eq!(document(bytes), Ok(expected.clone()), "{bytes:x?}");
            }
            let mut cursor = CborCursor { rest: bytes };
            assert_eq!(cursor.value(1), Ok(expected), "{bytes:x?}");
        }
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for bytes in [
            &[0x18][..],
            &[0x1C],
            &[0x1F],
            &[0x61],
            &[0x61, 0xFF],
            &[0x5F, 0x61, b'a', 0xFF],
            &[0x5F, 0x5F, 0xFF, 0xFF],
            &[0xFF],
            &[0xC1],
            &[0x00, 0x00],
            &[0x5B, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert_eq!(document(bytes), Err(Malformed), "{bytes:x?}");
        }
        let mut keys = SchemaKeys::new(["a"].into_iter());
        for bytes in [
            &[0xA1][..],
            &[0xA1, 0x61, b'a'],
            &[0xA1, 0x61, b'b', 0x81],
            &[0xBF, 0x61, b'a', 0x00],
            &[0xA0, 0x00],
            &[
                0xBB, 255, 255, 255, 255, 255, 255, 255, 255, 0x61, b'a', 0x00,
            ],
        ] {
            let mut slots = [Value::Missing];
            assert_eq!(
                CborNode(bytes).fields(&mut keys, &mut slots),
                Err(Malformed),
                "{bytes:x?}"
            );
        }
        let deep = [vec![0x81; 1_000_000], vec![0x00]].concat();
        assert_eq!(CborCursor { rest: &deep }.value(1), Err(Malformed));
        let deep = [vec![0xC2; 1_000_000], vec![0x00]].concat();
        assert_eq!(CborCursor { rest: &deep }.value(1), Err(Malformed));
    }

    #[test]
    fn keys_are_texts_or_numbers_and_the_last_counts() {
        let mut keys = SchemaKeys::new(["a", "-2", "b"].into_iter());
        let mut slots = [Value::Missing, Value::Missing, Value::Missing];
        let map = [
            0xBF, 0x61, b'a', 0x01, 0x21, 0x02, 0xF6, 0x03, 0x61, b'x', 0x82, 0x00, 0xA0, 0x61,
            b'a', 0x04, 0xFF,
        ];

        assert_eq!(CborNode(&map).fields(&mut keys, &mut slots), Ok(()));
        assert_eq!(
            slots,
            [Value::Integer(4), Value::Integer(2), Value::Missing]
        );
    }
}
