//! MQTT 5.0 section 2.2.2, "Properties": what may stand where, how often, with which value.

use generate::{Place, many, once};
use mqttcore_codec::{
    DecodeError, EncodeError, Limits, Packet, PacketType, Properties, PropertiesBuf, Property,
    PropertyId, ProtocolVersion, QoS, ReasonCode, Text, decode, encode,
};

mod generate;

#[test]
fn a_list_is_copied_whole_and_emptied_whole() {
    let mut list = PropertiesBuf::default();
    list.push(Property::ReasonString(text("full"))).unwrap();

    let copy = PropertiesBuf::from(list.as_properties());
    list.clear();

    assert_eq!(list.as_properties(), Properties::default());
    assert_eq!(
        copy.as_properties().iter().collect::<Vec<_>>(),
        [Property::ReasonString(text("full"))]
    );
}

/// Every property in every packet, against the lists of chapter 3.
#[test]
fn b09_a_property_stands_only_where_it_is_listed() {
    for place in places() {
        for id in 0..=0x7F_u8 {
            let is_listed = once(place).contains(&id) || many(place).contains(&id);

            let decoded = decode_with(place, &with_method(id, &value(id)));

            let expected = match PropertyId::from_value(id.into()) {
                _ if is_listed => Ok(()),
                Some(id) => Err(DecodeError::MisplacedProperty(id)),
                None => Err(DecodeError::UnknownProperty(id.into())),
            };
            assert_eq!(decoded, expected, "{id:02X} in {place:?}");
        }
    }
}

/// A property that may stand once is refused a second time, others are not.
#[test]
fn b10_a_property_repeats_only_where_it_may() {
    for place in places() {
        for &id in once(place) {
            let known = PropertyId::from_value(id.into()).unwrap();
            let twice = [value(id), value(id)].concat();

            let decoded = decode_with(place, &with_method(id, &twice));

            assert_eq!(
                decoded,
                Err(DecodeError::DuplicateProperty(known)),
                "{place:?}"
            );
        }
        for &id in many(place) {
            assert_eq!(
                decode_with(place, &value(id).repeat(3)),
                Ok(()),
                "{place:?}"
            );
        }
    }
}

/// Booleans are 0 or 1.
#[test]
fn b11_a_boolean_property_is_0_or_1() {
    for (id, place) in [
        (0x01, Place::Packet(PacketType::Publish)),
        (0x01, Place::Will),
        (0x17, Place::Packet(PacketType::Connect)),
        (0x19, Place::Packet(PacketType::Connect)),
        (0x24, Place::Packet(PacketType::ConnAck)),
        (0x25, Place::Packet(PacketType::ConnAck)),
        (0x28, Place::Packet(PacketType::ConnAck)),
        (0x29, Place::Packet(PacketType::ConnAck)),
        (0x2A, Place::Packet(PacketType::ConnAck)),
    ] {
        let known = PropertyId::from_value(id.into()).unwrap();
        for byte in 0..=u8::MAX {
            let expected = match byte {
                0 | 1 => Ok(()),
                _ => Err(DecodeError::PropertyValue(known)),
            };

            assert_eq!(decode_with(place, &[id, byte]), expected);
        }
    }
}

/// Values of 0 that are refused, with the code that each has.
#[test]
fn b12_a_value_of_0_is_refused_where_the_property_forbids_it() {
    let connect = Place::Packet(PacketType::Connect);
    let publish = Place::Packet(PacketType::Publish);
    let rows: [(Place, &[u8], ReasonCode); 5] = [
        (connect, &[0x21, 0, 0], ReasonCode::PROTOCOL_ERROR),
        (connect, &[0x27, 0, 0, 0, 0], ReasonCode::PROTOCOL_ERROR),
        (publish, &[0x23, 0, 0], ReasonCode::TOPIC_ALIAS_INVALID),
        (publish, &[0x0B, 0], ReasonCode::PROTOCOL_ERROR),
        (
            Place::Packet(PacketType::Subscribe),
            &[0x0B, 0],
            ReasonCode::PROTOCOL_ERROR,
        ),
    ];
    for (place, bytes, reason) in rows {
        let error = decode_with(place, bytes).unwrap_err();

        assert!(matches!(error, DecodeError::ZeroProperty(_)), "{error}");
        assert_eq!(error.reason_code(), reason);
    }
}

/// 60,000 user properties are refused at the 65th.
#[test]
fn b13_user_properties_are_counted_and_weighed() {
    let publish = Place::Packet(PacketType::Publish);
    let smallest = [0x26, 0, 0, 0, 0];
    let mut heavy = vec![0x26, 0x00, 0x01, b'k', 0x3F, 0xF9];
    heavy.resize(6 + 0x3FF9, b'v');

    assert_eq!(decode_with(publish, &smallest.repeat(64)), Ok(()));
    assert_eq!(
        decode_with(publish, &smallest.repeat(60_000)),
        Err(DecodeError::TooManyUserProperties)
    );
    assert_eq!(
        decode_with(publish, &heavy),
        Ok(()),
        "16 KiB less one byte is allowed"
    );
    assert_eq!(
        decode_with(publish, &[&heavy[..], &smallest].concat()),
        Err(DecodeError::UserPropertiesTooLong)
    );
    for error in [
        DecodeError::TooManyUserProperties,
        DecodeError::UserPropertiesTooLong,
    ] {
        assert_eq!(error.reason_code(), ReasonCode::QUOTA_EXCEEDED);
    }
}

/// The limits count for the packet and for the will apart.
#[test]
fn b13_the_will_has_limits_of_its_own() {
    let smallest = [0x26, 0, 0, 0, 0];

    assert_eq!(decode_with(Place::Will, &smallest.repeat(64)), Ok(()));
    assert_eq!(
        decode_with(Place::Will, &smallest.repeat(65)),
        Err(DecodeError::TooManyUserProperties)
    );
}

/// Every value, cut at every byte, is refused and never read beyond its list.
#[test]
fn b14_a_property_cut_off_is_malformed() {
    for place in places() {
        for &id in once(place).iter().chain(many(place)) {
            let whole = value(id);
            for len in 1..whole.len() {
                assert_eq!(
                    decode_with(place, &whole[..len]),
                    Err(DecodeError::Truncated),
                    "{id:02X} cut to {len} in {place:?}"
                );
            }
        }
    }
}

/// The largest numbers are values like others.
#[test]
fn b18_expiry_intervals_have_no_forbidden_value() {
    let publish = Place::Packet(PacketType::Publish);

    assert_eq!(decode_with(publish, &[2, 0, 0, 0, 0]), Ok(()));
    assert_eq!(decode_with(publish, &[2, 0xFF, 0xFF, 0xFF, 0xFF]), Ok(()));
}

/// Section 3.1.2.11.10: data without a method is a protocol error, in each packet that has both.
#[test]
fn authentication_data_goes_with_a_method() {
    for packet_type in [PacketType::Connect, PacketType::ConnAck, PacketType::Auth] {
        let place = Place::Packet(packet_type);

        assert_eq!(
            decode_with(place, &value(0x16)),
            Err(DecodeError::AuthenticationDataWithoutMethod)
        );
        assert_eq!(
            decode_with(place, &[value(0x16), value(0x15)].concat()),
            Ok(())
        );
    }
}

/// What the reader refuses, the writer refuses with the same words.
#[test]
fn the_encoder_refuses_what_the_decoder_refuses() {
    for place in places() {
        for id in PropertyId::ALL {
            let byte = *id as u8;
            let mut buffer = PropertiesBuf::default();
            for _ in 0..2 {
                buffer.push(read_property(&value(byte))).unwrap();
            }
            let Place::Packet(packet_type) = place else {
                continue;
            };
            let Some(packet) = packet_with(packet_type, buffer.as_properties()) else {
                continue;
            };

            let mut out = b"before".to_vec();
            let encoded = encode(&packet, ProtocolVersion::V5, &mut out);

            let expected =
                decode_with(place, &value(byte).repeat(2)).map_err(EncodeError::Properties);
            assert_eq!(encoded, expected, "{id:?} in {place:?}");
            if encoded.is_err() {
                assert_eq!(out, b"before");
            }
        }
    }
}

#[test]
fn a_value_that_cannot_be_written_leaves_the_list_as_it_was() {
    let too_long = vec![0; 65_536];
    let mut buffer = PropertiesBuf::default();
    buffer.push(Property::ServerKeepAlive(7)).unwrap();
    let before = buffer.clone();

    assert_eq!(
        buffer.push(Property::CorrelationData(&too_long)).err(),
        Some(EncodeError::FieldTooLong)
    );
    assert_eq!(
        buffer
            .push(Property::SubscriptionIdentifier(
                u32::MAX.try_into().unwrap()
            ))
            .err(),
        Some(EncodeError::VarIntTooLarge)
    );
    assert_eq!(
        buffer.push(Property::MaximumQoS(QoS::ExactlyOnce)).err(),
        Some(EncodeError::Properties(DecodeError::PropertyValue(
            PropertyId::MaximumQoS
        )))
    );
    assert_eq!(buffer, before);
}

#[test]
fn properties_are_found_by_name() {
    let mut buffer = PropertiesBuf::default();
    buffer
        .push(Property::UserProperty(text("a"), text("1")))
        .unwrap()
        .push(Property::TopicAlias(3.try_into().unwrap()))
        .unwrap()
        .push(Property::SubscriptionIdentifier(9.try_into().unwrap()))
        .unwrap()
        .push(Property::UserProperty(text("b"), text("2")))
        .unwrap()
        .push(Property::SubscriptionIdentifier(8.try_into().unwrap()))
        .unwrap();

    let properties = buffer.as_properties();

    assert_eq!(properties.topic_alias().map(u16::from), Some(3));
    assert_eq!(properties.message_expiry_interval(), None);
    assert!(properties.contains(PropertyId::UserProperty));
    let names: Vec<_> = properties.user_properties().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b"]);
    let ids = properties.iter().filter_map(|property| match property {
        Property::SubscriptionIdentifier(id) => Some(id.get()),
        _ => None,
    });
    assert_eq!(ids.collect::<Vec<_>>(), [9, 8]);
    let again = Properties::from_checked(properties.as_bytes());
    assert_eq!(again, properties);
}

/// Bytes that never were properties end the list, and are not written.
#[test]
fn foreign_bytes_are_neither_listed_nor_written() {
    let foreign = Properties::from_checked(&[0x13, 0, 60, 0x7F, 1]);
    let packet = packet_with(PacketType::ConnAck, foreign).unwrap();

    assert_eq!(foreign.iter().count(), 1);
    assert_eq!(
        encode(&packet, ProtocolVersion::V5, &mut Vec::new()),
        Err(EncodeError::Properties(DecodeError::UnknownProperty(0x7F)))
    );
}

#[test]
fn authentication_data_is_not_printed() {
    let mut buffer = PropertiesBuf::default();
    buffer
        .push(Property::AuthenticationData(b"canary"))
        .unwrap();

    let printed = format!("{:?}", buffer.as_properties());

    assert_eq!(printed, "[AuthenticationData(..)]");
}

fn places() -> Vec<Place> {
    (1..=15)
        .filter_map(|packet_type| PacketType::of(packet_type << 4))
        .filter(|packet_type| !matches!(packet_type, PacketType::PingReq | PacketType::PingResp))
        .map(Place::Packet)
        .chain([Place::Will])
        .collect()
}

/// Identifier and a value of this property, by hand.
fn value(id: u8) -> Vec<u8> {
    let value: &[u8] = match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => &[1],
        0x02 | 0x11 | 0x18 | 0x27 => &[0, 0, 0, 1],
        0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => &[0, 1, b'x'],
        0x0B => &[0x81, 0x01],
        0x13 | 0x21 | 0x22 | 0x23 => &[0, 1],
        0x26 => &[0, 1, b'k', 0, 1, b'v'],
        _ => &[0, 0, 0, 0],
    };
    [&[id], value].concat()
}

/// Authentication data is never alone; what stands in doubt comes first.
fn with_method(id: u8, bytes: &[u8]) -> Vec<u8> {
    if id == 0x16 {
        return [bytes, &value(0x15)].concat();
    }
    bytes.to_vec()
}

fn read_property(bytes: &[u8]) -> Property<'_> {
    Properties::from_checked(bytes)
        .iter()
        .next()
        .expect("one property")
}

/// Decodes a packet that is right but for these properties.
fn decode_with(place: Place, properties: &[u8]) -> Result<(), DecodeError> {
    let list = [&length(properties.len())[..], properties].concat();
    let packet_type = match place {
        Place::Packet(packet_type) => packet_type,
        Place::Will => PacketType::Connect,
    };
    let (first_byte, before, after): (u8, &[u8], &[u8]) = match (place, packet_type) {
        (Place::Will, _) => (0x10, b"\0\x04MQTT\x05\x04\0\0\0\0\0", b"\0\x01t\0\0"),
        (_, PacketType::Connect) => (0x10, b"\0\x04MQTT\x05\0\0\0", b"\0\0"),
        (_, PacketType::ConnAck) => (0x20, b"\0\0", b""),
        (_, PacketType::Publish) => (0x30, b"\0\x01t", b"payload"),
        (_, PacketType::PubAck) => (0x40, b"\0\x01\0", b""),
        (_, PacketType::PubRec) => (0x50, b"\0\x01\0", b""),
        (_, PacketType::PubRel) => (0x62, b"\0\x01\0", b""),
        (_, PacketType::PubComp) => (0x70, b"\0\x01\0", b""),
        (_, PacketType::Subscribe) => (0x82, b"\0\x01", b"\0\x01t\0"),
        (_, PacketType::SubAck) => (0x90, b"\0\x01", b"\0"),
        (_, PacketType::Unsubscribe) => (0xA2, b"\0\x01", b"\0\x01t"),
        (_, PacketType::UnsubAck) => (0xB0, b"\0\x01", b"\0"),
        (_, PacketType::Disconnect) => (0xE0, b"\0", b""),
        (_, PacketType::Auth) => (0xF0, b"\x18", b""),
        (_, PacketType::PingReq | PacketType::PingResp) => panic!("has no properties"),
    };
    let body = [before, &list, after].concat();
    let bytes = [&[first_byte][..], &length(body.len()), &body].concat();
    let decoded = decode(&bytes, ProtocolVersion::V5, &Limits::default())?;
    assert!(decoded.is_some(), "the packet is whole");
    Ok(())
}

/// A packet with these properties and nothing else to refuse.
fn packet_with(packet_type: PacketType, properties: Properties<'_>) -> Option<Packet<'_>> {
    let bytes: &[u8] = match packet_type {
        PacketType::ConnAck => b"\x20\x03\0\0\0",
        PacketType::Publish => b"\x30\x04\0\x01t\0",
        PacketType::PubAck => b"\x40\x02\0\x01",
        PacketType::Subscribe => b"\x82\x07\0\x01\0\0\x01t\0",
        PacketType::SubAck => b"\x90\x04\0\x01\0\0",
        PacketType::Unsubscribe => b"\xA2\x06\0\x01\0\0\x01t",
        PacketType::UnsubAck => b"\xB0\x04\0\x01\0\0",
        PacketType::Disconnect => b"\xE0\x00",
        PacketType::Auth => b"\xF0\x01\x18",
        _ => return None,
    };
    let decoded = decode(bytes, ProtocolVersion::V5, &Limits::default());
    let (mut packet, _) = decoded.expect("is a packet").expect("is whole");
    match &mut packet {
        Packet::ConnAck(packet) => packet.properties = properties,
        Packet::Publish(packet) => packet.properties = properties,
        Packet::PubAck(packet) => packet.properties = properties,
        Packet::Subscribe(packet) => packet.properties = properties,
        Packet::SubAck(packet) => packet.properties = properties,
        Packet::Unsubscribe(packet) => packet.properties = properties,
        Packet::UnsubAck(packet) => packet.properties = properties,
        Packet::Disconnect(packet) => packet.properties = properties,
        Packet::Auth(packet) => packet.properties = properties,
        _ => return None,
    }
    Some(packet)
}

/// A Variable Byte Integer of up to four bytes, by the algorithm of section 1.5.5.
fn length(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let group = u8::try_from(value % 128).expect("below 128");
        value /= 128;
        if value == 0 {
            bytes.push(group);
            return bytes;
        }
        bytes.push(group | 0x80);
    }
}

fn text(text: &str) -> Text<'_> {
    Text::new(text).expect("is text")
}
