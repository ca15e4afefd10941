//! What one user, or one address, may have of the tables that all clients share (abuse F01, F12).

use mqttcore_broker::{AddressLimits, Broker, Config, ShareLimits};

use crate::common::{
    Hello, Home, Plugin, config, eventually, line_about, logged, start, start_with, v3, v5,
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
    ShareLimits { sessions }
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
