//! One connection, byte by byte.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{CONNACK, batch, connected, connecting, flags, numbers, rows, sent, texts};
use mqttcore_codec::ProtocolVersion;
use mqttcore_publisher::{ConnectOptions, Publisher, PublisherFailure};

/// The PUBLISH of row `number` of [`rows`] over MQTT 5.0, in one byte of length each.
fn publish(first_byte: u8, packet_id: u8, number: u8) -> Vec<u8> {
    let id = format!("q/3/1/{number}");
    let pair = [
        &[38, 0, 11][..],
        b"mqttcore-id",
        &[0, u8::try_from(id.len()).unwrap()],
        id.as_bytes(),
    ]
    .concat();
    let payload = number.to_string();
    let length = 2 + 1 + 2 + 1 + pair.len() + payload.len();
    [
        &[first_byte, u8::try_from(length).unwrap(), 0, 1, b't'][..],
        &[0, packet_id, u8::try_from(pair.len()).unwrap()],
        &pair,
        payload.as_bytes(),
    ]
    .concat()
}

const QOS_1: u8 = 0x32;
const QOS_2: u8 = 0x34;

fn failure(publisher: &mut Publisher, bytes: &[u8]) -> String {
    publisher.handle_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn it_begins_with_connect() {
    let login = ConnectOptions {
        client_id: "me",
        username: Some("u"),
        password: Some("pw"),
        keep_alive_s: 60,
        ..ConnectOptions::default()
    };
    let mut publisher = Publisher::new(&login, "q", 0).unwrap();

    let expected = [
        &[0x10, 27, 0, 4][..],
        b"MQTT\x05\xc2\x00\x3c",
        &[5, 39, 0, 1, 0, 0],
        b"\x00\x02me\x00\x01u\x00\x02pw",
    ]
    .concat();
    assert_eq!(sent(&mut publisher).unwrap(), expected);
    assert_eq!(sent(&mut publisher).unwrap(), []);
    assert!(!publisher.is_connected());
}

#[test]
fn before_5_it_begins_without_properties() {
    let version = ProtocolVersion::V3_1_1;
    let login = ConnectOptions {
        version,
        client_id: "me",
        ..ConnectOptions::default()
    };
    let mut publisher = Publisher::new(&login, "q", 0).unwrap();

    let expected = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02me";
    assert_eq!(sent(&mut publisher).unwrap(), expected);
}

#[test]
fn a_login_that_cannot_be_sent_is_refused() {
    let text = "x".repeat(65_536);
    for login in [
        ConnectOptions {
            client_id: "a\0b",
            ..ConnectOptions::default()
        },
        ConnectOptions {
            username: Some("u"),
            password: Some(&text),
            ..ConnectOptions::default()
        },
        ConnectOptions {
            version: ProtocolVersion::V3_1_1,
            password: Some("pw"),
            ..ConnectOptions::default()
        },
    ] {
        let Err(refused) = Publisher::new(&login, "q", 0) else {
            panic!("it is taken")
        };
        assert!(
            refused
                .to_string()
                .starts_with("client identifier, user name or password: "),
            "{refused}"
        );
    }
}

#[test]
fn rows_are_sent_with_their_names_as_the_send_quota_allows() {
    let mut publisher = connected(2, &[]);
    publisher.publish(&rows(&[1, 1, 1])).unwrap();

    let first = [publish(QOS_1, 1, 0), publish(QOS_1, 2, 1)].concat();
    assert_eq!(sent(&mut publisher).unwrap(), first);
    assert_eq!(sent(&mut publisher).unwrap(), []);
    assert!(publisher.has_rows());

    publisher.handle_bytes(&[0x40, 2, 0, 2]).unwrap();

    assert_eq!(sent(&mut publisher).unwrap(), publish(QOS_1, 2, 2));
    assert!(!publisher.has_rows());
    assert_eq!((publisher.in_flight(), publisher.next_row()), (2, 3));
}

#[test]
fn nothing_but_connect_goes_out_before_the_server_answers() {
    let mut publisher = connecting(&ConnectOptions::default());
    publisher.publish(&rows(&[1])).unwrap();
    assert_eq!(sent(&mut publisher).unwrap(), []);

    publisher.handle_bytes(&CONNACK).unwrap();

    assert_eq!(sent(&mut publisher).unwrap(), publish(QOS_1, 1, 0));
}

#[test]
fn receive_maximum_limits_the_messages_in_flight() {
    for (in_flight_max, receive_maximum, room) in [(9, 3, 3), (3, 9, 3)] {
        let mut publisher = connected(in_flight_max, &[33, 0, receive_maximum]);
        publisher.publish(&rows(&[1; 12])).unwrap();

        sent(&mut publisher).unwrap();

        assert_eq!(publisher.in_flight(), room);
    }
}

#[test]
fn where_the_server_cannot_say_how_many_it_takes_it_gets_few() {
    for (version, connack, room) in [
        (ProtocolVersion::V5, &CONNACK[..], 1000),
        (ProtocolVersion::V3_1_1, &[0x20, 2, 0, 0], 20),
    ] {
        let login = ConnectOptions {
            version,
            ..ConnectOptions::default()
        };
        let mut publisher = connecting(&login);
        publisher.handle_bytes(connack).unwrap();
        publisher.publish(&rows(&vec![1; 2000])).unwrap();

        sent(&mut publisher).unwrap();

        assert_eq!(publisher.in_flight(), room);
    }
}

#[test]
fn qos_2_takes_four_packets() {
    let mut publisher = connected(1, &[]);
    publisher.publish(&rows(&[2, 2])).unwrap();
    assert_eq!(sent(&mut publisher).unwrap(), publish(QOS_2, 1, 0));

    publisher.handle_bytes(&[0x50, 2, 0, 1]).unwrap();
    assert_eq!(sent(&mut publisher).unwrap(), [0x62, 2, 0, 1]);
    publisher.handle_bytes(&[0x70, 2, 0, 1]).unwrap();

    assert_eq!(sent(&mut publisher).unwrap(), publish(QOS_2, 1, 1));
}

#[test]
fn a_message_that_would_not_be_acknowledged_is_raised_to_qos_1() {
    let mut publisher = connected(1, &[]);

    publisher.publish(&rows(&[0])).unwrap();

    assert_eq!(sent(&mut publisher).unwrap(), publish(QOS_1, 1, 0));
}

#[test]
fn no_matching_subscribers_is_no_refusal() {
    let mut publisher = connected(2, &[]);
    publisher.publish(&rows(&[1, 2])).unwrap();
    sent(&mut publisher).unwrap();

    publisher.handle_bytes(&[0x40, 3, 0, 1, 0x10]).unwrap();
    publisher.handle_bytes(&[0x50, 3, 0, 2, 0x10]).unwrap();

    assert_eq!(sent(&mut publisher).unwrap(), [0x62, 2, 0, 2]);
}

#[test]
fn a_refused_message_is_named_with_the_servers_reason() {
    let mut publisher = connected(9, &[]);
    publisher.publish(&rows(&[1, 1, 2])).unwrap();
    sent(&mut publisher).unwrap();

    assert_eq!(
        failure(&mut publisher, b"\x40\x0a\x00\x02\x87\x06\x1f\x00\x03not"),
        "the server rejected mqttcore-id q/3/1/1: 0x87 Not authorized (\"not\")"
    );
    assert_eq!(
        failure(&mut publisher, &[0x50, 3, 0, 3, 0x97]),
        "the server rejected mqttcore-id q/3/1/2: 0x97 Quota exceeded"
    );
}

#[test]
fn a_server_that_lets_nobody_in_says_why() {
    for (answer, words) in [
        (
            &b"\x20\x03\x00\x86\x00"[..],
            "the server rejected the connection: 0x86 Bad User Name or Password",
        ),
        // a server without MQTT 5.0 answers in its own form
        (
            b"\x20\x02\x00\x01",
            "the server rejected the connection: 0x84 Unsupported Protocol Version",
        ),
        (b"\x20\x03\x01\x00\x00", "[MQTT-3.2.2-4]"),
        (b"\x20\x05\x00\x00\x02\x24\x00", "supports QoS 0 only"),
        (b"\xe0\x00", "the server sent an unexpected Disconnect"),
        (b"\x40\x02\x00\x01", "unexpected PubAck"),
    ] {
        let mut publisher = connecting(&ConnectOptions::default());
        let said = failure(&mut publisher, answer);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_server_that_ends_the_connection_says_why() {
    let mut publisher = connected(9, &[]);

    let said = failure(&mut publisher, b"\xe0\x08\x8b\x06\x1f\x00\x03bye");

    assert_eq!(
        said,
        "the server disconnected: 0x8B Server shutting down (\"bye\")"
    );
}

#[test]
fn what_no_server_may_say_is_an_error() {
    for (bytes, words) in [
        (&[0x40, 2, 0, 2][..], "PubAck for packet identifier 2"),
        (&[0x50, 2, 0, 1], "PubRec for packet identifier 1"),
        (&[0x70, 2, 0, 1], "PubComp for packet identifier 1"),
        (&[0x40, 2, 0xFF, 0xFF], "PubAck for packet identifier 65535"),
        (&[0x40, 2, 0, 0], "not MQTT: [MQTT-2.2.1-3]"),
        (&CONNACK, "unexpected ConnAck"),
        (&[0x62, 2, 0, 1], "unexpected PubRel"),
        (&[0xC0, 0], "unexpected PingReq"),
        (
            b"HTTP/1.1 400 Bad Request",
            "the server sent bytes that are not MQTT",
        ),
        (
            &[0x30, 0xFF, 0xFF, 0xFF, 0x7F],
            "larger than the maximum packet size",
        ),
    ] {
        let mut publisher = connected(9, &[]);
        publisher.publish(&rows(&[1])).unwrap();
        sent(&mut publisher).unwrap();
        let said = failure(&mut publisher, bytes);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn messages_that_nobody_asked_for_are_left_alone() {
    let mut publisher = connected(9, &[]);

    publisher.handle_bytes(b"\x30\x05\x00\x01t\x00x").unwrap();
    publisher.handle_bytes(&[0xD0, 0]).unwrap();

    assert_eq!(sent(&mut publisher).unwrap(), []);
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut publisher = connected(9, &[]);
    publisher.publish(&rows(&[1, 2])).unwrap();
    sent(&mut publisher).unwrap();

    for byte in [0x40, 2, 0, 1, 0x50, 3, 0, 2, 0, 0x70, 2, 0, 2] {
        publisher.handle_bytes(&[byte]).unwrap();
    }

    assert_eq!(publisher.in_flight(), 0);
    assert_eq!(sent(&mut publisher).unwrap(), [0x62, 2, 0, 2]);
}

#[test]
fn it_pings_and_disconnects_when_it_is_told_to() {
    let mut publisher = connected(9, &[19, 0, 7]);
    assert_eq!(publisher.keep_alive_s(), 7);
    publisher.ping();
    assert_eq!(sent(&mut publisher).unwrap(), [0xC0, 0]);
    publisher.disconnect();
    assert_eq!(sent(&mut publisher).unwrap(), [0xE0, 0]);
}

#[test]
fn what_is_handed_out_at_a_time_is_bounded() {
    let mut publisher = connected(u16::MAX, &[]);
    publisher.publish(&rows(&vec![1; 20_000])).unwrap();

    let sizes: Vec<usize> = std::iter::from_fn(|| {
        let size = sent(&mut publisher).unwrap().len();
        (size > 0).then_some(size)
    })
    .collect();

    assert!(sizes.len() > 2, "{sizes:?}");
    assert!(sizes.iter().all(|&size| size < 257 * 1024), "{sizes:?}");
    assert_eq!(publisher.in_flight(), 20_000);
}

// --- rows that cannot be sent

/// The error of a batch whose second row is wrong, for a server with these properties.
fn refused(properties: &[u8], topic: &str, payload: &str, qos: i64, retain: bool) -> String {
    let mut publisher = connected(9, properties);
    let wrong = batch([
        ("topic", texts(&["t", topic])),
        ("payload", texts(&["fine", payload])),
        ("qos", numbers(&[1, qos])),
        ("retain", flags(&[false, retain])),
    ]);

    let failure = publisher.publish(&wrong).unwrap_err();

    assert!(matches!(failure, PublisherFailure::Row { .. }));
    assert_eq!(sent(&mut publisher).unwrap(), [], "the first row went out");
    failure.to_string()
}

#[test]
fn a_row_that_no_server_takes_is_named_before_its_batch_goes_out() {
    for (topic, words) in [
        ("", "topic \"\": [MQTT-4.7.3-1]"),
        ("a/#", "topic \"a/#\": [MQTT-4.7.0-1]"),
        ("+", "topic \"+\": [MQTT-4.7.0-1]"),
        ("a\0b", "topic \"a\\0b\": [MQTT-4.7.3-2]"),
        (&"x".repeat(65_536), "xxx\"...: [MQTT-4.7.3-3]"),
    ] {
        let said = refused(&[], topic, "", 1, false);
        assert!(said.starts_with("mqttcore-id q/3/1/1: "), "{said}");
        assert!(said.contains(words) && said.len() < 300, "{said}");
    }
    assert!(refused(&[], "t", "", 3, false).ends_with("3 is not a QoS: allowed are 0, 1 and 2"));
}

#[test]
fn a_row_that_this_server_does_not_take_is_named_before_its_batch_goes_out() {
    assert_eq!(
        refused(&[36, 1], "t", "", 2, false),
        "mqttcore-id q/3/1/1: QoS 2 is above the server's Maximum QoS"
    );
    assert_eq!(
        refused(&[37, 0], "t", "", 1, true),
        "mqttcore-id q/3/1/1: the server does not support retained messages"
    );
    // 5 of header and topic, 2 of the identifier, 1 + 23 of the properties
    let said = refused(&[39, 0, 0, 0, 40], "t", "1234567890", 1, false);
    assert_eq!(
        said,
        "mqttcore-id q/3/1/1: the packet has 41 bytes; the server accepts at most 40"
    );
}

#[test]
fn a_packet_as_large_as_the_server_takes_goes_out() {
    let mut publisher = connected(9, &[39, 0, 0, 0, 40]);
    let fits = batch([("topic", texts(&["t"])), ("payload", texts(&["123456789"]))]);

    publisher.publish(&fits).unwrap();

    assert_eq!(sent(&mut publisher).unwrap().len(), 40);
}

#[test]
fn rows_that_came_before_the_server_are_held_against_it_too() {
    let mut publisher = connecting(&ConnectOptions::default());
    publisher.publish(&rows(&[1, 2])).unwrap();
    publisher.handle_bytes(&[0x20, 5, 0, 0, 2, 36, 1]).unwrap();

    let failure = sent(&mut publisher).unwrap_err().to_string();

    assert!(failure.contains("q/3/1/1: QoS 2"), "{failure}");
}

#[test]
fn columns_that_the_protocol_cannot_carry_are_refused() {
    let login = ConnectOptions {
        version: ProtocolVersion::V3_1_1,
        ..ConnectOptions::default()
    };
    let mut publisher = connecting(&login);
    publisher.handle_bytes(&[0x20, 2, 0, 0]).unwrap();

    let more = batch([
        ("topic", texts(&["t"])),
        ("payload", texts(&[""])),
        ("expiry", numbers(&[60])),
    ]);
    let failure = publisher.publish(&more).unwrap_err().to_string();
    assert_eq!(failure, "column expiry requires MQTT 5.0");

    publisher.publish(&rows(&[1])).unwrap();
    assert_eq!(
        sent(&mut publisher).unwrap(),
        [0x32, 6, 0, 1, b't', 0, 1, b'0']
    );
}

#[test]
fn numbers_go_on_where_another_connection_ended() {
    let mut publisher = Publisher::new(&ConnectOptions::default(), "q/3/1", 7).unwrap();
    sent(&mut publisher).unwrap();
    publisher.handle_bytes(&CONNACK).unwrap();

    publisher.publish(&rows(&[1])).unwrap();
    publisher
        .publish(&batch([
            ("topic", texts(&["t", "#"])),
            ("payload", texts(&["", ""])),
        ]))
        .map_err(|failure| assert!(failure.to_string().contains("q/3/1/9"), "{failure}"))
        .unwrap_err();

    let out = sent(&mut publisher).unwrap();
    assert!(out.windows(7).any(|part| part == b"q/3/1/7"));
    assert_eq!(publisher.next_row(), 8);
}

#[test]
fn a_row_behind_others_that_wait_is_named_by_its_own_number() {
    let mut publisher = connected(2, &[]);
    publisher.publish(&rows(&[1, 1, 1])).unwrap();
    sent(&mut publisher).unwrap();

    let failure = publisher.publish(&rows(&[1, 7])).unwrap_err().to_string();

    assert_eq!(
        failure,
        "mqttcore-id q/3/1/4: 7 is not a QoS: allowed are 0, 1 and 2"
    );
}

#[test]
fn a_batch_without_rows_is_nothing() {
    let mut publisher = connected(2, &[]);

    publisher.publish(&rows(&[])).unwrap();

    assert!(!publisher.has_rows());
}

#[test]
fn a_retained_row_says_so() {
    let mut publisher = connected(2, &[]);
    let retained = batch([
        ("topic", texts(&["t", "t"])),
        ("payload", texts(&["0", "1"])),
        ("retain", flags(&[true, false])),
    ]);

    publisher.publish(&retained).unwrap();

    let expected = [publish(QOS_1 | 1, 1, 0), publish(QOS_1, 2, 1)].concat();
    assert_eq!(sent(&mut publisher).unwrap(), expected);
}
