//! What is left to do once a client has come or gone: nothing may pile up, wait or be forgotten.

use std::collections::HashSet;

use mqttcore_broker::{Config, Grant, GrantLimits};
use mqttcore_codec::{Packet, Properties, PropertiesBuf, Property, QoS, ReasonCode};
use mqttcore_topics::TopicError;

use crate::common::{
    Plugin, Received, allow, config, config_with_limits, eventually, start, start_with, v5,
};

#[test]
fn subscriptions_of_those_who_left_do_not_pile_up() {
    const EACH: usize = 1_000;
    const ROUNDS: usize = 16;
    let broker = start(config());
    for round in 0..ROUNDS {
        let mut client = v5("churn").connect(&broker);
        for packet in 0..10 {
            let filters: Vec<String> = (0..EACH / 10)
                .map(|number| format!("r{round}/p{packet}/f{number}"))
                .collect();
            let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
            client.send_subscribe(&filters, QoS::AtMostOnce);
        }
        (0..10).for_each(|_| drop(client.receive()));
        client.disconnect();
    }

    let held = usize::try_from(broker.stats().subscriptions).unwrap();
    assert!(held <= 3 * EACH, "{held} of {} are held", ROUNDS * EACH);
}

#[test]
fn messages_that_a_resume_drops_are_counted_at_once() {
    let broker = start(config());
    let mut away = v5("away").keeping_session_s(60).connect(&broker);
    away.subscribe("t", QoS::AtLeastOnce);
    away.disconnect();
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_acknowledged("t", [0; 1_000]);

    let hello = v5("away").keeping_session_s(60).maximum_packet_size(200);
    let (_back, session_present) = hello.connect_or_resume(&broker);

    assert!(session_present);
    eventually("the drop is booked", || {
        broker.stats().dropped_too_large == 1
    });
}

#[test]
fn a_publish_from_inside_is_on_its_way_when_it_returns() {
    let broker = start(config());
    for number in 0..300 {
        let id = format!("receiver-{number}");
        let mut receiver = v5(&id).connect(&broker);
        receiver.subscribe("t", QoS::AtMostOnce);
        broker
            .publish("t", b"x", QoS::AtMostOnce, false, Properties::EMPTY)
            .expect("the broker runs");

        broker.disconnect(&id, ReasonCode::ADMINISTRATIVE_ACTION);

        let packets = receiver.until_closed();
        assert!(matches!(packets.first(), Some(Received::Publish(_))));
    }
}

/// [MQTT-3.2.2-12]
#[test]
fn a_grants_maximum_qos_holds_for_the_will() {
    let grant = Grant {
        limits: GrantLimits {
            max_qos: Some(QoS::AtMostOnce),
            ..GrantLimits::default()
        },
        ..Grant::everything()
    };
    let plugin = Plugin::default().authenticate(move |_, reply| {
        reply.send(allow(grant.clone()));
    });
    let broker = start_with(config(), plugin);
    let hello = v5("c").username("u").will("w", "x");

    let code = hello.will_qos(QoS::ExactlyOnce).refused(&broker);

    assert_eq!(code, ReasonCode::QOS_NOT_SUPPORTED.value());
}

#[test]
fn a_small_backlog_does_not_drop_retained_messages() {
    let small = config_with_limits(|limits| limits.qos0_backlog_bytes = 16 * 1024);
    let broker = start(Config { shards: 1, ..small });
    let mut publisher = v5("publisher").connect(&broker);
    for number in 0..100 {
        publisher.publish_retained(&format!("r/{number}"), [0; 1_000], QoS::AtMostOnce);
    }
    publisher.ping();
    let mut reader = v5("reader").connect(&broker);

    reader.subscribe("r/#", QoS::AtMostOnce);

    (0..100).for_each(|_| drop(reader.take_message()));
    assert_eq!(broker.stats().dropped_qos0_backlog, 0);
}

/// Abuse F06, under `$` too.
#[test]
fn retained_messages_under_a_dollar_topic_expire() {
    let mut grant = Grant::everything();
    grant.publish.push("$mine/#".into());
    let mut config = config();
    config.listeners[0].anonymous = Some(grant);
    let broker = start(config);
    let mut publisher = v5("publisher").connect(&broker);
    let mut properties = PropertiesBuf::default();
    properties
        .push(Property::MessageExpiryInterval(1))
        .expect("the property encodes");

    let properties = properties.as_properties();
    publisher.publish_with("$mine/x", b"1", QoS::AtMostOnce, true, properties);
    publisher.ping();

    assert_eq!(broker.stats().retained_messages, 1);
    eventually("it is swept", || broker.stats().retained_messages == 0);
}

/// What replaced a retained message while its replay waited came as it happened; the old value must
/// not come behind it.
#[test]
fn a_replay_never_sends_an_old_value_behind_a_new_one() {
    const TOPICS: usize = 64;
    const WINDOW: usize = 32;
    let broker = start(config());
    let mut publisher = v5("publisher").connect(&broker);
    let mut publish_all = |value: &str| {
        for number in 0..TOPICS {
            publisher.publish_retained(&format!("r/{number}"), value, QoS::AtLeastOnce);
            publisher.receive();
        }
    };
    publish_all("old");
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("r/#", QoS::AtLeastOnce);
    let first: Vec<_> = (0..WINDOW).map(|_| reader.message()).collect();

    publish_all("new");
    for message in &first {
        reader.acknowledge(message);
    }

    let mut renewed = HashSet::new();
    while renewed.len() < TOPICS {
        let message = reader.message();
        reader.acknowledge(&message);
        if message.text() == "new" {
            renewed.insert(message.topic);
        } else {
            assert!(!renewed.contains(&message.topic), "{}", message.topic);
        }
    }
    // The replay may still bring the new ones once more, but no old one (docs/decisions.md, 14).
    reader.send(&Packet::PingReq);
    while let Received::Publish(message) = reader.receive() {
        reader.acknowledge(&message);
        assert_eq!(message.text(), "new");
    }
}

/// Abuse E17. On one shard: between two of them messages may be in the mailbox while a window fills, and nobody knows how
/// many the machine lets pass before the other one says so.
#[test]
fn what_a_stalled_member_of_a_group_cannot_take_goes_to_another() {
    let broker = start(Config {
        shards: 1,
        ..config_with_limits(|limits| limits.queue_messages = 10)
    });
    let mut stalled = v5("stalled").connect(&broker);
    stalled.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut well = v5("well").connect(&broker);
    well.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    let mut taken = 0;
    for number in 0..200 {
        publisher.publish_acknowledged("t", number.to_string());
        well.send(&Packet::PingReq);
        while let Received::Publish(message) = well.receive() {
            well.acknowledge(&message);
            taken += 1;
        }
    }

    assert!(taken >= 150, "{taken}");
    assert_eq!(broker.stats().dropped_queue_full, 0);
}

/// Abuse F01
#[test]
fn updates_do_not_grow_the_retained_store_beyond_its_bytes() {
    const LIMIT_BYTES: usize = 64 * 1024;
    let broker = start(Config {
        retained_bytes: LIMIT_BYTES,
        ..config()
    });
    let mut publisher = v5("publisher").connect(&broker);
    let mut is_kept = |number: usize, bytes: usize| {
        let topic = format!("r/{number}");
        publisher.publish_retained(&topic, vec![0; bytes], QoS::AtLeastOnce);
        match publisher.receive() {
            Received::PubAck(_, reason) => !reason.is_error(),
            other => panic!("no PUBACK: {other:?}"),
        }
    };
    assert!((0..100).all(|number| is_kept(number, 10)), "small ones fit");

    let large = (0..100).filter(|&number| is_kept(number, 100_000)).count();

    assert_eq!(large, 0, "100 KB do not fit into 64 KiB");
    assert!(is_kept(5, 9) && is_kept(5, 0), "smaller, and cleared");
}

/// Abuse F14
#[test]
fn queued_messages_of_a_session_that_ends_are_counted() {
    let broker = start(config());
    let mut away = v5("away").keeping_session_s(1).connect(&broker);
    away.subscribe("t", QoS::AtLeastOnce);
    away.disconnect();
    let mut publisher = v5("publisher").connect(&broker);

    for _ in 0..5 {
        publisher.publish_acknowledged("t", "x");
    }

    eventually("the session ends", || broker.stats().sessions_expired == 1);
    assert_eq!(broker.stats().dropped_session_ended, 5);
}

/// What the configuration allows when a topic comes in holds for its will and its replay too.
#[test]
fn a_will_on_a_topic_deeper_than_the_default_is_published() {
    let broker = start(config_with_limits(|limits| limits.topic.levels = 300));
    let topic = vec!["a"; 200].join("/");
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("a/#", QoS::AtMostOnce);
    let client = v5("client").will(&topic, "gone").connect(&broker);

    client.vanish();

    assert_eq!(reader.message().topic, topic);
}

#[test]
fn a_program_publishes_to_topics_as_deep_as_the_configuration_allows() {
    let broker = start(config_with_limits(|limits| limits.topic.levels = 300));
    let publish = |levels| {
        let topic = vec!["a"; levels].join("/");
        broker.publish(&topic, b"x", QoS::AtMostOnce, false, Properties::EMPTY)
    };

    assert_eq!(publish(300), Ok(0));
    assert_eq!(publish(301), Err(TopicError::TooManyLevels.into()));
}
