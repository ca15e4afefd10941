//! Acknowledgements that are due when the broker ends a connection: they leave before DISCONNECT.

use std::time::Duration;

use mqttcore_broker::{Broker, Config, Data, Durability};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::ServerLimits;

use crate::common::frames::{BINARY, Socket, frame, with_websocket};
use crate::common::{
    Client, DEADLINE, Home, Received, config, config_with_limits, eventually, start, v3, v5,
};

fn on_disk(home: &Home) -> Config {
    Config {
        data: Some(Data {
            durability: Durability::Fsync,
            ..home.data(0)
        }),
        ..config()
    }
}

/// A broker that acknowledges what the disk has.
fn slow(home: &Home) -> Broker {
    start(on_disk(home))
}

/// Messages that the store has to keep, as one write.
fn retained(qos: QoS, ids: std::ops::RangeInclusive<u16>) -> Vec<u8> {
    let head = 0x31 | (qos as u8) << 1;
    let frame = |id: u16| {
        let [high, low] = id.to_be_bytes();
        [head, 7, 0, 1, b't', high, low, 0, b'!']
    };
    ids.flat_map(frame).collect()
}

fn pubacks(ids: std::ops::RangeInclusive<u16>) -> Vec<Received> {
    ids.map(|id| Received::PubAck(id, ReasonCode::NO_MATCHING_SUBSCRIBERS))
        .collect()
}

/// [MQTT-3.3.4-7] Without its acknowledgements the client would send the same messages for ever.
#[test]
fn a_client_above_receive_maximum_is_acknowledged_what_was_accepted_and_then_disconnected() {
    let most = ServerLimits::default().receive_maximum;
    let home = Home::new();
    let broker = slow(&home);
    let mut client = v5("eager").keeping_session_s(60).connect(&broker);

    client.send_bytes(&retained(QoS::AtLeastOnce, 1..=most + 1));

    let mut expected = pubacks(1..=most);
    expected.push(Received::Disconnect(ReasonCode::RECEIVE_MAXIMUM_EXCEEDED));
    assert_eq!(client.until_closed(), expected);
}

#[test]
fn without_a_store_the_same_acknowledgements_leave() {
    let most = ServerLimits::default().receive_maximum;
    let broker = start(config());
    let mut client = v5("eager").connect(&broker);

    client.send_bytes(&retained(QoS::AtLeastOnce, 1..=most + 1));

    let mut expected = pubacks(1..=most);
    expected.push(Received::Disconnect(ReasonCode::RECEIVE_MAXIMUM_EXCEEDED));
    assert_eq!(client.until_closed(), expected);
}

#[test]
fn pubrec_pubcomp_and_suback_are_due_before_a_protocol_error_as_well() {
    let home = Home::new();
    let broker = slow(&home);
    let mut client = v5("odd").keeping_session_s(60).connect(&broker);
    client.send_bytes(&retained(QoS::ExactlyOnce, 1..=1));
    let accepted = Received::PubRec(1, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(client.receive(), accepted);

    let release = b"\x62\x02\x00\x01";
    let subscribe = b"\x82\x08\x00\x09\x00\x00\x02q/\x00";
    let connack = b"\x20\x03\x00\x00\x00";
    let publish = retained(QoS::ExactlyOnce, 2..=2);
    client.send_bytes(&[&release[..], &publish, subscribe, connack].concat());

    let last = client.until_closed();
    assert_eq!(
        last,
        [
            Received::PubComp(1, ReasonCode::SUCCESS),
            Received::PubRec(2, ReasonCode::NO_MATCHING_SUBSCRIBERS),
            Received::SubAck(9, vec![ReasonCode::SUCCESS]),
            Received::Disconnect(ReasonCode::PROTOCOL_ERROR),
        ]
    );
}

/// 3.1.1 has no DISCONNECT from the server, but its acknowledgements are due all the same.
#[test]
fn a_3_1_1_client_that_is_closed_was_acknowledged() {
    let home = Home::new();
    let broker = slow(&home);
    let mut client = v3("odd").connect(&broker);

    let publish = b"\x33\x06\x00\x01t\x00\x01!";
    client.send_bytes(&[&publish[..], b"\x20\x02\x00\x00"].concat());

    let expected = Received::PubAck(1, ReasonCode::SUCCESS);
    assert_eq!(client.until_closed(), [expected]);
}

/// A publish has been handled, and is perhaps not acknowledged yet.
fn published(broker: &Broker, id: &str) -> Client {
    let before = broker.stats().messages_received;
    let mut client = v5(id).keeping_session_s(60).connect(broker);
    client.send_bytes(&retained(QoS::AtLeastOnce, 1..=1));
    eventually("it is handled", || {
        broker.stats().messages_received > before
    });
    client
}

#[test]
fn acknowledgements_are_sent_before_the_broker_disconnects_a_client_or_another_takes_over() {
    let home = Home::new();
    let broker = slow(&home);

    let mut sent_away = published(&broker, "sent-away");
    assert!(broker.disconnect("sent-away", ReasonCode::ADMINISTRATIVE_ACTION));
    let mut taken_over = published(&broker, "taken-over");
    let mut new = v5("taken-over").keeping_session_s(60).connect(&broker);

    for (client, reason) in [
        (&mut sent_away, ReasonCode::ADMINISTRATIVE_ACTION),
        (&mut taken_over, ReasonCode::SESSION_TAKEN_OVER),
    ] {
        let mut expected = pubacks(1..=1);
        expected.push(Received::Disconnect(reason));
        assert_eq!(client.until_closed(), expected);
    }
    new.ping();
}

#[test]
fn acknowledgements_are_sent_before_the_broker_stops() {
    let home = Home::new();
    let broker = slow(&home);
    let mut client = published(&broker, "last");

    let stopping = std::thread::spawn(move || broker.stop(DEADLINE));

    let mut expected = pubacks(1..=1);
    expected.push(Received::Disconnect(ReasonCode::SERVER_SHUTTING_DOWN));
    assert_eq!(client.until_closed(), expected);
    stopping.join().expect("stopped");
}

/// The client's own DISCONNECT comes in the same write as its messages.
#[test]
fn a_client_that_disconnects_itself_is_acknowledged_what_was_accepted() {
    let home = Home::new();
    let broker = slow(&home);
    let mut client = v5("brief").keeping_session_s(60).connect(&broker);

    let publishes = retained(QoS::AtLeastOnce, 1..=3);
    client.send_bytes(&[&publishes[..], b"\xE0\x00"].concat());

    assert_eq!(client.until_closed(), pubacks(1..=3));
}

#[test]
fn a_3_1_1_client_that_disconnects_itself_is_acknowledged_what_was_accepted() {
    let home = Home::new();
    let broker = slow(&home);
    let mut client = v3("brief").connect(&broker);

    client.send_bytes(b"\x33\x06\x00\x01t\x00\x01!\xE0\x00");

    let expected = Received::PubAck(1, ReasonCode::SUCCESS);
    assert_eq!(client.until_closed(), [expected]);
}

/// It sends nothing more, but takes what it is owed.
#[test]
fn a_client_that_closes_its_sending_half_is_acknowledged_what_was_accepted() {
    let home = Home::new();
    let broker = slow(&home);
    let mut new = v5("new").keeping_session_s(60).connect(&broker);
    let mut old = v3("old").connect(&broker);

    new.send_bytes(&retained(QoS::AtLeastOnce, 1..=3));
    new.half_close();
    old.send_bytes(b"\x33\x06\x00\x01t\x00\x01!");
    old.half_close();

    assert_eq!(new.until_closed(), pubacks(1..=3));
    let expected = Received::PubAck(1, ReasonCode::SUCCESS);
    assert_eq!(old.until_closed(), [expected]);
}

/// The client may trust nothing that follows bytes that are no frames, but what it sent before was accepted.
#[test]
fn a_websocket_client_that_breaks_its_frames_is_acknowledged_what_was_accepted() {
    let home = Home::new();
    let broker = start(with_websocket(on_disk(&home)));
    let mut socket = Socket::open(&broker);
    socket.send_frame(BINARY, b"\x10\x0D\x00\x04MQTT\x04\x02\x00\x00\x00\x01o");
    socket.expect(b"\x20\x02\x00\x00");

    let publish = frame(BINARY, b"\x33\x06\x00\x01t\x00\x01!");
    let no_frame = frame(0xF2, b"");
    socket.send(&[publish, no_frame].concat());

    socket.expect(b"\x40\x02\x00\x01");
    socket.expect_close(1002);
}

/// PUBLISHes that do not fit are left out as a whole.
#[test]
fn disconnect_reaches_a_client_with_more_queued_bytes_than_are_still_sent() {
    const PAYLOAD: usize = 60_000;
    let broker = start(config_with_limits(|limits| {
        limits.qos0_backlog_bytes = 1 << 30;
    }));
    let mut slow = v5("slow").receive_buffer(64 * 1024).connect(&broker);
    slow.subscribe("flood", QoS::AtMostOnce);
    let mut publisher = v5("publisher").connect(&broker);
    for _ in 0..200 {
        publisher.publish("flood", vec![b'x'; PAYLOAD], QoS::AtMostOnce);
    }
    eventually("all are on their way", || {
        broker.stats().messages_sent == 200
    });

    assert!(broker.disconnect("slow", ReasonCode::ADMINISTRATIVE_ACTION));

    let mut packets = slow.until_closed();
    let last = Received::Disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert_eq!(packets.pop(), Some(last));
    assert!(packets.len() < 200, "more waits than still leaves");
    for packet in packets {
        assert!(matches!(packet, Received::Publish(message) if message.payload.len() == PAYLOAD));
    }
}

/// The system holds a MiB of such messages unsent, and takes the last bytes all the same (ADR 0147).
#[test]
fn disconnect_reaches_a_client_of_large_messages_that_reads_them_later() {
    let broker = start(config_with_limits(|limits| {
        limits.qos0_backlog_bytes = 1 << 30;
    }));
    let mut slow = v5("slow").receive_buffer(64 * 1024).connect(&broker);
    slow.subscribe("flood", QoS::AtMostOnce);
    let mut publisher = v5("publisher").connect(&broker);
    for _ in 0..20 {
        publisher.publish("flood", vec![b'x'; 256 * 1024], QoS::AtMostOnce);
    }
    eventually("its socket is full", || {
        let stats = broker.stats();
        stats.messages_sent == 20 && stats.bytes_sent > 1 << 20
    });

    assert!(broker.disconnect("slow", ReasonCode::ADMINISTRATIVE_ACTION));
    // The broker does not wait for it as long.
    publisher.hears_nothing_for(Duration::from_millis(1_500));

    let last = Received::Disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert_eq!(slow.until_closed().pop(), Some(last));
}
