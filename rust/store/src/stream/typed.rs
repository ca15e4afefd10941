//! The typed columns of a stream: payloads are decoded once, on the way into files.

use std::str::FromStr;
use std::sync::Mutex;

use arrow_array::RecordBatch;
use serde_json::Value;

use crate::stream::columnar::{
    ColumnarError, Decoder, Format, OnError, parse_payload_schema, row_schema,
};
use crate::stream::manifest::Schema;
use crate::stream::streams::lock;

/// What adds the typed columns; nothing without any.
#[derive(Debug, Default)]
pub(super) struct Typed(Option<Mutex<Decoder>>);

impl Typed {
    /// Goes on with the `aliases` that an earlier one knew in the end.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Option`] for a format or a column that this version does not know.
    pub(super) fn of(
        schema: Option<&Schema>,
        aliases: Option<&Value>,
    ) -> Result<Self, ColumnarError> {
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
        if format == Format::Protobuf {
            return Err(ColumnarError::Option {
                option: "decode",
                problem: "a stream has no descriptor of messages".to_owned(),
            });
        }
        let mut decoder = Decoder::new(format, fields, OnError::Null)?;
        if let Some(aliases) = aliases {
            decoder = decoder.with_aliases(&aliases.to_string())?;
        }
        Ok(Self(Some(Mutex::new(decoder))))
    }

    /// What the next rows are read by, if that depends on rows before them.
    pub(super) fn aliases(&self) -> Option<Value> {
        let decoder = lock(self.0.as_ref()?);
        // INVARIANT: the decoder writes JSON.
        decoder
            .has_memory()
            .then(|| serde_json::from_str(&decoder.aliases()).expect("JSON"))
    }

    /// The rows of a batch with the columns of now, whatever it has behind those of every stream.
    /// What does not fit is null; the payload is there to tell.
    pub(super) fn add(&self, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
        let width = row_schema().fields().len();
        let own: Vec<usize> = (0..width.min(batch.num_columns())).collect();
        let batch = batch.project(&own)?;
        let Some(decoder) = &self.0 else {
            return Ok(batch);
        };
        let mut decoder = lock(decoder);
        let whole = decoder.decode(&batch)?;
        let names = decoder.columns();
        let corrupt = crate::stream::columnar::CORRUPT;
        let typed = names.iter().filter(|field| field.name() != corrupt).count();
        let wanted: Vec<usize> = (0..width + typed).collect();
        Ok(whole.project(&wanted)?)
    }
}
