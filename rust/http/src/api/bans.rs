//! Routes of bans.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use hyper::StatusCode;
use mqttcore_broker::{Ban, BanError, BanReason, BanTarget};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::identity::CallerIdentity;
use super::page::{List, PageQuery, behind, cursor, unix_ms, whole_ms};
use super::problem::Problem;
use super::query::{ApiJson, ApiPath, ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(lift))
}

/// The attribute of a client that a ban compares.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    ClientId,
    /// A client identifier, for one user or for clients without user name alone: a ban for flapping.
    ClientIdOfUser,
    /// A regular expression that matches whole client identifiers.
    ClientIdRegex,
    Username,
    /// An IP address or network, such as `10.0.0.0/8`.
    Ip,
}

/// A ban in force.
#[derive(Serialize, ToSchema)]
struct Banned {
    /// Identifier for `DELETE /api/v1/bans/{id}`.
    id: String,
    kind: Kind,
    value: String,
    /// The user name of a ban of kind `client_id_of_user`; null: clients without user name. Null for other kinds.
    username: Option<String>,
    /// The reason, for operators.
    why: String,
    /// Who made it: the name of the operator in the audit log, or `the broker`; null: not known.
    by: Option<String>,
    /// End of the ban, in Unix milliseconds; null: when it is lifted.
    until_ms: Option<u64>,
}

/// Separates client identifier and user name in an [`id_of`]; no client identifier has it [MQTT-1.5.4-2].
const NUL: char = '\0';

/// The identifier of a ban: its kind and its value, with the user name if it has one.
fn id_of(target: &BanTarget) -> String {
    let (kind, value) = parts(target);
    let kind = name(kind);
    match target {
        BanTarget::ClientIdOfUser {
            username: Some(username),
            ..
        } => format!("{kind} {value}{NUL}{username}"),
        _ => format!("{kind} {value}"),
    }
}

/// The target of a ban with this identifier.
fn target_of(id: &str) -> Option<BanTarget> {
    let (kind, value) = id.split_once(' ')?;
    let kind = serde_json::from_value(kind.into()).ok()?;
    if !matches!(kind, Kind::ClientIdOfUser) {
        return target(kind, value).ok();
    }
    let (client_id, username) = match value.split_once(NUL) {
        None => (value, None),
        Some((client_id, username)) => (client_id, Some(username.into())),
    };
    Some(BanTarget::ClientIdOfUser {
        client_id: client_id.into(),
        username,
    })
}

fn parts(target: &BanTarget) -> (Kind, String) {
    match target {
        BanTarget::ClientId(id) => (Kind::ClientId, id.to_string()),
        BanTarget::ClientIdOfUser { client_id, .. } => {
            (Kind::ClientIdOfUser, client_id.to_string())
        }
        BanTarget::ClientIdPattern(pattern) => (Kind::ClientIdRegex, pattern.to_string()),
        BanTarget::Username(name) => (Kind::Username, name.to_string()),
        BanTarget::Network(network) => (Kind::Ip, network.to_string()),
    }
}

fn target(kind: Kind, value: &str) -> Result<BanTarget, Problem> {
    let invalid = |error: String| Problem::bad(format!("value: {error}: {value:?}"));
    match kind {
        Kind::ClientId => Ok(BanTarget::ClientId(value.into())),
        Kind::ClientIdOfUser => Err(Problem::bad(
            "kind: the broker alone bans a client identifier of one user, for flapping",
        )
        .hint("ban the client identifier (client_id) or the user (username)")),
        Kind::Username => Ok(BanTarget::Username(value.into())),
        Kind::ClientIdRegex => {
            let pattern = value.parse().map(BanTarget::ClientIdPattern);
            pattern.map_err(|error: mqttcore_broker::InvalidPattern| invalid(error.to_string()))
        }
        Kind::Ip => {
            let network = value.parse().map(BanTarget::Network);
            network.map_err(|error: mqttcore_broker::InvalidNetwork| invalid(error.to_string()))
        }
    }
}

impl From<Ban> for Banned {
    fn from(ban: Ban) -> Self {
        let id = cursor(&id_of(&ban.target));
        let (kind, value) = parts(&ban.target);
        let username = match ban.target {
            BanTarget::ClientIdOfUser { username, .. } => username.map(Into::into),
            _ => None,
        };
        let end_ms = |rest| unix_ms().saturating_add(whole_ms(rest));
        Self {
            id,
            kind,
            value,
            username,
            why: ban.reason.text,
            by: Some(ban.reason.by).filter(|by| !by.is_empty()),
            until_ms: ban.remaining.map(end_ms),
        }
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::ClientId => "client_id",
        Kind::ClientIdOfUser => "client_id_of_user",
        Kind::ClientIdRegex => "client_id_regex",
        Kind::Username => "username",
        Kind::Ip => "ip",
    }
}

/// Lists the bans in force, by kind and value.
#[utoipa::path(get, path = "/api/v1/bans", tag = "access", params(PageQuery), security(("key" = ["view"])),
    responses((status = 200, body = List<Banned>)))]
async fn list(
    State(state): State<ApiState>,
    ApiQuery(query): ApiQuery<PageQuery>,
) -> Result<Json<List<Banned>>, Problem> {
    let after = behind(query.after.as_deref())?;
    let mut bans = state.broker.bans();
    let key = |ban: &Ban| id_of(&ban.target);
    bans.retain(|ban| after.as_ref().is_none_or(|after| key(ban) > *after));
    bans.sort_by_cached_key(key);
    let has_more = bans.len() > query.limit.0;
    bans.truncate(query.limit.0);
    let bans: Vec<Banned> = bans.into_iter().map(Into::into).collect();
    let next = bans.last().filter(|_| has_more).map(|ban| ban.id.clone());
    Ok(Json(List::new(bans, next, &[])))
}

/// A ban to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBan {
    kind: Kind,
    value: String,
    /// The reason, for operators; it is not sent to clients.
    #[serde(default)]
    why: String,
    /// Duration of the ban; null: until it is lifted.
    duration_s: Option<u64>,
}

/// An added ban.
#[derive(Serialize, ToSchema)]
struct Added {
    /// Identifier for `DELETE /api/v1/bans/{id}`.
    id: String,
    /// Number of disconnected clients, without those of shards that did not answer in time.
    disconnected: usize,
}

impl From<BanError> for Problem {
    fn from(error: BanError) -> Self {
        match error {
            BanError::Stopped(error) => error.into(),
            BanError::TooMany(error) => Self::conflict(error.to_string())
                .hint("GET /api/v1/bans lists them; one network or expression can cover several"),
        }
    }
}

/// Bytes of the texts of a ban.
const TEXT_BYTES: usize = 4_096;

/// Bans clients, and disconnects those that are connected. With a data folder the ban survives a restart.
#[utoipa::path(post, path = "/api/v1/bans", tag = "access", request_body = NewBan, security(("key" = ["operate"])),
    responses((status = 201, body = Added)))]
async fn add(
    State(state): State<ApiState>,
    Extension(identity): Extension<CallerIdentity>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(new): ApiJson<NewBan>,
) -> Result<(StatusCode, Json<Added>), Problem> {
    if new.value.is_empty() || new.value.len() > TEXT_BYTES || new.why.len() > TEXT_BYTES {
        return Err(Problem::bad(
            "value must have 1 to 4096 bytes, and why 4096 at most",
        ));
    }
    let target = target(new.kind, &new.value)?;
    let id = cursor(&id_of(&target));
    let duration = new.duration_s.map(Duration::from_secs);
    let reason = BanReason::new(new.why, &identity.name);
    let disconnected = state.broker.ban(target, reason, duration).await?;
    Ok((StatusCode::CREATED, Json(Added { id, disconnected })))
}

/// Lifts a ban. With that of a client identifier, the bans for flapping of its users are lifted, too.
#[utoipa::path(delete, path = "/api/v1/bans/{id}", tag = "access", security(("key" = ["operate"])),
    params(("id" = String, Path, description = "The field id of a ban")),
    responses((status = 204, description = "It is lifted")))]
async fn lift(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(_): ApiQuery<NoQuery>,
) -> Result<StatusCode, Problem> {
    let none = || Problem::not_found("there is no such ban").hint("GET /api/v1/bans lists them");
    let text = behind(Some(&id)).ok().flatten().ok_or_else(none)?;
    let target = target_of(&text).ok_or_else(none)?;
    if state.broker.unban(&target)? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(none())
}
