//! Refusals are counted by reason and listener, in figures and below `$SYS`, and logged with the address.

use std::time::Duration;

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::{ProtocolVersion, QoS, ReasonCode};

use crate::common::{
    DEADLINE, config, config_with_limits, eventually, figure, logged, start, v3, v5,
};

/// A broker with the listeners `first` and `second`.
fn two(mut config: Config, change: impl FnOnce(&mut Config)) -> Config {
    let mut second = config.listeners[0].clone();
    "first".clone_into(&mut config.listeners[0].name);
    "second".clone_into(&mut second.name);
    config.listeners.push(second);
    change(&mut config);
    config
}

/// The refusals by listener that have occurred.
fn refusals(broker: &Broker) -> Vec<(String, u64)> {
    let figures = broker.figures().into_iter();
    let of_listeners = figures.filter(|(name, _)| {
        name.starts_with("listeners/") && !name.ends_with("/connections_accepted")
    });
    let mut found: Vec<_> = of_listeners.collect();
    found.sort();
    found
}

fn counted(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let expected = expected.iter();
    expected
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn a_refused_connection_counts_for_its_listener_alone() {
    let broker = start(two(config(), |config| {
        config.listeners[0].max_connections = 1;
        config.listeners[1].protocol_versions = vec![ProtocolVersion::V5];
    }));
    let _first = v5("one").connect(&broker);
    assert_eq!(refusals(&broker), []);

    assert_eq!(v5("two").open(broker.addresses()[0]).until_closed(), []);
    assert_eq!(v3("three").refused_at(&broker, 1), 1);

    assert_eq!(
        refusals(&broker),
        counted(&[
            ("listeners/first/connections_refused", 1),
            ("listeners/first/connections_refused_listener", 1),
            ("listeners/second/connects_refused", 1),
            ("listeners/second/connects_refused_protocol_version", 1),
        ])
    );
    let accepted = ["first", "second"]
        .map(|name| figure(&broker, &format!("listeners/{name}/connections_accepted")));
    assert_eq!(accepted, [2, 1]);
    let stats = broker.stats();
    let sums = (stats.connections_refused, stats.connects_refused);
    assert_eq!(sums, (1, 1), "the sums over all listeners");
}

#[test]
fn each_reason_for_a_rejected_connect_is_counted() {
    let broker = start(two(config(), |config| {
        config.sessions = 1;
        config.listeners[0].anonymous = None;
    }));
    let _only = v5("only").keeping_session_s(60).connect_at(&broker, 1);

    assert_eq!(v5("stranger").refused_at(&broker, 0), 0x87);
    let second = v5("second").keeping_session_s(60);
    assert_eq!(second.refused_at(&broker, 1), 0x97);
    let mut noise = v5("").open(broker.addresses()[1]);
    noise.send_bytes(b"\x20\x02\0\0");
    assert_eq!(noise.until_closed(), []);

    assert_eq!(
        refusals(&broker),
        counted(&[
            ("listeners/first/connects_refused", 1),
            ("listeners/first/connects_refused_login", 1),
            ("listeners/second/connects_refused", 2),
            ("listeners/second/connects_refused_protocol", 1),
            ("listeners/second/connects_refused_sessions", 1),
            ("listeners/second/connects_unanswered", 1),
        ])
    );
}

#[test]
fn a_refused_request_counts_for_the_listener_of_its_client() {
    let config = config_with_limits(|limits| limits.subscriptions = 2);
    let broker = start(two(config, |config| {
        let grant = config.listeners[1].anonymous.as_mut().expect("a grant");
        grant.deny = vec!["secret/#".into()];
        config.retained_messages = 1;
    }));
    let (mut client, _) = v5("client").connect_at(&broker, 1);

    let answers =
        ["secret/a", "a", "b", "c"].map(|filter| client.try_subscribe(filter, QoS::AtMostOnce));
    for topic in ["a/1", "a/2"] {
        client.publish_retained(topic, "x", QoS::AtMostOnce);
    }
    client.ping();

    let refused = answers.map(ReasonCode::value);
    assert_eq!(refused, [0x87, 0, 0, 0x97]);
    assert_eq!(
        refusals(&broker),
        counted(&[
            ("listeners/second/denied", 1),
            ("listeners/second/dropped_retained_full", 1),
            ("listeners/second/refused_subscriptions", 1),
        ])
    );
    assert_eq!(figure(&broker, "refused_subscriptions"), 1);
}

#[test]
fn a_name_that_is_no_topic_level_is_made_one_below_sys() {
    let broker = start(Config {
        sys_interval: Some(Duration::from_millis(20)),
        ..two(config(), |config| {
            config.listeners[1].name = "unix:/run/a+b#".to_owned();
            config.listeners[1].protocol_versions = vec![ProtocolVersion::V5];
        })
    });
    let mut watcher = v5("watcher").connect(&broker);
    let listener = "$SYS/broker/listeners/unix:_run_a_b_";
    watcher.subscribe(&format!("{listener}/#"), QoS::AtMostOnce);

    assert_eq!(v3("three").refused_at(&broker, 1), 1);

    let told = [watcher.message(), watcher.message(), watcher.message()];
    let mut told = told.map(|message| (message.topic.clone(), message.text().to_owned()));
    told.sort();
    let figures = [
        "connections_accepted",
        "connects_refused",
        "connects_refused_protocol_version",
    ];
    assert_eq!(
        told,
        figures.map(|name| (format!("{listener}/{name}"), "1".to_owned()))
    );
}

/// A flood of one reason does not hide the lines of another.
#[test]
fn a_flood_of_malformed_packets_hides_no_other_refusal() {
    let (broker, lines) = logged(two(config(), |config| {
        config.listeners[1].anonymous = None;
    }));
    for _ in 0..20 {
        let mut noise = v5("").open(broker.addresses()[0]);
        noise.send_bytes(b"\x20\x02\0\0");
        assert_eq!(noise.until_closed(), []);
    }

    assert_eq!(v5("stranger").refused_at(&broker, 1), 0x87);

    let denied = loop {
        let line = lines.recv_timeout(DEADLINE).expect("a line");
        assert!(line.contains("127.0.0.1"), "{line}");
        if line.contains("second") {
            break line;
        }
    };
    assert!(denied.contains("stranger"), "{denied}");
}

#[test]
fn each_reason_has_a_line_of_its_own_with_the_address() {
    let mut limited = config_with_limits(|limits| limits.subscriptions = 1);
    limited.retained_messages = 1;
    limited.sessions = 1;
    let (broker, lines) = logged(limited);
    let mut client = v5("client").keeping_session_s(60).connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);

    assert_eq!(v5("other").keeping_session_s(60).refused(&broker), 0x97);
    let answer = client.try_subscribe("b", QoS::AtMostOnce);
    assert_eq!(answer, ReasonCode::QUOTA_EXCEEDED);
    for topic in ["kept", "not/kept"] {
        client.publish_retained(topic, "x", QoS::AtMostOnce);
    }

    let mut wanted = vec![
        "the limit of sessions is reached",
        "1 subscriptions of client client at 127.0.0.1:",
        "retained message of client client at 127.0.0.1:",
    ];
    while !wanted.is_empty() {
        let line = lines.recv_timeout(DEADLINE).expect("a line");
        wanted.retain(|part| !line.contains(part));
        assert!(
            line.contains("127.0.0.1") || !line.contains("refused"),
            "{line}"
        );
    }
    eventually("all are counted", || {
        broker.stats().dropped_retained_full == 1
    });
}
