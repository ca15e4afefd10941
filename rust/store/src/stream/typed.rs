//! Typed columns of a stream: payloads are decoded when rows are sealed.

use std::str::FromStr;

use arrow_array::RecordBatch;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::stream::definition::Definition;
use crate::stream::manifest::{ColumnDefinition, Schema};
use mqttcore_columnar::{
    CORRUPT, ColumnarError, Decoder, Format, MetricAliases, OnError, parse_payload_schema,
    row_schema,
};

/// The decoder for typed columns, if the stream has any.
#[derive(Debug, Default)]
pub(super) struct Typed(Option<Decoder>);

impl Typed {
    /// # Errors
    ///
    /// [`ColumnarError::Option`] for a format or a column that this version does not know.
    pub(super) fn of(schema: Option<&Schema>) -> Result<Self, ColumnarError> {
        let Some(schema) = schema else {
            return Ok(Self::default());
        };
        let columns = schema.columns.iter().map(|column| {
            let name = column.name.replace('`', "``");
            let kind = match &*column.r#type {
                "long" => "bigint",
                other => other,
            };
            format!("`{name}` {kind}")
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let fields = parse_payload_schema(&columns)?;
        let format = Format::from_str(&schema.decode)?;
        let mut decoder = Decoder::new(format, fields, OnError::Null)?;
        if format == Format::Protobuf {
            let message = schema.message.as_deref().unwrap_or_default();
            decoder = decoder.with_descriptor(&descriptor_of(schema)?, message)?;
        }
        if format == Format::Avro {
            decoder = decoder.with_schemas(&descriptor_of(schema)?)?;
        }
        Ok(Self(Some(decoder)))
    }

    /// Whether decoding a row depends on earlier rows.
    pub(super) fn has_memory(&self) -> bool {
        self.0.as_ref().is_some_and(Decoder::has_memory)
    }

    /// A function that adds the current typed columns to consecutive batches; typed columns that they already have are
    /// replaced. `aliases` are the aliases before the first row. A value that does not fit its column becomes null; the
    /// payload stays in the row.
    pub(super) fn adder(
        &self,
        aliases: &MetricAliases,
    ) -> impl FnMut(&RecordBatch) -> Result<RecordBatch, ColumnarError> + use<> {
        let mut decoder = self.0.clone();
        if let Some(decoder) = &mut decoder {
            decoder.update_aliases(aliases);
        }
        move |batch| add(decoder.as_mut(), batch)
    }
}

fn add(decoder: Option<&mut Decoder>, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
    let width = row_schema().fields().len();
    let own: Vec<usize> = (0..width.min(batch.num_columns())).collect();
    let batch = batch.project(&own)?;
    let Some(decoder) = decoder else {
        return Ok(batch);
    };
    let whole = decoder.decode(&batch)?;
    let names = decoder.columns();
    let typed = names.iter().filter(|field| field.name() != CORRUPT).count();
    let wanted: Vec<usize> = (0..width + typed).collect();
    Ok(whole.project(&wanted)?)
}

/// The descriptor of the payloads of a schema.
fn descriptor_of(schema: &Schema) -> Result<Vec<u8>, ColumnarError> {
    let descriptor = schema.descriptor.as_deref().unwrap_or_default();
    let descriptor = BASE64_STANDARD.decode(descriptor);
    descriptor.map_err(|error| ColumnarError::Option {
        option: "descriptor",
        problem: error.to_string(),
    })
}

/// The schema of a definition; its version grows with each change.
pub(super) fn schema_of(definition: &Definition, old: Option<&Schema>) -> Option<Schema> {
    let decode = definition.decode.clone()?;
    let column = |(name, r#type): &(String, String)| ColumnDefinition {
        name: name.clone(),
        r#type: r#type.clone(),
    };
    let columns: Vec<_> = definition.columns.iter().map(column).collect();
    let protobuf = definition.protobuf.as_ref();
    let descriptor = protobuf.map(|known| &known.descriptor);
    let descriptor = descriptor.or(definition.avro.as_ref());
    let new = Schema {
        version: old.map_or(0, |old| old.version),
        decode,
        descriptor: descriptor.map(|bytes| BASE64_STANDARD.encode(bytes)),
        message: protobuf.map(|known| known.name.clone()),
        columns,
    };
    let version = new.version + u32::from(old != Some(&new));
    Some(Schema { version, ..new })
}
