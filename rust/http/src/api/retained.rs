//! Routes of retained messages.

use std::collections::HashSet;
use std::time::Instant;

use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mqttcore_broker::RetainedItem;
use mqttcore_topics::{TopicFilter, TopicLimits, TopicName};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::confirmed::{Removed, SAMPLE, is_dry_run};
use super::identity::CallerIdentity;
use super::page::{Limit, List, behind, cursor};
use super::problem::Problem;
use super::publish::{Content, Published, publish, refuse_sys};
use super::query::{ApiJson, ApiPath, ApiQuery, NoQuery};
use super::scope::Scope;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, delete_many))
        .routes(routes!(one, put, delete_one))
}

/// A retained message.
#[derive(Serialize, ToSchema)]
struct Retained {
    topic: String,
    qos: u8,
    payload_bytes: usize,
    /// Remaining time; null: the message does not expire.
    expires_in_s: Option<u32>,
    content_type: Option<String>,
    response_topic: Option<String>,
    /// Who has published it; null for clients without user name and for the broker itself.
    publisher: Option<RetainedPublisherInfo>,
    /// The payload in base64; only for a single topic, and only with the scope `payload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The payload as text, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
}

/// The client that has published a retained message.
#[derive(Serialize, ToSchema)]
struct RetainedPublisherInfo {
    client_id: String,
    username: String,
}

impl Retained {
    fn new(
        RetainedItem {
            message, publisher, ..
        }: &RetainedItem,
        has_payload: bool,
    ) -> Self {
        let properties = message.properties();
        let payload = has_payload.then(|| message.payload());
        let text = payload.and_then(|bytes| std::str::from_utf8(bytes).ok());
        Self {
            topic: message.topic().into(),
            qos: message.qos() as u8,
            payload_bytes: message.payload().len(),
            expires_in_s: message.remaining_expiry_s(Instant::now()),
            content_type: properties.content_type().map(|text| text.as_str().into()),
            response_topic: properties.response_topic().map(|text| text.as_str().into()),
            publisher: publisher.as_ref().map(|publisher| RetainedPublisherInfo {
                client_id: (*publisher.client_id).into(),
                username: (*publisher.username).into(),
            }),
            payload_base64: payload.map(|bytes| STANDARD.encode(bytes)),
            payload: text.map(Into::into),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only topics that match this filter; default `#`, which does not match topics that begin with `$`.
    filter: Option<String>,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// Position of the page: `next` of the previous page.
    after: Option<String>,
}

fn parse_filter(text: &str) -> Result<TopicFilter, Problem> {
    let filter = TopicFilter::parse(text, &TopicLimits::WIDEST);
    filter.map_err(|error| Problem::bad(format!("filter: {error}: {text:?}")))
}

/// Lists retained messages by topic, without payloads.
#[utoipa::path(get, path = "/api/v1/retained", tag = "messages", params(ListQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<Retained>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<List<Retained>>, Problem> {
    let filter = parse_filter(query.filter.as_deref().unwrap_or("#"))?;
    let after = behind(query.after.as_deref())?;
    let page = state
        .broker
        .list_retained(&filter, after.as_deref(), query.limit.0);
    let page = page.await?;
    let last = page.messages.last().filter(|_| page.has_more);
    let next = last.map(|last| cursor(last.message.topic()));
    let items = page.messages.iter().map(|item| Retained::new(item, false));
    Ok(Json(List::new(items.collect(), next, &[])))
}

/// Parses a topic of a request.
pub(super) fn parse_topic(text: &str) -> Result<TopicName<'_>, Problem> {
    let topic = TopicName::parse(text, &TopicLimits::WIDEST);
    topic.map_err(|error| Problem::bad(format!("topic: {error}: {text:?}")))
}

fn nothing_retained(topic: &str) -> Problem {
    Problem::not_found(format!("topic {topic:?} has no retained message"))
        .hint("slashes of the topic are sent as %2F; GET /api/v1/retained?filter= lists topics")
}

/// Returns the retained message of a topic; its payload to callers with the scope `payload`. Slashes are sent as `%2F`.
#[utoipa::path(get, path = "/api/v1/retained/{topic}", tag = "messages", security(("key" = ["view"])),
    params(("topic" = String, Path, description = "Topic, percent-encoded")),
    responses((status = 200, body = Retained)))]
async fn one(
    State(state): State<ApiState>,
    Extension(caller): Extension<CallerIdentity>,
    ApiPath(topic): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<Retained>, Problem> {
    let item = state.broker.retained(parse_topic(&topic)?)?;
    let item = item.ok_or_else(|| nothing_retained(&topic))?;
    Ok(Json(Retained::new(&item, caller.has(Scope::Payload))))
}

/// Publishes a retained message. Slashes of the topic are sent as `%2F`.
#[utoipa::path(put, path = "/api/v1/retained/{topic}", tag = "messages", security(("key" = ["operate"])),
    params(("topic" = String, Path, description = "Topic, percent-encoded")), request_body = Content,
    responses((status = 200, body = Published), (status = 202, body = Published, description = "QoS 0: the message may be lost")))]
async fn put(
    State(state): State<ApiState>,
    ApiPath(topic): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(content): ApiJson<Content>,
) -> Result<Published, Problem> {
    if content.is_empty()? {
        return Err(Problem::bad("an empty payload retains nothing").hint("DELETE removes it"));
    }
    publish(&state, &topic, &content, true).await
}

/// Removes the retained message of a topic: subscribers get an empty message. Slashes are sent as `%2F`.
#[utoipa::path(delete, path = "/api/v1/retained/{topic}", tag = "messages", security(("key" = ["operate"])),
    params(("topic" = String, Path, description = "Topic, percent-encoded")),
    responses((status = 204, description = "It is removed")))]
async fn delete_one(
    State(state): State<ApiState>,
    ApiPath(topic): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<hyper::StatusCode, Problem> {
    refuse_sys(&topic)?;
    if state.broker.retained(parse_topic(&topic)?)?.is_none() {
        return Err(nothing_retained(&topic));
    }
    publish(&state, &topic, &Content::empty(), true).await?;
    Ok(hyper::StatusCode::NO_CONTENT)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeleteQuery {
    /// Only topics that match this filter.
    filter: String,
    /// true: only counts the messages that would be removed. Default true.
    dry_run: Option<bool>,
    /// With `dry_run=false`: the number of messages that the dry run found.
    count: Option<usize>,
}

/// Removes the retained messages that match a filter. Send first a dry run, then `dry_run=false` with the count of the dry run.
#[utoipa::path(delete, path = "/api/v1/retained", tag = "messages", params(DeleteQuery), security(("key" = ["operate"])),
    responses((status = 200, body = Removed)))]
async fn delete_many(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<DeleteQuery>,
) -> Result<Json<Removed>, Problem> {
    refuse_sys(&query.filter)?;
    let filter = parse_filter(&query.filter)?;
    let (count, sample) = state.broker.count_retained(&filter, SAMPLE).await?;
    let dry_run = is_dry_run(query.dry_run, query.count, count, || {
        let text = format!("the filter matches {count} retained messages now");
        (text, "remove them")
    })?;
    if !dry_run {
        state
            .broker
            .clear_retained(&filter, HashSet::default())
            .await?;
    }
    Ok(Json(Removed {
        count,
        dry_run,
        sample,
    }))
}
