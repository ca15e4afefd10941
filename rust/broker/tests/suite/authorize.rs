//! A plugin says what may be done, one thing at a time, where the grant says nothing.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mqttcore_broker::{Action, AuthorizeDecision, AuthorizeRequest, Broker, Config, Grant, Reply};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{
    Client, DEADLINE, Plugin, Received, config, eventually, filter, start_with, v3, v5,
};

type Questions = Receiver<(AuthorizeRequest, Reply<AuthorizeDecision>)>;

const ABOUT: [(Action, &str); 2] = [(Action::Publish, "ask/#"), (Action::Subscribe, "ask/#")];

/// `free/#` is allowed, `free/secret` is denied, `ask/#` is asked about; all on one shard.
fn asking() -> (Broker, Questions) {
    let (plugin, questions) = Plugin::questions(&ABOUT);
    (start_with(with_rules(), plugin), questions)
}

fn answering(ruling: AuthorizeDecision) -> Broker {
    let plugin = Plugin::default().authorize(&ABOUT, move |_, reply| {
        reply.send(ruling.clone());
    });
    start_with(with_rules(), plugin)
}

fn with_rules() -> Config {
    let mut config = config();
    config.shards = 1;
    config.listeners[0].anonymous = Some(Grant {
        publish: vec!["free/#".into()],
        subscribe: vec!["free/#".into()],
        deny: vec!["free/secret".into()],
        ..Grant::default()
    });
    config
}

fn next(questions: &Questions) -> (AuthorizeRequest, Reply<AuthorizeDecision>) {
    questions.recv_timeout(DEADLINE).expect("asked")
}

/// Hears everything on `ask/#` and `free/#`.
fn listener(broker: &Broker, questions: &Questions) -> Client {
    let mut client = v5("listener").connect(broker);
    client.send_subscribe(&["ask/#", "free/#"], QoS::AtLeastOnce);
    next(questions).1.send(AuthorizeDecision::Allow);
    assert!(matches!(client.receive(), Received::SubAck(..)));
    client
}

#[test]
fn a_publish_that_the_plugin_allows_is_delivered_and_acknowledged() {
    let (broker, questions) = asking();
    let mut listener = listener(&broker, &questions);
    let mut client = v5("one").connect(&broker);

    let id = client.publish("ask/a", "1", QoS::AtLeastOnce);
    let (ask, reply) = next(&questions);
    assert_eq!(broker.stats().messages_sent, 0);
    reply.send(AuthorizeDecision::Allow);

    assert_eq!((ask.topic.as_str(), ask.action), ("ask/a", Action::Publish));
    assert_eq!((ask.qos, ask.retain), (QoS::AtLeastOnce, false));
    assert_eq!(&*ask.login.client_id, "one");
    assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    assert_eq!(listener.take_message().text(), "1");
}

#[test]
fn a_denied_publish_of_a_v5_client_is_answered_with_the_plugins_reason() {
    let broker = answering(AuthorizeDecision::deny(ReasonCode::QUOTA_EXCEEDED));
    let mut client = v5("one").connect(&broker);

    let reason = client.publish_acknowledged("ask/a", "1");

    assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(broker.stats().denied, 1);
}

/// [MQTT-3.1.1 3.3.5-2] (docs/decisions.md, 22).
#[test]
fn a_denied_publish_of_a_3_1_1_client_is_acknowledged_and_dropped() {
    let (broker, questions) = asking();
    let mut listener = listener(&broker, &questions);
    let mut client = v3("one").connect(&broker);

    let id = client.publish("ask/a", "never delivered", QoS::AtLeastOnce);
    next(&questions)
        .1
        .send(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));

    assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    client.publish("free/a", "after it", QoS::AtMostOnce);
    assert_eq!(listener.take_message().text(), "after it");
    assert_eq!(broker.stats().denied, 1);
}

/// [MQTT-4.3.3-9] An error ends the exchange.
#[test]
fn mqtt_4_3_3_9_a_denied_qos_2_publish_ends_with_pubrec() {
    let broker = answering(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));
    let mut client = v5("one").connect(&broker);

    let id = client.publish("ask/a", "1", QoS::ExactlyOnce);

    assert_eq!(
        client.receive(),
        Received::PubRec(id, ReasonCode::NOT_AUTHORIZED)
    );
    client.pubrel(id);
    assert_eq!(
        client.receive(),
        Received::PubComp(id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND)
    );
}

#[test]
fn a_denied_qos_0_publish_is_dropped_and_the_client_stays() {
    let broker = answering(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));
    let mut client = v5("one").connect(&broker);

    client.publish("ask/a", "1", QoS::AtMostOnce);

    client.ping();
    assert_eq!(broker.stats().denied, 1);
}

#[test]
fn a_dropped_reply_denies() {
    let plugin = Plugin::default().authorize(&ABOUT, |_, reply| drop(reply));
    let broker = start_with(with_rules(), plugin);
    let mut client = v5("one").connect(&broker);

    let published = client.publish_acknowledged("ask/a", "1");
    let subscribed = client.try_subscribe("ask/a", QoS::AtMostOnce);

    assert_eq!(published, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(subscribed, ReasonCode::NOT_AUTHORIZED);
}

/// [MQTT 3.1.1 MQTT-4.8.0-2] An acknowledgement would make the client forget its message.
#[test]
fn mqtt_3_1_1_4_8_0_2_a_fault_of_ours_closes_a_3_1_1_client_that_awaits_an_acknowledgement() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let plugin = Plugin::default().authorize(&ABOUT, |_, reply| drop(reply));
        let broker = start_with(with_rules(), plugin);
        let mut client = v3("one").connect(&broker);

        client.publish("ask/a", "1", qos);

        assert_eq!(client.until_closed(), []);
    }
}

#[test]
fn a_fault_of_ours_drops_a_qos_0_publish_and_fails_a_filter_of_a_3_1_1_client() {
    let plugin = Plugin::default().authorize(&ABOUT, |_, reply| drop(reply));
    let broker = start_with(with_rules(), plugin);
    let mut client = v3("one").connect(&broker);

    client.publish("ask/a", "1", QoS::AtMostOnce);
    let subscribed = client.try_subscribe("ask/a", QoS::AtMostOnce);

    assert_eq!(subscribed, ReasonCode::UNSPECIFIED_ERROR);
    client.ping();
}

/// A denial is one, whatever its code says.
#[test]
fn a_denial_with_a_code_of_success_is_reported_as_an_error() {
    let broker = answering(AuthorizeDecision::deny(ReasonCode::SUCCESS));
    let mut client = v5("one").connect(&broker);

    assert!(client.publish_acknowledged("ask/a", "1").is_error());
    assert!(client.try_subscribe("ask/a", QoS::AtMostOnce).is_error());
}

#[test]
fn an_answer_for_all_is_asked_for_once() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    client.publish("ask/mine/1", "", QoS::AtLeastOnce);
    next(&questions).1.send(AuthorizeDecision::AllowAll {
        covers: filter("ask/mine/#"),
        until: Instant::now() + Duration::from_secs(60),
    });
    client.receive();

    let reason = client.publish_acknowledged("ask/mine/2", "");
    assert!(!reason.is_error());
    client.publish("ask/other", "", QoS::AtLeastOnce);

    let (ask, _reply) = next(&questions);
    assert_eq!(ask.topic.as_str(), "ask/other");
    assert!(questions.try_recv().is_err());
}

#[test]
fn an_answer_for_all_covers_subscriptions_that_are_narrower() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    client.send_subscribe(&["ask/mine/+"], QoS::AtMostOnce);
    next(&questions).1.send(AuthorizeDecision::AllowAll {
        covers: filter("ask/mine/#"),
        until: Instant::now() + Duration::from_secs(60),
    });
    client.receive();

    client.subscribe("ask/mine/+/deep", QoS::AtMostOnce);
    client.send_subscribe(&["ask/#"], QoS::AtMostOnce);

    assert_eq!(next(&questions).0.topic.as_str(), "ask/#");
}

#[test]
fn an_answer_for_all_covers_the_other_filters_of_its_packet() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);

    let id = client.send_subscribe(&["ask/a", "ask/b", "ask/c"], QoS::AtMostOnce);
    next(&questions).1.send(AuthorizeDecision::AllowAll {
        covers: filter("ask/+"),
        until: Instant::now() + Duration::from_secs(60),
    });

    let granted = vec![ReasonCode::GRANTED_QOS_0; 3];
    assert_eq!(client.receive(), Received::SubAck(id, granted));
    assert!(questions.try_recv().is_err());
}

#[test]
fn an_answer_for_all_publishes_is_none_for_subscriptions() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    client.publish("ask/a", "", QoS::AtLeastOnce);
    next(&questions).1.send(AuthorizeDecision::AllowAll {
        covers: filter("ask/#"),
        until: Instant::now() + Duration::from_secs(60),
    });
    client.receive();

    client.send_subscribe(&["ask/a"], QoS::AtMostOnce);

    assert_eq!(next(&questions).0.action, Action::Subscribe);
}

#[test]
fn an_answer_for_all_that_has_ended_is_asked_for_again() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    for _ in 0..2 {
        client.publish("ask/a", "", QoS::AtLeastOnce);

        next(&questions).1.send(AuthorizeDecision::AllowAll {
            covers: filter("ask/#"),
            until: Instant::now(),
        });
        client.receive();
    }
}

#[test]
fn an_answer_for_all_ends_with_its_connection() {
    let (broker, questions) = asking();
    let hello = v5("one").keeping_session_s(60);
    for _ in 0..2 {
        let mut client = hello.connect(&broker);
        client.publish("ask/a", "", QoS::AtLeastOnce);

        next(&questions).1.send(AuthorizeDecision::AllowAll {
            covers: filter("ask/#"),
            until: Instant::now() + Duration::from_secs(60),
        });
        client.receive();
        client.disconnect();
    }
}

#[test]
fn a_client_that_the_plugin_disconnects_hears_why() {
    let (broker, questions) = asking();
    let mut listener = listener(&broker, &questions);
    let mut client = v5("one").connect(&broker);

    client.publish("ask/a", "never delivered", QoS::AtLeastOnce);
    next(&questions).1.send(AuthorizeDecision::disconnect(
        ReasonCode::ADMINISTRATIVE_ACTION,
    ));

    let disconnect = Received::Disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert_eq!(client.until_closed(), [disconnect]);
    listener.ping();
}

#[test]
fn a_3_1_1_client_that_the_plugin_disconnects_is_closed() {
    let broker = answering(AuthorizeDecision::disconnect(
        ReasonCode::ADMINISTRATIVE_ACTION,
    ));
    let mut client = v3("one").connect(&broker);

    client.send_subscribe(&["ask/a"], QoS::AtMostOnce);

    assert_eq!(client.until_closed(), []);
    assert_eq!(broker.stats().subscriptions, 0);
}

/// [MQTT-4.6.0-2]
#[test]
fn mqtt_4_6_0_2_packets_behind_an_open_question_keep_their_order() {
    let (broker, questions) = asking();
    let mut listener = listener(&broker, &questions);
    let mut client = v5("one").connect(&broker);
    let mut ids = Vec::new();
    for (topic, text) in [
        ("ask/a", "1"),
        ("free/a", "2"),
        ("ask/b", "3"),
        ("free/b", "4"),
    ] {
        ids.push(client.publish(topic, text, QoS::AtLeastOnce));
    }

    for _ in 0..2 {
        next(&questions).1.send(AuthorizeDecision::Allow);
    }

    for id in ids {
        assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    }
    let texts: Vec<String> = (0..4)
        .map(|_| listener.take_message().text().into())
        .collect();
    assert_eq!(texts, ["1", "2", "3", "4"]);
}

#[test]
fn packets_behind_an_open_question_wait_in_one_write_too() {
    let (broker, questions) = asking();
    let mut client = v3("one").connect(&broker);
    // PUBLISH ask/a at QoS 0, PINGREQ.
    client.send_bytes(b"\x30\x08\x00\x05ask/a!\xC0\x00");

    let (_, reply) = next(&questions);
    client.hears_nothing_for(Duration::from_millis(50));
    reply.send(AuthorizeDecision::Allow);

    assert_eq!(client.receive(), Received::PingResp);
}

#[test]
fn a_bystander_goes_on_while_a_plugin_thinks_about_a_publish() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    client.publish("ask/a", "", QoS::AtLeastOnce);
    let (_, reply) = next(&questions);

    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("free/a", QoS::AtMostOnce);
    bystander.publish("free/a", "goes on", QoS::AtMostOnce);

    assert_eq!(bystander.message().text(), "goes on");
    reply.send(AuthorizeDecision::Allow);
    client.receive();
}

#[test]
fn messages_reach_a_client_while_its_own_question_is_open() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    client.subscribe("free/a", QoS::AtMostOnce);
    client.publish("ask/a", "", QoS::AtLeastOnce);
    let (_, _reply) = next(&questions);

    v5("other")
        .connect(&broker)
        .publish("free/a", "meanwhile", QoS::AtMostOnce);

    assert_eq!(client.message().text(), "meanwhile");
}

/// Keep Alive is about the client's silence, not about the broker's.
#[test]
fn a_client_is_not_silent_because_the_broker_does_not_listen_to_it() {
    let (broker, questions) = asking();
    let mut client = v5("one").keep_alive_s(1).connect(&broker);
    let id = client.publish("ask/a", "", QoS::AtLeastOnce);
    let (_, reply) = next(&questions);

    for _ in 0..2 {
        client.send_bytes(b"\xC0\x00");
        client.hears_nothing_for(Duration::from_millis(900));
    }
    reply.send(AuthorizeDecision::Allow);

    assert!(matches!(client.receive(), Received::PubAck(acknowledged, _) if acknowledged == id));
    assert_eq!(client.receive(), Received::PingResp);
}

#[test]
fn what_the_grant_allows_or_denies_is_not_asked() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);

    let allowed = client.publish_acknowledged("free/a", "");
    let denied = client.publish_acknowledged("free/secret", "");
    let reserved = client.publish_acknowledged("$SYS/broker/version", "");
    let unasked = client.publish_acknowledged("other", "");

    assert!(!allowed.is_error());
    assert_eq!(denied, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(reserved, ReasonCode::NOT_AUTHORIZED);
    assert_eq!(unasked, ReasonCode::NOT_AUTHORIZED);
    assert!(questions.try_recv().is_err());
}

#[test]
fn each_filter_of_a_packet_has_its_own_answer() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);

    let id = client.send_subscribe(&["ask/no", "free/a", "other", "ask/yes"], QoS::AtMostOnce);
    let (first, reply) = next(&questions);
    reply.send(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));
    let (second, reply) = next(&questions);
    reply.send(AuthorizeDecision::Allow);

    assert_eq!(
        (first.topic.as_str(), second.topic.as_str()),
        ("ask/no", "ask/yes")
    );
    let (no, yes) = (ReasonCode::NOT_AUTHORIZED, ReasonCode::GRANTED_QOS_0);
    assert_eq!(
        client.receive(),
        Received::SubAck(id, vec![no, yes, no, yes])
    );
    assert_eq!(broker.stats().subscriptions, 2);
}

#[test]
fn a_denied_filter_of_a_3_1_1_client_fails_in_its_suback() {
    let broker = answering(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));
    let mut client = v3("one").connect(&broker);

    let reason = client.try_subscribe("ask/a", QoS::AtMostOnce);

    assert_eq!(reason.value(), 0x80);
}

#[test]
fn a_shared_subscription_is_asked_about_with_its_group() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);

    client.send_subscribe(&["$share/team/ask/a"], QoS::AtLeastOnce);
    let (ask, reply) = next(&questions);
    reply.send(AuthorizeDecision::Allow);

    assert_eq!(
        (ask.topic.as_str(), ask.share.as_deref()),
        ("ask/a", Some("team"))
    );
    assert!(matches!(client.receive(), Received::SubAck(..)));
}

#[test]
fn a_retained_message_that_is_denied_is_not_kept() {
    let broker = answering(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED));
    let mut client = v5("one").connect(&broker);

    client.publish_retained("ask/a", "planted", QoS::AtLeastOnce);
    client.receive();

    assert_eq!(broker.stats().retained_messages, 0);
}

#[test]
fn the_question_is_abandoned_when_its_client_is_disconnected() {
    let (broker, questions) = asking();
    let mut client = v5("one").connect(&broker);
    client.publish("ask/a", "", QoS::AtLeastOnce);
    let (_, reply) = next(&questions);

    assert!(broker.disconnect("one", ReasonCode::ADMINISTRATIVE_ACTION));

    let disconnect = Received::Disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert_eq!(client.until_closed(), [disconnect]);
    drop(client);
    eventually("the question is abandoned", || reply.is_abandoned());
}

/// It was whole before its publisher left, and its publisher left in order.
#[test]
fn a_message_is_published_although_its_client_left_before_the_answer() {
    let (broker, questions) = asking();
    let mut listener = listener(&broker, &questions);
    let mut client = v5("one").connect(&broker);
    client.publish("ask/a", "my last", QoS::AtMostOnce);
    let (_, reply) = next(&questions);

    let leaving = std::thread::spawn(move || client.disconnect());
    reply.send(AuthorizeDecision::Allow);

    assert_eq!(listener.take_message().text(), "my last");
    leaving.join().expect("the client is let go");
}

#[test]
fn a_message_whose_question_is_open_dies_with_its_connection() {
    let (broker, questions) = asking();
    let mut listener = listener(&broker, &questions);
    let hello = v5("one").keeping_session_s(60);
    let mut old = hello.connect(&broker);
    old.publish("ask/a", "never accepted", QoS::AtLeastOnce);
    let (_, reply) = next(&questions);

    let mut new = hello.connect(&broker);
    old.until_closed();
    reply.send(AuthorizeDecision::Allow);

    new.publish("free/a", "after it", QoS::AtMostOnce);
    assert_eq!(listener.take_message().text(), "after it");
}

/// Abuse F16
#[test]
fn a_resumed_session_loses_the_subscriptions_that_its_new_grant_denies() {
    let plugin = Plugin::default().authenticate(|login, reply| {
        let mut grant = Grant::everything();
        if !login.clean_start {
            grant.deny = vec!["secret/#".into()];
        }
        reply.send(crate::common::allow(grant));
    });
    let broker = start_with(config(), plugin);
    let hello = v5("one").username("user").keeping_session_s(60);
    let mut client = hello.clone().clean_start().connect(&broker);
    client.subscribe("secret/a", QoS::AtLeastOnce);
    client.subscribe("open/a", QoS::AtLeastOnce);
    client.disconnect();

    let (mut client, present) = hello.connect_or_resume(&broker);

    assert!(present);
    assert_eq!(broker.stats().subscriptions, 1);
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_acknowledged("secret/a", "no longer");
    publisher.publish_acknowledged("open/a", "still");
    assert_eq!(client.take_message().text(), "still");
}
