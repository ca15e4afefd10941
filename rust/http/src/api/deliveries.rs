//! `GET /explain/delivery/live`: deliveries while they happen (ADR 0118).

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use mqttcore_broker::{DeliveryWatch, WatchedDelivery};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::tasks;

use super::ApiState;
use super::client_items::parse_filter;
use super::explain::ReceiverVerdict;
use super::identity::CallerIdentity;
use super::problem::Problem;
use super::query::ApiQuery;
use super::readers::{EVENT_STREAM, Gone, Pieces, Progress, add_lost, stream};
use super::scope::Scope;
use super::traces::unix_us;

/// Deliveries that are taken out of a watch at once.
const BATCH: usize = 256;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(live))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WatchQuery {
    /// Topic filter of the messages, with mount points in front.
    filter: String,
    /// Client identifier of the receiver. Default: all receivers.
    client: Option<String>,
}

/// A message and one of its receivers.
#[derive(Serialize)]
struct LiveDelivery<'a> {
    /// When the session of the receiver got the message, in unix microseconds.
    ts_us: u64,
    topic: &'a str,
    published_qos: u8,
    /// Bytes of the payload.
    bytes: usize,
    #[serde(flatten)]
    receiver: ReceiverVerdict,
}

impl<'a> LiveDelivery<'a> {
    fn new(delivery: &'a WatchedDelivery) -> Self {
        Self {
            ts_us: unix_us(delivery.at),
            topic: &delivery.topic,
            published_qos: delivery.published_qos as u8,
            bytes: delivery.payload_bytes,
            receiver: delivery.receiver.clone().into(),
        }
    }
}

/// Streams deliveries of messages on topics that `filter` matches as server-sent events `delivery`, until the reader disconnects.
///
/// Each event has a receiver with its verdict, as in `POST /explain/delivery`, at the moment when its session gets the
/// message. A reader that is too slow misses deliveries; an event `lost` says how many.
#[utoipa::path(get, path = "/api/v1/explain/delivery/live", tag = "messages", params(WatchQuery),
    security(("key" = ["operate"])), responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn live(
    State(state): State<ApiState>,
    Extension(identity): Extension<CallerIdentity>,
    ApiQuery(query): ApiQuery<WatchQuery>,
) -> Result<Response, Problem> {
    let filter = parse_filter("filter", &query.filter)?;
    let (sender, response) = state.readers.admit(EVENT_STREAM)?;
    let watch = state.broker.watch_deliveries(filter, query.client).await?;
    let reader = LiveDeliveries {
        watch,
        after: 0,
        key: identity.key,
        state,
    };
    tasks::spawn(sender.run(|out| reader.send(out)));
    Ok(response)
}

/// A stream of deliveries.
struct LiveDeliveries {
    watch: Arc<DeliveryWatch>,
    /// The number of the last delivery that was sent.
    after: u64,
    state: ApiState,
    /// SHA-256 of the key that asked, if it was one.
    key: Option<[u8; 32]>,
}

impl LiveDeliveries {
    /// Sends deliveries until the key is not in force.
    async fn send(mut self, sender: Pieces) -> Result<(), Gone> {
        stream(sender, "deliveries", |out| self.add_batch(out)).await
    }

    fn add_batch(&mut self, out: &mut Vec<u8>) -> Progress {
        let state = &self.state;
        let key = self.key.as_ref();
        if key.is_some_and(|key| !state.admits(key, Scope::Operate)) {
            return Progress::End;
        }
        let taken = self.watch.take(BATCH);
        for delivery in &taken {
            add_lost(delivery.number.saturating_sub(self.after + 1), out);
            self.after = delivery.number;
            let line = serde_json::to_string(&LiveDelivery::new(delivery)).unwrap_or_default();
            out.extend(format!("event: delivery\ndata: {line}\n\n").into_bytes());
        }
        if taken.len() < BATCH {
            Progress::Waiting
        } else {
            Progress::More
        }
    }
}
