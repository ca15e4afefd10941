//! PROXY headers in front of connections: who may send them, and what they change.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant, Network, Peer, PeerIdentity};

use crate::common::{Client, DEADLINE, Plugin, allow, config, start_with, v5};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.9 56324 1883\r\n";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";

fn proxied() -> Config {
    let mut config = config();
    config.listeners[0].proxies = vec![network("127.0.0.0/8")];
    config
}

fn network(text: &str) -> Network {
    text.parse().expect("a network")
}

/// A broker, and the lines of its log.
fn logged(config: Config) -> (Broker, Receiver<String>) {
    let (sender, lines) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().log_lines(move |line| {
        let _ = sender.lock().expect("no panic").send(line);
    });
    (start_with(config, plugin), lines)
}

fn line_about(lines: &Receiver<String>, what: &str) -> String {
    loop {
        let line = lines.recv_timeout(DEADLINE).expect("a line");
        if line.contains(what) {
            return line;
        }
    }
}

fn open(broker: &Broker) -> Client {
    v5("c").open(broker.addresses()[0])
}

fn peer(broker: &Broker) -> Peer {
    broker.clients()[0].peer
}

/// A header of version 2 over TCP/IPv4 from 192.0.2.7 port 4660, with TLVs.
fn v2(tlvs: &[u8]) -> Vec<u8> {
    let rest = [
        &[192, 0, 2, 7, 192, 0, 2, 9, 0x12, 0x34, 0x07, 0x5b][..],
        tlvs,
    ]
    .concat();
    let len = u8::try_from(rest.len()).expect("short");
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"[..], &[len], &rest].concat()
}

/// An SSL TLV with a verified certificate of this common name.
fn certified(name: &str) -> Vec<u8> {
    let len = u8::try_from(name.len()).expect("short");
    [
        &[0x20, 0, len + 8, 7, 0, 0, 0, 0, 0x22, 0, len][..],
        name.as_bytes(),
    ]
    .concat()
}

#[test]
fn the_peer_is_the_client_behind_the_proxy() {
    let source = |port| Peer::Tcp(SocketAddr::from(([192, 0, 2, 7], port)));
    for (header, wanted) in [(V1.to_vec(), source(56324)), (v2(&[]), source(0x1234))] {
        let (broker, _) = logged(proxied());
        let mut client = open(&broker);

        client.send_bytes(&[&header[..], &v5("c").bytes()].concat());

        client.expect_welcome();
        client.ping();
        assert_eq!(peer(&broker), wanted);
    }
}

#[test]
fn a_header_may_come_byte_by_byte() {
    let (broker, _) = logged(proxied());
    for header in [V1.to_vec(), v2(&certified("truck-1"))] {
        let mut client = open(&broker);
        for byte in &header {
            client.send_bytes(&[*byte]);
        }
        client.send_bytes(&v5("c").bytes());
        client.expect_welcome();
    }
}

#[test]
fn i13_a_connection_of_the_proxy_itself_keeps_its_address() {
    let (broker, _) = logged(proxied());
    let mut client = open(&broker);

    client.send_bytes(&[LOCAL, &v5("c").bytes()].concat());

    client.expect_welcome();
    assert!(peer(&broker).ip().is_some_and(|ip| ip.is_loopback()));
}

#[test]
fn i13_a_header_of_an_address_that_is_not_listed_is_refused() {
    let mut config = proxied();
    config.listeners[0].proxies = vec![network("192.0.2.0/24")];
    let (broker, lines) = logged(config);
    let mut client = open(&broker);

    client.try_send_bytes(&[V1, &v5("c").bytes()].concat());

    assert!(client.until_closed().is_empty());
    let line = line_about(&lines, "proxy_from");
    assert!(line.contains("listener test: 127.0.0.1:"), "{line}");
}

#[test]
fn i13_a_listed_address_has_to_send_a_header() {
    let (broker, lines) = logged(proxied());
    let mut client = open(&broker);

    client.send_bytes(&v5("c").bytes());

    assert!(client.until_closed().is_empty());
    line_about(&lines, "PROXY header: there is none");
    assert_eq!(broker.stats().connects_refused, 1);
}

#[test]
fn i13_a_header_counts_into_the_deadline_of_connect() {
    let mut config = proxied();
    config.connect_deadline = Duration::from_millis(300);
    let (broker, lines) = logged(config);
    let mut slow = open(&broker);
    slow.send_bytes(&V1[..20]);

    assert!(slow.until_closed().is_empty());
    line_about(&lines, "no PROXY header before the deadline");
}

#[test]
fn a15_a_header_on_a_listener_without_proxies_is_closed_with_a_hint() {
    for header in [V1.to_vec(), v2(&[])] {
        let (broker, lines) = logged(config());
        let mut client = open(&broker);

        client.send_bytes(&header);

        assert!(client.until_closed().is_empty());
        line_about(&lines, "list the proxy in its proxy_from");
    }
}

#[test]
fn a_certificate_that_the_proxy_has_verified_names_the_user() {
    let (sender, logins) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().authenticate(move |login, reply| {
        sender.lock().unwrap().send(login).unwrap();
        reply.send(allow(Grant::everything()));
    });
    let mut config = proxied();
    config.listeners[0].identity = Some(PeerIdentity::ProxyCommonName);
    let broker = start_with(config, plugin);
    for (tlvs, wanted, is_certified) in [
        (certified("truck-1"), "truck-1", true),
        (Vec::new(), "admin", false),
    ] {
        let hello = v5("c").username("admin");
        let mut client = hello.open(broker.addresses()[0]);
        client.send_bytes(&[v2(&tlvs), hello.bytes()].concat());
        client.expect_welcome();

        let login = logins.recv_timeout(DEADLINE).expect("a login");
        assert_eq!(login.username.as_deref(), Some(wanted));
        assert_eq!(login.is_certified, is_certified);
    }
}

#[test]
fn i13_a_client_with_another_protocol_in_alpn_is_refused() {
    let (broker, lines) = logged(proxied());
    let mut fits = open(&broker);
    fits.send_bytes(&[v2(b"\x01\0\x04mqtt"), v5("c").bytes()].concat());
    fits.expect_welcome();
    let mut other = open(&broker);

    other.send_bytes(&v2(b"\x01\0\x02h2"));

    assert!(other.until_closed().is_empty());
    line_about(&lines, "another protocol by ALPN");
}

#[test]
fn limits_by_address_count_the_client_behind_the_proxy() {
    let mut config = proxied();
    config.address_limits.exempt = Vec::new();
    config.address_limits.connections = 1;
    let (broker, lines) = logged(config);
    let connect = |header: &[u8], id: &str| {
        let mut client = v5(id).open(broker.addresses()[0]);
        client.try_send_bytes(&[header, &v5(id).bytes()].concat());
        client
    };
    let mut first = connect(V1, "one");
    first.expect_welcome();

    assert!(connect(V1, "two").until_closed().is_empty());
    let line = line_about(&lines, "too many connections");
    assert!(line.contains("192.0.2.7:56324"), "{line}");
    connect(b"PROXY TCP4 192.0.2.8 192.0.2.9 1 1883\r\n", "three").expect_welcome();
    // The proxy's own connections have no share.
    connect(LOCAL, "four").expect_welcome();
}
