//! `POST /explain/...`: explains deliveries and permissions. Nothing is sent.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{
    AccessQuestion, DeliveryQuestion, EventQuery, ExplainError, ExplainedDelivery,
    ExplainedReceiver, ExplainedStep, PastEvent, ReceiverPosition, Verdict,
};
use mqttcore_codec::ReasonCode;
use mqttcore_topics::TopicLimits;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::client_items::{parse_subscription, qos_of};
use super::page::{Limit, List, behind, cursor, unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiJson, ApiQuery, NoQuery, with_near};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(delivery, history))
        .routes(routes!(access))
}

/// A message that is asked about.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AskedMessage {
    /// The publisher. Default: the broker itself.
    from: Option<String>,
    /// With the mount point of the publisher in front, as in lists.
    topic: String,
    #[serde(default)]
    #[schema(maximum = 2)]
    qos: u8,
    #[serde(default)]
    retain: bool,
    /// Bytes of the payload.
    #[serde(default)]
    #[schema(maximum = 1_048_576)]
    bytes: usize,
    /// The only receiver that is asked about. Default: all receivers.
    to: Option<String>,
    /// Most receivers of the page.
    #[serde(default)]
    #[schema(value_type = u16, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
    /// The position of the page: `next` of the previous one.
    after: Option<String>,
}

/// One step of an explanation.
#[derive(Serialize, ToSchema)]
struct StepVerdict {
    /// The check, such as `rules` or `retain`.
    step: &'static str,
    /// `ok`, or why it ends here or depends on something.
    verdict: &'static str,
    /// The rule or the limit that decides.
    by: Option<String>,
    /// A sentence for people.
    detail: Option<String>,
    /// The hook of a plugin, or the listener, whose grant has the rule; null for steps without rules.
    granted_by: Option<String>,
    /// File and line of the rule; null if its plugin does not say.
    place: Option<String>,
}

impl From<ExplainedStep> for StepVerdict {
    fn from(step: ExplainedStep) -> Self {
        Self {
            step: step.step,
            verdict: step.verdict.name(),
            by: step.by,
            detail: step.detail,
            granted_by: step.granted_by.as_deref().map(Into::into),
            place: step.place.as_deref().map(Into::into),
        }
    }
}

/// A receiver, and what becomes of the message there.
#[derive(Serialize, ToSchema)]
pub(super) struct ReceiverVerdict {
    /// Null if the shard of the client did not answer, or its session has ended meanwhile.
    client_id: Option<String>,
    /// The shared subscription that the receiver is chosen for. Another member may be chosen for the next message.
    group: Option<String>,
    /// The QoS that is granted.
    qos: u8,
    /// The RETAIN flag of the delivery.
    retain: bool,
    subscription_ids: Vec<u32>,
    /// Such as `delivered`, `waiting:offline` or `dropped:queue-full`.
    verdict: &'static str,
    /// A sentence for people.
    detail: Option<String>,
}

impl From<ExplainedReceiver> for ReceiverVerdict {
    fn from(receiver: ExplainedReceiver) -> Self {
        Self {
            client_id: receiver.client_id.map(|id| id.to_string()),
            group: receiver.group.map(|group| group.as_str().into()),
            qos: receiver.qos as u8,
            retain: receiver.retain,
            subscription_ids: receiver
                .subscription_ids
                .iter()
                .map(|id| id.get())
                .collect(),
            verdict: receiver.verdict.name(),
            detail: receiver.detail,
        }
    }
}

/// Predicted result of a message.
#[derive(Serialize, ToSchema)]
struct DeliveryExplanation {
    /// `ok` if all steps are; else the verdict of the step that refuses it, or that is not certain.
    verdict: &'static str,
    /// The steps before the receivers, in their order.
    steps: Vec<StepVerdict>,
    /// Nobody receives it if a step denies or refuses it.
    receivers: List<ReceiverVerdict>,
}

impl From<ExplainedDelivery> for DeliveryExplanation {
    fn from(explained: ExplainedDelivery) -> Self {
        let verdict = explained.verdict().name();
        let last = explained.receivers.last().filter(|_| explained.has_more);
        let next = last.map(|last| cursor(&position_text(last)));
        let receivers = explained.receivers.into_iter().map(Into::into).collect();
        Self {
            verdict,
            steps: explained.steps.into_iter().map(Into::into).collect(),
            receivers: List::new(receivers, next, &explained.missing),
        }
    }
}

fn position_text(receiver: &ExplainedReceiver) -> String {
    let group = receiver.group.as_ref().map_or("", |group| group.as_str());
    format!("{} {group}", receiver.session)
}

fn position(text: &str) -> Result<ReceiverPosition, Problem> {
    let parts = text.split_once(' ');
    let position = parts.and_then(|(session, group)| Some((session.parse().ok()?, group.into())));
    position.ok_or_else(|| Problem::bad("after is not the position of a page of receivers"))
}

/// Explains what would happen to a message, step by step and for each receiver. Nothing is sent.
#[utoipa::path(post, path = "/api/v1/explain/delivery", tag = "messages", request_body = AskedMessage, security(("key" = ["view"])),
    responses((status = 200, body = DeliveryExplanation)))]
async fn delivery(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(asked): ApiJson<AskedMessage>,
) -> Result<Json<DeliveryExplanation>, Problem> {
    let after = behind(asked.after.as_deref())?;
    let question = DeliveryQuestion {
        from: asked.from,
        topic: asked.topic,
        qos: qos_of(asked.qos)?,
        retain: asked.retain,
        bytes: asked.bytes,
        to: asked.to,
        after: after.map(|text| position(&text)).transpose()?,
        limit: asked.limit.0,
    };
    let explained = state.broker.explain_delivery(question).await?;
    Ok(Json(explained.into()))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Client identifier. Default: all clients.
    client: Option<String>,
    /// The topic of the message. Events without a topic match; a subscription matches if its filter does.
    topic: Option<String>,
    /// Only events of the last seconds.
    since_s: Option<u32>,
    /// Only these kinds of events, separated by commas, such as `denied,auth_failed`. Default: all.
    events: Option<String>,
    /// Most events: the newest ones.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
}

/// Kinds of events, by names between commas.
fn kinds(text: &str) -> Result<Vec<&'static str>, Problem> {
    let known: Vec<_> = PastEvent::kinds().collect();
    let find = |name: &str| {
        let found = known.iter().find(|kind| **kind == name).copied();
        let problem = || Problem::bad(format!("events: unknown: {name:?}"));
        found.ok_or_else(|| with_near(problem(), name, &known))
    };
    text.split(',').map(find).collect()
}

/// Something that happened, or several equal events in a row.
#[derive(Serialize, ToSchema)]
pub(super) struct Happened {
    /// When it happened first, in unix milliseconds.
    first_ms: u64,
    /// When it happened last.
    last_ms: u64,
    /// How often.
    count: u64,
    /// `connected`, `disconnected`, `auth_failed`, `denied`, `subscribed`, `unsubscribed`, `dropped`, `publish_refused`,
    /// `session_created`, `session_resumed`, `session_taken_over` or `session_expired`.
    pub(super) event: &'static str,
    /// The publisher, if a publish was refused; else the client that the event is of.
    client_id: String,
    /// Topic or filter; null also if it has more than 1,024 bytes.
    topic: Option<String>,
    /// The reason code of MQTT 5.0.
    reason_code: Option<u8>,
    /// The reason in words.
    why: Option<&'static str>,
}

impl Happened {
    pub(super) fn new(event: PastEvent, now_ms: u64) -> Self {
        let at = |age| before(now_ms, age);
        Self {
            first_ms: at(event.first_age),
            last_ms: at(event.last_age),
            count: event.count,
            event: event.kind,
            client_id: event.client_id.to_string(),
            topic: event.topic.map(String::from),
            reason_code: event.reason.map(ReasonCode::value),
            why: event.why,
        }
    }
}

/// The time `age` before `now_ms`, in unix milliseconds.
fn before(now_ms: u64, age: Duration) -> u64 {
    now_ms.saturating_sub(whole_ms(age))
}

/// Recent events.
#[derive(Serialize, ToSchema)]
struct History {
    #[serde(flatten)]
    events: List<Happened>,
    /// Whether older events match, too: ask for a larger `limit`.
    has_more: bool,
    /// Events before this time may be missing, in unix milliseconds; null: all since the start of the broker are kept.
    complete_since_ms: Option<u64>,
}

/// Lists recent events that say why clients did not get messages, the newest first.
#[utoipa::path(get, path = "/api/v1/explain/delivery", tag = "messages", params(HistoryQuery), security(("key" = ["view"])),
    responses((status = 200, body = History)))]
async fn history(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<HistoryQuery>,
) -> Result<Json<History>, Problem> {
    let asked = EventQuery {
        client_id: query.client,
        topic: query.topic,
        since: query
            .since_s
            .map(|seconds| Duration::from_secs(seconds.into())),
        kinds: query.events.as_deref().map_or(Ok(Vec::new()), kinds)?,
        limit: query.limit.0,
    };
    let past = state.broker.past_events(asked).await?;
    let now_ms = unix_ms();
    let events = past.events.into_iter();
    let events = events.map(|event| Happened::new(event, now_ms)).collect();
    Ok(Json(History {
        events: List::new(events, None, &past.missing),
        has_more: past.has_more,
        complete_since_ms: past.complete_for.map(|age| before(now_ms, age)),
    }))
}

/// An action of a client.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AskedAction {
    Publish,
    Subscribe,
    Receive,
}

/// A permission that is asked about.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AskedAccess {
    /// Client identifier.
    client: String,
    action: AskedAction,
    /// The topic, or the filter of a subscription, with the mount point of the client in front.
    topic: String,
}

/// Whether a client may do something.
#[derive(Serialize, ToSchema)]
struct AccessExplanation {
    /// `ok`, `depends:plugin`, `unknown:not-connected`, or the denial.
    verdict: &'static str,
    /// The steps, in their order.
    steps: Vec<StepVerdict>,
}

impl AccessExplanation {
    fn new((verdict, steps): (Verdict, Vec<ExplainedStep>)) -> Self {
        Self {
            verdict: verdict.name(),
            steps: steps.into_iter().map(Into::into).collect(),
        }
    }
}

/// Explains whether a client may publish, subscribe or receive, and which rule decides. Of plugins, `authorize` hooks that have no effects are asked.
#[utoipa::path(post, path = "/api/v1/explain/access", tag = "access", request_body = AskedAccess, security(("key" = ["view"])),
    responses((status = 200, body = AccessExplanation)))]
async fn access(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(asked): ApiJson<AskedAccess>,
) -> Result<Json<AccessExplanation>, Problem> {
    let question = match asked.action {
        AskedAction::Publish => AccessQuestion::Publish(asked.topic),
        AskedAction::Receive => AccessQuestion::Receive(asked.topic),
        AskedAction::Subscribe => {
            let filter = parse_subscription(&asked.topic, &TopicLimits::WIDEST)?;
            AccessQuestion::Subscribe(filter)
        }
    };
    let explained = state.broker.explain_access(&asked.client, question);
    Ok(Json(AccessExplanation::new(explained.await?)))
}

impl From<ExplainError> for Problem {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Ask(error) => error.into(),
            ExplainError::NoClient(id) => Self::no_client(&id),
            error => Self::bad(error.to_string()),
        }
    }
}
