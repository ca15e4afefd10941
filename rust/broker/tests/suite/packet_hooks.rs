//! Hooks about packets: `connect`, `will` and `subscribe`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqttcore_broker::{
    Broker, Config, ConnectChanges, ConnectDecision, Grant, Hooks, Invalidation, LoginDecision,
    PublishDecision, Reply, SubscribeBatch, SubscribeDecision,
};
use mqttcore_codec::{QoS, ReasonCode, RetainHandling};
use mqttcore_session::{Message, MessageChanges, ServerLimits};

use crate::common::{
    DEADLINE, HOUR_S, Hello, Plugin, Received, allow, config, eventually, start_with, v3, v5,
};

/// SUBSCRIBEs, and the places for their answers.
type Batches = Receiver<(SubscribeBatch, Reply<Vec<SubscribeDecision>>)>;

/// One shard; `denied` is not allowed.
fn rules() -> Config {
    let mut config = config();
    config.shards = 1;
    config.listeners[0].anonymous = Some(Grant {
        deny: vec!["denied".into()],
        ..Grant::everything()
    });
    config
}

fn connecting(decision: ConnectDecision) -> Broker {
    let plugin = Plugin::default().connect(move |_, reply| {
        reply.send(decision.clone());
    });
    start_with(rules(), plugin)
}

fn changing(changes: ConnectChanges) -> Broker {
    connecting(ConnectDecision::Allow(changes))
}

fn subscribe_at(max_qos: QoS) -> SubscribeDecision {
    SubscribeDecision::Subscribe {
        max_qos,
        retain_handling: RetainHandling::SendAtSubscribe,
    }
}

fn subscribe_denial(reason: ReasonCode) -> SubscribeDecision {
    SubscribeDecision::Deny {
        reason,
        text: Some("not today".into()),
    }
}

/// Questions land in the receiver, and nobody answers but the test.
fn subscribing() -> (Plugin, Batches) {
    let (sender, batches) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().subscribe(move |batch, reply| {
        let _ = sender.lock().expect("no panic").send((batch, reply));
    });
    (plugin, batches)
}

fn replaced(message: &Message, changes: &MessageChanges) -> PublishDecision {
    let now = std::time::Instant::now();
    let found = message.changed(changes, now, &ServerLimits::default());
    PublishDecision::Replace(found.expect("a message"), None)
}

/// A broker whose will hook about `will/#` decides so.
fn deciding_wills(decide: impl Fn(&Message) -> PublishDecision + Send + Sync + 'static) -> Broker {
    let plugin = Plugin::default().will("will/#", move |batch, reply| {
        reply.send(batch.messages.iter().map(&decide).collect());
    });
    start_with(rules(), plugin)
}

fn with_will(topic: &str) -> Hello {
    v5("with a will")
        .will(topic, "gone")
        .will_qos(QoS::AtLeastOnce)
}

/// The next message of a subscriber to everything, after this client has vanished.
fn will_of(broker: &Broker, hello: &Hello) -> (String, String) {
    let mut subscriber = v5("subscriber").connect(broker);
    subscriber.subscribe("#", QoS::AtMostOnce);
    hello.connect(broker).vanish();
    eventually("it is gone", || broker.stats().clients_connected == 1);
    subscriber.publish("after", "after", QoS::AtMostOnce);
    let message = subscriber.take_message();
    (message.topic.clone(), message.text().into())
}

#[test]
fn a_connect_hook_lowers_the_qos_and_the_session_expiry() {
    let broker = changing(ConnectChanges {
        max_qos: Some(QoS::AtMostOnce),
        session_expiry_max_s: Some(0),
        ..ConnectChanges::default()
    });

    let mut client = v5("one").keeping_session_s(HOUR_S).connect(&broker);
    let granted = client.try_subscribe("a", QoS::ExactlyOnce);
    client.vanish();

    assert_eq!(granted, ReasonCode::GRANTED_QOS_0);
    eventually("its session has ended", || broker.clients().is_empty());
}

#[test]
fn a_connect_hook_refuses_a_client_with_its_reason() {
    for (reason, v5_code) in [
        (ReasonCode::BANNED, 0x8a),
        (ReasonCode::SUCCESS, 0x87), // never a success code
    ] {
        let broker = connecting(ConnectDecision::Deny { reason, text: None });

        assert_eq!(v5("one").refused(&broker), v5_code);
    }
}

#[test]
fn a_connect_hook_names_another_server() {
    for (is_permanent, code) in [(false, 0x9c), (true, 0x9d)] {
        let broker = connecting(ConnectDecision::Redirect {
            server: "other:1883".into(),
            is_permanent,
        });

        assert_eq!(v5("five").refused(&broker), code);
        assert_eq!(v3("three").refused(&broker), 3);
    }
}

#[test]
fn a_client_about_whom_no_plugin_answers_is_refused() {
    let broker = start_with(rules(), Plugin::default().connect(|_, reply| drop(reply)));

    assert_eq!(v5("one").refused(&broker), 0x88);
    assert!(broker.clients().is_empty());
}

#[test]
fn a_client_that_authentication_refuses_is_not_asked_about() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mut config = rules();
    config.listeners[0].anonymous = None;
    let plugin = Plugin::default()
        .authenticate(|_, reply| drop(reply))
        .connect(move |_, reply| {
            count.fetch_add(1, Ordering::SeqCst);
            reply.send(ConnectDecision::Allow(ConnectChanges::default()));
        });
    let broker = start_with(config, plugin);

    let code = v5("one").username("joe").refused(&broker);

    assert_eq!((code, asked.load(Ordering::SeqCst)), (0x88, 0));
}

#[test]
fn after_a_reload_the_new_plugins_are_asked_about_a_client() {
    let (sender, questions) = channel();
    let sender = Mutex::new(sender);
    let old = Plugin::default().connect(move |_, reply| {
        let _ = sender.lock().expect("no panic").send(reply);
    });
    let broker = start_with(rules(), old);
    let mut client = v5("one").dial(&broker);
    let unanswered = questions.recv_timeout(DEADLINE).expect("asked");
    let new: Arc<dyn Hooks> = Arc::new(Plugin::default().connect(|_, reply| {
        let reason = ReasonCode::BANNED;
        reply.send(ConnectDecision::Deny { reason, text: None });
    }));

    broker.reload(&rules(), new).expect("the reload is fine");
    drop(unanswered);

    let refused = Received::ConnAck {
        session_present: false,
        reason: ReasonCode::BANNED,
    };
    assert_eq!(client.receive(), refused);
}

#[test]
fn a_will_is_changed_before_it_is_kept() {
    let broker = deciding_wills(|will| {
        let changes = MessageChanges {
            topic: Some("moved".into()),
            payload: Some([will.payload(), b"!"].concat()),
            ..MessageChanges::default()
        };
        replaced(will, &changes)
    });

    let found = will_of(&broker, &with_will("will/a"));

    assert_eq!(found, ("moved".into(), "gone!".into()));
}

#[test]
fn a_dropped_will_is_not_published_and_counted() {
    let broker = deciding_wills(|_| PublishDecision::Drop {
        reason: ReasonCode::SUCCESS,
    });

    let found = will_of(&broker, &with_will("will/a"));

    assert_eq!(found.0, "after");
    assert_eq!(broker.stats().dropped_hook, 1);
}

#[test]
fn a_will_of_another_topic_is_not_asked_about() {
    let broker = deciding_wills(|_| PublishDecision::Fault);

    let found = will_of(&broker, &with_will("other"));

    assert_eq!(found, ("other".into(), "gone".into()));
}

#[test]
fn a_will_that_moves_to_a_denied_topic_is_refused() {
    let broker = deciding_wills(|will| {
        let changes = MessageChanges {
            topic: Some("denied".into()),
            ..MessageChanges::default()
        };
        replaced(will, &changes)
    });

    assert_eq!(with_will("will/a").refused(&broker), 0x87);
}

#[test]
fn a_client_about_whose_will_no_plugin_answers_is_refused() {
    let faults = [None, Some(PublishDecision::Fault)];
    for fault in faults {
        let plugin = Plugin::default().will("will/#", move |_, reply| {
            reply.send(fault.iter().cloned().collect());
        });
        let broker = start_with(rules(), plugin);

        assert_eq!(with_will("will/a").refused(&broker), 0x88);
        let denied = deciding_wills(|_| PublishDecision::Deny {
            reason: ReasonCode::PAYLOAD_FORMAT_INVALID,
            text: None,
        });
        assert_eq!(with_will("will/a").refused(&denied), 0x99);
    }
}

#[test]
fn one_question_has_all_permitted_filters_and_lowers_or_refuses_each() {
    let (plugin, batches) = subscribing();
    let broker = start_with(rules(), plugin);
    let mut client = v5("one").connect(&broker);

    let id = client.send_subscribe(&["a", "denied", "$share/g/b", "c"], QoS::ExactlyOnce);
    let (batch, reply) = batches.recv_timeout(DEADLINE).expect("asked");
    reply.send(vec![
        subscribe_at(QoS::AtMostOnce),
        subscribe_denial(ReasonCode::QUOTA_EXCEEDED),
        subscribe_at(QoS::ExactlyOnce),
    ]);

    let asked: Vec<&str> = batch
        .entries
        .iter()
        .map(|entry| entry.filter.as_str())
        .collect();
    assert_eq!(asked, ["a", "$share/g/b", "c"]);
    let expected = vec![
        ReasonCode::GRANTED_QOS_0,
        ReasonCode::NOT_AUTHORIZED,
        ReasonCode::QUOTA_EXCEEDED,
        ReasonCode::GRANTED_QOS_2,
    ];
    assert_eq!(client.receive(), Received::SubAck(id, expected));
    client.publish("b", "", QoS::AtMostOnce);
    client.publish("a", "to a", QoS::AtMostOnce);
    assert_eq!(client.message().text(), "to a");
    assert_eq!(broker.stats().denied, 2);
}

#[test]
fn a_subscribe_hook_does_not_raise_the_qos() {
    let plugin = Plugin::default().subscribe(|_, reply| {
        reply.send(vec![subscribe_at(QoS::ExactlyOnce)]);
    });
    let broker = start_with(rules(), plugin);
    let mut client = v5("one").connect(&broker);

    let granted = client.try_subscribe("a", QoS::AtMostOnce);

    assert_eq!(granted, ReasonCode::GRANTED_QOS_0);
}

#[test]
fn filters_about_which_no_plugin_answers_are_refused() {
    let plugin = Plugin::default().subscribe(|batch, reply| {
        if batch.entries.len() > 1 {
            reply.send(vec![subscribe_at(QoS::AtMostOnce)]);
        }
    });
    let broker = start_with(rules(), plugin);
    let mut client = v5("one").connect(&broker);
    let fault = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;

    let unanswered = client.try_subscribe("a", QoS::AtMostOnce);
    let id = client.send_subscribe(&["b", "c"], QoS::AtMostOnce);

    assert_eq!(unanswered, fault);
    let expected = vec![ReasonCode::GRANTED_QOS_0, fault];
    assert_eq!(client.receive(), Received::SubAck(id, expected));
    client.publish("a", "", QoS::AtMostOnce);
    client.publish("c", "", QoS::AtMostOnce);
    client.publish("b", "to b", QoS::AtMostOnce);
    assert_eq!(client.message().text(), "to b");
}

#[test]
fn retained_messages_are_not_sent_if_a_hook_says_so() {
    let plugin = Plugin::default().subscribe(|_, reply| {
        reply.send(vec![SubscribeDecision::Subscribe {
            max_qos: QoS::AtMostOnce,
            retain_handling: RetainHandling::DoNotSend,
        }]);
    });
    let broker = start_with(rules(), plugin);
    let mut client = v5("one").connect(&broker);
    client.publish_retained("a", "kept", QoS::AtMostOnce);

    client.subscribe("a", QoS::AtMostOnce);
    client.publish("a", "new", QoS::AtMostOnce);

    assert_eq!(client.message().text(), "new");
}

#[test]
fn only_the_client_that_subscribes_waits() {
    let (plugin, batches) = subscribing();
    let broker = start_with(rules(), plugin);
    let (mut waiting, mut other) = (v5("one").connect(&broker), v5("other").connect(&broker));

    waiting.send_subscribe(&["a"], QoS::AtMostOnce);
    let (_, reply) = batches.recv_timeout(DEADLINE).expect("asked");
    other.ping();
    waiting.hears_nothing_for(Duration::from_millis(20));
    reply.send(vec![subscribe_at(QoS::AtMostOnce)]);

    assert!(matches!(waiting.receive(), Received::SubAck(..)));
}

#[test]
fn after_a_reload_the_new_plugins_are_asked_about_a_subscription() {
    let deny = || subscribe_denial(ReasonCode::QUOTA_EXCEEDED);
    let denying = Plugin::default().subscribe(move |_, reply| {
        reply.send(vec![deny()]);
    });
    for (new, expected) in [
        (denying, ReasonCode::QUOTA_EXCEEDED),
        (Plugin::default(), ReasonCode::GRANTED_QOS_0),
    ] {
        let (plugin, batches) = subscribing();
        let broker = start_with(rules(), plugin);
        let mut client = v5("one").connect(&broker);
        let id = client.send_subscribe(&["a"], QoS::AtMostOnce);
        let (_, unanswered) = batches.recv_timeout(DEADLINE).expect("asked");

        let new: Arc<dyn Hooks> = Arc::new(new);
        broker.reload(&rules(), new).expect("the reload is fine");
        drop(unanswered);

        assert_eq!(client.receive(), Received::SubAck(id, vec![expected]));
    }
}

#[test]
fn a_right_that_is_lost_while_a_plugin_decides_is_not_given_back() {
    let (plugin, batches) = subscribing();
    let everything = |_, reply: Reply<LoginDecision>| {
        reply.send(allow(Grant::everything()));
    };
    let plugin = plugin.authenticate(everything).grant(|_, reply| {
        reply.send(allow(Grant::default()));
    });
    let broker = start_with(rules(), plugin);
    let mut client = v5("one").username("joe").connect(&broker);
    client.send_subscribe(&["old"], QoS::AtMostOnce);
    let (_, reply) = batches.recv_timeout(DEADLINE).expect("asked");
    reply.send(vec![subscribe_at(QoS::AtMostOnce)]);
    assert!(matches!(client.receive(), Received::SubAck(..)));
    let id = client.send_subscribe(&["new"], QoS::AtMostOnce);
    let (_, reply) = batches.recv_timeout(DEADLINE).expect("asked");

    broker.invalidate(&Invalidation::Username("joe".into()));
    eventually("its old subscription has ended", || {
        broker.clients()[0].subscriptions.is_empty()
    });
    reply.send(vec![subscribe_at(QoS::AtMostOnce)]);

    let refused = vec![ReasonCode::NOT_AUTHORIZED];
    assert_eq!(client.receive(), Received::SubAck(id, refused));
}
