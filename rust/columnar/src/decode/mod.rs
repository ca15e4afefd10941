//! Decodes payloads into typed columns, without building a tree.

mod avro;
mod bytes;
mod cbor;
mod column;
mod decimal;
mod json;
mod msgpack;
mod options;
mod protobuf;
mod rows;
mod schema;
mod sparkplug;
mod text;
mod time;
mod value;
mod wire;

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, new_null_array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};

use self::avro::Schemas;
use self::column::StructColumn;
pub use self::options::{Format, OnError};
use self::protobuf::Types;
pub(crate) use self::rows::filtered;
use self::rows::{corrupt, is_retained, rows, undecodable};
pub use self::schema::parse_payload_schema;
pub use self::sparkplug::MetricAliases;
pub(crate) use self::sparkplug::{NAMESPACE, Needed, is_sparkplug};
use self::value::{DocumentNode, Malformed, Value};
use super::ColumnarError;
use super::schema::{OFFSET, PARTITION, PAYLOAD, RETAIN, TOPIC, nullable, row_schema};
use super::topics::{Topics, column};

/// The column with the payload of a row that does not fit.
pub const CORRUPT: &str = "_corrupt";

/// Decodes the payloads of rows into typed columns.
///
/// A payload is an object; its keys are exactly the names of the columns. The rules of conversion follow Spark's
/// `from_json` in PERMISSIVE mode:
///
/// | document | column |
/// | --- | --- |
/// | key is missing, or null | null |
/// | key repeats | the last value counts |
/// | unknown key | ignored, but its value has to be well-formed |
/// | number without fraction and exponent, in range | any integer |
/// | any number; `"NaN"`, `"Infinity"`, `"-Infinity"`, `"INF"`, `"+INF"`, `"-INF"` | float, double |
/// | any number, or a text that is a number | decimal, rounded half up; too many digits do not fit |
/// | text | string; any other value also fits, as its text in the document |
/// | text in Base64 | binary |
/// | text such as `2024-02-29T12:00:00.5+01:00` (UTC without an offset); number of seconds since 1970 | timestamp |
/// | text such as `2024-02-29` | date |
/// | object, array | struct, array; a part that does not fit is null in its place |
/// | everything else | does not fit: null, and the row is corrupt |
///
/// CBOR follows the same rules. Byte strings fit binary, seconds with tag 1 fit timestamp, and a number as a key means
/// the text of its decimal digits.
///
/// MessagePack follows the same rules. Its binary values fit binary, its timestamps fit timestamp.
///
/// The format [`Text`](Format::Text) has one column. A payload is a JSON number, `true` or `false`, with or without
/// white space around it; any other payload is a text.
///
/// For Protocol Buffers the keys are the names of the fields. A missing proto3 field without presence has its default;
/// in an empty payload that is not retained, all fields are missing. A map is an array of `key` and `value`, an
/// enumeration the name of its value.
///
/// An Avro payload names its schema by number; the keys are the names of the fields of its record. A map is an array of
/// `key` and `value`, an enumeration its symbol. Timestamps fit timestamp, dates also string, and decimals decimal and
/// string. Records, arrays and maps fit string as JSON. A payload with another number does not fit.
///
/// For Sparkplug B the keys are the names of the metrics, and `_timestamp`, `_seq`, `_uuid` and `_metrics`, an array of
/// structs of `name`, `alias`, `timestamp`, `datatype` and `value`. If a metric has no name, the decoder takes the name
/// that a BIRTH of the edge node gave to its alias. It knows BIRTHs of earlier rows of the range, the aliases of
/// [`with_aliases`](Self::with_aliases), and those that files and the tail store. If the alias is unknown, the payload
/// does not fit.
///
/// If a payload is malformed or not an object, every column is null and the row is corrupt. An empty payload, which
/// deletes a retained message, also makes every column null, but the row is not corrupt (JSON of only white space is
/// empty); [`OnError::Drop`] drops both. Unlike Spark, the decoder rejects single quotes, `NaN` without quotes, and
/// bytes after the object, and it accepts fractions of seconds.
#[derive(Clone, Debug)]
pub struct Decoder {
    format: Format,
    fields: Fields,
    on_error: OnError,
    /// Whether the output has the column `_corrupt`.
    tells_corrupt: bool,
    aliases: MetricAliases,
    types: Option<Arc<Types>>,
    schemas: Option<Arc<Schemas>>,
}

impl Decoder {
    /// Creates a decoder for these columns, which [`parse_payload_schema`] returns.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] for a name that every row has already, or a type that payloads cannot be decoded to.
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
            return Err(wrong(
                "it has a type that payloads cannot be decoded to".to_owned(),
            ));
        }
        if format == Format::Text && !is_one_value(&fields) {
            let problem =
                "decode = text needs exactly one column, which is not a struct, array or binary";
            return Err(wrong(problem.to_owned()));
        }
        Ok(Self {
            format,
            fields,
            on_error,
            tells_corrupt: on_error == OnError::Null,
            aliases: MetricAliases::default(),
            types: None,
            schemas: None,
        })
    }

    /// Sets the message type of [`Protobuf`](Format::Protobuf) payloads by its full name in a `FileDescriptorSet`.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] if the message type is unknown, or the descriptor is invalid or incomplete.
    pub fn with_descriptor(
        mut self,
        descriptor: &[u8],
        message: &str,
    ) -> Result<Self, ColumnarError> {
        let types = Types::read(descriptor, message);
        self.types = Some(Arc::new(types.map_err(|problem| {
            ColumnarError::Option {
                option: "descriptor",
                problem,
            }
        })?));
        Ok(self)
    }

    /// Sets the schemas of [`Avro`](Format::Avro) payloads: a JSON object of schemas by number.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] if one of them is invalid, incomplete or not a record.
    pub fn with_schemas(mut self, schemas: &[u8]) -> Result<Self, ColumnarError> {
        let schemas = Schemas::read(schemas);
        self.schemas = Some(Arc::new(schemas.map_err(|problem| {
            ColumnarError::Option {
                option: "schemas",
                problem,
            }
        })?));
        Ok(self)
    }

    /// Starts with the Sparkplug B aliases of another decoder.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] for a text that [`aliases`](Self::aliases) did not write.
    pub fn with_aliases(mut self, text: &str) -> Result<Self, ColumnarError> {
        self.aliases = MetricAliases::from_str(text)?;
        Ok(self)
    }

    /// Returns the known Sparkplug B aliases as JSON: an object for each edge node (`group/node`), which maps each
    /// alias to the name and type of its metric.
    pub fn aliases(&self) -> String {
        self.aliases.to_json()
    }

    /// Adopts the aliases at the start of the next rows; edge nodes that `begin` lacks keep theirs.
    pub fn update_aliases(&mut self, begin: &MetricAliases) {
        self.aliases.update(begin);
    }

    /// Learns from these rows without decoding them.
    pub(crate) fn follow(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        self.aliases.follow(batch)
    }

    /// Removes columns that are not selected, unless they decide which rows are dropped; `None` if nothing is left to
    /// decode.
    pub(crate) fn narrowed(mut self, is_wanted: impl Fn(&str) -> bool) -> Option<Self> {
        if self.on_error != OnError::Null || is_wanted(CORRUPT) {
            return Some(self);
        }
        let fields = self.fields.iter().filter(|field| is_wanted(field.name()));
        self.fields = fields.cloned().collect();
        self.tells_corrupt = false;
        (self.has_memory() || !self.fields.is_empty()).then_some(self)
    }

    /// Returns a decoder of these columns only, without `_corrupt`; `None` if there are none.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let mut decoder = self.clone();
        let fields = self.fields.iter().filter(|field| is_wanted(field.name()));
        decoder.fields = fields.cloned().collect();
        decoder.tells_corrupt = false;
        (!decoder.fields.is_empty()).then_some(decoder)
    }

    /// Whether decoding a row depends on earlier rows, even filtered ones.
    pub fn has_memory(&self) -> bool {
        matches!(self.format, Format::Sparkplug | Format::Auto)
    }

    /// Returns the columns that are appended to each row.
    pub fn columns(&self) -> Vec<Field> {
        let corrupt = self
            .tells_corrupt
            .then(|| nullable(CORRUPT, DataType::Binary));
        let fields = self.fields.iter().map(|field| field.as_ref().clone());
        fields.chain(corrupt).collect()
    }

    /// Returns the columns that rows must have.
    pub(crate) fn inputs(&self) -> Vec<&'static str> {
        let mut inputs = vec![PAYLOAD];
        if self.has_memory() {
            inputs.push(TOPIC);
        }
        if self.format == Format::Protobuf {
            inputs.push(RETAIN);
        }
        if self.on_error == OnError::Fail {
            inputs.extend([PARTITION, OFFSET]);
        }
        inputs
    }

    /// Decodes the payloads of a batch; returns the batch with the typed columns appended. Batches must come in order.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Undecodable`] names the first row that does not fit, with [`OnError::Fail`];
    /// [`ColumnarError::Column`] for a batch without payloads.
    pub fn decode(&mut self, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
        self.decode_wanted(batch, None)
    }

    /// Decodes the `wanted` rows; the other rows only update the aliases.
    pub(crate) fn decode_wanted(
        &mut self,
        batch: &RecordBatch,
        wanted: Option<&BooleanArray>,
    ) -> Result<RecordBatch, ColumnarError> {
        let payloads = column(batch, PAYLOAD)?.as_binary_opt::<i32>();
        let payloads = payloads.ok_or_else(|| ColumnarError::column(PAYLOAD, "is not binary"))?;
        // INVARIANT: `new` has checked that these types can be decoded.
        let mut columns = StructColumn::of(&self.fields).expect("types that can be decoded");
        let fits = self.decode_rows(batch, payloads, &mut columns)?;
        let decoded = columns.finish_columns();
        let keep = wanted.map(BooleanArray::values);
        let bad = keep.map_or_else(|| !&fits, |keep| keep & &!&fits);
        let Some(first_bad) = bad.set_indices().next() else {
            return filtered(self.append(batch, decoded, payloads, None)?, wanted);
        };
        match self.on_error {
            OnError::Null => filtered(self.append(batch, decoded, payloads, Some(&fits))?, wanted),
            OnError::Fail => Err(undecodable(batch, first_bad)),
            OnError::Drop => {
                let keep = keep.map_or_else(|| fits.clone(), |keep| keep & &fits);
                let all = self.append(batch, decoded, payloads, None)?;
                filtered(all, Some(&BooleanArray::new(keep, None)))
            }
        }
    }

    /// Decodes each payload into `columns`; returns which rows fit.
    fn decode_rows(
        &mut self,
        batch: &RecordBatch,
        payloads: &BinaryArray,
        columns: &mut StructColumn,
    ) -> Result<BooleanBuffer, ColumnarError> {
        let empty_fits = self.empty_fits();
        Ok(match self.format {
            Format::Json => rows(payloads, |_, payload| {
                append(json::document(payload), columns, empty_fits)
            }),
            Format::Cbor => rows(payloads, |_, payload| {
                append(cbor::document(payload), columns, empty_fits)
            }),
            Format::MessagePack => rows(payloads, |_, payload| {
                append(msgpack::document(payload), columns, empty_fits)
            }),
            Format::Text => rows(payloads, |_, payload| {
                append(text::document(payload), columns, empty_fits)
            }),
            Format::Protobuf => self.decode_protobuf(batch, payloads, columns)?,
            Format::Avro => {
                let schemas = self.schemas.as_deref().ok_or(ColumnarError::Option {
                    option: "schemas",
                    problem: "are missing: decode = avro needs them".to_owned(),
                })?;
                rows(payloads, |_, payload| {
                    append(schemas.document(payload), columns, empty_fits)
                })
            }
            Format::Sparkplug | Format::Auto => {
                let topics = Topics::of(column(batch, TOPIC)?)?;
                rows(payloads, |row, payload| {
                    self.decode_known(topics.get(row), payload, columns)
                })
            }
        })
    }

    /// Decodes Protobuf, where an empty payload is a message without fields, unless it clears a retained message.
    fn decode_protobuf(
        &self,
        batch: &RecordBatch,
        payloads: &BinaryArray,
        columns: &mut StructColumn,
    ) -> Result<BooleanBuffer, ColumnarError> {
        let types = self.types.as_deref().ok_or(ColumnarError::Option {
            option: "descriptor",
            problem: "is missing: decode = protobuf needs it".to_owned(),
        })?;
        let empty_fits = self.empty_fits();
        Ok(rows(payloads, |row, payload| {
            let is_clear = payload.is_empty() && is_retained(batch, row);
            let document = (!is_clear).then(|| types.document(payload));
            append(Ok(document.unwrap_or_default()), columns, empty_fits)
        }))
    }

    /// Whether a row without a document fits.
    fn empty_fits(&self) -> bool {
        self.on_error != OnError::Drop
    }

    /// Decodes a row whose format depends on its topic.
    fn decode_known(&mut self, topic: &str, payload: &[u8], columns: &mut StructColumn) -> bool {
        let empty_fits = self.empty_fits();
        if self.format == Format::Sparkplug || is_sparkplug(topic) {
            self.aliases.learn(topic, payload);
            return append(
                Ok(self.aliases.document(topic, payload)),
                columns,
                empty_fits,
            );
        }
        let is_cbor = |first| cbor::BEGINS.contains(first);
        if payload.first().is_some_and(is_cbor) {
            return append(cbor::document(payload), columns, empty_fits);
        }
        append(json::document(payload), columns, empty_fits)
    }

    /// Appends the typed columns and `_corrupt` to those of the batch.
    fn append(
        &self,
        batch: &RecordBatch,
        mut decoded: Vec<ArrayRef>,
        payloads: &BinaryArray,
        fits: Option<&BooleanBuffer>,
    ) -> Result<RecordBatch, ColumnarError> {
        if self.tells_corrupt {
            decoded.push(match fits {
                Some(fits) => corrupt(payloads, fits),
                None => new_null_array(&DataType::Binary, payloads.len()),
            });
        }
        let schema = batch.schema();
        let fields = schema.fields().iter().cloned();
        let fields = fields.chain(self.columns().into_iter().map(Arc::new));
        let columns = batch.columns().iter().cloned().chain(decoded);
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(RecordBatch::try_new(Arc::new(schema), columns.collect())?)
    }
}

/// Whether there is exactly one column, of a type that one text can fill.
fn is_one_value(fields: &Fields) -> bool {
    let is_value = |field: &Field| {
        !matches!(
            field.data_type(),
            DataType::Struct(_) | DataType::List(_) | DataType::Binary
        )
    };
    fields.len() == 1 && fields.iter().all(|field| is_value(field))
}

/// Appends a row; returns whether it fits.
fn append<'a, N: DocumentNode<'a>>(
    document: Result<Value<'a, N>, Malformed>,
    columns: &mut StructColumn,
    empty_fits: bool,
) -> bool {
    if let Ok(Value::Object(node)) = document {
        return columns.append(node);
    }
    columns.append_null();
    empty_fits && document.is_ok_and(|value| matches!(value, Value::Missing))
}
