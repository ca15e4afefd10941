//! Converts a message to a Kafka record.

use mqttcore_broker::{RecordTicket, RowRecord};
use mqttcore_codec::Property;
use mqttcore_session::Message;

/// Prefix of the header names of User Properties.
const USER: &str = "user.";

/// User Properties of a trace (W3C Trace Context). They are also headers without the prefix, where Kafka clients look
/// for a trace.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// Approximate overhead of a queued record, in bytes.
const OVERHEAD_BYTES: usize = 512;

/// Most bytes that the lengths of a header take: two numbers of 3 bytes each.
const LENGTH_BYTES: usize = 6;

/// A message as a Kafka record.
///
/// The key is the topic, the value is the payload. Everything else is in headers: as text, except for correlation
/// data. `mqttcore.spark.from_kafka` reads them.
#[derive(Clone)]
pub struct KafkaRecord {
    pub(super) message: Message,
    pub(super) client_id: Box<str>,
    /// The number of its stream in the configuration.
    pub stream: usize,
    /// The partition of the stream's topic.
    pub partition: u16,
    /// When it was published, in microseconds since 1970.
    pub timestamp_us: i64,
    /// Identifies the record in outcomes.
    pub ticket: RecordTicket,
}

impl KafkaRecord {
    /// The topic of the message.
    pub fn key(&self) -> &str {
        self.message.topic()
    }

    /// The payload of the message.
    pub fn value(&self) -> &[u8] {
        self.message.payload()
    }

    /// Calls `add` with the name and value of each header.
    pub fn headers(&self, mut add: impl FnMut(&str, &[u8])) {
        let message = &self.message;
        let flag = |set: bool| if set { &b"true"[..] } else { b"false" };
        add("timestamp_us", self.timestamp_us.to_string().as_bytes());
        add("qos", (message.qos() as u8).to_string().as_bytes());
        add("retain", flag(message.retain()));
        add("dup", flag(message.dup()));
        add("client_id", self.client_id.as_bytes());
        for property in message.properties() {
            match property {
                Property::ContentType(text) => add("content_type", text.as_str().as_bytes()),
                Property::ResponseTopic(text) => add("response_topic", text.as_str().as_bytes()),
                Property::CorrelationData(bytes) => add("correlation_data", bytes),
                Property::MessageExpiryInterval(seconds) => {
                    add("expiry", seconds.to_string().as_bytes());
                }
                Property::UserProperty(key, value) => {
                    add(
                        &format!("{USER}{}", key.as_str()),
                        value.as_str().as_bytes(),
                    );
                }
                _ => {}
            }
        }
        for (name, value) in trace_of(message) {
            add(name, value.as_bytes());
        }
    }
}

impl From<RowRecord> for KafkaRecord {
    fn from(record: RowRecord) -> Self {
        Self {
            message: record.message,
            client_id: record.client_id,
            stream: record.stream as usize,
            partition: record.partition,
            timestamp_us: record.timestamp_us,
            ticket: record.ticket,
        }
    }
}

/// The User Properties of its trace.
fn trace_of(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    let texts = message.properties().into_iter().filter_map(|property| {
        let Property::UserProperty(key, value) = property else {
            return None;
        };
        Some((key.as_str(), value.as_str()))
    });
    texts.filter(|(key, _)| TRACE.contains(key))
}

/// Approximate bytes of a record of `message`; never fewer than Kafka counts.
pub(super) fn weight(message: &Message) -> usize {
    let own = message.topic().len() + message.payload().len();
    let properties = message.properties();
    let lengths = LENGTH_BYTES * properties.into_iter().count();
    let trace = trace_of(message).map(|(name, value)| name.len() + value.len() + LENGTH_BYTES);
    own + properties.as_bytes().len() + lengths + trace.sum::<usize>() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use mqttcore_codec::{Properties, PropertiesBuf, QoS, Text};
    use mqttcore_topics::{TopicLimits, TopicName};

    use super::*;

    fn record(properties: Properties<'_>) -> KafkaRecord {
        let topic = TopicName::parse("plant/1", &TopicLimits::default()).unwrap();
        let now = Instant::now();
        KafkaRecord {
            message: Message::copied(now, topic, properties, b"21.5", QoS::AtLeastOnce, true),
            client_id: "meter-1".into(),
            stream: 0,
            partition: 3,
            timestamp_us: 1_700_000_000_000_001,
            ticket: RecordTicket::unpack(1 << 56 | 7),
        }
    }

    fn headers(record: &KafkaRecord) -> Vec<(String, String)> {
        let mut found = Vec::new();
        record.headers(|name, value| {
            found.push((name.to_owned(), String::from_utf8(value.to_vec()).unwrap()));
        });
        found
    }

    #[test]
    fn a_record_says_all_that_a_row_has() {
        let text = |text| Text::new(text).unwrap();
        let mut properties = PropertiesBuf::default();
        properties
            .push(Property::ContentType(text("text/plain")))
            .unwrap();
        properties
            .push(Property::ResponseTopic(text("answers/1")))
            .unwrap();
        properties.push(Property::CorrelationData(b"c-1")).unwrap();
        properties
            .push(Property::MessageExpiryInterval(60))
            .unwrap();
        properties
            .push(Property::UserProperty(text("unit"), text("C")))
            .unwrap();
        properties
            .push(Property::UserProperty(text("unit"), text("K")))
            .unwrap();

        let record = record(properties.as_properties());

        assert_eq!((record.key(), record.value()), ("plant/1", &b"21.5"[..]));
        let expected = [
            ("timestamp_us", "1700000000000001"),
            ("qos", "1"),
            ("retain", "true"),
            ("dup", "false"),
            ("client_id", "meter-1"),
            ("content_type", "text/plain"),
            ("response_topic", "answers/1"),
            ("correlation_data", "c-1"),
            ("expiry", "60"),
            ("user.unit", "C"),
            ("user.unit", "K"),
        ];
        assert_eq!(
            headers(&record),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn the_trace_of_a_message_is_also_in_headers_of_its_own() {
        let text = |text| Text::new(text).unwrap();
        let mut properties = PropertiesBuf::default();
        let pairs = [
            ("tracestate", "k=v"),
            ("unit", "C"),
            ("traceparent", "00-1-2-01"),
        ];
        let before = weight(&record(properties.as_properties()).message);
        for (name, value) in pairs {
            properties
                .push(Property::UserProperty(text(name), text(value)))
                .unwrap();
        }

        let record = record(properties.as_properties());

        let own = |name: &str| name.starts_with("user.") || name.starts_with("trace");
        let mut found = headers(&record);
        found.retain(|(name, _)| own(name));
        let expected = [
            ("user.tracestate", "k=v"),
            ("user.unit", "C"),
            ("user.traceparent", "00-1-2-01"),
            ("tracestate", "k=v"),
            ("traceparent", "00-1-2-01"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        // A header of less than 64 bytes has two lengths of a byte each, a longer one two of 3 at most.
        let headers = found
            .iter()
            .map(|(name, value)| name.len() + value.len() + 6);
        assert!(weight(&record.message) >= before + headers.sum::<usize>());
    }
}
