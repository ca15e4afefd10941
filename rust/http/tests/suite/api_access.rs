//! Who may ask the API, and what becomes of requests that make no sense.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mqttcore_codec::QoS;
use serde_json::{Value, json};

use crate::api_caller::{Caller, TOKEN, key, setup};
use crate::common::{Home, eventually, v5};

const SCOPES: [&str; 4] = ["view", "payload", "operate", "admin"];

/// Method, path and scopes of each route.
fn routes(document: &Value) -> Vec<(String, String, Vec<String>)> {
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let scopes = operation["security"][0]["key"].as_array();
            let scopes = scopes.into_iter().flatten().map(|scope| scope.as_str());
            let scopes = scopes.map(|scope| scope.expect("a scope").to_owned());
            let path = path.strip_prefix("/api/v1").expect("the prefix").to_owned();
            routes.push((method.to_uppercase(), path, scopes.collect()));
        }
    }
    routes
}

/// A route that is not in this table of scopes cannot be asked for, so that nobody forgets one.
#[test]
fn each_route_is_for_those_who_have_its_scope_and_for_nobody_else() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let document = owner.read("/openapi.json");
    assert!(
        document["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1"))
    );
    let mut routes = routes(&document);
    assert!(routes.len() >= 35, "{}", routes.len());
    // With `security: [{}]`, a route is for everybody.
    routes.retain(|(method, path, _)| {
        let operation = &document["paths"][format!("/api/v1{path}")][method.to_lowercase()];
        let is_open = operation["security"] == json!([{}]);
        assert_eq!(is_open, path == "/login", "{method} {path}");
        !is_open
    });
    let holders = SCOPES.map(|scope| vec![scope]);
    let holders = holders.into_iter().chain([vec!["payload", "operate"]]);
    let mut callers: Vec<_> = holders
        .map(|held| {
            let secret = key(&mut owner, &held.join("-"), &held);
            (held, Caller::with(&served, Some(&secret)))
        })
        .collect();

    for (method, path, scopes) in &routes {
        assert!(!scopes.is_empty(), "{method} {path} has no scope");
        for scope in scopes {
            assert!(SCOPES.contains(&scope.as_str()), "{method} {path}: {scope}");
        }
        let path = path
            .replace("{id}", "nobody")
            .replace("{topic}", "none")
            .replace("{filter}", "none");
        let path = path.replace("{name}", "nobody");
        let body = if method == "POST" || method == "PUT" {
            "{"
        } else {
            ""
        };
        for (held, caller) in &mut callers {
            let lacks = |scope: &&String| !held.contains(&scope.as_str());
            let is_refused = scopes.iter().any(|scope| lacks(&scope));
            if path == "/events" && !is_refused {
                // The answer does not end.
                continue;
            }
            let answer = caller.ask(method, &path, body);
            if is_refused {
                answer.is_problem(403, "lacks the scope");
                continue;
            }
            assert!(
                ![401, 403, 405, 500].contains(&answer.status),
                "{method} {path} {held:?}: {}",
                answer.json
            );
        }
        Caller::with(&served, None)
            .ask(method, &path, body)
            .is_problem(401, "Bearer mq_");
    }
}

#[test]
fn the_owner_and_the_token_have_all_scopes() {
    let home = Home::new();
    let served = setup(&home).start();

    for mut caller in [Caller::owner(&home), Caller::with(&served, Some(TOKEN))] {
        for path in ["/overview", "/keys", "/clients", "/version"] {
            assert_eq!(caller.get(path).status, 200, "{path}");
        }
    }
}

#[test]
fn an_address_without_token_and_keys_says_how_to_get_some() {
    let home = Home::new();
    let mut setup = setup(&home);
    if let Some(tcp) = &mut setup.http.tcp {
        tcp.token = None;
    }
    setup.http.keys_file = None;
    let served = setup.start();

    Caller::with(&served, None)
        .get("/overview")
        .is_problem(403, "http.keys_file");
    let answer = Caller::owner(&home).ask("POST", "/keys", r#"{"name": "a", "scopes": ["view"]}"#);
    answer.is_problem(409, "keys_file");
}

#[test]
fn a_key_may_view_metrics() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let secrets = [&["view"] as &[&str], &SCOPES, &["operate"]]
        .map(|scopes| key(&mut owner, &scopes.join("-"), scopes));
    let status = |path: &str, secret: &str| {
        let mut http = crate::client::Http::tcp(served.endpoint.address().expect("an address"));
        http.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {secret}\r\n\r\n"
        ));
        http.response().expect("a response").status
    };

    assert_eq!(
        secrets.each_ref().map(|secret| status("/metrics", secret)),
        [200, 200, 403]
    );
}

#[test]
fn ten_wrong_keys_shut_an_address_out_but_not_who_has_the_right_one() {
    let home = Home::new();
    let served = setup(&home).start();
    for _ in 0..10 {
        let answer = Caller::with(&served, Some("mq_wrong")).get("/overview");
        answer.is_problem(401, "no valid key");
        assert_eq!(answer.response.header("www-authenticate"), Some("bearer"));
    }

    let answer = Caller::with(&served, Some("mq_wrong")).get("/overview");

    answer.is_problem(429, "10 wrong keys");
    assert!(answer.response.header("retry-after").is_some());
    Caller::with(&served, None)
        .get("/overview")
        .is_problem(429, "10 wrong keys");
    assert_eq!(
        Caller::with(&served, Some(TOKEN)).get("/overview").status,
        200
    );
}

#[test]
fn a_changed_file_of_keys_is_read_again_and_a_wrong_one_keeps_the_old_keys() {
    let home = Home::new();
    let served = setup(&home).start();
    let file = home.path().join("keys.toml");
    let secret = key(&mut Caller::owner(&home), "a", &["view"]);
    let status = || Caller::with(&served, Some(&secret)).get("/version").status;
    assert_eq!(status(), 200);
    let text = fs::read_to_string(&file).expect("the file");
    let replace = |text: &str| {
        let new = file.with_extension("other");
        fs::write(&new, text).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("rights");
        fs::rename(&new, &file).expect("renamed");
    };

    replace("");
    eventually("the key is gone", || status() == 401);
    replace(&text);
    eventually("the key is back", || status() == 200);
}

#[test]
fn a_file_of_keys_that_others_may_read_keeps_the_broker_from_starting() {
    let home = Home::new();
    let file = home.path().join("keys.toml");
    fs::write(&file, "").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("rights");

    let error = setup(&home).try_start().err().expect("it does not start");

    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn what_is_not_understood_is_refused_with_a_hint() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    owner.until_loaded();

    for (path, status, word) in [
        ("/clients?limt=3", 400, "did you mean \\\"limit\\\"?"),
        (
            "/clients?limit=0",
            400,
            "\"limit: must be a number from 1 to 1000\"",
        ),
        ("/clients?limit=1001", 400, "1 to 1000"),
        ("/clients?limit=ten", 400, "limit"),
        ("/clients?connected=yes", 400, "connected"),
        ("/clients?version=4", 400, "3.1.1"),
        ("/clients?ip=10.0.0.0%2F40", 400, "10.0.0.0/8"),
        ("/clients?sort=name", 400, "connected_at"),
        ("/clients?sort=queue&after=YQ", 400, "leave sort out"),
        ("/clients?after=%21", 400, "next of the previous"),
        ("/clients?q=a&q=b", 400, "twice"),
        ("/clients?q=%zz", 400, "percent"),
        ("/clients/%ff", 400, "UTF-8"),
        ("/clients/nobody", 404, "no client"),
        ("/clients/nobody/inflight", 404, "no client"),
        ("/retained?filter=a%23", 400, "filter"),
        ("/retained/a%2F%2B", 400, "topic"),
        ("/subscriptions?topic=a&filter=b", 400, "topic"),
        ("/version?all", 400, "takes no query"),
        ("/nothing", 404, "openapi.json"),
    ] {
        owner.get(path).is_problem(status, word);
    }
    let answer = owner.ask("POST", "/overview", "");
    answer.is_problem(405, "allowed: ");
    assert_eq!(answer.response.header("allow"), Some("get,head"));
}

#[test]
fn bad_bodies_have_the_right_status_and_harm_nobody() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut bystander = v5("bystander").connect(&served);
    bystander.subscribe("echo", QoS::AtLeastOnce);
    let deep = format!("{{\"topic\": {}", "[".repeat(100_000));
    let large = format!("{{\"topic\": \"{}\"}}", "x".repeat(300 << 10));
    let json = "Content-Type: application/json\r\n";

    for (headers, body, status, word) in [
        (json, "{", 400, "EOF"),
        (json, "[]", 400, "invalid request body"),
        (json, r#"{"topic": "a", "payload": 1}"#, 400, "string"),
        (json, r#"{"topic": "a", "payloads": "1"}"#, 400, "payloads"),
        (json, r#"{"topic": "a", "qos": 3}"#, 400, "qos"),
        (json, r#"{"topic": "a/+"}"#, 400, "wildcard"),
        (
            json,
            r#"{"topic": "a", "payload_base64": "?"}"#,
            400,
            "base64",
        ),
        (
            json,
            r#"{"topic": "a", "payload": "", "payload_base64": ""}"#,
            400,
            "exclude",
        ),
        (json, &deep, 400, "invalid type"),
        (json, &large, 413, "larger than"),
        ("", "{}", 415, "Content-Type"),
        (
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "a=b",
            415,
            "Content-Type",
        ),
    ] {
        Caller::owner(&home)
            .ask_with("POST", "/publish", headers, body)
            .is_problem(status, word);
        bystander.publish("echo", "x", QoS::AtMostOnce);
        assert_eq!(bystander.take_message().text(), "x");
    }
    let long = format!("/clients?q={}", "x".repeat(20 << 10));
    let mut http = crate::client::Http::unix(&home.folder(0).join("http"));
    http.send(&format!("GET /api/v1{long} HTTP/1.1\r\nHost: t\r\n\r\n"));
    assert!([414, 431].contains(&http.response().expect("a response").status));
    assert_eq!(owner.get("/version").status, 200);
}

/// Half-open connections: heads and bodies that do not end.
#[test]
fn clients_that_never_finish_a_request_keep_no_mqtt_client_waiting() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut bystander = v5("bystander").connect(&served);
    bystander.subscribe("echo", QoS::AtLeastOnce);
    let address = served.endpoint.address().expect("an address");
    let halves: Vec<_> = (0..64)
        .map(|number| {
            let mut http = crate::client::Http::tcp(address);
            http.send("POST /api/v1/publish HTTP/1.1\r\nHost: t\r\n");
            if number % 2 == 0 {
                http.send(&format!(
                    "Authorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n{{"
                ));
            }
            http
        })
        .collect();

    for _ in 0..100 {
        bystander.publish("echo", "x", QoS::AtMostOnce);
        assert_eq!(bystander.take_message().text(), "x");
    }

    assert_eq!(
        Caller::with(&served, Some(TOKEN)).get("/version").status,
        200
    );
    drop(halves);
}

#[test]
fn keys_are_listed_without_secrets_and_revoked() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let body =
        r#"{"name": "until", "scopes": ["view", "view"], "expires": "2999-12-31T00:00:00Z"}"#;
    let secret = owner.ask("POST", "/keys", body).json["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    assert_eq!(
        Caller::with(&served, Some(&secret)).get("/version").status,
        200
    );

    let keys = owner.read("/keys")["items"].clone();

    let listed = json!([
        {"name": "until", "scopes": ["view"], "streams": null, "expires": "2999-12-31T00:00:00Z"},
    ]);
    assert_eq!(keys, listed);
    owner.ask("POST", "/keys", body).is_problem(409, "exists");
    owner
        .ask("POST", "/keys", r#"{"name": "", "scopes": ["view"]}"#)
        .is_problem(400, "1 to 128");
    owner
        .ask("POST", "/keys", r#"{"name": "b", "scopes": []}"#)
        .is_problem(400, "needs scopes");
    owner
        .ask(
            "POST",
            "/keys",
            r#"{"name": "b", "scopes": ["rows"], "streams": []}"#,
        )
        .is_problem(400, "streams must name");
    owner
        .ask(
            "POST",
            "/keys",
            r#"{"name": "b", "scopes": ["view"], "expires": "soon"}"#,
        )
        .is_problem(400, "date");
    assert_eq!(owner.ask("DELETE", "/keys/until", "").status, 204);
    owner
        .ask("DELETE", "/keys/until", "")
        .is_problem(404, "until");
    assert_eq!(
        Caller::with(&served, Some(&secret)).get("/version").status,
        401
    );
}

/// The table of routes in docs/operations.md is that of the OpenAPI document.
#[test]
fn the_documentation_lists_each_route_with_its_scope() {
    let home = Home::new();
    let _served = setup(&home).start();
    let document = Caller::owner(&home).read("/openapi.json");
    let summary = |method: &str, path: &str| {
        let operation = &document["paths"][format!("/api/v1{path}")][method.to_lowercase()];
        operation["summary"].as_str().expect("a summary").to_owned()
    };
    let rows = routes(&document).into_iter().map(|(method, path, scopes)| {
        let text = summary(&method, &path);
        let scopes = match &*scopes {
            [] => "-".to_owned(),
            scopes => scopes.join(", "),
        };
        format!("| {method} | `/api/v1{path}` | {scopes} | {text} |")
    });
    let table: Vec<_> = rows.collect();

    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let docs = fs::read_to_string(docs).expect("the documentation");

    let wanted = table.join("\n");
    assert!(
        docs.contains(&wanted),
        "docs/operations.md lacks:\n{wanted}"
    );
    assert_eq!(docs.matches(" | `/api/v1/").count(), table.len());
}
