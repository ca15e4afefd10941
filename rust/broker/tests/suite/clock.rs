//! What falls due comes, and is never early; how late it may be is said by the tests of the wheel.

use std::time::{Duration, Instant};

use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{Client, Received, config, eventually, start, v3, v5};

fn assert_not_early(took: Duration, due: Duration) {
    assert!(took >= due, "early: {took:?} instead of {due:?}");
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn heir(broker: &mqttcore_broker::Broker) -> Client {
    let mut client = v5("heir").connect(broker);
    client.subscribe("will", QoS::AtMostOnce);
    client
}

/// [MQTT-3.1.3-9]
#[test]
fn mqtt_3_1_3_9_a_will_comes_after_its_delay() {
    let broker = start(config());
    let mut heir = heir(&broker);
    let client = v5("one")
        .expiring_s(60)
        .will("will", "late")
        .will_delay_s(1)
        .connect(&broker);

    let start = Instant::now();
    client.vanish();

    assert_eq!(heir.message().text(), "late");
    assert_not_early(start.elapsed(), seconds(1.0));
    assert_eq!(broker.stats().sessions, 2);
}

/// Abuse F10: the session's end is the latest.
#[test]
fn a_will_comes_when_its_session_ends_before_its_delay_does() {
    let broker = start(config());
    let mut heir = heir(&broker);
    let client = v5("one")
        .expiring_s(1)
        .will("will", "with the session")
        .will_delay_s(100)
        .connect(&broker);

    let start = Instant::now();
    client.vanish();

    assert_eq!(heir.message().text(), "with the session");
    assert_not_early(start.elapsed(), seconds(1.0));
}

#[test]
fn a_will_without_delay_comes_at_once() {
    let broker = start(config());
    let mut heir = heir(&broker);
    let client = v5("one")
        .expiring_s(60)
        .will("will", "now")
        .connect(&broker);

    client.vanish();

    assert_eq!(heir.message().text(), "now");
}

/// [MQTT-3.1.3-9] A clean start ends the session that the will waits for.
#[test]
fn a_delayed_will_comes_at_once_when_a_clean_start_ends_its_session() {
    let broker = start(config());
    let mut heir = heir(&broker);
    let hello = v5("one").expiring_s(60);
    let client = hello
        .clone()
        .will("will", "replaced")
        .will_delay_s(100)
        .connect(&broker);
    client.vanish();
    eventually("the client is gone", || {
        broker.stats().clients_connected == 1
    });

    let _new = hello.connect(&broker);

    assert_eq!(heir.message().text(), "replaced");
}

#[test]
fn a_session_ends_after_its_expiry_interval() {
    let broker = start(config());
    let mut client = v5("one").expiring_s(1).connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);

    let start = Instant::now();
    client.vanish();
    eventually("the session ends", || broker.stats().sessions == 0);

    assert_not_early(start.elapsed(), seconds(1.0));
    assert_eq!(broker.stats().sessions_expired, 1);
    eventually("its subscription ends", || {
        broker.stats().subscriptions == 0
    });
    let (_, present) = v5("one").keeping_session_s(1).connect_or_resume(&broker);
    assert!(!present);
}

#[test]
fn a_session_that_is_resumed_in_time_does_not_end() {
    let broker = start(config());
    let hello = v5("one").keeping_session_s(1);
    hello.connect(&broker).vanish();
    eventually("the client is gone", || {
        broker.stats().clients_connected == 0
    });
    let (mut client, present) = hello.connect_or_resume(&broker);
    assert!(present);

    client.hears_nothing_for(seconds(1.2));

    client.ping();
    assert_eq!(broker.stats().sessions_expired, 0);
}

#[test]
fn a_session_without_expiry_ends_with_its_connection() {
    let broker = start(config());
    v5("one").connect(&broker).vanish();

    eventually("the session ends", || broker.stats().sessions == 0);

    assert_eq!(broker.stats().sessions_expired, 0);
}

/// [MQTT-3.1.2-22]
#[test]
fn mqtt_3_1_2_22_a_silent_v5_client_is_closed_after_one_and_a_half_keep_alives() {
    let broker = start(config());
    let mut heir = heir(&broker);
    let hello = v5("one").keep_alive_s(1).will("will", "silent");
    let mut client = hello.connect(&broker);
    let start = Instant::now();
    client.ping();

    let packets = client.until_closed();

    assert_not_early(start.elapsed(), seconds(1.5));
    let disconnect = Received::Disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT);
    assert_eq!(packets, [disconnect]);
    assert_eq!(broker.stats().keep_alive_timeouts, 1);
    assert_eq!(heir.message().text(), "silent");
}

#[test]
fn every_packet_keeps_a_client_alive() {
    let broker = start(config());
    let mut client = v3("one").keep_alive_s(1).connect(&broker);

    for _ in 0..2 {
        client.hears_nothing_for(seconds(0.95));
        client.publish("a", "", QoS::AtMostOnce);
    }

    client.ping();
    assert_eq!(broker.stats().keep_alive_timeouts, 0);
}

/// [MQTT-3.1.2-22] Messages to the client are no sign of life of it.
#[test]
fn what_a_client_receives_does_not_keep_it_alive() {
    let broker = start(config());
    let mut client = v5("one").keep_alive_s(1).connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);
    let start = Instant::now();
    client.ping();
    let mut publisher = v5("publisher").connect(&broker);

    let mut heard = Vec::new();
    while heard.last() != Some(&Received::Disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT)) {
        publisher.publish("a", "", QoS::AtMostOnce);
        publisher.hears_nothing_for(seconds(0.1));
        heard.push(client.receive());
    }

    assert_not_early(start.elapsed(), seconds(1.5));
}

#[test]
fn many_deadlines_at_once_are_all_kept() {
    const CLIENTS: usize = 200;
    let broker = start(config());
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|index| {
            v5(&format!("client-{index}"))
                .expiring_s(1)
                .connect(&broker)
        })
        .collect();

    let start = Instant::now();
    clients.into_iter().for_each(Client::vanish);
    eventually("all sessions end", || broker.stats().sessions == 0);

    assert_not_early(start.elapsed(), seconds(1.0));
    assert_eq!(broker.stats().sessions_expired, CLIENTS as u64);
}
