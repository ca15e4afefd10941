//! Logins of users by the plugins that authenticate MQTT clients.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use mqttcore_broker::{BanTarget, Grant, Hooks, Invalidation, Login, LoginDecision};
use mqttcore_http::HttpOptions;
use serde_json::json;

use crate::api_caller::{Answer, Caller, TOKEN, setup};
use crate::client::Http;
use crate::common::{Home, Plugin};
use crate::served::{Served, Setup};

const PAGE: &str = "X-Mqttcore: 1\r\n";
const JSON: &str = "X-Mqttcore: 1\r\nContent-Type: application/json\r\n";

/// Users have the password `right`, and their name is the scopes that they are granted.
fn users() -> Plugin {
    Plugin::default().authenticate(|login, reply| {
        let name = login.username.as_deref().unwrap_or_default().to_owned();
        let password = login.password.as_ref().map(|password| password.as_bytes());
        let decision = match password {
            Some(b"right") => LoginDecision::Allow {
                grant: Box::new(Grant {
                    operate: name.split(' ').map(str::to_owned).collect(),
                    expires_at: (name == "view late").then(SystemTime::now),
                    ..Grant::everything()
                }),
                username: None,
                user_properties: Vec::new(),
            },
            Some(b"silent") => return drop(reply),
            _ => LoginDecision::Pass,
        };
        reply.send(decision);
    })
}

fn start(home: &Home, plugin: Plugin) -> Served {
    setup(home)
        .try_start_with(plugin)
        .expect("the broker starts")
}

/// Logs in over a connection of its own: that of an unknown caller is closed.
fn log_in(served: &Served, username: &str, password: &str) -> Answer {
    log_in_by(&mut Caller::with(served, None), username, password)
}

fn log_in_by(caller: &mut Caller, username: &str, password: &str) -> Answer {
    let body = json!({"username": username, "password": password}).to_string();
    caller.ask_with("POST", "/login", JSON, &body)
}

/// The header that sends the cookie of a login back. [`Response`](crate::client::Response) has headers in small letters.
fn cookie(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.json);
    let cookie = answer.response.header("set-cookie").expect("a cookie");
    let (pair, attributes) = cookie.split_once("; ").expect("attributes");
    assert_eq!(
        attributes,
        "path=/api; max-age=43200; httponly; samesite=strict"
    );
    format!("Cookie: {pair}\r\n")
}

fn status(served: &Served, path: &str, headers: &str) -> u16 {
    let mut caller = Caller::with(served, None);
    caller.ask_with("GET", path, headers, "").status
}

#[test]
fn a_user_whom_a_plugin_lets_operate_has_a_cookie_with_its_scopes_until_the_logout() {
    let home = Home::new();
    let seen = Arc::new(Mutex::new(Vec::<Arc<Login>>::new()));
    let own = Arc::clone(&seen);
    let plugin = Plugin::default().authenticate(move |login, reply| {
        own.lock().expect("a list").push(Arc::clone(&login));
        reply.send(LoginDecision::Allow {
            grant: Box::new(Grant {
                operate: vec!["view".into(), "operate".into(), "rows".into()],
                ..Grant::default()
            }),
            username: Some("ann".into()),
            user_properties: Vec::new(),
        });
    });
    let served = start(&home, plugin);

    let answer = log_in(&served, "Ann", "right");

    assert_eq!(
        answer.json,
        json!({"name": "user \"ann\"", "scopes": ["view", "operate"]})
    );
    let cookie = cookie(&answer);
    let mut caller = Caller::with(&served, None);
    let login = seen.lock().expect("a list").pop().expect("a login");
    assert_eq!(&*login.listener, "http");
    assert!(login.client_id.starts_with("$page/") && login.client_id.len() == 22);
    let mut read = |path| caller.ask_with("GET", path, &cookie, "");
    assert_eq!(read("/caller").json, answer.json);
    assert_eq!(read("/overview").status, 200);
    read("/config").is_problem(403, "lacks the scope \\\"admin\\\"");

    // Only the page itself changes something.
    let changes = format!("{cookie}{PAGE}");
    let publish = |headers: &str, caller: &mut Caller| {
        let headers = format!("{headers}Content-Type: application/json\r\n");
        caller.ask_with(
            "POST",
            "/publish",
            &headers,
            r#"{"topic": "a", "payload": "b"}"#,
        )
    };
    // Its body is not read, so the connection is closed.
    publish(&cookie, &mut Caller::with(&served, None)).is_problem(403, "X-Mqttcore: 1");
    assert_eq!(publish(&changes, &mut caller).status, 202);
    // Streams and metrics take no cookies, nor does a request with a wrong key.
    let wrong = format!("{cookie}Authorization: Bearer mq_wrong\r\n");
    assert_eq!(status(&served, "/caller", &wrong), 401);
    let mut http = Http::tcp(served.endpoint.address().expect("an address"));
    http.send(&format!("GET /metrics HTTP/1.1\r\nHost: t\r\n{cookie}\r\n"));
    assert_eq!(http.response().expect("a response").status, 401);
    assert_eq!(status(&served, "/caller", &cookie), 200);

    caller
        .ask_with("DELETE", "/login", &cookie, "")
        .is_problem(403, "X-Mqttcore");
    let answer = caller.ask_with("DELETE", "/login", &changes, "");
    assert_eq!(answer.status, 204);
    let cleared = answer.response.header("set-cookie").expect("a cookie");
    assert!(cleared.starts_with("mqttcore_session=; path=/api; max-age=0;"));
    assert_eq!(status(&served, "/caller", &cookie), 401);

    let mut owner = Caller::owner(&home);
    let entries = owner.read("/audit")["items"].clone();
    let of_ann = |action: &str, result: &str| {
        let mut all = entries.as_array().into_iter().flatten();
        all.any(|entry| {
            entry["who"] == "user \"ann\"" && entry["action"] == action && entry["result"] == result
        })
    };
    assert!(
        of_ann("POST /login", "200") && of_ann("POST /publish", "202"),
        "{entries}"
    );
}

#[test]
fn a_login_is_refused_without_a_right_password_an_answer_or_scopes() {
    let home = Home::new();
    let served = start(&home, users());
    for (user, password, code, word) in [
        ("view", "wrong", 401, "user name or the password is wrong"),
        ("view", "silent", 503, "no plugin answered"),
        ("", "right", 403, "may not operate"),
        ("rows publish root", "right", 403, "may not operate"),
        ("view late", "right", 403, "banned"),
    ] {
        let answer = log_in(&served, user, password);
        answer.is_problem(code, word);
        assert_eq!(answer.response.header("set-cookie"), None);
    }
    let mut caller = Caller::with(&served, None);
    let body = r#"{"username": "view", "password": "right"}"#;
    caller
        .ask("POST", "/login", body)
        .is_problem(403, "X-Mqttcore: 1");
    let mut caller = Caller::with(&served, None);
    let long = json!({"username": "view", "password": "x".repeat(9_000)}).to_string();
    assert_eq!(caller.ask_with("POST", "/login", JSON, &long).status, 413);
    log_in_by(&mut Caller::owner(&home), "view", "right").is_problem(403, "needs no login");
}

#[test]
fn ten_failures_shut_an_address_out_also_with_the_right_password() {
    let home = Home::new();
    let served = start(&home, users());
    let kept = cookie(&log_in(&served, "view", "right"));
    for _ in 0..10 {
        log_in(&served, "view", "wrong").is_problem(401, "wrong");
    }

    let answer = log_in(&served, "view", "right");

    answer.is_problem(429, "10 wrong keys or passwords");
    assert!(answer.response.header("retry-after").is_some());
    // Who is logged in, or has a key, goes on.
    assert_eq!(status(&served, "/caller", &kept), 200);
    assert_eq!(
        Caller::with(&served, Some(TOKEN)).get("/caller").status,
        200
    );
}

#[test]
fn the_limit_of_failed_logins_of_mqtt_counts_too() {
    let home = Home::new();
    let mut setup = setup(&home);
    setup.config.failed_logins.per_minute = 3;
    let served = setup.try_start_with(users()).expect("the broker starts");
    for _ in 0..3 {
        log_in(&served, "view", "wrong").is_problem(401, "wrong");
    }

    log_in(&served, "view", "right").is_problem(429, "wrong");
}

#[test]
fn a_login_ends_when_the_user_is_banned_or_loses_rights_or_the_plugins_change() {
    let home = Home::new();
    let setup = setup(&home);
    let config = setup.config.clone();
    let served = setup.try_start_with(users()).expect("the broker starts");
    let logged_in = |name: &str| cookie(&log_in(&served, name, "right"));
    let (banned, invalid, last) = (
        logged_in("view"),
        logged_in("view operate"),
        logged_in("admin view"),
    );
    let is_in = |cookie: &str| status(&served, "/caller", cookie) == 200;
    assert!(is_in(&banned) && is_in(&invalid) && is_in(&last));

    let target = BanTarget::Username("view".into());
    let _ = served.broker.ban(target, "test".into(), None);
    let renewed = Invalidation::Username("view operate".into());
    served.broker.invalidate(&renewed);

    assert!(!is_in(&banned) && !is_in(&invalid) && is_in(&last));
    log_in(&served, "view", "right").is_problem(403, "banned");
    let plugins: Arc<dyn Hooks> = Arc::new(users());
    served.broker.reload(&config, plugins).expect("a reload");
    assert!(!is_in(&last));
}

#[test]
fn without_logins_or_plugins_the_page_offers_keys_alone() {
    let home = Home::new();
    for (has_logins, plugin, word, offered) in [
        (true, Plugin::default(), "no plugin of the broker", "key"),
        (false, users(), "logins with a password are off", "key"),
        (true, users(), "", "key password"),
    ] {
        let setup = setup(&home);
        let http = HttpOptions {
            login: has_logins,
            page: true,
            ..setup.http
        };
        let setup = Setup { http, ..setup };
        let served = setup.try_start_with(plugin).expect("the broker starts");
        let mut http = Http::tcp(served.endpoint.address().expect("an address"));
        let page = http.get("/");
        assert!(
            page.text().contains(&format!("data-login=\"{offered}\"")),
            "{}",
            page.text()
        );
        let answer = log_in(&served, "view", "right");
        if word.is_empty() {
            assert_eq!(answer.status, 200);
        } else {
            answer.is_problem(403, word);
        }
    }
}
