//! Clients whose sessions live on different shards are one broker's clients.
//!
//! Where a session lives is a keyed hash that no test can foresee; sixteen clients on four
//! shards leave a one in billions chance that all of them share one.

use std::thread;

use mqttcore_broker::Broker;
use mqttcore_codec::QoS;

use crate::common::{Client, config, deep_queues, start, v3, v5};

const CLIENTS: usize = 16;

/// One client a name, each subscribed to the same filter.
fn subscribers(broker: &Broker, filter: &str, qos: QoS) -> Vec<Client> {
    let connect = |index| {
        let mut client = v5(&format!("subscriber-{index}")).connect(broker);
        client.subscribe(filter, qos);
        client
    };
    (0..CLIENTS).map(connect).collect()
}

#[test]
fn a_message_reaches_the_subscribers_of_every_shard() {
    let broker = start(config());
    let mut subscribers = subscribers(&broker, "news/+", QoS::AtLeastOnce);

    v5("publisher")
        .connect(&broker)
        .publish_acknowledged("news/today", "rain");

    for subscriber in &mut subscribers {
        assert_eq!(subscriber.take_message().text(), "rain");
        subscriber.ping();
    }
}

#[test]
fn every_shard_publishes_to_the_subscribers_of_every_shard() {
    let broker = start(config());
    let mut subscribers = subscribers(&broker, "from/+", QoS::AtMostOnce);

    for number in 0..CLIENTS {
        let mut publisher = v3(&format!("publisher-{number}")).connect(&broker);
        publisher.publish("from/somebody", number.to_string(), QoS::AtMostOnce);
        publisher.disconnect();
    }

    for subscriber in &mut subscribers {
        let mut numbers: Vec<_> = (0..CLIENTS)
            .map(|_| subscriber.message().number())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..CLIENTS).collect::<Vec<_>>());
    }
}

#[test]
fn a_message_retained_on_one_shard_is_there_for_subscribers_of_all() {
    let broker = start(config());
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_retained("state/door", "open", QoS::AtLeastOnce);
    publisher.receive();

    for mut subscriber in subscribers(&broker, "state/#", QoS::AtMostOnce) {
        let message = subscriber.message();

        assert_eq!((message.text(), message.retain), ("open", true));
    }
}

#[test]
fn a_retained_message_that_one_shard_cleared_is_gone_for_all() {
    let broker = start(config());
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_retained("state/door", "open", QoS::AtMostOnce);
    publisher.ping();

    let mut other = v5("somebody else").connect(&broker);
    other.publish_retained("state/door", "", QoS::AtMostOnce);
    other.ping();

    assert_eq!(broker.stats().retained_messages, 0);
    for mut subscriber in subscribers(&broker, "state/#", QoS::AtMostOnce) {
        subscriber.ping();
    }
}

#[test]
fn a_shared_group_over_all_shards_gets_each_message_once() {
    const MESSAGES: usize = 400;
    let broker = start(config());
    let mut members = subscribers(&broker, "$share/team/work/#", QoS::AtLeastOnce);
    for member in &mut members {
        member.subscribe("end", QoS::AtMostOnce);
    }

    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_numbers("work/item", QoS::AtLeastOnce, MESSAGES);
    publisher.publish("end", "", QoS::AtMostOnce);

    let shares: Vec<Vec<usize>> = members.iter_mut().map(until_end).collect();
    for share in &shares {
        assert_eq!(share.len(), MESSAGES / CLIENTS, "dealt in turn: {shares:?}");
    }
    let mut numbers: Vec<usize> = shares.concat();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
}

/// What a member gets before the message that everybody gets.
fn until_end(member: &mut Client) -> Vec<usize> {
    std::iter::from_fn(|| {
        let message = member.take_message();
        (message.topic != "end").then(|| message.number())
    })
    .collect()
}

#[test]
fn members_of_a_shared_group_that_are_away_are_passed_over() {
    const MESSAGES: usize = 64;
    let broker = start(config());
    for index in 0..CLIENTS {
        let mut member = v5(&format!("subscriber-{index}"))
            .keeping_session_s(60)
            .connect(&broker);
        member.subscribe("$share/team/work", QoS::AtLeastOnce);
        if index > 0 {
            member.disconnect();
        } else {
            drop(member);
        }
    }
    let mut present = v5("subscriber-0").keeping_session_s(60).connect(&broker);

    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_numbers("work", QoS::AtLeastOnce, MESSAGES);

    let numbers: Vec<_> = (0..MESSAGES)
        .map(|_| present.take_message().number())
        .collect();
    assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
}

#[test]
fn a_session_is_found_again_from_whichever_shard_accepted_the_socket() {
    let broker = start(config());

    // Sockets are dealt in turn, so five connections of one name come over all four shards.
    for index in 0..CLIENTS {
        let hello = v5(&format!("client-{index}")).keeping_session_s(60);
        let (client, present) = hello.connect_or_resume(&broker);
        assert!(!present);
        client.disconnect();
        for _ in 0..5 {
            let (client, present) = hello.connect_or_resume(&broker);
            assert!(present);
            client.disconnect();
        }
    }

    assert_eq!(broker.stats().sessions, CLIENTS as u64);
}

#[test]
fn qos_0_messages_of_each_publisher_keep_their_order_under_load() {
    order_under_load(QoS::AtMostOnce);
}

/// [MQTT-4.6.0-6] for each pair of publisher and subscriber.
#[test]
fn mqtt_4_6_0_6_qos_1_messages_of_each_publisher_keep_their_order_under_load() {
    order_under_load(QoS::AtLeastOnce);
}

/// Four publishers at once to four subscribers of all: nothing lost, doubled or reordered.
fn order_under_load(qos: QoS) {
    const MESSAGES: usize = 10_000;
    const PUBLISHERS: usize = 4;
    let broker = start(deep_queues());
    let subscribers: Vec<Client> = (0..4)
        .map(|index| {
            let mut client = v3(&format!("subscriber-{index}")).connect(&broker);
            client.subscribe("load/+", qos);
            client
        })
        .collect();

    thread::scope(|scope| {
        for index in 0..PUBLISHERS {
            let broker = &broker;
            scope.spawn(move || {
                let mut publisher = v3(&format!("publisher-{index}")).connect(broker);
                publisher.publish_numbers(&format!("load/{index}"), qos, MESSAGES);
            });
        }
        for mut subscriber in subscribers {
            scope.spawn(move || {
                let mut next = [0; PUBLISHERS];
                for _ in 0..PUBLISHERS * MESSAGES {
                    let message = subscriber.take_message();
                    let publisher = &message.topic["load/".len()..];
                    let publisher: usize = publisher.parse().expect("a number");
                    assert_eq!(message.number(), next[publisher], "from {publisher}");
                    assert!(!message.dup);
                    next[publisher] += 1;
                }
                subscriber.ping();
            });
        }
    });
}
