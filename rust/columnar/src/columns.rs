//! Selects the output columns of a reader, and maps the columns of a file to them.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::take::take;

use super::schema::row_schema;
use super::{ColumnarError, Decoder, ReadOptions};

/// The output columns, in order.
#[derive(Clone, Debug)]
pub(crate) struct OutputColumns {
    schema: SchemaRef,
    /// Decoded columns, which no file has.
    made: Vec<String>,
}

impl OutputColumns {
    pub(crate) fn of(options: &ReadOptions) -> Result<Self, ColumnarError> {
        let row = row_schema();
        let fields = row.fields().iter().cloned();
        let typed = options.typed.iter().cloned();
        let decoded = options
            .decoder
            .as_ref()
            .map(Decoder::columns)
            .unwrap_or_default();
        let made = decoded.iter().map(|field| field.name().clone()).collect();
        let further = typed.chain(decoded).map(Arc::new);
        let all = Schema::new(fields.chain(further).collect::<Vec<_>>());
        let Some(names) = &options.columns else {
            let schema = Arc::new(all);
            return Ok(Self { schema, made });
        };
        let wrong = |problem| ColumnarError::Option {
            option: "columns",
            problem,
        };
        if names.is_empty() {
            return Err(wrong("is empty: name at least one column".to_owned()));
        }
        let mut fields = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let Ok(field) = all.field_with_name(name) else {
                return Err(wrong(format!("there is no column {name:?}")));
            };
            if names[..index].contains(name) {
                return Err(wrong(format!("column {name:?} is named twice")));
            }
            fields.push(field.clone());
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { schema, made })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the indices of the columns to read from a file; columns that the file lacks have none.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::OtherFile`] if a column has another type there.
    pub(crate) fn places(
        &self,
        file: &Path,
        found: &Schema,
        inputs: &[&str],
    ) -> Result<Vec<usize>, ColumnarError> {
        let row = row_schema();
        let inputs = inputs
            .iter()
            .filter_map(|name| row.field_with_name(name).ok());
        let fields = self.schema.fields().iter().map(AsRef::as_ref);
        let fields = fields.filter(|field| !self.made.contains(field.name()));
        let mut places = Vec::with_capacity(self.schema.fields().len());
        for field in fields.chain(inputs) {
            let Some((place, other)) = found.column_with_name(field.name()) else {
                continue;
            };
            if other.data_type() != field.data_type() {
                let problem = format!("found {other}, expected {field}");
                return Err(ColumnarError::other_file(file, problem));
            }
            places.push(place);
        }
        Ok(places)
    }

    /// Orders the columns of a batch, with nulls for columns that the file lacks.
    pub(crate) fn arrange(&self, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
        let rows = batch.num_rows();
        let columns = self.schema.fields().iter().map(|field| {
            let column = batch.column_by_name(field.name());
            column.map_or_else(|| Ok(new_null_array(field.data_type(), rows)), unfold)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = self.schema.clone();
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// Replaces a dictionary by its values, since Spark does not accept dictionaries.
fn unfold(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.as_dictionary_opt::<Int32Type>() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None),
        None => Ok(column.clone()),
    }
}
