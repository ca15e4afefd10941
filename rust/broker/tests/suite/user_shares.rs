//! What one user, or one address, may have of the tables that all clients share (abuse F01, F12).

use mqttcore_broker::{AddressLimits, Broker, Config, ShareLimits};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{
    Client, Hello, Home, Plugin, Received, config, eventually, line_about, logged, start,
    start_with, v3, v5,
};

/// These limits of a user, for addresses of this machine too.
fn limited(user_limits: ShareLimits) -> Config {
    Config {
        user_limits,
        address_limits: AddressLimits {
            exempt: Vec::new(),
            ..AddressLimits::default()
        },
        ..config()
    }
}

fn sessions(sessions: usize) -> ShareLimits {
    ShareLimits {
        sessions,
        ..ShareLimits::default()
    }
}

/// The client `id` of `user` with a session that outlives its connection.
fn kept(id: &str, user: &str) -> Hello {
    v5(id).username(user).keeping_session_s(600)
}

/// Leaves a kept session.
fn leave(broker: &Broker, hello: &Hello) {
    hello.connect_or_resume(broker).0.disconnect();
}

#[test]
fn f12_a_user_with_its_share_of_sessions_gets_no_new_one_and_keeps_the_others() {
    let broker = start_with(limited(sessions(2)), Plugin::welcoming());
    leave(&broker, &kept("one", "joe"));
    leave(&broker, &kept("two", "joe"));

    assert_eq!(kept("three", "joe").refused(&broker), 0x97);
    let old_version = v3("three").username("joe").keeping_session_s(600);
    assert_eq!(old_version.refused(&broker), 3);

    assert_eq!(broker.stats().connects_refused_user_sessions, 2);
    for id in ["one", "two"] {
        let (client, is_resumed) = kept(id, "joe").connect_or_resume(&broker);
        assert!(is_resumed);
        client.disconnect();
    }
    leave(&broker, &kept("three", "ann"));
    v5("anonymous")
        .keeping_session_s(600)
        .connect(&broker)
        .ping();
}

#[test]
fn f12_a_session_that_ends_with_its_connection_takes_nothing_of_a_share() {
    let broker = start_with(limited(sessions(1)), Plugin::welcoming());
    leave(&broker, &kept("one", "joe"));

    for number in 0..3 {
        let id = format!("clean {number}");
        v5(&id).username("joe").connect(&broker).ping();
    }

    let one = v5("one").username("joe").clean_start();
    one.clone().expiring_s(600).connect(&broker).disconnect();
    one.connect(&broker).disconnect();
    leave(&broker, &kept("two", "joe"));
}

#[test]
fn f12_clients_without_user_name_have_the_share_of_their_address() {
    let broker = start(limited(sessions(2)));
    for id in ["one", "two"] {
        leave(&broker, &v5(id).keeping_session_s(600));
    }

    assert_eq!(v5("three").keeping_session_s(600).refused(&broker), 0x97);
    v5("three").connect(&broker).ping();
}

/// Loopback and Unix sockets are exempt from limits by address, and from no others.
#[test]
fn f12_an_exempt_address_has_no_share_and_its_users_have_theirs() {
    let limits = Config {
        user_limits: sessions(1),
        ..config()
    };
    let broker = start_with(limits, Plugin::welcoming());
    for number in 0..5 {
        let id = format!("anonymous {number}");
        leave(&broker, &v5(&id).keeping_session_s(600));
    }

    leave(&broker, &kept("one", "joe"));
    assert_eq!(kept("two", "joe").refused(&broker), 0x97);
}

#[test]
fn f12_no_user_takes_the_last_quarter_of_the_sessions() {
    let limits = Config {
        sessions: 8,
        ..limited(ShareLimits::default())
    };
    let broker = start_with(limits, Plugin::welcoming());
    for number in 0..6 {
        leave(&broker, &kept(&number.to_string(), "joe"));
    }

    assert_eq!(kept("6", "joe").refused(&broker), 0x97);
    assert_eq!(broker.stats().connects_refused_user_sessions, 1);
    leave(&broker, &kept("6", "ann"));
    leave(&broker, &kept("7", "ann"));
    assert_eq!(kept("8", "ann").refused(&broker), 0x97);
    assert_eq!(broker.stats().connects_refused_user_sessions, 1, "of all");
}

#[test]
fn f12_what_a_user_has_is_counted_again_from_the_store() {
    let home = Home::new();
    let limits = || Config {
        data: Some(home.data(1)),
        ..limited(sessions(2))
    };
    let broker = start_with(limits(), Plugin::welcoming());
    leave(&broker, &kept("one", "joe"));
    leave(&broker, &kept("two", "joe"));
    drop(broker);

    let broker = start_with(limits(), Plugin::welcoming());

    eventually("all are loaded", || broker.stats().sessions_to_come == 0);
    assert_eq!(kept("three", "joe").refused(&broker), 0x97);
    let one = v5("one").username("joe");
    one.connect(&broker).disconnect();
    leave(&broker, &kept("three", "joe"));
}

#[test]
fn f12_the_log_names_who_has_too_many_sessions() {
    let (broker, lines) = logged(limited(sessions(1)));
    leave(&broker, &v5("one").keeping_session_s(600));

    v5("two").keeping_session_s(600).refused(&broker);

    let line = line_about(&lines, "too many sessions");
    assert!(
        line.contains("127.0.0.1") && line.contains("client two"),
        "{line}"
    );
}

fn retained(retained_messages: usize, retained_bytes: usize) -> ShareLimits {
    ShareLimits {
        retained_messages,
        retained_bytes,
        ..ShareLimits::default()
    }
}

/// Retains `payload` on `topic` at QoS 1; returns the reason code of PUBACK.
fn retain(client: &mut Client, topic: &str, payload: &str) -> ReasonCode {
    let id = client.publish_retained(topic, payload, QoS::AtLeastOnce);
    match client.receive() {
        Received::PubAck(acknowledged, reason) if acknowledged == id => reason,
        other => panic!("no PUBACK: {other:?}"),
    }
}

/// Whether the broker retains `payload` on `topic`.
fn is_retained(broker: &Broker, topic: &str, payload: &str) -> bool {
    let mut reader = v5("reader").connect(broker);
    reader.subscribe(topic, QoS::AtMostOnce);
    let is_retained = reader.message().text() == payload;
    reader.disconnect();
    is_retained
}

const KEPT: ReasonCode = ReasonCode::NO_MATCHING_SUBSCRIBERS;
const REFUSED: ReasonCode = ReasonCode::QUOTA_EXCEEDED;

#[test]
fn f01_a_user_with_its_share_of_topics_retains_no_new_one_and_may_change_the_others() {
    let broker = start_with(limited(retained(2, 0)), Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    assert_eq!(retain(&mut joe, "a", "1"), KEPT);
    assert_eq!(retain(&mut joe, "b", "1"), KEPT);

    assert_eq!(retain(&mut joe, "c", "1"), REFUSED);

    assert_eq!(retain(&mut joe, "b", "longer than before"), KEPT);
    assert!(is_retained(&broker, "b", "longer than before"));
    let mut ann = v5("ann").username("ann").connect(&broker);
    assert_eq!(retain(&mut ann, "c", "1"), KEPT);
    assert_eq!(retain(&mut joe, "a", ""), KEPT);
    assert_eq!(retain(&mut joe, "d", "1"), KEPT);
    assert_eq!(broker.stats().refused_user_retained, 1);
    assert_eq!(broker.stats().retained_messages, 3);
}

/// A client of 3.x cannot be told, and nobody is at QoS 0: the message reaches those who are here.
#[test]
fn f01_above_the_share_a_publisher_that_cannot_be_told_has_its_message_delivered_and_counted() {
    let broker = start_with(limited(retained(1, 0)), Plugin::welcoming());
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("+", QoS::AtMostOnce);
    let mut old_version = v3("joe").username("joe").connect(&broker);
    old_version.publish_retained("a", "1", QoS::AtLeastOnce);
    old_version.publish_retained("b", "2", QoS::AtLeastOnce);
    old_version.publish_retained("c", "3", QoS::AtMostOnce);

    for payload in ["1", "2", "3"] {
        assert_eq!(reader.take_message().text(), payload);
    }
    let stats = broker.stats();
    assert_eq!(
        (stats.retained_messages, stats.refused_user_retained),
        (1, 2)
    );
}

#[test]
fn f01_a_user_has_a_share_of_the_bytes_too() {
    let broker = start_with(limited(retained(0, 10_000)), Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    let (large, small) = ("x".repeat(4_000), "x".repeat(1_000));
    assert_eq!(retain(&mut joe, "a", &large), KEPT);
    assert_eq!(retain(&mut joe, "b", &large), KEPT);

    assert_eq!(retain(&mut joe, "c", &large), REFUSED);

    assert_eq!(retain(&mut joe, "b", &"x".repeat(9_000)), REFUSED, "larger");
    assert_eq!(retain(&mut joe, "b", &"y".repeat(4_000)), KEPT, "as large");
    assert_eq!(retain(&mut joe, "b", &small), KEPT);
    assert_eq!(retain(&mut joe, "c", &large), KEPT);
}

#[test]
fn f01_a_topic_counts_for_whoever_retained_last() {
    let broker = start_with(limited(retained(1, 0)), Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    let mut ann = v5("ann").username("ann").connect(&broker);
    assert_eq!(retain(&mut joe, "a", "1"), KEPT);

    assert_eq!(retain(&mut ann, "a", "2"), KEPT);

    assert_eq!(retain(&mut joe, "b", "1"), KEPT);
    assert_eq!(retain(&mut ann, "c", "1"), REFUSED);
}

#[test]
fn f01_a_user_with_its_share_takes_over_no_topic_of_others() {
    let broker = start_with(limited(retained(1, 10_000)), Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    let mut ann = v5("ann").username("ann").connect(&broker);
    assert_eq!(retain(&mut joe, "a", "1"), KEPT);
    assert_eq!(retain(&mut ann, "b", "1"), KEPT);

    assert_eq!(retain(&mut joe, "b", "2"), REFUSED);

    assert!(is_retained(&broker, "b", "1"));
    assert_eq!(retain(&mut joe, "a", ""), KEPT);
    assert_eq!(retain(&mut joe, "b", "2"), KEPT);
    assert_eq!(retain(&mut ann, "a", "1"), KEPT);
}

#[test]
fn f01_clients_without_user_name_have_the_share_of_their_address() {
    let broker = start(limited(retained(2, 0)));
    let mut one = v5("one").connect(&broker);
    assert_eq!(retain(&mut one, "a", "1"), KEPT);
    let mut two = v5("two").connect(&broker);
    assert_eq!(retain(&mut two, "b", "1"), KEPT);

    assert_eq!(retain(&mut two, "c", "1"), REFUSED);
}

#[test]
fn f01_no_user_takes_the_last_quarter_of_the_retained_messages() {
    let limits = Config {
        retained_messages: 4,
        ..limited(ShareLimits::default())
    };
    let broker = start_with(limits, Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    for topic in ["a", "b", "c"] {
        assert_eq!(retain(&mut joe, topic, "1"), KEPT);
    }

    assert_eq!(retain(&mut joe, "d", "1"), REFUSED);
    let mut ann = v5("ann").username("ann").connect(&broker);
    assert_eq!(retain(&mut ann, "d", "1"), KEPT);
}

#[test]
fn f01_what_a_user_has_retained_is_counted_again_from_the_store() {
    let home = Home::new();
    let limits = || Config {
        data: Some(home.data(1)),
        ..limited(retained(2, 0))
    };
    let broker = start_with(limits(), Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    assert_eq!(retain(&mut joe, "a", "1"), KEPT);
    assert_eq!(retain(&mut joe, "b", "1"), KEPT);
    drop(broker);

    let broker = start_with(limits(), Plugin::welcoming());

    let mut joe = v5("joe").username("joe").connect(&broker);
    assert_eq!(retain(&mut joe, "c", "1"), REFUSED);
    assert_eq!(retain(&mut joe, "a", ""), KEPT);
    assert_eq!(retain(&mut joe, "c", "1"), KEPT);
}

#[test]
fn f01_a_message_that_expires_gives_its_share_back() {
    let broker = start_with(limited(retained(1, 0)), Plugin::welcoming());
    let mut joe = v5("joe").username("joe").connect(&broker);
    // Retained, topic "a", Message Expiry Interval 1, payload "x".
    joe.send_bytes(b"\x31\x0a\x00\x01a\x05\x02\x00\x00\x00\x01x");
    joe.ping();
    assert_eq!(broker.stats().retained_messages, 1);
    eventually("it is swept", || broker.stats().retained_messages == 0);

    assert_eq!(retain(&mut joe, "b", "1"), KEPT);
}
