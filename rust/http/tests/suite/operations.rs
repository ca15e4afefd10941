//! Health and metrics: who may ask, and what they get.

use std::time::Duration;

use mqttcore_codec::QoS;
use mqttcore_http::{HttpListener, HttpOptions, MetricsAccess};

use crate::api_caller::start_with_block;
use crate::client::{Http, Response};
use crate::common::{Home, eventually, v5};
use crate::served::{Served, Setup, stream};

const TOKEN: &str = "a token of a test, 32 characters";

/// A broker without streams.
fn start(home: &Home, token: Option<&str>, metrics: MetricsAccess) -> Served {
    let setup = Setup::new(home, Vec::new());
    let http = HttpOptions {
        is_enabled: true,
        hosts: vec!["broker.example".to_owned()],
        features: vec!["tier", "kafka"],
        tcp: Some(HttpListener {
            address: ([127, 0, 0, 1], 0).into(),
            token: token.map(str::to_owned),
            metrics,
            tls: None,
        }),
        ..HttpOptions::default()
    };
    Setup { http, ..setup }.start()
}

fn tcp(served: &Served) -> Http {
    Http::tcp(served.endpoint.address().expect("a TCP address"))
}

fn get(served: &Served, path: &str) -> Response {
    tcp(served).get(path)
}

fn get_with_token(served: &Served, path: &str) -> Response {
    ask_with_token(&mut tcp(served), path)
}

fn ask_with_token(http: &mut Http, path: &str) -> Response {
    http.send(&format!(
        "GET {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    ));
    http.response().expect("a response")
}

#[test]
fn whoever_reaches_the_address_may_ask_for_health_and_learns_no_version() {
    let home = Home::new();
    let served = start(&home, None, MetricsAccess::Off);
    eventually("all is there", || get(&served, "/readyz").status == 200);

    for (path, status, checks) in [
        ("/livez", "alive", 1),
        ("/healthz", "healthy", 2),
        ("/readyz", "ready", 8),
    ] {
        let answer = get(&served, path);

        let text = answer.text();
        assert_eq!(answer.status, 200, "{text}");
        assert!(text.contains(&format!(r#""status":"{status}""#)), "{text}");
        assert_eq!(text.matches(r#""ok":true"#).count(), checks, "{text}");
        assert!(!text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        assert!(!answer.headers.contains("server:"), "{}", answer.headers);
    }
}

#[test]
fn health_is_read_and_takes_no_parameter() {
    let home = Home::new();
    let served = start(&home, None, MetricsAccess::Open);

    for path in ["/livez", "/metrics"] {
        let answer = tcp(&served).request("POST", path, "{}");
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("get, head"))
        );
        assert_eq!(get(&served, &format!("{path}?all")).status, 400);
    }
}

/// Probes of strangers would hold the places of others for ever.
#[test]
fn a_connection_ends_behind_the_answer_to_a_request_without_the_token() {
    let home = Home::new();
    let served = start(&home, Some(TOKEN), MetricsAccess::Open);

    for path in ["/livez", "/readyz", "/metrics", "/livez?all", "/v1/streams"] {
        let mut http = tcp(&served);
        let answer = http.get(path);

        assert_eq!(answer.header("connection"), Some("close"), "{path}");
        assert!(http.is_closed(), "{path}");
    }
}

#[test]
fn a_connection_with_the_token_or_of_the_unix_socket_stays_open() {
    let home = Home::new();
    let served = start(&home, Some(TOKEN), MetricsAccess::Open);

    let mut with_token = tcp(&served);
    let mut unix = Http::unix(&home.folder(0).join("http"));
    for path in ["/livez", "/metrics", "/v1/streams", "/livez"] {
        let answer = ask_with_token(&mut with_token, path);
        assert_eq!(answer.header("connection"), None, "{path}");
        assert_eq!(unix.get(path).header("connection"), None, "{path}");
    }
}

#[test]
fn metrics_are_for_those_with_the_token_unless_they_are_open() {
    let home = Home::new();
    let served = start(&home, Some(TOKEN), MetricsAccess::Token);

    assert_eq!(get(&served, "/metrics").status, 401);
    let page = get_with_token(&served, "/metrics");

    assert_eq!(page.status, 200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(kind));
    assert!(page.text().ends_with("# EOF\n"));
    let version = format!(
        "mqttcore_build_info{{version=\"{}\",commit=\"\",features=\"tier,kafka\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    assert!(page.text().contains(&version));
}

#[test]
fn open_metrics_have_no_version_and_open_nothing_else() {
    let home = Home::new();
    let served = start(&home, None, MetricsAccess::Open);

    let page = get(&served, "/metrics");

    assert_eq!(page.status, 200);
    assert!(
        page.text()
            .contains("\nmqttcore_connections{listener=\"test\",version=\"none\"} 0")
    );
    assert!(!page.text().contains("mqttcore_build"));
    let streams = get(&served, "/v1/streams");
    assert_eq!(streams.status, 403);
    assert!(streams.text().contains("http.token_file"));
}

/// (abuse I09) DNS rebinding: a page whose own name resolves to this machine.
#[test]
fn open_metrics_are_not_for_a_page_of_another_name() {
    let home = Home::new();
    let served = start(&home, Some(TOKEN), MetricsAccess::Open);
    let status = |path: &str, headers: &str| {
        let mut http = tcp(&served);
        http.send(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n"));
        http.response().expect("a response").status
    };

    for (headers, wanted) in [
        ("Host: 127.0.0.1:8090\r\n", 200),
        ("Host: [::1]:8090\r\n", 200),
        ("Host: LocalHost\r\n", 200),
        ("Host: Broker.example:8090\r\n", 200),
        ("Host: x.broker.example\r\n", 403),
        ("Host: broker.example\r\nHost: evil.example\r\n", 403),
        ("Host: evil.example:8090\r\n", 403),
        ("Host: localhost.evil.example\r\n", 403),
        ("Host: localhost\r\nHost: evil.example\r\n", 403),
        ("", 403),
    ] {
        assert_eq!(status("/metrics", headers), wanted, "{headers}");
    }
    let with_token = format!("Host: broker\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert_eq!(status("/metrics", &with_token), 200);
    assert_eq!(status("/livez", "Host: broker\r\n"), 200);
}

#[test]
fn metrics_that_are_off_are_off_for_the_token_too() {
    let home = Home::new();
    let served = start(&home, Some(TOKEN), MetricsAccess::Off);

    assert_eq!(get(&served, "/metrics").status, 404);
    assert_eq!(get_with_token(&served, "/metrics").status, 404);
    assert_eq!(get_with_token(&served, "/v1/streams").status, 404);
}

#[test]
fn the_data_folder_has_a_socket_for_all_of_it() {
    let home = Home::new();
    let without_streams = start(&home, None, MetricsAccess::Off);
    let socket = home.folder(0).join("http");

    let mut http = Http::unix(&socket);
    assert_eq!(http.get("/livez").status, 200);
    let page = http.get("/metrics");
    let page = page.text();
    assert!(page.contains("mqttcore_build_info"));
    let buckets = page
        .lines()
        .filter_map(|line| line.strip_prefix("mqttcore_store_sync_seconds_bucket{le=\""));
    let limits = buckets.map(|line| line.split('"').next().expect("a limit"));
    let limits: Vec<_> = limits.collect();
    assert_eq!(
        (limits[0], limits[17], limits.len()),
        ("0.000064", "8.388608", 19)
    );

    drop(without_streams);
    let with_streams = Setup::new(&home, vec![stream("plant", "plant/#")]).start();
    let mut http = Http::unix(&socket);
    assert_eq!(http.get("/v1/streams").status, 200);
    assert_eq!(http.get("/livez").status, 200);
    drop(with_streams);
}

#[test]
fn figures_move_with_the_broker() {
    let home = Home::new();
    let served = start(&home, None, MetricsAccess::Open);
    let value = |sample: &str| {
        let page = get(&served, "/metrics");
        let mut lines = page.text().lines();
        let found = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        found.and_then(|value| value.parse::<f64>().ok())
    };
    let mut client = v5("c").connect(&served);

    client.subscribe("a/#", QoS::AtLeastOnce);

    assert_eq!(
        value("mqttcore_connections{listener=\"test\",version=\"5.0\"}"),
        Some(1.0)
    );
    assert_eq!(value("mqttcore_sessions{state=\"online\"}"), Some(1.0));
    assert_eq!(value("mqttcore_subscriptions"), Some(1.0));
    assert_eq!(
        value("mqttcore_packets_total{direction=\"in\",type=\"subscribe\"}"),
        Some(1.0)
    );
    assert!(value("mqttcore_shard_turn_age_seconds{shard=\"0\"}") < Some(10.0));
}

#[test]
fn messages_that_wait_for_a_busy_shard_are_counted() {
    let home = Home::new();
    let (served, _, block) = start_with_block(&home, 2);
    // Of so many clients, each shard has some.
    let connect = |number| {
        let mut client = v5(&format!("client {number}")).connect(&served);
        client.subscribe("a", QoS::AtMostOnce);
        client
    };
    let mut clients: Vec<_> = (0..24).map(connect).collect();
    let _blocking = block.begin(&served);

    for client in &mut clients {
        client.publish("a", "x", QoS::AtMostOnce);
    }

    let mut http = Http::unix(&home.folder(0).join("http"));
    eventually("they wait", || {
        let page = http.get("/metrics");
        let counts = page.text().lines();
        let counts = counts.filter(|line| line.starts_with("mqttcore_mailbox_messages{shard="));
        let counts: Vec<_> = counts.map(|line| line.ends_with("\"} 0.0")).collect();
        assert_eq!(counts.len(), 2);
        counts.contains(&true) && counts.contains(&false)
    });
    drop(block);
}

#[test]
fn sys_figures_have_the_names_of_mosquittos_exporter() {
    let home = Home::new();
    let mut setup = Setup::new(&home, Vec::new());
    setup.config.sys_interval = Some(Duration::from_millis(50));
    setup.http.is_enabled = true;
    let served = setup.start();
    let mut http = Http::unix(&home.folder(0).join("http"));
    let path = "/metrics?names=mosquitto";
    let _client = v5("c").connect(&served);

    eventually("the client is counted", || {
        let page = http.get(path).text().to_owned();
        page.contains("\n# TYPE broker_clients_connected gauge\nbroker_clients_connected 1\n")
    });

    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(http.get(path).header("content-type"), Some(kind));
    assert_eq!(http.request("POST", path, "{}").status, 405);
    assert_eq!(http.get("/metrics?names=others").status, 400);
}
