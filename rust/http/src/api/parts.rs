//! Routes of the broker's parts: listeners, streams and the store.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::{Extension, Json};
use hyper::StatusCode;
use mqttcore_broker::tls::{ClientCertificates, ServerCertificate};
use mqttcore_broker::{ListenAddress, Listener, ListenerStatus, Refusals};
use mqttcore_store::stream::{Description, HoldLag};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::identity::CallerIdentity;
use super::page::{List, whole_ms};
use super::problem::Problem;
use super::query::{ApiPath, ApiQuery, NoQuery};
use super::scope::Scope;
use super::system::{last_part, pressure_name};

/// Maximum number of consumers of a stream in a list.
const HOLDS_MAX: usize = 100;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(listeners))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(streams))
        .routes(routes!(store))
}

/// Listeners: the fields of Mosquitto's API, and further ones.
#[derive(Serialize, ToSchema)]
struct Listeners {
    listeners: Vec<ListenerInfo>,
}

#[derive(Serialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the answer"
)]
struct ListenerInfo {
    name: String,
    /// The configured address; port 0 stands for a free port.
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// The path of a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// `mqtt` or `websockets`.
    protocol: &'static str,
    /// The path of WebSocket connections; absent if `protocol` is `mqtt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    websocket_path: Option<String>,
    tls: bool,
    /// Whether clients have to present a certificate.
    mtls: bool,
    /// The broker's certificates in use.
    certificates: Vec<CertificateInfo>,
    allow_anonymous: bool,
    /// Whether an operator has paused it: it closes new connections.
    paused: bool,
    /// Connections now.
    connections: usize,
    /// Maximum number of connections; null: the listener has no limit of its own.
    max_connections: Option<usize>,
    /// Connections and CONNECT packets that were refused since the start, by reason; only reasons that there were.
    refused: BTreeMap<&'static str, u64>,
}

/// A certificate that clients of a listener see.
#[derive(Serialize, ToSchema)]
struct CertificateInfo {
    /// Its file; only the last part of the path without the scope `admin`.
    file: String,
    /// DNS names; clients with another name get the first certificate of the listener.
    names: Vec<String>,
    /// When it expires, in Unix milliseconds.
    expires_at_ms: u64,
    /// Whether it has expired, or expires within 14 days.
    expires_soon: bool,
}

impl CertificateInfo {
    fn new(certificate: &ServerCertificate, is_admin: bool) -> Self {
        let since = certificate.not_after.duration_since(UNIX_EPOCH);
        let file = &certificate.file;
        Self {
            file: if is_admin {
                file.display().to_string()
            } else {
                last_part(file)
            },
            names: certificate
                .names
                .iter()
                .map(|name| (**name).to_owned())
                .collect(),
            expires_at_ms: whole_ms(since.unwrap_or_default()),
            expires_soon: certificate.expires_soon(),
        }
    }
}

impl ListenerInfo {
    /// `status` is `None` for a listener that a reload added: it is bound after a restart.
    fn new(
        listener: &Listener,
        status: Option<&ListenerStatus>,
        refused: BTreeMap<&'static str, u64>,
        is_admin: bool,
    ) -> Self {
        let (address, port, path) = match &listener.address {
            ListenAddress::Tcp(address) => (address.to_string(), Some(address.port()), None),
            ListenAddress::Unix(unix) => {
                let path = unix.path.display().to_string();
                (path.clone(), None, Some(path))
            }
        };
        let of_clients = listener.tls.as_ref().map(|tls| tls.client_certificates);
        let certificates = status.map_or(&[][..], |status| &status.certificates);
        Self {
            name: listener.name.clone(),
            address,
            port,
            path,
            protocol: if listener.websocket.is_some() {
                "websockets"
            } else {
                "mqtt"
            },
            websocket_path: listener.websocket.as_ref().map(|rules| rules.path.clone()),
            tls: listener.tls.is_some(),
            mtls: of_clients == Some(ClientCertificates::Required),
            certificates: certificates
                .iter()
                .map(|certificate| CertificateInfo::new(certificate, is_admin))
                .collect(),
            allow_anonymous: listener.anonymous.is_some(),
            paused: status.is_some_and(|status| status.is_paused),
            connections: status.map_or(0, |status| status.connections),
            max_connections: (listener.max_connections > 0).then_some(listener.max_connections),
            refused,
        }
    }
}

/// The refusals of connections and of CONNECT packets that there were, without their sums.
fn refused_by_reason(refusals: &Refusals) -> BTreeMap<&'static str, u64> {
    let figures = refusals.figures().into_iter();
    let of_reason = figures.filter_map(|figure| {
        let mut prefixes = ["connections_refused_", "connects_refused_"].into_iter();
        let reason = prefixes.find_map(|prefix| figure.name.strip_prefix(prefix));
        Some((reason?, figure.value))
    });
    let mut refused = BTreeMap::new();
    for (reason, count) in of_reason.filter(|(_, count)| *count > 0) {
        *refused.entry(reason).or_default() += count;
    }
    refused
}

/// Lists the listeners.
#[utoipa::path(get, path = "/api/v1/listeners", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = Listeners)))]
async fn listeners(
    State(state): State<ApiState>,
    Extension(identity): Extension<CallerIdentity>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<Listeners>, Problem> {
    let config = state.broker.config()?;
    let bound = state.broker.listeners()?;
    let refusals = state.broker.refusals();
    let is_admin = identity.has(Scope::Admin);
    let listeners = config.listeners.iter().map(|listener| {
        let status = bound.iter().find(|bound| *bound.name == *listener.name);
        let refused = refusals.iter().find(|(name, _)| **name == *listener.name);
        let refused = refused.map(|(_, refusals)| refused_by_reason(refusals));
        ListenerInfo::new(listener, status, refused.unwrap_or_default(), is_admin)
    });
    Ok(Json(Listeners {
        listeners: listeners.collect(),
    }))
}

fn set_paused(state: &ApiState, name: &str, is_paused: bool) -> Result<StatusCode, Problem> {
    if state.broker.pause_listener(name, is_paused)? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let problem = Problem::not_found(format!("there is no listener named {name:?}"));
    Err(problem.hint("GET /api/v1/listeners lists them"))
}

/// Pauses a listener: it closes new connections, and `/readyz` fails. Its clients stay. A restart ends the pause.
#[utoipa::path(post, path = "/api/v1/listeners/{name}/pause", tag = "broker", security(("key" = ["admin"])),
    params(("name" = String, Path, description = "Name of the listener")),
    responses((status = 204, description = "It closes new connections")))]
async fn pause(
    State(state): State<ApiState>,
    ApiPath(name): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<StatusCode, Problem> {
    set_paused(&state, &name, true)
}

/// Ends the pause of a listener.
#[utoipa::path(post, path = "/api/v1/listeners/{name}/resume", tag = "broker", security(("key" = ["admin"])),
    params(("name" = String, Path, description = "Name of the listener")),
    responses((status = 204, description = "It accepts new connections")))]
async fn resume(
    State(state): State<ApiState>,
    ApiPath(name): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<StatusCode, Problem> {
    set_paused(&state, &name, false)
}

/// A stream of rows.
#[derive(Serialize, ToSchema)]
struct StreamInfo {
    name: String,
    epoch: String,
    filters: Vec<String>,
    partitions: Vec<Partition>,
    /// Consumers with a hold, the longest lag first; at most 100. Empty while the holds are being written.
    holds: Vec<Hold>,
}

/// The hold of a consumer.
#[derive(Serialize, ToSchema)]
struct Hold {
    consumer: String,
    /// The first offset of each partition that the consumer has still to read.
    offsets: Vec<u64>,
    /// Number of rows that it has still to read.
    lag: u64,
}

/// The offsets of a partition.
#[derive(Serialize, ToSchema)]
struct Partition {
    earliest: u64,
    /// The first offset whose row is not in a file.
    sealed_end: u64,
    end: u64,
    /// Number of rows that are not in files yet.
    unsealed: u64,
}

impl StreamInfo {
    fn new(stream: Description, lags: &[HoldLag]) -> Self {
        let partitions = stream.partitions.iter().map(|bounds| Partition {
            earliest: bounds.earliest,
            sealed_end: bounds.sealed_end,
            end: bounds.end,
            unsealed: bounds.end.saturating_sub(bounds.sealed_end),
        });
        let held = lags.iter().filter(|lag| lag.stream == stream.name);
        let holds = held.take(HOLDS_MAX).map(|lag| Hold {
            consumer: lag.consumer.clone(),
            offsets: lag.offsets.clone(),
            lag: lag.rows,
        });
        Self {
            partitions: partitions.collect(),
            holds: holds.collect(),
            name: stream.name,
            epoch: stream.epoch,
            filters: stream.filters,
        }
    }
}

/// Lists the streams; their rows and files are below `/v1/streams`.
#[utoipa::path(get, path = "/api/v1/streams", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = List<StreamInfo>)))]
async fn streams(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Json<List<StreamInfo>> {
    let mut items = Vec::new();
    if let Some(rows) = &state.rows {
        let mut lags = rows.streams.hold_lags();
        lags.sort_by_key(|lag| Reverse(lag.rows));
        let described = rows.streams.names().into_iter();
        let described = described.filter_map(|name| rows.streams.describe(name).ok());
        items.extend(described.map(|stream| StreamInfo::new(stream, &lags)));
    }
    Json(List::new(items, None, &[]))
}

/// The store of the data folder.
#[derive(Serialize, ToSchema)]
struct Store {
    /// Whether the broker has a data folder.
    enabled: bool,
    /// How short space is on the disk: `none`, `soft` or `hard`.
    pressure: &'static str,
    /// Figures by name, as in `$SYS/broker/store`.
    figures: BTreeMap<String, u64>,
}

/// Returns the figures of the store.
#[utoipa::path(get, path = "/api/v1/store", tag = "broker", security(("key" = ["view"])),
    responses((status = 200, body = Store)))]
async fn store(State(state): State<ApiState>, ApiQuery(_): ApiQuery<NoQuery>) -> Json<Store> {
    let health = state.broker.health().unwrap_or_default();
    let figures = state.broker.store_figures().into_iter();
    let figures: BTreeMap<_, _> = figures
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Json(Store {
        enabled: !figures.is_empty(),
        pressure: pressure_name(health.pressure),
        figures,
    })
}
