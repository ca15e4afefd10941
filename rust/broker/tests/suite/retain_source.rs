//! Retained messages whose publisher may not publish them any more (ADR 0029).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqttcore_broker::{Action, Broker, Config, Grant};
use mqttcore_codec::QoS;

use crate::common::{Hello, Home, Plugin, allow, config, start_with, v5};

/// What clients with the identifier `source` may publish to if they connect from now on.
#[derive(Clone)]
struct Rules(Arc<Mutex<Vec<String>>>);

impl Rules {
    fn new(publish: &[&str]) -> Self {
        let rules = Self(Arc::default());
        rules.set(publish);
        rules
    }

    fn set(&self, publish: &[&str]) {
        *self.0.lock().expect("not poisoned") = publish.iter().map(ToString::to_string).collect();
    }

    fn plugin(&self) -> Plugin {
        let rules = self.clone();
        Plugin::default().authenticate(move |login, reply| {
            let mut grant = Grant::everything();
            if &*login.client_id == "source" {
                grant
                    .publish
                    .clone_from(&rules.0.lock().expect("not poisoned"));
            }
            reply.send(allow(grant));
        })
    }
}

fn source(username: Option<&str>) -> Hello {
    let hello = v5("source");
    username.map_or_else(|| hello.clone(), |name| hello.clone().username(name))
}

/// Retains a message on `a` and one on `b`, and another client's on `end/x`.
fn retain(broker: &Broker, username: Option<&str>) {
    let mut client = source(username).connect(broker);
    for topic in ["a", "b"] {
        client.publish_retained(topic, topic, QoS::AtLeastOnce);
        client.receive();
    }
    client.disconnect();
    let mut other = v5("other").connect(broker);
    other.publish_retained("end/x", "end", QoS::AtLeastOnce);
    other.receive();
}

/// The retained messages on `a` and `b` that a new client gets, sorted.
fn replayed(broker: &Broker) -> String {
    let mut client = v5("reader").connect(broker);
    client.send_subscribe(&["+", "end/x"], QoS::AtMostOnce);
    client.receive();
    let mut found: Vec<String> = std::iter::repeat_with(|| client.message().text().to_owned())
        .take_while(|text| text != "end")
        .collect();
    found.sort();
    found.concat()
}

#[test]
fn what_its_publisher_may_not_publish_any_more_is_not_replayed() {
    let rules = Rules::new(&["#"]);
    let broker = start_with(config(), rules.plugin());
    retain(&broker, Some("user"));

    rules.set(&["b"]);
    assert_eq!(replayed(&broker), "ab", "its latest grant is the old one");
    source(Some("user")).connect(&broker).disconnect();

    assert_eq!(replayed(&broker), "b");
    assert_eq!(broker.stats().retained_withheld, 1);
    rules.set(&["#"]);
    source(Some("user")).connect(&broker).disconnect();
    assert_eq!(replayed(&broker), "ab");
}

/// Else anybody could have the messages of others withheld.
#[test]
fn a_publisher_is_known_by_its_user_name_and_its_client_identifier() {
    for (publisher, impostor) in [
        (Some("user"), Some("other")),
        (None, None),
        (Some("user"), None),
    ] {
        let rules = Rules::new(&["#"]);
        let broker = start_with(config(), rules.plugin());
        retain(&broker, publisher);

        rules.set(&[]);
        source(impostor).connect(&broker).disconnect();

        assert_eq!(replayed(&broker), "ab");
    }
}

#[test]
fn a_topic_that_plugins_are_asked_about_is_replayed() {
    let rules = Rules::new(&["#"]);
    let plugin = rules
        .plugin()
        .authorize(&[(Action::Publish, "a")], |_, _| ());
    let broker = start_with(config(), plugin);
    retain(&broker, Some("user"));

    rules.set(&[]);
    source(Some("user")).connect(&broker).disconnect();

    assert_eq!(replayed(&broker), "a");
}

#[test]
fn everything_is_replayed_where_sources_are_not_checked() {
    let rules = Rules::new(&["#"]);
    let config = Config {
        check_retain_source: false,
        ..config()
    };
    let broker = start_with(config, rules.plugin());
    retain(&broker, Some("user"));

    rules.set(&[]);
    source(Some("user")).connect(&broker).disconnect();

    assert_eq!(replayed(&broker), "ab");
}

/// A later broker knows the publisher, and its grant as soon as it connects.
#[test]
fn the_publisher_of_a_retained_message_outlives_the_broker() {
    let home = Home::new();
    let rules = Rules::new(&["#"]);
    let config = |number| Config {
        data: Some(home.data(number)),
        ..config()
    };
    let first = start_with(config(0), rules.plugin());
    retain(&first, Some("user"));
    first.stop(Duration::from_secs(5));

    rules.set(&["b"]);
    let second = start_with(config(0), rules.plugin());
    assert_eq!(replayed(&second), "ab");
    source(Some("user")).connect(&second).disconnect();

    assert_eq!(replayed(&second), "b");
}
