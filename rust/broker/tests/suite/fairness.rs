//! Whoever sends as fast as it can does not starve the others (abuse H15): a flood that does not end ends no
//! wait, so each of these tests fails by the deadline of its client. `make storm` measures how long they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::QoS;

use crate::common::{config, eventually, start, v3, v5};

/// Publishers at line rate on the only shard, until this is dropped.
struct Flood {
    done: Arc<AtomicBool>,
    publishers: Vec<JoinHandle<()>>,
}

impl Flood {
    fn new(broker: &Broker, qos: QoS) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let publishers = (0..3)
            .map(|index| {
                let mut client = v3(&format!("flood-{index}")).connect(broker);
                let mut reader = client.second_hand();
                let batch = client.numbered("flood/nobody", qos, 0..4_000);
                let done = Arc::clone(&done);
                std::thread::spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        client.send_bytes(&batch);
                        if qos > QoS::AtMostOnce {
                            (0..4_000).for_each(|_| drop(reader.receive()));
                        }
                    }
                })
            })
            .collect();
        eventually("the flood is there", || {
            broker.stats().messages_received > 20_000
        });
        Self { done, publishers }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for publisher in self.publishers.drain(..) {
            publisher.join().expect("the publisher ends");
        }
    }
}

fn one_shard() -> Broker {
    start(Config {
        shards: 1,
        ..config()
    })
}

#[test]
fn a_newcomer_is_let_in_while_others_flood() {
    let broker = one_shard();
    let _flood = Flood::new(&broker, QoS::AtMostOnce);

    for index in 0..3 {
        v5(&format!("newcomer-{index}"))
            .connect(&broker)
            .disconnect();
    }
}

#[test]
fn a_bystander_is_answered_while_others_flood() {
    let broker = one_shard();
    let mut bystander = v5("bystander").connect(&broker);
    let _flood = Flood::new(&broker, QoS::AtMostOnce);

    for _ in 0..3 {
        bystander.ping();
    }
}

#[test]
fn a_bystander_is_answered_while_others_flood_at_qos_1() {
    let broker = one_shard();
    let mut bystander = v5("bystander").connect(&broker);
    let _flood = Flood::new(&broker, QoS::AtLeastOnce);

    for _ in 0..3 {
        bystander.ping();
    }
}

#[test]
fn a_will_comes_while_others_flood() {
    let broker = one_shard();
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("will", QoS::AtMostOnce);
    let client = v5("one")
        .expiring_s(60)
        .will("will", "on time")
        .will_delay_s(1)
        .connect(&broker);
    let _flood = Flood::new(&broker, QoS::AtMostOnce);

    let start = Instant::now();
    client.vanish();
    assert_eq!(heir.message().text(), "on time");

    assert!(start.elapsed() >= Duration::from_secs(1));
}
