//! Converts a record of the log to a row.

use mqttcore_codec::{Properties, Property};

use crate::record::{MessageRecord, Streamed};
use mqttcore_columnar::Row;

/// The row of a message, without its offset; `pairs` holds its user properties.
pub(super) fn of<'a>(
    message: &MessageRecord<'a>,
    streamed: &Streamed<'a>,
    pairs: &'a mut Vec<(&'a str, &'a str)>,
) -> Row<'a> {
    let mut row = Row {
        // INVARIANT: a time beyond an `i64` is three hundred thousand years away.
        timestamp_us: i64::try_from(streamed.at_us).unwrap_or(i64::MAX),
        topic: message.topic,
        payload: message.payload,
        qos: message.qos,
        retain: message.retain,
        dup: streamed.dup,
        client_id: message.source.unwrap_or_default(),
        ..Row::default()
    };
    for property in Properties::from_checked(message.properties) {
        match property {
            Property::ContentType(text) => row.content_type = Some(text.as_str()),
            Property::ResponseTopic(text) => row.response_topic = Some(text.as_str()),
            Property::CorrelationData(bytes) => row.correlation_data = Some(bytes),
            Property::MessageExpiryInterval(seconds) => row.expiry_s = Some(seconds),
            Property::UserProperty(key, value) => pairs.push((key.as_str(), value.as_str())),
            _ => {}
        }
    }
    row.user_properties = pairs;
    row
}

/// The row with an offset.
pub(super) fn at<'a>(row: &Row<'a>, offset: u64) -> Row<'a> {
    // INVARIANT: offsets grow by one from 0.
    let offset = i64::try_from(offset).expect("fewer rows than an `i64` counts");
    Row { offset, ..*row }
}
