//! What a message looks like when it arrives, whichever way it went through the engine: the
//! publisher's own bytes, a copy, a head with a shared payload.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use mqttcore_codec::{
    Packet, Properties, PropertiesBuf, Property, QoS, ReasonCode, RetainHandling, Subscribe,
    SubscriptionOptions, Text,
};

use mqttcore_broker::{Action, AuthorizeDecision, Config, Data, Durability, Grant};

use crate::common::{
    Client, Hello, Home, Plugin, Received, allow, bridge, config, start, start_with, v3, v5,
};

/// Below and above the size from which a payload is shared instead of copied.
const SIZES: [usize; 4] = [0, 1, 1_023, 5_000];

type Greeting = fn(&str) -> Hello;

fn properties(list: &[Property<'_>]) -> PropertiesBuf {
    let mut properties = PropertiesBuf::default();
    for property in list {
        properties.push(*property).expect("the property encodes");
    }
    properties
}

fn text(text: &str) -> Text<'_> {
    Text::new(text).expect("text")
}

/// Subscribes to `a` with more than a QoS.
fn subscribe_with(
    client: &mut Client,
    id: Option<u32>,
    filter: &str,
    options: SubscriptionOptions,
) {
    let id = id.and_then(NonZeroU32::new);
    let id = id.map(Property::SubscriptionIdentifier);
    let packet_id = client.next_id();
    client.send(&Packet::Subscribe(Subscribe {
        packet_id,
        properties: properties(id.as_slice()).as_properties(),
        filters: vec![(text(filter), options)],
    }));
    assert!(matches!(client.receive(), Received::SubAck(..)));
}

fn at(maximum_qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions {
        maximum_qos,
        ..SubscriptionOptions::default()
    }
}

#[test]
fn payloads_of_every_size_go_from_every_version_to_every_version() {
    let versions: [(&str, Greeting); 2] = [("three", v3), ("five", v5)];
    for (from, publisher) in versions {
        for (to, subscriber) in versions {
            for shards in [1, 4] {
                let broker = start(Config { shards, ..config() });
                let mut subscriber = subscriber(&format!("to-{to}")).connect(&broker);
                subscriber.subscribe("a", QoS::ExactlyOnce);
                let mut publisher = publisher(&format!("from-{from}")).connect(&broker);

                for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
                    for size in SIZES {
                        publisher.publish("a", vec![7; size], qos);

                        let message = subscriber.take_message();
                        assert_eq!(message.topic, "a");
                        assert_eq!(message.payload, vec![7; size]);
                        assert_eq!(
                            (message.qos, message.retain, message.dup),
                            (qos, false, false)
                        );
                    }
                }
            }
        }
    }
}

/// [MQTT-3.3.2-4, -15, -16, -17, -20]
#[test]
fn properties_of_a_publish_arrive_as_they_were_sent() {
    let broker = start(config());
    let sent = [
        Property::PayloadFormatIndicator(true),
        Property::ContentType(text("text/plain")),
        Property::ResponseTopic(text("answer/here")),
        Property::CorrelationData(b"\x00\x01"),
        Property::UserProperty(text("b"), text("2")),
        Property::UserProperty(text("a"), text("1")),
    ];
    let sent = properties(&sent);
    let mut subscriber = v5("five").connect(&broker);
    subscriber.subscribe("a", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        for size in SIZES {
            let payload = vec![b'x'; size];
            publisher.publish_with("a", &payload, qos, false, sent.as_properties());

            let message = subscriber.take_message();
            assert_eq!(message.properties, sent.as_properties().as_bytes());
            assert_eq!(message.payload, payload);
        }
    }
}

#[test]
fn a_3_1_1_subscriber_gets_a_v5_message_without_its_properties() {
    let broker = start(config());
    let mut subscriber = v3("three").connect(&broker);
    subscriber.subscribe("a", QoS::AtMostOnce);
    let sent = properties(&[Property::ContentType(text("text/plain"))]);

    let mut publisher = v5("publisher").connect(&broker);
    for size in SIZES {
        publisher.publish_with(
            "a",
            &vec![b'x'; size],
            QoS::AtMostOnce,
            false,
            sent.as_properties(),
        );

        assert_eq!(subscriber.message().payload, vec![b'x'; size]);
    }
}

/// [MQTT-3.3.2-8..12] An alias is between one client and the broker.
#[test]
fn a_topic_alias_of_the_publisher_is_not_the_subscribers() {
    let broker = start(config());
    let mut five = v5("five").connect(&broker);
    let mut three = v3("three").connect(&broker);
    five.subscribe("#", QoS::AtMostOnce);
    three.subscribe("#", QoS::AtMostOnce);
    let alias = NonZeroU16::new(3).expect("not 0");
    let alias = properties(&[Property::TopicAlias(alias)]);
    let mut publisher = v5("publisher").connect(&broker);

    for topic in ["long/topic/name", "", ""] {
        publisher.publish_with(topic, b"x", QoS::AtMostOnce, false, alias.as_properties());
    }

    for _ in 0..3 {
        let message = five.message();
        assert_eq!(message.topic, "long/topic/name");
        assert_eq!(message.properties, b"");
        assert_eq!(three.message().topic, "long/topic/name");
    }
}

/// [MQTT-3.3.4-3, -4] (docs/decisions.md, 12).
#[test]
fn overlapping_subscriptions_get_one_message_with_all_identifiers_and_the_highest_qos() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);
    subscribe_with(&mut client, Some(5), "a/+", at(QoS::AtMostOnce));
    subscribe_with(&mut client, Some(300), "a/#", at(QoS::AtLeastOnce));

    client.publish("a/b", "x", QoS::ExactlyOnce);

    let mut received = [client.receive(), client.receive()];
    received.sort_unstable_by_key(|packet| matches!(packet, Received::PubRec(..)));
    let Received::Publish(message) = &received[0] else {
        panic!("no message: {received:?}");
    };
    let mut ids = message.subscription_ids.clone();
    ids.sort_unstable();
    assert_eq!((ids, message.qos), (vec![5, 300], QoS::AtLeastOnce));
}

/// [MQTT-3.8.3-3]
#[test]
fn mqtt_3_8_3_3_a_client_does_not_hear_itself_where_it_asked_not_to() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);
    let options = SubscriptionOptions {
        no_local: true,
        ..at(QoS::AtMostOnce)
    };
    subscribe_with(&mut client, None, "a", options);

    client.publish("a", "mine", QoS::AtMostOnce);
    client.ping();
    v5("other")
        .connect(&broker)
        .publish("a", "theirs", QoS::AtMostOnce);

    assert_eq!(client.message().text(), "theirs");
}

/// [MQTT-3.3.1-12, -13]
#[test]
fn mqtt_3_3_1_12_a_live_message_keeps_its_retain_flag_only_where_it_was_asked_for() {
    let broker = start(config());
    let mut plain = v5("plain").connect(&broker);
    let mut keeping = v5("keeping").connect(&broker);
    subscribe_with(&mut plain, None, "a", at(QoS::AtMostOnce));
    let options = SubscriptionOptions {
        retain_as_published: true,
        ..at(QoS::AtMostOnce)
    };
    subscribe_with(&mut keeping, None, "a", options);

    let mut publisher = v5("publisher").connect(&broker);
    for size in SIZES {
        publisher.publish_retained("a", vec![7; size], QoS::AtMostOnce);

        assert!(!plain.message().retain);
        assert!(keeping.message().retain);
    }
}

/// [MQTT-3.3.1-9, -10, -11]
#[test]
fn retained_messages_are_sent_as_retain_handling_says() {
    let broker = start(config());
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_retained("a", "kept", QoS::AtMostOnce);
    publisher.ping();
    let mut client = v5("one").connect(&broker);
    let options = |retain_handling| SubscriptionOptions {
        retain_handling,
        ..at(QoS::AtMostOnce)
    };

    subscribe_with(&mut client, None, "a", options(RetainHandling::DoNotSend));
    client.ping();
    subscribe_with(&mut client, None, "a", options(RetainHandling::SendIfNew));
    client.ping();
    subscribe_with(
        &mut client,
        None,
        "a",
        options(RetainHandling::SendAtSubscribe),
    );
    assert_eq!(client.message().text(), "kept");
    client.unsubscribe("a");
    subscribe_with(&mut client, None, "a", options(RetainHandling::SendIfNew));
    assert_eq!(client.message().text(), "kept");
    client.ping();
}

#[test]
fn a_message_from_inside_carries_its_properties() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);
    let sent = properties(&[Property::ContentType(text("text/plain"))]);

    let matched = broker.publish("a", b"x", QoS::AtMostOnce, false, sent.as_properties());

    assert_eq!(matched, Ok(1));
    assert_eq!(client.message().properties, sent.as_properties().as_bytes());
}

#[test]
fn a_message_without_properties_arrives_without_any() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);

    v3("three")
        .connect(&broker)
        .publish("a", "x", QoS::AtMostOnce);

    assert_eq!(client.message().properties, Properties::EMPTY.as_bytes());
}

/// Publishes of one read are matched together; who gets them and when must not show it.
#[test]
fn publishes_of_one_write_keep_their_order_and_their_acknowledgements_theirs() {
    let broker = start(config());
    let mut listener = v5("listener").connect(&broker);
    listener.subscribe("to/+", QoS::ExactlyOnce);
    let mut sender = v5("sender").connect(&broker);
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let qos = [QoS::AtLeastOnce, QoS::AtMostOnce, QoS::AtLeastOnce][number % 3];
        let topic = ["to/a", "to/b", "nobody"][number / 3 % 3];
        bytes.extend(sender.numbered(topic, qos, [number]));
        if qos == QoS::AtLeastOnce {
            expected.push(if topic == "nobody" {
                ReasonCode::NO_MATCHING_SUBSCRIBERS
            } else {
                ReasonCode::SUCCESS
            });
        }
    }

    sender.send_bytes(&bytes);

    for (index, expected) in expected.iter().enumerate() {
        let id = u16::try_from(index + 1).unwrap();
        assert_eq!(sender.receive(), Received::PubAck(id, *expected));
    }
    for number in (0..60).filter(|number| number / 3 % 3 < 2) {
        assert_eq!(listener.take_message().number(), number);
    }
}

/// Frames that are forwarded and messages that its session sends keep their order, each QoS by itself, beside other packets
/// of the client.
#[test]
fn a_client_gets_messages_of_both_qos_in_order_beside_its_own_packets() {
    let broker = start(config());
    let mut client = v3("client").connect(&broker);
    client.subscribe("t", QoS::AtLeastOnce);
    let mut next = [0, 1];
    for round in 0..20 {
        let mut bytes = Vec::new();
        for number in round * 6..(round + 1) * 6 {
            let qos = [QoS::AtMostOnce, QoS::AtLeastOnce][number % 2];
            bytes.extend(client.numbered("t", qos, [number]));
            if number % 3 == 0 {
                bytes.extend(b"\xc0\x00");
            }
        }

        client.send_bytes(&bytes);

        let mut pings = 0;
        while next[0] < (round + 1) * 6 || next[1] < (round + 1) * 6 || pings < 2 {
            match client.receive() {
                Received::Publish(message) => {
                    let place = &mut next[message.qos as usize];
                    assert_eq!(message.number(), *place);
                    *place += 2;
                    client.acknowledge(&message);
                }
                Received::PingResp => pings += 1,
                Received::PubAck(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(broker.stats().messages_sent, 120);
}

/// What stands between two publishes of one write happens between them.
#[test]
fn a_subscription_between_two_publishes_of_one_write_gets_the_second() {
    let broker = start(config());
    let mut client = v3("client").connect(&broker);
    // PUBLISH t "1", SUBSCRIBE t with packet id 7, PUBLISH t "2" and "3", all at QoS 0.
    client.send_bytes(
        b"\x30\x04\x00\x01t1\x82\x06\x00\x07\x00\x01t\x00\x30\x04\x00\x01t2\x30\x04\x00\x01t3",
    );

    assert!(matches!(client.receive(), Received::SubAck(7, _)));
    assert_eq!(client.message().text(), "2");
    assert_eq!(client.message().text(), "3");
    client.hears_nothing_for(Duration::from_millis(50));
}

/// Sends a message of QoS 2 to its own publisher, behind `before`, and returns what comes until both packets are there.
fn own_copy(client: &mut Client, before: &[(&str, QoS)]) -> Vec<Received> {
    client.subscribe("own", QoS::ExactlyOnce);
    let mut bytes = Vec::new();
    for (topic, qos) in before {
        bytes.extend(client.numbered(topic, *qos, [0]));
    }
    bytes.extend(client.numbered("own", QoS::ExactlyOnce, [1]));
    client.send_bytes(&bytes);
    let mut come = Vec::new();
    let is_last =
        |packet: &Received| matches!(packet, Received::Publish(copy) if copy.topic == "own");
    while !come.last().is_some_and(is_last) {
        come.push(client.receive());
    }
    come
}

/// Decision 42: the order that most brokers have, and tests of clients expect.
#[test]
fn pubrec_leaves_before_the_publishers_own_copy() {
    for shards in [1, 4] {
        let broker = start(Config { shards, ..config() });
        for (name, greeting) in [("five", v5 as Greeting), ("three", v3)] {
            let mut client = greeting(name).connect(&broker);

            let come = own_copy(&mut client, &[("nobody", QoS::AtMostOnce)]);

            assert!(matches!(come[..], [Received::PubRec(..), _]), "{come:?}");
        }
    }
}

/// The messages of one write are routed together.
#[test]
fn of_messages_of_one_write_each_pubrec_leaves_before_the_own_copy() {
    // Batches of 1, 2, 4 and 8.
    const COUNT: usize = 15;
    for qos in [QoS::AtMostOnce, QoS::ExactlyOnce] {
        let broker = start(config());
        let mut client = v3("own").connect(&broker);
        client.subscribe("own", qos);

        let bytes = client.numbered("own", QoS::ExactlyOnce, 0..COUNT);
        client.send_bytes(&bytes);

        let (mut received, mut copies) = (Vec::new(), 0);
        while copies < COUNT {
            match client.receive() {
                Received::PubRec(id, ReasonCode::SUCCESS) => received.push(id),
                Received::Publish(copy) => {
                    assert_eq!(copy.text(), copies.to_string());
                    copies += 1;
                    assert!(received.len() >= copies, "{received:?}, {copies} copies");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(
            received.is_sorted() && received.len() == COUNT,
            "{received:?}"
        );
    }
}

/// [MQTT-4.3.3-10] holds until PUBREL, wherever the repeat stands.
#[test]
fn a_qos_2_message_and_its_repeat_in_one_write_are_routed_once() {
    let broker = start(config());
    let mut reader = v3("reader").connect(&broker);
    reader.subscribe("t", QoS::AtMostOnce);
    let mut client = v3("client").connect(&broker);
    let (first, repeat) = (b"\x34\x06\x00\x01t\x00\x01a", b"\x3c\x06\x00\x01t\x00\x01a");
    let release = b"\x62\x02\x00\x01";
    // The batch after these has several messages.
    let before = client.numbered("nobody", QoS::AtMostOnce, 0..3);

    client.send_bytes(&[&before[..], first, repeat, release].concat());
    assert_eq!(client.receive(), Received::PubRec(1, ReasonCode::SUCCESS));
    assert_eq!(client.receive(), Received::PubComp(1, ReasonCode::SUCCESS));
    client.send_bytes(b"\x34\x06\x00\x01t\x00\x01b");

    assert_eq!(reader.message().text(), "a");
    assert_eq!(reader.message().text(), "b");
    reader.hears_nothing_for(Duration::from_millis(50));
}

#[test]
fn pubrec_leaves_before_the_own_copy_where_a_plugin_was_asked() {
    let plugin = Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(Grant {
                subscribe: vec!["#".into()],
                ..Grant::default()
            }));
        })
        .authorize(&[(Action::Publish, "#")], |_, reply| {
            reply.send(AuthorizeDecision::Allow);
        });
    let broker = start_with(config(), plugin);
    let mut client = v5("asked").username("user").connect(&broker);

    let come = own_copy(&mut client, &[]);

    assert!(matches!(come[..], [Received::PubRec(..), _]), "{come:?}");
}

/// Acknowledgements keep their order, so PUBREC waits for the disk with an earlier PUBACK, and the copy with both.
#[test]
fn pubrec_leaves_before_the_own_copy_where_an_earlier_message_waits_for_the_disk() {
    let home = Home::new();
    let fsync = Data {
        durability: Durability::Fsync,
        ..home.data(0)
    };
    let broker = start(Config {
        data: Some(fsync),
        ..config()
    });
    let mut kept = v5("kept").keeping_session_s(60).connect(&broker);
    kept.subscribe("kept", QoS::AtLeastOnce);
    let mut client = v5("one").connect(&broker);

    let come = own_copy(&mut client, &[("kept", QoS::AtLeastOnce)]);

    let order = [Received::PubAck, Received::PubRec].map(|kind| kind(0, ReasonCode::SUCCESS));
    let same = |one: &Received, other: &Received| {
        std::mem::discriminant(one) == std::mem::discriminant(other)
    };
    assert_eq!(come.len(), 3, "{come:?}");
    assert!(
        come.iter().zip(&order).all(|(one, other)| same(one, other)),
        "{come:?}"
    );
}

/// As [MQTT-3.8.3-3] and [MQTT-3.3.1-13] for a client that cannot ask for it.
#[test]
fn a_bridge_gets_no_message_of_its_own_and_the_retain_flags_of_others() {
    let broker = start(Config {
        shards: 2,
        ..config()
    });
    let mut bridge = bridge("bridge").connect(&broker);
    bridge.subscribe("#", QoS::AtMostOnce);
    let mut client = v3("client").connect(&broker);
    client.subscribe("#", QoS::AtMostOnce);

    bridge.publish_retained("a", "from the bridge", QoS::AtMostOnce);
    let passed = client.message();
    client.publish_retained("b", "retained", QoS::AtMostOnce);
    let echoed = client.message();
    client.publish("b", "plain", QoS::AtMostOnce);

    assert_eq!((passed.text(), passed.retain), ("from the bridge", false));
    assert_eq!((echoed.text(), echoed.retain), ("retained", false));
    let (first, second) = (bridge.message(), bridge.message());
    assert_eq!((first.text(), first.retain), ("retained", true));
    assert_eq!((second.text(), second.retain), ("plain", false));
}
