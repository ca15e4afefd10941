//! Routes of the subscriptions and the messages in flight of one client.

use std::num::NonZeroU32;

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use mqttcore_broker::Subscribed;
use mqttcore_codec::QoS;
use mqttcore_session::{InFlightMessage, Subscription};
use mqttcore_topics::{MAX_SUBSCRIPTION_ID, Options, SubscriptionFilter, TopicFilter, TopicLimits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::page::{Limit, List, PageQuery, behind, cursor};
use super::problem::Problem;
use super::query::{ApiJson, ApiPath, ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(subscriptions, subscribe))
        .routes(routes!(unsubscribe))
        .routes(routes!(in_flight))
}

/// A subscription of one client.
#[derive(Serialize, ToSchema)]
struct ClientSubscription {
    /// The topic filter; it begins with the client's mount point, if it has one.
    filter: String,
    /// The group of a shared subscription.
    share: Option<String>,
    #[serde(flatten)]
    options: SubscriptionOptions,
}

/// How messages of a subscription are delivered.
#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionOptions {
    /// Maximum QoS of delivered messages.
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
    /// The Subscription Identifier.
    subscription_id: Option<u32>,
}

impl From<Options> for SubscriptionOptions {
    fn from(options: Options) -> Self {
        Self {
            qos: options.qos as u8,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            subscription_id: options.id.map(NonZeroU32::get),
        }
    }
}

impl From<Subscription> for ClientSubscription {
    fn from(held: Subscription) -> Self {
        let share = held.filter.share();
        Self {
            share: share.map(|share| share.as_str().to_owned()),
            filter: held.filter.as_str().to_owned(),
            options: held.options.into(),
        }
    }
}

/// Lists the subscriptions of a client, by filter.
#[utoipa::path(get, path = "/api/v1/clients/{id}/subscriptions", tag = "clients", security(("key" = ["view"])),
    params(("id" = String, Path, description = "Client identifier"), PageQuery),
    responses((status = 200, body = List<ClientSubscription>)))]
async fn subscriptions(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(page): ApiQuery<PageQuery>,
) -> Result<Json<List<ClientSubscription>>, Problem> {
    let after = behind(page.after.as_deref())?;
    let limit = page.limit.0;
    let held = state.broker.client_subscriptions(&id, after, limit).await?;
    let held = held.ok_or_else(|| Problem::no_client(&id))?;
    let last = held.items.last().filter(|_| held.has_more);
    let next = last.map(|held| cursor(held.filter.as_str()));
    let items = held.items.into_iter().map(Into::into).collect();
    Ok(Json(List::new(items, next, &[])))
}

/// A subscription to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSubscription {
    /// The topic filter with the client's mount point, as in lists; a shared subscription has `$share/GROUP/` in front.
    filter: String,
    #[serde(default)]
    #[schema(maximum = 2)]
    qos: u8,
    #[serde(default)]
    no_local: bool,
    #[serde(default)]
    retain_as_published: bool,
    #[schema(minimum = 1, maximum = 268_435_455)]
    subscription_id: Option<u32>,
}

/// The QoS of this number.
pub(super) fn qos_of(number: u8) -> Result<QoS, Problem> {
    QoS::try_from(number).map_err(|_| Problem::bad("qos must be 0, 1 or 2"))
}

/// Parses the filter of a subscription.
pub(super) fn parse_subscription(
    text: &str,
    limits: &TopicLimits,
) -> Result<SubscriptionFilter, Problem> {
    let filter = SubscriptionFilter::parse(text, limits);
    filter.map_err(|error| Problem::bad(format!("filter: {error}: {text:?}")))
}

/// Parses the topic filter in a field; it is not that of a subscription.
pub(super) fn parse_filter(field: &str, text: &str) -> Result<TopicFilter, Problem> {
    TopicFilter::parse(text, &TopicLimits::WIDEST).map_err(|error| {
        Problem::bad(format!("{field} is not a topic filter: {error}"))
            .hint("a filter may be plant/+/temperature, plant/# or the topic itself")
    })
}

impl NewSubscription {
    fn options(&self, filter: &SubscriptionFilter) -> Result<Options, Problem> {
        if self.no_local && filter.is_shared() {
            return Err(Problem::bad(
                "no_local is not for shared subscriptions [MQTT-3.8.3-4]",
            ));
        }
        let id = self.subscription_id.map(|id| {
            let id = NonZeroU32::new(id).filter(|id| id.get() <= MAX_SUBSCRIPTION_ID);
            id.ok_or_else(|| Problem::bad("subscription_id must be from 1 to 268435455"))
        });
        Ok(Options {
            qos: qos_of(self.qos)?,
            no_local: self.no_local,
            retain_as_published: self.retain_as_published,
            id: id.transpose()?,
        })
    }
}

/// Subscribes a connected client, within its permissions and its mount point. It gets no retained messages.
#[utoipa::path(post, path = "/api/v1/clients/{id}/subscriptions", tag = "clients", security(("key" = ["operate", "payload"])),
    params(("id" = String, Path, description = "Client identifier")), request_body = NewSubscription,
    responses((status = 201, description = "The subscription is new"), (status = 200, description = "It replaces one with the same filter")))]
async fn subscribe(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(new): ApiJson<NewSubscription>,
) -> Result<StatusCode, Problem> {
    let config = state.broker.config()?;
    let filter = parse_subscription(&new.filter, &config.limits.topic)?;
    let options = new.options(&filter)?;
    match state.broker.subscribe_client(&id, filter, options).await? {
        Subscribed::Added => Ok(StatusCode::CREATED),
        Subscribed::Replaced => Ok(StatusCode::OK),
        Subscribed::NoSession => Err(Problem::no_client(&id)),
        refused => Err(refusal(&id, refused)),
    }
}

/// Why a client that has a session was not subscribed.
fn refusal(id: &str, refused: Subscribed) -> Problem {
    match refused {
        Subscribed::TooMany => Problem::conflict("the client has as many subscriptions as it may")
            .hint("raise limits.subscriptions, or end one"),
        Subscribed::NotCovered => Problem::conflict(
            "the permissions of the client do not cover the filter",
        )
        .hint(
            "it would end without notice when the client comes back; change the permissions first",
        ),
        Subscribed::Outside(mount_point) => {
            let mount_point = mount_point.as_str();
            let text = format!("the filter is outside of the client's mount point {mount_point:?}");
            Problem::conflict(text).hint(format!("put {mount_point}/ in front of the filter"))
        }
        _ => Problem::conflict(format!("client {id:?} is not connected"))
            .hint("its permissions and its mount point are known once it is connected"),
    }
}

/// Ends a subscription of a client. Slashes of the filter are sent as `%2F`.
#[utoipa::path(delete, path = "/api/v1/clients/{id}/subscriptions/{filter}", tag = "clients", security(("key" = ["operate"])),
    params(("id" = String, Path, description = "Client identifier"), ("filter" = String, Path, description = "Filter, percent-encoded")),
    responses((status = 204, description = "It has ended")))]
async fn unsubscribe(
    State(state): State<ApiState>,
    ApiPath((id, filter)): ApiPath<(String, String)>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<StatusCode, Problem> {
    let parsed = parse_subscription(&filter, &TopicLimits::WIDEST)?;
    if state.broker.unsubscribe_client(&id, parsed).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found(format!(
        "client {id:?} is not subscribed to {filter:?}"
    )))
}

/// A message in flight to a client.
#[derive(Serialize, ToSchema)]
struct InFlight {
    packet_id: u16,
    /// Null after PUBREC: the client has the message.
    topic: Option<String>,
    qos: u8,
    /// `waiting`: not sent yet. `sent`: waits for PUBACK or PUBREC. `released`: waits for PUBCOMP.
    state: &'static str,
    payload_bytes: Option<usize>,
}

impl From<InFlightMessage> for InFlight {
    fn from(message: InFlightMessage) -> Self {
        let state = match (&message.message, message.is_sent) {
            (None, _) => "released",
            (Some(_), true) => "sent",
            (Some(_), false) => "waiting",
        };
        Self {
            packet_id: message.packet_id.get(),
            topic: message.message.as_ref().map(|sent| sent.topic().into()),
            qos: message.qos as u8,
            state,
            payload_bytes: message.message.as_ref().map(|sent| sent.payload().len()),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct InFlightQuery {
    /// Maximum number of items.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
}

/// Lists the oldest messages that are sent to a client and not acknowledged, without payloads.
#[utoipa::path(get, path = "/api/v1/clients/{id}/inflight", tag = "clients", security(("key" = ["view"])),
    params(("id" = String, Path, description = "Client identifier"), InFlightQuery),
    responses((status = 200, body = List<InFlight>)))]
async fn in_flight(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<InFlightQuery>,
) -> Result<Json<List<InFlight>>, Problem> {
    let found = state.broker.client_in_flight(&id, query.limit.0).await?;
    let found = found.ok_or_else(|| Problem::no_client(&id))?;
    let items = found.items.into_iter().map(Into::into).collect();
    Ok(Json(List::new(items, None, &[])))
}
