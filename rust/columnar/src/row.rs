//! Rows, and the builder that collects them into batches.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Int8Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, Int32Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;

use super::ColumnarError;
use super::schema::{UTC, pair, pair_fields, row_schema};

/// Maximum size of a row in bytes: half of the range of a batch's offsets.
pub const MAX_ROW_BYTES: usize = 1 << 30;

/// Bytes of a row in a batch, apart from its texts and blobs.
const FIXED_BYTES: usize = 64;

/// Overhead of a user property in bytes.
const PAIR_BYTES: usize = 8;

/// Maximum of the 32-bit offsets of a column.
const MAX_BATCH_BYTES: usize = i32::MAX as usize;

/// One message as a row; [`row_schema`] describes the columns.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Row<'a> {
    /// Offset in its partition.
    pub offset: i64,
    /// Time at which the broker accepted the message, in Unix microseconds.
    pub timestamp_us: i64,
    /// Topic name.
    pub topic: &'a str,
    /// Payload.
    pub payload: &'a [u8],
    /// QoS of the PUBLISH: 0 to 2.
    pub qos: u8,
    /// RETAIN as published.
    pub retain: bool,
    /// DUP as published.
    pub dup: bool,
    /// Client identifier of the publisher; empty for the broker itself.
    pub client_id: &'a str,
    /// Content Type.
    pub content_type: Option<&'a str>,
    /// Response Topic.
    pub response_topic: Option<&'a str>,
    /// Correlation Data.
    pub correlation_data: Option<&'a [u8]>,
    /// Message Expiry Interval in seconds.
    pub expiry_s: Option<u32>,
    /// User Properties, in their order; keys may repeat.
    pub user_properties: &'a [(&'a str, &'a str)],
}

impl Row<'_> {
    /// Returns the approximate size of the row in a batch, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = [
            Some(self.topic),
            Some(self.client_id),
            self.content_type,
            self.response_topic,
        ];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        let properties = self.user_properties.iter();
        let properties: usize = properties
            .map(|(key, value)| PAIR_BYTES + key.len() + value.len())
            .sum();
        let blobs = self.payload.len() + self.correlation_data.map_or(0, <[u8]>::len);
        FIXED_BYTES + texts + properties + blobs
    }
}

/// Collects rows of one partition until [`finish`](Self::finish) builds a batch.
#[derive(Debug)]
pub struct RowBuilder {
    schema: SchemaRef,
    partition: i32,
    bytes: usize,
    offset: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    topic: StringBuilder,
    payload: BinaryBuilder,
    qos: Int8Builder,
    retain: BooleanBuilder,
    dup: BooleanBuilder,
    client_id: StringBuilder,
    content_type: StringBuilder,
    response_topic: StringBuilder,
    correlation_data: BinaryBuilder,
    expiry: Int64Builder,
    property_keys: StringBuilder,
    property_values: StringBuilder,
    property_ends: Vec<i32>,
}

impl RowBuilder {
    /// Starts a batch of rows of `partition`.
    pub fn new(partition: i32) -> Self {
        Self {
            schema: row_schema(),
            partition,
            bytes: 0,
            offset: Int64Builder::new(),
            timestamp: TimestampMicrosecondBuilder::new().with_timezone(UTC),
            topic: StringBuilder::new(),
            payload: BinaryBuilder::new(),
            qos: Int8Builder::new(),
            retain: BooleanBuilder::new(),
            dup: BooleanBuilder::new(),
            client_id: StringBuilder::new(),
            content_type: StringBuilder::new(),
            response_topic: StringBuilder::new(),
            correlation_data: BinaryBuilder::new(),
            expiry: Int64Builder::new(),
            property_keys: StringBuilder::new(),
            property_values: StringBuilder::new(),
            property_ends: vec![0],
        }
    }

    /// Appends a row. The offset is not checked: it is the caller's responsibility.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::RowTooLarge`] for a row above [`MAX_ROW_BYTES`], [`ColumnarError::BatchFull`] if the batch has
    /// to be finished first. On an error nothing is appended.
    pub fn push(&mut self, row: &Row<'_>) -> Result<(), ColumnarError> {
        let bytes = row.bytes();
        if bytes > MAX_ROW_BYTES {
            let limit = MAX_ROW_BYTES;
            return Err(ColumnarError::RowTooLarge { bytes, limit });
        }
        if self.bytes + bytes > MAX_BATCH_BYTES {
            return Err(ColumnarError::BatchFull { bytes });
        }
        self.bytes += bytes;
        self.offset.append_value(row.offset);
        self.timestamp.append_value(row.timestamp_us);
        self.topic.append_value(row.topic);
        self.payload.append_value(row.payload);
        self.qos.append_value(row.qos.cast_signed());
        self.retain.append_value(row.retain);
        self.dup.append_value(row.dup);
        self.client_id.append_value(row.client_id);
        self.content_type.append_option(row.content_type);
        self.response_topic.append_option(row.response_topic);
        self.correlation_data.append_option(row.correlation_data);
        self.expiry.append_option(row.expiry_s.map(i64::from));
        for (key, value) in row.user_properties {
            self.property_keys.append_value(key);
            self.property_values.append_value(value);
        }
        let end = self.property_keys.offsets_slice().len() - 1;
        // INVARIANT: each pair counts PAIR_BYTES of MAX_BATCH_BYTES.
        let end = i32::try_from(end).expect("fewer pairs than an offset counts");
        self.property_ends.push(end);
        Ok(())
    }

    /// Returns the number of collected rows.
    pub fn rows(&self) -> usize {
        self.property_ends.len() - 1
    }

    /// Returns the approximate size of the collected rows in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Builds a batch of the collected rows, with the columns of [`row_schema`], and starts an empty one.
    pub fn finish(&mut self) -> RecordBatch {
        let rows = self.rows();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from_value(self.partition, rows)),
            Arc::new(self.offset.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.topic.finish()),
            Arc::new(self.payload.finish()),
            Arc::new(self.qos.finish()),
            Arc::new(self.retain.finish()),
            Arc::new(self.dup.finish()),
            Arc::new(self.client_id.finish()),
            Arc::new(self.content_type.finish()),
            Arc::new(self.response_topic.finish()),
            Arc::new(self.correlation_data.finish()),
            Arc::new(self.expiry.finish()),
            Arc::new(self.finish_properties()),
        ];
        self.bytes = 0;
        // INVARIANT: the builders are those of the columns, and each push appends to all of them.
        RecordBatch::try_new(self.schema.clone(), columns).expect("columns as in the schema")
    }

    fn finish_properties(&mut self) -> ListArray {
        let ends = std::mem::replace(&mut self.property_ends, vec![0]);
        let pairs = StructArray::new(
            pair_fields(),
            vec![
                Arc::new(self.property_keys.finish()),
                Arc::new(self.property_values.finish()),
            ],
            None,
        );
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        ListArray::new(Arc::new(pair()), ends, Arc::new(pairs), None)
    }
}
