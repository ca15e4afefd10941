//! Deliveries that are watched while they happen (ADR 0118).

use std::collections::BTreeMap;

use mqttcore_broker::Grant;
use mqttcore_codec::QoS;
use serde_json::{Value, json};

use crate::api_caller::{Caller, key, setup};
use crate::client::Http;
use crate::common::{HOUR_S, Home, Plugin, allow, eventually, queued, v3, v5};
use crate::served::Served;

const ONCE: QoS = QoS::AtLeastOnce;

/// Begins a watch with this query, and returns once it is in force.
fn watch(home: &Home, query: &str) -> Http {
    let mut stream = Http::unix(&home.folder(0).join("http"));
    stream.send(&format!(
        "GET /api/v1/explain/delivery/live?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    stream.until(": deliveries\n\n");
    stream
}

/// The next event: kind and data.
fn next(stream: &mut Http) -> (String, Value) {
    let text = stream.until("\n\n");
    let field = |name: &str| {
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {text:?}"))
    };
    let data = serde_json::from_str(field("data: ")).expect("JSON");
    (field("event: ").to_owned(), data)
}

fn next_deliveries(stream: &mut Http, count: usize) -> Vec<Value> {
    let delivery = |_| match next(stream) {
        (kind, data) if kind == "delivery" => data,
        other => panic!("{other:?}"),
    };
    (0..count).map(delivery).collect()
}

/// The verdicts for each receiver, in their order.
fn verdicts(deliveries: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for delivery in deliveries {
        let text = |field: &str| delivery[field].as_str().expect("a text").to_owned();
        let of_one = found.entry(text("client_id")).or_default();
        of_one.push(text("verdict"));
    }
    found
}

fn start(home: &Home) -> Served {
    let mut setup = setup(home);
    setup.config.shards = 3;
    setup.start()
}

#[test]
fn each_delivery_has_a_receiver_with_its_verdict_whatever_its_shard() {
    let home = Home::new();
    let served = start(&home);
    let mut here: Vec<_> = (0..4)
        .map(|number| v5(&format!("here-{number}")).connect(&served))
        .collect();
    for client in &mut here {
        client.subscribe("t/+", ONCE);
    }
    let mut slow = v5("slow").receive_maximum(1).connect(&served);
    slow.subscribe("t/1", ONCE);
    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&served);
    away.subscribe("t/1", ONCE);
    away.disconnect();
    eventually("away is offline", || {
        let clients = served.clients();
        let away = clients.iter().find(|client| *client.client_id == *"away");
        away.is_some_and(|away| !away.connected)
    });
    let mut all = watch(&home, "filter=t/%23");
    let mut of_one = watch(&home, "filter=%23&client=away");
    let mut other = watch(&home, "filter=other");

    let mut writer = v5("writer").connect(&served);
    writer.publish_acknowledged("t/1", "21.5");
    writer.publish("t/1", "at most once", QoS::AtMostOnce);
    writer.publish_acknowledged("t/1", "22");
    writer.publish_acknowledged("nobody", "x");
    writer.publish_acknowledged("other", "nobody subscribes to it");

    let deliveries = next_deliveries(&mut all, 18);
    let mut found = verdicts(&deliveries);
    let of_away = ["waiting:offline", "dropped:offline-qos0", "waiting:offline"];
    assert_eq!(
        found.remove("away").as_deref(),
        Some(&of_away.map(str::to_owned)[..])
    );
    let of_slow = ["delivered", "delivered", "waiting:quota"];
    assert_eq!(
        found.remove("slow").as_deref(),
        Some(&of_slow.map(str::to_owned)[..])
    );
    assert_eq!(found.len(), 4);
    assert!(
        found.values().all(|of_one| *of_one == ["delivered"; 3]),
        "{found:?}"
    );
    let first = &deliveries[0];
    assert_eq!(
        (&first["topic"], &first["bytes"]),
        (&json!("t/1"), &json!(4))
    );
    assert_eq!(
        (&first["qos"], &first["published_qos"]),
        (&json!(1), &json!(1))
    );
    assert!(
        first["ts_us"]
            .as_u64()
            .is_some_and(|at| at > 1_600_000_000_000_000)
    );
    let to_away = verdicts(&next_deliveries(&mut of_one, 3));
    assert_eq!(
        to_away.into_iter().collect::<Vec<_>>(),
        [("away".into(), of_away.map(str::to_owned).into())]
    );
    assert_eq!(
        queued(&served, "away"),
        2,
        "what was watched is what happened"
    );

    let mut late = v5("late").connect(&served);
    late.subscribe("other", QoS::AtMostOnce);
    writer.publish_acknowledged("other", "x");
    let [only] = &next_deliveries(&mut other, 1)[..] else {
        panic!("one");
    };
    assert_eq!(
        (&only["client_id"], &only["qos"]),
        (&json!("late"), &json!(0))
    );
}

#[test]
fn a_message_of_a_group_that_a_member_does_not_get_is_seen_at_the_next_member() {
    for shards in [1, 4] {
        let home = Home::new();
        let mut setup = setup(&home);
        setup.config.shards = shards;
        let plugin = Plugin::default().authenticate(|_, reply| {
            reply.send(allow(Grant {
                deny: vec!["t".into()],
                ..Grant::everything()
            }));
        });
        let served = setup.try_start_with(plugin).expect("it starts");
        let mut denied = v5("denied").username("joe").connect(&served);
        let mut open = v5("open").connect(&served);
        for member in [&mut denied, &mut open] {
            member.subscribe("$share/g/+", ONCE);
        }
        let mut stream = watch(&home, "filter=t");

        let mut writer = v5("writer").connect(&served);
        (0..2).for_each(|_| _ = writer.publish_acknowledged("t", "x"));

        let deliveries = next_deliveries(&mut stream, 3);
        let found = verdicts(&deliveries);
        assert_eq!(found["denied"], ["denied:receive"], "{shards} shards");
        assert_eq!(found["open"], ["delivered"; 2], "{shards} shards");
        assert!(
            deliveries
                .iter()
                .all(|delivery| delivery["group"] == "$share/g/+")
        );
    }
}

#[test]
fn a_reader_that_does_not_read_slows_nobody_down_and_misses_deliveries() {
    let home = Home::new();
    let served = start(&home);
    let mut reader = v3("reader").connect(&served);
    reader.subscribe("t", QoS::AtMostOnce);
    let mut stream = watch(&home, "filter=t");

    let mut writer = v3("writer").connect(&served);
    let count = 30_000;
    for _ in 0..count / 100 {
        for _ in 0..100 {
            writer.publish("t", "x", QoS::AtMostOnce);
        }
        writer.ping();
        for _ in 0..100 {
            reader.message();
        }
    }

    let (mut seen, mut lost) = (0, 0);
    while seen + lost < count {
        match next(&mut stream) {
            (kind, data) if kind == "lost" => lost += data["lost"].as_u64().expect("a number"),
            (_, data) => {
                assert_eq!(data["verdict"], "delivered");
                seen += 1;
            }
        }
    }
    assert_eq!(seen + lost, count, "each of them counts once");
    assert!(lost > 1_000, "{lost}");
}

#[test]
fn the_watch_of_a_revoked_key_ends() {
    let home = Home::new();
    let served = start(&home);
    let mut owner = Caller::owner(&home);
    let secret = key(&mut owner, "watcher", &["operate"]);
    let mut stream = Http::tcp(served.endpoint.address().expect("an address"));
    stream.send(&format!(
        "GET /api/v1/explain/delivery/live?filter=t HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {secret}\r\n\r\n"
    ));
    stream.until(": deliveries\n\n");

    assert_eq!(owner.ask("DELETE", "/keys/watcher", "").status, 204);

    // The last chunk.
    stream.until("\r\n0\r\n\r\n");
}

#[test]
fn a_watch_needs_a_topic_filter_and_a_place() {
    let home = Home::new();
    let _served = start(&home);
    let mut owner = Caller::owner(&home);
    let path = "/explain/delivery/live";
    owner.get(path).is_problem(400, "filter");
    owner
        .get(&format!("{path}?filter=a/%23/b"))
        .is_problem(400, "plant/+/temperature");
    owner
        .get(&format!("{path}?filter=a&topic=b"))
        .is_problem(400, "topic");

    let readers: Vec<_> = (0..16).map(|_| watch(&home, "filter=t")).collect();
    owner
        .get(&format!("{path}?filter=t"))
        .is_problem(503, "16 readers");

    drop(readers);
    let mut stream = Http::unix(&home.folder(0).join("http"));
    eventually("a place is free", || {
        stream = Http::unix(&home.folder(0).join("http"));
        stream.send(&format!(
            "GET /api/v1{path}?filter=t HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ));
        stream.until("\r\n").contains(" 200 ")
    });
}
