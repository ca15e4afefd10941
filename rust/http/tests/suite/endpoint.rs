//! The endpoint of streams: who may ask, and what bad or slow peers get.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use mqttcore_codec::QoS;
use mqttcore_http::{HttpLimits, HttpListener, HttpOptions, MetricsAccess};
use serde_json::Value;

use crate::client::Http;
use crate::common::{Home, eventually, figure, v5, within};
use crate::served::{self, Setup, stream};

const TOKEN: &str = "a token of a test, 32 characters";

/// A broker with a stream, and its endpoint.
struct Served {
    broker: served::Served,
    home: Home,
}

fn plant(home: &Home) -> Setup {
    Setup::new(home, vec![stream("plant", "plant/#")])
}

impl Served {
    fn new() -> Self {
        Self::with_limits(HttpLimits::default())
    }

    fn with_limits(limits: HttpLimits) -> Self {
        let home = Home::new();
        let tcp = Some(HttpListener {
            address: ([127, 0, 0, 1], 0).into(),
            token: Some(TOKEN.into()),
            metrics: MetricsAccess::Token,
            tls: None,
        });
        let setup = Setup {
            http: HttpOptions {
                tcp,
                limits,
                ..HttpOptions::default()
            },
            ..plant(&home)
        };
        let broker = setup.start();
        Self { broker, home }
    }

    fn socket(&self) -> PathBuf {
        self.home.folder(0).join("streams/endpoint.sock")
    }

    fn unix(&self) -> Http {
        Http::unix(&self.socket())
    }

    fn tcp_from(&self, source: [u8; 4]) -> Http {
        Http::tcp_from(
            source,
            self.broker.endpoint.address().expect("a TCP address"),
        )
    }

    fn tcp(&self) -> Http {
        Http::tcp(self.broker.endpoint.address().expect("a TCP address"))
    }
}

/// Of an Arrow IPC stream: metadata of 1 MiB follow, which are no batch before they are whole.
#[test]
fn a_batch_that_is_being_received_counts_as_memory() {
    const SENT: usize = 500_000;
    let served = Served::new();
    let tables = || usize::try_from(served.broker.stats().memory_tables_bytes).expect("it fits");
    let before = tables();
    let mut http = served.unix();
    let length = SENT + 1;

    http.send(&format!(
        "POST /v1/sink/stage?query=q&batch=0&stage=s HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n"
    ));
    let mut metadata = [[0xff; 4], (1_u32 << 20).to_le_bytes()].concat();
    metadata.resize(SENT, 0);
    http.send_bytes(&metadata);

    eventually("the bytes are counted", || tables() >= before + SENT);
    drop(http);
    eventually("they are gone", || tables() < before + SENT / 2);
}

#[test]
fn streams_are_listed_on_the_unix_socket_which_is_its_users_alone() {
    let served = Served::new();

    let listed = served.unix().get("/v1/streams");

    assert_eq!(listed.status, 200);
    assert!(listed.text().starts_with(r#"[{"epoch":""#));
    assert!(
        listed
            .text()
            .ends_with(r#","name":"plant","partitions":1}]"#)
    );
    let file = fs::metadata(served.socket()).expect("a socket");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_socket_that_a_dead_broker_left_is_replaced() {
    let served = Served::new();
    fs::remove_file(served.socket()).expect("removed");
    served.broker.stop(Duration::ZERO);
    fs::write(served.socket(), "left over").expect("written");

    let broker = plant(&served.home).start();

    assert_eq!(served.unix().get("/v1/streams").status, 200);
    assert_eq!(broker.endpoint.address(), None);
}

#[test]
fn a_broker_without_streams_has_no_endpoint() {
    let home = Home::new();
    let broker = Setup::new(&home, Vec::new()).start();

    assert!(!home.folder(0).join("streams/endpoint.sock").exists());
    assert_eq!(broker.endpoint.address(), None);
}

#[test]
fn tcp_is_for_those_who_bring_the_token() {
    let served = Served::new();
    let with = |header: &str| {
        let mut http = served.tcp();
        http.send(&format!(
            "GET /v1/streams HTTP/1.1\r\nHost: t\r\n{header}\r\n"
        ));
        let response = http.response().expect("a response");
        if response.status == 401 {
            assert!(http.is_closed());
            assert!(response.headers.contains("www-authenticate: bearer"));
            assert!(response.text().contains(r#""code":"unauthorized""#));
        }
        response.status
    };

    assert_eq!(with(&format!("Authorization: Bearer {TOKEN}\r\n")), 200);
    assert_eq!(with(&format!("authorization: bearer {TOKEN}\r\n")), 200);
    let wrong = TOKEN.replace('3', "4");
    for header in [
        String::new(),
        format!("Authorization: Bearer {wrong}\r\n"),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        format!("Authorization: Bearer {}\r\n", &TOKEN[1..]),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Authorization: Bearer {wrong}\r\nAuthorization: Bearer {TOKEN}\r\n"),
        "Authorization: \r\n".into(),
    ] {
        assert_eq!(with(&header), 401, "{header}");
    }
}

#[test]
fn a_wrong_request_is_refused_with_a_code_and_a_text() {
    let served = Served::new();
    let mut http = served.unix();

    for (method, target, status, code) in [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/streams/nothing", 404, "unknown_stream"),
        ("GET", "/v1/streams/plant/rows", 400, "bad_request"),
        (
            "GET",
            "/v1/streams/plant/rows?partition=0&from=-1&to=1",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/streams/plant/rows?partition=0&from=2&to=1",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/streams/plant/rows?partition=0&from=0&to=0&x",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/streams/plant/rows?partition=7&from=0&to=0",
            404,
            "unknown_partition",
        ),
        (
            "GET",
            "/v1/streams/plant/rows?partition=0&from=0&to=9",
            416,
            "beyond",
        ),
        ("GET", "/v1/streams/%ff", 400, "bad_request"),
        ("PUT", "/v1/streams", 405, "method"),
        ("GET", "/v1/streams/plant/seal", 405, "method"),
        ("POST", "/v1/streams/plant/holds", 400, "bad_request"),
        ("DELETE", "/v1/streams/plant/holds/nobody", 404, "not_held"),
        ("POST", "/v1/spark/factory.gold", 405, "method"),
        ("PUT", "/v1/spark/factory.gold", 400, "bad_request"),
    ] {
        let response = http.request(method, target, "");
        let text = response.text();
        assert_eq!(response.status, status, "{method} {target}: {text}");
        assert!(
            text.contains(&format!(r#""code":"{code}""#)),
            "{target}: {text}"
        );
        assert!(text.contains(r#""error":""#), "{target}: {text}");
    }
}

#[test]
fn the_report_of_a_query_is_in_sys_topics() {
    let home = Home::new();
    let mut setup = plant(&home);
    setup.config.sys_interval = Some(Duration::from_millis(50));
    let broker = setup.start();
    let mut watcher = v5("watcher").connect(&broker);
    watcher.subscribe("$SYS/spark/#", QoS::AtMostOnce);
    let mut http = Http::unix(&home.folder(0).join("streams/endpoint.sock"));

    for name in ["a%2Fb", "%2B", &"x".repeat(129)] {
        let refused = http.request("PUT", &format!("/v1/spark/{name}"), "{}");
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
    }
    let told = http.request("PUT", "/v1/spark/factory.gold", r#"{ "rows": 7 }"#);
    assert_eq!(told.status, 200, "{}", told.text());

    let message = watcher.take_message();
    assert_eq!(message.topic, "$SYS/spark/factory.gold");
    assert_eq!(message.payload, br#"{"rows":7}"#);
    let mut later = v5("later").connect(&broker);
    later.subscribe("$SYS/spark/+", QoS::AtMostOnce);
    assert!(later.take_message().retain);
    let mut api = Http::unix(&home.folder(0).join("http"));
    let listed: Value = serde_json::from_str(api.get("/api/v1/queries").text()).expect("JSON");
    assert_eq!(listed["items"][0]["query"], "factory.gold");
    assert_eq!(listed["items"][0]["report"]["rows"], 7);
    assert!(listed["items"][0]["reported_at_ms"].as_u64() <= listed["as_of_ms"].as_u64());
}

#[test]
fn headers_and_bodies_have_a_size() {
    let served = Served::new();
    let mut http = served.unix();
    http.send(&format!(
        "GET /v1/streams HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n",
        "x".repeat(20_000)
    ));
    assert_eq!(http.response().expect("a response").status, 431);

    for length in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let mut http = served.unix();
        http.send(&format!(
            "POST /v1/streams/plant/holds HTTP/1.1\r\nHost: t\r\n{length}\r\n\r\n"
        ));
        if length.contains("chunked") {
            http.send(&format!("60000\r\n{}", "x".repeat(300_000)));
        }
        let response = http.response().expect("a response");
        assert_eq!(response.status, 413);
        assert!(response.text().contains(r#""code":"too_large""#));
    }
}

#[test]
fn slow_peers_are_sent_away() {
    let served = Served::with_limits(HttpLimits {
        header_deadline: Duration::from_millis(50),
        body_deadline: Duration::from_millis(50),
        ..HttpLimits::default()
    });

    let mut silent = served.unix();
    assert!(silent.is_closed());

    let mut slow = served.unix();
    slow.send("GET /v1/streams HTTP/1.1\r\nHost:");
    let response = slow.response();
    assert!(response.is_none_or(|response| response.status == 408));
    assert!(slow.is_closed());

    let mut halting = served.unix();
    halting.send("POST /v1/streams/plant/holds HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n{");
    let response = halting.response().expect("a response");
    assert_eq!(response.status, 408);
    assert!(halting.is_closed());
}

#[test]
fn one_socket_takes_a_limited_number_and_the_other_stays_open() {
    let served = Served::with_limits(HttpLimits {
        connections: 2,
        ..HttpLimits::default()
    });
    let ask = "GET /v1/streams HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer none\r\n";
    let mut inside = [served.tcp(), served.tcp()];
    for http in &mut inside {
        http.send(ask);
    }

    let mut third = served.tcp();
    assert!(third.is_closed());
    assert_eq!(served.unix().get("/v1/streams").status, 200);

    drop(inside);
    eventually("a place is free again", || {
        let mut http = served.tcp();
        http.send(ask);
        http.send("\r\n");
        http.response().is_some()
    });
}

#[test]
fn one_address_cannot_take_the_places_of_others() {
    let served = Served::with_limits(HttpLimits {
        connections: 4,
        address_connections: 3,
        ..HttpLimits::default()
    });
    let ask = format!("GET /v1/streams HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {TOKEN}\r\n");
    let mut greedy: Vec<Http> = (0..3).map(|_| served.tcp_from([127, 0, 0, 2])).collect();
    for http in &mut greedy {
        http.send(&ask);
    }

    assert!(served.tcp_from([127, 0, 0, 2]).is_closed());

    let mut honest = served.tcp_from([127, 0, 0, 3]);
    honest.send(&format!("{ask}\r\n"));
    assert_eq!(honest.response().expect("a response").status, 200);
    assert_eq!(
        figure(&served.broker, "http_connections_refused_address"),
        1
    );
    assert_eq!(figure(&served.broker, "http_connections_refused"), 0);
    greedy.pop();
    eventually("a place of its share is free again", || {
        let mut http = served.tcp_from([127, 0, 0, 2]);
        http.try_send(&format!("{ask}\r\n")) && http.response().is_some()
    });
}

#[test]
fn addresses_that_hold_all_places_lose_one_to_a_newcomer() {
    let served = Served::with_limits(HttpLimits {
        connections: 4,
        address_connections: 3,
        ..HttpLimits::default()
    });
    let ask =
        format!("GET /v1/streams HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let mut reader = served.tcp_from([127, 0, 0, 2]);
    reader.send(&ask);
    assert_eq!(reader.response().expect("a response").status, 200);
    let mut silent: Vec<Http> = (0..3).map(|_| served.tcp_from([127, 0, 0, 3])).collect();
    for http in &mut silent {
        http.send("GET /v1/streams HTTP/1.1\r\n");
    }

    eventually("a newcomer is served", || {
        let mut newcomer = served.tcp_from([127, 0, 0, 4]);
        let response = newcomer.try_send(&ask).then(|| newcomer.response());
        response
            .flatten()
            .is_some_and(|response| response.status == 200)
    });

    assert!(silent[0].is_closed());
    reader.send(&ask);
    assert_eq!(reader.response().expect("a response").status, 200);
}

#[test]
fn an_open_connection_does_not_keep_a_broker_from_stopping() {
    let served = Served::new();
    let mut idle = served.unix();
    assert_eq!(idle.get("/v1/streams").status, 200);
    let mut unfinished = served.unix();
    unfinished
        .send("POST /v1/streams/plant/holds HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n");

    let broker = served.broker;
    within(Duration::from_secs(20), "the broker stops", move || {
        broker.stop(Duration::from_millis(50));
    });

    assert!(idle.is_closed());
    assert!(unfinished.is_closed());
}

impl Served {
    /// Seals some rows; answers with the name of their file.
    fn sealed_file(&self) -> String {
        let mut publisher = v5("publisher").connect(&self.broker);
        for number in 0..200 {
            publisher.publish_acknowledged("plant/1", format!("payload {number}"));
        }
        eventually("all rows are there", || {
            figure(&self.broker, "stream_rows") == 200
        });
        let sealed = self.unix().request("POST", "/v1/streams/plant/seal", "");
        assert_eq!(sealed.status, 200, "{}", sealed.text());
        let files = self.unix().get("/v1/streams/plant/files");
        let files: Value = serde_json::from_slice(&files.body).expect("JSON");
        assert_eq!(files["partitions"][0][0]["last"], 199);
        let name = files["partitions"][0][0]["file"].as_str().expect("a name");
        name.to_owned()
    }
}

#[test]
fn a_file_of_rows_is_served_whole_and_in_parts() {
    let served = Served::new();
    let name = served.sealed_file();
    let on_disk = fs::read(served.home.folder(0).join("streams/plant/data").join(&name));
    let on_disk = on_disk.expect("a file");
    let mut http = served.unix();
    let target = format!("/v1/streams/plant/files/{name}");

    let whole = http.get(&target);
    assert_eq!(whole.status, 200);
    assert_eq!(whole.body, on_disk);
    let tag = whole.header("etag").expect("a tag").to_owned();

    let mut part = |headers: &str| {
        http.send(&format!(
            "GET {target} HTTP/1.1\r\nHost: t\r\n{headers}\r\n"
        ));
        http.response().expect("a response")
    };
    let first = part("Range: bytes=0-3\r\n");
    assert_eq!((first.status, &*first.body), (206, &b"PAR1"[..]));
    let told = format!("bytes 0-3/{}", on_disk.len());
    assert_eq!(first.header("content-range"), Some(&*told));
    let last = part(&format!("Range: bytes=-8\r\nIf-Match: {tag}\r\n"));
    assert_eq!(
        (last.status, &*last.body),
        (206, &on_disk[on_disk.len() - 8..])
    );
    assert_eq!(part("Range: bytes=99999999-\r\n").status, 416);
    let other = part("Range: bytes=0-3\r\nIf-Match: \"another\"\r\n");
    assert_eq!(other.status, 412);
    assert!(other.text().contains(r#""code":"changed""#));
}

/// As after a move to object storage that is not configured any more.
#[test]
fn the_answer_for_a_file_that_is_elsewhere_says_where_and_what_to_do() {
    let first = Served::new();
    let name = first.sealed_file();
    let Served { broker, home } = first;
    drop(broker);
    let folder = home.folder(0).join("streams/plant");
    let index = fs::read(folder.join("sealed.json")).expect("an index");
    let mut index: Value = serde_json::from_slice(&index).expect("JSON");
    index["tier"] = "s3://lake/plant/data".into();
    index["partitions"][0][0]["object"] = "an object".into();
    index["partitions"][0][0]["remote"] = true.into();
    fs::write(folder.join("sealed.json"), index.to_string()).expect("an index");
    fs::remove_file(folder.join("data").join(&name)).expect("a file");
    let _served = plant(&home).start();
    let mut http = Http::unix(&home.folder(0).join("streams/endpoint.sock"));

    let refused = http.get(&format!("/v1/streams/plant/files/{name}"));

    assert_eq!(refused.status, 404);
    let text = refused.text();
    for part in [
        "remote_file",
        &name,
        "s3://lake/plant/data",
        "[streams.tier]",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let gone = http.get("/v1/streams/plant/files/00000-1.parquet");
    let gone = gone.text();
    assert!(gone.contains("ask for the index"), "{gone}");
}

#[test]
fn only_files_of_rows_are_served() {
    let served = Served::new();
    let mut http = served.unix();
    for (target, code) in [
        ("/v1/streams/plant/files/..%2Fstream.json", "unknown_file"),
        ("/v1/streams/plant/files/00000-1.parquet", "unknown_file"),
        (
            "/v1/streams/..%2F..%2Fx/files/00000-1.parquet",
            "unknown_stream",
        ),
        ("/v1/streams/other/files", "unknown_stream"),
    ] {
        let refused = http.get(target);
        assert_eq!(refused.status, 404, "{target}");
        assert!(refused.text().contains(code), "{}", refused.text());
    }
    let mut stranger = served.tcp();
    assert_eq!(stranger.get("/v1/streams/plant/files").status, 401);
}

#[test]
fn a_body_that_comes_byte_by_byte_has_to_end() {
    let served = Served::with_limits(HttpLimits {
        body_deadline: Duration::from_millis(200),
        ..HttpLimits::default()
    });
    let mut slow = served.unix();
    slow.send("POST /v1/streams/plant/holds HTTP/1.1\r\nHost: t\r\nContent-Length: 9999\r\n\r\n");

    let answered = (0..2_000).find(|_| {
        std::thread::park_timeout(Duration::from_millis(10));
        !slow.try_send(" ")
    });

    assert!(answered.is_some(), "it may go on for ever");
}
