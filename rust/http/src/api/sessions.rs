//! Routes of sessions: how long they are kept; ending many at once.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{ClientFilter, ClientOrder, ClientQuery, ClientSummary};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::clients::{Queue, next_of, page_query, version_name};
use super::confirmed::{Removed, SAMPLE, is_dry_run};
use super::page::{Limit, List, unix_ms, whole_ms};
use super::problem::Problem;
use super::query::ApiQuery;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, end_many))
}

/// A session and how long it is kept.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
struct SessionInfo {
    client_id: String,
    username: Option<String>,
    connected: bool,
    /// `3.1`, `3.1.1` or `5.0`.
    version: &'static str,
    /// When the client was last connected, in Unix milliseconds; null: it is connected.
    away_since_ms: Option<u64>,
    /// When the session ends if the client stays offline, in Unix milliseconds; null: it does not expire, or the client is
    /// connected.
    expires_at_ms: Option<u64>,
    /// Session Expiry Interval; 4294967295 means that the session does not expire.
    session_expiry_s: u32,
    /// Number of subscriptions.
    subscriptions: usize,
    queue: Queue,
    /// Number of QoS 1 and 2 messages that were sent and not acknowledged.
    inflight: usize,
    /// Topic of a will that is published if its delay or the session ends.
    will_topic: Option<String>,
}

impl From<ClientSummary> for SessionInfo {
    fn from(client: ClientSummary) -> Self {
        let ago = |time| unix_ms().saturating_sub(whole_ms(time));
        Self {
            queue: Queue::of(&client),
            client_id: client.client_id.to_string(),
            username: client.username.map(|name| name.to_string()),
            connected: client.connected_for.is_some(),
            version: version_name(client.version),
            away_since_ms: client.away_for.map(ago),
            expires_at_ms: client
                .expires_in
                .map(|time| unix_ms().saturating_add(whole_ms(time))),
            session_expiry_s: client.session_expiry_s,
            subscriptions: client.subscriptions,
            inflight: client.in_flight,
            will_topic: client.will.map(|will| will.topic.to_string()),
        }
    }
}

/// The order of a list.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SessionSort {
    #[default]
    ClientId,
    Stored,
    Queue,
    Away,
    Expires,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// A part of the client identifier.
    q: Option<String>,
    /// The user name.
    user: Option<String>,
    /// Whether the client has a connection.
    connected: Option<bool>,
    /// Minimum number of queued messages.
    #[serde(default)]
    #[param(required = false)]
    min_queue: usize,
    /// Only sessions whose client has been offline for so many seconds.
    away_s: Option<u32>,
    /// Only sessions that end within so many seconds if their client stays offline.
    expires_within_s: Option<u32>,
    /// The order. Only lists by `client_id` and `stored` have several pages; the others have the first `limit` items.
    /// `away`: the longest offline first; `expires`: the one that ends first. `stored` takes the least time, as for
    /// clients.
    #[serde(default)]
    #[param(inline, required = false)]
    sort: SessionSort,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// Position of the page: `next` of the previous page.
    after: Option<String>,
}

fn seconds(number: Option<u32>) -> Option<Duration> {
    number.map(|number| Duration::from_secs(number.into()))
}

impl ListQuery {
    fn query(self) -> Result<ClientQuery, Problem> {
        let order = match self.sort {
            SessionSort::ClientId => ClientOrder::ClientId,
            SessionSort::Stored => ClientOrder::Stored,
            SessionSort::Queue => ClientOrder::Queued,
            SessionSort::Away => ClientOrder::Away,
            SessionSort::Expires => ClientOrder::Expires,
        };
        let filter = ClientFilter {
            id_contains: self.q,
            username: self.user,
            connected: self.connected,
            min_queued: self.min_queue,
            min_away: seconds(self.away_s),
            expires_within: seconds(self.expires_within_s),
            ..ClientFilter::default()
        };
        page_query(filter, order, self.limit, self.after.as_deref())
    }
}

/// Lists sessions, those of offline clients too, with the time of their end.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "clients", params(ListQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<SessionInfo>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<List<SessionInfo>>, Problem> {
    let query = query.query()?;
    let order = query.order;
    let page = state.broker.list_clients(query).await?;
    let next = next_of(&page, order);
    let items = page.clients.into_iter().map(SessionInfo::from).collect();
    Ok(Json(List::new(items, next, &page.missing)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EndQuery {
    /// A part of the client identifier.
    q: Option<String>,
    /// The user name.
    user: Option<String>,
    /// Minimum number of queued messages.
    #[serde(default)]
    #[param(required = false)]
    min_queue: usize,
    /// Only sessions whose client has been offline for so many seconds.
    away_s: Option<u32>,
    /// true: only counts the sessions that would be ended. Default true.
    dry_run: Option<bool>,
    /// With `dry_run=false`: the number of sessions that the dry run found.
    count: Option<usize>,
}

/// Ends the sessions of offline clients that match the query. Send first a dry run, then `dry_run=false` with the count of the dry run.
///
/// Queued messages of these sessions are lost.
#[utoipa::path(delete, path = "/api/v1/sessions", tag = "clients", params(EndQuery), security(("key" = ["admin"])),
    responses((status = 200, body = Removed)))]
async fn end_many(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<EndQuery>,
) -> Result<Json<Removed>, Problem> {
    let filter = ClientFilter {
        id_contains: query.q,
        username: query.user,
        min_queued: query.min_queue,
        min_away: seconds(query.away_s),
        ..ClientFilter::default()
    };
    let mut found = state.broker.count_sessions(&filter, SAMPLE).await?;
    let dry_run = is_dry_run(query.dry_run, query.count, found.count, || {
        let text = format!("{} sessions without a connection match now", found.count);
        (text, "end them")
    })?;
    if !dry_run {
        found.count = state.broker.end_sessions(&filter).await?;
    }
    Ok(Json(Removed {
        count: found.count,
        dry_run,
        sample: found.sample.iter().map(ToString::to_string).collect(),
    }))
}
