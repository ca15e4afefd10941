//! Routes of traces (ADR 0058).

mod fields;
mod lines;
mod pcapng;
mod reader;
mod segment;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use hyper::{HeaderMap, StatusCode};
use mqttcore_broker::{
    ClientIdGlob, Network, TRACE_BYTES, TRACE_DURATION_MAX, TRACE_PACKETS_MAX, Trace, TraceFilter,
    TraceSpec, TraceStartError, TracedPayload,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::tasks;

use super::ApiState;
use super::client_items::parse_filter;
use super::events::last_event_id;
use super::identity::CallerIdentity;
use super::page::{List, whole_ms};
use super::problem::Problem;
use super::query::{ApiJson, ApiPath, ApiQuery, NoQuery};
use super::readers::EVENT_STREAM;

pub(super) use lines::unix_us;
use reader::{FileFormat, LiveReader, send_file};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, start))
        .routes(routes!(describe, end))
        .routes(routes!(file))
        .routes(routes!(live))
}

/// Bytes of the name of a trace.
const NAME_BYTES: usize = 256;
/// Least bytes that a trace may keep.
const BYTES_MIN: usize = 64 << 10;
/// Most bytes that a trace may keep.
const BYTES_MAX: usize = 1 << 30;
/// Most bytes of `head:`.
const HEAD_MAX: usize = 1 << 20;

/// Which packets a trace has: all conditions must hold. Without any it has all packets of all clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Conditions {
    /// Client identifier; `*` stands for any characters, `?` for one.
    client_id: Option<String>,
    username: Option<String>,
    /// An IP address or network, such as `10.0.0.0/8`.
    ip: Option<String>,
    /// A topic filter, with mount points. Only messages on topics that it matches, and requests for subscriptions that
    /// overlap it, belong to the trace.
    topic: Option<String>,
}

/// A trace to start.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTrace {
    /// For people.
    #[serde(default)]
    name: String,
    #[serde(default)]
    r#where: Conditions,
    /// The trace ends after this time.
    #[serde(default = "duration_s")]
    #[schema(minimum = 1, maximum = 86_400, default = 600)]
    for_s: u64,
    /// Memory for packets: the oldest ones make room.
    #[serde(default = "bytes")]
    #[schema(minimum = 65_536, maximum = 1_073_741_824, default = 67_108_864)]
    bytes: usize,
    /// Number of packets that it keeps: the oldest ones make room.
    #[serde(default = "packets")]
    #[schema(minimum = 1, maximum = 1_000_000, default = 100_000)]
    packets: usize,
    /// How much of payloads it has: `none`, `head:` and a number of bytes up to 1,048,576, or `all`.
    #[serde(default = "payload")]
    #[schema(default = "none")]
    payload: String,
}

fn duration_s() -> u64 {
    TraceSpec::default().duration.as_secs()
}

fn bytes() -> usize {
    TRACE_BYTES
}

fn packets() -> usize {
    TraceSpec::default().packets
}

fn payload() -> String {
    "none".into()
}

/// A trace.
#[derive(Serialize, ToSchema)]
struct TraceStatus {
    id: String,
    name: String,
    r#where: Conditions,
    /// `none`, `head:` and a number of bytes, or `all`.
    payload: String,
    active: bool,
    /// In Unix milliseconds, like all times here.
    begun_ms: u64,
    /// When it ends, or has ended.
    ends_ms: u64,
    /// Packets and events that it keeps.
    packets: usize,
    packets_max: usize,
    /// Bytes of memory that they take.
    bytes: usize,
    bytes_max: usize,
    /// Packets and events that had to make room.
    dropped: u64,
    /// The number of the last packet or event.
    last: u64,
}

impl From<&Trace> for TraceStatus {
    fn from(trace: &Trace) -> Self {
        let (spec, figures) = (trace.spec(), trace.figures());
        let ms = |at: SystemTime| unix_us(at) / 1_000;
        let filter = &spec.filter;
        let due = ms(trace.begun()).saturating_add(whole_ms(spec.duration));
        Self {
            id: trace.id().into(),
            name: spec.name.clone(),
            r#where: Conditions {
                client_id: filter.client_id.as_ref().map(ToString::to_string),
                username: filter.username.clone(),
                ip: filter.network.map(|network| network.to_string()),
                topic: filter.topic.as_ref().map(|topic| topic.as_str().into()),
            },
            payload: match spec.payload {
                TracedPayload::None => payload(),
                TracedPayload::Head(bytes) => format!("head:{bytes}"),
                TracedPayload::All => "all".into(),
            },
            active: figures.ended.is_none(),
            begun_ms: ms(trace.begun()),
            ends_ms: figures.ended.map_or(due, ms),
            packets: figures.packets,
            packets_max: spec.packets,
            bytes: figures.bytes,
            bytes_max: spec.bytes,
            dropped: figures.dropped,
            last: figures.last,
        }
    }
}

impl From<TraceStartError> for Problem {
    fn from(error: TraceStartError) -> Self {
        match error {
            TraceStartError::Stopped(error) => error.into(),
            TraceStartError::TooMany(error) => Self::conflict(error.to_string())
                .hint("GET /api/v1/traces lists them, DELETE /api/v1/traces/{id} removes one"),
        }
    }
}

impl NewTrace {
    fn spec(self) -> Result<TraceSpec, Problem> {
        let name = self.name;
        if name.len() > NAME_BYTES {
            let text = format!("name must have at most {NAME_BYTES} bytes");
            return Err(Problem::bad(text));
        }
        let limits = [
            ("for_s", self.for_s, 1, TRACE_DURATION_MAX.as_secs()),
            (
                "bytes",
                self.bytes as u64,
                BYTES_MIN as u64,
                BYTES_MAX as u64,
            ),
            ("packets", self.packets as u64, 1, TRACE_PACKETS_MAX as u64),
        ];
        for (field, value, least, most) in limits {
            if !(least..=most).contains(&value) {
                let text = format!("{field} must be a number from {least} to {most}");
                return Err(Problem::bad(text));
            }
        }
        Ok(TraceSpec {
            name,
            filter: self.r#where.filter()?,
            duration: Duration::from_secs(self.for_s),
            bytes: self.bytes,
            packets: self.packets,
            payload: payload_of(&self.payload)?,
        })
    }
}

impl Conditions {
    fn filter(self) -> Result<TraceFilter, Problem> {
        let client_id = self.client_id.map(|text| {
            let glob: Result<ClientIdGlob, _> = text.parse();
            glob.map_err(|error| Problem::bad(format!("where.client_id: {error}")))
        });
        let network = self.ip.map(|text| {
            let network: Result<Network, _> = text.parse();
            network.map_err(|error| Problem::bad(format!("where.ip: {error}: {text:?}")))
        });
        let topic = self.topic.map(|text| parse_filter("where.topic", &text));
        Ok(TraceFilter {
            client_id: client_id.transpose()?,
            username: self.username,
            network: network.transpose()?,
            topic: topic.transpose()?,
        })
    }
}

fn payload_of(text: &str) -> Result<TracedPayload, Problem> {
    let head = || {
        let bytes: usize = text.strip_prefix("head:")?.parse().ok()?;
        (1..=HEAD_MAX).contains(&bytes).then_some(bytes)
    };
    match text {
        "none" => Ok(TracedPayload::None),
        "all" => Ok(TracedPayload::All),
        _ => head().map(TracedPayload::Head).ok_or_else(|| {
            Problem::bad(format!("payload is not known: {text:?}"))
                .hint("use \"none\", \"all\", or \"head:64\" for the first 64 bytes")
        }),
    }
}

fn find(state: &ApiState, id: &str) -> Result<Arc<Trace>, Problem> {
    let traces = state.broker.traces().into_iter();
    let mut found = traces.filter(|trace| trace.id() == id);
    found.next().ok_or_else(no_trace)
}

fn no_trace() -> Problem {
    Problem::not_found("there is no such trace")
        .hint("GET /api/v1/traces lists them; a trace is removed an hour after its end")
}

/// Lists the traces, the oldest first.
#[utoipa::path(get, path = "/api/v1/traces", tag = "traces", security(("key" = ["view"])),
    responses((status = 200, body = List<TraceStatus>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Json<List<TraceStatus>> {
    let traces = state.broker.traces();
    let items = traces.iter().map(|trace| (&**trace).into()).collect();
    Json(List::new(items, None, &[]))
}

/// Starts a trace. It ends by itself, and does not survive a restart.
#[utoipa::path(post, path = "/api/v1/traces", tag = "traces", request_body = NewTrace,
    security(("key" = ["operate", "payload"])), responses((status = 201, body = TraceStatus)))]
async fn start(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(new): ApiJson<NewTrace>,
) -> Result<(StatusCode, Json<TraceStatus>), Problem> {
    let trace = state.broker.start_trace(new.spec()?)?;
    Ok((StatusCode::CREATED, Json((&*trace).into())))
}

/// Describes a trace.
#[utoipa::path(get, path = "/api/v1/traces/{id}", tag = "traces", security(("key" = ["view"])),
    params(("id" = String, Path, description = "The field id of a trace")),
    responses((status = 200, body = TraceStatus)))]
async fn describe(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<TraceStatus>, Problem> {
    Ok(Json((&*find(&state, &id)?).into()))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EndQuery {
    /// Only end it: its packets can be read for another hour.
    #[serde(default)]
    #[param(default = false, required = false)]
    keep: bool,
}

/// Ends a trace and removes it with its packets, unless `keep=true`.
#[utoipa::path(delete, path = "/api/v1/traces/{id}", tag = "traces",
    security(("key" = ["operate", "payload"])),
    params(("id" = String, Path, description = "The field id of a trace"), EndQuery),
    responses((status = 204, description = "It has ended")))]
async fn end(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<EndQuery>,
) -> Result<StatusCode, Problem> {
    if state.broker.end_trace(&id, query.keep)? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(no_trace())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FileQuery {
    /// JSON lines (default), text for people, or a file for Wireshark.
    #[serde(default)]
    #[param(inline, required = false)]
    format: FileFormat,
}

/// Returns the packets that a trace keeps, the oldest first.
#[utoipa::path(get, path = "/api/v1/traces/{id}/file", tag = "traces",
    security(("key" = ["operate", "payload"])),
    params(("id" = String, Path, description = "The field id of a trace"), FileQuery),
    responses((status = 200, description = "The packets in the format", body = String, content_type = "application/x-ndjson")))]
async fn file(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<FileQuery>,
) -> Result<Response, Problem> {
    let trace = find(&state, &id)?;
    let (sender, response) = state.readers.admit(query.format.media_type())?;
    tasks::spawn(sender.run(move |out| send_file(trace, query.format, out)));
    Ok(response)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LiveQuery {
    /// Number of the packet after which the stream begins; without: the last one.
    after: Option<u64>,
    /// JSON (default), or text for people, in the data of the events.
    #[serde(default)]
    #[param(inline, required = false)]
    format: lines::LineFormat,
}

/// Streams the packets of a trace as server-sent events `packet`.
///
/// A reader that is too slow misses packets; an event `lost` says how many. The event `end` is the last one. A reader that
/// comes back with `Last-Event-ID` gets what follows, whatever `after` says.
#[utoipa::path(get, path = "/api/v1/traces/{id}/live", tag = "traces",
    security(("key" = ["operate", "payload"])),
    params(("id" = String, Path, description = "The field id of a trace"), LiveQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The `id` of the last event")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn live(
    State(state): State<ApiState>,
    Extension(identity): Extension<CallerIdentity>,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
    ApiQuery(query): ApiQuery<LiveQuery>,
) -> Result<Response, Problem> {
    let trace = find(&state, &id)?;
    let after = last_event_id(&headers)?.or(query.after);
    let after = after.unwrap_or_else(|| trace.figures().last);
    let (sender, response) = state.readers.admit(EVENT_STREAM)?;
    let reader = LiveReader {
        trace,
        after,
        format: query.format,
        key: identity.key,
        state,
    };
    tasks::spawn(sender.run(|out| reader.send(out)));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_none_all_or_a_head() {
        for (text, payload) in [
            ("none", Some(TracedPayload::None)),
            ("all", Some(TracedPayload::All)),
            ("head:1", Some(TracedPayload::Head(1))),
            ("head:1048576", Some(TracedPayload::Head(HEAD_MAX))),
            ("head:0", None),
            ("head:1048577", None),
            ("head:-1", None),
            ("head", None),
            ("", None),
        ] {
            assert_eq!(payload_of(text).ok(), payload, "{text}");
        }
    }
}
