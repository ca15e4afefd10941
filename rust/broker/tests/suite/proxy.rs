//! PROXY headers in front of connections: who may send them, and what they change.

use std::net::SocketAddr;
use std::time::Duration;

use mqttcore_broker::tls::Identity;
use mqttcore_broker::{Broker, Config, Grant, LoginDecision, Network, Peer, PeerIdentity};
use mqttcore_codec::ReasonCode;

use crate::common::{
    Client, DEADLINE, Plugin, Received, allow, config, line_about, logged, start_with, told_logins,
    v5,
};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.9 56324 1883\r\n";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";

fn proxied() -> Config {
    let mut config = config();
    config.listeners[0].proxies = vec![network("127.0.0.0/8").into()];
    config
}

fn network(text: &str) -> Network {
    text.parse().expect("a network")
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
    let len = u16::try_from(rest.len()).expect("short").to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &len, &rest].concat()
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
    let source = |port| Peer::from(SocketAddr::from(([192, 0, 2, 7], port)));
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
    config.listeners[0].proxies = vec![network("192.0.2.0/24").into()];
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
    let (plugin, logins) = told_logins();
    let mut config = proxied();
    config.listeners[0].identity = Some(PeerIdentity::ProxyCommonName);
    let broker = start_with(config, plugin);
    for (tlvs, wanted, is_certified) in [
        (certified("truck-1"), "truck-1", true),
        (Vec::new(), "admin", false),
    ] {
        // Another user may not take over a client that the broker has not missed yet.
        let hello = v5(wanted).username("admin");
        let mut client = hello.open(broker.addresses()[0]);
        client.send_bytes(&[v2(&tlvs), hello.bytes()].concat());
        client.expect_welcome();

        let login = logins.recv_timeout(DEADLINE).expect("a login");
        assert_eq!(login.username.as_deref(), Some(wanted));
        assert_eq!(login.is_certified, is_certified);
    }
}

/// An SSL TLV with a certificate, which the proxy has verified or not.
fn with_certificate(der: &[u8], is_verified: bool) -> Vec<u8> {
    let tlv = |kind: u8, value: &[u8]| {
        let len = u16::try_from(value.len()).expect("short");
        [&[kind][..], &len.to_be_bytes(), value].concat()
    };
    let verified = u32::from(!is_verified).to_be_bytes();
    let head = [&[7][..], &verified].concat();
    tlv(0x20, &[head, tlv(0x28, der)].concat())
}

#[test]
fn a_certificate_that_the_proxy_sends_names_the_user_by_its_alternative_name() {
    let (plugin, logins) = told_logins();
    let mut config = proxied();
    let san = PeerIdentity::ProxyCertificate(Identity::AlternativeName);
    config.listeners[0].identity = Some(san);
    let broker = start_with(config, plugin);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).expect("names");
        params
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .to_vec()
    };
    let one = made(&["truck-7.example"]);
    let header = |der: &[u8], is_verified| v2(&with_certificate(der, is_verified));

    let hello = v5("truck").username("admin");
    let mut client = hello.open(broker.addresses()[0]);
    client.send_bytes(&[header(&one, true), hello.bytes()].concat());
    client.expect_welcome();

    let login = logins.recv_timeout(DEADLINE).expect("a login");
    assert_eq!(login.username.as_deref(), Some("truck-7.example"));
    assert!(login.is_certified);
    let certificate = login.certificate().expect("plugins see it");
    assert_eq!(certificate.alternative_names.len(), 1);
    // Two names are none, and neither is a common name alone; DER has to be a certificate.
    let two = made(&["a.example", "b.example"]);
    for refused in [
        header(&two, true),
        header(b"no DER", true),
        v2(&certified("truck-1")),
    ] {
        let mut client = hello.open(broker.addresses()[0]);
        client.try_send_bytes(&[refused, hello.bytes()].concat());
        assert!(client.until_closed().is_empty());
    }
    // A certificate that the proxy has not verified is none.
    let mut client = v5("other").username("admin").open(broker.addresses()[0]);
    client.send_bytes(&[header(&one, false), v5("other").username("admin").bytes()].concat());
    client.expect_welcome();
    let login = logins.recv_timeout(DEADLINE).expect("a login");
    assert_eq!(login.username.as_deref(), Some("admin"));
    assert!(!login.is_certified && login.certificate().is_none());
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

/// Lets in who has the password "right", and all whose certificate is verified but "stolen".
fn guarded(per_minute: u32) -> Broker {
    let plugin = Plugin::default().authenticate(|login, reply| {
        let password = login.password.as_ref().map(|password| password.as_bytes());
        let is_certified = login.is_certified && login.username.as_deref() != Some("stolen");
        reply.send(if is_certified || password == Some(b"right") {
            allow(Grant::everything())
        } else {
            bad()
        });
    });
    let mut config = proxied();
    config.listeners[0].identity = Some(PeerIdentity::ProxyCommonName);
    config.listeners[0].anonymous = None;
    config.failed_logins.per_minute = per_minute;
    start_with(config, plugin)
}

/// What CONNECT behind `header` gets.
fn log_in(broker: &Broker, header: &[u8], user: &str, password: &str) -> Received {
    let hello = v5(user).username(user).password(password);
    let mut client = hello.open(broker.addresses()[0]);
    client.send_bytes(&[header, &hello.bytes()].concat());
    client.receive()
}

fn connack(reason: ReasonCode) -> Received {
    Received::ConnAck {
        session_present: false,
        reason,
    }
}

const BAD: ReasonCode = ReasonCode::BAD_USER_NAME_OR_PASSWORD;

fn bad() -> LoginDecision {
    LoginDecision::Deny {
        reason: BAD,
        text: None,
    }
}

/// Abuse C16: a certificate is no guess, so guesses of a name, or from an address, do not hold it up.
#[test]
fn c16_a_client_with_a_verified_certificate_is_neither_counted_nor_held_up() {
    let broker = guarded(2);
    for _ in 0..3 {
        let told = log_in(&broker, &v2(&certified("stolen")), "", "");
        assert_eq!(told, connack(BAD));
    }
    for wanted in [BAD, BAD, ReasonCode::BANNED] {
        let told = log_in(&broker, &v2(&[]), "truck-1", "wrong");
        assert_eq!(told, connack(wanted));
    }

    let told = log_in(&broker, &v2(&certified("truck-1")), "", "");

    assert_eq!(told, connack(ReasonCode::SUCCESS));
}

/// Abuse C16: the time for which a user is known at an address counts from the end of the connection, under the name that
/// it had then.
#[test]
fn c16_a_client_that_leaves_is_known_at_its_address() {
    let plugin = Plugin::default().authenticate(|login, reply| {
        reply.send(match login.username.as_deref() {
            Some("token") => LoginDecision::Allow {
                grant: Box::new(Grant::everything()),
                username: Some("device 7".into()),
                user_properties: Vec::new(),
            },
            _ => bad(),
        });
    });
    let mut config = proxied();
    config.failed_logins.per_minute = 2;
    let broker = start_with(config, plugin);
    let hello = v5("c").username("token");
    let mut client = hello.open(broker.addresses()[0]);
    client.send_bytes(&[V1, &hello.bytes()].concat());
    client.expect_welcome();
    client.disconnect();
    let elsewhere = b"PROXY TCP4 192.0.2.8 192.0.2.9 56324 1883\r\n";

    for wanted in [BAD, BAD, ReasonCode::BANNED] {
        let told = log_in(&broker, elsewhere, "device 7", "guess");
        assert_eq!(told, connack(wanted));
    }

    assert_eq!(log_in(&broker, V1, "device 7", "asked"), connack(BAD));
}

/// Abuse C16: one device with an old password does not lock out its site.
#[test]
fn c16_failures_of_a_user_who_was_let_in_before_hold_up_that_user_only() {
    let broker = guarded(2);
    for user in ["old", "fine"] {
        let told = log_in(&broker, V1, user, "right");
        assert_eq!(told, connack(ReasonCode::SUCCESS));
    }

    for wanted in [BAD, BAD, ReasonCode::BANNED] {
        assert_eq!(log_in(&broker, V1, "old", "wrong"), connack(wanted));
    }

    for user in ["fine", "new"] {
        let told = log_in(&broker, V1, user, "right");
        assert_eq!(told, connack(ReasonCode::SUCCESS), "{user}");
    }
}

/// Abuse C16: the proxy shares its address with all, so only names are held up behind it.
#[test]
fn c16_guesses_behind_an_exempt_address_hold_up_the_user_name() {
    let broker = guarded(2);

    for wanted in [BAD, BAD, ReasonCode::BANNED] {
        assert_eq!(log_in(&broker, LOCAL, "joe", "wrong"), connack(wanted));
    }

    let told = log_in(&broker, LOCAL, "eve", "right");
    assert_eq!(told, connack(ReasonCode::SUCCESS));
}
