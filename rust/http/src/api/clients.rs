//! Routes of clients: lists, one client, and changes by operators.

use std::collections::HashMap;
use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use mqttcore_broker::{
    Channel, ClientFilter, ClientOrder, ClientPage, ClientPosition, ClientQuery, ClientSummary,
    ListenAddress, Peer,
};
use mqttcore_codec::{PacketType, ProtocolVersion, ReasonCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::client_facts::{RecentCounts, Tls, Will, transport};
use super::client_measures::{ClientRates, Latency, WaitsFor};
use super::connection_bytes::{self, ConnectionBytes};
use super::page::{Limit, List, ago_ms, behind, cursor, unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiPath, ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(one, disconnect))
}

/// A session, and its connection if it has one.
#[derive(Serialize, ToSchema)]
#[schema(as = Client)]
struct ClientInfo {
    client_id: String,
    /// The user name, which a plugin may have set.
    username: Option<String>,
    connected: bool,
    /// Begin of the connection, in Unix milliseconds.
    connected_at_ms: Option<u64>,
    /// Name of the listener of the last connection.
    listener: Option<String>,
    /// Address of the last connection, or `uid:1000` for a Unix socket; null if there was none since the start.
    address: Option<String>,
    port: Option<u16>,
    /// `tcp`, `websocket` or `unix`; null if it is not connected.
    transport: Option<&'static str>,
    /// Null without TLS: it is not connected, is not encrypted, or a proxy in front of the broker has decrypted it.
    tls: Option<Tls>,
    /// `3.1`, `3.1.1` or `5.0`.
    version: String,
    keep_alive_s: u16,
    /// Whether the last CONNECT asked for a new session.
    clean_start: bool,
    /// Session Expiry Interval; 4294967295 means that the session does not expire.
    session_expiry_s: u32,
    /// Number of subscriptions.
    subscriptions: usize,
    queue: Queue,
    inflight: InFlightCounts,
    /// Bytes that wait for the socket.
    backlog_bytes: usize,
    /// Over the last ten seconds; null if it is not connected.
    rates: Option<ClientRates>,
    /// Null if no delivery of this connection was measured.
    latency: Option<Latency>,
    /// Null if no messages wait, or it is not connected.
    waits_for: Option<WaitsFor>,
    /// Limits because of which it is not read now, or gets no retained messages: `messages`, `bytes`, `control_packets` and
    /// `retained_bytes` a second, or `memory`.
    held_back_by: Vec<&'static str>,
    /// When the broker has handled its last packet, in Unix milliseconds; null if it is not connected.
    last_packet_ms: Option<u64>,
    will: Option<Will>,
    /// What its messages and requests survive once they are acknowledged: `memory`, `os` or `fsync`.
    durability: &'static str,
    /// The hook or the listener that gave its permissions; null if it has not connected since the start.
    granted_by: Option<String>,
    /// The subject of its client certificate.
    certificate: Option<String>,
    /// When its session ends if it stays offline, in Unix milliseconds; null if it is connected, or does not expire.
    session_expires_at_ms: Option<u64>,
    /// Only of a single client, and in lists with `bytes=true`. Absent if it is not connected, or uses a Unix socket or a
    /// proxy, or if the system does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<ConnectionBytes>,
    /// Only of a single client.
    #[serde(flatten)]
    counts: Option<RecentCounts>,
}

/// Queued messages.
#[derive(Serialize, ToSchema)]
pub(super) struct Queue {
    messages: usize,
    /// Bytes of the messages, in memory and on the disk.
    bytes: usize,
    /// Messages that are only on the disk.
    on_disk: usize,
    max_messages: usize,
    max_bytes: usize,
}

impl Queue {
    pub(super) fn of(client: &ClientSummary) -> Self {
        Self {
            messages: client.queued,
            bytes: client.queued_bytes,
            on_disk: client.queued_on_disk,
            max_messages: client.queue_messages_max,
            max_bytes: client.queue_bytes_max,
        }
    }
}

/// Numbers of messages whose acknowledgement is not complete.
#[derive(Serialize, ToSchema)]
struct InFlightCounts {
    /// QoS 1 and 2 messages to the client.
    out: usize,
    /// QoS 2 messages of the client that it has not released.
    r#in: usize,
    /// Maximum of `out`; null if it is not connected.
    max: Option<u16>,
}

/// The name of a version of the protocol.
pub(super) fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V3_1 => "3.1",
        ProtocolVersion::V3_1_1 => "3.1.1",
        ProtocolVersion::V5 => "5.0",
    }
}

impl ClientInfo {
    /// Describes a client. Longer than other functions: one line for each field.
    fn new(client: ClientSummary, bytes: &Counted) -> Self {
        let bytes = address(&client).and_then(|client| bytes.get(&client).copied());
        let rates = ClientRates::of(&client);
        let (latency, waits_for) = (Latency::of(&client), WaitsFor::of(&client));
        let (queue, transport) = (Queue::of(&client), transport(&client));
        let tls = client.channel.and_then(Channel::tls).map(Tls::from);
        Self {
            client_id: client.client_id.to_string(),
            username: client.username.map(|name| name.to_string()),
            connected: client.connected_for.is_some(),
            connected_at_ms: client.connected_for.map(ago_ms),
            listener: (!client.listener.is_empty()).then(|| client.listener.to_string()),
            address: client.peer.map(|peer| peer.host_and_port().0),
            port: match client.peer {
                Some(Peer::Tcp { port, .. }) => Some(port),
                _ => None,
            },
            transport,
            tls,
            version: version_name(client.version).into(),
            keep_alive_s: client.keep_alive_s,
            clean_start: client.clean_start,
            session_expiry_s: client.session_expiry_s,
            subscriptions: client.subscriptions,
            queue,
            inflight: InFlightCounts {
                out: client.in_flight,
                r#in: client.receiving,
                max: client.in_flight_max,
            },
            backlog_bytes: client.backlog_bytes,
            rates,
            latency,
            waits_for,
            held_back_by: client
                .held_back_by
                .iter()
                .map(|limit| limit.name())
                .collect(),
            last_packet_ms: client.silent_for.map(ago_ms),
            will: client.will.map(Will::from),
            durability: client.durability,
            granted_by: client.granted_by.map(|hook| hook.to_string()),
            certificate: client.certificate.map(|shown| shown.subject.to_string()),
            session_expires_at_ms: client.expires_in.map(|time| unix_ms() + whole_ms(time)),
            bytes,
            counts: None,
        }
    }
}

/// Bytes of connections, by the address of the client.
type Counted = HashMap<SocketAddr, ConnectionBytes>;

/// The address of a client that is connected over TCP.
fn address(client: &ClientSummary) -> Option<SocketAddr> {
    client.connected_for?;
    match client.peer? {
        Peer::Tcp { ip, port } => Some(SocketAddr::new(ip.to_canonical(), port)),
        Peer::Unix { .. } => None,
    }
}

/// Bytes of the connections of these clients.
fn count_bytes(state: &ApiState, clients: &[ClientSummary]) -> Result<Counted, Problem> {
    let config = state.broker.config()?;
    let ports = config
        .listeners
        .iter()
        .filter_map(|listener| match &listener.address {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        });
    let addresses: Vec<_> = clients.iter().filter_map(address).collect();
    Ok(connection_bytes::read(
        &addresses,
        &ports.collect::<Vec<_>>(),
    ))
}

/// The order of a list.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    ClientId,
    Stored,
    Queue,
    Inflight,
    Backlog,
    ConnectedAt,
    RateIn,
    RateOut,
    Slow,
}

/// A version of the protocol.
#[derive(Clone, Copy, Deserialize, ToSchema)]
enum Version {
    #[serde(rename = "3.1")]
    V31,
    #[serde(rename = "3.1.1")]
    V311,
    #[serde(rename = "5.0")]
    V5,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// A part of the client identifier.
    q: Option<String>,
    /// Whether the client has a connection.
    connected: Option<bool>,
    /// The user name.
    user: Option<String>,
    /// An IP address or network of the client, such as `10.0.0.0/8`.
    ip: Option<String>,
    /// A version of the protocol.
    #[param(inline)]
    version: Option<Version>,
    /// The name of a listener.
    listener: Option<String>,
    /// Minimum number of queued messages.
    #[serde(default)]
    #[param(required = false)]
    min_queue: usize,
    /// Minimum number of messages in flight.
    #[serde(default)]
    #[param(required = false)]
    min_inflight: usize,
    /// The order. Only lists by `client_id` and `stored` have several pages; the others have the `limit` highest items.
    /// `stored` is the order in which the broker has the sessions: a page of it does not read those before it, so that
    /// all of them take the least time.
    #[serde(default)]
    #[param(inline, required = false)]
    sort: Sort,
    /// Whether clients have `bytes`; `limit` is at most 100 then.
    #[serde(default)]
    #[param(required = false)]
    bytes: bool,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = u16, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// Position of the page: `next` of the previous page.
    after: Option<String>,
}

impl ListQuery {
    fn filter(&self) -> Result<ClientFilter, Problem> {
        let network = self.ip.as_ref().map(|text| {
            let parsed = text.parse();
            parsed.map_err(|error| Problem::bad(format!("ip: {error}: {text:?}")))
        });
        Ok(ClientFilter {
            id_contains: self.q.clone(),
            connected: self.connected,
            username: self.user.clone(),
            network: network.transpose()?,
            version: self.version.map(|version| match version {
                Version::V31 => ProtocolVersion::V3_1,
                Version::V311 => ProtocolVersion::V3_1_1,
                Version::V5 => ProtocolVersion::V5,
            }),
            listener: self.listener.clone(),
            min_queued: self.min_queue,
            min_in_flight: self.min_inflight,
            ..ClientFilter::default()
        })
    }

    fn query(&self) -> Result<ClientQuery, Problem> {
        let order = match self.sort {
            Sort::ClientId => ClientOrder::ClientId,
            Sort::Stored => ClientOrder::Stored,
            Sort::Queue => ClientOrder::Queued,
            Sort::Inflight => ClientOrder::InFlight,
            Sort::Backlog => ClientOrder::Backlog,
            Sort::ConnectedAt => ClientOrder::ConnectedAt,
            Sort::RateIn => ClientOrder::Received,
            Sort::RateOut => ClientOrder::Sent,
            Sort::Slow => ClientOrder::Slow,
        };
        page_query(self.filter()?, order, self.limit, self.after.as_deref())
    }
}

/// The query for a page of a list of clients, which begins at the cursor `after`.
pub(super) fn page_query(
    filter: ClientFilter,
    order: ClientOrder,
    limit: Limit,
    after: Option<&str>,
) -> Result<ClientQuery, Problem> {
    let after = behind(after)?;
    let mut query = ClientQuery {
        filter,
        order,
        limit: limit.0,
        ..ClientQuery::default()
    };
    match order {
        ClientOrder::ClientId => query.after = after.map(Into::into),
        ClientOrder::Stored => query.from = position(after.as_deref())?,
        _ if after.is_some() => {
            let text =
                "after is for lists by client_id and stored: others change while they are read";
            return Err(Problem::bad(text).hint("raise limit, or leave sort out"));
        }
        _ => {}
    }
    Ok(query)
}

/// Reads a position in the order `stored`: shard and slot.
fn position(after: Option<&str>) -> Result<ClientPosition, Problem> {
    let read = |text: &str| {
        let (shard, slot) = text.split_once(' ')?;
        let [shard, slot] = [shard, slot].map(|number| number.parse().ok());
        Some(ClientPosition {
            shard: shard?,
            slot: slot?,
        })
    };
    let Some(text) = after else {
        return Ok(ClientPosition::default());
    };
    read(text).ok_or_else(|| Problem::bad("after is not the position of a page in this order"))
}

/// The cursor of the page after this one; `None` in orders that have only one.
pub(super) fn next_of(page: &ClientPage, order: ClientOrder) -> Option<String> {
    let is_by_id = order == ClientOrder::ClientId;
    let last = page.clients.last().filter(|_| page.has_more && is_by_id);
    match page.next {
        Some(ClientPosition { shard, slot }) => Some(cursor(&format!("{shard} {slot}"))),
        None => last.map(|client| cursor(&client.client_id)),
    }
}

/// Lists clients: sessions, with or without a connection.
#[utoipa::path(get, path = "/api/v1/clients", tag = "clients", params(ListQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<ClientInfo>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<List<ClientInfo>>, Problem> {
    if query.bytes && query.limit.0 > connection_bytes::MOST {
        let text = format!(
            "bytes=true: limit must be at most {}",
            connection_bytes::MOST
        );
        return Err(Problem::bad(text));
    }
    let has_bytes = query.bytes;
    let query = query.query()?;
    let order = query.order;
    let page = state.broker.list_clients(query).await?;
    let next = next_of(&page, order);
    let bytes = if has_bytes {
        count_bytes(&state, &page.clients)?
    } else {
        Counted::new()
    };
    let items = page.clients.into_iter();
    let items = items
        .map(|client| ClientInfo::new(client, &bytes))
        .collect();
    Ok(Json(List::new(items, next, &page.missing)))
}

/// Describes a client.
#[utoipa::path(get, path = "/api/v1/clients/{id}", tag = "clients", security(("key" = ["view"])),
    params(("id" = String, Path, description = "Client identifier")),
    responses((status = 200, body = ClientInfo)))]
async fn one(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<Json<ClientInfo>, Problem> {
    let found = state.broker.client_with_events(&id).await?;
    let (client, counts) = found.ok_or_else(|| Problem::no_client(&id))?;
    let bytes = count_bytes(&state, std::slice::from_ref(&client))?;
    Ok(Json(ClientInfo {
        counts: Some(counts.into()),
        ..ClientInfo::new(client, &bytes)
    }))
}

/// Whether the session is kept or ended.
#[derive(Clone, Copy, Default, Deserialize, Eq, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Session {
    #[default]
    Keep,
    End,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DisconnectQuery {
    /// `keep`: only the connection ends. `end`: the session ends, too, and its queued messages are dropped.
    #[serde(default)]
    #[param(inline, required = false)]
    session: Session,
    /// The reason code of the DISCONNECT, as 152 or 0x98; default 0x98, administrative action.
    reason: Option<String>,
}

fn reason_code(text: &str) -> Result<ReasonCode, Problem> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let reason = number.and_then(ReasonCode::new);
    // Only clients send those below 0x80 [MQTT 5.0 section 3.14.2.1].
    let reason = reason.filter(|code| code.is_error() && code.allowed_in(PacketType::Disconnect));
    reason.ok_or_else(|| {
        let text = format!("reason: no reason code with which a server disconnects: {text:?}");
        Problem::bad(text).hint("0x98 is administrative action, 0x89 server busy")
    })
}

/// Disconnects a client; its will is published.
#[utoipa::path(delete, path = "/api/v1/clients/{id}", tag = "clients", security(("key" = ["operate"])),
    params(("id" = String, Path, description = "Client identifier"), DisconnectQuery),
    responses((status = 204, description = "The connection ends, and with `session=end` the session has ended")))]
async fn disconnect(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<DisconnectQuery>,
) -> Result<StatusCode, Problem> {
    let reason = query.reason.as_deref().map(reason_code).transpose()?;
    let reason = reason.unwrap_or(ReasonCode::ADMINISTRATIVE_ACTION);
    let ends_session = query.session == Session::End;
    if state.broker.disconnect(&id, reason, ends_session).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    if state.broker.client(&id).await?.is_none() {
        return Err(Problem::no_client(&id));
    }
    Err(
        Problem::not_found(format!("client {id:?} is not connected"))
            .hint("session=end ends its session"),
    )
}
