//! MQTT over TLS: handshakes, certificates of both sides, reload, and clients that are slow or speak something else.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::{Duration, SystemTime};

use mqttcore_broker::tls::rustls::version::{TLS12, TLS13};
use mqttcore_broker::tls::rustls::{ClientConfig, HandshakeKind, ProtocolVersion};
use mqttcore_broker::tls::{
    CertificateFiles, ClientCertificates, Identity, MinVersion, TlsSettings,
};
use mqttcore_broker::{Broker, Config, Hooks, Listener, StartError};
use mqttcore_tls::make_files;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::common::{
    DEADLINE, Plugin, config, eventually, line_about, logged, start, start_with, told_logins, v5,
};
use crate::tls_client::{Dial, Files, TlsSocket, certificates, connect_packet, open, tls_config};

const PINGREQ: &[u8] = b"\xC0\x00";
const PINGRESP: &[u8] = b"\xD0\x00";

fn ping(socket: &mut TlsSocket) {
    socket.write_all(PINGREQ).expect("the broker reads");
    let mut answer = [0; 2];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, *PINGRESP);
}

/// What a payload of a test has at a place.
fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 251).expect("a byte")
}

#[test]
fn both_versions_are_spoken_and_sessions_live_on_any_shard() {
    let files = Files::new("client");
    let broker = start(tls_config(files.settings()));

    for (version, wanted) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        for number in 0..8 {
            let dial = Dial {
                versions: &[version],
                ..Dial::new(&files.made.ca)
            };
            let id = format!("c{number}");
            let mut socket = dial.connect(broker.addresses()[0], &id).expect("let in");
            assert_eq!(socket.conn.protocol_version(), Some(wanted));
            ping(&mut socket);
        }
    }
}

#[test]
fn a_listener_for_1_3_alone_refuses_1_2() {
    let files = Files::new("client");
    let settings = TlsSettings {
        min_version: MinVersion::Tls13,
        ..files.settings()
    };
    let broker = start(tls_config(settings));
    let address = broker.addresses()[0];
    let open = |version| {
        let dial = Dial {
            versions: &[version],
            ..Dial::new(&files.made.ca)
        };
        dial.open(address)
    };

    assert!(open(&TLS12).is_err());
    assert!(open(&TLS13).is_ok());
}

#[test]
fn the_alpn_name_is_mqtt_or_none() {
    let files = Files::new("client");
    let broker = start(tls_config(files.settings()));
    let with = |alpn| Dial {
        alpn,
        ..Dial::new(&files.made.ca)
    };

    let named = with(&["mqtt"])
        .connect(broker.addresses()[0], "named")
        .expect("let in");
    assert_eq!(named.conn.alpn_protocol(), Some(&b"mqtt"[..]));
    assert!(with(&[]).connect(broker.addresses()[0], "nameless").is_ok());
    assert!(with(&["h2"]).open(broker.addresses()[0]).is_err());
}

#[test]
fn large_messages_arrive_whole_at_a_reader_that_takes_its_time() {
    const COUNT: usize = 40;
    const BYTES: usize = 200_000;
    let files = Files::new("client");
    let broker = start(tls_config(files.settings()));
    let dial = Dial::new(&files.made.ca);
    let mut reader = dial
        .connect(broker.addresses()[0], "reader")
        .expect("let in");
    reader
        .write_all(b"\x82\x06\x00\x01\x00\x01t\x01")
        .expect("the broker reads");
    let mut suback = [0; 5];
    reader.read_exact(&mut suback).expect("SUBACK");
    let mut writer = dial
        .connect(broker.addresses()[0], "writer")
        .expect("let in");
    let payload: Vec<u8> = (0..BYTES).map(byte_at).collect();
    let sending = std::thread::spawn(move || {
        for id in 1..=COUNT {
            let mut packet = vec![0x32];
            let mut left = payload.len() + 5;
            while left > 0 {
                let more = u8::from(left > 0x7F) << 7;
                packet.push(u8::try_from(left & 0x7F).expect("7 bits") | more);
                left >>= 7;
            }
            packet.extend([0, 1, b't', 0, u8::try_from(id).unwrap()]);
            packet.extend_from_slice(&payload);
            writer.write_all(&packet).expect("the broker reads");
            let mut puback = [0; 4];
            writer.read_exact(&mut puback).expect("PUBACK");
        }
    });

    for number in 1..=COUNT {
        let mut head = vec![0; 4 + 3 + 2];
        reader.read_exact(&mut head).expect("a message");
        let id = [head[7], head[8]];
        let mut body = vec![0; BYTES];
        reader.read_exact(&mut body).expect("its payload");
        assert!(
            body.iter()
                .enumerate()
                .all(|(at, byte)| *byte == byte_at(at)),
            "{number}"
        );
        reader
            .write_all(&[&[0x40, 2][..], &id].concat())
            .expect("the broker reads");
    }
    sending.join().expect("all is sent");
}

#[test]
fn a_reader_that_stops_is_disconnected() {
    let files = Files::new("client");
    let broker = start(Config {
        stall_deadline: Duration::from_millis(200),
        ..tls_config(files.settings())
    });
    let dial = Dial::new(&files.made.ca);
    let mut reader = dial
        .connect(broker.addresses()[0], "reader")
        .expect("let in");
    reader
        .write_all(b"\x82\x06\x00\x01\x00\x01t\x00")
        .expect("the broker reads");
    let mut suback = [0; 5];
    reader.read_exact(&mut suback).expect("SUBACK");
    let payload = vec![0; 500_000];

    eventually("the reader is disconnected", || {
        let properties = mqttcore_codec::PropertiesBuf::default();
        let _ = broker.publish(
            "t",
            &payload,
            mqttcore_codec::QoS::AtMostOnce,
            false,
            properties.as_properties(),
        );
        broker.stats().stalled == 1
    });
}

#[test]
fn a_client_certificate_names_the_user() {
    let files = Files::new("truck-1");
    for (identity, wanted) in [
        (Some(Identity::CommonName), Some("truck-1")),
        (Some(Identity::Subject), Some("CN=truck-1")),
        (None, None),
    ] {
        let (plugin, logins) = told_logins();
        let settings = TlsSettings {
            identity,
            ..files.mutual()
        };
        let mut config = tls_config(settings);
        config.listeners[0].anonymous = None;
        let broker = start_with(config, plugin);

        let _socket = Dial::with(&files)
            .connect(broker.addresses()[0], "c")
            .expect("let in");

        let login = logins.recv_timeout(DEADLINE).expect("a login");
        assert_eq!(login.username.as_deref(), wanted);
        assert_eq!(login.is_certified, wanted.is_some());
        let certificate = login.certificate().expect("a certificate");
        assert_eq!(certificate.common_name.as_deref(), Some("truck-1"));
        assert_eq!(broker.clients()[0].username.as_deref(), wanted);
    }
}

#[test]
fn a_certificate_without_the_name_that_is_asked_for_lets_nobody_in() {
    let files = Files::new("truck-1");
    let settings = TlsSettings {
        identity: Some(Identity::AlternativeName),
        ..files.mutual()
    };
    let (broker, lines) = logged(tls_config(settings));

    let refused = Dial::with(&files).connect(broker.addresses()[0], "c");

    assert!(refused.is_err());
    line_about(&lines, "lacks the name");
}

#[test]
fn certificates_of_clients_are_required_or_optional() {
    let (files, foreign) = (Files::new("c"), Files::new("c"));
    let stranger = Dial {
        own: Some((&foreign.made.client, &foreign.made.client_key)),
        ..Dial::new(&files.made.ca)
    };
    let optional = TlsSettings {
        client_certificates: ClientCertificates::Optional,
        ..files.mutual()
    };

    for (settings, without) in [(files.mutual(), false), (optional, true)] {
        let broker = start(tls_config(settings));
        let address = broker.addresses()[0];
        assert!(Dial::with(&files).connect(address, "a").is_ok());
        assert!(stranger.connect(address, "b").is_err());
        assert_eq!(
            Dial::new(&files.made.ca).connect(address, "c").is_ok(),
            without
        );
    }
}

/// A CA, a client's certificate of it with serial number 7, and revocation lists.
struct Revocation {
    files: Files,
    issuer: Issuer<'static, KeyPair>,
}

impl Revocation {
    fn new() -> Self {
        let files = Files::new("unused");
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("made");
        let own = ca.self_signed(&key).expect("made");
        fs::write(files.path("client-ca.pem"), own.pem()).expect("made");
        let issuer = Issuer::new(ca, key);
        let mut client = CertificateParams::default();
        client
            .distinguished_name
            .push(DnType::CommonName, "revoked");
        client.serial_number = Some(SerialNumber::from(7));
        let client_key = KeyPair::generate().expect("made");
        let signed = client.signed_by(&client_key, &issuer).expect("made");
        fs::write(files.path("c.pem"), signed.pem()).expect("made");
        fs::write(files.path("c.key"), client_key.serialize_pem()).expect("made");
        Self { files, issuer }
    }

    /// Writes a list that revokes `serials` and ends with the beginning of `year`.
    fn write(&self, serials: &[u64], year: u64) {
        self.write_until(serials, Duration::from_secs((year - 1970) * 31_557_600));
    }

    /// Writes a list that revokes `serials` and ends so long after 1970.
    fn write_until(&self, serials: &[u64], end: Duration) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(1970, 1, 1) + end,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("made");
        fs::write(self.files.path("crl.pem"), list.pem().expect("made")).expect("made");
    }

    fn settings(&self) -> TlsSettings {
        TlsSettings {
            client_certificates: ClientCertificates::Required,
            client_ca: Some(self.files.path("client-ca.pem")),
            crl: Some(self.files.path("crl.pem")),
            ..self.files.settings()
        }
    }

    fn is_let_in(&self, broker: &Broker) -> bool {
        let (own, key) = (self.files.path("c.pem"), self.files.path("c.key"));
        let dial = Dial {
            own: Some((&own, &key)),
            ..Dial::new(&self.files.made.ca)
        };
        dial.connect(broker.addresses()[0], "c").is_ok()
    }
}

#[test]
fn a_revoked_certificate_and_an_expired_list_let_nobody_in() {
    let ca = Revocation::new();
    for (revoked, list_ends, wanted) in [
        (&[][..], 2040, true),
        (&[7], 2040, false),
        (&[], 2026, false),
    ] {
        ca.write(revoked, list_ends);
        let broker = start(tls_config(ca.settings()));
        assert_eq!(ca.is_let_in(&broker), wanted, "{revoked:?} {list_ends}");
    }
}

#[test]
fn a_changed_list_is_taken_over_and_ends_resumption() {
    let ca = Revocation::new();
    ca.write(&[], 2040);
    let (broker, lines) = logged(tls_config(ca.settings()));
    let (own, key) = (ca.files.path("c.pem"), ca.files.path("c.key"));
    let dial = Dial {
        own: Some((&own, &key)),
        ..Dial::new(&ca.files.made.ca)
    };
    let (config, address) = (dial.config(), broker.addresses()[0]);
    let mut connected = open(Arc::clone(&config), "localhost", address).expect("let in");
    connected.write_all(&connect_packet("stays")).unwrap();
    connected.read_exact(&mut [0; 4]).expect("CONNACK");
    let mut resumed = open(Arc::clone(&config), "localhost", address).expect("let in");
    assert_eq!(resumed.conn.handshake_kind(), Some(HandshakeKind::Resumed));
    resumed.write_all(&connect_packet("again")).unwrap();
    resumed.read_exact(&mut [0; 4]).expect("CONNACK");

    ca.write(&[7], 2040);
    line_about(&lines, "certificates reloaded");

    let revoked = open(config, "localhost", address);
    let revoked = revoked.and_then(|mut socket| {
        assert_eq!(socket.conn.handshake_kind(), Some(HandshakeKind::Full));
        socket.read_exact(&mut [0])
    });
    assert!(revoked.is_err());
    ping(&mut connected);
}

/// The list ends some seconds after its creation, so that the broker starts before.
#[test]
fn i03_a_session_is_not_resumed_once_the_list_has_expired() {
    let ca = Revocation::new();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    ca.write_until(&[], now.expect("after 1970") + Duration::from_secs(5));
    let (broker, lines) = logged(tls_config(ca.settings()));
    let (own, key) = (ca.files.path("c.pem"), ca.files.path("c.key"));
    let configs = [&TLS12, &TLS13].map(|version| {
        let dial = Dial {
            own: Some((&own, &key)),
            versions: &[version],
            ..Dial::new(&ca.files.made.ca)
        };
        dial.config()
    });
    let connect = |config: &Arc<ClientConfig>| {
        let address = broker.addresses()[0];
        let mut socket = open(Arc::clone(config), "localhost", address).expect("a handshake");
        let kind = socket.conn.handshake_kind();
        let sent = socket.write_all(&connect_packet("c"));
        let connack = sent.and_then(|()| socket.read_exact(&mut [0; 4]));
        (kind, connack.is_ok())
    };
    for config in &configs {
        assert_eq!(connect(config), (Some(HandshakeKind::Full), true));
    }

    for config in &configs {
        eventually("a session is not resumed", || {
            park_timeout(Duration::from_millis(100));
            let (kind, is_let_in) = connect(config);
            assert_eq!(kind, Some(HandshakeKind::Resumed));
            !is_let_in
        });
    }
    line_about(&lines, "TLS: invalid peer certificate");
}

#[test]
fn the_certificate_is_that_of_the_host_that_is_asked_for() {
    let files = Files::new("c");
    let other = files.path("other");
    let other = make_files(
        &other,
        &["other.example".into(), "*.wild.example".into()],
        "c",
    )
    .unwrap();
    let mut settings = files.settings();
    settings.certificates.push(CertificateFiles {
        certificate: other.server.clone(),
        key: other.server_key.clone(),
    });
    let broker = start(tls_config(settings));
    let dial = |ca, host| Dial {
        host,
        ..Dial::new(ca)
    };

    for (ca, host) in [
        (&files.made.ca, "localhost"),
        (&other.ca, "other.example"),
        (&other.ca, "OTHER.example"),
        (&other.ca, "a.wild.example"),
    ] {
        let socket = dial(ca, host).connect(broker.addresses()[0], "c");
        assert!(socket.is_ok(), "{host}: {socket:?}");
    }
}

fn presented(broker: &Broker, files: &Files) -> Vec<u8> {
    let socket = Dial::new(&files.made.ca)
        .open(broker.addresses()[0])
        .expect("a handshake");
    socket.conn.peer_certificates().expect("a certificate")[0].to_vec()
}

#[test]
fn a_reload_takes_new_certificates_and_disconnects_nobody() {
    let (old, new) = (Files::new("c"), Files::new("c"));
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let broker = Broker::start(tls_config(old.settings()), &hooks).expect("it starts");
    let mut connected = Dial::new(&old.made.ca)
        .connect(broker.addresses()[0], "c")
        .unwrap();

    broker
        .reload(&tls_config(new.settings()), Arc::clone(&hooks))
        .expect("reloaded");
    let presented = presented(&broker, &new);

    assert_eq!(presented, certificates(&new.made.server)[0].to_vec());
    ping(&mut connected);
}

#[test]
fn a_broken_pair_changes_nothing_and_is_reported() {
    let (files, other) = (Files::new("c"), Files::new("c"));
    let mixed = TlsSettings::new(&files.made.server, &other.made.server_key);
    let missing = TlsSettings::new(files.path("nowhere.pem"), &files.made.server_key);
    let swapped = TlsSettings::new(&files.made.server_key, &files.made.server);
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let broker = Broker::start(tls_config(files.settings()), &hooks).expect("it starts");

    for (settings, wanted) in [
        (mixed, "does not belong to certificate"),
        (missing, "nowhere.pem: cannot be read"),
        (swapped, "no certificate in PEM format"),
    ] {
        let error = broker.reload(&tls_config(settings.clone()), Arc::clone(&hooks));
        let error = error.expect_err("refused").to_string();
        assert!(
            error.contains("listener test: ") && error.contains(wanted),
            "{error}"
        );
        assert!(matches!(
            Broker::check(&tls_config(settings)),
            Err(StartError::Tls { .. })
        ));
    }
    assert_eq!(
        presented(&broker, &files),
        certificates(&files.made.server)[0].to_vec()
    );
}

#[test]
fn changed_files_are_taken_over_once_they_fit_together() {
    let (files, new) = (Files::new("c"), Files::new("c"));
    let (broker, lines) = logged(tls_config(files.settings()));

    fs::copy(&new.made.server, &files.made.server).unwrap();
    line_about(&lines, "the previous certificates stay in use");
    let before = Dial::new(&files.made.ca).open(broker.addresses()[0]);
    fs::copy(&new.made.server_key, &files.made.server_key).unwrap();
    line_about(&lines, "certificates reloaded");

    assert!(before.is_ok());
    assert_eq!(
        presented(&broker, &new),
        certificates(&new.made.server)[0].to_vec()
    );
}

#[test]
fn a_listener_without_tls_gets_none_by_a_reload_and_one_with_it_keeps_it() {
    let files = Files::new("c");
    let both = |plain: Option<TlsSettings>, encrypted: Option<TlsSettings>| {
        let mut config = tls_config(files.settings());
        let first = &config.listeners[0];
        let one = |name: &str, tls| Listener {
            name: name.into(),
            tls,
            ..first.clone()
        };
        config.listeners = vec![one("plain", plain), one("encrypted", encrypted)];
        config
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let broker = Broker::start(both(None, Some(files.settings())), &hooks).expect("it starts");

    broker
        .reload(&both(Some(files.settings()), None), hooks)
        .expect("reloaded");

    v5("c").connect(&broker).ping();
    assert!(
        Dial::new(&files.made.ca)
            .connect(broker.addresses()[1], "c")
            .is_ok()
    );
}

/// Bytes until the broker closes.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

/// (abuse A15)
#[test]
fn what_is_not_tls_is_closed_and_the_log_says_what_it_is() {
    let files = Files::new("c");
    let (broker, lines) = logged(tls_config(files.settings()));
    let mut stream = TcpStream::connect(broker.addresses()[0]).unwrap();

    stream.write_all(&connect_packet("plain")).unwrap();

    assert_eq!(rest(&stream), b"");
    line_about(&lines, "MQTT without TLS on a listener with TLS");
}

/// (abuse A15)
#[test]
fn tls_on_a_plain_listener_is_closed_and_the_log_says_so() {
    let files = Files::new("c");
    let (broker, lines) = logged(config());

    let refused = Dial::new(&files.made.ca).open(broker.addresses()[0]);

    assert!(refused.is_err());
    line_about(&lines, "TLS on a listener without TLS");
}

/// (abuse C14)
#[test]
fn handshakes_that_do_not_end_are_pending_until_the_deadline() {
    let files = Files::new("c");
    let broker = start(Config {
        connect_deadline: Duration::from_millis(300),
        pending_connections: 3,
        ..tls_config(files.settings())
    });
    let address = broker.addresses()[0];
    let slow: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for mut stream in &slow {
        stream.write_all(b"\x16\x03\x01").unwrap();
    }
    eventually("all are counted", || {
        broker.stats().connections_accepted >= 3
    });

    let refused = Dial::new(&files.made.ca).open(address);

    assert!(refused.is_err());
    for stream in &slow {
        assert!(rest(stream).len() < 64);
    }
    eventually("there is room again", || {
        Dial::new(&files.made.ca).connect(address, "c").is_ok()
    });
}

#[test]
fn a_handshake_that_is_too_long_is_ended() {
    let files = Files::new("c");
    let (broker, lines) = logged(tls_config(files.settings()));
    let mut stream = TcpStream::connect(broker.addresses()[0]).unwrap();

    // A ClientHello of 60,000 bytes, in records of 16,000.
    let mut hello = vec![1, 0, 0xEA, 0x60];
    hello.resize(60_004, 0);
    for part in hello.chunks(16_000) {
        let len = u16::try_from(part.len()).unwrap().to_be_bytes();
        let record = [&[0x16, 3, 1][..], &len, part].concat();
        if stream.write_all(&record).is_err() {
            break;
        }
    }

    line_about(&lines, "longer than 32 KiB");
}
