//! Sessions over the API: when they end, and how many are ended at once.

use std::sync::Arc;

use mqttcore_codec::QoS;
use serde_json::{Value, json};

use crate::api_caller::{Caller, key, setup};
use crate::common::{HOUR_S, Home, eventually, v5};

fn ids(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().expect("items").iter();
    items
        .map(|item| item["client_id"].as_str().expect("an identifier"))
        .collect()
}

#[test]
fn sessions_are_listed_with_the_time_of_their_end() {
    let home = Home::new();
    let mut setup = setup(&home);
    Arc::make_mut(&mut setup.config.limits).session_expiry_max_s = u32::MAX;
    let served = setup.start();
    let mut owner = Caller::owner(&home);
    let _here = v5("here").keeping_session_s(HOUR_S).connect(&served);
    let kept = |id: &str, seconds| v5(id).keeping_session_s(seconds).connect(&served);
    kept("day", 24 * HOUR_S).disconnect();
    kept("hour", HOUR_S).disconnect();
    kept("ever", u32::MAX).disconnect();
    eventually("three are offline", || {
        ids(&owner.read("/sessions?connected=false")).len() == 3
    });

    for (query, wanted) in [
        ("", vec!["day", "ever", "here", "hour"]),
        ("?connected=true", vec!["here"]),
        ("?q=ho", vec!["hour"]),
        ("?expires_within_s=7200", vec!["hour"]),
        ("?sort=expires&limit=2", vec!["hour", "day"]),
        ("?sort=away&limit=3", vec!["day", "hour", "ever"]),
        ("?away_s=3600", vec![]),
        ("?away_s=0", vec!["day", "ever", "hour"]),
        ("?min_queue=1", vec![]),
        ("?user=joe", vec![]),
    ] {
        let page = owner.read(&format!("/sessions{query}"));
        assert_eq!(ids(&page), wanted, "{query}");
    }
    let first = owner.read("/sessions?limit=1&sort=stored");
    let next = first["next"].as_str().expect("another page");
    let path = format!("/sessions?limit=3&sort=stored&after={next}");
    assert_eq!(ids(&owner.read(&path)).len(), 3);
    let page = owner.read("/sessions");
    let of = |id: &str| {
        let place = ids(&page).iter().position(|other| *other == id);
        &page["items"][place.expect("listed")]
    };
    assert_eq!(
        (&of("here")["away_since_ms"], &of("here")["expires_at_ms"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(of("ever")["expires_at_ms"], Value::Null);
    let ms = |field: &str| of("hour")[field].as_u64().expect("a time");
    let kept_ms = ms("expires_at_ms") - ms("away_since_ms");
    assert!(
        kept_ms.abs_diff(u64::from(HOUR_S) * 1_000) <= 10,
        "{kept_ms}"
    );
    let refused = owner.get("/sessions?sort=away&after=YQ");
    refused.is_problem(400, "leave sort out");
}

/// Ending many needs the count of a dry run, and clients that are connected keep theirs.
#[test]
fn sessions_of_offline_clients_are_ended_by_those_who_know_how_many() {
    let home = Home::new();
    let served = setup(&home).start();
    let mut owner = Caller::owner(&home);
    let mut here = v5("old-here").keeping_session_s(HOUR_S).connect(&served);
    for number in 0..150 {
        let id = format!("old-{number}");
        let mut client = v5(&id).keeping_session_s(HOUR_S).connect(&served);
        client.subscribe("q", QoS::AtLeastOnce);
        client.disconnect();
    }
    let other = v5("new").keeping_session_s(HOUR_S).will("w", "x");
    other.connect(&served).disconnect();
    eventually("all are offline", || {
        owner.read("/overview")["clients"]["connected"] == 1
    });
    let mut viewer = {
        let secret = key(&mut owner, "viewer", &["view", "operate"]);
        Caller::with(&served, Some(&secret))
    };

    let dry = owner.ask("DELETE", "/sessions?q=old", "").json;
    assert_eq!(
        (&dry["count"], &dry["dry_run"]),
        (&json!(150), &json!(true))
    );
    assert_eq!(dry["sample"].as_array().map(Vec::len), Some(20));
    let end = "/sessions?q=old&dry_run=false";
    for query in ["", "&count=151"] {
        let answer = owner.ask("DELETE", &format!("{end}{query}"), "");
        answer.is_problem(409, "count=150");
    }
    viewer
        .ask("DELETE", &format!("{end}&count=150"), "")
        .is_problem(403, "lacks the scope");
    assert_eq!(served.stats().subscriptions, 150);

    let done = owner.ask("DELETE", &format!("{end}&count=150"), "").json;

    assert_eq!(
        (&done["count"], &done["dry_run"]),
        (&json!(150), &json!(false))
    );
    assert_eq!(ids(&owner.read("/sessions")), ["new", "old-here"]);
    assert_eq!(served.stats().subscriptions, 0);
    here.ping();
    let _served = setup(&home).start_after_crash(&home, served);
    let mut owner = Caller::at(&home, 1);
    owner.until_loaded();
    assert_eq!(ids(&owner.read("/sessions?q=old")), ["old-here"]);
    assert_eq!(ids(&owner.read("/sessions?q=new")), ["new"]);
}
