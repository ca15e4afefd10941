//! Messages, bans and the broker itself over the API.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mqttcore_broker::{BanTarget, Grant};
use mqttcore_codec::QoS;
use mqttcore_tls::{TlsSettings, make_files};
use serde_json::{Value, json};

use crate::api_caller::{Caller, ShardBlock, disconnect_code, key, setup, start_with_block};
use crate::client::Http;
use crate::common::frames::with_websocket;
use crate::common::{Client, Home, Plugin, allow, eventually, v5};
use crate::served::{Served, stream};

fn topics(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().expect("items").iter();
    items
        .map(|item| item["topic"].as_str().expect("a topic"))
        .collect()
}

/// Those of the test below, but for the expiry: content type, response topic, correlation data, user properties.
const ALL_PROPERTIES: &[u8] =
    b"\x03\0\x0atext/plain\x08\0\x01r\x09\0\x02\0\x01\x26\0\x01k\0\x01v\x26\0\x01k\0\x01w";

#[test]
fn a_published_message_arrives_with_its_properties() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);
    client.subscribe("a/#", QoS::ExactlyOnce);

    for (body, status, text) in [
        (r#"{"topic": "a/1", "payload": "one"}"#, 202, "one"),
        (
            r#"{"topic": "a/2", "payload_base64": "dHdv", "qos": 1}"#,
            200,
            "two",
        ),
        (
            r#"{"topic": "a/3", "payload": "three", "qos": 2, "properties": {"expiry_s": 60, "content_type": "text/plain",
            "response_topic": "r", "correlation_data": "AAE=", "user": [["k", "v"], ["k", "w"]]}}"#,
            200,
            "three",
        ),
    ] {
        let answer = owner.ask("POST", "/publish", body);
        assert_eq!(
            (answer.status, &answer.json),
            (status, &json!({"matched": 1}))
        );
        let message = client.take_message();
        assert_eq!(message.text(), text);
        let properties: &[u8] = match text {
            "three" => ALL_PROPERTIES,
            _ => b"",
        };
        let without_expiry = message.properties.strip_prefix(&[0x02, 0, 0, 0, 60][..]);
        assert_eq!(without_expiry.unwrap_or(&message.properties), properties);
        assert_eq!(message.expiry_s, (text == "three").then_some(60));
    }
    let nobody = owner.ask("POST", "/publish", r#"{"topic": "none", "qos": 1}"#);
    assert_eq!(nobody.json, json!({"matched": 0}));
}

#[test]
fn retained_messages_are_put_listed_read_and_removed() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    for (topic, body) in [
        (
            "b",
            r#"{"payload": "text", "qos": 1, "properties": {"expiry_s": 3600}}"#,
        ),
        ("a%2F1", r#"{"payload_base64": "/w==", "qos": 1}"#),
        ("a%2F2", r#"{"payload": "x"}"#),
    ] {
        let answer = owner.ask("PUT", &format!("/retained/{topic}"), body);
        assert!([200, 202].contains(&answer.status), "{}", answer.json);
    }

    let first = owner.read("/retained?limit=2");
    assert_eq!(topics(&first), ["a/1", "a/2"]);
    let next = first["next"].as_str().expect("another page");
    let rest = owner.read(&format!("/retained?limit=2&after={next}"));
    assert_eq!((topics(&rest), &rest["next"]), (vec!["b"], &Value::Null));
    assert_eq!(topics(&owner.read("/retained?filter=a/+")), ["a/1", "a/2"]);
    assert!(!first.to_string().contains("payload_base64"));
    let text = owner.read("/retained/b");
    assert_eq!(
        (&text["payload"], &text["payload_base64"]),
        (&json!("text"), &json!("dGV4dA=="))
    );
    assert!(text["expires_in_s"].as_u64() <= Some(3_600));
    let binary = owner.read("/retained/a%2F1");
    assert_eq!(
        (&binary["payload"], &binary["payload_base64"]),
        (&Value::Null, &json!("/w=="))
    );

    let secret = owner
        .ask("POST", "/keys", r#"{"name": "v", "scopes": ["view"]}"#)
        .json["secret"]
        .clone();
    let mut viewer = Caller::with(&served, secret.as_str());
    let seen = viewer.read("/retained/b");
    assert_eq!(
        (&seen["payload_bytes"], &seen["payload_base64"]),
        (&json!(4), &Value::Null)
    );

    assert_eq!(owner.ask("DELETE", "/retained/b", "").status, 204);
    owner.get("/retained/b").is_problem(404, "%2F");
    owner
        .ask("DELETE", "/retained/b", "")
        .is_problem(404, "no retained message");
    owner
        .ask("PUT", "/retained/b", "{}")
        .is_problem(400, "DELETE");
}

/// Deleting many needs the count of a dry run.
#[test]
fn many_retained_messages_are_removed_by_those_who_know_how_many() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);
    for number in 0..30 {
        client.publish_retained(&format!("a/{number}"), "x", QoS::AtLeastOnce);
    }
    client.publish_retained("b", "x", QoS::AtLeastOnce);
    eventually("all are retained", || {
        owner.read("/overview")["retained_messages"] == 31
    });

    let dry = owner.ask("DELETE", "/retained?filter=a/%2B", "").json;

    assert_eq!((&dry["count"], &dry["dry_run"]), (&json!(30), &json!(true)));
    assert_eq!(dry["sample"].as_array().map(Vec::len), Some(20));
    for query in ["", "&count=29"] {
        let answer = owner.ask(
            "DELETE",
            &format!("/retained?filter=a/%2B&dry_run=false{query}"),
            "",
        );
        answer.is_problem(409, "count=30");
    }
    assert_eq!(
        owner.read("/retained?filter=a/%2B")["items"]
            .as_array()
            .map(Vec::len),
        Some(30)
    );
    let done = owner
        .ask(
            "DELETE",
            "/retained?filter=a/%2B&dry_run=false&count=30",
            "",
        )
        .json;
    assert_eq!(
        (&done["count"], &done["dry_run"]),
        (&json!(30), &json!(false))
    );
    assert_eq!(topics(&owner.read("/retained")), ["b"]);
}

#[test]
fn bans_are_added_listed_and_lifted_and_outlive_the_broker() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("evil-1").connect(&served);
    let body = r#"{"kind": "client_id_regex", "value": "evil-.*", "why": "scans"}"#;

    let added = owner.ask("POST", "/bans", body);

    assert_eq!(
        (added.status, &added.json["disconnected"]),
        (201, &json!(1))
    );
    assert_eq!(disconnect_code(&mut client), 0x98);
    for (kind, value) in [
        ("client_id", "a b"),
        ("username", "joe"),
        ("ip", "10.0.0.0/8"),
    ] {
        let body = json!({"kind": kind, "value": value, "duration_s": 3600}).to_string();
        assert_eq!(owner.ask("POST", "/bans", &body).status, 201);
    }
    let _served = setup(&home).start_after_crash(&home, served);
    let mut owner = Caller::at(&home, 1);
    let first = owner.read("/bans?limit=3");
    let next = first["next"].as_str().expect("another page");
    let rest = owner.read(&format!("/bans?limit=3&after={next}"));
    let bans: Vec<_> = [&first, &rest]
        .iter()
        .flat_map(|page| page["items"].as_array().expect("items"))
        .collect();
    let kinds: Vec<_> = bans
        .iter()
        .map(|ban| ban["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(kinds, ["client_id", "client_id_regex", "ip", "username"]);
    assert_eq!(
        (&bans[1]["why"], &bans[1]["by"]),
        (&json!("scans"), &json!("the owner"))
    );
    assert!(bans[0]["until_ms"].is_u64() && bans[1]["until_ms"].is_null());
    for ban in bans {
        let path = format!("/bans/{}", ban["id"].as_str().expect("an identifier"));
        assert_eq!(owner.ask("DELETE", &path, "").status, 204);
        owner
            .ask("DELETE", &path, "")
            .is_problem(404, "no such ban");
    }
    assert_eq!(owner.read("/bans")["items"], json!([]));
    for (body, word) in [
        (r#"{"kind": "ip", "value": "10.0.0.0/99"}"#, "10.0.0.0/8"),
        (r#"{"kind": "client_id_regex", "value": "("}"#, "value"),
        (r#"{"kind": "name", "value": "a"}"#, "client_id_regex"),
        (r#"{"kind": "ip", "value": ""}"#, "1 to 4096"),
    ] {
        owner.ask("POST", "/bans", body).is_problem(400, word);
    }
}

#[test]
fn a_ban_over_the_limit_is_refused_until_another_is_lifted() {
    let home = Home::new();
    let served = setup(&home).start();
    let pattern = |number: usize| format!("bot-{number}");
    for number in 0..1_000 {
        let target = BanTarget::ClientIdPattern(pattern(number).parse().expect("a pattern"));
        served.ban(target, "".into(), None).expect("banned");
    }
    let body = |number| json!({"kind": "client_id_regex", "value": pattern(number)}).to_string();
    let mut owner = Caller::owner(&home);

    let refused = owner.ask("POST", "/bans", &body(1_000));

    refused.is_problem(409, "1000 bans of expressions");
    refused.is_problem(409, "GET /api/v1/bans lists them");
    let again = owner.ask("POST", "/bans", &body(7));
    assert_eq!(again.status, 201);
    let path = format!("/bans/{}", again.json["id"].as_str().expect("a string"));
    assert_eq!(owner.ask("DELETE", &path, "").status, 204);
    assert_eq!(owner.ask("POST", "/bans", &body(1_000)).status, 201);
}

#[test]
fn bans_of_an_identifier_of_one_user_are_listed_apart_and_lifted_one_by_one() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    for username in [None, Some("eve"), Some("ann")] {
        let target = BanTarget::ClientIdOfUser {
            client_id: "truck 7".into(),
            username: username.map(Into::into),
        };
        served.ban(target, "flaps".into(), None).expect("banned");
    }
    let body = json!({"kind": "client_id_of_user", "value": "truck 7"}).to_string();
    owner
        .ask("POST", "/bans", &body)
        .is_problem(400, "the broker alone");

    for username in [json!(null), json!("ann"), json!("eve")] {
        let page = owner.read("/bans?limit=1");
        let ban = &page["items"][0];
        assert_eq!(ban["kind"], "client_id_of_user");
        assert_eq!(
            (&ban["value"], &ban["username"]),
            (&json!("truck 7"), &username)
        );
        let next = page["next"]
            .as_str()
            .map(|next| format!("/bans?after={next}"));
        let left = next.map_or(0, |path| {
            owner.read(&path)["items"].as_array().map_or(0, Vec::len)
        });
        assert_eq!(left, served.bans().len() - 1);
        let path = format!("/bans/{}", ban["id"].as_str().expect("a string"));
        assert_eq!(owner.ask("DELETE", &path, "").status, 204);
    }
    assert!(served.bans().is_empty());
}

#[test]
fn the_overview_has_figures_and_the_guarantees() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);
    client.subscribe("a", QoS::AtLeastOnce);
    client.publish("a", "x", QoS::AtMostOnce);
    client.take_message();

    let found = owner.read("/overview");

    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
    assert_eq!(found["node"], node.trim_end());
    assert_eq!(
        found["clients"],
        json!({"connected": 1, "sessions": 1, "to_come": 0})
    );
    assert_eq!(found["subscriptions"], 1);
    assert_eq!(found["messages"], json!({"received": 1, "sent": 1}));
    assert_eq!(
        (&found["disk_pressure"], &found["warnings"]),
        (&json!("none"), &json!([]))
    );
    assert!(found["dropped"]["queue_full"].is_u64() && found["refused"]["no_room"].is_u64());
    let store = &found["store"];
    assert!(
        store["log_bytes"].as_u64() >= store["live_bytes"].as_u64(),
        "{store}"
    );
    assert!(store["sync_p50_us"].as_u64() <= store["sync_p99_us"].as_u64());
    assert!(store["sync_p99_us"].is_u64());
    assert!(
        found["durability"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    let version = owner.get("/version");
    assert_eq!(version.response.text(), env!("CARGO_PKG_VERSION"));
    assert_eq!(version.response.header("cache-control"), Some("no-store"));
}

#[test]
fn listeners_streams_store_and_sys_topics_are_described() {
    let home = Home::new();
    let mut setup = setup(&home);
    setup.config.sys_interval = Some(Duration::from_secs(1));
    setup.streams = vec![stream("plant", "plant/#")];
    setup.config = with_websocket(setup.config);
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let _client = v5("c").connect(&served);

    let listener = owner.read("/listeners")["listeners"][0].clone();
    for (field, value) in [
        ("name", json!("test")),
        ("protocol", json!("mqtt")),
        ("tls", json!(false)),
        ("mtls", json!(false)),
        ("allow_anonymous", json!(true)),
        ("connections", json!(1)),
    ] {
        assert_eq!(listener[field], value, "{field}");
    }
    assert!(listener.get("websocket_path").is_none());
    let websocket = &owner.read("/listeners")["listeners"][1];
    assert_eq!(websocket["protocol"], "websockets");
    assert_eq!(websocket["websocket_path"], "/mqtt");
    let streams = owner.read("/streams");
    assert_eq!(streams["items"][0]["name"], "plant");
    assert_eq!(
        streams["items"][0]["partitions"],
        json!([{"earliest": 0, "sealed_end": 0, "end": 0, "unsealed": 0}])
    );
    let store = owner.read("/store");
    assert_eq!(
        (&store["enabled"], &store["pressure"]),
        (&json!(true), &json!("none"))
    );
    eventually("$SYS is published", || {
        owner.read("/systree")["$SYS/broker/clients/connected"] == 1
    });
    let tree = owner.read("/systree");
    assert!(tree["$SYS/broker/version"].is_string());
}

/// A broker of two shards one of which is held up, and clients that subscribe to `t`. `None`: it is not the first shard.
fn start_without_first_shard() -> Option<(Home, Served, Caller, ShardBlock, Vec<Client>)> {
    let home = Home::new();
    let (served, mut owner, block) = start_with_block(&home, 2);
    let connect = |number| {
        let mut client = v5(&format!("c{number}")).connect(&served);
        client.subscribe("t", QoS::AtMostOnce);
        client
    };
    let mut clients: Vec<_> = (0..4).map(connect).collect();
    clients.push(block.begin(&served));
    if owner.read("/clients")["partial"][0]["shard"] != 0 {
        // The broker waits for its shards when it ends.
        drop(block);
        return None;
    }
    Some((home, served, owner, block, clients))
}

#[test]
fn listeners_are_paused_and_messages_published_while_the_first_shard_is_stuck() {
    // Each broker distributes identifiers in its own way.
    let started = (0..64).find_map(|_| start_without_first_shard());
    let (home, _served, mut owner, block, _clients) = started.expect("one in two");
    eventually("the first shard is late", || {
        let page = Http::unix(&home.folder(0).join("http")).get("/metrics");
        let mut lines = page.text().lines();
        let age = lines
            .find_map(|line| line.strip_prefix("mqttcore_shard_turn_age_seconds{shard=\"0\"} "));
        age.and_then(|age| age.parse().ok()).unwrap_or(0.0) > 1.0
    });

    let paused = owner.ask("POST", "/listeners/test/pause", "");
    let listeners = owner.read("/listeners");
    let message = json!({"topic": "t", "payload": "x", "retain": true, "qos": 1});
    let published = owner.ask("POST", "/publish", &message.to_string());
    let several = json!([message, message]).to_string();
    let all_published = owner.ask("POST", "/publish/bulk", &several);

    assert_eq!((paused.status, published.status), (204, 200));
    assert_eq!(listeners["listeners"][0]["paused"], true);
    assert_eq!(listeners["listeners"][0]["connections"], 5);
    assert_eq!(published.json["matched"], 4);
    assert_eq!(all_published.json["failed"], 0, "{}", all_published.json);
    drop(block);
}

#[test]
fn a_stream_has_its_consumers_the_slowest_first() {
    let home = Home::new();
    let mut setup = setup(&home);
    setup.streams = vec![stream("plant", "plant/#")];
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);
    for text in ["one", "two", "three"] {
        client.publish("plant/a", text, QoS::AtLeastOnce);
    }
    eventually("the rows are there", || {
        owner.read("/streams")["items"][0]["partitions"][0]["end"] == 3
    });
    assert_eq!(owner.read("/streams")["items"][0]["holds"], json!([]));

    for (consumer, offset) in [("fast", 2), ("slow", 1)] {
        let body = json!({"consumer": consumer, "offsets": [offset]}).to_string();
        let mut http = Http::unix(&home.folder(0).join("http"));
        let length = body.len();
        http.send(&format!(
            "POST /v1/streams/plant/holds HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(http.response().expect("a response").status, 200);
    }

    let holds = json!([
        {"consumer": "slow", "offsets": [1], "lag": 2},
        {"consumer": "fast", "offsets": [2], "lag": 1},
    ]);
    assert_eq!(owner.read("/streams")["items"][0]["holds"], holds);
}

#[test]
fn a_retained_message_has_its_publisher_if_that_has_a_user_name() {
    let home = Home::new();
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(allow(Grant::everything()));
    });
    let served = setup(&home).try_start_with(plugin).expect("it starts");
    let mut owner = Caller::owner(&home);
    let mut truck = v5("truck").username("joe").connect(&served);
    let mut nameless = v5("nameless").connect(&served);

    truck.publish_retained("a", "x", QoS::AtMostOnce);
    nameless.publish_retained("b", "x", QoS::AtMostOnce);

    eventually("both are retained", || {
        topics(&owner.read("/retained")).len() == 2
    });
    let publisher = json!({"client_id": "truck", "username": "joe"});
    let listed = owner.read("/retained");
    assert_eq!(listed["items"][0]["publisher"], publisher);
    assert_eq!(listed["items"][1]["publisher"], Value::Null);
    assert_eq!(owner.read("/retained/a")["publisher"], publisher);
}

#[test]
fn a_listener_has_its_certificates_with_their_expiry() {
    let home = Home::new();
    let mut setup = setup(&home);
    let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let files = make_files(&home.path().join("certs"), &hosts, "c").expect("the files");
    setup.config.listeners[0].tls = Some(TlsSettings::new(&files.server, files.server_key));
    let _served = setup.start();

    let listeners = Caller::owner(&home).read("/listeners");

    let certificate = json!({
        "file": files.server,
        "names": ["localhost"],
        // The first second of 2040.
        "expires_at_ms": 2_208_988_800_000_u64,
        "expires_soon": false,
    });
    assert_eq!(
        listeners["listeners"][0]["certificates"],
        json!([certificate])
    );
}

/// Writes a certificate that expires at `not_after`, in Unix seconds, and its key into `folder`.
fn expiring(folder: &Path, name: &str, not_after: u64) -> TlsSettings {
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.not_after = (UNIX_EPOCH + Duration::from_secs(not_after)).into();
    let key = rcgen::KeyPair::generate().expect("a key");
    let chain = params.self_signed(&key).expect("a certificate");
    let files = ["pem", "key"].map(|end| folder.join(name).with_extension(end));
    std::fs::write(&files[0], chain.pem()).expect("written");
    std::fs::write(&files[1], key.serialize_pem()).expect("written");
    let [certificate, key] = files;
    TlsSettings::new(certificate, key)
}

#[test]
fn only_admin_sees_in_which_folders_files_are() {
    let home = Home::new();
    let mut setup = setup(&home);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let soon = since.expect("after 1970").as_secs() + 86_400;
    setup.config.listeners[0].tls = Some(expiring(home.path(), "server", soon));
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let whole = home.path().join("server.pem").display().to_string();

    for (scopes, file) in [
        (&["view"][..], "server.pem"),
        (&["view", "admin"][..], &*whole),
    ] {
        let secret = key(&mut owner, &scopes.join(" "), scopes);
        let mut caller = Caller::with(&served, Some(&secret));
        let mut events = Http::tcp(served.endpoint.address().expect("a TCP address"));
        events.send(&format!(
            "GET /api/v1/events?kinds=stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n"
        ));

        let warnings = caller.read("/overview")["warnings"].clone();
        let listener = caller.read("/listeners")["listeners"][0].clone();
        let event = events.until("event: stats");

        let expected = format!(": certificate {file}: expires in ");
        let text = warnings[0]["text"].as_str().expect("a warning");
        assert!(text.contains(&expected), "{text}");
        assert_eq!(listener["certificates"][0]["file"], file);
        assert!(event.contains(&expected.to_lowercase()), "{event}");
    }
}

#[test]
fn certificates_that_expire_soon_are_warnings_and_metrics() {
    const DAY: u64 = 86_400;
    let home = Home::new();
    let mut setup = setup(&home);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.expect("after 1970").as_secs();
    let (ten, thirty, gone) = (now + 10 * DAY + 60, now + 30 * DAY, now - DAY);
    let mut of_listener = expiring(home.path(), "first", thirty);
    let second = expiring(home.path(), "second", ten);
    of_listener.certificates.extend(second.certificates);
    setup.config.listeners[0].tls = Some(of_listener);
    let tcp = setup.http.tcp.as_mut().expect("it has an address");
    tcp.tls = Some(expiring(home.path(), "http", gone));
    let name = setup.config.listeners[0].name.clone();
    let _served = setup.start();
    let warnings = Caller::owner(&home).read("/overview")["warnings"].clone();
    let metrics = Http::unix(&home.folder(0).join("http")).get("/metrics");

    let file = |name| home.path().join(name).display().to_string();
    let expected = json!([
        {
            "code": "certificates",
            "text": format!("listener {name}: certificate {}: expires in 10 days", file("second.pem")),
            "fix": "renew it",
        },
        {
            "code": "certificates",
            "text": format!("http: certificate {}: expired, clients will refuse it", file("http.pem")),
            "fix": "replace it",
        },
    ]);
    assert_eq!(warnings, expected);
    for (listener, expiry) in [(&*name, ten), ("http", gone)] {
        let series = format!("mqttcore_certificate_not_after_seconds{{listener=\"{listener}\"}} ");
        let value = metrics
            .text()
            .lines()
            .find_map(|line| line.strip_prefix(&series));
        let value = value.expect("a value").parse::<f64>().expect("a number");
        assert!((value - Duration::from_secs(expiry).as_secs_f64()).abs() < 0.5);
    }
}
