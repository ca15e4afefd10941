//! Traces over the HTTP API (ADR 0058). `tests/operations/test_traces.py` compares their packets with those on the wire.

use mqttcore_broker::Grant;
use mqttcore_codec::{QoS, ReasonCode};
use serde_json::{Value, json};

use crate::api_caller::{Answer, Caller, key, setup};
use crate::client::Http;
use crate::common::{Home, Plugin, allow, challenge, end, eventually, v3, v5};
use crate::served::Served;

const JWT: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2lnbmF0dXJl";

/// Starts a trace; returns its path.
fn trace(owner: &mut Caller, body: &Value) -> String {
    let answer = owner.ask("POST", "/traces", &body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.json);
    format!("/traces/{}", answer.json["id"].as_str().expect("an id"))
}

/// The lines of a trace.
fn lines(owner: &mut Caller, trace: &str) -> Vec<Value> {
    let answer = owner.get(&format!("{trace}/file?format=json"));
    assert_eq!(answer.status, 200);
    let lines = answer.response.text().lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Waits until the trace has a line with this packet.
fn until(owner: &mut Caller, trace: &str, packet: &str) -> Vec<Value> {
    let mut found = Vec::new();
    eventually("the packet is in the trace", || {
        found = lines(owner, trace);
        found.iter().any(|line| line["packet"] == packet)
    });
    found
}

/// Direction and packet, or note, of each line.
fn story(lines: &[Value]) -> Vec<String> {
    let text = |line: &Value| {
        let what = line["packet"].as_str().or(line["note"].as_str());
        format!(
            "{} {}",
            line["dir"].as_str().unwrap_or("?"),
            what.unwrap_or("?")
        )
    };
    lines.iter().map(text).collect()
}

/// An exchange with the method `m`: the right answer is `right secret`.
fn exchanging() -> Plugin {
    Plugin::welcoming().method("m", |said, reply| {
        reply.send(match said.step {
            0 => challenge("secret question"),
            _ => end(allow(Grant::everything()), "secret end"),
        });
    })
}

fn start(home: &Home) -> (Served, Caller) {
    let mut setup = setup(home);
    setup.config.listeners[0].anonymous = None;
    let served = setup.try_start_with(exchanging()).expect("it starts");
    (served, Caller::owner(home))
}

#[test]
fn an_exchange_of_auth_is_in_the_trace_and_no_secret_is_in_any_format() {
    let home = Home::new();
    let (served, mut owner) = start(&home);
    let all = trace(&mut owner, &json!({"payload": "all"}));

    let mut client = v5("one").method("m", "secret hello").dial(&served);
    client.receive();
    client.auth(ReasonCode::CONTINUE_AUTHENTICATION, "right secret");
    client.expect_welcome();
    client.publish("a", format!("token {JWT}"), QoS::AtMostOnce);
    client.ping();
    let mut other = v3("two")
        .username(JWT)
        .password("secret word")
        .connect(&served);
    other.ping();
    other.disconnect();
    let lines = until(&mut owner, &all, "DISCONNECT");

    let of_one: Vec<_> = lines
        .iter()
        .filter(|line| line["client_id"] == "one" && line["dir"] != "broker")
        .cloned()
        .collect();
    let expected = [
        "in CONNECT",
        "out AUTH",
        "in AUTH",
        "out CONNACK",
        "in PUBLISH",
        "in PINGREQ",
        "out PINGRESP",
    ];
    assert_eq!(story(&of_one), expected);
    let properties = &of_one[2]["fields"]["properties"];
    assert_eq!(properties["authentication_method"], "m");
    assert_eq!(properties["authentication_data"], "***");
    let payload = format!("token {}", "*".repeat(JWT.len()));
    assert_eq!(of_one[4]["fields"]["payload"], payload);
    for format in ["json", "text", "pcapng"] {
        let file = owner.get(&format!("{all}/file?format={format}"));
        assert_eq!(file.status, 200);
        for secret in ["secret", "eyJ"] {
            let bytes = &file.response.body;
            let has = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!has, "{secret} in {format}");
        }
    }
}

#[test]
fn conditions_choose_clients_topics_and_addresses() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let traces = [
        json!({"client_id": "plc-*"}),
        json!({"topic": "plant/+/temp"}),
        json!({"client_id": "plc-1", "topic": "plant/#"}),
        json!({"username": "nobody"}),
        json!({"ip": "127.0.0.0/8"}),
        json!({"ip": "10.0.0.0/8"}),
    ]
    .map(|condition| trace(&mut owner, &json!({"where": condition})));

    for (id, topic) in [
        ("plc-1", "plant/1/temp"),
        ("plc-2", "plant/2/speed"),
        ("hmi", "x"),
    ] {
        let mut client = v5(id).connect(&served);
        client.subscribe(topic, QoS::AtMostOnce);
        client.publish(topic, "21", QoS::AtMostOnce);
        client.message();
        client.disconnect();
    }
    let all = &traces[4];
    eventually("all have left", || {
        let lines = lines(&mut owner, all);
        let left = lines.iter().filter(|line| line["packet"] == "DISCONNECT");
        left.count() == 3
    });

    let seen = traces.each_ref().map(|trace| {
        let lines = lines(&mut owner, trace);
        let packets = lines.iter().filter(|line| line["dir"] != "broker");
        packets.count()
    });
    // CONNECT, CONNACK, SUBSCRIBE, SUBACK, two PUBLISH and DISCONNECT of each client.
    assert_eq!(seen, [14, 3, 3, 0, 21, 0]);
    let of_topic = lines(&mut owner, &traces[1]);
    let notes = of_topic.iter().filter(|line| line["dir"] == "broker");
    assert!(notes.clone().all(|line| line["topic"] == "plant/1/temp"));
    assert!(notes.count() > 0, "the subscription is an event");
}

#[test]
fn what_the_broker_does_with_a_client_is_in_its_trace() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let trace = trace(&mut owner, &json!({"where": {"client_id": "one"}}));

    let first = v5("one").connect(&served);
    let mut second = v5("one").connect(&served);
    // A PUBLISH with QoS 3.
    second.send_bytes(&[0x36, 3, 0, 1, b'a']);
    second.until_closed();
    drop(first);
    let mut found = Vec::new();
    eventually("the end is in the trace", || {
        found = story(&lines(&mut owner, &trace));
        found
            .iter()
            .filter(|line| *line == "out DISCONNECT")
            .count()
            == 2
    });

    for line in [
        "broker connected",
        "broker session_taken_over",
        "broker disconnected: another connection took the session over (0x8E Session taken over)",
        "broker disconnected: a packet of the client is malformed (0x81 Malformed Packet)",
    ] {
        assert!(found.iter().any(|found| found == line), "{line}: {found:?}");
    }
    let is_fault = |line: &String| {
        line.starts_with("broker the broker disconnects it: ") && line.contains("0x81")
    };
    assert!(found.iter().any(is_fault), "{found:?}");
    assert!(served.stats().takeovers > 0);
}

#[test]
fn the_oldest_packets_of_a_flood_make_room_and_are_counted() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let body = json!({"payload": "all", "bytes": 65_536, "where": {"client_id": "flood"}});
    let by_bytes = trace(&mut owner, &body);
    let by_count = trace(
        &mut owner,
        &json!({"packets": 10, "where": {"client_id": "flood"}}),
    );

    let mut client = v3("flood").connect(&served);
    for number in 0..2_000 {
        client.publish("a", format!("{number:01000}"), QoS::AtMostOnce);
    }
    client.publish("a", vec![b'x'; 100_000], QoS::AtMostOnce);
    client.ping();

    let status = owner.read(&by_bytes);
    let number = |name: &str| status[name].as_u64().expect("a number");
    assert!(
        number("bytes") <= 65_536 && number("dropped") > 1_900,
        "{status}"
    );
    assert_eq!(number("packets") + number("dropped"), number("last"));
    let lines = lines(&mut owner, &by_bytes);
    assert_eq!(
        lines[0]["lost"],
        lines[1]["number"].as_u64().expect("a number") - 1
    );
    // The large one does not fit at all.
    let lost: Vec<_> = lines
        .iter()
        .filter_map(|line| line["lost"].as_u64())
        .collect();
    assert_eq!(lost.len(), 2);
    assert_eq!(lost[1], 1);
    assert_eq!(owner.read(&by_count)["packets"], 10);
}

/// The events of a stream up to its end.
fn events(http: &mut Http) -> String {
    http.until("event: end\ndata: {}\n\n")
}

#[test]
fn a_stream_has_each_packet_and_says_what_is_missing_and_that_it_ends() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let body = json!({"packets": 10, "where": {"client_id": "one"}});
    let path = trace(&mut owner, &body);
    let mut client = v5("one").connect(&served);
    (0..20).for_each(|_| client.ping());

    let mut stream = Http::unix(&home.folder(0).join("http"));
    stream.send(&format!(
        "GET /api/v1{path}/live?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    let begin = stream.until("\"packet\":\"PINGRESP\"");
    let answer = owner.ask("DELETE", &format!("{path}?keep=true"), "");
    assert_eq!(answer.status, 204);
    let rest = events(&mut stream);

    assert!(begin.contains("content-type: text/event-stream"), "{begin}");
    let last = owner.read(&path)["last"].as_u64().expect("a number");
    assert!(
        begin.contains(&format!("event: lost\ndata: {{\"lost\":{}}}", last - 10)),
        "{begin}"
    );
    let ids: Vec<_> = [begin, rest]
        .concat()
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok())
        .collect();
    let expected: Vec<u64> = (last - 9..=last).collect();
    assert_eq!(ids, expected);
    let again = |id: &str| {
        let mut stream = Http::unix(&home.folder(0).join("http"));
        stream.send(&format!(
            "GET /api/v1{path}/live?after=0 HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {id}\r\n\r\n"
        ));
        stream
    };
    let rest = events(&mut again(&(last - 1).to_string()));
    assert!(rest.contains(&format!("id: {last}\n")), "{rest}");
    assert_eq!(rest.matches("event: packet\n").count(), 1, "{rest}");
    let refused = again("x").response().expect("a response");
    assert!(refused.status == 400 && refused.text().contains("Last-Event-ID"));
    assert_eq!(owner.read(&path)["active"], false);
    assert_eq!(owner.ask("DELETE", &path, "").status, 204);
    owner.get(&path).is_problem(404, "no such trace");
}

#[test]
fn a_reader_that_does_not_read_slows_nobody_down_and_misses_packets() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let body = json!({"packets": 100, "payload": "all", "where": {"client_id": "one"}});
    let path = trace(&mut owner, &body);
    let mut stream = Http::unix(&home.folder(0).join("http"));
    stream.send(&format!(
        "GET /api/v1{path}/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    stream.until(": packets of a trace\n\n");

    let mut client = v3("one").connect(&served);
    for _ in 0..200 {
        for _ in 0..20 {
            client.publish("a", vec![b'x'; 4_000], QoS::AtMostOnce);
        }
        client.ping();
    }
    client.disconnect();
    until(&mut owner, &path, "DISCONNECT");
    owner.ask("DELETE", &path, "");

    let seen = events(&mut stream);
    let mut lost = 0;
    let mut lines = seen.lines();
    while let Some(line) = lines.next() {
        if line == "event: lost" {
            let data = lines.next().and_then(|line| line.strip_prefix("data: "));
            let data: Value = serde_json::from_str(data.expect("data")).expect("JSON");
            lost += data["lost"].as_u64().expect("a number");
        }
    }
    assert!(lost > 1_000, "{lost}");
    let packets = seen.matches("event: packet\n").count() as u64;
    assert!(lost + packets > 4_000, "{lost} + {packets}");
}

#[test]
fn the_stream_of_a_revoked_key_ends() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let path = trace(&mut owner, &json!({}));
    let secret = key(&mut owner, "reader", &["operate", "payload"]);
    let mut stream = Http::tcp(served.endpoint.address().expect("an address"));
    stream.send(&format!(
        "GET /api/v1{path}/live HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {secret}\r\n\r\n"
    ));
    stream.until(": packets of a trace\n\n");

    assert_eq!(owner.ask("DELETE", "/keys/reader", "").status, 204);

    // The last chunk.
    stream.until("\r\n0\r\n\r\n");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let refused = |answer: Answer, status, word| answer.is_problem(status, word);

    for (body, word) in [
        (json!({"where": {"client": "x"}}), "client_id"),
        (json!({"where": {"client_id": ""}}), "1 to 256 bytes"),
        (json!({"where": {"ip": "10.0.0.0/40"}}), "10.0.0.0/8"),
        (json!({"where": {"topic": "a/#/b"}}), "plant/+/temperature"),
        (json!({"for_s": 0}), "1 to 86400"),
        (json!({"for_s": 86_401}), "1 to 86400"),
        (json!({"bytes": 1}), "65536 to 1073741824"),
        (json!({"packets": 1_000_001}), "1 to 1000000"),
        (json!({"payload": "head:0"}), "head:64"),
        (json!({"name": "x".repeat(257)}), "256 bytes"),
        (json!({"duration": 1}), "for_s"),
    ] {
        refused(owner.ask("POST", "/traces", &body.to_string()), 400, word);
    }
    assert_eq!(owner.read("/traces")["items"], json!([]));
    let path = trace(
        &mut owner,
        &json!({"bytes": 1_u64 << 30, "name": "all of it"}),
    );
    refused(
        owner.ask("POST", "/traces", "{}"),
        409,
        "DELETE /api/v1/traces",
    );
    refused(
        owner.get(&format!("{path}/file?format=pcap")),
        400,
        "pcapng",
    );
    refused(owner.get(&format!("{path}/live?after=x")), 400, "after");
    refused(owner.get("/traces/none/file"), 404, "GET /api/v1/traces");
    refused(owner.get("/traces/none/live"), 404, "an hour after");
    let status = owner.read("/traces");
    assert_eq!(status["items"][0]["name"], "all of it");
}

#[test]
fn starts_and_ends_are_in_the_audit_log() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let body = json!({"name": "mine", "for_s": 60, "where": {"client_id": "plc-*"}});
    let path = trace(&mut owner, &body);
    owner.ask("DELETE", &path, "");

    let folder = home.folder(0).join("audit");
    let files = std::fs::read_dir(folder).expect("a folder").flatten();
    let text: String = files
        .filter_map(|file| std::fs::read_to_string(file.path()).ok())
        .collect();
    for part in [
        "POST /traces",
        "plc-*",
        "mine",
        "DELETE /traces/{id}",
        &path,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
