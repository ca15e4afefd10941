//! How many messages a second one session takes and hands out.
//!
//! Packets are decoded before and acknowledgements are confirmed at once, as with the memory
//! store; encoding is counted only where a row says so.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mqttcore_codec::{
    Ack, Limits, Packet, PacketId, Properties, PropertiesBuf, ProtocolVersion, Publish,
    PublishQoS as Sent, QoS, ReasonCode, Text, decode, decode_connect, encode,
};
use mqttcore_session::{
    Chunk, ConnectRequest, Delivery, Message, Request, ServerLimits, Session, Terms, Transmit,
};
use mqttcore_topics::{TopicLimits, TopicName};

/// A topic of 27 bytes, as devices use them.
const TOPIC: &str = "fleet/truck-0042/telemetry1";
const PAYLOAD: [u8; 64] = [b'x'; 64];
const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// One element is one message of the client's with its whole exchange: at QoS 2 that is PUBLISH
/// and PUBREL in, PUBREC and PUBCOMP out.
fn take(c: &mut Criterion) {
    let mut group = c.benchmark_group("session/in");
    group.throughput(Throughput::Elements(1));
    for qos in QOS {
        let (mut session, now) = connected(ProtocolVersion::V5);
        group.bench_function(BenchmarkId::from_parameter(u8::from(qos)), |b| {
            b.iter(|| {
                let publish = black_box(publish(qos));
                take_one(&mut session, now, publish);
            });
        });
    }
    group.finish();
}

fn take_one(session: &mut Session, now: Instant, publish: Publish<'_>) {
    let request = session.handle_packet(now, Packet::Publish(publish));
    let Ok(Request::Publish(request)) = request else {
        unreachable!("the publish is in order");
    };
    black_box(request.topic());
    if let Some(packet_id) = request.packet_id() {
        let qos = request.qos();
        let token = session.accept_publish(packet_id, qos, ReasonCode::SUCCESS);
        session.confirm(token);
        drain(session);
        if qos == QoS::ExactlyOnce {
            handle(session, now, Packet::PubRel(Ack::success(packet_id)));
        }
    }
}

/// One element is one message to the client with its whole exchange, not encoded.
fn hand_out(c: &mut Criterion) {
    let mut group = c.benchmark_group("session/out");
    group.throughput(Throughput::Elements(1));
    for qos in QOS {
        let (mut session, now) = connected(ProtocolVersion::V5);
        let message = message(qos);
        group.bench_function(BenchmarkId::from_parameter(u8::from(qos)), |b| {
            b.iter(|| {
                session.deliver(now, black_box(&message), Delivery::new(qos, &[]));
                let Some(Transmit::Publish(publish)) = session.poll_transmit() else {
                    unreachable!("a message was delivered");
                };
                if let Some(packet_id) = black_box(&publish).packet_id() {
                    acknowledge(&mut session, now, packet_id, qos);
                }
            });
        });
    }
    group.finish();
}

fn acknowledge(session: &mut Session, now: Instant, packet_id: PacketId, qos: QoS) {
    let ack = Ack::success(packet_id);
    if qos == QoS::AtLeastOnce {
        return handle(session, now, Packet::PubAck(ack));
    }
    handle(session, now, Packet::PubRec(ack));
    handle(session, now, Packet::PubComp(ack));
}

/// One element is one QoS 0 message to the client, as bytes: the publisher's own frame, a head of
/// its own for another version, and a Subscription Identifier added.
fn hand_out_bytes(c: &mut Criterion) {
    let id = [NonZeroU32::MIN];
    let rows: [(&str, ProtocolVersion, &[NonZeroU32]); 3] = [
        ("same_version", ProtocolVersion::V3_1_1, &[]),
        ("other_version", ProtocolVersion::V5, &[]),
        ("subscription_id", ProtocolVersion::V5, &id),
    ];
    let mut group = c.benchmark_group("session/out_bytes");
    group.throughput(Throughput::Elements(1));
    for (name, version, ids) in rows {
        let (mut session, now) = connected(version);
        let message = message(QoS::AtMostOnce);
        let (mut scratch, mut out) = (PropertiesBuf::default(), Vec::with_capacity(4096));
        group.bench_function(name, |b| {
            b.iter(|| {
                session.deliver(
                    now,
                    black_box(&message),
                    Delivery::new(QoS::AtMostOnce, ids),
                );
                let Some(Transmit::Publish(publish)) = session.poll_transmit() else {
                    unreachable!("a message was delivered");
                };
                if let Some((chunk, range)) = publish.shared_frame(version) {
                    return black_box((chunk.clone(), range)).1.len();
                }
                out.clear();
                let encoded = publish.encode_head(version, now, &mut scratch, &mut out);
                black_box((encoded, &out)).1.len()
            });
        });
    }
    group.finish();
}

/// One element is one of 1,000 sessions that get the same QoS 0 message.
fn fan_out(c: &mut Criterion) {
    let mut sessions: Vec<(Session, Instant)> = (0..1_000)
        .map(|_| connected(ProtocolVersion::V3_1_1))
        .collect();
    let message = message(QoS::AtMostOnce);
    let mut group = c.benchmark_group("session/fan_out");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("1000", |b| {
        b.iter(|| {
            for (session, now) in &mut sessions {
                session.deliver(*now, &message, Delivery::default());
                black_box(session.poll_transmit());
            }
        });
    });
    group.finish();
}

/// One element is one message that waited for a client: delivered while it was away, sent after
/// it came back, acknowledged.
fn queue(c: &mut Criterion) {
    let message = message(QoS::AtLeastOnce);
    let mut group = c.benchmark_group("session/queue");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("1000", |b| {
        b.iter(|| {
            let (mut session, now) = connected(ProtocolVersion::V3_1_1);
            session.detach(now, mqttcore_session::Cause::ConnectionLost);
            for _ in 0..1_000 {
                session.deliver(now, &message, Delivery::new(QoS::AtLeastOnce, &[]));
            }
            come_back(&mut session, now, ProtocolVersion::V3_1_1);
            while let Some(transmit) = session.poll_transmit() {
                if let Transmit::Publish(publish) = transmit
                    && let Some(packet_id) = publish.packet_id()
                {
                    acknowledge(&mut session, now, packet_id, QoS::AtLeastOnce);
                }
            }
            assert_eq!(session.queued(), 0);
        });
    });
    group.finish();
}

fn handle(session: &mut Session, now: Instant, packet: Packet<'_>) {
    let handled = session.handle_packet(now, black_box(packet));
    assert!(handled.is_ok(), "the packet is in order");
    if !matches!(handled, Ok(Request::None)) {
        unreachable!("an acknowledgement asks for nothing");
    }
    drop(handled);
    drain_controls(session);
}

/// Polls what is not a message; in the queue bench messages are polled by the caller.
fn drain_controls(session: &mut Session) {
    if session.queued() == 0 {
        drain(session);
    }
}

fn drain(session: &mut Session) {
    while let Some(transmit) = session.poll_transmit() {
        black_box(transmit);
    }
}

fn connected(version: ProtocolVersion) -> (Session, Instant) {
    let now = Instant::now();
    let mut session = Session::new(Arc::new(ServerLimits::default()));
    come_back(&mut session, now, version);
    drain(&mut session);
    (session, now)
}

fn come_back(session: &mut Session, now: Instant, version: ProtocolVersion) {
    let bytes: &[u8] = match version {
        ProtocolVersion::V5 => b"\x10\x0e\x00\x04MQTT\x05\x00\x00\x3c\x00\x00\x01c",
        _ => b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x3c\x00\x01c",
    };
    let limits = Arc::new(ServerLimits::default());
    let (connect, _) = decode_connect(bytes, &Limits::default())
        .expect("the CONNECT is valid")
        .expect("and whole");
    let request = ConnectRequest::parse(&connect, &limits).expect("and in order");
    let terms = Terms {
        session_present: true,
        ..Terms::new(limits)
    };
    session.connect(now, &request, terms);
}

fn publish(qos: QoS) -> Publish<'static> {
    let (packet_id, dup) = (PacketId::MIN, false);
    Publish {
        delivery: match qos {
            QoS::AtMostOnce => Sent::AtMostOnce,
            QoS::AtLeastOnce => Sent::AtLeastOnce { packet_id, dup },
            QoS::ExactlyOnce => Sent::ExactlyOnce { packet_id, dup },
        },
        retain: false,
        topic: Text::new(TOPIC).expect("a constant"),
        properties: Properties::EMPTY,
        payload: &PAYLOAD,
    }
}

/// A message in the frame of a 3.1.1 publisher.
fn message(qos: QoS) -> Message {
    let mut frame = Vec::new();
    encode(
        &Packet::Publish(publish(qos)),
        ProtocolVersion::V3_1_1,
        &mut frame,
    )
    .expect("it encodes");
    let chunk: Chunk = frame.clone().into();
    let (packet, _) = decode(&frame, ProtocolVersion::V3_1_1, &Limits::default())
        .expect("it decodes")
        .expect("it is whole");
    let Packet::Publish(publish) = packet else {
        unreachable!("a PUBLISH was encoded");
    };
    // INVARIANT: it is `TOPIC`.
    let topic = TopicName::parse(publish.topic.as_str(), &TopicLimits::default()).expect("a topic");
    let publish = (topic, &publish);
    Message::from_publish(
        Instant::now(),
        ProtocolVersion::V3_1_1,
        publish,
        &frame,
        &chunk,
        0,
    )
}

criterion_group!(benches, take, hand_out, hand_out_bytes, fan_out, queue);
criterion_main!(benches);
