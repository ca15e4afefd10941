//! `GET /topics`: the tree of topics with retained messages, level by level.

use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mqttcore_broker::{TopicNode, TopicQuery};
use mqttcore_session::Message;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::identity::CallerIdentity;
use super::page::{Bounded, Limit, List, behind, cursor};
use super::problem::Problem;
use super::query::ApiQuery;
use super::retained::parse_topic;
use super::scope::Scope;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Bytes of a payload that the tree shows.
const HEAD_BYTES: usize = 64;

/// A topic of the tree.
#[derive(Serialize, ToSchema)]
struct TopicInfo {
    /// The whole topic, or the levels down to this one.
    topic: String,
    /// Its last level.
    name: String,
    /// Whether the topic itself has a retained message.
    retained: bool,
    /// Number of retained messages on the topic and below it.
    messages: usize,
    /// Number of receivers of a message on the topic: clients, and shared subscriptions; null: not known.
    subscribers: Option<usize>,
    /// Bytes of the payload of its retained message.
    payload_bytes: Option<usize>,
    /// The first 64 bytes of it, in base64; only with the scope `payload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_base64: Option<String>,
}

impl TopicInfo {
    fn new(node: TopicNode, message: Option<&Message>, has_payload: bool) -> Self {
        let payload = message.map(Message::payload);
        let head = payload.filter(|_| has_payload);
        let head = head.map(|bytes| &bytes[..bytes.len().min(HEAD_BYTES)]);
        let name = node.topic.rsplit('/').next().unwrap_or_default();
        Self {
            name: name.to_owned(),
            topic: node.topic,
            retained: node.is_retained,
            messages: node.retained,
            subscribers: node.subscribers,
            payload_bytes: payload.map(<[u8]>::len),
            head_base64: head.map(|bytes| STANDARD.encode(bytes)),
        }
    }
}

/// The number of levels of a list: at most those of a topic.
type Depth = Bounded<1_024, 1>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only topics below this one. Without it, topics that begin with `$` are left out.
    prefix: Option<String>,
    /// Number of levels.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1024, default = 1, required = false)]
    depth: Depth,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// Position of the page: `next` of the previous page.
    after: Option<String>,
}

/// Lists topics with retained messages as a tree, one level or several, each before those below it.
///
/// The broker does not know topics that were never retained.
#[utoipa::path(get, path = "/api/v1/topics", tag = "messages", params(ListQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<TopicInfo>)))]
async fn list(
    State(state): State<ApiState>,
    Extension(caller): Extension<CallerIdentity>,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<List<TopicInfo>>, Problem> {
    // The first level of a topic may be empty.
    if let Some(prefix) = query.prefix.as_deref().filter(|text| !text.is_empty()) {
        parse_topic(prefix)?;
    }
    let after = behind(query.after.as_deref())?;
    let query = TopicQuery {
        below: query.prefix.as_deref(),
        depth: query.depth.0,
        after: after.as_deref(),
        limit: query.limit.0,
    };
    let page = state.broker.list_topics(&query).await?;
    let last = page.topics.last().filter(|_| page.has_more);
    let next = last.map(|node| cursor(&node.topic));
    let has_payload = caller.has(Scope::Payload);
    let items = page.topics.into_iter().map(|node| {
        let message = if node.is_retained {
            state.broker.retained(parse_topic(&node.topic)?)?
        } else {
            None
        };
        let message = message.as_ref().map(|kept| &kept.message);
        Ok(TopicInfo::new(node, message, has_payload))
    });
    let items = items.collect::<Result<_, Problem>>()?;
    Ok(Json(List::new(items, next, &[])))
}
