//! The encoder writes what the decoder reads, and the decoder reads nothing else out of it.

use mqttcore_codec::{
    Limits, Packet, decode, decode_connect, encode, encode_publish_head, frame_len,
};
use proptest::prelude::*;

mod generate;

proptest! {
    #[test]
    fn a_packet_reads_back_as_it_was_written(
        (version, packet) in generate::version()
            .prop_flat_map(|version| (Just(version), generate::packet(version)))
    ) {
        let mut bytes = Vec::new();
        encode(&packet, version, &mut bytes).unwrap();

        let len = bytes.len();
        prop_assert_eq!(frame_len(&bytes, &Limits::default()), Ok(Some(len)));
        prop_assert_eq!(
            decode(&bytes, version, &Limits::default()),
            Ok(Some((packet.clone(), len)))
        );
        if let Packet::Connect(connect) = packet {
            prop_assert_eq!(decode_connect(&bytes, &Limits::default()), Ok(Some((connect, len))));
        }
    }

    #[test]
    fn a_packet_is_incomplete_until_its_last_byte(
        (version, packet) in generate::version()
            .prop_flat_map(|version| (Just(version), generate::packet(version)))
    ) {
        let mut bytes = Vec::new();
        encode(&packet, version, &mut bytes).unwrap();

        for len in 0..bytes.len() {
            prop_assert_eq!(decode(&bytes[..len], version, &Limits::default()), Ok(None));
        }
    }

    #[test]
    fn packets_in_a_row_are_read_one_by_one(
        (version, packets) in generate::version().prop_flat_map(|version| {
            (Just(version), prop::collection::vec(generate::packet(version), 1..8))
        })
    ) {
        let mut bytes = Vec::new();
        for packet in &packets {
            encode(packet, version, &mut bytes).unwrap();
        }

        let mut rest = &bytes[..];
        for expected in &packets {
            let (packet, len) = decode(rest, version, &Limits::default()).unwrap().unwrap();
            prop_assert_eq!(&packet, expected);
            rest = &rest[len..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_publish_head_and_its_payload_are_the_whole_publish(
        (version, publish) in generate::version()
            .prop_flat_map(|version| (Just(version), generate::publish(version)))
    ) {
        let mut parts = Vec::new();
        encode_publish_head(&publish, version, &mut parts).unwrap();
        parts.extend_from_slice(publish.payload);

        let mut whole = Vec::new();
        encode(&Packet::Publish(publish), version, &mut whole).unwrap();
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn properties_are_listed_as_they_were_pushed(
        ids in prop::collection::vec(prop::sample::select(mqttcore_codec::PropertyId::ALL), 0..6)
            .prop_flat_map(|ids| ids.into_iter().map(|id| generate::property(id as u8)).collect::<Vec<_>>())
    ) {
        let mut buffer = mqttcore_codec::PropertiesBuf::default();
        for &property in &ids {
            buffer.push(property).unwrap();
        }

        let listed: Vec<_> = buffer.as_properties().iter().collect();
        prop_assert_eq!(listed, ids);
    }
}
