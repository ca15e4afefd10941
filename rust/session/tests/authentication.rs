//! Enhanced authentication: sections 3.15 and 4.12.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{CONNECT_5, Wire, connect_5};
use mqttcore_codec::{ProtocolVersion, ReasonCode, decode};
use mqttcore_session::{
    AuthStep, Authentication, Control, Details, PACKET_BYTES_MAX, ServerLimits, Terms, Violation,
    reauthentication_refusal,
};

/// Method `m`, data `d`.
const STEP: &[u8] = b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01d";
const AGAIN: &[u8] = b"\xf0\x0a\x19\x08\x15\x00\x01m\x16\x00\x01d";

#[test]
fn mqtt_4_12_0_2_an_exchange_before_connack_goes_to_and_fro() {
    let mut authentication = begun();

    let asked = encoded(&authentication.continue_with(Some(b"q"), Details::none()));
    let step = take(&mut authentication, STEP).unwrap();

    assert_eq!(asked, b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01q");
    assert_eq!(step, b"d");
}

/// [MQTT-4.12.0-5] The method is repeated in CONNACK.
#[test]
fn mqtt_4_12_0_5_connack_repeats_the_method() {
    let mut wire = unlimited();
    let terms = Terms {
        authentication: Some(begun()),
        authentication_data: Some((&b"x"[..]).into()),
        ..wire.terms()
    };

    wire.connect_on(&connect_5(2, b"\x15\x00\x01m"), terms);

    assert_eq!(
        wire.receive(),
        [b"\x20\x0b\x00\x00\x08\x15\x00\x01m\x16\x00\x01x"]
    );
}

#[test]
fn a_step_that_nothing_was_asked_for_is_a_protocol_error() {
    let mut early = begun();
    let mut twice = challenged();
    take(&mut twice, STEP).unwrap();

    for exchange in [&mut early, &mut twice] {
        let violation = take(exchange, STEP).unwrap_err();

        assert_eq!(violation.reason, ReasonCode::PROTOCOL_ERROR);
    }
}

/// [MQTT-4.12.1-1] The method of CONNECT stays.
#[test]
fn mqtt_4_12_1_1_authenticating_again_keeps_the_method() {
    let mut wire = authenticated();

    let other = wire.refused(b"\xf0\x06\x19\x04\x15\x00\x01n");
    let none = wire.refused(b"\xf0\x02\x19\x00");

    assert_eq!(other, ReasonCode::PROTOCOL_ERROR);
    assert_eq!(none, ReasonCode::PROTOCOL_ERROR);
}

/// [MQTT-4.12.1-2] CONNACK has codes for a failure that DISCONNECT has not.
#[test]
fn mqtt_4_12_1_2_a_failure_has_a_code_of_disconnect() {
    for (reason, told) in [
        (
            ReasonCode::BAD_USER_NAME_OR_PASSWORD,
            ReasonCode::NOT_AUTHORIZED,
        ),
        (ReasonCode::BANNED, ReasonCode::NOT_AUTHORIZED),
        (ReasonCode::SUCCESS, ReasonCode::NOT_AUTHORIZED),
        (ReasonCode::SERVER_BUSY, ReasonCode::SERVER_BUSY),
        (
            ReasonCode::BAD_AUTHENTICATION_METHOD,
            ReasonCode::BAD_AUTHENTICATION_METHOD,
        ),
    ] {
        assert_eq!(reauthentication_refusal(reason), told, "{reason:?}");
    }
}

/// [MQTT-3.15.2-2, -3] and [MQTT-3.1.2-29].
#[test]
fn mqtt_3_15_2_2_auth_loses_its_details_when_it_is_too_large() {
    let cases: [(&[u8], &[u8]); 4] = [
        (
            b"",
            b"\xf0\x14\x18\x12\x15\x00\x01m\x16\x00\x01q\x1f\x00\x01r\x26\x00\x01n\x00\x00",
        ),
        (
            b"\x27\x00\x00\x00\x10",
            b"\xf0\x0e\x18\x0c\x15\x00\x01m\x16\x00\x01q\x1f\x00\x01r",
        ),
        (
            b"\x27\x00\x00\x00\x0f",
            b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01q",
        ),
        (b"\x17\x00", b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01q"),
    ];
    for (properties, expected) in cases {
        let mut wire = authenticated_with(properties);
        wire.ok(AGAIN);

        let details = Details {
            reason_string: Some("r".into()),
            user_properties: vec![("n".into(), "".into())],
        };
        wire.session.auth_continue(Some(b"q"), details);

        assert_eq!(wire.receive(), [expected], "{properties:x?}");
    }
}

#[test]
fn mqtt_3_1_2_30_only_auth_or_disconnect_before_connack() {
    let mut authentication = begun();
    let limits = ServerLimits::default().before_connect();
    let mut handle = |bytes: &[u8]| {
        let (packet, _) = decode(bytes, ProtocolVersion::V5, &limits)
            .unwrap()
            .unwrap();
        let step = authentication.handle_packet(&packet);
        step.map(|step| step == AuthStep::Disconnect)
            .map_err(|violation| violation.reason)
    };

    assert_eq!(handle(b"\xe0\x00"), Ok(true));
    assert_eq!(handle(b"\xc0\x00"), Err(ReasonCode::PROTOCOL_ERROR));
}

/// Abuse C19.
#[test]
fn another_method_or_step_is_a_protocol_error() {
    for bytes in [
        &b"\xf0\x06\x18\x04\x15\x00\x01n"[..],
        b"\xf0\x02\x18\x00",
        b"\xf0\x06\x19\x04\x15\x00\x01m",
        b"\xf0\x06\x00\x04\x15\x00\x01m",
    ] {
        let violation = take(&mut challenged(), bytes).unwrap_err();

        assert_eq!(violation.reason, ReasonCode::PROTOCOL_ERROR, "{bytes:x?}");
    }
}

/// Abuse C19.
#[test]
fn an_exchange_ends_after_eight_rounds() {
    let mut authentication = challenged();
    for _ in 0..8 {
        take(&mut authentication, STEP).unwrap();
        authentication.continue_with(None, Details::none());
    }

    let violation = take(&mut authentication, STEP).unwrap_err();

    assert_eq!(violation.reason, ReasonCode::QUOTA_EXCEEDED);
}

#[test]
fn mqtt_4_12_0_7_auth_without_a_method_in_connect_is_a_protocol_error() {
    let mut wire = Wire::connected(CONNECT_5);

    assert_eq!(wire.refused(AGAIN), ReasonCode::PROTOCOL_ERROR);
    assert_eq!(wire.refused(STEP), ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn mqtt_4_12_1_1_a_client_authenticates_again() {
    let mut wire = authenticated();

    wire.ok(AGAIN);
    wire.session.auth_continue(Some(b"q"), Details::none());
    wire.ok(STEP);
    wire.session.auth_succeed(None, Details::none());

    assert_eq!(
        wire.receive(),
        [
            &b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01q"[..],
            b"\xf0\x06\x00\x04\x15\x00\x01m"
        ]
    );
    wire.ok(AGAIN);
}

#[test]
fn the_method_of_a_client_is_known_as_long_as_it_is_connected() {
    let mut wire = authenticated();
    assert_eq!(wire.session.authentication_method(), Some("m"));

    wire.lose();

    assert_eq!(wire.session.authentication_method(), None);
}

#[test]
fn a_second_beginning_or_a_step_of_nothing_is_a_protocol_error() {
    let mut wire = authenticated();

    assert_eq!(wire.refused(STEP), ReasonCode::PROTOCOL_ERROR);
    wire.ok(AGAIN);
    assert_eq!(wire.refused(AGAIN), ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn other_packets_flow_while_a_client_authenticates_again() {
    let mut wire = authenticated();
    wire.ok(AGAIN);

    wire.ok(b"\xc0\x00");

    assert_eq!(wire.receive(), [b"\xd0\x00"]);
}

/// [MQTT-4.12.0-6] An answer that nobody waits for is not sent.
#[test]
fn mqtt_4_12_0_6_no_auth_without_an_exchange() {
    let mut wire = Wire::connected(CONNECT_5);

    wire.session.auth_continue(Some(b"q"), Details::none());
    wire.session.auth_succeed(None, Details::none());

    assert!(wire.receive().is_empty());
}

fn begun() -> Authentication {
    let request = Wire::new().parse(&connect_5(2, b"\x15\x00\x01m")).unwrap();
    let authentication = Authentication::begin(&request, &ServerLimits::default()).unwrap();
    assert_eq!(authentication.method(), "m");
    authentication
}

/// The server has spoken, and the client has not answered.
fn challenged() -> Authentication {
    let mut authentication = begun();
    authentication.continue_with(None, Details::none());
    authentication
}

fn authenticated() -> Wire {
    authenticated_with(b"")
}

/// A client that named the method `m`, and has these properties besides.
fn authenticated_with(properties: &[u8]) -> Wire {
    let mut wire = Wire::new();
    let terms = Terms {
        authentication: Some(begun()),
        ..wire.terms()
    };
    let connect = connect_5(2, &[b"\x15\x00\x01m", properties].concat());
    wire.connect_on(&connect, terms);
    wire.receive();
    wire
}

fn unlimited() -> Wire {
    Wire::with(ServerLimits {
        receive_maximum: u16::MAX,
        maximum_packet_size: PACKET_BYTES_MAX,
        topic_alias_maximum: 0,
        ..ServerLimits::default()
    })
}

fn take(authentication: &mut Authentication, bytes: &[u8]) -> Result<Vec<u8>, Violation> {
    let limits = ServerLimits::default().before_connect();
    let (packet, _) = decode(bytes, ProtocolVersion::V5, &limits)
        .unwrap()
        .unwrap();
    match authentication.handle_packet(&packet)? {
        AuthStep::Data(data) => Ok(data.unwrap_or_default().to_vec()),
        AuthStep::Disconnect => panic!("not a DISCONNECT"),
    }
}

fn encoded(control: &Control) -> Vec<u8> {
    let mut out = Vec::new();
    control.encode(ProtocolVersion::V5, u32::MAX, &mut out);
    out
}
