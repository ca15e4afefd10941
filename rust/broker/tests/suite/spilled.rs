//! Queues that are in the store alone: after a restart, or because the client stays away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Data, Durability};
use mqttcore_codec::{Packet, Properties, QoS};
use mqttcore_session::{QueuePolicy, ServerLimits};

use crate::common::{
    Client, HOUR_S, Home, Message, Received, back, config_with_limits, deep_queues, eventually,
    queued, v5,
};

const MANY: usize = 1_500;

/// A broker that lets go of a queue as soon as its client is away.
fn hasty(config: Config) -> Config {
    Config {
        spill_after: Duration::ZERO,
        ..config
    }
}

fn subscribed(broker: &Broker, id: &str, filter: &str, qos: QoS) -> Client {
    let mut client = v5(id).keeping_session_s(HOUR_S).connect(broker);
    client.subscribe(filter, qos);
    client
}

fn is_away(broker: &Broker, id: &str) -> bool {
    let clients = broker.clients();
    clients
        .iter()
        .any(|client| &*client.client_id == id && !client.connected)
}

/// Sees the session away, and its queue let go of: the wheel turns in less.
fn leave(broker: &Broker, client: Client, id: &str) {
    client.vanish();
    eventually("the client is away", || is_away(broker, id));
    thread::park_timeout(Duration::from_millis(400));
}

#[test]
fn a_long_queue_comes_back_in_pages_after_a_restart_and_what_comes_meanwhile_behind_it() {
    let home = Home::new();
    let first = home.start_with(0, deep_queues());
    drop(subscribed(&first, "reader", "a", QoS::ExactlyOnce));
    let mut publisher = v5("publisher").connect(&first);
    publisher.publish_numbers("a", QoS::ExactlyOnce, MANY);

    let second = home.crash_with(first, 0, deep_queues());

    assert_eq!(queued(&second, "reader"), MANY);
    let mut reader = back(&second, "reader");
    let mut publisher = v5("publisher").connect(&second);
    for number in 0..MANY {
        assert_eq!(reader.take_message().number(), number);
        if number == MANY / 2 {
            publisher.publish_numbers("a", QoS::ExactlyOnce, 50);
        }
    }
    for number in 0..50 {
        assert_eq!(reader.take_message().number(), number);
    }
    eventually("nothing waits", || queued(&second, "reader") == 0);
}

/// As when it was in memory: queued messages are sent before the reply to any request of the client.
#[test]
fn queued_messages_come_before_the_first_answer() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let home = Home::new();
        let first = home.start(0);
        drop(subscribed(&first, "reader", "a", qos));
        v5("publisher").connect(&first).publish_numbers("a", qos, 3);
        let second = home.crash(first, 0);

        let mut reader = back(&second, "reader");
        reader.send(&Packet::PingReq);

        let numbers: Vec<_> = (0..3).map(|_| reader.message().number()).collect();
        assert_eq!(numbers, [0, 1, 2], "{qos:?}");
        assert_eq!(reader.receive(), Received::PingResp);
    }
}

#[test]
fn a_queue_that_was_let_go_of_is_counted_exactly_and_comes_back_whole() {
    let home = Home::new();
    let small = || {
        hasty(config_with_limits(|limits: &mut ServerLimits| {
            limits.queue_disk_messages = 300;
        }))
    };
    let broker = home.start_with(0, small());
    let reader = subscribed(&broker, "reader", "a", QoS::AtLeastOnce);
    leave(&broker, reader, "reader");
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_numbers("a", QoS::AtLeastOnce, 200);

    let broker = home.crash_with(broker, 0, small());

    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_numbers("a", QoS::AtLeastOnce, 150);
    eventually("the others are dropped", || {
        broker.stats().dropped_queue_full == 50
    });
    assert_eq!(queued(&broker, "reader"), 300);
    let mut reader = back(&broker, "reader");
    for number in (0..200).chain(0..100) {
        assert_eq!(reader.take_message().number(), number);
    }
    reader.hears_nothing_for(Duration::from_millis(100));
}

#[test]
fn the_policy_drop_oldest_holds_after_a_restart() {
    let home = Home::new();
    let oldest = || {
        hasty(config_with_limits(|limits: &mut ServerLimits| {
            limits.queue_messages = 300;
            limits.queue_policy = QueuePolicy::DropOldest;
        }))
    };
    let broker = home.start_with(0, oldest());
    let reader = subscribed(&broker, "reader", "a", QoS::AtLeastOnce);
    leave(&broker, reader, "reader");
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_numbers("a", QoS::AtLeastOnce, 300);

    let broker = home.crash_with(broker, 0, oldest());
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_numbers("a", QoS::AtLeastOnce, 10);

    eventually("ten are dropped", || {
        broker.stats().dropped_queue_full == 10
    });
    let mut reader = back(&broker, "reader");
    for number in (10..300).chain(0..10) {
        assert_eq!(reader.take_message().number(), number);
    }
}

/// Publishers of all shards and QoS go on while the reader comes, reads a little and goes: what a
/// page has must not come another time from another shard, whenever that hands it over. What is
/// published at QoS 2 is handed over when the disk has it.
#[test]
fn nothing_is_lost_or_doubled_while_a_reader_comes_and_goes() {
    const PUBLISHERS: usize = 6;
    const ROUNDS: usize = 8;
    let home = Home::new();
    let data = Data {
        folder: home.folder(0),
        durability: Durability::Fsync,
    };
    let broker = Arc::new(home.start_with(
        0,
        Config {
            data: Some(data),
            ..hasty(deep_queues())
        },
    ));
    drop(subscribed(&broker, "reader", "flood/#", QoS::ExactlyOnce));
    let is_over = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|index| {
            let (broker, is_over) = (Arc::clone(&broker), Arc::clone(&is_over));
            thread::spawn(move || publish_until(&broker, index, &is_over))
        })
        .collect();

    let mut received = Book::default();
    for round in 1..=ROUNDS {
        let mut reader = back(&broker, "reader");
        for _ in 0..30 * round {
            received.add(&reader.take_message());
        }
        leave(&broker, reader, "reader");
    }
    is_over.store(true, Ordering::Release);
    let published: usize = publishers
        .into_iter()
        .map(|publisher| publisher.join().expect("a publisher"))
        .sum();
    let mut reader = back(&broker, "reader");
    while received.seen.len() < published {
        received.add(&reader.take_message());
    }
    reader.send(&Packet::PingReq);
    loop {
        match reader.receive() {
            Received::PubRel(id, _) => reader.pubcomp(id),
            Received::PingResp => break,
            other => panic!("one too many: {other:?}"),
        }
    }
}

/// Publishes numbers to a topic of its own, a few at a time; returns how many.
fn publish_until(broker: &Broker, index: usize, is_over: &AtomicBool) -> usize {
    const TOGETHER: usize = 10;
    let mut publisher = v5(&format!("publisher-{index}")).connect(broker);
    let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][index % 2];
    let mut next = 0;
    while !is_over.load(Ordering::Acquire) {
        publisher.publish_range(&format!("flood/{index}"), qos, next..next + TOGETHER);
        next += TOGETHER;
    }
    next
}

/// What came, by publisher.
#[derive(Default)]
struct Book {
    last: BTreeMap<usize, usize>,
    seen: BTreeSet<(usize, usize)>,
}

impl Book {
    fn add(&mut self, message: &Message) {
        let index = message.topic["flood/".len()..].parse().expect("a number");
        let number = message.number();
        if !self.seen.insert((index, number)) {
            assert!(message.dup, "{number} of publisher {index} came twice");
            return;
        }
        let last = self.last.insert(index, number);
        assert!(
            last.is_none_or(|last| last < number),
            "{number} of publisher {index} is late"
        );
    }
}

#[test]
fn a_session_that_starts_clean_does_not_get_what_was_on_its_way_back() {
    let home = Home::new();
    let broker = home.start_with(0, hasty(deep_queues()));
    let reader = subscribed(&broker, "reader", "a", QoS::AtLeastOnce);
    leave(&broker, reader, "reader");
    v5("publisher")
        .connect(&broker)
        .publish_numbers("a", QoS::AtLeastOnce, MANY);
    back(&broker, "reader").vanish();

    let mut reader = v5("reader")
        .clean_start()
        .expiring_s(HOUR_S)
        .connect(&broker);
    reader.subscribe("a", QoS::AtLeastOnce);

    reader.hears_nothing_for(Duration::from_millis(200));
    assert_eq!(
        broker.publish("a", b"new", QoS::AtLeastOnce, false, Properties::EMPTY),
        Ok(1)
    );
    assert_eq!(reader.message().text(), "new");
}

/// Without an expiry the session ends with its connection: until then it has its queue.
#[test]
fn a_client_that_is_back_for_the_last_time_gets_its_queue() {
    let home = Home::new();
    let broker = home.start_with(0, hasty(deep_queues()));
    let reader = subscribed(&broker, "reader", "a", QoS::AtLeastOnce);
    leave(&broker, reader, "reader");
    v5("publisher")
        .connect(&broker)
        .publish_numbers("a", QoS::AtLeastOnce, 600);

    let (mut reader, is_resumed) = v5("reader").keeping_session_s(0).connect_or_resume(&broker);

    assert!(is_resumed);
    for number in 0..600 {
        assert_eq!(reader.take_message().number(), number);
    }
}

/// With a store, the queue of a kept session is limited by bytes on the disk: by default no number of messages.
#[test]
fn default_limits_drop_nothing_of_a_kept_session_that_is_away_or_slow() {
    let home = Home::new();
    let broker = home.start(0);
    drop(subscribed(&broker, "away", "a", QoS::AtLeastOnce));
    let mut slow = subscribed(&broker, "slow", "a", QoS::AtLeastOnce);
    v5("publisher")
        .connect(&broker)
        .publish_numbers("a", QoS::AtLeastOnce, 3 * MANY);
    assert!(queued(&broker, "slow") > 2 * MANY);

    for number in 0..3 * MANY {
        assert_eq!(slow.take_message().number(), number);
    }
    let broker = home.crash(broker, 0);

    let mut away = back(&broker, "away");
    for number in 0..3 * MANY {
        assert_eq!(away.take_message().number(), number);
    }
    assert_eq!(broker.stats().dropped_queue_full, 0);
}

/// Publishers go on while a slow reader, whose queue goes to the store again and again, takes what there is.
#[test]
fn nothing_is_lost_or_doubled_while_a_slow_reader_has_its_queue_in_the_store() {
    const PUBLISHERS: usize = 4;
    let home = Home::new();
    let small = config_with_limits(|limits: &mut ServerLimits| limits.queue_messages = 50);
    let broker = Arc::new(home.start_with(0, small));
    let mut reader = subscribed(&broker, "reader", "flood/#", QoS::ExactlyOnce);
    let is_over = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|index| {
            let (broker, is_over) = (Arc::clone(&broker), Arc::clone(&is_over));
            thread::spawn(move || publish_until(&broker, index, &is_over))
        })
        .collect();

    let mut received = Book::default();
    for _ in 0..2 * MANY {
        received.add(&reader.take_message());
    }
    is_over.store(true, Ordering::Release);
    let published: usize = publishers
        .into_iter()
        .map(|publisher| publisher.join().expect("a publisher"))
        .sum();
    while received.seen.len() < published {
        received.add(&reader.take_message());
    }

    eventually("nothing waits", || queued(&broker, "reader") == 0);
    assert_eq!(broker.stats().dropped_queue_full, 0);
}
