//! SUBSCRIBE and UNSUBSCRIBE: sections 3.8 to 3.11, and shared subscriptions, 4.8.2.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{
    Asked, CONNECT_3, CONNECT_5, CONNECT_5_KEPT, CONNECT_5_TERSE, CONNECT_BRIDGE, Wire, connect_5,
    framed,
};
use mqttcore_codec::{Packet, ProtocolVersion, QoS, ReasonCode, RetainHandling, decode};
use mqttcore_session::{
    Details, Request, ServerLimits, SubscribeRequest, UnsubscribeRequest, Violation,
};

#[test]
fn mqtt_3_8_4_6_suback_has_one_code_for_each_filter_in_order() {
    let mut wire = Wire::connected(CONNECT_5);

    wire.ok(b"\x82\x0f\x00\x07\x00\x00\x01a\x02\x00\x01b\x00\x00\x01c\x01");

    assert_eq!(wire.receive(), [b"\x90\x06\x00\x07\x00\x02\x00\x01"]);
    let held: Vec<_> = wire
        .session
        .subscriptions()
        .iter()
        .map(|held| (held.filter.as_str(), held.options.qos))
        .collect();
    assert_eq!(
        held,
        [
            ("a", QoS::ExactlyOnce),
            ("b", QoS::AtMostOnce),
            ("c", QoS::AtLeastOnce)
        ]
    );
}

/// [MQTT 3.1.1 MQTT-3.9.3-2] 3.x knows one failure.
#[test]
fn mqtt_3_1_1_3_9_3_2_a_refusal_is_0x80_for_3_x() {
    let mut wire = Wire::connected(CONNECT_3);
    let mut request = subscribe(&mut wire, b"\x82\x06\x00\x07\x00\x01a\x02").unwrap();

    request.entries[0].refused = Some(ReasonCode::NOT_AUTHORIZED);
    wire.session.complete_subscribe(request, Details::none());

    assert_eq!(wire.receive(), [b"\x90\x03\x00\x07\x80"]);
    assert!(wire.session.subscriptions().is_empty());
}

#[test]
fn mqtt_3_8_4_7_the_engine_may_grant_less() {
    let mut wire = Wire::connected(CONNECT_5);
    let mut request = subscribe(&mut wire, b"\x82\x07\x00\x07\x00\x00\x01a\x02").unwrap();

    request.entries[0].options.qos = QoS::AtMostOnce;
    wire.session.complete_subscribe(request, Details::none());

    assert_eq!(wire.receive(), [b"\x90\x04\x00\x07\x00\x00"]);
}

#[test]
fn mqtt_3_2_2_10_any_qos_is_accepted_and_the_maximum_granted() {
    let mut wire = Wire::with(ServerLimits {
        maximum_qos: QoS::AtLeastOnce,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);
    wire.receive();

    wire.ok(b"\x82\x07\x00\x07\x00\x00\x01a\x02");

    assert_eq!(wire.receive(), [b"\x90\x04\x00\x07\x00\x01"]);
}

#[test]
fn mqtt_3_8_4_3_the_same_filter_replaces_the_subscription() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01a\x02");

    let request = subscribe(&mut wire, b"\x82\x07\x00\x02\x00\x00\x01a\x01").unwrap();
    let is_new = request.entries[0].is_new;
    wire.session.complete_subscribe(request, Details::none());

    assert!(!is_new);
    assert_eq!(wire.session.subscriptions().len(), 1);
    assert_eq!(
        wire.session.subscriptions()[0].options.qos,
        QoS::AtLeastOnce
    );
}

#[test]
fn options_and_identifier_are_handed_over() {
    let mut wire = Wire::connected(CONNECT_5);

    // Subscription Identifier 200; QoS 1, No Local, Retain As Published, Retain Handling 2.
    let request = subscribe(&mut wire, b"\x82\x0a\x00\x01\x03\x0b\xc8\x01\x00\x01a\x2d").unwrap();

    let entry = &request.entries[0];
    assert!(entry.options.no_local && entry.options.retain_as_published);
    assert_eq!(entry.options.id.map(std::num::NonZeroU32::get), Some(200));
    assert_eq!(entry.retain_handling, RetainHandling::DoNotSend);
}

/// [MQTT-3.3.1-9, -10, -11]; never for shared subscriptions (docs/decisions.md, 12).
#[test]
fn mqtt_3_3_1_10_retained_messages_follow_retain_handling() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01o\x00");
    let mut wants = |filter: &[u8], options: u8| {
        let len = u8::try_from(filter.len()).unwrap();
        let body = [&[0, 1, 0, 0, len], filter, &[options]].concat();
        let request = subscribe(&mut wire, &framed(0x82, &body)).unwrap();
        request.entries[0].wants_retained()
    };

    assert_eq!([wants(b"o", 0x00), wants(b"n", 0x00)], [true, true]);
    assert_eq!([wants(b"o", 0x10), wants(b"n", 0x10)], [false, true]);
    assert_eq!([wants(b"o", 0x20), wants(b"n", 0x20)], [false, false]);
    assert!(!wants(b"$share/g/n", 0x00));
}

#[test]
fn a_filter_named_twice_in_a_packet_is_new_once() {
    let mut wire = Wire::connected(CONNECT_5);

    let request = subscribe(&mut wire, b"\x82\x0b\x00\x01\x00\x00\x01a\x00\x00\x01a\x01").unwrap();

    let new: Vec<bool> = request.entries.iter().map(|entry| entry.is_new).collect();
    assert_eq!(new, [true, false]);
}

/// [MQTT-4.7.1-1, -2], [MQTT-4.8.2-1, -2] (abuse E02, E06).
#[test]
fn mqtt_4_7_1_1_a_filter_that_is_none_ends_the_connection() {
    let mut wire = Wire::connected(CONNECT_5);

    for filter in [
        "a#",
        "a/#/b",
        "a+",
        "+a",
        "##",
        "$share/ab",
        "$share//t",
        "$share/g/",
        "$share/+/t",
        "$share/g#/t",
    ] {
        for (first, options) in [(0x82, &b"\x00"[..]), (0xa2, b"")] {
            let len = u8::try_from(filter.len()).unwrap();
            let body = [&[0, 1, 0, 0, len], filter.as_bytes(), options].concat();

            let reason = wire.refused(&framed(first, &body));

            assert_eq!(reason, ReasonCode::TOPIC_FILTER_INVALID, "{filter:?}");
        }
    }
    assert!(wire.session.subscriptions().is_empty());
}

/// 0x8F is for filters that are correctly formed.
#[test]
fn mqtt_4_7_3_1_an_empty_filter_is_a_protocol_error() {
    let mut wire = Wire::connected(CONNECT_5);

    for (first, options) in [(0x82, &b"\x00"[..]), (0xa2, b"")] {
        let body = [&[0, 1, 0, 0, 0][..], options].concat();

        let reason = wire.refused(&framed(first, &body));

        assert_eq!(reason, ReasonCode::PROTOCOL_ERROR);
    }
}

/// [MQTT-3.8.3-4] (abuse E05).
/// A bridge of 3.1.1 gets none of its own messages, and the RETAIN flags of the others.
#[test]
fn subscriptions_of_a_bridge_have_no_local_and_retain_as_published() {
    let mut wire = Wire::connected(CONNECT_BRIDGE);

    let request = subscribe(
        &mut wire,
        b"\x82\x13\x00\x07\x00\x01a\x01\x00\x0a$share/g/a\x01",
    )
    .unwrap();

    let plain = request.entries[0].options;
    let shared = request.entries[1].options;
    assert!(plain.no_local && plain.retain_as_published);
    assert!(!shared.no_local && shared.retain_as_published);
}

#[test]
fn mqtt_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error() {
    let mut wire = Wire::connected(CONNECT_5);

    let reason = wire.refused(b"\x82\x10\x00\x01\x00\x00\x0a$share/g/t\x04");

    assert_eq!(reason, ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn what_is_not_offered_is_refused_filter_by_filter() {
    let mut wire = Wire::with(ServerLimits {
        shared_subscription_available: false,
        wildcard_subscription_available: false,
        subscription_identifiers_available: false,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_TERSE);
    wire.receive();

    wire.ok(b"\x82\x18\x00\x01\x00\x00\x0a$share/g/t\x00\x00\x01#\x00\x00\x01t\x00");
    wire.ok(b"\x82\x09\x00\x02\x02\x0b\x01\x00\x01t\x00");

    assert_eq!(
        wire.receive(),
        [
            &b"\x90\x06\x00\x01\x00\x9e\xa2\x00"[..],
            b"\x90\x04\x00\x02\x00\xa1"
        ]
    );
}

/// Abuse E08.
#[test]
fn filters_beyond_the_caps_are_refused() {
    let mut wire = Wire::with(ServerLimits {
        subscriptions: 2,
        filters_per_packet: 3,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_TERSE);
    wire.receive();

    wire.ok(b"\x82\x13\x00\x01\x00\x00\x01a\x00\x00\x01b\x00\x00\x01c\x00\x00\x01a\x00");
    wire.ok(b"\x82\x07\x00\x02\x00\x00\x01a\x01");
    wire.ok(b"\xa2\x06\x00\x03\x00\x00\x01a");
    wire.ok(b"\x82\x07\x00\x04\x00\x00\x01c\x00");

    assert_eq!(
        wire.receive(),
        [
            &b"\x90\x07\x00\x01\x00\x00\x00\x97\x97"[..],
            b"\x90\x04\x00\x02\x00\x01",
            b"\xb0\x04\x00\x03\x00\x00",
            b"\x90\x04\x00\x04\x00\x00"
        ]
    );
}

/// Abuse E08, E12: a packet with very many filters is refused before they are parsed.
#[test]
fn a_packet_with_more_than_10_000_filters_ends_the_connection() {
    let packet = |first_byte: u8, filter: &[u8], count: usize| {
        let body = [b"\x00\x01\x00", &*filter.repeat(count)].concat();
        let mut packet = vec![first_byte];
        let mut len = body.len();
        while len >= 128 {
            packet.push(u8::try_from(len % 128).expect("below 128") | 128);
            len /= 128;
        }
        packet.push(u8::try_from(len).expect("below 128"));
        [packet, body].concat()
    };
    for (first_byte, filter) in [(0x82, &b"\x00\x01a\x00"[..]), (0xa2, b"\x00\x01a")] {
        let mut wire = Wire::connected(CONNECT_5);
        wire.ok(&packet(first_byte, filter, 10_000));
        assert_eq!(wire.receive().len(), 1);
        let reason = wire.refused(&packet(first_byte, filter, 10_001));
        assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED);
    }
}

/// Abuse E09: a search visits the levels of a filter from its first `+` on, whatever the topic's own are.
#[test]
fn levels_from_a_plus_on_have_a_cap_for_all_filters_of_a_session() {
    let mut wire = Wire::with(ServerLimits {
        wildcard_levels: 3,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5_TERSE);
    wire.receive();

    // a/+/b (2 levels), +/+ (2), x/y/z (0), + (1)
    wire.ok(b"\x82\x1d\x00\x01\x00\x00\x05a/+/b\x00\x00\x03+/+\x00\x00\x05x/y/z\x00\x00\x01+\x00");
    // The same filter again is no new one; another one is too much.
    wire.ok(b"\x82\x0b\x00\x02\x00\x00\x05a/+/b\x01");
    wire.ok(b"\x82\x09\x00\x03\x00\x00\x03c/+\x00");
    // Without a/+/b there is room for +/+.
    wire.ok(b"\xa2\x0a\x00\x04\x00\x00\x05a/+/b");
    wire.ok(b"\x82\x09\x00\x05\x00\x00\x03+/+\x00");
    wire.ok(b"\x82\x09\x00\x06\x00\x00\x03c/+\x00");

    assert_eq!(
        wire.receive(),
        [
            &b"\x90\x07\x00\x01\x00\x00\x97\x00\x00"[..],
            b"\x90\x04\x00\x02\x00\x01",
            b"\x90\x04\x00\x03\x00\x97",
            b"\xb0\x04\x00\x04\x00\x00",
            b"\x90\x04\x00\x05\x00\x00",
            b"\x90\x04\x00\x06\x00\x97",
        ]
    );
}

#[test]
fn requests_under_way_count_against_the_cap() {
    let mut wire = Wire::with(ServerLimits {
        subscriptions: 1,
        ..ServerLimits::default()
    });
    wire.connect(CONNECT_5);
    let mut refused = |filter: u8| {
        let request = subscribe(&mut wire, &[0x82, 7, 0, 1, 0, 0, 1, filter, 0]).unwrap();
        request.entries[0].refused
    };

    assert_eq!(refused(b'a'), None);
    assert_eq!(refused(b'b'), Some(ReasonCode::QUOTA_EXCEEDED));
}

/// [MQTT-3.10.4-1, -5], [MQTT-3.11.3-1].
#[test]
fn mqtt_3_11_3_1_unsuback_tells_of_each_filter_in_order() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01a\x00");
    wire.receive();

    wire.ok(b"\xa2\x09\x00\x02\x00\x00\x01x\x00\x01a");

    assert_eq!(wire.receive(), [b"\xb0\x05\x00\x02\x00\x11\x00"]);
    assert!(wire.session.subscriptions().is_empty());
}

#[test]
fn mqtt_3_1_1_3_10_4_5_a_3_x_unsuback_has_no_codes() {
    let mut wire = Wire::connected(CONNECT_3);

    wire.ok(b"\xa2\x05\x00\x02\x00\x01x");

    assert_eq!(wire.receive(), [b"\xb0\x02\x00\x02"]);
}

/// Abuse E11.
#[test]
fn a_shared_and_a_plain_subscription_do_not_touch_each_other() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x82\x10\x00\x01\x00\x00\x0a$share/g/t\x00");
    wire.receive();

    wire.ok(b"\xa2\x06\x00\x02\x00\x00\x01t");

    assert_eq!(wire.receive(), [b"\xb0\x04\x00\x02\x00\x11"]);
    assert_eq!(
        wire.session.subscriptions()[0].filter.as_str(),
        "$share/g/t"
    );
}

#[test]
fn an_engine_may_refuse_to_unsubscribe() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01a\x00");
    wire.receive();
    let mut request = unsubscribe(&mut wire, b"\xa2\x06\x00\x02\x00\x00\x01a");

    let exists = request.entries[0].exists;
    request.entries[0].refused = Some(ReasonCode::NOT_AUTHORIZED);
    wire.session.complete_unsubscribe(request, Details::none());

    assert!(exists);
    assert_eq!(wire.receive(), [b"\xb0\x04\x00\x02\x00\x87"]);
    assert_eq!(wire.session.subscriptions().len(), 1);
}

/// [MQTT-3.1.2-29], [MQTT-3.9.2-1, -2].
#[test]
fn mqtt_3_1_2_29_details_only_if_the_client_asked_for_problem_information() {
    for (asked, expected) in [
        (
            1,
            &b"\x90\x0f\x00\x01\x0b\x1f\x00\x01r\x26\x00\x01n\x00\x01v\x87"[..],
        ),
        (0, b"\x90\x04\x00\x01\x00\x87"),
    ] {
        let mut wire = Wire::connected(&connect_5(2, &[0x17, asked]));
        let mut request = subscribe(&mut wire, b"\x82\x07\x00\x01\x00\x00\x01a\x00").unwrap();
        request.entries[0].refused = Some(ReasonCode::NOT_AUTHORIZED);
        let details = Details {
            reason_string: Some("r".into()),
            user_properties: vec![("n".into(), "v".into())],
        };

        wire.session.complete_subscribe(request, details);

        assert_eq!(wire.receive(), [expected]);
    }
}

/// [MQTT-4.1.0-1] They outlive the connection; an answer that came too late is not sent.
/// [MQTT-3.1.2-24], [MQTT-3.8.4-1] An answer that cannot be sent would leave the client waiting.
#[test]
fn mqtt_3_8_4_1_a_subscribe_whose_answer_the_client_cannot_take_is_refused() {
    let filters = b"\x00\x01a\x00".repeat(15);
    let subscribe = framed(0x82, &[b"\x00\x01\x00", &filters[..]].concat());
    let narrow = |room: u8| Wire::connected(&connect_5(2, &[0x27, 0, 0, 0, room]));

    let mut exact = narrow(20);
    exact.ok(&subscribe);

    assert_eq!(exact.receive()[0].len(), 20);
    let mut short = narrow(19);
    assert_eq!(short.refused(&subscribe), ReasonCode::PACKET_TOO_LARGE);
    assert!(short.session.subscriptions().is_empty());
}

#[test]
fn mqtt_3_10_4_4_an_unsubscribe_whose_answer_the_client_cannot_take_is_refused() {
    let filters = b"\x00\x01a".repeat(15);
    let unsubscribe = framed(0xA2, &[b"\x00\x01\x00", &filters[..]].concat());
    let narrow = |room: u8| Wire::connected(&connect_5(2, &[0x27, 0, 0, 0, room]));

    let mut exact = narrow(20);
    exact.ok(&unsubscribe);

    assert_eq!(exact.receive()[0].len(), 20);
    assert_eq!(
        narrow(19).refused(&unsubscribe),
        ReasonCode::PACKET_TOO_LARGE
    );
}

#[test]
fn mqtt_4_1_0_1_subscriptions_outlive_the_connection() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    let request = subscribe(&mut wire, b"\x82\x07\x00\x01\x00\x00\x01a\x00").unwrap();
    wire.lose();
    wire.session.complete_subscribe(request, Details::none());

    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
    assert_eq!(wire.session.subscriptions().len(), 1);
}

/// Abuse F16.
#[test]
fn the_end_of_one_subscription_is_not_that_of_others() {
    let mut wire = Wire::connected(CONNECT_5);
    for filter in *b"abc" {
        wire.ok(&[0x82, 7, 0, 1, 0, 0, 1, filter, 0]);
    }

    for (ends, left) in [(b'b', &["a", "c"][..]), (b'a', &["c"]), (b'c', &[])] {
        wire.ok(&[0xa2, 6, 0, 1, 0, 0, 1, ends]);

        let held = wire.session.subscriptions();
        let held: Vec<_> = held.iter().map(|held| held.filter.as_str()).collect();
        assert_eq!(held, left);
    }
}

#[test]
fn a_revoked_subscription_is_gone() {
    let mut wire = Wire::connected(CONNECT_5);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01a\x00");
    let filter = wire.session.subscriptions()[0].filter.clone();

    assert!(wire.session.revoke(&filter));
    assert!(!wire.session.revoke(&filter));
    assert!(matches!(wire.ok(b"\xc0\x00"), Asked::Nothing));
}

fn subscribe(wire: &mut Wire, bytes: &[u8]) -> Result<SubscribeRequest, Violation> {
    match wire
        .session
        .handle_packet(wire.now, packet(wire.version, bytes))?
    {
        Request::Subscribe(request) => Ok(request),
        other => panic!("not a SUBSCRIBE: {other:?}"),
    }
}

fn unsubscribe(wire: &mut Wire, bytes: &[u8]) -> UnsubscribeRequest {
    match wire
        .session
        .handle_packet(wire.now, packet(wire.version, bytes))
    {
        Ok(Request::Unsubscribe(request)) => request,
        other => panic!("not an UNSUBSCRIBE: {other:?}"),
    }
}

fn packet(version: ProtocolVersion, bytes: &[u8]) -> Packet<'_> {
    let limits = ServerLimits::default().after_connect();
    decode(bytes, version, &limits).unwrap().unwrap().0
}
