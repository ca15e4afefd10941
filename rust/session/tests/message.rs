//! Messages: shared bytes, what may be forwarded as it is, and memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{CONNECT_3, CONNECT_5, Wire, message, seconds, start};
use mqttcore_codec::{Packet, PropertiesBuf, ProtocolVersion, QoS, decode};
use mqttcore_session::{Chunk, Delivery, Message, ServerLimits, Transmit};
use mqttcore_topics::{TopicLimits, TopicName};

/// Two PUBLISHes of one read: 3.1.1, topics `a/b` and `t`.
const READ: &[u8] = b"\x30\x08\x00\x03a/b123\x32\x07\x00\x01t\x00\x09xy";

#[test]
fn a_message_shares_the_bytes_of_its_read() {
    let chunk: Chunk = READ.into();

    let first = decoded(ProtocolVersion::V3_1_1, &READ[..10], &chunk, 0);
    let second = decoded(ProtocolVersion::V3_1_1, &READ[10..], &chunk, 10);

    assert_eq!((first.topic(), first.payload()), ("a/b", &b"123"[..]));
    assert_eq!((second.topic(), second.payload()), ("t", &b"xy"[..]));
    assert!(first.bytes().is_same(second.bytes()));
    assert_eq!(&chunk[first.payload_range()], b"123");
}

#[test]
fn a_qos_0_frame_is_forwarded_byte_for_byte() {
    let chunk: Chunk = READ.into();
    let message = decoded(ProtocolVersion::V3_1_1, &READ[..10], &chunk, 0);
    let mut wire = Wire::connected(CONNECT_3);
    wire.session
        .deliver(wire.now, &message, Delivery::new(QoS::ExactlyOnce, &[]));

    let Some(Transmit::Publish(publish)) = wire.session.poll_transmit() else {
        panic!("a PUBLISH")
    };

    let (shared, range) = publish.shared_frame(ProtocolVersion::V3_1_1).unwrap();
    assert!(shared.is_same(&chunk));
    assert_eq!(range, 0..10);
    assert!(publish.shared_frame(ProtocolVersion::V3_1).is_some());
    assert!(publish.shared_frame(ProtocolVersion::V5).is_none());
}

/// What a receiver may not see as it is: RETAIN, an alias, an expiry, QoS, another version.
#[test]
fn a_frame_that_must_change_is_not_forwarded() {
    for frame in [
        &b"\x31\x05\x00\x01t\x00!"[..],
        b"\x32\x07\x00\x01t\x00\x01\x00!",
        b"\x30\x08\x00\x01t\x03\x23\x00\x01!",
        b"\x30\x0a\x00\x01t\x05\x02\x00\x00\x00\x09!",
    ] {
        let message = decoded(ProtocolVersion::V5, frame, &frame.into(), 0);

        assert!(message.frame(ProtocolVersion::V5).is_none(), "{frame:x?}");
        assert_eq!((message.topic(), message.payload()), ("t", &b"!"[..]));
    }
    let plain = b"\x30\x07\x00\x01t\x02\x01\x01!";
    assert!(
        decoded(ProtocolVersion::V5, plain, &plain[..].into(), 0)
            .frame(ProtocolVersion::V5)
            .is_some()
    );
}

#[test]
fn a_frame_is_the_same_as_what_would_be_encoded() {
    let frame = b"\x30\x07\x00\x01t\x02\x01\x01!";
    let message = decoded(ProtocolVersion::V5, frame, &frame[..].into(), 0);
    let mut wire = Wire::connected(CONNECT_5);
    wire.session
        .deliver(wire.now, &message, Delivery::default());

    let Some(Transmit::Publish(publish)) = wire.session.poll_transmit() else {
        panic!("a PUBLISH")
    };
    let mut out = Vec::new();
    publish
        .encode(
            ProtocolVersion::V5,
            wire.now,
            &mut PropertiesBuf::default(),
            &mut out,
        )
        .unwrap();

    assert_eq!(out, frame);
}

#[test]
fn the_publishers_alias_is_not_forwarded() {
    let frame = b"\x30\x0a\x00\x01t\x05\x23\x00\x01\x01\x01!";
    let message = decoded(ProtocolVersion::V5, frame, &frame[..].into(), 0);
    let mut wire = Wire::connected(CONNECT_5);

    wire.session
        .deliver(wire.now, &message, Delivery::default());

    assert_eq!(wire.receive(), [b"\x30\x07\x00\x01t\x02\x01\x01!"]);
}

#[test]
fn a_message_cut_out_of_its_chunk_is_the_same() {
    let read = [
        &b"\x30\x0a\x00\x01t\x05\x02\x00\x00\x00\x09!"[..],
        &[0; 4_000],
    ]
    .concat();
    let chunk: Chunk = read.clone().into();
    let mut message = decoded(ProtocolVersion::V5, &read[..12], &chunk, 0);
    assert!(message.heap_bytes() > 4_000);

    message.release_chunk();

    assert!(message.heap_bytes() < 48, "{}", message.heap_bytes());
    assert_eq!(chunk.holders(), 1);
    assert_eq!((message.topic(), message.payload()), ("t", &b"!"[..]));
    assert_eq!(message.properties().message_expiry_interval(), Some(9));
    assert_eq!(message.remaining_expiry_s(start() + seconds(2)), Some(7));
}

/// Decision 18: a message that is most of its chunk stays shared.
#[test]
fn a_large_message_keeps_its_chunk() {
    let chunk: Chunk = READ[..10].into();
    let mut message = decoded(ProtocolVersion::V3_1_1, &READ[..10], &chunk, 0);

    message.release_chunk();

    assert!(message.bytes().is_same(&chunk));
}

#[test]
fn waiting_messages_let_go_of_their_chunks() {
    let read = [READ, &vec![0; 60_000]].concat();
    let chunk: Chunk = read.clone().into();
    let mut wire = Wire::connected(CONNECT_3);
    let message = decoded(ProtocolVersion::V3_1_1, &read[10..19], &chunk, 10);
    for _ in 0..40 {
        wire.session
            .deliver(wire.now, &message, Delivery::new(QoS::ExactlyOnce, &[]));
    }
    drop(message);

    assert_eq!(
        chunk.holders(),
        33,
        "32 in flight; queued messages are cut out"
    );
    wire.session.release_chunks();

    assert_eq!(chunk.holders(), 1);
    assert_eq!(wire.receive()[31], b"\x32\x07\x00\x01t\x00\x20xy");
}

#[test]
fn a_debug_line_shows_no_payload() {
    let text = format!("{:?}", message("t", b"secret", QoS::AtMostOnce));

    assert!(text.contains("\"t\"") && !text.contains("secret") && !text.contains("115"));
}

#[test]
fn a_message_is_made_of_a_source_that_lies_elsewhere() {
    let topic = TopicName::parse("t", &TopicLimits::default()).unwrap();
    let built = Message::copied(
        start(),
        topic,
        mqttcore_codec::Properties::EMPTY,
        b"",
        QoS::AtMostOnce,
        true,
    );

    assert!(built.is_empty() && built.retain());
    assert_eq!(built.len(), 1);
}

/// The packet was decoded from a copy of the frame, which lies behind it.
#[test]
fn a_message_whose_packet_was_decoded_elsewhere_is_copied() {
    let frame = b"\x3a\x0b\x00\x05topic\x00\x09xy";
    let both = [frame, &frame[..]].concat();
    let (source, copy) = both.split_at(frame.len());
    let limits = ServerLimits::default().after_connect();
    let (packet, _) = decode(copy, ProtocolVersion::V3_1_1, &limits)
        .unwrap()
        .unwrap();
    let Packet::Publish(publish) = packet else {
        panic!("not a PUBLISH")
    };

    let chunk: Chunk = source.into();
    let topic = TopicName::parse(publish.topic.as_str(), &TopicLimits::default()).unwrap();
    let publish = (topic, &publish);
    let message =
        Message::from_publish(start(), ProtocolVersion::V3_1_1, publish, source, &chunk, 0);

    assert_eq!((message.topic(), message.payload()), ("topic", &b"xy"[..]));
    assert_eq!((message.qos(), message.dup()), (QoS::AtLeastOnce, true));
    assert!(!message.is_empty() && !message.retain());
    assert_eq!(chunk.holders(), 1);
}

fn decoded(version: ProtocolVersion, source: &[u8], chunk: &Chunk, at: usize) -> Message {
    let limits = ServerLimits::default().after_connect();
    let (packet, len) = decode(source, version, &limits).unwrap().unwrap();
    assert_eq!(len, source.len());
    let Packet::Publish(publish) = packet else {
        panic!("not a PUBLISH")
    };
    let topic = TopicName::parse(publish.topic.as_str(), &TopicLimits::default()).unwrap();
    Message::from_publish(start(), version, (topic, &publish), source, chunk, at)
}
