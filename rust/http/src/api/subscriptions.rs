//! `GET /subscriptions`: subscriptions of all clients, and subscribers of a topic.

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{AskError, ListPosition, ListedSubscription, Receiver};
use mqttcore_topics::{SubscriptionFilter, TopicLimits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::client_items::parse_subscription;
use super::page::{Limit, List, behind, cursor};
use super::problem::Problem;
use super::query::ApiQuery;
use super::retained::parse_topic;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A subscription; in the list for a topic, a client that would receive its messages.
#[derive(Serialize, ToSchema)]
struct FoundSubscription {
    /// Null if the shard of the client did not answer.
    client_id: Option<String>,
    /// The topic filter; null in the list for a topic, where the matching subscriptions of a client are one item.
    filter: Option<String>,
    /// The shared subscription, of whose members one receives each message; null: not shared.
    group: Option<String>,
    /// Maximum QoS of delivered messages.
    qos: u8,
    /// The state of a member; only in lists of one shared subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<MemberState>,
}

/// A member of a shared subscription.
#[derive(Serialize, ToSchema)]
struct MemberState {
    connected: bool,
    /// Number of its queued messages, of all its subscriptions.
    queued: usize,
    /// Number of messages that it has not acknowledged.
    inflight: usize,
}

impl From<ListedSubscription> for FoundSubscription {
    fn from(held: ListedSubscription) -> Self {
        Self {
            client_id: held.client_id.map(|id| id.to_string()),
            group: held.filter.is_shared().then(|| held.filter.as_str().into()),
            filter: Some(held.filter.as_str().into()),
            qos: held.options.qos as u8,
            member: None,
        }
    }
}

impl From<Receiver> for FoundSubscription {
    fn from(receiver: Receiver) -> Self {
        Self {
            client_id: receiver.client_id.map(|id| id.to_string()),
            group: receiver.group.map(|group| group.as_str().into()),
            filter: None,
            qos: receiver.qos as u8,
            member: None,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only subscriptions with this filter; those of a shared subscription with `$share/GROUP/` in front.
    filter: Option<String>,
    /// Lists the clients that would receive a message on this topic.
    topic: Option<String>,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// Position of the page: `next` of the previous page. Not with `topic`, which lists the first receivers.
    after: Option<String>,
}

/// Lists subscriptions in a fixed order, or the clients that would receive a message on `topic`.
#[utoipa::path(get, path = "/api/v1/subscriptions", tag = "clients", params(ListQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<FoundSubscription>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<List<FoundSubscription>>, Problem> {
    match (&query.topic, &query.filter, &query.after) {
        (None, ..) => all(&state, &query).await,
        (Some(topic), None, None) => receivers(&state, topic, query.limit).await,
        _ => Err(Problem::bad("topic is not for use with filter or after")),
    }
    .map(Json)
}

async fn all(state: &ApiState, query: &ListQuery) -> Result<List<FoundSubscription>, Problem> {
    let parse = |text: &String| parse_subscription(text, &TopicLimits::WIDEST);
    let filter = query.filter.as_ref().map(parse).transpose()?;
    let is_group = filter.as_ref().is_some_and(SubscriptionFilter::is_shared);
    let after = behind(query.after.as_deref())?;
    let after = after.map(|text| position(&text)).transpose()?;
    let page = state
        .broker
        .list_subscriptions(filter, after, query.limit.0);
    let page = page.await?;
    let last = page.items.last().filter(|_| page.has_more);
    let next = last.map(|held| cursor(&format!("{} {}", held.session, held.filter.as_str())));
    let items = page.items.into_iter().map(FoundSubscription::from);
    let mut items: Vec<_> = items.collect();
    if is_group {
        for item in &mut items {
            item.member = member(state, item.client_id.as_deref()).await?;
        }
    }
    Ok(List::new(items, next, &page.missing))
}

/// The state of a member; `None` if its session has ended meanwhile, or its shard does not answer.
async fn member(state: &ApiState, id: Option<&str>) -> Result<Option<MemberState>, Problem> {
    let Some(id) = id else { return Ok(None) };
    let client = match state.broker.client(id).await {
        Err(AskError::Late { .. } | AskError::Loading) => None,
        found => found?,
    };
    Ok(client.map(|client| MemberState {
        connected: client.connected_for.is_some(),
        queued: client.queued,
        inflight: client.in_flight,
    }))
}

fn position(text: &str) -> Result<ListPosition, Problem> {
    let parts = text.split_once(' ');
    let position = parts.and_then(|(session, filter)| Some((session.parse().ok()?, filter.into())));
    position.ok_or_else(|| Problem::bad("after is not the position of a page of this list"))
}

async fn receivers(
    state: &ApiState,
    topic: &str,
    limit: Limit,
) -> Result<List<FoundSubscription>, Problem> {
    let page = state.broker.receivers(parse_topic(topic)?, limit.0).await?;
    let page = page.ok_or_else(|| {
        Problem::conflict(
            "too many filters with wildcards match parts of the topic: a message would be refused",
        )
    })?;
    let items = page
        .items
        .into_iter()
        .map(FoundSubscription::from)
        .collect();
    Ok(List::new(items, None, &page.missing))
}
