//! Wills of many clients that are lost at once (abuse F09).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::QoS;

use crate::common::{
    Client, DEADLINE, HOUR_S, Hello, Home, back, config, deep_queues, eventually, start, v5, within,
};

/// So many wills a second, of clients on one shard.
fn slowly(wills_per_second: u32) -> Config {
    Config {
        wills_per_second,
        shards: 1,
        ..config()
    }
}

fn mortal(number: usize) -> Hello {
    let text = number.to_string();
    let hello = v5(&format!("mortal {number}"));
    hello.will("will", &text).will_qos(QoS::AtLeastOnce)
}

/// Connects `count` clients with a will, and cuts them off at once.
fn lose(broker: &Broker, count: usize) {
    let mortals: Vec<Client> = (0..count)
        .map(|number| mortal(number).connect(broker))
        .collect();
    mortals.into_iter().for_each(Client::vanish);
}

/// The numbers of the next `count` wills.
fn take_wills(heir: &mut Client, count: usize) -> BTreeSet<usize> {
    let wills = (0..count).map(|_| {
        let will = heir.take_message();
        assert_eq!(will.topic, "will");
        will.number()
    });
    wills.collect()
}

#[test]
fn f09_wills_of_two_thousand_lost_clients_are_spread_and_others_are_answered() {
    const MORTALS: usize = 2_000;
    let broker = start(Config {
        wills_per_second: 400,
        ..deep_queues()
    });
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("will", QoS::AtLeastOnce);
    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("bystander", QoS::AtMostOnce);
    let start = Instant::now();

    lose(&broker, MORTALS);

    for number in 0..200 {
        bystander.publish("bystander", number.to_string(), QoS::AtMostOnce);
        assert_eq!(bystander.take_message().number(), number);
    }
    assert_eq!(take_wills(&mut heir, MORTALS).len(), MORTALS);
    // Those of one second come at once, and the others four shards at a time.
    assert!(start.elapsed() >= Duration::from_secs(3));
    assert!(broker.stats().wills_delayed >= 1_000);
    eventually("all are gone", || broker.stats().clients_connected == 2);
}

#[test]
fn f09_a_client_that_comes_back_finds_its_will_published() {
    /// As many as are in flight to one client.
    const MORTALS: usize = 32;
    let broker = start(slowly(1));
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("#", QoS::AtLeastOnce);
    lose(&broker, MORTALS);
    eventually("most of them wait", || {
        broker.stats().wills_delayed >= MORTALS as u64 - 1
    });

    let mut back: Vec<Client> = (0..MORTALS)
        .map(|number| mortal(number).connect(&broker))
        .collect();
    back[0].publish("marker", "", QoS::AtMostOnce);

    assert_eq!(take_wills(&mut heir, MORTALS).len(), MORTALS);
    assert_eq!(heir.take_message().topic, "marker");
}

#[test]
fn f09_a_stop_publishes_the_wills_that_wait() {
    const MORTALS: usize = 40;
    let broker = start(slowly(1));
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("will", QoS::AtMostOnce);
    lose(&broker, MORTALS);
    eventually("most of them wait", || {
        broker.stats().wills_delayed >= MORTALS as u64 - 1
    });

    // It has no deadline that could end it.
    let stopping = std::thread::spawn(move || {
        within(DEADLINE, "stop", move || {
            broker.stop(Duration::from_secs(3_600));
        });
    });

    assert_eq!(take_wills(&mut heir, MORTALS).len(), MORTALS);
    stopping.join().expect("it stops");
}

#[test]
fn f09_a_will_that_waits_outlives_the_broker() {
    const MORTALS: usize = 40;
    let home = Home::new();
    let broker = home.start_with(1, slowly(1));
    let mut heir = v5("heir").keeping_session_s(HOUR_S).connect(&broker);
    heir.subscribe("will", QoS::AtLeastOnce);
    heir.disconnect();
    lose(&broker, MORTALS);
    eventually("most of them wait", || {
        broker.stats().wills_delayed >= MORTALS as u64 - 1
    });

    let broker = home.crash(broker, 1);

    let mut heir = back(&broker, "heir");
    assert_eq!(take_wills(&mut heir, MORTALS).len(), MORTALS);
}

#[test]
fn f09_clients_that_disconnect_or_have_no_will_do_not_wait() {
    let broker = start(slowly(1));

    for number in 0..20 {
        mortal(number).connect(&broker).disconnect();
        v5(&format!("no will {number}")).connect(&broker).vanish();
    }

    eventually("all are gone", || broker.stats().clients_connected == 0);
    assert_eq!(broker.stats().wills_delayed, 0);
}
