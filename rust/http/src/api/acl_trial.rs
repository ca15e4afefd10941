//! `POST /access/dry-run`: what another ACL file would change for the sessions of the broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use mqttcore_broker::{
    AskError, BrokerHandle, BrokerStopped, ClientOrder, ClientPosition, ClientQuery, MissingPart,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::configuration::ask_program;
use super::page::Partial;
use super::problem::Problem;
use super::query::{ApiJson, ApiQuery, NoQuery};

/// Number of sessions that are read together.
const READ_TOGETHER: usize = 1_000;
/// Maximum number of clients whose changes the answer has.
const CLIENTS_MAX: usize = 1_000;
/// Maximum number of subscriptions of each of them that are compared.
const SUBSCRIPTIONS_MAX: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(try_acl_file))
}

/// An ACL file to try.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriedAclFile {
    /// The text of the file.
    acl_file: String,
}

/// A change for a client.
#[derive(Deserialize, Serialize, ToSchema)]
struct AclChange {
    client_id: String,
    username: Option<String>,
    /// `publish`, or `receive` by a subscription.
    action: String,
    /// The filter of the subscription.
    filter: Option<String>,
    /// The rules that decide now.
    now: String,
    /// The rules that would decide.
    then: String,
}

/// What the file would change.
#[derive(Serialize, ToSchema)]
struct AclChanges {
    /// Number of sessions.
    clients: usize,
    /// Number of clients that would have other rules.
    changed: usize,
    /// At most 10,000 changes, of the first 1,000 of them. Other rules may mean the same: then there is no change.
    changes: Vec<AclChange>,
    /// Whether there may be more changes: there are more clients, more changes, or a client with more than 1,000
    /// subscriptions.
    has_more: bool,
    warnings: Vec<String>,
    /// Shards whose sessions or subscriptions are missing.
    partial: Vec<Partial>,
}

/// The answer of the program.
#[derive(Deserialize)]
struct Tried {
    errors: Vec<String>,
    warnings: Vec<String>,
    changed: Vec<String>,
    changes: Vec<AclChange>,
    has_more: bool,
}

/// User names by client identifier.
type Users = BTreeMap<Arc<str>, Option<Arc<str>>>;

/// Compares the text of an ACL file with the file in use, for all sessions. Nothing changes.
///
/// The answer says which clients could publish or receive other messages.
#[utoipa::path(post, path = "/api/v1/access/dry-run", tag = "access", request_body = TriedAclFile, security(("key" = ["admin"])),
    responses((status = 200, body = AclChanges)))]
async fn try_acl_file(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(TriedAclFile { acl_file }): ApiJson<TriedAclFile>,
) -> Result<Json<AclChanges>, Problem> {
    let (users, mut missing) = users(&state.broker).await?;
    let sessions = users
        .iter()
        .map(|(id, user)| (&**id, user.as_deref(), Vec::new()));
    let first = compare(&state, &acl_file, sessions.collect()).await?;
    let mut has_more = first.changed.len() > CLIENTS_MAX;
    let mut sessions = Vec::new();
    for id in first.changed.iter().take(CLIENTS_MAX) {
        let (filters, is_cut) = filters(&state.broker, id, &mut missing).await?;
        has_more |= is_cut;
        let user = users.get(&**id).and_then(|user| user.as_deref());
        sessions.push((&**id, user, filters));
    }
    let tried = compare(&state, &acl_file, sessions).await?;
    Ok(Json(AclChanges {
        clients: users.len(),
        changed: first.changed.len(),
        changes: tried.changes,
        has_more: has_more || tried.has_more,
        warnings: tried.warnings,
        partial: missing.iter().map(Into::into).collect(),
    }))
}

/// Client identifier, user name and topic filters.
type Session<'a> = (&'a str, Option<&'a str>, Vec<String>);

async fn compare(
    state: &ApiState,
    acl_file: &str,
    sessions: Vec<Session<'_>>,
) -> Result<Tried, Problem> {
    let argument = json!({"acl_file": acl_file, "sessions": sessions});
    let tried: Tried = ask_program(state, "try_acl_file", argument.to_string()).await?;
    if tried.errors.is_empty() {
        return Ok(tried);
    }
    Err(Problem::bad(tried.errors.join("\n")))
}

/// The filters of the subscriptions of a client that are compared, and whether it has more. A shard that does not answer
/// is added to `missing` and not asked again.
async fn filters(
    broker: &BrokerHandle,
    id: &str,
    missing: &mut Vec<MissingPart>,
) -> Result<(Vec<String>, bool), Problem> {
    let shard = broker.shard_of(id).ok_or(BrokerStopped)?;
    let is_late =
        |part: &MissingPart| part.shard == shard && matches!(part.why, AskError::Late { .. });
    if missing.iter().any(is_late) {
        return Ok((Vec::new(), false));
    }
    match broker
        .client_subscriptions(id, None, SUBSCRIPTIONS_MAX)
        .await
    {
        Ok(held) => {
            let is_cut = held.as_ref().is_some_and(|held| held.has_more);
            let held = held.into_iter().flat_map(|held| held.items);
            let filters = held.map(|held| held.filter.as_str().to_owned());
            Ok((filters.collect(), is_cut))
        }
        Err(AskError::Stopped(stopped)) => Err(stopped.into()),
        Err(why) => {
            let part = MissingPart { shard, why };
            if !missing.contains(&part) {
                missing.push(part);
            }
            Ok((Vec::new(), false))
        }
    }
}

/// The user name of each session.
async fn users(broker: &BrokerHandle) -> Result<(Users, Vec<MissingPart>), Problem> {
    let (mut users, mut missing) = (Users::new(), Vec::new());
    let mut next = Some(ClientPosition::default());
    while let Some(from) = next {
        let query = ClientQuery {
            order: ClientOrder::Stored,
            from,
            limit: READ_TOGETHER,
            ..ClientQuery::default()
        };
        let page = broker.list_clients(query).await?;
        let clients = page.clients.into_iter();
        users.extend(clients.map(|client| (client.client_id, client.username)));
        missing.extend(page.missing);
        next = page.next;
    }
    Ok((users, missing))
}
