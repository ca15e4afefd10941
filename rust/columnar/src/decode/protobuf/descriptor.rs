//! Reads descriptors of Protocol Buffers: the types that a `FileDescriptorSet` declares.

use std::collections::HashMap;

use super::{DOUBLE, ENUM, Field, Kind, MESSAGE, MessageType, SINT64, Shape, Types};
use crate::decode::value::Malformed;
use crate::decode::wire::{MessageFields, Wire, utf8};

/// `FieldDescriptorProto.Label` of a repeated field.
const REPEATED: u64 = 3;

impl Types {
    /// Reads a descriptor; `message` is the full name of the payload's message type.
    ///
    /// # Errors
    ///
    /// A description of the error.
    pub(crate) fn read(descriptor: &[u8], message: &str) -> Result<Self, String> {
        let malformed = |Malformed| "it is not a FileDescriptorSet".to_owned();
        let files = Raw::all(descriptor, 1).map_err(malformed)?;
        let mut declared = Declared::default();
        for file in files {
            declared.file(file).map_err(malformed)?;
        }
        let wanted = message.trim_start_matches('.');
        let root = declared.messages.get(wanted).copied();
        let root = root.ok_or_else(|| {
            let mut names: Vec<&str> = declared.messages.keys().map(String::as_str).collect();
            names.sort_unstable();
            names.truncate(20);
            format!("it has no message {wanted:?}, only {}", names.join(", "))
        })?;
        declared.resolve(root)
    }
}

/// Reads messages of `descriptor.proto`.
struct Raw;

impl Raw {
    /// All values of a field that is a message or a text.
    fn all(message: &[u8], wanted: u32) -> Result<Vec<&[u8]>, Malformed> {
        let mut found = Vec::new();
        for field in MessageFields(message) {
            if let (number, Wire::Bytes(bytes)) = field?
                && number == wanted
            {
                found.push(bytes);
            }
        }
        Ok(found)
    }

    fn text(message: &[u8], wanted: u32) -> Result<&str, Malformed> {
        let last = Self::all(message, wanted)?.pop();
        last.map_or(Ok(""), utf8)
    }

    fn number(message: &[u8], wanted: u32) -> Result<Option<u64>, Malformed> {
        let mut found = None;
        for field in MessageFields(message) {
            if let (number, Wire::Varint(bits)) = field?
                && number == wanted
            {
                found = Some(bits);
            }
        }
        Ok(found)
    }
}

/// The declarations of all files of a descriptor, by full name.
#[derive(Default)]
struct Declared<'d> {
    messages: HashMap<String, usize>,
    bodies: Vec<(String, &'d [u8], bool)>,
    enumerations: HashMap<String, usize>,
    values: Vec<HashMap<i64, Box<str>>>,
}

impl<'d> Declared<'d> {
    fn file(&mut self, file: &'d [u8]) -> Result<(), Malformed> {
        let package = Raw::text(file, 2)?;
        let is_proto3 = Raw::text(file, 12)? == "proto3";
        for message in Raw::all(file, 4)? {
            self.message(package, message, is_proto3)?;
        }
        Raw::all(file, 5)?
            .into_iter()
            .try_for_each(|enumeration| self.enumeration(package, enumeration))
    }

    fn message(&mut self, scope: &str, body: &'d [u8], is_proto3: bool) -> Result<(), Malformed> {
        // No compiler writes a descriptor with deeper nesting than message decoders accept.
        if scope.split('.').count() > 100 {
            return Err(Malformed);
        }
        let name = joined(scope, Raw::text(body, 1)?);
        self.messages.insert(name.clone(), self.bodies.len());
        self.bodies.push((name.clone(), body, is_proto3));
        for nested in Raw::all(body, 3)? {
            self.message(&name, nested, is_proto3)?;
        }
        Raw::all(body, 4)?
            .into_iter()
            .try_for_each(|enumeration| self.enumeration(&name, enumeration))
    }

    fn enumeration(&mut self, scope: &str, body: &'d [u8]) -> Result<(), Malformed> {
        let mut names = HashMap::new();
        for value in Raw::all(body, 2)? {
            let number = Raw::number(value, 2)?.unwrap_or(0).cast_signed();
            // Of several names of a number, the first one counts.
            names
                .entry(number)
                .or_insert_with(|| Raw::text(value, 1).unwrap_or("").into());
        }
        let name = joined(scope, Raw::text(body, 1)?);
        self.enumerations.insert(name, self.values.len());
        self.values.push(names);
        Ok(())
    }

    fn resolve(self, root: usize) -> Result<Types, String> {
        let mut messages = Vec::with_capacity(self.bodies.len());
        for (name, body, is_proto3) in &self.bodies {
            let fields = Raw::all(body, 2).map_err(|Malformed| format!("message {name}"))?;
            let fields = fields
                .into_iter()
                .map(|field| self.field(field, *is_proto3));
            let mut fields: Vec<Field> = fields
                .collect::<Result<_, _>>()
                .map_err(|problem| format!("message {name}: {problem}"))?;
            fields.sort_by_key(|field| field.number);
            messages.push(MessageType {
                shape: shape(name),
                fields,
            });
        }
        Ok(Types {
            messages,
            enumerations: self.values,
            root,
        })
    }

    fn field(&self, field: &[u8], is_proto3: bool) -> Result<Field, String> {
        let bad = |Malformed| "a field cannot be read".to_owned();
        let number = Raw::number(field, 3).map_err(bad)?.unwrap_or(0);
        let name = Raw::text(field, 1).map_err(bad)?;
        let is_repeated = Raw::number(field, 4).map_err(bad)? == Some(REPEATED);
        let is_told_apart = Raw::number(field, 9).map_err(bad)?.is_some();
        let type_name = Raw::text(field, 6).map_err(bad)?.trim_start_matches('.');
        let declared = |among: &HashMap<String, usize>| {
            let missing =
                || format!("{name}: {type_name} is missing; protoc has --include_imports");
            among.get(type_name).copied().ok_or_else(missing)
        };
        let kind = match Raw::number(field, 5).map_err(bad)?.unwrap_or(0) {
            MESSAGE => Kind::Message(declared(&self.messages)?),
            ENUM => Kind::Enumeration(declared(&self.enumerations)?),
            kind @ DOUBLE..=SINT64 if kind != 10 => Kind::Scalar(kind),
            kind => return Err(format!("{name}: type {kind} is not supported")),
        };
        Ok(Field {
            number: u32::try_from(number)
                .map_err(|_| format!("{name}: field number {number} is out of range"))?,
            name: name.into(),
            kind,
            is_repeated,
            has_default: is_proto3
                && !is_repeated
                && !is_told_apart
                && !matches!(kind, Kind::Message(_)),
        })
    }
}

fn joined(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{scope}.{name}")
    }
}

fn shape(name: &str) -> Shape {
    let Some(name) = name.strip_prefix("google.protobuf.") else {
        return Shape::Object;
    };
    match name {
        "Timestamp" => Shape::Timestamp,
        "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value"
        | "UInt32Value" | "BoolValue" | "StringValue" | "BytesValue" => Shape::Wrapper,
        _ => Shape::Object,
    }
}
