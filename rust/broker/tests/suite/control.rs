//! Control requests: a plugin answers their client, and nobody else sees them.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use mqttcore_broker::{Broker, Config, ControlRequest, Grant, Invalidation, Reply};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{DEADLINE, Plugin, Received, allow, config, start_with, v3, v5};

const TOPIC: &str = "$CONTROL/test/v1";
const ANSWERS: &str = "$CONTROL/test/v1/response";

/// One shard, on which clients may do everything, requests on control topics included.
fn rules() -> Config {
    let mut config = config();
    config.shards = 1;
    config.listeners[0].anonymous = Some(everything());
    config
}

fn everything() -> Grant {
    Grant {
        publish: vec!["#".into(), "$CONTROL/#".into()],
        subscribe: vec!["#".into(), "$CONTROL/#".into()],
        ..Grant::default()
    }
}

fn answering(config: Config) -> Broker {
    let plugin = Plugin::default().control(TOPIC, |request, reply| {
        reply.send([b"re: ", request.message.payload()].concat());
    });
    start_with(config, plugin)
}

#[test]
fn the_answer_goes_to_the_client_that_asks() {
    let broker = answering(rules());
    let mut other = v5("other").connect(&broker);
    other.subscribe("$CONTROL/#", QoS::AtLeastOnce);
    let mut client = v5("one").connect(&broker);
    client.subscribe(ANSWERS, QoS::AtLeastOnce);

    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let id = client.publish(TOPIC, "hello", qos);
        if qos == QoS::AtLeastOnce {
            assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
        }
        let answer = client.take_message();
        assert_eq!(
            (answer.topic.as_str(), answer.text()),
            (ANSWERS, "re: hello")
        );
        assert_eq!((answer.qos, answer.retain), (qos, false));
    }
    other.publish(ANSWERS, "forged", QoS::AtMostOnce);
    other.ping();
    client.ping();
}

#[test]
fn requests_and_messages_keep_their_order() {
    let broker = answering(rules());
    let mut client = v5("one").connect(&broker);
    client.subscribe(ANSWERS, QoS::AtMostOnce);
    client.subscribe("a", QoS::AtMostOnce);

    for (topic, payload) in [
        ("a", "1"),
        (TOPIC, "2"),
        ("a", "3"),
        (TOPIC, "4"),
        ("a", "5"),
    ] {
        client.publish(topic, payload, QoS::AtMostOnce);
    }

    let texts: Vec<_> = (0..5)
        .map(|_| client.take_message().text().to_owned())
        .collect();
    assert_eq!(texts, ["1", "re: 2", "3", "re: 4", "5"]);
}

/// The plugin takes rights away, and is slow to say which ones are left: nobody is told before they are gone.
#[test]
fn the_answer_comes_when_the_rights_have_changed() {
    let (questions, question) = channel();
    let (requests, request) = channel();
    let (questions, requests) = (Mutex::new(questions), Mutex::new(requests));
    let plugin = Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(everything()));
        })
        .grant(move |login, reply| {
            if login.username.as_deref() == Some("ann") {
                let questions = questions.lock().expect("no panic");
                questions.send(reply).expect("the test waits");
            } else {
                reply.send(allow(everything()));
            }
        })
        .control(TOPIC, move |_, reply| {
            let requests = requests.lock().expect("no panic");
            requests.send(reply).expect("the test waits");
        });
    let mut config = rules();
    config.listeners[0].anonymous = None;
    let broker = start_with(config, plugin);
    let mut ann = v5("a").username("ann").connect(&broker);
    ann.subscribe("secret", QoS::AtMostOnce);
    let mut bystander = v5("b").username("bob").connect(&broker);
    let mut admin = v5("c").username("root").connect(&broker);
    admin.subscribe(ANSWERS, QoS::AtMostOnce);
    let order = Arc::new(Mutex::new(Vec::new()));

    admin.publish(TOPIC, "", QoS::AtMostOnce);
    let request = request.recv_timeout(DEADLINE).expect("a request");
    broker.invalidate(&Invalidation::Username("ann".into()));
    request.send(b"done".to_vec());
    let seen = Arc::clone(&order);
    let reader = std::thread::spawn(move || {
        assert_eq!(admin.take_message().text(), "done");
        seen.lock().expect("no panic").push("answer");
    });
    // An answer that does not wait is sent meanwhile; one that waits is sent after a second at the latest.
    for _ in 0..100 {
        bystander.ping();
    }
    let question = question.recv_timeout(DEADLINE).expect("a question");
    order.lock().expect("no panic").push("rights");
    question.send(allow(Grant::default()));
    reader.join().expect("no panic");

    assert_eq!(*order.lock().expect("no panic"), ["rights", "answer"]);
    let clients = broker.clients();
    let ann = clients.iter().find(|client| &*client.client_id == "a");
    assert!(ann.expect("a session").subscriptions.is_empty());
}

#[test]
fn a_client_that_is_not_subscribed_gets_an_acknowledgement_and_no_answer() {
    let broker = answering(rules());
    let mut client = v5("one").connect(&broker);
    client.subscribe("$share/group/$CONTROL/#", QoS::AtMostOnce);

    assert_eq!(client.publish_acknowledged(TOPIC, ""), ReasonCode::SUCCESS);
    client.ping();
}

#[test]
fn a_request_without_an_answer_is_refused_alone() {
    let broker = start_with(
        rules(),
        Plugin::default().control(TOPIC, |_, reply| drop(reply)),
    );
    let mut new = v5("new").connect(&broker);
    let mut old = v3("old").connect(&broker);
    new.subscribe(ANSWERS, QoS::AtMostOnce);
    old.subscribe(ANSWERS, QoS::AtMostOnce);

    let reason = new.publish_acknowledged(TOPIC, "");
    let id = old.publish(TOPIC, "", QoS::AtLeastOnce);

    assert_eq!(reason, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
    assert!(new.take_message().text().contains("no plugin answered"));
    assert_eq!(old.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    assert!(old.take_message().text().contains("no plugin answered"));
    assert_eq!(
        new.publish_acknowledged("a", ""),
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    );
    old.ping();
}

#[test]
fn a_request_needs_a_right_and_a_plugin() {
    let never = |_: ControlRequest, _: Reply<Vec<u8>>| panic!("asked");
    let mut denying = rules();
    denying.listeners[0]
        .anonymous
        .as_mut()
        .expect("a grant")
        .deny = vec![TOPIC.into()];
    let mut silent = rules();
    silent.listeners[0]
        .anonymous
        .as_mut()
        .expect("a grant")
        .publish = vec!["#".into()];
    for config in [denying, silent] {
        let broker = start_with(config, Plugin::default().control(TOPIC, never));
        let mut client = v5("one").connect(&broker);

        let reason = client.publish_acknowledged(TOPIC, "");

        assert_eq!(reason, ReasonCode::NOT_AUTHORIZED);
    }
    let broker = answering(rules());
    let mut client = v5("one").connect(&broker);
    for topic in [
        "$CONTROL/test/v2",
        "$CONTROL/test",
        ANSWERS,
        "$CONTROL/test/v1/",
    ] {
        let reason = client.publish_acknowledged(topic, "");
        assert_eq!(reason, ReasonCode::NOT_AUTHORIZED, "{topic}");
    }
}

#[test]
fn an_answer_that_its_client_may_not_receive_is_dropped() {
    let mut config = rules();
    config.listeners[0]
        .anonymous
        .as_mut()
        .expect("a grant")
        .deny = vec![ANSWERS.into()];
    let broker = answering(config);
    let mut client = v5("one").connect(&broker);
    client.subscribe("$CONTROL/#", QoS::AtMostOnce);

    assert_eq!(client.publish_acknowledged(TOPIC, ""), ReasonCode::SUCCESS);
    client.ping();
}

#[test]
fn a_request_that_a_reload_closes_is_refused_and_not_asked_again() {
    let (sender, asked) = channel();
    let sender = Mutex::new(sender);
    let old = Plugin::default().control(TOPIC, move |_, reply| {
        let _ = sender.lock().expect("no panic").send(reply);
    });
    let broker = start_with(rules(), old);
    let mut client = v5("one").connect(&broker);
    client.subscribe(ANSWERS, QoS::AtMostOnce);
    let id = client.publish(TOPIC, "first", QoS::ExactlyOnce);
    let reply = asked.recv_timeout(DEADLINE).expect("asked");

    let new = Plugin::default().control(TOPIC, |request, reply| {
        reply.send(request.message.payload().into());
    });
    broker
        .reload(&rules(), Arc::new(new))
        .expect("the reload is fine");
    drop(reply);

    let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
    assert_eq!(client.receive(), Received::PubRec(id, reason));
    assert!(client.take_message().text().contains("no plugin answered"));
    let id = client.publish(TOPIC, "second", QoS::ExactlyOnce);
    assert_eq!(client.receive(), Received::PubRec(id, ReasonCode::SUCCESS));
    assert_eq!(client.take_message().text(), "second");
}
