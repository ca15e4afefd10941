//! Section 3.3 of MQTT 5.0 and 3.1.1, PUBLISH, and the fields of the other packets.

use mqttcore_codec::{
    DecodeError, EncodeError, Limits, Packet, PacketId, PacketType, Properties, PropertiesBuf,
    Property, ProtocolVersion, Publish, PublishQoS, Subscribe, SubscriptionOptions, Text, UnsubAck,
    decode, encode, encode_publish_head,
};

const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V3_1,
    ProtocolVersion::V3_1_1,
    ProtocolVersion::V5,
];

/// [MQTT-4.7.3-1] Our own PUBLISH has a topic, or an alias in version 5.
#[test]
fn mqtt_4_7_3_1_d01_an_empty_topic_is_written_with_an_alias_only() {
    let mut buffer = PropertiesBuf::default();
    buffer
        .push(Property::TopicAlias(1.try_into().unwrap()))
        .unwrap();
    let bare = publish(Text::EMPTY, Properties::EMPTY, b"x");
    let aliased = publish(Text::EMPTY, buffer.as_properties(), b"x");
    let mut out = Vec::new();

    for version in VERSIONS {
        assert_eq!(
            encode_publish_head(&bare, version, &mut out),
            Err(EncodeError::EmptyTopic)
        );
    }
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
        assert_eq!(
            encode_publish_head(&aliased, version, &mut out),
            Err(EncodeError::EmptyTopic)
        );
    }
    assert_eq!(out, []);
    assert_eq!(
        encode_publish_head(&aliased, ProtocolVersion::V5, &mut out),
        Ok(())
    );
    assert_eq!(out, [0x30, 0x07, 0, 0, 3, 0x23, 0, 1]);
}

/// Properties stay behind where the receiver speaks 3.x.
#[test]
fn a_message_of_5_is_written_for_3_x_without_its_properties() {
    let mut buffer = PropertiesBuf::default();
    buffer.push(Property::MessageExpiryInterval(9)).unwrap();
    let message = publish(text("t"), buffer.as_properties(), b"x");

    let mut out = Vec::new();
    encode_publish_head(&message, ProtocolVersion::V3_1_1, &mut out).unwrap();

    assert_eq!(out, [0x30, 0x04, 0, 1, b't']);
}

/// A topic of the longest length there is passes; its payload makes the length grow.
#[test]
fn d03_the_longest_topic_is_read_and_written() {
    let longest = "/".repeat(65_535);
    let payload = vec![b'x'; 70_000];
    let message = publish(text(&longest), Properties::EMPTY, &payload);

    let mut bytes = Vec::new();
    encode(
        &Packet::Publish(message),
        ProtocolVersion::V3_1_1,
        &mut bytes,
    )
    .unwrap();

    assert_eq!(bytes[..4], [0x30, 0xF1, 0xA2, 0x08]);
    let decoded = decode(&bytes, ProtocolVersion::V3_1_1, &Limits::default());
    assert_eq!(decoded, Ok(Some((Packet::Publish(message), bytes.len()))));
}

/// A small packet that outgrows its one length byte moves up by as many as it needs.
#[test]
fn a_packet_with_a_long_list_has_a_longer_length() {
    for (filters, header) in [
        (41, &[0x82, 0x7D][..]),
        (42, &[0x82, 0x80, 0x01]),
        (5_461, &[0x82, 0x81, 0x80, 0x01]),
    ] {
        let subscribe = Packet::Subscribe(Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            filters: vec![(Text::EMPTY, SubscriptionOptions::default()); filters],
        });

        let mut bytes = b"before".to_vec();
        encode(&subscribe, ProtocolVersion::V3_1_1, &mut bytes).unwrap();

        assert!(bytes[6..].starts_with(header), "{:02X?}", &bytes[6..12]);
        let decoded = decode(&bytes[6..], ProtocolVersion::V3_1_1, &Limits::default());
        assert_eq!(decoded, Ok(Some((subscribe, bytes.len() - 6))));
    }
}

/// A refused packet leaves the buffer as it was, whatever was written by then.
#[test]
fn a_packet_that_cannot_be_written_leaves_the_buffer_alone() {
    let mut out = b"before".to_vec();
    let empty_lists = [
        Packet::Subscribe(Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            filters: Vec::new(),
        }),
        Packet::UnsubAck(UnsubAck {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            reasons: Vec::new(),
        }),
    ];

    assert_eq!(
        empty_lists.map(|packet| encode(&packet, ProtocolVersion::V5, &mut out)),
        [Err(EncodeError::NoFilters), Err(EncodeError::NoReasonCodes)]
    );
    assert_eq!(out, b"before");
}

/// [MQTT-2.2.1-3] 0 is no packet identifier, in any packet that has one.
#[test]
fn mqtt_2_2_1_3_d07_packet_id_0_is_refused_everywhere() {
    let packets: [&[u8]; 10] = [
        b"\x32\x06\0\x01t\0\0\0",
        b"\x34\x06\0\x01t\0\0\0",
        b"\x40\x02\0\0",
        b"\x50\x02\0\0",
        b"\x62\x02\0\0",
        b"\x70\x02\0\0",
        b"\x82\x07\0\0\0\0\x01t\0",
        b"\x90\x04\0\0\0\0",
        b"\xA2\x06\0\0\0\0\x01t",
        b"\xB0\x04\0\0\0\0",
    ];
    for bytes in packets {
        for version in VERSIONS {
            assert_eq!(
                decode(bytes, version, &Limits::default()),
                Err(DecodeError::ZeroPacketId),
                "{bytes:02X?}"
            );
        }
    }
}

/// All 256 option bytes of SUBSCRIBE in each version; sections 3.8.3.1 and, of 3.1.1, 3.8.3.
#[test]
fn e04_subscription_options_are_held_against_the_specification() {
    for options in 0..=u8::MAX {
        let old = verdict(
            &[0x82, 6, 0, 1, 0, 1, b't', options],
            ProtocolVersion::V3_1_1,
        );
        let new = verdict(
            &[0x82, 7, 0, 1, 0, 0, 1, b't', options],
            ProtocolVersion::V5,
        );

        let expected_old = match options {
            0..=2 => Ok(()),
            3 => Err(0x82),
            _ => Err(0x81),
        };
        let expected_new = match (options >> 6, options >> 4 & 3, options & 3) {
            (1.., _, _) => Err(0x81),
            (_, 3, _) | (_, _, 3) => Err(0x82),
            _ => Ok(()),
        };
        assert_eq!(old, expected_old, "{options:08b}");
        assert_eq!(new, expected_new, "{options:08b}");
    }
}

/// AUTH does not exist before version 5.
#[test]
fn a08_auth_is_written_in_version_5_only() {
    let auth = Packet::Auth(mqttcore_codec::Auth {
        reason: mqttcore_codec::ReasonCode::CONTINUE_AUTHENTICATION,
        properties: Properties::EMPTY,
    });

    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
        assert_eq!(
            encode(&auth, version, &mut Vec::new()),
            Err(EncodeError::NotInVersion(PacketType::Auth, version))
        );
    }
}

/// The reason code of a refusal; what is taken is whole.
fn verdict(bytes: &[u8], version: ProtocolVersion) -> Result<(), u8> {
    let packet =
        decode(bytes, version, &Limits::default()).map_err(|error| error.reason_code().value())?;
    assert!(packet.is_some());
    Ok(())
}

fn publish<'a>(topic: Text<'a>, properties: Properties<'a>, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        delivery: PublishQoS::AtMostOnce,
        retain: false,
        topic,
        properties,
        payload,
    }
}

fn text(text: &str) -> Text<'_> {
    Text::new(text).expect("is text")
}
