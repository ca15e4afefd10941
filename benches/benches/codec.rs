//! How many packets a second one core decodes and encodes.

use std::hint::black_box;
use std::num::NonZeroU16;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mqttcore_codec::{
    Connect, Limits, Packet, PacketId, Properties, PropertiesBuf, Property, ProtocolVersion,
    Publish, PublishQoS, QoS, Text, Will, decode, encode, encode_publish_head,
};

/// A topic of 27 bytes, as devices use them.
const TOPIC: &str = "fleet/truck-0042/telemetry1";
const PAYLOAD: [u8; 64] = [b'x'; 64];

/// One element is one packet that lies in the cache, complete.
fn decode_packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec/decode");
    group.throughput(Throughput::Elements(1));
    let limits = Limits::default();
    for (name, packet, version) in packets(&properties()) {
        let mut bytes = Vec::new();
        encode(&packet, version, &mut bytes).expect("the workload is valid");
        group.bench_with_input(BenchmarkId::from_parameter(name), &bytes, |b, bytes| {
            b.iter(|| {
                let decoded = decode(black_box(bytes), black_box(version), &limits);
                match black_box(&decoded) {
                    Ok(Some((_, len))) => *len,
                    _ => 0,
                }
            });
        });
    }
    group.finish();
}

/// One element is one packet, appended to a buffer that has the room.
fn encode_packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec/encode");
    group.throughput(Throughput::Elements(1));
    let mut out = Vec::with_capacity(4096);
    for (name, packet, version) in packets(&properties()) {
        group.bench_with_input(BenchmarkId::from_parameter(name), &packet, |b, packet| {
            b.iter(|| {
                out.clear();
                encode(black_box(packet), black_box(version), &mut out).is_ok()
            });
        });
    }
    let publish = publish(PublishQoS::AtMostOnce, Properties::EMPTY);
    group.bench_function("publish_head_qos0_v311", |b| {
        b.iter(|| {
            out.clear();
            encode_publish_head(black_box(&publish), ProtocolVersion::V3_1_1, &mut out).is_ok()
        });
    });
    group.finish();
}

fn packets(properties: &PropertiesBuf) -> Vec<(&'static str, Packet<'_>, ProtocolVersion)> {
    let qos1 = PublishQoS::AtLeastOnce {
        packet_id: PacketId::MIN,
        dup: false,
    };
    let plain = publish(PublishQoS::AtMostOnce, Properties::EMPTY);
    let acknowledged = publish(qos1, Properties::EMPTY);
    let described = publish(PublishQoS::AtMostOnce, properties.as_properties());
    vec![
        (
            "publish_qos0_v311",
            Packet::Publish(plain),
            ProtocolVersion::V3_1_1,
        ),
        (
            "publish_qos0_v5",
            Packet::Publish(plain),
            ProtocolVersion::V5,
        ),
        (
            "publish_qos0_v5_4_properties",
            Packet::Publish(described),
            ProtocolVersion::V5,
        ),
        (
            "publish_qos1_v311",
            Packet::Publish(acknowledged),
            ProtocolVersion::V3_1_1,
        ),
        (
            "publish_qos1_v5",
            Packet::Publish(acknowledged),
            ProtocolVersion::V5,
        ),
        (
            "puback_v311",
            Packet::PubAck(mqttcore_codec::Ack::success(PacketId::MIN)),
            ProtocolVersion::V3_1_1,
        ),
        (
            "connect_v311",
            Packet::Connect(connect(ProtocolVersion::V3_1_1)),
            ProtocolVersion::V3_1_1,
        ),
        (
            "connect_v5",
            Packet::Connect(connect(ProtocolVersion::V5)),
            ProtocolVersion::V5,
        ),
    ]
}

fn publish(delivery: PublishQoS, properties: Properties<'_>) -> Publish<'_> {
    Publish {
        delivery,
        retain: false,
        topic: text(TOPIC),
        properties,
        payload: &PAYLOAD,
    }
}

/// Expiry, alias, content type and a user property: 46 bytes.
fn properties() -> PropertiesBuf {
    let mut properties = PropertiesBuf::default();
    for property in [
        Property::MessageExpiryInterval(3600),
        Property::TopicAlias(NonZeroU16::MIN),
        Property::ContentType(text("application/json")),
        Property::UserProperty(text("origin"), text("gateway")),
    ] {
        properties.push(property).expect("the workload is valid");
    }
    properties
}

/// With a will, a user name and a password.
fn connect(version: ProtocolVersion) -> Connect<'static> {
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive_s: 60,
        properties: Properties::EMPTY,
        client_id: text("truck-0042"),
        will: Some(Will {
            qos: QoS::AtLeastOnce,
            retain: true,
            properties: Properties::EMPTY,
            topic: text("fleet/truck-0042/state"),
            payload: b"gone",
        }),
        username: Some(text("truck-0042")),
        password: Some(b"0123456789abcdef"),
    }
}

fn text(text: &str) -> Text<'_> {
    Text::new(text).expect("the workload is valid")
}

criterion_group!(benches, decode_packets, encode_packets);
criterion_main!(benches);
