//! The figures of the last hour, day and week.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::api_caller::{Caller, key, setup};
use crate::common::{Home, eventually, v5};

fn numbers(values: &Value) -> Vec<f64> {
    let values = values.as_array().expect("a list").iter();
    values.filter_map(Value::as_f64).collect()
}

#[test]
fn the_history_has_what_happened_before_somebody_asked() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let secret = key(&mut owner, "viewer", &["view"]);
    let mut viewer = Caller::with(&served, Some(&secret));
    let mut client = v5("c").connect(&served);
    let path = "/history?metric=messages_received,clients_connected,store_log_bytes";
    eventually("both are in the history", || {
        client.publish_acknowledged("t", b"x");
        let found = viewer.read(path);
        let published: f64 = numbers(&found["metrics"]["messages_received"]).iter().sum();
        let connected = numbers(&found["metrics"]["clients_connected"]);
        published > 0.0 && connected.last() == Some(&1.0)
    });

    let found = viewer.read(path);

    assert_eq!(found["step_s"], 1);
    let metrics = found["metrics"].as_object().expect("an object");
    assert_eq!(metrics.len(), 3);
    let steps = numbers(&metrics["clients_connected"]).len() as u64;
    assert!(
        metrics
            .values()
            .all(|values| values.as_array().expect("a list").len() as u64 == steps)
    );
    let [from, now] = ["from_ms", "as_of_ms"].map(|name| found[name].as_u64().expect("a time"));
    let last = from + (steps - 1) * 1_000;
    assert!(last <= now && now < last + 2_500, "{from} {steps} {now}");
    assert!(
        numbers(&metrics["store_log_bytes"])
            .iter()
            .all(|bytes| *bytes > 0.0)
    );
}

#[test]
fn the_history_of_an_earlier_broker_is_read() {
    let home = Home::new();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now_s.expect("after 1970").as_secs();
    let mut content = b"mqttcore history 1 sessions gone\n".to_vec();
    for age_s in [3 * 86_400, 7_200, 100, 90] {
        content.extend((now_s - age_s).to_le_bytes());
        content.extend([41.0_f32, 0.0].map(f32::to_le_bytes).concat());
    }
    let folder = home.folder(0).join("history");
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("rows"), content).expect("written");
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    eventually("there is a sample", || owner.get("/history").status == 200);
    let mut sessions = |query: &str| {
        let found = owner.read(&format!("/history?metric=sessions&{query}"));
        let old = numbers(&found["metrics"]["sessions"]);
        old.iter()
            .filter(|value| (*value - 41.0).abs() < 0.5)
            .count()
    };

    assert_eq!(sessions("from=-604800"), 3, "two of them in a minute");
    assert_eq!(sessions("from=-86400&step=10"), 3);
    assert_eq!(sessions("from=-3600"), 20);
}

#[test]
fn the_step_of_an_answer_is_that_of_the_request_or_reaches_back_to_its_begin() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    eventually("there is a sample", || owner.get("/history").status == 200);

    for (query, step) in [
        ("", 1),
        ("?from=-3600", 1),
        ("?from=-86400", 10),
        ("?from=-604800", 60),
        ("?from=0", 60),
        ("?from=-60&step=60", 60),
        ("?from=0&step=1", 1),
    ] {
        assert_eq!(
            owner.read(&format!("/history{query}"))["step_s"],
            step,
            "{query}"
        );
    }
    let all = owner.read("/history?from=-10")["metrics"].clone();
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(28));
}

#[test]
fn a_question_for_a_history_that_is_not_kept_is_refused_with_a_hint() {
    let home = Home::new();
    let _served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    eventually("there is a sample", || owner.get("/history").status == 200);

    for (query, text) in [
        (
            "?metric=messages_recieved",
            "did you mean \\\"messages_received\\\"?",
        ),
        ("?metric=", "unknown metric"),
        ("?metric=sessions,,", "unknown metric"),
        ("?step=5", "step is not 1, 10 or 60"),
        ("?step=-1", "step"),
        ("?from=yesterday", "from"),
        ("?metrics=sessions", "did you mean \\\"metric\\\"?"),
    ] {
        let answer = owner.get(&format!("/history{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(
            answer.json.to_string().contains(text),
            "{query}: {}",
            answer.json
        );
    }
}
