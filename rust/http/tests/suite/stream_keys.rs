//! Keys at the routes of streams, sink and reports: scopes, and streams of a key.

use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use serde_json::{Value, json};

use crate::api_caller::{Caller, key, setup};
use crate::client::{Http, Response};
use crate::common::{Home, eventually, v5};
use crate::served::{Served, Setup, stream};

const SCOPES: [&str; 6] = ["view", "payload", "operate", "admin", "rows", "publish"];
/// Method, path and scopes of each route; a caller needs one of the scopes.
const ROUTES: [(&str, &str, &[&str]); 13] = [
    ("GET", "/v1/streams", &["rows", "publish"]),
    ("GET", "/v1/streams/plant", &["rows", "publish"]),
    (
        "GET",
        "/v1/streams/plant/rows?partition=0&from=0&to=0",
        &["rows"],
    ),
    ("GET", "/v1/streams/plant/files", &["rows"]),
    ("GET", "/v1/streams/plant/files/none", &["rows"]),
    ("GET", "/v1/streams/plant/offsets?timestamp_us=0", &["rows"]),
    ("POST", "/v1/streams/plant/holds", &["rows"]),
    ("DELETE", "/v1/streams/plant/holds/none", &["operate"]),
    ("POST", "/v1/streams/plant/seal", &["operate"]),
    (
        "POST",
        "/v1/sink/stage?query=q&batch=0&stage=s",
        &["publish"],
    ),
    ("POST", "/v1/sink/commit", &["publish"]),
    ("POST", "/v1/sink/abort", &["publish"]),
    ("PUT", "/v1/spark/query", &["rows", "publish"]),
];

/// A broker with two streams.
fn plant(home: &Home) -> Setup {
    let streams = vec![stream("plant", "plant/#"), stream("secret", "secret/#")];
    Setup {
        streams,
        ..setup(home)
    }
}

/// A request over TCP with a key.
fn ask(served: &Served, secret: &str, method: &str, path: &str, body: &str) -> Response {
    ask_with(served, secret, method, path, body.as_bytes())
}

fn ask_with(served: &Served, secret: &str, method: &str, path: &str, body: &[u8]) -> Response {
    let mut http = Http::tcp(served.endpoint.address().expect("a TCP address"));
    let length = body.len();
    http.send(&format!(
        "{method} {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {secret}\r\nContent-Length: {length}\r\n\r\n"
    ));
    http.send_bytes(body);
    http.response().expect("a response")
}

/// One row for the sink, as an Arrow IPC stream.
fn rows_of(topic: &str) -> Vec<u8> {
    let topics: ArrayRef = Arc::new(StringArray::from(vec![topic]));
    let payloads: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..]]));
    let batch = RecordBatch::try_from_iter([("topic", topics), ("payload", payloads)]);
    let batch = batch.expect("a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
    writer.write(&batch).expect("written");
    writer.into_inner().expect("a stream")
}

/// The secret of a key that reads rows of `streams` only.
fn reader(owner: &mut Caller, streams: &[&str]) -> String {
    let body = json!({"name": "reader", "scopes": ["rows"], "streams": streams}).to_string();
    let answer = owner.ask("POST", "/keys", &body);
    assert_eq!(answer.status, 201, "{}", answer.json);
    answer.json["secret"].as_str().expect("a secret").to_owned()
}

#[test]
fn each_route_of_streams_is_for_those_who_have_one_of_its_scopes() {
    let home = Home::new();
    let served = plant(&home).start();
    let mut owner = Caller::owner(&home);

    for scope in SCOPES {
        let secret = key(&mut owner, scope, &[scope]);
        for (method, path, scopes) in ROUTES {
            let answer = ask(&served, &secret, method, path, "");
            if scopes.contains(&scope) {
                assert!(
                    ![401, 403, 405, 500].contains(&answer.status),
                    "{scope}: {method} {path}: {} {}",
                    answer.status,
                    answer.text()
                );
                continue;
            }
            let lacking = scopes.iter().map(|name| format!("{name:?}"));
            let lacking = lacking.collect::<Vec<_>>().join(" or ");
            let error: Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(
                (answer.status, &error["code"]),
                (403, &json!("scope")),
                "{scope}: {method} {path}"
            );
            assert_eq!(
                error["error"],
                format!(
                    "key {scope:?} lacks the scope {lacking}: use a key whose scopes in http.keys_file have it"
                )
            );
        }
    }
}

/// The table of routes in docs/operations.md is that of these tests.
#[test]
fn the_documentation_lists_the_routes_of_streams_with_their_scopes() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let docs = fs::read_to_string(docs).expect("the documentation");

    for (method, path, scopes) in ROUTES {
        let path = path.split('?').next().unwrap_or_default();
        let path = path
            .replace("plant", "{name}")
            .replace("files/none", "files/{file}")
            .replace("holds/none", "holds/{consumer}")
            .replace("spark/query", "spark/{query}");
        let row = format!("| {method} | `{path}` | {} |", scopes.join(" or "));
        assert!(docs.contains(&row), "docs/operations.md lacks {row}");
    }
}

#[test]
fn a_key_of_some_streams_reaches_no_other() {
    let home = Home::new();
    let served = plant(&home).start();
    let secret = reader(&mut Caller::owner(&home), &["plant", "later"]);

    let listed = ask(&served, &secret, "GET", "/v1/streams", "");

    let listed: Value = serde_json::from_slice(&listed.body).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["name"], "plant");
    for (path, status, word) in [
        ("/v1/streams/plant", 200, "plant"),
        ("/v1/streams/secret", 403, "lacks the stream \\\"secret\\\""),
        ("/v1/streams/secret/files", 403, "http.keys_file"),
        // The answer does not tell whether the stream exists.
        ("/v1/streams/nothing", 403, "lacks the stream"),
        ("/v1/streams/later", 404, "later"),
    ] {
        let answer = ask(&served, &secret, "GET", path, "");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().contains(word), "{path}: {}", answer.text());
    }
    let keys = Caller::owner(&home).read("/keys");
    assert_eq!(keys["items"][0]["streams"], json!(["plant", "later"]));
}

#[test]
fn a_key_that_reads_rows_cannot_move_the_holds_of_others() {
    let home = Home::new();
    let served = plant(&home).start();
    v5("device")
        .connect(&served)
        .publish_acknowledged("plant/1", "x");
    let secret = reader(&mut Caller::owner(&home), &["plant"]);
    let mut owner = Http::unix(&home.folder(0).join("http"));
    eventually("the row is seen", || {
        let found = owner.get("/v1/streams/plant");
        found.text().contains(r#""end":1"#)
    });
    let holds = "/v1/streams/plant/holds";
    let placed = owner.request("POST", holds, r#"{"consumer":"etl","offsets":[0]}"#);
    assert_eq!(placed.status, 200, "{}", placed.text());

    let body = r#"{"consumer":"etl","offsets":[1]}"#;
    let own = ask(&served, &secret, "POST", holds, body);

    assert_eq!(own.status, 200, "{}", own.text());
    for (consumer, status) in [
        ("etl", 200),
        ("etl", 404),
        ("key%20%22reader%22%3A%20etl", 200),
    ] {
        let ended = owner.request("DELETE", &format!("{holds}/{consumer}"), "");
        assert_eq!(ended.status, status, "{consumer}: {}", ended.text());
    }
}

/// A reader that makes up names cannot fill the file of the holds.
#[test]
fn a_key_has_256_consumers_of_a_stream_at_most() {
    let home = Home::new();
    let served = plant(&home).start();
    let mut owner = Caller::owner(&home);
    let [one, two] = ["one", "one more"].map(|name| key(&mut owner, name, &["rows"]));
    let hold = |secret: &str, stream: &str, consumer: usize| {
        let body = json!({"consumer": consumer.to_string(), "offsets": [0]}).to_string();
        let path = format!("/v1/streams/{stream}/holds");
        ask(&served, secret, "POST", &path, &body)
    };

    for consumer in 0..256 {
        let placed = hold(&one, "plant", consumer);
        assert_eq!(placed.status, 200, "{}", placed.text());
    }
    let refused = hold(&one, "plant", 256);

    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("at most 256 consumers"));
    for renewed in [
        hold(&one, "plant", 7),
        hold(&one, "secret", 256),
        hold(&two, "plant", 256),
    ] {
        assert_eq!(renewed.status, 200, "{}", renewed.text());
    }
}

/// Two users gave their queries the same name: neither commits a batch of the other one, or takes its stages.
#[test]
fn queries_of_the_sink_belong_to_a_key() {
    let home = Home::new();
    let served = plant(&home).start();
    let mut owner = Caller::owner(&home);
    let keys = ["one", "two"].map(|name| key(&mut owner, name, &["publish"]));
    let both = ["three", "four"].map(|name| key(&mut owner, name, &["publish", "operate"]));
    let commit = |secret: &str, batch: u64, stages: &str| {
        let body = format!(r#"{{"query":"etl","batch":{batch},"stages":{stages}}}"#);
        let answer = ask(&served, secret, "POST", "/v1/sink/commit", &body);
        (answer.status, answer.text().to_owned())
    };
    let committed = |is: bool| (200, format!(r#"{{"committed":{is}}}"#));

    assert_eq!(commit(&keys[0], 900, "[]"), committed(true));
    assert_eq!(commit(&keys[1], 3, "[]"), committed(true));
    assert_eq!(commit(&keys[1], 3, "[]"), committed(false));
    assert_eq!(commit(&keys[0], 900, "[]"), committed(false));
    // Those who may operate the broker share their queries.
    assert_eq!(commit(&both[0], 5, "[]"), committed(true));
    assert_eq!(commit(&both[1], 5, "[]"), committed(false));

    let path = "/v1/sink/stage?query=etl&batch=901&stage=s";
    let staged = ask_with(&served, &keys[0], "POST", path, &rows_of("out/1"));
    assert_eq!(staged.status, 200, "{}", staged.text());
    let (status, text) = commit(&keys[1], 901, r#"["s"]"#);
    assert_eq!(status, 409, "{text}");
    assert_eq!(commit(&keys[0], 901, r#"["s"]"#), committed(true));
}

#[test]
fn an_address_with_keys_and_no_token_asks_for_a_key() {
    let home = Home::new();
    let mut setup = plant(&home);
    if let Some(tcp) = &mut setup.http.tcp {
        tcp.token = None;
    }
    let served = setup.start();
    let status = |secret| ask(&served, secret, "GET", "/v1/streams", "").status;
    assert_eq!(status("mq_wrong"), 403);

    let secret = reader(&mut Caller::owner(&home), &["plant"]);

    assert_eq!((status("mq_wrong"), status(&secret)), (401, 200));
}
