//! What outlives the broker: the folder of one is copied as it is, as if it had died there and then, and another one
//! is started over the copy.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mqttcore_broker::Broker;
use mqttcore_codec::{Properties, PropertiesBuf, Property, QoS};
use mqttcore_session::ServerLimits;
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::{DurableStore, Store, StoreOptions};

use crate::common::{Client, HOUR_S, Home, Received, config_with_limits, v5, within};

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
        // SUBACK waits for the disk, a message of QoS 1 does not.
        let both = [reader.receive(), reader.receive()];
        let is_old =
            |packet: &Received| matches!(packet, Received::Publish(one) if one.text() == "old");
        assert!(both.iter().any(is_old), "{both:?}");
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

    let files: Arc<dyn Files> = Arc::new(Folder::open(&home.life(0)).expect("a folder"));
    let (store, _) = DurableStore::open(&files, &StoreOptions::default()).expect("a store");
    let mut topics = Vec::new();
    let visited = store.retained(&mut |topic, _| topics.push(topic.to_owned()));
    visited.expect("topics");
    assert_eq!(topics, ["long"]);
}

/// A publisher that is not acknowledged has nothing else that would wake it.
#[test]
fn who_waited_for_the_disk_goes_on() {
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
