//! Adds each request that changes something to the audit log (ADR 0051), refused ones too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::http::request::Parts;
use mqttcore_broker::{AuditEntry, BrokerHandle};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::tasks::{self, blocking};

use super::identity::{Caller, CallerIdentity};
use super::problem::Problem;
use super::scope::RouteScopes;

/// Path prefix that entries leave out.
const VERSION: &str = "/api/v1";

/// Fields of bodies that entries contain. Others may be secrets or payloads.
const SHOWN: [&str; 22] = [
    "all",
    "bytes",
    "client_id",
    "duration_s",
    "expires",
    "filter",
    "for_s",
    "kind",
    "name",
    "no_local",
    "qos",
    "retain",
    "retain_as_published",
    "scopes",
    "streams",
    "subscription_id",
    "to",
    "topic",
    "username",
    "value",
    "where",
    "why",
];

/// Maximum number of concurrent changes. A change continues after its connection has ended, and then the limit of
/// connections does not count it.
const CHANGES: usize = 32;
/// Texts of bodies are cut; the log cuts them once more.
const TEXT_CHARS: usize = 256;
/// Refusals of a caller that are recorded, in each [`WINDOW`]; further ones are counted in the next one that is.
const REFUSALS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Records the changes of all callers.
#[derive(Clone)]
pub(super) struct Recorder {
    broker: BrokerHandle,
    scopes: Arc<RouteScopes>,
    changes: Arc<Semaphore>,
    refusals: Arc<Mutex<Refusals>>,
}

impl Recorder {
    pub(super) fn new(broker: &BrokerHandle, scopes: &Arc<RouteScopes>) -> Self {
        Self {
            broker: broker.clone(),
            scopes: Arc::clone(scopes),
            changes: Arc::new(Semaphore::new(CHANGES)),
            refusals: Arc::default(),
        }
    }

    /// Writes the entry of an answered request.
    async fn write(self, mut entry: AuditEntry, response: Response) -> Result<Response, JoinError> {
        entry.result = outcome(&response);
        if is_refusal(&response) {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(left_out) = refusals.add(&entry.who, Instant::now()) else {
                return Ok(response);
            };
            without_its_texts(&mut entry, left_out);
        }
        let written = blocking(move || self.broker.audit(&entry)).await;
        written.map(|()| response)
    }
}

/// Recent refusals, by caller. Callers are keys, so that their number is limited.
#[derive(Debug, Default)]
struct Refusals(HashMap<String, Refused>);

#[derive(Debug)]
struct Refused {
    since: Instant,
    recorded: u32,
    left_out: u64,
}

impl Refusals {
    /// Counts a refusal. If it is recorded, returns how many before it were not.
    fn add(&mut self, who: &str, now: Instant) -> Option<u64> {
        let begin = || Refused {
            since: now,
            recorded: 0,
            left_out: 0,
        };
        let refused = self.0.entry(who.to_owned()).or_insert_with(begin);
        if now.saturating_duration_since(refused.since) >= WINDOW {
            (refused.since, refused.recorded) = (now, 0);
        }
        if refused.recorded == REFUSALS {
            refused.left_out += 1;
            return None;
        }
        refused.recorded += 1;
        Some(std::mem::take(&mut refused.left_out))
    }
}

/// Whether the caller lacks a scope.
fn is_refusal(response: &Response) -> bool {
    response.status() == StatusCode::FORBIDDEN
}

/// Removes the texts of a refused request that its caller chose freely.
fn without_its_texts(entry: &mut AuditEntry, left_out: u64) {
    let path = entry.target.find('?').unwrap_or(entry.target.len());
    entry.target.truncate(path);
    entry.details.clear();
    if left_out > 0 {
        entry
            .details
            .push(("left_out".into(), left_out.to_string()));
    }
}

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct RequestSource {
    /// `None` for a Unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) request_id: String,
    /// The connection is encrypted or local.
    pub(crate) is_private: bool,
}

impl RequestSource {
    pub(super) fn of(caller: &Caller<'_>, request_id: &str) -> Self {
        Self {
            address: caller.address,
            request_id: request_id.to_owned(),
            is_private: caller.access.is_private(),
        }
    }
}

/// Middleware that records changes. The change and its entry happen even if the client closes its connection.
pub(crate) async fn record(
    State(recorder): State<Recorder>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    if !recorder.scopes.may_change(path.as_str(), request.method()) {
        return next.run(request).await;
    }
    let Ok(permit) = Arc::clone(&recorder.changes).try_acquire_owned() else {
        let text = format!("{CHANGES} changes are being made");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text);
        return problem.retry_after(1).into_response();
    };
    let change = tasks::spawn(async move {
        let _permit = permit;
        let (head, body) = request.into_parts();
        // INVARIANT: the body is in memory, so that reading it does not fail.
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let entry = entry(&head, path.as_str(), &body);
        let request = Request::from_parts(head, Body::from(body));
        let response = next.run(request).await;
        recorder.write(entry, response).await
    });
    match change.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) | Err(error) => Problem::internal(&error).into_response(),
    }
}

/// An entry without result.
fn entry(head: &Parts, path: &str, body: &Bytes) -> AuditEntry {
    let identity = head.extensions.get::<CallerIdentity>();
    let source = head.extensions.get::<RequestSource>();
    let address = source.and_then(|source| source.address);
    let target = head
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    let below = |path: &str| path.strip_prefix(VERSION).unwrap_or(path).to_owned();
    AuditEntry {
        who: identity.map_or_else(String::new, |identity| identity.name.clone()),
        how: address.map_or("unix", |_| "http").into(),
        address,
        action: format!("{} {}", head.method, below(path)),
        target: below(target),
        details: details(body),
        result: String::new(),
        request_id: source.map(|source| source.request_id.clone()),
    }
}

/// Those fields of a body that are [`SHOWN`], cut; of a list of messages their number and topics.
fn details(body: &Bytes) -> Vec<(String, String)> {
    let fields: Map<String, Value> = match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => fields,
        Ok(Value::Array(items)) => list_details(&items),
        _ => Map::new(),
    };
    let shown = fields
        .into_iter()
        .filter(|(name, _)| SHOWN.contains(&name.as_str()));
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let cut = |text: String| text.chars().take(TEXT_CHARS + 1).collect();
    shown
        .map(|(name, value)| (name, cut(text(value))))
        .collect()
}

/// The number of messages in a list, and their topics.
fn list_details(items: &[Value]) -> Map<String, Value> {
    let topics = items.iter().filter_map(|item| item["topic"].as_str());
    let topics: Vec<_> = topics.collect();
    let fields = [
        ("topic".into(), topics.join(" ").into()),
        ("value".into(), format!("{} messages", items.len()).into()),
    ];
    fields.into_iter().collect()
}

/// The status; for a problem with its code.
fn outcome(response: &Response) -> String {
    let status = response.status().as_u16();
    match response.extensions().get::<Problem>() {
        Some(problem) => format!("{status} {}", problem.slug),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_ten_a_minute_are_counted_for_each_caller() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for _ in 0..REFUSALS {
            assert_eq!(refusals.add("a", now), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(refusals.add("a", now), None);
        }

        assert_eq!(refusals.add("b", now), Some(0));
        assert_eq!(refusals.add("a", now + WINDOW), Some(5));
        assert_eq!(refusals.add("a", now + WINDOW), Some(0));
    }
}
