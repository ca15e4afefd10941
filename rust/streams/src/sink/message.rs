//! Converts rows of a batch to messages of the broker.

use std::time::Instant;

use mqttcore_codec::PropertiesBuf;
use mqttcore_publisher::MessageColumns;
use mqttcore_session::{Message, ServerLimits};

/// One row as a message.
///
/// # Errors
///
/// The row is not a valid message.
pub(super) fn message(
    columns: &MessageColumns,
    index: usize,
    limits: &ServerLimits,
    now: Instant,
) -> Result<Message, String> {
    let row = columns.row(index, &limits.topic);
    let row = row.map_err(|error| error.to_string())?;
    if row.topic.is_dollar() {
        let topic = row.topic.as_str();
        return Err(format!(
            "topic {topic:?} begins with $: such topics are reserved for the broker"
        ));
    }
    let mut list = PropertiesBuf::default();
    let listed = columns.properties(index, &limits.topic, &mut list);
    listed.map_err(|error| error.to_string())?;
    let properties = list.as_properties();
    let size = row.topic.as_str().len() + row.payload.len() + properties.as_bytes().len();
    let most = limits.maximum_packet_size as usize;
    if size > most {
        return Err(format!(
            "the message needs {size} bytes; a packet has at most {most}"
        ));
    }
    let (name, payload) = (row.topic, row.payload);
    let message = Message::composed(name, properties, payload, row.qos, row.retain, limits);
    let message = message.map_err(|error| error.to_string())?;
    Ok(message.published_at(now))
}
