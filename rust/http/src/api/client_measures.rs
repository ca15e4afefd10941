//! How busy and how slow clients are: fields of clients, and `GET /slow` (ADR 0095).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{ClientOrder, ClientQuery, ClientSummary, DelayStage};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::page::{Limit, List, whole_ms};
use super::problem::Problem;
use super::query::ApiQuery;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(slow))
}

/// MQTT packets a second, over the last ten seconds.
#[derive(Serialize, ToSchema)]
pub(super) struct ClientRates {
    /// From the client.
    r#in: f64,
    /// To the client.
    out: f64,
}

/// Measured deliveries to a client, from the read of a PUBLISH until it was written. Not all deliveries are measured.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub(super) struct Latency {
    /// The last measured delivery. One that is not written yet takes at least as long.
    last_ms: f64,
    /// The slowest measured delivery of the last ten minutes.
    worst_ms: f64,
}

/// The reason why messages of a client wait.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum WaitsFor {
    /// The socket accepts no bytes: the client does not read, or its network is slow.
    Network,
    /// Messages are queued until the client acknowledges earlier ones.
    Ack,
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl ClientRates {
    /// `None`: the client is not connected.
    pub(super) fn of(client: &ClientSummary) -> Option<Self> {
        let tenths = |rate: f64| (rate * 10.0).round() / 10.0;
        client.rates.map(|rates| Self {
            r#in: tenths(rates.received),
            out: tenths(rates.sent),
        })
    }
}

impl Latency {
    /// `None`: no delivery was measured.
    pub(super) fn of(client: &ClientSummary) -> Option<Self> {
        client.delivery_times.map(|times| Self {
            last_ms: ms(times.last),
            worst_ms: ms(times.worst),
        })
    }
}

impl WaitsFor {
    /// `None`: no messages wait for the client, or it is not connected.
    pub(super) fn of(client: &ClientSummary) -> Option<Self> {
        client.delay.map(|delay| match delay.stage {
            DelayStage::Network => Self::Network,
            DelayStage::Acknowledgement => Self::Ack,
        })
    }
}

/// A connected client, and how slow it is.
#[derive(Serialize, ToSchema)]
struct SlowSubscriber {
    client_id: String,
    /// Measured deliveries; null if there was none.
    latency: Option<Latency>,
    /// The reason why its messages wait; null if none wait.
    waits_for: Option<WaitsFor>,
    /// How long its socket has accepted no byte; null if it does.
    blocked_ms: Option<u64>,
    /// Bytes that wait for the socket.
    backlog_bytes: usize,
    /// Number of queued messages.
    queued: usize,
    /// Bytes of the queued messages, in memory and on the disk.
    queued_bytes: usize,
    /// Number of messages that the client has not acknowledged.
    inflight: usize,
}

impl From<ClientSummary> for SlowSubscriber {
    fn from(client: ClientSummary) -> Self {
        let blocked_for = client.delay.and_then(|delay| delay.blocked_for);
        Self {
            client_id: client.client_id.to_string(),
            latency: Latency::of(&client),
            waits_for: WaitsFor::of(&client),
            blocked_ms: blocked_for.map(whole_ms),
            backlog_bytes: client.backlog_bytes,
            queued: client.queued,
            queued_bytes: client.queued_bytes,
            inflight: client.in_flight,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SlowQuery {
    /// Maximum number of clients.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
}

/// Lists the slowest subscribers first.
///
/// They are ranked by their slowest measured delivery of the last ten minutes, or how long their socket has accepted no
/// byte; then by queued messages.
#[utoipa::path(get, path = "/api/v1/slow", tag = "clients", params(SlowQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<SlowSubscriber>)))]
async fn slow(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<SlowQuery>,
) -> Result<Json<List<SlowSubscriber>>, Problem> {
    let query = ClientQuery {
        order: ClientOrder::Slow,
        limit: query.limit.0,
        ..ClientQuery::default()
    };
    let page = state.broker.list_clients(query).await?;
    let is_slow =
        |client: &ClientSummary| client.delivery_times.is_some() || client.delay.is_some();
    let clients = page.clients.into_iter().filter(is_slow);
    let items = clients.map(SlowSubscriber::from).collect();
    Ok(Json(List::new(items, None, &page.missing)))
}
