//! HTTP routes of the sink: stage, commit, abort.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Incoming;
use mqttcore_streams::{QueryName, Sink, SinkError, StageId};
use serde::Deserialize;
use serde_json::json;

use crate::HttpLimits;

use super::answer::{HttpError, HttpResponse, json};
use super::api::identity::CallerIdentity;
use super::body;
use super::target::{RequestTarget, finish, number};
use super::tasks::{self, blocking};

/// The query, batch and stages of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageSelection {
    query: String,
    batch: u64,
    stages: Vec<String>,
}

/// A batch to publish.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    query: String,
    batch: u64,
    stages: Vec<String>,
    #[serde(default)]
    replacing: Option<String>,
}

/// `POST /v1/sink/stage`: stores the rows of the body in a stage.
pub(super) async fn stage(
    sink: &Arc<Sink>,
    mut target: RequestTarget<'_>,
    mut body: Incoming,
    limits: &HttpLimits,
    caller: &CallerIdentity,
) -> Result<HttpResponse, HttpError> {
    let missing = |key: &str| HttpError::bad(format!("{key} is missing"));
    let query = target.take("query").ok_or_else(|| missing("query"))?;
    let stage = target.take("stage").ok_or_else(|| missing("stage"))?;
    let batch = number(&mut target, "batch")?;
    finish(&target)?;
    let id = StageId::new(name(caller, &query)?, batch, &stage)
        .map_err(|error| sink_error_response(&error))?;
    let mut staging = sink
        .stage(id)
        .map_err(|error| sink_error_response(&error))?;
    while let Some(piece) = body::next(&mut body, limits).await? {
        let taken = blocking(move || staging.take(&piece).map(|()| staging)).await?;
        staging = taken.map_err(|error| unread(&error))?;
    }
    let rows = blocking(move || staging.end()).await?;
    let rows = rows.map_err(|error| unread(&error))?;
    Ok(json(&json!({"rows": rows})))
}

/// `POST /v1/sink/commit`: publishes the stages; continues if the client disconnects.
pub(super) async fn commit(
    sink: &Arc<Sink>,
    body: Incoming,
    limits: &HttpLimits,
    caller: &CallerIdentity,
) -> Result<HttpResponse, HttpError> {
    let Commit {
        query,
        batch,
        stages,
        replacing,
    } = body::json(body, limits).await?;
    let (sink, query) = (Arc::clone(sink), name(caller, &query)?);
    let work = async move { sink.commit(query, batch, stages, replacing).await };
    let committed = tasks::spawn(work).await?;
    let committed = committed.map_err(|error| sink_error_response(&error))?;
    Ok(json(&json!({"committed": committed})))
}

/// `POST /v1/sink/abort`: removes the stages.
pub(super) async fn abort(
    sink: &Sink,
    body: Incoming,
    limits: &HttpLimits,
    caller: &CallerIdentity,
) -> Result<HttpResponse, HttpError> {
    let StageSelection {
        query,
        batch,
        stages,
    } = body::json(body, limits).await?;
    let removed = sink.abort(&name(caller, &query)?, batch, &stages).await;
    let removed = removed.map_err(|error| sink_error_response(&error))?;
    Ok(json(&json!({"removed": removed})))
}

/// The name under which the sink knows a query of `caller`.
fn name(caller: &CallerIdentity, query: &str) -> Result<QueryName, HttpError> {
    let owner = caller.queries();
    QueryName::new(owner.as_deref(), query).map_err(|error| sink_error_response(&error))
}

/// The response for a fault of a stage. It closes the connection, since the rest of the body is not read.
fn unread(error: &SinkError) -> HttpError {
    sink_error_response(error).closing()
}

fn sink_error_response(error: &SinkError) -> HttpError {
    let (status, code) = match error {
        SinkError::Name(_) | SinkError::Filter { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
        SinkError::Row { .. } | SinkError::Rows(_) => (StatusCode::BAD_REQUEST, "bad_rows"),
        SinkError::Late(_) => (StatusCode::CONFLICT, "late"),
        SinkError::Stage(_) => (StatusCode::CONFLICT, "unknown_stage"),
        SinkError::Full => (StatusCode::INSUFFICIENT_STORAGE, "no_room"),
        SinkError::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
        SinkError::Io(_) => (StatusCode::SERVICE_UNAVAILABLE, "store"),
    };
    HttpError::new(status, code, error.to_string())
}
