//! Section 3.1 of MQTT 5.0 and 3.1.1, CONNECT, and how a broken one may be answered.

use mqttcore_codec::{
    Connect, DecodeError, EncodeError, Limits, Packet, Properties, PropertyId, ProtocolVersion,
    ReasonCode, Text, connack_for_error, decode_connect, encode,
};

/// All 256 connect flags in each version, with a payload that has every field the flags ask for.
#[test]
fn c05_c06_c09_connect_flags_are_held_against_each_other() {
    for (version, name, level) in [
        (ProtocolVersion::V3_1, &b"\0\x06MQIsdp"[..], 3),
        (ProtocolVersion::V3_1_1, b"\0\x04MQTT", 4),
        (ProtocolVersion::V5, b"\0\x04MQTT", 5),
    ] {
        for flags in 0..=u8::MAX {
            let bytes = connect_with(version, name, level, flags);

            let decoded = decode_connect(&bytes, &Limits::default()).map(|found| found.is_some());

            let expected = if is_allowed(flags, version) {
                Ok(true)
            } else {
                Err(ReasonCode::MALFORMED_PACKET)
            };
            assert_eq!(
                decoded.map_err(DecodeError::reason_code),
                expected,
                "{flags:08b} in {version}"
            );
        }
    }
}

/// [MQTT-3.1.2-2] A level that is not served is answered in a form that the client can read.
#[test]
fn mqtt_3_1_2_2_c03_c04_a_level_that_is_not_served_is_answered_in_its_own_form() {
    let old = Some((ProtocolVersion::V3_1_1, 1));
    let new = Some((ProtocolVersion::V5, 0x84));
    let rows = [
        (&b"MQTT"[..], 0, old),
        (b"MQTT", 1, old),
        (b"MQTT", 3, old),
        (b"MQTT", 6, new),
        (b"MQTT", 255, new),
        (b"MQTT", 0x83, old),
        (b"MQTT", 0x85, new),
        (b"MQIsdp", 0x84, old),
        (b"MQIsdp", 4, old),
        (b"MQIsdp", 5, old),
        (b"HTTP", 4, None),
        (b"", 5, None),
    ];
    for (name, level, expected) in rows {
        let mut bytes = vec![0x10, u8::try_from(name.len()).unwrap() + 8, 0];
        bytes.push(u8::try_from(name.len()).unwrap());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&[level, 0x02, 0, 60, 0, 0]);
        let error = decode_connect(&bytes, &Limits::default()).unwrap_err();

        let answer = connack_for_error(&bytes, error);

        let said = answer.map(|(version, connack)| match version {
            ProtocolVersion::V5 => (version, connack.reason.value()),
            _ => (version, connack.reason.connect_return_code()),
        });
        assert_eq!(said, expected, "level {level} of {name:?}");
        assert_eq!(error.reason_code().value(), 0x84);
        let is_old = expected.is_some_and(|(version, _)| version != ProtocolVersion::V5);
        assert_eq!(error.connack_3x(), is_old.then_some(1));
    }
}

/// A bridge of Mosquitto sets the top bit of its protocol level.
#[test]
fn the_top_bit_of_the_protocol_level_marks_a_bridge_of_3_1_and_3_1_1() {
    let rows = [
        (&b"\0\x06MQIsdp"[..], 0x83, ProtocolVersion::V3_1, true),
        (b"\0\x06MQIsdp", 3, ProtocolVersion::V3_1, false),
        (b"\0\x04MQTT", 0x84, ProtocolVersion::V3_1_1, true),
        (b"\0\x04MQTT", 4, ProtocolVersion::V3_1_1, false),
    ];
    for (name, level, version, is_bridge) in rows {
        let bytes = connect_with(version, name, level, 0x02);

        let (connect, _) = decode_connect(&bytes, &Limits::default()).unwrap().unwrap();

        assert_eq!((connect.version, connect.is_bridge), (version, is_bridge));
    }
}

/// [MQTT 3.1.1 MQTT-3.1.4-1] A malformed CONNECT is told in version 5 only.
#[test]
fn mqtt_3_1_4_1_a_malformed_connect_is_answered_in_version_5_only() {
    let old = b"\x10\x0C\0\x04MQTT\x04\x03\0\0\0\0";
    let new = b"\x10\x0D\0\x04MQTT\x05\x03\0\0\0\0\0";
    let error = DecodeError::ReservedConnectFlag;

    assert_eq!(decode_connect(old, &Limits::default()), Err(error));
    assert_eq!(connack_for_error(old, error), None);
    assert_eq!(decode_connect(new, &Limits::default()), Err(error));
    let (version, connack) = connack_for_error(new, error).unwrap();
    assert_eq!(version, ProtocolVersion::V5);
    assert_eq!(connack.reason, ReasonCode::MALFORMED_PACKET);
}

/// A CONNECT above the limit is told so if its version is there already, and else nothing.
#[test]
fn a02_a_connect_above_the_limit_is_answered_if_it_named_its_version() {
    let limits = Limits {
        packet_bytes: 8 * 1024,
        ..Limits::default()
    };
    let bytes = b"\x10\xFF\xFF\xFF\x7F\0\x04MQTT\x05";
    let error = decode_connect(bytes, &limits).unwrap_err();

    assert_eq!(error, DecodeError::PacketTooLarge);
    let (version, connack) = connack_for_error(bytes, error).unwrap();
    assert_eq!(
        (version, connack.reason.value()),
        (ProtocolVersion::V5, 0x95)
    );
    assert_eq!(connack_for_error(&bytes[..9], error), None);
}

/// Others become Protocol Error [MQTT-3.2.2-8].
#[test]
fn a_refusal_has_a_reason_code_that_connack_may_carry() {
    let bytes = b"\x10\x0D\0\x04MQTT\x05\x02\0\x3C\0\0\0";
    let error = DecodeError::ZeroProperty(PropertyId::TopicAlias);
    assert_eq!(error.reason_code(), ReasonCode::TOPIC_ALIAS_INVALID);

    let (version, connack) = connack_for_error(bytes, error).unwrap();

    assert_eq!(version, ProtocolVersion::V5);
    assert_eq!(connack.reason, ReasonCode::PROTOCOL_ERROR);
}

/// What is no CONNECT is told nothing.
#[test]
fn a15_another_protocol_is_not_answered() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x",
        b"PROXY TCP4",
        b"\x16\x03\x01",
    ] {
        let error = decode_connect(bytes, &Limits::default()).unwrap_err();

        assert_eq!(connack_for_error(bytes, error), None);
    }
}

/// [MQTT 3.1.1 MQTT-3.1.2-22] Our own CONNECT keeps the rule.
#[test]
fn mqtt_3_1_2_22_a_password_alone_is_written_in_version_5_only() {
    let mut connect = Connect {
        version: ProtocolVersion::V3_1_1,
        is_bridge: false,
        clean_start: true,
        keep_alive_s: 0,
        properties: Properties::EMPTY,
        client_id: Text::EMPTY,
        will: None,
        username: None,
        password: Some(b"secret"),
    };
    let mut out = Vec::new();

    assert_eq!(
        encode(&Packet::Connect(connect), ProtocolVersion::V5, &mut out),
        Err(EncodeError::PasswordWithoutUserName)
    );
    connect.version = ProtocolVersion::V5;
    assert_eq!(
        encode(&Packet::Connect(connect), ProtocolVersion::V5, &mut out),
        Ok(())
    );
}

#[test]
fn a_password_is_not_printed() {
    let bytes = b"\x10\x17\0\x04MQTT\x04\xC2\0\x3C\0\0\0\x01u\0\x06canary";
    let (connect, _) = decode_connect(bytes, &Limits::default()).unwrap().unwrap();

    let printed = format!("{connect:?}");

    assert_eq!(connect.password, Some(&b"canary"[..]));
    assert!(printed.contains("password: Some(\"..\")"), "{printed}");
    assert!(!printed.contains("canary") && !printed.contains("99, 97"));
}

fn connect_with(version: ProtocolVersion, name: &[u8], level: u8, flags: u8) -> Vec<u8> {
    let properties: &[u8] = if version == ProtocolVersion::V5 {
        &[0]
    } else {
        &[]
    };
    let mut body = [name, &[level, flags, 0, 60], properties, b"\0\x01c"].concat();
    if flags & 0x04 != 0 {
        body.extend_from_slice(properties);
        body.extend_from_slice(b"\0\x01t\0\x01w");
    }
    if flags & 0x80 != 0 {
        body.extend_from_slice(b"\0\x01u");
    }
    if flags & 0x40 != 0 {
        body.extend_from_slice(b"\0\x01p");
    }
    [&[0x10, u8::try_from(body.len()).expect("short")][..], &body].concat()
}

/// Sections 3.1.2.3 to 3.1.2.9 of 5.0 and 3.1.1, bit by bit.
fn is_allowed(flags: u8, version: ProtocolVersion) -> bool {
    let bit = |number: u8| flags >> number & 1 == 1;
    let (user_name, password, will_retain) = (bit(7), bit(6), bit(5));
    let (will_qos, will, reserved) = (flags >> 3 & 3, bit(2), bit(0));
    let reserved_is_right = !reserved || version == ProtocolVersion::V3_1;
    let will_is_right = if will {
        will_qos != 3
    } else {
        will_qos == 0 && !will_retain
    };
    let login_is_right = user_name || !password || version == ProtocolVersion::V5;
    reserved_is_right && will_is_right && login_is_right
}
