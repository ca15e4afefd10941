//! What outlives the broker: the folder of one is copied as it is, as if it had died there and then, and another one
//! is started over the copy.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Durability};
use mqttcore_codec::{Properties, PropertiesBuf, Property, QoS};
use mqttcore_session::ServerLimits;
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::{DurableStore, Store, StoreOptions};
use mqttcore_topics::Strategy;

use crate::common::{
    Client, HOUR_S, Home, Received, config, config_with_limits, eventually, figure, v3, v5, within,
};

fn no() -> Properties<'static> {
    Properties::EMPTY
}

fn subscribed(broker: &Broker, id: &str, filter: &str, qos: QoS) -> Client {
    let mut client = v5(id).keeping_session_s(HOUR_S).connect(broker);
    client.subscribe(filter, qos);
    client
}

#[test]
fn a_broker_that_was_stopped_gives_its_folder_back() {
    let home = Home::new();
    let first = home.start(0);
    drop(subscribed(&first, "reader", "a", QoS::AtLeastOnce));

    first.stop(Duration::from_secs(5));
    let second = home.start(0);

    assert!(
        v5("reader")
            .keeping_session_s(HOUR_S)
            .connect_or_resume(&second)
            .1
    );
}

#[test]
fn the_time_of_a_session_runs_on_through_any_number_of_crashes() {
    let home = Home::new();
    let first = home.start(0);
    let reader = v5("reader").keeping_session_s(2);
    let online = reader.connect(&first);
    let second = home.crash(first, 0);
    drop(online);
    assert!(
        second
            .clients()
            .iter()
            .any(|client| &*client.client_id == "reader")
    );

    thread::park_timeout(Duration::from_millis(1_200));
    let third = home.crash(second, 1);
    thread::park_timeout(Duration::from_millis(1_200));
    let fourth = home.crash(third, 2);

    assert!(
        !fourth
            .clients()
            .iter()
            .any(|client| &*client.client_id == "reader")
    );
}

/// Limits judge what comes in. What was accepted is kept as it is, whatever the limits of a later broker.
#[test]
fn a_will_on_a_topic_deeper_than_the_default_is_published_by_a_later_broker() {
    let deep = || config_with_limits(|limits| limits.topic.levels = 300);
    for next in [deep(), config_with_limits(|_| ())] {
        let home = Home::new();
        let first = home.start_with(0, deep());
        let topic = vec!["a"; 200].join("/");
        drop(subscribed(&first, "reader", "a/#", QoS::AtLeastOnce));
        let leaving = v5("leaving").keeping_session_s(HOUR_S).will(&topic, "gone");
        let online = leaving.will_qos(QoS::AtLeastOnce).connect(&first);

        let second = home.crash_with(first, 0, next);

        drop(online);
        let mut reader = v5("reader").keeping_session_s(HOUR_S).connect(&second);
        assert_eq!(reader.message().topic, topic);
    }
}

/// A session that ends with its connection ends with its broker, too: no Will Delay holds its will back.
#[test]
fn a_will_is_published_after_a_crash_although_its_session_is_not_kept() {
    for version in [v3, v5] {
        let home = Home::new();
        let first = home.start(0);
        drop(subscribed(&first, "reader", "will", QoS::AtLeastOnce));
        let mortal = version("mortal")
            .will("will", "gone")
            .will_qos(QoS::AtLeastOnce);
        let mortal = mortal.will_delay_s(60);
        let online = mortal.connect(&first);

        let second = home.crash(first, 0);

        drop(online);
        let mut reader = v5("reader").keeping_session_s(HOUR_S).connect(&second);
        let message = reader.message();
        assert_eq!(message.text(), "gone");
        reader.acknowledge(&message);
        let (back, is_resumed) = mortal.clone().connect_or_resume(&second);
        assert!(!is_resumed);
        back.disconnect();
        reader.ping();
        let third = home.crash(second, 1);
        let mut reader = v5("reader").keeping_session_s(HOUR_S).connect(&third);
        reader.hears_nothing_for(Duration::from_millis(100));
        assert!(
            third
                .clients()
                .iter()
                .all(|client| &*client.client_id != "mortal")
        );
    }
}

/// ADR 0006: a publisher keeps its member while the group stays the same, recovered or new.
#[test]
fn a_publisher_whose_session_was_recovered_has_the_member_that_its_client_identifier_gives_it() {
    let home = Home::new();
    let publishers: Vec<String> = (0..8).map(|index| format!("publisher-{index}")).collect();
    let config = || Config {
        shared_strategy: Strategy::ClientHash,
        ..config()
    };
    let first = home.start_with(0, config());
    for id in &publishers {
        v5(id)
            .keeping_session_s(HOUR_S)
            .connect(&first)
            .disconnect();
    }
    let second = home.crash_with(first, 0, config());
    let mut members = [0, 1, 2].map(|index| v5(&format!("member-{index}")).connect(&second));
    for member in &mut members {
        member.subscribe("$share/group/work", QoS::AtMostOnce);
        member.subscribe("end", QoS::AtMostOnce);
    }

    for id in &publishers {
        let (mut recovered, is_resumed) =
            v5(id).keeping_session_s(HOUR_S).connect_or_resume(&second);
        assert!(is_resumed);
        recovered.publish_acknowledged("work", format!("{id} recovered"));
        recovered.disconnect();
        v5(id)
            .connect(&second)
            .publish_acknowledged("work", format!("{id} new"));
    }

    // The shard of the last client does not wait for those of the others.
    let messages = 2 * publishers.len() as u64;
    eventually("all messages are sent", || {
        second.stats().messages_sent == messages
    });
    v5("last")
        .connect(&second)
        .publish_acknowledged("end", "end");
    for member in &mut members {
        let next = || Some(member.message().text().to_owned()).filter(|text| text != "end");
        let heard: Vec<String> = std::iter::from_fn(next).collect();
        let of = |ending: &str| {
            let mut ids: Vec<_> = heard
                .iter()
                .filter_map(|text| text.strip_suffix(ending))
                .collect();
            ids.sort_unstable();
            ids.join(" ")
        };
        assert_eq!(of(" recovered"), of(" new"));
    }
}

#[test]
fn a_will_of_a_client_of_durability_memory_leaves_nothing_in_the_store() {
    let home = Home::new();
    let config = || {
        let mut config = config_with_limits(|_| ());
        config.listeners[0].durability = Some(Durability::Memory);
        config
    };
    let first = home.start_with(0, config());
    let before = figure(&first, "store_records");

    let mortal = v5("mortal").will("will", "gone").connect(&first);
    mortal.disconnect();

    assert_eq!(figure(&first, "store_records"), before);
}

#[test]
fn a_message_that_was_dropped_as_too_large_does_not_come_back() {
    let home = Home::new();
    let first = home.start(0);
    let mut reader = subscribed(&first, "reader", "a", QoS::ExactlyOnce);
    let sent = first.publish("a", &[b'x'; 500], QoS::ExactlyOnce, false, no());
    assert_eq!(sent, Ok(1));
    assert_eq!(reader.message().payload.len(), 500);
    reader.vanish();
    let resumed = v5("reader").keeping_session_s(HOUR_S);
    let mut reader = resumed.clone().maximum_packet_size(100).connect(&first);
    assert_eq!(
        first.publish("a", b"small", QoS::ExactlyOnce, false, no()),
        Ok(1)
    );
    let small = reader.message();
    assert_eq!(small.text(), "small");
    reader.acknowledge(&small);
    assert!(matches!(reader.receive(), Received::PubRel(id, _) if id == small.packet_id));
    reader.pubcomp(small.packet_id);
    reader.ping();

    let second = home.crash(first, 0);

    let mut reader = resumed.connect(&second);
    reader.hears_nothing_for(Duration::from_millis(100));
}

/// One record for all receivers: each of them has a delivery with a number of its own.
#[test]
fn what_several_receivers_acknowledged_comes_back_to_none_of_them() {
    let home = Home::new();
    let first = home.start(0);
    let names = ["one", "two", "three"];
    let mut readers = names.map(|name| subscribed(&first, name, "a", QoS::AtLeastOnce));
    assert_eq!(
        first.publish("a", b"x", QoS::AtLeastOnce, false, no()),
        Ok(names.len())
    );
    for reader in &mut readers {
        let message = reader.message();
        reader.acknowledge(&message);
        reader.ping();
    }

    let second = home.crash(first, 0);

    for name in names {
        let mut reader = v5(name).keeping_session_s(HOUR_S).connect(&second);
        reader.hears_nothing_for(Duration::from_millis(100));
    }
}

/// Retained messages are handed out by the subscriber's shard, live ones come from the publisher's.
#[test]
fn a_queue_comes_back_in_its_order_whoever_filled_it() {
    let home = Home::new();
    let first = home.start(0);
    let mut publisher = v5("publisher").connect(&first);
    for topic in ["r/1", "r/2"] {
        publisher.publish_retained(topic, "old", QoS::AtLeastOnce);
        assert!(matches!(publisher.receive(), Received::PubAck(..)));
    }
    let hello = |index: usize| v5(&format!("reader-{index}")).keeping_session_s(HOUR_S);
    for index in 0..12 {
        let mut reader = hello(index).receive_maximum(1).connect(&first);
        reader.send_subscribe(&["r/#"], QoS::AtLeastOnce);
        assert!(matches!(reader.receive(), Received::SubAck(..)));
        assert_eq!(reader.message().text(), "old");
        reader.vanish();
    }
    for topic in ["r/1", "r/2"] {
        publisher.publish_retained(topic, "new", QoS::AtLeastOnce);
        assert!(matches!(publisher.receive(), Received::PubAck(..)));
    }

    let second = home.crash(first, 0);

    for index in 0..12 {
        let mut reader = hello(index).connect(&second);
        let texts: Vec<String> = (0..4).map(|_| reader.message().text().to_owned()).collect();
        assert_eq!(texts, ["old", "old", "new", "new"], "reader {index}");
    }
}

/// Who starts again and again must not keep for ever what nobody gets any more.
#[test]
fn a_retained_message_that_expired_leaves_the_store_at_the_next_start() {
    let home = Home::new();
    let first = home.start(0);
    let mut expiring = PropertiesBuf::default();
    let second = Property::MessageExpiryInterval(1);
    expiring.push(second).expect("the property encodes");
    let properties = expiring.as_properties();
    for (topic, properties) in [("short", properties), ("long", no())] {
        let sent = first.publish(topic, b"1", QoS::AtLeastOnce, true, properties);
        assert_eq!(sent, Ok(0));
    }
    first.stop(Duration::from_secs(5));
    thread::park_timeout(Duration::from_millis(1_200));

    home.start(0).stop(Duration::from_secs(5));

    assert_eq!(retained_topics(&home, 0), ["long"]);
}

/// The topics that a store without a broker has retained messages of.
fn retained_topics(home: &Home, run: u32) -> Vec<String> {
    let files: Arc<dyn Files> = Arc::new(Folder::open(&home.folder(run)).expect("a folder"));
    let (store, _) = DurableStore::open(&files, &StoreOptions::default()).expect("a store");
    let mut topics = Vec::new();
    let visited = store.retained(&mut |topic, _| topics.push(topic.to_owned()));
    visited.expect("topics");
    topics
}

#[test]
fn a_retained_message_that_expires_leaves_the_store_while_the_broker_runs() {
    let home = Home::new();
    let broker = home.start(0);
    let mut expiring = PropertiesBuf::default();
    let second = Property::MessageExpiryInterval(1);
    expiring.push(second).expect("the property encodes");
    for (topic, properties) in [("short", expiring.as_properties()), ("long", no())] {
        let sent = broker.publish(topic, b"1", QoS::AtLeastOnce, true, properties);
        assert_eq!(sent, Ok(0));
    }
    eventually("it is swept out", || broker.stats().retained_messages == 1);

    broker.stop(Duration::from_secs(5));

    assert_eq!(retained_topics(&home, 0), ["long"]);
}

/// Publishers of different shards: what memory has at the end is what comes back.
#[test]
fn a_race_for_a_retained_topic_ends_the_same_in_memory_and_in_the_store() {
    const RACERS: usize = 4;
    const ROUNDS: usize = 40;
    const TOPICS: usize = 100;
    let home = Home::new();
    let first = home.start(0);
    let start = Arc::new(Barrier::new(RACERS));
    let race = |number: usize| {
        let mut racer = v5(&format!("racer-{number}")).connect(&first);
        let start = Arc::clone(&start);
        thread::spawn(move || {
            for round in 0..ROUNDS {
                let frames = (0..TOPICS).flat_map(|topic| retained_frame(round, topic, number));
                let frames: Vec<u8> = frames.collect();
                start.wait();
                racer.send_bytes(&frames);
                racer.ping();
            }
        })
    };
    let racers: Vec<_> = (0..RACERS).map(race).collect();
    for racer in racers {
        racer.join().expect("a racer");
    }
    let all = |broker: &Broker| {
        let mut reader = v5("anybody").connect(broker);
        reader.subscribe("#", QoS::AtMostOnce);
        let found = (0..ROUNDS * TOPICS).map(|_| reader.message());
        let mut found: Vec<_> = found
            .map(|message| (message.topic.clone(), message.text().to_owned()))
            .collect();
        found.sort();
        found
    };
    let before = all(&first);

    let second = home.crash(first, 0);

    let after = all(&second);
    let differing = before.iter().zip(&after).filter(|(old, new)| old != new);
    assert_eq!(differing.count(), 0);
}

/// A PUBLISH of MQTT 5.0 at QoS 0 with RETAIN.
fn retained_frame(round: usize, topic: usize, payload: usize) -> Vec<u8> {
    let body = format!("\0\x05{round:02}{topic:03}\0{payload}");
    let len = u8::try_from(body.len()).expect("short");
    [&[0x31, len], body.as_bytes()].concat()
}

/// A publisher that is not acknowledged has nothing else that would wake it.
#[test]
fn clients_that_waited_for_the_disk_continue() {
    const MIB: usize = 1 << 20;
    let home = Home::new();
    let roomy = config_with_limits(|limits: &mut ServerLimits| {
        limits.maximum_packet_size = u32::try_from(4 * MIB).expect("small");
    });
    let broker = home.start_with(0, roomy);
    let mut publisher = v5("publisher").connect(&broker);

    within(Duration::from_secs(60), "a flood", move || {
        for _ in 0..150 {
            publisher.publish_retained("flood", vec![0; 2 * MIB], QoS::AtMostOnce);
        }
        publisher.ping();
    });
}

fn upgrading() -> Config {
    config_with_limits(|limits| limits.upgrade_outgoing_qos = true)
}

/// The record says at which QoS a message is delivered, whatever a later broker is configured to.
#[test]
fn messages_that_were_upgraded_from_qos_0_survive_a_crash() {
    let home = Home::new();
    let first = home.start_with(0, upgrading());
    subscribed(&first, "reader", "#", QoS::ExactlyOnce).disconnect();
    let mut writer = v5("writer").connect(&first);
    writer.publish("t", "1", QoS::AtMostOnce);
    writer.publish_retained("t", "2", QoS::AtMostOnce);
    // What is safe has all in front of it.
    writer.publish_acknowledged("t", "3");

    let second = home.crash(first, 0);
    drop(writer);

    let hello = v5("reader").keeping_session_s(HOUR_S);
    let (mut reader, is_resumed) = hello.connect_or_resume(&second);
    assert!(is_resumed);
    for text in ["1", "2", "3"] {
        let message = reader.take_message();
        assert_eq!((message.text(), message.qos), (text, QoS::ExactlyOnce));
    }
}

/// A subscription at QoS 0 stays at QoS 0: nothing is kept for it.
#[test]
fn nothing_is_kept_for_a_qos_0_subscription_where_others_are_upgraded() {
    let home = Home::new();
    let broker = home.start_with(0, upgrading());
    subscribed(&broker, "reader", "t", QoS::AtMostOnce).disconnect();

    v5("writer")
        .connect(&broker)
        .publish_acknowledged("t", "gone");

    // The reader's shard counts it, after the writer has its PUBACK perhaps.
    eventually("it is dropped", || broker.stats().dropped_offline == 1);
}

#[test]
fn a_retained_message_is_upgraded_for_a_new_subscription() {
    let home = Home::new();
    let broker = home.start_with(0, upgrading());
    let mut client = v5("client").connect(&broker);
    client.publish_retained("t", "kept", QoS::AtMostOnce);

    client.subscribe("t", QoS::AtLeastOnce);

    let message = client.take_message();
    assert_eq!((message.retain, message.qos), (true, QoS::AtLeastOnce));
}
