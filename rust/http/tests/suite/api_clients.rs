//! Clients over the API: lists, one client, and what operators change of it.

use std::collections::BTreeSet;
use std::sync::mpsc::{TryRecvError, channel};

use mqttcore_broker::Grant;
use mqttcore_codec::QoS;
use mqttcore_session::ServerLimits;
use serde_json::{Value, json};

use crate::api_caller::{Caller, TOKEN, disconnect_code, key, setup, start_with_block};
use crate::client::Http;
use crate::common::{HOUR_S, Home, Plugin, allow, eventually, many, v3, v5};
use crate::tls_client::{Dial, Files};

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items").iter();
    items
        .map(|item| {
            item["client_id"]
                .as_str()
                .expect("an identifier")
                .to_owned()
        })
        .collect()
}

/// Reads all pages.
fn all(caller: &mut Caller, path: &str, mut between: impl FnMut(usize)) -> Vec<String> {
    let mut found = Vec::new();
    let mut after = String::new();
    for number in 0.. {
        let page = caller.read(&format!("{path}{after}"));
        assert_eq!(page["partial"], json!([]));
        assert!(page["as_of_ms"].as_u64() > Some(1_500_000_000_000));
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
        between(number);
    }
    found
}

#[test]
fn a_client_is_described() {
    let home = Home::new();
    let setup = setup(&home);
    let limits = setup.config.limits.clone();
    let served = setup.start();
    let mut client = v5("c/1")
        .keep_alive_s(90)
        .keeping_session_s(HOUR_S)
        .username("joe")
        .will("gone", "x")
        .connect(&served);
    client.subscribe("a/#", QoS::ExactlyOnce);
    client.subscribe("$share/g/b", QoS::AtMostOnce);
    let mut owner = Caller::owner(&home);

    let found = owner.read("/clients/c%2F1");

    let now = owner.read("/clients?limit=1")["as_of_ms"].as_u64();
    let last_packet = found["last_packet_ms"].as_u64();
    assert!(last_packet >= found["connected_at_ms"].as_u64() && last_packet <= now);
    let created = found["session_created_ms"].as_u64();
    assert!(created.is_some() && created <= now, "{found}");
    for (field, value) in [
        ("client_id", json!("c/1")),
        ("username", Value::Null),
        ("connected", json!(true)),
        ("listener", json!("test")),
        ("address", json!("127.0.0.1")),
        ("version", json!("5.0")),
        ("keep_alive_s", json!(90)),
        ("session_expiry_s", json!(3600)),
        ("subscriptions", json!(2)),
        (
            "queue",
            json!({"messages": 0, "bytes": 0, "on_disk": 0, "max_messages": limits.queue_disk_messages, "max_bytes": limits.queue_disk_bytes}),
        ),
        (
            "inflight",
            json!({"out": 0, "in": 0, "max": limits.inflight_max}),
        ),
        ("transport", json!("tcp")),
        ("tls", Value::Null),
        ("durability", json!("os")),
        ("dropped", json!({})),
        ("takeovers", json!(0)),
        (
            "will",
            json!({"topic": "gone", "qos": 0, "retain": false, "delay_s": 0}),
        ),
        ("certificate", Value::Null),
        ("session_expires_at_ms", Value::Null),
    ] {
        assert_eq!(found[field], value, "{field}");
    }
    let held = owner.read("/clients/c%2F1/subscriptions?limit=1");
    assert_eq!(held["items"][0]["filter"], "$share/g/b");
    assert_eq!(held["items"][0]["share"], "g");
    let next = held["next"].as_str().expect("another page");
    let rest = owner.read(&format!(
        "/clients/c%2F1/subscriptions?limit=1&after={next}"
    ));
    assert_eq!(rest["items"][0]["filter"], "a/#");
    assert_eq!(rest["items"][0]["qos"], 2);
    assert_eq!(rest["next"], Value::Null);
}

/// The rate of the client's messages: one of them is free, the others would take minutes.
#[test]
fn the_limit_that_holds_a_client_back_is_named_and_counted() {
    let home = Home::new();
    let mut setup = setup(&home);
    setup.config.address_limits.exempt = Vec::new();
    setup.config.client_rates.anonymous_messages = 1;
    let served = setup.start();
    let mut client = v5("c").connect(&served);
    let mut owner = Caller::owner(&home);
    assert_eq!(owner.read("/clients/c")["held_back_by"], json!([]));

    for _ in 0..1_000 {
        client.publish("t", "x", QoS::AtMostOnce);
    }

    eventually("it is held back", || {
        owner.read("/clients/c")["held_back_by"] == json!(["messages"])
    });
    let page = Http::unix(&home.folder(0).join("http")).get("/metrics");
    let metrics = page.text();
    let line = r#"mqttcore_limit_total{listener="test",limit="messages",action="held_back"} "#;
    let count = metrics.lines().find_map(|shown| shown.strip_prefix(line));
    assert!(
        count.is_some_and(|count| !count.starts_with('0')),
        "{metrics}"
    );
    let _again = v5("c").connect(&served);
    assert_eq!(owner.read("/clients/c")["held_back_by"], json!([]));
}

#[test]
fn the_tls_of_a_client_has_version_and_cipher_suite() {
    let home = Home::new();
    let files = Files::new("c");
    let mut setup = setup(&home);
    setup.config.listeners[0].tls = Some(files.mutual());
    let served = setup.start();
    let _client = Dial::with(&files).connect(served.addresses()[0], "c");

    let found = Caller::owner(&home).read("/clients/c");

    assert_eq!(found["transport"], "tcp");
    assert_eq!(found["tls"]["version"], "1.3");
    let cipher = found["tls"]["cipher"].as_str();
    assert!(cipher.is_some_and(|name| name.starts_with("TLS_") && name.contains("_SHA")));
    assert!(found["certificate"].is_string());
}

/// Older drops and takeovers are forgotten with the recent events.
#[test]
fn recent_drops_and_takeovers_of_a_client_are_counted() {
    let home = Home::new();
    let mut setup = setup(&home);
    let limits = setup.config.limits.clone();
    setup.config.data = None;
    setup.config.limits = ServerLimits {
        queue_messages: 1,
        ..(*limits).clone()
    }
    .into();
    let served = setup.start();
    let hello = v5("c").keeping_session_s(HOUR_S);
    let _old = hello.connect(&served);
    let mut client = hello.connect(&served);
    client.subscribe("t", QoS::AtLeastOnce);
    client.disconnect();
    let mut publisher = v5("publisher").connect(&served);
    let mut caller = Caller::with(&served, Some(TOKEN));
    eventually("it is offline", || {
        caller.read("/clients/c")["connected"] == json!(false)
    });

    for _ in 0..4 {
        publisher.publish("t", "x", QoS::AtLeastOnce);
    }

    eventually("three are dropped", || {
        let found = caller.read("/clients/c");
        let dropped = found["dropped"].as_object().expect("reasons").clone();
        dropped.values().eq([&json!(3)]) && found["takeovers"] == json!(1)
    });
    assert_eq!(caller.read("/clients/publisher")["dropped"], json!({}));
}

#[test]
fn the_rules_of_a_client_are_listed_in_the_order_in_which_they_decide() {
    let home = Home::new();
    let grant = Grant {
        deny: vec!["secret/#".into()],
        publish: vec!["own/1".into(), "own/2".into()],
        subscribe: vec!["news/#".into()],
        ..Grant::default()
    };
    let plugin = Plugin::default().authenticate(move |_, reply| {
        reply.send(allow(grant.clone()));
    });
    let served = setup(&home).try_start_with(plugin).expect("it starts");
    let _client = v5("c").username("joe").connect(&served);
    let mut owner = Caller::owner(&home);

    let found = owner.read("/clients/c/permissions");

    let rule = |actions: &[&str], allowed, filter| json!({"actions": actions, "allowed": allowed, "filter": filter, "exact": false, "place": null});
    let rules = [
        rule(&["publish", "receive"], false, "secret/#"),
        rule(&["publish"], true, "own/1"),
        rule(&["publish"], true, "own/2"),
        rule(&["subscribe"], true, "news/#"),
    ];
    assert_eq!(found["items"], json!(rules));
    assert_eq!(found["next"], Value::Null);
    let first = owner.read("/clients/c/permissions?limit=3");
    let next = first["next"].as_str().expect("another page");
    let rest = owner.read(&format!("/clients/c/permissions?limit=3&after={next}"));
    assert_eq!(
        (&first["items"], &rest["items"]),
        (&json!(rules[..3]), &json!(rules[3..]))
    );
    assert_eq!(rest["next"], Value::Null);
    owner.get("/clients/d/permissions").is_problem(404, "d");
    owner
        .get("/clients/c/permissions?after=eA")
        .is_problem(400, "after");
}

/// The kernel counts them.
#[cfg(target_os = "linux")]
#[test]
fn bytes_of_connections_are_those_of_their_clients() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut held = [v5("a").connect(&served), v5("b").connect(&served)];
    v5("c")
        .keeping_session_s(HOUR_S)
        .connect(&served)
        .disconnect();
    let own = |owner: &mut Caller| owner.read("/clients/b")["bytes"].take();
    let before = own(&mut owner);

    held[1].ping();

    for way in ["in", "out"] {
        let bytes = |counted: &Value| counted[way].as_u64().expect("a number");
        // The client's side may acknowledge late.
        eventually("PINGREQ and PINGRESP are counted", || {
            bytes(&own(&mut owner)) >= bytes(&before) + 2
        });
    }
    let after = own(&mut owner);
    assert_eq!(
        after["in"].as_u64(),
        before["in"].as_u64().map(|bytes| bytes + 2)
    );
    eventually("c is offline", || {
        owner.read("/clients/c")["connected"] == json!(false)
    });
    let items = owner.read("/clients?bytes=true&limit=100")["items"].take();
    assert_eq!(items[1]["bytes"], after);
    assert!(items[0]["bytes"]["in"].is_u64());
    assert_eq!(items[2].get("bytes"), None, "it is not connected");
    let without = owner.read("/clients")["items"].take();
    assert_eq!(without[1].get("bytes"), None, "not asked for");
    owner
        .get("/clients?bytes=true&limit=101")
        .is_problem(400, "at most 100");
}

/// Each question to a shard looks at 256 clients, so these take several.
#[test]
fn pages_have_each_session_once_whoever_comes_and_goes() {
    let home = Home::new();
    many::fill(&home.folder(0), 3_000, |_| {});
    let mut setup = setup(&home);
    setup.config.shards = 2;
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    owner.until_loaded();
    let kept: BTreeSet<_> = all(&mut owner, "/clients?limit=1000", |_| {})
        .into_iter()
        .collect();
    assert_eq!(kept.len(), 3_000);

    let mut passing = Vec::new();
    let found = all(&mut owner, "/clients?limit=300", |number| {
        passing.clear();
        passing.push(v5(&format!("!first-{number}")).connect(&served));
        passing.push(v5(&format!("~last-{number}")).connect(&served));
    });

    let once: BTreeSet<_> = found.iter().cloned().collect();
    assert_eq!(once.len(), found.len(), "none comes twice");
    assert!(once.is_superset(&kept));
    assert!(found.is_sorted());
    let found = all(&mut owner, "/clients?limit=300&sort=stored", |number| {
        passing.clear();
        passing.push(v5(&format!("!again-{number}")).connect(&served));
    });
    let once: BTreeSet<_> = found.iter().cloned().collect();
    assert_eq!(once.len(), found.len(), "none comes twice");
    assert!(once.is_superset(&kept));
    let named = all(&mut owner, "/clients?limit=9&sort=stored&q=00", |_| {});
    assert!(named.len() > 9 && named.iter().all(|id| id.contains("00")));
    let after = owner.read("/clients?limit=1")["next"].to_string();
    let path = format!("/clients?sort=stored&after={}", after.trim_matches('"'));
    owner.get(&path).is_problem(400, "position of a page");
}

#[test]
fn queued_messages_of_a_client_are_listed_with_payloads_for_keys_with_that_scope() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&served);
    away.subscribe("q/#", QoS::AtLeastOnce);
    away.disconnect();
    let mut publisher = v5("publisher").connect(&served);
    for number in 0..3 {
        publisher.publish(&format!("q/{number}"), "x", QoS::AtLeastOnce);
    }
    eventually("all is queued", || {
        owner.read("/clients/away/queue")["messages"] == 3
    });

    let queue = owner.read("/clients/away/queue?limit=2");

    let item = |topic: &str| json!({"topic": topic, "qos": 1, "payload_bytes": 1, "expires_in_s": null, "payload_base64": "eA=="});
    assert_eq!(
        queue,
        json!({"items": [item("q/0"), item("q/1")], "messages": 3, "on_disk": 0})
    );
    assert_eq!(
        owner.read("/clients/away/queue?from=1&limit=1")["items"],
        json!([item("q/1")])
    );
    assert_eq!(
        owner.read("/clients/away/queue?from=4294967295")["items"],
        json!([])
    );
    let secret = key(&mut owner, "viewer", &["view"]);
    let seen = Caller::with(&served, Some(&secret)).read("/clients/away/queue");
    assert_eq!(seen["items"][2]["topic"], "q/2");
    assert!(!seen.to_string().contains("payload_base64"), "{seen}");
    owner.get("/clients/nobody/queue").is_problem(404, "nobody");
}

/// Abuse H11. A shard looks at 256 clients for one question (`operations::clients`); between two questions it serves
/// MQTT clients.
#[test]
fn a_list_of_many_clients_is_read_while_messages_are_delivered() {
    let home = Home::new();
    many::fill(&home.folder(0), 20_000, |_| {});
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    owner.until_loaded();
    let mut client = v5("~traffic").connect(&served);
    client.subscribe("t", QoS::AtLeastOnce);
    let (stop, stopped) = channel::<()>();

    let listed = std::thread::scope(|scope| {
        let home = &home;
        let lists = scope.spawn(move || {
            let mut owner = Caller::owner(home);
            let mut lists = 0;
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                let found = all(&mut owner, "/clients?limit=1000", |_| {});
                assert_eq!(found.len(), 20_001);
                lists += 1;
            }
            lists
        });
        for number in 0..300 {
            client.publish("t", number.to_string(), QoS::AtMostOnce);
            assert_eq!(client.take_message().text(), number.to_string());
        }
        drop(stop);
        lists.join().expect("all lists are complete")
    });

    assert!(listed > 0);
}

#[test]
fn clients_are_filtered_and_ranked() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut old = v3("old").connect(&served);
    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&served);
    away.subscribe("q", QoS::AtLeastOnce);
    away.disconnect();
    let slow = {
        let mut slow = v5("slow")
            .keeping_session_s(HOUR_S)
            .receive_maximum(1)
            .connect(&served);
        slow.subscribe("q", QoS::AtLeastOnce);
        slow
    };
    for _ in 0..3 {
        old.publish("q", "x", QoS::AtLeastOnce);
    }
    let mut owner = Caller::owner(&home);
    eventually("all is queued", || {
        ids(&owner.read("/clients?min_queue=2")).len() == 2
    });

    for (query, wanted) in [
        ("", vec!["away", "old", "slow"]),
        ("?q=o", vec!["old", "slow"]),
        ("?connected=false", vec!["away"]),
        ("?connected=true&version=5.0", vec!["slow"]),
        ("?version=3.1.1", vec!["old"]),
        ("?ip=127.0.0.0/8&q=s", vec!["slow"]),
        ("?ip=10.0.0.0/8", vec![]),
        ("?listener=other", vec![]),
        ("?user=joe", vec![]),
        ("?min_queue=3", vec!["away"]),
        ("?min_inflight=1", vec!["slow"]),
        ("?sort=queue", vec!["away", "slow", "old"]),
        ("?sort=inflight&limit=1", vec!["slow"]),
        ("?sort=connected_at", vec!["slow", "old", "away"]),
    ] {
        assert_eq!(
            ids(&owner.read(&format!("/clients{query}"))),
            wanted,
            "{query}"
        );
    }
    let window = owner.read("/clients/slow/inflight");
    assert_eq!(window["items"][0]["topic"], "q");
    assert_eq!(window["items"][0]["state"], "sent");
    assert_eq!(window["items"][0]["payload_bytes"], 1);
    drop(slow);
}

/// A subscriber that does not acknowledge, and one that does not need to.
#[test]
fn clients_have_rates_and_the_slowest_subscribers_are_listed() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut slow = v5("slow").receive_maximum(1).connect(&served);
    slow.subscribe("q", QoS::AtLeastOnce);
    let mut quick = v5("quick").connect(&served);
    quick.subscribe("q", QoS::AtMostOnce);
    let mut publisher = v5("publisher").connect(&served);
    for _ in 0..3 {
        publisher.publish("q", "x", QoS::AtLeastOnce);
    }
    let mut owner = Caller::owner(&home);

    let mut found = Value::Null;
    eventually("both deliveries are measured", || {
        found = owner.read("/slow")["items"].take();
        let all = found.as_array().expect("items");
        all.len() == 2 && all.iter().all(|item| item["latency"].is_object())
    });

    let of = |id: &str| {
        let mut all = found.as_array().expect("items").iter();
        all.find(|item| item["client_id"] == id).expect("listed")
    };
    assert_eq!(of("slow")["waits_for"], "ack");
    assert_eq!(
        (&of("slow")["queued"], &of("slow")["inflight"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(
        (&of("quick")["waits_for"], &of("quick")["queued"]),
        (&Value::Null, &json!(0))
    );
    let worst_ms = of("quick")["latency"]["worst_ms"].as_f64();
    assert!(
        worst_ms.is_some_and(|ms| 0.0 < ms && ms < 60_000.0),
        "{found}"
    );
    assert_eq!(
        owner.read("/slow?limit=1")["items"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    for (sort, direction) in [("rate_in", "in"), ("rate_out", "out")] {
        let list = owner.read(&format!("/clients?sort={sort}"));
        let list = list["items"].as_array().expect("items").iter();
        let rates: Vec<_> = list
            .map(|item| item["rates"][direction].as_f64().expect("a rate"))
            .collect();
        assert!(
            rates.len() == 3 && rates.is_sorted_by(|a, b| a >= b) && rates[0] > 0.0,
            "{rates:?}"
        );
    }
    let described = owner.read("/clients/slow");
    assert_eq!(described["waits_for"], "ack");
    assert!(described["latency"]["last_ms"].is_number() && described["rates"]["out"].is_number());
}

#[test]
fn a_shard_that_does_not_answer_is_named_in_partial() {
    let home = Home::new();
    let (served, mut owner, block) = start_with_block(&home, 2);
    let _client = block.begin(&served);

    let page = owner.read("/clients");

    let partial = page["partial"].as_array().expect("shards");
    assert_eq!(partial.len(), 1, "{page}");
    assert!(partial[0]["shard"].is_u64());
    assert!(
        partial[0]["why"]
            .as_str()
            .is_some_and(|why| why.contains("250 ms"))
    );
    drop(block);
}

#[test]
fn a_request_that_a_shard_does_not_answer_is_to_be_sent_again_and_metrics_are_there() {
    let home = Home::new();
    let (served, mut owner, block) = start_with_block(&home, 1);
    let _client = block.begin(&served);

    let busy = owner.get("/clients/blocks");

    busy.is_problem(503, "250 ms");
    assert_eq!(busy.response.header("retry-after"), Some("1"));
    let metrics = Http::unix(&home.folder(0).join("http")).get("/metrics");
    assert_eq!(metrics.status, 200);
    drop(block);
}

#[test]
fn a_client_is_disconnected_with_a_reason_and_keeps_its_session() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    for (query, code) in [
        ("", 0x98),
        ("?reason=0x89", 0x89),
        ("?reason=151&session=keep", 0x97),
    ] {
        let mut client = v5("c")
            .keeping_session_s(HOUR_S)
            .connect_or_resume(&served)
            .0;

        assert_eq!(
            owner
                .ask("DELETE", &format!("/clients/c{query}"), "")
                .status,
            204
        );

        assert_eq!(disconnect_code(&mut client), code);
        eventually("it is away", || {
            owner.read("/clients/c")["connected"] == false
        });
    }
    owner
        .ask("DELETE", "/clients/c", "")
        .is_problem(404, "session=end");
    owner
        .ask("DELETE", "/clients/nobody", "")
        .is_problem(404, "no client");
    owner
        .ask("DELETE", "/clients/c?reason=0x10", "")
        .is_problem(400, "reason");
}

#[test]
fn a_session_is_ended_with_or_without_its_connection_and_for_good() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut here = v5("here").keeping_session_s(HOUR_S).connect(&served);
    v5("away")
        .keeping_session_s(HOUR_S)
        .connect(&served)
        .disconnect();
    let _other = v5("other").keeping_session_s(HOUR_S).connect(&served);

    for id in ["here", "away"] {
        assert_eq!(
            owner
                .ask("DELETE", &format!("/clients/{id}?session=end"), "")
                .status,
            204
        );
        owner.get(&format!("/clients/{id}")).is_problem(404, id);
        owner
            .ask("DELETE", &format!("/clients/{id}?session=end"), "")
            .is_problem(404, id);
    }

    assert_eq!(disconnect_code(&mut here), 0x98);
    let _served = setup(&home).start_after_crash(&home, served);
    let mut owner = Caller::at(&home, 1);
    owner.until_loaded();
    assert_eq!(ids(&owner.read("/clients?q=other")), ["other"]);
    for id in ["here", "away"] {
        owner.get(&format!("/clients/{id}")).is_problem(404, id);
    }
}

#[test]
fn a_subscription_of_an_operator_is_as_good_as_the_clients_own() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").keeping_session_s(HOUR_S).connect(&served);
    let body = r#"{"filter": "a/+", "qos": 1, "subscription_id": 7}"#;

    assert_eq!(
        owner.ask("POST", "/clients/c/subscriptions", body).status,
        201
    );
    assert_eq!(
        owner.ask("POST", "/clients/c/subscriptions", body).status,
        200
    );

    client.publish("a/1", "x", QoS::AtMostOnce);
    assert_eq!(client.take_message().text(), "x");
    let _served = setup(&home).start_after_crash(&home, served);
    let mut owner = Caller::at(&home, 1);
    let mut held = Value::Null;
    eventually("it is loaded", || {
        held = owner.get("/clients/c/subscriptions").json;
        held["items"].is_array()
    });
    let wanted = json!([{"filter": "a/+", "share": null, "qos": 1, "no_local": false, "retain_as_published": false, "subscription_id": 7}]);
    assert_eq!(held["items"], wanted);
    assert_eq!(
        owner
            .ask("DELETE", "/clients/c/subscriptions/a%2F%2B", "")
            .status,
        204
    );
    owner
        .ask("DELETE", "/clients/c/subscriptions/a%2F%2B", "")
        .is_problem(404, "not subscribed");
    assert_eq!(owner.read("/clients/c/subscriptions")["items"], json!([]));
}

#[test]
fn subscriptions_that_may_not_be_are_refused() {
    let home = Home::new();
    let served = setup(&home).start();
    let _client = v5("c").connect(&served);
    let mut owner = Caller::owner(&home);
    let path = "/clients/c/subscriptions";

    for (body, word) in [
        (r#"{"filter": "a#"}"#, "filter"),
        (r#"{"filter": "a", "qos": 3}"#, "qos"),
        (r#"{"filter": "$share/g/a", "no_local": true}"#, "3.8.3-4"),
        (r#"{"filter": "a", "subscription_id": 0}"#, "268435455"),
    ] {
        owner.ask("POST", path, body).is_problem(400, word);
    }
    owner
        .ask(
            "POST",
            "/clients/nobody/subscriptions",
            r#"{"filter": "a"}"#,
        )
        .is_problem(404, "nobody");
}

#[test]
fn subscriptions_of_all_are_listed_by_filter_and_by_topic() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let clients: Vec<_> = (0..5)
        .map(|number| {
            let mut client = v5(&format!("c{number}")).connect(&served);
            client.subscribe("a/+", QoS::AtLeastOnce);
            client.subscribe(&format!("own/{number}"), QoS::AtMostOnce);
            client
        })
        .collect();
    let mut member = v5("member").connect(&served);
    member.subscribe("$share/g/a/1", QoS::ExactlyOnce);

    let names = |mut found: Vec<String>| {
        found.sort();
        found
    };
    let everybody = ["c0", "c1", "c2", "c3", "c4"];
    assert_eq!(
        names(all(&mut owner, "/subscriptions?limit=2", |_| {})).len(),
        11
    );
    assert_eq!(
        names(all(&mut owner, "/subscriptions?limit=2&filter=a/+", |_| {})),
        everybody
    );
    assert_eq!(ids(&owner.read("/subscriptions?filter=own/3")), ["c3"]);
    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&served);
    away.subscribe("$share/g/a/1", QoS::AtLeastOnce);
    away.subscribe("away", QoS::AtLeastOnce);
    away.disconnect();
    eventually("it is offline", || {
        owner.read("/clients/away")["connected"] == json!(false)
    });
    owner.ask(
        "POST",
        "/publish",
        &json!({"topic": "away", "qos": 1}).to_string(),
    );
    let group = owner.read("/subscriptions?filter=$share/g/a/1");
    let members = group["items"].as_array().expect("items").iter();
    let members: BTreeSet<_> = members
        .map(|item| format!("{} {}", item["client_id"], item["member"]))
        .collect();
    let wanted = [
        r#""away" {"connected":false,"inflight":0,"queued":1}"#,
        r#""member" {"connected":true,"inflight":0,"queued":0}"#,
    ];
    assert_eq!(members.iter().collect::<Vec<_>>(), wanted);
    let plain = owner.read("/subscriptions?filter=a/%2B");
    assert_eq!(plain["items"][0].get("member"), None);
    owner.ask("DELETE", "/clients/away?session=end", "");
    let mut receivers = owner.read("/subscriptions?topic=a/1");
    let group = receivers["items"]
        .as_array_mut()
        .expect("items")
        .pop_if(|item| item["client_id"] == "member");
    assert_eq!(group.expect("the member")["group"], "$share/g/a/1");
    assert_eq!(names(ids(&receivers)), everybody);
    assert_eq!(ids(&owner.read("/subscriptions?topic=own/3")), ["c3"]);
    assert_eq!(ids(&owner.read("/subscriptions?topic=none")), [""; 0]);
    drop(clients);
}
