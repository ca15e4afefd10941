//! Clients that come while the sessions of a large store are still being read: nothing is missed, and nothing is decided
//! too early. A test is done again with a larger store until it was quicker than the broker.

use std::fs;
use std::time::Duration;

use mqttcore_broker::Broker;
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_store::record::{Record, WillSet};

use crate::common::many::{fill, filter, name, opened};
use crate::common::{Client, HOUR_S, Hello, Home, Received, copy, v5};

fn hello(number: u64) -> Hello {
    v5(&name(number)).keeping_session_s(HOUR_S)
}

fn is_loading(broker: &Broker) -> bool {
    broker.stats().sessions_to_come > 0
}

/// Runs `test` with a store of more and more sessions until it says that the broker was still reading.
fn while_loading(mut test: impl FnMut(u64, &Home) -> bool) {
    let mut sessions = 2_000;
    loop {
        let home = Home::new();
        if test(sessions, &home) {
            return;
        }
        sessions *= 4;
        assert!(sessions < 1_000_000, "the broker is always quicker");
    }
}

fn take(client: &mut Client, text: &str) {
    let message = client.message();
    assert_eq!(message.text(), text);
    client.acknowledge(&message);
}

#[test]
fn a_client_gets_its_session_and_queued_messages_before_all_are_read() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |_| {});
        let broker = home.start(0);

        let (mut client, is_resumed) = hello(sessions - 1).connect_or_resume(&broker);
        take(&mut client, "waited");
        client.ping();
        let was_loading = is_loading(&broker);

        assert!(is_resumed);
        assert_eq!(broker.clients().len() as u64, sessions);
        assert!(!is_loading(&broker));
        was_loading
    });
}

#[test]
fn messages_published_meanwhile_reach_sessions_that_are_not_read_yet() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |_| {});
        let broker = home.start(0);
        let reached: Vec<u64> = (0..20)
            .map(|step| sessions - step * (sessions / 20))
            .collect();

        let mut publisher = v5("publisher").connect(&broker);
        for number in &reached {
            publisher.publish(&filter(*number), "new", QoS::AtLeastOnce);
        }
        let was_loading = is_loading(&broker);
        for _ in &reached {
            assert!(
                matches!(publisher.receive(), Received::PubAck(_, reason) if reason == ReasonCode::SUCCESS)
            );
        }

        for number in reached {
            let (mut client, is_resumed) = hello(number).connect_or_resume(&broker);
            assert!(is_resumed);
            take(&mut client, "waited");
            take(&mut client, "new");
        }
        was_loading
    });
}

/// The oldest session is back at once, the newest one is the one that hears the will.
#[test]
fn a_will_that_is_due_waits_until_all_subscribers_are_loaded() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |batch| {
            let (hears, died) = (sessions + 2, sessions + 1);
            opened(died, "died", batch);
            batch.push(&Record::WillSet(WillSet {
                session: died,
                delay_s: 0,
                qos: 1,
                retain: false,
                topic: "will",
                properties: &[],
                payload: b"farewell",
            }));
            opened(hears, "hears", batch);
            batch.push(&Record::Subscribed {
                session: hears,
                filter: "will",
                options: 1,
                id: 0,
            });
        });
        let broker = home.start(0);

        let died = v5("died").keeping_session_s(HOUR_S);
        let mut died_client = died.dial(&broker);
        let was_loading = is_loading(&broker);
        assert!(died_client.expect_welcome());
        assert!(!is_loading(&broker), "it had to wait");

        let hears = v5("hears").keeping_session_s(HOUR_S);
        take(&mut hears.connect(&broker), "farewell");
        was_loading
    });
}

#[test]
fn of_two_with_the_same_identifier_the_second_one_stays() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |_| {});
        let broker = home.start(0);

        let mut first = hello(sessions).connect(&broker);
        let mut second = hello(sessions).dial(&broker);
        let was_loading = is_loading(&broker);

        assert!(second.expect_welcome());
        assert!(!first.until_closed().is_empty());
        take(&mut second, "waited");
        was_loading
    });
}

#[test]
fn a_clean_start_ends_a_session_that_was_not_read_yet() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |_| {});
        let broker = home.start(0);

        let mut client = v5(&name(sessions)).clean_start().dial(&broker);
        let was_loading = is_loading(&broker);
        assert!(!client.expect_welcome());
        client.disconnect();

        let second = home.crash(broker, 0);
        assert!(!hello(sessions).connect_or_resume(&second).1);
        was_loading
    });
}

/// What a client was told before the broker died is so, and nothing else has changed.
#[test]
fn a_broker_that_dies_while_it_reads_loses_nothing() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |_| {});
        let broker = home.start(0);
        let mut client = hello(sessions - 1).connect(&broker);
        take(&mut client, "waited");
        client.ping();
        let was_loading = is_loading(&broker);

        copy(&home.folder(0), &home.folder(1));
        drop(broker);
        fs::remove_dir_all(home.folder(0)).unwrap();
        let second = home.start(1);

        for number in [1, sessions / 2, sessions] {
            let (mut client, is_resumed) = hello(number).connect_or_resume(&second);
            assert!(is_resumed);
            take(&mut client, "waited");
        }
        assert_eq!(second.clients().len() as u64, sessions);
        was_loading
    });
}

#[test]
fn a_broker_that_is_stopped_while_it_reads_ends_in_order() {
    while_loading(|sessions, home| {
        fill(&home.folder(0), sessions, |_| {});
        let broker = home.start(0);
        let mut client = hello(1).will("will", "farewell").connect(&broker);
        let was_loading = is_loading(&broker);

        broker.stop(Duration::from_secs(5));

        assert!(!client.until_closed().is_empty());
        let second = home.start(0);
        assert_eq!(second.clients().len() as u64, sessions);
        was_loading
    });
}
