//! Held messages: the engine decides about them before they are sent.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use common::{CONNECT_5, CONNECT_5_KEPT, Wire, message, start};
use mqttcore_codec::{PacketId, ProtocolVersion, QoS};
use mqttcore_session::{
    Delivered, Delivery, DropReason, ExchangeRecord, HeldDecision, Message, ServerLimits, Session,
    SessionEvent, UNDECIDED_MAX,
};

const ONCE: QoS = QoS::AtLeastOnce;
const EXACTLY: QoS = QoS::ExactlyOnce;

fn held(qos: QoS) -> Delivery<'static> {
    Delivery {
        is_held: true,
        ..Delivery::new(qos, &[])
    }
}

fn hold(wire: &mut Wire, payload: &[u8], qos: QoS) -> Delivered {
    let message = message("t", payload, qos);
    wire.session.deliver(wire.now, &message, held(qos))
}

fn undecided(wire: &mut Wire) -> usize {
    let events = wire.events().into_iter();
    events
        .filter(|event| matches!(event, SessionEvent::Undecided))
        .count()
}

fn asked(wire: &mut Wire) -> Vec<Vec<u8>> {
    let messages = wire.session.ask_undecided();
    messages
        .iter()
        .map(|message| message.payload().to_vec())
        .collect()
}

fn decide(wire: &mut Wire, decisions: Vec<HeldDecision>) {
    wire.session.decide_undecided(wire.now, decisions);
}

/// The last byte of each packet: that of the payload, if it is a PUBLISH.
fn ends(wire: &mut Wire) -> Vec<u8> {
    let packets = wire.receive();
    packets
        .iter()
        .map(|packet| *packet.last().unwrap())
        .collect()
}

#[test]
fn a_held_message_is_sent_after_the_decision_and_later_ones_behind_it() {
    for qos in [QoS::AtMostOnce, ONCE, EXACTLY] {
        let mut wire = Wire::connected(CONNECT_5);

        assert_eq!(hold(&mut wire, b"1", qos), Delivered::Queued);
        wire.deliver(&message("t", b"2", qos), qos);

        assert_eq!(undecided(&mut wire), 1);
        assert!(wire.receive().is_empty());
        assert_eq!(asked(&mut wire), [b"1"]);
        decide(&mut wire, vec![HeldDecision::Send]);
        assert_eq!(ends(&mut wire), b"12");
    }
}

#[test]
fn a_message_is_replaced_or_dropped_and_one_without_a_decision_is_dropped() {
    let mut wire = Wire::connected(CONNECT_5);
    for payload in [b"1", b"2", b"3", b"4"] {
        hold(&mut wire, payload, ONCE);
    }
    assert_eq!(asked(&mut wire).len(), 4);

    let changed = HeldDecision::Replace(message("t", b"longer", ONCE));
    let decisions = vec![HeldDecision::Send, changed, HeldDecision::Drop];
    decide(&mut wire, decisions);

    assert_eq!(ends(&mut wire), b"1r");
    let dropped: Vec<Message> = wire
        .events()
        .into_iter()
        .filter_map(|event| match event {
            SessionEvent::Dropped {
                reason: DropReason::Decision,
                message,
                ..
            } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(dropped.len(), 2);
    assert_eq!((wire.session.queued(), wire.session.queued_bytes()), (0, 0));
}

#[test]
fn a_question_has_a_bound_and_the_next_one_has_the_rest() {
    let mut wire = Wire::connected(CONNECT_5);
    for _ in 0..UNDECIDED_MAX + 2 {
        hold(&mut wire, b"m", QoS::AtMostOnce);
    }
    undecided(&mut wire);
    assert_eq!(asked(&mut wire).len(), UNDECIDED_MAX);

    let all = vec![HeldDecision::Send; UNDECIDED_MAX];
    decide(&mut wire, all);

    assert_eq!(wire.receive().len(), UNDECIDED_MAX);
    assert_eq!(undecided(&mut wire), 1);
    assert_eq!(asked(&mut wire).len(), 2);
}

#[test]
fn a_decision_outlives_the_connection_and_a_message_at_qos_0_does_not() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    hold(&mut wire, b"0", QoS::AtMostOnce);
    hold(&mut wire, b"1", ONCE);
    hold(&mut wire, b"2", ONCE);
    assert_eq!(asked(&mut wire).len(), 3);

    wire.lose();
    decide(
        &mut wire,
        vec![HeldDecision::Send, HeldDecision::Drop, HeldDecision::Send],
    );
    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.session.queued(), 0);
    assert_eq!(&ends(&mut wire)[1..], b"2");
}

#[test]
fn messages_for_a_client_that_is_offline_are_asked_about_when_it_is_back() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.lose();
    hold(&mut wire, b"1", ONCE);
    assert_eq!(undecided(&mut wire), 0);

    wire.resume(CONNECT_5_KEPT);

    assert_eq!(undecided(&mut wire), 1);
    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
    assert_eq!(asked(&mut wire), [b"1"]);
}

/// A restored session with messages in flight, which may have been sent before.
fn restored(in_flight: &[(u16, QoS)]) -> Wire {
    let mut wire = Wire::new();
    let limits = Arc::<ServerLimits>::clone(&wire.limits);
    wire.session = Session::restored(ProtocolVersion::V5, limits, start(), 100);
    wire.durable = true;
    for &(packet_id, qos) in in_flight {
        let packet_id = PacketId::new(packet_id).unwrap();
        let message = message("t", b"old", qos);
        wire.session.restore_publish(packet_id, message, held(qos));
    }
    wire.resume(CONNECT_5_KEPT);
    wire
}

#[test]
fn what_was_in_flight_before_a_restart_is_asked_about_again_and_keeps_its_identifier() {
    let mut wire = restored(&[(7, ONCE)]);
    assert_eq!(undecided(&mut wire), 1);
    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
    assert_eq!(asked(&mut wire), [b"old"]);

    decide(
        &mut wire,
        vec![HeldDecision::Replace(message("t", b"new!", ONCE))],
    );

    assert_eq!(wire.receive(), [b"\x3a\x0a\x00\x01t\x00\x07\x00new!"]);
}

#[test]
fn what_was_in_flight_and_is_dropped_now_ends_its_exchange() {
    let mut wire = restored(&[(7, ONCE), (9, EXACTLY)]);
    wire.receive();
    assert_eq!(asked(&mut wire).len(), 2);
    wire.events();

    decide(&mut wire, vec![HeldDecision::Drop, HeldDecision::Drop]);

    assert_eq!(wire.receive(), [b"\x62\x02\x00\x09"], "PUBREL");
    let events = wire.events();
    let completed = |event: &SessionEvent| {
        matches!(event, SessionEvent::Record { record: ExchangeRecord::Completed { packet_id }, .. }
            if packet_id.get() == 7)
    };
    assert_eq!(events.iter().filter(|event| completed(event)).count(), 1);
    wire.ok(b"\x70\x02\x00\x09");
    assert_eq!(wire.session.in_flight(), 0);
}
