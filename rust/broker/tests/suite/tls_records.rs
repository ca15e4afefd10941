//! TLS records without payload, such as requests for new keys, are limited like control packets (abuse I01).

use std::io::{Read, Write};
use std::sync::mpsc::Receiver;

use mqttcore_broker::{AddressLimits, Broker, ClientRates, Config};

use crate::common::frames::with_websocket;
use crate::common::{line_about, logged};
use crate::tls_client::{Dial, Files, TlsSocket, connect_packet, tls_config};

/// More of them in a row are a fault for rustls.
const MOST_IN_A_ROW: usize = 32;
/// Records for one read of the broker, and some more.
const OF_A_READ: usize = 700;

/// Bytes after which all requests are too many, without those that are read with the end of the handshake, which do not count.
const BYTES: usize = 8;

/// TLS, and at most 10 control packets a second.
fn limited(files: &Files) -> Config {
    Config {
        client_rates: ClientRates {
            control_packets: 10,
            ..ClientRates::default()
        },
        address_limits: AddressLimits {
            exempt: Vec::new(),
            ..AddressLimits::default()
        },
        ..tls_config(files.settings())
    }
}

fn broker(files: &Files) -> (Broker, Receiver<String>) {
    logged(limited(files))
}

/// Sends each byte after `requests` requests for new keys, all in one write.
fn send(socket: &mut TlsSocket, requests: usize, bytes: &[u8]) {
    let session = &mut socket.conn;
    session.set_buffer_limit(None);
    let mut records = Vec::new();
    for byte in bytes {
        for _ in 0..requests {
            session.refresh_traffic_keys().expect("TLS 1.3");
        }
        session.writer().write_all(&[*byte]).expect("no limit");
        while session.wants_write() {
            session.write_tls(&mut records).expect("a vector");
        }
    }
    socket
        .sock
        .write_all(&records)
        .expect("the socket has room");
}

#[test]
fn i01_requests_for_new_keys_in_a_row_end_the_connection_with_a_reason() {
    let files = Files::new("client");
    let (broker, lines) = broker(&files);
    let address = broker.addresses()[0];
    let dial = Dial::new(&files.made.ca);
    let mut honest = dial.connect(address, "honest").expect("let in");
    let mut hostile = dial.connect(address, "hostile").expect("let in");

    let ping = |socket: &mut TlsSocket| {
        send(socket, 1, b"\xC0\x00");
        socket.read_exact(&mut [0; 2]).expect("PINGRESP");
    };
    ping(&mut honest);
    send(&mut hostile, MOST_IN_A_ROW + 1, b"\xC0");

    let line = line_about(&lines, "too many control packets a second");
    assert!(line.contains("hostile"), "{line}");
    ping(&mut honest);
    assert_eq!(broker.stats().violations, 1);
    assert_eq!(broker.stats().refused_rate, 1);
}

#[test]
fn i01_a_flood_of_requests_for_new_keys_ends_with_the_rate_of_control_packets() {
    let files = Files::new("client");
    let (broker, lines) = broker(&files);
    let dial = Dial::new(&files.made.ca);
    let mut hostile = dial
        .connect(broker.addresses()[0], "hostile")
        .expect("let in");

    let reads_until_the_end = 5;
    let groups = reads_until_the_end * OF_A_READ / MOST_IN_A_ROW;
    send(&mut hostile, MOST_IN_A_ROW, &b"\xC0\x00".repeat(groups / 2));

    let line = line_about(&lines, "too many control packets a second");
    assert!(line.contains("hostile"), "{line}");
    assert_eq!(broker.stats().refused_rate, 1);
}

#[test]
fn i01_requests_for_new_keys_instead_of_connect_end_the_connection() {
    let files = Files::new("client");
    let (broker, lines) = broker(&files);
    let dial = Dial::new(&files.made.ca);
    let mut hostile = dial.open(broker.addresses()[0]).expect("a handshake");

    send(&mut hostile, MOST_IN_A_ROW, &connect_packet("id")[..BYTES]);

    line_about(&lines, "TLS records without payload");
    assert_eq!(broker.stats().connects_refused, 1);
}

#[test]
fn i01_requests_for_new_keys_instead_of_an_upgrade_end_the_connection() {
    let files = Files::new("client");
    let mut config = with_websocket(limited(&files));
    config.listeners[1].tls = Some(files.settings());
    let (broker, lines) = logged(config);
    let dial = Dial::new(&files.made.ca);
    let mut hostile = dial.open(broker.addresses()[1]).expect("a handshake");

    send(&mut hostile, MOST_IN_A_ROW, &b"GET / HTTP/1.1"[..BYTES]);

    line_about(&lines, "too many TLS records without payload");
    assert_eq!(broker.stats().connects_refused, 1);
}
