//! Reads rows of an Arrow batch as messages.
//!
//! | column | type | |
//! | --- | --- | --- |
//! | `topic` | utf8 | a topic name |
//! | `payload` | binary or utf8 | null is empty |
//! | `qos` | int8, int32 or int64 | 0 to 2; null or missing is 1 |
//! | `retain` | boolean | null or missing is false |
//! | `content_type`, `response_topic` | utf8 | |
//! | `correlation_data` | binary | |
//! | `expiry` | int64 | seconds |
//! | `user_properties` | list of struct of key: utf8, value: utf8 | in either order |

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use mqttcore_codec::{PropertiesBuf, Property, QoS, Text};
use mqttcore_topics::{TopicLimits, TopicName};

use crate::{ColumnError, RowError};

/// The columns of one batch of messages; shares the memory of the batch.
#[derive(Clone, Debug)]
pub struct MessageColumns {
    rows: usize,
    topic: ArrayRef,
    payload: ArrayRef,
    qos: Option<ArrayRef>,
    retain: Option<ArrayRef>,
    content_type: Option<ArrayRef>,
    response_topic: Option<ArrayRef>,
    correlation_data: Option<ArrayRef>,
    expiry: Option<ArrayRef>,
    user_properties: Option<ArrayRef>,
}

/// A message without its properties.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PublishRow<'a> {
    /// The topic name.
    pub topic: TopicName<'a>,
    /// The payload; empty if it is null.
    pub payload: &'a [u8],
    /// The QoS; 1 by default.
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
}

impl MessageColumns {
    /// Checks names and types of the columns; [`row`](Self::row) checks values.
    ///
    /// # Errors
    ///
    /// A column that is missing, unknown, or of another type.
    pub fn of(batch: &RecordBatch) -> Result<Self, ColumnError> {
        let schema = batch.schema_ref();
        let mut fields = schema.fields().iter();
        if let Some(field) = fields.find(|field| !NAMES.contains(&field.name().as_str())) {
            return Err(ColumnError::Unknown(field.name().clone()));
        }
        let optional = |column: &'static str, allowed: &'static [DataType]| match batch
            .column_by_name(column)
        {
            Some(found) if !allowed.contains(found.data_type()) => Err(ColumnError::Type {
                column,
                found: found.data_type().clone(),
                allowed,
            }),
            found => Ok(found.cloned()),
        };
        let wanted = |column, allowed| {
            let found = optional(column, allowed)?;
            found.ok_or(ColumnError::Missing(column))
        };
        Ok(Self {
            rows: batch.num_rows(),
            topic: wanted("topic", &[DataType::Utf8])?,
            payload: wanted("payload", &[DataType::Binary, DataType::Utf8])?,
            qos: optional("qos", &[DataType::Int8, DataType::Int32, DataType::Int64])?,
            retain: optional("retain", &[DataType::Boolean])?,
            content_type: optional("content_type", &[DataType::Utf8])?,
            response_topic: optional("response_topic", &[DataType::Utf8])?,
            correlation_data: optional("correlation_data", &[DataType::Binary])?,
            expiry: optional("expiry", &[DataType::Int64])?,
            user_properties: pairs(batch.column_by_name("user_properties"))?,
        })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The first column that requires MQTT 5.0.
    pub fn needs_5(&self) -> Option<&'static str> {
        [
            ("content_type", &self.content_type),
            ("response_topic", &self.response_topic),
            ("correlation_data", &self.correlation_data),
            ("expiry", &self.expiry),
            ("user_properties", &self.user_properties),
        ]
        .into_iter()
        .find_map(|(name, column)| column.is_some().then_some(name))
    }

    /// One row as a message.
    ///
    /// # Errors
    ///
    /// The topic is missing or not a valid topic name within `limits`, or the QoS is not valid.
    pub fn row(&self, index: usize, limits: &TopicLimits) -> Result<PublishRow<'_>, RowError> {
        let topic = string(Some(&self.topic), index).ok_or(RowError::NoTopic)?;
        let name = TopicName::parse(topic, limits);
        let qos = integer(self.qos.as_ref(), index).unwrap_or(1);
        Ok(PublishRow {
            topic: name.map_err(|error| RowError::Topic(topic.to_owned(), error))?,
            payload: bytes(Some(&self.payload), index).unwrap_or_default(),
            qos: match qos {
                0 => QoS::AtMostOnce,
                1 => QoS::AtLeastOnce,
                2 => QoS::ExactlyOnce,
                other => return Err(RowError::QoS(other)),
            },
            retain: self.is_retained(index),
        })
    }

    /// Adds the MQTT 5.0 properties of the message to `list`.
    ///
    /// # Errors
    ///
    /// A value is not valid for its property.
    pub fn properties(
        &self,
        index: usize,
        limits: &TopicLimits,
        list: &mut PropertiesBuf,
    ) -> Result<(), RowError> {
        if let Some(seconds) = integer(self.expiry.as_ref(), index) {
            let seconds = u32::try_from(seconds).map_err(|_| RowError::Expiry(seconds))?;
            list.push(Property::MessageExpiryInterval(seconds))?;
        }
        if let Some(text) = string(self.content_type.as_ref(), index) {
            list.push(Property::ContentType(checked(text)?))?;
        }
        if let Some(text) = string(self.response_topic.as_ref(), index) {
            let name = TopicName::parse(text, limits);
            name.map_err(|error| RowError::ResponseTopic(text.to_owned(), error))?;
            list.push(Property::ResponseTopic(checked(text)?))?;
        }
        if let Some(data) = bytes(self.correlation_data.as_ref(), index) {
            list.push(Property::CorrelationData(data))?;
        }
        self.user_properties(index, list)
    }

    fn user_properties(&self, index: usize, list: &mut PropertiesBuf) -> Result<(), RowError> {
        let column = self.user_properties.as_ref();
        let Some(column) = column.filter(|column| column.is_valid(index)) else {
            return Ok(());
        };
        let pairs = column.as_list::<i32>().value(index);
        let field = |name| pairs.as_struct().column_by_name(name);
        let (keys, values) = (field("key"), field("value"));
        for pair in 0..pairs.len() {
            let (key, value) = (string(keys, pair), string(values, pair));
            let (key, value) = key.zip(value).ok_or(RowError::NullProperty)?;
            list.push(Property::UserProperty(checked(key)?, checked(value)?))?;
        }
        Ok(())
    }

    /// The topics of rows that are retained and not empty.
    pub fn retained_topics(&self) -> impl Iterator<Item = &str> {
        let has_payload =
            |row: &usize| bytes(Some(&self.payload), *row).is_some_and(|b| !b.is_empty());
        let rows = (0..self.rows).filter(|row| self.is_retained(*row));
        rows.filter(has_payload)
            .filter_map(|row| string(Some(&self.topic), row))
    }

    fn is_retained(&self, row: usize) -> bool {
        let column = self.retain.as_ref();
        column.is_some_and(|column| column.is_valid(row) && column.as_boolean().value(row))
    }
}

fn checked(text: &str) -> Result<Text<'_>, RowError> {
    Text::new(text).map_err(|error| RowError::Text(text.to_owned(), error))
}

/// The column of user properties, if it is one.
fn pairs(column: Option<&ArrayRef>) -> Result<Option<ArrayRef>, ColumnError> {
    let is_pairs = |kind: &DataType| match kind {
        DataType::List(item) => match item.data_type() {
            DataType::Struct(fields) => {
                let is_text = |name| {
                    let found = fields.find(name);
                    found.is_some_and(|(_, field)| *field.data_type() == DataType::Utf8)
                };
                fields.len() == 2 && is_text("key") && is_text("value")
            }
            _ => false,
        },
        _ => false,
    };
    match column {
        Some(column) if !is_pairs(column.data_type()) => {
            Err(ColumnError::Pairs(column.data_type().clone()))
        }
        column => Ok(column.cloned()),
    }
}

fn string(column: Option<&ArrayRef>, row: usize) -> Option<&str> {
    let column = column.filter(|column| column.is_valid(row))?;
    Some(column.as_string::<i32>().value(row))
}

fn bytes(column: Option<&ArrayRef>, row: usize) -> Option<&[u8]> {
    let column = column.filter(|column| column.is_valid(row))?;
    Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes(),
        _ => column.as_binary::<i32>().value(row),
    })
}

fn integer(column: Option<&ArrayRef>, row: usize) -> Option<i64> {
    let column = column.filter(|column| column.is_valid(row))?;
    Some(match column.data_type() {
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        _ => column.as_primitive::<Int64Type>().value(row),
    })
}

/// Names of all columns.
pub(crate) const NAMES: [&str; 9] = [
    "topic",
    "payload",
    "qos",
    "retain",
    "content_type",
    "response_topic",
    "correlation_data",
    "expiry",
    "user_properties",
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringArray;
    use arrow_array::builder::{ListBuilder, StringBuilder, StructBuilder};
    use arrow_schema::{Field, Fields};

    use super::*;

    /// One row with one user property, whose struct has these fields.
    fn row(fields: [(&str, &str); 2]) -> RecordBatch {
        let kinds: Fields = fields
            .iter()
            .map(|(name, _)| Field::new(*name, DataType::Utf8, true))
            .collect();
        let mut pairs = ListBuilder::new(StructBuilder::from_fields(kinds, 1));
        for (place, (_, value)) in fields.iter().enumerate() {
            let field = pairs.values().field_builder::<StringBuilder>(place);
            field.unwrap().append_value(value);
        }
        pairs.values().append(true);
        pairs.append(true);
        let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
        let columns = [
            ("topic", text("t")),
            ("payload", text("")),
            ("user_properties", Arc::new(pairs.finish())),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn fields_of_user_properties_are_found_by_name() {
        for fields in [
            [("key", "unit"), ("value", "K")],
            [("value", "K"), ("key", "unit")],
        ] {
            let columns = MessageColumns::of(&row(fields)).unwrap();
            let mut list = PropertiesBuf::default();

            columns
                .properties(0, &TopicLimits::default(), &mut list)
                .unwrap();

            let pairs: Vec<_> = list.as_properties().user_properties().collect();
            assert_eq!(pairs.len(), 1);
            assert_eq!(
                (pairs[0].0, pairs[0].1),
                ("unit".try_into().unwrap(), "K".try_into().unwrap())
            );
        }
    }

    #[test]
    fn user_properties_with_other_fields_are_refused() {
        let refused = MessageColumns::of(&row([("name", "unit"), ("value", "K")]));

        assert!(matches!(refused, Err(ColumnError::Pairs(_))), "{refused:?}");
    }
}
