//! Packets come out of a stream of bytes, however the network tore it.

use std::thread;

use mqttcore_broker::{Action, AuthorizeDecision, Broker};
use mqttcore_codec::{Packet, Properties, ProtocolVersion, Publish, PublishQoS, QoS, Text, encode};

use crate::common::{
    Client, DEADLINE, Dice, Plugin, Received, config, deep_queues, eventually, start, start_with,
    v3, v5,
};

/// One read of the broker takes at most this much.
const SCRATCH_BYTES: usize = 64 * 1024;

/// A QoS 0 PUBLISH of 3.1.1, and its payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    let publish = Publish {
        delivery: PublishQoS::AtMostOnce,
        retain: false,
        topic: Text::new("t").expect("text"),
        properties: Properties::EMPTY,
        payload,
    };
    let mut out = Vec::new();
    encode(&Packet::Publish(publish), ProtocolVersion::V3_1_1, &mut out).expect("PUBLISH encodes");
    out
}

/// A frame of exactly `len` bytes.
fn frame_of(len: usize) -> Vec<u8> {
    let mut payload = vec![b'.'; len];
    loop {
        let frame = frame(&payload);
        match frame.len() {
            too_long if too_long > len => payload.truncate(payload.len() - (too_long - len)),
            right if right == len => return frame,
            too_short => payload.resize(payload.len() + len - too_short, b'.'),
        }
    }
}

/// A client that hears its own messages.
fn echo(broker: &Broker) -> Client {
    let mut client = v3("echo").connect(broker);
    client.subscribe("t", QoS::AtMostOnce);
    client
}

/// Sends `bytes` in two parts; the second leaves when the broker has read all of the first.
fn send_split(client: &mut Client, broker: &Broker, bytes: &[u8], at: usize) {
    let before = broker.stats().bytes_received;
    let (first, second) = bytes.split_at(at);
    client.send_bytes(first);
    eventually("the first part is read", || {
        broker.stats().bytes_received == before + first.len() as u64
    });
    client.send_bytes(second);
}

fn expect_numbers(client: &mut Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        assert_eq!(client.message().number(), number);
    }
}

#[test]
fn a_conversation_of_single_bytes_is_understood() {
    let broker = start(config());
    let hello = v5("bytes");
    let mut client = hello.open(broker.addresses()[0]);
    let mut bytes = hello.bytes();
    // SUBSCRIBE 1 "t" QoS 1, PUBLISH 2 "t" "!" at QoS 1, PINGREQ, DISCONNECT.
    bytes.extend_from_slice(b"\x82\x07\x00\x01\x00\x00\x01t\x01");
    bytes.extend_from_slice(b"\x32\x07\x00\x01t\x00\x02\x00!");
    bytes.extend_from_slice(b"\xC0\x00\xE0\x00");

    for byte in bytes {
        client.send_bytes(&[byte]);
    }

    client.expect_welcome();
    assert!(matches!(client.receive(), Received::SubAck(1, _)));
    let mut rest = client.until_closed();
    assert_eq!(rest.len(), 3);
    rest.retain(|packet| !matches!(packet, Received::PubAck(2, _) | Received::PingResp));
    assert!(matches!(&rest[..], [Received::Publish(message)] if message.text() == "!"));
}

#[test]
fn frames_split_around_the_end_of_a_full_read_arrive_whole() {
    let broker = start(config());
    let mut client = echo(&broker);

    for cut in SCRATCH_BYTES - 12..=SCRATCH_BYTES + 12 {
        // The filler ends just before the cut, so that the cut runs through small frames.
        let mut bytes = frame_of(SCRATCH_BYTES - 16);
        for number in 0..6 {
            bytes.extend(frame(number.to_string().as_bytes()));
        }
        send_split(&mut client, &broker, &bytes, cut);

        assert_eq!(client.message().payload.len(), SCRATCH_BYTES - 23);
        expect_numbers(&mut client, 0..6);
    }
}

#[test]
fn a_frame_that_is_about_one_read_long_arrives_whole() {
    let broker = start(config());
    let mut client = echo(&broker);

    for len in SCRATCH_BYTES - 5..=SCRATCH_BYTES + 5 {
        let mut bytes = frame_of(len);
        bytes.extend(frame(b"0"));

        client.send_bytes(&bytes);

        assert_eq!(client.message().payload.len(), len - 7);
        expect_numbers(&mut client, 0..1);
    }
}

#[test]
fn a_large_frame_split_anywhere_arrives_whole() {
    const LEN: usize = 150_000;
    let broker = start(config());
    let mut client = echo(&broker);
    let mut bytes = frame_of(LEN);
    bytes.extend(frame(b"0"));
    let edges = [1, 2, 3, 4, 5, 6, 7, 8, 4095, 4096, 4097, 4098, 4104];
    let reads = [
        SCRATCH_BYTES - 1,
        SCRATCH_BYTES,
        SCRATCH_BYTES + 1,
        2 * SCRATCH_BYTES,
    ];
    let ends = [LEN - 1, LEN, LEN + 1, LEN + 2];

    for cut in edges.into_iter().chain(reads).chain(ends) {
        send_split(&mut client, &broker, &bytes, cut);

        assert_eq!(client.message().payload.len(), LEN - 7, "cut at {cut}");
        expect_numbers(&mut client, 0..1);
    }
}

/// Behind a torn frame of more than 4 KiB the broker reads no further than its end.
#[test]
fn bytes_behind_a_large_split_frame_are_not_lost() {
    let broker = start(config());
    let mut client = echo(&broker);
    let mut bytes = frame_of(20_000);
    for number in 0..5_000 {
        bytes.extend(frame(number.to_string().as_bytes()));
    }

    send_split(&mut client, &broker, &bytes, 10_000);

    assert_eq!(client.message().payload.len(), 20_000 - 7);
    expect_numbers(&mut client, 0..5_000);
}

#[test]
fn frames_of_random_sizes_split_at_random_places_arrive_whole() {
    let broker = start(deep_queues());
    let mut client = echo(&broker);
    let mut dice = Dice::new(11);
    let mut sizes = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..200 {
        let longest = [10, 300, 5_000, 70_000][dice.below(4)];
        sizes.push(dice.below(longest));
        let fill = u8::try_from(sizes.len()).expect("200 sizes");
        bytes.extend(frame(&vec![fill; sizes[sizes.len() - 1]]));
    }
    let mut sender = client.second_hand();

    let sending = thread::spawn(move || {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let longest = [3, 100, 5_000, 200_000][dice.below(4)];
            let (part, behind) = rest.split_at(rest.len().min(1 + dice.below(longest)));
            sender.send_bytes(part);
            rest = behind;
        }
    });

    for (index, size) in sizes.into_iter().enumerate() {
        let fill = u8::try_from(index + 1).expect("200 sizes");
        assert_eq!(client.message().payload, vec![fill; size]);
    }
    sending.join().expect("all is sent");
    client.ping();
}

#[test]
fn publishes_of_nearly_a_mebibyte_arrive_whole() {
    const PUBLISHES: u8 = 20;
    let broker = start(deep_queues());
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("large", QoS::AtLeastOnce);
    let payload = |fill: u8| -> Vec<u8> {
        let mut dice = Dice::new(u64::from(fill) + 1);
        let mut bytes = vec![fill; (1 << 20) - 100];
        for _ in 0..100 {
            let at = dice.below(bytes.len());
            bytes[at] = !fill;
        }
        bytes
    };
    let mut publisher = v5("publisher").connect(&broker);

    let publishing = thread::spawn(move || {
        for fill in 0..PUBLISHES {
            let reason = publisher.publish_acknowledged("large", payload(fill));
            assert!(!reason.is_error());
        }
    });

    for fill in 0..PUBLISHES {
        assert!(subscriber.take_message().payload == payload(fill));
    }
    publishing.join().expect("all is published");
}

#[test]
fn much_that_waits_behind_a_plugins_answer_arrives_whole() {
    let (plugin, questions) = Plugin::questions(&[(Action::Publish, "$ask")]);
    let broker = start_with(deep_queues(), plugin);
    let mut client = echo(&broker);
    // PUBLISH "$ask" without payload, then more than one read brings.
    let mut bytes = b"\x30\x06\x00\x04$ask".to_vec();
    for number in 0..100 {
        bytes.extend(frame(number.to_string().as_bytes()));
        bytes.extend(frame_of(5_000 + number * 10));
    }
    client.send_bytes(&bytes);

    let (_, reply) = questions.recv_timeout(DEADLINE).expect("asked");
    reply.send(AuthorizeDecision::Allow);

    for number in 0..100 {
        assert_eq!(client.message().number(), number);
        assert_eq!(client.message().payload.len(), 5_000 + number * 10 - 6);
    }
    client.ping();
}

#[test]
fn bytes_that_are_no_packet_end_the_connection_behind_what_was_whole() {
    let broker = start(config());
    let mut client = echo(&broker);
    let mut bytes = frame(b"0");
    bytes.extend_from_slice(b"\xFF\xFF\xFF\xFF\xFF");

    client.send_bytes(&bytes);

    let packets = client.until_closed();
    assert!(matches!(&packets[..], [Received::Publish(message)] if message.text() == "0"));
}

#[test]
fn a_half_frame_of_a_client_that_vanishes_has_no_effect() {
    let broker = start(config());
    let mut subscriber = echo(&broker);
    let mut client = v3("half").connect(&broker);
    let mut bytes = frame(b"0");
    bytes.extend_from_slice(&frame(b"never whole")[..8]);

    client.send_bytes(&bytes);
    client.vanish();

    expect_numbers(&mut subscriber, 0..1);
    eventually("the client is gone", || {
        broker.stats().clients_connected == 1
    });
    subscriber.ping();
}
