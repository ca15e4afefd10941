//! Messages that the engine may write as their publisher sent them, beside what a delivery sends.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::num::{NonZeroU16, NonZeroU32};

use common::{Asked, CONNECT_3, CONNECT_5, CONNECT_5_KEPT, Wire, connect_5, message};
use mqttcore_codec::{PacketId, QoS, ReasonCode};
use mqttcore_session::{Delivery, Message, ServerLimits, Terms};
use mqttcore_topics::MountPoint;

const NONE: QoS = QoS::AtMostOnce;
const ONCE: QoS = QoS::AtLeastOnce;
const FRAME_3: &[u8] = b"\x30\x0c\x00\x09plant/1/t!";
const FRAME_5: &[u8] = b"\x30\x0d\x00\x09plant/1/t\x00!";

/// The message of a publisher that sends `frame` after `connect`.
fn published(connect: &[u8], frame: &[u8]) -> Message {
    match Wire::connected(connect).ok(frame) {
        Asked::Publish(message) => message,
        other => panic!("{other:?}"),
    }
}

fn forwarded(wire: &Wire, message: &Message, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
    let (chunk, frame) = wire.session.forward(message, delivery)?;
    Some(chunk[frame].to_vec())
}

/// A client of 5.0 with the properties of its CONNECT, the QoS of its subscriptions as QoS of deliveries, and a mount
/// point.
fn client(properties: &[u8], upgrade_outgoing_qos: bool, mount_point: Option<&str>) -> Wire {
    let mut wire = Wire::with(ServerLimits {
        upgrade_outgoing_qos,
        ..ServerLimits::default()
    });
    let mut request = wire.parse(&connect_5(2, properties)).unwrap();
    if let Some(path) = mount_point {
        request.mount(MountPoint::parse(path).unwrap()).unwrap();
    }
    wire.session.connect(wire.now, &request, wire.terms());
    wire.receive();
    wire
}

#[test]
fn a_forwarded_frame_is_what_a_delivery_would_send() {
    for (connect, frame) in [(CONNECT_3, FRAME_3), (CONNECT_5, FRAME_5)] {
        let (message, mut wire) = (published(connect, frame), Wire::connected(connect));
        let delivery = Delivery::new(ONCE, &[]);

        assert_eq!(forwarded(&wire, &message, &delivery).unwrap(), frame);
        wire.session.deliver(wire.now, &message, delivery);
        assert_eq!(wire.receive(), [frame]);
        assert_eq!(forwarded(&wire, &message, &delivery).unwrap(), frame);
    }
}

#[test]
fn a_client_that_gets_anything_of_its_own_gets_no_frame() {
    let message = published(CONNECT_5, FRAME_5);
    let at = |qos| Delivery::new(qos, &[]);
    let retained = Delivery {
        retain: true,
        ..at(NONE)
    };
    let id = [NonZeroU32::MIN];
    let cases: [(&str, Wire, Delivery<'_>); 7] = [
        ("RETAIN", client(&[], false, None), retained),
        (
            "identifier",
            client(&[], false, None),
            Delivery::new(NONE, &id),
        ),
        ("QoS", client(&[], true, None), at(ONCE)),
        ("alias", client(&[0x22, 0, 1], false, None), at(NONE)),
        ("topic", client(&[], false, Some("plant")), at(NONE)),
        (
            "packet size",
            client(&[0x27, 0, 0, 0, 14], false, None),
            at(NONE),
        ),
        ("version", Wire::connected(CONNECT_3), at(NONE)),
    ];
    for (own, wire, delivery) in cases {
        assert_eq!(forwarded(&wire, &message, &delivery), None, "{own}");
    }
    let exact = client(&[0x27, 0, 0, 0, 15], false, None);
    assert_eq!(forwarded(&exact, &message, &at(NONE)).unwrap(), FRAME_5);
}

#[test]
fn a_message_that_is_no_frame_is_not_forwarded() {
    let wire = Wire::connected(CONNECT_5);
    let delivery = Delivery::new(NONE, &[]);
    let messages = [
        (
            "QoS 1",
            published(CONNECT_5, b"\x32\x06\x00\x01t\x00\x01\x00"),
        ),
        ("RETAIN", published(CONNECT_5, b"\x31\x04\x00\x01t\x00")),
        (
            "expiry",
            published(CONNECT_5, b"\x30\x09\x00\x01t\x05\x02\x00\x00\x00\x09"),
        ),
        ("of the broker", message("t", b"", NONE)),
    ];

    for (kind, message) in messages {
        assert_eq!(forwarded(&wire, &message, &delivery), None, "{kind}");
    }
}

#[test]
fn a_frame_does_not_overtake_what_is_to_be_sent_before_it() {
    let message = published(CONNECT_5, FRAME_5);
    let delivery = Delivery::new(ONCE, &[]);
    let is_forwarded = |wire: &Wire| forwarded(wire, &message, &delivery).is_some();

    let mut wire = Wire::with(ServerLimits::default());
    wire.obliging = false;
    wire.connect(CONNECT_5);
    assert!(!is_forwarded(&wire), "CONNACK");
    wire.confirm_all();
    wire.receive();
    assert!(is_forwarded(&wire));

    wire.ok(b"\xc0\x00");
    assert!(!is_forwarded(&wire), "PINGRESP");
    wire.receive();
    assert!(is_forwarded(&wire));

    wire.deliver(&message, NONE);
    assert!(!is_forwarded(&wire), "a message of QoS 0");
    wire.receive();

    wire.deliver(&common::message("t", b"", ONCE), ONCE);
    assert!(!is_forwarded(&wire), "a message of QoS 1");
    wire.receive();
    assert!(is_forwarded(&wire), "it waits for PUBACK alone");

    wire.obliging = true;
    wire.ok(b"\x32\x06\x00\x01t\x00\x07\x00");
    assert!(!is_forwarded(&wire), "PUBACK");
}

#[test]
fn an_acknowledgement_that_waits_does_not_hold_a_frame_back() {
    let message = published(CONNECT_5, FRAME_5);
    let mut wire = Wire::connected(CONNECT_5);
    wire.obliging = false;

    wire.ok(b"\x32\x06\x00\x01t\x00\x07\x00");
    let packet_id = PacketId::from(NonZeroU16::new(7).unwrap());
    let token = wire
        .session
        .accept_publish(packet_id, ONCE, ReasonCode::SUCCESS);

    assert!(forwarded(&wire, &message, &Delivery::new(NONE, &[])).is_some());
    wire.session.confirm(token);
    assert!(forwarded(&wire, &message, &Delivery::new(NONE, &[])).is_none());
}

#[test]
fn nothing_is_forwarded_to_a_client_that_is_away_or_has_queued_messages_of_qos_0() {
    let message = published(CONNECT_5, FRAME_5);
    let delivery = Delivery::new(ONCE, &[]);
    let mut wire = Wire::with(ServerLimits {
        queue_qos0: true,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_KEPT);
    wire.receive();
    wire.lose();
    assert_eq!(forwarded(&wire, &message, &delivery), None, "it is away");

    wire.session.deliver(wire.now, &message, delivery);
    let request = wire.parse(CONNECT_5_KEPT).unwrap();
    let terms = Terms {
        session_present: true,
        ..wire.terms()
    };
    wire.session.connect(wire.now, &request, terms);
    wire.confirm_all();
    while forwarded(&wire, &message, &delivery).is_none() {
        assert!(
            wire.session.poll_transmit().is_some(),
            "nothing else is sent"
        );
    }
    assert_eq!(wire.session.queued(), 0, "the queue was sent before");
}
