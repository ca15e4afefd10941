//! Reason strings and user properties: who gets them, and what happens when there is no room.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Asked, CONNECT_3, CONNECT_5, CONNECT_5_TERSE, Wire, connect_5, framed};
use mqttcore_codec::{ProtocolVersion, QoS, ReasonCode};
use mqttcore_session::{ConnAckFormat, Details, Request};

/// Reason string and user property as they stand in a packet.
const EVERYTHING: &[u8] = b"\x1f\x00\x01r\x26\x00\x01n\x00\x01v";
const REASON: &[u8] = b"\x1f\x00\x01r";
/// What the session itself says about an identifier that it does not know.
const NOT_OPEN: &[u8] = b"\x1f\x00\x17no such message is open";

/// [MQTT-3.4.2-2, -3]
#[test]
fn mqtt_3_4_2_2_puback_loses_its_details_when_it_is_too_large() {
    for limit in 5..24 {
        let refused = refused_publish(b"\x32\x06\x00\x01t\x00\x07\x00", limit);

        assert_eq!(refused, fitting(b"\x40", b"\x00\x07\x87", limit), "{limit}");
    }
}

/// [MQTT-3.5.2-2, -3]
#[test]
fn mqtt_3_5_2_2_pubrec_loses_its_details_when_it_is_too_large() {
    for limit in 5..24 {
        let refused = refused_publish(b"\x34\x06\x00\x01t\x00\x07\x00", limit);

        assert_eq!(refused, fitting(b"\x50", b"\x00\x07\x87", limit), "{limit}");
    }
}

/// [MQTT-3.6.2-2]
#[test]
fn mqtt_3_6_2_2_pubrel_loses_its_reason_string_when_it_is_too_large() {
    let mut roomy = Wire::connected(&sized(32));
    let mut narrow = Wire::connected(&sized(31));

    roomy.ok(b"\x50\x02\x00\x07");
    narrow.ok(b"\x50\x02\x00\x07");

    let whole = [b"\x62\x1e\x00\x07\x92\x1a", NOT_OPEN].concat();
    assert_eq!(whole.len(), 32);
    assert_eq!(roomy.receive(), [whole]);
    assert_eq!(narrow.receive(), [b"\x62\x03\x00\x07\x92"]);
}

/// [MQTT-3.7.2-2]
#[test]
fn mqtt_3_7_2_2_pubcomp_loses_its_reason_string_when_it_is_too_large() {
    let mut roomy = Wire::connected(&sized(32));
    let mut narrow = Wire::connected(&sized(31));

    roomy.ok(b"\x62\x02\x00\x07");
    narrow.ok(b"\x62\x02\x00\x07");

    let whole = [b"\x70\x1e\x00\x07\x92\x1a", NOT_OPEN].concat();
    assert_eq!(roomy.receive(), [whole]);
    assert_eq!(narrow.receive(), [b"\x70\x03\x00\x07\x92"]);
}

/// [MQTT-3.9.2-1, -2]
#[test]
fn mqtt_3_9_2_1_suback_loses_its_details_when_it_is_too_large() {
    for limit in 6..24 {
        let mut wire = Wire::connected(&sized(limit));
        with_request(
            &mut wire,
            b"\x82\x07\x00\x01\x00\x00\x01a\x00",
            |wire, request| {
                let Request::Subscribe(mut request) = request else {
                    panic!("a SUBSCRIBE");
                };
                request.entries[0].refused = Some(ReasonCode::NOT_AUTHORIZED);
                wire.complete_subscribe(request, details());
            },
        );

        let (whole, short, bare) = listing(b"\x90", b"\x00\x01", b"\x87");
        let expected = [whole, short, bare]
            .into_iter()
            .find(|one| one.len() <= limit.into());
        assert_eq!(wire.receive(), [expected.unwrap()], "{limit}");
    }
}

/// [MQTT-3.11.2-1, -2]
#[test]
fn mqtt_3_11_2_1_unsuback_loses_its_details_when_it_is_too_large() {
    for limit in 6..24 {
        let mut wire = Wire::connected(&sized(limit));
        with_request(
            &mut wire,
            b"\xa2\x06\x00\x01\x00\x00\x01a",
            |wire, request| {
                let Request::Unsubscribe(request) = request else {
                    panic!("an UNSUBSCRIBE");
                };
                wire.complete_unsubscribe(request, details());
            },
        );

        let (whole, short, bare) = listing(b"\xb0", b"\x00\x01", b"\x11");
        let expected = [whole, short, bare]
            .into_iter()
            .find(|one| one.len() <= limit.into());
        assert_eq!(wire.receive(), [expected.unwrap()], "{limit}");
    }
}

/// [MQTT-3.14.2-3, -4]
#[test]
fn mqtt_3_14_2_3_disconnect_loses_its_details_when_it_is_too_large() {
    for limit in 4..20 {
        let wire = Wire::connected(&sized(limit));
        let mut out = Vec::new();

        let goodbye = wire
            .session
            .disconnect_packet(ReasonCode::NOT_AUTHORIZED, None, details())
            .unwrap();
        goodbye.encode(
            ProtocolVersion::V5,
            wire.session.client_packet_bytes(),
            &mut out,
        );

        assert_eq!(out, fitting(b"\xe0", b"\x87", limit), "{limit}");
    }
}

/// [MQTT-3.2.2-19, -20] A refusal is an answer to a CONNECT that named a limit.
#[test]
fn mqtt_3_2_2_19_a_refusal_loses_its_details_when_it_is_too_large() {
    for limit in 5..24 {
        let to = Wire::new().parse(&sized(limit)).unwrap().recipient();
        let mut out = Vec::new();

        to.refuse(ReasonCode::NOT_AUTHORIZED, details(), &mut out);

        let (whole, short, bare) = (
            [b"\x20\x0e\x00\x87\x0b", EVERYTHING].concat(),
            [b"\x20\x07\x00\x87\x04", REASON].concat(),
            b"\x20\x03\x00\x87\x00".to_vec(),
        );
        let expected = [whole, short, bare]
            .into_iter()
            .find(|one| one.len() <= limit.into());
        assert_eq!(out, expected.unwrap(), "{limit}");
    }
}

#[test]
fn mqtt_3_1_2_29_a_client_that_did_not_ask_gets_codes_alone() {
    let to = ConnAckFormat {
        version: ProtocolVersion::V5,
        maximum_packet_size: u32::MAX,
        request_problem_information: false,
    };
    let mut refusal = Vec::new();
    let mut wire = Wire::connected(CONNECT_5_TERSE);

    to.refuse(ReasonCode::NOT_AUTHORIZED, details(), &mut refusal);
    refuse(&mut wire, b"\x32\x06\x00\x01t\x00\x07\x00");
    refuse(&mut wire, b"\x34\x06\x00\x01t\x00\x08\x00");
    wire.ok(b"\x50\x02\x00\x09");
    wire.ok(b"\x62\x02\x00\x0a");

    assert_eq!(refusal, b"\x20\x03\x00\x87\x00");
    let mut answers = wire.receive();
    answers.sort();
    assert_eq!(
        answers,
        [
            b"\x40\x03\x00\x07\x87",
            b"\x50\x03\x00\x08\x87",
            b"\x62\x03\x00\x09\x92",
            b"\x70\x03\x00\x0a\x92"
        ]
    );
}

#[test]
fn a_3_x_client_gets_the_acknowledgement_that_its_version_has() {
    let mut wire = Wire::connected(CONNECT_3);

    refuse(&mut wire, b"\x32\x05\x00\x01t\x00\x07");
    refuse(&mut wire, b"\x34\x05\x00\x01t\x00\x08");

    assert_eq!(wire.receive(), [b"\x40\x02\x00\x07", b"\x50\x02\x00\x08"]);
}

/// [MQTT-4.3.3-9], [MQTT-4.9.0-1] Words change nothing about what a code means.
#[test]
fn mqtt_4_3_3_9_a_refusal_with_a_reason_string_frees_the_identifier_and_the_quota() {
    let mut wire = Wire::connected(CONNECT_5);
    refuse(&mut wire, b"\x34\x06\x00\x01t\x00\x07\x00");
    wire.receive();

    let open = wire.session.open_publishes();
    let again = wire.ok(b"\x34\x06\x00\x01t\x00\x07\x00");

    assert_eq!(open, 0);
    assert!(matches!(again, Asked::Publish(_)));
}

/// The session knows best why it refuses a filter; the engine's own words go first.
#[test]
fn a_suback_says_why_the_session_refused() {
    let mut wire = Wire::with(mqttcore_session::ServerLimits {
        subscriptions: 0,
        ..mqttcore_session::ServerLimits::default()
    });
    wire.connect(CONNECT_5);
    wire.receive();

    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01a\x00");

    let expected = [
        &b"\x90\x1d\x00\x01\x19\x1f\x00\x16"[..],
        b"too many subscriptions\x97",
    ];
    assert_eq!(wire.receive(), [expected.concat()]);
}

#[test]
fn a_suback_says_what_the_server_does_not_offer() {
    let cases: [(&[u8], &str); 3] = [
        (
            b"\x00\x00\x0a$share/g/t\x00",
            "shared subscriptions are not supported",
        ),
        (
            b"\x00\x00\x01#\x00",
            "wildcard subscriptions are not supported",
        ),
        (
            b"\x02\x0b\x01\x00\x01t\x00",
            "subscription identifiers are not supported",
        ),
    ];
    for (filter, why) in cases {
        let mut wire = Wire::with(mqttcore_session::ServerLimits {
            shared_subscription_available: false,
            wildcard_subscription_available: false,
            subscription_identifiers_available: false,
            ..mqttcore_session::ServerLimits::default()
        });
        wire.connect(CONNECT_5);
        wire.receive();

        wire.ok(&framed(0x82, &[b"\x00\x01", filter].concat()));

        let suback = &wire.receive()[0];
        let said = suback.windows(why.len()).any(|part| part == why.as_bytes());
        assert!(said, "{why}: {suback:x?}");
    }
}

/// Text that MQTT cannot carry is left out, and the rest is sent.
#[test]
fn a_reason_string_that_is_no_text_is_left_out() {
    let mut wire = Wire::connected(CONNECT_5);
    refuse_with(
        &mut wire,
        b"\x32\x06\x00\x01t\x00\x07\x00",
        Details::reason("nul \0"),
    );

    assert_eq!(wire.receive(), [b"\x40\x03\x00\x07\x87"]);
}

fn details() -> Details {
    Details {
        reason_string: Some("r".into()),
        user_properties: vec![("n".into(), "v".into())],
    }
}

/// A CONNECT with this Maximum Packet Size.
fn sized(limit: u8) -> Vec<u8> {
    connect_5(2, &[0x27, 0, 0, 0, limit])
}

/// The largest form that fits of a packet whose properties end it and may be missing.
fn fitting(first: &[u8], body: &[u8], limit: u8) -> Vec<u8> {
    let with = |details: &[u8]| {
        let len = u8::try_from(details.len()).unwrap();
        framed(first[0], &[body, &[len], details].concat())
    };
    let forms = [with(EVERYTHING), with(REASON), framed(first[0], body)];
    let fits = |form: &Vec<u8>| form.len() <= limit.into();
    forms.into_iter().find(fits).expect("the code alone fits")
}

/// The three forms of a packet whose properties stand before its list of codes.
fn listing(first: &[u8], id: &[u8], codes: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let with = |details: &[u8]| {
        let len = u8::try_from(details.len()).unwrap();
        framed(first[0], &[id, &[len], details, codes].concat())
    };
    (with(EVERYTHING), with(REASON), with(b""))
}

/// What a client with this limit gets for a publish that is refused.
fn refused_publish(publish: &[u8], limit: u8) -> Vec<u8> {
    let mut wire = Wire::connected(&sized(limit));
    refuse(&mut wire, publish);
    let mut answers = wire.receive();
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

fn refuse(wire: &mut Wire, publish: &[u8]) {
    refuse_with(wire, publish, details());
}

fn refuse_with(wire: &mut Wire, publish: &[u8], details: Details) {
    with_request(wire, publish, |session, request| {
        let Request::Publish(publish) = request else {
            panic!("a PUBLISH");
        };
        let (packet_id, qos) = (publish.packet_id().unwrap(), publish.qos());
        assert!(qos > QoS::AtMostOnce);
        session.refuse_publish(packet_id, qos, ReasonCode::NOT_AUTHORIZED, details);
    });
}

/// Sends a packet, and answers what it asks for.
fn with_request(
    wire: &mut Wire,
    bytes: &[u8],
    answer: impl FnOnce(&mut mqttcore_session::Session, Request<'_>),
) {
    let limits = wire.limits.after_connect();
    let (packet, _) = mqttcore_codec::decode(bytes, wire.version, &limits)
        .unwrap()
        .unwrap();
    let request = wire.session.handle_packet(wire.now, packet).unwrap();
    answer(&mut wire.session, request);
}
