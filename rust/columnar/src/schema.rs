//! The schema that all streams share.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// Names of the columns that reader and writer use.
pub(crate) const PARTITION: &str = "partition";
pub(crate) const OFFSET: &str = "offset";
pub(crate) const TIMESTAMP: &str = "timestamp";
pub(crate) const TOPIC: &str = "topic";
pub(crate) const PAYLOAD: &str = "payload";
pub(crate) const RETAIN: &str = "retain";

/// Returns the columns of a row, in their order.
///
/// | column | type |
/// | --- | --- |
/// | `partition` | int32 |
/// | `offset` | int64, dense a partition |
/// | `timestamp` | timestamp in microseconds, UTC; never falls within a partition |
/// | `topic` | utf8 |
/// | `payload` | binary |
/// | `qos` | int8 |
/// | `retain`, `dup` | boolean |
/// | `client_id` | utf8 |
/// | `content_type`, `response_topic` | utf8 or null |
/// | `correlation_data` | binary or null |
/// | `expiry` | int64 or null: Message Expiry Interval in seconds |
/// | `user_properties` | list of struct of `key` and `value`, both utf8 |
///
/// Every field is declared nullable, even if it is never null: Spark requires this of a source.
pub fn row_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        nullable(PARTITION, DataType::Int32),
        nullable(OFFSET, DataType::Int64),
        nullable(TIMESTAMP, instant()),
        nullable(TOPIC, DataType::Utf8),
        nullable(PAYLOAD, DataType::Binary),
        nullable("qos", DataType::Int8),
        nullable(RETAIN, DataType::Boolean),
        nullable("dup", DataType::Boolean),
        nullable("client_id", DataType::Utf8),
        nullable("content_type", DataType::Utf8),
        nullable("response_topic", DataType::Utf8),
        nullable("correlation_data", DataType::Binary),
        nullable("expiry", DataType::Int64),
        nullable("user_properties", DataType::List(Arc::new(pair()))),
    ]))
}

/// The time zone of all timestamps.
pub(crate) const UTC: &str = "UTC";

pub(crate) fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

pub(crate) fn nullable(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// An element of `user_properties`.
pub(crate) fn pair() -> Field {
    nullable("element", DataType::Struct(pair_fields()))
}

pub(crate) fn pair_fields() -> Fields {
    Fields::from(vec![
        nullable("key", DataType::Utf8),
        nullable("value", DataType::Utf8),
    ])
}
