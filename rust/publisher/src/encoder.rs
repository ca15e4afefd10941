//! Encodes rows as PUBLISH packets.

use std::fmt::Write as _;

use mqttcore_codec::{
    PacketId, PropertiesBuf, Property, ProtocolVersion, Publish, PublishQoS, QoS, Text,
    encode_publish_head,
};
use mqttcore_topics::TopicLimits;

use crate::columns::{MessageColumns, PublishRow};
use crate::server::ServerCapabilities;
use crate::{ID, PublisherFailure, RowError};

/// Encoder of one connection; buffers one row at a time.
pub(crate) struct Encoder {
    pub(crate) version: ProtocolVersion,
    pub(crate) server: ServerCapabilities,
    /// Prefix of ids; the row number follows.
    name: String,
    id: String,
    properties: PropertiesBuf,
    head: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(version: ProtocolVersion, name: &str) -> Self {
        Self {
            version,
            server: ServerCapabilities::ANY,
            name: name.to_owned(),
            id: String::new(),
            properties: PropertiesBuf::default(),
            head: Vec::new(),
        }
    }

    /// Returns the id of the row with this number.
    pub(crate) fn id(&mut self, number: u64) -> &str {
        self.id.clear();
        // INVARIANT: writing to a String does not fail.
        write!(self.id, "{}/{number}", self.name).expect("it is written");
        &self.id
    }

    /// # Errors
    ///
    /// [`PublisherFailure::Row`] for a row that cannot be sent.
    pub(crate) fn check(
        &mut self,
        columns: &MessageColumns,
        index: usize,
        number: u64,
    ) -> Result<(), PublisherFailure> {
        let row = message(columns, index);
        let head = row.and_then(|row| self.head(columns, index, &row, number, PacketId::MAX));
        head.map_err(|error| self.failure(number, error))
    }

    /// Appends a row to `out` if `take` returns a packet identifier for its QoS; otherwise returns false.
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    pub(crate) fn append(
        &mut self,
        columns: &MessageColumns,
        (index, number): (usize, u64),
        take: impl FnOnce(QoS) -> Option<PacketId>,
        out: &mut Vec<u8>,
    ) -> Result<bool, PublisherFailure> {
        let row = message(columns, index).map_err(|error| self.failure(number, error))?;
        let Some(packet_id) = take(row.qos) else {
            return Ok(false);
        };
        let head = self.head(columns, index, &row, number, packet_id);
        head.map_err(|error| self.failure(number, error))?;
        out.extend_from_slice(&self.head);
        out.extend_from_slice(row.payload);
        Ok(true)
    }

    /// Writes the packet without its payload to `self.head`.
    fn head(
        &mut self,
        columns: &MessageColumns,
        index: usize,
        row: &PublishRow<'_>,
        number: u64,
        packet_id: PacketId,
    ) -> Result<(), RowError> {
        self.properties.clear();
        if self.version.has_properties() {
            self.id(number);
            columns.properties(index, &TOPICS, &mut self.properties)?;
            let id = Property::UserProperty(text(ID)?, text(&self.id)?);
            self.properties.push(id)?;
        }
        let publish = Publish {
            delivery: match row.qos {
                QoS::ExactlyOnce => PublishQoS::ExactlyOnce {
                    packet_id,
                    dup: false,
                },
                _ => PublishQoS::AtLeastOnce {
                    packet_id,
                    dup: false,
                },
            },
            retain: row.retain,
            topic: text(row.topic.as_str())?,
            properties: self.properties.as_properties(),
            payload: row.payload,
        };
        self.head.clear();
        encode_publish_head(&publish, self.version, &mut self.head)?;
        let bytes = self.head.len() + row.payload.len();
        self.server.check(row.qos, row.retain, bytes)
    }

    fn failure(&mut self, number: u64, error: RowError) -> PublisherFailure {
        let id = self.id(number).to_owned();
        PublisherFailure::Row { id, error }
    }
}

/// Reads a row and raises QoS 0 to 1, so that the message is acknowledged.
fn message(columns: &MessageColumns, index: usize) -> Result<PublishRow<'_>, RowError> {
    let row = columns.row(index, &TOPICS)?;
    let qos = row.qos.max(QoS::AtLeastOnce);
    Ok(PublishRow { qos, ..row })
}

fn text(text: &str) -> Result<Text<'_>, RowError> {
    Text::new(text).map_err(|error| RowError::Text(text.to_owned(), error))
}

/// Limits of the protocol; a server may allow less and then rejects the message.
const TOPICS: TopicLimits = TopicLimits {
    bytes: 65_535,
    levels: 1024,
    refuse_control_characters: false,
};
