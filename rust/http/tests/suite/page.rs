//! The page for operators: its files and their headers, and pages of others that reach the endpoint.

use mqttcore_http::HttpOptions;

use crate::api_caller::{Caller, TOKEN, setup};
use crate::client::{Http, Response};
use crate::common::Home;
use crate::served::{Served, Setup};

fn start(home: &Home, page: bool) -> Served {
    let setup = setup(home);
    let http = HttpOptions {
        page,
        hosts: vec!["broker.example".to_owned()],
        ..setup.http
    };
    Setup { http, ..setup }.start()
}

fn ask(served: &Served, path: &str, headers: &str) -> Response {
    let mut http = Http::tcp(served.endpoint.address().expect("an address"));
    http.send(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n"));
    http.response().expect("a response")
}

/// The paths of files that the first file names.
fn files(first: &Response) -> Vec<String> {
    let text = first.text();
    let quoted = text
        .split('"')
        .filter(|part| part.starts_with("page/") && !part.contains('{'));
    quoted.map(|path| format!("/{path}")).collect()
}

#[test]
fn the_page_is_served_to_everybody_with_a_strict_policy() {
    let home = Home::new();
    let served = start(&home, true);

    let first = ask(&served, "/", "Host: localhost:8090\r\n");

    assert_eq!(first.status, 200);
    assert_eq!(
        first.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(first.header("cache-control"), Some("no-store"));
    assert!(first.text().contains("data-login=\"key\""));
    for response in [
        first,
        ask(&served, "/page/none/app.js", ""),
        ask(&served, "/page/", ""),
    ] {
        let policy = response.header("content-security-policy");
        if response.status == 404 {
            continue;
        }
        let policy = policy.expect("a policy");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
    }
}

#[test]
fn files_have_the_hash_of_the_page_in_their_path_and_are_kept_for_a_year() {
    let home = Home::new();
    let served = start(&home, true);
    let files = files(&ask(&served, "/", "Host: localhost\r\n"));
    assert!(files.len() >= 3, "{files:?}");

    for path in &files {
        let plain = ask(&served, path, "Host: localhost\r\n");
        let small = ask(
            &served,
            path,
            "Host: localhost\r\nAccept-Encoding: br, gzip\r\n",
        );
        let refused = ask(
            &served,
            path,
            "Host: localhost\r\nAccept-Encoding: gzip;q=0\r\n",
        );

        assert_eq!(plain.status, 200, "{path}");
        let kept = "public, max-age=31536000, immutable";
        assert_eq!(plain.header("cache-control"), Some(kept));
        assert_eq!(small.header("content-encoding"), Some("gzip"));
        assert!(small.body.starts_with(&[0x1f, 0x8b]));
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(refused.body, plain.body);
        assert!(!plain.body.is_empty());
    }
    let other = files[0].replacen("/page/", "/page/0", 1);
    assert_eq!(ask(&served, &other, "Host: localhost\r\n").status, 404);
    assert_eq!(ask(&served, "/page/../keys.toml", "").status, 404);
    let with_query = format!("{}?v=1", files[0]);
    assert_eq!(ask(&served, &with_query, "Host: localhost\r\n").status, 400);
}

#[test]
fn a_page_that_is_off_is_not_there() {
    let home = Home::new();
    let served = start(&home, false);

    assert_eq!(ask(&served, "/", "Host: localhost\r\n").status, 401);
    let with_token = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask(&served, "/", &with_token).status, 404);
}

#[test]
fn the_host_of_a_request_puts_nothing_else_into_the_policy() {
    let home = Home::new();
    let served = start(&home, true);
    for host in [
        "Host: a;script-src *\r\n",
        "Host: a b\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: 'unsafe-inline'\r\n",
        "",
    ] {
        let response = ask(&served, "/", host);
        if response.status == 400 {
            continue;
        }
        let policy = response
            .header("content-security-policy")
            .expect("a policy");
        assert!(policy.contains("connect-src 'self';"), "{policy}");
    }
}

/// Nothing but a key, which no browser adds by itself, admits a request over TCP (abuse K06).
#[test]
fn pages_of_others_learn_and_change_nothing() {
    let home = Home::new();
    let served = start(&home, true);
    let elsewhere = "Host: evil.example\r\nOrigin: http://evil.example\r\n";
    let simple = "Content-Type: text/plain\r\nContent-Length: 0\r\nCookie: mqttcore_session=1\r\n";

    for method in ["GET", "POST", "OPTIONS"] {
        let mut http = Http::tcp(served.endpoint.address().expect("an address"));
        http.send(&format!(
            "{method} /api/v1/reload HTTP/1.1\r\n{elsewhere}{simple}\r\n"
        ));
        let response = http.response().expect("a response");

        assert_eq!(response.status, 401, "{method}");
        assert!(!response.headers.contains("access-control-"));
        assert!(!response.headers.contains("set-cookie"));
    }
    for path in ["/", "/api/v1/overview"] {
        let response = ask(&served, path, elsewhere);
        assert!(!response.headers.contains("access-control-"));
    }
}

/// A Unix socket that is forwarded to a port needs no key, so that each page of the browser could ask (abuse K06).
#[test]
fn pages_of_others_are_refused_over_a_forwarded_socket() {
    let home = Home::new();
    let _served = start(&home, true);
    let ask = |headers: &str| {
        let mut http = Http::unix(&home.folder(0).join("http"));
        http.send(&format!("GET /api/v1/version HTTP/1.1\r\n{headers}\r\n"));
        http.response().expect("a response").status
    };

    for (headers, status) in [
        ("Host: localhost:8090\r\n", 200),
        (
            "Host: localhost:8090\r\nOrigin: http://localhost:8090\r\n",
            200,
        ),
        ("Host: [::1]:8090\r\nOrigin: http://[::1]:8090\r\n", 200),
        ("Host: broker.example\r\n", 200),
        (
            "Host: broker.example\r\nOrigin: https://broker.example\r\n",
            200,
        ),
        (
            "Host: broker.example\r\nOrigin: https://evil.example\r\n",
            403,
        ),
        ("Host: evil.example\r\n", 403),
        ("Host: evil.example\r\nOrigin: http://evil.example\r\n", 403),
        (
            "Host: localhost:8090\r\nOrigin: http://localhost:9000\r\n",
            403,
        ),
        ("Host: localhost:8090\r\nOrigin: null\r\n", 403),
        ("Host: localhost\r\nHost: evil.example\r\n", 403),
    ] {
        assert_eq!(ask(headers), status, "{headers}");
    }
}

#[test]
fn the_page_says_how_its_user_logs_in() {
    let home = Home::new();
    let _served = start(&home, true);
    let mut owner = Http::unix(&home.folder(0).join("http"));
    assert!(owner.get("/").text().contains("data-login=\"known\""));

    let mut caller = Caller::owner(&home);

    let answer = caller.read("/caller");
    assert_eq!(answer["name"], "the owner");
    assert_eq!(answer["scopes"].as_array().map(Vec::len), Some(6));
}
