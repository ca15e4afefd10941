//! Looks up columns of a batch, and reads topics with or without a dictionary.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, StringArray};

use super::ColumnarError;
use super::schema::TOPIC;

pub(crate) fn column<'a>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a ArrayRef, ColumnarError> {
    let column = batch.column_by_name(name);
    column.ok_or_else(|| ColumnarError::column(name, "is missing"))
}

/// A column of topics.
pub(crate) enum Topics<'a> {
    Plain(&'a StringArray),
    Dictionary(&'a DictionaryArray<Int32Type>, &'a StringArray),
}

impl<'a> Topics<'a> {
    pub(crate) fn of(column: &'a ArrayRef) -> Result<Self, ColumnarError> {
        if let Some(texts) = column.as_string_opt::<i32>() {
            return Ok(Self::Plain(texts));
        }
        let dictionary = column.as_dictionary_opt::<Int32Type>();
        let texts = dictionary.and_then(|keys| Some((keys, keys.values().as_string_opt::<i32>()?)));
        let (keys, values) = texts.ok_or_else(|| ColumnarError::column(TOPIC, "is not text"))?;
        Ok(Self::Dictionary(keys, values))
    }

    /// Returns the topic of a row; for null an empty text, which is never a topic.
    pub(crate) fn get(&self, row: usize) -> &'a str {
        match self {
            Self::Plain(texts) if texts.is_valid(row) => texts.value(row),
            Self::Dictionary(keys, values) => keys.key(row).map_or("", |key| values.value(key)),
            Self::Plain(_) => "",
        }
    }
}
