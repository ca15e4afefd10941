//! Mount points: what clients of a listener write and see, and what everybody else does.

use std::num::NonZeroU16;

use mqttcore_broker::{Action, AuthorizeDecision, Broker, Config, Grant, Listener};
use mqttcore_codec::{PropertiesBuf, Property, QoS, ReasonCode};
use mqttcore_topics::MountPoint;

use crate::common::{
    Client, HOUR_S, Hello, Home, Plugin, allow, config, config_with_limits, start, start_with, v3,
    v5,
};

/// Listener 0 has no mount point, 1 and 2 have `plant/1` and `plant/2`.
fn mounted(config: Config) -> Config {
    let listener = |name, mount_point: Option<&str>| Listener {
        anonymous: Some(Grant {
            publish: vec!["#".into(), "$mine/#".into()],
            ..Grant::everything()
        }),
        mount_point: mount_point.map(|text| MountPoint::parse(text).expect("a mount point")),
        ..Listener::new(name, ([127, 0, 0, 1], 0).into())
    };
    Config {
        listeners: vec![
            listener("plain", None),
            listener("one", Some("plant/1")),
            listener("two", Some("plant/2")),
        ],
        ..config
    }
}

fn behind(broker: &Broker, listener: usize, hello: &Hello) -> Client {
    hello.connect_at(broker, listener).0
}

/// The next message, as topic and text.
fn next(client: &mut Client) -> (String, String) {
    let message = client.take_message();
    (message.topic.clone(), message.text().to_owned())
}

fn pair(topic: &str, text: &str) -> (String, String) {
    (topic.into(), text.into())
}

#[test]
fn names_are_put_behind_it_on_the_way_in_and_taken_off_on_the_way_out() {
    let broker = start(mounted(config()));
    let mut all = v5("all").connect(&broker);
    all.subscribe("#", QoS::ExactlyOnce);
    let mut inside = behind(&broker, 1, &v3("inside"));
    inside.subscribe("b/+", QoS::ExactlyOnce);
    let mut other = behind(&broker, 2, &v5("other"));
    other.subscribe("#", QoS::ExactlyOnce);

    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        all.publish("plant/1/b/x", "down", qos);
        assert_eq!(next(&mut inside), pair("b/x", "down"));
    }
    inside.publish("b/y", "up", QoS::AtMostOnce);
    assert_eq!(next(&mut inside), pair("b/y", "up"));

    for _ in 0..3 {
        assert_eq!(next_message(&mut all), pair("plant/1/b/x", "down"));
    }
    assert_eq!(next_message(&mut all), pair("plant/1/b/y", "up"));
    assert_eq!(inside.unsubscribe("b/+"), ReasonCode::SUCCESS);
    other.ping();
}

/// As [`next`], whatever acknowledgements of its own come between.
fn next_message(client: &mut Client) -> (String, String) {
    loop {
        if let crate::common::Received::Publish(message) = client.receive() {
            client.acknowledge(&message);
            return (message.topic.clone(), message.text().to_owned());
        }
    }
}

#[test]
fn a_shared_subscription_is_one_group_with_that_of_the_internal_name() {
    let broker = start(mounted(config()));
    let mut inside = behind(&broker, 1, &v5("inside"));
    inside.subscribe("$share/g/jobs/#", QoS::AtMostOnce);
    let mut outside = v5("outside").connect(&broker);
    outside.subscribe("$share/g/plant/1/jobs/#", QoS::AtMostOnce);
    let mut publisher = behind(&broker, 1, &v5("publisher"));

    for _ in 0..2 {
        publisher.publish("jobs/x", "job", QoS::AtMostOnce);
    }

    assert_eq!(next(&mut inside), pair("jobs/x", "job"));
    assert_eq!(next(&mut outside), pair("plant/1/jobs/x", "job"));
}

#[test]
fn retained_messages_and_wills_are_behind_it() {
    let broker = start(mounted(config()));
    let mut inside = behind(&broker, 1, &v5("inside").will("gone", "bye"));
    inside.publish_retained("state", "on", QoS::AtMostOnce);
    inside.ping();
    let mut all = v5("all").connect(&broker);
    all.subscribe("plant/1/#", QoS::AtMostOnce);
    let mut peer = behind(&broker, 1, &v5("peer"));
    peer.subscribe("#", QoS::AtMostOnce);

    inside.vanish();

    assert_eq!(next(&mut all), pair("plant/1/state", "on"));
    assert_eq!(next(&mut peer), pair("state", "on"));
    assert_eq!(next(&mut all), pair("plant/1/gone", "bye"));
    assert_eq!(next(&mut peer), pair("gone", "bye"));
}

/// Abuse G10: neither a parent level, nor an empty one, nor a `$` inside is a way out or in.
#[test]
fn what_a_client_could_not_have_written_does_not_reach_it() {
    let broker = start(mounted(config()));
    let mut inside = behind(&broker, 1, &v5("inside"));
    inside.subscribe("#", QoS::AtLeastOnce);
    inside.subscribe("+/x", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    for topic in [
        "plant/1",
        "plant/1/",
        "plant/1/$SYS/x",
        "plant/1/$mine/x",
        "plant/10/x",
        "plant/2/x",
        "x",
    ] {
        publisher.publish_acknowledged(topic, "hidden");
    }
    publisher.publish_acknowledged("plant/1//x", "seen");

    assert_eq!(next(&mut inside), pair("/x", "seen"));
    let mut up = v5("up").connect(&broker);
    up.subscribe("plant/1/../#", QoS::AtMostOnce);
    inside.publish("../2/x", "no way out", QoS::AtMostOnce);
    assert_eq!(next(&mut up), pair("plant/1/../2/x", "no way out"));
}

#[test]
fn a_message_that_a_member_of_a_group_cannot_see_goes_to_one_that_can() {
    let broker = start(mounted(config()));
    let mut inside = behind(&broker, 1, &v5("inside"));
    inside.subscribe("$share/g/#", QoS::AtLeastOnce);
    let mut outside = v5("outside").connect(&broker);
    outside.subscribe("$share/g/plant/1/#", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    for _ in 0..4 {
        publisher.publish_acknowledged("plant/1/$mine/x", "hidden");
        assert_eq!(next(&mut outside), pair("plant/1/$mine/x", "hidden"));
    }

    inside.ping();
    assert_eq!(broker.stats().dropped_denied, 0);
}

#[test]
fn topics_that_begin_with_a_dollar_are_outside_of_it() {
    let broker = start(mounted(Config {
        sys_interval: Some(std::time::Duration::from_millis(50)),
        ..config()
    }));
    let mut inside = behind(&broker, 1, &v5("inside"));
    inside.subscribe("$SYS/broker/version", QoS::AtMostOnce);

    let version = inside.message();

    assert_eq!(version.topic, "$SYS/broker/version");
    assert!(version.text().starts_with("mqttcore "));
    let mut sender = behind(&broker, 1, &v5("sender"));
    let answers =
        ["$CONTROL/x", "$SYS/x", "$mine/x"].map(|topic| sender.publish_acknowledged(topic, ""));
    let (no, none) = (
        ReasonCode::NOT_AUTHORIZED,
        ReasonCode::NO_MATCHING_SUBSCRIBERS,
    );
    assert_eq!(answers, [no, no, none], "the rules judge them as they are");
}

#[test]
fn a_topic_alias_stands_for_the_name_behind_it() {
    let broker = start(mounted(config()));
    let mut all = v5("all").connect(&broker);
    all.subscribe("#", QoS::AtMostOnce);
    let mut inside = behind(&broker, 1, &v5("inside").topic_alias_maximum(5));
    inside.subscribe("a", QoS::AtMostOnce);
    let mut alias = PropertiesBuf::default();
    let number = NonZeroU16::new(3).expect("not 0");
    alias
        .push(Property::TopicAlias(number))
        .expect("it encodes");

    for topic in ["a", ""] {
        inside.publish_with(topic, b"x", QoS::AtMostOnce, false, alias.as_properties());
    }

    for _ in 0..2 {
        assert_eq!(next(&mut all), pair("plant/1/a", "x"));
    }
    // With its alias in place of the topic, from the second message on.
    assert_eq!(inside.message().topic, "a");
    assert_eq!(inside.message().topic, "");
}

/// Abuse G09: rules and questions are about the name behind the mount point.
#[test]
fn rules_and_plugins_judge_the_internal_name() {
    let (asked, question) = std::sync::mpsc::channel();
    let plugin = Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(Grant {
                publish: vec!["plant/1/open/#".into(), "a".into()],
                subscribe: vec!["plant/1/open/#".into(), "plant/2/#".into()],
                ..Grant::default()
            }));
        })
        .authorize(&[(Action::Publish, "plant/1/asked")], move |ask, reply| {
            asked.send(ask.topic.to_string()).expect("the test waits");
            reply.send(AuthorizeDecision::Allow);
        });
    let broker = start_with(mounted(config()), plugin);
    let mut inside = behind(&broker, 1, &v5("inside").username("user"));

    let allowed = ["open/x", "asked"].map(|topic| inside.publish_acknowledged(topic, ""));
    let denied = ["a", "plant/1/open/x"].map(|topic| inside.publish_acknowledged(topic, ""));

    assert_eq!(allowed, [ReasonCode::NO_MATCHING_SUBSCRIBERS; 2]);
    assert_eq!(denied, [ReasonCode::NOT_AUTHORIZED; 2]);
    assert_eq!(question.recv().expect("it was asked"), "plant/1/asked");
    let answers =
        ["open/#", "#", "plant/2/#"].map(|filter| inside.try_subscribe(filter, QoS::AtMostOnce));
    let no = ReasonCode::NOT_AUTHORIZED;
    assert_eq!(answers, [ReasonCode::SUCCESS, no, no]);
    let hello = v5("will").username("user");
    assert_eq!(hello.clone().will("a", "").refused_at(&broker, 1), 0x87);
    behind(&broker, 1, &hello.will("open/x", "")).ping();
}

#[test]
fn limits_of_topics_are_those_of_the_name_that_the_client_writes() {
    let broker = start(mounted(config_with_limits(|limits| {
        limits.topic.levels = 2;
        limits.topic.bytes = 3;
    })));
    let mut inside = behind(&broker, 1, &v5("inside"));
    inside.subscribe("a/b", QoS::AtMostOnce);

    inside.publish("a/b", "fits", QoS::AtMostOnce);

    assert_eq!(next(&mut inside), pair("a/b", "fits"));
}

#[test]
fn a_kept_session_has_internal_names_and_is_resumed_where_it_can_see_them() {
    let home = Home::new();
    let first = home.start_with(0, mounted(config()));
    let reader = v5("reader").keeping_session_s(HOUR_S);
    let mut inside = behind(&first, 1, &reader);
    inside.subscribe("a", QoS::AtLeastOnce);
    inside.disconnect();
    let mut publisher = v5("publisher").connect(&first);
    publisher.publish_acknowledged("plant/1/a", "first");
    let second = home.crash_with(first, 0, mounted(config()));

    let (mut inside, present) = reader.connect_at(&second, 1);

    assert!(present);
    assert_eq!(next(&mut inside), pair("a", "first"));
    inside.disconnect();
    let mut publisher = v5("publisher").connect(&second);
    publisher.publish_acknowledged("plant/1/a", "second");
    let (mut elsewhere, present) = reader.connect_at(&second, 2);
    assert!(present);
    elsewhere.ping();
    publisher.publish_acknowledged("plant/1/a", "third");
    elsewhere.ping();
    elsewhere.disconnect();
    let (mut inside, _) = reader.connect_at(&second, 1);
    inside.ping();
}
