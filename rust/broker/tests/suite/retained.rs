//! Retained messages: how many are kept and for how long, and that a replay loses none.

use std::time::{Duration, Instant};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::{Properties, PropertiesBuf, Property, QoS};

use crate::common::{Client, Received, config, deep_queues, eventually, start, v3, v5};

fn keeping(retained_messages: usize) -> Broker {
    start(Config {
        retained_messages,
        ..config()
    })
}

/// Retains an empty-looking message on `kept/<number>` for each number.
fn retain(broker: &Broker, numbers: std::ops::Range<usize>, payload: &str) {
    let mut publisher = v3("publisher").connect(broker);
    for number in numbers {
        publisher.publish_retained(&format!("kept/{number}"), payload, QoS::AtMostOnce);
    }
    publisher.ping();
    publisher.disconnect();
}

/// The numbers of the topics of the next `count` messages.
fn take_numbers(client: &mut Client, count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count)
        .map(|_| {
            let message = client.take_message();
            assert!(message.retain);
            let number = &message.topic["kept/".len()..];
            number.parse().expect("a number")
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Abuse F01
#[test]
fn above_the_cap_a_new_topic_is_not_kept_and_is_counted() {
    let broker = keeping(10);

    retain(&broker, 0..13, "x");

    let stats = broker.stats();
    assert_eq!(stats.retained_messages, 10);
    assert_eq!(stats.dropped_retained_full, 3);
}

/// What the broker tells of itself takes no room from others.
#[test]
fn the_brokers_own_messages_are_not_counted() {
    let broker = start(Config {
        retained_messages: 2,
        sys_interval: Some(Duration::from_millis(20)),
        ..config()
    });
    let mut client = v5("one").connect(&broker);
    client.subscribe("$SYS/broker/retained messages/count", QoS::AtMostOnce);
    client.take_message();

    retain(&broker, 0..3, "x");

    let stats = broker.stats();
    assert_eq!(
        (stats.retained_messages, stats.dropped_retained_full),
        (2, 1)
    );
    while client.take_message().text() != "2" {}
}

/// Whoever replaces or clears them: the next interval publishes them again.
#[test]
fn the_brokers_own_messages_come_back() {
    let broker = start(Config {
        sys_interval: Some(Duration::from_millis(20)),
        ..config()
    });
    let mut client = v5("one").connect(&broker);
    client.subscribe("$SYS/broker/version", QoS::AtMostOnce);
    let version = client.message().text().to_owned();

    for text in ["", "another"] {
        let (text_bytes, none) = (text.as_bytes(), Properties::EMPTY);
        let topic = "$SYS/broker/version";
        let told = broker.publish(topic, text_bytes, QoS::AtMostOnce, true, none);
        told.expect("published");

        assert_eq!(client.message().text(), text);
        assert_eq!(client.message().text(), version);
    }
}

/// Abuse F01: topics that are there may still be updated or cleared.
#[test]
fn at_the_cap_a_kept_topic_can_be_updated() {
    let broker = keeping(2);
    retain(&broker, 0..2, "old");

    retain(&broker, 0..1, "new");

    let mut client = v5("one").connect(&broker);
    client.subscribe("kept/0", QoS::AtMostOnce);
    assert_eq!(client.message().text(), "new");
    assert_eq!(broker.stats().dropped_retained_full, 0);
}

#[test]
fn a_cleared_topic_makes_room_for_another() {
    let broker = keeping(2);
    retain(&broker, 0..2, "x");

    retain(&broker, 0..1, "");
    retain(&broker, 2..3, "x");

    let stats = broker.stats();
    assert_eq!(
        (stats.retained_messages, stats.dropped_retained_full),
        (2, 0)
    );
}

/// The live message goes out all the same.
#[test]
fn a_message_that_is_not_kept_is_delivered() {
    let broker = keeping(0);
    let mut client = v5("one").connect(&broker);
    client.subscribe("kept/+", QoS::AtMostOnce);

    retain(&broker, 0..1, "live");

    assert_eq!(client.message().text(), "live");
}

#[test]
fn retained_bytes_have_a_cap_too() {
    let broker = start(Config {
        retained_bytes: 100_000,
        ..config()
    });

    retain(&broker, 0..30, &"x".repeat(10_000));

    let kept = broker.stats().retained_messages;
    assert!((5..=10).contains(&kept), "{kept}");
    assert_eq!(broker.stats().dropped_retained_full, 30 - kept);
}

#[test]
fn updates_do_not_use_up_the_bytes() {
    let broker = start(Config {
        retained_bytes: 100_000,
        ..config()
    });

    for _ in 0..30 {
        retain(&broker, 0..2, &"x".repeat(10_000));
    }
    retain(&broker, 0..2, "");
    retain(&broker, 0..5, &"x".repeat(10_000));

    assert_eq!(broker.stats().dropped_retained_full, 0);
    assert_eq!(broker.stats().retained_messages, 5);
}

/// Abuse F06: nobody has to look at it.
#[test]
fn an_expired_message_is_swept_and_not_early() {
    const MESSAGES: usize = 300;
    let broker = start(config());
    let mut publisher = v5("publisher").connect(&broker);
    let mut bytes = Vec::new();
    for number in 0..MESSAGES {
        // Retained, `kept/<number>`, Message Expiry Interval 1, payload "x".
        bytes.extend_from_slice(b"\x31\x11\x00\x08");
        bytes.extend_from_slice(format!("kept/{number:03}").as_bytes());
        bytes.extend_from_slice(b"\x05\x02\x00\x00\x00\x01x");
    }
    let start = Instant::now();
    publisher.send_bytes(&bytes);
    publisher.publish_retained("kept/for ever", "x", QoS::AtMostOnce);
    publisher.ping();

    let mut kept = broker.stats().retained_messages;
    assert_eq!(kept, MESSAGES as u64 + 1);
    eventually("all but one are swept", || {
        let before = std::mem::replace(&mut kept, broker.stats().retained_messages);
        let swept = kept < before;
        assert!(!swept || start.elapsed() >= Duration::from_secs(1));
        kept == 1
    });
}

/// [MQTT-3.3.2-6]
#[test]
fn mqtt_3_3_2_6_a_replayed_message_says_how_long_it_has_left() {
    let broker = start(config());
    let mut properties = PropertiesBuf::default();
    properties
        .push(Property::MessageExpiryInterval(100))
        .expect("the property encodes");
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_with("a", b"x", QoS::AtMostOnce, true, properties.as_properties());
    publisher.hears_nothing_for(Duration::from_millis(1_100));

    let mut client = v5("one").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);

    let left = client.message().expiry_s.expect("an expiry");
    assert!((90..100).contains(&left), "{left}");
}

const MANY: usize = 10_000;

/// Ten thousand of `payload_bytes`.
fn keeping_many(payload_bytes: usize) -> Broker {
    let broker = start(deep_queues());
    retain(&broker, 0..MANY, &"x".repeat(payload_bytes));
    assert_eq!(broker.stats().retained_messages, MANY as u64);
    broker
}

/// Subscribes, and reads nothing until the broker has no room to send more.
fn subscribe_and_wait(broker: &Broker, qos: QoS) -> Client {
    let mut client = v5("reader").connect(broker);
    client.send_subscribe(&["kept/+"], qos);
    let mut bystander = v5("bystander").connect(broker);
    let mut last = 0;
    eventually("no more is sent", || {
        bystander.hears_nothing_for(Duration::from_millis(50));
        let sent = broker.stats().messages_sent;
        std::mem::replace(&mut last, sent) == sent && sent > 0
    });
    assert!(matches!(client.receive(), Received::SubAck(..)));
    client
}

/// Abuse E15
#[test]
fn a_reader_that_starts_late_gets_ten_thousand_retained_messages() {
    let broker = keeping_many(1_000);

    let mut client = subscribe_and_wait(&broker, QoS::AtMostOnce);

    assert_eq!(
        take_numbers(&mut client, MANY),
        (0..MANY).collect::<Vec<_>>()
    );
    client.ping();
}

/// One turn of a replay is then more than the broker lets wait, and less than it stops reading at.
#[test]
fn a_reader_that_starts_late_gets_ten_thousand_larger_retained_messages() {
    let broker = keeping_many(3_000);

    let mut client = subscribe_and_wait(&broker, QoS::AtMostOnce);

    assert_eq!(
        take_numbers(&mut client, MANY),
        (0..MANY).collect::<Vec<_>>()
    );
    client.ping();
}

#[test]
fn ten_thousand_retained_messages_at_qos_1_come_as_fast_as_they_are_acknowledged() {
    let broker = start(config());
    retain(&broker, 0..1, "qos 0");
    let mut publisher = v3("publisher").connect(&broker);
    for number in 0..MANY {
        publisher.publish_retained(&format!("kept/{number}"), "x", QoS::AtLeastOnce);
        if number % 50 == 49 {
            (0..50).for_each(|_| drop(publisher.receive()));
        }
    }

    let mut client = v5("reader").connect(&broker);
    client.subscribe("kept/+", QoS::AtLeastOnce);

    assert_eq!(
        take_numbers(&mut client, MANY),
        (0..MANY).collect::<Vec<_>>()
    );
    client.ping();
    assert_eq!(broker.stats().dropped_queue_full, 0);
}

#[test]
fn live_messages_come_through_during_a_replay() {
    let broker = keeping_many(100);
    let mut client = v5("reader").connect(&broker);
    client.subscribe("live", QoS::AtLeastOnce);
    client.send_subscribe(&["kept/+"], QoS::AtMostOnce);

    v5("other")
        .connect(&broker)
        .publish_acknowledged("live", "now");

    let (mut kept, mut live) = (0, 0);
    while kept < MANY || live < 1 {
        match client.receive() {
            Received::Publish(message) if message.topic == "live" => live += 1,
            Received::Publish(_) => kept += 1,
            Received::SubAck(..) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!((kept, live), (MANY, 1));
}

#[test]
fn several_filters_of_one_client_are_all_replayed() {
    let broker = start(config());
    retain(&broker, 0..200, "x");
    let mut client = v5("reader").connect(&broker);

    client.send_subscribe(&["kept/+", "kept/#", "kept/7"], QoS::AtMostOnce);

    assert!(matches!(client.receive(), Received::SubAck(..)));
    let numbers = take_numbers(&mut client, 401);
    assert_eq!(numbers.iter().filter(|number| **number == 7).count(), 3);
    client.ping();
}

#[test]
fn equal_filters_of_one_packet_are_replayed_once() {
    let broker = start(config());
    retain(&broker, 0..200, "x");
    let mut client = v5("reader").connect(&broker);

    client.send_subscribe(&["kept/7", "kept/+", "kept/7", "kept/+"], QoS::AtMostOnce);

    assert!(matches!(client.receive(), Received::SubAck(..)));
    let numbers = take_numbers(&mut client, 201);
    assert_eq!(numbers.iter().filter(|number| **number == 7).count(), 2);
    client.ping();
}

/// [MQTT-3.10.4-2] Nothing new is put behind UNSUBACK.
#[test]
fn mqtt_3_10_4_2_a_replay_ends_with_its_subscription() {
    let broker = keeping_many(3_000);
    let mut client = subscribe_and_wait(&broker, QoS::AtMostOnce);

    client.send_unsubscribe("kept/+");

    let mut replayed = 0;
    while matches!(client.receive(), Received::Publish(_)) {
        replayed += 1;
    }
    assert!(replayed < MANY, "it was over before");
    client.ping();
}

/// Abuse E16: to ask again is to begin again, not to be sent everything twice over.
#[test]
fn a_subscription_that_is_made_again_during_its_replay_is_replayed_once_more_at_most() {
    let broker = keeping_many(3_000);
    let mut client = subscribe_and_wait(&broker, QoS::AtMostOnce);

    for _ in 0..10 {
        client.send_subscribe(&["kept/+"], QoS::AtMostOnce);
    }

    let (mut replayed, mut acknowledged) = (0, 0);
    while acknowledged < 10 {
        match client.receive() {
            Received::Publish(_) => replayed += 1,
            Received::SubAck(..) => acknowledged += 1,
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert!(replayed < MANY, "it was over before");
    assert_eq!(
        take_numbers(&mut client, MANY),
        (0..MANY).collect::<Vec<_>>()
    );
    client.ping();
}

#[test]
fn a_replay_ends_with_its_client() {
    let broker = keeping_many(3_000);
    let client = subscribe_and_wait(&broker, QoS::AtMostOnce);

    client.vanish();

    eventually("the client is gone", || {
        let stats = broker.stats();
        (stats.clients_connected, stats.subscriptions) == (0, 0)
    });
    assert!(broker.stats().messages_sent < MANY as u64);
}

#[test]
fn what_the_broker_itself_retains_is_there_for_all() {
    let broker = start(config());
    let published = broker.publish("kept/0", b"x", QoS::AtLeastOnce, true, Properties::EMPTY);
    assert_eq!(published, Ok(0));

    for index in 0..16 {
        let mut client = v5(&format!("client-{index}")).connect(&broker);
        client.subscribe("#", QoS::AtMostOnce);
        assert_eq!(take_numbers(&mut client, 1), [0]);
    }
}
