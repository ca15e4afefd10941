//! Messages that no client published with PUBLISH: wills, and messages of the embedding program, a sink or a plugin.

use mqttcore_codec::{Properties, Property, QoS};
use mqttcore_topics::{TopicError, TopicName};
use thiserror::Error;

use crate::limits::{PACKET_BYTES_MAX, ServerLimits};
use crate::message::Message;
use crate::transmit::with_length;

/// Maximum number of bytes after the fixed header of a packet.
const REMAINING_BYTES_MAX: u64 = PACKET_BYTES_MAX as u64 - 5;

/// Why a message cannot be made of the given parts.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MessageError {
    /// The response topic is not a topic name [MQTT-3.3.2-14].
    #[error("response topic: {0}")]
    ResponseTopic(TopicError),
    /// Payload Format Indicator is 1, the payload is not UTF-8, and the limits require the check.
    #[error("[MQTT5 3.3.2.3.2] payload is not UTF-8, but its Payload Format Indicator is 1")]
    PayloadFormat,
    /// The message is too large for any PUBLISH.
    #[error("the message needs {0} bytes; a packet has at most {REMAINING_BYTES_MAX}")]
    TooLarge(u64),
}

impl Message {
    /// Makes a message from parts that did not come in a PUBLISH.
    ///
    /// The caller has checked with the codec that the properties are allowed in a PUBLISH or a will; Will Delay is left
    /// out. The message expiry does not run before [`Message::published_at`].
    ///
    /// # Errors
    ///
    /// [`MessageError`]; it is returned before anything is copied.
    pub fn composed(
        topic: TopicName<'_>,
        properties: Properties<'_>,
        payload: &[u8],
        qos: QoS,
        retain: bool,
        limits: &ServerLimits,
    ) -> Result<Self, MessageError> {
        for property in properties {
            check_property(property, payload, limits)?;
        }
        let packet_id = 2;
        let properties_bytes = with_length(properties.as_bytes().len() as u64);
        let topic_bytes = 2 + topic.as_str().len() as u64;
        let bytes = topic_bytes + packet_id + properties_bytes + payload.len() as u64;
        if bytes > REMAINING_BYTES_MAX {
            return Err(MessageError::TooLarge(bytes));
        }
        Ok(Self::from_parts(topic, properties, payload, qos, retain))
    }
}

/// Checks a forwarded property for rules that the codec does not check.
pub(crate) fn check_property(
    property: Property<'_>,
    payload: &[u8],
    limits: &ServerLimits,
) -> Result<(), MessageError> {
    match property {
        Property::ResponseTopic(topic) => {
            TopicName::parse(topic.as_str(), &limits.topic).map_err(MessageError::ResponseTopic)?;
        }
        Property::PayloadFormatIndicator(true) if limits.payload_format_checked => {
            std::str::from_utf8(payload).map_err(|_| MessageError::PayloadFormat)?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mqttcore_codec::{PropertiesBuf, Text};
    use mqttcore_topics::TopicLimits;

    use super::*;

    fn composed(
        properties: &[Property<'_>],
        payload: &[u8],
        limits: &ServerLimits,
    ) -> Result<Message, MessageError> {
        let mut list = PropertiesBuf::default();
        for property in properties {
            list.push(*property).unwrap();
        }
        let topic = TopicName::parse("t", &TopicLimits::default()).unwrap();
        let qos = QoS::AtLeastOnce;
        Message::composed(topic, list.as_properties(), payload, qos, false, limits)
    }

    #[test]
    fn mqtt_3_3_2_14_a_response_topic_is_a_topic_name() {
        let limits = ServerLimits::default();
        let deep = "/".repeat(200);
        for (text, error) in [
            ("x/#", TopicError::WildcardInName),
            ("+", TopicError::WildcardInName),
            ("", TopicError::Empty),
            (&deep, TopicError::TooManyLevels),
        ] {
            let response = Property::ResponseTopic(Text::new(text).unwrap());

            let refused = composed(&[response], b"", &limits).unwrap_err();

            assert_eq!(refused, MessageError::ResponseTopic(error), "{text:?}");
        }
    }

    #[test]
    fn a_payload_is_the_text_that_it_says_it_is_if_that_is_checked() {
        let checking = ServerLimits {
            payload_format_checked: true,
            ..ServerLimits::default()
        };
        let text = [Property::PayloadFormatIndicator(true)];

        let refused = composed(&text, b"\xff", &checking).unwrap_err();

        assert_eq!(refused, MessageError::PayloadFormat);
        assert!(composed(&text, "\u{e4}".as_bytes(), &checking).is_ok());
        assert!(composed(&text, b"\xff", &ServerLimits::default()).is_ok());
    }

    /// MQTT 5.0 section 1.5.5: a packet has at most 268,435,455 bytes after its fixed header. The payload's
    /// pages are never touched, so the test does not use that memory.
    #[test]
    fn a_message_that_no_packet_can_carry_is_refused() {
        // 3 for the topic, 2 for a packet identifier, 1 for the length of no properties
        let payload = vec![0; 268_435_455 - 6 + 1];

        let refused = composed(&[], &payload, &ServerLimits::default()).unwrap_err();

        assert_eq!(refused, MessageError::TooLarge(268_435_456));
    }
}
