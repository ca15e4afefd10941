//! `GET /clients/{id}/permissions`: the rules of a client's grant.

use axum::Json;
use axum::extract::State;
use mqttcore_broker::GrantRule;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::page::{List, PageQuery, behind, cursor};
use super::problem::Problem;
use super::query::{ApiPath, ApiQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A rule of the permissions of a client.
#[derive(Serialize, ToSchema)]
struct PermissionRule {
    /// The actions that it decides about: `publish`, `receive`, `subscribe`, `unsubscribe`.
    actions: &'static [&'static str],
    /// Whether it allows them or denies them.
    allowed: bool,
    /// The topic filter, with the client's mount point, if it has one. `$#` stands for all topics that begin with `$`.
    filter: String,
    /// Only the same text matches.
    exact: bool,
    /// Where the rule is written: file and line, or row of a query.
    place: Option<String>,
}

impl From<GrantRule> for PermissionRule {
    fn from(rule: GrantRule) -> Self {
        Self {
            actions: rule.actions,
            allowed: rule.is_allowed,
            filter: rule.filter.into(),
            exact: rule.is_exact,
            place: rule.place.map(|place| place.to_string()),
        }
    }
}

/// Lists the rules of a client's permissions, in the order in which they decide.
///
/// If no rule decides, a request is denied, unless an `authorize` hook of a plugin allows it. `granted_by` of the client
/// names the plugin.
#[utoipa::path(get, path = "/api/v1/clients/{id}/permissions", tag = "clients", security(("key" = ["view"])),
    params(("id" = String, Path, description = "Client identifier"), PageQuery),
    responses((status = 200, body = List<PermissionRule>)))]
async fn list(
    State(state): State<ApiState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(page): ApiQuery<PageQuery>,
) -> Result<Json<List<PermissionRule>>, Problem> {
    let after = behind(page.after.as_deref())?;
    let from = after.map_or(Ok(0), |text| text.parse());
    let from: usize =
        from.map_err(|_| Problem::bad("after is not the position of a page of this list"))?;
    let found = state.broker.client_rules(&id, from, page.limit.0).await?;
    let found = found.ok_or_else(|| Problem::no_client(&id))?;
    let next = found
        .has_more
        .then(|| cursor(&(from + page.limit.0).to_string()));
    let items = found.items.into_iter().map(PermissionRule::from).collect();
    Ok(Json(List::new(items, next, &[])))
}
