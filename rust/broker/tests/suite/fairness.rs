//! Whoever sends as fast as it can does not make the others wait (abuse H15).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::QoS;

use crate::common::{config, eventually, start, v3, v5};

/// For all of a test's questions: far below what starvation takes, far above what is needed.
const SOON: Duration = Duration::from_secs(5);

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

fn assert_soon(start: Instant, what: &str) {
    let took = start.elapsed();
    assert!(took < SOON, "{what} took {took:?}");
}

#[test]
fn a_newcomer_is_let_in_soon_while_others_flood() {
    let broker = one_shard();
    let _flood = Flood::new(&broker, QoS::AtMostOnce);

    let start = Instant::now();
    for index in 0..3 {
        v5(&format!("newcomer-{index}"))
            .connect(&broker)
            .disconnect();
    }

    assert_soon(start, "coming and going");
}

#[test]
fn a_bystander_is_answered_soon_while_others_flood() {
    let broker = one_shard();
    let mut bystander = v5("bystander").connect(&broker);
    let _flood = Flood::new(&broker, QoS::AtMostOnce);

    let start = Instant::now();
    for _ in 0..3 {
        bystander.ping();
    }

    assert_soon(start, "three pings");
}

#[test]
fn a_bystander_is_answered_soon_while_others_flood_at_qos_1() {
    let broker = one_shard();
    let mut bystander = v5("bystander").connect(&broker);
    let _flood = Flood::new(&broker, QoS::AtLeastOnce);

    let start = Instant::now();
    for _ in 0..3 {
        bystander.ping();
    }

    assert_soon(start, "three pings");
}

#[test]
fn a_will_is_on_time_while_others_flood() {
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
    assert_soon(start, "a second");
}
