//! Adds each request that changes something to the audit log (ADR 0051), refused ones too.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use mqttcore_broker::{AuditEntry, BrokerHandle};
use serde_json::{Map, Value};

use super::identity::Identity;
use super::problem::Problem;
use super::scope::RouteScopes;

/// Path prefix that entries leave out.
const VERSION: &str = "/api/v1";

/// Fields of bodies that entries contain. Others may be secrets or payloads.
const SHOWN: [&str; 16] = [
    "duration_s",
    "expires",
    "filter",
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
    "value",
    "why",
];

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `None` for a Unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) request_id: String,
}

/// Middleware that records changes. The change and its entry happen even if the client closes its connection.
pub(crate) async fn record(
    State((broker, scopes)): State<(BrokerHandle, Arc<RouteScopes>)>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method();
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    if is_read || scopes.only_reads(path.as_str(), method) {
        return next.run(request).await;
    }
    let change = tokio::task::spawn_local(async move {
        let (head, body) = request.into_parts();
        // INVARIANT: the body is in memory, so that reading it does not fail.
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let mut entry = entry(&head, path.as_str(), &body);
        let request = Request::from_parts(head, Body::from(body));
        let response = next.run(request).await;
        entry.result = outcome(&response);
        let written = tokio::task::spawn_blocking(move || broker.audit(&entry)).await;
        written.map(|()| response)
    });
    match change.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) | Err(error) => {
            let (status, slug) = (StatusCode::INTERNAL_SERVER_ERROR, "internal");
            Problem::new(status, slug, error.to_string()).into_response()
        }
    }
}

/// An entry without result.
fn entry(head: &Parts, path: &str, body: &Bytes) -> AuditEntry {
    let identity = head.extensions.get::<Identity>();
    let source = head.extensions.get::<Source>();
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

/// Those fields of a body that are [`SHOWN`].
fn details(body: &Bytes) -> Vec<(String, String)> {
    let fields: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    let shown = fields
        .into_iter()
        .filter(|(name, _)| SHOWN.contains(&name.as_str()));
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    shown.map(|(name, value)| (name, text(value))).collect()
}

/// The status; for a problem with its code.
fn outcome(response: &Response) -> String {
    let status = response.status().as_u16();
    match response.extensions().get::<Problem>() {
        Some(problem) => format!("{status} {}", problem.slug),
        None => status.to_string(),
    }
}
