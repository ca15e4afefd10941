//! Converts decoded values and appends them to typed columns.
//!
//! A value fits a type by the rules of Spark's `from_json` in PERMISSIVE mode; the table is at
//! [`Decoder`](super::Decoder).

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    NullBufferBuilder, PrimitiveBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Fields, TimeUnit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use smallvec::{SmallVec, smallvec};

use super::decimal::parse_decimal;
use super::time::{parse_date, parse_instant};
use super::value::{DocumentNode, Malformed, SchemaKeys, Value};
use crate::schema::UTC;

/// A column builder.
#[derive(Debug)]
pub(crate) enum ColumnBuilder {
    Boolean(BooleanBuilder),
    Int8(PrimitiveBuilder<Int8Type>),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Decimal(Decimal128Builder, u8, i8),
    Text(StringBuilder),
    Blob(BinaryBuilder),
    Instant(TimestampMicrosecondBuilder),
    Date(Date32Builder),
    Struct(StructColumn),
    List(Box<ListColumn>),
}

/// A struct builder: one column for each field.
#[derive(Debug)]
pub(crate) struct StructColumn {
    fields: Fields,
    keys: SchemaKeys,
    columns: Vec<ColumnBuilder>,
    valid: NullBufferBuilder,
}

#[derive(Debug)]
pub(crate) struct ListColumn {
    item: FieldRef,
    items: ColumnBuilder,
    ends: Vec<i32>,
    valid: NullBufferBuilder,
}

/// Initial capacity of a column in rows.
const ROWS: usize = 1024;

impl ColumnBuilder {
    /// Creates a column; `None` for a type that payloads cannot be decoded to.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int8 => Self::Int8(PrimitiveBuilder::new()),
            DataType::Int16 => Self::Int16(PrimitiveBuilder::new()),
            DataType::Int32 => Self::Int32(PrimitiveBuilder::new()),
            DataType::Int64 => Self::Int64(PrimitiveBuilder::new()),
            DataType::Float32 => Self::Float32(PrimitiveBuilder::new()),
            DataType::Float64 => Self::Float64(PrimitiveBuilder::new()),
            DataType::Decimal128(precision, scale) => {
                let builder = Decimal128Builder::new().with_data_type(data_type.clone());
                Self::Decimal(builder, *precision, *scale)
            }
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Binary => Self::Blob(BinaryBuilder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if **zone == *UTC => {
                Self::Instant(TimestampMicrosecondBuilder::new().with_timezone(UTC))
            }
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Struct(fields) => Self::Struct(StructColumn::of(fields)?),
            DataType::List(item) => Self::List(Box::new(ListColumn {
                items: Self::of(item.data_type())?,
                item: item.clone(),
                ends: vec![0],
                valid: NullBufferBuilder::new(ROWS),
            })),
            _ => return None,
        })
    }

    /// Appends a value, or null if it does not fit; returns whether it fits.
    pub(crate) fn append<'a, N: DocumentNode<'a>>(&mut self, value: Value<'a, N>) -> bool {
        if let Value::Missing | Value::Null = value {
            self.append_null();
            return true;
        }
        match self {
            Self::Boolean(column) => fits(boolean(&value), |value| column.append_option(value)),
            Self::Int8(column) => append(column, integer(&value)),
            Self::Int16(column) => append(column, integer(&value)),
            Self::Int32(column) => append(column, integer(&value)),
            Self::Int64(column) => append(column, integer(&value)),
            Self::Float32(column) => append(column, float(&value, f32_of)),
            Self::Float64(column) => append(column, float(&value, |float| float)),
            Self::Decimal(column, precision, scale) => {
                append(column, decimal(&value, *precision, *scale))
            }
            Self::Text(column) => fits(text(value), |text| column.append_option(text.as_deref())),
            Self::Blob(column) => fits(blob(value), |blob| column.append_option(blob.as_deref())),
            Self::Instant(column) => append(column, instant(&value)),
            Self::Date(column) => append(column, date(&value)),
            Self::Struct(column) => match value {
                Value::Object(node) => column.append(node),
                _ => column.append_null(),
            },
            Self::List(column) => match value {
                Value::Array(node) => column.append(node),
                _ => column.append_null(),
            },
        }
    }

    pub(crate) fn append_null(&mut self) {
        match self {
            Self::Boolean(column) => column.append_null(),
            Self::Int8(column) => column.append_null(),
            Self::Int16(column) => column.append_null(),
            Self::Int32(column) => column.append_null(),
            Self::Int64(column) => column.append_null(),
            Self::Float32(column) => column.append_null(),
            Self::Float64(column) => column.append_null(),
            Self::Decimal(column, ..) => column.append_null(),
            Self::Text(column) => column.append_null(),
            Self::Blob(column) => column.append_null(),
            Self::Instant(column) => column.append_null(),
            Self::Date(column) => column.append_null(),
            Self::Struct(column) => _ = column.append_null(),
            Self::List(column) => _ = column.append_null(),
        }
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(column) => ArrayBuilder::finish(column),
            Self::Int8(column) => ArrayBuilder::finish(column),
            Self::Int16(column) => ArrayBuilder::finish(column),
            Self::Int32(column) => ArrayBuilder::finish(column),
            Self::Int64(column) => ArrayBuilder::finish(column),
            Self::Float32(column) => ArrayBuilder::finish(column),
            Self::Float64(column) => ArrayBuilder::finish(column),
            Self::Decimal(column, ..) => ArrayBuilder::finish(column),
            Self::Text(column) => ArrayBuilder::finish(column),
            Self::Blob(column) => ArrayBuilder::finish(column),
            Self::Instant(column) => ArrayBuilder::finish(column),
            Self::Date(column) => ArrayBuilder::finish(column),
            Self::Struct(column) => Arc::new(column.finish()),
            Self::List(column) => Arc::new(column.finish()),
        }
    }
}

/// Number of fields whose slots need no heap memory.
const SLOTS: usize = 12;

impl StructColumn {
    pub(crate) fn of(fields: &Fields) -> Option<Self> {
        let columns = fields
            .iter()
            .map(|field| ColumnBuilder::of(field.data_type()));
        Some(Self {
            fields: fields.clone(),
            keys: SchemaKeys::new(fields.iter().map(|field| field.name().as_str())),
            columns: columns.collect::<Option<Vec<_>>>()?,
            valid: NullBufferBuilder::new(ROWS),
        })
    }

    /// Appends an object, or a null for each field if the object is malformed; returns whether everything fits.
    pub(crate) fn append<'a, N: DocumentNode<'a>>(&mut self, node: N) -> bool {
        self.try_append(node)
            .unwrap_or_else(|Malformed| self.append_null())
    }

    fn try_append<'a, N: DocumentNode<'a>>(&mut self, node: N) -> Result<bool, Malformed> {
        let mut slots: SmallVec<[Value<'a, N>; SLOTS]> = smallvec![Value::Missing; self.keys.len()];
        node.fields(&mut self.keys, &mut slots)?;
        self.valid.append_non_null();
        let mut fits = true;
        for (column, value) in self.columns.iter_mut().zip(slots) {
            fits &= column.append(value);
        }
        Ok(fits)
    }

    /// Appends a null; returns false, since the document had another value.
    pub(crate) fn append_null(&mut self) -> bool {
        self.valid.append_null();
        for column in &mut self.columns {
            column.append_null();
        }
        false
    }

    /// Builds the arrays of the fields.
    pub(crate) fn finish_columns(&mut self) -> Vec<ArrayRef> {
        self.valid.finish();
        self.columns.iter_mut().map(ColumnBuilder::finish).collect()
    }

    fn finish(&mut self) -> StructArray {
        let valid = self.valid.finish();
        let columns = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        StructArray::new(self.fields.clone(), columns, valid)
    }
}

impl ListColumn {
    fn append<'a, N: DocumentNode<'a>>(&mut self, node: N) -> bool {
        let mut fits = true;
        let mut items = 0;
        let walked = node.items(&mut |item| {
            items += 1;
            fits &= self.items.append(item);
        });
        // If the array turns out to be malformed, its items so far stay behind a null, but count as length.
        let Some(end) = self.ends.last().and_then(|end| end.checked_add(items)) else {
            return self.append_null();
        };
        self.ends.push(end);
        self.valid.append(walked.is_ok());
        fits && walked.is_ok()
    }

    fn append_null(&mut self) -> bool {
        self.ends.extend_from_within(self.ends.len() - 1..);
        self.valid.append_null();
        false
    }

    fn finish(&mut self) -> ListArray {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        ListArray::new(
            self.item.clone(),
            ends,
            self.items.finish(),
            self.valid.finish(),
        )
    }
}

fn append<T: ArrowPrimitiveType>(
    column: &mut PrimitiveBuilder<T>,
    value: Option<T::Native>,
) -> bool {
    column.append_option(value);
    value.is_some()
}

/// Appends a value, or null for `None`; returns whether there is a value.
fn fits<T>(value: Option<T>, append: impl FnOnce(Option<T>)) -> bool {
    let is_value = value.is_some();
    append(value);
    is_value
}

fn boolean<N>(value: &Value<'_, N>) -> Option<bool> {
    match value {
        Value::Boolean(boolean) => Some(*boolean),
        _ => None,
    }
}

/// Converts a number without fraction and exponent, if it is in range.
fn integer<T: FromStr + TryFrom<i64> + TryFrom<u64>, N>(value: &Value<'_, N>) -> Option<T> {
    match value {
        Value::Number(text, true) => text.parse().ok(),
        Value::Integer(number) => T::try_from(*number).ok(),
        Value::Unsigned(number) => T::try_from(*number).ok(),
        _ => None,
    }
}

/// Converts any number, and the texts for numbers that JSON cannot express.
fn float<T: FromStr + Copy, N>(value: &Value<'_, N>, narrow: fn(f64) -> T) -> Option<T> {
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
    match value {
        Value::Number(text, _) => text.parse().ok(),
        Value::Integer(number) => Some(narrow(*number as f64)),
        Value::Unsigned(number) => Some(narrow(*number as f64)),
        Value::Float(number) => Some(narrow(*number)),
        Value::Text(text) => match &**text {
            "NaN" => Some(narrow(f64::NAN)),
            "INF" | "+INF" | "Infinity" | "+Infinity" => Some(narrow(f64::INFINITY)),
            "-INF" | "-Infinity" => Some(narrow(f64::NEG_INFINITY)),
            _ => None,
        },
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the nearest float is meant"
)]
fn f32_of(number: f64) -> f32 {
    number as f32
}

/// Converts any number, or a text that is a number.
fn decimal<N>(value: &Value<'_, N>, precision: u8, scale: i8) -> Option<i128> {
    let parse = |text: &str| parse_decimal(text, precision, scale);
    match value {
        Value::Number(text, _) => parse(text),
        Value::Text(text) => parse(text.trim_ascii()),
        Value::Integer(number) => parse(&number.to_string()),
        Value::Unsigned(number) => parse(&number.to_string()),
        Value::Float(number) => parse(&number.to_string()),
        _ => None,
    }
}

/// Returns a text, or the text of any other value as it is in the document.
fn text<'a, N: DocumentNode<'a>>(value: Value<'a, N>) -> Option<Cow<'a, str>> {
    match value {
        Value::Text(text) => Some(text),
        Value::Number(text, _) => Some(Cow::Borrowed(text)),
        Value::Boolean(boolean) => Some(Cow::Borrowed(if boolean { "true" } else { "false" })),
        Value::Integer(number) => Some(Cow::Owned(number.to_string())),
        Value::Unsigned(number) => Some(Cow::Owned(number.to_string())),
        Value::Float(number) => Some(Cow::Owned(number.to_string())),
        Value::Object(node) | Value::Array(node) => node.as_text(),
        _ => None,
    }
}

/// Returns bytes, or decodes a text as Base64.
fn blob<N>(value: Value<'_, N>) -> Option<Cow<'_, [u8]>> {
    match value {
        Value::Blob(blob) => Some(blob),
        Value::Text(text) => BASE64_STANDARD.decode(&*text).ok().map(Cow::Owned),
        _ => None,
    }
}

/// Converts a text by [`parse_instant`], or a number of seconds since 1970.
fn instant<N>(value: &Value<'_, N>) -> Option<i64> {
    match value {
        Value::Instant(instant) => Some(*instant),
        Value::Text(text) => parse_instant(text),
        Value::Number(text, _) => i64::try_from(parse_decimal(text, 38, 6)?).ok(),
        Value::Integer(seconds) => seconds.checked_mul(1_000_000),
        Value::Float(seconds) => i64::try_from(parse_decimal(&seconds.to_string(), 38, 6)?).ok(),
        _ => None,
    }
}

fn date<N>(value: &Value<'_, N>) -> Option<i32> {
    match value {
        Value::Text(text) => parse_date(text),
        _ => None,
    }
}
