//! Resuming a session: sections 4.1, 4.4, 4.6, and takeover.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{CONNECT_3_KEPT, CONNECT_5_KEPT, Wire, connect_5, message};
use mqttcore_codec::QoS;
use mqttcore_session::{Cause, Expiry};

const ONCE: QoS = QoS::AtLeastOnce;
const EXACTLY: QoS = QoS::ExactlyOnce;

#[test]
fn mqtt_4_4_0_1_open_publishes_are_sent_again_with_dup_and_their_ids() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    for (payload, qos) in [(b"a", ONCE), (b"b", EXACTLY), (b"c", ONCE)] {
        wire.deliver(&message("t", payload, qos), EXACTLY);
    }
    wire.receive();
    wire.ok(b"\x40\x02\x00\x01");
    wire.lose();

    wire.resume(CONNECT_3_KEPT);

    assert_eq!(
        wire.receive(),
        [
            &b"\x20\x02\x01\x00"[..],
            b"\x3c\x06\x00\x01t\x00\x02b",
            b"\x3a\x06\x00\x01t\x00\x03c"
        ]
    );
}

/// [MQTT 3.1.1 MQTT-4.6.0-4] in the order of the PUBRECs, [MQTT-4.3.3-6] never PUBLISH again.
#[test]
fn mqtt_4_6_0_4_open_pubrels_are_sent_again_in_the_order_of_their_pubrecs() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    for payload in [b"a", b"b", b"c"] {
        wire.deliver(&message("t", payload, EXACTLY), EXACTLY);
    }
    wire.receive();
    for id in [3, 1] {
        wire.ok(&[0x50, 2, 0, id]);
    }
    wire.lose();

    wire.resume(CONNECT_3_KEPT);

    assert_eq!(
        wire.receive()[1..],
        [
            &b"\x62\x02\x00\x03"[..],
            b"\x62\x02\x00\x01",
            b"\x3c\x06\x00\x01t\x00\x02b"
        ]
    );
}

#[test]
fn mqtt_4_4_0_1_nothing_is_sent_again_on_the_same_connection() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    wire.deliver(&message("t", b"a", ONCE), ONCE);

    assert_eq!(wire.receive().len(), 1);
    wire.ok(b"\xc0\x00");

    assert_eq!(wire.receive(), [b"\xd0\x00"]);
}

/// [MQTT-3.3.1-1] DUP says that it was sent, not that the connection is another.
#[test]
fn mqtt_3_3_1_1_what_was_never_sent_has_no_dup() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    wire.deliver(&message("t", b"a", ONCE), ONCE);
    wire.lose();

    wire.resume(CONNECT_3_KEPT);

    assert_eq!(wire.receive()[1], b"\x32\x06\x00\x01t\x00\x01a");
}

#[test]
fn mqtt_4_4_0_2_an_error_acknowledgement_ends_the_message() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.deliver(&message("t", b"a", ONCE), ONCE);
    wire.deliver(&message("t", b"b", EXACTLY), EXACTLY);
    wire.receive();
    wire.ok(b"\x40\x03\x00\x01\x97");
    wire.ok(b"\x50\x03\x00\x02\x97");
    wire.lose();

    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
}

/// [MQTT-2.2.1-4] Identifiers of open exchanges are not given to new messages.
#[test]
fn mqtt_2_2_1_4_ids_of_resent_messages_are_reserved() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    wire.deliver(&message("t", b"first", ONCE), ONCE);
    wire.receive();
    wire.lose();
    wire.resume(CONNECT_3_KEPT);
    wire.receive();

    for round in 0..65_534_u32 {
        wire.deliver(&message("t", b"later", ONCE), ONCE);
        let packet = wire.receive().remove(0);
        let id = [packet[5], packet[6]];
        assert_ne!(id, [0, 1], "round {round}");
        wire.ok(&[0x40, 2, id[0], id[1]]);
    }

    wire.deliver(&message("t", b"later", ONCE), ONCE);
    assert_eq!(
        wire.receive()[0][5..7],
        *b"\x00\x02",
        "around the ring, past the first"
    );
}

/// [MQTT-3.3.4-9] Also for what is sent again, and for what waited.
#[test]
fn mqtt_3_3_4_9_resending_stays_within_a_smaller_receive_maximum() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    for payload in [b"a", b"b", b"c"] {
        wire.deliver(&message("t", payload, ONCE), ONCE);
    }
    wire.receive();
    wire.lose();
    wire.deliver(&message("t", b"d", ONCE), ONCE);

    wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));
    let mut received = Vec::new();
    for id in 1..=4 {
        let packets = wire.receive();
        let publishes: Vec<_> = packets
            .iter()
            .filter(|packet| packet[0] & 0xf0 == 0x30)
            .collect();
        assert_eq!(publishes.len(), 1);
        received.push(*publishes[0].last().unwrap());
        wire.ok(&[0x40, 2, 0, id]);
    }

    assert_eq!(received, b"abcd");
}

/// Some clients acknowledge on a new connection what they got on the old one.
#[test]
fn an_acknowledgement_of_what_the_old_connection_sent_counts() {
    let mut wire = Wire::connected(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x02"));
    for payload in [b"a", b"b"] {
        wire.deliver(&message("t", payload, ONCE), ONCE);
    }
    wire.receive();
    wire.lose();
    wire.resume(&connect_5(0, b"\x11\x00\x00\x00\x64\x21\x00\x01"));
    assert_eq!(wire.receive().len(), 2);

    wire.ok(b"\x40\x02\x00\x02");
    wire.ok(b"\x40\x02\x00\x01");

    assert!(wire.receive().is_empty());
    assert_eq!(wire.session.in_flight(), 0);
}

/// Abuse C26: the old connection's exchanges go on over the new one.
#[test]
fn a_takeover_keeps_both_exchanges() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    wire.ok(b"\x34\x07\x00\x01t\x00\x09\x00?");
    wire.receive();

    let departure = wire.session.detach(wire.now, Cause::TakenOver);
    wire.resume(CONNECT_5_KEPT);

    assert!(matches!(departure.expiry, Expiry::At(_)));
    assert_eq!(wire.receive()[1], b"\x3c\x07\x00\x01t\x00\x01\x00!");
    wire.ok(b"\x62\x02\x00\x09");
    assert_eq!(wire.receive(), [b"\x70\x02\x00\x09"]);
}

/// An acknowledgement that had not left is not sent: the client asks again.
#[test]
fn unsent_acknowledgements_end_with_the_connection() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.ok(b"\x32\x07\x00\x01t\x00\x01\x00!");
    wire.lose();

    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
}

#[test]
fn a_session_may_come_back_with_another_version() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.deliver(&message("t", b"!", ONCE), ONCE);
    wire.receive();
    wire.lose();

    wire.resume(CONNECT_3_KEPT);

    assert_eq!(wire.receive()[1], b"\x3a\x06\x00\x01t\x00\x01!");
}

/// Memory is given back only if nothing is open.
#[test]
fn open_exchanges_outlive_a_poll_of_the_events_of_an_absent_client() {
    let mut received = Wire::connected(CONNECT_5_KEPT);
    received.ok(b"\x34\x07\x00\x01t\x00\x03\x00!");
    received.receive();
    let mut sent = Wire::connected(CONNECT_5_KEPT);
    sent.deliver(&message("t", b"!", ONCE), ONCE);
    sent.receive();
    for wire in [&mut received, &mut sent] {
        wire.lose();
        assert!(wire.events().is_empty());
        wire.resume(CONNECT_5_KEPT);
    }

    assert_eq!(sent.receive()[1], b"\x3a\x07\x00\x01t\x00\x01\x00!");
    let repeat = received.ok(b"\x3c\x07\x00\x01t\x00\x03\x00!");
    assert!(matches!(repeat, common::Asked::Nothing), "{repeat:?}");
}

#[test]
fn a_client_is_away_since_its_connection_ended() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    assert_eq!(wire.session.away_since(), None);
    wire.now += common::seconds(7);

    wire.lose();

    assert_eq!(wire.session.away_since(), Some(wire.now));
}
