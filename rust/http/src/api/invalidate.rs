//! `POST /access/invalidate`: has the plugins asked again about the rights of clients.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::configuration::ask_program;
use super::plugins::check_name;
use super::problem::Problem;
use super::query::{ApiJson, ApiQuery, NoQuery};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(invalidate))
}

/// The clients: one of the fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct InvalidatedClients {
    /// The client with this identifier.
    client_id: Option<String>,
    /// The clients of this user.
    username: Option<String>,
    /// The clients whose grant a hook of this plugin has given; the name as in `GET /plugins`, or its module. If the
    /// plugin answers about single topics (`authorize`), these are all clients.
    plugin: Option<String>,
    /// true: all clients.
    #[serde(default)]
    all: bool,
}

/// Outcome of an invalidation.
#[derive(Deserialize, Serialize, ToSchema)]
struct Invalidated {
    /// How many of the clients are connected.
    connected: u64,
}

/// Drops cached answers of plugins about clients, and asks the plugins again in the background.
///
/// Without a `grant` hook, clients are disconnected and log in again. See `Broker.invalidate`.
#[utoipa::path(post, path = "/api/v1/access/invalidate", tag = "access", request_body = InvalidatedClients, security(("key" = ["admin"])),
    responses((status = 200, body = Invalidated)))]
async fn invalidate(
    State(state): State<ApiState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    ApiJson(clients): ApiJson<InvalidatedClients>,
) -> Result<Json<Invalidated>, Problem> {
    let given = [
        clients.client_id.is_some(),
        clients.username.is_some(),
        clients.plugin.is_some(),
        clients.all,
    ];
    if given.into_iter().filter(|is_given| *is_given).count() != 1 {
        let problem = Problem::bad("the body names no clients, or names them in several ways");
        return Err(
            problem.hint("send exactly one of client_id, username, plugin and \"all\": true")
        );
    }
    if let Some(name) = &clients.plugin {
        check_name(&state.broker, name)?;
    }
    let argument = json!({
        "client_id": clients.client_id,
        "username": clients.username,
        "plugin": clients.plugin,
        "everything": clients.all,
    });
    let invalidated = ask_program(&state, "invalidate", argument.to_string()).await?;
    Ok(Json(invalidated))
}
