//! Rows of a batch as messages.
//!
//! | column | type | |
//! | --- | --- | --- |
//! | `topic` | utf8 | a topic name that does not begin with `$` |
//! | `payload` | binary or utf8 | null is empty |
//! | `qos` | int8, int32 or int64 | 0 to 2; null or missing is 1 |
//! | `retain` | boolean | null or missing is false |
//! | `content_type`, `response_topic` | utf8 | |
//! | `correlation_data` | binary | |
//! | `expiry` | int64 | seconds |
//! | `user_properties` | list of struct of key: utf8, value: utf8 | |

use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use mqttcore_codec::{PropertiesBuf, Property, QoS, Text};
use mqttcore_session::{Message, ServerLimits};
use mqttcore_topics::TopicName;

/// The columns of one batch.
pub(super) struct Columns<'a> {
    limits: &'a ServerLimits,
    rows: usize,
    topic: &'a ArrayRef,
    payload: &'a ArrayRef,
    qos: Option<&'a ArrayRef>,
    retain: Option<&'a ArrayRef>,
    content_type: Option<&'a ArrayRef>,
    response_topic: Option<&'a ArrayRef>,
    correlation_data: Option<&'a ArrayRef>,
    expiry: Option<&'a ArrayRef>,
    user_properties: Option<&'a ArrayRef>,
}

const NAMES: [&str; 9] = [
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

impl<'a> Columns<'a> {
    /// # Errors
    ///
    /// A column that is missing, unknown, or of another type.
    pub(super) fn of(batch: &'a RecordBatch, limits: &'a ServerLimits) -> Result<Self, String> {
        let schema = batch.schema_ref();
        let unknown = schema
            .fields()
            .iter()
            .find(|field| !NAMES.contains(&field.name().as_str()));
        if let Some(field) = unknown {
            return Err(format!(
                "unknown column {:?}; allowed: {}",
                field.name(),
                NAMES.join(", ")
            ));
        }
        let optional = |name: &str, allowed: &[DataType]| match batch.column_by_name(name) {
            Some(column) if !allowed.contains(column.data_type()) => Err(format!(
                "column {name} is {}; allowed: {allowed:?}",
                column.data_type()
            )),
            found => Ok(found),
        };
        let wanted = |name: &str, allowed: &[DataType]| {
            let found = optional(name, allowed)?;
            found.ok_or_else(|| format!("column {name} is missing"))
        };
        let text = [DataType::Utf8];
        Ok(Self {
            limits,
            rows: batch.num_rows(),
            topic: wanted("topic", &text)?,
            payload: wanted("payload", &[DataType::Binary, DataType::Utf8])?,
            qos: optional("qos", &[DataType::Int8, DataType::Int32, DataType::Int64])?,
            retain: optional("retain", &[DataType::Boolean])?,
            content_type: optional("content_type", &text)?,
            response_topic: optional("response_topic", &text)?,
            correlation_data: optional("correlation_data", &[DataType::Binary])?,
            expiry: optional("expiry", &[DataType::Int64])?,
            user_properties: pairs(batch.column_by_name("user_properties"))?,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// One row as a message.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn message(&self, now: Instant, row: usize) -> Result<Message, String> {
        let topic = string(Some(self.topic), row).ok_or("it has no topic")?;
        if topic.starts_with('$') {
            return Err(format!(
                "topic {topic:?} begins with $: that is the broker's"
            ));
        }
        let name = TopicName::parse(topic, &self.limits.topic);
        let name = name.map_err(|error| format!("topic {topic:?}: {error}"))?;
        let payload = bytes(Some(self.payload), row).unwrap_or_default();
        let properties = self.properties(row)?;
        let properties = properties.as_properties();
        let size = topic.len() + payload.len() + properties.as_bytes().len();
        let most = self.limits.maximum_packet_size as usize;
        if size > most {
            return Err(format!(
                "{size} bytes are more than a packet may have: {most}"
            ));
        }
        let qos = match integer(self.qos, row).unwrap_or(1) {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            2 => QoS::ExactlyOnce,
            other => return Err(format!("{other} is no QoS")),
        };
        let retain = self.is_retained(row);
        Ok(Message::copied(now, name, properties, payload, qos, retain))
    }

    /// The topics of rows that are retained and not empty.
    pub(super) fn retained_topics(&self) -> impl Iterator<Item = &str> {
        let has_payload =
            |row: &usize| bytes(Some(self.payload), *row).is_some_and(|b| !b.is_empty());
        let rows = (0..self.rows).filter(|row| self.is_retained(*row));
        rows.filter(has_payload)
            .filter_map(|row| string(Some(self.topic), row))
    }

    fn is_retained(&self, row: usize) -> bool {
        self.retain
            .is_some_and(|column| column.is_valid(row) && column.as_boolean().value(row))
    }

    fn properties(&self, row: usize) -> Result<PropertiesBuf, String> {
        let mut list = PropertiesBuf::default();
        let mut push = |property: Property<'_>| match list.push(property) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Some(seconds) = integer(self.expiry, row) {
            let seconds = u32::try_from(seconds).map_err(|_| format!("{seconds} is no expiry"))?;
            push(Property::MessageExpiryInterval(seconds))?;
        }
        if let Some(text) = string(self.content_type, row) {
            push(Property::ContentType(checked(text)?))?;
        }
        if let Some(text) = string(self.response_topic, row) {
            let name = TopicName::parse(text, &self.limits.topic);
            name.map_err(|error| format!("response topic {text:?}: {error}"))?;
            push(Property::ResponseTopic(checked(text)?))?;
        }
        if let Some(data) = bytes(self.correlation_data, row) {
            push(Property::CorrelationData(data))?;
        }
        let pairs = self.user_properties.filter(|column| column.is_valid(row));
        if let Some(pairs) = pairs.map(|column| column.as_list::<i32>().value(row)) {
            let (keys, values) = (pairs.as_struct().column(0), pairs.as_struct().column(1));
            for pair in 0..pairs.len() {
                let (key, value) = (string(Some(keys), pair), string(Some(values), pair));
                let (key, value) = key.zip(value).ok_or("a user property has a null")?;
                push(Property::UserProperty(checked(key)?, checked(value)?))?;
            }
        }
        Ok(list)
    }
}

fn checked(text: &str) -> Result<Text<'_>, String> {
    Text::new(text).map_err(|error| format!("{text:?}: {error}"))
}

/// The column of user properties, if it is one.
fn pairs(column: Option<&ArrayRef>) -> Result<Option<&ArrayRef>, String> {
    let is_pairs = |kind: &DataType| match kind {
        DataType::List(item) => match item.data_type() {
            DataType::Struct(fields) => {
                fields.len() == 2
                    && fields
                        .iter()
                        .all(|field| *field.data_type() == DataType::Utf8)
            }
            _ => false,
        },
        _ => false,
    };
    match column {
        Some(column) if !is_pairs(column.data_type()) => Err(format!(
            "column user_properties is {}; allowed: a list of a struct of two texts",
            column.data_type()
        )),
        column => Ok(column),
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
