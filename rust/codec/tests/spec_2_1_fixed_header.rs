//! MQTT 5.0 section 2.1, "Structure of an MQTT Control Packet", and MQTT 3.1 section 2.1.

use mqttcore_codec::{
    DecodeError, Limits, Packet, ProtocolVersion, ReasonCode, decode, decode_connect, frame_len,
};

const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V3_1,
    ProtocolVersion::V3_1_1,
    ProtocolVersion::V5,
];

#[test]
fn the_longest_packet_has_a_first_byte_and_four_bytes_of_length() {
    assert_eq!(Limits::MAX.packet_bytes, 1 + 4 + 268_435_455);
    assert_eq!(Limits::default().packet_bytes, Limits::MAX.packet_bytes);
}

/// [MQTT-2.1.3-1] All 256 first bytes, against the table of section 2.1.3.
#[test]
fn mqtt_2_1_3_1_a09_only_the_listed_first_bytes_are_taken() {
    for version in VERSIONS {
        for first_byte in 0..=u8::MAX {
            let reason = decode(&[first_byte], version, &Limits::default())
                .map(|packet| packet.is_some())
                .map_err(DecodeError::reason_code);

            let expected = if is_listed(first_byte, version) {
                Ok(false)
            } else {
                Err(ReasonCode::MALFORMED_PACKET)
            };
            assert_eq!(reason, expected, "{first_byte:02X} in {version}");
        }
    }
}

/// What a version allows is what `frame_len` allows, which knows no version.
#[test]
fn a_first_byte_of_any_version_has_a_frame_length() {
    for first_byte in 0..=u8::MAX {
        let in_any = VERSIONS
            .iter()
            .any(|&version| is_listed(first_byte, version));

        let announced = frame_len(&[first_byte, 0x05], &Limits::default());

        assert_eq!(announced.is_ok(), in_any, "{first_byte:02X}");
    }
}

/// [MQTT-3.1.0-1] The first byte of a connection says CONNECT.
#[test]
fn mqtt_3_1_0_1_c01_another_first_packet_fails_on_its_first_byte() {
    for first_byte in (0..=u8::MAX).filter(|byte| byte >> 4 != 1) {
        assert_eq!(
            decode_connect(&[first_byte], &Limits::default()),
            Err(DecodeError::ConnectExpected)
        );
    }
}

/// The whole packet counts against the limit, its fixed header included.
#[test]
fn a03_the_announced_length_is_held_against_the_limit() {
    let announced: [(&[u8], u32); 5] = [
        (&[0x30, 0x00], 2),
        (&[0x30, 0x7F], 129),
        (&[0x30, 0x80, 0x01], 131),
        (&[0x30, 0x80, 0x80, 0x01], 16_388),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], 268_435_460),
    ];
    for (header, packet_bytes) in announced {
        let exact = Limits {
            packet_bytes,
            ..Limits::default()
        };
        let smaller = Limits {
            packet_bytes: packet_bytes - 1,
            ..Limits::default()
        };

        assert_eq!(
            frame_len(header, &exact),
            Ok(Some(usize::try_from(packet_bytes).unwrap()))
        );
        assert_eq!(
            frame_len(header, &smaller),
            Err(DecodeError::PacketTooLarge)
        );
        assert_eq!(
            decode(header, ProtocolVersion::V5, &smaller),
            Err(DecodeError::PacketTooLarge)
        );
    }
}

/// A length that a later byte could still change is not judged.
#[test]
fn a_length_is_judged_when_its_last_byte_is_there() {
    let limits = Limits {
        packet_bytes: 8,
        ..Limits::default()
    };

    assert_eq!(frame_len(&[0x30, 0xFF, 0xFF], &limits), Ok(None));
}

/// A thousand packets in one piece give what they give one by one.
#[test]
fn a07_a_thousand_packets_in_one_piece_are_read_one_by_one() {
    let mut bytes = Vec::new();
    for _ in 0..500 {
        bytes.extend_from_slice(b"\xC0\x00\x30\x05\x00\x01axy");
    }

    let (mut rest, mut pings, mut publishes) = (&bytes[..], 0, 0);
    while let Some((packet, len)) =
        decode(rest, ProtocolVersion::V3_1_1, &Limits::default()).unwrap()
    {
        match packet {
            Packet::PingReq => pings += 1,
            Packet::Publish(publish) => publishes += usize::from(publish.payload == b"xy"),
            other => panic!("{other:?}"),
        }
        rest = &rest[len..];
    }

    assert_eq!((pings, publishes), (500, 500));
    assert!(rest.is_empty());
}

/// Section 2.1.3 of 5.0, 2.2.2 of 3.1.1, 2.1 of 3.1, each row by hand.
fn is_listed(first_byte: u8, version: ProtocolVersion) -> bool {
    match first_byte {
        0x10 | 0x20 | 0x40 | 0x50 | 0x70 | 0x90 | 0xB0 | 0xC0 | 0xD0 | 0xE0 => true,
        0x30..=0x35 => true,
        0x3A..=0x3D => true,
        0x62 | 0x82 | 0xA2 => true,
        // MQTT 3.1 sends these again with DUP
        0x6A | 0x8A | 0xAA => version == ProtocolVersion::V3_1,
        0xF0 => version == ProtocolVersion::V5,
        _ => false,
    }
}
