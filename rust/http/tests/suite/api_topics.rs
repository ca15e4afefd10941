//! The tree of topics, and many messages in one request.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mqttcore_broker::FullQueuePolicy;
use mqttcore_codec::QoS;
use serde_json::{Value, json};

use crate::api_caller::{Caller, key, setup};
use crate::common::{HOUR_S, Home, eventually, v5};

fn nodes(page: &Value) -> Vec<(String, bool, u64, u64)> {
    let items = page["items"].as_array().expect("items").iter();
    items
        .map(|item| {
            let topic = item["topic"].as_str().expect("a topic").to_owned();
            let is_here = item["retained"].as_bool().expect("a boolean");
            let number = |field: &str| item[field].as_u64().expect("a number");
            (topic, is_here, number("messages"), number("subscribers"))
        })
        .collect()
}

#[test]
fn topics_are_a_tree_with_numbers_of_messages_and_subscribers() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut one = v5("one").connect(&served);
    one.subscribe("a/#", QoS::AtLeastOnce);
    one.subscribe("a/b", QoS::AtMostOnce);
    let mut members = [v5("two").connect(&served), v5("three").connect(&served)];
    for member in &mut members {
        member.subscribe("$share/g/a/b", QoS::AtMostOnce);
    }
    let retained = ["a", "a/b/1", "a/b/2", "a-b", "$mine/x"];
    let messages: Vec<_> = retained
        .iter()
        .map(|topic| json!({"topic": topic, "payload": "x", "retain": true, "qos": 1}))
        .collect();
    let put = owner.ask("POST", "/publish/bulk", &json!(messages).to_string());
    assert_eq!(put.status, 200, "{}", put.json);

    let node = |topic: &str, is_here, messages, subscribers| {
        (topic.to_owned(), is_here, messages, subscribers)
    };
    let root = owner.read("/topics");
    assert_eq!(
        nodes(&root),
        [node("a", true, 3, 1), node("a-b", true, 1, 0)]
    );
    assert_eq!(root["next"], Value::Null);
    // A shared subscription counts once, and the two subscriptions of one client, too.
    assert_eq!(
        nodes(&owner.read("/topics?prefix=a")),
        [node("a/b", false, 2, 2)]
    );
    assert_eq!(
        nodes(&owner.read("/topics?prefix=$mine")),
        [node("$mine/x", true, 1, 0)]
    );
    let deep = owner.read("/topics?depth=3&limit=3");
    assert_eq!(
        nodes(&deep),
        [
            node("a", true, 3, 1),
            node("a/b", false, 2, 2),
            node("a/b/1", true, 1, 1)
        ]
    );
    assert_eq!(deep["items"][2]["name"], "1");
    assert_eq!(deep["items"][2]["head_base64"], "eA==");
    assert_eq!(
        deep["items"][1].get("head_base64"),
        None,
        "it has no message"
    );
    assert_eq!(deep["items"][1]["payload_bytes"], Value::Null);
    let next = deep["next"].as_str().expect("another page");
    let rest = owner.read(&format!("/topics?depth=3&limit=3&after={next}"));
    assert_eq!(
        nodes(&rest),
        [node("a/b/2", true, 1, 1), node("a-b", true, 1, 0)]
    );
    assert_eq!(owner.read("/topics?prefix=nothing")["items"], json!([]));
    owner.get("/topics?prefix=a/%2B").is_problem(400, "topic");
    owner.get("/topics?depth=0").is_problem(400, "1 to 1024");
}

#[test]
fn the_tree_has_the_beginnings_of_payloads_for_callers_who_may_read_them() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let viewer = key(&mut owner, "viewer", &["view"]);
    let long = "0123456789".repeat(10);
    for (topic, payload) in [("long", &*long), ("$mine/x", "x")] {
        let message = json!({"topic": topic, "payload": payload, "retain": true});
        owner.ask("POST", "/publish", &message.to_string());
    }

    let found = owner.read("/topics")["items"][0].take();

    let head = STANDARD.encode(&long[..64]);
    assert_eq!(
        (&found["payload_bytes"], &found["head_base64"]),
        (&json!(100), &json!(head))
    );
    let seen = Caller::with(&served, Some(&viewer)).read("/topics")["items"][0].take();
    assert_eq!(
        (&seen["payload_bytes"], seen.get("head_base64")),
        (&json!(100), None)
    );
}

#[test]
fn many_messages_are_published_in_their_order_or_none() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);
    client.subscribe("a/#", QoS::AtLeastOnce);
    let message = |number: usize| json!({"topic": format!("a/{number}"), "payload": "x", "qos": 1});
    let mut messages: Vec<_> = (0..100).map(message).collect();
    let body = |messages: &[Value]| Value::from(messages).to_string();

    let done = owner.ask("POST", "/publish/bulk", &body(&messages));

    assert_eq!((done.status, &done.json["failed"]), (200, &json!(0)));
    assert_eq!(
        done.json["items"].as_array().map(Vec::len),
        Some(messages.len())
    );
    assert_eq!(done.json["items"][99], json!({"matched": 1, "error": null}));
    for number in 0..100 {
        assert_eq!(client.take_message().topic, format!("a/{number}"));
    }
    messages[7]["qos"] = json!(0);
    let lossy = owner.ask("POST", "/publish/bulk", &body(&messages[7..8]));
    assert_eq!(lossy.status, 202);
    assert_eq!(client.take_message().topic, "a/7");

    for (wrong, word) in [
        (json!({"topic": "a/+"}), "message 3"),
        (json!({"topic": "a", "qos": 3}), "message 3: qos"),
        (json!({"topic": "$SYS/a"}), "message 3: topics below $SYS/"),
        (
            json!({"topic": "a", "payload_base64": "!"}),
            "message 3: payload_base64",
        ),
    ] {
        messages[3] = wrong;
        let refused = owner.ask("POST", "/publish/bulk", &body(&messages));
        refused.is_problem(400, word);
    }
    owner
        .ask("POST", "/publish/bulk", "[]")
        .is_problem(400, "1 to 1000");
    let many = vec![json!({"topic": "a"}); 1_001];
    owner
        .ask("POST", "/publish/bulk", &body(&many))
        .is_problem(400, "1001 messages");
    client.ping();
    assert_eq!(served.stats().messages_received, 0);
    assert_eq!(
        served.stats().messages_sent,
        101,
        "nothing of what was refused"
    );
}

/// A queue is full after two messages; others are published.
#[test]
fn messages_that_are_refused_are_named_in_the_answer() {
    let home = Home::new();
    let mut setup = setup(&home);
    setup.config.queue_policy = FullQueuePolicy::Refuse;
    Arc::make_mut(&mut setup.config.limits).queue_disk_messages = 2;
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&served);
    away.subscribe("full", QoS::AtLeastOnce);
    away.disconnect();
    let message = |topic: &&str| json!({"topic": topic, "payload": "x", "qos": 1});
    let mut publish = |topics: &[&str]| {
        let body: Vec<_> = topics.iter().map(message).collect();
        owner.ask("POST", "/publish/bulk", &json!(body).to_string())
    };
    eventually("the queue is full", || publish(&["full"]).status == 207);

    let done = publish(&["free", "full", "free"]);

    assert_eq!((done.status, &done.json["failed"]), (207, &json!(1)));
    let error = json!({"code": "queue_full", "detail": "the queue of a subscriber is full"});
    assert_eq!(
        done.json["items"],
        json!([
            {"matched": 0, "error": null},
            {"matched": null, "error": error},
            {"matched": 0, "error": null}
        ])
    );
}

/// The queues are on both shards, the messages come from the first one.
#[test]
fn no_message_of_many_passes_the_limit_of_a_queue_that_refuses() {
    let home = Home::new();
    let mut setup = setup(&home);
    setup.config.shards = 2;
    setup.config.queue_policy = FullQueuePolicy::Refuse;
    Arc::make_mut(&mut setup.config.limits).queue_disk_messages = 2;
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let ids = ["one", "two", "three", "four", "five", "six"];
    for id in ids {
        let mut away = v5(id).keeping_session_s(HOUR_S).connect(&served);
        away.subscribe("full", QoS::AtLeastOnce);
        away.disconnect();
    }
    eventually("all are offline", || {
        owner.read("/overview")["clients"]["connected"] == 0
    });
    let messages = vec![json!({"topic": "full", "payload": "x", "qos": 1}); 20];

    let done = owner.ask("POST", "/publish/bulk", &json!(messages).to_string());

    assert_eq!(
        (done.status, &done.json["failed"]),
        (207, &json!(18)),
        "{}",
        done.json
    );
    for id in ids {
        assert_eq!(
            owner.read(&format!("/clients/{id}"))["queue"]["messages"],
            2,
            "{id}"
        );
    }
}
