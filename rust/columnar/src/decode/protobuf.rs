//! Decodes Protocol Buffers with the descriptor of a message type.
//!
//! A descriptor is a `FileDescriptorSet`, as `protoc --include_imports --descriptor_set_out=FILE` writes it. The keys
//! of a document are the names of the fields. A repeated field is an array, a map an array of `key` and `value`, an
//! enumeration the name of its value, `google.protobuf.Timestamp` an instant, and a wrapper the value of its field. A
//! missing field is null; a missing proto3 field without presence has its default.
//!
//! Source: descriptor.proto, and "Encoding" and "Field presence" of the documentation of Protocol Buffers.

mod descriptor;

use std::borrow::Cow;
use std::collections::HashMap;

use super::value::{DocumentNode, Malformed, SchemaKeys, Value};
use super::wire::{MessageFields, Wire, low_half, utf8};

/// The message types of a descriptor.
#[derive(Debug)]
pub(crate) struct Types {
    messages: Vec<MessageType>,
    enumerations: Vec<HashMap<i64, Box<str>>>,
    /// Index of the payload's message type.
    root: usize,
}

#[derive(Debug)]
struct MessageType {
    fields: Vec<Field>,
    shape: Shape,
}

/// How values of a message type are decoded.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Object,
    Timestamp,
    /// As the value of its only field.
    Wrapper,
}

#[derive(Debug)]
struct Field {
    number: u32,
    name: Box<str>,
    kind: Kind,
    is_repeated: bool,
    /// The field is not encoded if it has its default value.
    has_default: bool,
}

/// The type of a field; the numbers are those of `FieldDescriptorProto.Type`.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Scalar(u64),
    Enumeration(usize),
    Message(usize),
}

/// Numbers of `FieldDescriptorProto.Type`.
const DOUBLE: u64 = 1;
const FLOAT: u64 = 2;
const INT64: u64 = 3;
const UINT64: u64 = 4;
const INT32: u64 = 5;
const FIXED64: u64 = 6;
const FIXED32: u64 = 7;
const BOOL: u64 = 8;
const STRING: u64 = 9;
const MESSAGE: u64 = 11;
const BYTES: u64 = 12;
const UINT32: u64 = 13;
const ENUM: u64 = 14;
const SFIXED32: u64 = 15;
const SFIXED64: u64 = 16;
const SINT32: u64 = 17;
const SINT64: u64 = 18;

impl Types {
    /// Opens a document; returns [`Value::Missing`] for an empty payload.
    pub(crate) fn document<'a>(&'a self, payload: &'a [u8]) -> ProtobufValue<'a> {
        Value::Object(ProtobufNode {
            types: self,
            message: &self.messages[self.root],
            bytes: payload,
            array: None,
        })
    }

    /// Decodes a scalar, or opens a message.
    fn value<'a>(&'a self, kind: Kind, wire: Wire<'a>) -> Result<ProtobufValue<'a>, Malformed> {
        match (kind, wire) {
            (Kind::Scalar(kind), wire) => scalar(kind, wire),
            (Kind::Enumeration(place), Wire::Varint(bits)) => {
                let number = i64::from(low_half(bits).cast_signed());
                let name = self.enumerations[place].get(&number);
                Ok(name.map_or(Value::Integer(number), |name| Value::Text((&**name).into())))
            }
            (Kind::Message(place), Wire::Bytes(bytes)) => {
                let message = &self.messages[place];
                match message.shape {
                    Shape::Timestamp => instant(bytes),
                    Shape::Wrapper => self.unwrapped(message, bytes),
                    Shape::Object => Ok(Value::Object(ProtobufNode {
                        types: self,
                        message,
                        bytes,
                        array: None,
                    })),
                }
            }
            _ => Err(Malformed),
        }
    }

    fn unwrapped<'a>(
        &'a self,
        message: &'a MessageType,
        bytes: &'a [u8],
    ) -> Result<ProtobufValue<'a>, Malformed> {
        let Some(field) = message.fields.first() else {
            return Err(Malformed);
        };
        let mut value = self.default(field.kind);
        for found in MessageFields(bytes) {
            let (number, wire) = found?;
            if number == field.number {
                value = self.value(field.kind, wire)?;
            }
        }
        Ok(value)
    }

    /// The value of a field that is not encoded.
    fn default(&self, kind: Kind) -> ProtobufValue<'_> {
        match kind {
            Kind::Scalar(DOUBLE | FLOAT) => Value::Float(0.0),
            Kind::Scalar(BOOL) => Value::Boolean(false),
            Kind::Scalar(STRING) => Value::Text("".into()),
            Kind::Scalar(BYTES) => Value::Blob((&[]).into()),
            Kind::Scalar(_) => Value::Integer(0),
            Kind::Enumeration(place) => {
                let name = self.enumerations[place].get(&0);
                name.map_or(Value::Integer(0), |name| Value::Text((&**name).into()))
            }
            Kind::Message(_) => Value::Null,
        }
    }
}

/// A message, or one of its repeated fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtobufNode<'a> {
    types: &'a Types,
    message: &'a MessageType,
    bytes: &'a [u8],
    /// If this is an array: the repeated field.
    array: Option<&'a Field>,
}

type ProtobufValue<'a> = Value<'a, ProtobufNode<'a>>;

impl<'a> DocumentNode<'a> for ProtobufNode<'a> {
    fn fields(
        self,
        keys: &mut SchemaKeys,
        slots: &mut [ProtobufValue<'a>],
    ) -> Result<(), Malformed> {
        if self.array.is_some() {
            return Err(Malformed);
        }
        let mut likely = 0;
        for field in self.message.fields.iter().filter(|field| field.has_default) {
            if let Some(place) = keys.find(&field.name, likely) {
                slots[place] = self.types.default(field.kind);
                likely = place + 1;
            }
        }
        likely = 0;
        for found in MessageFields(self.bytes) {
            let (number, wire) = found?;
            let Some(field) = self.message.field(number) else {
                continue;
            };
            let Some(place) = keys.find(&field.name, likely) else {
                continue;
            };
            likely = place + 1;
            slots[place] = if field.is_repeated {
                let array = Some(field);
                Value::Array(Self { array, ..self })
            } else {
                self.types.value(field.kind, wire)?
            };
        }
        Ok(())
    }

    fn items(self, take: &mut dyn FnMut(ProtobufValue<'a>)) -> Result<(), Malformed> {
        let Some(field) = self.array else {
            return Err(Malformed);
        };
        for found in MessageFields(self.bytes) {
            let (number, wire) = found?;
            if number != field.number {
                continue;
            }
            match (field.kind, wire) {
                (Kind::Scalar(STRING | BYTES) | Kind::Message(_), wire) => {
                    take(self.types.value(field.kind, wire)?);
                }
                (kind, Wire::Bytes(packed)) => {
                    let mut packed = MessageFields(packed);
                    while !packed.0.is_empty() {
                        let wire = unpacked(kind, &mut packed)?;
                        take(self.types.value(kind, wire)?);
                    }
                }
                (kind, wire) => take(self.types.value(kind, wire)?),
            }
        }
        Ok(())
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        None
    }
}

impl MessageType {
    fn field(&self, number: u32) -> Option<&Field> {
        // Most message types number their fields consecutively from 1.
        let likely = self.fields.get((number as usize).wrapping_sub(1));
        likely
            .filter(|field| field.number == number)
            .or_else(|| self.fields.iter().find(|field| field.number == number))
    }
}

/// Reads the next value of a packed field.
fn unpacked<'a>(kind: Kind, packed: &mut MessageFields<'a>) -> Result<Wire<'a>, Malformed> {
    Ok(match kind {
        Kind::Scalar(DOUBLE | FIXED64 | SFIXED64) => {
            Wire::Fixed64(u64::from_le_bytes(packed.chunk()?))
        }
        Kind::Scalar(FLOAT | FIXED32 | SFIXED32) => {
            Wire::Fixed32(u32::from_le_bytes(packed.chunk()?))
        }
        _ => Wire::Varint(packed.varint()?),
    })
}

fn scalar(kind: u64, wire: Wire<'_>) -> Result<ProtobufValue<'_>, Malformed> {
    Ok(match (kind, wire) {
        (DOUBLE, Wire::Fixed64(bits)) => Value::Float(f64::from_bits(bits)),
        (FLOAT, Wire::Fixed32(bits)) => Value::Float(f64::from(f32::from_bits(bits))),
        (INT64, Wire::Varint(bits)) | (SFIXED64, Wire::Fixed64(bits)) => {
            Value::Integer(bits.cast_signed())
        }
        (INT32, Wire::Varint(bits)) => Value::Integer(i64::from(low_half(bits).cast_signed())),
        (UINT64, Wire::Varint(bits)) | (FIXED64, Wire::Fixed64(bits)) => {
            i64::try_from(bits).map_or(Value::Unsigned(bits), Value::Integer)
        }
        (UINT32, Wire::Varint(bits)) => Value::Integer(i64::from(low_half(bits))),
        (FIXED32, Wire::Fixed32(bits)) => Value::Integer(i64::from(bits)),
        (SFIXED32, Wire::Fixed32(bits)) => Value::Integer(i64::from(bits.cast_signed())),
        (SINT32 | SINT64, Wire::Varint(bits)) => {
            Value::Integer((bits >> 1).cast_signed() ^ -((bits & 1).cast_signed()))
        }
        (BOOL, Wire::Varint(bits)) => Value::Boolean(bits != 0),
        (STRING, Wire::Bytes(bytes)) => Value::Text(utf8(bytes)?.into()),
        (BYTES, Wire::Bytes(bytes)) => Value::Blob(bytes.into()),
        _ => return Err(Malformed),
    })
}

/// `google.protobuf.Timestamp`: seconds and nanoseconds since 1970.
fn instant<'a>(bytes: &[u8]) -> Result<ProtobufValue<'a>, Malformed> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    for field in MessageFields(bytes) {
        match field? {
            (1, Wire::Varint(bits)) => seconds = bits.cast_signed(),
            (2, Wire::Varint(bits)) => nanos = i64::from(low_half(bits).cast_signed()),
            _ => {}
        }
    }
    let micros = seconds.checked_mul(1_000_000);
    let micros = micros.and_then(|micros| micros.checked_add(nanos / 1_000));
    micros.map(Value::Instant).ok_or(Malformed)
}
