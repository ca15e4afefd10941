//! What operators may change over the API, and what stays changed.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use mqttcore_broker::{Grant, Listener};
use mqttcore_codec::QoS;
use mqttcore_topics::MountPoint;

use crate::api_caller::{Caller, disconnect_code, key, setup};
use crate::client::Http;
use crate::common::{DEADLINE, HOUR_S, Home, eventually, v5};

/// A subscription brings payloads to a client, which may be the operator's own.
#[test]
fn only_who_may_see_payloads_subscribes_clients() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let _client = v5("c").connect(&served);
    let (path, body) = ("/clients/c/subscriptions", r##"{"filter": "#"}"##);
    let mut ask = |name: &str, scopes: &[&str]| {
        let secret = key(&mut owner, name, scopes);
        Caller::with(&served, Some(&secret)).ask("POST", path, body)
    };

    ask("o", &["operate"]).is_problem(403, "lacks the scope \\\"payload\\\"");
    ask("p", &["payload", "view", "admin"]).is_problem(403, "lacks the scope \\\"operate\\\"");
    assert_eq!(ask("both", &["operate", "payload"]).status, 201);
}

/// The store ends a session behind its will, which may wait for its turn.
#[test]
fn a_session_that_is_ended_while_wills_wait_stays_ended_after_a_crash() {
    let home = Home::new();
    let slow = || {
        let mut setup = setup(&home);
        setup.config.wills_per_second = 1;
        setup.config.shards = 1;
        setup
    };
    let served = slow().start();
    let mut owner = Caller::owner(&home);
    let mut subscriber = v5("subscriber").connect(&served);
    subscriber.subscribe("own", QoS::AtLeastOnce);
    let lost: Vec<_> = (0..30)
        .map(|number| {
            v5(&format!("lost-{number}"))
                .will("w", "x")
                .connect(&served)
        })
        .collect();
    let here = v5("here").keeping_session_s(HOUR_S).will("own", "x");
    let mut here = here.connect(&served);
    for client in lost {
        client.vanish();
    }
    eventually("wills wait", || served.stats().wills_delayed >= 20);

    let answer = owner.ask("DELETE", "/clients/here?session=end", "");

    assert_eq!(answer.status, 204);
    assert_eq!(disconnect_code(&mut here), 0x98);
    assert_eq!(subscriber.take_message().topic, "own");
    let _served = slow().start_after_crash(&home, served);
    let mut owner = Caller::at(&home, 1);
    owner.until_loaded();
    owner.get("/clients/here").is_problem(404, "here");
}

#[test]
fn nobody_publishes_or_removes_topics_of_the_broker_itself() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let new = r#"{"topic": "$SYS/broker/version", "payload": "x", "retain": true, "qos": 1}"#;
    let content = r#"{"payload": "x", "qos": 1}"#;

    for (method, path, body) in [
        ("POST", "/publish", new),
        ("PUT", "/retained/%24SYS%2Fbroker%2Fversion", content),
        ("DELETE", "/retained/%24SYS%2Fbroker%2Fversion", ""),
        ("DELETE", "/retained?filter=$SYS/%23", ""),
    ] {
        owner.ask(method, path, body).is_problem(400, "$SYS/");
    }
    assert_eq!(
        owner.get("/retained?filter=$SYS/%23").json["items"][0]["topic"],
        serde_json::Value::Null
    );
    let other = owner.ask("POST", "/publish", r#"{"topic": "$mine/a", "qos": 1}"#);
    assert_eq!(other.status, 200);
}

#[test]
fn a_paused_listener_refuses_newcomers_and_keeps_its_clients() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    owner.until_loaded();
    let mut client = v5("c").connect(&served);
    let ready = || {
        let mut http = Http::unix(&home.folder(0).join("http"));
        http.get("/readyz").status
    };
    assert_eq!(ready(), 200);

    assert_eq!(owner.ask("POST", "/listeners/test/pause", "").status, 204);

    let mut newcomer = TcpStream::connect(served.broker.addresses()[0]).expect("connected");
    newcomer
        .set_read_timeout(Some(DEADLINE))
        .expect("a timeout");
    // The broker closes the socket, or resets it.
    assert_eq!(newcomer.read(&mut [0]).unwrap_or(0), 0);
    let stats = served.broker.stats();
    assert_eq!(
        (stats.connections_refused, stats.connections_refused_paused),
        (1, 1)
    );
    client.ping();
    let listener = &owner.read("/listeners")["listeners"][0];
    assert_eq!(listener["paused"], true);
    assert_eq!(listener["refused"], serde_json::json!({"paused": 1}));
    assert_eq!(ready(), 503);
    assert_eq!(owner.ask("POST", "/listeners/test/resume", "").status, 204);
    assert_eq!(ready(), 200);
    let _newcomer = v5("new").connect(&served);
    owner
        .ask("POST", "/listeners/none/pause", "")
        .is_problem(404, "none");
}

#[test]
fn figures_are_streamed_and_a_stop_ends_the_stream() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut http = Http::unix(&home.folder(0).join("http"));
    http.send("GET /api/v1/events?kinds=stats HTTP/1.1\r\nHost: localhost\r\n\r\n");

    let first = http.until("\n\n\r\n");
    assert!(first.contains("content-type: text/event-stream"), "{first}");
    assert!(first.contains("\"clients_connected\":0"), "{first}");
    let _client = v5("c").connect(&served);
    let mut changed = String::new();
    eventually("the connection is seen", || {
        changed = http.until("\n\n\r\n");
        changed.contains("\"clients_connected\":1")
    });
    assert!(!changed.contains("memory_budget_bytes"), "{changed}");

    served.broker.stop(DEADLINE);

    http.until_end();
}

/// Events that happen while a reader is away, and those of a broker that starts again.
#[test]
fn a_reader_that_comes_back_gets_the_events_that_it_missed() {
    let home = Home::new();
    let served = setup(&home).start();
    let come = |id: &str| {
        let mut http = Http::unix(&home.folder(0).join("http"));
        http.send(&format!(
            "GET /api/v1/events?kinds=client HTTP/1.1\r\nHost: localhost\r\n{id}\r\n"
        ));
        http.until("\r\n\r\n");
        http
    };
    let mut first = come("");
    let begin = first.until("\n\n\r\n");
    let id = begin.lines().find_map(|line| line.strip_prefix("id: "));
    let last = format!("Last-Event-ID: {}\r\n", id.expect("an id"));
    drop(first);
    let _client = v5("while-away").connect(&served);

    let seen = come(&last).until("\"connected\"");

    assert!(
        seen.contains("while-away") && !seen.contains("lost"),
        "{seen}"
    );
    let mut wrong = Http::unix(&home.folder(0).join("http"));
    wrong.send("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 7\r\n\r\n");
    let wrong = wrong.response().expect("a response");
    assert!(wrong.status == 400 && wrong.text().contains("Last-Event-ID"));
    served.broker.stop(DEADLINE);
    drop(served);

    let _served = setup(&home).start();

    let gone = come(&last).until("\n\n\r\n");
    assert!(
        gone.contains("event: lost\ndata: {\"lost\":null}"),
        "{gone}"
    );
}

/// Events of clients, lost messages and lines of the log, each with its reason.
#[test]
fn what_happens_is_streamed_to_those_who_want_it() {
    let home = Home::new();
    let mut setup = setup(&home);
    Arc::make_mut(&mut setup.config.limits).queue_disk_messages = 1;
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    owner
        .get("/events?kinds=logs")
        .is_problem(400, "did you mean");
    let open = |kinds: &str| {
        let mut http = Http::unix(&home.folder(0).join("http"));
        http.send(&format!(
            "GET /api/v1/events?kinds={kinds} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ));
        http.until("\r\n\r\n");
        http
    };
    let (mut clients, mut others) = (open("client"), open("drop,log"));

    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&served);
    away.subscribe("a", QoS::AtLeastOnce);
    away.disconnect();
    let mut publisher = v5("publisher").connect(&served);
    for _ in 0..3 {
        publisher.publish("a", b"x", QoS::AtLeastOnce);
    }
    drop(publisher);

    let until = |http: &mut Http, words: &[&str]| {
        let mut seen = String::new();
        eventually("the events are there", || {
            seen += &http.until("\n\n\r\n");
            words.iter().all(|word| seen.contains(word))
        });
        assert!(!seen.contains("event: stats"), "{seen}");
        seen
    };
    // `until` returns small letters.
    let lost = "the connection was lost, or closed without disconnect";
    let seen = until(
        &mut clients,
        &[
            "\"connected\"",
            "\"away\"",
            "the client sent disconnect",
            lost,
        ],
    );
    assert!(
        seen.contains("\"reason_code\":0") && !seen.contains("event: drop"),
        "{seen}"
    );
    let line = "client away at 127.0.0.1";
    let seen = until(
        &mut others,
        &[
            "event: drop",
            "event: log",
            "its queue is full",
            line,
            "\"class\":\"left\"",
        ],
    );
    assert!(
        seen.contains("\"count\":2") || seen.matches("event: drop").count() == 2,
        "{seen}"
    );
    assert!(!seen.contains("event: client"), "{seen}");
    // Who comes later gets the latest lines, too.
    until(&mut open("log"), &[line]);
}

#[test]
fn a_client_is_disconnected_with_a_failure_alone() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut client = v5("c").connect(&served);

    for reason in ["0x00", "0x04", "0x10", "0x85", "256", "x"] {
        owner
            .ask("DELETE", &format!("/clients/c?reason={reason}"), "")
            .is_problem(400, "reason");
    }
    client.ping();
}

/// It would end without a word when the client comes back.
#[test]
fn a_subscription_that_the_client_may_not_have_is_refused() {
    let home = Home::new();
    let mut setup = setup(&home);
    let listener = |name, subscribe: &str, mount_point: Option<&str>| Listener {
        anonymous: Some(Grant {
            subscribe: vec![subscribe.into()],
            deny: vec!["a/secret".into()],
            ..Grant::everything()
        }),
        mount_point: mount_point.map(|text| MountPoint::parse(text).expect("a mount point")),
        ..Listener::new(name, ([127, 0, 0, 1], 0).into())
    };
    setup.config.listeners = vec![
        listener("rules", "a/#", None),
        listener("mounted", "#", Some("plant/1")),
    ];
    Arc::make_mut(&mut setup.config.limits).topic.levels = 5;
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let kept = |id: &str| v5(id).keeping_session_s(HOUR_S);
    let mut ruled = kept("ruled").connect_at(&served, 0).0;
    let mut mounted = kept("mounted").connect_at(&served, 1).0;
    kept("away").connect_at(&served, 0).0.disconnect();
    eventually("it is away", || {
        owner.read("/clients/away")["connected"] == false
    });

    for (id, filter, status, word) in [
        ("ruled", "b", 409, "permissions"),
        ("ruled", "$share/g/b", 409, "permissions"),
        ("ruled", "a/secret", 409, "permissions"),
        ("ruled", "a/2/3/4/5/6", 400, "levels"),
        ("mounted", "x", 409, "plant/1"),
        ("mounted", "$share/g/plant/2/x", 409, "plant/1"),
        ("away", "a/1", 409, "not connected"),
    ] {
        let body = serde_json::json!({"filter": filter}).to_string();
        owner
            .ask("POST", &format!("/clients/{id}/subscriptions"), &body)
            .is_problem(status, word);
    }
    for (id, filter) in [("ruled", "a/1"), ("mounted", "plant/1/x")] {
        let body = serde_json::json!({"filter": filter}).to_string();
        let answer = owner.ask("POST", &format!("/clients/{id}/subscriptions"), &body);
        assert_eq!(answer.status, 201, "{}", answer.json);
    }
    ruled.publish("a/1", "1", QoS::AtMostOnce);
    ruled.publish("plant/1/x", "2", QoS::AtMostOnce);
    assert_eq!(ruled.take_message().topic, "a/1");
    assert_eq!(mounted.take_message().topic, "x");
}
