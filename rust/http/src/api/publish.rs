//! `POST /publish` and `POST /publish/bulk`: publish messages as the broker.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use mqttcore_broker::{OwnMessage, PublishError, PublishManyError, Unpublished};
use mqttcore_codec::{PropertiesBuf, Property, QoS, Text};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::client_items::qos_of;
use super::problem::Problem;
use super::query::{ApiJson, ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(post))
        .routes(routes!(post_many))
}

/// Contents of a message. It has `payload` or `payload_base64`, or neither if the payload is empty.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    /// The payload as text.
    payload: Option<String>,
    /// The payload in base64.
    payload_base64: Option<String>,
    #[serde(default)]
    #[schema(maximum = 2)]
    qos: u8,
    #[serde(default)]
    #[schema(inline)]
    properties: MessageProperties,
}

/// Properties of MQTT 5.0.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MessageProperties {
    /// Message Expiry Interval, in seconds.
    expiry_s: Option<u32>,
    content_type: Option<String>,
    response_topic: Option<String>,
    /// In base64.
    correlation_data: Option<String>,
    /// Names and values, in their order.
    #[serde(default)]
    user: Vec<(String, String)>,
}

/// A message to publish.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    topic: String,
    /// Whether it is retained.
    #[serde(default)]
    retain: bool,
    payload: Option<String>,
    payload_base64: Option<String>,
    #[serde(default)]
    #[schema(maximum = 2)]
    qos: u8,
    #[serde(default)]
    #[schema(inline)]
    properties: MessageProperties,
}

impl NewMessage {
    fn parts(self) -> (String, Content, bool) {
        let content = Content {
            payload: self.payload,
            payload_base64: self.payload_base64,
            qos: self.qos,
            properties: self.properties,
        };
        (self.topic, content, self.retain)
    }
}

/// A published message.
#[derive(Serialize, ToSchema)]
pub(super) struct Published {
    /// Number of matching subscriptions.
    matched: usize,
    #[serde(skip)]
    is_acknowledged: bool,
}

impl IntoResponse for Published {
    fn into_response(self) -> Response {
        let status = if self.is_acknowledged {
            StatusCode::OK
        } else {
            StatusCode::ACCEPTED
        };
        (status, Json(self)).into_response()
    }
}

fn bytes_of(name: &str, text: &str) -> Result<Vec<u8>, Problem> {
    let bytes = STANDARD.decode(text);
    bytes.map_err(|error| Problem::bad(format!("{name} is not base64: {error}")))
}

fn text_of<'a>(name: &str, text: &'a str) -> Result<Text<'a>, Problem> {
    Text::new(text).map_err(|error| Problem::bad(format!("{name}: {error}")))
}

fn push(properties: &mut PropertiesBuf, property: Property<'_>) -> Result<(), Problem> {
    match properties.push(property) {
        Ok(_) => Ok(()),
        Err(error) => Err(Problem::bad(format!("properties: {error}"))),
    }
}

impl MessageProperties {
    fn encode(&self) -> Result<PropertiesBuf, Problem> {
        let mut properties = PropertiesBuf::default();
        if let Some(seconds) = self.expiry_s {
            push(&mut properties, Property::MessageExpiryInterval(seconds))?;
        }
        if let Some(text) = &self.content_type {
            push(
                &mut properties,
                Property::ContentType(text_of("content_type", text)?),
            )?;
        }
        if let Some(text) = &self.response_topic {
            push(
                &mut properties,
                Property::ResponseTopic(text_of("response_topic", text)?),
            )?;
        }
        if let Some(text) = &self.correlation_data {
            let bytes = bytes_of("correlation_data", text)?;
            push(&mut properties, Property::CorrelationData(&bytes))?;
        }
        for (name, value) in &self.user {
            let (name, value) = (text_of("user", name)?, text_of("user", value)?);
            push(&mut properties, Property::UserProperty(name, value))?;
        }
        Ok(properties)
    }
}

impl Content {
    /// An empty message, which removes a retained one.
    pub(super) fn empty() -> Self {
        Self {
            qos: QoS::AtLeastOnce as u8,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> Result<bool, Problem> {
        self.bytes().map(|bytes| bytes.is_empty())
    }

    /// The message with these contents.
    fn message(&self, topic: &str, retain: bool) -> Result<OwnMessage, Problem> {
        refuse_sys(topic)?;
        Ok(OwnMessage {
            topic: topic.to_owned(),
            payload: self.bytes()?,
            qos: qos_of(self.qos)?,
            retain,
            properties: self.properties.encode()?,
        })
    }

    fn bytes(&self) -> Result<Vec<u8>, Problem> {
        match (&self.payload, &self.payload_base64) {
            (None, None) => Ok(Vec::new()),
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(text)) => bytes_of("payload_base64", text),
            (Some(_), Some(_)) => Err(Problem::bad(
                "payload and payload_base64 exclude each other",
            )),
        }
    }
}

/// Refuses topics and filters below `$SYS`: the broker itself publishes there.
pub(super) fn refuse_sys(topic: &str) -> Result<(), Problem> {
    if topic.split('/').next() != Some("$SYS") {
        return Ok(());
    }
    let text = format!("topics below $SYS/ are the broker's own: {topic:?}");
    Err(Problem::bad(text).hint("GET /api/v1/systree reads them"))
}

/// Publishes a message as the broker; waits until it is as safe as its durability asks for.
pub(super) async fn publish(
    state: &ApiState,
    topic: &str,
    content: &Content,
    retain: bool,
) -> Result<Published, Problem> {
    let message = content.message(topic, retain)?;
    let OwnMessage { payload, qos, .. } = &message;
    let published = state
        .broker
        .publish(topic, payload, *qos, retain, &message.properties);
    let matched = published.await?.map_err(|error| refusal(&error))?;
    Ok(Published {
        matched,
        is_acknowledged: *qos > QoS::AtMostOnce,
    })
}

fn refusal(error: &PublishError) -> Problem {
    let (status, slug) = match error {
        PublishError::Topic(_) | PublishError::Message(_) => {
            (StatusCode::BAD_REQUEST, "bad_request")
        }
        PublishError::NoRoom => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
        PublishError::NoMemory => (StatusCode::INSUFFICIENT_STORAGE, "memory_full"),
        PublishError::QueueFull => (StatusCode::CONFLICT, "queue_full"),
        PublishError::TooManyFilters => (StatusCode::CONFLICT, "too_many_filters"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "not_published"),
    };
    Problem::new(status, slug, error.to_string())
}

/// Publishes a message as the broker itself: permissions are not checked.
#[utoipa::path(post, path = "/api/v1/publish", tag = "messages", request_body = NewMessage, security(("key" = ["operate"])),
    responses((status = 200, body = Published, description = "The configured durability is reached"),
        (status = 202, body = Published, description = "QoS 0: the message may be lost")))]
async fn post(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(new): ApiJson<NewMessage>,
) -> Result<Published, Problem> {
    let (topic, content, retain) = new.parts();
    publish(&state, &topic, &content, retain).await
}

/// Maximum number of messages of one request.
const BULK: usize = 1_000;

/// Why a message of several was not published.
#[derive(Serialize, ToSchema)]
struct BulkError {
    /// The code of the error, such as `disk_full`.
    code: &'static str,
    detail: String,
}

/// The result of one of several messages.
#[derive(Serialize, ToSchema)]
struct BulkItem {
    /// Number of matching subscriptions; null: it was not published.
    matched: Option<usize>,
    error: Option<BulkError>,
}

/// The results of several messages.
#[derive(Serialize, ToSchema)]
struct BulkPublished {
    /// Number of messages that were not published.
    failed: usize,
    /// The messages in the order of the request.
    items: Vec<BulkItem>,
    #[serde(skip)]
    is_acknowledged: bool,
}

impl IntoResponse for BulkPublished {
    fn into_response(self) -> Response {
        let status = match (self.failed, self.is_acknowledged) {
            (0, true) => StatusCode::OK,
            (0, false) => StatusCode::ACCEPTED,
            _ => StatusCode::MULTI_STATUS,
        };
        (status, Json(self)).into_response()
    }
}

impl From<Result<usize, Unpublished>> for BulkItem {
    fn from(outcome: Result<usize, Unpublished>) -> Self {
        let code = match &outcome {
            Ok(_) => None,
            Err(Unpublished::Refused(error)) => Some(refusal(error).slug),
            Err(Unpublished::Unanswered(error)) => Some(Problem::from(*error).slug),
            Err(_) => Some("not_sent"),
        };
        let detail = outcome.as_ref().err().map(ToString::to_string);
        Self {
            error: code
                .zip(detail)
                .map(|(code, detail)| BulkError { code, detail }),
            matched: outcome.ok(),
        }
    }
}

/// Publishes 1 to 1,000 messages in their order, each as `POST /publish` does. If one is not valid, none is published.
#[utoipa::path(post, path = "/api/v1/publish/bulk", tag = "messages", request_body = Vec<NewMessage>, security(("key" = ["operate"])),
    responses((status = 200, body = BulkPublished, description = "The configured durability of all is reached"),
        (status = 202, body = BulkPublished, description = "Some have QoS 0: they may be lost"),
        (status = 207, body = BulkPublished, description = "Some were not published: `items` says why")))]
async fn post_many(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(new): ApiJson<Vec<NewMessage>>,
) -> Result<BulkPublished, Problem> {
    if !(1..=BULK).contains(&new.len()) {
        let text = format!("the body has {} messages, not 1 to {BULK}", new.len());
        return Err(Problem::bad(text).hint("send several requests"));
    }
    let messages = new.into_iter().enumerate().map(|(index, new)| {
        let (topic, content, retain) = new.parts();
        let message = content.message(&topic, retain);
        message.map_err(|problem| problem.about(&format!("message {index}")))
    });
    let messages: Vec<_> = messages.collect::<Result<_, _>>()?;
    let published = state.broker.publish_many(&messages).await;
    let published = published.map_err(|error| match error {
        PublishManyError::Ask(error) => Problem::from(error),
        invalid => Problem::bad(invalid.to_string()),
    })?;
    Ok(BulkPublished {
        failed: published.iter().filter(|one| one.is_err()).count(),
        items: published.into_iter().map(BulkItem::from).collect(),
        is_acknowledged: messages.iter().all(|one| one.qos > QoS::AtMostOnce),
    })
}
