//! Messages that a plugin changes.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::{Duration, Instant};

use common::start;
use mqttcore_codec::{PropertiesBuf, Property, QoS, Text, TextError};
use mqttcore_session::{ChangeError, Message, MessageChanges, ServerLimits};
use mqttcore_topics::{TopicError, TopicLimits, TopicName};

/// A message on `a/b` with three properties, which expires 10 s after `now`.
fn message(now: Instant) -> Message {
    let mut list = PropertiesBuf::default();
    let text = |text| Text::new(text).unwrap();
    list.push(Property::PayloadFormatIndicator(true)).unwrap();
    list.push(Property::MessageExpiryInterval(10)).unwrap();
    list.push(Property::UserProperty(text("k"), text("v")))
        .unwrap();
    let topic = TopicName::parse("a/b", &TopicLimits::default()).unwrap();
    let qos = QoS::AtLeastOnce;
    Message::copied(now, topic, list.as_properties(), b"payload", qos, false)
}

fn changed(changes: &MessageChanges) -> Result<Message, ChangeError> {
    let now = start();
    message(now).changed(changes, now, &ServerLimits::default())
}

fn count(message: &Message) -> usize {
    message.properties().iter().count()
}

#[test]
fn what_is_not_changed_stays() {
    let now = start();
    let before = message(now);

    let after = before
        .changed(&MessageChanges::default(), now, &ServerLimits::default())
        .unwrap();

    assert_eq!((after.topic(), after.payload()), ("a/b", &b"payload"[..]));
    assert_eq!(
        after.properties().as_bytes(),
        before.properties().as_bytes()
    );
    assert_eq!(after.expires_at(), Some(now + Duration::from_secs(10)));
    assert_eq!((after.qos(), after.retain()), (QoS::AtLeastOnce, false));
}

#[test]
fn each_part_may_be_changed() {
    let now = start();
    let later = now + Duration::from_secs(4);
    let changes = MessageChanges {
        topic: Some("c".into()),
        payload: Some(b"other".to_vec()),
        retain: Some(true),
        expiry_interval_s: Some(60),
        content_type: Some("text/plain".into()),
        user_properties: Some(vec![("by".into(), "me".into()), ("x".into(), "y".into())]),
    };

    let after = message(now)
        .changed(&changes, later, &ServerLimits::default())
        .unwrap();

    assert_eq!((after.topic(), after.payload()), ("c", &b"other"[..]));
    assert!(after.retain());
    assert_eq!(after.expires_at(), Some(later + Duration::from_secs(60)));
    assert_eq!(
        count(&after),
        5,
        "format, expiry, type, two user properties"
    );
}

#[test]
fn a_payload_that_is_no_text_loses_its_format_indicator() {
    let after = changed(&MessageChanges {
        payload: Some(b"\xff".to_vec()),
        ..MessageChanges::default()
    });

    assert_eq!(count(&after.unwrap()), 2);
}

#[test]
fn a_change_that_makes_no_message_is_refused() {
    let topic = changed(&MessageChanges {
        topic: Some("a/#".into()),
        ..MessageChanges::default()
    });
    let text = changed(&MessageChanges {
        content_type: Some("\0".into()),
        ..MessageChanges::default()
    });

    assert_eq!(
        topic.unwrap_err(),
        ChangeError::Topic(TopicError::WildcardInName)
    );
    assert_eq!(
        text.unwrap_err(),
        ChangeError::Text(TextError::NullCharacter)
    );
}
