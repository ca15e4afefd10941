//! PUBLISH from the client and its acknowledgements: sections 3.3 to 3.7, 4.3, 4.9.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Asked, CONNECT_3, CONNECT_5, CONNECT_5_KEPT, CONNECT_5_TERSE, Wire};
use mqttcore_codec::{PacketId, ProtocolVersion, QoS, ReasonCode, decode};
use mqttcore_session::{Cause, Request, ServerLimits, ViolationKind};

/// QoS 2, identifier 1, topic `t`, payload `!`.
const QOS_2: &[u8] = b"\x34\x07\x00\x01t\x00\x01\x00!";
const QOS_2_DUP: &[u8] = b"\x3c\x07\x00\x01t\x00\x01\x00!";
const QOS_1: &[u8] = b"\x32\x07\x00\x01t\x00\x01\x00!";
const PUBREL: &[u8] = b"\x62\x02\x00\x01";
const PUBREC: &[u8] = b"\x50\x02\x00\x01";
const PUBCOMP: &[u8] = b"\x70\x02\x00\x01";

#[test]
fn mqtt_3_3_4_1_qos_0_is_not_answered() {
    let mut wire = Wire::connected(CONNECT_5);

    let Asked::Publish(message) = wire.ok(b"\x30\x05\x00\x01t\x00!") else {
        panic!("a message")
    };

    assert_eq!((message.topic(), message.payload()), ("t", &b"!"[..]));
    assert!(wire.receive().is_empty());
}

#[test]
fn mqtt_4_3_2_4_qos_1_is_answered_by_puback_with_its_id() {
    let mut wire = Wire::connected(CONNECT_5);

    wire.ok(QOS_1);

    assert_eq!(wire.receive(), [b"\x40\x02\x00\x01"]);
}

#[test]
fn mqtt_4_3_2_5_after_puback_the_id_means_a_new_message() {
    let mut wire = Wire::connected(CONNECT_5);

    for _ in 0..2 {
        assert!(matches!(wire.ok(QOS_1), Asked::Publish(_)));
        wire.receive();
    }
}

#[test]
fn mqtt_4_3_3_8_qos_2_takes_four_packets() {
    let mut wire = Wire::connected(CONNECT_5);

    assert!(matches!(wire.ok(QOS_2), Asked::Publish(_)));
    assert_eq!(wire.receive(), [PUBREC]);
    wire.ok(PUBREL);

    assert_eq!(wire.receive(), [PUBCOMP]);
    assert_eq!(wire.session.unreleased_ids().count(), 0);
}

/// [MQTT-4.3.3-10] Whatever DUP says, and with another payload too (abuse D09).
#[test]
fn mqtt_4_3_3_10_a_repeat_before_pubrel_is_no_new_message() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(QOS_2);
    wire.receive();

    for repeat in [QOS_2, QOS_2_DUP, b"\x34\x07\x00\x01t\x00\x01\x00?"] {
        assert!(matches!(wire.ok(repeat), Asked::Nothing));
        assert_eq!(wire.receive(), [PUBREC]);
    }
}

/// Abuse D11: the first attempt may have been cut on the wire.
#[test]
fn an_unseen_qos_2_publish_with_dup_is_a_new_message() {
    let mut wire = Wire::connected(CONNECT_5);

    assert!(matches!(wire.ok(QOS_2_DUP), Asked::Publish(_)));
}

/// Who keeps what came wants to know, whether the topic came as text or as an alias.
#[test]
fn a_message_says_whether_it_came_with_dup() {
    let mut wire = Wire::connected(CONNECT_5);
    let alias_1 = b"\x32\x09\x00\x01t\x00\x01\x03\x23\x00\x01";
    let repeat_by_alias = b"\x3a\x08\x00\x00\x00\x02\x03\x23\x00\x01";

    for (packet, dup) in [(QOS_2_DUP, true), (alias_1, false), (repeat_by_alias, true)] {
        match wire.ok(packet) {
            Asked::Publish(message) => assert_eq!((message.topic(), message.dup()), ("t", dup)),
            other => panic!("no publish: {other:?}"),
        }
    }
}

/// [MQTT-4.3.3-12] (abuse D10).
#[test]
fn mqtt_4_3_3_12_after_pubcomp_the_id_means_a_new_message() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(QOS_2);
    wire.ok(PUBREL);

    assert!(matches!(wire.ok(QOS_2), Asked::Publish(_)));
}

/// Abuse D12: also over connections.
#[test]
fn a_repeat_on_the_next_connection_is_no_new_message() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.ok(QOS_2);
    wire.lose();

    wire.resume(CONNECT_5_KEPT);
    wire.receive();

    assert!(matches!(wire.ok(QOS_2_DUP), Asked::Nothing));
    assert_eq!(wire.receive(), [PUBREC]);
}

/// The engine had not accepted it: nothing was acknowledged, so the repeat is the message.
#[test]
fn a_publish_that_was_never_accepted_is_new_on_the_next_connection() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.obliging = false;
    wire.ok(QOS_2);
    wire.lose();
    let late = wire
        .session
        .accept_publish(PacketId::MIN, QoS::ExactlyOnce, ReasonCode::SUCCESS);
    assert_eq!(late, wire.session.last_token());

    wire.resume(CONNECT_5_KEPT);
    wire.receive();

    assert!(matches!(wire.ok(QOS_2_DUP), Asked::Publish(_)));
}

/// Abuse D13.
#[test]
fn pubrel_for_an_unknown_id_is_answered_and_makes_no_state() {
    let mut v5 = Wire::connected(CONNECT_5_TERSE);
    let mut v3 = Wire::connected(CONNECT_3);

    v5.ok(PUBREL);
    v3.ok(PUBREL);

    assert_eq!(v5.receive(), [b"\x70\x03\x00\x01\x92"]);
    assert_eq!(v3.receive(), [PUBCOMP]);
    assert_eq!(v5.session.unreleased_ids().count(), 0);
}

#[test]
fn pubrel_before_pubrec_is_a_protocol_error() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.obliging = false;
    wire.ok(QOS_2);

    assert_eq!(wire.refused(PUBREL), ReasonCode::PROTOCOL_ERROR);
}

/// [MQTT-4.3.3-9] The error ends the exchange.
#[test]
fn mqtt_4_3_3_9_after_an_error_pubrec_the_id_means_a_new_message() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.obliging = false;
    wire.ok(QOS_2);
    accept(&mut wire, QoS::ExactlyOnce, ReasonCode::NOT_AUTHORIZED);

    assert_eq!(wire.receive(), [b"\x50\x03\x00\x01\x87"]);
    assert!(matches!(wire.ok(QOS_2), Asked::Publish(_)));
}

/// Decision 22, [MQTT 3.1.1 MQTT-3.3.5-2]: 3.x has no word for a refusal.
#[test]
fn a_refused_3_x_publish_is_acknowledged_as_ever() {
    let mut wire = Wire::connected(CONNECT_3);
    wire.obliging = false;

    wire.ok(b"\x32\x06\x00\x01t\x00\x02!");
    wire.session.accept_publish(
        PacketId::new(2).unwrap(),
        QoS::AtLeastOnce,
        ReasonCode::NOT_AUTHORIZED,
    );
    wire.ok(b"\x34\x06\x00\x01t\x00\x01!");
    accept(&mut wire, QoS::ExactlyOnce, ReasonCode::NOT_AUTHORIZED);

    assert_eq!(wire.receive(), [&b"\x40\x02\x00\x02"[..], PUBREC]);
    assert!(matches!(
        wire.ok(b"\x3c\x06\x00\x01t\x00\x01!"),
        Asked::Nothing
    ));
    wire.ok(PUBREL);
    assert_eq!(wire.receive(), [PUBREC, PUBCOMP]);
}

#[test]
fn mqtt_3_4_2_1_a_v5_client_gets_the_reason_no_matching_subscribers() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.obliging = false;
    wire.ok(QOS_1);
    accept(
        &mut wire,
        QoS::AtLeastOnce,
        ReasonCode::NO_MATCHING_SUBSCRIBERS,
    );

    assert_eq!(wire.receive(), [b"\x40\x03\x00\x01\x10"]);
}

#[test]
fn mqtt_3_4_2_1_a_reason_that_puback_does_not_have_is_unspecified() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.obliging = false;
    wire.ok(QOS_1);
    accept(&mut wire, QoS::AtLeastOnce, ReasonCode::BANNED);

    assert_eq!(wire.receive(), [b"\x40\x03\x00\x01\x80"]);
}

/// [MQTT-3.3.4-7] (abuse D17).
#[test]
fn mqtt_3_3_4_7_more_than_receive_maximum_is_refused() {
    for first in [0x32, 0x34] {
        let mut wire = few(2);
        wire.connect(CONNECT_5);
        wire.receive();
        wire.obliging = false;
        for id in 1..=2 {
            wire.ok(&[first, 7, 0, 1, b't', 0, id, 0, b'!']);
        }

        let third = [first, 7, 0, 1, b't', 0, 3, 0, b'!'];
        assert_eq!(wire.refused(&third), ReasonCode::RECEIVE_MAXIMUM_EXCEEDED);
        wire.ok(b"\x30\x05\x00\x01t\x00!");
    }
}

/// [MQTT-4.9.0-1] PUBACK, PUBCOMP and an error PUBREC give quota back once they have left.
#[test]
fn mqtt_4_9_0_1_the_last_acknowledgement_gives_quota_back() {
    let mut wire = few(1);
    wire.connect(CONNECT_5);
    wire.receive();

    for _ in 0..3 {
        wire.ok(QOS_1);
        wire.receive();
        wire.ok(QOS_2);
        wire.receive();
        assert_eq!(wire.session.open_publishes(), 1, "PUBREC is not the last");
        wire.ok(PUBREL);
        wire.receive();
        wire.obliging = false;
        wire.ok(QOS_2);
        let token = accept(&mut wire, QoS::ExactlyOnce, ReasonCode::QUOTA_EXCEEDED);
        wire.session.confirm(token);
        wire.receive();
        wire.obliging = true;
        assert_eq!(wire.session.open_publishes(), 0);
    }
}

#[test]
fn d15_a_flood_of_releases_of_nothing_ends_the_connection() {
    for connect in [CONNECT_3, CONNECT_5] {
        let mut wire = Wire::with(ServerLimits {
            stray_acknowledgements: 3,
            ..ServerLimits::default()
        });
        wire.connect(connect);
        wire.receive();
        for _ in 0..3 {
            wire.ok(PUBREL);
            assert_eq!(wire.receive()[0][0], 0x70);
        }

        assert_eq!(wire.refused(PUBREL), ReasonCode::MESSAGE_RATE_TOO_HIGH);
    }
}

/// A client that works is not counted out by a repeat now and then.
#[test]
fn d15_a_good_release_makes_up_for_one_of_nothing() {
    let mut wire = Wire::with(ServerLimits {
        stray_acknowledgements: 1,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);

    for _ in 0..9 {
        wire.ok(QOS_2);
        wire.ok(PUBREL);
        wire.ok(PUBREL);
        wire.receive();
    }
}

/// PUBREL with an error ends no publish of the client's.
#[test]
fn mqtt_4_9_0_1_an_answer_to_a_stray_pubrec_gives_no_quota_back() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.obliging = false;
    wire.ok(QOS_1);
    assert_eq!(wire.session.open_publishes(), 1);

    wire.ok(b"\x50\x02\x00\x09");

    assert_eq!(wire.receive()[0][..2], *b"\x62\x1e");
    assert_eq!(wire.session.open_publishes(), 1);
}

#[test]
fn mqtt_3_3_1_1_acks_leave_in_the_order_of_the_publishes() {
    let mut wire = Wire::connected(CONNECT_5);
    for id in [3, 1, 2] {
        wire.ok(&[0x32, 7, 0, 1, b't', 0, id, 0, b'!']);
    }

    let ids: Vec<u8> = wire.receive().iter().map(|ack| ack[3]).collect();

    assert_eq!(ids, [3, 1, 2]);
}

/// [MQTT-3.2.2-11] (abuse D19).
#[test]
fn mqtt_3_2_2_11_a_qos_above_the_maximum_is_refused() {
    let mut wire = Wire::with(ServerLimits {
        maximum_qos: QoS::AtLeastOnce,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);

    wire.ok(QOS_1);
    assert_eq!(wire.refused(QOS_2), ReasonCode::QOS_NOT_SUPPORTED);
}

#[test]
fn mqtt_3_2_2_14_retain_is_refused_where_it_is_not_offered() {
    let mut wire = Wire::with(ServerLimits {
        retain_available: false,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);

    wire.ok(b"\x30\x05\x00\x01t\x00!");
    assert_eq!(
        wire.refused(b"\x31\x05\x00\x01t\x00!"),
        ReasonCode::RETAIN_NOT_SUPPORTED
    );
}

/// [MQTT-3.3.2-2] (abuse D02, D03).
#[test]
fn mqtt_3_3_2_2_a_topic_name_that_is_none_is_refused() {
    let mut wire = Wire::connected(CONNECT_5);
    let deep = [&[0, 200][..], &[b'/'; 200], &[0]].concat();

    for body in [
        &b"\x00\x01#\x00"[..],
        b"\x00\x03a/+\x00",
        b"\x00\x01\x07\x00",
        &deep,
    ] {
        let publish = common::framed(0x30, body);

        assert_eq!(wire.refused(&publish), ReasonCode::TOPIC_NAME_INVALID);
    }
}

/// MQTT 5.0 section 4.8.1: the text is valid, and longer than this server takes.
#[test]
fn a_topic_name_with_too_many_levels_is_above_a_limit() {
    let mut wire = Wire::connected(CONNECT_5);
    let deep = [&[0, 200][..], &[b'/'; 200], b"\x00"].concat();

    let beyond = wire.send(&common::framed(0x30, &deep)).unwrap_err();
    let wrong = wire.send(b"\x30\x04\x00\x01#\x00").unwrap_err();

    assert_eq!(
        (beyond.fault, wrong.fault),
        (ViolationKind::Limit, ViolationKind::Protocol)
    );
}

#[test]
fn a_publish_is_handed_over_as_it_came() {
    let mut wire = Wire::connected(CONNECT_5);
    let limits = wire.limits.after_connect();
    for (flags, retain) in [(0x30, false), (0x31, true)] {
        let bytes = [flags, 7, 0, 1, b't', 2, 0x01, 1, b'!'];
        let (packet, _) = decode(&bytes, ProtocolVersion::V5, &limits)
            .unwrap()
            .unwrap();

        let request = wire.session.handle_packet(wire.now, packet).unwrap();

        let Request::Publish(publish) = request else {
            panic!("a PUBLISH")
        };
        assert_eq!((publish.payload(), publish.retain()), (&b"!"[..], retain));
        assert_eq!(publish.properties().as_bytes(), b"\x01\x01");
    }
}

#[test]
fn mqtt_3_3_4_6_a_subscription_identifier_from_a_client_is_refused() {
    let mut wire = Wire::connected(CONNECT_5);

    let reason = wire.refused(b"\x30\x07\x00\x01t\x02\x0b\x01!");

    assert_eq!(reason, ReasonCode::PROTOCOL_ERROR);
}

/// [MQTT-3.3.2-14] (abuse B16).
#[test]
fn mqtt_3_3_2_14_a_response_topic_is_a_topic_name() {
    let mut wire = Wire::connected(CONNECT_5);

    wire.ok(b"\x30\x09\x00\x01t\x04\x08\x00\x01r!");
    assert_eq!(
        wire.refused(b"\x30\x09\x00\x01t\x04\x08\x00\x01#!"),
        ReasonCode::PROTOCOL_ERROR
    );
    assert_eq!(
        wire.refused(b"\x30\x08\x00\x01t\x03\x08\x00\x00!"),
        ReasonCode::PROTOCOL_ERROR
    );
}

/// Abuse B15.
#[test]
fn a_payload_that_is_not_the_text_it_says_passes_unless_it_is_checked() {
    let publish = b"\x30\x07\x00\x01t\x02\x01\x01\xff";
    let mut lenient = Wire::connected(CONNECT_5);
    let mut strict = Wire::with(ServerLimits {
        payload_format_checked: true,
        ..ServerLimits::default()
    });
    strict.connect(CONNECT_5);

    lenient.ok(publish);
    assert_eq!(strict.refused(publish), ReasonCode::PAYLOAD_FORMAT_INVALID);
    strict.ok(b"\x30\x07\x00\x01t\x02\x01\x01a");
}

#[test]
fn mqtt_3_3_2_12_an_alias_stands_for_its_topic() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x30\x08\x00\x01t\x03\x23\x00\x0a!");

    let Asked::Publish(message) = wire.ok(b"\x30\x07\x00\x00\x03\x23\x00\x0a?") else {
        panic!("a message")
    };

    assert_eq!((message.topic(), message.payload()), ("t", &b"?"[..]));
    assert!(
        message.properties().is_empty(),
        "an alias is never passed on"
    );
}

#[test]
fn an_alias_that_is_set_again_changes_its_topic() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x30\x08\x00\x01t\x03\x23\x00\x01!");
    wire.ok(b"\x30\x08\x00\x01u\x03\x23\x00\x01!");

    let Asked::Publish(message) = wire.ok(b"\x30\x06\x00\x00\x03\x23\x00\x01") else {
        panic!("a message")
    };

    assert_eq!(message.topic(), "u");
}

/// Abuse D04.
#[test]
fn mqtt_3_3_2_9_an_alias_above_the_maximum_is_refused() {
    let mut wire = Wire::connected(CONNECT_5);

    let reason = wire.refused(b"\x30\x08\x00\x01t\x03\x23\x00\x0b!");

    assert_eq!(reason, ReasonCode::TOPIC_ALIAS_INVALID);
}

#[test]
fn mqtt_3_3_2_7_aliases_end_with_the_connection() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.ok(b"\x30\x08\x00\x01t\x03\x23\x00\x01!");
    wire.lose();
    wire.resume(CONNECT_5_KEPT);

    let reason = wire.refused(b"\x30\x06\x00\x00\x03\x23\x00\x01");

    assert_eq!(reason, ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn a_violation_leaves_the_qos_state_as_it_was() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.ok(QOS_2);
    wire.receive();

    wire.refused(b"\x34\x07\x00\x01#\x00\x02\x00!");
    wire.session.detach(wire.now, Cause::Violation);
    wire.resume(CONNECT_5_KEPT);
    wire.receive();

    assert_eq!(wire.session.unreleased_ids().count(), 1);
    wire.ok(PUBREL);
    assert_eq!(wire.receive(), [PUBCOMP]);
}

fn few(receive_maximum: u16) -> Wire {
    Wire::with(ServerLimits {
        receive_maximum,
        ..ServerLimits::default()
    })
}

fn accept(wire: &mut Wire, qos: QoS, reason: ReasonCode) -> mqttcore_session::AckToken {
    let token = wire.session.accept_publish(PacketId::MIN, qos, reason);
    wire.session.confirm(token);
    token
}
