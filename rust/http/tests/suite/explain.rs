//! Explanations before the fact, beside what happens then.

use std::collections::BTreeSet;

use mqttcore_broker::{Action, Config, FullQueuePolicy, Grant, Listener};
use mqttcore_codec::{Packet, QoS, ReasonCode};
use mqttcore_session::{QueuePolicy, ServerLimits};
use mqttcore_topics::MountPoint;
use serde_json::{Value, json};

use crate::api_caller::{Caller, TOKEN, setup, start_with_block};
use crate::common::{
    Client, Dice, HOUR_S, Hello, Home, Message, Plugin, Received, config_with_limits, eventually,
    queued, v3, v5,
};
use crate::served::{Served, Setup, stream};

const ONCE: QoS = QoS::AtLeastOnce;

fn explain(owner: &mut Caller, question: &Value) -> Value {
    let answer = owner.ask("POST", "/explain/delivery", &question.to_string());
    assert_eq!(answer.status, 200, "{question}: {}", answer.json);
    answer.json
}

/// The verdict for one receiver, and its detail.
fn verdict_for(owner: &mut Caller, to: &str, question: &Value) -> (String, Value) {
    let mut question = question.clone();
    question["to"] = to.into();
    let explained = explain(owner, &question);
    let receivers = &explained["receivers"]["items"];
    assert_eq!(receivers.as_array().map(Vec::len), Some(1), "{explained}");
    let verdict = receivers[0]["verdict"].as_str().expect("a verdict");
    (verdict.to_owned(), receivers[0]["detail"].clone())
}

fn step<'a>(explained: &'a Value, name: &str) -> &'a Value {
    let mut steps = explained["steps"].as_array().expect("steps").iter();
    let step = steps.find(|step| step["step"] == name);
    step.unwrap_or_else(|| panic!("no step {name}: {explained}"))
}

fn access(owner: &mut Caller, client: &str, action: &str, topic: &str) -> Value {
    let question = json!({"client": client, "action": action, "topic": topic});
    let answer = owner.ask("POST", "/explain/access", &question.to_string());
    assert_eq!(answer.status, 200, "{question}: {}", answer.json);
    answer.json
}

fn limited(home: &Home, change: impl FnOnce(&mut ServerLimits)) -> Setup {
    let setup = setup(home);
    let config = Config {
        data: setup.config.data,
        ..config_with_limits(change)
    };
    Setup { config, ..setup }
}

fn granting(home: &Home, grant: Grant) -> Setup {
    let setup = setup(home);
    let listener = Listener {
        anonymous: Some(grant),
        ..Listener::new("test", ([127, 0, 0, 1], 0).into())
    };
    let config = Config {
        listeners: vec![listener],
        ..setup.config
    };
    Setup { config, ..setup }
}

fn kept(served: &Served, id: &str) -> Client {
    let mut client = v5(id).keeping_session_s(HOUR_S).connect(served);
    client.subscribe("t", QoS::ExactlyOnce);
    client
}

fn see_off(served: &Served, client: Client, id: &str) {
    client.disconnect();
    let is_away = || {
        let clients = served.clients();
        let client = clients.iter().find(|client| *client.client_id == *id);
        client.is_some_and(|client| !client.connected)
    };
    eventually("the client is offline", is_away);
}

#[test]
fn each_receiver_has_a_verdict() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let _here = kept(&served, "here");
    let away = kept(&served, "away");
    see_off(&served, away, "away");

    let once = json!({"topic": "t", "qos": 1});
    assert_eq!(verdict_for(&mut owner, "here", &once).0, "delivered");
    assert_eq!(verdict_for(&mut owner, "away", &once).0, "waiting:offline");
    let at_most_once = json!({"topic": "t"});
    let (verdict, _) = verdict_for(&mut owner, "away", &at_most_once);
    assert_eq!(verdict, "dropped:offline-qos0");
    let other = json!({"topic": "other"});
    let (verdict, _) = verdict_for(&mut owner, "here", &other);
    assert_eq!(verdict, "not-matched:no-subscription");
    let all = explain(&mut owner, &once);
    assert_eq!(all["verdict"], "ok");
    assert_eq!(all["receivers"]["items"].as_array().unwrap().len(), 2);
    assert_eq!(step(&all, "match")["detail"], "receivers: 2");
    assert_eq!(queued(&served, "away"), 0, "nothing was sent");
}

#[test]
fn a_client_without_a_session_is_not_found() {
    let home = Home::new();
    let served = setup(&home).start();
    // A SUBSCRIBE is answered once all sessions are loaded.
    v5("other").connect(&served).subscribe("t", ONCE);
    let mut owner = Caller::owner(&home);
    let mut ask = |path: &str, body: &str| owner.ask("POST", path, body);

    for body in [
        r#"{"topic": "t", "to": "none"}"#,
        r#"{"topic": "t", "from": "none"}"#,
    ] {
        ask("/explain/delivery", body).is_problem(404, "none");
    }
    let body = r#"{"client": "none", "action": "publish", "topic": "t"}"#;
    ask("/explain/access", body).is_problem(404, "none");
}

#[test]
fn a_question_that_is_not_valid_is_refused() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);

    for (path, body, word) in [
        ("delivery", r#"{"topic": "t", "qos": 3}"#, "qos must be"),
        ("delivery", r#"{"topic": "t", "bytes": 1048577}"#, "1048576"),
        ("delivery", r#"{"topic": "t", "limit": 0}"#, "1 to 1000"),
        ("delivery", r#"{"topic": "t", "after": "x"}"#, "position"),
        (
            "delivery",
            r#"{"topic": "t", "form": "x"}"#,
            "unknown field",
        ),
        (
            "access",
            r#"{"client": "c", "action": "subscribe", "topic": "a#"}"#,
            "filter",
        ),
        (
            "access",
            r#"{"client": "c", "action": "read", "topic": "a"}"#,
            "unknown variant",
        ),
    ] {
        let answer = owner.ask("POST", &format!("/explain/{path}"), body);
        answer.is_problem(400, word);
    }
}

#[test]
fn a_message_waits_for_send_quota_and_then_behind_others() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut slow = v5("slow").receive_maximum(1).connect(&served);
    slow.subscribe("t", ONCE);
    let mut writer = v5("writer").connect(&served);
    let question = json!({"from": "writer", "topic": "t", "qos": 1});
    let in_order = ["delivered", "waiting:quota", "waiting:earlier"];

    for verdict in in_order {
        assert_eq!(verdict_for(&mut owner, "slow", &question).0, verdict);
        writer.publish_acknowledged("t", "x");
    }

    eventually("two messages are queued", || queued(&served, "slow") == 2);
}

#[test]
fn a_full_queue_drops_the_message_or_its_oldest() {
    for (queue_policy, verdict, detail) in [
        (QueuePolicy::DropNewest, "dropped:queue-full", json!(null)),
        (
            QueuePolicy::DropOldest,
            "waiting:offline",
            json!("messages that are dropped to make room: 1"),
        ),
    ] {
        let home = Home::new();
        let setup = limited(&home, |limits| {
            limits.queue_policy = queue_policy;
            (limits.queue_messages, limits.queue_disk_messages) = (1, 1);
        });
        let served = setup.start();
        let mut owner = Caller::owner(&home);
        let away = kept(&served, "away");
        see_off(&served, away, "away");
        v5("writer").connect(&served).publish_acknowledged("t", "x");
        let question = json!({"topic": "t", "qos": 1});

        let judged = verdict_for(&mut owner, "away", &question);

        assert_eq!(judged, (verdict.to_owned(), detail));
    }
}

#[test]
fn a_full_queue_refuses_a_message_or_lets_its_publisher_wait() {
    let home = Home::new();
    let setup = limited(&home, |limits| limits.queue_disk_messages = 1);
    let config = Config {
        queue_policy: FullQueuePolicy::Refuse,
        ..setup.config
    };
    let served = Setup { config, ..setup }.start();
    let mut owner = Caller::owner(&home);
    let away = kept(&served, "away");
    see_off(&served, away, "away");
    let mut five = v5("five").connect(&served);
    let _three = v3("three").connect(&served);
    five.publish_acknowledged("t", "x");
    eventually("the queue is full", || queued(&served, "away") == 1);
    let question = |from: &str| json!({"from": from, "topic": "t", "qos": 1});

    let (verdict, _) = verdict_for(&mut owner, "away", &question("five"));
    assert_eq!(verdict, "refused:queue-full");
    let of_three = explain(&mut owner, &question("three"));
    assert_eq!(of_three["verdict"], "waiting:queue-room");
    let of_broker = explain(&mut owner, &json!({"topic": "t", "qos": 1}));
    assert_eq!(of_broker["verdict"], "refused:queue-full");
    assert_eq!(
        five.publish_acknowledged("t", "y"),
        ReasonCode::QUOTA_EXCEEDED
    );
}

#[test]
fn a_message_that_is_too_large_for_a_receiver_or_its_publisher_goes_nowhere() {
    let home = Home::new();
    let served = limited(&home, |limits| limits.maximum_packet_size = 100).start();
    let mut owner = Caller::owner(&home);
    let mut small = v5("small").maximum_packet_size(30).connect(&served);
    small.subscribe("t", ONCE);
    let question = |bytes: usize| json!({"from": "small", "topic": "t", "qos": 1, "bytes": bytes});

    // One byte each for packet type and lengths, three for the topic, two for the identifier, one for properties.
    assert_eq!(
        verdict_for(&mut owner, "small", &question(22)).0,
        "delivered"
    );
    let (verdict, _) = verdict_for(&mut owner, "small", &question(23));
    assert_eq!(verdict, "dropped:too-large");
    assert_eq!(explain(&mut owner, &question(92))["verdict"], "ok");
    let refused = explain(&mut owner, &question(93));
    assert_eq!(refused["verdict"], "refused:limit");
    assert_eq!(refused["receivers"]["items"], json!([]));
}

#[test]
fn a_qos_0_message_is_dropped_behind_a_backlog() {
    let home = Home::new();
    let served = limited(&home, |limits| limits.qos0_backlog_bytes = 1_000).start();
    let mut owner = Caller::owner(&home);
    let mut idle = v5("idle").small_buffer().connect(&served);
    idle.subscribe("t", QoS::AtMostOnce);
    let mut writer = v5("writer").connect(&served);
    let payload = vec![b'x'; 60_000];
    eventually("messages are dropped, and the next one would be", || {
        writer.publish("t", &payload, QoS::AtMostOnce);
        writer.ping();
        let (verdict, _) = verdict_for(&mut owner, "idle", &json!({"topic": "t"}));
        verdict == "dropped:backlog" && served.stats().dropped_qos0_backlog > 0
    });
}

#[test]
fn the_rule_that_decides_is_named() {
    let home = Home::new();
    let grant = Grant {
        publish: vec!["a/#".into(), "t".into()],
        subscribe: vec!["#".into()],
        deny: vec!["a/secret".into()],
        ..Grant::default()
    };
    let served = granting(&home, grant).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);
    client.subscribe("a/#", ONCE);
    let rules = |explained: &Value| step(explained, "rules").clone();

    let allowed = access(&mut owner, "c", "publish", "a/b");
    assert_eq!(
        (&allowed["verdict"], &rules(&allowed)["by"]),
        (&json!("ok"), &json!("allow a/#"))
    );
    let denied = access(&mut owner, "c", "publish", "a/secret");
    assert_eq!(denied["verdict"], "denied:publish");
    assert_eq!(rules(&denied)["by"], "deny a/secret");
    let silent = access(&mut owner, "c", "publish", "b");
    assert_eq!(silent["verdict"], "denied:publish");
    assert_eq!(step(&silent, "plugins")["by"], "deny by default");
    let reserved = access(&mut owner, "c", "publish", "$share/x");
    assert_eq!(reserved["verdict"], "denied:publish");
    assert_eq!(access(&mut owner, "c", "subscribe", "#")["verdict"], "ok");
    let denied = access(&mut owner, "c", "subscribe", "a/secret");
    assert_eq!(denied["verdict"], "denied:subscribe");
    let denied = access(&mut owner, "c", "receive", "a/secret");
    assert_eq!(denied["verdict"], "denied:receive");
    assert_eq!(access(&mut owner, "c", "receive", "a/b")["verdict"], "ok");
    let invalid = access(&mut owner, "c", "receive", "a/+");
    assert_eq!(invalid["verdict"], "refused:topic");

    let refused = explain(
        &mut owner,
        &json!({"from": "c", "topic": "a/secret", "qos": 1}),
    );
    assert_eq!(refused["verdict"], "denied:publish");
    assert_eq!(refused["receivers"]["items"], json!([]));
    let (verdict, detail) = verdict_for(&mut owner, "c", &json!({"topic": "a/secret"}));
    assert_eq!(
        (verdict.as_str(), detail),
        ("denied:receive", json!("deny a/secret"))
    );
    let topic = explain(&mut owner, &json!({"topic": "a/#"}));
    assert_eq!(topic["verdict"], "refused:topic");
}

#[test]
fn where_a_plugin_decides_the_answer_says_so_and_the_plugin_is_not_asked() {
    let home = Home::new();
    let about = [(Action::Publish, "p/#"), (Action::Subscribe, "p/#")];
    let (plugin, asked) = Plugin::questions(&about);
    let setup = granting(&home, Grant::default());
    let served = setup.try_start_with(plugin).expect("it starts");
    let mut owner = Caller::owner(&home);
    let _client = v5("c").connect(&served);

    let delivery = explain(&mut owner, &json!({"from": "c", "topic": "p/x"}));
    let subscribe = access(&mut owner, "c", "subscribe", "p/+");

    assert_eq!(delivery["verdict"], "depends:plugin");
    assert_eq!(step(&delivery, "match")["verdict"], "ok", "it goes on");
    assert_eq!(subscribe["verdict"], "depends:plugin");
    assert!(asked.try_recv().is_err());
}

#[test]
fn no_local_and_shared_subscriptions_explain_why_a_client_gets_nothing() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let _own = v5("own").connect(&served);
    let body = r#"{"filter": "t", "no_local": true}"#;
    assert_eq!(
        owner.ask("POST", "/clients/own/subscriptions", body).status,
        201
    );
    let mut members: Vec<Client> = ["one", "two"]
        .iter()
        .map(|id| v5(id).connect(&served))
        .collect();
    for member in &mut members {
        member.subscribe("$share/g/t", ONCE);
    }

    let own = json!({"from": "own", "topic": "t"});
    let (verdict, detail) = verdict_for(&mut owner, "own", &own);
    assert_eq!(
        (verdict.as_str(), detail),
        ("not-matched:no-local", json!("t"))
    );
    let broker = json!({"topic": "t"});
    assert_eq!(verdict_for(&mut owner, "own", &broker).0, "delivered");
    let verdicts = ["one", "two"].map(|id| verdict_for(&mut owner, id, &broker));
    let chosen = verdicts
        .iter()
        .position(|(verdict, _)| verdict == "delivered");
    let chosen = chosen.expect("one is chosen");
    let (verdict, detail) = &verdicts[1 - chosen];
    assert_eq!(verdict, "not-matched:shared-went-to");
    assert_eq!(
        *detail,
        json!(format!("$share/g/t chose {}", ["one", "two"][chosen]))
    );
    owner.ask("POST", "/publish", r#"{"topic": "t", "payload": "x"}"#);
    assert_eq!(members[chosen].take_message().text(), "x", "as foreseen");
}

#[test]
fn the_retained_message_the_rows_and_the_durability_are_foreseen() {
    let home = Home::new();
    let setup = setup(&home);
    let config = Config {
        retained_messages: 1,
        ..setup.config
    };
    let streams = vec![stream("rows", "a/#")];
    let served = Setup {
        config,
        streams,
        ..setup
    }
    .start();
    let mut owner = Caller::owner(&home);
    let mut five = v5("five").connect(&served);
    let mut ask = |topic: &str, bytes: usize| {
        let question =
            json!({"from": "five", "topic": topic, "qos": 1, "retain": true, "bytes": bytes});
        explain(&mut owner, &question)
    };

    let kept = ask("a/1", 1);
    assert!(
        step(&kept, "retain")["detail"]
            .as_str()
            .unwrap()
            .contains("becomes")
    );
    assert_eq!(step(&kept, "durability")["by"], "os");
    let rows = "stored streams that get it as a row: 1; streams of Kafka: 0";
    assert_eq!(step(&kept, "streams")["detail"], rows);
    let removed = ask("a/1", 0);
    assert!(
        step(&removed, "retain")["detail"]
            .as_str()
            .unwrap()
            .contains("removed")
    );
    five.publish_retained("a/1", "x", ONCE);
    five.receive();
    assert_eq!(ask("a/1", 1)["verdict"], "ok");
    assert_eq!(ask("a/2", 1)["verdict"], "refused:limit");
}

#[test]
fn a_topic_outside_of_the_mount_point_is_not_the_clients() {
    let home = Home::new();
    let setup = setup(&home);
    let listener = Listener {
        anonymous: Some(Grant::everything()),
        mount_point: Some(MountPoint::parse("plant").unwrap()),
        ..Listener::new("test", ([127, 0, 0, 1], 0).into())
    };
    let config = Config {
        listeners: vec![listener],
        ..setup.config
    };
    let served = Setup { config, ..setup }.start();
    let mut owner = Caller::owner(&home);
    let _client = v5("c").connect(&served);

    let outside = access(&mut owner, "c", "publish", "t");
    let inside = access(&mut owner, "c", "publish", "plant/t");

    assert_eq!(outside["verdict"], "denied:mount-point");
    assert_eq!(step(&inside, "mount_point")["verdict"], "ok");
    let question = json!({"from": "c", "topic": "t"});
    assert_eq!(
        explain(&mut owner, &question)["verdict"],
        "denied:mount-point"
    );
}

#[test]
fn the_rules_of_a_session_that_has_not_been_here_since_the_start_are_not_known() {
    let home = Home::new();
    let served = setup(&home).start();
    let _client = kept(&served, "c");
    let _served = setup(&home).start_after_crash(&home, served);
    let mut owner = Caller::at(&home, 1);
    owner.until_loaded();

    let explained = access(&mut owner, "c", "receive", "t");

    assert_eq!(explained["verdict"], "unknown:not-connected");
}

#[test]
fn receivers_come_in_pages_each_once() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let _clients: Vec<Client> = (0..23)
        .map(|number| kept(&served, &format!("c{number}")))
        .collect();
    let mut seen = Vec::new();
    let mut question = json!({"topic": "t", "qos": 1, "limit": 5});

    loop {
        let page = explain(&mut owner, &question)["receivers"].take();
        let items = page["items"].as_array().expect("items");
        assert!(items.len() <= 5);
        seen.extend(items.iter().map(|item| item["client_id"].to_string()));
        if page["next"].is_null() {
            break;
        }
        question["after"] = page["next"].clone();
    }

    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 23);
}

/// An explanation of a message of the broker while one shard does not answer, whichever it is.
fn explained_beside_a_blocked_shard(clients: usize) -> Value {
    let home = Home::new();
    let (served, mut owner, block) = start_with_block(&home, 4);
    let connected = (0..clients).map(|number| {
        let mut client = v5(&format!("c{number}")).connect(&served);
        client.subscribe("t", ONCE);
        client
    });
    let _clients: Vec<Client> = connected.collect();
    let _blocks = block.begin(&served);

    let explained = explain(&mut owner, &json!({"topic": "t", "qos": 1}));

    drop(block);
    explained
}

#[test]
fn the_receivers_of_a_shard_that_does_not_answer_are_left_open() {
    const CLIENTS: usize = 60;
    let explained = explained_beside_a_blocked_shard(CLIENTS);

    let receivers = &explained["receivers"];
    let items = receivers["items"].as_array().expect("items");
    let of_verdict =
        |verdict: &'static str| items.iter().filter(move |item| item["verdict"] == verdict);
    let open: Vec<&Value> = of_verdict("unknown:no-answer").collect();
    assert!(!open.is_empty(), "{receivers}");
    assert!(open.iter().all(|item| item["client_id"].is_null()));
    assert_eq!(of_verdict("delivered").count(), CLIENTS - open.len());
    assert_eq!(receivers["partial"].as_array().map(Vec::len), Some(1));
}

#[test]
fn while_memory_is_short_a_message_that_would_wait_is_refused_or_dropped() {
    let home = Home::new();
    let setup = setup(&home);
    let config = Config {
        memory_bytes: 8 << 20,
        data: None,
        ..config_with_limits(|limits| limits.queue_qos0 = true)
    };
    let served = Setup { config, ..setup }.start();
    let mut owner = Caller::with(&served, Some(TOKEN));
    let topics = ["t/0", "t/1", "t/2"];
    for topic in topics {
        let mut client = v5(topic).keeping_session_s(HOUR_S).connect(&served);
        client.subscribe(topic, ONCE);
        see_off(&served, client, topic);
    }
    let stored = json!({"from": "writer", "topic": "t/0", "qos": 1, "bytes": 8_192});
    // Each queue takes less than a session may. A client with less than 64 KiB of messages is not slowed down.
    let is_refused = |number: usize| {
        let mut writer = v5("writer").connect(&served);
        let mut send = |_| writer.publish_acknowledged(topics[number / 150], [b'x'; 8_192]);
        let is_refused = (0..6)
            .map(&mut send)
            .any(|answer| answer == ReasonCode::QUOTA_EXCEEDED);
        is_refused && explain(&mut owner, &stored)["verdict"] == "refused:memory"
    };
    assert!((0..450).any(is_refused), "memory is not short");

    let at_most_once = json!({"topic": "t/0", "bytes": 8_192});
    let (verdict, _) = verdict_for(&mut owner, "t/0", &at_most_once);
    assert_eq!(verdict, "dropped:memory");
}

#[test]
fn a_message_that_leads_to_too_many_filters_is_refused() {
    /// Levels of a filter, each of them a literal or `+`: the topic leads to twice as many nodes with each.
    const LEVELS: usize = 14;
    let home = Home::new();
    let setup = limited(&home, |limits| limits.wildcard_levels = 1 << 20);
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let filters = (0..1_usize << LEVELS).map(|choice| {
        let level = |bit| if choice >> bit & 1 == 0 { "a" } else { "+" };
        let levels: Vec<&str> = (0..LEVELS).map(level).collect();
        format!("{}/x", levels.join("/"))
    });
    let filters: Vec<String> = filters.collect();
    let _clients: Vec<Client> = filters
        .chunks(1_000)
        .enumerate()
        .map(|(number, filters)| {
            let mut client = v5(&format!("c{number}")).connect(&served);
            for filters in filters.chunks(100) {
                let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
                client.send_subscribe(&filters, QoS::AtMostOnce);
                assert!(matches!(client.receive(), Received::SubAck(..)));
            }
            client
        })
        .collect();

    let topic = format!("{}/x", ["a"; LEVELS].join("/"));
    let refused = explain(&mut owner, &json!({"topic": topic}));

    assert_eq!(refused["verdict"], "refused:too-many-filters");
    assert_eq!(refused["receivers"]["items"], json!([]));
}

/// A client that acknowledges what a test says.
struct Reader {
    client: Client,
    unacknowledged: Vec<Message>,
}

impl Reader {
    /// Reads until the broker has handled everything that was sent so far.
    fn sync(&mut self) {
        self.client.send(&Packet::PingReq);
        loop {
            match self.client.receive() {
                Received::Publish(message) => self.unacknowledged.push(message),
                Received::PingResp => return,
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    fn acknowledge(&mut self, count: usize) {
        self.sync();
        let count = count.min(self.unacknowledged.len());
        for message in self.unacknowledged.drain(..count) {
            self.client.acknowledge(&message);
        }
        self.sync();
    }
}

fn reader(number: usize) -> Hello {
    let window = u16::try_from(number + 1).expect("small");
    let hello = v5(&format!("c{number}"));
    hello.keeping_session_s(HOUR_S).receive_maximum(window)
}

/// Queued messages, messages in flight, and messages that were dropped because of a full queue.
fn state(served: &Served, number: usize) -> (usize, usize, u64) {
    let clients = served.clients();
    let client = clients
        .iter()
        .find(|client| *client.client_id == format!("c{number}"));
    let (queued, in_flight) = client.map_or((0, 0), |client| (client.queued, client.in_flight));
    (queued, in_flight, served.stats().dropped_queue_full)
}

/// The state after a message with this verdict.
fn expected(
    verdict: &str,
    (queued, in_flight, dropped): (usize, usize, u64),
) -> (usize, usize, u64) {
    match verdict.split(':').next() {
        Some("delivered") => (queued, in_flight + 1, dropped),
        Some("waiting") => (queued + 1, in_flight, dropped),
        _ => (queued, in_flight, dropped + 1),
    }
}

/// Random clients come, leave, and acknowledge some messages; the explanation of each message is what happens then.
#[test]
fn what_is_foreseen_happens() {
    const CLIENTS: usize = 4;
    let operations = std::env::var("MQTTCORE_EXPLAIN_OPERATIONS").ok();
    let operations = operations.map_or(300, |count| count.parse().expect("a number"));
    let home = Home::new();
    let setup = limited(&home, |limits| limits.queue_disk_messages = 4);
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let mut dice = Dice::new(20);
    let mut writer = v5("writer").connect(&served);
    let mut readers: Vec<Option<Reader>> = Vec::new();
    for number in 0..CLIENTS {
        let mut client = reader(number).connect(&served);
        client.subscribe(&format!("t/{number}"), ONCE);
        let unacknowledged = Vec::new();
        readers.push(Some(Reader {
            client,
            unacknowledged,
        }));
    }
    let mut seen = BTreeSet::new();

    for _ in 0..operations {
        let number = dice.below(CLIENTS);
        let id = format!("c{number}");
        readers[number] = match (dice.below(6), readers[number].take()) {
            (0, Some(reader)) => {
                see_off(&served, reader.client, &id);
                None
            }
            (0 | 1, None) => {
                let (client, _) = reader(number).connect_or_resume(&served);
                let unacknowledged = Vec::new();
                let mut reader = Reader {
                    client,
                    unacknowledged,
                };
                reader.sync();
                Some(reader)
            }
            (1 | 2, Some(mut reader)) => {
                reader.acknowledge(1 + dice.below(8));
                Some(reader)
            }
            (_, same) => same,
        };
        let topic = format!("t/{number}");
        let question = json!({"from": "writer", "topic": topic, "qos": 1, "bytes": 1});
        let (verdict, _) = verdict_for(&mut owner, &id, &question);
        let before = state(&served, number);

        writer.publish_acknowledged(&topic, "x");

        eventually(&verdict, || {
            state(&served, number) == expected(&verdict, before)
        });
        seen.insert(verdict);
    }

    let all = [
        "delivered",
        "dropped:queue-full",
        "waiting:earlier",
        "waiting:offline",
        "waiting:quota",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// The events of a client, the newest first: their kind, topic and number.
fn past(owner: &mut Caller, query: &str) -> Vec<(String, Value, u64)> {
    let found = owner.read(&format!("/explain/delivery?{query}"));
    assert_eq!(found["complete_since_ms"], json!(null), "all are kept");
    let items = found["items"].as_array().expect("items").iter();
    let event = |item: &Value| {
        let kind = item["event"].as_str().expect("a kind").to_owned();
        (
            kind,
            item["topic"].clone(),
            item["count"].as_u64().expect("a count"),
        )
    };
    items.map(event).collect()
}

#[test]
fn events_of_the_past_say_why_a_client_did_not_get_a_message() {
    let home = Home::new();
    let served = limited(&home, |limits| limits.queue_disk_messages = 1).start();
    let mut owner = Caller::owner(&home);
    let away = kept(&served, "away");
    see_off(&served, away, "away");
    let mut writer = v5("writer").connect(&served);
    for _ in 0..3 {
        writer.publish_acknowledged("t", "x");
    }
    eventually("two are dropped", || served.stats().dropped_queue_full == 2);
    let event = |kind: &str, topic: Value, count: u64| (kind.to_owned(), topic, count);

    let all = past(&mut owner, "client=away&topic=t&since_s=3600");
    assert_eq!(
        all,
        [
            event("dropped", json!("t"), 2),
            event("disconnected", json!(null), 1),
            event("subscribed", json!("t"), 1),
            event("connected", json!(null), 1),
            event("session_created", json!(null), 1),
        ]
    );
    let found = owner.read("/explain/delivery?client=away&limit=1");
    assert_eq!(found["items"][0]["why"], "its queue is full");
    assert_eq!(found["has_more"], true);
    let (first, last) = (
        &found["items"][0]["first_ms"],
        &found["items"][0]["last_ms"],
    );
    assert!(first.as_u64() <= last.as_u64());
    let other = past(&mut owner, "client=away&topic=other");
    assert!(
        other.iter().all(|(_, topic, _)| topic.is_null()),
        "{other:?}"
    );
    assert_eq!(past(&mut owner, "client=nobody"), []);
    let of_kinds = past(
        &mut owner,
        "client=away&events=session_created,dropped&limit=2",
    );
    let expected = [
        event("dropped", json!("t"), 2),
        event("session_created", json!(null), 1),
    ];
    assert_eq!(of_kinds, expected);
    let unknown = owner.get("/explain/delivery?events=droped");
    unknown.is_problem(400, "events: unknown");
    assert_eq!(unknown.json["hint"], "did you mean \"dropped\"?");
}

#[test]
fn denials_and_refused_publishes_are_remembered_with_their_publisher() {
    let home = Home::new();
    let grant = Grant {
        publish: vec!["t".into()],
        subscribe: vec!["#".into()],
        ..Grant::default()
    };
    let setup = granting(&home, grant);
    let limits = ServerLimits {
        queue_disk_messages: 1,
        ..ServerLimits::default()
    };
    let config = Config {
        queue_policy: FullQueuePolicy::Refuse,
        limits: limits.into(),
        ..setup.config
    };
    let served = Setup { config, ..setup }.start();
    let mut owner = Caller::owner(&home);
    let away = kept(&served, "away");
    see_off(&served, away, "away");
    let mut writer = v5("writer").connect(&served);
    assert_eq!(
        writer.publish_acknowledged("x", "x"),
        ReasonCode::NOT_AUTHORIZED
    );
    writer.publish_acknowledged("t", "x");
    eventually("the queue is full", || queued(&served, "away") == 1);
    assert_eq!(
        writer.publish_acknowledged("t", "x"),
        ReasonCode::QUOTA_EXCEEDED
    );

    let found = owner.read("/explain/delivery?client=writer&limit=2");

    let items = &found["items"];
    assert_eq!(
        (&items[0]["event"], &items[0]["topic"]),
        (&json!("publish_refused"), &json!("t"))
    );
    assert_eq!(items[0]["why"], "the queue of a subscriber is full");
    assert_eq!(
        (&items[1]["event"], &items[1]["topic"]),
        (&json!("denied"), &json!("x"))
    );
    assert_eq!(items[1]["reason_code"], 0x87);
}
