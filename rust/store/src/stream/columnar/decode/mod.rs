//! Payloads decoded into typed columns, without a tree between them.

mod cbor;
mod column;
mod decimal;
mod json;
mod schema;
mod time;
mod value;

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::filter::filter_record_batch;

use self::column::StructColumn;
pub use self::schema::parse_payload_schema;
use self::value::{Malformed, Node, Value};
use super::ColumnarError;
use super::schema::{OFFSET, PARTITION, PAYLOAD, nullable, row_schema};

/// What a payload is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Format {
    /// JSON, RFC 8259.
    Json,
    /// CBOR, RFC 8949.
    Cbor,
}

impl FromStr for Format {
    type Err = ColumnarError;

    fn from_str(name: &str) -> Result<Self, ColumnarError> {
        match name {
            "json" => Ok(Self::Json),
            "cbor" => Ok(Self::Cbor),
            _ => Err(ColumnarError::Option {
                option: "decode",
                problem: format!("there is no format {name:?}; there are json and cbor"),
            }),
        }
    }
}

/// What becomes of a row whose payload does not fit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnError {
    /// It stays: what does not fit is null, and `_corrupt` holds the payload.
    #[default]
    Null,
    /// It is left out.
    Drop,
    /// The reader ends with an error that names it.
    Fail,
}

impl FromStr for OnError {
    type Err = ColumnarError;

    fn from_str(name: &str) -> Result<Self, ColumnarError> {
        match name {
            "null" => Ok(Self::Null),
            "drop" => Ok(Self::Drop),
            "fail" => Ok(Self::Fail),
            _ => Err(ColumnarError::Option {
                option: "on_error",
                problem: format!("{name:?} is none of null, drop, fail"),
            }),
        }
    }
}

/// The column with the payload of a row that did not fit.
pub const CORRUPT: &str = "_corrupt";

/// Decodes the payloads of rows into typed columns.
///
/// A payload is an object; its keys are the names of the columns, exactly. What fits follows Spark's `from_json` in its
/// PERMISSIVE mode:
///
/// | document | column |
/// | --- | --- |
/// | key is missing, or null | null |
/// | key comes twice | the last one counts |
/// | key that no column has | ignored, its value still has to be well-formed |
/// | number without fraction and exponent, in range | any integer |
/// | any number; `"NaN"`, `"Infinity"`, `"-Infinity"`, `"INF"`, `"+INF"`, `"-INF"` | float, double |
/// | any number, or a text that is one | decimal, rounded half up; too many digits do not fit |
/// | text | string; the text of any other value, as it stands there, too |
/// | text in Base64 | binary |
/// | text such as `2024-02-29T12:00:00.5+01:00` (UTC without an offset); number of seconds since 1970 | timestamp |
/// | text such as `2024-02-29` | date |
/// | object, array | struct, array; a part that does not fit is null in its place |
/// | everything else | does not fit: null, and the row is corrupt |
///
/// CBOR is held to the same: its byte strings fit binary, its seconds under tag 1 timestamp, a number as key stands for its
/// decimal digits.
///
/// A payload that is not well-formed, or no object, makes every column null and the row corrupt. An empty payload, which
/// deletes a retained message, makes them null, too, but is not corrupt. Unlike Spark, this takes neither single quotes nor
/// `NaN` without quotes, refuses what follows the object, and takes fractions of seconds.
#[derive(Clone, Debug)]
pub struct Decoder {
    format: Format,
    fields: Fields,
    on_error: OnError,
}

impl Decoder {
    /// Takes the columns to decode, by [`parse_payload_schema`].
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] for a name that every row has already, and for a type that no payload is decoded to.
    pub fn new(
        format: Format,
        fields: Vec<Field>,
        on_error: OnError,
    ) -> Result<Self, ColumnarError> {
        let wrong = |problem| ColumnarError::Option {
            option: "payload_schema",
            problem,
        };
        let row = row_schema();
        for field in &fields {
            let name = field.name();
            if name == CORRUPT || row.field_with_name(name).is_ok() {
                return Err(wrong(format!("{name} is a column of every row already")));
            }
        }
        let fields = Fields::from(fields);
        if StructColumn::of(&fields).is_none() {
            return Err(wrong("a type that no payload is decoded to".to_owned()));
        }
        Ok(Self {
            format,
            fields,
            on_error,
        })
    }

    /// Returns the columns that rows get, behind those that they have.
    pub fn columns(&self) -> Vec<Field> {
        let corrupt = (self.on_error == OnError::Null).then(|| nullable(CORRUPT, DataType::Binary));
        let fields = self.fields.iter().map(|field| field.as_ref().clone());
        fields.chain(corrupt).collect()
    }

    /// Returns the columns that rows must have.
    pub(crate) fn inputs(&self) -> Vec<&'static str> {
        match self.on_error {
            OnError::Fail => vec![PARTITION, OFFSET, PAYLOAD],
            _ => vec![PAYLOAD],
        }
    }

    /// Decodes the payloads of a batch, and returns it with the typed columns behind its own.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Undecodable`] names the first row that does not fit, if that is to fail;
    /// [`ColumnarError::Column`] for a batch without payloads.
    pub fn decode(&self, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
        let payloads = batch.column_by_name(PAYLOAD);
        let payloads = payloads.and_then(|payloads| payloads.as_binary_opt::<i32>());
        let payloads = payloads.ok_or_else(|| ColumnarError::column(PAYLOAD, "is missing"))?;
        // INVARIANT: `new` has made such a column once.
        let mut columns = StructColumn::of(&self.fields).expect("types that can be decoded");
        let fits = BooleanBuffer::collect_bool(payloads.len(), |row| {
            self.decode_row(payloads.value(row), &mut columns)
        });
        let first_bad = fits
            .set_slices()
            .next()
            .map_or(0, |(from, to)| if from > 0 { 0 } else { to });
        let mut decoded = columns.finish_columns();
        match self.on_error {
            OnError::Null => decoded.push(corrupt(payloads, &fits)),
            OnError::Fail if first_bad < fits.len() => return Err(undecodable(batch, first_bad)),
            OnError::Drop | OnError::Fail => {}
        }
        let all = self.append(batch, decoded)?;
        if self.on_error == OnError::Drop && first_bad < fits.len() {
            return Ok(filter_record_batch(&all, &BooleanArray::new(fits, None))?);
        }
        Ok(all)
    }

    fn decode_row(&self, payload: &[u8], columns: &mut StructColumn) -> bool {
        match self.format {
            Format::Json => append(json::document(payload), columns),
            Format::Cbor => append(cbor::document(payload), columns),
        }
    }

    fn append(
        &self,
        batch: &RecordBatch,
        decoded: Vec<ArrayRef>,
    ) -> Result<RecordBatch, ColumnarError> {
        let schema = batch.schema();
        let fields = schema.fields().iter().cloned();
        let fields = fields.chain(self.columns().into_iter().map(Arc::new));
        let columns = batch.columns().iter().cloned().chain(decoded);
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(RecordBatch::try_new(Arc::new(schema), columns.collect())?)
    }
}

/// Appends a row; whether it fits.
fn append<'a, N: Node<'a>>(
    document: Result<Value<'a, N>, Malformed>,
    columns: &mut StructColumn,
) -> bool {
    if let Ok(Value::Object(node)) = document {
        return columns.append(node);
    }
    columns.append_null();
    document.is_ok_and(|value| matches!(value, Value::Missing))
}

/// The payloads of the rows that do not fit.
fn corrupt(payloads: &BinaryArray, fits: &BooleanBuffer) -> ArrayRef {
    if fits.count_set_bits() == fits.len() {
        return arrow_array::new_null_array(&DataType::Binary, fits.len());
    }
    let mut corrupt = BinaryBuilder::new();
    for (payload, fits) in payloads.iter().zip(fits) {
        corrupt.append_option(payload.filter(|_| !fits));
    }
    Arc::new(corrupt.finish())
}

fn undecodable(batch: &RecordBatch, row: usize) -> ColumnarError {
    let partition = batch.column_by_name(PARTITION);
    let partition = partition.and_then(|column| column.as_primitive_opt::<Int32Type>());
    let offset = batch.column_by_name(OFFSET);
    let offset = offset.and_then(|column| column.as_primitive_opt::<Int64Type>());
    match (partition, offset) {
        (Some(partition), Some(offset)) => ColumnarError::Undecodable {
            partition: partition.value(row),
            offset: offset.value(row),
        },
        _ => ColumnarError::column(OFFSET, "is missing"),
    }
}
