//! The audit log of changes over the API.

use std::fs;

use serde_json::{Value, json};

use crate::api_caller::{Caller, key, setup, start_with_block};
use crate::common::{Home, eventually, v5};

/// The lines of the audit log.
fn audit(home: &Home) -> Vec<Value> {
    let Ok(files) = fs::read_dir(home.folder(0).join("audit")) else {
        return Vec::new();
    };
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let texts = files
        .iter()
        .map(|file| fs::read_to_string(file).expect("text"));
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines
        .map(|line| serde_json::from_str(&line).expect("JSON"))
        .collect()
}

#[test]
fn each_change_and_each_refusal_is_in_the_audit_log_without_secrets_and_payloads() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let secret = key(&mut owner, "viewer", &["view"]);
    let mut viewer = Caller::with(&served, Some(&secret));
    let ban = r#"{"kind": "client_id", "value": "c", "why": "floods"}"#;
    let message = r#"{"topic": "t", "payload": "a secret payload", "qos": 1}"#;

    owner.read("/overview");
    viewer.ask("POST", "/bans", ban).is_problem(403, "lacks");
    let banned = owner.ask("POST", "/bans", ban);
    owner
        .ask("DELETE", "/clients/none?session=end", "")
        .is_problem(404, "none");
    owner.ask("POST", "/publish", message);
    owner.ask("POST", "/publish", "{").is_problem(400, "");
    Caller::with(&served, None).ask("POST", "/bans", ban);

    let lines = audit(&home);
    let rows: Vec<_> = lines
        .iter()
        .map(|line| {
            ["who", "how", "action", "target", "result"]
                .map(|field| line[field].as_str().expect("text"))
        })
        .collect();
    let viewer = "key \"viewer\"";
    assert_eq!(
        rows,
        [
            ["the owner", "unix", "POST /keys", "/keys", "201"],
            [viewer, "http", "POST /bans", "/bans", "403 scope"],
            ["the owner", "unix", "POST /bans", "/bans", "201"],
            [
                "the owner",
                "unix",
                "DELETE /clients/{id}",
                "/clients/none?session=end",
                "404 not_found"
            ],
            ["the owner", "unix", "POST /publish", "/publish", "200"],
            [
                "the owner",
                "unix",
                "POST /publish",
                "/publish",
                "400 bad_request"
            ],
        ]
    );
    assert_eq!(lines[0]["details"]["scopes"], r#"["view"]"#);
    assert_eq!(lines[1]["ip"], "127.0.0.1");
    assert_eq!(
        lines[2]["details"],
        json!({"kind": "client_id", "value": "c", "why": "floods"})
    );
    assert_eq!(
        lines[2]["request_id"].as_str(),
        banned.response.header("x-request-id")
    );
    assert_eq!(lines[4]["details"], json!({"topic": "t", "qos": "1"}));
    let text = Value::from(lines).to_string();
    assert!(!text.contains(&secret) && !text.contains("a secret payload"));
    let stats = served.broker.stats();
    assert_eq!((stats.audit_entries, stats.audit_lost), (6, 0));
}

/// Abuse F04: no rule of a plugin holds an operator back, so the audit log says who retained the message.
#[test]
fn an_operator_who_retains_a_message_is_in_the_audit_log() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let secret = key(&mut owner, "planter", &["operate"]);

    let put = Caller::with(&served, Some(&secret)).ask(
        "PUT",
        "/retained/plant%2F2",
        r#"{"payload": "planted", "qos": 1}"#,
    );

    assert_eq!(put.status, 200, "{}", put.json);
    let many =
        r#"[{"topic": "plant/3", "payload": "a seed", "qos": 1}, {"topic": "plant/4", "qos": 1}]"#;
    Caller::with(&served, Some(&secret)).ask("POST", "/publish/bulk", many);
    let lines = audit(&home);
    let [_, line, bulk] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        bulk["details"],
        json!({"topic": "plant/3 plant/4", "value": "2 messages"})
    );
    assert_eq!(line["who"], "key \"planter\"");
    assert_eq!(line["ip"], "127.0.0.1");
    assert_eq!(line["action"], "PUT /retained/{topic}");
    assert_eq!(line["target"], "/retained/plant%2F2");
    assert!(!line.to_string().contains("planted"));
}

#[test]
fn a_method_that_a_route_does_not_have_is_no_change() {
    let home = Home::new();
    let served = setup(&home).start();
    let secret = key(&mut Caller::owner(&home), "viewer", &["view"]);
    let mut viewer = Caller::with(&served, Some(&secret));

    for (method, path) in [("PUT", "/overview"), ("POST", "/explain/history")] {
        let answer = viewer.ask(method, path, "");
        assert!([404, 405].contains(&answer.status), "{}", answer.json);
    }

    assert_eq!(audit(&home).len(), 1, "the new key");
}

#[test]
fn refused_requests_of_a_key_do_not_fill_the_log() {
    let home = Home::new();
    let served = setup(&home).start();
    let secret = key(&mut Caller::owner(&home), "viewer", &["view"]);
    let mut viewer = Caller::with(&served, Some(&secret));
    let ban = format!(
        r#"{{"kind": "client_id", "value": "{}"}}"#,
        "x".repeat(9_000)
    );

    for _ in 0..30 {
        viewer
            .ask("POST", "/bans?a=long", &ban)
            .is_problem(403, "lacks");
    }

    let lines = audit(&home);
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[10]["target"], "/bans");
    assert!(lines[10]["details"].is_null());
}

/// The shard is held up until the caller has gone.
#[test]
fn a_change_of_a_caller_that_goes_away_is_recorded() {
    let home = Home::new();
    let (served, mut owner, block) = start_with_block(&home, 1);
    let mut client = v5("c").connect(&served);
    let _blocks = block.begin(&served);

    let caller = Caller::owner(&home).ask_only("DELETE", "/clients/c");
    // The endpoint has one thread: the earlier request has begun, and then its end is seen.
    owner.read("/version");
    owner.read("/version");
    drop(caller);
    owner.read("/version");
    drop(block);

    client.until_closed();
    eventually("it is recorded", || audit(&home).len() == 1);
    assert_eq!(audit(&home)[0]["result"], "204");
}

/// A change goes on without its caller, so that connections do not limit how many there are.
#[test]
fn while_32_changes_are_made_further_ones_are_to_be_sent_again() {
    let home = Home::new();
    let (served, mut owner, block) = start_with_block(&home, 1);
    let _blocks = block.begin(&served);

    for _ in 0..32 {
        // The endpoint has one thread: the change has begun, and then its end is seen.
        let caller = Caller::owner(&home).ask_only("DELETE", "/clients/blocks");
        owner.read("/version");
        owner.read("/version");
        drop(caller);
    }
    eventually("no more changes are taken", || {
        owner.ask("DELETE", "/bans/none", "").status == 503
    });

    let busy = owner.ask("POST", "/bans", "{}");
    busy.is_problem(503, "32 changes");
    assert_eq!(busy.response.header("retry-after"), Some("1"));
    drop(block);
    eventually("changes are taken again", || {
        owner.ask("DELETE", "/bans/none", "").status == 404
    });
}

#[test]
fn a_change_is_made_even_if_the_audit_log_cannot_be_written() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let folder = home.folder(0).join("audit");
    fs::write(&folder, "in its place").expect("written");
    let ban = |id: &str| format!(r#"{{"kind": "client_id", "value": "{id}"}}"#);

    assert_eq!(owner.ask("POST", "/bans", &ban("a")).status, 201);

    assert_eq!(served.broker.bans().len(), 1);
    assert_eq!(served.broker.stats().audit_lost, 1);
    fs::remove_file(&folder).expect("removed");
    assert_eq!(owner.ask("POST", "/bans", &ban("b")).status, 201);
    assert_eq!(audit(&home)[0]["lost"], 1);
}

#[test]
fn the_audit_log_is_listed_with_the_newest_entry_first_to_admins_alone() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    assert_eq!(owner.read("/audit")["items"], json!([]), "no file yet");
    let operate = key(&mut owner, "operator", &["operate"]);
    let mut operator = Caller::with(&served, Some(&operate));
    for client_id in ["a", "b", "c"] {
        let ban = json!({"kind": "client_id", "value": client_id}).to_string();
        assert_eq!(operator.ask("POST", "/bans", &ban).status, 201);
    }

    operator.get("/audit").is_problem(403, "admin");
    let all = owner.read("/audit");
    assert_eq!(all["next"], Value::Null);
    let mut lines = audit(&home);
    lines.reverse();
    let of = |items: &Value, field: &str| -> Vec<Value> {
        let items = items.as_array().expect("a list").iter();
        items.map(|item| item[field].clone()).collect()
    };
    for field in ["ts", "who", "how", "action", "target", "result", "prev"] {
        let expected: Vec<_> = lines.iter().map(|line| line[field].clone()).collect();
        assert_eq!(of(&all["items"], field), expected, "{field}");
    }
    assert_eq!(all["items"][0]["details"]["value"], "c");
    assert_eq!(all["items"][0]["ip"], "127.0.0.1");
    assert_eq!(all["items"][3]["who"], "the owner");

    // pages, while entries are added
    let first = owner.read("/audit?limit=2&who=operator");
    let next = first["next"].as_str().expect("a second page").to_owned();
    owner.ask("DELETE", "/bans/none", "");
    let second = owner.read(&format!("/audit?limit=2&who=operator&after={next}"));
    assert_eq!(second["next"], Value::Null);
    let values = |page: &Value| -> Vec<Value> {
        let details = of(&page["items"], "details").into_iter();
        details.map(|details| details["value"].clone()).collect()
    };
    assert_eq!(values(&first), ["c", "b"]);
    assert_eq!(values(&second), ["a"]);

    // times
    let at = lines[0]["ts"].as_str().expect("a time")[..19].to_owned();
    let since = owner.read(&format!("/audit?who=operator&since={at}Z"));
    assert!(!values(&since).is_empty());
    assert_eq!(owner.read("/audit?since=2999-01-01")["items"], json!([]));
    for (query, word) in [
        ("since=yesterday", "neither a date"),
        ("since=08:00:00", "neither a date"),
        ("after=x", "position"),
        ("after=Li4vLi4vcGFzc3dkIDA", "position"),
        ("limit=0", "1 to 1000"),
        ("until=2026-11-23", "unknown query parameter"),
    ] {
        owner.get(&format!("/audit?{query}")).is_problem(400, word);
    }
}

#[test]
fn damage_in_the_audit_log_is_shown_and_hides_no_entry() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let folder = home.folder(0).join("audit");
    key(&mut owner, "first", &["view"]);
    let [file] = &*fs::read_dir(&folder).expect("a folder").collect::<Vec<_>>() else {
        panic!("one file");
    };
    let file = file.as_ref().expect("a file").path();
    let mut bytes = fs::read(&file).expect("bytes");
    // a line that is none of the log, and a file without the end of a line
    bytes.extend_from_slice(b"\xFF{damaged\n");
    fs::write(&file, &bytes).expect("written");
    fs::write(
        folder.join("2000-01-01T00-00-00Z.jsonl"),
        "x".repeat(1 << 20),
    )
    .expect("written");
    key(&mut owner, "second", &["view"]);

    let items = owner.read("/audit")["items"].clone();

    let shown: Vec<_> = items.as_array().expect("a list").iter().collect();
    let names: Vec<_> = shown.iter().map(|item| &item["details"]["name"]).collect();
    assert_eq!(names, [&json!("second"), &Value::Null, &json!("first")]);
    let damaged: Vec<_> = shown.iter().map(|item| &item["is_damaged"]).collect();
    assert_eq!(damaged, [&json!(false), &json!(true), &json!(false)]);
}
