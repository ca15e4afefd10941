//! No acknowledgement is sent before its token is confirmed (docs/decisions.md, 2).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{CONNECT_3_KEPT, CONNECT_5_KEPT, Wire, message};
use mqttcore_codec::{PacketId, QoS, ReasonCode};
use mqttcore_session::{
    AckToken, Delivered, Delivery, DropReason, ExchangeRecord, QueuePolicy, ServerLimits,
    SessionEvent,
};

const EXACTLY: QoS = QoS::ExactlyOnce;

/// A durable session with its CONNACK behind it.
fn durable() -> Wire {
    durable_with(ServerLimits::default())
}

fn durable_with(limits: ServerLimits) -> Wire {
    let mut wire = waiting_with(limits);
    wire.confirm_all();
    assert_eq!(wire.receive().len(), 1);
    wire
}

/// A durable session whose CONNACK waits.
fn waiting() -> Wire {
    waiting_with(ServerLimits::default())
}

fn waiting_with(limits: ServerLimits) -> Wire {
    let mut wire = Wire::with(limits);
    wire.durable = true;
    wire.obliging = false;
    wire.connect(CONNECT_3_KEPT);
    wire
}

#[test]
fn connack_of_a_durable_session_waits_and_everything_behind_it() {
    let mut wire = waiting();
    wire.deliver(&message("t", b"!", QoS::AtMostOnce), EXACTLY);
    wire.ok(b"\xc0\x00");

    assert!(wire.receive().is_empty());
    wire.confirm_all();

    let firsts: Vec<u8> = wire.receive().iter().map(|packet| packet[0]).collect();
    assert_eq!(firsts, [0x20, 0xd0, 0x30]);
}

#[test]
fn connack_of_another_session_waits_for_nothing() {
    let mut wire = Wire::new();
    wire.obliging = false;

    wire.connect(CONNECT_3_KEPT);

    assert_eq!(wire.receive().len(), 1);
}

#[test]
fn puback_and_pubrec_wait_for_their_tokens_in_order() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    wire.obliging = false;
    wire.ok(b"\x32\x06\x00\x01t\x00\x01!");
    wire.ok(b"\x34\x06\x00\x01t\x00\x02!");
    let first = accept(&mut wire, 1, QoS::AtLeastOnce);
    let second = accept(&mut wire, 2, EXACTLY);

    assert!(wire.receive().is_empty());
    wire.session.confirm(first);
    assert_eq!(wire.receive(), [b"\x40\x02\x00\x01"]);
    wire.session.confirm(second);
    assert_eq!(wire.receive(), [b"\x50\x02\x00\x02"]);
}

/// For DISCONNECT, which goes behind them; before CONNACK nothing is sent [MQTT-3.2.0-1].
#[test]
fn held_acknowledgements_are_taken_out_once_connack_has_left() {
    let mut wire = waiting();
    let connack = wire.session.last_token();
    assert!(!wire.session.is_confirmed(connack));
    assert!(wire.session.take_held_acks().is_empty());
    wire.session.confirm(connack);
    assert!(wire.session.is_confirmed(connack));
    assert_eq!(wire.receive().len(), 1);
    wire.ok(b"\x32\x06\x00\x01t\x00\x07!");
    accept(&mut wire, 7, QoS::AtLeastOnce);

    assert_eq!(wire.session.take_held_acks().len(), 1);

    assert!(wire.session.take_held_acks().is_empty());
}

#[test]
fn a_packet_without_token_overtakes_held_acknowledgements() {
    let mut wire = durable();
    wire.ok(b"\x32\x06\x00\x01t\x00\x01!");
    let token = accept(&mut wire, 1, QoS::AtLeastOnce);

    wire.ok(b"\xc0\x00");
    wire.deliver(&message("t", b"!", QoS::AtMostOnce), EXACTLY);
    wire.deliver(&message("t", b"!", QoS::AtLeastOnce), EXACTLY);

    assert_eq!(wire.receive().len(), 3);
    wire.session.confirm(token);
    assert_eq!(wire.receive(), [b"\x40\x02\x00\x01"]);
}

#[test]
fn suback_and_unsuback_of_a_durable_session_wait() {
    let mut wire = durable();
    wire.ok(b"\x82\x06\x00\x07\x00\x01a\x02");
    let subscribed = wire.session.last_token();
    wire.ok(b"\xa2\x05\x00\x08\x00\x01a");

    assert!(wire.receive().is_empty());
    wire.session.confirm(subscribed);
    assert_eq!(wire.receive(), [b"\x90\x03\x00\x07\x02"]);
    wire.confirm_all();
    assert_eq!(wire.receive(), [b"\xb0\x02\x00\x08"]);
}

/// durability.md: the release is logged, then PUBCOMP leaves.
#[test]
fn pubcomp_of_a_durable_session_waits_for_the_release() {
    let mut wire = durable();
    wire.ok(b"\x34\x06\x00\x01t\x00\x02!");
    let token = accept(&mut wire, 2, EXACTLY);
    wire.session.confirm(token);
    wire.receive();

    wire.ok(b"\x62\x02\x00\x02");

    let token = recorded(&mut wire, ExchangeRecord::Released { packet_id: id(2) });
    assert!(wire.receive().is_empty());
    wire.session.confirm(token);
    assert_eq!(wire.receive(), [b"\x70\x02\x00\x02"]);
}

/// Were the answer to the repeat faster than the record, a crash could turn the identifier's
/// next message into a duplicate.
#[test]
fn a_repeated_pubrel_is_not_answered_before_the_first() {
    let mut wire = durable();
    wire.ok(b"\x34\x06\x00\x01t\x00\x02!");
    let token = accept(&mut wire, 2, EXACTLY);
    wire.session.confirm(token);
    wire.receive();

    wire.ok(b"\x62\x02\x00\x02");
    wire.ok(b"\x62\x02\x00\x02");

    assert!(wire.receive().is_empty());
    wire.confirm_all();
    assert_eq!(wire.receive(), [b"\x70\x02\x00\x02"; 2]);
}

/// durability.md: a QoS 2 PUBLISH leaves once its identifier is durable, PUBREL once PUBREC is.
#[test]
fn mqtt_4_3_3_6_qos_2_to_a_durable_session_waits_twice() {
    let mut wire = durable();
    wire.session.deliver(
        wire.now,
        &message("t", b"!", EXACTLY),
        Delivery {
            key: 77,
            ..Delivery::new(EXACTLY, &[])
        },
    );

    let sending = ExchangeRecord::Sending {
        packet_id: id(1),
        qos: EXACTLY,
        key: 77,
    };
    let token = recorded(&mut wire, sending);
    assert!(wire.receive().is_empty());
    wire.session.confirm(token);
    assert_eq!(wire.receive(), [b"\x34\x06\x00\x01t\x00\x01!"]);

    wire.ok(b"\x50\x02\x00\x01");
    let token = recorded(
        &mut wire,
        ExchangeRecord::Received {
            packet_id: id(1),
            key: 77,
        },
    );
    assert!(wire.receive().is_empty());
    wire.session.confirm(token);
    assert_eq!(wire.receive(), [b"\x62\x02\x00\x01"]);

    wire.ok(b"\x70\x02\x00\x01");
    let events = wire.events();
    let completed = ExchangeRecord::Completed { packet_id: id(1) };
    assert!(
        matches!(&events[..], [SessionEvent::Record { token: None, record }] if *record == completed)
    );
}

/// A durable session whose client was sent a QoS 2 message with number 77 and identifier 1.
fn sent_exactly_once() -> Wire {
    let mut wire = durable();
    let delivery = Delivery {
        key: 77,
        ..Delivery::new(EXACTLY, &[])
    };
    wire.session
        .deliver(wire.now, &message("t", b"!", EXACTLY), delivery);
    wire.confirm_all();
    assert_eq!(wire.receive(), [b"\x34\x06\x00\x01t\x00\x01!"]);
    wire.events();
    wire
}

/// [MQTT-4.3.3-6] PUBREL for the repeat would be faster than the record of the first PUBREC: after a crash the message
/// would come again behind its own PUBREL.
#[test]
fn a_second_pubrec_is_not_answered_before_the_first_is_safe() {
    let mut wire = sent_exactly_once();
    wire.ok(b"\x50\x02\x00\x01");

    wire.ok(b"\x50\x02\x00\x01");

    assert!(wire.receive().is_empty());
    wire.confirm_all();
    assert_eq!(wire.receive(), [b"\x62\x02\x00\x01"; 2]);
}

/// Without the record the message would come again after a crash, though its client has refused it.
#[test]
fn a_pubrec_with_an_error_ends_the_exchange_in_the_store() {
    let mut wire = Wire::new();
    wire.durable = true;
    wire.connect(CONNECT_5_KEPT);
    wire.receive();
    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    wire.receive();
    wire.events();

    wire.ok(b"\x50\x03\x00\x01\x80");

    assert_completed(&mut wire);
    assert_eq!(wire.session.in_flight(), 0);
}

/// The one event is the record that identifier 1 is free.
fn assert_completed(wire: &mut Wire) {
    let events = wire.events();
    let completed = ExchangeRecord::Completed { packet_id: id(1) };
    let is_it = |event: &SessionEvent| matches!(event, SessionEvent::Record { token: None, record } if *record == completed);
    assert!(matches!(&events[..], [event] if is_it(event)), "{events:?}");
}

#[test]
fn qos_1_to_a_durable_session_is_recorded_late_and_leaves_at_once() {
    let mut wire = durable();

    wire.session.deliver(
        wire.now,
        &message("t", b"!", QoS::AtLeastOnce),
        Delivery {
            key: 77,
            ..Delivery::new(EXACTLY, &[])
        },
    );

    assert_eq!(wire.receive(), [b"\x32\x06\x00\x01t\x00\x01!"]);
    assert!(matches!(
        &wire.events()[..],
        [SessionEvent::Record { token: None, .. }]
    ));
}

/// The store delivers a message that was dropped again after a crash unless it knows of the drop by then: no later
/// message is in front of it.
#[test]
fn no_qos_1_message_leaves_before_the_drop_of_an_earlier_one_is_safe() {
    let limits = ServerLimits {
        inflight_max: 1,
        queue_messages: 1,
        queue_disk_messages: 1,
        ..ServerLimits::default()
    };
    for policy in [QueuePolicy::DropNewest, QueuePolicy::DropOldest] {
        let mut wire = durable_with(ServerLimits {
            queue_policy: policy,
            ..limits.clone()
        });
        let deliver = |wire: &mut Wire, key| {
            let message = message("t", &[b'0' + u8::try_from(key).unwrap()], QoS::AtLeastOnce);
            let delivery = Delivery {
                key,
                ..Delivery::new(EXACTLY, &[])
            };
            wire.session.deliver(wire.now, &message, delivery)
        };
        deliver(&mut wire, 1);
        deliver(&mut wire, 2);
        assert_eq!(wire.receive(), [b"\x32\x06\x00\x01t\x00\x011"]);
        deliver(&mut wire, 3);
        let dropped = wire.session.last_token();
        let next = if policy == QueuePolicy::DropNewest {
            b'2'
        } else {
            b'3'
        };

        wire.ok(b"\x40\x02\x00\x01");

        assert!(wire.receive().is_empty(), "{policy:?}");
        wire.session.confirm(dropped);
        assert_eq!(
            wire.receive(),
            [[b"\x32\x06\x00\x01t\x00\x02".as_slice(), &[next]].concat()]
        );
    }
}

/// The store has nothing of the first, and a client that is away gets nothing before the second is recorded.
#[test]
fn a_drop_that_no_later_message_waits_for_needs_no_token() {
    let mut wire = durable_with(ServerLimits {
        inflight_max: 1,
        queue_messages: 0,
        queue_disk_messages: 0,
        ..ServerLimits::default()
    });
    let mut needs_token = |is_here: bool, key| {
        wire.deliver(&message("t", b"!", QoS::AtLeastOnce), EXACTLY);
        if !is_here {
            wire.lose();
        }
        let before = wire.session.last_token();
        let delivery = Delivery {
            key,
            ..Delivery::new(EXACTLY, &[])
        };
        let message = message("t", b"!", QoS::AtLeastOnce);
        let delivered = wire.session.deliver(wire.now, &message, delivery);
        assert_eq!(delivered, Delivered::Dropped(DropReason::QueueFull));
        wire.session.last_token() != before
    };

    assert!(!needs_token(true, 0));
    assert!(needs_token(true, 77));
    assert!(!needs_token(false, 77));
}

#[test]
fn qos_1_that_the_store_does_not_have_is_not_recorded() {
    let mut wire = durable();

    wire.deliver(&message("t", b"!", QoS::AtLeastOnce), EXACTLY);
    assert_eq!(wire.receive(), [b"\x32\x06\x00\x01t\x00\x01!"]);
    wire.ok(b"\x40\x02\x00\x01");

    assert!(wire.events().is_empty());
}

/// The message may be lost, but not its identifier: the next one under it would pass for a repeat.
#[test]
fn of_qos_2_that_the_store_does_not_have_the_identifier_is_recorded() {
    let mut wire = durable();
    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    let sending = ExchangeRecord::Sending {
        packet_id: id(1),
        qos: EXACTLY,
        key: 0,
    };
    let token = recorded(&mut wire, sending);
    assert!(wire.receive().is_empty());
    wire.session.confirm(token);
    assert_eq!(wire.receive(), [b"\x34\x06\x00\x01t\x00\x01!"]);

    wire.ok(b"\x50\x02\x00\x01");
    assert!(wire.events().is_empty());
    assert_eq!(wire.receive(), [b"\x62\x02\x00\x01"]);
    wire.ok(b"\x70\x02\x00\x01");

    let completed = ExchangeRecord::Completed { packet_id: id(1) };
    let events = wire.events();
    assert!(
        matches!(&events[..], [SessionEvent::Record { token: None, record }] if *record == completed)
    );
}

#[test]
fn a_store_that_begins_to_keep_a_session_is_told_its_open_identifiers() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    for (payload, qos) in [(b"1", QoS::AtLeastOnce), (b"2", EXACTLY), (b"3", EXACTLY)] {
        wire.deliver(&message("t", payload, qos), EXACTLY);
    }
    wire.receive();
    wire.ok(b"\x50\x02\x00\x02");
    wire.ok(b"\x34\x06\x00\x01t\x00\x09!");

    assert!(wire.session.exactly_once_ids().eq([id(2), id(3)]));
    assert!(wire.session.unreleased_ids().eq([id(9)]));
}

#[test]
fn nothing_of_a_memory_session_is_recorded() {
    let mut wire = Wire::connected(CONNECT_3_KEPT);
    wire.deliver(&message("t", b"!", EXACTLY), EXACTLY);
    wire.receive();
    wire.ok(b"\x50\x02\x00\x01");
    wire.ok(b"\x70\x02\x00\x01");
    wire.ok(b"\x34\x06\x00\x01t\x00\x02!");
    wire.ok(b"\x62\x02\x00\x02");

    assert!(wire.events().is_empty());
}

/// The first PUBREC waits for the disk; the repeat must not be faster, on whatever connection.
#[test]
fn a_repeated_publish_is_not_acknowledged_before_the_first() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.obliging = false;
    wire.ok(b"\x34\x07\x00\x01t\x00\x01\x00!");
    let token = accept(&mut wire, 1, EXACTLY);
    wire.ok(b"\x3c\x07\x00\x01t\x00\x01\x00!");
    assert!(wire.receive().is_empty());
    wire.lose();

    wire.resume(CONNECT_5_KEPT);
    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
    wire.ok(b"\x3c\x07\x00\x01t\x00\x01\x00!");
    assert!(wire.receive().is_empty());
    wire.session.confirm(token);

    assert_eq!(wire.receive(), [b"\x50\x02\x00\x01"]);
}

/// Confirmations of the old connection come late: they open nothing that is not asked for.
#[test]
fn late_confirmations_of_an_old_connection_send_nothing() {
    let mut wire = durable();
    wire.ok(b"\x32\x06\x00\x01t\x00\x01!");
    let old = accept(&mut wire, 1, QoS::AtLeastOnce);
    wire.lose();
    wire.resume(CONNECT_3_KEPT);

    wire.session.confirm(old);
    assert!(wire.receive().is_empty());
    wire.confirm_all();

    assert_eq!(wire.receive(), [b"\x20\x02\x01\x00"]);
}

#[test]
fn a_token_that_was_never_given_opens_nothing_to_come() {
    let mut one = durable();
    let mut other = durable();
    for _ in 0..3 {
        one.ok(b"\x32\x06\x00\x01t\x00\x01!");
        accept(&mut one, 1, QoS::AtLeastOnce);
    }

    other.session.confirm(one.session.last_token());
    other.ok(b"\x32\x06\x00\x01t\x00\x01!");
    accept(&mut other, 1, QoS::AtLeastOnce);

    assert!(other.receive().is_empty());
}

fn accept(wire: &mut Wire, packet_id: u16, qos: QoS) -> AckToken {
    wire.session
        .accept_publish(id(packet_id), qos, ReasonCode::SUCCESS)
}

fn recorded(wire: &mut Wire, expected: ExchangeRecord) -> AckToken {
    let events = wire.events();
    let [
        SessionEvent::Record {
            token: Some(token),
            record,
        },
    ] = &events[..]
    else {
        panic!("one record with a token, not {events:?}")
    };
    assert_eq!(*record, expected);
    *token
}

fn id(value: u16) -> PacketId {
    PacketId::new(value).unwrap()
}
