//! What the fuzz targets do with their bytes, and what has to hold of the answer.
//!
//! Shared with `rust/codec/tests/fuzz_fixed_seeds.rs`, which runs the same bodies without a fuzzer.

use mqttcore_codec::{
    DecodeError, Limits, Packet, ProtocolVersion, connack_for_error, decode, decode_connect,
    encode, encode_publish_head, frame_len,
};

/// Decodes what follows the first byte, which chooses version and limits.
pub(crate) fn decode_bytes(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let (version, limits) = chosen(choice);
    let announced = frame_len(bytes, &limits);
    match decode(bytes, version, &limits) {
        Ok(Some((_, len))) => {
            assert_eq!(announced, Ok(Some(len)));
            assert!(len <= bytes.len());
            assert!(len <= limits.packet_bytes as usize);
            assert_eq!(decode(&bytes[..len - 1], version, &limits), Ok(None));
            assert_eq!(decode(&bytes[..len / 2], version, &limits), Ok(None));
        }
        Ok(None) => assert!(announced.is_ok_and(|len| len.is_none_or(|len| len > bytes.len()))),
        Err(error) => check_error(error),
    }
    if let Err(error) = decode_connect(bytes, &limits) {
        check_error(error);
        if let Some((version, connack)) = connack_for_error(bytes, error) {
            assert!(connack.reason.is_error());
            encode(&Packet::ConnAck(connack), version, &mut Vec::new()).expect("can be written");
        }
    }
}

/// Decodes, encodes and decodes again: the encoder writes what the decoder reads, and the same.
pub(crate) fn roundtrip(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let (version, limits) = chosen(choice);
    let Ok(Some((packet, _))) = decode(bytes, version, &limits) else {
        return;
    };
    let mut encoded = Vec::new();
    encode(&packet, version, &mut encoded).expect("a decoded packet can be encoded");
    let (again, len) = decode(&encoded, version, &Limits::MAX)
        .expect("an encoded packet can be decoded")
        .expect("an encoded packet is whole");
    assert_eq!(again, packet);
    assert_eq!(len, encoded.len());

    if let Packet::Publish(publish) = packet {
        let mut parts = Vec::new();
        encode_publish_head(&publish, version, &mut parts).expect("as the whole");
        parts.extend_from_slice(publish.payload);
        assert_eq!(parts, encoded);
    }
    let mut other = Vec::new();
    for to in VERSIONS {
        other.clear();
        if encode(&packet, to, &mut other).is_ok() {
            decode(&other, to, &Limits::MAX)
                .expect("a packet of another version can be decoded")
                .expect("and is whole");
        } else {
            assert!(other.is_empty());
        }
    }
}

fn check_error(error: DecodeError) {
    assert!(error.reason_code().is_error());
    assert!(error.statement().starts_with("MQTT-"));
    assert!(!error.to_string().is_empty());
}

fn chosen(choice: u8) -> (ProtocolVersion, Limits) {
    let version = VERSIONS[usize::from(choice) % VERSIONS.len()];
    let tight = Limits {
        packet_bytes: 64,
        user_properties: 2,
        user_property_bytes: 32,
    };
    let limits = if choice & 0x80 == 0 {
        Limits::default()
    } else {
        tight
    };
    (version, limits)
}

const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V3_1,
    ProtocolVersion::V3_1_1,
    ProtocolVersion::V5,
];
