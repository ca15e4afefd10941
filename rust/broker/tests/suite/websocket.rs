//! MQTT over WebSocket: the same packets, however they lie in frames.

use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant};
use mqttcore_codec::QoS;

use crate::common::frames::{BINARY, CLOSE, PING, PONG, REQUEST, Socket, frame};
use crate::common::frames::{websocket_config, with_websocket};
use crate::common::{
    Dice, Hello, Plugin, allow, challenge, config, deep_queues, end, eventually, start, start_with,
    v3, v5,
};

/// 3.1.1, clean session, no keep alive, client "w".
const CONNECT: &[u8] = b"\x10\x0D\x00\x04MQTT\x04\x02\x00\x00\x00\x01w";
const CONNACK: &[u8] = b"\x20\x02\x00\x00";
/// Filter "t" at QoS 0, packet 1.
const SUBSCRIBE: &[u8] = b"\x82\x06\x00\x01\x00\x01t\x00";
const SUBACK: &[u8] = b"\x90\x03\x00\x01\x00";
const PINGREQ: &[u8] = b"\xC0\x00";
const PINGRESP: &[u8] = b"\xD0\x00";
const CONTINUED: u8 = 0x00;
const LAST: u8 = 0x80;

/// A client that has its CONNACK.
fn connected(broker: &Broker) -> Socket {
    let mut socket = Socket::open(broker);
    socket.send_frame(BINARY, CONNECT);
    socket.expect(CONNACK);
    socket
}

/// A client of 5.0 that wants codes and no words.
fn terse() -> Hello {
    v5("five").without_problem_information()
}

/// A PUBLISH of 3.1.1 at QoS 0 to "t".
fn publish(payload: &[u8]) -> Vec<u8> {
    let len = payload.len() + 3;
    let group = |shift: u32| u8::try_from(len >> shift & 0x7F).expect("7 bits");
    let mut out = vec![0x30];
    match len {
        ..0x80 => out.push(group(0)),
        0x80..0x4000 => out.extend([0x80 | group(0), group(7)]),
        _ => out.extend([0x80 | group(0), 0x80 | group(7), group(14)]),
    }
    out.extend_from_slice(b"\x00\x01t");
    out.extend_from_slice(payload);
    out
}

/// [MQTT-6.0.0-2]
#[test]
fn a_conversation_in_frames_of_one_byte_is_understood() {
    let broker = start(websocket_config());
    let mut socket = Socket::open(&broker);

    for byte in [CONNECT, SUBSCRIBE, &publish(b"!"), PINGREQ].concat() {
        socket.send_frame(BINARY, &[byte]);
    }

    let wanted = [CONNACK, SUBACK, &publish(b"!"), PINGRESP].concat();
    assert_eq!(socket.bytes(wanted.len()), wanted);
}

/// [MQTT-6.0.0-2], and what answers them comes in a frame each: clients rely on it.
#[test]
fn several_packets_in_one_frame_are_all_handled() {
    let broker = start(websocket_config());
    let mut socket = Socket::open(&broker);

    socket.send_frame(
        BINARY,
        &[CONNECT, SUBSCRIBE, &publish(b"!"), PINGREQ].concat(),
    );

    for packet in [CONNACK, SUBACK, &publish(b"!"), PINGRESP] {
        socket.expect(packet);
    }
}

#[test]
fn a_packet_in_fragments_with_pings_between_them_is_one_packet() {
    let broker = start(websocket_config());
    let mut socket = connected(&broker);
    socket.send_frame(BINARY, SUBSCRIBE);
    socket.expect(SUBACK);
    let packet = publish(b"in four parts");

    socket.send_frame(0x02, &packet[..1]);
    socket.send_frame(PING, b"one");
    assert_eq!(socket.receive(), Some((PONG, b"one".to_vec())));
    socket.send_frame(CONTINUED, &packet[1..4]);
    socket.send_frame(CONTINUED, b"");
    socket.send_frame(PING, b"");
    assert_eq!(socket.receive(), Some((PONG, b"".to_vec())));
    socket.send_frame(LAST, &packet[4..]);

    socket.expect(&packet);
}

#[test]
fn a_ping_before_connect_is_answered() {
    let broker = start(websocket_config());
    let mut socket = Socket::open(&broker);

    socket.send_frame(PING, b"there?");

    assert_eq!(socket.receive(), Some((PONG, b"there?".to_vec())));
    socket.send_frame(BINARY, CONNECT);
    socket.expect(CONNACK);
}

/// The request, CONNECT and half of a frame's header come in one segment, and the session lives on
/// any shard: nothing of it is lost on the way there.
#[test]
fn a_partial_header_moves_to_the_clients_shard() {
    let broker = start(websocket_config());

    for number in 0..16 {
        let mut connect = CONNECT.to_vec();
        connect[14] = b'a' + number;
        let ping = frame(BINARY, PINGREQ);
        let mut socket = Socket::ask(
            &broker,
            &[REQUEST.as_bytes(), &frame(BINARY, &connect), &ping[..3]].concat(),
        );
        assert!(socket.head().starts_with("HTTP/1.1 101 "));
        socket.expect(CONNACK);
        socket.send(&ping[3..]);
        socket.expect(PINGRESP);
    }
}

#[test]
fn many_packets_of_every_size_pass_both_ways_however_they_are_split() {
    let broker = start(with_websocket(deep_queues()));
    let mut socket = connected(&broker);
    socket.send_frame(BINARY, SUBSCRIBE);
    socket.expect(SUBACK);
    let mut dice = Dice::new(11);
    let mut bytes = Vec::new();
    for len in [
        0, 1, 120, 130, 4_000, 5_000, 65_530, 65_600, 200_000, 900_000,
    ] {
        for _ in 0..3 {
            let mut byte = || u8::try_from(dice.below(256)).expect("a byte");
            let payload: Vec<u8> = (0..len).map(|_| byte()).collect();
            bytes.extend(publish(&payload));
        }
    }

    let mut sender = socket.stream.try_clone().expect("a second handle");
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let len = [7, 130, 9_000, 70_000, 150_000][dice.below(5)].min(rest.len());
            let (part, behind) = rest.split_at(len);
            let framed = frame(BINARY, part);
            let at = dice.below(framed.len());
            sender.write_all(&framed[..at]).expect("the broker reads");
            sender.write_all(&framed[at..]).expect("the broker reads");
            rest = behind;
        }
    });

    assert!(socket.bytes(bytes.len()) == bytes);
    writer.join().expect("all is sent");
}

#[test]
fn a_client_that_reads_late_gets_every_byte_in_order() {
    let broker = start(with_websocket(Config {
        shards: 1,
        ..deep_queues()
    }));
    let mut socket = connected(&broker);
    socket.send_frame(BINARY, SUBSCRIBE);
    socket.expect(SUBACK);
    let mut publisher = v3("publisher").connect(&broker);
    let mut wanted = Vec::new();
    for number in 0..200_u32 {
        let payload = number.to_be_bytes().repeat(12_500);
        publisher.publish("t", &payload, QoS::AtMostOnce);
        wanted.extend(publish(&payload));
    }
    publisher.ping();
    // A Pong has to wait for the end of the frame that fills the socket.
    socket.send_frame(PING, b"late");

    let (mut found, mut pongs) = (Vec::new(), 0);
    while found.len() < wanted.len() || pongs == 0 {
        match socket.receive().expect("more bytes") {
            (BINARY, payload) => found.extend(payload),
            (first, payload) => {
                assert_eq!((first, &payload[..]), (PONG, &b"late"[..]));
                pongs += 1;
            }
        }
    }
    assert!(found == wanted);
}

/// [MQTT-6.0.0-1]
#[test]
fn a_text_frame_closes_the_connection_and_the_will_is_sent() {
    let broker = start(websocket_config());
    let mut watcher = v5("watcher").connect(&broker);
    watcher.subscribe("last", QoS::AtMostOnce);
    let mut socket = Socket::open(&broker);
    socket.send_frame(BINARY, &v3("leaver").will("last", "words").bytes());
    socket.expect(CONNACK);

    socket.send_frame(0x81, PINGREQ);

    socket.expect_close(1003);
    assert_eq!(watcher.message().text(), "words");
    assert_eq!(broker.stats().violations, 1);
}

#[test]
fn a_text_frame_before_connect_closes_the_connection() {
    let broker = start(websocket_config());
    let mut socket = Socket::open(&broker);

    socket.send_frame(0x81, CONNECT);

    socket.expect_close(1003);
    eventually("nothing is left", || broker.stats().connects_refused == 1);
}

#[test]
fn what_came_before_a_broken_frame_is_handled() {
    let broker = start(websocket_config());
    let mut watcher = v5("watcher").connect(&broker);
    watcher.subscribe("t", QoS::AtMostOnce);
    let mut socket = connected(&broker);

    socket.send(&[frame(BINARY, &publish(b"kept")), frame(0x81, b"")].concat());

    socket.expect_close(1003);
    assert_eq!(watcher.message().text(), "kept");
}

#[test]
fn a_refused_client_hears_why_in_a_frame() {
    let mut config = websocket_config();
    config.listeners[1].anonymous = None;
    let broker = start(config);
    let mut socket = Socket::open(&broker);

    socket.send_frame(BINARY, CONNECT);

    socket.expect(b"\x20\x02\x00\x05");
    socket.expect_close(1000);
}

#[test]
fn a_broken_packet_is_answered_in_a_frame_and_closed() {
    let broker = start(websocket_config());
    let mut socket = Socket::open(&broker);
    socket.send_frame(BINARY, &terse().bytes());
    assert_eq!(socket.receive().map(|(first, _)| first), Some(BINARY));

    socket.send_frame(BINARY, b"\x00\x00");

    socket.expect(b"\xE0\x01\x81");
    socket.expect_close(1000);
}

/// AUTH travels before CONNACK, when the handshake still has the socket.
#[test]
fn mqtt_6_0_0_2_an_exchange_before_connack_is_in_frames() {
    let plugin = Plugin::default().method("m", |said, reply| {
        reply.send(match said.step {
            0 => challenge("q"),
            _ => end(allow(Grant::everything()), ""),
        });
    });
    let broker = start_with(websocket_config(), plugin);
    let mut socket = Socket::open(&broker);

    socket.send_frame(BINARY, &v5("one").method("m", "").bytes());
    socket.expect(b"\xF0\x0A\x18\x08\x15\x00\x01m\x16\x00\x01q");
    socket.send_frame(BINARY, b"\xF0\x06\x18\x04\x15\x00\x01m");

    let (_, connack) = socket.receive().expect("CONNACK");
    assert_eq!((connack[0], connack[3]), (0x20, 0));
}

#[test]
fn a_close_is_answered_and_is_no_disconnect() {
    let broker = start(websocket_config());
    let mut watcher = v5("watcher").connect(&broker);
    watcher.subscribe("last", QoS::AtMostOnce);
    let mut socket = Socket::open(&broker);
    socket.send_frame(BINARY, &v3("leaver").will("last", "words").bytes());
    socket.expect(CONNACK);

    socket.send_frame(CLOSE, b"\x03\xE9");

    socket.expect_close(1001);
    assert_eq!(watcher.message().text(), "words");
}

#[test]
fn a_disconnect_ends_with_a_close() {
    let broker = start(websocket_config());
    let mut socket = connected(&broker);

    socket.send_frame(BINARY, b"\xE0\x00");

    socket.expect_close(1000);
    eventually("it is gone", || broker.stats().clients_connected == 0);
}

#[test]
fn a_takeover_between_transports_ends_the_older_one() {
    let broker = start(websocket_config());
    let mut socket = connected(&broker);

    let mut newer = v3("w").connect(&broker);

    socket.expect_close(1000);
    newer.ping();
}

#[test]
fn a_broker_that_stops_says_so_in_a_frame() {
    let broker = start(websocket_config());
    let mut socket = Socket::open(&broker);
    socket.send_frame(BINARY, &terse().bytes());
    assert_eq!(socket.receive().map(|(first, _)| first), Some(BINARY));

    let stopping = std::thread::spawn(move || broker.stop(Duration::from_secs(5)));

    socket.expect(b"\xE0\x01\x8B");
    socket.expect_close(1000);
    stopping.join().expect("it stops");
}

#[test]
fn a_request_for_another_path_is_answered_and_closed() {
    let broker = start(websocket_config());
    let mut socket = Socket::ask(&broker, REQUEST.replace("/mqtt", "/admin").as_bytes());

    assert!(socket.head().starts_with("HTTP/1.1 404 "));
    eventually("nothing is left", || broker.stats().connects_refused == 1);
}

#[test]
fn a_request_that_never_ends_is_not_waited_for() {
    let broker = start(Config {
        connect_deadline: Duration::from_millis(300),
        ..websocket_config()
    });
    let mut socket = Socket::ask(&broker, &REQUEST.as_bytes()[..100]);

    assert!(socket.head().starts_with("HTTP/1.1 408 "));
}

#[test]
fn a_head_beyond_the_cap_is_refused_before_it_ends() {
    let broker = start(websocket_config());
    let long = format!("GET /mqtt HTTP/1.1\r\nX: {}", "x".repeat(8 * 1024));
    let mut socket = Socket::ask(&broker, long.as_bytes());

    assert!(socket.head().starts_with("HTTP/1.1 431 "));
}

#[test]
fn plain_packets_on_a_websocket_listener_are_refused_at_the_first_byte() {
    let broker = start(websocket_config());
    let mut socket = Socket::ask(&broker, &CONNECT[..1]);

    assert!(socket.head().starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_login_that_takes_its_time_leaves_the_frames_whole() {
    let (plugin, logins) = Plugin::logins();
    let mut config = with_websocket(config());
    config.listeners[1].anonymous = None;
    let broker = start_with(config, plugin);
    let mut socket = Socket::open(&broker);
    let ping = frame(BINARY, PINGREQ);
    socket.send(&[&frame(BINARY, CONNECT), &ping[..5]].concat());
    let (_, reply) = logins.recv_timeout(crate::common::DEADLINE).expect("asked");
    socket.send(&ping[5..]);

    reply.send(allow(Grant::everything()));

    let wanted = [CONNACK, PINGRESP].concat();
    assert_eq!(socket.bytes(wanted.len()), wanted);
}

/// The answer to a Ping does not wait for the next bytes.
#[test]
fn a_ping_right_behind_the_request_is_answered_at_once() {
    let broker = start(websocket_config());
    let request = [REQUEST.as_bytes(), &frame(PING, b"1")].concat();

    let mut socket = Socket::ask(&broker, &request);
    let soon = config().connect_deadline / 4;
    let set = socket.stream.set_read_timeout(Some(soon));
    set.expect("a timeout");

    assert!(socket.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(socket.receive(), Some((PONG, b"1".to_vec())));
}
