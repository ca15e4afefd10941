//! Publish hooks: plugins change, drop or refuse messages before they are retained and routed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use mqttcore_broker::{
    Action, AuthorizeDecision, Broker, Config, Grant, PublishBatch, PublishDecision, Reply,
};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{Message, MessageChanges};

use crate::common::{Client, DEADLINE, Plugin, Received, config, eventually, start_with, v3, v5};

type Batches = Receiver<(PublishBatch, Reply<Vec<PublishDecision>>)>;

/// One shard; `free/#` and `hook/#` are allowed, `hook/denied` is not, and plugins are asked about `ask/#`.
fn rules() -> Config {
    let mut config = config();
    config.shards = 1;
    config.listeners[0].anonymous = Some(Grant {
        publish: vec!["free/#".into(), "hook/#".into()],
        subscribe: vec!["#".into()],
        deny: vec!["hook/denied".into()],
        ..Grant::default()
    });
    config
}

/// A broker whose publish hook for `hook/#` decides each message by itself.
fn deciding(decide: impl Fn(&Message) -> PublishDecision + Send + Sync + 'static) -> Broker {
    let plugin = Plugin::default().publish(&["hook/#"], move |batch, reply| {
        reply.send(batch.messages.iter().map(&decide).collect());
    });
    start_with(rules(), plugin)
}

/// A broker whose batches land in the receiver, and nobody answers but the test.
fn asking() -> (Broker, Batches) {
    let (sender, batches) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().publish(&["hook/#"], move |batch, reply| {
        let _ = sender.lock().expect("no panic").send((batch, reply));
    });
    (start_with(rules(), plugin), batches)
}

fn next(batches: &Batches) -> (PublishBatch, Reply<Vec<PublishDecision>>) {
    batches.recv_timeout(DEADLINE).expect("asked")
}

fn as_they_are(batch: &PublishBatch) -> Vec<PublishDecision> {
    vec![PublishDecision::Publish; batch.messages.len()]
}

fn changed(message: &Message, changes: &MessageChanges) -> PublishDecision {
    let now = std::time::Instant::now();
    let limits = mqttcore_session::ServerLimits::default();
    let found = message.changed(changes, now, &limits);
    PublishDecision::Replace(found.expect("a message"), None)
}

fn moved(message: &Message, topic: &str) -> PublishDecision {
    let changes = MessageChanges {
        topic: Some(topic.into()),
        ..MessageChanges::default()
    };
    changed(message, &changes)
}

fn stamped(message: &Message) -> PublishDecision {
    let changes = MessageChanges {
        payload: Some([message.payload(), b"!"].concat()),
        ..MessageChanges::default()
    };
    changed(message, &changes)
}

fn listener(broker: &Broker) -> Client {
    let mut client = v5("listener").connect(broker);
    client.subscribe("#", QoS::ExactlyOnce);
    client
}

#[test]
fn a_changed_message_is_delivered_acknowledged_and_retained() {
    let broker = deciding(stamped);
    let mut listener = listener(&broker);
    let mut client = v5("one").connect(&broker);

    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let id = client.publish("hook/a", "hi", qos);
        match qos {
            QoS::AtMostOnce => client.ping(),
            QoS::AtLeastOnce => {
                assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
            }
            QoS::ExactlyOnce => {
                assert_eq!(client.receive(), Received::PubRec(id, ReasonCode::SUCCESS));
                client.pubrel(id);
                assert_eq!(client.receive(), Received::PubComp(id, ReasonCode::SUCCESS));
            }
        }
        let message = listener.take_message();
        assert_eq!((message.text(), message.qos), ("hi!", qos));
    }
    let id = client.publish_retained("hook/a", "kept", QoS::AtLeastOnce);
    assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    let mut later = v5("later").connect(&broker);
    later.send_subscribe(&["hook/a"], QoS::AtMostOnce);
    assert!(matches!(later.receive(), Received::SubAck(..)));
    assert_eq!(later.message().text(), "kept!");
}

#[test]
fn a_dropped_message_is_acknowledged_and_counted() {
    let broker = deciding(|message| PublishDecision::Drop {
        reason: if message.topic() == "hook/a" {
            ReasonCode::SUCCESS
        } else {
            ReasonCode::NO_MATCHING_SUBSCRIBERS
        },
    });
    let mut listener = listener(&broker);
    let mut client = v5("one").connect(&broker);

    let first = client.publish_acknowledged("hook/a", "1");
    let second = client.publish_acknowledged("hook/b", "2");
    client.publish("free/a", "3", QoS::AtMostOnce);

    assert_eq!(first, ReasonCode::SUCCESS);
    assert_eq!(second, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(listener.take_message().text(), "3");
    assert_eq!(broker.stats().dropped_hook, 2);
}

#[test]
fn a_denied_message_is_refused_with_its_reason() {
    let broker = deciding(|_| PublishDecision::Deny {
        reason: ReasonCode::PAYLOAD_FORMAT_INVALID,
        text: Some("no JSON".into()),
    });
    let mut listener = listener(&broker);
    let mut new = v5("new").connect(&broker);
    let mut old = v3("old").connect(&broker);

    let reason = new.publish_acknowledged("hook/a", "1");
    let told = new.reason_string();
    let acknowledged = old.publish_acknowledged("hook/a", "2");
    new.publish("free/a", "3", QoS::AtMostOnce);

    assert_eq!(reason, ReasonCode::PAYLOAD_FORMAT_INVALID);
    assert_eq!(told, "no JSON");
    assert_eq!(acknowledged, ReasonCode::SUCCESS, "3.x knows no failure");
    assert_eq!(listener.take_message().text(), "3");
    assert_eq!(broker.stats().denied, 2);
}

#[test]
fn a_publisher_may_be_disconnected() {
    let broker = deciding(|_| PublishDecision::Disconnect {
        reason: ReasonCode::NOT_AUTHORIZED,
        text: None,
    });
    let mut client = v5("one").connect(&broker);

    client.publish("hook/a", "1", QoS::AtMostOnce);

    assert_eq!(
        client.until_closed(),
        [Received::Disconnect(ReasonCode::NOT_AUTHORIZED)]
    );
}

/// [MQTT 3.1.1 MQTT-4.8.0-2] An acknowledgement would make a 3.x client forget its message.
#[test]
fn without_an_answer_nothing_is_routed() {
    let none = |_: PublishBatch, reply| drop::<Reply<Vec<PublishDecision>>>(reply);
    let few = |_: PublishBatch, reply: Reply<Vec<PublishDecision>>| {
        reply.send(Vec::new());
    };
    for plugin in [
        Plugin::default().publish(&["hook/#"], none),
        Plugin::default().publish(&["hook/#"], few),
    ] {
        let broker = start_with(rules(), plugin);
        let mut listener = listener(&broker);
        let mut new = v5("new").connect(&broker);
        let mut old = v3("old").connect(&broker);

        let reason = new.publish_acknowledged("hook/a", "1");
        new.publish("hook/a", "2", QoS::AtMostOnce);
        old.publish("hook/a", "3", QoS::AtMostOnce);
        old.ping();
        old.publish("hook/a", "4", QoS::AtLeastOnce);
        assert_eq!(old.until_closed(), []);
        new.publish("free/a", "5", QoS::AtMostOnce);

        assert_eq!(reason, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
        assert_eq!(listener.take_message().text(), "5");
    }
}

#[test]
fn a_new_topic_is_authorized_again() {
    let broker = deciding(|message| moved(message, &String::from_utf8_lossy(message.payload())));
    let mut listener = listener(&broker);
    let mut client = v5("one").connect(&broker);

    let denied = client.publish_acknowledged("hook/a", "hook/denied");
    let not_granted = client.publish_acknowledged("hook/a", "elsewhere");
    let reserved = client.publish_acknowledged("hook/a", "$CONTROL/x");
    let allowed = client.publish_acknowledged("hook/a", "free/b");

    assert_eq!(
        [denied, not_granted, reserved],
        [ReasonCode::NOT_AUTHORIZED; 3]
    );
    assert_eq!(allowed, ReasonCode::SUCCESS);
    assert_eq!(listener.take_message().topic, "free/b");
}

#[test]
fn one_publishers_messages_keep_their_order_and_come_in_batches_of_64() {
    let (broker, batches) = asking();
    let mut listener = listener(&broker);
    let mut client = v5("one").connect(&broker);
    let frames = (0..200).map(|number| {
        let topic = if number % 3 == 0 { "free/a" } else { "hook/a" };
        frame(topic, &number.to_string())
    });

    client.send_bytes(&frames.collect::<Vec<_>>().concat());
    let mut received = 0;
    let mut asked = 0;
    while asked < 133 {
        let (batch, reply) = next(&batches);
        assert!((1..=64).contains(&batch.messages.len()));
        assert!(
            batch
                .messages
                .iter()
                .all(|message| message.topic() == "hook/a")
        );
        asked += batch.messages.len();
        reply.send(as_they_are(&batch));
    }
    while received < 200 {
        assert_eq!(listener.take_message().text(), received.to_string());
        received += 1;
    }

    assert_eq!(asked, 133, "the others never left the engine");
}

/// A QoS 0 PUBLISH of MQTT 5.0, by hand.
fn frame(topic: &str, payload: &str) -> Vec<u8> {
    let length = u8::try_from(3 + topic.len() + payload.len()).expect("a short message");
    let topic_length = u8::try_from(topic.len()).expect("a short topic");
    let head = [0x30, length, 0, topic_length];
    [&head[..], topic.as_bytes(), &[0], payload.as_bytes()].concat()
}

#[test]
fn other_clients_are_not_delayed_and_later_packets_wait() {
    let (broker, batches) = asking();
    let mut listener = listener(&broker);
    let mut slow = v5("slow").connect(&broker);
    let mut quick = v5("quick").connect(&broker);

    let id = slow.publish("hook/a", "1", QoS::AtLeastOnce);
    let (batch, reply) = next(&batches);
    slow.publish("free/a", "2", QoS::AtMostOnce);
    quick.publish("free/a", "3", QoS::AtMostOnce);
    assert_eq!(listener.take_message().text(), "3");
    reply.send(as_they_are(&batch));

    assert_eq!(listener.take_message().text(), "1");
    assert_eq!(listener.take_message().text(), "2");
    assert_eq!(slow.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
}

#[test]
fn a_publish_in_front_of_disconnect_is_decided_first() {
    let (broker, batches) = asking();
    let mut listener = listener(&broker);
    let mut client = v5("one").connect(&broker);

    client.send_bytes(&[frame("hook/a", "1"), vec![0xE0, 0]].concat());
    let (batch, reply) = next(&batches);
    assert_eq!(broker.stats().clients_connected, 2);
    reply.send(as_they_are(&batch));

    assert_eq!(listener.take_message().text(), "1");
    eventually("the client is gone", || {
        broker.stats().clients_connected == 1
    });
}

#[test]
fn permission_comes_first_and_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let plugin = Plugin::default()
        .authorize(&[(Action::Publish, "ask/#")], move |ask, reply| {
            count.fetch_add(1, Ordering::SeqCst);
            reply.send(if ask.topic.as_str() == "ask/yes" {
                AuthorizeDecision::Allow
            } else {
                AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED)
            });
        })
        .publish(&["ask/#", "hook/#"], |batch, reply| {
            reply.send(batch.messages.iter().map(stamped).collect());
        });
    let broker = start_with(rules(), plugin);
    let mut listener = listener(&broker);
    let mut client = v5("one").connect(&broker);

    let yes = client.publish_acknowledged("ask/yes", "1");
    let no = client.publish_acknowledged("ask/no", "2");
    let denied = client.publish_acknowledged("hook/denied", "3");

    assert_eq!(yes, ReasonCode::SUCCESS);
    assert_eq!([no, denied], [ReasonCode::NOT_AUTHORIZED; 2]);
    assert_eq!(listener.take_message().text(), "1!");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
