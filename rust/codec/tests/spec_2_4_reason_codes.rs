//! MQTT 5.0 section 2.4, "Reason Code", and the return codes of 3.x.

use mqttcore_codec::{
    Ack, ConnAck, DecodeError, Disconnect, EncodeError, Limits, Packet, PacketId, PacketType,
    Properties, ProtocolVersion, ReasonCode, SubAck, decode, encode,
};

/// [MQTT-3.4.2-1] and its siblings: every value in every packet, against the lists of chapter 3.
#[test]
fn mqtt_3_4_2_1_only_the_listed_reason_codes_are_taken() {
    for (packet_type, listed) in LISTED {
        for value in 0..=u8::MAX {
            let decoded = decode(
                &packet_with(packet_type, value),
                ProtocolVersion::V5,
                &Limits::default(),
            )
            .map(|packet| packet.is_some());

            let expected = if listed.contains(&value) {
                Ok(true)
            } else {
                Err(DecodeError::ReasonCode(value, packet_type))
            };
            assert_eq!(decoded, expected, "{value:02X} in {packet_type:?}");
        }
    }
}

/// The same lists bind the encoder.
#[test]
fn a_reason_code_of_another_packet_is_not_written() {
    for (packet_type, listed) in LISTED {
        for &reason in ReasonCode::ALL {
            let expected = listed.contains(&reason.value());

            assert_eq!(reason.allowed_in(packet_type), expected, "{reason}");
        }
    }
    let packet = Packet::PubRel(Ack {
        packet_id: PacketId::MIN,
        reason: ReasonCode::NOT_AUTHORIZED,
        properties: Properties::EMPTY,
    });
    assert_eq!(
        encode(&packet, ProtocolVersion::V5, &mut Vec::new()),
        Err(EncodeError::ReasonCode(
            ReasonCode::NOT_AUTHORIZED,
            PacketType::PubRel
        ))
    );
}

/// MQTT 3.1.1 section 3.2.2.3: a refusal finds the nearest of five return codes.
#[test]
fn a_connack_of_3_x_says_what_it_can() {
    let rows = [
        (ReasonCode::SUCCESS, 0),
        (ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, 1),
        (ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, 2),
        (ReasonCode::SERVER_UNAVAILABLE, 3),
        (ReasonCode::SERVER_BUSY, 3),
        (ReasonCode::BAD_USER_NAME_OR_PASSWORD, 4),
        (ReasonCode::NOT_AUTHORIZED, 5),
        (ReasonCode::BANNED, 5),
    ];
    for (reason, code) in rows {
        let packet = Packet::ConnAck(ConnAck {
            session_present: false,
            reason,
            properties: Properties::EMPTY,
        });
        for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
            let mut bytes = Vec::new();
            encode(&packet, version, &mut bytes).unwrap();

            assert_eq!(bytes, [0x20, 0x02, 0x00, code], "{reason}");
        }
    }
}

/// [MQTT 3.1.1 MQTT-3.9.3-2] Every failure is 0x80 in 3.x.
#[test]
fn mqtt_3_9_3_2_a_suback_of_3_x_has_one_failure() {
    let packet = Packet::SubAck(SubAck {
        packet_id: PacketId::MIN,
        properties: Properties::EMPTY,
        reasons: vec![
            ReasonCode::GRANTED_QOS_2,
            ReasonCode::NOT_AUTHORIZED,
            ReasonCode::QUOTA_EXCEEDED,
        ],
    });

    let mut bytes = Vec::new();
    encode(&packet, ProtocolVersion::V3_1_1, &mut bytes).unwrap();

    assert_eq!(bytes, [0x90, 0x05, 0x00, 0x01, 0x02, 0x80, 0x80]);
}

/// An acknowledgement and a DISCONNECT of 3.x have no reason code: it is left out.
#[test]
fn an_error_that_3_x_cannot_say_is_left_out() {
    let puback = Packet::PubAck(Ack {
        packet_id: PacketId::MIN,
        reason: ReasonCode::NOT_AUTHORIZED,
        properties: Properties::from_checked(&[0x1F, 0, 1, b'r']),
    });
    let disconnect = Packet::Disconnect(Disconnect {
        reason: ReasonCode::SESSION_TAKEN_OVER,
        properties: Properties::EMPTY,
    });

    let mut bytes = Vec::new();
    encode(&puback, ProtocolVersion::V3_1_1, &mut bytes).unwrap();
    encode(&disconnect, ProtocolVersion::V3_1_1, &mut bytes).unwrap();

    assert_eq!(bytes, [0x40, 0x02, 0x00, 0x01, 0xE0, 0x00]);
}

/// Chapter 3, table by table; 0x8C in DISCONNECT is listed by section 2.4 alone.
const LISTED: [(PacketType, &[u8]); 9] = [
    (
        PacketType::ConnAck,
        &[
            0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90,
            0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
        ],
    ),
    (
        PacketType::PubAck,
        &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
    ),
    (
        PacketType::PubRec,
        &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
    ),
    (PacketType::PubRel, &[0x00, 0x92]),
    (PacketType::PubComp, &[0x00, 0x92]),
    (
        PacketType::SubAck,
        &[
            0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2,
        ],
    ),
    (
        PacketType::UnsubAck,
        &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91],
    ),
    (
        PacketType::Disconnect,
        &[
            0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90,
            0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0,
            0xA1, 0xA2,
        ],
    ),
    (PacketType::Auth, &[0x00, 0x18, 0x19]),
];

fn packet_with(packet_type: PacketType, reason: u8) -> Vec<u8> {
    match packet_type {
        PacketType::ConnAck => vec![0x20, 3, 0, reason, 0],
        PacketType::PubAck => vec![0x40, 3, 0, 1, reason],
        PacketType::PubRec => vec![0x50, 3, 0, 1, reason],
        PacketType::PubRel => vec![0x62, 3, 0, 1, reason],
        PacketType::PubComp => vec![0x70, 3, 0, 1, reason],
        PacketType::SubAck => vec![0x90, 4, 0, 1, 0, reason],
        PacketType::UnsubAck => vec![0xB0, 4, 0, 1, 0, reason],
        PacketType::Disconnect => vec![0xE0, 1, reason],
        PacketType::Auth => vec![0xF0, 1, reason],
        other => panic!("{other:?} has no reason code"),
    }
}
