//! A thread or task that the broker cannot do without ends the broker when it panics: it says which one, sends its
//! clients away, and stops as ever. A binary of its own, as every broker of the process might have the panic.

#[path = "../../broker/tests/common/mod.rs"]
mod common;
#[path = "suite/served.rs"]
mod served;

use std::time::Duration;

use mqttcore_broker::{BrokerFailure, Config, Listener};
use mqttcore_codec::QoS;
use mqttcore_http::{HttpListener, HttpOptions, MetricsAccess};
use mqttcore_panics::panic_in;
use mqttcore_tls::{TlsSettings, make_files};

use common::{DEADLINE, HOUR_S, Home, v5, within};
use served::{Served, Setup, stream};

/// Everything that has a thread.
fn everything(home: &Home) -> Setup {
    let setup = Setup::new(home, vec![stream("rows", "rows/#")]);
    let encrypted = Listener {
        tls: Some(certificates(home)),
        ..Listener::new("encrypted", ([127, 0, 0, 1], 0).into())
    };
    let config = Config {
        sys_interval: Some(Duration::from_secs(1)),
        scrub_every: Duration::from_secs(3_600),
        shards: 2,
        listeners: [setup.config.listeners, vec![encrypted]].concat(),
        ..setup.config
    };
    let endpoint = HttpListener {
        address: ([127, 0, 0, 1], 0).into(),
        token: Some("0123456789abcdef".to_owned()),
        metrics: MetricsAccess::Token,
        tls: Some(certificates(home)),
    };
    let http = HttpOptions {
        tcp: Some(endpoint),
        ..setup.http
    };
    Setup {
        config,
        http,
        ..setup
    }
}

/// A certificate of this test's own, made with the first start.
fn certificates(home: &Home) -> TlsSettings {
    let folder = home.path().join("certificates");
    if !folder.exists() {
        let hosts = ["localhost".to_owned()];
        make_files(&folder, &hosts, "client").expect("the files are written");
    }
    TlsSettings::new(folder.join("server.pem"), folder.join("server.key"))
}

fn start(home: &Home) -> Result<Served, String> {
    let started = everything(home).try_start();
    started.map_err(|error| error.to_string())
}

/// Stops it; returns how many panics it has counted.
fn stop(broker: Served) -> u64 {
    within(DEADLINE, "stop", move || {
        broker.stop(DEADLINE);
        broker.stats().panics
    })
}

/// What the broker says when `place` panics, at its start or a moment later, and how many panics it counts.
fn said_of(place: &str) -> (String, u64) {
    let home = Home::new();
    panic_in(place);
    let broker = match start(&home) {
        Ok(broker) => broker,
        Err(error) => return (error, 0),
    };
    // Each shard is asked: the one that is to panic may sleep.
    broker.clients();
    let failure = broker.wait_for_failure(DEADLINE).expect("it says so");
    let panics = stop(broker);
    // What was kept is for the next one.
    stop(start(&home).expect("the next one starts"));
    (failure.to_string(), panics)
}

#[test]
fn each_thread_that_panics_ends_the_broker_and_is_named() {
    for place in [
        "mqttcore-load",
        "mqttcore-pages",
        "mqttcore-index",
        "mqttcore-rows",
        "mqttcore-sealer",
        "mqttcore-scrub",
        "the timers of a shard",
        "writing to connections",
        "$SYS",
        "the clock",
        "the acceptor",
        "the watch over certificates",
        "the watch over the endpoint's certificates",
        "the endpoint's acceptor",
        "the endpoint's upkeep",
    ] {
        let (said, panics) = said_of(place);

        assert_eq!(said, format!("{place} panicked: a test asked for it"));
        assert_eq!(panics, 1, "{place}");
    }
    for (place, says) in [
        ("mqttcore-log", "mqttcore-log panicked: a test asked for it"),
        ("mqttcore-0", "cannot start shard 0: the thread ended"),
        ("the loop of a shard", " panicked: a test asked for it"),
        ("mqttcore-http", "the thread ended before it began"),
    ] {
        let (said, _) = said_of(place);

        assert!(said.contains(says), "{place}: {said}");
    }
    the_thread_of_the_last_checkpoint();
    a_client_is_sent_away();
    a_panic_in_a_write_closes_one_connection();
}

fn the_thread_of_the_last_checkpoint() {
    let home = Home::new();
    let broker = start(&home).expect("it starts");
    v5("client")
        .expiring_s(HOUR_S)
        .connect(&broker)
        .disconnect();
    panic_in("mqttcore-checkpoint");

    broker.stop(DEADLINE);

    let said = broker.failure().expect("it says so").to_string();
    assert_eq!(said, "mqttcore-checkpoint panicked: a test asked for it");
    stop(start(&home).expect("the next one starts"));
}

fn a_client_is_sent_away() {
    let home = Home::new();
    let broker = start(&home).expect("it starts");
    let mut client = v5("client").connect(&broker);
    panic_in("the loop of a shard");
    // Each shard is asked, and one of them panics instead.
    broker.clients();

    client.until_closed();

    assert!(matches!(broker.failure(), Some(BrokerFailure::Panicked(_))));
    stop(broker);
}

/// ADR 0150: others write to a client without a turn of its task.
fn a_panic_in_a_write_closes_one_connection() {
    let home = Home::new();
    let broker = start(&home).expect("it starts");
    let mut unlucky = v5("unlucky").connect(&broker);
    unlucky.subscribe("a", QoS::AtMostOnce);
    unlucky.ping();
    let mut publisher = v5("publisher").connect(&broker);
    panic_in("a connection's task, its connection is closed");

    publisher.publish("a", "x", QoS::AtMostOnce);
    unlucky.until_closed();

    assert_eq!(broker.stats().panics, 1);
    let mut next = v5("unlucky").connect(&broker);
    next.subscribe("a", QoS::AtMostOnce);
    next.ping();
    publisher.publish("a", "y", QoS::AtMostOnce);
    assert_eq!(next.take_message().text(), "y");
    stop(broker);
}
