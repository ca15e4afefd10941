//! `GET /clients/{id}/queue`: the messages that wait for a client.

use std::time::Instant;

use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mqttcore_broker::QueuedMessage;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::identity::CallerIdentity;
use super::page::Limit;
use super::problem::Problem;
use super::query::{ApiPath, ApiQuery};
use super::scope::Scope;

/// Maximum bytes of payloads in one response; later messages have none.
const PAYLOAD_BYTES: usize = 1 << 20;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(queue))
}

/// The queue of a client.
#[derive(Serialize, ToSchema)]
struct ClientQueue {
    /// Messages that are in memory, the oldest first.
    items: Vec<Queued>,
    /// Number of all queued messages.
    messages: usize,
    /// Those that are on the disk only; they are not listed.
    on_disk: usize,
}

/// A message that waits for a client.
#[derive(Serialize, ToSchema)]
struct Queued {
    topic: String,
    /// The QoS of the delivery.
    qos: u8,
    payload_bytes: usize,
    /// Null: it does not expire.
    expires_in_s: Option<u32>,
    /// With the scope `payload`, for the first MiB of payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Queued {
    /// `room` is the rest of [`PAYLOAD_BYTES`]; `None`: no payload is shown any more.
    fn new(queued: &QueuedMessage, room: &mut Option<usize>) -> Self {
        let message = &queued.message;
        let payload = message.payload();
        *room = room.and_then(|room| room.checked_sub(payload.len()));
        Self {
            topic: message.topic().into(),
            qos: queued.qos as u8,
            payload_bytes: payload.len(),
            expires_in_s: message.remaining_expiry_s(Instant::now()),
            payload_base64: room.map(|_| STANDARD.encode(payload)),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct QueueQuery {
    /// Messages to leave out, the oldest first. The queue moves on when the client gets messages.
    #[serde(default)]
    #[param(default = 0, required = false)]
    from: u32,
    /// Most items.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
}

/// Lists messages that wait for a client and are in memory, the oldest first; payloads to callers with the scope `payload`.
#[utoipa::path(get, path = "/api/v1/clients/{id}/queue", tag = "clients", security(("key" = ["view"])),
    params(("id" = String, Path, description = "Client identifier"), QueueQuery),
    responses((status = 200, body = ClientQueue)))]
async fn queue(
    State(state): State<ApiState>,
    Extension(caller): Extension<CallerIdentity>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<QueueQuery>,
) -> Result<Json<ClientQueue>, Problem> {
    let from = usize::try_from(query.from).unwrap_or(usize::MAX);
    let found = state.broker.client_queue(&id, from, query.limit.0).await?;
    let found = found.ok_or_else(|| Problem::no_client(&id))?;
    let mut room = caller.has(Scope::Payload).then_some(PAYLOAD_BYTES);
    let items = found.items.iter();
    Ok(Json(ClientQueue {
        items: items.map(|item| Queued::new(item, &mut room)).collect(),
        messages: found.messages,
        on_disk: found.on_disk,
    }))
}
