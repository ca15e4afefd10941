//! CONNECT and CONNACK: sections 3.1 and 3.2.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{
    ACCEPTED_3, CONNECT_3, CONNECT_3_KEPT, CONNECT_5, CONNECT_5_KEPT, Wire, connect_5, framed,
};
use mqttcore_codec::{ProtocolVersion, ReasonCode};
use mqttcore_session::{Details, Secret, ServerLimits, Terms, connack_failure};

#[test]
fn mqtt_3_1_1_3_1_4_4_a_valid_connect_gets_return_code_0() {
    let mut wire = Wire::new();

    wire.connect(CONNECT_3);

    assert_eq!(wire.receive(), [ACCEPTED_3]);
}

/// [MQTT-3.1.4-5] Only what differs from the defaults of MQTT stands in CONNACK.
#[test]
fn mqtt_3_1_4_5_connack_announces_what_this_server_limits() {
    let mut wire = Wire::new();

    wire.connect(CONNECT_5);

    // Receive Maximum 64, Maximum Packet Size 1 MiB + 64 KiB, Topic Alias Maximum 10.
    let expected = b"\x20\x0e\x00\x00\x0b\x21\x00\x40\x27\x00\x11\x00\x00\x22\x00\x0a";
    assert_eq!(wire.receive(), [expected]);
}

#[test]
fn a_server_without_limits_announces_nothing() {
    let mut wire = Wire::with(generous());

    wire.connect(CONNECT_5);

    assert_eq!(wire.receive(), [b"\x20\x03\x00\x00\x00"]);
}

#[test]
fn mqtt_3_2_2_9_whatever_is_not_offered_is_announced() {
    let limits = ServerLimits {
        maximum_qos: mqttcore_codec::QoS::AtMostOnce,
        retain_available: false,
        wildcard_subscription_available: false,
        subscription_identifiers_available: false,
        shared_subscription_available: false,
        ..generous()
    };
    let mut wire = Wire::with(limits);

    wire.connect(CONNECT_5);

    let expected = b"\x20\x0d\x00\x00\x0a\x24\x00\x25\x00\x28\x00\x29\x00\x2a\x00";
    assert_eq!(wire.receive(), [expected]);
}

#[test]
fn mqtt_3_2_2_3_session_present_tells_that_state_was_kept() {
    let mut wire = Wire::with(generous());

    wire.resume(CONNECT_5_KEPT);

    assert_eq!(wire.receive(), [b"\x20\x03\x01\x00\x00"]);
}

#[test]
fn mqtt_3_2_2_2_after_a_clean_start_no_session_is_present() {
    let mut wire = Wire::with(generous());

    wire.resume(CONNECT_5);

    assert_eq!(wire.receive(), [b"\x20\x03\x00\x00\x00"]);
}

#[test]
fn a_reason_that_a_packet_does_not_have_is_unspecified() {
    let wire = Wire::connected(CONNECT_5);
    let goodbye = wire
        .session
        .disconnect_packet(ReasonCode::BANNED, None, Details::none())
        .unwrap();
    let mut out = Vec::new();

    goodbye.encode(ProtocolVersion::V5, u32::MAX, &mut out);

    assert_eq!(out, b"\xe0\x01\x80");
    let early = refused(ProtocolVersion::V5, ReasonCode::SESSION_TAKEN_OVER);
    assert_eq!(early, b"\x20\x03\x00\x80\x00");
}

#[test]
fn a_3_1_connack_has_no_session_present_flag() {
    let mut wire = Wire::new();

    wire.resume(b"\x10\x0f\x00\x06MQIsdp\x03\x00\x00\x3c\x00\x01c");

    assert_eq!(wire.receive(), [ACCEPTED_3]);
}

#[test]
fn mqtt_3_1_3_7_an_assigned_client_id_is_returned() {
    let mut wire = Wire::with(generous());
    let terms = Terms {
        assigned_client_id: Some("c".into()),
        ..wire.terms()
    };

    wire.connect_on(b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00", terms);

    assert_eq!(wire.receive(), [b"\x20\x07\x00\x00\x04\x12\x00\x01c"]);
}

#[test]
fn mqtt_3_1_2_28_response_information_only_if_it_was_asked_for() {
    let answers = [
        (0x01, &b"\x20\x07\x00\x00\x04\x1a\x00\x01r"[..]),
        (0x00, b"\x20\x03\x00\x00\x00"),
    ];

    for (asked, expected) in answers {
        let mut wire = Wire::with(generous());
        let terms = Terms {
            response_information: Some("r".into()),
            ..wire.terms()
        };
        wire.connect_on(&connect_5(0x02, &[0x19, asked]), terms);

        assert_eq!(wire.receive(), [expected]);
    }
}

/// [MQTT-3.2.2-21] A keep alive that the server changes is told (abuse C28).
#[test]
fn mqtt_3_2_2_21_a_keep_alive_above_the_cap_is_replaced() {
    for asked in [0, 2] {
        let limits = ServerLimits {
            keep_alive_max_s: 1,
            ..generous()
        };
        let mut wire = Wire::with(limits);

        let connect = [
            &b"\x10\x0e\x00\x04MQTT\x05\x02\x00"[..],
            &[asked],
            b"\x00\x00\x01c",
        ]
        .concat();
        wire.connect(&connect);

        assert_eq!(wire.receive(), [b"\x20\x06\x00\x00\x03\x13\x00\x01"]);
        assert_eq!(wire.session.keep_alive_s(), 1);
    }
}

#[test]
fn mqtt_3_2_2_22_without_server_keep_alive_the_clients_value_holds() {
    let mut wire = Wire::with(generous());

    wire.connect(CONNECT_5);

    assert_eq!(wire.session.keep_alive_s(), 60);
}

#[test]
fn without_a_cap_the_clients_keep_alive_holds() {
    let mut wire = Wire::with(ServerLimits {
        keep_alive_max_s: 0,
        ..generous()
    });

    wire.connect(CONNECT_5);

    assert_eq!(wire.session.keep_alive_s(), 60);
}

#[test]
fn a_session_expiry_above_the_limit_is_lowered_and_sent_in_connack() {
    let limits = ServerLimits {
        session_expiry_max_s: 10,
        ..generous()
    };
    let mut wire = Wire::with(limits);

    wire.connect(CONNECT_5_KEPT);

    assert_eq!(
        wire.receive(),
        [b"\x20\x08\x00\x00\x05\x11\x00\x00\x00\x0a"]
    );
    assert_eq!(wire.session.expiry_interval_s(), 10);
}

#[test]
fn a_3_x_session_is_kept_up_to_the_cap() {
    let mut wire = Wire::new();

    wire.connect(CONNECT_3_KEPT);

    assert_eq!(wire.session.expiry_interval_s(), 7 * 24 * 3_600);
}

/// [MQTT-3.2.2-20] User properties go first, [MQTT-3.2.2-19] then the reason string.
#[test]
fn mqtt_3_2_2_19_connack_loses_its_details_when_it_is_too_large() {
    let cases: [(u8, &[u8]); 3] = [
        (
            64,
            b"\x20\x0e\x00\x00\x0b\x1f\x00\x01r\x26\x00\x01n\x00\x01v",
        ),
        (15, b"\x20\x07\x00\x00\x04\x1f\x00\x01r"),
        (8, b"\x20\x03\x00\x00\x00"),
    ];

    for (limit, expected) in cases {
        let mut wire = Wire::with(generous());
        let details = Details {
            reason_string: Some("r".into()),
            user_properties: vec![("n".into(), "v".into())],
        };
        let terms = Terms {
            details,
            ..wire.terms()
        };
        wire.connect_on(&connect_5(0x02, &[0x27, 0, 0, 0, limit]), terms);

        assert_eq!(wire.receive(), [expected]);
    }
}

#[test]
fn mqtt_3_1_2_24_a_connack_is_measured_before_it_is_needed() {
    let wire = Wire::with(generous());
    // 5 bytes, and 3 with a Server Keep Alive; details are left out.
    for (limit, keep_alive_s, fits) in [
        (4, None, false),
        (5, None, true),
        (7, Some(9), false),
        (8, Some(9), true),
    ] {
        let request = wire
            .parse(&connect_5(0x02, &[0x27, 0, 0, 0, limit]))
            .unwrap();
        let terms = Terms {
            server_keep_alive_s: keep_alive_s,
            details: Details::reason("welcome"),
            ..wire.terms()
        };

        let found = request.takes_connack(wire.now, &terms);

        assert_eq!(found, fits, "{limit} {keep_alive_s:?}");
    }
}

/// Its acknowledgements do not wait for the store.
#[test]
fn the_connack_of_a_durable_session_is_measured_at_once() {
    let wire = Wire::with(generous());
    let request = wire.parse(&connect_5(0x02, &[0x27, 0, 0, 0, 5])).unwrap();

    for (durable, changes_kept) in [(true, false), (false, true)] {
        let terms = Terms {
            durable,
            changes_kept,
            ..wire.terms()
        };

        assert!(request.takes_connack(wire.now, &terms));
    }
}

#[test]
fn mqtt_3_1_2_24_a_packet_that_can_never_fit_is_not_sent() {
    let mut wire = Wire::with(generous());

    wire.connect(&connect_5(0x02, &[0x27, 0, 0, 0, 4]));

    assert_eq!(wire.receive(), [b""]);
}

#[test]
fn mqtt_3_1_3_6_an_empty_id_asks_for_one() {
    let wire = Wire::new();

    let v5 = wire.parse(b"\x10\x0d\x00\x04MQTT\x05\x00\x00\x3c\x00\x00\x00");
    let v3 = wire.parse(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00");

    assert_eq!(v5.unwrap().client_id, None);
    assert_eq!(v3.unwrap().client_id, None);
}

/// [MQTT 3.1.1 MQTT-3.1.3-8] (abuse C11); 3.1 has no empty identifiers at all.
#[test]
fn mqtt_3_1_3_8_an_empty_id_of_a_kept_3_x_session_is_refused() {
    let wire = Wire::new();

    for connect in [
        &b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00"[..],
        b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x00",
    ] {
        let violation = wire.parse(connect).unwrap_err();

        assert_eq!(violation.reason, ReasonCode::CLIENT_IDENTIFIER_NOT_VALID);
        assert_eq!(
            refused(ProtocolVersion::V3_1_1, violation.reason),
            b"\x20\x02\x00\x02"
        );
    }
}

/// [MQTT-3.1.3-5] Plain identifiers of 1 to 23 bytes, and longer ones (abuse C27).
#[test]
fn mqtt_3_1_3_5_plain_ids_are_accepted() {
    let wire = Wire::new();

    for id in ["0", "0123456789abcdefghijXYZ", &"x".repeat(256)] {
        let request = wire.parse(&connect_3_as(id)).unwrap();

        assert_eq!(request.client_id.as_deref(), Some(id));
    }
}

/// Abuse C12: wildcards, control characters, too long.
#[test]
fn an_id_with_refused_characters_is_refused() {
    let wire = Wire::new();

    for id in [
        "a+b",
        "+",
        "#",
        "a\nb",
        "a\u{85}",
        "\u{fffe}",
        &"x".repeat(257),
    ] {
        let violation = wire.parse(&connect_3_as(id)).unwrap_err();

        assert_eq!(
            violation.reason,
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            "{id:?}"
        );
    }
}

/// Clients in the field use `/` and dots; what they could harm denies them there (abuse C12, F18, G01).
#[test]
fn an_id_with_slashes_and_dots_is_accepted() {
    let wire = Wire::new();

    for id in ["a/b", "/", "/a/", "..", "../a"] {
        let request = wire.parse(&connect_3_as(id)).unwrap();

        assert_eq!(request.client_id.as_deref(), Some(id));
    }
}

#[test]
fn a_lenient_server_takes_any_characters_in_an_id() {
    let wire = Wire::with(ServerLimits {
        client_id_strict: false,
        ..ServerLimits::default()
    });

    assert!(wire.parse(&connect_3_as("a+b")).is_ok());
}

/// Abuse B05.
#[test]
fn control_characters_in_a_user_name_are_refused() {
    let wire = Wire::new();

    let violation = wire
        .parse(b"\x10\x11\x00\x04MQTT\x04\x82\x00\x3c\x00\x01c\x00\x02u\x07")
        .unwrap_err();

    assert_eq!(violation.reason, ReasonCode::BAD_USER_NAME_OR_PASSWORD);
}

#[test]
fn a_password_is_never_printed() {
    let wire = Wire::new();

    let request = wire
        .parse(b"\x10\x18\x00\x04MQTT\x04\xc2\x00\x3c\x00\x01c\x00\x01u\x00\x06hunter")
        .unwrap();

    assert!(!format!("{request:?}").contains("hunter"));
    assert!(!format!("{request:?}").contains("104"), "nor as numbers");
    assert_eq!(
        request.password.as_ref().map(Secret::as_bytes),
        Some(&b"hunter"[..])
    );
}

/// Abuse C08.
#[test]
fn an_empty_user_name_is_not_an_absent_one() {
    let wire = Wire::new();

    let empty = wire
        .parse(b"\x10\x0f\x00\x04MQTT\x04\x82\x00\x3c\x00\x01c\x00\x00")
        .unwrap();

    assert_eq!(empty.username.as_deref(), Some(""));
    assert_eq!(wire.parse(CONNECT_3).unwrap().username, None);
}

#[test]
fn every_property_of_connect_is_taken() {
    let wire = Wire::new();
    let properties =
        b"\x11\x00\x00\x00\x07\x21\x00\x05\x27\x00\x00\x01\x00\x22\x00\x03\x19\x01\x17\x00\
                       \x26\x00\x01n\x00\x01v\x15\x00\x01m\x16\x00\x01d";

    let request = wire.parse(&connect_5(0x00, properties)).unwrap();

    assert_eq!(request.session_expiry_interval_s, 7);
    assert_eq!(request.receive_maximum, 5);
    assert_eq!(request.maximum_packet_size, 256);
    assert_eq!(request.topic_alias_maximum, 3);
    assert!(request.request_response_information);
    assert!(!request.request_problem_information);
    assert_eq!(request.user_properties, [("n".into(), "v".into())]);
    assert_eq!(request.authentication_method.as_deref(), Some("m"));
    assert_eq!(
        request.authentication_data.as_ref().map(Secret::as_bytes),
        Some(&b"d"[..])
    );
}

#[test]
fn mqtt_3_2_2_12_a_will_above_the_maximum_qos_is_refused() {
    let wire = Wire::with(ServerLimits {
        maximum_qos: mqttcore_codec::QoS::AtMostOnce,
        ..ServerLimits::default()
    });

    let violation = wire.parse(&connect_with_will(0x0e, b"w")).unwrap_err();

    assert_eq!(violation.reason, ReasonCode::QOS_NOT_SUPPORTED);
    assert!(wire.parse(&connect_with_will(0x06, b"w")).is_ok());
}

#[test]
fn mqtt_3_2_2_13_a_retained_will_needs_retained_messages() {
    let wire = Wire::with(ServerLimits {
        retain_available: false,
        ..ServerLimits::default()
    });

    let violation = wire.parse(&connect_with_will(0x26, b"w")).unwrap_err();

    assert_eq!(violation.reason, ReasonCode::RETAIN_NOT_SUPPORTED);
}

/// Abuse F07.
#[test]
fn a_will_topic_with_a_wildcard_is_refused() {
    let wire = Wire::new();

    for topic in [&b"a/+"[..], b"#"] {
        let violation = wire.parse(&connect_with_will(0x06, topic)).unwrap_err();

        assert_eq!(violation.reason, ReasonCode::TOPIC_NAME_INVALID);
    }
}

/// 0x90 is for topic names that are correctly formed.
#[test]
fn mqtt_4_7_3_1_an_empty_will_topic_is_a_protocol_error() {
    let wire = Wire::new();

    let violation = wire.parse(&connect_with_will(0x06, b"")).unwrap_err();

    assert_eq!(violation.reason, ReasonCode::PROTOCOL_ERROR);
    assert_eq!(violation.statement, "MQTT-4.7.3-1");
}

/// As for a PUBLISH of the client's (abuse B15).
#[test]
fn a_will_that_is_not_the_text_that_it_says_is_refused_if_that_is_checked() {
    let wire = Wire::with(ServerLimits {
        payload_format_checked: true,
        ..ServerLimits::default()
    });
    let connect =
        b"\x10\x17\x00\x04MQTT\x05\x06\x00\x3c\x00\x00\x01c\x02\x01\x01\x00\x01w\x00\x01\xff";

    let violation = wire.parse(connect).unwrap_err();

    assert_eq!(violation.reason, ReasonCode::PAYLOAD_FORMAT_INVALID);
}

/// [MQTT-3.2.2-6] The reason travels in CONNACK.
#[test]
fn mqtt_3_2_2_6_a_v5_client_is_told_why() {
    let bytes = refused(ProtocolVersion::V5, ReasonCode::BANNED);

    assert_eq!(bytes, b"\x20\x03\x00\x8a\x00");
}

#[test]
fn a_client_is_sent_to_another_server() {
    let details = Details::none();
    let control = connack_failure(
        ProtocolVersion::V5,
        ReasonCode::USE_ANOTHER_SERVER,
        Some("b"),
        details,
    );

    let mut out = Vec::new();
    control
        .unwrap()
        .encode(ProtocolVersion::V5, u32::MAX, &mut out);

    assert_eq!(out, b"\x20\x07\x00\x9c\x04\x1c\x00\x01b");
}

/// [MQTT 3.1.1 MQTT-3.2.2-6] Without a fitting return code there is no CONNACK.
#[test]
fn mqtt_3_1_1_3_2_2_6_a_3_x_client_is_closed_without_a_fitting_code() {
    let codes = [
        (ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, Some(1)),
        (ReasonCode::SERVER_BUSY, Some(3)),
        (ReasonCode::BAD_USER_NAME_OR_PASSWORD, Some(4)),
        (ReasonCode::NOT_AUTHORIZED, Some(5)),
        (ReasonCode::TOPIC_NAME_INVALID, None),
        (ReasonCode::MALFORMED_PACKET, None),
        (ReasonCode::PROTOCOL_ERROR, None),
    ];

    for (reason, code) in codes {
        let control = connack_failure(ProtocolVersion::V3_1_1, reason, None, Details::none());
        let mut out = Vec::new();
        if let Some(control) = control {
            control.encode(ProtocolVersion::V3_1_1, u32::MAX, &mut out);
        }

        assert_eq!(out.get(3).copied(), code, "{reason:?}");
    }
}

#[test]
fn mqtt_3_1_0_2_a_second_connect_is_a_protocol_error() {
    let mut wire = Wire::connected(CONNECT_5);

    assert_eq!(wire.refused(CONNECT_5), ReasonCode::PROTOCOL_ERROR);
}

/// Abuse A14.
#[test]
fn packets_that_only_servers_send_are_protocol_errors() {
    let mut wire = Wire::connected(CONNECT_5);

    for packet in [
        &b"\x20\x03\x00\x00\x00"[..],
        b"\x90\x04\x00\x01\x00\x00",
        b"\xb0\x04\x00\x01\x00\x00",
        b"\xd0\x00",
    ] {
        assert_eq!(wire.refused(packet), ReasonCode::PROTOCOL_ERROR);
    }
}

#[test]
fn mqtt_3_14_0_1_no_disconnect_before_connack() {
    let mut wire = Wire::new();
    wire.connect(CONNECT_5);
    let goodbye = |wire: &Wire| {
        wire.session
            .disconnect_packet(ReasonCode::SERVER_SHUTTING_DOWN, None, Details::none())
    };

    assert!(goodbye(&wire).is_none());
    wire.receive();
    let mut out = Vec::new();
    goodbye(&wire)
        .unwrap()
        .encode(ProtocolVersion::V5, u32::MAX, &mut out);

    assert_eq!(out, b"\xe0\x01\x8b");
}

#[test]
fn a_3_x_client_gets_no_disconnect() {
    let wire = Wire::connected(CONNECT_3);

    let goodbye = wire
        .session
        .disconnect_packet(ReasonCode::PROTOCOL_ERROR, None, Details::none());

    assert!(goodbye.is_none());
}

/// [MQTT-3.14.2-3] and the Server Reference.
#[test]
fn mqtt_3_14_2_3_disconnect_carries_details_if_they_fit() {
    let wire = Wire::connected(CONNECT_5);
    let goodbye = wire
        .session
        .disconnect_packet(ReasonCode::SERVER_MOVED, Some("b"), Details::reason("r"))
        .unwrap();

    let (mut whole, mut small) = (Vec::new(), Vec::new());
    goodbye.encode(ProtocolVersion::V5, u32::MAX, &mut whole);
    goodbye.encode(ProtocolVersion::V5, 10, &mut small);

    assert_eq!(whole, b"\xe0\x0a\x9d\x08\x1c\x00\x01b\x1f\x00\x01r");
    assert_eq!(small, b"\xe0\x06\x9d\x04\x1c\x00\x01b");
}

/// [MQTT-3.1.2-4] A clean start leaves nothing of the old session.
#[test]
fn mqtt_3_1_2_4_a_clean_start_drops_everything() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01t\x01");
    wire.lose();
    wire.deliver(
        &common::message("t", b"x", mqttcore_codec::QoS::AtLeastOnce),
        mqttcore_codec::QoS::AtLeastOnce,
    );

    wire.connect(CONNECT_5);

    assert_eq!(wire.receive().len(), 1, "CONNACK alone");
    assert_eq!(
        (wire.session.queued(), wire.session.subscriptions().len()),
        (0, 0)
    );
}

#[test]
fn a_session_that_was_not_found_drops_everything() {
    let mut wire = Wire::connected(CONNECT_5_KEPT);
    wire.ok(b"\x82\x07\x00\x01\x00\x00\x01t\x01");
    wire.lose();

    wire.connect(CONNECT_5_KEPT);

    assert!(wire.session.subscriptions().is_empty());
}

fn generous() -> ServerLimits {
    ServerLimits {
        receive_maximum: u16::MAX,
        maximum_packet_size: mqttcore_session::PACKET_BYTES_MAX,
        topic_alias_maximum: 0,
        ..ServerLimits::default()
    }
}

fn refused(version: ProtocolVersion, reason: ReasonCode) -> Vec<u8> {
    let mut out = Vec::new();
    connack_failure(version, reason, None, Details::none())
        .expect("a CONNACK")
        .encode(version, u32::MAX, &mut out);
    out
}

fn connect_3_as(id: &str) -> Vec<u8> {
    let len = u16::try_from(id.len()).unwrap().to_be_bytes();
    framed(
        0x10,
        &[&b"\x00\x04MQTT\x04\x02\x00\x3c"[..], &len, id.as_bytes()].concat(),
    )
}

fn connect_with_will(flags: u8, topic: &[u8]) -> Vec<u8> {
    let len = u8::try_from(topic.len()).unwrap();
    let head = [&b"\x00\x04MQTT\x04"[..], &[flags], b"\x00\x3c\x00\x01c"].concat();
    framed(0x10, &[&head[..], &[0, len], topic, b"\x00\x01p"].concat())
}
