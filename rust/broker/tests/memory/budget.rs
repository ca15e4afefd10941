//! The figures of the budget beside what the heap says: what is counted is what is there (ADR 0033).
//!
//! The allocator's own rounding, and the tables whose size nobody asks for, make the difference that is allowed.

use super::*;
use crate::common::{Home, figure};

/// Bytes that may be missing, or be too much, whatever the load.
const SLACK: usize = MIB / 2;

/// What the broker counts now.
fn counted(broker: &Broker) -> usize {
    usize::try_from(broker.stats().memory_used_bytes).expect("it fits")
}

/// Loads `broker`, and compares by how much heap and figures have grown.
fn assert_counted(alone: &Alone, broker: &Broker, load: impl FnOnce() -> Vec<Client>) {
    let before = counted(broker);
    let heap = Heap::count(alone);

    let clients = load();

    let mut seen = (0, 0);
    let mut is_counted = || {
        seen = (heap.grown(), counted(broker).saturating_sub(before));
        let (grown, counted) = seen;
        grown > 4 * MIB && grown.abs_diff(counted) <= grown / 10 + SLACK
    };
    let start = std::time::Instant::now();
    while !is_counted() && start.elapsed() < common::DEADLINE {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    let (grown, counted) = seen;
    assert!(
        grown.abs_diff(counted) <= grown / 10 + SLACK,
        "{} KiB are held, {} KiB are counted",
        grown / KIB,
        counted / KIB
    );
    drop(clients);
}

fn deep() -> Config {
    Config {
        shards: 1,
        ..config_with_limits(|limits| {
            limits.queue_messages = 100_000;
            limits.queue_bytes = 1 << 30;
            limits.qos0_backlog_bytes = 8 * MIB;
        })
    }
}

fn queue(broker: &Broker, payload: usize, count: usize) -> Vec<Client> {
    let mut away = v3("away").keeping_session_s(60).connect(broker);
    away.subscribe("t", QoS::AtLeastOnce);
    away.disconnect();
    let mut writer = v3("writer").connect(broker);
    for _ in 0..count {
        writer.publish("t", vec![0; payload], QoS::AtLeastOnce);
        writer.receive();
    }
    vec![writer]
}

#[test]
fn large_messages_in_queues_are_counted() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || queue(&broker, 8 * KIB, 1_000));
}

#[test]
fn small_messages_in_queues_are_counted() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || queue(&broker, 20, 40_000));
}

#[test]
fn retained_messages_are_counted() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || {
        let mut writer = v3("writer").connect(&broker);
        for number in 0..10_000 {
            let topic = format!("kept/{number}");
            writer.publish_retained(&topic, [0; 500], QoS::AtMostOnce);
        }
        writer.ping();
        vec![writer]
    });
}

#[test]
fn messages_in_flight_are_counted_once_for_all_receivers() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || {
        let mut clients: Vec<Client> = (0..2)
            .map(|index| {
                let mut client = v3(&format!("mute-{index}")).connect(&broker);
                client.subscribe("t", QoS::AtLeastOnce);
                client
            })
            .collect();
        let mut writer = v3("writer").connect(&broker);
        for _ in 0..30 {
            writer.publish("t", vec![0; 200 * KIB], QoS::AtLeastOnce);
            writer.receive();
            for client in &mut clients {
                client.message();
            }
        }
        clients.push(writer);
        clients
    });
}

#[test]
fn frames_that_are_not_whole_are_counted() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || {
        let whole = frame("t", PublishQoS::AtMostOnce, &vec![0; 900_000]);
        let begin = |index| {
            let mut client = v3(&format!("slow-{index}")).connect(&broker);
            client.send_bytes(&whole[..800_000]);
            client
        };
        (0..10).map(begin).collect()
    });
}

#[test]
fn backlogs_of_clients_that_do_not_read_are_counted() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || {
        let mut clients: Vec<Client> = (0..4)
            .map(|index| {
                let hello = v3(&format!("stalled-{index}")).small_buffer();
                let mut client = hello.connect(&broker);
                client.subscribe(&format!("t/{index}/#"), QoS::AtMostOnce);
                client
            })
            .collect();
        let mut writer = v3("writer").connect(&broker);
        for _ in 0..1_000 {
            for index in 0..4 {
                writer.publish(&format!("t/{index}/x"), [0; 2_000], QoS::AtMostOnce);
            }
            writer.ping();
        }
        clients.push(writer);
        clients
    });
}

fn keep_sessions(broker: &Broker) -> Vec<Client> {
    for number in 0..10_000 {
        let mut client = v3(&format!("kept-{number}"))
            .keeping_session_s(60)
            .connect(broker);
        client.subscribe(&format!("fleet/{number}/command"), QoS::AtLeastOnce);
        client.disconnect();
    }
    Vec::new()
}

#[test]
fn sessions_are_counted() {
    let alone = Heap::alone();
    let broker = start(deep());
    assert_counted(&alone, &broker, || keep_sessions(&broker));
}

/// The store has a row for each session and its subscriptions, and for each message and its delivery.
#[test]
fn rows_of_the_store_are_counted() {
    let alone = Heap::alone();
    let home = Home::new();
    let broker = start(Config {
        data: Some(home.data(0)),
        spill_after: std::time::Duration::ZERO,
        ..deep()
    });
    assert_counted(&alone, &broker, || {
        keep_sessions(&broker);
        queue(&broker, 20, 60_000)
    });
    let rows = figure(&broker, "store_memory_bytes");
    assert!(rows > MIB as u64, "{rows}");
}
