//! MQTT 5.0 section 1.5, "Data representation".

use mqttcore_codec::{
    DecodeError, Limits, Packet, ProtocolVersion, Text, TextError, VAR_INT_MAX, decode,
    decode_var_int,
};

/// [MQTT-1.5.5-1] The encoded value uses the minimum number of bytes.
#[test]
fn mqtt_1_5_5_1_a_padded_var_int_is_malformed() {
    for padded in [
        &[0x80, 0x00][..],
        &[0xFF, 0x80, 0x00],
        &[0x80, 0x80, 0x80, 0x00],
    ] {
        assert_eq!(decode_var_int(padded), Err(DecodeError::PaddedVarInt));
    }
}

/// [MQTT-1.5.5-1] The table of section 1.5.5: the smallest and largest value of each length.
#[test]
fn mqtt_1_5_5_1_each_length_has_its_range() {
    let rows: [(u32, &[u8]); 8] = [
        (0, &[0x00]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xFF, 0xFF, 0x7F]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (VAR_INT_MAX, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ];
    for (value, bytes) in rows {
        assert_eq!(decode_var_int(bytes), Ok(Some((value, bytes.len()))));
    }
}

#[test]
fn a_var_int_is_awaited_to_its_last_byte_and_no_further() {
    assert_eq!(decode_var_int(&[]), Ok(None));
    assert_eq!(decode_var_int(&[0x80, 0x80, 0x80]), Ok(None));
    assert_eq!(
        decode_var_int(&[0x80, 0x80, 0x80, 0x80]),
        Err(DecodeError::VarIntTooLong)
    );
    assert_eq!(decode_var_int(&[0x05, 0xFF]), Ok(Some((5, 1))));
}

/// [MQTT-1.5.4-1] Every sequence of up to two bytes, and of three from the borders of UTF-8,
/// held against a decoder that goes by the definition.
#[test]
fn mqtt_1_5_4_1_text_is_utf_8_as_the_definition_says() {
    let mut sequences: Vec<Vec<u8>> = Vec::new();
    for first in 0..=u8::MAX {
        sequences.push(vec![first]);
        sequences.extend((0..=u8::MAX).map(|second| vec![first, second]));
    }
    for first in [0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF4] {
        for second in 0x70..=0xC8 {
            for third in [0x00, 0x7F, 0x80, 0xBF, 0xC0] {
                sequences.push(vec![first, second, third]);
                sequences.push(vec![first, second, third, 0x80]);
            }
        }
    }
    for bytes in sequences {
        let verdict = Text::from_utf8(&bytes).map(Text::as_str);
        let expected = slow_utf8(&bytes).map_or(Err(TextError::InvalidUtf8), |characters| {
            if characters.contains(&'\0') {
                Err(TextError::NullCharacter)
            } else {
                Ok(characters.into_iter().collect::<String>())
            }
        });

        assert_eq!(verdict.map(str::to_owned), expected, "{bytes:02X?}");
    }
}

/// [MQTT-1.5.4-2] U+0000 is found wherever it is.
#[test]
fn mqtt_1_5_4_2_a_null_is_found_at_every_place() {
    for len in 1..70 {
        for at in 0..len {
            let mut bytes = vec![b'a'; len];
            bytes[at] = 0;

            assert_eq!(Text::from_utf8(&bytes), Err(TextError::NullCharacter));
        }
    }
}

/// [MQTT-1.5.4-3] U+FEFF stays.
#[test]
fn mqtt_1_5_4_3_a_byte_order_mark_is_kept() {
    let bytes = b"\x30\x06\x00\x04\xEF\xBB\xBFa";

    let decoded = decode(bytes, ProtocolVersion::V3_1_1, &Limits::default());

    let Ok(Some((Packet::Publish(publish), 8))) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(publish.topic.as_str(), "\u{feff}a");
}

/// [MQTT-1.5.7-1] Both halves of a string pair are text.
#[test]
fn mqtt_1_5_7_1_both_halves_of_a_user_property_are_text() {
    let broken_name = b"\x30\x0B\x00\x01a\x07\x26\x00\x01\xFF\x00\x01v";
    let broken_value = b"\x30\x0B\x00\x01a\x07\x26\x00\x01k\x00\x01\xFF";

    for bytes in [broken_name, broken_value] {
        assert_eq!(
            decode(bytes, ProtocolVersion::V5, &Limits::default()),
            Err(DecodeError::Text(TextError::InvalidUtf8))
        );
    }
}

/// UTF-8 by its definition: code points of one to four groups, shortest form, no surrogates.
fn slow_utf8(mut bytes: &[u8]) -> Option<Vec<char>> {
    let mut characters = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (len, smallest) = match first.leading_ones() {
            0 => (1, 0),
            2 => (2, 0x80),
            3 => (3, 0x800),
            4 => (4, 0x1_0000),
            _ => return None,
        };
        let mut code = if len == 1 {
            u32::from(first)
        } else {
            u32::from(first) & (0xFF >> (len + 1))
        };
        for &next in rest.get(..len - 1)? {
            if next & 0xC0 != 0x80 {
                return None;
            }
            code = code << 6 | u32::from(next & 0x3F);
        }
        if code < smallest {
            return None;
        }
        characters.push(char::from_u32(code)?);
        bytes = &bytes[len..];
    }
    Some(characters)
}
