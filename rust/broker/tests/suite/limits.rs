//! What a client may not use up: time before CONNECT, places, bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_broker::{AddressLimits, Broker, Config, Hooks, Stats};
use mqttcore_codec::{PropertiesBuf, Property, ProtocolVersion, QoS, ReasonCode, Text};

use crate::common::{
    Client, DEADLINE, Home, Plugin, Received, allow, config, config_with_limits, eventually, start,
    start_with, v3, v5,
};

const CONNECT_DEADLINE: Duration = Duration::from_millis(400);

fn impatient() -> Broker {
    start(Config {
        connect_deadline: CONNECT_DEADLINE,
        ..config()
    })
}

/// A connection that says nothing, accepted by the broker.
fn silent(broker: &Broker) -> Client {
    let before = broker.stats().connections_accepted;
    let client = v5("").open(broker.addresses()[0]);
    eventually("the socket is accepted", || {
        broker.stats().connections_accepted > before
    });
    client
}

/// Abuse C13
#[test]
fn a_connection_that_sends_nothing_is_closed_at_the_connect_deadline() {
    let broker = impatient();
    let start = Instant::now();
    let mut client = v5("").open(broker.addresses()[0]);

    assert_eq!(client.until_closed(), []);

    assert!(start.elapsed() >= CONNECT_DEADLINE);
    assert_eq!(broker.stats().connects_refused, 1);
}

/// Abuse C13
#[test]
fn bytes_do_not_extend_the_connect_deadline() {
    let broker = impatient();
    let start = Instant::now();
    let mut client = v5("slow").open(broker.addresses()[0]);

    // A byte each 20 ms: all of them take some forty deadlines.
    let hello = v5("slow").user_property(&"x".repeat(1_000)).bytes();
    let closed = hello.iter().any(|&byte| {
        client.try_send_bytes(&[byte]);
        client.is_closed_within(Duration::from_millis(20))
    });

    assert!(closed, "it was let in");
    assert!(start.elapsed() >= CONNECT_DEADLINE);
}

#[test]
fn a_slow_connect_that_is_whole_in_time_is_let_in() {
    let broker = start(config());
    let mut client = v5("slow").open(broker.addresses()[0]);

    for byte in v5("slow").bytes() {
        client.send_bytes(&[byte]);
    }

    client.expect_welcome();
}

#[test]
fn a_client_that_is_in_has_no_deadline() {
    let broker = impatient();
    let mut client = v5("one").connect(&broker);

    client.hears_nothing_for(CONNECT_DEADLINE * 2);

    client.ping();
}

/// Abuse C15
#[test]
fn too_many_pending_connections_are_closed_and_clients_stay() {
    let broker = start(Config {
        pending_connections: 2,
        ..config()
    });
    let mut existing = v5("existing").connect(&broker);
    eventually("it is not pending any more", || {
        broker.stats().clients_connected == 1
    });
    let first = silent(&broker);
    let _second = silent(&broker);

    assert_eq!(silent(&broker).until_closed(), []);

    assert_eq!(broker.stats().connections_refused, 1);
    existing.ping();
    first.vanish();
    eventually("there is room again", || {
        let mut client = v5("late").dial(&broker);
        matches!(client.next_packet(), Some(Received::ConnAck { .. }))
    });
}

#[test]
fn a_connection_that_waits_for_a_plugin_is_pending() {
    let (plugin, logins) = Plugin::logins();
    let broker = start_with(
        Config {
            pending_connections: 1,
            ..config()
        },
        plugin,
    );
    let mut waiting = v5("waiting").username("user").dial(&broker);
    let (_, reply) = logins.recv_timeout(DEADLINE).expect("asked");

    assert_eq!(silent(&broker).until_closed(), []);

    reply.send(allow(mqttcore_broker::Grant::everything()));
    waiting.expect_welcome();
}

#[test]
fn too_many_connections_are_closed_and_clients_stay() {
    let broker = start(Config {
        connections: 2,
        ..config()
    });
    let mut first = v5("first").connect(&broker);
    let second = v5("second").connect(&broker);

    assert_eq!(v5("third").dial(&broker).until_closed(), []);

    assert_eq!(broker.stats().connections_refused, 1);
    first.ping();
    second.disconnect();
    eventually("there is room again", || {
        let mut client = v5("late").dial(&broker);
        matches!(client.next_packet(), Some(Received::ConnAck { .. }))
    });
}

#[test]
fn refused_clients_give_their_places_back() {
    let plugin = Plugin::default().authenticate(|_, reply| drop(reply));
    let config = Config {
        connections: 2,
        pending_connections: 2,
        ..config()
    };
    let broker = start_with(config, plugin);

    // A place is free a moment after its client is gone; more tries than there are places.
    for _ in 0..5 {
        eventually("a client is refused, and not for lack of room", || {
            let mut client = v5("one").username("nobody").dial(&broker);
            matches!(client.until_closed()[..], [Received::ConnAck { .. }])
        });
        eventually("what is no client is closed", || {
            let mut garbage = v5("").open(broker.addresses()[0]);
            garbage.try_send_bytes(b"GET / HTTP/1.1\r\n");
            garbage.until_closed().is_empty()
        });
        eventually("a client gets in", || {
            let mut client = v5("two").dial(&broker);
            matches!(client.next_packet(), Some(Received::ConnAck { .. }))
        });
    }
}

/// Abuse F12: the new session is refused, existing ones are never evicted; clients that have no session kept need no place.
#[test]
fn one_session_too_many_is_refused_with_0x97() {
    let broker = start(Config {
        sessions: 1,
        ..config()
    });
    let kept = v5("kept").keeping_session_s(60);
    kept.connect(&broker).disconnect();

    assert_eq!(v5("new").keeping_session_s(60).refused(&broker), 0x97);
    assert_eq!(v5("new").expiring_s(60).refused(&broker), 0x97);
    assert_eq!(v3("new").keeping_session_s(60).refused(&broker), 3);

    let clean = [v3("clean 3"), v5("clean 5")].map(|hello| hello.connect(&broker));
    for mut client in clean {
        client.ping();
    }
    assert_eq!(broker.stats().connects_refused_sessions, 3);
    let (client, present) = kept.connect_or_resume(&broker);
    assert!(present);
    client.disconnect();
}

/// Abuse F12: a client without a place cannot lengthen its session later, nor over a second connection.
#[test]
fn a_client_that_needs_no_place_gets_none_later() {
    let broker = start(Config {
        sessions: 1,
        ..config()
    });
    let kept = v5("kept").keeping_session_s(60);
    kept.connect(&broker).disconnect();
    let mut clean = v5("clean").connect(&broker);

    assert_eq!(v5("clean").expiring_s(60).refused(&broker), 0x97);
    assert_eq!(v5("clean").keeping_session_s(60).refused(&broker), 0x97);
    clean.ping();
    // DISCONNECT with Session Expiry Interval 60 [MQTT-3.1.2-23].
    clean.send_bytes(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x3c");
    clean.until_closed();
    eventually("its session has ended", || broker.stats().sessions == 1);

    v5("kept").connect(&broker).ping();
    v5("new").keeping_session_s(60).connect(&broker).ping();
}

#[test]
fn kept_sessions_are_counted_again_from_the_store() {
    let home = Home::new();
    let limited = || Config {
        sessions: 1,
        data: Some(home.data(0)),
        ..config()
    };
    let broker = start(limited());
    v5("kept")
        .keeping_session_s(60)
        .connect(&broker)
        .disconnect();
    drop(broker);

    let broker = start(limited());

    eventually("all are loaded", || broker.stats().sessions_to_come == 0);
    let new = v5("new").keeping_session_s(60);
    assert_eq!(new.refused(&broker), 0x97);
    v5("clean").connect(&broker).ping();
    v5("kept").connect(&broker).disconnect();
    new.connect(&broker).ping();
}

#[test]
fn a_session_that_ended_makes_room_for_another() {
    let broker = start(Config {
        sessions: 1,
        ..config()
    });
    v5("kept")
        .keeping_session_s(60)
        .connect(&broker)
        .disconnect();

    v5("kept").connect(&broker).disconnect();

    v5("new").keeping_session_s(60).connect(&broker).ping();
}

/// 3.x is told return code 1, 5.0 the reason code 0x84 [MQTT-3.1.2-2]; a reload changes what is accepted.
#[test]
fn a_version_that_the_listener_does_not_accept_is_refused_and_counted() {
    let accepting = |version| {
        let mut config = config();
        config.listeners[0].protocol_versions = vec![version];
        config
    };
    let broker = start(accepting(ProtocolVersion::V3_1_1));

    let code = v5("five").refused(&broker);
    v3("four").connect(&broker).disconnect();

    let stats = broker.stats();
    let counted = (
        stats.connects_refused,
        stats.connects_refused_protocol_version,
    );
    assert_eq!((code, counted), (0x84, (1, 1)));

    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let reloaded = broker.reload(&accepting(ProtocolVersion::V5), hooks);

    reloaded.expect("the reload is fine");
    assert_eq!(v3("four").refused(&broker), 1);
    v5("five").connect(&broker).disconnect();
}

/// The fixed header alone says that it is too much: nothing else is waited for.
#[test]
fn a_connect_above_its_limit_is_refused_by_its_first_bytes() {
    let broker = start(config());
    let mut client = v5("").open(broker.addresses()[0]);

    // Remaining Length 9,000; the limit is 8 KiB with the fixed header.
    client.send_bytes(b"\x10\xA8\x46");

    assert_eq!(client.until_closed(), []);
    assert_eq!(broker.stats().connects_refused, 1);
}

#[test]
fn a_connect_of_exactly_its_limit_is_let_in() {
    let limit = v5("one").user_property(&"x".repeat(500)).bytes().len();
    let broker = start(config_with_limits(|limits| {
        limits.connect_packet_bytes = u32::try_from(limit).expect("small");
    }));

    v5("one")
        .user_property(&"x".repeat(500))
        .connect(&broker)
        .ping();

    let mut client = v5("one").user_property(&"x".repeat(501)).dial(&broker);
    assert!(!client.until_closed().contains(&Received::ConnAck {
        session_present: false,
        reason: ReasonCode::SUCCESS,
    }));
}

/// [MQTT-3.1.2-24] the other way round: the broker's Maximum Packet Size.
#[test]
fn a_publish_above_the_limit_ends_a_v5_connection_with_0x95() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);

    // Remaining Length as the limit: the fixed header of four bytes is too many.
    client.send_bytes(b"\x30\x80\x80\x44");

    let disconnect = Received::Disconnect(ReasonCode::PACKET_TOO_LARGE);
    assert_eq!(client.until_closed(), [disconnect]);
    assert_eq!(broker.stats().violations, 1);
}

#[test]
fn a_publish_above_the_limit_closes_a_3_1_1_connection() {
    let broker = start(config());
    let mut client = v3("one").connect(&broker);

    client.send_bytes(b"\x30\x80\x80\x44");

    assert_eq!(client.until_closed(), []);
}

#[test]
fn a_publish_of_exactly_the_limit_is_delivered() {
    let broker = start(config());
    let mut client = v3("one").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);
    let whole = (1 << 20) + (64 << 10);
    let payload = vec![b'x'; whole - 4 - 3];

    client.publish("a", &payload, QoS::AtMostOnce);

    assert_eq!(client.message().payload, payload);
}

/// [MQTT-3.1.2-24, -25]
#[test]
fn mqtt_3_1_2_24_a_message_above_the_clients_limit_is_dropped_and_counted() {
    let broker = start(config());
    let mut client = v5("one").maximum_packet_size(100).connect(&broker);
    client.subscribe("a", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    publisher.publish_acknowledged("a", "x".repeat(100));
    publisher.publish_acknowledged("a", "fits");

    assert_eq!(client.take_message().text(), "fits");
    assert_eq!(broker.stats().dropped_too_large, 1);
}

/// Abuse C01: nothing but CONNECT comes first.
#[test]
fn any_other_first_packet_is_closed_by_its_first_byte() {
    let broker = start(config());

    for first in (0..=0xFF).step_by(0x10).filter(|byte| *byte != 0x10) {
        let mut client = v5("").open(broker.addresses()[0]);
        client.send_bytes(&[first]);

        assert_eq!(client.until_closed(), [], "{first:#x}");
    }
}

/// Abuse C02, and [MQTT-3.1.0-2].
#[test]
fn mqtt_3_1_0_2_a_second_connect_ends_the_connection_and_leaves_the_will() {
    let broker = start(config());
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("will", QoS::AtMostOnce);
    let hello = v5("one").will("will", "to you");
    let mut client = hello.connect(&broker);

    client.send_bytes(&hello.bytes());

    let disconnect = Received::Disconnect(ReasonCode::PROTOCOL_ERROR);
    assert_eq!(client.until_closed(), [disconnect]);
    assert_eq!(heir.message().text(), "to you");
}

#[test]
fn a_user_property_too_many_is_refused() {
    let broker = start(config_with_limits(|limits| limits.user_properties = 1));
    let mut client = v5("one").connect(&broker);
    let mut properties = PropertiesBuf::default();
    for _ in 0..2 {
        let property = Property::UserProperty(Text::EMPTY, Text::EMPTY);
        properties.push(property).expect("the property encodes");
    }

    client.publish_with("a", b"", QoS::AtMostOnce, false, properties.as_properties());

    assert!(matches!(
        client.until_closed()[..],
        [Received::Disconnect(_)]
    ));
}

type Counter = fn(&Stats) -> u64;

/// Abuse C15, H06: each limit of an address has its counter and its line in the log.
#[test]
fn connections_above_the_share_of_their_address_are_closed_counted_and_logged() {
    let limits = |change: fn(&mut AddressLimits)| {
        let mut limits = AddressLimits {
            exempt: Vec::new(),
            ..AddressLimits::default()
        };
        change(&mut limits);
        limits
    };
    let cases: [(AddressLimits, u64, Counter, &str); 3] = [
        (
            limits(|limits| limits.connections = 2),
            2,
            |stats| stats.connections_refused_address,
            "its address has too many connections",
        ),
        (
            limits(|limits| limits.pending_connections = 1),
            1,
            |stats| stats.connections_refused_address_pending,
            "its address has too many connections without CONNACK",
        ),
        (
            limits(|limits| limits.connects_per_second = 1),
            5,
            |stats| stats.connections_refused_address_rate,
            "its address has too many connections a second",
        ),
    ];
    for (address_limits, admitted, counter, text) in cases {
        let (sender, lines) = std::sync::mpsc::channel();
        let plugin = Plugin::default().log_lines(move |line| {
            let _ = sender.send(line);
        });
        let config = Config {
            address_limits,
            ..config()
        };
        let broker = start_with(config, plugin);
        let _silent: Vec<Client> = (0..admitted).map(|_| silent(&broker)).collect();

        let mut refused = v5("one too many").open(broker.addresses()[0]);

        assert_eq!(refused.until_closed(), []);
        let stats = broker.stats();
        assert_eq!((stats.connections_refused, counter(&stats)), (1, 1));
        let line = lines.recv_timeout(DEADLINE).expect("a line");
        assert!(line.contains("127.0.0.1") && line.ends_with(text), "{line}");
    }
}

#[test]
fn a_listener_has_a_limit_of_connections_that_a_reload_changes() {
    let limited = |max_connections| {
        let mut config = config();
        config.listeners[0].max_connections = max_connections;
        config
    };
    let broker = start(limited(1));
    let mut first = v5("first").connect(&broker);

    let mut second = v5("second").open(broker.addresses()[0]);
    assert_eq!(second.until_closed(), []);
    assert_eq!(broker.stats().connections_refused_listener, 1);

    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    broker.reload(&limited(2), hooks).expect("it is valid");
    v5("third").connect(&broker).ping();
    first.ping();
}

/// The broker does not wait for the end of the client's own half.
#[test]
fn a_client_that_has_disconnected_itself_is_no_connection_of_its_listener() {
    let mut config = config();
    config.listeners[0].max_connections = 1;
    let broker = start(config);
    let mut first = v5("first").connect(&broker);

    first.send_bytes(b"\xe0\x00");
    assert_eq!(first.until_closed(), []);

    v5("second").connect(&broker).ping();
}

/// The same limit in CONNACK and for packets; the default listener keeps the broker's.
#[test]
fn a_listener_has_limits_of_packets_of_its_own() {
    let mut config = config();
    let mut narrow = config.listeners[0].clone();
    narrow.caps.maximum_packet_size = Some(1_000);
    narrow.caps.receive_maximum = Some(2);
    config.listeners.push(narrow);
    let broker = start(config);
    let (mut narrow, _) = v5("narrow").connect_at(&broker, 1);
    let mut wide = v5("wide").connect(&broker);

    wide.publish("a", "x".repeat(2_000), QoS::AtMostOnce);
    wide.ping();
    narrow.publish("a", "x".repeat(900), QoS::AtMostOnce);
    narrow.ping();
    narrow.publish("a", "x".repeat(2_000), QoS::AtMostOnce);

    let disconnect = Received::Disconnect(ReasonCode::PACKET_TOO_LARGE);
    assert_eq!(narrow.until_closed(), [disconnect]);
    let (mut greedy, _) = v5("greedy").connect_at(&broker, 1);
    for number in 0..3 {
        greedy.publish("a", number.to_string(), QoS::ExactlyOnce);
    }
    let told = greedy.until_closed();
    let disconnect = Received::Disconnect(ReasonCode::RECEIVE_MAXIMUM_EXCEEDED);
    assert_eq!(told.last(), Some(&disconnect));
}

/// What a listener denies, no plugin can grant; deny rules of a grant stay in force.
#[test]
fn a_listener_takes_topics_from_every_grant() {
    for plugin in [Plugin::default(), Plugin::welcoming()] {
        let mut config = config();
        let mut public = config.listeners[0].clone();
        public.caps.deny = vec!["admin/#".into()];
        config.listeners.push(public);
        let broker = start_with(config, plugin);
        let hello = v5("public").username("user");
        let (mut public, _) = hello.connect_at(&broker, 1);
        let mut own = v5("own").username("user").connect(&broker);
        public.subscribe("#", QoS::AtMostOnce);
        own.subscribe("admin/answer", QoS::AtMostOnce);

        assert_eq!(
            public.try_subscribe("admin/+", QoS::AtMostOnce),
            ReasonCode::NOT_AUTHORIZED
        );
        assert_eq!(
            public.publish_acknowledged("admin/answer", "no"),
            ReasonCode::NOT_AUTHORIZED
        );
        own.publish("admin/answer", "yes", QoS::AtMostOnce);
        own.publish("else", "seen", QoS::AtMostOnce);

        assert_eq!(own.message().text(), "yes");
        assert_eq!(public.message().text(), "seen");
    }
}

/// Decision 26: what runs on the machine of the broker has no such limits unless they are asked for.
#[test]
fn loopback_has_no_limits_by_address() {
    let broker = start(Config {
        connects_per_second: 1,
        address_limits: AddressLimits {
            connections: 1,
            connects_per_second: 1,
            ..AddressLimits::default()
        },
        ..config()
    });

    let mut clients: Vec<Client> = (0..20)
        .map(|number| v5(&format!("c{number}")).connect(&broker))
        .collect();

    clients.iter_mut().for_each(Client::ping);
}
