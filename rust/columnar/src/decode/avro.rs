//! Decodes Avro with the schema of the writer, which a number in front of the payload names.
//!
//! A payload is a zero byte, the number of its schema in four bytes, and a record in Avro's binary encoding: the wire
//! format of schema registries. The keys of a document are the names of the record's fields. A map is an array of
//! `key` and `value`, an enumeration its symbol, a union the value of its branch. Of logical types, timestamps are
//! instants (local ones in UTC), dates and decimals texts, which fit columns of their kind; others are what they are
//! made of. Records, arrays and maps are JSON as text.
//!
//! Source: the specification of Avro 1.12, "Binary Encoding", "Logical Types".

mod schema;
mod text;

use std::borrow::Cow;
use std::collections::HashMap;

use super::bytes;
use super::time::format_date;
use super::value::{DocumentNode, Malformed, SchemaKeys, Value};
use super::wire::{MessageFields, utf8};

/// Maximum nesting depth of values.
const MAX_DEPTH: usize = 64;

/// Schemas by number.
#[derive(Debug)]
pub(crate) struct Schemas {
    /// Indexes of the types of the payloads.
    roots: HashMap<u32, usize>,
    types: Vec<Type>,
}

/// A type; numbers are indexes of types.
#[derive(Clone, Debug, PartialEq)]
enum Type {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(u64),
    /// A number of days.
    Date,
    /// A number of units of time since 1970.
    Instant(Unit),
    /// An integer in bytes, with a scale; a length if it is fixed.
    Decimal(u32, Option<u64>),
    Enum(Vec<Box<str>>),
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    Record(Vec<(Box<str>, usize)>),
}

/// The unit of a timestamp: how many units are a microsecond, or how many microseconds a unit is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Millisecond,
    Microsecond,
    Nanosecond,
}

/// The bytes of a record, array, map or entry of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AvroNode<'a> {
    schemas: &'a Schemas,
    part: Part<'a>,
    bytes: &'a [u8],
}

/// The kind of a node.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Record(&'a [(Box<str>, usize)]),
    Array(usize),
    Map(usize),
    Entry(usize),
}

type AvroValue<'a> = Value<'a, AvroNode<'a>>;

impl Schemas {
    /// Opens a document; returns [`Value::Missing`] for an empty payload.
    pub(crate) fn document<'a>(&'a self, payload: &'a [u8]) -> Result<AvroValue<'a>, Malformed> {
        if payload.is_empty() {
            return Ok(Value::Missing);
        }
        let [0, n1, n2, n3, n4, rest @ ..] = payload else {
            return Err(Malformed);
        };
        let number = u32::from_be_bytes([*n1, *n2, *n3, *n4]);
        let mut bytes = rest;
        let mut root = self.roots.get(&number).ok_or(Malformed)?;
        if let Type::Union(branches) = &self.types[*root] {
            root = branch(branches, &mut bytes)?;
        }
        let Type::Record(fields) = &self.types[*root] else {
            return Err(Malformed);
        };
        Ok(Value::Object(self.node(Part::Record(fields), bytes)))
    }

    fn node<'a>(&'a self, part: Part<'a>, bytes: &'a [u8]) -> AvroNode<'a> {
        AvroNode {
            schemas: self,
            part,
            bytes,
        }
    }

    /// Reads a value of type number `place` from the front of `rest`.
    fn value<'a>(
        &'a self,
        place: usize,
        rest: &mut &'a [u8],
        depth: usize,
    ) -> Result<AvroValue<'a>, Malformed> {
        Ok(match &self.types[place] {
            Type::Null => Value::Null,
            Type::Boolean => Value::Boolean(boolean(rest)?),
            Type::Int => Value::Integer(i64::from(int(rest)?)),
            Type::Long => Value::Integer(long(rest)?),
            Type::Float => Value::Float(f64::from(f32::from_le_bytes(chunk(rest)?))),
            Type::Double => Value::Float(f64::from_le_bytes(chunk(rest)?)),
            Type::Bytes => Value::Blob(sized(rest)?.into()),
            Type::Text => Value::Text(utf8(sized(rest)?)?.into()),
            Type::Fixed(len) => Value::Blob(bytes::take(rest, *len)?.into()),
            Type::Date => Value::Text(format_date(int(rest)?).into()),
            Type::Instant(unit) => instant(long(rest)?, *unit),
            Type::Decimal(scale, len) => decimal(digits(*len, rest)?, *scale),
            Type::Enum(symbols) => Value::Text(symbol(symbols, rest)?.into()),
            Type::Union(branches) => {
                let branch = *branch(branches, rest)?;
                self.value(branch, rest, deeper(depth)?)?
            }
            Type::Record(fields) => {
                let bytes = self.skipped(place, rest, depth)?;
                Value::Object(self.node(Part::Record(fields), bytes))
            }
            Type::Array(item) => {
                let bytes = self.skipped(place, rest, depth)?;
                Value::Array(self.node(Part::Array(*item), bytes))
            }
            Type::Map(value) => {
                let bytes = self.skipped(place, rest, depth)?;
                Value::Array(self.node(Part::Map(*value), bytes))
            }
        })
    }

    /// Skips a value and validates it; returns its bytes.
    fn skipped<'a>(
        &'a self,
        place: usize,
        rest: &mut &'a [u8],
        depth: usize,
    ) -> Result<&'a [u8], Malformed> {
        let start = *rest;
        self.skip(place, rest, depth)?;
        Ok(&start[..start.len() - rest.len()])
    }

    fn skip<'a>(
        &'a self,
        place: usize,
        rest: &mut &'a [u8],
        depth: usize,
    ) -> Result<(), Malformed> {
        match &self.types[place] {
            Type::Record(fields) => {
                let depth = deeper(depth)?;
                fields
                    .iter()
                    .try_for_each(|(_, field)| self.skip(*field, rest, depth))
            }
            Type::Array(item) => {
                let depth = deeper(depth)?;
                each(rest, |rest| self.skip(*item, rest, depth))
            }
            Type::Map(value) => {
                let depth = deeper(depth)?;
                each(rest, |rest| {
                    utf8(sized(rest)?)?;
                    self.skip(*value, rest, depth)
                })
            }
            Type::Union(branches) => {
                let branch = *branch(branches, rest)?;
                self.skip(branch, rest, deeper(depth)?)
            }
            Type::Decimal(_, len) => digits(*len, rest).map(|_| ()),
            _ => self.value(place, rest, depth).map(|_| ()),
        }
    }
}

impl<'a> DocumentNode<'a> for AvroNode<'a> {
    fn fields(self, keys: &mut SchemaKeys, slots: &mut [AvroValue<'a>]) -> Result<(), Malformed> {
        let mut likely = 0;
        self.each_field(&mut |name, place, rest| {
            let Some(slot) = keys.find(name, likely) else {
                return self.schemas.skip(place, rest, 1);
            };
            likely = slot + 1;
            slots[slot] = self.schemas.value(place, rest, 1)?;
            Ok(())
        })
    }

    fn items(self, take: &mut dyn FnMut(AvroValue<'a>)) -> Result<(), Malformed> {
        let mut rest = self.bytes;
        match self.part {
            Part::Array(item) => each(&mut rest, |rest| {
                take(self.schemas.value(item, rest, 1)?);
                Ok(())
            })?,
            Part::Map(value) => each(&mut rest, |rest| {
                take(Value::Object(self.entry(value, rest)?));
                Ok(())
            })?,
            Part::Record(_) | Part::Entry(_) => return Err(Malformed),
        }
        bytes::end(rest)
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        self.json().ok().map(Cow::Owned)
    }
}

/// Is called with the name, type number and bytes of a field, and takes its value from the front of the bytes.
type TakeField<'f, 'a> = dyn FnMut(&str, usize, &mut &'a [u8]) -> Result<(), Malformed> + 'f;

impl<'a> AvroNode<'a> {
    /// Calls `take` with each field of a record or entry, in order.
    fn each_field(self, take: &mut TakeField<'_, 'a>) -> Result<(), Malformed> {
        let mut rest = self.bytes;
        match self.part {
            Part::Record(fields) => fields
                .iter()
                .try_for_each(|(name, place)| take(name, *place, &mut rest))?,
            Part::Entry(value) => {
                take("key", schema::TEXT, &mut rest)?;
                take("value", value, &mut rest)?;
            }
            Part::Array(_) | Part::Map(_) => return Err(Malformed),
        }
        bytes::end(rest)
    }

    /// Takes an entry of a map whose values have type number `value`.
    fn entry(self, value: usize, rest: &mut &'a [u8]) -> Result<Self, Malformed> {
        let start = *rest;
        utf8(sized(rest)?)?;
        self.schemas.skip(value, rest, 1)?;
        let bytes = &start[..start.len() - rest.len()];
        Ok(self.schemas.node(Part::Entry(value), bytes))
    }
}

/// Calls `item` for each item of the blocks of an array or map. Each item has to take bytes, so that a small payload
/// with a large count ends soon.
fn each<'a>(
    rest: &mut &'a [u8],
    mut item: impl FnMut(&mut &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    loop {
        let count = long(rest)?;
        if count == 0 {
            return Ok(());
        }
        if count < 0 && long(rest)? < 0 {
            return Err(Malformed);
        }
        for _ in 0..count.unsigned_abs() {
            let before = rest.len();
            item(rest)?;
            if rest.len() == before {
                return Err(Malformed);
            }
        }
    }
}

fn deeper(depth: usize) -> Result<usize, Malformed> {
    (depth < MAX_DEPTH).then_some(depth + 1).ok_or(Malformed)
}

fn branch<'s>(branches: &'s [usize], rest: &mut &[u8]) -> Result<&'s usize, Malformed> {
    let number = usize::try_from(long(rest)?).map_err(|_| Malformed)?;
    branches.get(number).ok_or(Malformed)
}

/// Reads the name of a value of an enumeration.
fn symbol<'s>(symbols: &'s [Box<str>], rest: &mut &[u8]) -> Result<&'s str, Malformed> {
    let number = usize::try_from(int(rest)?).map_err(|_| Malformed)?;
    symbols.get(number).map(|symbol| &**symbol).ok_or(Malformed)
}

fn boolean(rest: &mut &[u8]) -> Result<bool, Malformed> {
    match bytes::take(rest, 1)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Malformed),
    }
}

/// Reads the integer of a decimal, which stands behind its length unless that is fixed.
fn digits<'a>(len: Option<u64>, rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    match len {
        Some(len) => bytes::take(rest, len),
        None => sized(rest),
    }
}

/// Reads a number in zigzag encoding.
fn long(rest: &mut &[u8]) -> Result<i64, Malformed> {
    let mut cursor = MessageFields(rest);
    let bits = cursor.varint()?;
    *rest = cursor.0;
    Ok((bits >> 1).cast_signed() ^ -((bits & 1).cast_signed()))
}

fn int(rest: &mut &[u8]) -> Result<i32, Malformed> {
    i32::try_from(long(rest)?).map_err(|_| Malformed)
}

fn chunk<const LEN: usize>(rest: &mut &[u8]) -> Result<[u8; LEN], Malformed> {
    let (chunk, left) = rest.split_first_chunk().ok_or(Malformed)?;
    *rest = left;
    Ok(*chunk)
}

/// Reads bytes behind their length.
fn sized<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = u64::try_from(long(rest)?).map_err(|_| Malformed)?;
    bytes::take(rest, len)
}

/// A number of units as an instant; as the number itself if microseconds cannot express it.
fn instant<'a>(count: i64, unit: Unit) -> AvroValue<'a> {
    let micros = match unit {
        Unit::Millisecond => count.checked_mul(1_000),
        Unit::Microsecond => Some(count),
        Unit::Nanosecond => Some(count.div_euclid(1_000)),
    };
    micros.map_or(Value::Integer(count), Value::Instant)
}

/// An integer in two's complement with a scale, as text; as bytes if it has more than 16 of them.
fn decimal(digits: &[u8], scale: u32) -> AvroValue<'_> {
    let Some(fill) = 16_usize.checked_sub(digits.len()) else {
        return Value::Blob(digits.into());
    };
    let is_negative = digits.first().is_some_and(|first| *first >= 0x80);
    let mut whole = [if is_negative { 0xFF } else { 0 }; 16];
    whole[fill..].copy_from_slice(digits);
    let number = i128::from_be_bytes(whole);
    let sign = if number < 0 { "-" } else { "" };
    let scale = scale as usize;
    let digits = format!("{:0>1$}", number.unsigned_abs(), scale + 1);
    let (integer, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale == 0 { "" } else { "." };
    Value::Text(format!("{sign}{integer}{point}{fraction}").into())
}
